"""vectors/release/: every bundle and status has the claims or the code that its file states, in both languages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, get_args

import pytest

from countersign_verify import FailureCode
from countersign_verify.release import CheckFailure, ReleaseOptions, VerifiedRelease, verify_release
from vectors import FOLDER as VECTORS

FOLDER = VECTORS / "release"
CASES = sorted((FOLDER / "cases").glob("*.json"))
Case = Mapping[str, Any]


def options_of(case: Case) -> ReleaseOptions:
    text = case["bundle_text"] if "bundle_text" in case else json.dumps(case["bundle"])
    options = case["options"]
    root = options.get("trusted_root")
    return ReleaseOptions(
        bundle=text + " " * case.get("spaces", 0),
        status=json.dumps(case["status"]) if "status" in case else None,
        repository=options["repository"],
        tag=options.get("tag"),
        trusted_root=(FOLDER / "trusted-root.json").read_text() if root is None else json.dumps(root),
    )


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def verify(case: Case) -> VerifiedRelease:
    at = case["options"]["at"]
    answered = case["options"].get("answered", at)
    return verify_release(options_of(case), at=instant(at), answered=instant(answered))


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_vector(file: Any) -> None:
    case = json.loads(file.read_text())
    expected = case["expect"]
    if "code" in expected:
        with pytest.raises(CheckFailure) as failure:
            verify(case)
        assert failure.value.code == expected["code"]
        return
    found = verify(case)
    claims = found.claims.to_dict()
    stated = {**expected["claims"], "repository": case["options"]["repository"], "own": False, "own_root": True}
    status = {**claims["status"], **stated.pop("status", {})}
    assert claims == {**claims, **stated, "status": status}
    assert list(found.claims.launches) == list(found.reference["launch"])


def test_every_code_of_a_release_has_a_vector_except_those_that_need_a_fetch_an_answer_or_the_project() -> None:
    shown = {json.loads(file.read_text())["expect"].get("code") for file in CASES}
    codes = [code for code in get_args(FailureCode) if code.startswith("release_")]
    assert [code for code in codes if code not in shown] == [
        "release_unavailable",
        "release_id_mismatch",
        "release_not_shown",
    ]
