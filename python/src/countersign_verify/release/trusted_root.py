"""
The trusted root: which certificate authorities, logs and time authorities count, each with its key and its period
(protobuf's JSON form).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Literal, TypeVar

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_der_public_key

from ..common.checks import CheckFailure
from ..common.times import milliseconds
from ..proto.bytes import is_longer
from ..x509 import Certificate, DerError, PublicKey, ecdsa_verify, parse_certificate
from .form import FormError, Json, base64, items, parsed, record, text

T = TypeVar("T")


@dataclass(frozen=True)
class Period:
    """Unix milliseconds; NaN for what is no time."""

    start: float
    end: float | None
    """None: it has not ended."""


@dataclass(frozen=True)
class LogKey:
    """A key that signs for a log."""

    id: bytes
    spki: bytes
    algorithm: Literal["P-256", "Ed25519"]
    period: Period


@dataclass(frozen=True)
class Authority:
    chain: Sequence[Certificate]
    """From the one that signs up to its root. Of certificates: the authority first; of time: the signer first."""
    period: Period


@dataclass(frozen=True)
class TrustedRoot:
    logs: Sequence[LogKey]
    certificate_logs: Sequence[LogKey]
    authorities: Sequence[Authority]
    time_authorities: Sequence[Authority]


_MAX_ROOT_CHARACTERS = 256 * 1024
_MAX_ENTRIES = 64
_MEDIA_TYPE = re.compile(r"application/vnd\.dev\.sigstore\.trustedroot(?:\+json;version=0\.[12]|\.v0\.2\+json)")
_ALGORITHMS: Mapping[str, Literal["P-256", "Ed25519"]] = {
    "PKIX_ECDSA_P256_SHA_256": "P-256",
    "PKIX_ED25519": "Ed25519",
}


def read_trusted_root(given: str) -> TrustedRoot:
    """`given`: JSON text of the caller's own. @raises TypeError naming what is wrong."""
    try:
        if is_longer(given, _MAX_ROOT_CHARACTERS):
            raise FormError(f"more than {_MAX_ROOT_CHARACTERS} characters")
        root = record(parsed(given), "it")
        text(root.get("mediaType"), "mediaType", _MEDIA_TYPE)
        return TrustedRoot(
            logs=_all(root, "tlogs", _log),
            certificate_logs=_all(root, "ctlogs", _log),
            authorities=_all(root, "certificateAuthorities", _authority),
            time_authorities=_all(root, "timestampAuthorities", _authority),
        )
    except FormError as cause:
        raise TypeError(f"trusted_root cannot be used: {cause}") from cause


def _all(root: Json, name: str, read: Callable[[Json, str], T | None]) -> list[T]:
    given = root.get(name)
    values = items([] if given is None else given, name, _MAX_ENTRIES)
    found = [read(record(value, f"{name}[{i}]"), f"{name}[{i}]") for i, value in enumerate(values)]
    return [one for one in found if one is not None]


def _log(value: Json, where: str) -> LogKey | None:
    """None: a log whose key is of a kind that is not supported, so that nothing of it is."""
    key = record(value.get("publicKey"), f"{where}.publicKey")
    algorithm = _ALGORITHMS.get(text(key.get("keyDetails"), f"{where}.keyDetails"))
    if algorithm is None:
        return None
    return LogKey(
        id=base64(record(value.get("logId"), f"{where}.logId").get("keyId"), f"{where}.keyId"),
        spki=base64(key.get("rawBytes"), f"{where}.rawBytes"),
        algorithm=algorithm,
        period=_period(key.get("validFor"), where),
    )


def _authority(value: Json, where: str) -> Authority | None:
    """None: a certificate in it cannot be read, such as one of a kind of key that is not supported."""
    certificates = record(value.get("certChain"), f"{where}.certChain").get("certificates")
    ders = [
        base64(record(one, where).get("rawBytes"), f"{where}.rawBytes")
        for one in items(certificates, f"{where}.certificates", 8)
    ]
    period = _period(value.get("validFor"), where)
    try:
        return Authority([parse_certificate(der) for der in ders], period) if ders else None
    except DerError:
        return None


_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?Z",
)


def _period(value: object, where: str) -> Period:
    stated = record(value, f"{where}.validFor")
    start, end = stated.get("start"), stated.get("end")
    return Period(_time(start, where), None if end is None else _time(end, where))


def _time(value: object, where: str) -> float:
    match = _TIME.fullmatch(text(value, f"{where}.validFor", _TIME))
    assert match is not None
    *parts, fraction = match.groups()
    year, month, day, hour, minute, second = map(int, parts)
    try:
        whole = milliseconds(datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc))
    except ValueError:
        return math.nan
    return whole + int((fraction or "")[:3].ljust(3, "0"))


def within(at: float, period: Period) -> bool:
    """Both ends included. `at`: Unix milliseconds."""
    return at >= period.start and (period.end is None or at <= period.end)


def verifies_under(key: LogKey, signature: bytes, data: bytes) -> bool:
    """@raises CheckFailure: release_unsupported: the log's Ed25519 key cannot be used here."""
    if key.algorithm == "P-256":
        return ecdsa_verify(PublicKey(key.spki, "P-256"), "SHA-256", signature, data)
    try:
        loaded = load_der_public_key(key.spki)
    except (ValueError, UnsupportedAlgorithm):
        loaded = None
    if not isinstance(loaded, Ed25519PublicKey):
        raise CheckFailure("release_unsupported", "the log signs with an Ed25519 key that cannot be used here")
    try:
        loaded.verify(signature, data)
    except InvalidSignature:
        return False
    return True


def key_of(logs: Sequence[LogKey], log_id: bytes) -> LogKey | None:
    """The log's key by its id; by nothing that a bundle says of an address."""
    return next((log for log in logs if log.id == log_id), None)
