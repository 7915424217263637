"""Parses X.509 certificates (RFC 5280 §4.1). What it returns is not yet trusted: verify_chain makes it so."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import Literal

from ..proto.bytes import EncodingError, from_base64, is_longer
from .der import (
    DerError,
    DerValue,
    Tag,
    at,
    bit_string,
    boolean,
    children,
    expect_tag,
    integer,
    named_bits,
    oid,
    read_one,
    sequence,
    time,
)
from .public_key import Curve, Hash, PublicKey


@dataclass(frozen=True)
class Extension:
    critical: bool
    value: bytes
    """The content of extnValue: DER of the extension."""


@dataclass(frozen=True)
class Signature:
    """What a certificate and a revocation list have in common: bytes, and somebody's signature over them."""

    tbs: bytes
    """The signed part, as it stands in the whole."""
    signature_scheme: Literal["ECDSA", "RSA-PSS"]
    """RSA-PSS is AMD's: SHA-384 throughout, a salt of 48 bytes."""
    signature_hash: Hash
    signature: bytes
    """DER of ECDSA-Sig-Value, or the octets of RSASSA-PSS."""


@dataclass(frozen=True, eq=False)
class Certificate(PublicKey):
    """`spki` and `curve` are those of its own key. Two are the same where their `der` is."""

    der: bytes
    signed: Signature
    serial: int
    issuer: bytes
    """DER of the name."""
    subject: bytes
    subject_common_name: str
    """Empty when the subject has none."""
    not_before: datetime
    not_after: datetime
    public_key_bits: bytes
    """The key's bits, as key hashes of RFC 5280 and RFC 6960 take them."""
    is_ca: bool
    path_length: int | None
    key_usage: frozenset[str] | None
    """None: the extension is absent, every usage is allowed."""
    extended_key_usage: Sequence[str] | None
    subject_key_id: bytes | None
    authority_key_id: bytes | None
    extensions: Mapping[str, Extension]
    """By dotted object identifier."""

    @cached_property
    def fingerprint(self) -> bytes:
        """SHA-256 of the whole."""
        return sha256(self.der).digest()

    def may(self, usage: str) -> bool:
        """Whether its key usage, where it states one, allows this."""
        return self.key_usage is None or usage in self.key_usage


# NVIDIA's certificates are near 700 bytes, its RIM signers near 1,500.
_MAX_CERTIFICATE_BYTES = 16 * 1024
_MAX_PEM_CHARACTERS = 256 * 1024
_MAX_CERTIFICATES = 16

_ECDSA_HASHES: Mapping[str, Hash] = {"1.2.840.10045.4.3.2": "SHA-256", "1.2.840.10045.4.3.3": "SHA-384"}
_RSASSA_PSS = "1.2.840.113549.1.1.10"
# RFC 4055 §3.1: SHA-384, MGF1 over SHA-384, 48 bytes of salt; the default trailer may be stated.
_PSS_SHA384 = bytes.fromhex(
    "a00f300d06096086480165030402020500a11c301a06092a864886f70d010108300d06096086480165030402020500a203020130"
)
_PSS_TRAILER = bytes.fromhex("a303020101")
_EC_PUBLIC_KEY = "1.2.840.10045.2.1"
_CURVES: Mapping[str, Curve] = {"1.2.840.10045.3.1.7": "P-256", "1.3.132.0.34": "P-384"}
_COMMON_NAME = "2.5.4.3"

SUBJECT_KEY_ID = "2.5.29.14"
KEY_USAGE = "2.5.29.15"
BASIC_CONSTRAINTS = "2.5.29.19"
AUTHORITY_KEY_ID = "2.5.29.35"
EXTENDED_KEY_USAGE = "2.5.29.37"
_KEY_USAGES = (
    "digitalSignature",
    "nonRepudiation",
    "keyEncipherment",
    "dataEncipherment",
    "keyAgreement",
    "keyCertSign",
    "cRLSign",
    "encipherOnly",
    "decipherOnly",
)

# The white space of ECMAScript's regular expressions, which Python's differ from.
SPACE = "\\t-\\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_PEM = re.compile(f"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/={SPACE}]*)-----END CERTIFICATE-----")
_SPACES = re.compile(f"[{SPACE}]+")


def without_space(text: str) -> str:
    return _SPACES.sub("", text)


def parse_certificate(der: bytes) -> Certificate:
    """@raises DerError"""
    if len(der) > _MAX_CERTIFICATE_BYTES:
        raise DerError("a certificate is too large")
    whole = sequence(read_one(der))
    if len(whole) > 3:
        raise DerError("a certificate has more than three parts")
    tbs, algorithm, signature = (at(whole, i) for i in range(3))
    parts = sequence(tbs)
    version = integer(read_one(parts.pop(0).content)) if parts and parts[0].tag == 0xA0 else 0
    serial, inner_algorithm, issuer, validity, subject, spki = (at(parts, i) for i in range(6))
    if tbs is None or algorithm is None or inner_algorithm is None or subject is None or spki is None:
        raise DerError("a certificate lacks a part")
    validities = sequence(validity)
    extensions = _read_extensions(parts[6:], version)
    is_ca, path_length = _basic_constraints(extensions.get(BASIC_CONSTRAINTS))
    curve, public_key_bits = _public_key(spki)
    return Certificate(
        spki=spki.whole,
        curve=curve,
        der=der,
        signed=read_signature(tbs, inner_algorithm, algorithm, signature),
        serial=integer(serial),
        issuer=expect_tag(issuer, Tag.SEQUENCE).whole,
        subject=expect_tag(subject, Tag.SEQUENCE).whole,
        subject_common_name=_common_name(subject),
        not_before=time(at(validities, 0)),
        not_after=time(at(validities, 1)),
        public_key_bits=public_key_bits,
        is_ca=is_ca,
        path_length=path_length,
        key_usage=_key_usage(extensions.get(KEY_USAGE)),
        extended_key_usage=_extended_key_usage(extensions.get(EXTENDED_KEY_USAGE)),
        subject_key_id=_octets(extensions.get(SUBJECT_KEY_ID)),
        authority_key_id=_authority_key_id(extensions.get(AUTHORITY_KEY_ID)),
        extensions=extensions,
    )


def read_signature(tbs: DerValue, inner: DerValue, outer: DerValue, signature: DerValue | None) -> Signature:
    """RFC 5280 §4.1.1.2: the algorithm stands within what is signed and again beside the signature. @raises DerError"""
    algorithm = sequence(outer)
    name = oid(at(algorithm, 0))
    if name != oid(at(sequence(inner), 0)):
        raise DerError("two signature algorithms are named")
    if name == _RSASSA_PSS:
        parameters = at(algorithm, 1)
        accepted = (_PSS_SHA384, _PSS_SHA384 + _PSS_TRAILER)
        if inner.whole != outer.whole or parameters is None or parameters.content not in accepted:
            raise DerError("RSASSA-PSS with parameters that are not supported")
        return Signature(tbs.whole, "RSA-PSS", "SHA-384", bit_string(signature))
    if name not in _ECDSA_HASHES:
        raise DerError("a signature algorithm that is not supported")
    return Signature(tbs.whole, "ECDSA", _ECDSA_HASHES[name], bit_string(signature))


def parse_pem(text: str) -> list[Certificate]:
    """Every certificate of a PEM text, in order. Text around the blocks is ignored (RFC 7468 §2). @raises DerError"""
    if is_longer(text, _MAX_PEM_CHARACTERS):
        raise DerError("a PEM text is too large")
    blocks = _PEM.findall(text)
    if not blocks:
        raise DerError("a PEM text holds no certificate")
    if len(blocks) != text.count("-----BEGIN "):
        raise DerError("a PEM text holds something else than certificates")
    if len(blocks) > _MAX_CERTIFICATES:
        raise DerError("a PEM text holds too many certificates")
    return [parse_certificate(_decoded(block)) for block in blocks]


def _decoded(block: str) -> bytes:
    try:
        return from_base64(without_space(block))
    except EncodingError as cause:
        raise DerError("a PEM block is not base64") from cause


def _public_key(value: DerValue) -> tuple[Curve | None, bytes]:
    algorithm, bits = (at(sequence(value), i) for i in range(2))
    algorithm_parts = sequence(algorithm)
    name, parameters = oid(at(algorithm_parts, 0)), at(algorithm_parts, 1)
    on_curve = name == _EC_PUBLIC_KEY and parameters is not None and parameters.tag == Tag.OID
    return _CURVES.get(oid(parameters)) if on_curve else None, bit_string(bits)


def _read_extensions(tail: Sequence[DerValue], version: int) -> dict[str, Extension]:
    """[1] and [2] are unique identifiers, which nobody uses; [3] holds the extensions."""
    if not tail:
        return {}
    if tail[0].tag != 0xA3 or version != 2 or len(tail) > 1:
        raise DerError("a certificate has an unknown part")
    return parse_extensions(tail[0])


def parse_extensions(tagged: DerValue) -> dict[str, Extension]:
    """
    The list of extensions inside an explicit tag, as certificates and OCSP responses carry it; each stands once.
    @raises DerError
    """
    extensions: dict[str, Extension] = {}
    for entry in sequence(read_one(tagged.content)):
        parts = sequence(entry)
        identifier, rest = oid(at(parts, 0)), parts[1:]
        critical = boolean(rest.pop(0)) if rest and rest[0].tag == Tag.BOOLEAN else False
        if len(rest) > 1:
            raise DerError("an extension has other parts")
        if identifier in extensions:
            raise DerError("an extension stands twice")
        extensions[identifier] = Extension(critical, expect_tag(at(rest, 0), Tag.OCTET_STRING).content)
    return extensions


def _basic_constraints(extension: Extension | None) -> tuple[bool, int | None]:
    if extension is None:
        return False, None
    parts = sequence(read_one(extension.value))
    is_ca = boolean(parts.pop(0)) if parts and parts[0].tag == Tag.BOOLEAN else False
    return is_ca, integer(parts[0]) if parts else None


def _key_usage(extension: Extension | None) -> frozenset[str] | None:
    if extension is None:
        return None
    bits = named_bits(read_one(extension.value))
    return frozenset(usage for usage, is_set in zip(_KEY_USAGES, bits, strict=False) if is_set)


def _extended_key_usage(extension: Extension | None) -> list[str] | None:
    return None if extension is None else [oid(one) for one in sequence(read_one(extension.value))]


def _octets(extension: Extension | None) -> bytes | None:
    return None if extension is None else read_one(extension.value, Tag.OCTET_STRING).content


def _authority_key_id(extension: Extension | None) -> bytes | None:
    if extension is None:
        return None
    return next((part.content for part in sequence(read_one(extension.value)) if part.tag == 0x80), None)


def _common_name(name: DerValue) -> str:
    for one in sequence(name):
        for attribute in children(expect_tag(one, Tag.SET).content):
            kind, value = (at(sequence(attribute), i) for i in range(2))
            if value is not None and oid(kind) == _COMMON_NAME:
                return value.content.decode("utf-8", "replace").removeprefix("\ufeff")
    return ""


def read_pem(text: object, name: str) -> tuple[Certificate, ...]:
    """Of an option, by its name. @raises TypeError"""
    try:
        if isinstance(text, str):
            return _certificates(text)
    except DerError as cause:
        raise TypeError(f"{name} is not a PEM certificate") from cause
    raise TypeError(f"{name} is not a PEM certificate")


@lru_cache(maxsize=16)
def _certificates(text: str) -> tuple[Certificate, ...]:
    return tuple(parse_pem(text))
