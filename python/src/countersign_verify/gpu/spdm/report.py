"""
Reads an attestation report: an SPDM 1.1 GET_MEASUREMENTS request and the signed MEASUREMENTS response (DMTF DSP0274
§10.11). What it returns is not yet trusted: verify_report_signature makes it so, under a leaf that verify_chain has
made trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from ...x509 import PublicKey, ecdsa_verify_raw
from .opaque import OpaqueData, bad, little_endian, parse_opaque


@dataclass(frozen=True, eq=False)
class Report:
    whole: bytes
    nonce: str
    """The requester's nonce, bytes 4..35: 64 lowercase hex digits."""
    blocks: Mapping[int, str]
    """The values of the measurement blocks as lowercase hex, by SPDM's index, which counts from 1."""
    opaque: OpaqueData
    signed: bytes
    """Everything before the signature."""
    signature: bytes
    """ECDSA P-384, raw r ‖ s."""


_SPDM_1_1 = 0x11
_GET_MEASUREMENTS = 0xE0
_MEASUREMENTS = 0x60
_REQUEST_BYTES = 37
_NONCE_BYTES = 32
_SIGNATURE_BYTES = 96
# Genuine reports have 2,168 (switch) to 4,262 bytes.
_MAX_REPORT_BYTES = 64 * 1024
_DMTF = 0x01
# The record begins after the response's header, the number of blocks and its own length.
_RECORD_AT = 45


def parse_report(data: bytes) -> Report:
    """
    The signature stands at the offset that the lengths before it give, and ends the report: of the genuine reports
    known, from drivers 535 to 590 and of switches, none has a byte after it, and what is not signed is not read.
    @raises CheckFailure: report_malformed
    """
    if len(data) > _MAX_REPORT_BYTES:
        raise bad("the report is too large")
    if len(data) < _REQUEST_BYTES + 8 + _NONCE_BYTES + 2 + _SIGNATURE_BYTES:
        raise bad("the report is too short")
    if data[0] != _SPDM_1_1 or data[1] != _GET_MEASUREMENTS:
        raise bad("the report does not begin with an SPDM 1.1 GET_MEASUREMENTS request")
    if data[37] != _SPDM_1_1 or data[38] != _MEASUREMENTS:
        raise bad("the request is not followed by an SPDM 1.1 MEASUREMENTS response")
    nonce_at = _RECORD_AT + little_endian(data[42:45])
    opaque_at = nonce_at + _NONCE_BYTES + 2
    if opaque_at > len(data):
        raise bad("the measurement record runs past the end")
    signature_at = opaque_at + little_endian(data[opaque_at - 2 : opaque_at])
    if signature_at + _SIGNATURE_BYTES > len(data):
        raise bad("the opaque data runs past the end")
    if signature_at + _SIGNATURE_BYTES < len(data):
        raise bad("bytes follow the signature")
    return Report(
        whole=data,
        nonce=data[4:36].hex(),
        blocks=_read_blocks(data[_RECORD_AT:nonce_at], data[41]),
        opaque=parse_opaque(data[opaque_at:signature_at]),
        signed=data[:signature_at],
        signature=data[signature_at:],
    )


def _read_blocks(record: bytes, count: int) -> dict[int, str]:
    """DSP0274 table 54: index, specification, size; for the DMTF specification (table 55) type, size, value."""
    blocks: dict[int, str] = {}
    at = 0
    for _ in range(count):
        if at + 7 > len(record):
            raise bad("a measurement block runs past its record")
        index = record[at]
        size = little_endian(record[at + 2 : at + 4])
        value_size = little_endian(record[at + 5 : at + 7])
        if record[at + 1] != _DMTF:
            raise bad("a measurement block is not of the DMTF specification")
        if value_size + 3 != size or at + 4 + size > len(record):
            raise bad("a measurement block has a wrong size")
        if index in blocks:
            raise bad("a measurement block stands twice")
        blocks[index] = record[at + 7 : at + 7 + value_size].hex()
        at += 4 + size
    if at != len(record):
        raise bad("bytes follow the measurement blocks")
    return blocks


_signers: WeakKeyDictionary[Report, PublicKey] = WeakKeyDictionary()
"""Of each report the key that it was verified under: it depends on neither time nor policy, and is computed once for a bundle."""


def verify_report_signature(report: Report, leaf: PublicKey) -> bool:
    """Whether the leaf's key signed this report."""
    if _signers.get(report) is leaf:
        return True
    holds = ecdsa_verify_raw(leaf, "SHA-384", report.signature, report.signed)
    if holds:
        _signers[report] = leaf
    return holds
