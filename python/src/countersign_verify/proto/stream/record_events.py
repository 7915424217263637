"""The record of a stream of named events: /v1/responses by responses.py, /v1/messages by messages.py."""

from __future__ import annotations

from typing import Literal

from .messages import MessageEvents
from .responses import ResponseEvents


def record_events(form: Literal["response", "message"]) -> ResponseEvents | MessageEvents:
    """Reads the events of a stream in order. `text()` returns the JSON text of the answer, once the stream is complete."""
    return ResponseEvents() if form == "response" else MessageEvents()
