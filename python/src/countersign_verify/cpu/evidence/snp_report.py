"""
A report of SEV-SNP (AMD 56860, "SEV Secure Nested Paging Firmware ABI", §7.3). Nothing that `parse_snp_report` returns is
trusted before the checks of snp_checks.py have passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ...common.checks import CheckFailure
from .byte_reader import is_zero


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


Product = Literal["Milan", "Genoa", "Turin"]
"""AMD's processors with SEV-SNP."""
PRODUCTS: tuple[Product, ...] = ("Milan", "Genoa", "Turin")
SnpTcb = Mapping[str, int]
"""Security versions of AMD's firmware by part: `bl`, `tee`, `snp`, `ucode`, and `fmc`, which is Turin's alone."""
