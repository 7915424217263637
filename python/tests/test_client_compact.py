"""The verifying clients with compact attestations: bundles are fetched from the service that answers, once, and no other one will do."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import anyio
import httpx
import pytest

from compact import compact_answer, name_of
from countersign_verify import Bundles, VerificationError, verifying_async_client, verifying_client
from countersign_verify.clients import client as client_module
from recorded import Recorded, options, recorded
from test_client import HOST, KINDS, LIBRARIES, Heard, Network, ask, ask_recorded, network, refused


@dataclass
class Service:
    """Answers POSTs with one recorded answer, and GETs of bundles with what `serve` makes of their hash."""

    answers: Network
    serve: Callable[[str], Any]
    asked: list[Any] = field(default_factory=list)

    @property
    def library(self) -> ModuleType:
        return self.answers.library

    def __call__(self, request: Any) -> Any:
        if request.method != "GET":
            return self.answers(request)
        self.asked.append(request)
        served = self.serve(request.url.path.rsplit("/", 1)[1])
        if isinstance(served, (bytes, list)) or callable(served):
            return Network(served, "application/json", library=self.library)(request)
        return served


@dataclass
class Dripping(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that never ends soon."""

    parts: list[bytes]
    handed: int = 0

    def __iter__(self) -> Iterator[bytes]:
        for part in self.parts:
            time.sleep(0.02)
            self.handed += 1
            yield part

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self.parts:
            await asyncio.sleep(0.02)
            self.handed += 1
            yield part


def service(answer: Recorded, serve: Callable[[str], Any], library: ModuleType = httpx) -> Service:
    return Service(network(answer, library=library), serve)


def heard_of(kind: str, answer: Recorded, between: Service, **given: Any) -> Heard:
    return ask_recorded(kind, answer, between, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["chat-whole", "messages-whole", "responses-stream-carried", "chat-stream"])
def test_a_compact_answer_is_proven_with_the_bundle_of_its_service(name: str, kind: str, library: ModuleType) -> None:
    whole = recorded(name)
    answer, bundle = compact_answer(whole)
    between = service(answer, lambda _: bundle.encode(), library)
    heard = heard_of(kind, answer, between)
    assert (heard.status, heard.error) == (200, None)
    assert heard.text != b"" if answer.stream else heard.text == answer.answer
    [proof] = heard.proofs
    assert proof.attestation.evidence is not None
    assert json.dumps(proof.attestation.to_dict()["token"]).encode() not in answer.answer
    [asked] = between.asked
    assert str(asked.url) == f"{HOST}/v1/attestation/bundles/{name_of(bundle)}"
    assert asked.content == b""


@pytest.mark.parametrize("kind", KINDS)
def test_a_bundle_is_asked_for_where_the_request_went_and_with_its_headers(kind: str) -> None:
    answer, bundle = compact_answer(recorded("chat-whole"))
    for path, base in (("/a/v1/chat/completions?x=1", "/a/v1"), ("/proxy/chat/completions", "/proxy")):
        between = service(answer, lambda _: bundle.encode())
        headers = {"content-type": "application/json", "authorization": "Bearer sk-1"}
        heard = ask(kind, between, path, answer.request, sent_headers=headers)  # type: ignore[arg-type]
        assert heard.status == 200
        [asked] = between.asked
        assert str(asked.url) == f"{HOST}{base}/attestation/bundles/{name_of(bundle)}"
        assert asked.headers["authorization"] == "Bearer sk-1"
        assert {"content-type", "content-length"} & set(asked.headers) == set()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("serve", "code"),
    [
        (lambda bundle: httpx.Response(404, json={}), "bundle_unavailable"),
        (lambda bundle: httpx.Response(500), "bundle_unavailable"),
        (lambda bundle: httpx.Response(302, headers={"location": "/v1/models"}), "bundle_unavailable"),
        (lambda bundle: b"\xff" + bundle, "bundle_unavailable"),
        (lambda bundle: b" " * (2 * 1024 * 1024 + 1), "bundle_unavailable"),
        (lambda bundle: [bundle[:70]], "bundle_mismatch"),
        (lambda bundle: bundle.replace(b"HOPPER", b"HOPPEL"), "bundle_mismatch"),
        (lambda bundle: b"{}", "bundle_mismatch"),
    ],
)
def test_without_the_bundle_an_answer_is_refused(serve: Callable[[bytes], Any], code: str, kind: str) -> None:
    answer, bundle = compact_answer(recorded("chat-whole"))
    between = service(answer, lambda _: serve(bundle.encode()))
    heard = heard_of(kind, answer, between)
    refused(heard, code)
    assert isinstance(heard.refusals[0].__cause__, VerificationError)
    assert len(between.asked) == 1
    assert heard_of(kind, answer, service(answer, lambda _: bundle.encode())).status == 200


@pytest.mark.parametrize("kind", KINDS)
def test_a_network_that_fails_or_drips_leaves_the_bundle_unavailable(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, bundle = compact_answer(recorded("chat-whole"))

    def breaks(_: str) -> Any:
        raise httpx.ConnectError("away")

    refused(heard_of(kind, answer, service(answer, breaks)), "bundle_unavailable")
    monkeypatch.setattr(client_module, "_BUNDLE_SECONDS", 0.2)
    drips = Dripping([bundle[i : i + 1].encode() for i in range(200)])
    refused(heard_of(kind, answer, service(answer, lambda _: httpx.Response(200, stream=drips))), "bundle_unavailable")
    assert drips.handed < 100


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_whose_bundle_is_away_ends_unproven(kind: str) -> None:
    answer, _ = compact_answer(recorded("chat-stream"))
    heard = heard_of(kind, answer, service(answer, lambda _: httpx.Response(404)))
    assert heard.code == "bundle_unavailable"
    assert heard.proofs == []
    assert b'finish_reason":"stop' not in heard.text


@pytest.mark.parametrize("kind", KINDS)
def test_a_bundle_is_asked_for_once(kind: str) -> None:
    answer, bundle = compact_answer(recorded("chat-whole"))
    between = service(answer, lambda _: bundle.encode())
    proofs: list[Any] = []
    given = {**options(), "on_verified": proofs.append, "transport": httpx.MockTransport(between)}

    def sync() -> list[int]:
        with verifying_client(**given) as client:
            return [client.post(HOST + answer.endpoint, content=answer.request).status_code for _ in range(6)]

    async def asynchronous() -> list[int]:
        async with verifying_async_client(**given) as client:
            posts = [client.post(HOST + answer.endpoint, content=answer.request) for _ in range(6)]
            return sorted(response.status_code for response in await asyncio.gather(*posts))

    # The proof is the same each time, so that it is taken once: it was verified all the same.
    assert (sync() if kind == "sync" else asyncio.run(asynchronous())) == [200, *[422] * 5]
    assert len(proofs) == 1
    assert len(between.asked) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_forged_bundle_does_not_stay(kind: str) -> None:
    answer, bundle = compact_answer(recorded("chat-whole"))
    served = [b"forged", bundle.encode()]
    between = service(answer, lambda _: served.pop(0))
    transport = httpx.MockTransport(between)

    def sync() -> list[int]:
        with verifying_client(**options(), transport=transport) as client:
            return [client.post(HOST + answer.endpoint, content=answer.request).status_code for _ in range(2)]

    async def asynchronous() -> list[int]:
        async with verifying_async_client(**options(), transport=transport) as client:
            return [(await client.post(HOST + answer.endpoint, content=answer.request)).status_code for _ in range(2)]

    assert (sync() if kind == "sync" else asyncio.run(asynchronous())) == [422, 200]


@pytest.mark.parametrize("kind", KINDS)
def test_the_callers_own_bundles_are_taken(kind: str) -> None:
    answer, bundle = compact_answer(recorded("chat-whole"))
    between = service(answer, lambda _: httpx.Response(404))
    bundles = Bundles()
    refused(heard_of(kind, answer, between, bundles=bundles), "bundle_unavailable")
    bundles.add(bundle)
    assert heard_of(kind, answer, between, bundles=bundles).status == 200
    assert between.asked == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("given", "begin"),
    [
        ({}, '"tee":{"batch":true,"challenge":"'),
        ({"compact": True}, '"tee":{"batch":true,"compact":true,"challenge":"'),
        ({"compact": True, "strict": True}, '"tee":{"compact":true,"challenge":"'),
    ],
)
def test_compact_attestations_are_requested_where_the_caller_wants_them(
    given: dict[str, Any], begin: str, kind: str
) -> None:
    answer = recorded("chat-whole")
    between = network(answer)
    ask(kind, between, answer.endpoint, b'{"model":"m"}', **given)
    [sent] = between.seen
    assert sent.content.startswith(b'{"model":"m",' + begin.encode())


def test_a_task_that_is_cancelled_leaves_the_bundle_to_the_others() -> None:
    answer, bundle = compact_answer(recorded("chat-whole"))
    began = asyncio.Event()

    async def answering(request: Any) -> Any:
        if request.method == "GET":
            if not began.is_set():
                began.set()
                await asyncio.sleep(30)
            return httpx.Response(200, content=bundle)
        return network(answer)(request)

    async def main() -> int | None:
        async with verifying_async_client(**options(), transport=httpx.MockTransport(answering)) as client:

            async def post() -> int:
                return (await client.post(HOST + answer.endpoint, content=answer.request)).status_code

            async with anyio.create_task_group() as tasks:
                first = anyio.CancelScope()

                async def post_first() -> None:
                    with first:
                        await post()

                tasks.start_soon(post_first)
                await began.wait()
                second = asyncio.create_task(post())
                await asyncio.sleep(0.2)
                first.cancel()
                return await asyncio.wait_for(second, 10)

    assert asyncio.run(main()) == 200
