"""
A small seeded grammar of streams for the four endpoints, and changes to them: of what clients show, of JSON types, of order. Each
stream is the same for the same seed. Some are as an engine would send them, the others have up to three changes.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Json = Any
Payload = dict[str, Json]
WORDS = ("a", "b", "Paris", " ", "\n", "é", "😀", '"', "\\", "{}", "0", "")
IDS = ("x", "y", "id-1")
OTHERS: tuple[Json, ...] = (
    None,
    "",
    "a",
    0,
    1,
    7,
    1.0,
    True,
    False,
    [],
    {},
    ["a"],
    [{}],
    {"a": 1},
    {"text": "a"},
    [None],
)
"""Values that a member may have in place of its own."""
SCALARS: tuple[Json, ...] = (None, "", "a", "b", 0, 1, 1.0, True)


@dataclass
class Stream:
    endpoint: str
    request: Payload
    payloads: list[Json]
    named: bool
    changes: list[str] = field(default_factory=list)
    texts: list[str] | None = None

    def events(self) -> list[tuple[str | None, str]]:
        """Names and payloads. A name is the payload's type: no other name can come through (docs/attestation.md §3.2)."""
        texts = self.texts or [json.dumps(one, ensure_ascii=False) for one in self.payloads]
        names = [one.get("type") if isinstance(one, dict) else None for one in self.payloads]
        return [
            (name if isinstance(name, str) else "none", text) if self.named else (None, text)
            for name, text in zip(names, texts, strict=True)
        ]


def words(r: random.Random, most: int = 4) -> list[str]:
    return [r.choice(WORDS) for _ in range(r.randint(0, most))]


def split(r: random.Random, text: str) -> list[str]:
    """The same text in pieces."""
    if not text:
        return [] if r.random() < 0.5 else [""]
    at = sorted(r.randint(0, len(text)) for _ in range(r.randint(0, 2)))
    return [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]


ARGUMENTS = ('{"city":"Paris"}', "{}", '{"a": [1, "}"]}', '{"q":"\\"x"}', '["a"]', "")


# /v1/chat/completions and /v1/completions.


def chat(r: random.Random) -> Stream:
    count = r.choice((1, 1, 1, 2))
    request: Payload = {"model": "m", "messages": [], "stream": True}
    if count > 1 or r.random() < 0.1:
        request["n"] = count
    by_choice = [_choice(r, i) for i in range(count)]
    choices: list[Payload] = []
    while any(by_choice):
        choices.append(r.choice([one for one in by_choice if one]).pop(0))
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 5, "model": "m"}
    chunks: list[Json] = []
    for choice in choices:
        last = chunks[-1]["choices"] if chunks and r.random() < 0.1 else []
        if last and all(one["index"] != choice["index"] for one in last):
            last.append(choice)
            continue
        chunks.append({**base, "choices": [choice]})
    for chunk in chunks:
        if r.random() < 0.1:
            chunk["service_tier"] = r.choice(("default", None, ""))
    if r.random() < 0.3:
        usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
        chunks.append({**base, "choices": [], "usage": usage})
    if r.random() < 0.05:
        chunks.insert(0, None)
    return Stream("/v1/chat/completions", request, chunks, named=False)


def _choice(r: random.Random, index: int) -> list[Payload]:
    """The chunks of one choice."""
    deltas: list[Payload] = [{"role": "assistant", "content": r.choice(("", None))}] if r.random() < 0.9 else []
    if r.random() < 0.3:
        names = r.choice((("reasoning",), ("reasoning_content",), ("reasoning", "reasoning_content"), ("thinking",)))
        deltas += [dict.fromkeys(names, word) for word in words(r)]
    if r.random() < 0.1:
        texts = [{"type": "reasoning.text", "index": 0, "text": word} for word in words(r)]
        deltas += [{"reasoning_details": [one]} for one in texts]
    kind = r.random()
    if kind < 0.6:
        deltas += [{"content": word} for word in words(r)]
    elif kind < 0.7:
        deltas += [{"refusal": word} for word in words(r)]
    elif kind < 0.75:
        parts = [{"content": [{"type": "text", "text": word}]} for word in words(r)]
        deltas += [r.choice((one, {"content": "t"}, {"content": [{"type": "image", "url": "u"}]})) for one in parts]
    if kind > 0.5 or r.random() < 0.2:
        for at in range(r.randint(1, 2)):
            deltas += _call(r, at)
    elif r.random() < 0.05:
        deltas.append({"function_call": {"name": "f", "arguments": ""}})
        deltas += [{"function_call": {"arguments": one}} for one in split(r, r.choice(ARGUMENTS))]
    choices: list[Payload] = [{"index": index, "delta": delta, "finish_reason": None} for delta in deltas]
    for choice in choices:
        if r.random() < 0.05:
            choice["logprobs"] = {"content": [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}]}
        if r.random() < 0.3:
            del choice["finish_reason"]
    return [*choices, {"index": index, "delta": {}, "finish_reason": r.choice(("stop", "tool_calls", "length"))}]


def _call(r: random.Random, at: int) -> list[Payload]:
    call = {"index": at, "id": f"call_{at}", "type": "function", "function": {"name": r.choice("fg"), "arguments": ""}}
    pieces = split(r, r.choice(ARGUMENTS))
    if pieces and r.random() < 0.3:
        call["function"]["arguments"] = pieces.pop(0)
    more = [{"index": at, "function": {"arguments": one}} for one in pieces]
    return [{"tool_calls": [one]} for one in (call, *more)]


def completions(r: random.Random) -> Stream:
    count = r.choice((1, 1, 2, 4))
    request: Payload = {"model": "m", "prompt": "p", "stream": True}
    if count == 2:
        request = {**request, "n": 2} if r.random() < 0.5 else {**request, "prompt": ["p", "q"]}
    if count == 4:
        request = {**request, "n": 2, "prompt": [[1], [2]]}
    base = {"id": "cmpl-1", "object": "text_completion", "created": 5, "model": "m"}
    chunks: list[Json] = []
    for index in range(count):
        chunks += [{**base, "choices": [{"index": index, "text": word, "finish_reason": None}]} for word in words(r)]
        chunks.append({**base, "choices": [{"index": index, "text": "", "finish_reason": "stop"}]})
    if r.random() < 0.3:
        chunks.append({**base, "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}})
    return Stream("/v1/completions", request, chunks, named=False)


# /v1/responses.


def responses(r: random.Random) -> Stream:
    base: Payload = {
        "id": "resp_1",
        "object": "response",
        "created_at": 5,
        "model": "m",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    begun = {**base, "status": "in_progress", "output": []}
    events: list[Payload] = [{"type": "response.created", "response": begun}]
    if r.random() < 0.5:
        events.append({"type": "response.in_progress", "response": begun})
    output: list[Payload] = []
    for at in range(r.randint(0, 3)):
        item, own = r.choice((_message, _message, _reasoning, _function_call, _custom_call))(r, at)
        output.append(item)
        events += own
    kind, status = r.choice((("completed", "completed"), ("completed", "completed"), ("incomplete", "incomplete")))
    final = {**base, "status": status, "output": output}
    if r.random() < 0.5:
        final["usage"] = {
            "input_tokens": 1,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 2,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 3,
        }
    events.append({"type": f"response.{kind}", "response": final})
    for i, event in enumerate(events):
        event["sequence_number"] = i
    return Stream("/v1/responses", {"model": "m", "input": "p", "stream": True}, copy.deepcopy(events), named=True)


Item = tuple[Payload, list[Payload]]


def _announced(r: random.Random, at: int, begun: Payload, item: Payload, own: list[Payload]) -> Item:
    added = {"type": "response.output_item.added", "output_index": at, "item": begun}
    done = {"type": "response.output_item.done", "output_index": at, "item": item}
    shown_by_text = item["type"] in ("message", "reasoning")
    first = [added] if not shown_by_text or r.random() < 0.95 else []
    return item, [*first, *own, *([done] if not shown_by_text or r.random() < 0.9 else [])]


def _message(r: random.Random, at: int) -> Item:
    item_id = f"msg_{at}"
    parts: list[Payload] = []
    own: list[Payload] = []
    for number in range(r.choice((1, 1, 1, 2))):
        place = {"item_id": item_id, "output_index": at, "content_index": number}
        refuses = r.random() < 0.15
        member, kind = ("refusal", "refusal") if refuses else ("text", "output_text")
        texts = words(r)
        more = {} if refuses else {"annotations": [], "logprobs": []}
        part = {"type": kind, member: "".join(texts), **({} if refuses else {"annotations": []})}
        parts.append(part)
        logprobs = {} if refuses else {"logprobs": []}
        own += [
            {"type": "response.content_part.added", **place, "part": {**part, member: "", **more}},
            *({"type": f"response.{kind}.delta", **place, "delta": one, **logprobs} for one in texts),
            {"type": f"response.{kind}.done", **place, member: part[member], **logprobs},
            {"type": "response.content_part.done", **place, "part": part},
        ]
        own = [one for one in own if r.random() < 0.97 or one["type"].endswith((".delta", "part.added"))]
    whole = {"id": item_id, "type": "message", "role": "assistant", "status": "completed", "content": parts}
    return _announced(r, at, {**whole, "status": "in_progress", "content": []}, whole, own)


def _reasoning(r: random.Random, at: int) -> Item:
    item_id = f"rs_{at}"
    own: list[Payload] = []
    summary: list[Payload] = []
    for number in range(r.randint(0, 2)):
        place = {"item_id": item_id, "output_index": at, "summary_index": number}
        texts = words(r)
        part = {"type": "summary_text", "text": "".join(texts)}
        summary.append(part)
        own += [
            {"type": "response.reasoning_summary_part.added", **place, "part": {**part, "text": ""}},
            *({"type": "response.reasoning_summary_text.delta", **place, "delta": one} for one in texts),
            {"type": "response.reasoning_summary_text.done", **place, "text": part["text"]},
            {"type": "response.reasoning_summary_part.done", **place, "part": part},
        ]
    item: Payload = {"id": item_id, "type": "reasoning", "summary": summary}
    if r.random() < 0.4:
        texts = words(r)
        place = {"item_id": item_id, "output_index": at, "content_index": 0}
        item["content"] = [{"type": "reasoning_text", "text": "".join(texts)}]
        own += [{"type": "response.reasoning_text.delta", **place, "delta": one} for one in texts]
        own.append({"type": "response.reasoning_text.done", **place, "text": "".join(texts)})
    return _announced(r, at, {"id": item_id, "type": "reasoning", "summary": []}, item, own)


def _function_call(r: random.Random, at: int) -> Item:
    return _any_call(r, at, "function_call", "response.function_call_arguments", "arguments")


def _custom_call(r: random.Random, at: int) -> Item:
    return _any_call(r, at, "custom_tool_call", "response.custom_tool_call_input", "input")


def _any_call(r: random.Random, at: int, kind: str, base: str, member: str) -> Item:
    item_id, text = f"fc_{at}", r.choice(ARGUMENTS)
    item = {"id": item_id, "type": kind, "name": "f", "call_id": f"call_{at}", member: text, "status": "completed"}
    place = {"item_id": item_id, "output_index": at}
    own = [{"type": f"{base}.delta", **place, "delta": one} for one in split(r, text)]
    name = {"name": "f"} if kind == "function_call" else {}
    own.append({"type": f"{base}.done", **place, member: text, **name})
    if r.random() < 0.1:
        own = own[-1:]
    begun = {**item, member: "", "status": "in_progress"}
    if r.random() < 0.1:
        begun[member], own = text, []
    elif r.random() < 0.05:
        begun[member] = own.pop(0).get("delta", "")
    return _announced(r, at, begun, item, own)


# /v1/messages.


def messages(r: random.Random) -> Stream:
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    events: list[Payload] = [{"type": "message_start", "message": message}]
    for at in range(r.randint(0, 3)):
        block, deltas = _block(r, at)
        events.append({"type": "content_block_start", "index": at, "content_block": block})
        events += [{"type": "content_block_delta", "index": at, "delta": one} for one in deltas]
        events.append({"type": "content_block_stop", "index": at})
        if r.random() < 0.1:
            events.append({"type": "ping"})
    delta = {"stop_reason": r.choice(("end_turn", "tool_use")), "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7}})
    events.append({"type": "message_stop"})
    return Stream("/v1/messages", {"model": "m", "max_tokens": 9, "messages": [], "stream": True}, events, named=True)


def _block(r: random.Random, at: int) -> tuple[Payload, list[Payload]]:
    kind = r.random()
    if kind < 0.5:
        return {"type": "text", "text": ""}, [{"type": "text_delta", "text": one} for one in words(r)]
    if kind < 0.7:
        deltas: list[Payload] = [{"type": "thinking_delta", "thinking": one} for one in words(r)]
        return {"type": "thinking", "thinking": "", "signature": ""}, [
            *deltas,
            {"type": "signature_delta", "signature": "s"},
        ]
    tool = {"type": "tool_use", "id": f"toolu_{at}", "name": "f", "input": {}}
    text = r.choice((*ARGUMENTS[:4], ""))
    return tool, [{"type": "input_json_delta", "partial_json": one} for one in split(r, text)]


# Changes. Each says whether it found something to change.

Change = Callable[[random.Random, Stream], bool]


def _objects(value: Json, found: list[Payload] | None = None) -> list[Payload]:
    """All objects in a value, itself included."""
    found = [] if found is None else found
    if isinstance(value, dict):
        found.append(value)
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _objects(one, found)
    return found


def _any_object(r: random.Random, stream: Stream, *names: str) -> Payload | None:
    """One that has all these members."""
    some = [one for one in _objects(stream.payloads) if all(name in one for name in names)]
    return r.choice(some) if some else None


def _any_member(r: random.Random, stream: Stream) -> tuple[Payload, str] | None:
    held = [one for one in _objects(stream.payloads) if one]
    if not held:
        return None
    holder = r.choice(held)
    return holder, r.choice(list(holder))


def another_type(r: random.Random, stream: Stream) -> bool:
    found = _any_member(r, stream)
    if found is not None:
        holder, name = found
        holder[name] = [holder[name]] if r.random() < 0.1 else copy.deepcopy(r.choice(OTHERS))
    return found is not None


def another_text(r: random.Random, stream: Stream) -> bool:
    texts = [(one, name) for one in _objects(stream.payloads) for name in one if isinstance(one[name], str)]
    if not texts:
        return False
    holder, name = r.choice(texts)
    holder[name] = r.choice((*WORDS, holder[name] + "a", "x", "tool_use", "text", "message", "reasoning"))
    return True


def without_member(r: random.Random, stream: Stream) -> bool:
    found = _any_member(r, stream)
    if found is not None:
        del found[0][found[1]]
    return found is not None


MEMBERS = (
    *("message", "content", "text", "role", "id", "name", "type", "index", "error", "refusal", "reasoning", "thinking"),
    *(
        "reasoning_content",
        "tool_calls",
        "function_call",
        "arguments",
        "input",
        "output",
        "attestation",
        "part",
        "delta",
    ),
    *("item", "summary", "usage", "finish_reason", "audio", "stop_reason", "citations", "model", "object", "logprobs"),
)


def another_member(r: random.Random, stream: Stream) -> bool:
    holder = _any_object(r, stream)
    if holder is None:
        return False
    value = copy.deepcopy(r.choice(OTHERS))
    # A value that another object has under the name is of the right type.
    name = r.choice(MEMBERS)
    like = _any_object(r, stream, name)
    holder[name] = copy.deepcopy(like[name]) if like is not None and r.random() < 0.5 else value
    return True


def renamed_member(r: random.Random, stream: Stream) -> bool:
    found = _any_member(r, stream)
    if found is None:
        return False
    holder, name = found
    other = r.choice(MEMBERS)
    items = [(other if one == name else one, value) for one, value in holder.items()]
    holder.clear()
    holder.update(items)
    return True


def moved_member(r: random.Random, stream: Stream) -> bool:
    """A member of one object into another one."""
    found, into = _any_member(r, stream), _any_object(r, stream)
    if found is None or into is None:
        return False
    into[found[1]] = copy.deepcopy(found[0][found[1]])
    return True


def event_twice(r: random.Random, stream: Stream) -> bool:
    one = copy.deepcopy(r.choice(stream.payloads))
    stream.payloads.insert(r.randint(0, len(stream.payloads)), one)
    return True


def without_event(r: random.Random, stream: Stream) -> bool:
    if len(stream.payloads) > 1:
        del stream.payloads[r.randrange(len(stream.payloads))]
    return True


def events_swapped(r: random.Random, stream: Stream) -> bool:
    a, b = (r.randrange(len(stream.payloads)) for _ in range(2))
    if r.random() < 0.6:
        b = min(a + 1, len(stream.payloads) - 1)
    some = stream.payloads
    some[a], some[b] = some[b], some[a]
    if r.random() < 0.8:
        _renumber(stream)
    return True


def _renumber(stream: Stream) -> None:
    for i, event in enumerate(stream.payloads):
        if isinstance(event, dict) and "sequence_number" in event:
            event["sequence_number"] = i


def another_index(r: random.Random, stream: Stream) -> bool:
    names = ("index", "output_index", "content_index", "summary_index")
    some = [(one, name) for one in _objects(stream.payloads) for name in names if name in one]
    if not some:
        return False
    holder, name = r.choice(some)
    holder[name] = r.choice((0, 0, 1, 1, 2, 1.0, -1, 0.5, "0", None, 10_000, 10_001))
    if r.random() < 0.2:
        del holder[name]
    return True


def calls_under_one_index(r: random.Random, stream: Stream) -> bool:
    """Two calls with one index, or one call with the indices of two."""
    calls = [
        call for one in _objects(stream.payloads) for call in listed(one.get("tool_calls")) if isinstance(call, dict)
    ]
    for call in calls:
        if r.random() < 0.6:
            call["index"] = r.choice((0, 0, 1))
    return bool(calls)


def structure_again(r: random.Random, stream: Stream) -> bool:
    """A role, an id, a name or a type once more, the same or another one."""
    names = ("role", "id", "name", "type", "finish_reason", "object", "model", "call_id")
    held = [one for one in _objects(stream.payloads) if any(isinstance(one.get(name), str) for name in names)]
    if not held:
        return False
    holder = r.choice(held)
    name = r.choice([name for name in names if isinstance(holder.get(name), str)])
    into = r.choice(held)
    into[name] = holder[name] if r.random() < 0.6 else r.choice((holder[name] * 2, "", "z", None))
    return True


def delta_again(r: random.Random, stream: Stream) -> bool:
    """Members of one delta beside those of another one."""
    deltas = [one["delta"] for one in _objects(stream.payloads) if isinstance(one.get("delta"), dict)]
    if not deltas:
        return False
    r.choice(deltas).update(copy.deepcopy(r.choice(deltas)))
    return True


def content_as_parts(r: random.Random, stream: Stream) -> bool:
    some = [one for one in _objects(stream.payloads) if isinstance(one.get("content"), str)]
    if not some:
        return False
    holder = r.choice(some)
    part: Payload = {"type": "text", "text": holder["content"]}
    if r.random() < 0.3:
        part[r.choice(("index", "id", "annotations"))] = r.choice((0, None, "x", []))
    holder["content"] = [part] * r.choice((1, 1, 1, 2)) if r.random() < 0.9 else []
    return True


def reasoning_as_well(r: random.Random, stream: Stream) -> bool:
    some = [one["delta"] for one in _objects(stream.payloads) if isinstance(one.get("delta"), dict)]
    if not some:
        return False
    name = r.choice(("reasoning", "reasoning_content", "reasoning_text", "thinking"))
    for delta in some:
        if r.random() < 0.3:
            delta[name] = delta.get("content") or r.choice(WORDS)
    return True


def message_beside_delta(r: random.Random, stream: Stream) -> bool:
    some = [one for one in _objects(stream.payloads) if "delta" in one]
    if not some:
        return False
    r.choice(some)["message"] = r.choice(({"role": "assistant", "content": "hidden"}, {}, None, "x"))
    return True


def another_id(r: random.Random, stream: Stream) -> bool:
    """Text of one item under another one's id."""
    some = [one for one in _objects(stream.payloads) if isinstance(one.get("item_id"), str)]
    ids = [one["id"] for one in _objects(stream.payloads) if isinstance(one.get("id"), str)]
    if not some:
        return False
    r.choice(some)["item_id"] = r.choice((*ids, *IDS, "", None))
    return True


def ids_of_an_item(r: random.Random, stream: Stream) -> bool:
    """Every id of one item changed, in some of its events."""
    ids = [one["item_id"] for one in _objects(stream.payloads) if isinstance(one.get("item_id"), str)]
    if not ids:
        return False
    old, new, share = r.choice(ids), r.choice((*ids, "z", "")), r.choice((0.5, 1))
    for one in _objects(stream.payloads):
        for name in ("id", "item_id"):
            if one.get(name) == old and r.random() < share:
                one[name] = new
    return True


def final_says_more(r: random.Random, stream: Stream) -> bool:
    """Into the output of the final response goes what was not streamed, or what was streamed goes away."""
    outputs = [one["output"] for one in _objects(stream.payloads[-1:]) if isinstance(one.get("output"), list)]
    if not outputs:
        return False
    output = outputs[0]
    kind = r.random()
    if kind < 0.3 and output:
        output.append(copy.deepcopy(r.choice(output)))
    elif kind < 0.5:
        output.append(r.choice(("a", {}, {"type": "message", "content": []}, {"type": "web_search_call", "id": "w"})))
    elif kind < 0.7 and output:
        del output[r.randrange(len(output))]
    elif kind < 0.8:
        r.shuffle(output)
    else:
        parts = [part for item in _objects(output) for part in (item.get("content"), item.get("summary")) if part]
        lists = [part for part in parts if isinstance(part, list)]
        if lists:
            some = r.choice(lists)
            some.append(copy.deepcopy(r.choice(some)))
            r.shuffle(some)
    return True


def begins_with_text(r: random.Random, stream: Stream) -> bool:
    """An item, a part or a block begins with what should come as a delta, all of it or a part."""
    members = ("text", "thinking", "arguments", "input", "refusal")
    begun = [
        one[name]
        for one in stream.payloads
        if isinstance(one, dict)
        for name in ("item", "part", "content_block")
        if str(one.get("type")).endswith(("added", "_start")) and isinstance(one.get(name), dict)
    ]
    if not begun:
        return False
    holder = r.choice(begun)
    names = [name for name in members if name in holder]
    if not names:
        holder["content"] = [{"type": "output_text", "text": "a"}]
        return True
    later = [one["delta"] for one in stream.payloads if isinstance(one, dict) and isinstance(one.get("delta"), str)]
    holder[r.choice(names)] = r.choice((*later, "a", "{", ""))
    return True


def sent_together(r: random.Random, stream: Stream) -> bool:
    """The text of two events in other pieces: what stands in the one goes to the other."""
    some = [one for one in stream.payloads if isinstance(one, dict) and isinstance(one.get("delta"), str)]
    if len(some) < 2:
        return False
    a, b = r.sample(some, 2)
    a["delta"], b["delta"] = r.choice(((a["delta"] + b["delta"], ""), (b["delta"], a["delta"]), ("", a["delta"])))
    return True


def events_apart(r: random.Random, stream: Stream) -> bool:
    """Events of two items or parts in turns."""
    middle = stream.payloads[1:-1]
    if len(middle) < 3:
        return False
    at = sorted(range(len(middle)), key=lambda i: i + r.uniform(0, 3))
    stream.payloads[1:-1] = [middle[i] for i in at]
    _renumber(stream)
    return True


def another_block(r: random.Random, stream: Stream) -> bool:
    """A delta of another type than its block's, or a block that stays open, or begins anew."""
    deltas = [one for one in stream.payloads if isinstance(one, dict) and one.get("type") == "content_block_delta"]
    starts = [one for one in stream.payloads if isinstance(one, dict) and one.get("type") == "content_block_start"]
    if not starts:
        return False
    other: list[Payload] = [
        {"type": "text_delta", "text": "a"},
        {"type": "thinking_delta", "thinking": "t"},
        {"type": "input_json_delta", "partial_json": '{"a":1}'},
        {"type": "citations_delta", "citation": {"type": "char_location", "cited_text": "c"}},
        {"type": "compaction_delta", "content": r.choice(("c", None))},
        {"type": "signature_delta", "signature": "s2"},
        {"type": "unknown_delta", "text": "a"},
    ]
    if deltas and r.random() < 0.6:
        r.choice(deltas)["delta"] = r.choice(other)
    else:
        start = r.choice(starts)
        new = {"type": "content_block_delta", "index": start.get("index"), "delta": r.choice(other)}
        stream.payloads.insert(stream.payloads.index(start) + 1, new)
    return True


STOPS = ("stop_reason", "stop_sequence")


def late_delta(r: random.Random, stream: Stream) -> bool:
    """Another message_delta, before or behind the final one."""
    if stream.endpoint != "/v1/messages":
        return False
    stops = [{name: one.get(name) for name in STOPS} for one in _objects(stream.payloads) if one.get(STOPS[0])]
    delta: Payload = r.choice(
        (
            *(
                {},
                {"stop_reason": "end_turn"},
                {"stop_reason": None},
                {"stop_sequence": "q"},
                {"container": {"id": "c"}},
            ),
            *stops[:3],
        )
    )
    event: Payload = {"type": "message_delta", "delta": delta, "usage": r.choice(({"output_tokens": 9}, {}, None))}
    if r.random() < 0.2:
        event["context_management"] = r.choice(({"applied_edits": []}, None))
    stream.payloads.insert(r.randint(max(0, len(stream.payloads) - 3), len(stream.payloads)), event)
    return True


OTHER_EVENTS = (
    *("ping", "content_block_x", "message_x", "response.x", "response.x.added", "response.x.done", "response.x.delta"),
    *("response.content_part.added", "response.content_part.done", "response.reasoning_summary_part.done"),
)


def another_event(r: random.Random, stream: Stream) -> bool:
    """An event of another type that says the same as one of the stream."""
    like = copy.deepcopy(r.choice(stream.payloads))
    if not isinstance(like, dict):
        return False
    like["type"] = r.choice(OTHER_EVENTS)
    if r.random() < 0.3:
        like["part"] = r.choice(({"type": "output_text", "text": "a"}, {"type": "output_text", "text": ""}, {}))
    stream.payloads.insert(r.randint(0, len(stream.payloads)), like)
    _renumber(stream)
    return True


def another_object(r: random.Random, stream: Stream) -> bool:
    """Another object in some of the chunks."""
    for one in stream.payloads:
        if isinstance(one, dict) and "object" in one and r.random() < 0.3:
            one["object"] = r.choice((None, "", "", one["object"]))
    return True


def another_request(r: random.Random, stream: Stream) -> bool:
    stream.request["n"] = r.choice((1, 2, 3, 2.0, 0, -1, "2", None))
    if stream.endpoint == "/v1/completions":
        stream.request["prompt"] = r.choice(("p", [], ["p"], ["p", "q"], [1, 2, 3], [[1], [2]]))
    return True


TEXT_CHANGES: tuple[tuple[str, str], ...] = (
    ('"index": 0', '"index": 0.0'),
    ('"index": 1', '"index": 1e0'),
    ('"index": 0', '"index": -0'),
    ('"output_index": 0', '"output_index": 0.0'),
    ('"output_index": 0', '"output_index": -0'),
    ('"output_index": 1', '"output_index": 1e400'),
    ('"sequence_number": 0', '"sequence_number": -1e400'),
    ('"created": 5', '"created": 5.0'),
    ('"created": 5', '"created": 0'),
    ('"created": 5', '"created": 0.0'),
    ('"text"', '"\\u0074ext"'),
    ('"content"', '"\\u0063ontent"'),
    ('"role"', '"role": "assistant", "role"'),
    ('"delta"', '"delta": {}, "delta"'),
    ('"text"', '"text": "", "\\u0074ext"'),
    ("{", " {\t"),
    ("😀", "\\ud83d\\ude00"),
    ("😀", "\\ud83d"),
    ("é", "\\u00e9"),
    ("{", "\ufeff{"),
    ("}", "},"),
    ("{}", '{"__proto__": {"a": 1}, "1": 2, "0": 3}'),
    ('"usage"', '"0": [1.0, 1e400], "usage"'),
)


def another_writing(r: random.Random, stream: Stream) -> bool:
    """The same JSON in another writing, or what is none."""
    if stream.texts is None:
        stream.texts = [json.dumps(one, ensure_ascii=r.random() < 0.5) for one in stream.payloads]
    at = r.randrange(len(stream.texts))
    old, new = r.choice(TEXT_CHANGES)
    stream.texts[at] = stream.texts[at].replace(old, new, 1)
    return True


def listed(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


ANY: tuple[Change, ...] = (
    *(another_type, another_text, without_member, another_member, renamed_member, moved_member),
    *(event_twice, without_event, events_swapped, another_index, structure_again),
)
CHANGES: dict[str, tuple[Change, ...]] = {
    "/v1/chat/completions": (
        *ANY,
        *(
            calls_under_one_index,
            delta_again,
            content_as_parts,
            reasoning_as_well,
            message_beside_delta,
            another_object,
            another_request,
        ),
    ),
    "/v1/completions": (*ANY, message_beside_delta, another_request),
    "/v1/responses": (
        *(*ANY, another_id, ids_of_an_item, final_says_more, begins_with_text, sent_together, events_apart),
        *(begins_with_text, events_apart, another_event),
    ),
    "/v1/messages": (
        *(*ANY, another_block, another_block, another_event, late_delta, begins_with_text, delta_again, events_apart),
    ),
}
MAKERS = (chat, chat, completions, responses, responses, messages)


def stream_of(seed: int, number: int) -> Stream:
    r = random.Random(f"{seed} {number}")
    stream = MAKERS[number % len(MAKERS)](r)
    for _ in range(r.choice((0, 0, 1, 1, 1, 2, 3))):
        change = r.choice(CHANGES[stream.endpoint])
        # Several mutations may hold the same object: each changes its own.
        stream.payloads = copy.deepcopy(stream.payloads)
        if change(r, stream):
            stream.changes.append(change.__name__)
    if r.random() < 0.1:
        another_writing(r, stream)
        stream.changes.append("another_writing")
    return stream
