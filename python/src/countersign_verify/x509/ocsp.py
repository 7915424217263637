"""OCSP requests and responses as bytes (RFC 6960)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Literal

from .certificate import Certificate, Extension, parse_certificate, parse_extensions
from .der import DerError, DerValue, Tag, at, bit_string, children, expect_tag, integer, oid, read_one, sequence, time
from .public_key import Hash

# Writes OCSP requests (RFC 6960 §4.1.1) with a nonce (RFC 8954).

OCSP_NONCE_BYTES = 32
"""The longest nonce that RFC 8954 §2.1 lets a responder refuse to be longer than."""

_SHA384_OID = bytes.fromhex("608648016503040202")
_NONCE_OID = bytes.fromhex("2b0601050507300102")


def make_ocsp_request(certificate: Certificate, issuer: Certificate, nonce: bytes) -> bytes:
    """
    The request, DER, for one certificate. Its certID is made with SHA-384, as NVIDIA's verifiers make it.
    """
    requests = _value(Tag.SEQUENCE, _value(Tag.SEQUENCE, make_cert_id(certificate, issuer)))
    octets = _value(Tag.OCTET_STRING, _value(Tag.OCTET_STRING, nonce))
    extension = _value(Tag.SEQUENCE, _value(Tag.OID, _NONCE_OID), octets)
    return _value(Tag.SEQUENCE, _value(Tag.SEQUENCE, requests, _value(0xA2, _value(Tag.SEQUENCE, extension))))


def make_cert_id(certificate: Certificate, issuer: Certificate) -> bytes:
    """DER of the CertID: also the name under which a response is kept."""
    name, key = issuer_hashes(issuer, "sha384")
    serial = certificate.serial
    return _value(
        Tag.SEQUENCE,
        _value(Tag.SEQUENCE, _value(Tag.OID, _SHA384_OID), _value(Tag.NULL)),
        _value(Tag.OCTET_STRING, name),
        _value(Tag.OCTET_STRING, key),
        _value(Tag.INTEGER, serial.to_bytes(serial.bit_length() // 8 + 1, "big", signed=True)),
    )


CertIdHash = Literal["sha1", "sha256", "sha384", "sha512"]
"""With which hash functions a CertID may name an issuer."""


@lru_cache(maxsize=256)
def issuer_hashes(issuer: Certificate, hash_name: CertIdHash) -> tuple[bytes, bytes]:
    """§4.1.1: of the issuer's name, and of its public key's bits."""
    return _digest(hash_name, issuer.subject), _digest(hash_name, issuer.public_key_bits)


def _digest(hash_name: CertIdHash, data: bytes) -> bytes:
    return hashlib.new(hash_name, data, usedforsecurity=False).digest()


def key_hash(certificate: Certificate) -> bytes:
    """The SHA-1 of a key, by which a response may name its responder."""
    return _digest("sha1", certificate.public_key_bits)


def _value(tag: int, *contents: bytes) -> bytes:
    """One DER value of at most 65,535 bytes."""
    content = b"".join(contents)
    size = len(content)
    head = [size] if size < 0x80 else [0x81, size] if size < 0x100 else [0x82, size >> 8, size & 0xFF]
    return bytes([tag, *head]) + content


# Reads OCSP responses (RFC 6960 §4.2.1). What it returns is not yet trusted: verify_ocsp makes it so.


@dataclass(frozen=True)
class CertId:
    """§4.1.1: which certificate, by hashes of its issuer's name and key."""

    hash: CertIdHash | None
    """None: a hash that is not supported."""
    issuer_name_hash: bytes
    issuer_key_hash: bytes
    serial: int


@dataclass(frozen=True)
class Revoked:
    at: datetime
    reason: int | None


CertStatus = Literal["good", "unknown"] | Revoked


@dataclass(frozen=True)
class SingleResponse:
    cert_id: CertId
    status: CertStatus
    this_update: datetime
    next_update: datetime | None


@dataclass(frozen=True)
class OcspResponse:
    signed: bytes
    """DER of ResponseData, which the responder signed."""
    signature_hash: Hash
    signature: bytes
    responder_name: bytes | None
    """DER of the responder's name; None where the response names it by its key."""
    responder_key_hash: bytes | None
    """The SHA-1 of the responder's key; None where the response names it by its name."""
    responses: Sequence[SingleResponse]
    nonce: bytes | None
    certificates: Sequence[Certificate]


class OcspRefusal(Exception):
    """
    The responder refused the request. §4.2.1: 1 malformed request, 2 internal error, 3 try later, 5 sign first,
    6 unauthorized.
    """

    def __init__(self, status: int) -> None:
        super().__init__(f"the responder refused with status {status}")
        self.status = status


MAX_OCSP_BYTES = 64 * 1024
_MAX_RESPONSES = 64
_MAX_CERTIFICATES = 8

_BASIC_RESPONSE = "1.3.6.1.5.5.7.48.1.1"
_OCSP_NONCE = "1.3.6.1.5.5.7.48.1.2"
_HASHES: Mapping[str, CertIdHash] = {
    "1.3.14.3.2.26": "sha1",
    "2.16.840.1.101.3.4.2.1": "sha256",
    "2.16.840.1.101.3.4.2.2": "sha384",
    "2.16.840.1.101.3.4.2.3": "sha512",
}
_SIGNATURES: Mapping[str, Hash] = {"1.2.840.10045.4.3.2": "SHA-256", "1.2.840.10045.4.3.3": "SHA-384"}


def parse_ocsp_response(der: bytes) -> OcspResponse:
    """@raises DerError: it is not a response. @raises OcspRefusal: the responder refused the request."""
    if len(der) > MAX_OCSP_BYTES:
        raise DerError("an OCSP response is too large")
    parts = sequence(read_one(der))
    if len(parts) > 2:
        raise DerError("an OCSP response has other parts")
    status = expect_tag(at(parts, 0), Tag.ENUMERATED).content
    if len(status) != 1:
        raise DerError("a response status is malformed")
    if status[0] != 0:
        raise OcspRefusal(status[0])
    body = sequence(read_one(expect_tag(at(parts, 1), 0xA0).content))
    if oid(at(body, 0)) != _BASIC_RESPONSE or len(body) > 2:
        raise DerError("not a basic OCSP response")
    return _parse_basic(expect_tag(at(body, 1), Tag.OCTET_STRING).content)


def _parse_basic(der: bytes) -> OcspResponse:
    parts = sequence(read_one(der))
    if not 1 <= len(parts) <= 4:
        raise DerError("a basic response has other parts")
    data, algorithm, signature, certificates = parts[0], at(parts, 1), at(parts, 2), at(parts, 3)
    signature_hash = _SIGNATURES.get(oid(at(sequence(algorithm), 0)))
    if signature_hash is None:
        raise DerError("a response is signed by an algorithm that is not supported")
    embedded = [] if certificates is None else sequence(read_one(expect_tag(certificates, 0xA0).content))
    if len(embedded) > _MAX_CERTIFICATES:
        raise DerError("a response has too many certificates")
    responder, listed, extensions = _data_parts(sequence(data))
    name, key = _responder_id(responder)
    responses = [_parse_single(one) for one in sequence(listed)]
    if len(responses) > _MAX_RESPONSES:
        raise DerError("a response has too many answers")
    return OcspResponse(
        signed=data.whole,
        signature_hash=signature_hash,
        signature=bit_string(signature),
        responder_name=name,
        responder_key_hash=key,
        responses=responses,
        nonce=_nonce_of(extensions),
        certificates=[parse_certificate(one.whole) for one in embedded],
    )


def _data_parts(parts: Sequence[DerValue]) -> tuple[DerValue | None, DerValue | None, DerValue | None]:
    """[0] version, responder, producedAt, responses, [1] extensions."""
    rest = parts
    if parts and parts[0].tag == 0xA0:
        rest = parts[1:]
        if integer(read_one(parts[0].content)) != 0:
            raise DerError("a response of an unknown version")
    if len(rest) > 4:
        raise DerError("response data has other parts")
    expect_tag(at(rest, 1), Tag.GENERALIZED_TIME)
    return at(rest, 0), at(rest, 2), at(rest, 3)


def _responder_id(value: DerValue | None) -> tuple[bytes | None, bytes | None]:
    if value is not None and value.tag == 0xA1:
        return read_one(value.content, Tag.SEQUENCE).whole, None
    return None, read_one(expect_tag(value, 0xA2).content, Tag.OCTET_STRING).content


def _parse_single(value: DerValue) -> SingleResponse:
    """certID, status, thisUpdate, [0] nextUpdate, [1] extensions."""
    parts = sequence(value)
    rest = parts[3:]
    following = rest.pop(0) if rest and rest[0].tag == 0xA0 else None
    extensions = rest.pop(0) if rest and rest[0].tag == 0xA1 else None
    if rest:
        raise DerError("an answer has other parts")
    _understood(extensions)
    return SingleResponse(
        cert_id=_parse_cert_id(at(parts, 0)),
        status=_parse_status(at(parts, 1)),
        this_update=time(expect_tag(at(parts, 2), Tag.GENERALIZED_TIME)),
        next_update=None if following is None else time(read_one(following.content, Tag.GENERALIZED_TIME)),
    )


def _parse_cert_id(value: DerValue | None) -> CertId:
    parts = sequence(value)
    if len(parts) > 4:
        raise DerError("a certID has other parts")
    return CertId(
        hash=_HASHES.get(oid(at(sequence(at(parts, 0)), 0))),
        issuer_name_hash=expect_tag(at(parts, 1), Tag.OCTET_STRING).content,
        issuer_key_hash=expect_tag(at(parts, 2), Tag.OCTET_STRING).content,
        serial=integer(at(parts, 3)),
    )


def _parse_status(value: DerValue | None) -> CertStatus:
    """good [0] NULL, revoked [1] { time, [0] reason }, unknown [2] NULL; all implicit."""
    if value is not None and not value.content:
        if value.tag == 0x80:
            return "good"
        if value.tag == 0x82:
            return "unknown"
    parts = children(expect_tag(value, 0xA1).content)
    if len(parts) > 2:
        raise DerError("a revocation has other parts")
    code = None if len(parts) < 2 else read_one(expect_tag(parts[1], 0xA0).content, Tag.ENUMERATED).content
    if code is not None and len(code) != 1:
        raise DerError("a revocation reason is malformed")
    return Revoked(time(expect_tag(at(parts, 0), Tag.GENERALIZED_TIME)), None if code is None else code[0])


def _nonce_of(extensions: DerValue | None) -> bytes | None:
    """RFC 8954 §2.1: an OCTET STRING inside the extension's own."""
    nonce = _understood(None if extensions is None else expect_tag(extensions, 0xA1)).get(_OCSP_NONCE)
    return None if nonce is None else read_one(nonce.value, Tag.OCTET_STRING).content


def _understood(extensions: DerValue | None) -> Mapping[str, Extension]:
    """
    RFC 5280 §4.2 holds for OCSP's extensions too (RFC 6960 §4.4): a critical one that is not understood refuses the
    response.
    """
    parsed = {} if extensions is None else parse_extensions(extensions)
    for name, one in parsed.items():
        if one.critical and name != _OCSP_NONCE:
            raise DerError(f"a critical extension that is not understood ({name})")
    return parsed
