"""Reads what is given to be verified: an attestation, one in a response, or bare evidence. It is strict about JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeGuard

from ..common.bounded_json import bounded, parse_bounded
from ..common.checks import CheckFailure, Limits
from ..gpu.device_evidence import DeviceInput
from ..proto.attestation.attestation import Attestation, Evidence
from ..proto.bytes import length
from ..proto.json import Member, quote, top_level_members, without_member
from ..proto.stream.events import is_final_response
from ..proto.strict_json import JsonTextError, duplicate_member, parse

Json = Any
Kind = Literal["attestation", "evidence", "cpu", "session"]


@dataclass(frozen=True)
class Carrier:
    """The response that carried an attestation, without it."""

    text: str | None = field(repr=False)
    """The exact text; None where a parsed object was given."""
    value: Mapping[str, Json] = field(repr=False)


@dataclass(frozen=True)
class Input:
    attestation: Attestation
    """`token` is '' where only the bundle has it."""
    bundle: str | None
    """SHA-256 of the bundle that a compact attestation names; None: it is whole."""
    carrier: Carrier | None
    """None where the attestation came alone."""


_MAX_DEVICES = 64
_MAX_BASE64_CHARACTERS = 4_000_000
_MEMBERS = ("raw", "nonce", "token", "evidence", "batch", "cpu", "bundle")
"""
The members of an attestation. Where it comes by itself, nothing else may be there: a client could show it, and nobody
signed it.
"""
_EVENT_MEMBERS = ("type", "sequence_number", "response")
"""The members of the event that completes a stream of /v1/responses."""
_DIGEST = re.compile("[0-9a-f]{64}")
_STATED_NONCE = re.compile("(?:0x)?[0-9a-fA-F]{64}")
_ARCH = re.compile("[A-Za-z0-9_ .-]{1,32}")


def _no(message: str) -> CheckFailure:
    return CheckFailure("not_an_attestation", message)


def _unsigned(message: str) -> CheckFailure:
    return CheckFailure("unsigned_member", message)


def read_input(given: object, limits: Limits, event: bool = False) -> Input:
    """
    @param given an attestation, or a response that carries one: an object, its JSON text, or that text as a JSON string.
    @param event the caller says that it is an event of a stream. Nothing else is unwrapped.
    @raises CheckFailure: not_json, not_an_attestation, unsigned_member, event_not_expected, too_large
    """
    if not isinstance(given, str):
        return _from_object(given, limits, event)
    value, text = _parse(given, limits)
    if not isinstance(value, dict):
        raise _no("not a JSON object")
    members = _once(text)
    inner = _final_response(value.get("type"), members, text) if event else None
    if inner is None:
        return _from_text(value, members, text, limits)
    no_duplicates(f"{text[: inner.start]}null{text[inner.start + len(inner.text) :]}")
    return _from_text(_response_of(value), _once(inner.text), inner.text, limits)


def _from_text(value: dict[str, Json], members: list[Member], text: str, limits: Limits) -> Input:
    at = _index_of("attestation", members)
    # An object with this member is the response that carries the attestation, and is compared as such.
    if at is None:
        no_duplicates(text)
        return Input(*_read_alone(value, limits), None)
    no_duplicates(text[members[at].value_start : members[at].value_end])
    read = _read_attestation(_unwrapped(value["attestation"], limits), limits)
    return Input(*read, Carrier(without_member(text, members, at), _without_attestation(value)))


def _from_object(given: object, limits: Limits, event: bool) -> Input:
    if not isinstance(given, dict):
        raise _no("not an object")
    carrier = _response_of(given) if event and _is_final_event(given) else given
    if "attestation" not in carrier:
        return Input(*_read_alone(carrier, limits), None)
    read = _read_attestation(_unwrapped(carrier["attestation"], limits), limits)
    return Input(*read, Carrier(None, _without_attestation(carrier)))


def _without_attestation(value: dict[str, Json]) -> dict[str, Json]:
    return {name: member for name, member in value.items() if name != "attestation"}


def _is_final_event(value: dict[str, Json]) -> bool:
    return is_final_response(value.get("type")) and isinstance(value.get("response"), dict)


def _response_of(event: dict[str, Json]) -> dict[str, Json]:
    """The response in a final event. Only the stream's hash covers the event's other members."""
    beside = _beside(event, _EVENT_MEMBERS)
    if beside is not None:
        raise _unsigned(f"an event has the member {beside}, which nobody signed")
    return _record(event["response"])


def _beside(value: dict[str, Json], names: Sequence[str]) -> str | None:
    """The first member of another name, quoted."""
    return next((quote(str(name)[:64]) for name in value if name not in names), None)


def _read_alone(value: dict[str, Json], limits: Limits) -> tuple[Attestation, str | None]:
    """An attestation that no response carries."""
    if _is_final_event(value):
        raise CheckFailure("event_not_expected", "it is an event of a stream: it counts only where the caller says so")
    beside = _beside(value, _MEMBERS)
    if beside is not None and not any(name in value for name in _MEMBERS):
        raise _no("it carries no attestation")
    if beside is not None:
        raise _unsigned(f"an attestation by itself has the member {beside}, which nobody signed")
    return _read_attestation(value, limits)


def _unwrapped(value: Json, limits: Limits) -> Json:
    """An attestation kept as text inside of JSON."""
    if not isinstance(value, str):
        return value
    inner = parse_bounded(value, limits)
    if isinstance(inner, dict):
        no_duplicates(value)
    return inner


def _parse(given: str, limits: Limits) -> tuple[Json, str]:
    text = given.removeprefix("\ufeff")
    value = parse_bounded(text, limits)
    return (parse_bounded(value, limits), value) if isinstance(value, str) else (value, text)


def kind_of(text: str, limits: Limits) -> Kind:
    """
    What a text holds, by its shape. What is none of the others, or over the limits, counts as an attestation, whose reader
    reports what is wrong.
    """
    try:
        value, _ = _parse(text, limits)
    except CheckFailure:
        return "attestation"
    if isinstance(value, list):
        return "evidence"
    if not isinstance(value, dict) or "raw" in value or "attestation" in value:
        return "attestation"
    if "statement" in value and "gpu" in value:
        return "session"
    return "cpu" if "type" in value and "report" in value else "attestation"


def is_digest(value: Json) -> TypeGuard[str]:
    """Of SHA-256, as it is written: lowercase hex."""
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def _read_attestation(value: Json, limits: Limits) -> tuple[Attestation, str | None]:
    """With the SHA-256 of the bundle that it names."""
    if not isinstance(value, dict):
        raise _no("the attestation is not an object")
    raw, nonce, token, bundle = (value.get(name) for name in ("raw", "nonce", "token", "bundle"))
    if bundle is not None and not is_digest(bundle):
        raise _no("bundle must be 64 lowercase hex digits")
    is_in_bundle = bundle is not None and "token" not in value
    if is_in_bundle:
        token = ""
    if not isinstance(raw, str) or not isinstance(token, str) or raw == "" or (token == "" and not is_in_bundle):
        raise _no("raw and token must be strings")
    if not is_digest(nonce):
        raise _no("nonce must be 64 lowercase hex digits")
    bounded(raw, limits)
    cpu = value.get("cpu")
    if "cpu" in value and not isinstance(cpu, dict):
        raise _no("cpu must be an object")
    attestation = Attestation(
        raw=raw,
        nonce=nonce,
        token=token,
        evidence=tuple(_read_evidence(one) for one in _devices(value["evidence"])) if "evidence" in value else None,
        batch=value.get("batch"),
        has_batch="batch" in value,
        cpu=cpu,
    )
    return attestation, bundle


def _read_evidence(value: Json) -> Evidence:
    it = _record(value)
    arch, report, chain = it.get("arch"), it.get("report"), it.get("certificate_chain")
    if not (_is_arch(arch) and _is_base64(report) and _is_base64(chain)):
        raise _no("evidence must be a list of {arch, report, certificate_chain}")
    return Evidence(arch, report, chain)


def read_session_evidence(value: Json) -> list[Evidence]:
    """The evidence over a session's statement, in our own form. @raises CheckFailure: not_an_attestation"""
    return [_read_evidence(one) for one in _devices(value)]


def read_devices(given: object, limits: Limits) -> list[DeviceInput]:
    """
    Bare evidence, in NVIDIA's form `[{arch, certificate, evidence, nonce}]` or in ours `[{arch, report,
    certificate_chain}]`.
    @raises CheckFailure: not_json, not_an_attestation, too_large
    """
    if not isinstance(given, str):
        return [_read_device(one) for one in _devices(given)]
    value, text = _parse(given, limits)
    no_duplicates(text)
    return [_read_device(one) for one in _devices(value)]


def _read_device(value: Json) -> DeviceInput:
    it = _record(value)
    ours = "report" in it or "certificate_chain" in it
    if ours and ("evidence" in it or "certificate" in it):
        raise _no("evidence in two forms at once")
    arch, nonce = it.get("arch"), it.get("nonce")
    report = it.get("report" if ours else "evidence")
    chain = it.get("certificate_chain" if ours else "certificate")
    if not (_is_arch(arch) and _is_base64(report) and _is_base64(chain)):
        raise _no("evidence must be a list of {arch, certificate, evidence, nonce}")
    if nonce is not None and (not isinstance(nonce, str) or _STATED_NONCE.fullmatch(nonce) is None):
        raise _no("a nonce must be 64 hex digits")
    return DeviceInput(arch, report, chain, None if nonce is None else nonce.lower().removeprefix("0x"))


def _devices(value: Json) -> Sequence[Json]:
    if not isinstance(value, list) or len(value) == 0:
        raise _no("evidence must be a list that is not empty")
    if len(value) > _MAX_DEVICES:
        raise _no(f"evidence of more than {_MAX_DEVICES} devices")
    return value


def _record(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise _no("not an object")
    return value


def _is_arch(value: Json) -> TypeGuard[str]:
    return isinstance(value, str) and _ARCH.fullmatch(value) is not None


def _is_base64(value: Json) -> TypeGuard[str]:
    return isinstance(value, str) and 4 <= length(value) <= _MAX_BASE64_CHARACTERS


def _once(text: str) -> list[Member]:
    """The top level's members, each once."""
    try:
        members = top_level_members(text)
    except JsonTextError as cause:
        raise _no(str(cause)) from cause
    if len({member.key for member in members}) < len(members):
        raise _no("a member appears twice")
    return members


def no_duplicates(text: str) -> None:
    """
    Refuses an object, at any depth, in which a name stands twice: parsers differ in which of the two they mean.
    @param text JSON. @raises CheckFailure: not_an_attestation
    """
    name = duplicate_member(text)
    if name is not None:
        raise _no(f"the member {quote(name[:64])} appears twice")


# The attestation where it travels: a member of a response or of a chunk, found in the exact text and cut out of it.


def attestation_in(text: str) -> str | None:
    """
    The member's value as it was written, in the first place where it stands; None where there is none. Not yet checked.
    """
    found = _find(text)
    return None if found is None else found.value


def without_attestation(text: str, checked: Attestation) -> str:
    """The text without its attestation where that equals `checked`, and otherwise the text unchanged."""
    found = _find(text)
    if found is None or not _is_that(found.value, checked):
        return text
    cut = without_member(found.carrier.text, found.members, found.at)
    return text[: found.carrier.start] + cut + text[found.carrier.start + len(found.carrier.text) :]


@dataclass(frozen=True)
class _Part:
    """The text of an object inside of another text, and where it begins there."""

    start: int
    text: str


@dataclass(frozen=True)
class _Found:
    carrier: _Part
    members: list[Member]
    at: int

    @property
    def value(self) -> str:
        return self.carrier.text[self.members[self.at].value_start : self.members[self.at].value_end]


def _find(text: str) -> _Found | None:
    """The object that carries an attestation: the text's own, or the response inside of a final event."""
    # A name may be written in escapes.
    if "attestation" not in text and "\\u" not in text:
        return None
    try:
        members = top_level_members(text)
        at = _index_of("attestation", members)
        if at is not None:
            return _Found(_Part(0, text), members, at)
        kind = _index_of("type", members)
        written = "null" if kind is None else text[members[kind].value_start : members[kind].value_end]
        inner = _final_response(parse(written), members, text)
        if inner is None:
            return None
        own = top_level_members(inner.text)
        at = _index_of("attestation", own)
        return None if at is None else _Found(inner, own, at)
    except JsonTextError:
        return None


def _index_of(key: str, members: list[Member]) -> int | None:
    return next((i for i, member in enumerate(members) if member.key == key), None)


def _final_response(kind: Json, members: list[Member], text: str) -> _Part | None:
    """The response inside of the event that completes a stream of /v1/responses; None for anything else."""
    at = _index_of("response", members) if is_final_response(kind) else None
    if at is None or not text.startswith("{", members[at].value_start):
        return None
    return _Part(members[at].value_start, text[members[at].value_start : members[at].value_end])


def _is_that(text: str, checked: Attestation) -> bool:
    """What is cut out is in no hash, so it must be of the form that is checked, and about the same raw."""
    try:
        given = read_input(text, Limits(max_characters=float("inf")))
    except CheckFailure:
        return False
    attestation = given.attestation
    return given.carrier is None and attestation.raw == checked.raw and attestation.nonce == checked.nonce
