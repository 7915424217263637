"""Reads bytes that arrive in parts: each format says what it needs next, and anybody who has bytes feeds them, waiting or not.

A format is a generator that yields where it needs more bytes. So the same code reads for a synchronous and for an asynchronous client.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from .errors import malformed, truncated

T = TypeVar("T")
Steps = Generator[None, None, T]
"""What a format does, up to its result."""


class Incoming:
    """The bytes that have come and were not read yet."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._ended = False

    def push(self, data: bytes) -> None:
        self._bytes += data

    def end(self) -> None:
        self._ended = True

    def is_at_end(self) -> Steps[bool]:
        """Whether nothing is left. Waits for a byte, or for the end."""
        while not self._bytes:
            if self._ended:
                return True
            yield
        return False

    def some(self, most: int) -> Steps[bytes]:
        """The next bytes that are there, at most so many; none at the end."""
        if (yield from self.is_at_end()):
            return b""
        return self._pop(most)

    def take(self, length: int) -> Steps[bytes]:
        """Exactly so many bytes. @raises SealedError: sealed_truncated"""
        while len(self._bytes) < length:
            if self._ended:
                raise truncated()
            yield
        return self._pop(length)

    def rest(self, most: int) -> Steps[bytes | None]:
        """All that is left; None where that is more than so many bytes."""
        while not self._ended and len(self._bytes) <= most:
            yield
        return None if len(self._bytes) > most else self._pop(most)

    def varint(self) -> Steps[int]:
        """An integer before a length (RFC 9000 §16). @raises SealedError: sealed_truncated, sealed_malformed above 2^53"""
        first = (yield from self.take(1))[0]
        rest = yield from self.take((1 << (first >> 6)) - 1)
        value = int.from_bytes(bytes([first & 0x3F]) + rest, "big")
        if value >= 2**53:
            raise malformed()
        return value

    def _pop(self, most: int) -> bytes:
        taken = bytes(self._bytes[:most])
        del self._bytes[:most]
        return taken


class Parser:
    """Runs a format over what is fed. It collects what the format hands on, in ``handed``."""

    def __init__(self) -> None:
        self.incoming = Incoming()
        self.handed: list[bytes] = []
        self._steps = self.steps()
        self._done = False

    def steps(self) -> Steps[None]:
        """The format: reads ``incoming``, appends to ``handed``. Only when it has returned is the message whole."""
        raise NotImplementedError

    def feed(self, data: bytes) -> list[bytes]:
        """What can be handed on now. @raises SealedError"""
        self.incoming.push(data)
        return self._run()

    def end(self) -> list[bytes]:
        """At the end of the bytes: the rest. @raises SealedError where the message is not whole."""
        self.incoming.end()
        handed = self._run()
        if not self._done:
            raise truncated()
        return handed

    def _run(self) -> list[bytes]:
        if not self._done:
            try:
                next(self._steps)
            except StopIteration:
                self._done = True
        handed, self.handed = self.handed, []
        return handed


def varint(value: int) -> bytes:
    """In the shortest form."""
    length = 1 if value < 2**6 else 2 if value < 2**14 else 4 if value < 2**30 else 8
    return (value | (length.bit_length() - 1) << (8 * length - 2)).to_bytes(length, "big")
