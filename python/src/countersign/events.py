"""Folds streams of named events: /v1/responses by responses.py, /v1/messages by messages.py."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from .fold import FoldError
from .messages import MessageEvents
from .responses import ResponseEvents


def fold_events(form: Literal["response", "message"], events: Iterable[tuple[str | None, str]]) -> str:
    """Folds a whole stream, names and payloads, into the JSON text of its answer. @raises FoldError"""
    record: ResponseEvents | MessageEvents = ResponseEvents() if form == "response" else MessageEvents()
    for name, text in events:
        if record.add(name, text) == "error":
            raise FoldError("the stream ended with an error")
    return record.text()
