"""Reads the JSON of release bundles, statements and trusted roots: the members that are known and no others."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from ..common.checks import CheckFailure, FailureCode
from ..proto.bytes import EncodingError, from_base64, is_longer, utf8
from ..proto.strict_json import JsonTextError, duplicate_member, ordered_names, parse

T = TypeVar("T")
Json = Mapping[str, Any]

ABSENT: Final = object()
"""In place of a member that is not there: null is something else."""


class FormError(Exception):
    """A member is not what it must be; the reader of the whole gives it a code."""


def parsed(given: str) -> Any:
    """@raises FormError: a text that is no JSON, or names a member twice."""
    try:
        value = parse(given)
    except JsonTextError as cause:
        raise FormError("it is not JSON") from cause
    if duplicate_member(given) is not None:
        raise FormError("a member appears twice")
    return value


def members(value: object, where: str, needed: Sequence[str], optional: Sequence[str] = ()) -> Json:
    """An object with these members and no others. @raises FormError"""
    found = record(value, where)
    other = next((name for name in ordered_names(found) if name not in needed and name not in optional), None)
    if other is not None:
        raise FormError(f"{where} has the member {other[:64]}, which is not known")
    missing = next((name for name in needed if name not in found), None)
    if missing is not None:
        raise FormError(f"{where} has no {missing}")
    return found


def record(value: object, where: str) -> Json:
    """@raises FormError"""
    if not isinstance(value, dict):
        raise FormError(f"{where} is not an object")
    return value


def items(value: object, where: str, most: int) -> Sequence[Any]:
    """@raises FormError"""
    if not isinstance(value, list) or len(value) > most:
        raise FormError(f"{where} is not a list of at most {most}")
    return value


def text(value: object, where: str, form: re.Pattern[str] | None = None) -> str:
    """@raises FormError"""
    if not isinstance(value, str) or (form is not None and form.fullmatch(value) is None):
        raise FormError(f"{where} is not what it must be")
    return value


def base64(value: object, where: str) -> bytes:
    """@raises FormError"""
    try:
        return from_base64(text(value, where))
    except EncodingError as cause:
        raise FormError(f"{where} is not base64") from cause


_WHOLE = re.compile(r"0|[1-9][0-9]{0,17}")


def whole(value: object, where: str) -> int:
    """A whole number, as protobuf's JSON writes 64 bits. @raises FormError"""
    return int(text(value, where, _WHOLE))


def with_code(code: FailureCode, what: str, read: Callable[[], T]) -> T:
    """Runs a reader, and gives its errors a code. @raises CheckFailure"""
    try:
        return read()
    except FormError as cause:
        raise CheckFailure(code, f"{what}: {cause}") from cause


def refuse_large(given: str, most: int, what: str) -> None:
    """@raises CheckFailure: release_too_large, counted in characters before anything is read."""
    if is_longer(given, most):
        raise CheckFailure("release_too_large", f"{what} has more than {most} characters")


def pre_authentication(kind: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: the bytes that are signed."""
    return utf8(f"DSSEv1 {len(utf8(kind))} {kind} {len(payload)} ") + payload
