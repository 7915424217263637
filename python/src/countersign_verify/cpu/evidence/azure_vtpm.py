"""
Reads the evidence of an Azure guest behind a paravisor: the processor signs a hash of JSON that names the key of a
virtual TPM, and that TPM signs the caller's bytes (TPM 2.0 part 2, §10.12; layout of the HCL report as az-cvm-vtpm
reads it).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from ...common.checks import CheckFailure, Passed, seen
from ...proto.bytes import EncodingError, from_base64url, from_utf8
from ...proto.strict_json import JsonTextError, parse
from .byte_reader import ByteReader, is_zero


@dataclass(frozen=True)
class HclReport:
    hardware: bytes
    """The processor's report; of TDX the unsigned one, whose quote comes separately."""
    type: Literal["SEV_SNP", "TDX"]
    runtime_data: bytes
    """The JSON's exact bytes, which are hashed."""


@dataclass(frozen=True)
class TpmAttest:
    extra_data: bytes
    """The caller's bytes that the TPM signed."""
    pcr_digest: bytes


@dataclass(frozen=True)
class TpmQuote:
    """What a vTPM signed (TPM 2.0 part 2, §10.12.8), the signature, and the registers it is about."""

    message: bytes
    signature: bytes
    pcrs: Sequence[bytes]


MAGIC = 0x414C4348  # HCLA, read with the least significant byte first
HEADER_BYTES = 32
HARDWARE_BYTES = 1184
RUNTIME_HEADER_BYTES = 20
REQUEST_ATTESTATION = 2
TYPES: dict[int, Literal["SEV_SNP", "TDX"]] = {2: "SEV_SNP", 4: "TDX"}
HASH_SHA256 = 1


def _bad(message: str) -> CheckFailure:
    return CheckFailure("cpu_malformed", message)


def parse_hcl_report(data: bytes) -> HclReport:
    """What stands behind the runtime data is not read. @raises CheckFailure: cpu_malformed, cpu_unsupported"""
    runtime_at = HEADER_BYTES + HARDWARE_BYTES
    if len(data) < runtime_at + RUNTIME_HEADER_BYTES:
        raise _bad("the HCL report is too short")

    def number(at: int) -> int:
        return int.from_bytes(data[at : at + 4], "little")

    if number(0) != MAGIC or number(12) != REQUEST_ATTESTATION:
        raise _bad("this is no HCL report of an attestation")
    kind = TYPES.get(number(runtime_at + 8))
    if kind is None:
        raise CheckFailure("cpu_unsupported", "an HCL report of another type")
    if number(runtime_at + 12) != HASH_SHA256:
        raise CheckFailure("cpu_unsupported", "another hash than SHA-256")
    first = runtime_at + RUNTIME_HEADER_BYTES
    length = number(runtime_at + 16)
    if length > len(data) - first:
        raise _bad("the runtime data runs past the end of the HCL report")
    return HclReport(data[HEADER_BYTES:runtime_at], kind, data[first : first + length])


TPM_GENERATED_AND_QUOTE = bytes.fromhex("ff5443478018")
# clockInfo and firmwareVersion.
CLOCK_BYTES = 17 + 8
# One bank, SHA-256, PCR 0 to 23.
ALL_SHA256_PCRS = bytes.fromhex("00000001000b03ffffff")


def parse_tpm_attest(message: bytes) -> TpmAttest:
    """TPMS_ATTEST of a quote over all of the SHA-256 bank. @raises CheckFailure: cpu_malformed"""
    reader = ByteReader(message, lambda why: _bad(f"the vTPM's quote: {why}"))

    def sized() -> bytes:
        return reader.take(int.from_bytes(reader.take(2), "big"))

    if reader.take(6) != TPM_GENERATED_AND_QUOTE:
        raise _bad("the vTPM signed something else than a quote")
    sized()
    extra_data = sized()
    reader.take(CLOCK_BYTES)
    if reader.take(10) != ALL_SHA256_PCRS:
        raise _bad("the vTPM's quote is not over PCR 0 to 23 of SHA-256")
    pcr_digest = sized()
    reader.end()
    return TpmAttest(extra_data, pcr_digest)


def check_vtpm(hcl: HclReport, quote: TpmQuote, attest: TpmAttest, report_data: bytes) -> Passed[Literal[True]]:
    """
    `report_data`: of the processor's report, whose signature is checked elsewhere. @raises CheckFailure:
    cpu_vtpm_invalid
    """
    digest = sha256(hcl.runtime_data).digest()
    if report_data[:32] != digest or not is_zero(report_data[32:]):
        raise _wrong("the processor signed other runtime data")
    if not _pkcs1_verify(_attestation_key(hcl.runtime_data), quote.signature, quote.message):
        raise _wrong("the vTPM's signature does not verify under its key")
    if sha256(b"".join(quote.pcrs)).digest() != attest.pcr_digest:
        raise _wrong("the PCRs are not those of the quote")
    return seen("the processor vouches for the key of the vTPM, which signed these PCRs")


def _wrong(message: str) -> CheckFailure:
    return CheckFailure("cpu_vtpm_invalid", message)


AK = "HCLAkPub"
RSA_2048_BYTES = 256
EXPONENT = 65_537  # AQAB


def _attestation_key(runtime_data: bytes) -> int:
    """The modulus of the attestation key, which must stand in the JSON once."""
    try:
        value = parse(from_utf8(runtime_data))
    except (JsonTextError, EncodingError) as cause:
        raise _wrong("the runtime data is not JSON") from cause
    keys = value.get("keys") if isinstance(value, dict) else None
    own = [key for key in keys if isinstance(key, dict) and key.get("kid") == AK] if isinstance(keys, list) else []
    if len(own) != 1 or own[0].get("kty") != "RSA" or own[0].get("e") != "AQAB" or not isinstance(own[0].get("n"), str):
        raise _wrong("the runtime data does not name the key of a vTPM")
    text: str = own[0]["n"]
    try:
        modulus = from_base64url(text) if len(text) < 400 else b""
    except EncodingError:
        modulus = b""
    if len(modulus) != RSA_2048_BYTES or modulus[0] < 0x80:
        raise _wrong("the key of the vTPM is not RSA of 2,048 bits")
    return int.from_bytes(modulus, "big")


def _pkcs1_verify(modulus: int, signature: bytes, message: bytes) -> bool:
    """TPM_ALG_RSASSA over SHA-256."""
    try:
        key = rsa.RSAPublicNumbers(EXPONENT, modulus).public_key()
        key.verify(signature, message, padding.PKCS1v15(), SHA256())
    except (InvalidSignature, ValueError):
        return False
    return True
