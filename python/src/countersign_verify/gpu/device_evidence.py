"""Parses one device's evidence: a report and the certificates beside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from ..common.checks import CheckFailure
from ..common.lru import LruMap
from ..proto.attestation.attestation import Evidence
from ..proto.bytes import EncodingError, from_base64
from ..x509 import Certificate, DerError, parse_pem
from .spdm.report import Report, parse_report


@dataclass(frozen=True)
class DeviceInput:
    """One device's evidence as given: in our own form or in NVIDIA's."""

    arch: str
    report: str = field(repr=False)
    """base64"""
    chain: str = field(repr=False)
    """base64 of PEM"""
    nonce: str | None
    """That is stated beside it, lowercase; None in our own form."""


def input_of(evidence: Evidence) -> DeviceInput:
    """Our own form, which states no nonce."""
    known = _inputs.get(evidence)
    if known is not None:
        return known
    made = DeviceInput(evidence.arch, evidence.report, evidence.certificate_chain, nonce=None)
    return _inputs.setdefault(evidence, made)


@dataclass(frozen=True, eq=False)
class ParsedEvidence:
    """Evidence in its parts. Nothing of it is verified yet."""

    report: Report
    chain: tuple[Certificate, ...]
    """At least one, the leaf first."""


# Evidence of a bundle is the same object for each attestation that names the bundle, so it is read once.
_inputs: WeakKeyDictionary[Evidence, DeviceInput] = WeakKeyDictionary()
_parsed: WeakKeyDictionary[DeviceInput, ParsedEvidence] = WeakKeyDictionary()


def parse_evidence(given: DeviceInput) -> ParsedEvidence:
    """@raises CheckFailure: evidence_malformed, report_malformed"""
    known = _parsed.get(given)
    if known is not None:
        return known
    report = parse_report(_base64(given.report, "report"))
    chain = parse_chain(given.chain)
    if not chain:
        raise CheckFailure("evidence_malformed", "the certificate chain is empty")
    return _parsed.setdefault(given, ParsedEvidence(report, chain))


_chains: LruMap[str, tuple[Certificate, ...]] = LruMap(64)
"""A device's chain is the same in every one of its reports."""


def parse_chain(chain: str) -> tuple[Certificate, ...]:
    """@param chain base64 of PEM. @raises CheckFailure: evidence_malformed"""
    text = _base64(chain, "certificate chain").decode("utf-8", "replace").removeprefix("\ufeff")
    known = _chains.get(text)
    if known is not None:
        return known
    try:
        certificates = tuple(parse_pem(text))
    except DerError as cause:
        raise CheckFailure("evidence_malformed", f"the certificate chain: {cause}") from cause
    _chains.set(text, certificates)
    return certificates


def _base64(text: str, what: str) -> bytes:
    try:
        return from_base64(text)
    except EncodingError as cause:
        raise CheckFailure("evidence_malformed", f"the {what} is not base64") from cause
