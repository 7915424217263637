"""Reads DER (ITU-T X.690 §10): definite lengths in their shortest form, single-byte tags, nothing past an end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone


class DerError(Exception):
    """The bytes are not DER, or not the structure they should be."""


@dataclass(frozen=True)
class DerValue:
    tag: int
    """Class, constructed bit and number: 0x30 is a SEQUENCE, 0xa0 a constructed [0]."""
    whole: bytes
    """Tag, length and content."""
    content: bytes


class Tag:
    BOOLEAN = 0x01
    INTEGER = 0x02
    BIT_STRING = 0x03
    OCTET_STRING = 0x04
    NULL = 0x05
    OID = 0x06
    ENUMERATED = 0x0A
    UTF8_STRING = 0x0C
    PRINTABLE_STRING = 0x13
    IA5_STRING = 0x16
    UTC_TIME = 0x17
    GENERALIZED_TIME = 0x18
    SEQUENCE = 0x30
    SET = 0x31


# Values in one sequence that are looked at; certificates have a dozen, a revocation answer a handful.
_MAX_VALUES = 1024
_MAX_INTEGER_BYTES = 64
_MAX_OID_BYTES = 64

_UTC_TIME = re.compile(r"([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})Z")
_GENERALIZED_TIME = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})Z")


def at(values: Sequence[DerValue], index: int) -> DerValue | None:
    """The value at this index; None where there are fewer."""
    return values[index] if index < len(values) else None


def read_at(data: bytes, start: int) -> DerValue:
    """The value that begins at `start`. @raises DerError"""
    if start + 2 > len(data):
        raise DerError("a value breaks off")
    tag, length = data[start], data[start + 1]
    if tag & 0x1F == 0x1F:
        raise DerError("a tag of several bytes")
    content = start + 2
    if length >= 0x80:
        count = length & 0x7F
        if count == 0 or count > 4:
            raise DerError("a length is indefinite or too large")
        if content + count > len(data):
            raise DerError("a value breaks off")
        length = int.from_bytes(data[content : content + count], "big")
        content += count
        if length < 0x80 or length < 256 ** (count - 1):
            raise DerError("a length is not in its shortest form")
    end = content + length
    if end > len(data):
        raise DerError("a value breaks off")
    return DerValue(tag, data[start:end], data[content:end])


def read_one(data: bytes, tag: int | None = None) -> DerValue:
    """The one value that the bytes are. @raises DerError when anything follows it."""
    value = read_at(data, 0)
    if len(value.whole) != len(data):
        raise DerError("bytes follow the value")
    return value if tag is None else expect_tag(value, tag)


def children(content: bytes) -> list[DerValue]:
    """The values inside a constructed one, in order. @raises DerError"""
    values: list[DerValue] = []
    start = 0
    while start < len(content):
        if len(values) == _MAX_VALUES:
            raise DerError("too many values")
        value = read_at(content, start)
        values.append(value)
        start += len(value.whole)
    return values


def expect_tag(value: DerValue | None, tag: int) -> DerValue:
    """@raises DerError"""
    if value is None or value.tag != tag:
        raise DerError(f"tag {'none' if value is None else format(value.tag, 'x')} where {tag:x} should be")
    return value


def sequence(value: DerValue | None) -> list[DerValue]:
    """The values inside a SEQUENCE. @raises DerError"""
    return children(expect_tag(value, Tag.SEQUENCE).content)


def integer(value: DerValue | None) -> int:
    """@raises DerError"""
    content = expect_tag(value, Tag.INTEGER).content
    if not content or len(content) > _MAX_INTEGER_BYTES:
        raise DerError("an integer is empty or too long")
    if len(content) > 1 and content[0] == (0xFF if content[1] >= 0x80 else 0):
        raise DerError("an integer is not in its shortest form")
    return int.from_bytes(content, "big", signed=True)


def boolean(value: DerValue) -> bool:
    """@raises DerError"""
    content = expect_tag(value, Tag.BOOLEAN).content
    if content not in (b"\x00", b"\xff"):
        raise DerError("a boolean is neither 00 nor FF")
    return content == b"\xff"


def oid(value: DerValue | None) -> str:
    """Dotted form. @raises DerError"""
    content = expect_tag(value, Tag.OID).content
    if not content or len(content) > _MAX_OID_BYTES or content[-1] >= 0x80:
        raise DerError("an object identifier breaks off")
    arcs: list[int] = []
    arc = 0
    begins = True
    for byte in content:
        if begins and byte == 0x80:
            raise DerError("an object identifier is not in its shortest form")
        arc = arc << 7 | byte & 0x7F
        begins = byte < 0x80
        if begins:
            arcs.append(arc)
            arc = 0
    root = min(arcs[0] // 40, 2)
    return ".".join(map(str, [root, arcs[0] - 40 * root, *arcs[1:]]))


def bit_string(value: DerValue | None) -> bytes:
    """The bits, whole bytes only. @raises DerError"""
    content = expect_tag(value, Tag.BIT_STRING).content
    if content[:1] != b"\x00":
        raise DerError("a bit string is not of whole bytes")
    return content[1:]


def named_bits(value: DerValue) -> list[bool]:
    """Named bits (key usage), most significant first. @raises DerError"""
    content = expect_tag(value, Tag.BIT_STRING).content
    if not 1 <= len(content) <= 4 or content[0] > 7:
        raise DerError("named bits are malformed")
    bits = [byte >> i & 1 == 1 for byte in content[1:] for i in range(7, -1, -1)]
    return bits[: max(0, len(bits) - content[0])]


def time(value: DerValue | None) -> datetime:
    """UTCTime or GeneralizedTime in the one form that RFC 5280 §4.1.2.5 allows. @raises DerError"""
    forms = {Tag.UTC_TIME: _UTC_TIME, Tag.GENERALIZED_TIME: _GENERALIZED_TIME}
    form = None if value is None else forms.get(value.tag)
    match = None if value is None or form is None else form.fullmatch(value.content[:20].decode("latin-1"))
    if match is None or value is None:
        raise DerError("a time is malformed")
    year, month, day, hour, minute, second = map(int, match.groups())
    if value.tag == Tag.UTC_TIME:
        year += 2000 if year < 50 else 1900
    if year < 1900:
        raise DerError("a time is long past")
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
    except ValueError as cause:
        raise DerError("a time is no time") from cause
