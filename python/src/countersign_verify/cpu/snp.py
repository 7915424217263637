"""
A report of SEV-SNP (AMD 56860, "SEV Secure Nested Paging Firmware ABI", §7.3), and the checks of its signer,
processor, firmware and guest policy. Nothing that `parse_snp_report` returns is trusted before the checks have passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from ..checks import CheckFailure, Passed, Skipped, passed, seen, skipped
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
from .byte_reader import is_zero
from .options import PRODUCTS, CpuContext, CpuPolicy, Product, SnpTcb


@dataclass(frozen=True)
class SnpReport:
    version: int
    policy: int
    """Debugging, migration and the like, as the guest's owner allowed them."""
    vmpl: int
    """The privilege level of the request: 0 to 3 is the guest; more is the host."""
    platform_info: int
    mask_chip_key: bool
    signing_key: Literal["VCEK", "VLEK"]
    report_data: bytes
    measurement: bytes
    host_data: bytes
    id_key_digest: bytes
    product: Product | None
    """From the report's CPUID fields; None in version 2, where only the leaf certificate names it."""
    chip_id: bytes
    """64 bytes; of Turin, 8 and zeros."""
    tcb: Mapping[str, bytes]
    """8 bytes for each of TCBS, to be read by `tcb_of`."""
    signed: bytes
    signature: bytes
    """ECDSA P-384, raw r ‖ s, most significant byte first."""


SNP_REPORT_BYTES = 1184
TCBS = ("current", "reported", "committed", "launch")
TCB_AT = {"current": 0x38, "reported": 0x180, "committed": 0x1E0, "launch": 0x1F0}
SIGNATURE_AT = 0x2A0
# r and s have 72 bytes each, the least significant first.
NUMBER_BYTES = 72
P384_BYTES = 48
ECDSA_P384_SHA384 = 1
VERSIONS = (2, 3, 4, 5)
POLICY_ALWAYS_ONE = 1 << 17
AUTHOR_KEY_AND_MASK_AND_SIGNING_KEY = 0x1F


def _bad(message: str) -> CheckFailure:
    return CheckFailure("cpu_malformed", message)


def _unsupported(message: str) -> CheckFailure:
    return CheckFailure("cpu_unsupported", message)


def parse_snp_report(data: bytes) -> SnpReport:
    """@raises CheckFailure: cpu_malformed, cpu_unsupported"""
    if len(data) != SNP_REPORT_BYTES:
        raise _bad(f"an SEV-SNP report has {SNP_REPORT_BYTES} bytes, not {len(data)}")

    def number(at: int, size: int) -> int:
        return int.from_bytes(data[at : at + size], "little")

    version = number(0, 4)
    if version not in VERSIONS:
        raise _unsupported(f"an SEV-SNP report of version {version}")
    if number(0x34, 4) != ECDSA_P384_SHA384:
        raise _unsupported("a signature other than ECDSA P-384")
    policy = number(8, 8)
    if policy & POLICY_ALWAYS_ONE == 0:
        raise _bad("bit 17 of the guest policy is always one, and here is zero")
    signer = number(0x48, 4)
    is_reserved_zero = all(is_zero(data[first:end]) for first, end in _reserved(version))
    if not is_reserved_zero or signer > AUTHOR_KEY_AND_MASK_AND_SIGNING_KEY:
        raise _bad("reserved bytes are not zero")
    r, s = (data[at : at + P384_BYTES][::-1] for at in (SIGNATURE_AT, SIGNATURE_AT + NUMBER_BYTES))
    return SnpReport(
        version=version,
        policy=policy,
        vmpl=number(0x30, 4),
        platform_info=number(0x40, 8),
        mask_chip_key=signer & 2 != 0,
        signing_key=_signing_key(signer >> 2 & 7),
        report_data=data[0x50:0x90],
        measurement=data[0x90:0xC0],
        host_data=data[0xC0:0xE0],
        id_key_digest=data[0xE0:0x110],
        product=None if version == 2 else _product_of(data[0x188], data[0x189]),
        chip_id=data[0x1A0:0x1E0],
        tcb={name: data[at : at + 8] for name, at in TCB_AT.items()},
        signed=data[:SIGNATURE_AT],
        signature=r + s,
    )


def _reserved(version: int) -> tuple[tuple[int, int], ...]:
    """Bytes that are zero in every version's layout, the unsigned ones behind the signature included."""
    return (
        (0x4C, 0x50),
        (0x188 if version == 2 else 0x18B, 0x1A0),
        (0x1EB, 0x1EC),
        (0x1EF, 0x1F0),
        # Version 5 has two vectors of mitigations.
        (0x208 if version == 5 else 0x1F8, SIGNATURE_AT),
        (SIGNATURE_AT + P384_BYTES, SIGNATURE_AT + NUMBER_BYTES),
        (SIGNATURE_AT + NUMBER_BYTES + P384_BYTES, SIGNATURE_AT + 2 * NUMBER_BYTES),
        (SIGNATURE_AT + 2 * NUMBER_BYTES, SNP_REPORT_BYTES),
    )


def _signing_key(code: int) -> Literal["VCEK", "VLEK"]:
    if code == 0:
        return "VCEK"
    if code == 1:
        return "VLEK"
    raise _unsupported("a report that neither a VCEK nor a VLEK signed")


def _product_of(family: int, model: int) -> Product:
    """CPUID's family and model, extended ones added in. Siena and Bergamo (A0h) have Genoa's roots."""
    if family == 0x19 and model <= 0x0F:
        return "Milan"
    if family == 0x19 and (0x10 <= model <= 0x1F or 0xA0 <= model <= 0xAF):
        return "Genoa"
    if family == 0x1A and model <= 0x1F:
        return "Turin"
    raise _unsupported(f"a processor of family {family:x}h, model {model:x}h")


# Which byte of a TCB version is which part (§2.2 of the ABI); None is reserved.
LAYOUTS: Mapping[Product, tuple[str | None, ...]] = {
    "Milan": ("bl", "tee", None, None, None, None, "snp", "ucode"),
    "Genoa": ("bl", "tee", None, None, None, None, "snp", "ucode"),
    "Turin": ("fmc", "bl", "tee", "snp", None, None, None, "ucode"),
}


def tcb_of(data: bytes, product: Product) -> SnpTcb | None:
    """The parts of a TCB version; None where a reserved byte is set."""
    layout = LAYOUTS[product]
    if any(part is None and byte != 0 for part, byte in zip(layout, data, strict=True)):
        return None
    return {part: byte for part, byte in zip(layout, data, strict=True) if part is not None}


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
