"""
The rules of docs/attestation.md §3.2: the last event of a stream of /v1/responses holds the whole response. What clients
showed before, texts and calls, must be what it holds, and it may hold no other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..json import paired, top_level_members
from ..strict_json import number_of, stringify
from .events import EventKind, is_empty, is_final_response, is_identical, parse_event, text_in
from .fold import Chunk, FoldError, broken

Json = Any


class _Row(NamedTuple):
    """A text that is streamed, and where the final response has it."""

    name: str
    of: tuple[str, ...]
    """The types of items that have it."""
    member: str
    """Of a `.done` event that has the whole text, and of the item (or its part) in the final response."""
    part: tuple[str, str] | None = None
    """
    The item's list of parts and their type. Clients show these texts delta by delta. None: the item itself has the text.
    """

    @property
    def holder(self) -> str:
        """The item's member that has the text."""
        return self.member if self.part is None else self.part[0]


_OUTPUT = _Row("output text", ("message",), "text", ("content", "output_text"))
_REFUSAL = _Row("refusal", ("message",), "refusal", ("content", "refusal"))
_REASONING = _Row("reasoning", ("reasoning",), "text", ("content", "reasoning_text"))
_SUMMARY = _Row("summary", ("reasoning",), "text", ("summary", "summary_text"))
_ARGUMENTS = _Row("arguments", ("function_call", "mcp_call"), "arguments")
_INPUT = _Row("input", ("custom_tool_call",), "input")
_CODE = _Row("code", ("code_interpreter_call",), "code")
_ROWS: Mapping[str, _Row] = {
    "response.output_text": _OUTPUT,
    "response.refusal": _REFUSAL,
    "response.reasoning_text": _REASONING,
    "response.reasoning_summary_text": _SUMMARY,
    "response.function_call_arguments": _ARGUMENTS,
    "response.mcp_call_arguments": _ARGUMENTS,
    "response.custom_tool_call_input": _INPUT,
    "response.code_interpreter_call_code": _CODE,
}
"""By the event's type without `.delta` or `.done`."""
_ROWS_OF = {
    kind: [row for row in dict.fromkeys(_ROWS.values()) if kind in row.of] for row in _ROWS.values() for kind in row.of
}
"""By the type of an item."""
_PART_TYPES = frozenset(row.part[1] for row in _ROWS.values() if row.part is not None)
_ANNOTATION = "response.output_text.annotation.added"
_EVENTS = re.compile(
    r"keepalive|ping|response\.(?:created|queued|in_progress|(?:content|reasoning|reasoning_summary)_part\.(?:added|done)"
    r"|output_text\.annotation\.added"
    r"|(?:web_search|file_search|code_interpreter|image_generation|mcp)_call"
    r"\.(?:in_progress|searching|interpreting|generating|partial_image|completed|failed)"
    r"|mcp_list_tools\.(?:in_progress|completed|failed))"
)
"""Other events: they tell of states, and show nothing. A client could show one of a new type."""
_PART_EVENT = re.compile(r"response\.(?:content|reasoning|reasoning_summary)_part\.(?:added|done)")
_GROWING = frozenset(row.member for row in _ROWS.values())
_HOLDERS = ("content", "summary", "arguments", "input", "code")
_IDENTITY = ("type", "name", "call_id")
"""Members of a call by which clients tell it, from its first event on."""
_SHOWN_BY_TEXT = ("message", "reasoning")
"""Items that are nothing but their texts. All others must be announced."""
_UNSHOWN = frozenset({"id", "status", "logprobs", "item_id", "output_index", "sequence_number"})
"""Members that engines write anew for the final response, or take from the event: neither texts nor calls."""


class _Place(NamedTuple):
    """The item that an event names. None: the event does not say it."""

    item_id: str | None
    output_index: float | None


class _Part(NamedTuple):
    """One part of an item as its events name it. The indices may differ from those in the final response."""

    row: _Row
    place: _Place
    number: float | None


class ResponseEvents:
    """Reads the events of a stream of /v1/responses in order."""

    def __init__(self) -> None:
        self._id: str | None = None
        self._model = ""
        self._begun = False
        self._sequence = -math.inf
        self._streamed = _Streamed()
        self._text: str | None = None

    def add(self, name: str | None, text: str) -> EventKind:
        """@raises FoldError for an event that is not of the form, or is out of order."""
        event = parse_event(name, text)
        kind: str = event["type"]
        if kind == "error":
            return "error"
        if self._text is not None:
            raise broken("an event comes after the final one")
        self._check_order(kind, event)
        if kind == "response.failed":
            return "error"
        if is_final_response(kind):
            self._finish(event, text)
            return "final"
        if _list_in(event.get("response"), "output"):
            raise FoldError("a response begins with output")
        self._streamed.record(kind, event)
        return "delta"

    def text(self) -> str:
        """The JSON text of the answer. @raises FoldError unless the stream is complete."""
        if self._text is None:
            raise broken("the stream ended before its response was complete")
        return self._text

    def _check_order(self, kind: str, event: Chunk) -> None:
        """Rule 1."""
        if (kind == "response.created") == self._begun:
            raise broken("a second response begins" if self._begun else "the response has not begun")
        self._begun = True
        sequence = number_of(event.get("sequence_number"))
        if sequence is not None:
            if sequence < self._sequence:
                raise broken("the events are out of order")
            self._sequence = sequence
        response = event.get("response")
        if not isinstance(response, dict):
            return
        own_id, model = response.get("id"), response.get("model")
        if isinstance(own_id, str):
            if self._id is not None and own_id != self._id:
                raise FoldError("two responses are mixed")
            self._id = own_id
        if model is not None and not isinstance(model, str):
            raise FoldError("the model is no text")
        if model:
            if model != (self._model or model):
                raise FoldError("the model changes")
            self._model = model

    def _finish(self, event: Chunk, text: str) -> None:
        """Rules 2 to 7."""
        response = event.get("response")
        if not isinstance(response, dict) or not response:
            raise broken("the final event has no response")
        if "attestation" in response:
            raise broken("the response has an attestation of its own")
        if response.get("error") is not None:
            raise broken("the final response has an error")
        # They are shown from the first event on.
        if self._id not in (None, response.get("id")) or self._model not in ("", response.get("model")):
            raise _differs()
        if not isinstance(response.get("output"), list | None):
            raise _differs()
        _Output(_list_in(response, "output")).compare(self._streamed)
        self._text = next(
            (text[one.value_start : one.value_end] for one in top_level_members(text) if one.key == "response"), None
        )


class _Streamed:
    """What came before the final event, in order."""

    def __init__(self) -> None:
        self.deltas: list[tuple[_Part, str]] = []
        """And the texts that calls begin with."""
        self.ends: dict[_Part, str] = {}
        self._ended: set[_Part] = set()
        """Whose own `.done` came."""
        self.added: list[tuple[_Place, Chunk]] = []
        self.done: list[tuple[_Place, Chunk]] = []
        self.annotations: list[tuple[_Place, Json]] = []
        self._texts: set[str] = set()
        """Messages and reasoning that have begun."""
        self._last: dict[tuple[_Row, _Place], float | None] = {}
        """The part's index in the last delta of a row and an item."""
        self._open: _Place | None = None
        """The call that has begun and not ended."""

    def record(self, kind: str, event: Chunk) -> None:
        """@raises FoldError"""
        output_index = number_of(event.get("output_index"))
        if kind in ("response.output_item.added", "response.output_item.done"):
            item = event.get("item")
            if not isinstance(item, dict):
                raise FoldError("an event has no item")
            place = _Place(_id_of(item.get("id")), output_index)
            if kind.endswith(".done"):
                if item.get("type") not in _SHOWN_BY_TEXT:
                    self._check_open(place)
                    self._open = None
                self.done.append((place, item))
            # Messages and reasoning show nothing before their first delta, and vLLM announces some of them under another's id.
            elif item.get("type") in _SHOWN_BY_TEXT:
                begun_text = stringify([item["type"], item.get("id"), output_index])
                if begun_text in self._texts:
                    raise FoldError("an item comes twice")
                self._texts.add(begun_text)
                _check_empty(item)
            else:
                if self._open is not None:
                    raise FoldError("a call begins before another has ended")
                self._open = place
                self.added.append((place, item))
                # A call may begin with some of its text.
                for begun, text in _texts_of(item).items():
                    if text != "":
                        self._add(_Part(begun, place, None), text)
            return
        place = _Place(_id_of(event.get("item_id")), output_index)
        if _PART_EVENT.fullmatch(kind) is not None and isinstance(event.get("part"), dict):
            self._record_part(kind, place, event, event["part"])
        row = _ROWS.get(kind.rpartition(".")[0])
        if row is None:
            if _EVENTS.fullmatch(kind) is None:
                raise FoldError("an event is of a type that has no rule")
            if kind == _ANNOTATION:
                self.annotations.append((place, event.get("annotation")))
        elif kind.endswith(".delta"):
            text = text_in(event.get("delta"))
            part = _part_of(row, place, event)
            if row.part is None:
                self._check_open(place)
            else:
                self._check_index(part)
            self._add(part, text)
        elif kind.endswith(".done"):
            part = _part_of(row, place, event)
            self._end(part, text_in(event.get(row.member)))
            # Some clients take the text from here each time.
            if part in self._ended:
                raise FoldError("a text ends twice")
            self._ended.add(part)

    def _record_part(self, kind: str, place: _Place, event: Chunk, part: Chunk) -> None:
        """`response.content_part.added` and `.done`, and those of `response.reasoning_summary_part`."""
        summary = "summary" in kind
        of = "reasoning" if summary or part.get("type") == "reasoning_text" else "message"
        item = {"type": of, "summary" if summary else "content": [part]}
        if kind.endswith(".added"):
            return _check_empty(item)
        for row, text in _texts_of(item).items():
            # Some engines end a part without its text.
            if text != "":
                self._end(_part_of(row, place, event), text)

    def _check_open(self, place: _Place) -> None:
        if self._open is None or not any(a is not None and a == b for a, b in zip(place, self._open, strict=True)):
            raise FoldError("an event is of no call that is open")

    def _check_index(self, part: _Part) -> None:
        """Clients order parts by their indices, or as they come."""
        last = self._last.setdefault((part.row, part.place), part.number)
        if (last is None) != (part.number is None) or (part.number or 0.0) < (last or 0.0):
            raise FoldError("parts come in another order")
        self._last[part.row, part.place] = part.number

    def _add(self, part: _Part, text: str) -> None:
        if part in self.ends:
            raise FoldError("a delta comes after the end of its text")
        self.deltas.append((part, text))

    def _end(self, part: _Part, text: str) -> None:
        if part.row.part is None:
            self._check_open(part.place)
        if paired(self.ends.setdefault(part, text)) != paired(text):
            raise FoldError("a text ends twice")


@dataclass
class _Item:
    """An item of the final response, and what was streamed of it."""

    place: int
    final: Chunk
    streamed: dict[_Row, str] = field(default_factory=dict)
    added: bool = False
    done: bool = False
    name: str | None = None
    """The id that the events of a call give it. None: none came."""
    annotations: set[str] | None = None
    """JSON of its citations, once they are asked for."""


class _Output:
    """The output of the final response, beside what was streamed."""

    def __init__(self, output: list[Json]) -> None:
        self._items = [_Item(i, item if isinstance(item, dict) else {}) for i, item in enumerate(output)]
        self._by_id: dict[str, _Item] = {}
        self._calls: dict[str, _Item] = {}
        """The calls by the ids that their events give them. Some clients join calls by these."""
        for item in self._items:
            item_id = _id_of(item.final.get("id"))
            if item_id is not None and self._by_id.setdefault(item_id, item) is not item:
                raise FoldError("two items have the same id")

    def compare(self, streamed: _Streamed) -> None:
        """@raises FoldError unless the output is what was streamed."""
        shown, deltas = self._take_deltas(streamed)
        last = -1
        for place, item in streamed.added:
            at = self._item_at(place)
            if at.added:
                raise FoldError("an item comes twice")
            _check_members(item)
            if at.place < last:
                raise FoldError("items come in another order")
            at.added, last = True, at.place
            if not all(_is_identity(item.get(name), at.final.get(name)) for name in _IDENTITY):
                raise _differs()
            fixed = item.keys() - _UNSHOWN - _GROWING
            if any(not is_empty(item[name]) and not _is_same(item[name], at.final.get(name)) for name in fixed):
                raise _differs()
        self._check_ends(streamed, deltas)
        for place, item in streamed.done:
            at = self._item_at(place)
            if at.done:
                raise FoldError("an item comes twice")
            at.done = True
            if not _is_same(item, at.final):
                raise _differs()
        for place, annotation in streamed.annotations:
            self._check_annotation(place, annotation)
        calls = [call for call in (_id_of(item.final.get("call_id")) for item in self._items) if call is not None]
        if len(set(calls)) < len(calls):
            raise FoldError("two calls have the same id")
        whole = _Texts()
        for at in self._items:
            for row, text in self._compare_item(at).items():
                whole.add(row, text)
        joined = whole.joined()
        # Parts and items that were streamed interleaved would be shown in another order.
        for row, text in shown.items():
            if row.part is not None and text != joined.get(row, ""):
                raise _differs()

    def _check_annotation(self, place: _Place, annotation: Json) -> None:
        """A citation that is shown is one of the item's."""
        at = self._item_at(place, _OUTPUT)
        if at.annotations is None:
            parts = _list_in(at.final, "content")
            at.annotations = {stringify(one) for part in parts for one in _list_in(part, "annotations")}
        if stringify(annotation) not in at.annotations:
            raise _differs()

    def _take_deltas(self, streamed: _Streamed) -> tuple[dict[_Row, str], dict[_Part, str]]:
        """What is streamed of each item. Returns all deltas of each row in their order, and those of each part."""
        shown, of_parts = _Texts(), _Texts()
        of_items: dict[int, _Texts] = {}
        for part, text in streamed.deltas:
            of_items.setdefault(self._item_at(part.place, part.row).place, _Texts()).add(part.row, text)
            of_parts.add(part, text)
            shown.add(part.row, text)
        for item in self._items:
            item.streamed = of_items.get(item.place, _Texts()).joined()
        return shown.joined(), of_parts.joined()

    def _check_ends(self, streamed: _Streamed, deltas: dict[_Part, str]) -> None:
        """Rule 6. @param deltas of each part."""
        for part, text in streamed.ends.items():
            if text == "" and part not in deltas and part.row.part is not None:
                continue
            of_item = self._item_at(part.place, part.row).streamed
            # A call may come in one piece.
            if part.row.part is None and part.row not in of_item:
                of_item[part.row] = paired(text)
            # Some engines give the `.done` another id than its deltas.
            elif paired(text) != deltas.get(part, of_item.get(part.row, "")):
                raise _differs()

    def _compare_item(self, item: _Item) -> dict[_Row, str]:
        """Rule 5. Returns the texts of the item."""
        _check_members(item.final)
        texts = _texts_of(item.final)
        for row, text in texts.items():
            if item.streamed.get(row, "") != text:
                raise _differs()
        if any(text != "" and row not in texts for row, text in item.streamed.items()):
            raise _differs()
        # Some clients take a call from its beginning, others from its end.
        if not (item.added and item.done) and item.final.get("type") not in _SHOWN_BY_TEXT:
            raise _differs()
        return texts

    def _item_at(self, place: _Place, row: _Row | None = None) -> _Item:
        """Rule 3."""
        found = None if place.item_id is None else self._by_id.get(place.item_id)
        if found is None:
            found = self._at(place.output_index or 0.0)
        if found is None:
            raise _differs()
        kind = found.final.get("type")
        if row is not None and kind not in row.of:
            raise _differs()
        # Some clients join calls by their place, and pass over a text at the place of a call.
        named = found if place.output_index is None else self._at(place.output_index) or found
        fits = kind in _SHOWN_BY_TEXT and named.final.get("type") == kind
        if not fits and place.output_index != found.place:
            raise _differs()
        if place.item_id is not None and kind not in _SHOWN_BY_TEXT:
            found.name = found.name or place.item_id
            if found.name != place.item_id or self._calls.setdefault(place.item_id, found) is not found:
                raise _differs()
        return found

    def _at(self, index: float) -> _Item | None:
        return self._items[int(index)] if index.is_integer() and 0 <= index < len(self._items) else None


class _Texts:
    """Texts by what they are of, joined once."""

    def __init__(self) -> None:
        self._parts: dict[Any, list[str]] = {}

    def add(self, key: Any, text: str) -> None:
        self._parts.setdefault(key, []).append(text)

    def joined(self) -> dict[Any, str]:
        return {key: paired("".join(parts)) for key, parts in self._parts.items()}


def _differs() -> FoldError:
    return FoldError("the final response differs from what was streamed")


def _id_of(value: Json) -> str | None:
    return value if isinstance(value, str) and value != "" else None


def _part_of(row: _Row, place: _Place, event: Chunk) -> _Part:
    return _Part(row, place, None if row.part is None else number_of(event.get(f"{row.part[0]}_index")))


def _list_in(value: Json, name: str) -> list[Json]:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


def _texts_of(item: Chunk) -> dict[_Row, str]:
    """The texts of an item that clients show, those of several parts joined."""
    texts = _Texts()
    for row, text in _each_text(item):
        texts.add(row, text)
    return texts.joined()


def _each_text(item: Chunk) -> Iterator[tuple[_Row, str]]:
    rows = _rows_of(item)
    by_part = {row.part: row for row in rows}
    for name in ("content", "summary"):
        for part in _list_in(item, name):
            kind = part.get("type") if isinstance(part, dict) else None
            row = by_part.get((name, kind)) if isinstance(kind, str) else None
            if row is not None:
                yield from _text_in(part, row)
    for row in rows:
        if row.part is None:
            yield from _text_in(item, row)


def _rows_of(item: Chunk) -> list[_Row]:
    kind = item.get("type")
    return _ROWS_OF.get(kind, []) if isinstance(kind, str) else []


def _text_in(holder: Chunk, row: _Row) -> Iterator[tuple[_Row, str]]:
    if isinstance(holder.get(row.member), str):
        yield row, holder[row.member]


def _check_members(item: Chunk) -> None:
    """Refuses an item with a text of another type: some clients take it for this item's."""
    rows = _rows_of(item)
    if not rows:
        return
    calls = ("name", "call_id") if item["type"] in _SHOWN_BY_TEXT else ()
    for name in (*_HOLDERS, *calls):
        if not is_empty(item.get(name)) and all(row.holder != name for row in rows):
            raise FoldError("an item has the text of another type")
    own = [item.get(row.member) for row in rows if row.part is None]
    if not all(text is None or isinstance(text, str) for text in own):
        raise FoldError("a text is of another JSON type")
    for name in ("content", "summary"):
        if not isinstance(item.get(name), list | None):
            raise FoldError("a text is of another JSON type")
        for part in _list_in(item, name):
            kind = part.get("type") if isinstance(part, dict) else None
            if not isinstance(kind, str) or kind not in _PART_TYPES:
                continue
            row = next((row for row in rows if row.part == (name, kind)), None)
            if row is None:
                raise FoldError("an item has a part of another type")
            if not isinstance(part.get(row.member), str | None):
                raise FoldError("a text is of another JSON type")


def _check_empty(item: Chunk) -> None:
    """Text at the start of an item or a part would be shown by some clients and not by others."""
    _check_members(item)
    if any(text != "" for text in _texts_of(item).values()):
        raise FoldError("an item begins with text that is no delta")


def _is_identity(begun: Json, final: Json) -> bool:
    begun, final = ("" if one is None else one for one in (begun, final))
    return is_identical(begun, final)


def _is_same(a: Json, b: Json) -> bool:
    """
    Whether two items show the same. Empty members count as absent ones. It has no recursion, because the values may be
    of any depth.
    """
    pairs = [(a, b)]
    while pairs:
        x, y = pairs.pop()
        if is_empty(x) or is_empty(y):
            if not (is_empty(x) and is_empty(y)):
                return False
        elif isinstance(x, dict) and isinstance(y, dict):
            pairs += [(x.get(name), y.get(name)) for name in (x.keys() | y.keys()) - _UNSHOWN]
        elif isinstance(x, list) and isinstance(y, list):
            if len(x) != len(y):
                return False
            pairs += zip(x, y, strict=True)
        elif isinstance(x, list | dict) or isinstance(y, list | dict) or stringify(x) != stringify(y):
            return False
    return True
