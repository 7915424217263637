"""The options of a verification of a processor's evidence, and what it finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Literal

from ..common.release_options import ReleaseClaims
from ..proto.attestation.launch import Weights
from ..proto.attestation.statement import read_statement
from ..x509 import Certificate
from .evidence.snp_report import Product, SnpTcb

CpuType = Literal["SEV_SNP", "TDX", "AZURE_SEV_SNP", "AZURE_TDX"]


TcbStatus = Literal[
    "UpToDate",
    "SWHardeningNeeded",
    "ConfigurationNeeded",
    "ConfigurationAndSWHardeningNeeded",
    "OutOfDate",
    "OutOfDateConfigurationNeeded",
    "TDRelaunchAdvised",
    "TDRelaunchAdvisedConfigurationNeeded",
    "Revoked",
    "NotSupported",
]
"""Intel's words for a platform's state; `NotSupported`: no level of the TCB info is met."""


@dataclass(frozen=True)
class TdxCollateral:
    """
    Intel's endorsements, in the form of dcap-qvl: signed texts exactly as they were signed; signatures and DER as hex,
    chains as PEM.
    """

    tcb_info: str
    tcb_info_signature: str
    tcb_info_issuer_chain: str
    qe_identity: str
    qe_identity_signature: str
    qe_identity_issuer_chain: str
    pck_crl: str
    pck_crl_issuer_chain: str
    """Not read: the list must be signed by the authority in the quote's own chain."""
    root_ca_crl: str
    pck_certificate_chain: str | None = None
    """Not read: the quote has its own chain."""


@dataclass(frozen=True)
class CpuPolicy:
    products: Sequence[str] | None = None
    """
    AMD products whose reports are accepted. Genoa and Turin by default: Milan's reports can be forged (arXiv
    2605.12990).
    """
    chips: Sequence[str] | None = None
    """
    The chips that are accepted, as the claims show them: AMD's `chip_id` (128 lowercase hex digits), Intel's `ppid`
    (32); any by default. A report that masks its chip id, as those signed by a VLEK may, is then refused.
    """
    min_tcb: Mapping[str, SnpTcb] | None = None
    """
    The least TCB that AMD's reported, current, committed and launch TCB must all have. For a product that is not named
    here it is SNP firmware 27 of Genoa and 4 of Turin (snp_checks.py names the sources); `{"Genoa": {}}` asks for none of
    Genoa.
    """
    require_alias_check: bool = False
    """
    Demand that AMD's firmware completed its alias check (PLATFORM_INFO, bit 5): at boot no two addresses led to the
    same memory, by a false SPD for instance. It says nothing about later: an interposer that aliases memory while the
    machine runs passes it. A TDX quote cannot meet this demand, nor the next two.
    """
    require_smt_off: bool = False
    """
    Demand that SMT is off (PLATFORM_INFO, bit 0) and that the guest would not start with it (POLICY, bit 16): no
    sibling thread of somebody else shares its cores. Other guests still share caches with it.
    """
    require_ciphertext_hiding: bool = False
    """
    Demand that ciphertext hiding is on (PLATFORM_INFO, bit 4) and that the guest would not start without it (POLICY,
    bit 24; AMD 56860, revision 1.58): the host's software reads no ciphertext of the guest's memory. Anybody who taps the
    memory bus still does.
    """
    csp_ids: Sequence[str] | None = None
    """Whose VLEKs are accepted, by the text of their CSP id; any by default."""
    tcb: Sequence[str] | None = None
    """Intel's statuses that are accepted; UpToDate alone by default. Revoked and NotSupported never are."""
    min_tcb_evaluation: float | None = None
    """The least `tcbEvaluationDataNumber` of Intel's texts."""


@dataclass(frozen=True)
class CpuRoots:
    """PEM certificates to trust in place of the pinned ones."""

    amd: str | None = None
    intel: str | None = None


@dataclass(frozen=True)
class CpuCollateral:
    """The caller's own. It replaces that in the evidence where it is valid at that instant."""

    tdx: TdxCollateral | Mapping[str, str | None] | None = None
    """Intel's: the members of TdxCollateral."""
    amd_crl: bytes | None = None
    """AMD's revocation list in DER."""


@dataclass(frozen=True)
class CpuWithout:
    """Checks that the caller leaves out; each is shown as a skip with that reason."""

    revocation: bool = False


@dataclass(frozen=True)
class CpuExpected:
    report_data: str | None = None
    """
    REPORTDATA in hex: at most 64 bytes, the rest is zero. For Azure's types: exactly what the vTPM's quote signed.
    """


@dataclass(frozen=True)
class CpuOptions:
    """The option `cpu` of an attestation's or a session's verification."""

    roots: CpuRoots = CpuRoots()
    collateral: CpuCollateral = CpuCollateral()
    policy: CpuPolicy = CpuPolicy()
    reference: str | Mapping[str, Any] | None = None
    """
    The guests and launch files that the caller knows, as docs/attestation.md §7.13 has them: JSON text, or parsed.
    """
    weights: str | Mapping[str, Any] | None = None
    """
    The weights that the launch file must have its backend load, at level `measured`: their verity root, or
    `weights.json` as text or parsed. A processor's bare evidence shows no launch file.
    """


@dataclass(frozen=True)
class CpuVerifyOptions:
    at: datetime | None = None
    """The instant of the verification. Now by default."""
    roots: CpuRoots = CpuRoots()
    simulated_roots: str | None = None
    """
    PEM certificates of simulated processors' test roots. Evidence under one passes, and proves nothing about hardware.
    """
    collateral: CpuCollateral = CpuCollateral()
    without: CpuWithout = CpuWithout()
    expected: CpuExpected = CpuExpected()
    policy: CpuPolicy = CpuPolicy()
    reference: str | Mapping[str, Any] | None = None
    """As of CpuOptions; without it, which software runs is not compared."""
    weights: str | Mapping[str, Any] | None = None
    """As of CpuOptions."""
    stop_at_failure: bool = False
    """No check runs after one that failed."""


@dataclass(frozen=True)
class CpuContext:
    """The options, read once."""

    at: datetime
    amd_roots: Sequence[Certificate]
    intel_roots: Sequence[Certificate]
    simulated_roots: Sequence[Certificate]
    policy: CpuPolicy
    tdx_collateral: TdxCollateral | None
    amd_crl: bytes | None
    without_revocation: bool
    reference: Mapping[str, Any] | None
    """None: which software runs is not compared."""
    weights: str | None
    """The expected verity root; None: any weights."""
    release: ReleaseClaims | None = None
    """The release whose list `reference` is; None: it is the caller's own."""


@dataclass(frozen=True)
class CpuSoftware:
    """The software that the caller knows."""

    launch: str
    """SHA-256 of the launch file."""
    images: Mapping[str, str] | None
    """Its images by service; None where the launch file itself was not at hand."""
    weights: Sequence[Weights] | None
    """
    The weights that it mounts into the backend's container; None where the file is of version 1, or was not at hand.
    """
    model: Weights | None
    """Those of them that the backend's command loads."""
    uncompared: str | None
    """What the caller's reference value leaves out, in words."""
    release: str | None = None
    """SHA-256 of the release's statement; None: the list is not that of a release."""

    def to_dict(self) -> dict[str, Any]:
        images = None if self.images is None else dict(self.images)
        return {
            "launch": self.launch,
            "images": images,
            "weights": None if self.weights is None else [one.to_dict() for one in self.weights],
            "model": None if self.model is None else self.model.to_dict(),
            "uncompared": self.uncompared,
            **({} if self.release is None else {"release": self.release}),
        }


@dataclass(frozen=True)
class CpuClaims:
    """The claims of the evidence, in hex; None where it has none. Nothing here is proven unless the report is valid."""

    type: CpuType
    simulated: bool
    product: Product | None
    chip_id: str | None
    ppid: str | None
    """Intel's id of the platform, in its PCK certificate."""
    vmpl: int | None
    report_data: str
    measurement: str
    """MEASUREMENT of SEV-SNP, MRTD of TDX."""
    rtmrs: Sequence[str] | None
    host_data: str
    """HOST_DATA of SEV-SNP, MRCONFIGID of TDX: set by the host, and signed."""
    id_key_digest: str | None
    tcb: SnpTcb | None
    fmspc: str | None
    tcb_status: TcbStatus | None
    advisories: Sequence[str]
    pcrs: Sequence[str] | None
    """SHA-256 registers of Azure's vTPM."""
    software: CpuSoftware | None
    """The guest's software, one that the caller knows; None where it was not compared, or is another."""

    def to_dict(self) -> dict[str, Any]:
        claims = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in ("rtmrs", "advisories", "pcrs"):
            claims[name] = None if claims[name] is None else list(claims[name])
        claims["tcb"] = None if self.tcb is None else dict(self.tcb)
        claims["software"] = None if self.software is None else self.software.to_dict()
        return claims


@dataclass(frozen=True)
class VerifiedSession:
    """
    A session that was verified, for the attestations that name it and do not carry it. `verify_session` returns it.
    """

    statement: str
    """The exact text that GPUs and processor signed."""
    cpu: CpuClaims

    @property
    def hpke(self) -> str | None:
        """
        The key configurations that the statement names for sealed prompts: `application/ohttp-keys` in base64.
        None: it names none.
        """
        return read_statement(self.statement).hpke
