"""
The session of an attestation: what binds a processor's evidence to the devices that signed beside it, and both to one
answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Any, Literal

from ..common.checks import CheckFailure, CheckList, Passed, Skipped, passed, seen, skipped
from ..common.times import milliseconds
from ..gpu.device_evidence import input_of, parse_chain, parse_evidence
from ..proto.attestation.attestation import Evidence
from ..proto.attestation.launch import MAX_LAUNCH_CHARACTERS, Launch, read_launch
from ..proto.attestation.statement import Statement, answer_message, evidence_message, read_statement, session_message
from ..proto.bytes import EncodingError, from_base64, is_longer, is_well_formed, utf8
from ..proto.strict_json import JsonTextError
from ..x509 import Certificate, PublicKey, ecdsa_verify_raw
from .cpu_member import HEX_32, bad, parse_cpu, record
from .cpu_options import CpuClaims, CpuContext, VerifiedSession
from .reference import NamedLaunch
from .verify_cpu import Binding, CpuEvidence, check_cpu_evidence, read_cpu_evidence, skip_cpu_evidence
from .weights import check_weights


@dataclass(frozen=True)
class Answer:
    """What an attestation's session must belong to."""

    raw_hash: str | None
    """SHA-256 of raw in hex, also where a batch has another nonce; None for a session by itself."""
    timestamp: int | None
    """Unix seconds, in raw."""
    evidence: Sequence[Evidence]
    session: str | None = None
    """The session that raw names, in hex."""
    digest: Callable[[], bytes] | None = None
    """The digest of the evidence where it was computed before; None: `evidence_digest` computes it."""


@dataclass(frozen=True)
class Session:
    """The signed statement and what it is bound to. Not yet trusted."""

    statement: Statement
    digest: bytes
    """SHA-256 of the statement's text."""
    gpu: bytes | None
    """Digest of the GPU evidence over the statement; None in the short form."""
    signature: bytes | None
    """Over one answer; None in a session by itself."""
    launch: Launch | None
    """The launch file that the statement names; None where it did not come along."""


@dataclass(frozen=True)
class CpuForm:
    """The member `cpu`, read."""

    session: Session
    evidence: CpuEvidence | None
    """None in the short form: the caller has verified it before."""


@dataclass(frozen=True)
class ExpectedSession:
    session: VerifiedSession | None
    """The session that the caller holds."""
    challenge: str | None
    """The challenge that the statement must hold; None: any."""
    at: datetime | None
    """The caller's clock, for a session by itself; None: the time in raw alone counts."""


SIGNATURE_BYTES = 64


def check_cpu(
    checks: CheckList, form: CpuForm | None, answer: Answer, expected: ExpectedSession, context: CpuContext
) -> CpuClaims | None:
    """Makes every check of the member `cpu`, its form already read. `form`: None: cpu_form failed.

    Returns the processor's claims; None where they cannot be read.
    """
    claims = _attributed(_check_bound(checks, form, answer.timestamp, expected, context), context, checks)

    # Both checks run only where the form was read.
    def session() -> Session:
        assert form is not None
        return form.session

    checks.run("cpu_devices", ["cpu_binding", "report_form"], lambda: check_devices(session(), answer.evidence))
    if answer.raw_hash is not None:
        grounds = ["cpu_binding", "report_form", "raw_hash", "raw_members"]
        checks.run("cpu_answer", grounds, lambda: _check_answer(session(), answer))
    about = ["cpu_binding", "cpu_devices", *([] if answer.raw_hash is None else ["cpu_answer"])]
    is_bound = claims is not None and all(checks.passed(name) for name in about)
    software = claims.software if claims is not None and is_bound else None
    checks.run("cpu_weights", ["cpu_software", *about[1:]], lambda: check_weights(context.weights, software))
    return claims


def _attributed(claims: CpuClaims | None, context: CpuContext, checks: CheckList) -> CpuClaims | None:
    """Where the guest was compared with a release's list just now, its software names the release."""
    release, software = context.release, None if claims is None else claims.software
    if release is None or claims is None or software is None or not checks.passed("cpu_measurement"):
        return claims
    return replace(claims, software=replace(software, release=release.statement_sha256))


def _check_answer(session: Session, answer: Answer) -> Passed[Literal[True]] | Skipped:
    """@raises CheckFailure: answer_signature_invalid, session_mismatch: raw, which the GPU signed, names another session"""
    signed = check_signature(session, answer)
    if answer.session is None:
        return skipped("raw names no session, so no GPU signed for this one")
    if answer.session != session.digest.hex():
        message = "raw, which the GPU signed, names another session than cpu shows"
        raise CheckFailure("session_mismatch", message)
    return signed


def _check_bound(
    checks: CheckList, form: CpuForm | None, timestamp: int | None, expected: ExpectedSession, context: CpuContext
) -> CpuClaims | None:
    if form is None:
        return check_cpu_evidence(checks, None, context, None)
    session = form.session

    def also() -> str:
        return _check_expected(session.statement, timestamp, expected)

    if form.evidence is not None and session.gpu is not None:
        report_data = sha256(session_message(session.digest, session.gpu)).digest()
        source = "the digest of this session's statement and GPU evidence"
        launch = NamedLaunch(session.statement.launch, session.launch)
        return check_cpu_evidence(checks, form.evidence, context, Binding(report_data, source, launch, also))
    skip_cpu_evidence(checks, "the caller verified this session before")
    checks.run("cpu_binding", ["cpu_form"], lambda: seen(f"the session that the caller verified before; {also()}"))
    return None if expected.session is None else expected.session.cpu


def read_session(member: object, gpu: Sequence[Evidence]) -> Passed[CpuForm]:
    """
    `gpu`: the evidence over the statement. @raises CheckFailure: cpu_malformed, cpu_unsupported, evidence_malformed
    """
    value = _record_of(member)
    if "signature" in value:
        raise bad("a session by itself is about no answer, and has no signature")
    read = read_cpu_evidence(value)
    digest = evidence_digest(gpu)
    if value.get("gpu_sha256", digest.hex()) != digest.hex():
        raise bad("gpu_sha256 is not the digest of the evidence beside it")
    return passed(f"a session with {read.detail}", CpuForm(_session_of(value, digest, None), read.value))


def read_answer_cpu(member: object, held: VerifiedSession | None) -> Passed[CpuForm]:
    """Reads the member `cpu` of an answer, whole or in its short form. `held`: the session that the caller expects.

    @raises CheckFailure: cpu_missing, cpu_malformed, cpu_unsupported
    """
    if member is None:
        raise CheckFailure("cpu_missing", "the caller expects a session, and there is no processor's evidence")
    value = _record_of(member)
    if "statement_sha256" in value:
        return _read_short(value, held)
    stated = value.get("gpu_sha256")
    if not isinstance(stated, str) or HEX_32.fullmatch(stated) is None:
        raise bad("gpu_sha256 is not 64 lowercase hex digits")
    if "gpu" in value:
        raise bad("the evidence over the statement travels with a session by itself")
    read = read_cpu_evidence(value)
    session = _session_of(value, bytes.fromhex(stated), _signature_of(value.get("signature")))
    return passed(read.detail, CpuForm(session, read.value))


def _read_short(value: Mapping[str, Any], held: VerifiedSession | None) -> Passed[CpuForm]:
    if value.keys() - {"statement_sha256", "signature"}:
        raise bad("the short form has two members: statement_sha256 and signature")
    if held is None:
        raise CheckFailure("cpu_missing", "the short form names a session, and the caller holds no verified one")
    session = read_signed(held.statement, value.get("signature"))
    if value["statement_sha256"] != session.digest.hex():
        message = "the short form names another session than the one that the caller holds"
        raise CheckFailure("cpu_missing", message)
    return passed("the short form, of the session that the caller verified before", CpuForm(session, None))


def read_signed(text: str, signature: object) -> Session:
    """A statement that was verified before, with the signature over one answer. @raises CheckFailure: cpu_malformed"""
    return Session(_statement_of(text), sha256(utf8(text)).digest(), None, _signature_of(signature), None)


def _record_of(member: object) -> Mapping[str, Any]:
    return record(parse_cpu(member) if isinstance(member, str) else member, "the evidence")


def _session_of(value: Mapping[str, Any], gpu: bytes, signature: bytes | None) -> Session:
    text = value.get("statement")
    if not isinstance(text, str):
        raise bad("the statement is not a string")
    statement = _statement_of(text)
    launch = _launch_of(statement, value["launch"]) if "launch" in value else None
    return Session(statement, sha256(utf8(text)).digest(), gpu, signature, launch)


def _statement_of(text: str) -> Statement:
    try:
        return read_statement(text)
    except JsonTextError as cause:
        raise bad(str(cause)) from cause


def _launch_of(statement: Statement, launch: object) -> Launch:
    """The launch file itself must be the one that the statement names, in the form that `npm run launch` writes."""
    if not isinstance(launch, str) or is_longer(launch, MAX_LAUNCH_CHARACTERS) or not is_well_formed(launch):
        raise bad(f"launch is not a text of at most {MAX_LAUNCH_CHARACTERS} characters")
    if sha256(utf8(launch)).hexdigest() != statement.launch:
        raise bad("launch is not the file that the statement names")
    try:
        return read_launch(launch)
    except JsonTextError as cause:
        raise bad(str(cause)) from cause


def _signature_of(value: object) -> bytes:
    try:
        signature = from_base64(value[: 2 * SIGNATURE_BYTES] if isinstance(value, str) else "")
    except EncodingError:
        signature = b""
    if len(signature) != SIGNATURE_BYTES:
        raise bad(f"signature is not base64 of {SIGNATURE_BYTES} bytes")
    return signature


def evidence_digest(evidence: Sequence[Evidence]) -> bytes:
    """@raises CheckFailure: evidence_malformed"""
    pairs = [(_decoded(one.report), _decoded(one.certificate_chain)) for one in evidence]
    return sha256(evidence_message(pairs)).digest()


def _decoded(text: str) -> bytes:
    try:
        return from_base64(text)
    except EncodingError as cause:
        raise CheckFailure("evidence_malformed", "evidence is not base64") from cause


def _check_expected(statement: Statement, timestamp: int | None, expected: ExpectedSession) -> str:
    """Returns words. @raises CheckFailure: session_mismatch, cpu_binding_mismatch, session_expired"""
    held = expected.session
    # A session with a challenge has the same key as the one in which answers are signed.
    if held is not None and read_statement(held.statement).key != statement.key:
        raise CheckFailure("session_mismatch", "another session signed than the one that the caller expects")
    if expected.challenge is not None and statement.challenge != expected.challenge.lower():
        message = "the statement does not hold the challenge that is expected"
        raise CheckFailure("cpu_binding_mismatch", message)
    for seconds in (timestamp, None if expected.at is None else milliseconds(expected.at) // 1000):
        if seconds is not None:
            _check_window(statement, seconds)
    minutes = math.floor((statement.not_after - statement.not_before) / 60 + 0.5)
    return f"within the session's {minutes} minutes"


def _check_window(statement: Statement, seconds: int) -> None:
    """@raises CheckFailure: session_expired"""
    if seconds < statement.not_before:
        raise CheckFailure("session_expired", f"the session began {statement.not_before - seconds} seconds later")
    if seconds > statement.not_after:
        message = f"the session had ended {seconds - statement.not_after} seconds before"
        raise CheckFailure("session_expired", message)


def check_devices(session: Session, evidence: Sequence[Evidence]) -> Passed[Literal[True]]:
    """@raises CheckFailure: cpu_devices_mismatch"""
    if len(evidence) == 0:
        message = "there is no evidence whose devices could be the session's"
        raise CheckFailure("cpu_devices_mismatch", message)
    for index, one in enumerate(evidence):
        parsed = parse_evidence(input_of(one))
        key = _key_of(parsed.chain)
        if key is None or key not in session.statement.devices:
            raise CheckFailure("cpu_devices_mismatch", f"device {index} is not one of the session's")
    which = "the device is" if len(evidence) == 1 else f"all {len(evidence)} devices are"
    return seen(f"{which} of the session")


def _key_of(chain: Sequence[Certificate]) -> str | None:
    return sha256(chain[1].spki).hexdigest() if len(chain) > 1 else None


def boot_rom_key(chain: str) -> str | None:
    """SHA-256 in hex of the key in a device's second certificate, its boot ROM's; None for a chain without one.

    `chain`: `certificate_chain`, base64 of PEM. @raises CheckFailure: evidence_malformed
    """
    return _key_of(parse_chain(chain))


def check_signature(session: Session, answer: Answer) -> Passed[Literal[True]]:
    """@raises CheckFailure: answer_signature_invalid"""
    raw = bytes.fromhex(answer.raw_hash or "")
    evidence = evidence_digest(answer.evidence) if answer.digest is None else answer.digest()
    message = answer_message(session.digest, raw, evidence)
    if session.signature is None or not _is_signed(session.statement.key, session.signature, message):
        refused = "the session's key did not sign this raw with this evidence"
        raise CheckFailure("answer_signature_invalid", refused)
    return seen("the session's key signed this raw with this evidence")


def _is_signed(key: str, signature: bytes, message: bytes) -> bool:
    """`key`: base64. A key that is none verifies nothing."""
    try:
        return ecdsa_verify_raw(PublicKey(spki=from_base64(key), curve="P-256"), "SHA-256", signature, message)
    except EncodingError:
        return False
