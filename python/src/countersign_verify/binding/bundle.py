"""
Bundles: what compact attestations have in common, under its own SHA-256 (docs/attestation.md §9). With its bundle a
compact attestation becomes the whole one and is verified as that, so it can reach no level that the whole one would not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from weakref import WeakKeyDictionary

from ..common.bounded_json import parse_bounded
from ..common.bundles import Bundle, Bundles
from ..common.checks import CheckFailure, Limits, Passed, passed
from ..cpu.binding import evidence_digest
from ..proto.attestation.attestation import Attestation, Evidence
from ..proto.bytes import utf8
from ..proto.strict_json import Json
from ..token import ParsedToken, parse_token
from .input import is_digest, no_duplicates, read_session_evidence

BUNDLE_MEMBERS = ("token", "evidence", "cpu")


@dataclass(frozen=True, eq=False)
class Contents:
    """A bundle's members, and what depends on them only. They are the same objects at each use, so that it is computed once."""

    token: str | None
    """None: the bundle has neither token nor evidence."""
    evidence: tuple[Evidence, ...] | None
    cpu: Mapping[str, Json] | None

    @cached_property
    def parsed_token(self) -> ParsedToken:
        """Of a bundle with a token. @raises CheckFailure: token_malformed"""
        assert self.token is not None
        return parse_token(self.token)

    @cached_property
    def evidence_digest(self) -> bytes:
        """Of a bundle with evidence. @raises CheckFailure: evidence_malformed"""
        assert self.evidence is not None
        return evidence_digest(self.evidence)


@dataclass(frozen=True)
class Expanded:
    attestation: Attestation
    """The whole one."""
    contents: Contents


_read: WeakKeyDictionary[Bundle, Contents] = WeakKeyDictionary()


def _malformed(message: str) -> CheckFailure:
    return CheckFailure("bundle_malformed", message)


def check_bundle(attestation: Attestation, name: str, bundles: Bundles | None, limits: Limits) -> Passed[Expanded]:
    """
    @param attestation a compact one: `token` is '' where its bundle has it. @param name its bundle's SHA-256.
    @raises CheckFailure: bundle_unavailable, bundle_mismatch, bundle_malformed, too_large
    """
    bundle = None if bundles is None else bundles.find(name)
    if bundle is None:
        raise CheckFailure("bundle_unavailable", "the bundle that the attestation names is not to be had")
    contents = _read.get(bundle)
    if contents is None:
        contents = _read.setdefault(bundle, _read_bundle(bundle.text, limits))
    members = ", ".join(one for one in BUNDLE_MEMBERS if getattr(contents, one) is not None)
    return passed(f"the bundle has {members}", Expanded(_whole(attestation, contents), contents))


def _read_bundle(text: str, limits: Limits) -> Contents:
    try:
        value = parse_bounded(text, limits)
        if not isinstance(value, dict):
            raise _malformed("it is not a JSON object")
        no_duplicates(text)
        if any(name not in BUNDLE_MEMBERS for name in value):
            raise _malformed("it has another member than token, evidence and cpu")
        return _contents_of(value)
    except CheckFailure as cause:
        if cause.code in ("too_large", "bundle_malformed"):
            raise
        raise _malformed(cause.message) from cause


def _contents_of(value: Mapping[str, Json]) -> Contents:
    token, cpu = value.get("token"), value.get("cpu")
    if ("token" in value) != ("evidence" in value):
        raise _malformed("it has one of token and evidence")
    if "token" not in value and "cpu" not in value:
        raise _malformed("it has no member")
    if "token" in value and (not isinstance(token, str) or token == ""):
        raise _malformed("token is not a string")
    if "cpu" in value:
        is_session = isinstance(cpu, dict) and "signature" not in cpu and isinstance(cpu.get("statement"), str)
        if not is_session:
            raise _malformed("cpu is not a session without a signature")
    evidence = tuple(read_session_evidence(value["evidence"])) if "evidence" in value else None
    return Contents(token, evidence, cpu)


def _whole(attestation: Attestation, contents: Contents) -> Attestation:
    """@raises CheckFailure: bundle_malformed, bundle_mismatch"""
    short, cpu = attestation.cpu, contents.cpu
    is_twice = contents.token is not None and attestation.evidence is not None
    if (attestation.token == "") == (contents.token is None) or is_twice:
        raise _malformed("token and evidence are not in exactly one of attestation and bundle")
    if (short is None) != (cpu is None):
        raise _malformed("only one of attestation and bundle has a session")
    whole = attestation
    if contents.token is not None:
        whole = replace(whole, token=contents.token, evidence=contents.evidence)
    return whole if short is None or cpu is None else replace(whole, cpu=_session_of(short, cpu))


def _session_of(short: Mapping[str, Json], cpu: Mapping[str, Json]) -> Mapping[str, Json]:
    name, signature = short.get("statement_sha256"), short.get("signature")
    if not is_digest(name) or not isinstance(signature, str) or len(short) != 2:
        raise _malformed("beside a bundle, cpu has statement_sha256 and signature")
    if sha256(utf8(cpu["statement"])).hexdigest() != name:
        message = "the bundle is of another session than the one that the attestation names"
        raise CheckFailure("bundle_mismatch", message)
    return {**cpu, "signature": signature}
