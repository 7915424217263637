"""
A session's statement, which GPUs and processor both sign, and the digests that bind the two to each other and to every
answer. docs/attestation.md §6 gives the bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..bytes import is_longer
from ..strict_json import JsonTextError, parse, whole_number


@dataclass(frozen=True)
class Statement:
    """What the sidecar states of itself for an hour at most. Times are Unix seconds."""

    challenge: str | None
    """64 hex digits that somebody asked for; None in the session that answers are signed under."""
    key: str
    """The key that signs answers: a P-256 SubjectPublicKeyInfo in base64."""
    devices: Sequence[str]
    """Of each device the SHA-256 of its second certificate's SubjectPublicKeyInfo, in hex."""
    tls: Sequence[str]
    """SHA-256 in hex of the SubjectPublicKeyInfo of each certificate that the gateway serves TLS with."""
    hpke: str | None
    """The key configuration of sealed prompts in base64; None without."""
    launch: str | None
    """SHA-256 of the launch file in hex; None without."""
    not_before: int
    not_after: int


PURPOSE = "countersign.session.v1"
MAX_SESSION_SECONDS = 3_600
MAX_STATEMENT_LENGTH = 16 * 1024
MAX_DEVICES = 64
MAX_TLS_KEYS = 16
MAX_SAFE_INTEGER = 2**53 - 1
HEX_32 = re.compile(r"[0-9a-f]{64}")
BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


def read_statement(text: str) -> Statement:
    """
    @raises JsonTextError: the text is not exactly as a statement is written: these members in this order, without
    white space.
    """
    if is_longer(text, MAX_STATEMENT_LENGTH):
        raise JsonTextError(f"the statement has more than {MAX_STATEMENT_LENGTH} characters")
    try:
        value = parse(text)
    except JsonTextError as cause:
        raise JsonTextError("the statement is not JSON") from cause
    if not isinstance(value, dict):
        raise JsonTextError("the statement is not an object")
    wrong = _wrong_member(value)
    if wrong is not None:
        raise JsonTextError(f"the statement's member {wrong} is not what it must be")
    times = {name: int(value[name]) for name in ("not_before", "not_after")}
    names = ("challenge", "key", "devices", "tls", "hpke", "launch")
    members: dict[str, Any] = {**{name: value[name] for name in names}, **times}
    if json.dumps({"purpose": PURPOSE, **members}, separators=(",", ":")) != text:
        raise JsonTextError("the statement has other members, another order or white space")
    return Statement(**members)


def _wrong_member(value: Mapping[str, Any]) -> str | None:
    def is_null_or_digest(name: str) -> bool:
        return name in value and (value[name] is None or _is_digest(value[name]))

    if not is_null_or_digest("challenge"):
        return "challenge"
    if not _is_base64(value.get("key"), 256):
        return "key"
    if not _is_list_of_digests(value.get("devices"), MAX_DEVICES) or not value["devices"]:
        return "devices"
    if not _is_list_of_digests(value.get("tls"), MAX_TLS_KEYS):
        return "tls"
    if "hpke" not in value or not (value["hpke"] is None or _is_base64(value["hpke"], 4_096)):
        return "hpke"
    if not is_null_or_digest("launch"):
        return "launch"
    first, last = whole_number(value.get("not_before")), whole_number(value.get("not_after"))
    if first is None or not 0 <= first <= MAX_SAFE_INTEGER:
        return "not_before"
    is_last = last is not None and last <= MAX_SAFE_INTEGER and 0 < last - first <= MAX_SESSION_SECONDS
    return None if is_last else "not_after"


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and HEX_32.fullmatch(value) is not None


def _is_base64(value: object, most: int) -> bool:
    return isinstance(value, str) and len(value) <= most and BASE64.fullmatch(value) is not None


def _is_list_of_digests(value: object, most: int) -> bool:
    return isinstance(value, list) and len(value) <= most and all(_is_digest(one) for one in value)


# What is hashed with SHA-256, or signed: the caller does that. Each tag ends in a NUL, and raw begins with "{":
# nothing that is hashed for one purpose can stand for another.


def _tag(text: str) -> bytes:
    return f"countersign/{text}/v1\0".encode("ascii")


def evidence_message(evidence: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The evidence of all devices, in its order: of each its report, and its certificate chain as PEM."""
    parts = [part for pair in evidence for one in pair for part in (_u32(len(one)), one)]
    return b"".join([_tag("evidence"), _u32(len(evidence)), *parts])


def session_message(statement: bytes, evidence: bytes) -> bytes:
    """Its digest is the first 32 bytes of the processor's report data; the other 32 are zero.

    Takes two digests: of the statement's text and of the evidence over it.
    """
    return _tag("session") + statement + evidence


def answer_message(statement: bytes, raw: bytes, evidence: bytes) -> bytes:
    """
    What the session's key signs for an answer (ECDSA): the digests of the statement, of raw, and of the answer's own
    evidence.
    """
    return _tag("answer") + statement + raw + evidence


def _u32(value: int) -> bytes:
    return value.to_bytes(4, "big")
