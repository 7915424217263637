"""The bodies of answers: read as they come from outside, and handed on as they are opened."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import lru_cache
from types import ModuleType
from typing import Any

from .exchange import SealedReader


def parts_of(response: Any) -> Iterator[bytes]:
    if response.is_stream_consumed:  # by a hook of the caller's
        yield response.content
    else:
        yield from response.iter_raw()


async def async_parts_of(response: Any) -> AsyncIterator[bytes]:
    if response.is_stream_consumed:
        yield response.content
    else:
        async for part in response.aiter_raw():
            yield part


class _Stream:
    """The content of an answer as it is opened: what came with the head, and the rest."""

    def __init__(self, handed: list[bytes], parts: Any, reader: SealedReader, outer: Any) -> None:
        self._handed = handed
        self._parts = parts
        self._reader = reader
        self._outer = outer


class _SyncStream(_Stream):
    def __iter__(self) -> Iterator[bytes]:
        yield from self._handed
        for part in self._parts:
            yield from self._reader.feed(part)
        yield from self._reader.end()

    def close(self) -> None:
        self._outer.close()


class _AsyncStream(_Stream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        for content in self._handed:
            yield content
        async for part in self._parts:
            for content in self._reader.feed(part):
                yield content
        for content in self._reader.end():
            yield content

    async def aclose(self) -> None:
        await self._outer.aclose()


@lru_cache(maxsize=4)
def opened_streams(library: ModuleType) -> tuple[Any, Any]:
    """The bodies of a library: httpx, or one that has its names."""
    return (
        type("OpenedStream", (_SyncStream, library.SyncByteStream), {}),
        type("OpenedAsyncStream", (_AsyncStream, library.AsyncByteStream), {}),
    )
