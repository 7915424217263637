"""
The rules of docs/attestation.md §3.1: what the chunks of a stream of completions fold into.

What a client shows must be what is signed. So each member that clients show has its own way of being joined, and all
others are carried (rule 8). A chunk that would lose, double, replace or invent something that is shown does not fold.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..json import end_of_value, skip_space, without_space_around
from ..strict_json import JsonTextError, duplicate_member, number_of, parse_keeping_numbers, stringify, whole_number

Json = Any
Chunk = dict[str, Json]

MAX_INDEX = 10_000
_MAX_DEPTH = 2500
"""A chunk that nests deeper does not fold: no chunk of a completion does, and engines run out of stack behind it."""


class FoldError(Exception):
    """The payloads of a stream do not fold. The message never quotes them."""

    def __init__(self, message: str, reason: Literal["rule", "broken"] = "rule") -> None:
        super().__init__(message)
        self.reason: Literal["rule", "broken"] = reason
        """`rule`: clients would show something else than the response says. `broken`: it is no whole stream of its form."""


def broken(message: str) -> FoldError:
    """The error for a stream that cannot be read, breaks off, or has an event out of place."""
    return FoldError(message, "broken")


def parse_chunk(payload: str) -> Chunk:
    """Parses one `data:` payload for folding. @raises FoldError"""
    try:
        value = parse_keeping_numbers(payload)
    except JsonTextError as cause:
        raise broken("a chunk is not JSON") from cause
    # llama-server begins some streams with `null`, an event without content.
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise broken("a chunk is not a JSON object")
    # Readers differ in which of two members of one name they take. Copied into another object of JavaScript, `__proto__` is its
    # prototype.
    name = duplicate_member(payload, "__proto__")
    if name == "__proto__":
        raise FoldError("a chunk names __proto__")
    if name is not None:
        raise broken("a chunk names a member twice")
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

    def whole(self) -> str:
        return "".join(self.parts)


class _Arguments(_Text):
    """Rule 7: the text of one JSON value, after whose end there is white space only."""

    def __init__(self) -> None:
        super().__init__()
        self._first = ""
        """Its first character that is no white space."""

    def append(self, value: str) -> None:
        super().append(value)
        text = without_space_around(value)
        # Where any other value ends cannot be seen: it comes as a whole.
        if self._first not in ("", *_BEGINNINGS) and text != "":
            raise FoldError("arguments go on after their end")
        self._first = self._first or text[:1]

    def whole(self) -> str:
        """Refuses arguments that go on after a complete value, as those of two calls under one index do."""
        text = super().whole()
        if self._first in _BEGINNINGS:
            try:
                end = end_of_value(text, skip_space(text, 0))
            except JsonTextError:
                # They were cut off, by a limit of tokens.
                return text
            if skip_space(text, end) < len(text):
                raise FoldError("arguments go on after their end")
        return text


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


class _Delta(Chunk):
    """The deltas of a choice."""

    reasoning: frozenset[str] | None = None
    """The names that its reasoning came under."""

    def check_reasoning(self, value: Chunk) -> None:
        """Rule 5: names of one thing. A client reads the one or the other. @param value that has been merged."""
        texts = {name: value[name] for name in _REASONING if value.get(name) is not None}
        if not any(texts.values()):
            return
        content = self.get("content")
        if isinstance(content, _Content) and content.reasons:
            raise FoldError("reasoning stands in two places")
        self.reasoning = self.reasoning or frozenset(texts)
        if self.reasoning != texts.keys() or len(set(texts.values())) > 1:
            raise FoldError("reasoning stands under two names")


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
        self._nameless = False
        """Whether a delta came in a chunk that names no object."""

    def add(self, chunk: Chunk) -> None:
        """@raises FoldError"""
        if is_error(chunk):
            raise broken("a chunk is an error")
        if self._goes_on(chunk):
            raise FoldError("a choice goes on after its end")
        self.join(self._completion, chunk, _OF_PAYLOAD)
        while self._todo:
            into, value, depth = self._todo.popleft()
            if depth > _MAX_DEPTH:
                raise broken("a chunk is nested too deeply")
            if isinstance(into, _Carried):
                self._carry_items(into, value, depth)
            else:
                for name, member in value.items():
                    into[name] = self._carried(into.get(name), member, depth + 1)
        self._check_payload(chunk)

    def _goes_on(self, chunk: Chunk) -> bool:
        """Whether a choice that has finished gets more. Some clients stop reading there."""
        choices, known = chunk.get("choices"), self._completion.get("choices")
        if not isinstance(choices, list) or not isinstance(known, _ByIndex):
            return False
        for choice in choices:
            index = number_of(choice.get("index")) if isinstance(choice, dict) else None
            if index is None or not known.items.get(index, {}).get("finish_reason"):  # type: ignore[call-overload]
                continue
            delta = choice.get("delta")
            more = [value for name, value in delta.items() if name != "role"] if isinstance(delta, dict) else []
            if choice.get("text") not in (None, "") or any(not _is_nothing(value) for value in more):
                return True
        return False

    def _check_payload(self, chunk: Chunk) -> None:
        """Rule 2. @param chunk that has been merged."""
        choices = self._completion.get("choices")
        deltas = any(choice.get("delta") is not None for choice in chunk.get("choices") or [])
        self._nameless = self._nameless or (deltas and not chunk.get("object"))
        # Some clients pass over such a chunk.
        if self._nameless and self._completion.get("object") == "chat.completion.chunk":
            raise FoldError("a chunk does not name its object")
        if self._most is not None and isinstance(choices, _ByIndex) and len(choices.items) > self._most:
            raise FoldError("there are more choices than the request asks for")

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
            self.join(choices.item(index), item, _OF_CHOICE)

    # What is carried.

    def _carried(self, before: Json, value: Json, depth: int) -> Json:
        """What stands where `before` stood. What a container gets is merged into it afterwards."""
        if value is None:
            return before
        if before is not None and _kind_of(before) != _kind_of(value):
            raise FoldError("a member changes its JSON type")
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


_BEGINNINGS = ("{", "[", '"')
"""Of JSON values whose end is seen."""
_REASONING = ("reasoning", "reasoning_content", "reasoning_text", "thinking")


APPENDED = frozenset((*_REASONING, "content", "refusal", "text", "arguments", "input", "data", "transcript", "summary"))
"""The names of texts that grow with each chunk."""


def _held(into: Chunk, name: str, kind: type[Any]) -> Any:
    """What grows under a name, begun where nothing stands there yet."""
    found = into.get(name)
    if found is None:
        found = into[name] = kind()
    return found


def _indexed(items: Json) -> Iterator[tuple[int, Chunk]]:
    """The items of a list that merge by their index, each with it. @raises FoldError"""
    seen: set[int] = set()
    for item in _list(items):
        index = _object(item).get("index")
        # A number that is not written in digits only is no int here.
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index <= MAX_INDEX:
            raise FoldError("an item has no index")
        if index in seen:
            raise FoldError("an index stands twice in a chunk")
        seen.add(index)
        yield index, item


def _index_of(item: Json) -> int | None:
    """By value: 1.0 is 1."""
    index = whole_number(item.get("index")) if isinstance(item, dict) else None
    return index if index is not None and 0 <= index <= MAX_INDEX else None


def _kind_of(value: Json) -> str:
    if isinstance(value, bool | str | list | dict):
        return next(kind.__name__ for kind in (bool, str, list, dict) if isinstance(value, kind))
    return "number"


def _is_nothing(value: Json) -> bool:
    return value is None or (isinstance(value, str | list) and len(value) == 0)


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
    if not isinstance(value, str) and number_of(value) is None:
        raise FoldError("an id or a time is neither text nor number")
    before = into.get(name)
    if before is None or before == "" or (before == 0 and isinstance(before, int) and before is not False):
        into[name] = value


def _last_object(_: Fold, into: Chunk, name: str, value: Json) -> None:
    into[name] = _object(value)


def _refused(_: Fold, into: Chunk, name: str, value: Json) -> None:
    raise FoldError("a choice of a stream has a message")


def _refused_in_chunk(_: Fold, into: Chunk, name: str, value: Json) -> None:
    raise FoldError("a chunk has a message")


def _added(_: Fold, into: Chunk, name: str, value: Json) -> None:
    """A list whose items clients show one after another."""
    _held(into, name, list).extend(_list(value))


def _content(_: Fold, into: Chunk, name: str, value: Json) -> None:
    content: _Content = _held(into, name, _Content)
    if isinstance(value, str):
        content.add_text(value)
    else:
        content.add_parts([_object(part) for part in _list(value)])


def _delta(fold: Fold, into: Chunk, name: str, value: Json) -> None:
    delta: _Delta = _held(into, name, _Delta)
    fold.join(delta, _object(value), _OF_DELTA)
    delta.check_reasoning(value)


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
    "annotations": _added,
}
_OF_CHOICE: Mapping[str, Join] = {
    "text": _appended,
    "finish_reason": _once,
    "logprobs": _object_of({"content": _added, "refusal": _added}),
    "delta": _delta,
    "message": _refused,
}
_OF_PAYLOAD: Mapping[str, Join] = {
    "id": _first,
    "created": _first,
    "object": _once,
    "model": _once,
    "usage": _last_object,
    "message": _refused_in_chunk,
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
        return value.whole()
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
    return {name: one.whole() if isinstance(one, _Text) else one for name, one in value.items()}
