"""Compares raw with what the caller holds: the endpoint and request sent, the response or the event stream received."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..common.bounded_json import bounded
from ..common.checks import CheckFailure, FailureCode, Limits, Passed, Skipped, seen, skipped
from ..policy.options import Expected
from ..proto.attestation.attestation import Attestation
from ..proto.attestation.raw import CHAT_ENDPOINT, RawParts
from ..proto.bytes import utf8
from ..proto.json import parse_string, top_level_members, without_space_around
from ..proto.stream.fold import FoldError, fold_payloads
from ..proto.stream.forms import StreamForm, choices_asked, stream_form_of
from ..proto.stream.messages import SET_BY_DELTA, SET_BY_EVENT
from ..proto.stream.record_events import record_events
from ..proto.stream.sse import BYTE_ORDER_MARK, SseError, is_done, read_events
from ..proto.strict_json import JsonTextError, duplicate_member, parse, parse_keeping_numbers, stringify
from .input import Carrier, attestation_in, no_duplicates, without_attestation
from .json_equality import is_part_of, same_tokens, same_value

Json = Any


def compare_exchange(
    attestation: Attestation, raw: RawParts, expected: Expected, carrier: Carrier | None
) -> Passed[Literal[True]] | Skipped:
    """
    @param attestation the one that is checked, whose parts `raw` are.
    @raises CheckFailure: endpoint_mismatch, request_mismatch, response_mismatch, event_not_expected, stream_malformed,
    stream_mismatch, stream_not_foldable
    """
    compared: list[str] = []
    _compare_endpoint(raw.endpoint, raw.response, expected.endpoint)
    if expected.endpoint is not None:
        compared.append(f"the endpoint {raw.endpoint}")
    about = f"; it is about {raw.endpoint}" if expected.endpoint is None and raw.names_endpoint else ""
    if expected.request is not None:
        if not same_tokens(expected.request, raw.request):
            raise CheckFailure(
                "request_mismatch",
                "raw holds another request than the one that was sent: "
                "a router before the gateway that writes JSON anew would do that",
            )
        compared.append("the request")
    if expected.response is not None:
        if not same_tokens(without_attestation(expected.response, attestation), raw.response):
            raise CheckFailure("response_mismatch", "raw holds another response than the one that was received")
        compared.append("the response")
    if expected.transcript is not None:
        events = _compare_transcript(attestation, raw, bytes(expected.transcript))
        compared.append(f"the {events} events of the stream, byte for byte")
    chunk = carrier is not None and expected.event and _is_chunk_of(raw, carrier)
    if carrier is not None and not chunk:
        _compare_carrier(raw, carrier, expected.event)
        compared.append("the response that carries the attestation")
    if not compared:
        fits = "; the chunk that carries it fits, its time and usage left out" if chunk else ""
        return skipped(f"the caller passed no request or response to compare with{fits}{about}")
    return seen(f"raw holds {', '.join(compared)}{about}")


_SAYS: Mapping[str, str] = {
    "chat.completion": CHAT_ENDPOINT,
    "text_completion": "/v1/completions",
    "response": "/v1/responses",
    "message": "/v1/messages",
}
"""By what a response says of itself which endpoint it is of."""


def _compare_endpoint(endpoint: str, response: str, expected: str | None) -> None:
    """@raises CheckFailure: endpoint_mismatch"""
    if expected is not None and expected != endpoint:
        raise CheckFailure("endpoint_mismatch", f"raw is about {endpoint}, not about the endpoint that was asked")
    if endpoint not in _SAYS.values():
        return
    for member in top_level_members(response):
        if member.key not in ("object", "type") or not response.startswith('"', member.value_start):
            continue
        # It may be written in escapes.
        says = parse_string(response[member.value_start : member.value_end])
        if _SAYS.get(says, endpoint) != endpoint:
            raise CheckFailure("endpoint_mismatch", f"raw is about {endpoint}, and its response is of {_SAYS[says]}")


def _compare_carrier(raw: RawParts, carrier: Carrier, event: bool) -> None:
    """@param event the caller says that it is an event of a stream. @raises CheckFailure: response_mismatch, event_not_expected"""
    if carrier.text is not None and duplicate_member(carrier.text) is not None:
        raise CheckFailure("response_mismatch", "the response that carries the attestation names a member twice")
    if _is_response(raw, carrier):
        return
    if not event and _is_chunk_of(raw, carrier):
        raise CheckFailure(
            "event_not_expected", "it is an event of a stream by itself: it counts only where the caller says so"
        )
    raise CheckFailure("response_mismatch", "the response that carries the attestation is not the one in raw")


def _is_response(raw: RawParts, carrier: Carrier) -> bool:
    """
    A whole response without its attestation is the backend's bytes (docs/attestation.md §4). For a stream there are
    none.
    """
    # Of numbers in a parsed object the texts are lost.
    if carrier.text is None:
        return same_value(carrier.value, parse(raw.response))
    # Splitting raw leaves the space around a value behind.
    if without_space_around(carrier.text) == raw.response:
        return True
    try:
        return raw.stream is not None and same_value(_exactly(carrier.text), _exactly(raw.response))
    except CheckFailure:
        return False


def _is_chunk_of(raw: RawParts, carrier: Carrier) -> bool:
    """Whether the carrier is the final event of the stream. Folded by itself, a chunk must be a part of the folded response."""
    if raw.stream is None:
        return False
    form = stream_form_of(raw.endpoint)
    text, value = carrier.text, carrier.value
    try:
        if form == "message":
            return _is_message_delta(raw.response, text, value)
        if form != "completion" or not _looks_like_finish_chunk(value):
            return False
        if text is None:
            folded = parse(fold_payloads([stringify(dict(value))], None))
            return is_part_of(_lasting(folded, value), parse(raw.response))
        no_duplicates(text)
        return is_part_of(_lasting(_exactly(fold_payloads([text], None)), value), _exactly(raw.response))
    except (CheckFailure, FoldError, JsonTextError):
        # What does not fold is no chunk.
        return False


def _is_message_delta(response: str, text: str | None, value: Mapping[str, Json]) -> bool:
    """
    A message_delta sets its members on the message; only its usage may be changed by a later one. It may have no other
    members.
    """
    if value.get("type") != "message_delta":
        return False
    event = value if text is None else _exactly(text)
    whole = parse(response) if text is None else _exactly(response)
    others = {name: member for name, member in event.items() if name not in ("type", "delta", "usage")}

    def are_set(members: Mapping[str, Json], names: Sequence[str]) -> bool:
        return all(name in names and same_value(member, whole.get(name)) for name, member in members.items())

    return are_set(others, SET_BY_EVENT) and are_set(_members_of(event.get("delta")), SET_BY_DELTA)


def _members_of(value: Json) -> Mapping[str, Json]:
    """As ECMAScript spreads a value into an object."""
    if isinstance(value, str | list):
        return {str(i): item for i, item in enumerate(value)}
    return value if isinstance(value, dict) else {}


def _lasting(folded: dict[str, Json], value: Mapping[str, Json]) -> Json:
    """
    Keeps those members of a folded chunk that later chunks do not change: it drops the time and the usage
    (docs/attestation.md §3), and a role that no chunk named.
    """
    part = dict(folded)
    # A text completion with this object may be a whole response.
    if value.get("object") == "chat.completion.chunk":
        part.pop("created", None)
        part.pop("usage", None)
    if not any(_names_role(choice) for choice in value["choices"]):
        part["choices"] = [
            {**choice, "message": {**_members_of(choice["message"]), "role": None}}
            if isinstance(choice, dict) and "message" in choice
            else choice
            for choice in part["choices"]
        ]
    return part


def _names_role(choice: Json) -> bool:
    if choice is None:
        raise FoldError("a choice is null")
    delta = choice.get("delta") if isinstance(choice, dict) else None
    return isinstance(delta, dict) and delta.get("role") is not None


def _exactly(text: str) -> Json:
    """Numbers keep their texts. @raises CheckFailure where a name stands twice in an object, at any depth."""
    no_duplicates(text)
    return parse_keeping_numbers(text)


def _looks_like_finish_chunk(value: Mapping[str, Json]) -> bool:
    """A chat completion shows in two ways whether it is a chunk. For a text completion only the stream tells."""
    choices = value.get("choices")
    if value.get("object") == "chat.completion" or not isinstance(choices, list):
        return False
    bags = [choice for choice in choices if isinstance(choice, dict)]
    ends = any(choice.get("finish_reason") not in (None, "") for choice in bags)
    return ends and not any("message" in choice for choice in bags)


# Compares raw with the event stream that the caller kept, byte for byte.

_MAX_EVENT_BYTES = 256 * 1024 * 1024
"""
One carries the attestation, in which raw is quoted: twice the 60 Mi characters that raw may have, and what it is
beside.
"""


@dataclass(frozen=True)
class _TextEvent:
    name: str | None
    text: str
    """Its payload."""


def _compare_transcript(attestation: Attestation, raw: RawParts, transcript: bytes) -> int:
    """
    @param attestation the one that is checked: it alone may stand in one of the events.
    Returns the number of events.
    @raises CheckFailure: stream_malformed: it has more than the profile in sse.py allows; stream_mismatch,
    stream_not_foldable
    """
    if raw.stream is None:
        raise _mismatch("raw is about a whole response, not about a stream")
    form = stream_form_of(raw.endpoint)
    if form is None:
        raise _mismatch("raw is about a stream of an endpoint whose streams no rule folds")
    events = _without_spliced(_events_of(transcript, Limits()), attestation)
    for event in events:
        if (event.name is None) != (form == "completion"):
            raise _malformed(
                "an event has no name" if event.name is None else "a line is neither data nor a comment",
            )
    if len(events) != raw.stream.events:
        counts = f"the transcript has {len(events)} events, the stream that was signed had {raw.stream.events}"
        raise _mismatch(counts)
    digest = hashlib.sha256()
    for event in events:
        digest.update(utf8(f"{event.text}\n" if event.name is None else f"{event.name}\n{event.text}\n"))
    if digest.hexdigest() != raw.stream.sha256:
        raise _mismatch("the events are others than those that were signed")
    if _folded(form, events, choices_asked(raw.endpoint, raw.request)) != raw.response:
        raise _mismatch("the events do not fold into the response in raw")
    return len(events)


def _folded(form: StreamForm, events: list[_TextEvent], choices: int) -> str:
    """@raises CheckFailure: stream_mismatch, stream_not_foldable"""
    try:
        if form == "completion":
            return fold_payloads((event.text for event in events), choices)
        record = record_events(form)
        for event in events:
            if record.add(event.name, event.text) == "error":
                raise _mismatch("the stream ended with an error")
        return record.text()
    except FoldError as cause:
        code: FailureCode = "stream_not_foldable" if cause.reason == "rule" else "stream_mismatch"
        raise CheckFailure(code, f"the events do not fold: {cause}") from cause


def attestation_of(transcript: bytes, limits: Limits) -> str:
    """
    The attestation as the first event that carries one has it, character for character.
    @raises CheckFailure: too_large, stream_malformed, not_an_attestation
    """
    most = _MAX_EVENT_BYTES if limits.max_characters is None else limits.max_characters
    if len(transcript) > most:
        raise CheckFailure("too_large", f"a stream of more than {most} bytes")
    for event in _events_of(transcript, limits):
        attestation = attestation_in(event.text)
        if attestation is not None:
            return attestation
    raise CheckFailure("not_an_attestation", "no event of the stream carries an attestation")


def _events_of(transcript: bytes, limits: Limits) -> list[_TextEvent]:
    """Every event but `[DONE]`. @raises CheckFailure: stream_malformed, too_large"""
    # No gateway writes one, and some clients lose the first event behind it.
    if transcript.startswith(BYTE_ORDER_MARK):
        raise _malformed("it begins with a byte order mark")
    try:
        events = read_events(transcript, _MAX_EVENT_BYTES)
    except SseError as cause:
        raise _malformed(str(cause)) from cause
    done = next((i for i, event in enumerate(events) if event.name is None and is_done(event.payload)), len(events))
    # Clients stop there, so what came after it was not shown to anybody.
    if done < len(events) - 1:
        raise _malformed("events come after [DONE]")
    try:
        read = [_TextEvent(event.name, event.payload.decode("utf-8")) for event in events[:done]]
    except UnicodeDecodeError as cause:
        raise _malformed("the transcript is not in UTF-8") from cause
    bounded(",".join(event.text for event in read), replace(limits, max_characters=math.inf))
    return read


def _without_spliced(events: list[_TextEvent], attestation: Attestation) -> list[_TextEvent]:
    """The events as the backend sent them: it sends no attestation, and one is spliced in."""
    carrying = [i for i, event in enumerate(events) if attestation_in(event.text) is not None]
    if not carrying:
        return events
    if len(carrying) > 1:
        raise _mismatch("several events carry an attestation")
    at = carrying[0]
    cut = without_attestation(events[at].text, attestation)
    if attestation_in(cut) is not None:
        raise _mismatch("an event carries another attestation than the one that is checked, or carries it twice")
    return [*events[:at], _TextEvent(events[at].name, cut), *events[at + 1 :]]


_TRANSCRIPT = re.compile(
    "\ufeff?[\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]*(?:data|event|id|retry)?:"
)


def is_transcript(text: str) -> bool:
    """Whether a text is an event stream as it was saved, and no JSON."""
    return _TRANSCRIPT.match(text[:64]) is not None


def _mismatch(message: str) -> CheckFailure:
    return CheckFailure("stream_mismatch", message)


def _malformed(message: str) -> CheckFailure:
    return CheckFailure("stream_malformed", message)
