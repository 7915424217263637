"""The transcript that a verifying client keeps: a line for each proven exchange, which `countersign verify` reads."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from compact import compact_answer
from countersign_verify import Bundles, TranscriptFile, TranscriptRecord, verify_attestation
from recorded import options, recorded
from test_client import KINDS, ask_recorded, network, refused
from test_client_compact import heard_of, service


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["chat-whole", "chat-stream", "messages-stream-carried"])
def test_each_proven_exchange_is_a_line_that_verifies(name: str, kind: str, tmp_path: Path) -> None:
    answer, path = recorded(name), tmp_path / "run.jsonl"
    heard = ask_recorded(kind, answer, network(answer), transcript=TranscriptFile(path))
    assert heard.error is None
    assert len(heard.proofs) == 1
    (line,) = path.read_text().splitlines()
    assert verify_attestation(line, **options()).exchange == heard.proofs[0].exchange
    assert line.startswith('{"raw":')
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", KINDS)
def test_a_bundle_stands_once_in_the_line_before_the_first_that_names_it(kind: str, tmp_path: Path) -> None:
    answer, bundle = compact_answer(recorded("chat-whole"))
    path = tmp_path / "run.jsonl"
    sink = TranscriptFile(path)
    for _ in range(2):
        heard = heard_of(kind, answer, service(answer, lambda _: bundle.encode()), compact=True, transcript=sink)
        assert heard.error is None
        assert heard.code is None
    first, *lines = path.read_text().splitlines()
    assert first == bundle
    assert len(lines) == 2
    bundles = Bundles()
    bundles.add(first)
    assert verify_attestation(lines[1], **options(), bundles=bundles).valid


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_that_the_transcript_does_not_take_is_refused_and_the_next_one_is_kept(
    kind: str, tmp_path: Path
) -> None:
    answer = recorded("chat-whole")
    full = TranscriptFile(tmp_path / "full.jsonl", max_bytes=100)
    refused(ask_recorded(kind, answer, network(answer), transcript=full), "transcript_failed")
    assert (tmp_path / "full.jsonl").read_text() == ""
    kept: list[TranscriptRecord] = []
    heard = ask_recorded(kind, answer, network(answer), transcript=kept.append)
    assert heard.code is None
    assert [one.endpoint for one in kept] == [answer.endpoint]


def test_a_line_that_was_cut_is_removed_and_a_file_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    record = TranscriptRecord("/v1/chat/completions", {"raw": "{}", "nonce": "0"}, None)
    line = '{"raw":"{}","nonce":"0"}\n'

    def after(text: str) -> str:
        path = tmp_path / "run.jsonl"
        path.write_text(text)
        TranscriptFile(path)(record)
        return path.read_text()

    assert after("") == line
    assert after(line) == line * 2
    assert after(line + '{"raw":"cut') == line * 2
    assert after('{"ra') == line
    assert after(line + '{"raw":"' + "x" * 200_000) == line * 2
    for text in ("notes\n", json.dumps({"a": 1})):
        with pytest.raises(OSError, match="not a transcript"):
            after(text)
        assert (tmp_path / "run.jsonl").read_text() == text


def test_options_that_cannot_be_used_are_named() -> None:
    given: Any = 0
    with pytest.raises(TypeError, match="max_bytes"):
        TranscriptFile("x", max_bytes=given)
