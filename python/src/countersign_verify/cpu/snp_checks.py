"""The checks of an SEV-SNP report's signer, processor, firmware and guest policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from ..common.checks import CheckFailure, Passed, Skipped, passed, seen, skipped
from ..x509 import (
    Anchors,
    Certificate,
    Crl,
    DerError,
    DerValue,
    Tag,
    ecdsa_verify_raw,
    integer,
    is_issued_by,
    is_revoked,
    parse_crl,
    read_one,
    trusted_path,
)
from .cpu_options import CpuContext, CpuPolicy
from .evidence.byte_reader import is_zero
from .evidence.snp_report import PRODUCTS, TCBS, Product, SnpReport, SnpTcb, tcb_of


@dataclass(frozen=True)
class AmdPath:
    """A verified path: leaf, ASK or ASVK, ARK."""

    leaf: Certificate
    authority: Certificate
    root: Certificate
    product: Product
    """Named by the root: each product has its own."""
    kind: Literal["VCEK", "VLEK"]
    simulated: bool


DEFAULT_PRODUCTS = ("Genoa", "Turin")


def check_snp_signature(report: SnpReport, leaf: Certificate) -> Passed[Literal[True]]:
    """@raises CheckFailure: cpu_signature_invalid"""
    if leaf.curve != "P-384" or not ecdsa_verify_raw(leaf, "SHA-384", report.signature, report.signed):
        raise CheckFailure("cpu_signature_invalid", "the signature of the report does not verify under its leaf")
    return seen("ECDSA P-384 over the whole report, by the key of the leaf certificate")


def check_snp_chain(chain: Sequence[Certificate], context: CpuContext) -> Passed[AmdPath]:
    """`chain`: leaf, then ASK or ASVK. A VCEK must stand under an ASK, a VLEK under an ASVK.

    @raises CheckFailure: chain_invalid, certificate_expired, untrusted_root, simulated_root_refused
    """
    anchors = Anchors(roots=context.amd_roots, simulated_roots=context.simulated_roots, at=context.at)
    trusted = trusted_path(chain, anchors, "a simulated processor")
    if len(trusted.path) != 3 or trusted.path[0].is_ca:
        raise _invalid("the chain is not leaf, ASK or ASVK, ARK")
    leaf, authority, root = trusted.path
    kind = leaf.subject_common_name.replace("SEV-", "", 1)
    if kind not in ("VCEK", "VLEK"):
        raise _invalid("the leaf is neither a VCEK nor a VLEK")
    product = next((name for name in PRODUCTS if root.subject_common_name == f"ARK-{name}"), None)
    if product is None:
        raise _invalid("the root is not the one of a product that is known")
    if authority.subject_common_name != (f"SEV-{product}" if kind == "VCEK" else f"SEV-VLEK-{product}"):
        raise _invalid(f"a {kind} of {product} has another authority above it")
    detail = f"{kind} of {product} up to {'the simulated' if trusted.simulated else 'the pinned'} root"
    named = cast(Literal["VCEK", "VLEK"], kind)
    return passed(detail, AmdPath(leaf, authority, root, product, named, trusted.simulated))


def _invalid(message: str) -> CheckFailure:
    return CheckFailure("chain_invalid", message)


# AMD's extensions of a leaf (57230, "VCEK Certificate and KDS Interface Specification", §3.1).

AMD = "1.3.6.1.4.1.3704.1"
PRODUCT_NAME = f"{AMD}.2"
HWID = f"{AMD}.4"
CSP_ID = f"{AMD}.5"
SPL = {"bl": f"{AMD}.3.1", "tee": f"{AMD}.3.2", "snp": f"{AMD}.3.3", "ucode": f"{AMD}.3.8", "fmc": f"{AMD}.3.9"}


def check_snp_identity(report: SnpReport, path: AmdPath, context: CpuContext) -> Passed[SnpTcb]:
    """@raises CheckFailure: cpu_identity_mismatch: the leaf was issued for another processor, product or firmware."""
    leaf, product, kind = path.leaf, path.product, path.kind
    if report.signing_key != kind:
        raise _mismatch(f"the report says that a {report.signing_key} signed it, not a {kind}")
    if report.product is not None and report.product != product:
        raise _mismatch(f"the report is of {report.product}, its certificates are of {product}")
    try:
        # `Milan-B0` or, without its stepping, `Genoa`.
        named = _text(leaf, PRODUCT_NAME)
        if named != product and not named.startswith(f"{product}-"):
            raise _mismatch("the leaf names another product")
        tcb = tcb_of(report.tcb["reported"], product)
        if tcb is None:
            raise _mismatch(f"the reported TCB has bytes that mean nothing on {product}")
        for part, version in tcb.items():
            if integer(_extension(leaf, SPL[part])) != version:
                raise _mismatch(f"the reported TCB and the leaf differ in {part}")
        if kind == "VCEK":
            _check_chip(report, leaf, product)
        else:
            _check_provider(leaf, context.policy)
    except DerError as cause:
        raise CheckFailure("cpu_identity_mismatch", f"the leaf's extensions: {cause}") from cause
    whose = "of the chip that the report names" if kind == "VCEK" else "a cloud provider's"
    return passed(f"the leaf is {whose}, for the TCB that it reports: {_words(tcb)}", tcb)


def _mismatch(message: str) -> CheckFailure:
    return CheckFailure("cpu_identity_mismatch", message)


def _words(tcb: SnpTcb) -> str:
    return ", ".join(f"{part} {version}" for part, version in tcb.items())


def _extension(leaf: Certificate, name: str) -> DerValue:
    extension = leaf.extensions.get(name)
    if extension is None:
        raise DerError(f"{name} is absent")
    return read_one(extension.value)


def _text(leaf: Certificate, name: str) -> str:
    value = _extension(leaf, name)
    if value.tag != Tag.IA5_STRING or len(value.content) > 256:
        raise DerError(f"{name} is not a short IA5String")
    return value.content.decode("latin-1")


def _check_chip(report: SnpReport, leaf: Certificate, product: Product) -> None:
    """
    The chip's id stands bare in the leaves that AMD issues, and in an OCTET STRING in its specification. Turin's has 8
    bytes.
    """
    length = 8 if product == "Turin" else 64
    extension = leaf.extensions.get(HWID)
    value = b"" if extension is None else extension.value
    own = value if len(value) == length else read_one(value, Tag.OCTET_STRING).content
    if len(own) != length or own != report.chip_id[:length] or not is_zero(report.chip_id[length:]):
        raise _mismatch("the leaf was issued for another chip")


def _check_provider(leaf: Certificate, policy: CpuPolicy) -> None:
    if policy.csp_ids is not None and _text(leaf, CSP_ID) not in policy.csp_ids:
        raise _mismatch("the VLEK is a provider's that the caller does not accept")


def check_snp_revocation(path: AmdPath, carried: bytes | None, context: CpuContext) -> Passed[Literal[True]] | Skipped:
    """
    The ARK's list, which can name the ASK or the ASVK: the leaves have no serial number of their own.

        `carried`: DER of the list in the evidence. @raises CheckFailure: revocation_unavailable, revocation_invalid,
    certificate_revoked
    """
    if context.without_revocation:
        return skipped("the caller asked for no such check")
    lists = [_read(one) for one in (context.amd_crl, carried) if one is not None]
    current = next((one for one in lists if one.this_update <= context.at <= one.next_update), None)
    crl = current if current is not None else next(iter(lists), None)
    if crl is None:
        raise CheckFailure("revocation_unavailable", "AMD's revocation list is not at hand")
    if not is_issued_by(crl, path.root):
        raise CheckFailure("revocation_invalid", "the revocation list is not one that the root signed")
    # A certificate on an old list stays revoked.
    if is_revoked(crl, path.authority):
        raise CheckFailure("certificate_revoked", f"AMD revoked '{path.authority.subject_common_name}'")
    if current is None:
        raise CheckFailure("revocation_unavailable", "the revocation list does not hold at this time")
    return seen(f"'{path.authority.subject_common_name}' is not on the root's list; about the leaf nobody can be asked")


def _read(der: bytes) -> Crl:
    try:
        return parse_crl(der)
    except DerError as cause:
        raise CheckFailure("revocation_invalid", f"the revocation list: {cause}") from cause


MIGRATE_MA = 1 << 18
DEBUG = 1 << 19
# Bits 26 to 63 of POLICY are reserved (56860, revision 1.58, §4.3); PAGE_SWAP_DISABLE is the last that is known.
KNOWN_POLICY_BITS = 26
SMT_ALLOWED = 1 << 16
CIPHERTEXT_HIDING_DRAM = 1 << 24
# PLATFORM_INFO (56860, revision 1.58, §7.3).
SMT_EN = 1 << 0
CIPHERTEXT_HIDING_DRAM_EN = 1 << 4
ALIAS_CHECK_COMPLETE = 1 << 5
MAX_GUEST_VMPL = 3


def check_snp_mode(report: SnpReport, path: AmdPath, context: CpuContext) -> Passed[Literal[True]]:
    """@raises CheckFailure: debug_enabled, cpu_policy_refused"""
    products, chips = context.policy.products, context.policy.chips
    if report.policy & DEBUG != 0:
        raise CheckFailure("debug_enabled", "the host may debug this guest")
    if report.policy >> KNOWN_POLICY_BITS != 0:
        raise _refused("POLICY has bits that are not known")
    if report.policy & MIGRATE_MA != 0:
        raise _refused("a migration agent may move this guest")
    if report.vmpl > MAX_GUEST_VMPL:
        raise _refused("the host asked for the report, not the guest")
    if report.mask_chip_key:
        raise _refused("the chip is told not to sign reports with its key")
    if path.product not in (DEFAULT_PRODUCTS if products is None else products):
        raise _refused(f"reports of {path.product} are not accepted")
    # A VLEK is a provider's: it signs for whatever chip the report names.
    is_bare = path.kind == "VLEK" or is_zero(report.chip_id)
    if chips is not None and (is_bare or report.chip_id.hex() not in chips):
        raise _refused("the chip is not one that the caller accepts")
    _check_demands(report, context.policy)
    return seen(f"{path.product}; no debugging, no migration; asked for by the guest at VMPL {report.vmpl}")


def _check_demands(report: SnpReport, policy: CpuPolicy) -> None:
    """PLATFORM_INFO says how the machine is configured now, POLICY without what the guest would not have started."""
    guest, platform = report.policy, report.platform_info
    if policy.require_alias_check and platform & ALIAS_CHECK_COMPLETE == 0:
        raise _refused("the firmware does not say that it looked for aliased memory")
    if policy.require_smt_off and (platform & SMT_EN != 0 or guest & SMT_ALLOWED != 0):
        raise _refused("SMT is on, or POLICY allows it")
    is_hidden = platform & CIPHERTEXT_HIDING_DRAM_EN != 0 and guest & CIPHERTEXT_HIDING_DRAM != 0
    if policy.require_ciphertext_hiding and not is_hidden:
        raise _refused("ciphertext hiding is off, or POLICY does not demand it")


def _refused(message: str) -> CheckFailure:
    return CheckFailure("cpu_policy_refused", message)


LEAST_TCB: Mapping[str, SnpTcb] = {"Genoa": {"snp": 0x1B}, "Turin": {"snp": 0x04}}
"""
The least TCB of a product for which the caller names none. AMD-SB-3023 (CVE-2025-48514) and AMD-SB-3020 (CVE-2025-0033,
RMPocalypse) ask for these versions of the SNP firmware: so AMD's own driver in Linux (commit 4b28f0846ef6, 2026-04-16:
Zen 4 from 0x1b, Zen 5 from 0x04), and the review in ariofrio/pi-tee that quotes the bulletins (2026-10-08). AMD-SB-3034
withdrew its values on 2026-09-24. Microcode is left out: its numbers differ between steppings of a product
(AMD-SB-3027: Genoa 0x56, Genoa-X and Turin 0x51). Of the other parts no source states a value.
"""


def check_snp_tcb(report: SnpReport, path: AmdPath, context: CpuContext) -> Passed[Literal[True]] | Skipped:
    """All four versions count: a guest that was launched under bad firmware stays exposed after an update.

    @raises CheckFailure: tcb_not_accepted
    """
    least = {**LEAST_TCB, **(context.policy.min_tcb or {})}.get(path.product)
    if not least:
        return skipped(f"the caller named no least TCB of {path.product}")
    for which in TCBS:
        tcb = tcb_of(report.tcb[which], path.product) or {}
        for part, version in least.items():
            if not tcb.get(part, -1) >= version:
                raise CheckFailure("tcb_not_accepted", f"the {which} TCB has not the {part} that is asked, {version}")
    return seen(f"reported, current, committed and launch TCB have at least {_words(least)}")
