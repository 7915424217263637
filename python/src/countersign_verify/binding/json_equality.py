"""When two JSON texts or values are the same, and when one is a part of the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..proto.bytes import is_well_formed
from ..proto.json import without_space
from ..proto.stream.fold import APPENDED
from ..proto.strict_json import Json, JsonTextError, parse, same_scalar


def same_tokens(held: str, signed: str) -> bool:
    """Equal except for white space between JSON tokens. `signed` is JSON: raw was parsed."""
    if held == signed:
        return True
    try:
        if without_space(held) != without_space(signed):
            return False
        # A text that is parsed has no more values than raw.
        parse(held)
    except JsonTextError:
        return False
    return True


def same_value(held: Json, signed: Json) -> bool:
    """
    The same JSON values, whatever the order of members. It has no recursion, because the values may be of any depth.
    """
    pairs = [(held, signed)]
    while pairs:
        x, y = pairs.pop()
        if isinstance(x, dict) and isinstance(y, dict):
            if x.keys() != y.keys():
                return False
            pairs += [(x[name], y[name]) for name in x]
        elif isinstance(x, list) and isinstance(y, list):
            if len(x) != len(y):
                return False
            pairs += zip(x, y, strict=True)
        elif not same_scalar(x, y):
            return False
    return True


_MAX_DEPTH = 32
"""Deeper than any chunk of a completion."""


def is_part_of(part: Json, whole: Json, grows: bool = False, depth: int = 0) -> bool:
    """
    Whether `part`, one chunk folded by itself, fits `whole`, which all chunks fold into: the texts of `whole` that grow
    end with those of `part`, and everything else in `part` is the same in `whole`.
    """
    if depth > _MAX_DEPTH:
        return False
    if part is None or same_scalar(part, whole):
        return True
    if isinstance(part, str):
        return grows and _ends_with(_text_of(whole), part)
    if isinstance(part, list) and isinstance(whole, list):
        return _are_in_order(part, whole, depth)
    if not isinstance(part, dict) or not isinstance(whole, dict):
        return False
    return all(
        name in whole and is_part_of(value, whole[name], name in APPENDED, depth + 1) for name, value in part.items()
    )


def _text_of(whole: Json) -> str:
    """The text itself, or that of the last part of a content."""
    last = whole[-1] if isinstance(whole, list) and whole else {"text": whole}
    text = last.get("text") if isinstance(last, dict) else None
    return text if isinstance(text, str) else ""


def _ends_with(text: str, end: str) -> bool:
    """Also where a pair of surrogates was cut in two."""
    if is_well_formed(end):
        return text.endswith(end)
    return text.encode("utf-16-le", "surrogatepass").endswith(end.encode("utf-16-le", "surrogatepass"))


def _are_in_order(part: Sequence[Json], whole: Iterable[Json], depth: int) -> bool:
    """The fold keeps items in order, so each item of the whole is compared once."""
    others = iter(whole)
    return all(
        any(_same_index(item, other) and is_part_of(item, other, False, depth + 1) for other in others) for item in part
    )


def _same_index(a: Json, b: Json) -> bool:
    missing = object()
    x = a.get("index", missing) if isinstance(a, dict) else missing
    y = b.get("index", missing) if isinstance(b, dict) else missing
    return (x is missing and y is missing) or (x is not missing and y is not missing and same_scalar(x, y))
