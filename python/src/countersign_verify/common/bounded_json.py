"""JSON from outside: counted before it is parsed."""

from __future__ import annotations

from ..proto.bytes import is_longer
from ..proto.json import has_at_most
from ..proto.strict_json import Json, JsonTextError, parse
from .checks import CheckFailure, Limits

_MAX_CHARACTERS = 64 * 1024 * 1024
_MAX_VALUES = 16 * 1024 * 1024
"""More than a response of 64 MiB has, even one full of token probabilities."""


def parse_bounded(text: str, limits: Limits) -> Json:
    """The one way from untrusted text to JSON: counted before it is parsed. @raises CheckFailure: not_json, too_large"""
    bounded(text, limits)
    try:
        return parse(text)
    except JsonTextError as cause:
        raise CheckFailure("not_json", "not JSON") from cause


def bounded(text: str, limits: Limits) -> None:
    """Counts only: parsing is the step that takes memory. @raises CheckFailure: too_large"""
    most = _MAX_CHARACTERS if limits.max_characters is None else limits.max_characters
    if is_longer(text, most):
        raise CheckFailure("too_large", f"more than {most} characters of JSON text")
    most = _MAX_VALUES if limits.max_values is None else limits.max_values
    if not has_at_most(text, most):
        raise CheckFailure("too_large", f"more than {most} JSON names and values")


def unquoted(given: str, limits: Limits) -> str:
    """The text, or the text in it where it is a JSON string. A text over the limits stays as it is."""
    text = given.removeprefix("\ufeff")
    if not text.lstrip(" \t\n\r").startswith('"'):
        return text
    try:
        value = parse_bounded(text, limits)
    except CheckFailure:
        return text
    return value if isinstance(value, str) else text
