"""
The rules of docs/attestation.md §3.1: what the chunks of a stream of completions fold into.

What a client shows must be what is signed. So each member that clients show has its own way of being joined, and all
others are carried (rule 8). A chunk that would lose, double, replace or invent something that is shown does not fold.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .json_text import without_space_around
from .strict_json import JsonTextError, duplicate_member, parse_keeping_numbers, stringify, whole_number

Json = Any
Chunk = dict[str, Json]

MAX_INDEX = 10_000
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


def is_error(chunk: Chunk) -> bool:
    """OpenAI's and Anthropic's member, or vLLM's object."""
    return chunk.get("error") is not None or chunk.get("object") == "error"


def fold_payloads(payloads: Iterable[str], choices: int | None = 1) -> str:
    """
    Folds a whole transcript, all `data:` payloads in order, without `[DONE]`, into the JSON text of the completion.
    @param choices how many the request asks for; None: the payloads are a part of a stream. @raises FoldError
    """
    fold = Fold(choices)
    for payload in payloads:
        fold.add(parse_chunk(payload))
    return fold.text()


# What stands in the completion while it grows. `_finished` makes JSON values of it.


@dataclass
class _Text:
    """A string that is appended to: joined once, at the end."""

    parts: list[str] = field(default_factory=list)

    def append(self, value: str) -> None:
        self.parts.append(value)


class _Arguments(_Text):
    """Rule 7: the text of one JSON value, behind whose end there is white space only."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._state = "before"
        """`before` the value, `inside` of it, or `after` it."""

    def append(self, value: str) -> None:
        super().append(value)
        at = 0
        if self._state == "before":
            text = value.lstrip(_SPACE)
            if text == "":
                return
            at = len(value) - len(text)
            # Where any other value ends cannot be seen: it comes as a whole.
            self._state = "inside" if text[0] in '{["' else "after"
            if self._state == "after":
                return
        if self._state == "inside":
            at = self._skip(value, at)
        if without_space_around(value[at:]) != "":
            raise FoldError("arguments go on after their end")

    def _skip(self, text: str, at: int) -> int:
        """The offset after the end of the value, or the length of the text."""
        while at < len(text):
            if self._escaped:
                self._escaped = False
                at += 1
            elif self._in_string:
                found = _IN_STRING.search(text, at)
                if found is None:
                    return len(text)
                at = found.end()
                self._escaped = found.group() == "\\"
                self._in_string = self._escaped
            else:
                found = _BRACKET_OR_QUOTE.search(text, at)
                if found is None:
                    return len(text)
                at = found.end()
                character = found.group()
                self._in_string = character == '"'
                self._depth += 1 if character in "{[" else -1 if character in "}]" else 0
            if self._depth == 0 and not self._in_string:
                self._state = "after"
                return at
        return at


class _Content:
    """Rule 4: text, or from the first list on a list of parts."""

    def __init__(self) -> None:
        self.parts: list[Json] = []
        self.reasons = False
        """Whether a part is reasoning."""

    def add_text(self, text: str) -> None:
        if self.parts and isinstance(self.parts[-1], _Text):
            self.parts[-1].append(text)
        elif text != "":
            self.parts.append(_Text([text]))

    def add_parts(self, parts: list[Chunk]) -> None:
        for part in parts:
            # Some clients merge parts by their index, others do not.
            if "index" in part:
                raise FoldError("a part of content has an index")
            self.reasons = self.reasons or part.get("type") in ("thinking", "reasoning")
            if part.keys() == {"type", "text"} and part["type"] == "text" and isinstance(part["text"], str):
                self.add_text(part["text"])
            else:
                self.parts.append(part)


class _ByIndex:
    """Objects that merge by their index and stand in its order: choices and calls."""

    def __init__(self) -> None:
        self.items: dict[int, Chunk] = {}

    def item(self, index: int) -> Chunk:
        """The one with the index, begun where there is none."""
        return self.items.setdefault(index, {})

    def has_gaps(self) -> bool:
        return len(self.items) != 1 + max(self.items, default=-1)

    def in_order(self) -> list[Chunk]:
        return [self.items[index] for index in sorted(self.items)]


class _Details:
    """Rule 6: `reasoning_details`."""

    def __init__(self) -> None:
        self.items: list[Json] = []
        self.last: dict[int, Chunk] = {}


class _Carried(list[Json]):
    """A list among the members that are carried (rule 8)."""

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


Join = Callable[["Fold", Chunk, str, Json], None]
"""Joins a value, which is not None, with what stands in an object under a name. @raises FoldError"""


class Fold:
    """Folds chunks as they arrive. `text()` returns the completion so far as JSON text."""

    def __init__(self, choices: int | None = 1) -> None:
        """@param choices how many the request asks for; None: the chunks are a part of a stream."""
        self._most = choices
        self._completion: Chunk = {}
        self._lists: list[_Carried] = []
        self._todo: deque[tuple[Json, Json, int]] = deque()
        """
        Carried containers that wait for what is merged into them: container, value, depth. First come, first served: of
        one container all wait in the same depth, so that each gets its values in order.
        """
        self._reasoning: dict[int, set[str]] = {}
        """By a choice's index the names that its reasoning came under."""

    def add(self, chunk: Chunk) -> None:
        """@raises FoldError"""
        if is_error(chunk):
            raise FoldError("a chunk is an error")
        self.join(self._completion, chunk, _OF_PAYLOAD)
        while self._todo:
            into, value, depth = self._todo.popleft()
            if depth > _MAX_DEPTH:
                raise FoldError("a chunk is nested too deeply")
            if isinstance(into, _Carried):
                self._carry_items(into, value, depth)
            else:
                for name, member in value.items():
                    into[name] = self._carried(into.get(name), member, depth + 1)

    def join(self, into: Chunk, value: Chunk, joins: Mapping[str, Join]) -> None:
        for name, member in value.items():
            if member is None:
                into.setdefault(name, None)
            elif name in joins:
                joins[name](self, into, name, member)
            else:
                into[name] = self._carried(into.get(name), member, 1)

    def text(self) -> str:
        """The JSON text of the folded completion. @raises FoldError"""
        for items in self._lists:
            items.order()
        choices = self._completion.get("choices")
        if self._most is not None and isinstance(choices, _ByIndex) and choices.has_gaps():
            raise FoldError("a choice is missing")
        return stringify(_finished(self._completion))

    # Of the payload.

    def add_choices(self, into: Chunk, name: str, value: Json) -> None:
        choices = _held(into, name, _ByIndex)
        for index, item in _indexed(value):
            choice = choices.item(index)
            self.join(choice, item, _OF_CHOICE)
            if isinstance(item.get("delta"), dict):
                self._check_reasoning(index, item["delta"], choice["delta"].get("content"))
        if self._most is not None and len(choices.items) > self._most:
            raise FoldError("there are more choices than the request asks for")

    def _check_reasoning(self, index: int, delta: Chunk, content: Json) -> None:
        """Rule 5: names of one thing. A client reads the one or the other."""
        texts = {name: delta[name] for name in _REASONING if delta.get(name) is not None}
        if not any(texts.values()):
            return
        if isinstance(content, _Content) and content.reasons:
            raise FoldError("reasoning stands in two places")
        used = self._reasoning.setdefault(index, set(texts))
        if used != texts.keys() or len(set(texts.values())) > 1:
            raise FoldError("reasoning stands under two names")

    # What is carried.

    def _carried(self, before: Json, value: Json, depth: int) -> Json:
        """What stands where `before` stood. What a container gets is merged into it afterwards."""
        if value is None:
            return before
        if isinstance(value, str):
            return before if value == "" and isinstance(before, str) else value
        if not isinstance(value, list | dict):
            return value
        into = before
        if isinstance(value, list):
            if not isinstance(before, _Carried):
                into = _Carried()
                self._lists.append(into)
        elif not isinstance(before, dict):
            into = {}
        self._todo.append((into, value, depth))
        return into

    def _carry_items(self, into: _Carried, items: list[Json], depth: int) -> None:
        for item in items:
            index = _index_of(item)
            found = None if index is None else into.by_index.get(index)
            merged = self._carried(found, item, depth + 1)
            if found is None:
                into.put(merged, index)


_SPACE = " \t\n\r"
_IN_STRING = re.compile(r'["\\]')
_BRACKET_OR_QUOTE = re.compile(r'["{}\[\]]')
_REASONING = ("reasoning", "reasoning_content", "reasoning_text", "thinking")


APPENDED = frozenset((*_REASONING, "content", "refusal", "text", "arguments", "input", "data", "transcript", "summary"))
"""The names of texts that grow with each chunk."""


def _held(into: Chunk, name: str, kind: type[Any]) -> Any:
    """What grows under a name, begun where nothing stands there yet."""
    found = into.get(name)
    if found is None:
        found = into[name] = kind()
    return found


def _indexed(items: Json) -> list[tuple[int, Chunk]]:
    """The items of a list that merge by their index, each with it. @raises FoldError"""
    out: list[tuple[int, Chunk]] = []
    for item in _list(items):
        index = _object(item).get("index")
        # A number that is not written in digits only is no int here.
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index <= MAX_INDEX:
            raise FoldError("an item has no index")
        out.append((index, item))
    if len({index for index, _ in out}) < len(out):
        raise FoldError("an index stands twice in a chunk")
    return out


def _index_of(item: Json) -> int | None:
    """By value: 1.0 is 1."""
    index = whole_number(item.get("index")) if isinstance(item, dict) else None
    return index if index is not None and 0 <= index <= MAX_INDEX else None


def _string(value: Json) -> str:
    if not isinstance(value, str):
        raise FoldError("a shown member is no text")
    return value


def _object(value: Json) -> Chunk:
    if not isinstance(value, dict):
        raise FoldError("a shown member is no object")
    return value


def _list(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise FoldError("a shown member is no list")
    return value


# How members are joined.


def _appended(_: Fold, into: Chunk, name: str, value: Json) -> None:
    _held(into, name, _Text).append(_string(value))


def _arguments(_: Fold, into: Chunk, name: str, value: Json) -> None:
    _held(into, name, _Arguments).append(_string(value))


def _once(_: Fold, into: Chunk, name: str, value: Json) -> None:
    before = into.get(name)
    text = _string(value)
    if before and text not in ("", before):
        raise FoldError("a member changes that is set once")
    into[name] = before or text


def _first(_: Fold, into: Chunk, name: str, value: Json) -> None:
    before = into.get(name)
    if before is None or before == "" or (before == 0 and isinstance(before, int) and before is not False):
        into[name] = value


def _last_object(_: Fold, into: Chunk, name: str, value: Json) -> None:
    into[name] = _object(value)


def _refused(_: Fold, into: Chunk, name: str, value: Json) -> None:
    raise FoldError("a choice of a stream has a message")


def _content(_: Fold, into: Chunk, name: str, value: Json) -> None:
    content: _Content = _held(into, name, _Content)
    if isinstance(value, str):
        content.add_text(value)
    else:
        content.add_parts([_object(part) for part in _list(value)])


def _object_of(joins: Mapping[str, Join]) -> Join:
    def join(fold: Fold, into: Chunk, name: str, value: Json) -> None:
        fold.join(_held(into, name, dict), _object(value), joins)

    return join


def _calls(fold: Fold, into: Chunk, name: str, value: Json) -> None:
    calls: _ByIndex = _held(into, name, _ByIndex)
    for index, item in _indexed(value):
        if index not in calls.items and calls.items and index < next(reversed(calls.items)):
            raise FoldError("an item comes before those of lower indices")
        call = calls.item(index)
        fold.join(call, item, _OF_CALL)
        # Some clients take a fragment without a name for one of the call before.
        names = [call[kind].get("name") or "" for kind in ("function", "custom") if call.get(kind) is not None]
        if not any(without_space_around(one) for one in names):
            raise FoldError("a call begins without a name")


def _details(fold: Fold, into: Chunk, name: str, value: Json) -> None:
    details: _Details = _held(into, name, _Details)
    for item in map(_object, _list(value)):
        index = _index_of(item)
        last = None if index is None else details.last.get(index)
        if last is None or _differ(last.get("type"), item.get("type")):
            last = {}
            details.items.append(last)
            if index is not None:
                details.last[index] = last
        fold.join(last, item, _OF_DETAIL)


def _differ(a: Json, b: Json) -> bool:
    return a is not None and b is not None and a != b


_FUNCTION: Mapping[str, Join] = {"name": _once, "arguments": _arguments}
_OF_CALL: Mapping[str, Join] = {
    "id": _once,
    "type": _once,
    "function": _object_of(_FUNCTION),
    "custom": _object_of({"name": _once, "input": _appended}),
}
_OF_DETAIL: Mapping[str, Join] = {
    **dict.fromkeys(("type", "id", "format"), _once),
    **dict.fromkeys(("text", "summary", "data"), _appended),
}
_OF_DELTA: Mapping[str, Join] = {
    "role": _once,
    "content": _content,
    **dict.fromkeys(("refusal", *_REASONING), _appended),
    "reasoning_details": _details,
    "tool_calls": _calls,
    "function_call": _object_of(_FUNCTION),
    "audio": _object_of({"id": _once, "data": _appended, "transcript": _appended}),
}
_OF_CHOICE: Mapping[str, Join] = {
    "text": _appended,
    "finish_reason": _once,
    "delta": _object_of(_OF_DELTA),
    "message": _refused,
}
_OF_PAYLOAD: Mapping[str, Join] = {
    "id": _first,
    "created": _first,
    "object": _once,
    "model": _once,
    "usage": _last_object,
    "choices": Fold.add_choices,
}


# Rule 9: what they fold into at the end.


def _finished(completion: Chunk) -> Chunk:
    out = dict(completion)
    chat = out.get("object") == "chat.completion.chunk"
    if chat:
        out["object"] = "chat.completion"
    if isinstance(out.get("choices"), _ByIndex):
        out["choices"] = [_finished_choice(one, chat) for one in out["choices"].in_order()]
    return out


def _finished_choice(choice: Chunk, chat: bool) -> Chunk:
    text, delta = choice.get("text"), choice.get("delta")
    if text is not None and delta is not None and _settled(text) != "":
        raise FoldError("a choice has text and a delta")
    out: Chunk = {}
    for name, value in choice.items():
        if name == "delta" and (chat or value is not None):
            out["message"] = _message({} if value is None else value)
        # A choice may have no message of its own, and null says nothing.
        elif name not in ("message", "delta"):
            out[name] = _settled(value)
    if chat and "message" not in out:
        out["message"] = _message({})
    return out


def _message(delta: Chunk) -> Chunk:
    role, content = delta.get("role"), delta.get("content")
    out: Chunk = {"role": role or "assistant", "content": _settled(content)}
    out.update({name: _settled(value) for name, value in delta.items() if name not in out})
    if isinstance(delta.get("tool_calls"), _ByIndex):
        calls = delta["tool_calls"].in_order()
        ids = [call["id"] for call in calls if call.get("id")]
        if len(set(ids)) < len(ids):
            raise FoldError("two calls have the same id")
        out["tool_calls"] = [
            {name: _settled(value) for name, value in call.items() if name != "index"} for call in calls
        ]
    return out


def _settled(value: Json) -> Json:
    """JSON of what grew. It goes no deeper than the members that the tables name."""
    if isinstance(value, _Text):
        return "".join(value.parts)
    if isinstance(value, _Content):
        parts = [{"type": "text", "text": _settled(one)} if isinstance(one, _Text) else one for one in value.parts]
        if not parts:
            return ""
        return _settled(value.parts[0]) if len(parts) == 1 and isinstance(value.parts[0], _Text) else parts
    if isinstance(value, _Details):
        return [_settled_members(item) for item in value.items]
    return _settled_members(value)


def _settled_members(value: Json) -> Json:
    """Of an object whose own members may have grown: a call's function, audio, an item of reasoning."""
    if not isinstance(value, dict):
        return value
    return {name: "".join(one.parts) if isinstance(one, _Text) else one for name, one in value.items()}
