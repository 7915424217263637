"""Reads certificate revocation lists (RFC 5280 §5.1) and looks certificates up in them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from .certificate import Certificate, Extension, Signature, parse_extensions, read_signature
from .der import DerError, DerValue, Tag, at, expect_tag, integer, read_at, read_one, sequence, time


@dataclass(frozen=True)
class Crl:
    """Not trusted before `is_issued_by` of chain.py is true."""

    signed: Signature
    issuer: bytes
    """DER of the issuer's name."""
    this_update: datetime
    next_update: datetime
    revoked: frozenset[bytes]
    """The contents of the serial numbers' INTEGERs."""


# Intel's of 2026 names 57 certificates in 3,355 bytes.
_MAX_CRL_BYTES = 1024 * 1024
# The one critical extension that is accepted: the CRL's number (RFC 5280 §5.2.3) does not limit the list.
_CRL_NUMBER = "2.5.29.20"


def parse_crl(der: bytes) -> Crl:
    """@raises DerError"""
    if len(der) > _MAX_CRL_BYTES:
        raise DerError("a revocation list is too large")
    whole = sequence(read_one(der))
    if not 2 <= len(whole) <= 3:
        raise DerError("a revocation list has not three parts")
    tbs, algorithm = whole[:2]
    parts = sequence(tbs)
    if integer(parts.pop(0) if parts else None) != 1:
        raise DerError("a revocation list of another version than 2")
    if not parts:
        raise DerError("a revocation list lacks a part")
    inner_algorithm, issuer, this_update, next_update = parts[0], at(parts, 1), at(parts, 2), at(parts, 3)
    rest = parts[4:]
    listed = rest.pop(0) if rest and rest[0].tag == Tag.SEQUENCE else None
    extensions: dict[str, Extension] = parse_extensions(rest.pop(0)) if rest and rest[0].tag == 0xA0 else {}
    if rest:
        raise DerError("a revocation list has an unknown part")
    # Delta and indirect lists have critical extensions.
    if any(one.critical and name != _CRL_NUMBER for name, one in extensions.items()):
        raise DerError("a revocation list has a critical extension")
    return Crl(
        signed=read_signature(tbs, inner_algorithm, algorithm, at(whole, 2)),
        issuer=expect_tag(issuer, Tag.SEQUENCE).whole,
        this_update=time(this_update),
        next_update=time(next_update),
        revoked=_serials(listed),
    )


def _serials(listed: DerValue | None) -> frozenset[bytes]:
    revoked = set()
    content = b"" if listed is None else listed.content
    start = 0
    # One after the other: a list may be longer than the sequences that der.py reads at once.
    while start < len(content):
        entry = expect_tag(read_at(content, start), Tag.SEQUENCE)
        revoked.add(expect_tag(read_at(entry.content, 0), Tag.INTEGER).content)
        start += len(entry.whole)
    return frozenset(revoked)


def is_revoked(crl: Crl, certificate: Certificate) -> bool:
    """`crl`: of the authority that issued `certificate`."""
    serial = certificate.serial
    if serial < 0:
        return False
    return serial.to_bytes(serial.bit_length() // 8 + 1, "big") in crl.revoked
