"""What the command prints, line by line, and its exit status: every run of the list that TypeScript's tests read too."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, get_args

import pytest

from countersign_verify.cli.main import main
from countersign_verify.cli.report import styled
from countersign_verify.cli.words import SENTENCES, STEPS
from countersign_verify.common.checks import FailureCode

LISTS = Path(__file__).parents[2] / "test/verify/cli"
LINES: dict[str, Any] = json.loads((LISTS / "lines.json").read_text("utf-8"))
KINDS: dict[str, Any] = json.loads((LISTS / "kinds.json").read_text("utf-8"))
RUNS = [run for run in LINES["runs"] if run["args"][:1] not in (["export"], ["replay"], ["proxy"])]
"""Without those of the commands that only the npm package has."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("lines")
    for name, text in {**KINDS["parts"], **{kind: file["text"] for kind, file in KINDS["files"].items()}}.items():
        (made / name).write_text(text)
    for name, file in LINES["files"].items():
        put(made / name, file)
    return made


def put(path: Path, file: dict[str, Any]) -> None:
    if "folder" in file:
        return path.mkdir()
    path.write_bytes(base64.b64decode(file["base64"]) if "base64" in file else file.get("text", "").encode())
    if "size" in file:
        with path.open("r+b") as opened:
            opened.truncate(file["size"])


@pytest.mark.parametrize("run", RUNS, ids=lambda run: " ".join(run["args"]))
def test_each_run_prints_the_same_lines(
    run: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    status = main(run["args"])
    captured = capsys.readouterr()
    assert captured.out.split("\n")[:-1] == run["stdout"]
    assert (captured.err.split("\n")[:-1], status) == (run["stderr"], run["status"])


def test_the_colours_are_the_same() -> None:
    for line, expected in LINES["coloured"].items():
        assert styled(line) == expected


def test_every_code_has_its_sentence() -> None:
    assert LINES["sentences"] == SENTENCES
    assert LINES["steps"] == STEPS
    assert set(SENTENCES) == set(get_args(FailureCode))
