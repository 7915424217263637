"""The transparency log: that the entry is about these bytes, that it is in the log's tree, and that the log signed the tree."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from ..common.checks import CheckFailure
from ..proto.bytes import EncodingError, from_base64, from_utf8, utf8
from ..x509 import Certificate, DerError, parse_pem
from ..x509.certificate import SPACE
from . import times
from .bundle import DSSE_ENTRY, InclusionProof, LogEntry, ReleaseBundle
from .form import base64, items, members, parsed, text, with_code
from .trusted_root import LogKey, key_of, verifies_under, within


def log_of(entry: LogEntry, logs: Sequence[LogKey]) -> LogKey:
    """@raises CheckFailure: release_untrusted"""
    log = key_of(logs, entry.log_id)
    if log is None:
        raise CheckFailure("release_untrusted", "the trusted root does not know this log")
    return log


def check_period(log: LogKey, at: int) -> None:
    """Nothing else ties a time authority's word to the log's period. @raises CheckFailure: release_log_ended"""
    if not within(at, log.period):
        raise CheckFailure("release_log_ended", f"at {times.iso_exact(at)} the log had ended or had not begun")


# The entry's body.


@dataclass(frozen=True)
class _Said:
    digest: bytes
    signature: bytes
    certificate: bytes


_SHA256_HEX = re.compile(r"[0-9a-f]{64}")
_SHA256 = re.compile("sha256")
_SHA2_256 = re.compile("SHA2_256")


def check_body(bundle: ReleaseBundle, leaf: Certificate) -> None:
    """@raises CheckFailure: release_malformed, release_entry_mismatch"""
    entry = bundle.material.entry
    said = with_code("release_malformed", "the log entry", lambda: _read_body(entry))
    hashed = sha256(bundle.payload if entry.kind == DSSE_ENTRY else bundle.signed).digest()
    if said.digest != hashed:
        raise _mismatch("about another statement")
    if said.signature != bundle.signature:
        raise _mismatch("about another signature")
    if said.certificate != leaf.der:
        raise _mismatch("about another certificate")


def _read_body(entry: LogEntry) -> _Said:
    body = members(parsed(_utf8_text(entry.body)), "it", ("apiVersion", "kind", "spec"))
    if [body["kind"], body["apiVersion"]] != entry.kind.split("/"):
        raise _mismatch("of another kind than the bundle says")
    return _read_dsse(body["spec"]) if entry.kind == DSSE_ENTRY else _read_hashed(body["spec"])


def _read_dsse(value: object) -> _Said:
    """The envelope's own hash is over JSON as it was sent, which nobody has any more."""
    spec = members(value, "spec", ("envelopeHash", "payloadHash", "signatures"))
    payload_hash = members(spec["payloadHash"], "payloadHash", ("algorithm", "value"))
    text(payload_hash["algorithm"], "algorithm", _SHA256)
    signatures = items(spec["signatures"], "signatures", 1)
    signature = members(signatures[0] if signatures else None, "signatures[0]", ("signature", "verifier"))
    return _Said(
        digest=bytes.fromhex(text(payload_hash["value"], "payloadHash", _SHA256_HEX)),
        signature=base64(signature["signature"], "signature"),
        certificate=_of_pem(_utf8_text(base64(signature["verifier"], "verifier"))),
    )


def _read_hashed(value: object) -> _Said:
    record = members(
        members(value, "spec", ("hashedRekordV002",))["hashedRekordV002"], "hashedRekordV002", ("data", "signature")
    )
    data = members(record["data"], "data", ("algorithm", "digest"))
    text(data["algorithm"], "algorithm", _SHA2_256)
    signature = members(record["signature"], "signature", ("content", "verifier"))
    verifier = members(signature["verifier"], "verifier", ("x509Certificate",), ("keyDetails",))
    raw = members(verifier["x509Certificate"], "x509Certificate", ("rawBytes",))["rawBytes"]
    return _Said(
        digest=base64(data["digest"], "digest"),
        signature=base64(signature["content"], "content"),
        certificate=base64(raw, "rawBytes"),
    )


def _utf8_text(data: bytes) -> str:
    try:
        return from_utf8(data)
    except EncodingError as cause:
        raise _mismatch("not UTF-8") from cause


def _of_pem(pem: str) -> bytes:
    try:
        certificates = parse_pem(pem)
    except DerError as cause:
        raise _mismatch("about another certificate") from cause
    if len(certificates) != 1:
        raise _mismatch("about another certificate")
    return certificates[0].der


def _mismatch(what: str) -> CheckFailure:
    return CheckFailure("release_entry_mismatch", f"the log entry is {what}")


# The tree (RFC 9162 §2.1.3.2) and the log's signed note about it.


def check_inclusion(entry: LogEntry, log: LogKey) -> None:
    """@raises CheckFailure: release_proof_invalid, release_checkpoint_invalid"""
    proof = entry.proof
    if proof.index >= proof.tree_size:
        raise _invalid_proof("is about an entry outside of its tree")
    hashes = list(proof.hashes)
    digest = sha256(b"\x00" + entry.body).digest()
    index, last = proof.index, proof.tree_size - 1
    while last > 0:
        is_right = index % 2 == 1
        if is_right or index < last:
            if not hashes:
                raise _invalid_proof("breaks off")
            sibling = hashes.pop(0)
            digest = sha256(b"\x01" + (sibling + digest if is_right else digest + sibling)).digest()
        index, last = index >> 1, last >> 1
    if hashes:
        raise _invalid_proof("is longer than its tree is high")
    if digest != proof.root_hash:
        raise _invalid_proof("leads to another tree")
    _check_checkpoint(proof, log)


def _invalid_proof(what: str) -> CheckFailure:
    return CheckFailure("release_proof_invalid", f"the inclusion proof {what}")


def _invalid(what: str) -> CheckFailure:
    return CheckFailure("release_checkpoint_invalid", f"the log's checkpoint {what}")


_MAX_SIGNATURES = 16
_HINT_BYTES = 4
_SIGNATURE = re.compile(f"\u2014 ([^{SPACE}]+) ([A-Za-z0-9+/]+={{0,2}})")


def _check_checkpoint(proof: InclusionProof, log: LogKey) -> None:
    """A signed note: origin, size, root hash and more lines; an empty line; signatures, of which one must be the log's."""
    checkpoint = proof.checkpoint
    end = checkpoint.find("\n\n")
    if end < 0:
        raise _invalid("is no signed note")
    note = checkpoint[: end + 1]
    origin, *stated = note.split("\n")
    if not origin or stated[:2] != [str(proof.tree_size), b64encode(proof.root_hash).decode("ascii")]:
        raise _invalid("is about another tree: of another size or another root")
    *lines, rest = checkpoint[end + 2 :].split("\n")
    if rest != "" or len(lines) > _MAX_SIGNATURES:
        raise _invalid("does not end in signatures")
    for line in lines:
        match = _SIGNATURE.fullmatch(line)
        # The name is outside of what is signed; the origin is in it.
        if match is None or match.group(1) != origin.split(" ")[0] or len(match.group(2)) % 4 != 0:
            continue
        signature = from_base64(match.group(2))
        if signature[:_HINT_BYTES] != log.id[:_HINT_BYTES]:
            continue
        if verifies_under(log, signature[_HINT_BYTES:], utf8(note)):
            return
    raise _invalid("does not have the signature of the log")


def promised_time(entry: LogEntry, log: LogKey) -> int | None:
    """
    The signed entry timestamp, of logs of version 1. Unix milliseconds; None: the log gave none.
    @raises CheckFailure: release_time_invalid
    """
    if entry.promise is None:
        return None
    if not entry.integrated_time:
        raise CheckFailure("release_time_invalid", "the log promised an entry without a time")
    # Canonical JSON: these names in this order.
    body = b64encode(entry.body).decode("ascii")
    promised = f'{{"body":"{body}","integratedTime":{entry.integrated_time},"logID":"{entry.log_id.hex()}","logIndex":{entry.log_index}}}'
    if not verifies_under(log, entry.promise, utf8(promised)):
        raise CheckFailure("release_time_invalid", "the log's signed time does not verify")
    time = entry.integrated_time * 1000
    if time > times.MAX_MS:
        raise CheckFailure("release_time_invalid", "the log's time is no time")
    return time
