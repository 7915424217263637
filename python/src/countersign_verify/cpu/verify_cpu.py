"""Verifies a processor's evidence: the list of checks, read top to bottom."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

from ..common.checks import Check, CheckFailure, CheckList, Passed, Skipped, VerificationError, passed, seen, skipped
from ..proto.bytes import EncodingError, from_hex
from ..proto.strict_json import is_number
from ..x509.certificate import read_pem
from .cpu_member import CpuMember, read_cpu_member, read_tdx_collateral
from .cpu_options import (
    CpuClaims,
    CpuCollateral,
    CpuContext,
    CpuExpected,
    CpuPolicy,
    CpuRoots,
    CpuSoftware,
    CpuVerifyOptions,
    CpuWithout,
    TdxCollateral,
)
from .evidence.azure_vtpm import HclReport, TpmAttest, TpmQuote, check_vtpm, parse_hcl_report, parse_tpm_attest
from .evidence.byte_reader import is_zero
from .evidence.event_log import check_event_log
from .evidence.snp_report import PRODUCTS, SnpReport, parse_snp_report, tcb_of
from .evidence.tdx_quote import TdxQuote, parse_tdx_quote
from .pinned_roots import amd_roots, intel_roots
from .reference import Json, Measured, NamedLaunch, check_launch, check_measurement, read_reference
from .snp_checks import (
    AmdPath,
    check_snp_chain,
    check_snp_identity,
    check_snp_mode,
    check_snp_revocation,
    check_snp_signature,
    check_snp_tcb,
)
from .tdx_checks import (
    IntelPath,
    PlatformTcb,
    check_tdx_chain,
    check_tdx_identity,
    check_tdx_mode,
    check_tdx_revocation,
    check_tdx_signature,
    check_tdx_tcb,
    state_of,
)
from .tdx_collateral import VerifiedCollateral, find_collateral
from .weights import check_weights, read_weights

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class CpuReport:
    valid: bool
    incomplete: bool
    """Not valid, and only for checks that could not run: nothing was found wrong."""
    checks: tuple[Check, ...]
    claims: CpuClaims | None
    """None where the evidence cannot be read."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, with the names and in the order of the TypeScript verifier."""
        return {
            "valid": self.valid,
            "incomplete": self.incomplete,
            "checks": [check.to_dict() for check in self.checks],
            "claims": None if self.claims is None else self.claims.to_dict(),
        }


class CpuOptionFields(TypedDict, total=False):
    """The members of CpuVerifyOptions, as keyword arguments."""

    at: datetime | None
    roots: CpuRoots
    simulated_roots: str | None
    collateral: CpuCollateral
    without: CpuWithout
    expected: CpuExpected
    policy: CpuPolicy
    reference: str | Json | None
    weights: str | Json | None
    stop_at_failure: bool


def verify_cpu(value: object, **options: Unpack[CpuOptionFields]) -> CpuReport:
    """
    Verifies a processor's bare evidence: that a genuine AMD or Intel processor signed it, for a confidential guest,
    under firmware that is accepted; with `reference` also that the guest is one that the caller knows.

    ```python
    report = verify_cpu(text, expected=CpuExpected(report_data=nonce))
    ```

    `value`: the member `cpu` of an attestation: its JSON text, or parsed. Options are the fields of CpuVerifyOptions.
    @raises VerificationError with the list of checks. @raises TypeError for options that cannot be used.
    """
    report = appraise_cpu(value, **options)
    if not report.valid:
        raise VerificationError(report.checks)
    return report


def appraise_cpu(value: object, **options: Unpack[CpuOptionFields]) -> CpuReport:
    """As `verify_cpu`, but a failed check is part of the report and not raised."""
    given = CpuVerifyOptions(**options)
    context = read_cpu_options(given)
    binding = _expected_binding(given.expected)
    checks = CheckList(given.stop_at_failure)
    evidence = checks.run("cpu_form", [], lambda: read_cpu_evidence(value))
    claims = check_cpu_evidence(checks, evidence, context, binding)
    if context.weights is not None:
        software = None if claims is None else claims.software
        checks.run("cpu_weights", ["cpu_software"], lambda: check_weights(context.weights, software))
    return CpuReport(checks.valid, checks.incomplete, checks.checks, claims)


@dataclass(frozen=True)
class Binding:
    """The report data that the processor must have signed."""

    report_data: bytes
    """REPORTDATA without its zeros at the end."""
    source: str
    """Who expects it, for the check's detail."""
    launch: NamedLaunch | None = None
    """The launch file that the statement names; None: it names none."""
    also: Callable[[], str] | None = None
    """More that must hold. It returns words for the check's detail, or raises a CheckFailure."""


REPORT_DATA_BYTES = 64
_NESTED = {
    "roots": CpuRoots,
    "collateral": CpuCollateral,
    "without": CpuWithout,
    "expected": CpuExpected,
    "policy": CpuPolicy,
}


def read_cpu_options(options: CpuVerifyOptions) -> CpuContext:
    """@raises TypeError naming the option that cannot be used."""
    for name, kind in _NESTED.items():
        if not isinstance(getattr(options, name), kind):
            raise TypeError(f"{name} is not of the type {kind.__name__}")
    at = datetime.now(timezone.utc) if options.at is None else options.at
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise TypeError("at is not a time with a time zone")
    _check_policy(options.policy)
    roots, collateral, simulated = options.roots, options.collateral, options.simulated_roots
    crl = collateral.amd_crl
    if crl is not None and not isinstance(crl, (bytes, bytearray, memoryview)):
        raise TypeError("collateral.amd_crl is not bytes")
    return CpuContext(
        at=at.astimezone(timezone.utc),
        amd_roots=amd_roots() if roots.amd is None else read_pem(roots.amd, "roots.amd"),
        intel_roots=intel_roots() if roots.intel is None else read_pem(roots.intel, "roots.intel"),
        simulated_roots=() if simulated is None else read_pem(simulated, "simulated_roots"),
        policy=options.policy,
        tdx_collateral=None if collateral.tdx is None else _own_collateral(collateral.tdx),
        amd_crl=None if crl is None else bytes(crl),
        without_revocation=options.without.revocation is True,
        reference=None if options.reference is None else read_reference(options.reference),
        weights=None if options.weights is None else read_weights(options.weights),
    )


_CHIP = re.compile("[0-9a-f]{128}|[0-9a-f]{32}")
"""AMD's chip ids and Intel's PPIDs."""


def _check_policy(policy: CpuPolicy) -> None:
    # Comparisons with NaN are false: it would switch the check off.
    least = policy.min_tcb_evaluation
    if least is not None and not (is_number(least) and least >= 0):
        raise TypeError("policy.min_tcb_evaluation is not a number")
    for name in ("products", "csp_ids", "tcb", "chips"):
        # Of a text every part of it would be one of the accepted.
        if isinstance(getattr(policy, name), str):
            raise TypeError(f"policy.{name} is not a list")
    if not all(isinstance(chip, str) and _CHIP.fullmatch(chip) for chip in policy.chips or ()):
        raise TypeError("policy.chips is not a list of 128 (AMD) or 32 (Intel) lowercase hex digits")
    products = {} if policy.min_tcb is None else policy.min_tcb
    parts = products.values() if isinstance(products, Mapping) else [None]
    if not all(isinstance(tcb, Mapping) and all(map(is_number, tcb.values())) for tcb in parts):
        raise TypeError("policy.min_tcb is not numbers by part and product")
    other = next((name for name in products if name not in PRODUCTS), None)
    if other is not None:
        raise TypeError(f"there is no option policy.min_tcb.{other}")


def _own_collateral(given: TdxCollateral | Mapping[str, str | None]) -> TdxCollateral:
    if not isinstance(given, TdxCollateral | Mapping):
        raise TypeError("collateral.tdx cannot be used: it is not the nine texts")
    try:
        return read_tdx_collateral(vars(given) if isinstance(given, TdxCollateral) else dict(given))
    except CheckFailure as cause:
        raise TypeError(f"collateral.tdx cannot be used: {cause}") from cause


def _expected_binding(expected: CpuExpected) -> Binding | None:
    text = expected.report_data
    if text is None:
        return None
    try:
        data = from_hex(text)
    except (EncodingError, TypeError) as cause:
        raise TypeError("expected.report_data is not hexadecimal") from cause
    if len(data) > REPORT_DATA_BYTES:
        raise TypeError(f"expected.report_data has more than {REPORT_DATA_BYTES} bytes")
    return Binding(data, "what the caller expects")


@dataclass(frozen=True)
class Vtpm:
    """Of Azure's types."""

    hcl: HclReport
    quote: TpmQuote
    attest: TpmAttest


@dataclass(frozen=True)
class CpuEvidence:
    """Parsed evidence, not yet trusted."""

    member: CpuMember
    snp: SnpReport | None
    tdx: TdxQuote | None
    report_data: bytes
    vtpm: Vtpm | None


def read_cpu_evidence(value: object) -> Passed[CpuEvidence]:
    """`value`: the member `cpu`, as JSON text or parsed. @raises CheckFailure: cpu_malformed, cpu_unsupported"""
    member = read_cpu_member(value)
    is_amd = member.type.endswith("SEV_SNP")
    vtpm = None
    if member.tpm is not None:
        vtpm = Vtpm(parse_hcl_report(member.report), member.tpm, parse_tpm_attest(member.tpm.message))
        if (vtpm.hcl.type == "SEV_SNP") != is_amd:
            raise CheckFailure("cpu_malformed", "the HCL report is of another processor")
    behind = "" if vtpm is None else " behind a paravisor"
    if is_amd:
        snp = parse_snp_report(member.report if vtpm is None else vtpm.hcl.hardware)
        evidence = CpuEvidence(member, snp, None, snp.report_data, vtpm)
        return passed(f"an SEV-SNP report of version {snp.version}{behind}", evidence)
    tdx = parse_tdx_quote(member.report if member.quote is None else member.quote)
    evidence = CpuEvidence(member, None, tdx, tdx.body.report_data, vtpm)
    return passed(f"a TDX quote of version {tdx.version}{behind}", evidence)


# The checks of evidence itself.
OF_EVIDENCE = (
    "cpu_signature",
    "cpu_chain",
    "cpu_identity",
    "cpu_revocation",
    "cpu_mode",
    "cpu_tcb",
    "cpu_measurement",
    "cpu_software",
)


def skip_cpu_evidence(checks: CheckList, reason: str = "") -> None:
    """Lists the checks of evidence as not made: because cpu_form failed, or for this reason."""
    for name in OF_EVIDENCE:
        checks.run(name, ["cpu_form"], lambda: skipped(reason))


def check_cpu_evidence(
    checks: CheckList, evidence: CpuEvidence | None, context: CpuContext, binding: Binding | None
) -> CpuClaims | None:
    """Makes every check of evidence but its form.

    `evidence`: None: cpu_form failed. `binding`: None: the caller does not say what was given to be signed.
    """
    if evidence is None:
        skip_cpu_evidence(checks)
        checks.run("cpu_binding", ["cpu_form"], lambda: skipped(""))
        return None
    judged: dict[str, Any] = {}
    if evidence.snp is not None:
        judged = _check_snp(checks, evidence.snp, evidence.member, context)
    if evidence.tdx is not None:
        judged = _check_tdx(checks, evidence.tdx, evidence, context)
    _check_binding(checks, evidence, binding)
    software = _check_software(checks, evidence, context, None if binding is None else binding.launch)
    return replace(_claims_of(evidence), **judged, software=software)


# Grounds of most checks: the evidence is signed under a trusted root.
SIGNED = ("cpu_signature", "cpu_chain")


def _check_snp(checks: CheckList, snp: SnpReport, member: CpuMember, context: CpuContext) -> dict[str, Any]:
    checks.run("cpu_signature", ["cpu_form"], lambda: check_snp_signature(snp, member.certificates[0]))
    found = checks.run("cpu_chain", ["cpu_form"], lambda: check_snp_chain(member.certificates, context))
    # The checks that follow run only where there is a path.
    path = cast(AmdPath, found)
    checks.run("cpu_identity", SIGNED, lambda: check_snp_identity(snp, path, context))
    checks.run("cpu_revocation", SIGNED, lambda: check_snp_revocation(path, member.crl, context))
    checks.run("cpu_mode", SIGNED, lambda: check_snp_mode(snp, path, context))
    checks.run("cpu_tcb", SIGNED, lambda: check_snp_tcb(snp, path, context))
    if found is None:
        return {}
    tcb = tcb_of(snp.tcb["reported"], path.product)
    return {"product": path.product, "simulated": path.simulated, "tcb": tcb}


def _check_tdx(checks: CheckList, tdx: TdxQuote, evidence: CpuEvidence, context: CpuContext) -> dict[str, Any]:
    checks.run("cpu_signature", ["cpu_form"], lambda: check_tdx_signature(tdx))
    found = checks.run("cpu_chain", ["cpu_form"], lambda: check_tdx_chain(tdx, context))
    # The checks that follow run only where there is a path.
    path = cast(IntelPath, found)
    collateral = None if found is None else _settle(evidence.member.collateral, found, context)
    verified = None if isinstance(collateral, CheckFailure) else collateral

    def check_tcb() -> Passed[PlatformTcb]:
        # cpu_tcb reports what is wrong with the collateral.
        if isinstance(collateral, CheckFailure):
            raise collateral
        return check_tdx_tcb(tdx, path, cast(VerifiedCollateral, collateral), context)

    checks.run("cpu_identity", SIGNED, lambda: check_tdx_identity(tdx, verified))
    checks.run("cpu_revocation", SIGNED, lambda: check_tdx_revocation(path, verified, context))
    checks.run("cpu_mode", SIGNED, lambda: check_tdx_mode(tdx, path, evidence.vtpm is None, context))
    checks.run("cpu_tcb", SIGNED, check_tcb)
    if found is None:
        return {}
    state = None if verified is None else state_of(tdx, found, verified)
    judged: dict[str, Any] = {"simulated": found.simulated, "ppid": found.pck.ppid, "fmspc": found.pck.fmspc}
    return judged if state is None else {**judged, "tcb_status": state.status, "advisories": state.advisories}


def _settle(carried: TdxCollateral | None, path: IntelPath, context: CpuContext) -> VerifiedCollateral | CheckFailure:
    """Keeps a failure for the check that reports it."""
    try:
        return find_collateral(carried, path.root, context)
    except CheckFailure as failure:
        return failure


def _check_binding(checks: CheckList, evidence: CpuEvidence, binding: Binding | None) -> None:
    """Compares the signed report data, or the vTPM's, with what it must be."""
    vtpm, report_data = evidence.vtpm, evidence.report_data
    grounds = ["cpu_form"]
    if vtpm is not None:
        hcl, quote, attest = vtpm.hcl, vtpm.quote, vtpm.attest
        checks.run("cpu_vtpm", ["cpu_form"], lambda: check_vtpm(hcl, quote, attest, report_data))
        grounds.append("cpu_vtpm")

    def check() -> Passed[Literal[True]] | Skipped:
        if binding is None:
            return skipped("the caller does not say what was given to be signed")
        expected = binding.report_data
        if vtpm is None:
            is_it = report_data[: len(expected)] == expected and is_zero(report_data[len(expected) :])
        else:
            is_it = vtpm.attest.extra_data == expected
        if not is_it:
            raise CheckFailure("cpu_binding_mismatch", f"what was given to be signed is not {binding.source}")
        more = "" if binding.also is None else f"; {binding.also()}"
        return seen(f"what was given to be signed is {binding.source}{more}")

    checks.run("cpu_binding", grounds, check)


def _check_software(
    checks: CheckList, evidence: CpuEvidence, context: CpuContext, named: NamedLaunch | None
) -> CpuSoftware | None:
    """Compares the guest, and the launch file that it was started with, with what the caller knows."""
    member, tdx, vtpm, reference = evidence.member, evidence.tdx, evidence.vtpm, context.reference
    measured = Measured(
        type=member.type,
        snp=evidence.snp,
        tdx=None if tdx is None else tdx.body,
        pcrs=None if vtpm is None else vtpm.quote.pcrs,
        has_event_log=member.event_log is not None,
    )

    def check_guest() -> Passed[Json] | Skipped:
        if reference is None:
            return skipped("the caller gave no reference values")
        return check_measurement(measured, reference)

    guest = checks.run("cpu_measurement", SIGNED if vtpm is None else (*SIGNED, "cpu_vtpm"), check_guest)

    def check() -> Passed[CpuSoftware | None] | Skipped:
        log = member.event_log
        replayed = None if tdx is None or log is None else check_event_log(tdx.body.rtmrs, log)
        if guest is not None and reference is not None:
            return check_launch(guest, reference, measured, named or NamedLaunch(), replayed)
        if replayed is None:
            return skipped("no event log, and the caller gave no reference values")
        return passed(replayed.detail, None)

    return checks.run("cpu_software", (*SIGNED, "cpu_measurement"), check)


def _claims_of(evidence: CpuEvidence) -> CpuClaims:
    snp, tdx, vtpm = evidence.snp, evidence.tdx, evidence.vtpm
    measurement, host_data = b"", b""
    if snp is not None:
        measurement, host_data = snp.measurement, snp.host_data
    elif tdx is not None:
        measurement, host_data = tdx.body.mr_td, tdx.body.mr_config_id
    return CpuClaims(
        type=evidence.member.type,
        simulated=False,
        product=None,
        chip_id=None if snp is None else snp.chip_id.hex(),
        ppid=None,
        vmpl=None if snp is None else snp.vmpl,
        report_data=evidence.report_data.hex(),
        measurement=measurement.hex(),
        rtmrs=None if tdx is None else tuple(register.hex() for register in tdx.body.rtmrs),
        host_data=host_data.hex(),
        id_key_digest=None if snp is None else snp.id_key_digest.hex(),
        tcb=None,
        fmspc=None,
        tcb_status=None,
        advisories=(),
        pcrs=None if vtpm is None else tuple(pcr.hex() for pcr in vtpm.quote.pcrs),
        software=None,
    )
