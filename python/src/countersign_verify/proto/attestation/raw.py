"""raw: the string that is hashed. It is split by offsets, and never encoded anew."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

from ..bytes import utf8
from ..json import quote, top_level_members
from ..strict_json import JsonTextError, parse


@dataclass(frozen=True)
class StreamDigest:
    """The digest of a stream, for clients that stored its bytes."""

    events: int
    """Number of payloads that the backend sent, without `[DONE]`."""
    sha256: str
    """
    In hex over those payloads in order, each followed by LF; where events have names, over name, LF, payload, LF of
    each.
    """

    def to_dict(self) -> dict[str, Any]:
        return {"events": self.events, "sha256": self.sha256}


CHAT_ENDPOINT = "/v1/chat/completions"
"""The endpoint that raw does not name."""

_ENDPOINT = re.compile(r"/v1/[A-Za-z0-9_.~!$&'()*+,;=:@%/-]{1,250}")
_COUNT = "(0|[1-9][0-9]{0,14})"
_TIMESTAMP = re.compile(_COUNT)
_STREAM = re.compile(r'\{"events":' + _COUNT + r',"sha256":"([0-9a-f]{64})"\}')
_SESSION = re.compile(r'"([0-9a-f]{64})"')
_KNOWN = {"endpoint", "session", "request", "response", "stream", "timestamp"}


@dataclass(frozen=True)
class RawParts:
    endpoint: str
    """The path of the request, without its query."""
    names_endpoint: bool
    """Whether raw has it; if not, it is CHAT_ENDPOINT."""
    session: str | None
    """SHA-256 of the session's statement in hex: the GPU signs for that session only. None where no processor signs."""
    request: str
    """The client's body, exactly as received."""
    response: str
    """The backend's body, exactly as received; for a stream, the completion that its chunks fold into."""
    stream: StreamDigest | None
    timestamp: int
    """Unix seconds at which the response was complete."""


def split_raw(raw: str) -> RawParts:
    """
    Splits raw into the texts that it was spliced from.
    @raises JsonTextError unless raw is one JSON object with exactly `request`, `response`, `timestamp` and at most
    `stream` and, before all others and in this order, `endpoint` and `session`, each once, `timestamp` in whole seconds.
    """
    try:
        parse(raw)
    except JsonTextError as cause:
        raise JsonTextError("raw is not JSON") from cause
    texts: dict[str, str] = {}
    for member in top_level_members(raw):
        if member.key in texts:
            raise JsonTextError(f"raw names {quote(member.key[:64])} twice")
        texts[member.key] = raw[member.value_start : member.value_end]
    if not texts.keys() >= {"request", "response", "timestamp"}:
        raise JsonTextError("raw lacks request, response or timestamp")
    if not texts.keys() <= _KNOWN:
        raise JsonTextError("raw has a member that is not known")
    request, response, timestamp = texts["request"], texts["response"], texts["timestamp"]
    if not request.startswith("{") or not response.startswith("{"):
        raise JsonTextError("raw.request and raw.response must be objects")
    if _TIMESTAMP.fullmatch(timestamp) is None:
        raise JsonTextError("raw.timestamp is not in Unix seconds")
    return RawParts(
        endpoint=_endpoint(texts["endpoint"], raw) if "endpoint" in texts else CHAT_ENDPOINT,
        names_endpoint="endpoint" in texts,
        session=_session(texts["session"], texts.get("endpoint"), raw) if "session" in texts else None,
        request=request,
        response=response,
        stream=_stream(texts["stream"]) if "stream" in texts else None,
        timestamp=int(timestamp),
    )


def _endpoint(text: str, raw: str) -> str:
    endpoint = text[1:-1]
    if not raw.startswith('{"endpoint":"') or _ENDPOINT.fullmatch(endpoint) is None:
        raise JsonTextError("raw.endpoint is not a path, or not the first member")
    if endpoint == CHAT_ENDPOINT:
        raise JsonTextError(f"raw names {CHAT_ENDPOINT}, which it is about without a name")
    return endpoint


def _session(text: str, endpoint: str | None, raw: str) -> str:
    before = "{" if endpoint is None else f'{{"endpoint":{endpoint},'
    match = _SESSION.fullmatch(text)
    if match is None or not raw.startswith(f'{before}"session":"'):
        raise JsonTextError("raw.session is not 64 lowercase hex digits, or not before the request")
    return match.group(1)


def _stream(text: str) -> StreamDigest:
    match = _STREAM.fullmatch(text)
    if match is None:
        raise JsonTextError('raw.stream is not {"events": n, "sha256": hex}')
    return StreamDigest(int(match.group(1)), match.group(2))


def nonce_of(raw: str) -> str:
    """SHA-256 of its UTF-8, in lowercase hex."""
    return hashlib.sha256(utf8(raw)).hexdigest()
