"""Transports of httpx that seal every request to a key of the verified session, and open the answers to them."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import httpx

from ..clients.sealed_answers import will_be_sealed
from ..policy.options import Verified
from ..session import SessionReport
from .errors import SealedError, too_large
from .exchange import (
    MAX_REFUSAL_BYTES,
    OUTER_HEADERS,
    Address,
    SealedExchange,
    SealedReader,
    can_come_again,
    is_sealed,
    refusal_of,
    refusal_response,
    retry_after,
    session_refusal_of,
)
from .opened_stream import async_parts_of, opened_streams, parts_of
from .sessions import MAX_SESSION_BYTES, Sealing, Sessions, fresh_challenge

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..policy.options import OptionFields

_SESSION_TIMEOUT_SECONDS = 90
"""Of one attempt: a processor may take a minute."""
_MAX_ATTEMPTS = 5
"""The sidecar makes one session at a time, each in some seconds."""
_MAX_WAIT_SECONDS = 5


class _Sealed:
    """What both kinds of transport share."""

    def __init__(
        self,
        library: ModuleType,
        url: str,
        client: Any,
        edge_headers: Mapping[str, str] | None,
        challenge: bool,
        padding: bool,
        on_session: Callable[[SessionReport], object] | None,
        on_refused: Callable[[SealedError], object] | None,
        verify: dict[str, Any],
    ) -> None:
        self._library = library
        self._gateway = Address(library.URL(url))
        self._sessions = Sessions(verify, on_session)
        self._client = client
        self._edge_headers = dict(edge_headers or {})
        self._challenge = challenge
        self._padding = padding
        self._on_refused = on_refused

    def _session_request(self, challenge: str | None) -> Any:
        query = b"" if challenge is None else b"?challenge=" + challenge.encode()
        headers = {**self._edge_headers, "accept": "application/json", "accept-encoding": "identity"}
        url = self._gateway.at(b"/v1/attestation/session" + query)
        return self._client.build_request("GET", url, headers=headers, timeout=_SESSION_TIMEOUT_SECONDS)

    def _sealed_request(self, inner: Any, body: Any) -> Any:
        headers = {**self._edge_headers, **OUTER_HEADERS}
        url = self._gateway.at(b"/ohttp")
        return self._client.build_request("POST", url, headers=headers, content=body, extensions=inner.extensions)

    def _exchange(self, inner: Any, sealing: Sealing) -> SealedExchange:
        return SealedExchange(inner, self._gateway.target_of(inner.url), sealing.key, self._padding)

    def _opened(self, reader: SealedReader, stream: Any) -> Any:
        assert reader.head is not None
        return self._library.Response(reader.head.status, headers=list(reader.head.fields), stream=stream)

    def _refusal(self, error: SealedError) -> Any:
        if self._on_refused is not None:
            self._on_refused(error)
        return refusal_response(self._library, error)


class SealedTransport(_Sealed, httpx.BaseTransport):
    """For ``httpx.Client(transport=…)`` and ``verifying_client(transport=…)``: nothing in between reads or changes what is sent.

    Before the first request it verifies the gateway's session, asked for with a challenge, and then seals method, path, headers and
    body of each request to the key that this session names. A session is verified anew before it ends, and once where the gateway
    no longer has the key. A machine below ``policy.min_level``, ``measured`` by default, is refused. No request is ever sent in the
    clear, and no answer in the clear is handed over. In a verifying client, no answer is accepted that is signed in another session.

    A refusal is a response with an error in OpenAI's form: of type ``sealing_refused`` with status 422, after which clients do not
    ask again, where this transport refuses; of type ``edge_refused`` with its status where whatever stands before the machine does.
    An answer that was cut or changed after its head raises :class:`SealedError` out of its stream. Errors of the network are raised
    as they are.

    :param url: the gateway's base URL, with or without ``/v1``. Requests for any other address are refused.
    :param client: the ``httpx.Client`` that carries what is sealed, with its proxies and certificates; closed with this transport.
        Its default headers are sent in the clear.
    :param edge_headers: sent outside of the seal, with each sealed request and to get the session: a key of the edge's own, for one.
        Whatever stands before the gateway reads it.
    :param challenge: whether the session must hold a challenge of this client, which shows that it was signed now. False: a session
        of this hour will do, where the gateway wants an API key for a challenge and ``edge_headers`` are not to hold it.
    :param padding: whether requests are padded to the next of 1, 4, 16, 64 KiB, and above to whole 64 KiB.
    :param on_session: called with the report of each session that requests are sealed to from now on.
    :param on_refused: called with each error that a refusal stands for.
    :param library: the library of the client, if it is not ``httpx`` but one that has its names, as ``httpx2``.
    :param verify: the options of :func:`verify_session`, without ``expected``. Of ``policy``, ``min_level`` and ``required_checks`` count.
    :raises TypeError: a URL or an option that cannot be used.
    """

    def __init__(
        self,
        url: str,
        client: Any = None,
        *,
        edge_headers: Mapping[str, str] | None = None,
        challenge: bool = True,
        padding: bool = False,
        on_session: Callable[[SessionReport], object] | None = None,
        on_refused: Callable[[SealedError], object] | None = None,
        library: ModuleType | None = None,
        **verify: Unpack[OptionFields],
    ) -> None:
        chosen = httpx if library is None else library
        given = chosen.Client() if client is None else client
        super().__init__(chosen, url, given, edge_headers, challenge, padding, on_session, on_refused, dict(verify))
        self._lock = threading.Lock()

    def handle_request(self, request: Any) -> Any:
        # Every other body is an upload, and no verifying client's.
        if isinstance(request.stream, self._library.ByteStream):
            will_be_sealed(request.read(), self._is_in_session, is_async=False)
        try:
            outer, reader = self._answer(request)
        except SealedError as error:
            return self._refusal(error)
        parts = parts_of(outer)
        try:
            handed = self._until_head(parts, reader)
        except SealedError as error:
            outer.close()
            return self._refusal(error)
        except BaseException:
            outer.close()
            raise
        stream = opened_streams(self._library)[0](handed, parts, reader, outer)
        return self._opened(reader, stream)

    def close(self) -> None:
        self._client.close()

    def _answer(self, request: Any) -> tuple[Any, SealedReader]:
        """The sealed answer, not opened yet. @raises SealedError"""
        self._gateway.target_of(request.url)
        sealing = self._sealing()
        try:
            return self._sent(request, sealing)
        except SealedError as error:
            if error.code != "sealed_key_unknown":
                raise
            self._sessions.forget(sealing)
            if not can_come_again(request):
                raise
        return self._sent(request, self._sealing())

    def _sent(self, request: Any, sealing: Sealing) -> tuple[Any, SealedReader]:
        exchange = self._exchange(request, sealing)
        try:
            outer = self._send(self._sealed_request(request, exchange.body(request.stream)))
        except self._library.StreamConsumed as cause:
            # In the second attempt: the content comes but once.
            raise SealedError("sealed_key_unknown") from cause
        if is_sealed(outer):
            return outer, exchange.reader()
        raise refusal_of(outer, self._whole(outer, MAX_REFUSAL_BYTES) or b"")

    def _sealing(self) -> Sealing:
        with self._lock:
            return self._sessions.current() or self._renewed()

    def _renewed(self) -> Sealing:
        challenge = fresh_challenge() if self._challenge else None
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            response = self._send(self._session_request(challenge))
            text = self._whole(response, MAX_SESSION_BYTES)
            if response.status_code == 200:
                break
            if response.status_code != 503 or attempt == _MAX_ATTEMPTS:
                raise session_refusal_of(response)
            time.sleep(_wait_seconds(response))
        if text is None:
            raise too_large()
        return self._sessions.keep(self._sessions.verified(text, challenge))

    def _is_in_session(self, verified: Verified) -> bool:
        if self._sessions.is_known(verified):
            return True
        # The gateway's session may be newer than the one that was verified.
        try:
            with self._lock:
                self._renewed()
        except SealedError:
            return False
        return self._sessions.is_known(verified)

    def _send(self, outer: Any) -> Any:
        return self._client.send(outer, stream=True, follow_redirects=False)

    def _whole(self, response: Any, most: int) -> bytes | None:
        """The body of a response, which is closed; None: it is larger."""
        whole = bytearray()
        try:
            for part in parts_of(response):
                whole += part
                if len(whole) > most:
                    return None
        finally:
            response.close()
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
        url: str,
        client: Any = None,
        *,
        edge_headers: Mapping[str, str] | None = None,
        challenge: bool = True,
        padding: bool = False,
        on_session: Callable[[SessionReport], object] | None = None,
        on_refused: Callable[[SealedError], object] | None = None,
        library: ModuleType | None = None,
        **verify: Unpack[OptionFields],
    ) -> None:
        chosen = httpx if library is None else library
        given = chosen.AsyncClient() if client is None else client
        super().__init__(chosen, url, given, edge_headers, challenge, padding, on_session, on_refused, dict(verify))
        self._lock = anyio.Lock()

    async def handle_async_request(self, request: Any) -> Any:
        if isinstance(request.stream, self._library.ByteStream):
            will_be_sealed(await request.aread(), self._is_in_session, is_async=True)
        try:
            outer, reader = await self._answer(request)
        except SealedError as error:
            return self._refusal(error)
        parts = async_parts_of(outer)
        try:
            handed = await self._until_head(parts, reader)
        except SealedError as error:
            await outer.aclose()
            return self._refusal(error)
        except BaseException:
            await outer.aclose()
            raise
        stream = opened_streams(self._library)[1](handed, parts, reader, outer)
        return self._opened(reader, stream)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _answer(self, request: Any) -> tuple[Any, SealedReader]:
        self._gateway.target_of(request.url)
        sealing = await self._sealing()
        try:
            return await self._sent(request, sealing)
        except SealedError as error:
            if error.code != "sealed_key_unknown":
                raise
            self._sessions.forget(sealing)
            if not can_come_again(request):
                raise
        return await self._sent(request, await self._sealing())

    async def _sent(self, request: Any, sealing: Sealing) -> tuple[Any, SealedReader]:
        exchange = self._exchange(request, sealing)
        try:
            outer = await self._send(self._sealed_request(request, exchange.async_body(request.stream)))
        except self._library.StreamConsumed as cause:
            raise SealedError("sealed_key_unknown") from cause
        if is_sealed(outer):
            return outer, exchange.reader()
        raise refusal_of(outer, await self._whole(outer, MAX_REFUSAL_BYTES) or b"")

    async def _sealing(self) -> Sealing:
        async with self._lock:
            return self._sessions.current() or await self._renewed()

    async def _renewed(self) -> Sealing:
        challenge = fresh_challenge() if self._challenge else None
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            response = await self._send(self._session_request(challenge))
            text = await self._whole(response, MAX_SESSION_BYTES)
            if response.status_code == 200:
                break
            if response.status_code != 503 or attempt == _MAX_ATTEMPTS:
                raise session_refusal_of(response)
            await anyio.sleep(_wait_seconds(response))
        if text is None:
            raise too_large()
        return self._sessions.keep(await anyio.to_thread.run_sync(self._sessions.verified, text, challenge))

    async def _is_in_session(self, verified: Verified) -> bool:
        if self._sessions.is_known(verified):
            return True
        try:
            async with self._lock:
                await self._renewed()
        except SealedError:
            return False
        return self._sessions.is_known(verified)

    async def _send(self, outer: Any) -> Any:
        return await self._client.send(outer, stream=True, follow_redirects=False)

    async def _whole(self, response: Any, most: int) -> bytes | None:
        whole = bytearray()
        try:
            async for part in async_parts_of(response):
                whole += part
                if len(whole) > most:
                    return None
        finally:
            await response.aclose()
        return bytes(whole)

    async def _until_head(self, parts: AsyncIterator[bytes], reader: SealedReader) -> list[bytes]:
        async for part in parts:
            handed = reader.feed(part)
            if reader.head is not None:
                return handed
        return reader.end()


def _wait_seconds(response: Any) -> float:
    return min(float(retry_after(response) or 1), _MAX_WAIT_SECONDS)
