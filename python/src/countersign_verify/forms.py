"""What the rules for streams of named events share (docs/attestation.md §3): which endpoint streams in which form, and what an event means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from .fold import Chunk, FoldError, broken, is_error, parse_chunk
from .raw import CHAT_ENDPOINT
from .strict_json import KeptNumber, is_number, parse, same_scalar, whole_number

Json = Any
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


def parse_event(name: str | None, text: str) -> Chunk:
    """@raises FoldError"""
    event = parse_chunk(text)
    if event.get("type") != "error" and is_error(event):
        raise broken("an event is an error")
    if name is None:
        raise broken("an event has no name")
    if event.get("type") != name:
        raise broken("an event has another name than its type")
    if "attestation" in event:
        raise broken("an event has an attestation of its own")
    return event


def is_empty(value: Json) -> bool:
    """Absent, null, or of nothing."""
    return value is None or value == "" or value == [] or value == {}


def is_identical(a: Json, b: Json) -> bool:
    """As ECMAScript's `===`: no object, list or number that kept its text is identical with another one."""
    return not isinstance(a, list | dict | KeptNumber) and same_scalar(a, b)


def choices_asked(endpoint: str, request: str) -> int:
    """How many choices a completion's request asks for: `n` for each prompt. @param request JSON of an object."""
    value = parse(request)
    n, prompt = whole_number(value.get("n")), value.get("prompt")
    # A list of numbers is one prompt, in tokens.
    many = endpoint == "/v1/completions" and isinstance(prompt, list) and not (prompt and is_number(prompt[0]))
    return (n if n is not None and 0 < n < 2**53 else 1) * (max(1, len(prompt)) if many else 1)


def text_in(value: Json) -> str:
    if not isinstance(value, str):
        raise FoldError("a delta has no text")
    return value
