"""
The members of a JSON object by their places in its text, so that a text can be cut, spliced and compared without encoding
it anew. And its strings, which are UTF-16 as ECMAScript has them.
"""

from __future__ import annotations

import re
from json.encoder import encode_basestring
from typing import NamedTuple

from .bytes import is_longer


class JsonTextError(ValueError):
    """The text is not JSON, or not one JSON object. The message names the error and never quotes the text."""


class Member(NamedTuple):
    """One member of an object, by offsets into the text: `text[value_start:value_end]` is the value as written."""

    key: str
    """Decoded."""
    key_start: int
    value_start: int
    value_end: int


SURROGATE = re.compile("[\ud800-\udfff]")
_SPACE = re.compile(r"[ \t\n\r]*")
_SCALAR = re.compile(r"[^,\]} \n\r\t]*")
# A string without escapes is found whole, the quote that begins any other alone.
BRACKET_OR_STRING = re.compile(r'"[^"\\]*"|["{}\[\]]')
_BEFORE_VALUE_OR_STRING = re.compile(r'"[^"\\]*"|[",:\[{]')
_NAME = re.compile(r'"([^"\\\x00-\x1f]*)"[ \t\n\r]*:[ \t\n\r]*')
_WITHOUT_SPACE = str.maketrans("", "", " \t\n\r")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_CONTROL = re.compile("[\x00-\x1f]")


# Strings.


def paired(text: str) -> str:
    """The same UTF-16 text with each pair of surrogates as one character."""
    if SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


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


def quote(text: str) -> str:
    """The JSON string of a text. A surrogate that stands alone is escaped."""
    return SURROGATE.sub(lambda found: f"\\u{ord(found.group()):04x}", encode_basestring(paired(text)))


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


def skip_space(text: str, at: int) -> int:
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


def end_of_value(text: str, at: int) -> int:
    """The offset after the value that begins at `at`. It does not validate. @raises JsonTextError when the value does not end."""
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
    while (found := BRACKET_OR_STRING.search(text, end)) is not None:
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
    at = skip_space(text, 0)
    if not text.startswith("{", at):
        raise JsonTextError("not a JSON object")
    at = skip_space(text, at + 1)
    more = not text.startswith("}", at)
    while more:
        key, value_start = _read_name(text, at)
        value_end = end_of_value(text, value_start)
        members.append(Member(key, at, value_start, value_end))
        at = skip_space(text, value_end)
        more = text.startswith(",", at)
        if not more and not text.startswith("}", at):
            raise JsonTextError("members are not separated by a comma")
        at = skip_space(text, at + 1) if more else at
    if skip_space(text, at + 1) != len(text):
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
    colon = skip_space(text, end)
    if not text.startswith(":", colon):
        raise JsonTextError("a member has no value")
    return parse_string(text[at:end]), skip_space(text, colon + 1)


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
