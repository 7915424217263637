"""A stream on its way to a client: hashed events pass, written anew, and from the first part of a tool call or of the end all wait for the proof."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from ..binding.input import attestation_in
from ..common.bounded_json import bounded
from ..common.checks import CheckFailure, Limits
from ..proto.stream.events import is_final_response
from ..proto.stream.fold import FoldError, parse_chunk
from ..proto.stream.forms import StreamForm
from ..proto.stream.sse import NamedEvent, NamedEventReader, SseError, is_done, write_named_event
from .unproven_error import UnprovenAnswerError

_LIMITS = Limits(max_characters=float("inf"))
"""Of one event, whose bytes were counted."""


class HeldStream:
    """Of one answer. ``feed`` each part of the body, then ``end``; hand on ``rest`` once ``transcript`` is proven."""

    def __init__(self, form: StreamForm, max_bytes: int) -> None:
        self._form = form
        self._max_bytes = max_bytes
        self._reader = NamedEventReader(max_bytes)
        self._bytes = 0
        self.pending = 0
        """At least as many bytes as have come of an event that has not ended."""
        self._attested = False
        self._passed = 0
        self._kept: list[bytes] = []
        """Every event as it is handed on: the first ``_passed`` were handed on."""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The events that may be handed on now. @raises UnprovenAnswerError after those that stand before the fault."""
        self._bytes += len(chunk)
        if self._bytes > self._max_bytes:
            raise UnprovenAnswerError("stream_too_large")
        events: list[NamedEvent] = []
        fault: SseError | None = None
        try:
            self._reader.push(chunk, events)
        except SseError as error:
            fault = error
        self.pending = len(chunk) if events else self.pending + len(chunk)
        for event in events:
            yield from self._take(event)
        if fault is not None:
            raise _unreadable(fault) from fault

    def feed_all(self, chunk: bytes) -> tuple[list[bytes], UnprovenAnswerError | None]:
        """As ``feed``, at once."""
        passed: list[bytes] = []
        try:
            for event in self.feed(chunk):
                passed.append(event)
        except UnprovenAnswerError as error:
            return passed, error
        return passed, None

    def end(self) -> Iterator[bytes]:
        """At the end of the body, a last event without its empty line. @raises UnprovenAnswerError no attestation came."""
        try:
            last = self._reader.end()
        except SseError as fault:
            raise _unreadable(fault) from fault
        if last is not None:
            yield from self._take(last)
        if not self._attested:
            raise UnprovenAnswerError("attestation_missing")

    def transcript(self) -> bytes:
        return b"".join(self._kept)

    def rest(self) -> bytes:
        return b"".join(self._kept[self._passed :])

    def _take(self, event: NamedEvent) -> Iterator[bytes]:
        look = _look_at(self._form, event)
        self._attested = self._attested or look.attested
        written = write_named_event(event)
        nothing_held = self._passed == len(self._kept)
        self._kept.append(written)
        if nothing_held and look.passes:
            self._passed += 1
            yield written


def _unreadable(fault: SseError) -> UnprovenAnswerError:
    return UnprovenAnswerError("stream_malformed" if fault.reason == "malformed" else "stream_too_large")


class _Look(NamedTuple):
    passes: bool
    """A chunk after which a client goes on reading, and runs nothing for it."""
    attested: bool


_HELD = _Look(passes=False, attested=False)


def _look_at(form: StreamForm, event: NamedEvent) -> _Look:
    """@raises UnprovenAnswerError for what is neither JSON nor ``[DONE]``, or has a name where the form has none, or none where it has."""
    name, payload = event.name, event.payload
    if name is None and is_done(payload):
        return _HELD
    if (name is None) != (form == "completion"):
        raise UnprovenAnswerError("stream_malformed")
    try:
        text = payload.decode("utf-8")
        bounded(text, _LIMITS)
        if attestation_in(text) is not None:
            return _Look(passes=False, attested=True)
        chunk = parse_chunk(text)
    except (UnicodeDecodeError, FoldError) as cause:
        raise UnprovenAnswerError("stream_malformed") from cause
    except CheckFailure as cause:
        raise UnprovenAnswerError("stream_too_large") from cause
    # Some clients go by the name of an event, others by its type.
    if name is not None and chunk.get("type") != name:
        raise UnprovenAnswerError("stream_malformed")
    return _Look(passes=_goes_on(form, chunk) and not _calls_tool(form, chunk), attested=False)


def _goes_on(form: StreamForm, event: Mapping[str, object]) -> bool:
    """Whether a client goes on reading after this."""
    kind = event.get("type")
    if event.get("error") is not None or kind == "error":
        return False
    if form == "response":
        return not is_final_response(kind) and kind != "response.failed"
    if form == "message":
        return kind != "message_stop" and (
            kind != "message_delta" or _member(event.get("delta"), "stop_reason") is None
        )
    choices = event.get("choices")
    if isinstance(choices, list):
        return all(_member(choice, "finish_reason") in (None, "") for choice in choices)
    return len(event) == 0


_WORDS: Final = re.compile(r"(message|reasoning|text|compaction|(redacted_)?thinking|signature|citations)(_delta)?")
"""The parts of a response that no application runs: of /v1/responses its items, of /v1/messages its blocks and their deltas."""
_OF_CALLS: Final = re.compile("_call|mcp")


def _calls_tool(form: StreamForm, event: Mapping[str, object]) -> bool:
    """Whether the event carries a part of a tool call: applications may run one as soon as it is complete."""
    if form == "completion":
        choices = event.get("choices")
        return isinstance(choices, list) and any(_is_call(_member(choice, "delta")) for choice in choices)
    kind = event.get("type")
    if form == "response":
        parts = [event.get("item"), *_list(_member(event.get("response"), "output"))]
    else:
        parts = [event.get("content_block"), *_list(_member(event.get("message"), "content"))]
    if kind == "content_block_delta":
        parts.append(event.get("delta"))
    return _OF_CALLS.search(str(kind)) is not None or any(
        part is not None and _WORDS.fullmatch(str(_member(part, "type"))) is None for part in parts
    )


def _is_call(delta: object) -> bool:
    """Some engines write an empty list of calls beside every text."""
    return _member(delta, "function_call") is not None or _member(delta, "tool_calls") not in (None, [])


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _member(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, Mapping) else None
