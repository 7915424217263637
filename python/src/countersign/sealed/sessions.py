"""The verified sessions of gateways, and the keys that they name: the only keys that anything is sealed to."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from ..checks import VerificationError
from ..cpu.statement import read_statement
from ..encoding import EncodingError, from_base64
from ..lru import LruMap
from ..options import Expected, Policy, VerifyOptions, read_options
from ..session import VerifiedSessionReport, verify_session
from .errors import SealedError, malformed
from .oblivious_http import SealingKey, choose_key

MAX_SESSION_BYTES: Final = 4 * 1024 * 1024
MAX_GATEWAYS: Final = 64
"""Gateways whose sessions are kept."""
_CHALLENGE_BYTES = 32


@dataclass(frozen=True)
class Sealing:
    """A verified session, and the key that it names."""

    report: VerifiedSessionReport
    key: SealingKey
    not_after: int
    """Unix seconds."""


class Sessions:
    """Of each gateway, by its URL, the session that was verified last. Threads may share it."""

    def __init__(self, verify: dict[str, Any], on_session: Callable[[VerifiedSessionReport], object] | None) -> None:
        """@raises TypeError: an option that cannot be used."""
        if "expected" in verify:
            raise TypeError("expected is not an option here: it is the challenge that each session is asked for with")
        policy: Policy = verify.get("policy") or Policy()
        self._verify = {**verify, "policy": replace(policy, min_level=policy.min_level or "measured")}
        # What is wrong with an option is told now and not with the first request.
        read_options(VerifyOptions(**self._verify))
        self._on_session = on_session
        self._known: LruMap[str, Sealing] = LruMap(MAX_GATEWAYS)

    def current(self, gateway: str) -> Sealing | None:
        """None: a session must be fetched and verified."""
        known = self._known.get(gateway)
        return known if known is not None and time.time() < known.not_after else None

    def forget(self, gateway: str, sealing: Sealing) -> None:
        """The gateway no longer has its key."""
        if self._known.get(gateway) is sealing:
            self._known.delete(gateway)

    def verified(self, text: bytes, challenge: str) -> Sealing:
        """Verifies what a gateway gave. Of no effect on others: it may run in any thread. @raises SealedError"""
        try:
            report = verify_session(text.decode("utf-8"), **self._verify, expected=Expected(challenge=challenge))
        except (VerificationError, UnicodeDecodeError) as cause:
            raise SealedError("session_not_verified") from cause
        key = choose_key(_document_of(report.session.hpke))
        return Sealing(report, key, read_statement(report.session.statement).not_after)

    def keep(self, gateway: str, sealing: Sealing) -> Sealing:
        if self._on_session is not None:
            self._on_session(sealing.report)
        self._known.set(gateway, sealing)
        return sealing


def _document_of(hpke: str | None) -> bytes:
    if hpke is None:
        raise SealedError("sealed_not_offered")
    try:
        return from_base64(hpke)
    except EncodingError as cause:
        raise malformed() from cause


def fresh_challenge() -> str:
    return secrets.token_hex(_CHALLENGE_BYTES)
