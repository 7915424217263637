"""How sealing, opening and verifying the session fail. No message quotes what was sealed, or what a server sent."""

from __future__ import annotations

from typing import Final

import httpx

MESSAGES: Final = {
    "sealed_malformed": "What was sealed, or the key to seal to, is not of its format.",
    "sealed_truncated": "The sealed message ends before it is whole.",
    "sealed_not_opened": "A chunk of the sealed message was changed, moved, dropped or doubled, or another key sealed it.",
    "sealed_too_large": "The sealed message is larger than what is accepted.",
    "sealed_unsupported": "The session names no key with algorithms that are had here (X25519, HKDF-SHA256, AES-GCM).",
    "sealed_key_unknown": "The gateway has no key that opens the request, and a session that was verified anew did not change that.",
    "sealed_not_offered": "The verified session names no key to seal to.",
    "sealed_answer_plain": "The answer to the sealed request is not sealed.",
    "sealed_refused": "The sealed request was refused before it was opened.",
    "session_unavailable": "The gateway gave no session to verify.",
    "session_not_verified": "The session does not verify, or its level is lower than what is asked for.",
}


class SealedError(httpx.TransportError, OSError):
    """A request was not sealed, or its answer did not arrive whole and unchanged. Its message is one of a few fixed texts.

    ``code`` says what is wrong. Of ``session_not_verified``, ``__cause__`` is the VerificationError with every check.
    It is an OSError too, as ``ssl.SSLError`` is: not every library that can send through a transport knows httpx's errors.
    """

    code: str
    status: int
    """Of the response in its place, where nothing of an answer was handed over: the server's where it refused, else 422."""

    def __init__(self, code: str, status: int = 422) -> None:
        super().__init__(MESSAGES[code])
        self.code = code
        self.status = status

    def __reduce__(self) -> tuple[type[SealedError], tuple[str, int]]:
        return (type(self), (self.code, self.status))


def malformed() -> SealedError:
    return SealedError("sealed_malformed")


def truncated() -> SealedError:
    return SealedError("sealed_truncated")


def too_large() -> SealedError:
    return SealedError("sealed_too_large")
