"""The checks of a quote of TDX: its signer, quoting enclave, platform state and guest attributes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from ..common.checks import CheckFailure, Passed, Skipped, passed, seen, skipped
from ..x509 import Anchors, Certificate, DerError, ecdsa_verify_raw, is_issued_by, is_revoked, trusted_path
from .cpu_options import CpuContext, CpuPolicy, TcbStatus
from .evidence.byte_reader import is_zero
from .evidence.tdx_quote import Pck, TdReport, TdxQuote, read_pck
from .tdx_collateral import ModuleIdentity, ModuleSigner, QeIdentity, SvnLevel, TcbInfo, TcbLevel, VerifiedCollateral


@dataclass(frozen=True)
class IntelPath:
    """A verified path: PCK, its authority, the root."""

    leaf: Certificate
    authority: Certificate
    root: Certificate
    pck: Pck
    simulated: bool


def check_tdx_signature(quote: TdxQuote) -> Passed[Literal[True]]:
    """
    Checks three links: the PCK signs the enclave's report, the report holds the attestation key, that key signs the
    quote.

        @raises CheckFailure: cpu_signature_invalid
    """
    by = quote.by
    pck = by.chain[0]
    if not ecdsa_verify_raw(by.attestation_key, "SHA-256", by.signature, quote.signed):
        raise _wrong("the signature of the quote does not verify under its attestation key")
    if pck.curve != "P-256" or not ecdsa_verify_raw(pck, "SHA-256", by.qe_signature, by.qe_signed):
        raise _wrong("the quoting enclave's report does not verify under the PCK certificate")
    if by.qe.report_data != sha256(by.attestation_key_bytes + by.qe_auth_data).digest() + bytes(32):
        raise _wrong("the quoting enclave's report is about another attestation key")
    return seen("by the attestation key, which the quoting enclave holds, which the PCK certificate speaks for")


def _wrong(message: str) -> CheckFailure:
    return CheckFailure("cpu_signature_invalid", message)


PCK = "Intel SGX PCK Certificate"
AUTHORITY = re.compile(r"Intel SGX PCK (Platform|Processor) CA\Z")


def check_tdx_chain(quote: TdxQuote, context: CpuContext) -> Passed[IntelPath]:
    """@raises CheckFailure: chain_invalid, certificate_expired, untrusted_root, simulated_root_refused"""
    anchors = Anchors(roots=context.intel_roots, simulated_roots=context.simulated_roots, at=context.at)
    trusted = trusted_path(quote.by.chain, anchors, "a simulated processor")
    if len(trusted.path) != 3 or trusted.path[0].is_ca:
        raise _invalid("the chain is not PCK, its authority, the root")
    leaf, authority, root = trusted.path
    # Intel's root also certifies signers of TCB info, for instance.
    if PCK not in leaf.subject_common_name or AUTHORITY.search(authority.subject_common_name) is None:
        raise _invalid("the leaf is not a PCK certificate")
    try:
        pck = read_pck(leaf)
    except DerError as cause:
        raise CheckFailure("chain_invalid", f"the PCK certificate: {cause}") from cause
    detail = f"PCK of FMSPC {pck.fmspc} up to {'the simulated' if trusted.simulated else 'the pinned'} root"
    return passed(detail, IntelPath(leaf, authority, root, pck, trusted.simulated))


def _invalid(message: str) -> CheckFailure:
    return CheckFailure("chain_invalid", message)


def check_tdx_identity(quote: TdxQuote, collateral: VerifiedCollateral | None) -> Passed[Literal[True]] | Skipped:
    """Compares quoting enclave and TDX module with Intel's collateral.

    `collateral`: None where none verifies; then cpu_tcb fails. @raises CheckFailure: cpu_identity_mismatch
    """
    if collateral is None:
        return skipped("what they should be stands in the collateral, of which cpu_tcb says more")
    qe, identity, info = quote.by.qe, collateral.qe_identity, collateral.tcb_info
    is_qe = (
        _masked(qe.misc_select, identity.misc_select_mask) == identity.misc_select
        and _masked(qe.attributes, identity.attributes_mask) == identity.attributes
        and qe.mr_signer == identity.mr_signer
        and qe.isv_prod_id == identity.isv_prod_id
    )
    if not is_qe:
        raise _mismatch("the quoting enclave is not Intel's")
    svns = quote.body.tee_tcb_svn
    signer = _module_identity(svns, info) if _has_identity(svns) else info.module
    # A module that Intel does not list has no level, so cpu_tcb fails.
    if not _is_module_of(quote.body, info.module if signer is None else signer):
        raise _mismatch("the TDX module is not Intel's")
    return seen("Intel's quoting enclave, and a TDX module that Intel signed")


def _mismatch(message: str) -> CheckFailure:
    return CheckFailure("cpu_identity_mismatch", message)


def _masked(data: bytes, mask: bytes) -> bytes:
    return bytes(byte & bits for byte, bits in zip(data, mask, strict=True))


def _is_module_of(body: TdReport, signer: ModuleSigner) -> bool:
    """The module's attributes include its debug mode, so all must be zero."""
    return (
        body.mr_signer_seam == signer.mr_signer
        and _masked(body.seam_attributes, signer.attributes_mask) == signer.attributes
        and is_zero(body.seam_attributes)
    )


def check_tdx_revocation(
    path: IntelPath, collateral: VerifiedCollateral | None, context: CpuContext
) -> Passed[Literal[True]] | Skipped:
    """Looks for the PCK on its authority's list, and for that authority and the collateral's signers on the root's.

    @raises CheckFailure: revocation_invalid, certificate_revoked
    """
    if context.without_revocation:
        return skipped("the caller asked for no such check")
    if collateral is None:
        return skipped("the lists stand in the collateral, of which cpu_tcb says more")
    pck_crl, root_crl, signers = collateral.pck_crl, collateral.root_crl, collateral.signers
    if not is_issued_by(root_crl, path.root):
        raise _not_its("the root's revocation list is not one that the root signed")
    if not is_issued_by(pck_crl, path.authority):
        raise _not_its("the PCK's revocation list is not one of its authority")
    on_lists = [(pck_crl, path.leaf), *((root_crl, one) for one in (path.authority, *signers))]
    revoked = next((one for crl, one in on_lists if is_revoked(crl, one)), None)
    if revoked is not None:
        raise CheckFailure("certificate_revoked", f"Intel revoked '{revoked.subject_common_name[:80]}'")
    # An expired list still revokes what it names.
    if collateral.outdated is not None:
        return skipped("no list that holds at this time: cpu_tcb says which")
    return seen(f"none of {2 + len(signers)} certificates is on its authority's list")


def _not_its(message: str) -> CheckFailure:
    return CheckFailure("revocation_invalid", message)


DEBUG_BITS = 0xFF
SEPT_VE_DISABLE = 1 << 4
MIGRATABLE = 1 << 5
# The bits of TDATTRIBUTES behind the first byte that are known (Intel, "TDX Module ABI", ATTRIBUTES; Linux,
# asm/shared/tdx.h): 16 ICSSD, 27 LASS, 28 SEPT_VE_DISABLE, 29 MIGRATABLE, 30 PKS, 31 KL, 62 TPA, 63 PERFMON.
KNOWN_ATTRIBUTES = 0xC0000000F80100FF
# XFAM: the states of XCR0 and IA32_XSS that guests may have (0 to 2, 5 to 9, 11, 12, 14, 15, 17, 18; 19 is APX).
KNOWN_XFAM = 0xEDBE7


def _check_policy(pck: Pck, policy: CpuPolicy) -> None:
    """The chip is one of the caller's, and the caller demands nothing that a quote does not state.

    @raises CheckFailure: cpu_policy_refused
    """
    if policy.chips is not None and pck.ppid not in policy.chips:
        raise _refused("the chip is not one that the caller accepts")
    if policy.require_alias_check or policy.require_smt_off or policy.require_ciphertext_hiding:
        raise _refused("the caller demands what no TDX quote states: an alias check, SMT off or ciphertext hiding")


def check_tdx_mode(quote: TdxQuote, path: IntelPath, is_own_host: bool, context: CpuContext) -> Passed[Literal[True]]:
    """`is_own_host`: False behind Azure's paravisor, which takes the exceptions that SEPT_VE_DISABLE turns off.

    @raises CheckFailure: debug_enabled, cpu_policy_refused
    """
    attributes, service = quote.body.td_attributes, quote.body.mr_service_td
    # TDATTRIBUTES, bits 0 to 7: debugging and profiling from outside. 28 and 29 stand in byte 3.
    if attributes[0] & DEBUG_BITS != 0:
        raise CheckFailure("debug_enabled", "the host may debug or profile this guest")
    if int.from_bytes(attributes, "little") & ~KNOWN_ATTRIBUTES != 0:
        raise _refused("TDATTRIBUTES has bits that are not known")
    if int.from_bytes(quote.body.xfam, "little") & ~KNOWN_XFAM != 0:
        raise _refused("XFAM has bits that are not known")
    if attributes[3] & MIGRATABLE != 0:
        raise _refused("this guest may be migrated")
    if is_own_host and attributes[3] & SEPT_VE_DISABLE == 0:
        raise _refused("the host can inject exceptions by taking memory away (SEPT_VE_DISABLE is off)")
    if service is not None and not is_zero(service):
        raise _refused("a service guest is bound to this one")
    _check_policy(path.pck, context.policy)
    return seen("no debugging, no migration, no service guest")


def _refused(message: str) -> CheckFailure:
    return CheckFailure("cpu_policy_refused", message)


@dataclass(frozen=True)
class PlatformTcb:
    status: TcbStatus
    advisories: tuple[str, ...]


NEVER = ("Revoked", "NotSupported")


def state_of(quote: TdxQuote, path: IntelPath, collateral: VerifiedCollateral) -> PlatformTcb | None:
    """The platform's TCB state; None where the collateral is about another platform."""
    info = collateral.tcb_info
    if info.fmspc != path.pck.fmspc or info.pce_id != path.pck.pce_id:
        return None
    return _platform_tcb(quote.body, path.pck, info, quote.by.qe.isv_svn, collateral.qe_identity)


def check_tdx_tcb(
    quote: TdxQuote, path: IntelPath, collateral: VerifiedCollateral, context: CpuContext
) -> Passed[PlatformTcb]:
    """@raises CheckFailure: collateral_invalid, collateral_expired, tcb_not_accepted"""
    state = state_of(quote, path, collateral)
    if state is None:
        raise CheckFailure("collateral_invalid", "the TCB info is about another platform")
    if collateral.outdated is not None:
        raise CheckFailure("collateral_expired", collateral.outdated)
    least, accepted = context.policy.min_tcb_evaluation, context.policy.tcb
    if least is not None and min(collateral.tcb_info.evaluation, collateral.qe_identity.evaluation) < least:
        raise _not_accepted(f"the collateral is of an evaluation before {least}")
    status, advisories = state.status, state.advisories
    named = ", ".join(advisories[:8]) + (", …" if len(advisories) > 8 else "")
    why = f" ({named})" if advisories else ""
    if status in NEVER or status not in (("UpToDate",) if accepted is None else accepted):
        raise _not_accepted(f"the platform is {status}{why}")
    return passed(f"the platform is {status}{why}, SVN {quote.body.tee_tcb_svn[:3].hex()}", state)


def _not_accepted(message: str) -> CheckFailure:
    return CheckFailure("tcb_not_accepted", message)


# The TCB level of a platform by Intel's rule (its QuoteVerificationLibrary, §4.1.2.4.17): the first level that is met,
# the TDX module's level, whether a relaunch is advised, the quoting enclave's level.

NONE = PlatformTcb("NotSupported", ())
UP_TO_DATE = PlatformTcb("UpToDate", ())


def _platform_tcb(body: TdReport, pck: Pck, info: TcbInfo, qe_svn: int, qe_identity: QeIdentity) -> PlatformTcb:
    """`qe_svn`: of the quoting enclave that signed."""
    met = [level for level in info.levels if _is_sgx_met(level, pck)]
    found = next((one for one in met if _is_tdx_met(one, body.tee_tcb_svn)), None)
    level = NONE if found is None else PlatformTcb(found.status, found.advisories)
    module = _module_tcb(body.tee_tcb_svn, info)
    qe = _at_svn(qe_identity.levels, qe_svn)
    sgx: TcbStatus = met[0].status if met else "NotSupported"
    platform = _relaunch(body, info, sgx, _converge(level.status, module.status), module, qe)
    advisories = dict.fromkeys((*level.advisories, *module.advisories, *qe.advisories))
    return PlatformTcb(_converge(platform, qe.status), tuple(advisories))


def _is_sgx_met(level: TcbLevel, pck: Pck) -> bool:
    return all(own >= svn for own, svn in zip(pck.cpu_svn, level.sgx, strict=True)) and pck.pce_svn >= level.pce_svn


def _is_tdx_met(level: TcbLevel, svns: bytes) -> bool:
    """A module with a version of its own is judged by its identity; then the first two components do not count here."""
    first = 2 if _has_identity(svns) else 0
    return all(own >= svn for own, svn in list(zip(svns, level.tdx, strict=True))[first:])


def _has_identity(svns: bytes) -> bool:
    return svns[1] > 0


def _module_identity(svns: bytes, info: TcbInfo) -> ModuleIdentity | None:
    """The identity of the TDX module that this version number means; None where Intel names none."""
    name = f"TDX_{svns[1]:02X}"
    return next((one for one in info.module_identities if one.id == name), None)


def _module_tcb(svns: bytes, info: TcbInfo) -> PlatformTcb:
    if not _has_identity(svns):
        return UP_TO_DATE
    identity = _module_identity(svns, info)
    return _at_svn(() if identity is None else identity.levels, svns[0])


def _at_svn(levels: Sequence[SvnLevel], svn: int) -> PlatformTcb:
    level = next((one for one in levels if svn >= one.isv_svn), None)
    return NONE if level is None else PlatformTcb(level.status, level.advisories)


LOWERED: dict[TcbStatus, TcbStatus] = {
    "UpToDate": "OutOfDate",
    "SWHardeningNeeded": "OutOfDate",
    "ConfigurationNeeded": "OutOfDateConfigurationNeeded",
    "ConfigurationAndSWHardeningNeeded": "OutOfDateConfigurationNeeded",
}


def _converge(platform: TcbStatus, part: TcbStatus) -> TcbStatus:
    """The platform has the worst status of its parts."""
    if "NotSupported" in (platform, part):
        return "NotSupported"
    if "Revoked" in (platform, part):
        return "Revoked"
    return platform if part == "UpToDate" else LOWERED.get(platform, platform)


CURRENT = ("UpToDate", "SWHardeningNeeded", "ConfigurationNeeded", "ConfigurationAndSWHardeningNeeded")


def _relaunch(
    body: TdReport, info: TcbInfo, sgx: TcbStatus, platform: TcbStatus, module: PlatformTcb, qe: PlatformTcb
) -> TcbStatus:
    """The module was updated under the running guest: a relaunch of the guest brings it up to date."""
    svns = body.tee_tcb_svn2
    if svns is None or platform not in ("OutOfDate", "OutOfDateConfigurationNeeded") or module.status != "OutOfDate":
        return platform
    if qe.status != "UpToDate" or sgx not in CURRENT:
        return platform
    latest = info.levels[0] if info.levels else None
    module_svn: float | None
    if _has_identity(svns):
        identity = _module_identity(svns, info)
        module_svn = identity.levels[0].isv_svn if identity is not None and identity.levels else None
    else:
        module_svn = None if latest is None else latest.tdx[0]
    if module_svn is None:
        return "NotSupported"
    if not (latest is not None and svns[0] >= module_svn and svns[2] >= latest.tdx[2]):
        return platform
    is_configured = not sgx.startswith("Configuration") and platform == "OutOfDate"
    return "TDRelaunchAdvised" if is_configured else "TDRelaunchAdvisedConfigurationNeeded"
