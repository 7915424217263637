"""Transports of httpx that seal every request to a key of a verified session, and open the answers to them."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import httpx

from ..session import VerifiedSessionReport
from .errors import SealedError, too_large
from .exchange import (
    MAX_REFUSAL_BYTES,
    Gateway,
    SealedExchange,
    SealedReader,
    can_come_again,
    is_sealed,
    refusal_of,
    refusal_response,
)
from .sessions import MAX_SESSION_BYTES, Sealing, Sessions, fresh_challenge

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..options import OptionFields


class _Sealed:
    """What both kinds of transport share."""

    def __init__(
        self,
        client: Any,
        edge_headers: Mapping[str, str] | None,
        on_session: Callable[[VerifiedSessionReport], object] | None,
        library: ModuleType | None,
        verify: Mapping[str, Any],
    ) -> None:
        self._library = httpx if library is None else library
        self._sessions = Sessions(dict(verify), on_session)
        self._edge_headers = dict(edge_headers or {})
        self._client = client

    def _request(self, inner: Any, method: str, url: Any, headers: Mapping[str, str], content: Any = None) -> Any:
        """A request as whoever is in between sees it."""
        merged = {**self._edge_headers, **headers}
        return self._client.build_request(method, url, headers=merged, content=content, extensions=inner.extensions)

    def _session_request(self, inner: Any, gateway: Gateway, challenge: str) -> Any:
        url = gateway.at(b"/v1/attestation/session?challenge=" + challenge.encode())
        return self._request(inner, "GET", url, {"accept": "application/json", "accept-encoding": "identity"})

    def _response(self, request: Any, reader: SealedReader, stream: Any) -> Any:
        assert reader.head is not None
        head = reader.head
        return self._library.Response(head.status, headers=list(head.fields), stream=stream, request=request)

    def _refusal(self, error: SealedError, outer: Any) -> Any:
        return refusal_response(self._library, error, None if outer is None else outer.headers.get("retry-after"))


class SealedTransport(_Sealed, httpx.BaseTransport):
    """For ``httpx.Client(transport=…)`` and ``verifying_client(transport=…)``: whoever stands between sees ciphertext.

    It fetches the gateway's session, for a challenge of its own, verifies it, and seals to the key that the verified statement
    names; a session is kept until it ends. Nothing is ever sent in the clear but the request for a session. A session below
    ``policy.min_level``, ``measured`` by default, is refused.

    What goes wrong before anything of an answer was handed over is a response of status 422 that clients do not retry, with the
    code as ``error.code`` of its JSON; where a server refused in the clear, it has that server's status. An answer that does not
    arrive whole and unchanged raises :class:`SealedError` out of its stream, never a clean end.

    :param client: the ``httpx.Client`` that sends what is sealed, with its proxies, certificates and default headers; closed with
        this transport. Not one that has an API key for its default headers: whoever is in between would read it.
    :param edge_headers: headers for whoever is in between, sent in the clear with the sealed requests and those for a session.
    :param on_session: called with the report of each session that was verified, before anything is sealed to it.
    :param library: the library of the client, if it is not ``httpx`` but one that has its names, as ``httpx2``.
    :param verify: the options of :func:`verify_session` but ``expected``.
    :raises TypeError: an option that cannot be used.
    """

    def __init__(
        self,
        client: Any = None,
        *,
        edge_headers: Mapping[str, str] | None = None,
        on_session: Callable[[VerifiedSessionReport], object] | None = None,
        library: ModuleType | None = None,
        **verify: Unpack[OptionFields],
    ) -> None:
        given = (library or httpx).Client() if client is None else client
        super().__init__(given, edge_headers, on_session, library, dict(verify))
        self._lock = threading.Lock()

    def handle_request(self, request: Any) -> Any:
        outer = None
        try:
            gateway = Gateway(request.url)
            sealing = self._sealing(request, gateway)
            outer, reader, refusal = self._sent(request, gateway, sealing)
            if refusal is not None and refusal.code == "sealed_key_unknown":
                self._sessions.forget(str(gateway), sealing)
                if not can_come_again(request):
                    return self._refusal(refusal, outer)
                outer, reader, refusal = self._sent(request, gateway, self._sealing(request, gateway))
            if refusal is not None:
                return self._refusal(refusal, outer)
            parts = _parts(outer)
            handed = self._until_head(parts, reader)
        except SealedError as error:
            if outer is not None:
                outer.close()
            return self._refusal(error, outer)
        except BaseException:
            if outer is not None:
                outer.close()
            raise
        stream = _streams(self._library)[0](handed, parts, reader, outer)
        return self._response(request, reader, stream)

    def close(self) -> None:
        self._client.close()

    def _sealing(self, request: Any, gateway: Gateway) -> Sealing:
        with self._lock:
            known = self._sessions.current(str(gateway))
            if known is not None:
                return known
            challenge = fresh_challenge()
            response = self._send(self._session_request(request, gateway, challenge))
            try:
                if response.status_code != 200:
                    raise SealedError("session_unavailable", max(response.status_code, 400))
                text = self._whole(response, MAX_SESSION_BYTES)
            finally:
                response.close()
            return self._sessions.keep(str(gateway), self._sessions.verified(text, challenge))

    def _sent(self, request: Any, gateway: Gateway, sealing: Sealing) -> tuple[Any, SealedReader, SealedError | None]:
        """The answer to the sealed request. The error: it is not a sealed one, and it is closed."""
        exchange = SealedExchange(request, gateway, sealing)
        body = exchange.body(request.stream)
        try:
            outer = self._send(self._request(request, "POST", gateway.at(b"/ohttp"), exchange.headers, body))
        except self._library.StreamConsumed as cause:
            # In the second attempt: the content comes but once.
            raise SealedError("sealed_key_unknown") from cause
        if is_sealed(outer):
            return outer, exchange.reader(), None
        try:
            said = self._whole(outer, MAX_REFUSAL_BYTES)
        except SealedError:
            said = b""
        finally:
            outer.close()
        return outer, exchange.reader(), refusal_of(outer, said)

    def _send(self, outer: Any) -> Any:
        return self._client.send(outer, stream=True, follow_redirects=False)

    def _whole(self, response: Any, most: int) -> bytes:
        whole = bytearray()
        for part in _parts(response):
            whole += part
            if len(whole) > most:
                raise too_large()
        return bytes(whole)

    def _until_head(self, parts: Iterator[bytes], reader: SealedReader) -> list[bytes]:
        """Reads the answer's head. Returns the content that came with it."""
        for part in parts:
            handed = reader.feed(part)
            if reader.head is not None:
                return handed
        return reader.end()


class AsyncSealedTransport(_Sealed, httpx.AsyncBaseTransport):
    """As :class:`SealedTransport`, for asynchronous clients. Sessions are verified in a worker thread."""

    def __init__(
        self,
        client: Any = None,
        *,
        edge_headers: Mapping[str, str] | None = None,
        on_session: Callable[[VerifiedSessionReport], object] | None = None,
        library: ModuleType | None = None,
        **verify: Unpack[OptionFields],
    ) -> None:
        given = (library or httpx).AsyncClient() if client is None else client
        super().__init__(given, edge_headers, on_session, library, dict(verify))
        self._lock = anyio.Lock()

    async def handle_async_request(self, request: Any) -> Any:
        outer = None
        try:
            gateway = Gateway(request.url)
            sealing = await self._sealing(request, gateway)
            outer, reader, refusal = await self._sent(request, gateway, sealing)
            if refusal is not None and refusal.code == "sealed_key_unknown":
                self._sessions.forget(str(gateway), sealing)
                if not can_come_again(request):
                    return self._refusal(refusal, outer)
                outer, reader, refusal = await self._sent(request, gateway, await self._sealing(request, gateway))
            if refusal is not None:
                return self._refusal(refusal, outer)
            parts = _async_parts(outer)
            handed = await self._until_head(parts, reader)
        except SealedError as error:
            if outer is not None:
                await outer.aclose()
            return self._refusal(error, outer)
        except BaseException:
            if outer is not None:
                await outer.aclose()
            raise
        stream = _streams(self._library)[1](handed, parts, reader, outer)
        return self._response(request, reader, stream)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _sealing(self, request: Any, gateway: Gateway) -> Sealing:
        async with self._lock:
            known = self._sessions.current(str(gateway))
            if known is not None:
                return known
            challenge = fresh_challenge()
            response = await self._send(self._session_request(request, gateway, challenge))
            try:
                if response.status_code != 200:
                    raise SealedError("session_unavailable", max(response.status_code, 400))
                text = await self._whole(response, MAX_SESSION_BYTES)
            finally:
                await response.aclose()
            sealing = await anyio.to_thread.run_sync(self._sessions.verified, text, challenge)
            return self._sessions.keep(str(gateway), sealing)

    async def _sent(
        self, request: Any, gateway: Gateway, sealing: Sealing
    ) -> tuple[Any, SealedReader, SealedError | None]:
        exchange = SealedExchange(request, gateway, sealing)
        body = exchange.async_body(request.stream)
        try:
            outer = await self._send(self._request(request, "POST", gateway.at(b"/ohttp"), exchange.headers, body))
        except self._library.StreamConsumed as cause:
            raise SealedError("sealed_key_unknown") from cause
        if is_sealed(outer):
            return outer, exchange.reader(), None
        try:
            said = await self._whole(outer, MAX_REFUSAL_BYTES)
        except SealedError:
            said = b""
        finally:
            await outer.aclose()
        return outer, exchange.reader(), refusal_of(outer, said)

    async def _send(self, outer: Any) -> Any:
        return await self._client.send(outer, stream=True, follow_redirects=False)

    async def _whole(self, response: Any, most: int) -> bytes:
        whole = bytearray()
        async for part in _async_parts(response):
            whole += part
            if len(whole) > most:
                raise too_large()
        return bytes(whole)

    async def _until_head(self, parts: AsyncIterator[bytes], reader: SealedReader) -> list[bytes]:
        async for part in parts:
            handed = reader.feed(part)
            if reader.head is not None:
                return handed
        return reader.end()


def _parts(response: Any) -> Iterator[bytes]:
    if response.is_stream_consumed:  # by a hook of the caller's
        yield response.content
    else:
        yield from response.iter_raw()


async def _async_parts(response: Any) -> AsyncIterator[bytes]:
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
def _streams(library: ModuleType) -> tuple[Any, Any]:
    """The bodies of a library: httpx, or one that has its names."""
    return (
        type("OpenedStream", (_SyncStream, library.SyncByteStream), {}),
        type("OpenedAsyncStream", (_AsyncStream, library.AsyncByteStream), {}),
    )
