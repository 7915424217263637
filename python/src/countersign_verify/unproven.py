"""The error for an answer that ended without a proof, and the response that stands in its place."""

from __future__ import annotations

import json
from typing import Final

MESSAGES: Final = {
    "endpoint_not_proven": "Requests of this kind cannot be proven, and unproven_paths does not name their path.",
    "request_not_provable": "The request body is not a JSON object.",
    "response_not_provable": "The response has a status or a type that no proof covers, or another than was asked for.",
    "attestation_missing": "The answer ended without an attestation.",
    "attestation_seen": "The attestation was handed over before, with another answer.",
    "session_mismatch": "The answer came sealed, and is signed in no session that was verified for sealing.",
    "stream_malformed": "The stream has more than data lines and comments, or is not in UTF-8.",
    "stream_too_large": "The stream is larger than what is kept to be checked.",
    "response_broken": "The answer broke off before its end.",
    "response_too_large": "The answer is larger than what is kept to be checked.",
}
NOT_VERIFIED: Final = "The attestation of the answer does not verify."

STATUS: Final = 422
"""Of the response in place of an answer: one that clients do not retry."""

HEADERS: Final = {"content-type": "application/json", "x-should-retry": "false"}


class UnprovenAnswerError(Exception):
    """An answer ended without a proof. Its message is one of a few fixed texts: none of what a server sent is in it.

    ``code`` is that of the check that failed, or one of the client's own. Where a check failed, ``__cause__`` is the
    VerificationError with every check.
    """

    code: str
    reported: bool = False
    """Whether ``on_unproven`` was called with it."""

    def __init__(self, code: str) -> None:
        super().__init__(MESSAGES.get(code, NOT_VERIFIED))
        self.code = code

    def __reduce__(self) -> tuple[type[UnprovenAnswerError], tuple[str]]:
        return (type(self), (self.code,))


def refusal_body(error: UnprovenAnswerError) -> bytes:
    """The body of the response in place of an unproven answer, in the shape of OpenAI's errors."""
    fields = {"message": str(error), "type": "unproven_answer", "param": None, "code": error.code}
    return json.dumps({"error": fields}).encode()
