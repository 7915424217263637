"""Why nothing was sealed, or a sealed answer was not handed over: the error, and its words."""

from __future__ import annotations

from typing import Final

import httpx

from ..clients.unproven_error import CAUSES
from ..policy.options import LEVELS, Level

MESSAGES: Final = {
    "other_gateway": "The request is for another address than that of the gateway. Nothing was sent.",
    "session_missing": "The gateway has no session: no processor signs there, and so there is no attested key to seal to.",
    "session_unavailable": "The session was not to be had, so nothing was sealed and nothing was sent. Where that is for want of a "
    "key: one that may be read on the way goes into edge_headers.",
    "session_without_key": "The gateway's verified session names no key for sealed requests (SEALED=off?). Nothing was sent.",
    "answer_not_sealed": "What came back is not sealed: the attested machine did not write it, and it is not handed over.",
    "edge_refused": "What stands before the attested machine refused the request, without opening it.",
    "overloaded": "The gateway is at its limit, and did not open the request.",
    "store_unavailable": "The store in which gateways keep what they have opened is away, so the request was not opened.",
    "sealed_required": "The gateway takes sealed requests alone, and this one did not reach it sealed.",
    "sealed_replayed": "The gateway had this sealed request before: something in between sent it twice.",
    "sealed_key_unknown": "The gateway cannot open what is sealed to the key of its own verified session.",
    "sealed_malformed": "Something in between changed the sealed request or its answer, or a header cannot be sent.",
    "sealed_truncated": "The sealed answer broke off.",
    "sealed_not_opened": "The sealed answer cannot be opened: something in between changed it.",
    "sealed_too_large": "The sealed answer is larger than what is read.",
    "sealed_unsupported": "The session names no key with algorithms that are had here: X25519, HKDF-SHA256, AES-GCM.",
}
SESSION_REFUSED: Final = "The gateway's session does not verify, so nothing was sealed and nothing was sent."

MEANING: Final[dict[Level, str]] = {
    "none": "No hardware vouches for the holder of the key: it may be a simulation, or anything between here and the gateway, and it "
    "reads prompts.",
    "gpu": "A GPU signed, but no processor vouches for the software that holds the key: anybody who runs that machine reads prompts.",
    "gpu+cpu": "A confidential VM named the key, but which software runs in it was compared with nothing, so "
    "the key may be anywhere: sealing keeps prompts from anybody who lacks that key, and not from "
    "anybody who runs that machine.",
    "measured": "A guest on your list named the key. Not shown: what its images do with prompts, that nobody "
    "broke in since (on SEV-SNP the host can, by ACPI tables). Anybody who owns the board may have its "
    "keys.",
}
"""What sealing means where the machine is of this level."""


class SealedError(httpx.TransportError, OSError):
    """Nothing was sent, or what came back is not handed over. Nothing that a server sent is in the message.

    ``code`` is one of its own, or that of the check that the session failed; ``__cause__`` is then the VerificationError with every
    check. It is an OSError too, as ``ssl.SSLError`` is: not every library that sends through a transport knows httpx's errors.
    """

    code: str
    status: int | None
    """Of the refusal outside of the seal; None where this client refuses."""
    retry_after: str | None
    """How long to wait, as the refusal outside of the seal says it."""

    def __init__(
        self, code: str, status: int | None = None, retry_after: str | None = None, message: str | None = None
    ) -> None:
        refused = f"{SESSION_REFUSED} The cause: {CAUSES.get(code, code)}."
        text = MESSAGES.get(code, refused) if message is None else message
        super().__init__(text)
        self.code = code
        self.status = status
        self.retry_after = retry_after
        self._given = (code, status, retry_after, message)

    def __reduce__(self) -> tuple[type[SealedError], tuple[str, int | None, str | None, str | None]]:
        return (type(self), self._given)


def malformed() -> SealedError:
    return SealedError("sealed_malformed")


def truncated() -> SealedError:
    return SealedError("sealed_truncated")


def too_large() -> SealedError:
    return SealedError("sealed_too_large")


def level_too_low(level: Level, least: Level) -> SealedError:
    message = (
        f"The gateway's machine is of level {level}, and policy.min_level is {least}, so nothing was sealed and nothing was sent. "
        f"{MEANING[level]}"
    )
    return SealedError("level_too_low", message=message)


def is_below(level: Level, least: Level) -> bool:
    return LEVELS.index(level) < LEVELS.index(least)
