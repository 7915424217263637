"""httpx clients that request an attestation with every answer and let no answer end unproven."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import fields
from datetime import timedelta
from functools import lru_cache, partial
from types import ModuleType
from typing import Any, overload

import anyio
import anyio.from_thread
import anyio.to_thread
import httpx

from ..common.bundles import MAX_BUNDLE_CHARACTERS
from ..common.checks import Limits
from ..policy.options import Verified, VerifyOptions
from .answers import MAX_STREAM_BYTES, Asked, Body, Decoder, Verifier
from .held_stream import HeldStream
from .sealed_answers import session_of
from .transcript import TranscriptSink
from .unproven_error import UnprovenAnswerError

_MAX_LOOP_BYTES = 32 * 1024
"""A larger request or event is parsed in a worker thread."""
_BUNDLE_SECONDS = 30
Fetch = Callable[[Any], Any]
"""Sends a request as the caller's was sent, and returns its response, of which no body was read."""
_in_thread = anyio.to_thread.run_sync
_VERIFY_OPTIONS = {field.name for field in fields(VerifyOptions)} - {"expected", "limits"}


@overload
def verifying_client(
    *,
    on_verified: Callable[[Verified], object] | None = None,
    on_unproven: Callable[[UnprovenAnswerError], object] | None = None,
    unproven_paths: Iterable[str] = (),
    strict: bool | None = None,
    compact: bool = False,
    transcript: TranscriptSink | None = None,
    max_stream_bytes: int = MAX_STREAM_BYTES,
    verify_limits: Limits | None = None,
    library: None = None,
    **options: Any,
) -> httpx.Client: ...
@overload
def verifying_client(*, library: ModuleType, **options: Any) -> Any: ...
def verifying_client(*, library: ModuleType | None = None, **options: Any) -> Any:
    """An ``httpx.Client`` whose answers are proven, for ``openai.OpenAI(http_client=…)`` and other packages that take one.

    It adds ``tee`` to every POST of a JSON object, with a fresh challenge, and checks every answer against the endpoint and the
    bytes that were sent. A ``tee`` of the caller's own is sent as it is. A whole answer is handed over when it is proven. Of a
    stream, words are handed over as they come, and the rest (from the first event on that carries a part of a tool call, or says
    how the answer ended) when it is proven. A proof is refused when it is below level ``gpu`` (``none`` with ``simulated_root``),
    older than 300 s, more than 60 s ahead (``policy``), or was seen before.

    What cannot be proven, before any of it was handed over, is a response of status 422 that clients do not retry, with the code
    as ``error.code`` of its JSON. A stream that has begun raises :class:`UnprovenAnswerError`. Requests that cannot be proven are
    refused before they are sent, unless ``unproven_paths`` names their path; lists of models and attestations pass. Errors of the
    server (a status of 400 or more) are handed over as they are.

    .. code-block:: python

        client = openai.OpenAI(base_url="http://127.0.0.1:8080/v1", http_client=verifying_client(on_verified=keep))

    :param on_verified: called with every proof, before the answer (or the end of its stream) is handed over.
    :param on_unproven: called with the error of each refusal; where a check failed, its ``__cause__`` has every check.
    :param unproven_paths: paths whose answers are handed over although nothing proves them, such as ``/v1/audio/speech``: the
        whole path of the request's URL, or its end from a slash on.
    :param strict: whether each answer needs a signature of its own. By default answers may share one, unless
        ``policy.max_batch`` is 1.
    :param compact: whether attestations are compact: each names a bundle, which is fetched once from the same service, with this client,
        and kept. The attestation that ``on_verified`` gets is whole. Without its bundle an answer is refused (``bundle_unavailable``).
    :param transcript: keeps each proven exchange before its answer (or the end of its stream) is handed over: :class:`TranscriptFile`, or a
        function of your own. Where it raises, the answer is refused (``transcript_failed``).
    :param max_stream_bytes: the largest answer, whole or streamed, that is kept to be checked, after its content encoding.
    :param verify_limits: the ``limits`` of :func:`verify_attestation`.
    :param library: ``httpx2`` for packages that take clients of that one alone, as ``anthropic`` does; ``httpx`` by default.
    :param options: those of :func:`verify_attestation`, without ``expected`` and ``limits``; all others are those of ``httpx.Client``
        (``transport``, ``proxy``, ``verify``, ``timeout``, ``limits``, …). Its event hooks see answers before they are checked.
    :raises TypeError: an option that cannot be used.
    """
    return _make(library, 0, options)


@overload
def verifying_async_client(
    *,
    on_verified: Callable[[Verified], object] | None = None,
    on_unproven: Callable[[UnprovenAnswerError], object] | None = None,
    unproven_paths: Iterable[str] = (),
    strict: bool | None = None,
    compact: bool = False,
    transcript: TranscriptSink | None = None,
    max_stream_bytes: int = MAX_STREAM_BYTES,
    verify_limits: Limits | None = None,
    library: None = None,
    **options: Any,
) -> httpx.AsyncClient: ...
@overload
def verifying_async_client(*, library: ModuleType, **options: Any) -> Any: ...
def verifying_async_client(*, library: ModuleType | None = None, **options: Any) -> Any:
    """As :func:`verifying_client`, but an ``httpx.AsyncClient``. Verification runs in a worker thread; callbacks run in the loop's."""
    return _make(library, 1, options)


def _make(library: ModuleType | None, which: int, options: dict[str, Any]) -> Any:
    own, verify, http = sorted_options(options)
    chosen = httpx if library is None else library
    verifier = Verifier(chosen, verify, **own)
    client = _classes(chosen)[which](**http)
    client._verifier = verifier
    return client


_OWN_OPTIONS = (
    "on_verified",
    "on_unproven",
    "unproven_paths",
    "strict",
    "compact",
    "transcript",
    "max_stream_bytes",
    "verify_limits",
)


def sorted_options(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    if "expected" in options:
        raise TypeError("expected is not an option here: it is what each request sends")
    own = {name: options[name] for name in _OWN_OPTIONS if name in options}
    verify = {name: value for name, value in options.items() if name in _VERIFY_OPTIONS}
    http = {name: value for name, value in options.items() if name not in own and name not in verify}
    return own, verify, http


class _Sending:
    """Sends as ``httpx.Client`` does, and proves the answer."""

    _verifier: Verifier

    def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
        verifier, send = self._verifier, super().send  # type: ignore[misc]
        if verifier.passes(request):
            return send(request, stream=stream, **options)
        began = time.perf_counter()
        try:
            verifier.refuse_kind(request)
            asked = verifier.asked(request, request.read())
        except UnprovenAnswerError as error:
            return verifier.refusal(error, request)
        fetch = partial(send, stream=True, **options)
        response = fetch(asked.request)
        try:
            answer = response if response.status_code >= 400 else self._proven(response, asked, fetch, began)
            if not stream:
                answer.read()
            return answer
        except UnprovenAnswerError as error:
            response.close()
            return verifier.refusal(error, response.request)
        except BaseException:
            response.close()
            raise

    def _proven(self, response: Any, asked: Asked, fetch: Fetch, began: float) -> Any:
        verifier = self._verifier
        held = verifier.held(response, asked)
        if held is None:
            body = Body(verifier.max_bytes)
            for part in self._parts(response):
                body.add(part)
            response.close()
            whole = body.whole()
            self._prove(whole, asked, fetch, stream=False)
            answer = verifier.rebuilt(response, "application/json", content=whole)
            answer.elapsed = timedelta(seconds=time.perf_counter() - began)
            return answer
        events = self._events(response, held, asked, fetch)
        # Of a stream that is refused before any of it was handed over, the refusal is a response too.
        stream = _classes(verifier.library)[2](events, next(events, b""), response, verifier, began)
        stream.answer = verifier.rebuilt(response, "text/event-stream; charset=utf-8", stream=stream)
        return stream.answer

    def _events(self, response: Any, held: HeldStream, asked: Asked, fetch: Fetch) -> Iterator[bytes]:
        for part in self._parts(response):
            yield from held.feed(part)
        yield from held.end()
        self._prove(held.transcript(), asked, fetch, stream=True)
        yield held.rest()

    def _prove(self, answer: bytes, asked: Asked, fetch: Fetch, *, stream: bool) -> None:
        is_in_session = session_of(asked.text, is_async=False)
        verified = self._verifier.prove(answer, asked, partial(self._bundle, asked, fetch), stream=stream)
        if is_in_session is not None and not is_in_session(verified):
            raise UnprovenAnswerError("session_mismatch")
        self._verifier.see(verified)
        self._verifier.keep(answer, verified, stream=stream)
        self._verifier.tell(verified)

    def _bundle(self, asked: Asked, fetch: Fetch, sha256: str) -> str | None:
        """What the service serves for a bundle. It may raise anything."""
        ends = time.monotonic() + _BUNDLE_SECONDS
        response = fetch(self._verifier.bundle_request(asked, sha256))
        try:
            if response.status_code != 200:
                return None
            body = Body(MAX_BUNDLE_CHARACTERS)
            for part in self._parts(response):
                body.add(part)
                if time.monotonic() > ends:
                    return None
            return body.whole().decode("utf-8")
        finally:
            response.close()

    def _parts(self, response: Any) -> Iterator[bytes]:
        if response.is_stream_consumed:  # by a hook of the caller's
            yield response.content
            return
        decoder = Decoder(response)
        try:
            for data in response.iter_raw():
                yield from decoder.push(data)
        except self._verifier.library.TimeoutException:
            raise
        except self._verifier.broken() as cause:
            raise UnprovenAnswerError("response_broken") from cause


class _AsyncSending:
    """Sends as ``httpx.AsyncClient`` does, and proves the answer."""

    _verifier: Verifier

    async def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
        verifier, send = self._verifier, super().send  # type: ignore[misc]
        if verifier.passes(request):
            return await send(request, stream=stream, **options)
        began = time.perf_counter()
        try:
            verifier.refuse_kind(request)
            body = await request.aread()
            large = len(body) > _MAX_LOOP_BYTES
            asked = await _in_thread(verifier.asked, request, body) if large else verifier.asked(request, body)
        except UnprovenAnswerError as error:
            return verifier.refusal(error, request)
        fetch = partial(send, stream=True, **options)
        response = await fetch(asked.request)
        try:
            answer = response if response.status_code >= 400 else await self._proven(response, asked, fetch, began)
            if not stream:
                await answer.aread()
            return answer
        except UnprovenAnswerError as error:
            await response.aclose()
            return verifier.refusal(error, response.request)
        except BaseException:
            await response.aclose()
            raise

    async def _proven(self, response: Any, asked: Asked, fetch: Fetch, began: float) -> Any:
        verifier = self._verifier
        held = verifier.held(response, asked)
        if held is None:
            body = Body(verifier.max_bytes)
            async for part in self._parts(response):
                body.add(part)
            await response.aclose()
            whole = body.whole()
            await self._prove(whole, asked, fetch, stream=False)
            answer = verifier.rebuilt(response, "application/json", content=whole)
            answer.elapsed = timedelta(seconds=time.perf_counter() - began)
            return answer
        events = self._events(response, held, asked, fetch)
        first = await anext(events, b"")
        stream = _classes(verifier.library)[3](events, first, response, verifier, began)
        stream.answer = verifier.rebuilt(response, "text/event-stream; charset=utf-8", stream=stream)
        return stream.answer

    async def _prove(self, answer: bytes, asked: Asked, fetch: Fetch, *, stream: bool) -> None:
        is_in_session = session_of(asked.text, is_async=True)

        def load(sha256: str) -> str | None:
            return anyio.from_thread.run(self._bundle, asked, fetch, sha256)

        verified = await _in_thread(lambda: self._verifier.prove(answer, asked, load, stream=stream))
        if is_in_session is not None and not await is_in_session(verified):
            raise UnprovenAnswerError("session_mismatch")
        self._verifier.see(verified)
        if self._verifier.transcript is not None:
            await _in_thread(partial(self._verifier.keep, answer, verified, stream=stream))
        self._verifier.tell(verified)

    async def _events(self, response: Any, held: HeldStream, asked: Asked, fetch: Fetch) -> AsyncIterator[bytes]:
        async for part in self._parts(response):
            large = held.pending + len(part) > _MAX_LOOP_BYTES
            events, fault = await _in_thread(held.feed_all, part) if large else held.feed_all(part)
            for event in events:
                yield event
            if fault is not None:
                raise fault
        for event in held.end():
            yield event
        await self._prove(held.transcript(), asked, fetch, stream=True)
        yield held.rest()

    async def _bundle(self, asked: Asked, fetch: Fetch, sha256: str) -> str | None:
        """What the service serves for a bundle. It may raise anything."""
        with anyio.fail_after(_BUNDLE_SECONDS):
            response = await fetch(self._verifier.bundle_request(asked, sha256))
            try:
                if response.status_code != 200:
                    return None
                body = Body(MAX_BUNDLE_CHARACTERS)
                async for part in self._parts(response):
                    body.add(part)
                return body.whole().decode("utf-8")
            finally:
                await response.aclose()

    async def _parts(self, response: Any) -> AsyncIterator[bytes]:
        if response.is_stream_consumed:
            yield response.content
            return
        decoder = Decoder(response)
        try:
            async for data in response.aiter_raw():
                for part in decoder.push(data):
                    yield part
        except self._verifier.library.TimeoutException:
            raise
        except self._verifier.broken() as cause:
            raise UnprovenAnswerError("response_broken") from cause


class _Stream:
    """The body of a streamed answer: what was handed over first, and then the rest of its events."""

    answer: Any = None

    def __init__(self, events: Any, first: bytes, response: Any, verifier: Verifier, began: float) -> None:
        self._events = events
        self._first = first
        self._response = response
        self._verifier = verifier
        self._began = began

    def _ended(self) -> None:
        self.answer.elapsed = timedelta(seconds=time.perf_counter() - self._began)


class _SyncStream(_Stream):
    def __iter__(self) -> Iterator[bytes]:
        try:
            yield self._first
            yield from self._events
        except UnprovenAnswerError as error:
            self._verifier.report(error)
            raise

    def close(self) -> None:
        self._response.close()
        self._ended()


class _AsyncStream(_Stream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            yield self._first
            async for event in self._events:
                yield event
        except UnprovenAnswerError as error:
            self._verifier.report(error)
            raise

    async def aclose(self) -> None:
        await self._response.aclose()
        self._ended()


@lru_cache(maxsize=4)
def _classes(library: ModuleType) -> tuple[Any, Any, Any, Any]:
    """The clients and bodies of a library: httpx, or one that has its names."""
    return (
        type("VerifyingClient", (_Sending, library.Client), {}),
        type("VerifyingAsyncClient", (_AsyncSending, library.AsyncClient), {}),
        type("ProvenStream", (_SyncStream, library.SyncByteStream), {}),
        type("ProvenAsyncStream", (_AsyncStream, library.AsyncByteStream), {}),
    )
