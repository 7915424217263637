"""Compact forms of attestations and answers, and the bundles that they name (docs/attestation.md §9)."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from recorded import Recorded

SHARED = ("token", "evidence")


def name_of(bundle: str) -> str:
    return sha256(bundle.encode()).hexdigest()


def compact_of(attestation: dict[str, Any], bundle: str | None = None) -> tuple[dict[str, Any], str]:
    """An attestation without a session, with its bundle's text: of token and evidence, unless another is given."""
    text = json.dumps({name: attestation[name] for name in SHARED}) if bundle is None else bundle
    own = {name: value for name, value in attestation.items() if name not in SHARED}
    return {**own, "bundle": name_of(text)}, text


def compact_answer(answer: Recorded) -> tuple[Recorded, str]:
    """A recorded answer whose attestation, the last member of its object, is compact; with the bundle's text."""
    text = answer.answer.decode()
    start = text.index(',"attestation":') + len(',"attestation":')
    attestation, end = json.JSONDecoder().raw_decode(text, start)
    compact, bundle = compact_of(attestation)
    changed = text[:start] + json.dumps(compact) + text[end:]
    return Recorded(answer.endpoint, answer.request, changed.encode(), answer.stream), bundle
