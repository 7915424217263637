"""httpx clients that request an attestation with every answer and let no answer end unproven."""

from __future__ import annotations

import re
import secrets
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from functools import lru_cache
from types import ModuleType
from typing import Any, Final, overload

import anyio.to_thread
import httpx

from .attestation import verify_attestation
from .checks import VerificationError
from .encoding import to_base64url
from .events import stream_form_of
from .held_stream import HeldStream
from .input import attestation_in
from .options import Expected, Limits, Policy, Verified, VerifyOptions, read_options
from .raw import nonce_of
from .strict_json import JsonTextError, parse, with_last_member
from .unproven import HEADERS, STATUS, UnprovenAnswerError, refusal_body

MAX_STREAM_BYTES: Final = 64 * 1024 * 1024
MAX_AGE_SECONDS: Final = 300
MAX_AHEAD_SECONDS: Final = 60
MAX_SEEN: Final = 100_000
"""The proofs of an hour at 28 a second, or all fresh ones at 277 a second."""

_JSON_TYPES = ("application/json", "", "text/plain")
"""Of a body that may be JSON; the last is that of a text whose type its sender does not name."""
_READ_ONLY = re.compile(r"/(models(/[^/]+)?|attestation)/?\Z")
"""Lists of models and attestations: nothing that a model wrote. HEAD and OPTIONS have no answer to prove."""
_LAST_NAMES = re.compile(r"(/chat)?/[^/]*/?\Z")
_CHALLENGE_BYTES = 32
_MAX_DECODED_BYTES = 64 * 1024
_MAX_LOOP_BYTES = 32 * 1024
"""A larger event is parsed in a worker thread."""
_in_thread = anyio.to_thread.run_sync
_VERIFY_OPTIONS = {field.name for field in fields(VerifyOptions)} - {"expected", "limits"}


@overload
def verifying_client(
    *,
    on_verified: Callable[[Verified], object] | None = None,
    on_unproven: Callable[[UnprovenAnswerError], object] | None = None,
    unproven_paths: Iterable[str] = (),
    strict: bool | None = None,
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
    stream, deltas are handed over as they come, and the end (from the first event on that says how the answer ended) when it is
    proven. A proof is refused when it is older than 300 s, more than 60 s ahead (``policy``), or was seen before.

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
    :param max_stream_bytes: the largest answer, whole or streamed, that is kept to be checked, after its content encoding.
    :param verify_limits: the ``limits`` of :func:`verify_attestation`.
    :param library: ``httpx2`` for packages that take clients of that one alone, as ``anthropic`` does; ``httpx`` by default.
    :param options: those of :func:`verify_attestation` but ``expected`` and ``limits``; all others are those of ``httpx.Client``
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
    own, verify, http = _sorted_options(options)
    chosen = httpx if library is None else library
    judge = _Judge(chosen, verify, **own)
    client = _classes(chosen)[which](**http)
    client._judge = judge
    return client


_OWN_OPTIONS = ("on_verified", "on_unproven", "unproven_paths", "strict", "max_stream_bytes", "verify_limits")


def _sorted_options(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    if "expected" in options:
        raise TypeError("expected is not an option here: it is what each request sends")
    own = {name: options[name] for name in _OWN_OPTIONS if name in options}
    verify = {name: value for name, value in options.items() if name in _VERIFY_OPTIONS}
    http = {name: value for name, value in options.items() if name not in own and name not in verify}
    return own, verify, http


@dataclass(frozen=True)
class _Asked:
    """A request as it is sent."""

    request: Any
    endpoint: str
    text: str
    stream: bool


class _Judge:
    """What both kinds of client share: which requests are sent, how each answer is checked, and the proofs that were seen."""

    def __init__(
        self,
        library: ModuleType,
        verify: dict[str, Any],
        on_verified: Callable[[Verified], object] | None = None,
        on_unproven: Callable[[UnprovenAnswerError], object] | None = None,
        unproven_paths: Iterable[str] = (),
        strict: bool | None = None,
        max_stream_bytes: int = MAX_STREAM_BYTES,
        verify_limits: Limits | None = None,
    ) -> None:
        policy: Policy = verify.get("policy") or Policy()
        self.library = library
        self.max_bytes = max_stream_bytes
        self._strict = policy.max_batch == 1 if strict is None else strict
        self._unproven_paths = tuple(path for path in unproven_paths if path.startswith("/"))
        self._on_verified = on_verified
        self._on_unproven = on_unproven
        self._verify = {
            **verify,
            "policy": replace(
                policy,
                max_batch=1 if policy.max_batch is None and self._strict else policy.max_batch,
                max_age_seconds=MAX_AGE_SECONDS if policy.max_age_seconds is None else policy.max_age_seconds,
                max_ahead_seconds=MAX_AHEAD_SECONDS if policy.max_ahead_seconds is None else policy.max_ahead_seconds,
            ),
            **({} if verify_limits is None else {"limits": verify_limits}),
        }
        # What is wrong with an option is told now and not with the first answer.
        read_options(VerifyOptions(**self._verify))
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()

    # Requests.

    def passes(self, request: Any) -> bool:
        if request.method in ("HEAD", "OPTIONS"):
            return True
        path = _path_of(request.url)
        if request.method == "GET" and _READ_ONLY.search(path):
            return True
        return path.endswith(self._unproven_paths) if self._unproven_paths else False

    def refuse_kind(self, request: Any) -> None:
        """@raises UnprovenAnswerError for a request whose answer no proof covers. Its body is not read."""
        if request.method != "POST" or _media_type(request) not in _JSON_TYPES:
            raise UnprovenAnswerError("endpoint_not_proven")

    def asked(self, request: Any, body: bytes) -> _Asked:
        """@raises UnprovenAnswerError when the body is no JSON object."""
        try:
            text = body.decode("utf-8")
            value = parse(text)
        except (UnicodeDecodeError, JsonTextError) as cause:
            raise UnprovenAnswerError("request_not_provable") from cause
        if not isinstance(value, dict):
            raise UnprovenAnswerError("request_not_provable")
        if "tee" not in value:
            text = with_last_member(text, "tee", _fresh_tee(self._strict))
        headers = self.library.Headers(request.headers)
        for name in ("content-length", "transfer-encoding"):
            headers.pop(name, None)
        # The one encoding that is decoded here, within a limit.
        headers["accept-encoding"] = "gzip"
        sent = self.library.Request(
            request.method, request.url, headers=headers, content=text.encode(), extensions=request.extensions
        )
        return _Asked(sent, _endpoint_of(_path_of(request.url)), text, value.get("stream") is True)

    # Answers.

    def held(self, response: Any, asked: _Asked) -> HeldStream | None:
        """How to read the answer: a stream, or None for a whole one. @raises UnprovenAnswerError for what no proof covers."""
        if response.status_code != 200:
            raise UnprovenAnswerError("response_not_provable")
        kind = _media_type(response)
        form = stream_form_of(asked.endpoint)
        if kind == "text/event-stream" and asked.stream and form is not None:
            return HeldStream(form, self.max_bytes)
        # A client that requested a stream reads nothing of a whole response, and reports no error.
        if kind != "application/json" or asked.stream:
            raise UnprovenAnswerError("response_not_provable")
        return None

    def prove(self, answer: bytes, asked: _Asked, *, stream: bool) -> Verified:
        """Checks the bytes of an answer. Of no effect on others: it may run in any thread. @raises UnprovenAnswerError"""
        given: str | bytes = answer
        if not stream:
            try:
                given = answer.decode("utf-8")
            except UnicodeDecodeError as cause:
                raise UnprovenAnswerError("attestation_missing") from cause
            if attestation_in(given) is None:
                raise UnprovenAnswerError("attestation_missing")
        try:
            expected = Expected(endpoint=asked.endpoint, request=asked.text)
            verified = verify_attestation(given, **self._verify, expected=expected)
        except VerificationError as cause:
            raise UnprovenAnswerError(cause.code) from cause
        # A part of a stream must not pass for a whole answer.
        if not stream and verified.exchange.stream is not None:
            raise UnprovenAnswerError("response_mismatch")
        return verified

    def accept(self, verified: Verified) -> None:
        """@raises UnprovenAnswerError for a proof that was accepted before."""
        name = nonce_of(verified.attestation.raw)
        with self._lock:
            if name in self._seen:
                self._seen.move_to_end(name)
                raise UnprovenAnswerError("attestation_seen")
            self._seen[name] = None
            if len(self._seen) > MAX_SEEN:
                self._seen.popitem(last=False)
        if self._on_verified is not None:
            self._on_verified(verified)

    def report(self, error: UnprovenAnswerError) -> None:
        """Tells the caller, once of each."""
        if self._on_unproven is not None and not error.reported:
            error.reported = True
            self._on_unproven(error)

    def refusal(self, error: UnprovenAnswerError, request: Any) -> Any:
        self.report(error)
        response = self.library.Response(STATUS, headers=HEADERS, content=refusal_body(error), request=request)
        response.elapsed = timedelta(0)
        return response

    def rebuilt(self, response: Any, content_type: str, **body: Any) -> Any:
        """The body is decoded here, so the headers of its encoding go; a charset in its type could have it read in another way."""
        headers = self.library.Headers(response.headers)
        for name in ("content-length", "content-encoding", "transfer-encoding"):
            headers.pop(name, None)
        headers["content-type"] = content_type
        return self.library.Response(
            response.status_code,
            headers=headers,
            request=response.request,
            extensions=response.extensions,
            history=response.history,
            default_encoding=response.default_encoding,
            **body,
        )

    def broken(self) -> tuple[type[Exception], ...]:
        """The errors of a body that breaks off. The caller's own timeouts are none."""
        return (self.library.RequestError, OSError, anyio.EndOfStream, zlib.error)


class _Body:
    """A whole answer within its limit."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts = bytearray()

    def add(self, part: bytes) -> None:
        if len(self._parts) + len(part) > self._max_bytes:
            raise UnprovenAnswerError("response_too_large")
        self._parts += part

    def whole(self) -> bytes:
        return bytes(self._parts)


class _Decoder:
    """Decodes a body in parts of a bounded size, however small its encoded form is."""

    def __init__(self, response: Any) -> None:
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("identity", "", "gzip", "x-gzip"):
            raise UnprovenAnswerError("response_not_provable")
        self._gzip = zlib.decompressobj(zlib.MAX_WBITS | 16) if encoding in ("gzip", "x-gzip") else None

    def push(self, data: bytes) -> Iterator[bytes]:
        if self._gzip is None:
            yield data
            return
        while not self._gzip.eof:
            part = self._gzip.decompress(data, _MAX_DECODED_BYTES)
            data = self._gzip.unconsumed_tail
            if part:
                yield part
            if not data and len(part) < _MAX_DECODED_BYTES:
                return


class _Sending:
    """Sends as ``httpx.Client`` does, and proves the answer."""

    _judge: _Judge

    def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
        judge, send = self._judge, super().send  # type: ignore[misc]
        if judge.passes(request):
            return send(request, stream=stream, **options)
        began = time.perf_counter()
        try:
            judge.refuse_kind(request)
            asked = judge.asked(request, request.read())
        except UnprovenAnswerError as error:
            return judge.refusal(error, request)
        response = send(asked.request, stream=True, **options)
        try:
            answer = response if response.status_code >= 400 else self._proven(response, asked, began)
            if not stream:
                answer.read()
            return answer
        except UnprovenAnswerError as error:
            response.close()
            return judge.refusal(error, response.request)
        except BaseException:
            response.close()
            raise

    def _proven(self, response: Any, asked: _Asked, began: float) -> Any:
        judge = self._judge
        held = judge.held(response, asked)
        if held is None:
            body = _Body(judge.max_bytes)
            for part in self._parts(response):
                body.add(part)
            response.close()
            whole = body.whole()
            judge.accept(judge.prove(whole, asked, stream=False))
            answer = judge.rebuilt(response, "application/json", content=whole)
            answer.elapsed = timedelta(seconds=time.perf_counter() - began)
            return answer
        events = self._events(response, held, asked)
        # Of a stream that is refused before any of it was handed over, the refusal is a response too.
        stream = _classes(judge.library)[2](events, next(events, b""), response, judge, began)
        stream.answer = judge.rebuilt(response, "text/event-stream; charset=utf-8", stream=stream)
        return stream.answer

    def _events(self, response: Any, held: HeldStream, asked: _Asked) -> Iterator[bytes]:
        for part in self._parts(response):
            yield from held.feed(part)
        yield from held.end()
        self._judge.accept(self._judge.prove(held.transcript(), asked, stream=True))
        yield held.rest()

    def _parts(self, response: Any) -> Iterator[bytes]:
        if response.is_stream_consumed:  # by a hook of the caller's
            yield response.content
            return
        decoder = _Decoder(response)
        try:
            for data in response.iter_raw():
                yield from decoder.push(data)
        except self._judge.library.TimeoutException:
            raise
        except self._judge.broken() as cause:
            raise UnprovenAnswerError("response_broken") from cause


class _AsyncSending:
    """Sends as ``httpx.AsyncClient`` does, and proves the answer."""

    _judge: _Judge

    async def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
        judge, send = self._judge, super().send  # type: ignore[misc]
        if judge.passes(request):
            return await send(request, stream=stream, **options)
        began = time.perf_counter()
        try:
            judge.refuse_kind(request)
            asked = judge.asked(request, await request.aread())
        except UnprovenAnswerError as error:
            return judge.refusal(error, request)
        response = await send(asked.request, stream=True, **options)
        try:
            answer = response if response.status_code >= 400 else await self._proven(response, asked, began)
            if not stream:
                await answer.aread()
            return answer
        except UnprovenAnswerError as error:
            await response.aclose()
            return judge.refusal(error, response.request)
        except BaseException:
            await response.aclose()
            raise

    async def _proven(self, response: Any, asked: _Asked, began: float) -> Any:
        judge = self._judge
        held = judge.held(response, asked)
        if held is None:
            body = _Body(judge.max_bytes)
            async for part in self._parts(response):
                body.add(part)
            await response.aclose()
            whole = body.whole()
            await self._prove(whole, asked, stream=False)
            answer = judge.rebuilt(response, "application/json", content=whole)
            answer.elapsed = timedelta(seconds=time.perf_counter() - began)
            return answer
        events = self._events(response, held, asked)
        first = await anext(events, b"")
        stream = _classes(judge.library)[3](events, first, response, judge, began)
        stream.answer = judge.rebuilt(response, "text/event-stream; charset=utf-8", stream=stream)
        return stream.answer

    async def _prove(self, answer: bytes, asked: _Asked, *, stream: bool) -> None:
        verified = await _in_thread(lambda: self._judge.prove(answer, asked, stream=stream))
        self._judge.accept(verified)

    async def _events(self, response: Any, held: HeldStream, asked: _Asked) -> AsyncIterator[bytes]:
        async for part in self._parts(response):
            large = held.pending + len(part) > _MAX_LOOP_BYTES
            events, fault = await _in_thread(held.feed_all, part) if large else held.feed_all(part)
            for event in events:
                yield event
            if fault is not None:
                raise fault
        for event in held.end():
            yield event
        await self._prove(held.transcript(), asked, stream=True)
        yield held.rest()

    async def _parts(self, response: Any) -> AsyncIterator[bytes]:
        if response.is_stream_consumed:
            yield response.content
            return
        decoder = _Decoder(response)
        try:
            async for data in response.aiter_raw():
                for part in decoder.push(data):
                    yield part
        except self._judge.library.TimeoutException:
            raise
        except self._judge.broken() as cause:
            raise UnprovenAnswerError("response_broken") from cause


class _Stream:
    """The body of a streamed answer: what was handed over first, and then the rest of its events."""

    answer: Any = None

    def __init__(self, events: Any, first: bytes, response: Any, judge: _Judge, began: float) -> None:
        self._events = events
        self._first = first
        self._response = response
        self._judge = judge
        self._began = began

    def _ended(self) -> None:
        self.answer.elapsed = timedelta(seconds=time.perf_counter() - self._began)


class _SyncStream(_Stream):
    def __iter__(self) -> Iterator[bytes]:
        try:
            yield self._first
            yield from self._events
        except UnprovenAnswerError as error:
            self._judge.report(error)
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
            self._judge.report(error)
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


def _fresh_tee(strict: bool) -> str:
    """``challenge``: 32 random bytes in base64url. They are in no older proof."""
    challenge = to_base64url(secrets.token_bytes(_CHALLENGE_BYTES))
    return f'{{"challenge":"{challenge}"}}' if strict else f'{{"batch":true,"challenge":"{challenge}"}}'


def _path_of(url: Any) -> str:
    path: bytes = url.raw_path
    return path.split(b"?", 1)[0].decode("ascii")


def _endpoint_of(path: str) -> str:
    """The path that raw names. A proxy in front may have another one before it, and none of ``/v1`` itself."""
    at = path.rfind("/v1/")
    if at >= 0:
        return path[at:]
    last = _LAST_NAMES.search(path)
    return f"/v1{'' if last is None else last.group()}"


def _media_type(message: Any) -> str:
    kind: str = message.headers.get("content-type", "")
    return kind.split(";", 1)[0].strip(" \t").lower()
