"""
What openai, langchain-openai and anthropic show of streams of the grammar in streams.py, beside what docs/attestation.md §3 says that is
signed of them. Each client runs in this process, over a transport that has the stream and no network. An argument a line of standard
input, `{"seed", "from", "count"}`, and a line of what was found.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import anthropic
import httpx
import httpx2
import openai
from fold_driver import folded
from langchain_core.messages import AIMessageChunk
from langchain_openai import ChatOpenAI
from openai.lib.streaming.chat import ChatCompletionStreamState
from serving import serve
from streams import Payload, Stream, listed, stream_of

warnings.simplefilter("ignore")
Json = Any


@dataclass
class Shown:
    """What a person or a program gets to see of one choice, one response or one message."""

    text: str = ""
    refusal: str = ""
    thinking: str = ""
    calls: list[tuple[str | None, str | None, str]] = field(default_factory=list)
    """Id, name and arguments of each."""
    finish: str | None = None
    role: str | None = None


# What is signed, by the fold.


def text_of(content: Json, kind: str | None = None) -> str:
    """Of a content: itself, or the texts of its parts, of one type or of all."""
    if isinstance(content, str):
        return content
    parts = [part for part in listed(content) if isinstance(part, dict) and kind in (None, part.get("type"))]
    return "".join(part["text"] for part in parts if isinstance(part.get("text"), str))


def call_of(call: Json) -> tuple[str | None, str | None, str]:
    function = call.get("function") or call.get("custom") or {}
    return call.get("id"), function.get("name"), function.get("arguments", function.get("input")) or ""


def signed_chat(answer: Json) -> list[Shown]:
    return [
        Shown(
            text=text_of(one["message"].get("content"), "text"),
            refusal=one["message"].get("refusal") or "",
            calls=[call_of(call) for call in one["message"].get("tool_calls") or []],
            finish=one.get("finish_reason") or None,
            role=one["message"].get("role"),
        )
        for one in listed(answer.get("choices"))
    ]


def signed_completions(answer: Json) -> list[Shown]:
    return [
        Shown(text=one.get("text") or "", finish=one.get("finish_reason") or None)
        for one in listed(answer.get("choices"))
    ]


def signed_responses(answer: Json) -> list[Shown]:
    shown = Shown(finish=answer.get("status"))
    for item in listed(answer.get("output")):
        if not isinstance(item, dict):
            continue
        kind = item.get("type")
        for part in listed(item.get("content")):
            if not isinstance(part, dict) or kind != "message":
                continue
            if part.get("type") not in ("reasoning", "reasoning_text"):
                shown.text += text_of([part])
            shown.refusal += part["refusal"] if isinstance(part.get("refusal"), str) else ""
        if kind == "reasoning":
            parts = listed(item.get("summary"))
            shown.thinking += "".join(text_of([part]) for part in parts)
        if kind in ("function_call", "custom_tool_call"):
            text = item.get("arguments" if kind == "function_call" else "input") or ""
            shown.calls.append((item.get("call_id"), item.get("name"), text))
    return [shown]


def signed_messages(answer: Json) -> list[Shown]:
    shown = Shown(finish=answer.get("stop_reason"), role=answer.get("role"))
    for block in listed(answer.get("content")):
        kind = block.get("type")
        if kind == "text":
            shown.text += block.get("text") or ""
        if kind == "thinking":
            shown.thinking += block.get("thinking") or ""
        if kind == "tool_use":
            shown.calls.append((block.get("id"), block.get("name"), json.dumps(block.get("input"), sort_keys=True)))
    return [shown]


# What the clients show.


def body_of(stream: Stream) -> bytes:
    events = [
        (b"" if name is None else f"event: {name}\n".encode()) + b"data: " + text.encode() + b"\n\n"
        for name, text in stream.events()
    ]
    return b"".join(events) + (b"" if stream.named else b"data: [DONE]\n\n")


BODY: dict[str, bytes] = {}
"""The stream that the next request gets."""
HEADERS = {"content-type": "text/event-stream"}


def _http(library: Any) -> Any:
    return library.Client(
        transport=library.MockTransport(lambda _: library.Response(200, headers=HEADERS, content=BODY["next"]))
    )


OPENAI = openai.OpenAI(api_key="k", base_url="http://localhost/v1", http_client=_http(httpx), max_retries=0)
ANTHROPIC = anthropic.Anthropic(api_key="k", base_url="http://localhost", http_client=_http(httpx2), max_retries=0)
CHAT_MODEL = ChatOpenAI(model="m", api_key="k", base_url="http://localhost/v1", http_client=_http(httpx), max_retries=0)
RESPONSES_MODEL = CHAT_MODEL.model_copy(update={"use_responses_api": True})


def _request(stream: Stream) -> Json:
    return {name: value for name, value in stream.request.items() if name != "stream"}


def openai_chunks(stream: Stream) -> list[Shown]:
    """A loop over the chunks, as openai's own documentation has it."""
    shown: dict[int, Shown] = {}
    calls: dict[tuple[int, int], list[Any]] = {}
    for chunk in OPENAI.chat.completions.create(**_request(stream), stream=True):
        for choice in chunk.choices or []:
            one = shown.setdefault(choice.index, Shown())
            delta = choice.delta
            one.finish = choice.finish_reason or one.finish
            if delta is None:
                continue
            one.text += text_of(delta.content, "text")
            one.refusal += delta.refusal or ""
            one.role = delta.role or one.role
            for call in delta.tool_calls or []:
                known = calls.get((choice.index, call.index))
                function = call.function or getattr(call, "custom", None)
                more = getattr(function, "arguments", None) or ""
                if known is None:
                    calls[choice.index, call.index] = [call.id, getattr(function, "name", None), more]
                else:
                    known[0] = call.id or known[0]
                    known[1] = getattr(function, "name", None) or known[1]
                    known[2] += more
    for (index, _), call in sorted(calls.items()):
        shown[index].calls.append(tuple(call))
    return [shown[index] for index in sorted(shown)]


def openai_state(stream: Stream) -> list[Shown]:
    """client.chat.completions.stream, and the completion that it ends with."""
    with OPENAI.chat.completions.stream(**_request(stream)) as events:
        for _ in events:
            pass
        return signed_chat(events.get_final_completion().to_dict())


def openai_own_state(stream: Stream) -> list[Shown]:
    state: Any = ChatCompletionStreamState()
    for chunk in OPENAI.chat.completions.create(**_request(stream), stream=True):
        state.handle_chunk(chunk)
    return signed_chat(state.get_final_completion().to_dict())


def openai_completions(stream: Stream) -> list[Shown]:
    shown: dict[int, Shown] = {}
    for chunk in OPENAI.completions.create(**_request(stream), stream=True):
        for choice in chunk.choices or []:
            one = shown.setdefault(choice.index, Shown())
            one.text += choice.text or ""
            one.finish = choice.finish_reason or one.finish
    return [shown[index] for index in sorted(shown)]


def openai_response(stream: Stream) -> list[Shown]:
    """client.responses.stream, and the response that it ends with."""
    with OPENAI.responses.stream(model="m", input="p") as events:
        for _ in events:
            pass
        return signed_responses(events.get_final_response().to_dict())


def openai_response_events(stream: Stream) -> list[Shown]:
    """A loop over the events of client.responses.create, which shows each delta, and a call without deltas when it is done."""
    shown = Shown()
    calls: dict[int, list[Any]] = {}
    ended: dict[int, list[Any]] = {}
    """Calls as they are done, for those of which nothing came before."""
    for event in OPENAI.responses.create(model="m", input="p", stream=True):
        kind = event.type
        if kind == "response.output_text.delta":
            shown.text += event.delta
        elif kind == "response.refusal.delta":
            shown.refusal += event.delta
        elif kind == "response.reasoning_summary_text.delta":
            shown.thinking += event.delta
        elif kind in ("response.output_item.added", "response.output_item.done"):
            item: Any = event.item
            if item.type not in ("function_call", "custom_tool_call"):
                continue
            text = item.arguments if item.type == "function_call" else item.input
            text = text if isinstance(text, str) else ""
            into = calls if kind == "response.output_item.added" else ended
            into[event.output_index] = [item.call_id, item.name, text]
        elif kind in ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta"):
            calls[event.output_index][2] += event.delta
        elif kind == "response.function_call_arguments.done":
            ended.setdefault(event.output_index, [None, None, event.arguments])
        elif kind == "response.custom_tool_call_input.done":
            ended.setdefault(event.output_index, [None, None, event.input])
        elif kind in ("response.completed", "response.incomplete"):
            shown.finish = event.response.status
    for at in sorted(calls.keys() | ended.keys()):
        call, end = calls.get(at), ended.get(at, [None, None, ""])
        shown.calls.append(tuple(end) if call is None else (call[0], call[1], call[2] or end[2]))
    return [shown]


def _langchain(model: ChatOpenAI) -> AIMessageChunk:
    whole: Any = None
    for chunk in model.stream("Hi"):
        whole = chunk if whole is None else whole + chunk
    return whole


def langchain_chat(stream: Stream) -> list[Shown]:
    whole = _langchain(CHAT_MODEL)
    calls = [(one["id"], one["name"], one["args"] or "") for one in whole.tool_call_chunks]
    finish = whole.response_metadata.get("finish_reason")
    refusal = whole.additional_kwargs.get("refusal") or ""
    return [Shown(text=whole.text, refusal=refusal, calls=calls, finish=finish)]


def langchain_response(stream: Stream) -> list[Shown]:
    whole = _langchain(RESPONSES_MODEL)
    shown = Shown(finish=whole.response_metadata.get("status"))
    for block in whole.content if isinstance(whole.content, list) else []:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "text":
            shown.text += block.get("text") or ""
        if kind == "refusal":
            shown.refusal += block.get("refusal") or ""
        if kind == "reasoning":
            shown.thinking += text_of(block.get("summary"))
        if kind == "custom_tool_call":
            shown.calls.append((block.get("call_id"), block.get("name"), block.get("input") or ""))
        if kind == "function_call":
            shown.calls.append((block.get("call_id"), block.get("name"), block.get("arguments") or ""))
    return [shown]


def anthropic_message(stream: Stream) -> list[Shown]:
    """client.messages.stream, and the message that it ends with."""
    with ANTHROPIC.messages.stream(model="m", max_tokens=9, messages=[]) as events:
        for _ in events:
            pass
        return signed_messages(events.get_final_message().to_dict())


def anthropic_text(stream: Stream) -> list[Shown]:
    """Its text_stream, which shows each delta, and nothing else."""
    with ANTHROPIC.messages.stream(model="m", max_tokens=9, messages=[]) as events:
        return [Shown(text="".join(events.text_stream))]


Signed = Callable[[Json], list[Shown]]
Client = Callable[[Stream], list[Shown]]
CLIENTS: dict[str, tuple[Signed, dict[str, tuple[Client, tuple[str, ...]]]]] = {
    "/v1/chat/completions": (
        signed_chat,
        {
            "openai, chunks": (openai_chunks, ("text", "refusal", "calls", "finish", "role")),
            "openai, stream": (openai_state, ("text", "refusal", "calls", "finish", "role")),
            "openai, state": (openai_own_state, ("text", "refusal", "calls", "finish", "role")),
            "langchain-openai, chat": (langchain_chat, ("text", "refusal", "calls", "finish")),
        },
    ),
    "/v1/completions": (signed_completions, {"openai, completions": (openai_completions, ("text", "finish"))}),
    "/v1/responses": (
        signed_responses,
        {
            "openai, response": (openai_response, ("text", "refusal", "thinking", "calls", "finish")),
            "openai, events": (openai_response_events, ("text", "refusal", "thinking", "calls", "finish")),
            "langchain-openai, responses": (langchain_response, ("text", "refusal", "thinking", "calls", "finish")),
        },
    ),
    "/v1/messages": (
        signed_messages,
        {
            "anthropic, message": (anthropic_message, ("text", "thinking", "calls", "finish", "role")),
            "anthropic, text": (anthropic_text, ("text",)),
        },
    ),
}
"""By endpoint what is signed, and each client with what it shows."""


# Where a client shows something else than what is signed, and why that is its own fault.


@dataclass
class Known:
    clients: str
    """How their names begin."""
    member: str
    why: str
    when: Callable[[Stream, Any, Any], bool]
    """By the stream, what is shown and what is signed."""
    is_open: bool = False
    """The rules accept what they could refuse."""


def _is_repeated(shown: Json, signed: Json) -> bool:
    """The same text several times."""
    return bool(signed) and isinstance(shown, str) and shown == signed * (len(shown) // len(signed)) != ""


def _are_repeated(shown: list[Any], signed: list[Any]) -> bool:
    return len(shown) == len(signed) and all(
        (a[0] == b[0] or _is_repeated(a[0], b[0])) and (a[1] == b[1] or _is_repeated(a[1], b[1])) and a[2] == b[2]
        for a, b in zip(shown, signed, strict=True)
    )


def _events(stream: Stream) -> list[Payload]:
    """As they were parsed: some are written in another way than they were made."""
    events = [json.loads(text) for _, text in stream.events()]
    return [one for one in events if isinstance(one, dict)]


def _deltas(stream: Stream) -> list[Payload]:
    return [choice.get("delta") or {} for one in _events(stream) for choice in one.get("choices") or []]


def _has_parts(stream: Stream) -> bool:
    return any(isinstance(delta.get("content"), list) for delta in _deltas(stream))


def _is_some_of(shown: str, signed: str) -> bool:
    """Some of the characters, in their order."""
    rest = iter(signed)
    return all(one in rest for one in shown)


def _are_some_of(shown: list[Any], signed: list[Any]) -> bool:
    """Calls that are signed, of which some are missing, or have no name or no arguments."""
    return len(shown) <= len(signed) and all(
        any(a[0] == b[0] and a[1] in (None, b[1]) and a[2] in ("", b[2]) for b in signed) for a in shown
    )


def _has_several_ids(stream: Stream) -> bool:
    """Events with one id and several output_index, or with several ids and one output_index."""
    places: set[tuple[Json, Json]] = set()
    for event in _events(stream)[:-1]:
        item = event.get("item")
        item_id = item.get("id") if isinstance(item, dict) else event.get("item_id")
        if isinstance(item, dict) or "item_id" in event or "output_index" in event:
            places.add((json.dumps(item_id), json.dumps(event.get("output_index"))))
    return any(len({place[i] for place in places}) < len(places) for i in (0, 1))


def _comes_in_turns(stream: Stream) -> bool:
    """Events of an item after the beginning of the next one."""
    places = [one["output_index"] for one in _events(stream) if isinstance(one.get("output_index"), int)]
    return places != sorted(places)


def _has_summary_without_index(stream: Stream) -> bool:
    return any(
        str(one.get("type")).startswith("response.reasoning_summary") and not isinstance(one.get("summary_index"), int)
        for one in _events(stream)
    )


KNOWN: tuple[Known, ...] = (
    Known("openai, s", "role", "it adds a role that comes again to itself", lambda _, a, b: _is_repeated(a, b)),
    Known(
        "openai, s", "calls", "it adds an id or a name that comes again to itself", lambda _, a, b: _are_repeated(a, b)
    ),
    Known(
        "openai, s",
        "text",
        "it leaves out parts of content, which OpenAI does not stream",
        lambda s, a, b: _has_parts(s),
    ),
    Known("openai", "role", "it names no role where no chunk names one", lambda _, a, b: not a and b == "assistant"),
    Known(
        "langchain-openai, chat",
        "",
        "it takes the first choice of each chunk, whichever that is",
        lambda s, a, b: s.request.get("n") not in (None, 1),
    ),
    Known("langchain-openai, chat", "refusal", "it leaves out refusals", lambda _, a, b: a == ""),
    Known(
        "langchain-openai, chat",
        "finish",
        "it adds a reason that comes again to itself",
        lambda _, a, b: _is_repeated(a, b),
    ),
    Known("langchain-openai, chat", "finish", "it leaves out a choice without a delta", lambda _, a, b: a is None),
    Known(
        "langchain-openai, chat",
        "calls",
        "it has calls in the order in which they came, and adds an id or a name that comes again to itself",
        lambda _, a, b: _are_repeated(sorted(a, key=str), sorted(b, key=str)),
    ),
    Known(
        "langchain-openai, responses",
        "refusal",
        "it shows a refusal when it is done",
        lambda _, a, b: _is_some_of(a, b),
    ),
    Known(
        "langchain-openai, responses",
        "calls",
        "it takes names from the event that adds an item, arguments from deltas, and input from items that are done",
        lambda _, a, b: _are_some_of(a, b),
    ),
    Known(
        "langchain-openai, responses",
        "",
        "it joins items that have one id, and parts an item whose events have several",
        lambda s, a, b: _has_several_ids(s),
        True,
    ),
    Known(
        "langchain-openai, responses",
        "",
        "it adds what comes after the beginning of the next item to neither",
        lambda s, a, b: _comes_in_turns(s),
        True,
    ),
    Known(
        "langchain-openai, responses",
        "thinking",
        "it shows a delta without a summary_index in another part",
        lambda s, a, b: _has_summary_without_index(s),
        True,
    ),
)


def known(stream: Stream, client: str, member: str, shown: Json, signed: Json) -> Known | None:
    for one in KNOWN:
        if client.startswith(one.clients) and one.member in ("", member) and one.when(stream, shown, signed):
            return one
    return None


def compare(stream: Stream, found: dict[str, Any]) -> None:
    said = folded(stream.endpoint, json.dumps(stream.request), stream.events())
    signed_of, clients = CLIENTS[stream.endpoint]
    if "text" not in said:
        found["refused"] = found.get("refused", 0) + 1
        return
    found.setdefault("accepted", {}).setdefault(stream.endpoint, 0)
    found["accepted"][stream.endpoint] += 1
    signed = signed_of(json.loads(said["text"]))
    BODY["next"] = body_of(stream)
    for name, (client, members) in clients.items():
        try:
            shown = client(stream)
        except Exception as error:  # whatever a client raises, it shows nothing
            key = f"{name}: {type(error).__name__}: {str(error)[:80]}"
            found.setdefault("raised", {}).setdefault(key, 0)
            found["raised"][key] += 1
            continue
        found.setdefault("shown", {}).setdefault(name, 0)
        found["shown"][name] += 1
        if not signed:
            # langchain-openai makes an empty message where no choice came.
            shown = [one for one in shown if one.text or one.refusal or one.thinking or one.calls]
        if len(shown) != len(signed):
            pairs: Iterable[Any] = [("choices", len(shown), len(signed))]
        else:
            pairs = [
                (member, getattr(a, member), getattr(b, member))
                for a, b in zip(shown, signed, strict=True)
                for member in members
                if getattr(a, member) != getattr(b, member)
            ]
        for member, a, b in pairs:
            fault = known(stream, name, member, a, b)
            if fault is not None:
                key = f"{name}: {fault.why}"
                kind = "open" if fault.is_open else "known"
                found.setdefault(kind, {}).setdefault(key, 0)
                found[kind][key] += 1
                continue
            found.setdefault("different", []).append(
                {"client": name, "member": member, "shown": a, "signed": b, "changes": stream.changes}
                | {"events": stream.events(), "request": stream.request}
            )


def answer(question: dict[str, int]) -> dict[str, Any]:
    found: dict[str, Any] = {"refused": 0, "accepted": {}, "shown": {}, "raised": {}, "different": []}
    for number in range(question["from"], question["from"] + question["count"]):
        compare(stream_of(question["seed"], number), found)
    return found


if __name__ == "__main__":
    serve(answer)
