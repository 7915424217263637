"""
The published rules for streams of named events, /v1/responses and /v1/messages: which events end them, and what answer
they are about. docs/attestation.md states them in prose.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from .fold import Chunk, FoldError, parse_chunk
from .json_text import paired, top_level_members
from .raw import CHAT_ENDPOINT
from .strict_json import JsonTextError, duplicate_member, number_of, parse_keeping_numbers, stringify

Json = Any
T = TypeVar("T")
StreamForm = Literal["completion", "response", "message"]
"""How an endpoint streams. `completion`: payloads without names (fold.py)."""

_FORMS: Mapping[str, StreamForm] = {
    CHAT_ENDPOINT: "completion",
    "/v1/completions": "completion",
    "/v1/responses": "response",
    "/v1/messages": "message",
}


def stream_form_of(endpoint: str) -> StreamForm | None:
    """None: a stream of this endpoint has no rule, and no proof."""
    return _FORMS.get(endpoint)


EventKind = Literal["delta", "final", "end", "error"]
"""
What an event means. `final`: the answer is complete with it, or ends after it: it carries the attestation. `end`: after
the final one. `error`: the backend's own failure, which ends the stream.
"""


def is_final_response(kind: object) -> bool:
    """Of the event that completes a response, by its type."""
    return kind == "response.completed" or kind == "response.incomplete"


def _parse(name: str | None, text: str) -> Chunk:
    """@raises FoldError"""
    event = parse_chunk(text)
    if name is None:
        raise FoldError("an event has no name")
    if event.get("type") != name:
        raise FoldError("an event has another name than its type")
    if "attestation" in event:
        raise FoldError("an event has an attestation of its own")
    return event


def _text_in(value: Json) -> str:
    if not isinstance(value, str):
        raise FoldError("a delta has no text")
    return value


# /v1/responses: the last event holds the whole response. What was streamed before must be what stands in it.


@dataclass(frozen=True)
class _Place:
    """Where the text of an event stands in the item of the final response."""

    member: str
    """Of a `.done` event that has the whole text, and of the item (or its part) in the final response."""
    parts: tuple[str, str] | None = None
    """The item's list of parts, and the event's member that counts them."""


_CONTENT = ("content", "content_index")
_PLACES: Mapping[str, _Place] = {
    "response.output_text": _Place("text", _CONTENT),
    "response.refusal": _Place("refusal", _CONTENT),
    "response.reasoning_text": _Place("text", _CONTENT),
    "response.reasoning_summary_text": _Place("text", ("summary", "summary_index")),
    "response.function_call_arguments": _Place("arguments"),
    "response.mcp_call_arguments": _Place("arguments"),
    "response.custom_tool_call_input": _Place("input"),
    "response.code_interpreter_call_code": _Place("code"),
}
"""By the event's type without `.delta` or `.done`."""


@dataclass
class _Streamed:
    place: _Place
    item_id: str | None
    output_index: float
    part_index: float
    deltas: list[str] = field(default_factory=list)
    done: str | None = None


class ResponseEvents:
    """Reads the events of a stream of /v1/responses in order."""

    def __init__(self) -> None:
        self._id: str | None = None
        self._begun = False
        self._sequence: float = -1
        self._streamed: dict[tuple[str, float, float, str], _Streamed] = {}
        self._text: str | None = None

    def add(self, name: str | None, text: str) -> EventKind:
        """@raises FoldError for an event that is not of the form, or is out of order."""
        event = _parse(name, text)
        kind: str = event["type"]
        if kind == "error":
            return "error"
        if self._text is not None:
            raise FoldError("an event comes after the final one")
        self._in_order(kind, event)
        if kind == "response.failed":
            return "error"
        if is_final_response(kind):
            self._finish(event, text)
            return "final"
        self._record(kind, event)
        return "delta"

    def text(self) -> str:
        """The JSON text of the answer. @raises FoldError unless the stream is complete."""
        if self._text is None:
            raise FoldError("the stream ended before its response was complete")
        return self._text

    def _in_order(self, kind: str, event: Chunk) -> None:
        if (kind == "response.created") == self._begun:
            raise FoldError("a second response begins" if self._begun else "the response has not begun")
        self._begun = True
        sequence = number_of(event.get("sequence_number"))
        if sequence is not None:
            if sequence < self._sequence:
                raise FoldError("the events are out of order")
            self._sequence = sequence
        response = event.get("response")
        own_id = response.get("id") if isinstance(response, dict) else None
        if not isinstance(own_id, str):
            return
        if self._id is not None and own_id != self._id:
            raise FoldError("two responses are mixed")
        self._id = own_id

    def _record(self, kind: str, event: Chunk) -> None:
        base, _, last = kind.rpartition(".")
        place = _PLACES.get(base)
        if place is None:
            return
        item_id = event.get("item_id")
        streamed = _Streamed(
            place,
            item_id if isinstance(item_id, str) else None,
            number_of(event.get("output_index")) or 0.0,
            0.0 if place.parts is None else number_of(event.get(place.parts[1])) or 0.0,
        )
        key = (base, streamed.output_index, streamed.part_index, streamed.item_id or "null")
        streamed = self._streamed.setdefault(key, streamed)
        if last == "delta":
            streamed.deltas.append(_text_in(event.get("delta")))
        if last == "done":
            streamed.done = _text_in(event.get(place.member))

    def _finish(self, event: Chunk, text: str) -> None:
        response = event.get("response")
        if not isinstance(response, dict) or not response:
            raise FoldError("the final event has no response")
        if "attestation" in response:
            raise FoldError("the response has an attestation of its own")
        if response.get("error") is not None:
            raise FoldError("the final response has an error")
        output = _list_in(response, "output")
        items: dict[str, Json] = {}
        for item in output:
            if isinstance(item, dict) and isinstance(item.get("id"), str):
                items.setdefault(item["id"], item)
        for one in self._streamed.values():
            item = None if one.item_id is None else items.get(one.item_id)
            part = _at(output, one.output_index) if item is None else item
            if one.place.parts is not None:
                part = _at(_list_in(part, one.place.parts[0]), one.part_index)
            final = part.get(one.place.member) if isinstance(part, dict) else None
            if (one.deltas and not _is_text(final, "".join(one.deltas))) or (
                one.done is not None and not _is_text(final, one.done)
            ):
                raise FoldError("the final response differs from what was streamed")
        self._text = next(
            (text[one.value_start : one.value_end] for one in top_level_members(text) if one.key == "response"), None
        )


def _is_text(final: Json, text: str) -> bool:
    return isinstance(final, str) and (final == text or paired(final) == paired(text))


def _list_in(item: Json, name: str) -> list[Json]:
    found = item.get(name) if isinstance(item, dict) else None
    return found if isinstance(found, list) else []


def _at(items: Sequence[T], index: float) -> T | None:
    return items[int(index)] if index.is_integer() and 0 <= index < len(items) else None


# /v1/messages: no event holds the whole message. It is what the events fold into.
#
#  1. `message` of message_start is the message; its `content` must be absent, null or an empty list.
#  2. content_block_start: `content_block` is the block at `index`, which is the number of blocks so far.
#  3. content_block_delta, to the block at `index` while it is open, by the type of its `delta`:
#     input_json_delta: `partial_json` is appended to a text, which replaces the block's `input` at its
#     content_block_stop, unless empty;
#     citations_delta: `citation` is appended to the list `citations`; signature_delta: `signature` is set;
#     any other: its members but `type` are added to the block: a string is appended to a string, anything else is set.
#  4. message_delta: the event's members but `type`, `delta` and `usage` are set on the message, then those of `delta`,
#     and those of the event's `usage` on the message's `usage`. The first two set no `content`, `usage` or
#     `attestation`. After the one whose `delta` has a `stop_reason`, others have nothing but `usage`.
#  5. Other events, `ping` and those that may come to be, change nothing.
#  6. `content` of the message is the list of blocks, in the place where message_start has it, otherwise last.


@dataclass
class _Block:
    value: Chunk
    open: bool = True
    input: list[str] = field(default_factory=list)
    texts: dict[str, list[str]] = field(default_factory=dict)
    """Strings of the value that were appended to, in parts."""

    def whole(self) -> Chunk:
        return {**self.value, **{name: "".join(parts) for name, parts in self.texts.items()}}


_NOT_SET = frozenset({"content", "usage", "attestation"})
"""Members of a message that are made of other events, or are the gateway's."""


class MessageEvents:
    """Reads the events of a stream of /v1/messages in order."""

    def __init__(self) -> None:
        self._message: Chunk | None = None
        self._usage: Chunk | None = None
        self._blocks: list[_Block] = []
        self._state: Literal["open", "final", "stopped"] = "open"

    def add(self, name: str | None, text: str) -> EventKind:
        """@raises FoldError for an event that is not of the form, or is out of order."""
        event = _parse(name, text)
        kind: str = event["type"]
        if kind == "error":
            return "error"
        if self._state == "stopped":
            raise FoldError("an event comes after the final one")
        if kind == "message_start":
            self._begin(event.get("message"))
        elif self._message is None:
            if kind != "ping":
                raise FoldError("the message has not begun")
        elif kind.startswith("content_block_"):
            self._take_block(kind, event)
        elif kind == "message_delta":
            return self._take_delta(self._message, event)
        elif kind == "message_stop":
            if self._state != "final":
                raise FoldError("the message stops without a reason")
            self._state = "stopped"
            return "end"
        return "end" if self._state == "final" else "delta"

    def text(self) -> str:
        """The JSON text of the answer. @raises FoldError unless the stream is complete."""
        if self._state != "stopped" or self._message is None:
            raise FoldError("the stream ended before its message was complete")
        return stringify({**self._message, "content": [block.whole() for block in self._blocks]})

    def _begin(self, message: Json) -> None:
        if self._message is not None:
            raise FoldError("a second message begins")
        if not isinstance(message, dict) or message.get("content") not in (None, []):
            raise FoldError("the message does not begin empty")
        if "attestation" in message:
            raise FoldError("the message has an attestation of its own")
        self._message = dict(message)
        if isinstance(message.get("usage"), dict):
            self._usage = dict(message["usage"])

    def _take_block(self, kind: str, event: Chunk) -> None:
        if self._state != "open":
            raise FoldError("content comes after its end")
        index = number_of(event.get("index"))
        if kind == "content_block_start":
            block = event.get("content_block")
            if index != len(self._blocks) or not isinstance(block, dict):
                raise FoldError("a block is out of order")
            self._blocks.append(_Block(dict(block)))
            return
        at = None if index is None else _at(self._blocks, index)
        if at is None or not at.open:
            raise FoldError("a delta is of no block that is open")
        if kind == "content_block_stop":
            _close(at)
        elif kind == "content_block_delta":
            delta = event.get("delta")
            if not isinstance(delta, dict):
                raise FoldError("a delta has no text")
            _add_delta(at, delta)

    def _take_delta(self, message: Chunk, event: Chunk) -> EventKind:
        others = {name: value for name, value in event.items() if name not in ("type", "delta", "usage")}
        delta, usage = event.get("delta"), event.get("usage")
        parts: Chunk = delta if isinstance(delta, dict) else {}
        names = [*others, *parts]
        if self._state == "final" and names:
            raise FoldError("a message stops twice")
        if not _NOT_SET.isdisjoint(names):
            raise FoldError("a message_delta sets what is not its own")
        message.update(others)
        message.update(parts)
        if isinstance(usage, dict):
            self._usage = message["usage"] = {**(self._usage or {}), **usage}
        if parts.get("stop_reason") is None:
            return "end" if self._state == "final" else "delta"
        if any(block.open for block in self._blocks):
            raise FoldError("the message ends inside of a block")
        self._state = "final"
        return "final"


def _add_delta(block: _Block, delta: Chunk) -> None:
    value, kind = block.value, delta.get("type")
    if kind == "input_json_delta":
        block.input.append(_text_in(delta.get("partial_json")))
    elif kind == "citations_delta":
        if not isinstance(value.get("citations"), list):
            _set(block, "citations", [])
        value["citations"].append(delta.get("citation"))
    elif kind == "signature_delta":
        _set(block, "signature", _text_in(delta.get("signature")))
    else:
        for name, added in delta.items():
            if name == "type":
                continue
            if isinstance(value.get(name), str) and isinstance(added, str):
                block.texts.setdefault(name, [value[name]]).append(added)
            else:
                _set(block, name, added)


def _set(block: _Block, name: str, value: Json) -> None:
    block.value[name] = value
    block.texts.pop(name, None)


def _close(block: _Block) -> None:
    """@raises FoldError"""
    block.open = False
    text = paired("".join(block.input))
    if text == "":
        return
    try:
        _set(block, "input", parse_keeping_numbers(text))
    except JsonTextError as cause:
        raise FoldError("the input of a tool is not JSON") from cause
    # Readers differ in which of two members of one name they take.
    if duplicate_member(text) is not None:
        raise FoldError("the input of a tool names a member twice")


def fold_events(form: Literal["response", "message"], events: Iterable[tuple[str | None, str]]) -> str:
    """Folds a whole stream, names and payloads, into the JSON text of its answer. @raises FoldError"""
    record = ResponseEvents() if form == "response" else MessageEvents()
    for name, text in events:
        if record.add(name, text) == "error":
            raise FoldError("the stream ended with an error")
    return record.text()
