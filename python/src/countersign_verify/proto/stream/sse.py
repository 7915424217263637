"""
Reads and writes the one form of an event stream that can be attested.

The form has data lines, comments and empty lines, where the endpoint's events have names also one name for each event,
each ended by LF or CR LF, with at most one byte order mark at the very start. A comment is printable ASCII, because
some readers end a line at other characters. Server-sent events (HTML Living Standard §9.2.6) allow more forms, and clients
differ in how they read each of them. Only data is hashed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_COMMENT = re.compile(rb":[\t\x20-\x7e]*")
_NAME = re.compile(rb"event: ?([A-Za-z0-9_.-]{1,128})")


class SseError(Exception):
    """Why a stream cannot be read. The message never quotes the stream."""

    def __init__(self, reason: Literal["malformed", "too_large"], message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class NamedEvent:
    name: str | None
    """From its `event:` line, if it has one."""
    payload: bytes = field(repr=False)
    """Its `data:` lines, joined by LF."""


def read_events(stream: bytes, max_event_bytes: int) -> list[NamedEvent]:
    """All events of a whole stream, of which each may have a name. @raises SseError"""
    events: list[NamedEvent] = []
    reader = NamedEventReader(max_event_bytes)
    reader.push(stream, events)
    last = reader.end()
    return events if last is None else [*events, last]


class NamedEventReader:
    """Reads the bytes of a stream as they arrive."""

    def __init__(self, max_event_bytes: int) -> None:
        self._max_event_bytes = max_event_bytes
        self._rest = bytearray()
        """A line that has not ended."""
        self._lines: list[bytes] = []
        """The data lines of the current event."""
        self._lines_bytes = 0
        self._name: str | None = None
        self._begun = False

    @property
    def mid_event(self) -> bool:
        """An event has begun and not ended; the next bytes continue it."""
        return len(self._rest) > 0 or len(self._lines) > 0 or self._name is not None

    def push(self, data: bytes, events: list[NamedEvent]) -> None:
        """
        Appends the events that `data` completes. When it raises, those before the error have been appended.
        @raises SseError
        """
        at = 0
        while (end := data.find(b"\n", at)) >= 0:
            line = data[at:end]
            if self._rest:
                self._buffer(line)
                line = bytes(self._rest)
                self._rest.clear()
            event = self._read_line(line)
            if event is not None:
                events.append(event)
            at = end + 1
        self._buffer(data[at:])

    def end(self) -> NamedEvent | None:
        """At the end of the stream, a last event without its empty line. @raises SseError"""
        line = bytes(self._rest)
        self._rest.clear()
        event = self._read_line(line) if line else None
        return event or self._dispatch()

    def _buffer(self, data: bytes) -> None:
        self._limit(len(self._rest) + len(data))
        self._rest += data

    def _limit(self, line_bytes: int) -> None:
        if self._lines_bytes + line_bytes > self._max_event_bytes:
            raise SseError("too_large", "an event is larger than the limit")

    def _read_line(self, line: bytes) -> NamedEvent | None:
        """Reads one line, without its LF. Returns the event that the line ends."""
        text = line if self._begun else line.removeprefix(BYTE_ORDER_MARK)
        self._begun = True
        text = text.removesuffix(b"\r")
        if not text:
            return self._dispatch()
        if text.startswith(b":"):
            if _COMMENT.fullmatch(text) is None:
                raise _malformed("a comment has other characters than printable ASCII")
        elif text.startswith(b"event:"):
            self._read_name(text)
        elif not text.startswith(b"data:"):
            raise _malformed("a line is neither data nor a comment")
        elif b"\r" in text:
            raise _malformed("a line ends in CR only")
        else:
            value = text[6:] if text.startswith(b"data: ") else text[5:]
            self._limit(len(value) + 1)
            self._lines.append(value)
            self._lines_bytes += len(value) + 1
        return None

    def _read_name(self, line: bytes) -> None:
        name = _NAME.fullmatch(line)
        if name is None:
            raise _malformed("the name of an event has other characters, or too many")
        if self._name is not None:
            raise _malformed("an event has two names")
        self._name = name.group(1).decode("ascii")

    def _dispatch(self) -> NamedEvent | None:
        lines, name = self._lines, self._name
        self._name = None
        if not lines:
            if name is not None:
                raise _malformed("an event has a name and no data")
            return None
        self._lines = []
        self._lines_bytes = 0
        return NamedEvent(name, b"\n".join(lines))


def is_done(payload: bytes) -> bool:
    """Whether the payload ends a stream of a chat or text completion; some backends end others with it too."""
    return payload == b"[DONE]"


def write_named_event(event: NamedEvent) -> bytes:
    """An event with its name, where it has one."""
    name = b"" if event.name is None else f"event: {event.name}\n".encode()
    return name + b"data: " + event.payload.replace(b"\n", b"\ndata: ") + b"\n\n"


def _malformed(message: str) -> SseError:
    return SseError("malformed", message)
