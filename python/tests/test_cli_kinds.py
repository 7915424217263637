"""Which command takes which kind of file, and which options each can answer: every pair of the list that TypeScript's tests read too."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from countersign_verify.cli.args import COMMANDS
from countersign_verify.cli.main import main

PAIRS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "test/verify/cli/kinds.json").read_text())
FILES: dict[str, dict[str, str]] = PAIRS["files"]
OPTIONS: dict[str, dict[str, Any]] = PAIRS["options"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rim", "ocsp"):
        (tmp_path / "empty" / name).mkdir(parents=True)
    for name, text in {**PAIRS["parts"], **{kind: file["text"] for kind, file in FILES.items()}}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)


def good(kind: str) -> list[str]:
    """The command of this kind as it passes."""
    command = FILES[kind]["command"]
    return [
        *(command, kind, "--allow-simulated", "roots", "--at", PAIRS["at"], "--without-revocation"),
        *(() if command == "cpu" else ("--offline", "--without-reference-values")),
        *(("--event",) if kind == "event" else ()),
    ]


def ran(argv: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = main(argv)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize("kind", FILES)
def test_each_option_is_answered_or_refused_or_fails(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name, one in OPTIONS.items():
        given = [f"--{name}"] if one["value"] is None else [f"--{name}", one["value"]]
        status, out, err = ran([*good(kind), *given], capsys)
        outcome = one[kind]
        if outcome == "usage":
            assert (status, out) == (2, ""), (kind, name)
            assert re.fullmatch(rf"countersign: [^\n]*--{name}[ ,][^\n]*\nsee --help\n", err)
        elif outcome == "valid":
            assert (status, err) == (0, ""), (kind, name)
        elif outcome == "incomplete":
            assert (status, err) == (3, ""), (kind, name)
        else:
            found = re.search(r"^INVALID: (\w+)", out, re.M)
            assert (status, err, found is not None) == (1, "", True), (kind, name)
            assert found is not None
            assert found.group(1) == outcome, (kind, name)
    status, out, err = ran(good(kind), capsys)
    words = r"\nVALID \(level: none\)\n$" if FILES[kind]["command"] == "verify" else r"\nPASSED: .*about no answer.*\n$"
    assert (status, err, re.search(words, out) is not None) == (0, "", True)


@pytest.mark.parametrize("kind", FILES)
def test_each_command_takes_it_or_names_its_own(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    url = "http://127.0.0.1:1"
    for command in COMMANDS:
        needed = ["--into", "into", "--rim-url", url, "--ocsp-url", url] if command == "collateral" else ["--offline"]
        status, out, err = ran([command, kind, *([] if command in ("cpu", "expand") else needed)], capsys)
        if kind in PAIRS["commands"][command]:
            assert "does not take" not in err
        else:
            assert (status, out) == (2, "")
            assert f": countersign {FILES[kind]['command']} FILE checks it\n" in err


def test_every_option_of_the_commands_that_check_a_file_is_among_them() -> None:
    names = {name for command in ("verify", "evidence", "cpu", "session") for name in COMMANDS[command][1]}
    assert set(OPTIONS) == names
