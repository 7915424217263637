"""Reads a Sigstore bundle in the one form that is accepted: v0.3 with one certificate, one signature and one log entry."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..common.checks import CheckFailure
from .form import ABSENT, base64, items, members, parsed, pre_authentication, refuse_large, text, whole, with_code


@dataclass(frozen=True)
class InclusionProof:
    index: int
    tree_size: int
    root_hash: bytes
    hashes: Sequence[bytes]
    checkpoint: str


@dataclass(frozen=True)
class LogEntry:
    """An entry of a transparency log, with the proof that it is in there."""

    log_id: bytes
    kind: str
    """`dsse/0.0.1` or `hashedrekord/0.0.2`."""
    log_index: int
    integrated_time: int | None
    """Unix seconds; None where the log gave no time of its own."""
    promise: bytes | None
    """The signed entry timestamp; None where there is none."""
    proof: InclusionProof
    body: bytes
    """The canonicalized body."""


@dataclass(frozen=True)
class Material:
    """The member verificationMaterial."""

    certificate: bytes
    """DER."""
    entry: LogEntry
    timestamps: Sequence[bytes]
    """DER of RFC 3161 responses."""


@dataclass(frozen=True)
class ReleaseBundle:
    """What a bundle shows about some signed bytes."""

    material: Material
    signature: bytes
    signed: bytes
    """The bytes that were signed."""
    payload: bytes
    """The DSSE envelope's payload: the statement."""


MAX_BUNDLE_CHARACTERS = 512 * 1024
"""A statement has at most 256 KiB; the bundle is that in base64, certificate and proofs."""
_MAX_PROOF_HASHES = 64
_MAX_TIMESTAMPS = 4
_MEDIA_TYPES = (
    "application/vnd.dev.sigstore.bundle.v0.3+json",
    "application/vnd.dev.sigstore.bundle+json;version=0.3",
)
_PAYLOAD_TYPE = "application/vnd.in-toto+json"
DSSE_ENTRY = "dsse/0.0.1"
HASHED_ENTRY = "hashedrekord/0.0.2"
_EMPTY = re.compile("")


def read_bundle(given: str) -> ReleaseBundle:
    """@raises CheckFailure: release_too_large, release_malformed, release_unsupported"""
    refuse_large(given, MAX_BUNDLE_CHARACTERS, "the bundle")
    return with_code("release_malformed", "the bundle", lambda: _bundle(parsed(given)))


def _bundle(value: object) -> ReleaseBundle:
    media_type = value.get("mediaType") if isinstance(value, dict) else None
    if isinstance(media_type, str) and media_type not in _MEDIA_TYPES:
        raise _unsupported("the bundle is not of version 0.3")
    bundle = members(value, "it", ("mediaType", "verificationMaterial"), ("dsseEnvelope", "messageSignature"))
    text(bundle["mediaType"], "mediaType")
    material = read_material(bundle["verificationMaterial"])
    if "dsseEnvelope" not in bundle:
        raise _unsupported("the bundle signs a message and no statement")
    envelope = members(bundle["dsseEnvelope"], "dsseEnvelope", ("payload", "payloadType", "signatures"))
    if "messageSignature" in bundle:
        raise _unsupported("the bundle signs a message too")
    if text(envelope["payloadType"], "payloadType") != _PAYLOAD_TYPE:
        raise _unsupported("the bundle does not hold an in-toto statement")
    signature = members(_only(envelope["signatures"], "signature"), "signatures[0]", ("sig",), ("keyid",))
    text(signature.get("keyid", ""), "keyid", _EMPTY)
    statement = base64(envelope["payload"], "payload")
    signed = pre_authentication(_PAYLOAD_TYPE, statement)
    return ReleaseBundle(material, base64(signature["sig"], "sig"), signed, statement)


def read_material(value: object) -> Material:
    """@raises FormError @raises CheckFailure"""
    named = value if isinstance(value, dict) else {}
    other = next((name for name in ("publicKey", "x509CertificateChain") if name in named), None)
    if other is not None:
        raise _unsupported(f"the bundle has a {other} in place of one certificate")
    material = members(value, "verificationMaterial", ("certificate", "tlogEntries"), ("timestampVerificationData",))
    raw = members(material["certificate"], "certificate", ("rawBytes",))["rawBytes"]
    data = material.get("timestampVerificationData")
    stamps = members({} if data is None else data, "timestampVerificationData", (), ("rfc3161Timestamps",))
    return Material(
        base64(raw, "rawBytes"),
        _entry(_only(material["tlogEntries"], "log entry")),
        [
            base64(members(one, "rfc3161Timestamps", ("signedTimestamp",))["signedTimestamp"], "signedTimestamp")
            for one in items(stamps.get("rfc3161Timestamps", []), "rfc3161Timestamps", _MAX_TIMESTAMPS)
        ],
    )


def _entry(value: object) -> LogEntry:
    entry = members(
        value,
        "tlogEntries[0]",
        ("logIndex", "logId", "kindVersion", "inclusionProof", "canonicalizedBody"),
        ("integratedTime", "inclusionPromise"),
    )
    kind = members(entry["kindVersion"], "kindVersion", ("kind", "version"))
    name = f"{text(kind['kind'], 'kind')}/{text(kind['version'], 'version')}"
    if name not in (DSSE_ENTRY, HASHED_ENTRY):
        raise _unsupported(f"the log entry is neither {DSSE_ENTRY} nor {HASHED_ENTRY}")
    # Protobuf's JSON leaves out zero and an empty list.
    proof = members(
        entry["inclusionProof"], "inclusionProof", ("rootHash", "treeSize", "checkpoint"), ("logIndex", "hashes")
    )
    time = entry.get("integratedTime", ABSENT)
    index, hashes = proof.get("logIndex"), proof.get("hashes")
    return LogEntry(
        log_id=base64(members(entry["logId"], "logId", ("keyId",))["keyId"], "keyId"),
        kind=name,
        log_index=whole(entry["logIndex"], "logIndex"),
        integrated_time=None if time is ABSENT else whole(time, "integratedTime"),
        promise=_promise(entry.get("inclusionPromise", ABSENT)),
        proof=InclusionProof(
            index=whole("0" if index is None else index, "inclusionProof.logIndex"),
            tree_size=whole(proof["treeSize"], "treeSize"),
            root_hash=base64(proof["rootHash"], "rootHash"),
            hashes=[
                base64(one, "hashes") for one in items([] if hashes is None else hashes, "hashes", _MAX_PROOF_HASHES)
            ],
            checkpoint=text(members(proof["checkpoint"], "checkpoint", ("envelope",))["envelope"], "checkpoint"),
        ),
        body=base64(entry["canonicalizedBody"], "canonicalizedBody"),
    )


def _promise(value: object) -> bytes | None:
    if value is ABSENT:
        return None
    promise = members(value, "inclusionPromise", ("signedEntryTimestamp",))
    return base64(promise["signedEntryTimestamp"], "signedEntryTimestamp")


def _only(value: object, what: str) -> object:
    if not isinstance(value, list) or len(value) != 1:
        raise _unsupported(f"the bundle has not one {what}")
    return value[0]


def _unsupported(message: str) -> CheckFailure:
    return CheckFailure("release_unsupported", message)
