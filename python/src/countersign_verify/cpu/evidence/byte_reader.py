"""Reads fields of known length from the front of bytes."""

from collections.abc import Callable
from typing import Literal


class ByteReader:
    """`broken` makes the error for bytes that are too short or too long."""

    def __init__(self, data: bytes, broken: Callable[[str], Exception]) -> None:
        self._data = data
        self._broken = broken
        self._at = 0

    def take(self, length: int) -> bytes:
        if length > self.left:
            raise self._broken("it breaks off")
        self._at += length
        return self._data[self._at - length : self._at]

    def number(self, length: Literal[1, 2, 4]) -> int:
        """The least significant byte first."""
        return int.from_bytes(self.take(length), "little")

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    @property
    def taken(self) -> bytes:
        """All bytes read so far."""
        return self._data[: self._at]

    def end(self) -> None:
        if self.left > 0:
            raise self._broken("bytes follow its end")


def is_zero(data: bytes) -> bool:
    return not any(data)
