"""
The checks made on devices: of each its report, who signed it, whether that is still endorsed and what runs on it; of
all their topology.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

from ..common.checks import CheckFailure, CheckList, Passed, Skipped, passed, seen, skipped
from ..x509 import Anchors, Certificate, DerError, trusted_path
from .device_evidence import DeviceInput, ParsedEvidence, parse_evidence
from .nvidia import DeviceIdentity, device_of, fwid_of
from .reference_values import (
    EndorsementContext,
    MatchedMeasurements,
    ReferenceValues,
    check_revocation,
    compare,
    find_reference_values,
)
from .spdm.report import Report, verify_report_signature
from .topology import DeviceClaims, VerifiedDevice, check_topology

if TYPE_CHECKING:
    from ..token import TokenDevice
from typing import TYPE_CHECKING


@dataclass(frozen=True)
class Without:
    """Checks that the caller does not want; each is shown as a skip with that reason."""

    reference_values: bool = False
    revocation: bool = False


@dataclass(frozen=True)
class Pinned:
    """Whether the verdict may speak of NVIDIA: false where the caller's root stands in place of NVIDIA's."""

    device: bool
    rim: bool


@dataclass(frozen=True)
class DeviceContext(EndorsementContext):
    """What devices are checked against."""

    device_roots: tuple[Certificate, ...]
    simulated_roots: tuple[Certificate, ...]
    nvidia: Pinned
    checks_simulated: bool
    """Collateral and a root for it were handed in, so that a simulated device's can be checked too."""
    without: Without


@dataclass(frozen=True)
class _DeviceToVerify:
    index: int
    arch: str
    evidence: ParsedEvidence
    nonce: str | None
    """What the device must have signed: 64 lowercase hex digits. None: none is stated, which fails."""
    token_claims: Sequence[TokenDevice]
    """A token's claims about this device. They count where they speak against it."""


def verify_devices(
    checks: CheckList,
    inputs: Sequence[DeviceInput],
    nonce: str | None,
    token_claims: Sequence[TokenDevice],
    context: DeviceContext,
) -> list[VerifiedDevice]:
    """
    `nonce`: what a device must have signed where nothing is stated beside its evidence. `token_claims`: a token's
    claims about the devices. Returns the devices whose report and chain passed.
    """
    parsed: dict[int, ParsedEvidence] = {}
    for index, one in enumerate(inputs):
        evidence = checks.run("report_form", ["form", "bundle"], partial(_parse_once, one, parsed), index)
        if evidence is not None:
            parsed[index] = evidence
    steps: dict[int, _Steps] = {}
    for index, one in enumerate(inputs):
        if index not in parsed:
            _skip_unreadable(checks, index)
            continue
        own = _claims_about(parsed[index], index, len(inputs) > 1, token_claims)
        device = _DeviceToVerify(index, one.arch, parsed[index], nonce if one.nonce is None else one.nonce, own)
        steps[index] = _verify_device(checks, device, context)
    devices = _finished(steps)
    grounds = ["form", "report_form", "report_signature", "report_chain"]
    checks.run("topology", grounds, lambda: check_topology(devices))
    return devices


def _claims_about(
    evidence: ParsedEvidence, index: int, several: bool, token_claims: Sequence[TokenDevice]
) -> list[TokenDevice]:
    ueid = str(evidence.chain[0].serial)
    return [
        one
        for one in token_claims
        if (one.ueid == ueid if one.ueid is not None else not several or one.name.endswith(f"-{index}"))
    ]


def _parse_once(one: DeviceInput, before: dict[int, ParsedEvidence]) -> Passed[ParsedEvidence]:
    """
    Refuses a device that is in the list twice. A boot ROM certifies another signing key for other firmware, so that the
    boot ROM's own key, in the second certificate, is compared too.
    """
    evidence = parse_evidence(one)
    keys = _keys_of(evidence)
    for index, other in before.items():
        if not keys.isdisjoint(_keys_of(other)):
            raise CheckFailure("evidence_malformed", f"the same device as device {index}")
    report = evidence.report
    detail = f"SPDM 1.1, {len(report.blocks)} measurement blocks, {report.opaque.format} opaque data"
    return passed(detail, evidence)


def _keys_of(evidence: ParsedEvidence) -> set[bytes]:
    return {certificate.spki for certificate in evidence.chain[:2]}


def _skip_unreadable(checks: CheckList, index: int) -> None:
    """Lists the checks that cannot run on evidence that cannot be read."""
    for name in (
        "report_nonce",
        "report_signature",
        "report_chain",
        "report_fwid",
        "revocation",
        "reference_values",
        "device_mode",
    ):
        checks.run(name, ["report_form"], lambda: seen(""), index)


_Steps = Generator[None, None, VerifiedDevice | None]


def _finished(steps: dict[int, _Steps]) -> list[VerifiedDevice]:
    """
    Runs each check on every device before the next one, so that where nothing runs after a failure the failure is that
    of the first check in the list, whichever device it is of.
    """
    verified: dict[int, VerifiedDevice | None] = {}
    while len(verified) < len(steps):
        for index, one in steps.items():
            if index in verified:
                continue
            try:
                next(one)
            except StopIteration as stop:
                verified[index] = stop.value
    return [device for index in steps if (device := verified[index]) is not None]


def _verify_device(checks: CheckList, device: _DeviceToVerify, context: DeviceContext) -> _Steps:
    """
    Runs every check on one device, report_form already passed, and pauses after each. Returns None unless report and
    chain passed.
    """
    index, report, chain = device.index, device.evidence.report, device.evidence.chain
    leaf = chain[0]
    checks.run("report_nonce", ["report_form"], lambda: _check_nonce(report, device.nonce), index)
    yield
    checks.run("report_signature", ["report_form"], lambda: _check_signature(report, leaf), index)
    yield
    trusted = checks.run("report_chain", ["report_form"], lambda: _check_chain(chain, device.arch, context), index)
    yield
    grounds = ["report_signature", "report_chain"]
    checks.run("report_fwid", grounds, lambda: _check_fwid(report, leaf), index)
    yield

    without = context.without
    simulated = trusted is not None and trusted.simulated and not context.checks_simulated
    no_such_device = "simulated: no such device exists" if simulated else None
    not_wanted = "the caller asked for no such check"
    no_reference = no_such_device or (not_wanted if without.reference_values else None)
    no_revocation = no_such_device or (not_wanted if without.revocation else None)
    found: ReferenceValues | CheckFailure | None = None
    # An unsigned report must not decide what is requested from services.
    if no_reference is None and trusted is not None and not checks.unmet("report_signature", index):
        found = _found(trusted.identity, report, context)
    checks.run("revocation", grounds, lambda: _check_revocation(trusted, found, no_revocation, context), index)
    yield
    matched = checks.run(
        "reference_values", grounds, lambda: _check_measurements(trusted, found, no_reference, report, context), index
    )
    yield
    checks.run(
        "device_mode",
        [*grounds, "reference_values"],
        lambda: _check_mode(
            report,
            None if trusted is None else trusted.identity.kind,
            f"the report alone does not say it ({no_reference or 'no reference values'})" if matched is None else None,
            device.token_claims,
            context.nvidia.rim,
        ),
        index,
    )
    if trusted is None or checks.unmet("report_signature", index):
        return None
    identity = sha256(chain[1].spki).hexdigest() if len(chain) > 1 else None
    return VerifiedDevice(identity, _claims_of(trusted.identity, report, matched), report.opaque, trusted.simulated)


def _found(identity: DeviceIdentity, report: Report, context: DeviceContext) -> ReferenceValues | CheckFailure:
    """The result, or the failure, for the check that comes later in the list."""
    try:
        return find_reference_values(identity, report, context)
    except CheckFailure as failure:
        return failure


def _check_nonce(report: Report, nonce: str | None) -> Passed[Literal[True]]:
    if nonce is None:
        raise CheckFailure("report_nonce_mismatch", "no nonce is stated that the report could have")
    if report.nonce != nonce:
        raise CheckFailure("report_nonce_mismatch", "the device signed another nonce")
    return seen("the device signed this nonce")


def _check_signature(report: Report, leaf: Certificate) -> Passed[Literal[True]]:
    if not leaf.may("digitalSignature"):
        raise CheckFailure("report_signature_invalid", "the leaf certificate is not one that signs")
    if not verify_report_signature(report, leaf):
        raise CheckFailure(
            "report_signature_invalid", "the signature of the report does not verify under the leaf certificate"
        )
    return seen("ECDSA P-384 over the whole report, by the key of the leaf certificate")


def _check_fwid(report: Report, leaf: Certificate) -> Passed[Literal[True]] | Skipped:
    fwid = report.opaque.fwid
    if fwid is None:
        return skipped("this driver does not put the firmware id into its reports")
    try:
        certified = fwid_of(leaf)
    except DerError as cause:
        raise CheckFailure("fwid_mismatch", f"the leaf certificate's firmware id: {cause}") from cause
    if certified is None:
        raise CheckFailure("fwid_mismatch", "the report names a firmware id and the leaf certificate none")
    if certified != fwid:
        raise CheckFailure(
            "fwid_mismatch", "the firmware id in the report is not the one that the leaf certificate was issued for"
        )
    return seen("the firmware in the report is the one that the leaf certificate was issued for")


# The trust anchor of a device's certificates: NVIDIA's root, a simulated one that the caller named, or none.


@dataclass(frozen=True)
class _TrustedChain:
    path: Sequence[Certificate]
    identity: DeviceIdentity
    simulated: bool


def _check_chain(chain: Sequence[Certificate], arch: str, context: DeviceContext) -> Passed[_TrustedChain]:
    """
    `arch`: as the evidence states it, unsigned.
    @raises CheckFailure: untrusted_root, simulated_root_refused, certificate_expired, chain_invalid
    """
    anchors = Anchors(context.device_roots, context.simulated_roots, context.clocks.report)
    trusted = trusted_path(chain, anchors, "a simulated device")
    identity = device_of(trusted.path, arch)
    which = "the simulated" if trusted.simulated else "the pinned"
    detail = f"{len(trusted.path)} certificates up to {which} root '{trusted.path[-1].subject_common_name}'"
    return passed(detail, _TrustedChain(trusted.path, identity, trusted.simulated))


def _check_revocation(
    trusted: _TrustedChain | None,
    found: ReferenceValues | CheckFailure | None,
    reason: str | None,
    context: DeviceContext,
) -> Passed[Literal[True]] | Skipped:
    """`reason`: why there is nothing to check."""
    if reason is not None or trusted is None:
        return skipped(reason or "")
    rims = found if isinstance(found, ReferenceValues) else None
    count = check_revocation(trusted.path, rims, context)
    signers = "" if rims is None else ", and of those who signed its reference values"
    return seen(
        f"{count} certificates are good, of the authorities above the device's own{signers}; "
        "about its own nobody can be asked"
    )


def _check_measurements(
    trusted: _TrustedChain | None,
    found: ReferenceValues | CheckFailure | None,
    reason: str | None,
    report: Report,
    context: DeviceContext,
) -> Passed[MatchedMeasurements] | Skipped:
    """`reason`: why there is nothing to compare."""
    if reason is not None or trusted is None or found is None:
        return skipped(reason or "")
    if isinstance(found, CheckFailure):
        raise found
    result = compare(found, trusted.identity, report, context)
    sources = "" if found.driver is None else f" ({result.driver} driver, {result.vbios} VBIOS)"
    left = f"; index {', '.join(map(str, result.skipped))} left out, NVDEC0 is disabled" if result.skipped else ""
    return passed(f"all {result.matched} active measurements{sources} have their reference values{left}", result)


_MODES = {
    "spt": "one GPU to a guest (spt)",
    "mpt": "several GPUs to a guest (mpt)",
    "ppcie": "several GPUs over a protected PCIe bus (ppcie)",
}


def _check_mode(
    report: Report,
    kind: Literal["gpu", "switch"] | None,
    unmatched: str | None,
    token_claims: Sequence[TokenDevice],
    nvidia: bool,
) -> Passed[Literal[True]] | Skipped:
    """
    No byte of the report says "confidential" or "debug off": NVIDIA's verifiers conclude both from measurements that
    have their reference values, and so does this. A token counts where it says the opposite. `unmatched`: why no
    measurements were compared. `nvidia`: whether NVIDIA signed the reference values.
    """
    for one in token_claims:
        if one.debug is not None and one.debug != "disabled":
            message = f"the token says of {one.name} that debugging is {one.debug[:40]}"
            raise CheckFailure("debug_enabled", message)
        if one.secure_boot is False:
            message = f"the token says of {one.name} that it did not boot securely"
            raise CheckFailure("device_not_confidential", message)
    if unmatched is not None:
        return skipped(unmatched)
    mode = _mode_of(report)
    how = "how it is passed through is not in its report" if mode is None else f"passed through as {_MODES[mode]}"
    values = (
        "the values of NVIDIA's confidential mode"
        if nvidia
        else "the values that were signed under the root that the caller gave"
    )
    off = f"secure boot and debugging off, as its measurements have {values}"
    return seen(off if kind == "switch" else f"{off}; {how}")


def _mode_of(report: Report) -> Literal["spt", "mpt", "ppcie"] | None:
    if report.opaque.pass_through is not None:
        return report.opaque.pass_through
    return "ppcie" if report.opaque.protected_pcie else None


def _claims_of(identity: DeviceIdentity, report: Report, matched: MatchedMeasurements | None) -> DeviceClaims:
    return DeviceClaims(
        kind=identity.kind,
        arch=identity.arch,
        chip=identity.chip,
        model=identity.model,
        ueid=identity.ueid,
        driver=report.opaque.driver_version,
        vbios=report.opaque.vbios_version,
        mode=_mode_of(report),
        measurements_matched=None if matched is None else matched.matched,
    )
