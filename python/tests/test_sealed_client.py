"""Sealing transports over a scripted gateway: what is sent outside and inside, what is refused and how. The gateway's sessions are made up,
and what verifies them here checks their challenge alone; test/python/sealed.python.ts has genuine ones."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import httpx2
import pytest
from pyhpke import OpenError

import countersign_verify.sealed.sessions
import countersign_verify.sealed.transport
from countersign_verify import Check, Policy, UnprovenAnswerError, verifying_client
from countersign_verify.sealed import (
    AsyncSealedTransport,
    SealedError,
    SealedTransport,
    sealed_async_client,
    sealed_client,
)
from countersign_verify.sealed.binary_http import END, write_content
from recorded import options, recorded
from sealed_peer import Inner, PeerKey, ResponseSealer, UnknownKeyError, open_request, read_inner, response_head

HOST = "http://edge.test/mounted"
CHAT = f"{HOST}/v1/chat/completions"
BODY = b'{"model":"m","messages":[{"role":"user","content":"a secret"}]}'
KINDS = ["sync", "async"]
LIBRARIES = [httpx, httpx2]


class _Parts(httpx.SyncByteStream, httpx.AsyncByteStream, httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A body that comes in parts, over a network that both kinds of client can read."""

    def __init__(self, parts: list[bytes] | Iterator[bytes]) -> None:
        self._parts = parts
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        yield from self._parts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            yield part

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.closed = True


@dataclass
class Gateway:
    """Opens sealed requests and seals the answer of its script. ``bend`` has the last word on what is sent."""

    library: ModuleType = httpx
    keys: list[PeerKey] = field(default_factory=lambda: [PeerKey(1)])
    """The first is the session's."""
    hpke: str | None = ""
    """What the statement names; by default the document of the first key."""
    level: str = "measured"
    not_after: float = field(default_factory=lambda: time.time() + 600)
    script: Callable[[Inner], list[bytes]] = lambda _: message(200, b'{"answer":1}')
    bend: Callable[[list[bytes]], list[bytes] | Any] = lambda chunks: chunks
    seen: list[Any] = field(default_factory=list)
    """Every request, as anybody who is in between sees it."""
    inner: list[Inner] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)
    """The length of each opened message."""
    challenges: list[str | None] = field(default_factory=list)
    bodies: list[_Parts] = field(default_factory=list)

    def __call__(self, request: Any) -> Any:
        self.seen.append(request)
        if request.method == "GET":
            assert request.url.path == "/mounted/v1/attestation/session"
            self.challenges.append(request.url.params.get("challenge"))
            return self.library.Response(200, json=self.session(self.challenges[-1]))
        assert (request.method, request.url.path) == ("POST", "/mounted/ohttp")
        assert request.headers["content-type"] == "message/ohttp-chunked-req"
        try:
            opened = open_request(self.keys, request.content)
        except (UnknownKeyError, OpenError):
            return self.library.Response(422, json={"error": {"message": "no", "code": "sealed_key_unknown"}})
        self.inner.append(read_inner(opened.message))
        self.messages.append(len(opened.message))
        sent = self.bend(opened.sealer.all([*self.script(self.inner[-1]), b""]))
        return sent if isinstance(sent, self.library.Response) else self.sealed(sent)

    def sealed(self, chunks: list[bytes] | Iterator[bytes], status: int = 200, **headers: str) -> Any:
        self.bodies.append(_Parts(chunks))
        kind = {"content-type": "message/ohttp-chunked-res", **headers}
        return self.library.Response(status, headers=kind, stream=self.bodies[-1])

    def session(self, challenge: str) -> dict[str, Any]:
        hpke = base64.b64encode(self.keys[0].document).decode() if self.hpke == "" else self.hpke
        times = {"not_after": int(self.not_after)}
        return {"challenge": challenge, "level": self.level, "hpke": hpke, "key": KEY, **times}

    def sessions(self) -> int:
        return len(self.challenges)

    def sealed_requests(self) -> int:
        return sum(request.method == "POST" for request in self.seen)

    def outside(self) -> bytes:
        """All bytes that anybody who is in between saw."""
        return b"".join(
            str(request.url).encode() + repr(request.headers.raw).encode() + request.content for request in self.seen
        )


def message(status: int, *contents: bytes, kind: bytes = b"application/json") -> list[bytes]:
    """An answer, in the parts that are sealed each in a chunk."""
    return [response_head(status, [(b"content-type", kind)]), *map(write_content, contents), END]


@pytest.fixture(autouse=True)
def _made_up_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    def appraise(text: str, *, expected: Any, policy: Policy, **_: Any) -> Any:
        session = json.loads(text)
        made = SimpleNamespace(hpke=session["hpke"], statement=text)
        code = "cpu_binding_mismatch" if session["challenge"] != expected.challenge else None
        check = Check(name="cpu_binding", device=None, status="fail" if code else "pass", detail="", code=code)
        return SimpleNamespace(session=None if code else made, level=session["level"], checks=(check,))

    module = countersign_verify.sealed.sessions
    monkeypatch.setattr(module, "appraise_session", appraise)
    monkeypatch.setattr(module, "read_statement", lambda text: SimpleNamespace(**json.loads(text)))
    # The recorded answers are signed in no session: they count as signed in the one that the gateway says.
    monkeypatch.setattr(module, "name_of", lambda _: KEY)


KEY = "the session's key"


@dataclass
class Heard:
    status: int = 0
    headers: Any = None
    content: bytes = b""
    error: Exception | None = None

    @property
    def code(self) -> str | None:
        """Of the refusal in place of an answer, or of the error that ended its stream."""
        if self.error is not None:
            return self.error.code if isinstance(self.error, SealedError) else type(self.error).__name__
        error = json.loads(self.content)["error"] if self.status >= 400 else {}
        return error["code"] if error.get("type") in ("sealing_refused", "edge_refused") else None


def outer_client(kind: str, gateway: Gateway) -> Any:
    transport = gateway.library.MockTransport(gateway)
    return (
        gateway.library.Client(transport=transport)
        if kind == "sync"
        else gateway.library.AsyncClient(transport=transport)
    )


def transport_of(kind: str, gateway: Gateway, **given: Any) -> Any:
    make = SealedTransport if kind == "sync" else AsyncSealedTransport
    return make(HOST, outer_client(kind, gateway), library=gateway.library, **given)


def ask_all(kind: str, gateway: Gateway, asked: list[dict[str, Any]], **given: Any) -> list[Heard]:
    """Sends requests through one client, one after the other."""
    transport = transport_of(kind, gateway, **given)
    heard = [Heard() for _ in asked]
    default = {
        "method": "POST",
        "url": CHAT,
        "headers": {"content-type": "application/json", "authorization": "Bearer inner-key"},
    }

    def sync() -> None:
        with gateway.library.Client(transport=transport) as client:
            for one, got in zip(asked, heard, strict=True):
                request = client.build_request(**{**default, "content": BODY, **one})
                response = client.send(request, stream=True)
                got.status, got.headers = response.status_code, response.headers
                try:
                    for part in response.iter_bytes():
                        got.content += part
                except Exception as error:
                    got.error = error
                finally:
                    response.close()

    async def run() -> None:
        async with gateway.library.AsyncClient(transport=transport) as client:
            for one, got in zip(asked, heard, strict=True):
                request = client.build_request(**{**default, "content": BODY, **one})
                response = await client.send(request, stream=True)
                got.status, got.headers = response.status_code, response.headers
                try:
                    async for part in response.aiter_bytes():
                        got.content += part
                except Exception as error:
                    got.error = error
                finally:
                    await response.aclose()

    if kind == "sync":
        sync()
    else:
        asyncio.run(run())
    return heard


def ask(kind: str, gateway: Gateway, given: dict[str, Any] | None = None, **asked: Any) -> Heard:
    return ask_all(kind, gateway, [asked], **(given or {}))[0]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_request_is_sealed_and_its_answer_opened(kind: str, library: ModuleType) -> None:
    gateway = Gateway(library)
    edge = {"authorization": "Bearer edge-key", "x-countersign-pool": "a"}
    heard = ask(kind, gateway, {"edge_headers": edge}, url=f"{CHAT}?q=1")
    assert (heard.status, heard.content) == (200, b'{"answer":1}')
    assert heard.headers["content-type"] == "application/json"
    inner = gateway.inner[0]
    assert (inner.method, inner.scheme, inner.authority) == ("POST", "http", "edge.test")
    assert (inner.path, inner.content) == ("/v1/chat/completions?q=1", BODY)
    assert inner.header("authorization") == "Bearer inner-key"
    assert inner.header("content-length") == str(len(BODY))
    assert abs(parsedate_to_datetime(inner.header("date") or "").timestamp() - time.time()) < 5
    for name in ("host", "connection", "accept-encoding", "x-countersign-pool"):
        assert inner.header(name) is None
    for request in gateway.seen:
        assert request.headers["authorization"] == "Bearer edge-key"
        assert request.headers["x-countersign-pool"] == "a"
    assert gateway.seen[-1].headers["incremental"] == "?1"
    for secret in (b"secret", b"inner-key", b"chat/completions", b"q=1"):
        assert secret not in gateway.outside()
    assert gateway.bodies[0].closed


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_url_says_of_its_user_is_sealed(kind: str) -> None:
    gateway = Gateway()
    url = "http://user:password@edge.test/mounted/v1/models"
    assert ask(kind, gateway, method="GET", url=url, headers={}, content=None).status == 200
    assert gateway.inner[0].header("authorization") == "Basic dXNlcjpwYXNzd29yZA=="
    assert b"password" not in gateway.outside()
    assert b"dXNlcjpwYXNzd29yZA" not in gateway.outside()


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_is_verified_once_and_again_when_it_has_ended(kind: str) -> None:
    gateway = Gateway()
    reports: list[Any] = []
    assert [one.status for one in ask_all(kind, gateway, [{}] * 3, on_session=reports.append)] == [200] * 3
    assert (gateway.sessions(), gateway.sealed_requests(), len(reports)) == (1, 3, 1)
    assert len(set(gateway.challenges[0])) > 4
    ended = Gateway(not_after=time.time() - 1)
    assert [one.status for one in ask_all(kind, ended, [{}] * 3)] == [200] * 3
    assert ended.sessions() == 3
    assert len(set(ended.challenges)) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_sealed_to_a_session_below_the_level_that_is_asked_for(kind: str) -> None:
    for level, policy, status in [
        ("gpu+cpu", {}, 422),
        ("measured", {}, 200),
        ("gpu+cpu", {"policy": Policy(min_level="gpu+cpu")}, 200),
        ("none", {"policy": Policy(min_level="none")}, 200),
        ("gpu", {"policy": Policy(min_level="gpu+cpu")}, 422),
        ("measured", {"policy": Policy(required_checks=["raw_form"])}, 200),
    ]:
        gateway = Gateway(level=level)
        heard = ask(kind, gateway, policy)
        assert (level, policy, heard.status) == (level, policy, status)
        if status == 422:
            assert heard.code == "level_too_low"
            assert b"reads prompts" in heard.content or b"runs that machine" in heard.content
            assert heard.headers["x-should-retry"] == "false"
            assert gateway.sealed_requests() == 0
            assert b"secret" not in gateway.outside()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("hpke", "code"),
    [(hpke, "session_without_key") for hpke in (None, "AAAA", "A", "AAIBAAAA")]
    + [("AAcFd3cBAgME", "sealed_unsupported")],
)
def test_a_session_without_a_key_that_can_be_used_is_refused(kind: str, hpke: str | None, code: str) -> None:
    gateway = Gateway(hpke=hpke)
    assert ask(kind, gateway).code == code
    assert gateway.sealed_requests() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_for_another_challenge_is_refused(kind: str) -> None:
    gateway = Gateway()
    gateway.session = lambda _: Gateway.session(gateway, "00" * 32)
    assert ask(kind, gateway).code == "cpu_binding_mismatch"
    assert gateway.sealed_requests() == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("status", "expected", "code"),
    [(status, status, "session_unavailable") for status in (401, 403, 429, 500, 503)]
    + [(status, 422, "session_unavailable") for status in (204, 302, 400, 418)]
    + [(404, 422, "session_missing")],
)
def test_a_session_that_is_not_given_is_an_error(
    kind: str, status: int, expected: int, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(countersign_verify.sealed.transport, "time", SimpleNamespace(sleep=waited.append))
    monkeypatch.setattr(countersign_verify.sealed.transport.anyio, "sleep", sleep)
    headers = {"retry-after": "7", "location": "http://other.test/"}
    seen: list[Any] = []

    def answer(request: Any) -> Any:
        seen.append(request)
        return httpx.Response(status, headers=headers, text="words of an edge")

    heard = ask_through(kind, answer)
    assert (heard.status, heard.code) == (expected, code)
    assert b"words" not in heard.content
    assert heard.headers.get("retry-after") == (None if expected == 422 else "7")
    challenges = [b"challenge=" in request.url.query for request in seen]
    # The sidecar makes one session at a time. No error makes it ask without a challenge.
    assert (challenges, waited) == (([True] * 5, [5.0] * 4) if status == 503 else ([True], []))


def ask_through(kind: str, answer: Callable[[Any], Any]) -> Heard:
    """Sends one request, which ``answer`` answers all of outside."""
    network = httpx.MockTransport(answer)
    if kind == "sync":
        sealed = SealedTransport(HOST, httpx.Client(transport=network))
        response = httpx.Client(transport=sealed).post(CHAT, content=BODY)
    else:

        async def run() -> httpx.Response:
            transport = AsyncSealedTransport(HOST, httpx.AsyncClient(transport=network))
            async with httpx.AsyncClient(transport=transport) as client:
                return await client.post(CHAT, content=BODY)

        response = asyncio.run(run())
    return Heard(response.status_code, response.headers, response.content)


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_that_is_too_large_is_refused(kind: str) -> None:
    gateway = Gateway()
    gateway.session = lambda _: {"x": "x" * (4 * 1024 * 1024)}
    assert ask(kind, gateway).code == "sealed_too_large"


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_rotation_a_new_session_is_verified_once(kind: str) -> None:
    gateway = Gateway()

    def rotate(_: Inner) -> list[bytes]:
        # The identifiers of keys come again.
        gateway.keys = [PeerKey(len(gateway.inner) % 2)]
        return message(200, b"{}")

    gateway.script = rotate
    heard = ask_all(kind, gateway, [{}] * 4)
    assert [one.status for one in heard] == [200] * 4
    assert (gateway.sessions(), gateway.sealed_requests(), len(gateway.inner)) == (4, 7, 4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_that_stays_unknown_is_an_error_after_one_new_session(kind: str) -> None:
    gateway = Gateway(hpke=base64.b64encode(PeerKey(9).document).decode())
    heard = ask(kind, gateway)
    assert (heard.status, heard.code) == (422, "sealed_key_unknown")
    assert (gateway.sessions(), gateway.sealed_requests()) == (2, 2)
    assert b"secret" not in gateway.outside()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("headers", [{}, {"content-length": "60003"}])
@pytest.mark.parametrize("generated", [True, False])
def test_a_body_that_comes_but_once_is_sent_in_parts_and_not_sent_again(
    kind: str, headers: dict[str, str], generated: bool
) -> None:
    texts = [b"x" * 20_000, b"", b"y" * 3, b"z" * 40_000]

    async def these() -> AsyncIterator[bytes]:
        for text in texts:
            yield text

    class Iterated:
        def __init__(self) -> None:
            self.left = iter(texts)

        def __aiter__(self) -> Iterated:
            return self

        async def __anext__(self) -> bytes:
            try:
                return next(self.left)
            except StopIteration:
                raise StopAsyncIteration from None

    def parts() -> Any:
        if kind == "sync":
            return (text for text in texts) if generated else iter(texts)
        return these() if generated else Iterated()

    gateway = Gateway()
    assert ask(kind, gateway, content=parts(), headers=headers).status == 200
    assert gateway.inner[0].content == b"".join(texts)
    gateway.hpke = base64.b64encode(PeerKey(9).document).decode()
    assert ask(kind, gateway, content=parts(), headers=headers).status == 422
    assert (gateway.sealed_requests(), len(gateway.inner)) == (2, 1)
    # A file can be read again.
    gateway.hpke = ""
    keys = gateway.keys
    gateway.script = lambda _: message(200, b"{}")
    if kind == "sync":
        upload = {"content": None, "headers": {}, "files": {"file": ("a.wav", io.BytesIO(b"w" * 30_000))}}
        gateway.keys = [PeerKey(5)]
        with httpx.Client(transport=transport_of(kind, gateway)) as client:
            client.post(CHAT, **upload)
            gateway.keys = keys
            assert client.post(CHAT, **upload).status_code == 200
        assert gateway.inner[-1].content.count(b"w" * 30_000) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("status", "expected", "code"),
    [(200, 422, "answer_not_sealed"), (302, 422, "answer_not_sealed")]
    + [(status, 422, "edge_refused") for status in (400, 409, 422)]
    + [(status, status, "edge_refused") for status in (401, 403, 429, 503)],
)
def test_an_answer_in_the_clear_is_an_error(kind: str, status: int, expected: int, code: str) -> None:
    gateway = Gateway()
    plain = {"choices": [{"message": {"content": "words of an edge"}}], "error": {"code": "x"}}
    headers = {"retry-after": "3", "location": HOST}
    gateway.bend = lambda _: httpx.Response(status, headers=headers, json=plain)
    heard = ask(kind, gateway)
    assert (heard.status, heard.code) == (expected, code)
    assert b"words" not in heard.content
    assert heard.headers.get("retry-after") == (None if expected == 422 else "3")
    assert heard.headers.get("x-should-retry") == ("false" if expected == 422 else None)
    assert len(gateway.seen) == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (503, "overloaded", 503),
        (409, "sealed_replayed", 422),
        (400, "sealed_malformed", 422),
        (421, "sealed_required", 422),
    ],
)
def test_what_the_gateway_says_before_it_opens_has_its_code(kind: str, status: int, code: str, expected: int) -> None:
    gateway = Gateway()
    gateway.bend = lambda _: httpx.Response(status, json={"error": {"message": "words", "code": code}})
    heard = ask(kind, gateway)
    assert (heard.status, heard.code) == (expected, code)
    assert b"words" not in heard.content


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_in_the_clear_that_calls_itself_sealed_is_an_error(kind: str) -> None:
    for chunks in ([b""], [b"{}"], [b'{"choices":[]}' * 50], [b"data: {}\n\n"] * 30):
        gateway = Gateway()
        gateway.bend = lambda _, chunks=chunks: chunks
        heard = ask(kind, gateway)
        assert heard.status == 422
        assert (heard.code or "").startswith("sealed_")
    for headers in ({"content-encoding": "gzip"}, {"content-type": "text/plain"}):
        gateway = Gateway()
        gateway.bend = lambda chunks, sealed=gateway.sealed, headers=headers: sealed(chunks, **headers)
        assert ask(kind, gateway).code == "answer_not_sealed"


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_inside_is_an_answer(kind: str) -> None:
    gateway = Gateway(script=lambda _: message(429, b'{"error":{"code":"rate_limited"}}'))
    heard = ask(kind, gateway)
    assert (heard.status, heard.content) == (429, b'{"error":{"code":"rate_limited"}}')


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_cut_at_any_byte_never_ends_well(kind: str) -> None:
    whole = b"".join(ResponseSealer(*sealed_alike()).all([*message(200, b"one ", b"two"), b""]))
    assert len(whole) < 200
    gateway = Gateway(script=lambda _: message(200, b"one ", b"two"))
    for length in range(len(whole)):
        gateway.bend = lambda chunks, length=length: [b"".join(chunks)[:length]]
        heard = ask(kind, gateway)
        assert (length, heard.code is not None) == (length, True)
        assert (heard.status, heard.error) == (422, None) if heard.error is None else heard.status == 200
    gateway.bend = lambda chunks: [b"".join(chunks)]
    assert ask(kind, gateway).content == b"one two"


def sealed_alike() -> tuple[Any, bytes, int]:
    """What a response is as long as any other with."""
    return SimpleNamespace(export=lambda *_: bytes(16)), bytes(32), 16


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", [[0, 2, 1, 3, 4], [0, 1, 1, 2, 3, 4], [0, 1, 3, 4], [0, 4], [0, 1, 2, 3, 4, 4]])
def test_chunks_that_are_moved_doubled_or_dropped_raise_out_of_the_stream(kind: str, order: list[int]) -> None:
    gateway = Gateway(script=lambda _: message(200, b"one ", b"two"))
    gateway.bend = lambda chunks: [chunks[i] for i in order]
    heard = ask(kind, gateway)
    assert isinstance(heard.error, SealedError)
    assert heard.error.code in ("sealed_not_opened", "sealed_malformed")
    assert gateway.bodies[0].closed


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_is_handed_on_as_it_comes(kind: str) -> None:
    sent: list[bytes] = []

    def script(_: Inner) -> list[bytes]:
        return message(200, b"data: 1\n\n", b"data: 2\n\n", kind=b"text/event-stream")

    gateway = Gateway(script=script)

    def slowly(chunks: list[bytes]) -> Any:
        def come() -> Iterator[bytes]:
            for chunk in chunks:
                sent.append(chunk)
                yield chunk

        return gateway.sealed(come())

    gateway.bend = slowly
    transport = transport_of(kind, gateway)
    got: list[tuple[bytes, int]] = []

    def sync() -> None:
        with httpx.Client(transport=transport) as client, client.stream("POST", CHAT, content=BODY) as response:
            for part in response.iter_raw():
                got.append((part, len(sent)))

    async def run() -> None:
        async with (
            httpx.AsyncClient(transport=transport) as client,
            client.stream("POST", CHAT, content=BODY) as response,
        ):
            async for part in response.aiter_raw():
                got.append((part, len(sent)))

    if kind == "sync":
        sync()
    else:
        asyncio.run(run())
    # The first event is had when its chunk has come, which is the second.
    assert got == [(b"data: 1\n\n", 2), (b"data: 2\n\n", 3)]
    assert len(sent) == 5


@pytest.mark.parametrize("kind", KINDS)
def test_a_failing_network_is_the_networks_error(kind: str) -> None:
    def broken(_: Any) -> Any:
        raise httpx.ConnectError("no route")

    with pytest.raises(httpx.ConnectError):
        ask_through(kind, broken)


OTHERS = [
    "http://other.test/mounted/v1/x",
    "http://edge.test/v1/x",
    "https://edge.test/mounted/v1/x",
    "http://edge.test:81/mounted/v1/x",
    "http://edge.test/mountedv1/x",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("url", OTHERS)
def test_a_request_for_another_address_is_refused(kind: str, url: str) -> None:
    gateway = Gateway()
    refused: list[SealedError] = []
    assert ask(kind, gateway, {"on_refused": refused.append}, url=url).code == "other_gateway"
    assert gateway.seen == []
    assert [error.code for error in refused] == ["other_gateway"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_may_do_without_a_challenge(kind: str) -> None:
    gateway = Gateway()
    gateway.session = lambda _: {**Gateway.session(gateway, ""), "challenge": None}
    assert ask(kind, gateway, {"challenge": False}).status == 200
    assert gateway.seen[0].url.query == b""


@pytest.mark.parametrize("kind", KINDS)
def test_requests_are_padded_where_that_is_asked_for(kind: str) -> None:
    lengths = []
    for length in (0, 100, 600, 1_100, 3_700, 60_000, 70_000, 140_000):
        gateway = Gateway()
        assert ask(kind, gateway, {"padding": True}, content=b"x" * length).status == 200
        assert gateway.inner[0].content == b"x" * length
        lengths.append(gateway.messages[0])
    assert lengths == [1024, 1024, 1024, 4096, 4096, 65_536, 131_072, 196_608]


def test_threads_share_one_session() -> None:
    gateway = Gateway()
    with httpx.Client(transport=transport_of("sync", gateway)) as client:
        threads = [threading.Thread(target=lambda: client.post(CHAT, content=BODY)) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (gateway.sessions(), len(gateway.inner)) == (1, 12)
    # No two requests have an encapsulated key in common.
    assert len({request.content[7:39] for request in gateway.seen if request.method == "POST"}) == 12


def test_tasks_share_one_session() -> None:
    gateway = Gateway()

    async def run() -> None:
        async with httpx.AsyncClient(transport=transport_of("async", gateway)) as client:
            await asyncio.gather(*(client.post(CHAT, content=BODY) for _ in range(12)))

    asyncio.run(run())
    assert (gateway.sessions(), len(gateway.inner)) == (1, 12)


def test_an_option_that_cannot_be_used_is_told_at_once() -> None:
    with pytest.raises(TypeError, match="expected"):
        SealedTransport(HOST, expected=None)
    with pytest.raises(TypeError):
        SealedTransport(HOST, simulated_root="no certificate")
    with pytest.raises(TypeError):
        sealed_client(HOST, no_such_option=1)
    for url in ("edge.test", "ftp://edge.test", "http://edge.test/?a=b", "http://edge.test/#a", "http://a:b@edge.test"):
        with pytest.raises(TypeError, match="base URL"):
            SealedTransport(url)


# With proofs: the recorded answers, which are proven to the verifying client.


def proven(kind: str, name: str, gateway: Gateway, **given: Any) -> tuple[Heard, list[Any]]:
    answer = recorded(name)
    proofs: list[Any] = []
    made = sealed_client if kind == "sync" else sealed_async_client
    transport = gateway.library.MockTransport(gateway)
    client = made(
        f"{HOST}/v1",
        **{
            **options(),
            "policy": Policy(min_level="none"),
            "transport": transport,
            "library": gateway.library,
            "on_verified": proofs.append,
            **given,
        },
    )
    heard = Heard()
    asked = {
        "content": answer.request,
        "headers": {"content-type": "application/json", "authorization": "Bearer inner-key"},
    }

    def sync() -> None:
        with client, client.stream("POST", HOST + answer.endpoint, **asked) as response:
            heard.status = response.status_code
            for part in response.iter_bytes():
                heard.content += part

    async def run() -> None:
        async with client, client.stream("POST", HOST + answer.endpoint, **asked) as response:
            heard.status = response.status_code
            async for part in response.aiter_bytes():
                heard.content += part

    try:
        if kind == "sync":
            sync()
        else:
            asyncio.run(run())
    except Exception as error:
        heard.error = error
    return heard, proofs


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["chat-whole", "chat-stream", "messages-stream-carried"])
def test_a_sealed_client_hands_on_what_is_proven(kind: str, name: str, library: ModuleType) -> None:
    answer = recorded(name)
    media = b"text/event-stream" if answer.stream else b"application/json"
    parts = [answer.answer[at : at + 700] for at in range(0, len(answer.answer), 700)]
    gateway = Gateway(library, script=lambda _: message(200, *parts, kind=media))
    sessions: list[Any] = []
    heard, proofs = proven(kind, name, gateway, edge_headers={"x-edge": "1"}, on_session=sessions.append)
    assert (heard.status, heard.error) == (200, None)
    assert len(proofs) == 1
    assert len(sessions) == 1
    assert gateway.inner[0].content == answer.request
    assert gateway.seen[-1].headers["x-edge"] == "1"
    assert b"inner-key" not in gateway.outside()
    # Anybody who is in between may cut the answer: it is never proven then.
    for length in (1, 3, len(parts)):
        gateway.bend = lambda chunks, length=length: chunks[:length]
        heard, proofs = proven(kind, name, gateway)
        assert proofs == []
        assert heard.status == 422 or isinstance(heard.error, UnprovenAnswerError)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["chat-whole", "chat-stream"])
def test_an_answer_that_is_signed_in_another_session_is_refused(
    kind: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = recorded(name)
    media = b"text/event-stream" if answer.stream else b"application/json"
    parts = [answer.answer[at : at + 700] for at in range(0, len(answer.answer), 700)]
    gateway = Gateway(script=lambda _: message(200, *parts, kind=media))
    monkeypatch.setattr(countersign_verify.sealed.sessions, "name_of", lambda _: "another session's key")
    heard, proofs = proven(kind, name, gateway)
    assert proofs == []
    if answer.stream:
        assert isinstance(heard.error, UnprovenAnswerError)
        assert heard.error.code == "session_mismatch"
    else:
        assert json.loads(heard.content)["error"]["code"] == "session_mismatch"
    # The gateway's session may be newer than the one that was verified: it is asked for once more.
    assert gateway.sessions() == 2


class Copying(httpx.BaseTransport):
    """A transport of somebody else's, which makes another Response and drops the extensions."""

    def __init__(self, inner: httpx.BaseTransport) -> None:
        self._inner = inner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._inner.handle_request(request)
        return httpx.Response(answer.status_code, headers=answer.headers, stream=answer.stream)


def test_a_wrapper_that_makes_another_response_loses_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = recorded("chat-whole")
    parts = [answer.answer[at : at + 700] for at in range(0, len(answer.answer), 700)]
    gateway = Gateway(script=lambda _: message(200, *parts))

    def ask() -> httpx.Response:
        carrier = httpx.Client(transport=httpx.MockTransport(gateway))
        sealed = SealedTransport(f"{HOST}/v1", carrier, **options(), policy=Policy(min_level="none"))
        with verifying_client(transport=Copying(sealed), **options()) as client:
            headers = {"content-type": "application/json"}
            return client.post(HOST + answer.endpoint, content=answer.request, headers=headers)

    first = ask()
    assert first.status_code == 200, first.text
    monkeypatch.setattr(countersign_verify.sealed.sessions, "name_of", lambda _: "another session's key")
    assert ask().json()["error"]["code"] == "session_mismatch"


@pytest.mark.parametrize("kind", KINDS)
def test_a_sealed_client_asks_for_measured_by_default(kind: str) -> None:
    gateway = Gateway(level="gpu+cpu")
    heard, proofs = proven(kind, "chat-whole", gateway, policy=Policy())
    assert (heard.status, heard.code, proofs) == (422, "level_too_low", [])
    assert gateway.sealed_requests() == 0


def test_without_pyhpke_the_error_says_what_to_install(tmp_path: Path) -> None:
    program = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "pyhpke" else found(name, *rest)
import countersign_verify
try:
    import countersign_verify.sealed
except ImportError as error:
    print(error)
"""
    source = str(Path(countersign_verify.__file__).parents[1])
    ran = subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": source}, capture_output=True, check=True)
    assert ran.stdout == b"countersign_verify.sealed needs pyhpke: pip install 'countersign-verify[sealed]'\n"
