"""
Verifies releases with the package `countersign_verify`: a question a line, `{"release", "at", "answered"}`, and an answer a line, what it
claims and publishes or why it fails.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from serving import serve

from countersign_verify.release import CheckFailure, ReleaseOptions, verify_release


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def answer(question: dict[str, Any]) -> dict[str, Any]:
    given = question["release"]
    options = ReleaseOptions(**{"trusted_root" if name == "trustedRoot" else name: one for name, one in given.items()})
    try:
        found = verify_release(options, at=instant(question["at"]), answered=instant(question["answered"]))
    except CheckFailure as failure:
        return {"code": failure.code, "detail": failure.message}
    except Exception as error:
        return {"error": repr(error)}
    return {"claims": found.claims.to_dict(), "reference": found.reference}


if __name__ == "__main__":
    serve(answer)
