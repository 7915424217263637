"""What the rules for streams of named events share (docs/attestation.md §3): what an event means."""

from __future__ import annotations

from typing import Any, Literal

from ..strict_json import KeptNumber, same_scalar
from .fold import Chunk, FoldError, broken, is_error, parse_chunk

Json = Any


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


def text_in(value: Json) -> str:
    if not isinstance(value, str):
        raise FoldError("a delta has no text")
    return value
