"""The error for an answer that ended without a proof, and the response that stands in its place."""

from __future__ import annotations

import json
import re
from typing import Final

from ..common.checks import VerificationError

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
    "transcript_failed": "The answer is proven, but the transcript did not take it, so it is not handed over.",
}

CAUSES: Final = {
    "simulated_root_refused": "the GPU is simulated: pass its root (simulated_root)",
    "bundle_unavailable": "the service does not have the bundle that its compact attestation names",
    "raw_hash_mismatch": "the request or the answer was changed after it was signed",
    "request_mismatch": "another request was signed than was sent",
    "response_mismatch": "another answer was signed than arrived",
    "stream_mismatch": "another stream was signed than arrived",
    "rim_unavailable": "NVIDIA's reference values are needed: pass collateral (create_collateral)",
    "revocation_unavailable": "whether certificates were revoked is needed: pass collateral (create_collateral)",
}
"""What the caller can do about a check that failed."""

STATUS: Final = 422
"""Of the response in place of an answer: one that clients do not retry."""

HEADERS: Final = {"content-type": "application/json", "x-should-retry": "false"}


class UnprovenAnswerError(Exception):
    """An answer ended without a proof. Nothing that a server wrote is in its message.

    ``code`` is that of the check that failed, or one of the client's own. Where a check failed, ``__cause__`` is the
    VerificationError with every check.
    """

    code: str
    reported: bool = False
    """Whether ``on_unproven`` was called with it."""

    def __init__(self, code: str, cause: str | None = None) -> None:
        """:param cause: in words, where a check failed: :func:`cause_in`."""
        not_verified = f"The attestation of the answer does not verify: {cause or CAUSES.get(code, code)}."
        super().__init__(MESSAGES.get(code, not_verified))
        self.code = code
        self._given = (code, cause)

    def __reduce__(self) -> tuple[type[UnprovenAnswerError], tuple[str, str | None]]:
        return (type(self), self._given)


def cause_in(error: VerificationError) -> str | None:
    """Of a policy that refuses, what was found and what the caller demands, in the policy's words; None: of any other check."""
    refused = next((check for check in error.checks if check.name == "policy" and check.status == "fail"), None)
    if refused is None or refused.code != error.code or error.code == "device_not_accepted":
        return None
    detail = re.sub(r"the caller accepts (\S+) or more", r"you demand \1", refused.detail)
    return detail.replace("the caller accepts", "you accept").replace("the caller requires", "you demand")


def refusal_body(error: UnprovenAnswerError) -> bytes:
    """The body of the response in place of an unproven answer, in the shape of OpenAI's errors."""
    fields = {"message": str(error), "type": "unproven_answer", "param": None, "code": error.code}
    return json.dumps({"error": fields}).encode()
