"""
What was sent sealed: a sealed transport records each request's body and in which sessions its answer may be signed. A
verifying client looks up the body that it sent, so that a wrapper between the two cannot lose the link by making another
Response.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

from ..common.lru import LruMap

_MAX_SENT: Final = 100_000
"""More than there are requests without an answer."""
_SENT: Final[LruMap[tuple[bool, bytes], Any]] = LruMap(_MAX_SENT)
"""By the SHA-256 of the body, which holds a challenge of its own; apart for asynchronous clients, whose check is awaited."""


def will_be_sealed(body: bytes, is_in_session: Any, *, is_async: bool) -> None:
    """Called before the request is sent: whatever comes back for this body must be of a session."""
    _SENT.set((is_async, sha256(body).digest()), is_in_session)


def session_of(body: str, *, is_async: bool) -> Any | None:
    """Called once for an answer. None: this body was not sealed, and its answer may be signed in any session."""
    key = (is_async, sha256(body.encode()).digest())
    is_in_session = _SENT.get(key)
    _SENT.delete(key)
    return is_in_session
