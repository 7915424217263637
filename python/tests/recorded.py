"""Recorded exchanges for the client's tests: requests that were sent with ``tee`` of their own, and the proven answers to them."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from countersign_verify import Roots, create_collateral

VECTORS = Path(__file__).parents[2] / "vectors"
AT = datetime(2025, 6, 1, 12, tzinfo=timezone.utc)
"""A minute after the time in the recorded answers."""


def text(path: str) -> str:
    return (VECTORS / path).read_text()


def case(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(text(f"cases/{name}.json"))
    return loaded


def options(at: datetime = AT) -> dict[str, Any]:
    """What verifies every recorded answer."""
    given = case("expected_exchange.pass.chat-whole")["options"]
    return {
        "at": at,
        "simulated_root": text(given["simulated_root_file"]),
        "roots": Roots(rim=text(given["rim_root_file"])),
        "collateral": create_collateral(
            rims={rim: text(path) for rim, path in given["rim_files"].items()},
            ocsp=[base64.b64decode(text(path)) for path in given["ocsp_files"]],
        ),
    }


@dataclass(frozen=True)
class Recorded:
    endpoint: str
    request: bytes
    answer: bytes
    """A whole answer with its attestation as last member, or an event stream with it in its final event."""
    stream: bool


def recorded(name: str) -> Recorded:
    """``chat-whole``, ``responses-stream``, … (vectors/cases/expected_exchange.pass.*)."""
    vector = case(f"expected_exchange.pass.{name}")
    attestation = vector["attestation"] if "attestation" in vector else json.loads(text(vector["attestation_file"]))
    expected = vector["options"]["expected"]
    request = expected.get("request") or _member(attestation["raw"], "request")
    stream = "transcript" in expected
    sent = expected["transcript"] if stream else expected["response"]
    answer = sent if '"attestation":' in sent else _carried(sent, json.dumps(attestation), stream)
    return Recorded(expected["endpoint"], request.encode(), answer.encode(), stream)


def _carried(sent: str, attestation: str, stream: bool) -> str:
    """With the attestation as last member of the whole answer, or of the chunk that has the finish reason."""
    end = sent.index("\n", sent.index('"finish_reason":"')) if stream else len(sent)
    brace = sent.rindex("}", 0, end)
    return f'{sent[:brace]},"attestation":{attestation}{sent[brace:]}'


def _member(raw: str, name: str) -> str:
    start = raw.index(f'"{name}":') + len(name) + 3
    _, end = json.JSONDecoder().raw_decode(raw, start)
    return raw[start:end]
