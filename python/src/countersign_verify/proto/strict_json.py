"""
JSON as ECMAScript's `JSON.parse` and `JSON.stringify` have it, whatever its depth.

A parsed value is a dict, list, str, bool or None, or a number: an int or a float that equals the double it stands for,
or a KeptNumber. Python takes True for 1, so that values are compared with `same_scalar` and numbers found with
`number_of`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from json import JSONDecoder, scanner
from typing import Any

from .json import BRACKET_OR_STRING, SURROGATE, paired, parse_string, quote, skip_space, skip_string
from .json import JsonTextError as JsonTextError

Json = Any


@dataclass(frozen=True)
class KeptNumber:
    """A number that ECMAScript would write in another way: its source text."""

    text: str


_SHORT_INTEGER = re.compile(r"-?[1-9][0-9]{0,14}|0")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORDS: Mapping[str, Json] = {"true": True, "false": False, "null": None}


# Numbers.


def _double(text: str) -> int | float:
    return int(text) if _SHORT_INTEGER.fullmatch(text) is not None else float(text)


def _kept(text: str) -> int | float | KeptNumber:
    if _SHORT_INTEGER.fullmatch(text) is not None:
        return int(text)
    value = float(text)
    return value if number_text(value) == text else KeptNumber(text)


def number_text(value: int | float) -> str:
    """A number as ECMAScript prints it (ECMA-262, Number::toString): 15 digits and more as the double has them."""
    if isinstance(value, int) and -(2**53) <= value <= 2**53:
        return str(value)
    double = as_double(value)
    if not math.isfinite(double):
        return "NaN" if double != double else "Infinity" if double > 0 else "-Infinity"
    if double == 0:
        return "0"
    # Python's shortest digits are ECMAScript's; where they are put differs.
    mantissa, _, exponent = f"{abs(double)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    return ("-" if double < 0 else "") + _placed(digits, point)


def _placed(digits: str, point: int) -> str:
    """@param point how many of the digits stand before the decimal point."""
    if len(digits) <= point <= 21:
        return digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{fraction}e{point - 1:+d}"


def as_double(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def is_number(value: object) -> bool:
    """A number that is not kept as text."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def number_of(value: Json) -> float | None:
    """The value of a number, kept as text or not; None for any other value."""
    if isinstance(value, KeptNumber):
        return float(value.text)
    return as_double(value) if is_number(value) else None


def whole_number(value: Json) -> int | None:
    """The value of a number that is whole."""
    number = number_of(value)
    return int(number) if number is not None and number.is_integer() else None


def same_scalar(held: Json, signed: Json) -> bool:
    """
    Whether two values that are no objects and no lists are the same. A number that kept its text is the same by that,
    or as ECMAScript writes it again: clients save what they parsed.
    """
    if isinstance(signed, KeptNumber):
        if isinstance(held, KeptNumber):
            return held.text == signed.text
        return is_number(held) and as_double(held) == float(signed.text)
    if is_number(signed):
        return is_number(held) and as_double(held) == as_double(signed)
    if isinstance(signed, str):
        return isinstance(held, str) and (held == signed or paired(held) == paired(signed))
    return held is signed and (signed is None or isinstance(signed, bool))


# Parsing.

_Number = Callable[[str], Json]


def parse(text: str) -> Json:
    """As `JSON.parse`: of a name that stands twice in an object the last value counts. @raises JsonTextError"""
    return _parse(text, _double)


def parse_keeping_numbers(text: str) -> Json:
    """As `parse`, but a number that would be written in another way is a KeptNumber. @raises JsonTextError"""
    return _parse(text, _kept)


def _no_constant(_: str) -> Json:
    raise JsonTextError("not JSON")


class _NameTwice(Exception):
    pass


def _each_once(pairs: list[tuple[str, Json]]) -> None:
    if len({name for name, _ in pairs}) < len(pairs):
        raise _NameTwice


def _decoder(number: _Number, **more: Any) -> JSONDecoder:
    return JSONDecoder(parse_int=number, parse_float=number, parse_constant=_no_constant, **more)


_DECODERS: Mapping[_Number, JSONDecoder] = {_double: _decoder(_double), _kept: _decoder(_kept)}
_NAMES_ONCE = _decoder(lambda _: None, object_pairs_hook=_each_once)


_IN_C = getattr(scanner, "c_make_scanner", None) is not None


def _decoded(text: str, fast: JSONDecoder) -> tuple[bool, Json]:
    """
    By Python's own parser, and whether it could: it does not nest deeply, and takes a pair of surrogates of which one
    is escaped for two characters. Only the one in C is as strict as JSON is.
    """
    if not _IN_C or SURROGATE.search(text) is not None:
        return False, None
    try:
        return True, fast.decode(text)
    except RecursionError:
        return False, None
    except ValueError as cause:
        raise JsonTextError("not JSON") from cause


def _parse(text: str, number: _Number) -> Json:
    done, value = _decoded(text, _DECODERS[number])
    return value if done else _Parser(text, number).document()


class _Parser:
    """Parses without recursion."""

    def __init__(self, text: str, number: _Number) -> None:
        self._text = text
        self._number = number
        self._at = 0

    def document(self) -> Json:
        open_containers: list[list[Json] | dict[str, Json]] = []
        names: list[str] = []
        while True:
            value = self._begin()
            if value is _LIST or value is _OBJECT:
                open_containers.append([] if value is _LIST else {})
                names.append("" if value is _LIST else self._name())
                continue
            while open_containers:
                container = open_containers[-1]
                if isinstance(container, list):
                    container.append(value)
                else:
                    container[names[-1]] = value
                if self._takes(","):
                    names[-1] = self._name() if isinstance(container, dict) else ""
                    break
                if not self._takes("]" if isinstance(container, list) else "}"):
                    raise JsonTextError("not JSON")
                value = open_containers.pop()
                names.pop()
            else:
                if self._next() != "":
                    raise JsonTextError("text follows the JSON value")
                return value

    def _next(self) -> str:
        """The character after white space, not yet taken; '' at the end."""
        self._at = skip_space(self._text, self._at)
        return self._text[self._at : self._at + 1]

    def _takes(self, character: str) -> bool:
        if self._next() != character:
            return False
        self._at += 1
        return True

    def _name(self) -> str:
        if self._next() != '"':
            raise JsonTextError("a member has no name")
        name = self._string()
        if not self._takes(":"):
            raise JsonTextError("a member has no value")
        return name

    def _begin(self) -> Json:
        """The next value; of a list or object that is not empty only that it begins."""
        first = self._next()
        if first == '"':
            return self._string()
        if first == "[" or first == "{":
            self._at += 1
            if self._takes("]" if first == "[" else "}"):
                return [] if first == "[" else {}
            return _LIST if first == "[" else _OBJECT
        for word, value in _WORDS.items():
            if self._text.startswith(word, self._at):
                self._at += len(word)
                return value
        match = _NUMBER.match(self._text, self._at)
        if match is None:
            raise JsonTextError("not JSON")
        self._at = match.end()
        return self._number(match.group())

    def _string(self) -> str:
        start = self._at
        self._at = skip_string(self._text, start)
        return parse_string(self._text[start : self._at])


_LIST = object()
_OBJECT = object()


def duplicate_member(text: str, forbidden: str | None = None) -> str | None:
    """A name that occurs twice in one object, at any depth, or is `forbidden`; None: there is none. @param text JSON."""
    may_be_there = forbidden is not None and (forbidden in text or "\\u" in text)
    try:
        if _decoded(text, _NAMES_ONCE)[0] and not may_be_there:
            return None
    except _NameTwice:
        pass
    open_names: list[set[str] | None] = []
    """For each open object the set of its names; for each open array None."""
    end = 0
    while (found := BRACKET_OR_STRING.search(text, end)) is not None:
        start, end = found.span()
        character = text[start]
        if character == '"':
            end = end if end > start + 1 else skip_string(text, start)
            names = open_names[-1] if open_names else None
            if names is not None and text.startswith(":", skip_space(text, end)):
                name = parse_string(text[start:end])
                if name in names or name == forbidden:
                    return name
                names.add(name)
        elif character in "]}":
            open_names.pop()
        else:
            open_names.append(set() if character == "{" else None)
    return None


# Writing.

_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")
_MAX_INDEX = 2**32 - 2


def ordered_names(members: Mapping[str, Json]) -> list[str]:
    """In the order that ECMAScript has them: array indices first, ascending."""
    indices = [name for name in members if _INDEX.fullmatch(name) is not None and int(name) <= _MAX_INDEX]
    if not indices:
        return list(members)
    first = set(indices)
    return sorted(indices, key=int) + [name for name in members if name not in first]


def stringify(value: Json) -> str:
    """As `JSON.stringify`, at any depth. @raises JsonTextError for what is no JSON value."""
    out: list[str] = []
    todo: list[tuple[Json, str | None]] = [(value, None)]
    """Values, and texts to write as they are, the next one last."""
    while todo:
        one, literal = todo.pop()
        if literal is not None:
            out.append(literal)
        elif isinstance(one, dict) and one:
            if not all(isinstance(name, str) for name in one):
                raise JsonTextError("a name is not a text")
            todo.append((None, "}"))
            for name in reversed(ordered_names(one)):
                todo += [(one[name], None), (None, f"{quote(name)}:"), (None, ",")]
            todo[-1] = (None, "{")
        elif isinstance(one, list) and one:
            todo.append((None, "]"))
            for item in reversed(one):
                todo += [(item, None), (None, ",")]
            todo[-1] = (None, "[")
        else:
            out.append(_scalar_text(one))
    return "".join(out)


def _scalar_text(value: Json) -> str:
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, KeptNumber):
        return value.text
    if is_number(value):
        return number_text(value) if math.isfinite(as_double(value)) else "null"
    if isinstance(value, dict | list):
        return "{}" if isinstance(value, dict) else "[]"
    if value is None or isinstance(value, bool):
        return "null" if value is None else "true" if value else "false"
    raise JsonTextError("not a JSON value")
