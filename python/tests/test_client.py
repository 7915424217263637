"""The verifying clients over a scripted network: what is handed over, what is refused and how, and what is sent."""

from __future__ import annotations

import asyncio
import gzip
import json
import pickle
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import httpx2
import pytest

import countersign_verify.clients.answers
import countersign_verify.clients.client
from countersign_verify import (
    Policy,
    Roots,
    UnprovenAnswerError,
    VerificationError,
    Without,
    verifying_async_client,
    verifying_client,
)
from recorded import AT, Recorded, options, recorded, text

HOST = "http://gateway.test"
WHOLE = ["chat-whole", "completions-whole", "responses-whole", "messages-whole", "embeddings-whole"]
STREAMS = ["chat-stream", "completions-stream", "responses-stream-carried", "messages-stream-carried"]
ENDS = re.compile(rb'"finish_reason":"|"stop_reason":"|response\.completed|\[DONE\]|message_stop')
KINDS = ["sync", "async"]
LIBRARIES = [httpx, httpx2]

Body = bytes | list[bytes] | Callable[[], Iterator[bytes]]


@dataclass
class Network:
    """Answers every request with one recorded answer; keeps what was asked."""

    body: Body
    content_type: str
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    library: ModuleType = httpx
    seen: list[Any] = field(default_factory=list)
    bodies: list[_Parts] = field(default_factory=list)

    def __call__(self, request: Any) -> Any:
        self.seen.append(request)
        headers = {"content-type": self.content_type, **self.headers}
        if isinstance(self.body, bytes):
            return self.library.Response(self.status, headers=headers, content=self.body)
        self.bodies.append(_Parts(self.body))
        return self.library.Response(self.status, headers=headers, stream=self.bodies[-1])

    def calls(self) -> int:
        return len(self.seen)


class _Parts(httpx.SyncByteStream, httpx.AsyncByteStream, httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A body that comes in parts, over a network that both kinds of client can read."""

    def __init__(self, body: list[bytes] | Callable[[], Iterator[bytes]]) -> None:
        self._body = body
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        yield from self._body() if callable(self._body) else self._body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self:
            yield part

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.closed = True


def network(answer: Recorded, body: Body | None = None, **given: Any) -> Network:
    kind = "text/event-stream" if answer.stream else "application/json"
    return Network(**{"body": answer.answer if body is None else body, "content_type": kind, **given})


@dataclass
class Heard:
    """What a client got for one request."""

    status: int
    headers: Any
    text: bytes
    error: Exception | None
    proofs: list[Any]
    refusals: list[UnprovenAnswerError]

    @property
    def code(self) -> str | None:
        if isinstance(self.error, UnprovenAnswerError):
            return self.error.code
        code = json.loads(self.text)["error"]["code"] if self.status == 422 else None
        return code if code is None or isinstance(code, str) else None


def ask(
    kind: str,
    between: Network,
    path: str,
    body: bytes,
    method: str = "POST",
    sent_headers: dict[str, str] | None = None,
    stream: bool = True,
    read: bool = False,
    **given: Any,
) -> Heard:
    """Sends one request through a verifying client of this kind, and reads its answer in parts or (`read`) what was read of it already."""
    proofs: list[Any] = []
    refusals: list[UnprovenAnswerError] = []
    library = between.library
    merged = {
        **options(),
        "on_verified": proofs.append,
        "on_unproven": refusals.append,
        "transport": library.MockTransport(between),
        "library": library,
        **given,
    }
    headers = {"content-type": "application/json"} if sent_headers is None else sent_headers
    heard = Heard(0, None, b"", None, proofs, refusals)
    parts: list[bytes] = []

    def sync() -> None:
        with verifying_client(**merged) as client:
            request = client.build_request(method, HOST + path, content=body, headers=headers)
            response = client.send(request, stream=stream)
            heard.status, heard.headers = response.status_code, response.headers
            try:
                for part in [response.content] if read else response.iter_bytes():
                    parts.append(part)
            finally:
                response.close()

    async def asynchronous() -> None:
        async with verifying_async_client(**merged) as client:
            request = client.build_request(method, HOST + path, content=body, headers=headers)
            response = await client.send(request, stream=stream)
            heard.status, heard.headers = response.status_code, response.headers
            try:
                if read:
                    parts.append(response.content)
                async for part in response.aiter_bytes():
                    parts.extend([] if read else [part])
            finally:
                await response.aclose()

    try:
        if kind == "sync":
            sync()
        else:
            asyncio.run(asynchronous())
    except Exception as error:
        heard.error = error
    heard.text = b"".join(parts)
    return heard


def ask_recorded(kind: str, answer: Recorded, between: Network, **given: Any) -> Heard:
    return ask(kind, between, answer.endpoint, answer.request, **given)


def refused(heard: Heard, code: str) -> None:
    """What was refused before any of it was handed over: one response that nobody retries, told once."""
    assert heard.error is None
    assert heard.status == 422
    assert heard.headers["x-should-retry"] == "false"
    assert heard.headers["content-type"] == "application/json"
    error = json.loads(heard.text)["error"]
    assert error == {"message": str(heard.refusals[0]), "type": "unproven_answer", "param": None, "code": code}
    assert [one.code for one in heard.refusals] == [code]
    assert heard.proofs == []


# Whole answers.


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_answer_is_handed_over_as_it_came_when_it_is_proven(name: str, kind: str, library: ModuleType) -> None:
    answer = recorded(name)
    for body in (answer.answer, [answer.answer[:70], answer.answer[70:]]):
        between = network(answer, body, library=library)
        heard = ask_recorded(kind, answer, between)
        assert (heard.status, heard.error, heard.text) == (200, None, answer.answer)
        assert [proof.exchange.endpoint for proof in heard.proofs] == [answer.endpoint]
        assert [request.content for request in between.seen] == [answer.request]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda body: body.replace(b'"content":"Hello."', b'"content":"Hullo."', 1), "response_mismatch"),
        (lambda body: body[: body.index(b',"attestation"')] + b"}", "attestation_missing"),
        (lambda body: b"[" + body + b"]", "attestation_missing"),
        (lambda body: body[:-200], "attestation_missing"),
        (lambda body: body.replace(b'"nonce": "', b'"nonce": "g', 1), "not_an_attestation"),
        (lambda body: body.replace(b'"attestation":{', b'"attestation":{"raw":"evil",', 1), "not_an_attestation"),
        (lambda body: body.replace(b"Hello.", b"\xff", 1), "attestation_missing"),
    ],
)
def test_a_whole_answer_that_was_changed_is_refused(change: Callable[[bytes], bytes], code: str, kind: str) -> None:
    answer = recorded("chat-whole")
    changed = change(answer.answer)
    assert changed != answer.answer
    between = network(answer, changed)
    heard = ask_recorded(kind, answer, between)
    refused(heard, code)
    assert between.calls() == 1
    cause = heard.refusals[0].__cause__
    assert isinstance(cause, VerificationError) == (code not in ("attestation_missing",))


@pytest.mark.parametrize("kind", KINDS)
def test_the_answer_to_another_request_or_of_another_endpoint_is_refused(kind: str) -> None:
    answer = recorded("chat-whole")
    other = answer.request.replace(b"demo", b"demu")
    refused(ask(kind, network(answer), answer.endpoint, other), "request_mismatch")
    refused(ask(kind, network(answer), "/v1/completions", answer.request), "endpoint_mismatch")
    heard = ask(kind, network(answer), "/a/proxy/v1/chat/completions?x=1", answer.request)
    assert heard.status == 200
    assert ask(kind, network(answer), "/proxy/chat/completions", answer.request).status == 200


@pytest.mark.parametrize("kind", KINDS)
def test_a_refusal_carries_every_check(kind: str) -> None:
    answer = recorded("chat-whole")
    heard = ask_recorded(kind, answer, network(answer), simulated_root=None)
    refused(heard, "simulated_root_refused")
    cause = heard.refusals[0].__cause__
    assert isinstance(cause, VerificationError)
    assert [check.name for check in cause.checks if check.status == "fail"] == ["report_chain", "policy"]
    assert len(cause.checks) >= 20


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ({}, None, None),
        ({"policy": Policy(min_level="gpu")}, "policy_refused", "the level is none; you demand gpu"),
        ({"simulated_root": None, "roots": Roots(device=text("parts/device-root.pem"))}, None, None),
        (
            {"simulated_root": None, "policy": Policy(min_level="none")},
            "simulated_root_refused",
            "the GPU is simulated: pass its root (simulated_root)",
        ),
    ],
)
def test_the_least_level_is_gpu_unless_a_simulated_root_or_a_level_is_named(
    given: dict[str, Any], code: str | None, words: str | None
) -> None:
    answer = recorded("chat-whole")
    heard = ask_recorded("sync", answer, network(answer), without=Without(True, True), **given)
    assert heard.code == code
    levels = [proof.level for proof in heard.proofs]
    assert levels == ([] if code else ["gpu" if "roots" in given else "none"])
    causes = [one.__cause__ for one in heard.refusals]
    failed = [check.name for cause in causes for check in cause.checks if check.status == "fail"]
    assert failed == {None: [], "policy_refused": ["policy"], "simulated_root_refused": ["report_chain"]}[code]
    assert [str(pickle.loads(pickle.dumps(one))) for one in heard.refusals] == [
        f"The attestation of the answer does not verify: {words}." for _ in causes
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_no_proof_is_taken_twice(kind: str) -> None:
    answer = recorded("chat-whole")
    between = network(answer)
    proofs: list[Any] = []

    def sync() -> list[int]:
        transport = httpx.MockTransport(between)
        with verifying_client(**options(), on_verified=proofs.append, transport=transport) as client:
            return [client.post(HOST + answer.endpoint, content=answer.request).status_code for _ in range(2)]

    async def asynchronous() -> list[int]:
        transport = httpx.MockTransport(between)
        async with verifying_async_client(**options(), on_verified=proofs.append, transport=transport) as client:
            posts = [client.post(HOST + answer.endpoint, content=answer.request) for _ in range(2)]
            return sorted(response.status_code for response in await asyncio.gather(*posts))

    assert (sync() if kind == "sync" else asyncio.run(asynchronous())) == [200, 422]
    assert len(proofs) == 1


def test_of_threads_that_get_the_same_proof_one_is_given_it() -> None:
    answer = recorded("chat-whole")
    statuses: list[int] = []
    with verifying_client(**options(), transport=httpx.MockTransport(network(answer))) as client:

        def post() -> None:
            statuses.append(client.post(HOST + answer.endpoint, content=answer.request).status_code)

        threads = [threading.Thread(target=post) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(statuses) == [200, 422, 422, 422, 422, 422]


@pytest.mark.parametrize(
    ("offset_s", "policy", "code"),
    [
        (0, Policy(), None),
        (239, Policy(), None),
        (241, Policy(), "too_old"),
        (241, Policy(max_age_seconds=400), None),
        (-119, Policy(), None),
        (-121, Policy(), "policy_refused"),
        (-121, Policy(max_ahead_seconds=120), None),
        (-121, Policy(max_age_seconds=10), "policy_refused"),
        (0, Policy(min_level="gpu"), "policy_refused"),
    ],
)
def test_a_proof_is_five_minutes_old_at_most_and_one_ahead_or_what_it_is_told(
    offset_s: int, policy: Policy, code: str | None
) -> None:
    answer = recorded("chat-whole")
    given = options(AT + timedelta(seconds=offset_s))
    heard = ask_recorded("sync", answer, network(answer), **given, policy=policy)
    assert (heard.status, heard.code) == (200 if code is None else 422, code)


# What is sent.


class _Proof:
    """Stands in for a verified attestation where a test is about what is asked, not about what is answered."""

    valid = True

    def __init__(self, raw: str) -> None:
        self.exchange = SimpleNamespace(stream=None)
        self.attestation = SimpleNamespace(raw=raw)


@pytest.fixture
def expected(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Accepts every answer, and keeps what each was to be checked with."""
    asked: list[dict[str, Any]] = []

    def accept(_answer: object, **given: Any) -> _Proof:
        asked.append(given)
        return _Proof(str(len(asked)))

    monkeypatch.setattr(countersign_verify.clients.answers, "verify_attestation", accept)
    return asked


ANY = Network(b'{"attestation":{}}', "application/json")


@pytest.mark.parametrize("kind", KINDS)
def test_each_request_gets_a_fresh_challenge_as_its_last_member(kind: str, expected: list[dict[str, Any]]) -> None:
    between = network(recorded("chat-whole"), ANY.body)
    large = b'{"a":"' + b"b" * 100_000 + b'"}'
    for body in (b'{"a":1}', b'{"a":1}', b"{}", b'{ "a" : "}" }\n', b'{"a":{"tee":1}}', large):
        heard = ask(kind, between, "/v1/chat/completions", body)
        assert (heard.status, heard.error) == (200, None)
        sent = between.seen[-1].content
        member = re.search(rb'(,?)"tee":\{"batch":true,"challenge":"([A-Za-z0-9_-]{43})"\}', sent)
        assert member is not None
        assert sent.replace(member.group(), b"") == body
        assert list(json.loads(sent))[-1] == "tee"
        assert expected[-1]["expected"].request == sent.decode()
        assert expected[-1]["expected"].endpoint == "/v1/chat/completions"
        assert int(between.seen[-1].headers["content-length"]) == len(sent)
    challenges = [json.loads(request.content)["tee"]["challenge"] for request in between.seen]
    assert len(set(challenges)) == len(challenges) == 6


@pytest.mark.parametrize(
    ("given", "batch", "most"),
    [
        ({}, True, None),
        ({"strict": True}, None, 1),
        ({"policy": Policy(max_batch=1)}, None, 1),
        ({"strict": True, "policy": Policy(max_batch=2)}, None, 2),
        ({"strict": False, "policy": Policy(max_batch=1)}, True, 1),
        ({"policy": Policy(max_batch=7)}, True, 7),
    ],
)
def test_a_signature_may_be_shared_unless_it_is_told_otherwise(
    given: dict[str, Any], batch: bool | None, most: int | None, expected: list[dict[str, Any]]
) -> None:
    between = network(recorded("chat-whole"), ANY.body)
    ask("sync", between, "/v1/chat/completions", b'{"a":1}', **given)
    assert json.loads(between.seen[0].content)["tee"].get("batch") is batch
    assert expected[0]["policy"].max_batch == most
    assert (expected[0]["policy"].max_age_seconds, expected[0]["policy"].max_ahead_seconds) == (300, 60)


@pytest.mark.parametrize("tee", [b"true", b'{"batch":true}', b'{"challenge":"my own challenge"}', b"null"])
def test_a_tee_of_the_callers_own_is_sent_as_it_is(tee: bytes, expected: list[dict[str, Any]]) -> None:
    between = network(recorded("chat-whole"), ANY.body)
    body = b'{"tee":' + tee + b',"a":1}'
    assert ask("sync", between, "/v1/chat/completions", body).status == 200
    assert between.seen[0].content == body


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "body", [b"", b"x", b"[]", b"null", b"5", b'{"a":NaN}', b'\xef\xbb\xbf{"a":1}', b'{"a":"\xff"}', b"[" * 200_000]
)
def test_what_is_no_json_object_is_not_sent(body: bytes, kind: str) -> None:
    between = network(recorded("chat-whole"))
    refused(ask(kind, between, "/v1/chat/completions", body), "request_not_provable")
    assert between.calls() == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/audio/transcriptions", "/v1/files"])
def test_no_other_type_is_sent_unless_its_path_is_named(path: str, kind: str) -> None:
    between = Network(b"sound", "audio/mpeg")
    form = {"content-type": "multipart/form-data; boundary=b"}
    refused(ask(kind, between, path, b"--b--", sent_headers=form), "endpoint_not_proven")
    refused(
        ask(kind, between, path, b"--b--", sent_headers=form, unproven_paths=["/v1", "v1" + path[3:]]),
        "endpoint_not_proven",
    )
    assert between.calls() == 0
    heard = ask(kind, between, path, b"--b--", sent_headers=form, unproven_paths=[path])
    assert (heard.status, heard.text, between.calls()) == (200, b"sound", 1)


@pytest.mark.parametrize("kind", KINDS)
def test_of_gets_only_lists_of_models_and_attestations_pass(kind: str) -> None:
    between = Network(b"{}", "application/json")
    for path in ("/v1/models", "/v1/models/a", "/v1/models/", "/v1/chat/completions/c-1/attestation"):
        assert ask(kind, between, path, b"", method="GET").status == 200
    for path in (
        "/v1/chat/completions/c-1",
        "/v1/responses/r-1",
        "/v1/files/f-1/content",
        "/v1/models/a/b",
    ):
        refused(ask(kind, between, path, b"", method="GET"), "endpoint_not_proven")
    refused(ask(kind, between, "/v1/files/f-1", b"", method="DELETE"), "endpoint_not_proven")
    assert ask(kind, between, "/v1/files/f-1", b"", method="HEAD").status == 200
    assert between.calls() == 5
    streamed = Network([b'{"data":', b"[]}"], "application/json")
    assert ask(kind, streamed, "/v1/models", b"", method="GET", stream=False, read=True).text == b'{"data":[]}'


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", [400, 404, 422, 429, 500, 503])
def test_errors_of_the_server_are_handed_over_as_they_are(status: int, kind: str) -> None:
    between = Network(b'{"error":{"message":"no"}}', "application/json", status, {"x-should-retry": "true"})
    heard = ask(kind, between, "/v1/chat/completions", b"{}")
    assert (heard.status, heard.text, heard.headers["x-should-retry"]) == (
        status,
        b'{"error":{"message":"no"}}',
        "true",
    )
    assert heard.refusals == []


# Streams.


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_comes_as_it_is_made_and_its_end_when_it_is_proven(name: str, kind: str, library: ModuleType) -> None:
    answer = recorded(name)
    log: list[str] = []
    proofs: list[Any] = []
    events = [event + b"\n\n" for event in answer.answer.split(b"\n\n") if event]

    def parts() -> Iterator[bytes]:
        for event in events:
            log.append("sent")
            yield event

    def proven(proof: Any) -> None:
        log.append("proof")
        proofs.append(proof)

    def heard(part: bytes) -> None:
        if part:
            log.append("end" if ENDS.search(part) else "heard")

    given = {**options(), "library": library, "on_verified": proven}
    between = network(answer, parts, library=library)

    def sync() -> None:
        client = verifying_client(**given, transport=library.MockTransport(between))
        with client, client.stream("POST", HOST + answer.endpoint, content=answer.request) as response:
            for part in response.iter_raw():
                heard(part)

    async def asynchronous() -> None:
        client = verifying_async_client(**given, transport=library.MockTransport(between))
        async with client, client.stream("POST", HOST + answer.endpoint, content=answer.request) as response:
            async for part in response.aiter_raw():
                heard(part)

    if kind == "sync":
        sync()
    else:
        asyncio.run(asynchronous())
    early = next(i for i, event in enumerate(events) if ENDS.search(event) or b'"tool_use"' in event)
    assert log == ["sent", "heard"] * early + ["sent"] * (len(events) - early) + ["proof", "end"]
    assert proofs[0].exchange.stream is not None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_is_the_same_however_it_is_cut(name: str, kind: str) -> None:
    answer = recorded(name)
    whole = ask_recorded(kind, answer, network(answer))
    assert whole.error is None
    assert whole.text == answer.answer
    for size in (1, 7, 64):
        cut = [answer.answer[at : at + size] for at in range(0, len(answer.answer), size)]
        heard = ask_recorded(kind, answer, network(answer, cut))
        assert (heard.error, heard.text) == (None, answer.answer)
    framed = b"\xef\xbb\xbf: hi\r\n" + answer.answer.replace(b"\n", b"\r\n").replace(b"data: ", b"data:")
    heard = ask_recorded(kind, answer, network(answer, framed))
    assert (heard.error, heard.text) == (None, answer.answer)


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_event_is_handed_on_as_a_small_one_is(
    kind: str, expected: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_thread: list[str] = []

    async def counted(call: Callable[..., Any], *given: Any) -> Any:
        in_thread.append(getattr(call, "__name__", ""))
        return call(*given)

    monkeypatch.setattr(countersign_verify.clients.client, "_in_thread", counted)
    large = b'data: {"choices":[{"delta":{"content":"' + b"a" * 100_000 + b'"}}]}\n\n'
    end = b'data: {"choices":[{"finish_reason":"stop"}],"attestation":{"raw":"' + b"b" * 100_000 + b'"}}\n\n'
    body = large + end + b"data: [DONE]\n\n"
    between = Network([body[at : at + 1000] for at in range(0, len(body), 1000)], "text/event-stream")
    heard = ask(kind, between, "/v1/chat/completions", b'{"stream":true}')
    assert (heard.error, heard.text, len(heard.proofs), len(expected)) == (None, body, 1, 1)
    # Of two events of 100 KB each, the parts after the first 32 KB.
    assert in_thread.count("feed_all") > 100 if kind == "async" else in_thread == []
    malformed = Network([large, b"data: {" + b"c" * 100_000 + b"\n\n"], "text/event-stream")
    heard = ask(kind, malformed, "/v1/chat/completions", b'{"stream":true}')
    assert (heard.code, heard.text) == ("stream_malformed", large)


CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"


def written(endpoint: str, event: str) -> bytes:
    name = "" if endpoint == CHAT else f"event: {json.loads(event)['type']}\n"
    return f"{name}data: {event}\n\n".encode()


@pytest.mark.parametrize(
    ("endpoint", "event", "passes"),
    [
        (CHAT, "{}", True),
        (CHAT, "null", True),
        (CHAT, '{"choices":[]}', True),
        (CHAT, '{"choices":[{"finish_reason":null}]}', True),
        (CHAT, '{"choices":[{"finish_reason":""}],"error":null}', True),
        (CHAT, '{"choices":[{},null,"a",{"finish_reason":"stop"}]}', False),
        (CHAT, '{"choices":[{"finish_reason":0}]}', False),
        (CHAT, '{"choices":[],"error":false}', False),
        (CHAT, '{"choices":[],"error":{}}', False),
        (CHAT, '{"choices":[],"type":"error"}', False),
        (CHAT, '{"choices":{}}', False),
        (CHAT, "[DONE]", False),
        (RESPONSES, '{"type":"response.output_text.delta"}', True),
        (RESPONSES, '{"type":"response.completed"}', False),
        (RESPONSES, '{"type":"response.incomplete"}', False),
        (RESPONSES, '{"type":"response.failed"}', False),
        (RESPONSES, '{"type":"error"}', False),
        (RESPONSES, '{"type":"response.output_text.delta","error":"a"}', False),
        (MESSAGES, '{"type":"ping"}', True),
        (MESSAGES, '{"type":"message_delta","delta":{"stop_reason":null}}', True),
        (MESSAGES, '{"type":"message_delta","delta":{"stop_reason":"end_turn"}}', False),
        (MESSAGES, '{"type":"message_stop"}', False),
        (MESSAGES, '{"type":"error"}', False),
        (CHAT, '{"choices":[{"delta":{"content":"a","tool_calls":[],"function_call":null}}]}', True),
        (CHAT, '{"choices":[{"delta":{"tool_calls":null}},null,{"delta":null}]}', True),
        (CHAT, '{"choices":[{},{"delta":{"tool_calls":[{"index":0}]}}]}', False),
        (CHAT, '{"choices":[{"delta":{"tool_calls":{}}}]}', False),
        (CHAT, '{"choices":[{"delta":{"function_call":{"name":"a"}}}]}', False),
        (RESPONSES, '{"type":"response.created","response":{"output":[],"tools":[{"type":"mcp"}]}}', True),
        (RESPONSES, '{"type":"response.output_item.added","item":{"type":"message"}}', True),
        (RESPONSES, '{"type":"response.output_item.done","item":{"type":"reasoning"}}', True),
        (RESPONSES, '{"type":"response.output_item.added","item":{"type":"function_call"}}', False),
        (RESPONSES, '{"type":"response.output_item.done","item":{"type":"custom_tool_call"}}', False),
        (RESPONSES, '{"type":"response.output_item.added","item":{"type":"mcp_approval_request"}}', False),
        (RESPONSES, '{"type":"response.output_item.added","item":{"type":"computer_call"}}', False),
        (RESPONSES, '{"type":"response.output_item.added","item":[]}', False),
        (RESPONSES, '{"type":"response.in_progress","response":{"output":[{"type":"function_call"}]}}', False),
        (RESPONSES, '{"type":"response.in_progress","response":{"output":{"type":"function_call"}}}', False),
        (RESPONSES, '{"type":"response.function_call_arguments.delta","delta":"a"}', False),
        (RESPONSES, '{"type":"response.custom_tool_call_input.done"}', False),
        (RESPONSES, '{"type":"response.mcp_call_arguments.delta"}', False),
        (MESSAGES, '{"type":"message_start","message":{"content":[]}}', True),
        (MESSAGES, '{"type":"message_start","message":{"content":[{"type":"text"},{"type":"tool_use"}]}}', False),
        (MESSAGES, '{"type":"content_block_start","content_block":{"type":"text"}}', True),
        (MESSAGES, '{"type":"content_block_start","content_block":{"type":"redacted_thinking"}}', True),
        (MESSAGES, '{"type":"content_block_start","content_block":{"type":"tool_use"}}', False),
        (MESSAGES, '{"type":"content_block_start","content_block":{"type":"server_tool_use"}}', False),
        (MESSAGES, '{"type":"content_block_delta","delta":{"type":"signature_delta"}}', True),
        (MESSAGES, '{"type":"content_block_delta","delta":{"type":"input_json_delta"}}', False),
        (MESSAGES, '{"type":"content_block_stop","index":0}', True),
    ],
)
def test_what_ends_a_clients_reading_or_calls_a_tool_is_held(endpoint: str, event: str, passes: bool) -> None:
    first = written(endpoint, '{"type":"ping"}') if endpoint != CHAT else written(CHAT, '{"choices":[]}')
    between = Network([first, written(endpoint, event)], "text/event-stream")
    heard = ask("sync", between, endpoint, b'{"stream":true}')
    assert (heard.code, heard.text) == ("attestation_missing", first + (written(endpoint, event) if passes else b""))


@pytest.mark.parametrize("kind", KINDS)
def test_a_tool_call_reaches_the_application_when_it_is_proven(kind: str, expected: list[dict[str, Any]]) -> None:
    words = written(CHAT, '{"choices":[{"delta":{"content":"a"}}]}')
    call = written(CHAT, '{"choices":[{"delta":{"tool_calls":[{"function":{"name":"wire_money"}}]}}]}')
    for rest, code, handed in (
        ([call, words], "attestation_missing", words),
        ([call, words, b'data: {"attestation":{}}\n\n'], None, None),
    ):
        heard = ask(kind, Network([words, *rest], "text/event-stream"), CHAT, b'{"stream":true}')
        assert (heard.code, heard.text) == (code, b"".join([words, *rest]) if handed is None else handed)
    assert len(expected) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_passes_once_an_end_was_seen(kind: str, expected: list[dict[str, Any]]) -> None:
    early = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
    ends = b'data: {"choices":[{"finish_reason":"stop"}]}\n\n'
    late = b'data: {"choices":[]}\n\ndata: {"choices":[{"delta":{"content":"EVIL"}}]}\n\n'
    between = Network([early, ends, late], "text/event-stream")
    heard = ask(kind, between, "/v1/chat/completions", b'{"stream":true}')
    assert (heard.code, heard.text, expected) == ("attestation_missing", early, [])
    proven = Network([early, ends, late, b'data: {"attestation":{}}\n\n'], "text/event-stream")
    heard = ask(kind, proven, "/v1/chat/completions", b'{"stream":true}')
    assert (heard.error, heard.text) == (None, early + ends + late + b'data: {"attestation":{}}\n\n')


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_of_a_stream_is_no_whole_answer(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def accept(_answer: object, **_given: Any) -> _Proof:
        proof = _Proof("a")
        proof.exchange.stream = object()
        return proof

    monkeypatch.setattr(countersign_verify.clients.answers, "verify_attestation", accept)
    between = Network(b'{"choices":[],"attestation":{}}', "application/json")
    refused(ask(kind, between, "/v1/chat/completions", b"{}"), "response_mismatch")


CHANGED = [
    ("a delta that was changed", lambda body: body.replace(b'"Hel', b'"Hol', 1), "stream_mismatch"),
    (
        "a delta that was added",
        lambda body: re.sub(rb"(data: [^\n]*lo[^\n]*\n\n)", rb"\1\1", body, count=1),
        "stream_mismatch",
    ),
    (
        "a delta that was dropped",
        lambda body: re.sub(rb'data: [^\n]*"lo[^\n]*\n\n', b"", body, count=1),
        "stream_mismatch",
    ),
    (
        "a proof that has a member twice",
        lambda body: body.replace(b'"attestation":{', b'"attestation":{"raw":"e",'),
        "not_an_attestation",
    ),
    (
        "a delta under a name",
        lambda body: body.replace(b"data: ", b"event: thread.x\ndata: ", 2).replace(b"event: thread.x\n", b"", 1),
        "stream_malformed",
    ),
    ("another field", lambda body: body.replace(b"\n\ndata", b"\n\nid: 1\ndata", 1), "stream_malformed"),
    ("what is no JSON", lambda body: body.replace(b"\n\n", b"\n\ndata: {\n\n", 1), "stream_malformed"),
    ("what is not UTF-8", lambda body: body.replace(b"\n\n", b'\n\ndata: {"a":"\xff"}\n\n', 1), "stream_malformed"),
    ("no proof", lambda body: re.sub(rb',"attestation":.*?\}(?=\n\n)', b"}", body, count=1), "attestation_missing"),
    (
        "no end",
        lambda body: body[
            : body.index(
                b'data: {"id":"chatcmpl-2","object":"chat.completion.chunk","created":1748779140,"model":"demo","choices":[{"index":0,"delta":{},'
            )
        ],
        "attestation_missing",
    ),
    ("the end alone", lambda body: body[: body.index(b"\n\n") + 2] + b"data: [DONE]\n\n", "attestation_missing"),
    (
        "what only looks like the end",
        lambda body: body[: body.index(b"\n\n") + 2] + b"data: [DONE] \n\n",
        "stream_malformed",
    ),
    (
        "a finish that is no text",
        lambda body: body[: body.index(b"\n\n") + 2] + b'data: {"choices":[{"index":0,"finish_reason":1.0}]}\n\n',
        "attestation_missing",
    ),
    (
        "an error that says nothing",
        lambda body: body[: body.index(b"\n\n") + 2] + b'data: {"error":false,"choices":[]}\n\n',
        "attestation_missing",
    ),
    (
        "an error that is zero",
        lambda body: body[: body.index(b"\n\n") + 2] + b'data: {"error":0.0}\n\n',
        "attestation_missing",
    ),
    (
        "choices that are no list",
        lambda body: body[: body.index(b"\n\n") + 2] + b'data: {"choices":{"0":{"index":0}}}\n\n',
        "attestation_missing",
    ),
    (
        "a delta hidden behind a byte order mark",
        lambda body: body.replace(b"\n\ndata", b'\n\n\xef\xbb\xbfdata: {"choices":[]}\n\ndata', 1),
        "stream_malformed",
    ),
    (
        "a delta hidden in a comment",
        lambda body: body.replace(b"\n\n", '\n\n:\u2028data: {"choices":[]}\n\n'.encode(), 1),
        "stream_malformed",
    ),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("change", "code"), [one[1:] for one in CHANGED], ids=[one[0] for one in CHANGED])
def test_no_stream_ends_that_is_not_proven(change: Callable[[bytes], bytes], code: str, kind: str) -> None:
    answer = recorded("chat-stream")
    changed = change(answer.answer)
    assert changed != answer.answer
    first = changed.index(b"\n\n") + 2
    between = network(answer, [changed[:first], changed[first:]])
    heard = ask_recorded(kind, answer, between)
    assert isinstance(heard.error, UnprovenAnswerError)
    assert (heard.error.code, [one.code for one in heard.refusals], heard.proofs) == (code, [code], [])
    assert heard.text.startswith(b"data: ")
    assert ENDS.search(heard.text) is None
    assert between.calls() == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["responses-stream-carried", "messages-stream-carried"])
@pytest.mark.parametrize(
    ("change", "code"),
    [
        (
            lambda body: re.sub(rb"event: [^\n]*\n(data: [^\n]*\"lo)", rb"event: message_stop\n\1", body, count=1),
            "stream_malformed",
        ),
        (lambda body: re.sub(rb"event: [^\n]*\n(data: [^\n]*\"lo)", rb"\1", body, count=1), "stream_malformed"),
        (lambda body: body + b'event: error\ndata: {"type":"error"}\n\n', "stream_mismatch"),
        (lambda body: body.replace(b'"Hel', b'"Hol', 1), "stream_mismatch"),
    ],
)
def test_no_stream_of_named_events_ends_that_is_not_proven(
    change: Callable[[bytes], bytes], code: str, name: str, kind: str
) -> None:
    answer = recorded(name)
    changed = change(answer.answer)
    assert changed != answer.answer
    heard = ask_recorded(kind, answer, network(answer, changed))
    assert isinstance(heard.error, UnprovenAnswerError)
    assert (heard.error.code, heard.proofs) == (code, [])
    assert ENDS.search(heard.text) is None
    assert (b'"lo' in heard.text) == (code != "stream_malformed")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "attestation_missing"),
        (b": nothing yet\n\n", "attestation_missing"),
        (b"data: {\n\n", "stream_malformed"),
        (b'data: {"choices":[{"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n', "attestation_missing"),
    ],
)
def test_a_stream_of_which_nothing_may_be_handed_over_is_refused_with_a_response(
    body: bytes, code: str, kind: str
) -> None:
    answer = recorded("chat-stream")
    refused(ask_recorded(kind, answer, network(answer, [body])), code)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_that_is_read_whole_before_it_is_handed_over_is_refused_with_a_response(kind: str) -> None:
    answer = recorded("chat-stream")
    heard = ask_recorded(kind, answer, network(answer, answer.answer.replace(b'"Hel', b'"Hol', 1)), stream=False)
    refused(heard, "stream_mismatch")
    heard = ask_recorded(kind, answer, network(answer), stream=False)
    assert (heard.status, heard.text, len(heard.proofs)) == (200, answer.answer, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_is_no_whole_answer_and_a_whole_answer_no_stream(kind: str) -> None:
    stream, whole = recorded("chat-stream"), recorded("chat-whole")
    refused(ask(kind, network(stream), stream.endpoint, whole.request), "response_not_provable")
    refused(ask(kind, network(whole), whole.endpoint, stream.request), "response_not_provable")
    refused(ask(kind, network(stream), "/v1/images/generations", stream.request), "response_not_provable")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("status", "content_type"),
    [
        (204, "text/event-stream"),
        (205, "text/event-stream"),
        (201, "application/json"),
        (304, "application/json"),
        (307, "application/json"),
        (200, "text/plain"),
        (200, "text/event-streams"),
        (200, ""),
    ],
)
def test_no_answer_of_another_status_or_type_is_taken_for_a_proven_one(
    status: int, content_type: str, kind: str
) -> None:
    answer = recorded("chat-stream")
    between = network(answer, status=status, content_type=content_type)
    refused(ask_recorded(kind, answer, between), "response_not_provable")


@pytest.mark.parametrize("kind", KINDS)
def test_who_leaves_early_closes_the_connection_and_proves_nothing(kind: str) -> None:
    answer = recorded("chat-stream")
    events = [event + b"\n\n" for event in answer.answer.split(b"\n\n") if event]
    body = _Parts(events)
    proofs: list[Any] = []

    def answering(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=body)

    given = {**options(), "on_verified": proofs.append, "transport": httpx.MockTransport(answering)}

    def sync() -> None:
        client = verifying_client(**given)
        with client, client.stream("POST", HOST + answer.endpoint, content=answer.request) as response:
            next(response.iter_lines())
            assert not body.closed
        assert response.elapsed > timedelta(0)

    async def asynchronous() -> None:
        client = verifying_async_client(**given)
        async with client, client.stream("POST", HOST + answer.endpoint, content=answer.request) as response:
            async for _ in response.aiter_lines():
                break
            assert not body.closed

    if kind == "sync":
        sync()
    else:
        asyncio.run(asynchronous())
    assert body.closed
    assert proofs == []


# Encodings, limits, and a network that fails.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["chat-whole", "chat-stream"])
def test_an_answer_may_come_as_gzip_and_in_no_other_encoding(name: str, kind: str) -> None:
    answer = recorded(name)
    packed = gzip.compress(answer.answer)
    for parts in ([packed], [packed[at : at + 5] for at in range(0, len(packed), 5)]):
        between = network(answer, parts, headers={"content-encoding": "gzip"})
        heard = ask_recorded(kind, answer, between)
        assert (heard.status, heard.error, heard.text) == (200, None, answer.answer)
        assert "content-encoding" not in heard.headers
        assert between.seen[0].headers["accept-encoding"] == "gzip"
    for encoding in ("br", "zstd", "gzip, gzip", "deflate", "nonsense"):
        heard = ask_recorded(kind, answer, network(answer, [packed], headers={"content-encoding": encoding}))
        refused(heard, "response_not_provable")
    heard = ask_recorded(kind, answer, network(answer, [b"no gzip"], headers={"content-encoding": "gzip"}))
    refused(heard, "response_broken")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_no_more_is_kept_than_the_limit(encoding: str, kind: str) -> None:
    whole, stream = recorded("chat-whole"), recorded("chat-stream")
    for answer, code in ((whole, "response_too_large"), (stream, "stream_too_large")):
        body = gzip.compress(answer.answer) if encoding == "gzip" else answer.answer
        headers = {"content-encoding": encoding}
        at_limit = ask_recorded(
            kind, answer, network(answer, [body], headers=headers), max_stream_bytes=len(answer.answer)
        )
        assert (at_limit.status, at_limit.error) == (200, None)
        below = network(answer, [body], headers=headers)
        refused(ask_recorded(kind, answer, below, max_stream_bytes=len(answer.answer) - 1), code)


def test_of_a_small_body_that_unpacks_to_a_large_one_no_more_is_unpacked_than_the_limit() -> None:
    answer = recorded("chat-whole")
    packed = gzip.compress(b" " * 2**28)
    began = time.perf_counter()
    heard = ask_recorded(
        "sync", answer, network(answer, [packed], headers={"content-encoding": "gzip"}), max_stream_bytes=2**20
    )
    refused(heard, "response_too_large")
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_that_breaks_off_is_refused_and_a_timeout_is_the_callers_own(kind: str) -> None:
    for name in ("chat-whole", "chat-stream"):
        answer = recorded(name)
        for error, after in (
            (httpx.ReadError("gone"), 20),
            (httpx.RemoteProtocolError("gone"), 20),
            (httpx.ReadTimeout("late"), 20),
        ):

            def parts(answer: Recorded = answer, error: Exception = error, after: int = after) -> Iterator[bytes]:
                yield answer.answer[:after]
                raise error

            between = network(answer, parts)
            heard = ask_recorded(kind, answer, between)
            assert all(body.closed for body in between.bodies)
            if isinstance(error, httpx.TimeoutException):
                assert heard.error is error
                assert heard.refusals == []
            else:
                refused(heard, "response_broken")
                assert heard.refusals[0].__cause__ is error

    answer = recorded("chat-stream")

    def late() -> Iterator[bytes]:
        yield answer.answer[: answer.answer.index(b"\n\n") + 2]
        raise httpx.ReadError("gone")

    heard = ask_recorded(kind, answer, network(answer, late))
    assert heard.code == "response_broken"
    assert heard.text.startswith(b"data: ")


@pytest.mark.parametrize("kind", KINDS)
def test_a_network_that_fails_before_an_answer_is_as_in_plain_httpx(kind: str) -> None:
    def failing(_request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("nobody listens")

    answer = recorded("chat-whole")
    heard = ask_recorded(kind, answer, network(answer), transport=httpx.MockTransport(failing))
    assert isinstance(heard.error, httpx.ConnectError)


# The clients themselves.


def test_a_loop_is_not_held_while_an_answer_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def slow(_answer: object, **_given: Any) -> _Proof:
        threads.append(threading.current_thread())
        time.sleep(1.5)
        return _Proof("a")

    monkeypatch.setattr(countersign_verify.clients.answers, "verify_attestation", slow)
    called: list[threading.Thread] = []

    async def run() -> float:
        longest, last, done = 0.0, time.perf_counter(), asyncio.Event()

        async def tick() -> None:
            nonlocal longest, last
            while not done.is_set():
                await asyncio.sleep(0.005)
                longest, last = max(longest, time.perf_counter() - last), time.perf_counter()

        ticking = asyncio.create_task(tick())
        await asyncio.sleep(0.02)
        transport = httpx.MockTransport(Network(b'{"attestation":{}}', "application/json"))
        client = verifying_async_client(
            transport=transport, on_verified=lambda _: called.append(threading.current_thread())
        )
        async with client:
            assert (await client.post(f"{HOST}/v1/chat/completions", json={})).status_code == 200
        done.set()
        await ticking
        return longest

    assert asyncio.run(run()) < 1.2
    assert threads[0] is not threading.main_thread()
    assert called == [threading.main_thread()]


def test_hooks_cookies_redirects_and_times_are_those_of_httpx() -> None:
    answer = recorded("chat-whole")
    heard: list[str] = []

    def answering(request: httpx.Request) -> httpx.Response:
        if request.url.path.startswith("/old"):
            return httpx.Response(307, headers={"location": f"{HOST}{answer.endpoint}"})
        return httpx.Response(
            200,
            headers=[("content-type", "application/json; charset=latin-1"), ("set-cookie", "a=b")],
            stream=_Parts([answer.answer]),
        )

    hooks = {
        "request": [lambda request: heard.append(request.url.path)],
        "response": [lambda response: response.read()],
    }
    given = {**options(), "transport": httpx.MockTransport(answering), "follow_redirects": True}
    with verifying_client(**given, event_hooks=hooks, base_url=HOST, headers={"x-own": "1"}) as client:
        response = client.post(f"/old{answer.endpoint}", content=answer.request)
        assert (response.status_code, response.content) == (200, answer.answer)
        assert response.headers["content-type"] == "application/json"
        assert response.json()["choices"][0]["message"]["content"] == "Hello."
        assert [one.status_code for one in response.history] == [307]
        assert (response.cookies["a"], client.cookies["a"], response.request.headers["x-own"]) == ("b", "b", "1")
        assert response.elapsed > timedelta(0)
    assert heard == [f"/old{answer.endpoint}", answer.endpoint]


def test_an_option_that_cannot_be_used_is_told_at_once() -> None:
    for given, message in (
        ({"expected": object()}, "expected"),
        ({"simulated_root": "no PEM"}, "simulated_root"),
        ({"policy": Policy(max_age_seconds=-1)}, "max_age_seconds"),
        ({"nonsense": 1}, "nonsense"),
        ({"unproven_paths": "/v1/files"}, "unproven_paths"),
    ):
        for make in (verifying_client, verifying_async_client):
            with pytest.raises(TypeError, match=message):
                make(**given)


def test_the_clients_are_those_of_their_library() -> None:
    assert isinstance(verifying_client(), httpx.Client)
    assert isinstance(verifying_async_client(), httpx.AsyncClient)
    assert isinstance(verifying_client(library=httpx2), httpx2.Client)
    assert isinstance(verifying_async_client(library=httpx2), httpx2.AsyncClient)


def test_the_message_of_an_error_holds_nothing_that_a_server_sent() -> None:
    answer = recorded("chat-whole")
    changed = answer.answer.replace(b'"attestation":{', b'"attestation":{"SECRET":1,"SECRET":2,', 1)
    heard = ask_recorded("sync", answer, network(answer, changed))
    assert b"SECRET" not in heard.text
    assert "SECRET" not in str(heard.refusals[0])
