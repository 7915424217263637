"""
The published rule for folding the chunks of a stream into one completion. docs/attestation.md states it in prose.

 1. Members are merged in the order in which they first appear (integer-like names first, as ECMAScript orders them).
 2. null sets a member that is absent and replaces nothing.
 3. A string inside `delta` or `text` of an item that merges by its index (6), as choices do, is appended to what is
    there. These are set instead, and the last one that is not empty wins: `role`, `id`, `type`, `name`, and every
    string outside (`finish_reason`, `model`, …).
 4. Numbers and booleans are set, and the last one wins. A number keeps its source text.
 5. Objects merge member by member.
 6. Arrays whose items have an integer `index` merge by it and are sorted by it; other arrays are appended.
 7. `usage` is the last one that is not null, whole.
 8. At the end a choice's `delta` becomes `message`, with role "assistant" and content null where no chunk gave one, and
    `index` is removed from its tool calls; `object` "chat.completion.chunk" becomes "chat.completion", and each choice
    of such a stream has a `message`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .strict_json import JsonTextError, duplicate_member, parse_keeping_numbers, stringify, whole_number

Json = Any
Chunk = dict[str, Json]

_SET_IN_DELTA = frozenset({"role", "id", "type", "name"})
"""Strings that are set, even inside a delta."""
_MAX_INDEX = 10_000
"""A larger index is not a position, and its array is appended."""
_MAX_DEPTH = 2500
"""A chunk that nests deeper does not fold: no chunk of a completion does, and engines run out of stack behind it."""


class FoldError(Exception):
    """A payload is not a JSON object, or events do not fold. The message never quotes them."""


def parse_chunk(payload: str) -> Chunk:
    """Parses one `data:` payload for folding. @raises FoldError"""
    try:
        value = parse_keeping_numbers(payload)
    except JsonTextError as cause:
        raise FoldError("a chunk is not JSON") from cause
    # llama-server begins some streams with `null`, an event without content.
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise FoldError("a chunk is not a JSON object")
    # Readers differ in which of two members of one name they take.
    if duplicate_member(payload) is not None:
        raise FoldError("a chunk names a member twice")
    return value


def fold_payloads(payloads: Iterable[str]) -> str:
    """
    Folds a whole transcript, all `data:` payloads in order, without `[DONE]`, into the JSON text of the completion.
    @raises FoldError
    """
    fold = Fold()
    for payload in payloads:
        fold.add(parse_chunk(payload))
    return fold.text()


class _Items(list[Json]):
    """An array of the completion."""

    def __init__(self) -> None:
        super().__init__()
        self.by_index: dict[int, Json] = {}
        """Items whose index is a position. It is kept beside them, because members are merged later than items."""
        self.places: list[int] = []
        """Of each item the position by which it is sorted: an item without one stays after those before it."""
        self.highest = -1

    def put(self, item: Json, index: int | None) -> None:
        self.highest = max(self.highest, -1 if index is None else index)
        self.places.append(self.highest if index is None else index)
        self.append(item)
        if index is not None:
            self.by_index[index] = item

    def order(self) -> None:
        if any(self.places[i] > self.places[i + 1] for i in range(len(self) - 1)):
            order = sorted(range(len(self)), key=self.places.__getitem__)
            self[:] = [self[i] for i in order]
            self.places = [self.places[i] for i in order]


@dataclass(frozen=True)
class _Text:
    """A string of the completion that is appended to: joined once, at the end."""

    parts: list[str]


class Fold:
    """Folds chunks as they arrive. `text()` returns the completion so far as JSON text."""

    def __init__(self) -> None:
        self._completion: dict[str, Json] = {}
        self._lists: list[_Items] = []
        self._texts: list[tuple[dict[str, Json], str]] = []
        """Where texts are that grow: container and name."""
        self._todo: deque[tuple[Json, Json, str, bool, int]] = deque()
        """
        Containers that wait for what is merged into them: container, value, key, whether inside of a delta, depth.
        First come, first served: of one container all wait in the same depth, so that each gets its values in order.
        """

    def add(self, chunk: Chunk) -> None:
        """@raises FoldError"""
        completion = self._completion
        for key, value in chunk.items():
            if key != "usage":
                completion[key] = self._merged(completion.get(key), value, key, False, 1)
            elif value is not None or key not in completion:
                completion[key] = value
        while self._todo:
            into, value, key, in_delta, depth = self._todo.popleft()
            if depth > _MAX_DEPTH:
                raise FoldError("a chunk is nested too deeply")
            if isinstance(into, _Items):
                self._merge_items(into, value, in_delta, depth)
            else:
                self._merge_members(into, value, key, in_delta, depth)

    def text(self) -> str:
        """The JSON text of the folded completion."""
        for items in self._lists:
            items.order()
        for container, name in self._texts:
            if isinstance(container[name], _Text):
                container[name] = "".join(container[name].parts)
        self._texts.clear()
        return stringify(_finished(self._completion))

    def _merged(self, before: Json, value: Json, key: str, in_delta: bool, depth: int) -> Json:
        """What stands where `before` stood. What a container gets is merged into it afterwards."""
        if value is None:
            return before
        if isinstance(value, str):
            return _merged_string(before, value, key, in_delta)
        if not isinstance(value, list | dict):
            return value
        into = before
        if isinstance(value, list):
            if not isinstance(before, _Items):
                into = _Items()
                self._lists.append(into)
        elif not isinstance(before, dict):
            into = {}
        self._todo.append((into, value, key, in_delta, depth))
        return into

    def _merge_members(self, into: dict[str, Json], value: Chunk, key: str, in_delta: bool, depth: int) -> None:
        for name, member in value.items():
            inside = in_delta or (key == "choices" and name in ("delta", "text"))
            before = into.get(name)
            into[name] = self._merged(before, member, name, inside, depth + 1)
            if isinstance(into[name], _Text) and not isinstance(before, _Text):
                self._texts.append((into, name))

    def _merge_items(self, into: _Items, items: list[Json], in_delta: bool, depth: int) -> None:
        for item in items:
            index = _index_of(item)
            if index is None:
                into.put(self._merged(None, item, "", in_delta, depth + 1), None)
                continue
            # The key 'choices' tells to append to `delta` and `text` of this object.
            key = "" if in_delta else "choices"
            found = into.by_index.get(index)
            merged = self._merged(found, item, key, in_delta, depth + 1)
            if found is None:
                into.put(merged, index)


def _merged_string(before: Json, value: str, key: str, in_delta: bool) -> str | _Text:
    if isinstance(before, _Text):
        before.parts.append(value)
        return before
    if not isinstance(before, str):
        return value
    if in_delta and key not in _SET_IN_DELTA:
        return _Text([before, value])
    return value or before


def _index_of(item: Json) -> int | None:
    index = whole_number(item.get("index")) if isinstance(item, dict) else None
    return index if index is not None and 0 <= index <= _MAX_INDEX else None


def _finished(completion: Chunk) -> Chunk:
    chat = completion.get("object") == "chat.completion.chunk"
    out = {**completion, "object": "chat.completion"} if chat else dict(completion)
    choices = out.get("choices")
    if isinstance(choices, list):
        out["choices"] = [_finished_choice(one, chat) if isinstance(one, dict) else one for one in choices]
    return out


def _finished_choice(choice: Chunk, chat: bool) -> Chunk:
    out: Chunk = {}
    for name, value in choice.items():
        if name == "delta":
            out["message"] = _message(value)
        else:
            out[name] = value
    if chat and "message" not in out:
        out["message"] = _message({})
    return out


def _message(delta: Json) -> Json:
    if not isinstance(delta, dict):
        return delta
    role, content = delta.get("role"), delta.get("content")
    out: Chunk = {"role": "assistant" if role is None else role, "content": content}
    out.update({name: value for name, value in delta.items() if name not in out})
    if isinstance(out.get("tool_calls"), list):
        out["tool_calls"] = [_without_index(call) for call in out["tool_calls"]]
    return out


def _without_index(call: Json) -> Json:
    if not isinstance(call, dict):
        return call
    return {name: value for name, value in call.items() if name != "index"}
