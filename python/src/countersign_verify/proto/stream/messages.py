"""
The rules of docs/attestation.md §3.3: no event of a stream of /v1/messages holds the whole message. It is what the events
fold into.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from ..json import paired
from ..strict_json import JsonTextError, duplicate_member, number_of, parse_keeping_numbers, stringify
from .events import EventKind, is_identical, parse_event, text_in
from .fold import Chunk, FoldError, broken

Json = Any

_BLOCKS = {
    "text_delta": ("text",),
    "citations_delta": ("text",),
    # LiteLLM writes thoughts into a block of text.
    "thinking_delta": ("thinking", "text"),
    "signature_delta": ("thinking",),
    "compaction_delta": ("compaction",),
}
"""
The types of blocks that a delta may change; `input_json_delta` any that ends in `tool_use`. Clients pass over a delta in
any other, and show its text all the same.
"""
_APPENDED = {"text_delta": "text", "thinking_delta": "thinking", "compaction_delta": "content"}
"""By a delta's type the member that it appends, of its own and of the block."""
_MEMBERS = {
    "text_delta": ("text",),
    "citations_delta": ("citation",),
    "thinking_delta": ("thinking", "estimated_tokens"),
    "signature_delta": ("signature",),
    "compaction_delta": ("content", "encrypted_content"),
    "input_json_delta": ("partial_json",),
}
"""What a delta may have beside its type: some applications show a text wherever it stands."""
_BLOCK_EVENTS = ("content_block_start", "content_block_delta", "content_block_stop")
_STOPS = ("stop_reason", "stop_sequence")
SET_BY_DELTA = ("stop_reason", "stop_sequence", "stop_details", "container")
SET_BY_EVENT = ("context_management",)
"""Members of the `delta` of a message_delta, and of the event itself, that are set on the message."""


@dataclass
class _Block:
    value: Chunk
    open: bool = True
    input: list[str] = field(default_factory=list)
    texts: dict[str, list[str]] = field(default_factory=dict)
    """Strings of the value that were appended to, in parts."""

    def whole(self) -> Chunk:
        return {**self.value, **{name: "".join(parts) for name, parts in self.texts.items()}}


class MessageEvents:
    """Reads the events of a stream of /v1/messages in order."""

    def __init__(self) -> None:
        self._message: Chunk | None = None
        self._blocks: list[_Block] = []
        self._state: Literal["open", "final", "stopped"] = "open"

    def add(self, name: str | None, text: str) -> EventKind:
        """@raises FoldError for an event that is not of the form, or is out of order."""
        event = parse_event(name, text)
        kind: str = event["type"]
        if kind == "error":
            return "error"
        if self._state == "stopped":
            raise broken("an event comes after the final one")
        if kind == "message_start":
            self._begin(event.get("message"))
        elif self._message is None:
            if kind != "ping":
                raise broken("the message has not begun")
        elif kind in _BLOCK_EVENTS:
            self._take_block(kind, event)
        elif kind == "message_delta":
            return self._take_delta(self._message, event)
        elif kind == "message_stop":
            if self._state != "final":
                raise broken("the message stops without a reason")
            self._state = "stopped"
            return "end"
        return "end" if self._state == "final" else "delta"

    def text(self) -> str:
        """The JSON text of the answer. @raises FoldError unless the stream is complete."""
        if self._state != "stopped" or self._message is None:
            raise broken("the stream ended before its message was complete")
        return stringify({**self._message, "content": [block.whole() for block in self._blocks]})

    def _begin(self, message: Json) -> None:
        """Rule 1."""
        if self._message is not None:
            raise broken("a second message begins")
        if not isinstance(message, dict) or message.get("content") not in (None, []):
            raise FoldError("the message does not begin empty")
        if "attestation" in message:
            raise broken("the message has an attestation of its own")
        self._message = dict(message)

    def _take_block(self, kind: str, event: Chunk) -> None:
        """Rules 2 to 4."""
        if self._state != "open":
            raise FoldError("content comes after its end")
        index = number_of(event.get("index"))
        if kind == "content_block_start":
            block = event.get("content_block")
            if index != len(self._blocks) or not isinstance(block, dict):
                raise FoldError("a block is out of order")
            kind_of_block = block.get("type")
            # Some clients read these texts in deltas only.
            texts = ("text", "thinking", "content") if kind_of_block == "compaction" else ("text", "thinking")
            if any(block.get(name) not in (None, "") for name in texts):
                raise FoldError("a block begins with text that is no delta")
            # Anthropic's client would add the first delta to "undefined".
            if kind_of_block == "thinking" and block.get("thinking") != "":
                raise FoldError("a block of thoughts has no text")
            self._blocks.append(_Block(dict(block)))
            return
        if index is None or not index.is_integer() or not 0 <= index < len(self._blocks):
            raise FoldError("an event is of no block that is open")
        at = self._blocks[int(index)]
        if not at.open:
            raise FoldError("an event is of no block that is open")
        if kind == "content_block_stop":
            _close(at)
        else:
            delta = event.get("delta")
            delta = delta if isinstance(delta, dict) else {}
            # llama-server signs its thoughts after the text. All else that is not of the last block is shown in another order.
            if at is not self._blocks[-1] and delta.get("type") != "signature_delta":
                raise FoldError("a delta is of no block that is open")
            if not _fits(delta.get("type"), at.value.get("type")):
                raise FoldError("a delta does not fit its block, or is of a type that has no rule")
            if not delta.keys() <= {"type", *_MEMBERS[delta["type"]]}:
                raise FoldError("a delta has a member of another type")
            _add_delta(at, delta)

    def _take_delta(self, message: Chunk, event: Chunk) -> EventKind:
        """Rule 5."""
        delta, usage = event.get("delta"), event.get("usage")
        parts: Chunk = delta if isinstance(delta, dict) else {}
        sets = {name: parts[name] for name in SET_BY_DELTA if name in parts}
        sets |= {name: event[name] for name in SET_BY_EVENT if name in event}
        # Anthropic's client takes both members from the last such event.
        if self._state == "final" and not all(is_identical(parts.get(name), message.get(name)) for name in _STOPS):
            raise FoldError("a message stops twice")
        _put(message, sets)
        if isinstance(usage, dict):
            before = message.get("usage")
            message["usage"] = dict(before) if isinstance(before, dict) else {}
            _put(message["usage"], usage)
        if sets.get("stop_reason") is None:
            return "end" if self._state == "final" else "delta"
        for block in self._blocks:
            if block.open:
                _close(block)
        self._state = "final"
        return "final"


def _fits(kind: Json, block: Json) -> bool:
    if not isinstance(kind, str) or not isinstance(block, str):
        return False
    return block.endswith("tool_use") if kind == "input_json_delta" else block in _BLOCKS.get(kind, ())


def _add_delta(block: _Block, delta: Chunk) -> None:
    """@param delta of a type that fits the block."""
    value, kind = block.value, delta["type"]
    if kind == "input_json_delta":
        if value.get("input") not in (None, {}):
            raise FoldError("the input of a tool comes twice")
        block.input.append(text_in(delta.get("partial_json")))
    elif kind == "citations_delta":
        if not isinstance(value.get("citations"), list):
            value["citations"] = []
        value["citations"].append(delta.get("citation"))
    elif kind == "signature_delta":
        value["signature"] = text_in(delta.get("signature"))
    else:
        name = _APPENDED[kind]
        before, added = value.get(name), delta.get(name)
        value[name] = "" if before is None else text_in(before)
        # A compaction may come without a summary.
        added = "" if added is None and kind == "compaction_delta" else text_in(added)
        block.texts.setdefault(name, [value[name]]).append(added)


def _put(into: Chunk, members: Chunk) -> None:
    """Sets the members. None replaces nothing."""
    for name, value in members.items():
        into[name] = into.get(name) if value is None else value


def _close(block: _Block) -> None:
    """Rule 4. @raises FoldError"""
    block.open = False
    text = paired("".join(block.input))
    if text == "":
        return
    try:
        value = parse_keeping_numbers(text)
    except JsonTextError as cause:
        raise FoldError("the input of a tool is not JSON") from cause
    # Readers differ in which of two members of one name they take.
    if duplicate_member(text) is not None:
        raise FoldError("the input of a tool names a member twice")
    block.value["input"] = value
