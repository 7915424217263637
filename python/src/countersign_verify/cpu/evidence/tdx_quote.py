"""
Reads a quote of TDX (Intel, "TDX DCAP Quoting Library API", appendix A: versions 4 and 5) and what its PCK certificate
says. Nothing that it returns is trusted before the checks in tdx_checks.py have passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...common.checks import CheckFailure
from ...proto.bytes import EncodingError, from_utf8
from ...x509 import Certificate, DerError, DerValue, PublicKey, Tag, integer, oid, parse_pem, read_one, sequence
from .byte_reader import ByteReader


@dataclass(frozen=True)
class TdReport:
    """The TDX module's report about the guest."""

    tee_tcb_svn: bytes
    mr_signer_seam: bytes
    seam_attributes: bytes
    td_attributes: bytes
    xfam: bytes
    mr_td: bytes
    mr_config_id: bytes
    rtmrs: tuple[bytes, ...]
    report_data: bytes
    tee_tcb_svn2: bytes | None
    """Of the module as it runs now; None in the body of TDX 1.0."""
    mr_service_td: bytes | None
    """Of the guest's migration service; None in the body of TDX 1.0."""


@dataclass(frozen=True)
class QeReport:
    """The quoting enclave's own report."""

    misc_select: bytes
    attributes: bytes
    mr_signer: bytes
    isv_prod_id: int
    isv_svn: int
    report_data: bytes


@dataclass(frozen=True)
class _SignatureData:
    signature: bytes
    attestation_key_bytes: bytes
    """x ‖ y, as the quoting enclave hashed it."""
    attestation_key: PublicKey
    qe: QeReport
    qe_signed: bytes
    """The report's bytes, which the PCK signed."""
    qe_signature: bytes
    qe_auth_data: bytes
    chain: Sequence[Certificate]
    """PCK, its authority and usually a root."""


@dataclass(frozen=True)
class TdxQuote:
    version: int
    body: TdReport
    signed: bytes
    """Header and body, which the attestation key signed."""
    by: _SignatureData


HEADER_BYTES = 48
ECDSA_P256 = 2
TEE_TDX = 0x81
INTEL_QE_VENDOR = bytes.fromhex("939a7233f79c4ca9940a0db3957f0607")
# Version 5 says which body follows: TDX 1.0 or 1.5.
BODIES = {2: 584, 3: 648}
TDX_1_0_BYTES = 584
QE_REPORT_BYTES = 384
QE_REPORT_DATA = 6
PCK_CHAIN = 5
# SubjectPublicKeyInfo of P-256 up to x ‖ y.
P256_SPKI = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d03010703420004")


def _bad(message: str) -> CheckFailure:
    return CheckFailure("cpu_malformed", f"the quote: {message}")


def _unsupported(message: str) -> CheckFailure:
    return CheckFailure("cpu_unsupported", message)


def parse_tdx_quote(data: bytes) -> TdxQuote:
    """The quote ends where its own lengths say; hosts hand it out in a larger buffer, and what follows is not read.

    @raises CheckFailure: cpu_malformed, cpu_unsupported
    """
    reader = ByteReader(data, _bad)
    version = _read_header(reader.take(HEADER_BYTES))
    body_bytes = TDX_1_0_BYTES
    if version == 5:
        kind = reader.number(2)
        if kind not in BODIES:
            raise _unsupported(f"a quote with a body of type {kind}")
        body_bytes = BODIES[kind]
        if reader.number(4) != body_bytes:
            raise _bad("the body has not the size of its type")
    body = _read_body(reader.take(body_bytes))
    signed = reader.taken
    return TdxQuote(version, body, signed, _read_signature_data(reader.take(reader.number(4))))


def _read_header(header: bytes) -> int:
    reader = ByteReader(header, _bad)
    version = reader.number(2)
    if version not in (4, 5):
        raise _unsupported(f"a quote of version {version}")
    if reader.number(2) != ECDSA_P256:
        raise _unsupported("a quote with another attestation key than of ECDSA P-256")
    if reader.number(4) != TEE_TDX:
        raise _unsupported("a quote of another kind than TDX")
    if reader.number(4) != 0:
        raise _bad("reserved bytes of the header are not zero")
    if reader.take(16) != INTEL_QE_VENDOR:
        raise _unsupported("another quoting enclave than Intel's")
    return version


def _read_body(data: bytes) -> TdReport:
    """TD report of TDX 1.0, and two fields more of TDX 1.5."""
    is_tdx15 = len(data) > TDX_1_0_BYTES
    return TdReport(
        tee_tcb_svn=data[:16],
        mr_signer_seam=data[64:112],
        seam_attributes=data[112:120],
        td_attributes=data[120:128],
        xfam=data[128:136],
        mr_td=data[136:184],
        mr_config_id=data[184:232],
        rtmrs=tuple(data[at : at + 48] for at in (328, 376, 424, 472)),
        report_data=data[520:584],
        tee_tcb_svn2=data[584:600] if is_tdx15 else None,
        mr_service_td=data[600:648] if is_tdx15 else None,
    )


def _read_signature_data(data: bytes) -> _SignatureData:
    reader = ByteReader(data, _bad)
    signature = reader.take(64)
    key = reader.take(64)
    if reader.number(2) != QE_REPORT_DATA:
        raise _unsupported("certification data without the quoting enclave's report")
    inner = ByteReader(reader.take(reader.number(4)), _bad)
    reader.end()
    qe_signed = inner.take(QE_REPORT_BYTES)
    qe_signature = inner.take(64)
    qe_auth_data = inner.take(inner.number(2))
    if inner.number(2) != PCK_CHAIN:
        raise _unsupported("a quote without its PCK certificate chain")
    chain = _read_chain(inner.take(inner.number(4)))
    inner.end()
    return _SignatureData(
        signature=signature,
        attestation_key_bytes=key,
        attestation_key=PublicKey(spki=P256_SPKI + key, curve="P-256"),
        qe=_read_qe_report(qe_signed),
        qe_signed=qe_signed,
        qe_signature=qe_signature,
        qe_auth_data=qe_auth_data,
        chain=chain,
    )


def _read_qe_report(data: bytes) -> QeReport:
    return QeReport(
        misc_select=data[16:20],
        attributes=data[48:64],
        mr_signer=data[128:160],
        isv_prod_id=int.from_bytes(data[256:258], "little"),
        isv_svn=int.from_bytes(data[258:260], "little"),
        report_data=data[320:384],
    )


def _read_chain(data: bytes) -> Sequence[Certificate]:
    """A NUL may end the text."""
    try:
        return parse_pem(from_utf8(data.removesuffix(b"\0")))
    except (DerError, EncodingError) as cause:
        raise CheckFailure("cpu_malformed", f"the quote's certificates: {cause}") from cause


# Intel's extension of a PCK certificate ("PCK Certificate and CRL Profile Specification", §1.3.5).


@dataclass(frozen=True)
class Pck:
    ppid: str | None
    """32 lowercase hex digits; None where the certificate has none."""
    fmspc: str
    """12 lowercase hex digits that select the platform's TCB info."""
    pce_id: str
    cpu_svn: tuple[int, ...]
    """The 16 components of its CPUSVN."""
    pce_svn: int


SGX = "1.2.840.113741.1.13.1"
COMPONENTS = 16


def read_pck(certificate: Certificate) -> Pck:
    """@raises DerError"""
    extension = certificate.extensions.get(SGX)
    if extension is None:
        raise DerError("it is no PCK certificate")
    fields = _by_name(read_one(extension.value))
    tcb = _by_name(fields.get(f"{SGX}.2"))

    def number(index: int) -> int:
        value = integer(tcb.get(f"{SGX}.2.{index}"))
        if not 0 <= value <= 0xFFFF:
            raise DerError("a security version is out of range")
        return value

    ppid = fields.get(f"{SGX}.1")
    return Pck(
        ppid=None if ppid is None else _octets(ppid, 16),
        fmspc=_octets(fields.get(f"{SGX}.4"), 6),
        pce_id=_octets(fields.get(f"{SGX}.3"), 2),
        cpu_svn=tuple(number(index + 1) for index in range(COMPONENTS)),
        pce_svn=number(COMPONENTS + 1),
    )


def _by_name(value: DerValue | None) -> dict[str, DerValue]:
    fields: dict[str, DerValue] = {}
    for entry in sequence(value):
        parts = sequence(entry)
        name = oid(parts[0] if parts else None)
        if len(parts) != 2 or name in fields:
            raise DerError("a field is malformed")
        fields[name] = parts[1]
    return fields


def _octets(value: DerValue | None, length: int) -> str:
    if value is None or value.tag != Tag.OCTET_STRING or len(value.content) != length:
        raise DerError("a field has a wrong size")
    return value.content.hex()
