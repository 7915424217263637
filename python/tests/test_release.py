"""vectors/release/: every bundle and status has the claims or the code that its file states, in both languages."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

import pytest

import countersign_verify
from countersign_verify import FailureCode, appraise_evidence
from countersign_verify.release import CheckFailure, ReleaseOptions, VerifiedRelease, project, verify_release
from countersign_verify.release.public_root import PUBLIC_ROOT
from vectors import FOLDER as VECTORS

FOLDER = VECTORS / "release"
SOURCE = str(Path(countersign_verify.__file__).parents[1])
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


GOOD = json.loads((FOLDER / "cases" / "good.v2.json").read_text())


@pytest.mark.parametrize(("repository", "owner"), [("1002", "2002"), ("1001", "2003")])
def test_a_repository_that_took_the_projects_name_is_refused_by_its_number(
    repository: str, owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = GOOD["options"]["repository"]
    monkeypatch.setattr(project, "PROJECT", project.Project(name, project.Ids(repository, owner)))
    with pytest.raises(CheckFailure) as failure:
        verify(GOOD)
    assert failure.value.code == "release_id_mismatch"
    monkeypatch.setattr(project, "PROJECT", project.Project(name, project.Ids("1001", "2002")))
    unnamed = replace(options_of(GOOD), repository=None)
    assert verify_release(unnamed, at=instant(GOOD["options"]["at"])).claims.own


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"repository": None}, "no public repository yet"),
        ({"repository": "../x"}, "not OWNER/REPO"),
        ({"tag": "-"}, "release.tag"),
        ({"status": b"{}"}, "release.status is not a text"),
        ({"trusted_root": "{}"}, "trusted_root cannot be used"),
    ],
)
def test_options_that_cannot_be_used(change: Mapping[str, Any], words: str) -> None:
    at = instant(GOOD["options"]["at"])
    with pytest.raises(TypeError, match=words):
        verify_release(replace(options_of(GOOD), **change), at=at)
    with pytest.raises(TypeError, match="time zone"):
        verify_release(options_of(GOOD), at=at.replace(tzinfo=None))
    with pytest.raises(CheckFailure, match="was to be had"):
        verify_release(replace(options_of(GOOD), bundle=None), at=at)
    assert verify_release(options_of(GOOD), at=at).claims.tag == "v1.0.0"


def test_bare_evidence_shows_no_guest_of_a_release() -> None:
    with pytest.raises(TypeError, match="for answers and sessions"):
        appraise_evidence("[]", release=options_of(GOOD))


def test_its_code_is_loaded_only_where_a_release_is_named() -> None:
    program = "import sys, countersign_verify.cli.main; print('countersign_verify.release' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": SOURCE}, capture_output=True, check=True)
    assert ran.stdout == b"False\n"


def test_the_public_root_is_that_of_the_other_verifier() -> None:
    text = (VECTORS.parent / "verify" / "release" / "public-root.ts").read_text()
    assert f"`{PUBLIC_ROOT}`" in text
