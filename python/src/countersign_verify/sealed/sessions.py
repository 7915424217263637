"""The gateway's verified session, and the key that it names: the only key that anything is sealed to."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from ..common.checks import VerificationError
from ..common.lru import LruMap
from ..policy.options import Expected, Level, Policy, Verified, VerifyOptions, read_options
from ..proto.attestation.statement import read_statement
from ..proto.bytes import EncodingError, from_base64, utf8
from ..session import SessionReport, appraise_session
from .errors import SealedError, is_below, level_too_low
from .oblivious_http import SealingKey, choose_key

MAX_SESSION_BYTES: Final = 4 * 1024 * 1024
"""A session is 10 to 50 KB for each device; a machine has 16 at most."""
MARGIN_SECONDS: Final = 60
"""A session ends earlier here, so that its last requests arrive in time."""
_MAX_KNOWN = 8
"""Sessions of an hour each, of which answers may still come."""
_CHALLENGE_BYTES = 32


@dataclass(frozen=True)
class Sealing:
    """A verified session, and the key of it that is sealed to."""

    report: SessionReport
    key: SealingKey
    statement: str
    until: int
    """The end of its time, in Unix seconds, with a margin."""


class Sessions:
    """The session that was verified last, and those that answers may be signed in. Threads may share it."""

    def __init__(self, verify: dict[str, Any], on_session: Callable[[SessionReport], object] | None) -> None:
        """@raises TypeError: an option that cannot be used."""
        if "expected" in verify:
            raise TypeError("expected is not an option here: it is the challenge of each session")
        policy: Policy = verify.get("policy") or Policy()
        self._least: Level = policy.min_level or "measured"
        self._verify = {**verify, "policy": Policy(required_checks=policy.required_checks)}
        # What is wrong with an option is told now and not with the first request.
        read_options(VerifyOptions(**self._verify))
        self._on_session = on_session
        self._kept: Sealing | None = None
        self._known: LruMap[str, bool] = LruMap(2 * _MAX_KNOWN)

    def current(self) -> Sealing | None:
        """None: a session must be fetched and verified."""
        kept = self._kept
        return kept if kept is not None and time.time() < kept.until else None

    def forget(self, sealing: Sealing) -> None:
        """The gateway no longer has its key."""
        if self._kept is sealing:
            self._kept = None

    def verified(self, text: bytes, challenge: str | None) -> Sealing:
        """Verifies what the gateway gave. Of no effect on others: it may run in any thread. @raises SealedError"""
        try:
            report = appraise_session(text.decode("utf-8"), **self._verify, expected=Expected(challenge=challenge))
        except UnicodeDecodeError as cause:
            raise SealedError("session_unavailable") from cause
        if report.session is None:
            failed = VerificationError(report.checks)
            raise SealedError(failed.code) from failed
        if is_below(report.level, self._least):
            raise level_too_low(report.level, self._least)
        statement = report.session.statement
        until = read_statement(statement).not_after - MARGIN_SECONDS
        return Sealing(report, _key_of(report.session.hpke), statement, until)

    def keep(self, sealing: Sealing) -> Sealing:
        self._known.set(read_statement(sealing.statement).key, True)
        self._known.set(sha256(utf8(sealing.statement)).hexdigest(), True)
        self._kept = sealing
        if self._on_session is not None:
            self._on_session(sealing.report)
        return sealing

    def is_known(self, verified: Verified) -> bool:
        """Whether an answer is signed in a session that was verified here."""
        name = name_of(verified.attestation.cpu)
        return name is not None and self._known.get(name) is True


def name_of(cpu: Any) -> str | None:
    """By what a session is known that a verified attestation is signed in; None: in none."""
    if not isinstance(cpu, dict):
        return None
    statement, digest = cpu.get("statement"), cpu.get("statement_sha256")
    if isinstance(statement, str):
        return read_statement(statement).key
    return digest if isinstance(digest, str) else None


def _key_of(hpke: str | None) -> SealingKey:
    if hpke is None:
        raise SealedError("session_without_key")
    try:
        return choose_key(from_base64(hpke))
    except (EncodingError, SealedError) as cause:
        unsupported = isinstance(cause, SealedError) and cause.code == "sealed_unsupported"
        raise SealedError("sealed_unsupported" if unsupported else "session_without_key") from cause


def fresh_challenge() -> str:
    return secrets.token_hex(_CHALLENGE_BYTES)
