"""Binary HTTP (RFC 9292): requests are written in the indeterminate-length form, responses are read in both."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .errors import malformed, too_large, truncated
from .parser import Incoming, Parser, Steps, varint

Field = tuple[bytes, bytes]
"""A header's name in lower case, and its value."""

MAX_HEAD_BYTES = 32 * 1024
"""Of the control data and of each section of fields."""
MAX_FIELDS = 1_000
"""Of a section."""
MAX_PADDING_BYTES = 256 * 1024
"""Zeros behind the message."""
MAX_INFORMATIONAL = 16
"""Responses with a status of 1xx before the final one."""

_KNOWN_RESPONSE, _REQUEST, _RESPONSE = 1, 2, 3
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_NO_VALUE = re.compile(rb"[\0\r\n]|^[ \t]|[ \t]\Z")
"""What RFC 9113 §8.2.1 excludes: NUL, CR and LF anywhere, white space at either end."""


def write_request_head(method: bytes, scheme: bytes, authority: bytes, path: bytes, fields: Iterable[Field]) -> bytes:
    """@raises SealedError: sealed_malformed where a name or value cannot be sent."""
    parts = [varint(_REQUEST), *map(_with_length, (method, scheme, authority, path))]
    for name, value in fields:
        _check_field(name, value)
        parts += [_with_length(name.lower()), _with_length(value)]
    return b"".join([*parts, varint(0)])


def write_content(data: bytes) -> bytes:
    """A chunk of the content. Nothing, where it is empty: an empty chunk would end the content."""
    return _with_length(data) if data else b""


END = bytes(2)
"""What ends the content and the message, with no trailers."""


def _with_length(data: bytes) -> bytes:
    return varint(len(data)) + data


def _check_field(name: bytes, value: bytes) -> None:
    if _NAME.fullmatch(name) is None or _NO_VALUE.search(value) is not None:
        raise malformed()


@dataclass(frozen=True)
class ResponseHead:
    status: int
    """200 to 599."""
    fields: Sequence[Field]


class ResponseParser(Parser):
    """Reads a response: ``head`` is there once it was read, and what is handed on is the content. Trailers are checked and dropped."""

    head: ResponseHead | None = None
    _allowed_bytes = 0
    """What the current section may still have."""

    def steps(self) -> Steps[None]:
        framing = yield from self.incoming.varint()
        if framing not in (_KNOWN_RESPONSE, _RESPONSE):
            raise malformed()
        is_known = framing == _KNOWN_RESPONSE
        status = yield from self._final_status(is_known)
        self.head = ResponseHead(status, (yield from self._fields(is_known)))
        yield from self._content(is_known)

    def _final_status(self, is_known: bool) -> Steps[int]:
        for _ in range(MAX_INFORMATIONAL + 1):
            status = yield from self.incoming.varint()
            if 200 <= status <= 599:
                return status
            if not 100 <= status <= 199:
                raise malformed()
            yield from self._fields(is_known)
        raise too_large()

    def _content(self, is_known: bool) -> Steps[None]:
        # A message without content and trailers may end here (§3.8).
        if (yield from self.incoming.is_at_end()):
            return
        while (length := (yield from self.incoming.varint())) > 0:
            while length > 0:
                some = yield from self.incoming.some(length)
                if not some:
                    raise truncated()
                length -= len(some)
                self.handed.append(some)
            if is_known:
                break
        yield from self._fields(is_known)
        padding = yield from self.incoming.rest(MAX_PADDING_BYTES)
        if padding is None:
            raise too_large()
        if padding.strip(b"\0"):
            raise malformed()

    def _fields(self, is_known: bool) -> Steps[list[Field]]:
        """A section of fields. A message may end before it, as if it were empty (§3.8)."""
        if (yield from self.incoming.is_at_end()):
            return []
        self._allowed_bytes = MAX_HEAD_BYTES
        if not is_known:
            return (yield from self._lines(self.incoming, to_end=False))
        length = yield from self.incoming.varint()
        if length > MAX_HEAD_BYTES:
            raise too_large()
        section = Incoming()
        section.push((yield from self.incoming.take(length)))
        section.end()
        return (yield from self._lines(section, to_end=True))

    def _lines(self, data: Incoming, to_end: bool) -> Steps[list[Field]]:
        """Reads lines to the end of the data, or else to the terminator."""
        fields: list[Field] = []
        while not (to_end and (yield from data.is_at_end())):
            length = yield from data.varint()
            if length == 0 and not to_end:
                break
            name = (yield from self._text(length, data)).lower()
            value = yield from self._text((yield from data.varint()), data)
            _check_field(name, value)
            fields.append((name, value))
            if len(fields) > MAX_FIELDS:
                raise too_large()
        return fields

    def _text(self, length: int, data: Incoming) -> Steps[bytes]:
        self._allowed_bytes -= length
        if self._allowed_bytes < 0:
            raise too_large()
        return (yield from data.take(length))
