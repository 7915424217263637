"""
JSON as ECMAScript's `JSON.parse` and `JSON.stringify` have it, whatever its depth. And the members of a JSON object by
their places in its text, so that a text can be cut and compared without encoding it anew.

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
from json.encoder import encode_basestring
from typing import Any, NamedTuple

from .encoding import is_longer

Json = Any


class JsonTextError(ValueError):
    """The text is not JSON, or not one JSON object. The message names the error and never quotes the text."""


@dataclass(frozen=True)
class KeptNumber:
    """A number that ECMAScript would write in another way: its source text."""

    text: str


class Member(NamedTuple):
    """One member of an object, by offsets into the text: `text[value_start:value_end]` is the value as written."""

    key: str
    """Decoded."""
    key_start: int
    value_start: int
    value_end: int


_SURROGATE = re.compile("[\ud800-\udfff]")
_SHORT_INTEGER = re.compile(r"-?[1-9][0-9]{0,14}|0")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_SPACE = re.compile(r"[ \t\n\r]*")
_SCALAR = re.compile(r"[^,\]} \n\r\t]*")
# A string without escapes is found whole, the quote that begins any other alone.
_BRACKET_OR_STRING = re.compile(r'"[^"\\]*"|["{}\[\]]')
_BEFORE_VALUE_OR_STRING = re.compile(r'"[^"\\]*"|[",:\[{]')
_NAME = re.compile(r'"([^"\\\x00-\x1f]*)"[ \t\n\r]*:[ \t\n\r]*')
_WITHOUT_SPACE = str.maketrans("", "", " \t\n\r")
_WORDS: Mapping[str, Json] = {"true": True, "false": False, "null": None}


def paired(text: str) -> str:
    """The same UTF-16 text with each pair of surrogates as one character."""
    if _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


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
    if not _IN_C or _SURROGATE.search(text) is not None:
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
        self._at = _skip_space(self._text, self._at)
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
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_CONTROL = re.compile("[\x00-\x1f]")


def parse_string(quoted: str) -> str:
    """A string between its quotes. @raises JsonTextError"""
    if _CONTROL.search(quoted) is not None:
        raise JsonTextError("a string is not JSON")
    text = quoted[1:-1]
    return paired(_ESCAPE.sub(_unescaped, text) if "\\" in text else text)


def _unescaped(match: re.Match[str]) -> str:
    escape = match.group(1)
    if len(escape) == 5:
        return chr(int(escape[1:], 16))
    if escape not in _ESCAPED:
        raise JsonTextError("a string is not JSON")
    return _ESCAPED[escape]


def has_at_most(text: str, most: float) -> bool:
    """
    Whether a JSON text has at most `most` names and values; empty objects and arrays count twice. Untrusted text is
    checked before it is parsed, because the cost of parsing grows with this count, which can be half the text's length.
    """
    if not is_longer(text, most) or sum(map(text.count, '",:[{')) <= most:
        return True
    count = strings = 0
    end = 0
    while (found := _BEFORE_VALUE_OR_STRING.search(text, end)) is not None:
        start, end = found.span()
        if text[start] != '"':
            count += 1
            if count > most:
                return False
            continue
        # A text with more strings than names and values is no JSON, so the rest is not read.
        strings += 1
        if strings > most + 1:
            return False
        if end == start + 1:
            end = _end_of_string(text, start)
            if end < 0:
                return True
    return True


def duplicate_member(text: str) -> str | None:
    """A name that occurs twice in one object, at any depth, or None. @param text JSON."""
    try:
        if _decoded(text, _NAMES_ONCE)[0]:
            return None
    except _NameTwice:
        pass
    open_names: list[set[str] | None] = []
    """For each open object the set of its names; for each open array None."""
    end = 0
    while (found := _BRACKET_OR_STRING.search(text, end)) is not None:
        start, end = found.span()
        character = text[start]
        if character == '"':
            end = end if end > start + 1 else skip_string(text, start)
            names = open_names[-1] if open_names else None
            if names is not None and text.startswith(":", _skip_space(text, end)):
                name = parse_string(text[start:end])
                if name in names:
                    return name
                names.add(name)
        elif character in "]}":
            open_names.pop()
        else:
            open_names.append(set() if character == "{" else None)
    return None


# Places in a text.


def without_space_around(text: str) -> str:
    """A JSON text without the white space around it, which belongs to no value."""
    return text.strip(" \t\n\r")


def without_space(text: str) -> str:
    """A JSON text without the white space between its tokens: no two of them would be one without it."""
    parts: list[str] = []
    at = 0
    while (quote := text.find('"', at)) >= 0:
        end = skip_string(text, quote)
        parts += (text[at:quote].translate(_WITHOUT_SPACE), text[quote:end])
        at = end
    parts.append(text[at:].translate(_WITHOUT_SPACE))
    return "".join(parts)


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()


def skip_string(text: str, at: int) -> int:
    """The offset after the string whose opening quote is at `at`. @raises JsonTextError"""
    end = _end_of_string(text, at)
    if end < 0:
        raise JsonTextError("a string does not end")
    return end


def _end_of_string(text: str, at: int) -> int:
    """The offset after the string whose opening quote is at `at`, or -1. It searches: a text may be megabytes."""
    quote = at
    while (quote := text.find('"', quote + 1)) >= 0:
        before = quote
        while text[before - 1] == "\\":
            before -= 1
        if (quote - before) % 2 == 0:
            return quote + 1
    return -1


def _skip_value(text: str, at: int) -> int:
    first = text[at : at + 1]
    if first == '"':
        return skip_string(text, at)
    if first not in ("{", "["):
        match = _SCALAR.match(text, at)
        if match is None or match.end() == at:
            raise JsonTextError("a value is missing")
        return match.end()
    depth = 0
    end = at
    while (found := _BRACKET_OR_STRING.search(text, end)) is not None:
        start, end = found.span()
        character = text[start]
        if character == '"':
            end = end if end > start + 1 else skip_string(text, start)
            continue
        depth += 1 if character in "{[" else -1
        if depth == 0:
            return end
    raise JsonTextError("an object or array does not end")


def top_level_members(text: str) -> list[Member]:
    """
    The top-level members of a JSON object, in order, duplicates included. It finds offsets and does not validate: the
    text must be valid JSON, or the parts must be parsed afterwards.
    @raises JsonTextError when the text is not an object.
    """
    members: list[Member] = []
    at = _skip_space(text, 0)
    if not text.startswith("{", at):
        raise JsonTextError("not a JSON object")
    at = _skip_space(text, at + 1)
    more = not text.startswith("}", at)
    while more:
        key, value_start = _read_name(text, at)
        value_end = _skip_value(text, value_start)
        members.append(Member(key, at, value_start, value_end))
        at = _skip_space(text, value_end)
        more = text.startswith(",", at)
        if not more and not text.startswith("}", at):
            raise JsonTextError("members are not separated by a comma")
        at = _skip_space(text, at + 1) if more else at
    if _skip_space(text, at + 1) != len(text):
        raise JsonTextError("text follows the object")
    return members


def _read_name(text: str, at: int) -> tuple[str, int]:
    """The decoded name that begins at `at`, and where its value begins."""
    plain = _NAME.match(text, at)
    if plain is not None:
        return paired(plain[1]), plain.end()
    if not text.startswith('"', at):
        raise JsonTextError("a member has no name")
    end = skip_string(text, at)
    colon = _skip_space(text, end)
    if not text.startswith(":", colon):
        raise JsonTextError("a member has no value")
    return parse_string(text[at:end]), _skip_space(text, colon + 1)


def without_member(text: str, members: list[Member], index: int) -> str:
    """The text without the member at `index` of `members`. Every other character is kept."""
    member = members[index]
    if index + 1 < len(members):
        return text[: member.key_start] + text[members[index + 1].key_start :]
    # A last member is removed with the comma before it. Space before that comma stays, which reverses with_last_member.
    start = member.key_start if index == 0 else text.rindex(",", 0, member.key_start)
    return text[:start] + text[member.value_end :]


def with_last_member(text: str, key: str, value_json: str) -> str:
    """
    Inserts `,"key":value` before the last `}` of an object's text; the inverse of `without_member` for a last member.
    @raises JsonTextError
    """
    brace = text.rfind("}")
    if brace < 0:
        raise JsonTextError("not a JSON object")
    comma = "" if text[:brace].rstrip(" \t\n\r").endswith("{") else ","
    return f"{text[:brace]}{comma}{quote(key)}:{value_json}{text[brace:]}"


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


def quote(text: str) -> str:
    """The JSON string of a text. A surrogate that stands alone is escaped."""
    return _SURROGATE.sub(lambda found: f"\\u{ord(found.group()):04x}", encode_basestring(paired(text)))
