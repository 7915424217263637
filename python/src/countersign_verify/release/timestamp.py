"""A time authority's word (RFC 3161) about a signature: the only time where the log gives none."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..common.checks import CheckFailure, FailureCode
from ..x509 import (
    Certificate,
    ChainError,
    DerError,
    DerValue,
    Tag,
    children,
    ecdsa_verify,
    expect_tag,
    integer,
    oid,
    read_one,
    sequence,
    time,
    verify_chain,
)
from ..x509.der import at
from ..x509.public_key import Hash
from . import times
from .trusted_root import Authority, within

_SIGNED_DATA = "1.2.840.113549.1.7.2"
_TST_INFO = "1.2.840.113549.1.9.16.1.4"
_CONTENT_TYPE = "1.2.840.113549.1.9.3"
_MESSAGE_DIGEST = "1.2.840.113549.1.9.4"
_MAX_DEPTH = 32
_TIME_STAMPING = "1.3.6.1.5.5.7.3.8"
_HASHES: Mapping[str, Hash] = {
    "2.16.840.1.101.3.4.2.1": "SHA-256",
    "2.16.840.1.101.3.4.2.2": "SHA-384",
    "2.16.840.1.101.3.4.2.3": "SHA-512",
    "1.2.840.10045.4.3.2": "SHA-256",
    "1.2.840.10045.4.3.3": "SHA-384",
    "1.2.840.10045.4.3.4": "SHA-512",
}


@dataclass(frozen=True)
class _Stamp:
    at: int
    """Unix milliseconds."""
    imprint_hash: Hash
    imprint: bytes
    """What was stamped."""
    issuer: bytes
    serial: int
    content: bytes
    """DER of TSTInfo, and the signer's hash of it."""
    content_hash: Hash
    content_digest: bytes
    attributes: bytes
    """The signed attributes as a SET."""
    signature_hash: Hash
    signature: bytes


def _digest(name: Hash, data: bytes) -> bytes:
    return hashlib.new(name.replace("-", "").lower(), data).digest()


def stamped_time(der: bytes, signature: bytes, authorities: Sequence[Authority]) -> int:
    """
    `signature`: what was stamped. Unix milliseconds.
    @raises CheckFailure: release_time_invalid, release_untrusted, release_root_expired
    """
    stamp = _read(der)
    named = [one for one in authorities if one.chain and _is_named(one.chain[0], stamp)]
    if not named:
        raise CheckFailure("release_untrusted", "the trusted root does not know this time authority")
    authority = next((one for one in named if within(stamp.at, one.period)), None)
    if authority is None:
        raise CheckFailure("release_root_expired", "the trusted root ends this time authority before that time")
    if stamp.imprint != _digest(stamp.imprint_hash, signature):
        raise _invalid("is about another signature")
    if stamp.content_digest != _digest(stamp.content_hash, stamp.content):
        raise _invalid("was signed about another time")
    signer = _check_signer(authority, stamp.at)
    if not ecdsa_verify(signer, stamp.signature_hash, stamp.signature, stamp.attributes):
        raise _invalid("does not verify")
    return stamp.at


def _is_named(signer: Certificate, stamp: _Stamp) -> bool:
    return signer.issuer == stamp.issuer and signer.serial == stamp.serial


def _check_signer(authority: Authority, moment: int) -> Certificate:
    chain = authority.chain
    signer = chain[0]
    if signer.extended_key_usage is None or _TIME_STAMPING not in signer.extended_key_usage:
        raise _invalid("was signed by a certificate that is not for times")
    try:
        verify_chain(chain[:-1], chain[-1:], times.instant(moment))
    except ChainError as cause:
        code: FailureCode = "release_root_expired" if cause.reason == "expired" else "release_time_invalid"
        raise CheckFailure(code, str(cause)) from cause
    return signer


def _read(der: bytes) -> _Stamp:
    try:
        return _parse(der)
    except DerError as cause:
        raise _invalid(f"cannot be read: {cause}") from cause


def _parse(der: bytes) -> _Stamp:
    """TimeStampResp: its status and a ContentInfo with SignedData (RFC 5652 §5.1)."""
    whole = read_one(der)
    _well_formed(whole)
    response = sequence(whole)
    granted = integer(at(sequence(at(response, 0)), 0))
    if len(response) > 2 or granted not in (0, 1):
        raise DerError("it was not granted")
    signed_data = sequence(_explicit(sequence(at(response, 1)), _SIGNED_DATA))
    content = expect_tag(_explicit(sequence(at(signed_data, 2)), _TST_INFO), Tag.OCTET_STRING).content
    signers = children(expect_tag(signed_data[-1], Tag.SET).content)
    if len(signers) > 1:
        raise DerError("it has several signers")
    signer = sequence(at(signers, 0))
    sid = sequence(at(signer, 1))
    signed = expect_tag(at(signer, 3), 0xA0)
    values = dict(_attribute(one) for one in children(signed.content))
    content_type = values.get(_CONTENT_TYPE)
    if content_type is None or oid(content_type) != _TST_INFO:
        raise DerError("its content is no time")
    info = sequence(read_one(content))
    imprint = sequence(at(info, 2))
    return _Stamp(
        # In whole seconds, as Sigstore's time authorities write it.
        at=times.of(time(expect_tag(at(info, 4), Tag.GENERALIZED_TIME))),
        imprint_hash=_hash_of(at(imprint, 0)),
        imprint=expect_tag(at(imprint, 1), Tag.OCTET_STRING).content,
        issuer=expect_tag(at(sid, 0), Tag.SEQUENCE).whole,
        serial=integer(at(sid, 1)),
        content=content,
        content_hash=_hash_of(at(signer, 2)),
        content_digest=expect_tag(values.get(_MESSAGE_DIGEST), Tag.OCTET_STRING).content,
        attributes=bytes((Tag.SET,)) + signed.whole[1:],
        signature_hash=_hash_of(at(signer, 4)),
        signature=expect_tag(at(signer, 5), Tag.OCTET_STRING).content,
    )


def _well_formed(value: DerValue, depth: int = 0) -> None:
    """What nobody reads or signs must be DER too."""
    if depth > _MAX_DEPTH:
        raise DerError("it is too deep")
    if value.tag & 0x20 != 0:
        for inside in children(value.content):
            _well_formed(inside, depth + 1)


def _explicit(values: Sequence[DerValue], expected: str) -> DerValue:
    """A type and what it has in [0]."""
    if oid(at(values, 0)) != expected or len(values) > 2:
        raise DerError("it is of another type")
    return read_one(expect_tag(at(values, 1), 0xA0).content)


def _attribute(value: DerValue) -> tuple[str, DerValue | None]:
    parts = sequence(value)
    inside = children(expect_tag(at(parts, 1), Tag.SET).content)
    if len(inside) > 1:
        raise DerError("an attribute has several values")
    return oid(at(parts, 0)), at(inside, 0)


def _hash_of(algorithm: DerValue | None) -> Hash:
    name = _HASHES.get(oid(at(sequence(algorithm), 0)))
    if name is None:
        raise DerError("a hash or signature that is not supported")
    return name


def _invalid(what: str) -> CheckFailure:
    return CheckFailure("release_time_invalid", f"the time authority's word {what}")
