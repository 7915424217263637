"""Compact attestations on the command line: `expand`, and `verify` over a folder or a file of lines."""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from compact import compact_answer, compact_of, name_of
from countersign_verify.cli.main import main
from recorded import AT, VECTORS, case, recorded, text

WHOLE: dict[str, Any] = json.loads(text(case("expected_exchange.pass.chat-whole")["attestation_file"]))
COMPACT, BUNDLE = compact_of(WHOLE)


def flags() -> list[str]:
    root = VECTORS / case("bundle.pass.batch")["options"]["simulated_root_file"]
    return [
        *("--allow-simulated", str(root), "--at", AT.isoformat(), "--offline"),
        *("--without-revocation", "--without-reference-values"),
    ]


def put(folder: Path, name: str, content: str | bytes) -> str:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def ran(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    status = main(argv)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def variants(count: int) -> list[tuple[str, str]]:
    """Compact attestations that each name a bundle of their own."""
    made = (compact_of(WHOLE, BUNDLE + " " * (i + 1)) for i in range(count))
    return [(json.dumps(attestation), bundle) for attestation, bundle in made]


# expand.


@pytest.mark.parametrize("name", [None, "chat-whole", "messages-whole", "chat-stream", "responses-stream-carried"])
def test_what_was_compact_stands_for_itself(
    name: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name is None:
        given, bundle = json.dumps(COMPACT), BUNDLE
    else:
        answer, bundle = compact_answer(recorded(name))
        given = answer.answer.decode()
    file, held = put(tmp_path, "compact", given), put(tmp_path, "bundle.json", bundle)
    status, out, err = ran(capsys, "expand", file, "--bundle", held)
    assert (status, err) == (0, "")
    saved = put(tmp_path, "whole", out)
    assert ran(capsys, "verify", saved, *flags())[1].endswith("VALID (level: none)\n")
    assert ran(capsys, "expand", saved)[1] == out
    if name is None:
        assert json.loads(out) == WHOLE
    status, out, _ = ran(capsys, "verify", file, *flags())
    assert (status, "bundle_unavailable" in out) == (3, True)
    assert ran(capsys, "verify", file, *flags(), "--bundle", str(tmp_path))[0] == 0


@contextmanager
def serving(served: list[bytes | None], paths: list[str]) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            content = served.pop(0)
            self.send_response(404 if content is None else 200)
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_service_that_is_named_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = put(tmp_path, "compact.json", json.dumps(COMPACT))
    paths: list[str] = []
    served = [None, BUNDLE.encode() + b" ", b"\xff", b" " * (2 * 1024 * 1024 + 1), BUNDLE.encode()]
    with serving(served, paths) as url:
        said = [ran(capsys, "expand", file, "--url", url) for _ in range(5)]
    assert [status for status, _, _ in said] == [3, 1, 3, 3, 0]
    codes = [re.findall("bundle_[a-z]+", err) for _, _, err in said]
    assert codes == [["bundle_unavailable"], ["bundle_mismatch"], ["bundle_unavailable"], ["bundle_unavailable"], []]
    assert json.loads(said[-1][1]) == WHOLE
    assert paths == [f"/v1/attestation/bundles/{name_of(BUNDLE)}"] * 5


# verify.


def rows(out: str, folder: Path) -> list[list[str]]:
    lines = out.split("\n\n")[0].replace(f"{folder}/", "").split("\n")
    return sorted(re.split(" {2,}", line) for line in lines)


def test_over_a_folder_there_is_a_line_for_each_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (a, of_a), (b, of_b), (c, _) = variants(3)
    put(tmp_path, "a.json", a)
    put(tmp_path, f"{name_of(of_a)}.json", of_a)
    put(tmp_path, "day/b.json", b)
    put(tmp_path, "day/of-b", of_b)
    put(tmp_path, "whole.json", json.dumps(WHOLE))
    put(tmp_path, ".hidden", "x")
    assert ran(capsys, "verify", str(tmp_path), *flags(), "--quiet") == (0, "", "")
    status, out, err = ran(capsys, "verify", str(tmp_path), *flags())
    assert rows(out, tmp_path) == [["VALID", "none", "-", name] for name in ("a.json", "day/b.json", "whole.json")]
    counts = "3 answers: 3 valid (level: 3 none), 0 invalid, 0 incomplete; 2 bundles beside them\n"
    assert (status, err, out.endswith(f"\n\n{counts}")) == (0, "", True)
    put(tmp_path, "c.json", c)
    status, out, _ = ran(capsys, "verify", str(tmp_path), *flags())
    assert (status, "INCOMPLETE  none      bundle_unavailable  " in out) == (3, True)
    unreadable = put(tmp_path, "d.json", b"\xff\xfe\0")
    changed = put(tmp_path, "e.json", a.replace("Hello.", "Hullo."))
    status, out, _ = ran(capsys, "verify", str(tmp_path), *flags())
    assert status == 1
    for row in (f"unreadable  {unreadable}", f"raw_hash_mismatch  {changed}"):
        assert f"INVALID     none      {row}" in out
    assert "3 valid (level: 3 none), 2 invalid, 1 incomplete" in out


def test_over_lines_they_keep_their_order_and_find_bundles_in_earlier_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (first, of_first), (late, of_late), *rest = variants(40)
    for _, bundle in rest:
        put(tmp_path, f"bundles/{name_of(bundle)}.json", bundle)
    lines = [of_first, "", first, "no JSON", late, of_late, json.dumps(first), *(given for given, _ in rest)]
    file = put(tmp_path, "answers.jsonl", "\n".join(lines))
    status, out, err = ran(capsys, "verify", file, *flags(), "--json", "--bundle", str(tmp_path / "bundles"))
    reports = [json.loads(line) for line in out.splitlines()]
    assert (status, err) == (1, "")
    numbers = [3, 4, 5, 7, *range(8, 8 + len(rest))]
    assert [int(one["file"].rsplit(":", 1)[1]) for one in reports] == numbers
    assert [(one["valid"], one["incomplete"]) for one in reports] == [
        *[(True, False), (False, False), (False, True), (True, False)],
        *[(True, False)] * len(rest),
    ]


def test_what_is_about_one_answer_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path)
    for argv, message in (
        ([folder], "no answer is in it"),
        ([folder, "--request", "x"], "--request is about one answer"),
        ([folder, "--verbose"], "--verbose is about one answer"),
        ([folder, "--reference", "gone"], "gone: no such file"),
        ([str(tmp_path / "gone.jsonl")], "no such file"),
        ([folder, "--bundle", "gone"], "gone: no such file"),
    ):
        status, out, err = ran(capsys, "verify", *argv, *flags())
        assert (status, out, message in err) == (2, "", True), err
    put(tmp_path, "whole.json", json.dumps(WHOLE))
    assert ran(capsys, "verify", folder, *flags())[0] == 0
