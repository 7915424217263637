"""
Folds streams of the grammar in streams.py with the package `countersign_verify`: a question a line, `{"seed", "from", "count"}`, and an answer a
line, the streams and of each what it folds into.
"""

from __future__ import annotations

import json
from typing import Any

from serving import serve
from streams import stream_of

from countersign_verify.proto.stream.fold import FoldError, fold_payloads
from countersign_verify.proto.stream.forms import choices_asked, stream_form_of
from countersign_verify.proto.stream.record_events import record_events


def folded(endpoint: str, request: str, events: list[tuple[str | None, str]]) -> dict[str, Any]:
    try:
        form = stream_form_of(endpoint)
        assert form is not None
        if form == "completion":
            return {"text": fold_payloads((text for _, text in events), choices_asked(endpoint, request))}
        record = record_events(form)
        for name, text in events:
            if record.add(name, text) == "error":
                return {"refused": "the stream ended with an error", "reason": "broken"}
        return {"text": record.text()}
    except FoldError as error:
        return {"refused": str(error), "reason": error.reason}


def answer(question: dict[str, int]) -> list[dict[str, Any]]:
    out = []
    for number in range(question["from"], question["from"] + question["count"]):
        stream = stream_of(question["seed"], number)
        request, events = json.dumps(stream.request), stream.events()
        said = folded(stream.endpoint, request, events)
        out.append(
            {"endpoint": stream.endpoint, "request": request, "events": events, "changes": stream.changes, **said}
        )
    return out


if __name__ == "__main__":
    serve(answer)
