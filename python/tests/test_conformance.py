"""The conformance runner: its line and its exit status for every case of ours, and for files that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from countersign_verify.common.checks import UNAVAILABLE
from countersign_verify.conformance import main
from recorded import VECTORS, case

CASES = sorted((VECTORS / "cases").glob("*.json"))


@pytest.mark.parametrize("file", CASES, ids=[file.stem for file in CASES])
def test_a_case_has_the_verdict_that_it_states(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stated = json.loads(file.read_text())["expect"]
    if stated["valid"]:
        line, status = f"valid {stated['level']}", 0
    elif stated["code"] in UNAVAILABLE:
        line, status = f"incomplete {stated['code']}", 3
    else:
        line, status = f"invalid {stated['code']}", 1
    assert main([str(file)]) == status
    assert capsys.readouterr().out == f"{line}\n"


def test_there_are_cases() -> None:
    assert len(CASES) >= 190


def changed(**members: Any) -> dict[str, Any]:
    return {**case("form.pass.attestation"), **members}


@pytest.mark.parametrize(
    ("content", "status", "said"),
    [
        (json.dumps(changed(of_tomorrow=1)), 4, "unsupported of_tomorrow"),
        (json.dumps(changed(options={"at": "2025-06-01T12:00:00Z", "of_tomorrow": 1})), 4, "unsupported of_tomorrow"),
        (json.dumps(changed(options={"at": "2025-06-01T12:00:00Z", "expected": {"of_tomorrow": 1}})), 4, "unsupported of_tomorrow"),
        (json.dumps(changed(options={"at": "yesterday"})), 2, ""),
        (json.dumps(changed(options={"at": "2025-06-01T12:00:00Z", "rim_root_file": "parts/gone.pem"})), 2, ""),
        (json.dumps(changed(text="{}")), 2, ""),
        (json.dumps({"description": "no input", "options": {}}), 2, ""),
        (json.dumps(changed(options={"at": "2025-06-01T12:00:00Z", "rim_files": ["parts"]})), 2, ""),
        ("[]", 2, ""),
        ("{", 2, ""),
    ],
)  # fmt: skip
def test_what_is_no_case_or_not_known_is_told(
    content: str, status: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cases").mkdir()
    file = tmp_path / "cases" / "case.json"
    file.write_text(content)
    assert main([str(file)]) == status
    captured = capsys.readouterr()
    assert captured.out.strip() == said
    assert (captured.err != "") == (status == 2)


def test_wrong_use_is_exit_2(tmp_path: Path) -> None:
    assert main([]) == 2
    assert main(["a", "b"]) == 2
    assert main([str(tmp_path / "gone.json")]) == 2
