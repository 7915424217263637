"""Which endpoint streams in which form (docs/attestation.md §3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ..attestation.raw import CHAT_ENDPOINT
from ..strict_json import is_number, parse, whole_number

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


def choices_asked(endpoint: str, request: str) -> int:
    """How many choices a completion's request asks for: `n` for each prompt. @param request JSON of an object."""
    value = parse(request)
    n, prompt = whole_number(value.get("n")), value.get("prompt")
    # A list of numbers is one prompt, in tokens.
    many = endpoint == "/v1/completions" and isinstance(prompt, list) and not (prompt and is_number(prompt[0]))
    return (n if n is not None and 0 < n < 2**53 else 1) * (max(1, len(prompt)) if many else 1)
