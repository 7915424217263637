"""Takes a JSON Web Token apart (RFC 7515 §7.1, RFC 7519). What it returns is not yet verified: see signature.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..common.checks import CheckFailure
from ..proto.bytes import EncodingError, from_base64url, from_utf8, is_longer
from ..proto.strict_json import JsonTextError, duplicate_member, parse

Json = Any
JsonObject = Mapping[str, Json]

# NVIDIA's tokens take a few KiB for each device and nest six levels deep.
_MAX_TOKEN_CHARACTERS = 1024 * 1024
_MAX_DEPTH = 16
_MAX_VALUES = 65_536


def malformed(message: str) -> CheckFailure:
    """The token is malformed. `message` quotes nothing of it."""
    return CheckFailure("token_malformed", message)


def parse_json(text: str) -> Json:
    """JSON with limits, in which a name stands once in its object. @raises CheckFailure: token_malformed"""
    if is_longer(text, _MAX_TOKEN_CHARACTERS):
        raise malformed(f"longer than {_MAX_TOKEN_CHARACTERS} characters")
    try:
        value = parse(text)
    except JsonTextError as cause:
        raise malformed("not JSON") from cause
    _check_size(value)
    if duplicate_member(text) is not None:
        raise malformed("a name stands twice in an object")
    return value


def _check_size(value: Json) -> None:
    count, depth, level = 0, 0, [value]
    while level:
        if depth > _MAX_DEPTH:
            raise malformed(f"deeper than {_MAX_DEPTH} levels")
        count += len(level)
        if count > _MAX_VALUES:
            raise malformed(f"more than {_MAX_VALUES} values")
        level = [inner for one in level for inner in _inside(one)]
        depth += 1


def _inside(value: Json) -> list[Json]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


@dataclass(frozen=True)
class Jws:
    text: str = field(repr=False)
    """The compact serialization, as it came."""
    algorithm: str
    kid: str | None
    payload: str = field(repr=False)
    """The payload's JSON text, as it was encoded."""
    claims: JsonObject = field(repr=False)
    signing_input: str = field(repr=False)
    """What the signature is over."""
    signature: bytes = field(repr=False)


def parse_jws(text: str) -> Jws:
    """@raises CheckFailure: token_malformed"""
    parts = text.split(".", 3)
    if len(parts) != 3:
        raise malformed("a part is not a compact JWT")
    first, second, third = parts
    header = _object_of(_decoded(first), "header")
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str):
        raise malformed("a JWT names no algorithm")
    if "kid" in header and not isinstance(kid, str):
        raise malformed("a JWT has a key id that is not a string")
    # RFC 7515 §4.1.11: an extension that is not understood makes the whole invalid, and none is.
    if "crit" in header:
        raise malformed("a JWT has critical header parameters")
    payload = _decoded(second)
    return Jws(
        text=text,
        algorithm=algorithm,
        kid=kid,
        payload=payload,
        claims=_object_of(payload, "payload"),
        signing_input=f"{first}.{second}",
        signature=_bytes_of(third),
    )


def _decoded(part: str) -> str:
    try:
        return from_utf8(_bytes_of(part))
    except EncodingError as cause:
        raise malformed("a part of a JWT is not UTF-8") from cause


def _bytes_of(part: str) -> bytes:
    try:
        return from_base64url(part)
    except EncodingError as cause:
        raise malformed("a part of a JWT is not base64url") from cause


def _object_of(text: str, label: str) -> JsonObject:
    value = parse_json(text)
    if not isinstance(value, dict):
        raise malformed(f"the {label} of a JWT is not an object")
    return value
