"""The command line: what it says of each kind of file, with which exit status, and how it is used wrongly."""

from __future__ import annotations

import base64
import io
import json
import os
import pty
import re
import subprocess
import sys
import threading
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import pytest

import countersign_verify.cli.main
import countersign_verify.cli.options
from countersign_verify.binding.input import kind_of
from countersign_verify.cli.main import INPUT_LIMITS, main
from countersign_verify.cli.report import plain
from countersign_verify.cli.words import SAVE
from countersign_verify.common.bounded_json import unquoted
from countersign_verify.common.checks import Check
from countersign_verify.cpu.cpu_options import VerifiedSession
from countersign_verify.policy.options import Claims, Limits, Policy, VerificationReport
from countersign_verify.session import appraise_session
from genuine import genuine, needs_genuine
from recorded import VECTORS, case, recorded, text

ROOT = str(VECTORS / "parts/device-root.pem")
AT = ["--at", "2025-06-01T12:00:00Z", "--offline"]
SIMULATED = [*AT, "--allow-simulated", ROOT]


@dataclass(frozen=True)
class Ran:
    status: int
    out: str
    err: str

    @property
    def last(self) -> str:
        return self.out.rstrip("\n").rsplit("\n", 1)[-1]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def ran(*argv: object) -> Ran:
        try:
            status = main([str(one) for one in argv])
        except SystemExit as left:  # --help and --version
            status = int(left.code or 0)
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return ran


@pytest.fixture
def file(tmp_path: Path) -> Any:
    def written(name: str, content: str | bytes) -> str:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return written


def attestation() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(text("parts/attestation.json"))
    return loaded


def test_each_form_of_a_proof_is_seen_and_valid(run: Any, file: Any) -> None:
    whole, stream, named = recorded("chat-whole"), recorded("chat-stream"), recorded("responses-stream-carried")
    alone = json.dumps(attestation())
    for name, content in (
        ("attestation.json", alone),
        ("string.json", json.dumps(alone)),
        ("marked.json", "\ufeff" + alone),
        ("answer.json", whole.answer),
        ("stream.txt", stream.answer),
        ("named.txt", named.answer),
    ):
        ran = run("verify", file(name, content), *SIMULATED, "--verbose")
        assert (ran.status, ran.last, ran.err) == (0, "VALID (level: none)", ""), name
        assert "SIMULATED" in ran.out
        assert "not proven" in ran.out
    request = file("request.json", whole.request)
    given = ["--request", request, "--endpoint", whole.endpoint]
    ran = run("verify", file("answer.json", whole.answer), *given, *SIMULATED)
    assert (ran.status, ran.last) == (0, "VALID (level: none)")
    assert f"raw holds the endpoint {whole.endpoint}" in ran.out
    evidence = case("report_nonce.pass.bare-evidence")["evidence"]
    ran = run("evidence", file("evidence.json", json.dumps(evidence)), *SIMULATED)
    assert (ran.status, ran.last) == (0, "PASSED: evidence of devices, about no answer (level: none)")


def test_one_event_by_itself_is_checked_where_it_is_said_to_be_one(run: Any, file: Any) -> None:
    event = file("event.json", case("expected_exchange.pass.responses-event")["text"])
    assert run("verify", event, "--event", *SIMULATED).last == "VALID (level: none)"
    assert run("verify", event, *SIMULATED).status == 1


def test_what_a_file_holds_is_seen_from_its_members() -> None:
    for content, kind in (
        ("{}", "attestation"),
        ("nothing", "attestation"),
        ("[" * 100_000, "attestation"),
        ('{"raw":"","type":"SEV_SNP","report":""}', "attestation"),
        ('{"attestation":{},"statement":"","gpu":[]}', "attestation"),
        ('{"type":"response.completed","response":{}}', "attestation"),
        ("[]", "evidence"),
        ('"[1]"', "evidence"),
        ('{"type":"SEV_SNP","report":"","statement":"","gpu":[]}', "session"),
        ('{"type":"SEV_SNP","report":""}', "cpu"),
        ('{"type":"OF_TOMORROW","report":""}', "cpu"),
        ('"{\\"type\\":\\"TDX\\",\\"report\\":\\"\\"}"', "cpu"),
    ):
        assert kind_of(content, INPUT_LIMITS) == kind, content


def test_a_file_over_the_limits_is_not_parsed_to_see_what_it_holds(run: Any, file: Any) -> None:
    many = "[" + "{}," * 50 + "{}]"
    assert kind_of(many, INPUT_LIMITS) == "evidence"
    for limits in (Limits(max_values=50), Limits(max_characters=50)):
        assert kind_of(many, limits) == kind_of(json.dumps(many), limits) == "attestation"
    assert unquoted(json.dumps(many), INPUT_LIMITS) == many
    assert unquoted(json.dumps(many), Limits(max_characters=50)) == json.dumps(many)
    ran = run("verify", file("many.json", "[" + "{}," * (9 * 2**20) + "{}]"), *AT, "--json")
    assert (ran.status, json.loads(ran.out)["checks"][0]["code"]) == (1, "too_large")


def test_the_policy_judges_the_attestation_and_not_its_session(
    run: Any, file: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[str, Policy]] = []
    real = appraise_session

    def appraised(value: str, **options: Any) -> Any:
        given.append((value, options["policy"]))
        return replace(real(value, **options), session=VerifiedSession('{"hpke":null}', cast("Any", None)))

    monkeypatch.setattr(countersign_verify.cli.options, "appraise_session", appraised)
    answer = file("answer.json", json.dumps(attestation()))
    session = file("session.json", json.dumps('{"statement":"{}","gpu":[]}'))
    policy = ["--max-age", "300", "--max-batch", "1", "--require-level", "none"]
    # The session is read, and then demanded: this answer is in none.
    ran = run("verify", answer, *SIMULATED, "--session", session, *policy)
    assert (ran.status, ran.err) == (1, "")
    assert "\nINVALID: cpu_missing" in ran.out
    assert given == [('{"statement":"{}","gpu":[]}', Policy())]
    assert run("verify", answer, *SIMULATED, *policy).last == "VALID (level: none)"
    ran = run("verify", answer, *SIMULATED, "--session", session, "--max-age", "1")
    assert (ran.status, "too_old" in ran.out) == (1, True)


def test_a_processors_evidence_and_a_session_are_seen_and_say_what_is_wrong(run: Any, file: Any) -> None:
    cpu = file("cpu.json", '{"type":"SEV_SNP","report":"AAAA","certificates":""}')
    ran = run("cpu", cpu, *AT[:2])
    assert (ran.status, ran.last.split(": ")[1]) == (1, "cpu_malformed")
    session = file("session.json", '{"type":"SEV_SNP","statement":"{}","gpu":[]}')
    assert run("session", session, *AT).status == 1
    for command, path, what in (("cpu", cpu, "a processor's evidence"), ("session", session, "a session")):
        ran = run("verify", path, *AT, "--quiet")
        refused = f"countersign: verify does not take {what}: countersign {command} FILE checks it\nsee --help\n"
        assert ran == Ran(2, "", refused)
    assert run("collateral", cpu, "--into", "x").status == 2


def test_an_answer_that_was_changed_is_invalid_by_the_check_that_sees_it(run: Any, file: Any) -> None:
    whole, stream = recorded("chat-whole"), recorded("chat-stream")
    for name, content, code in (
        ("a.json", whole.answer.replace(b'"content":"Hello."', b'"content":"Hullo."', 1), "response_mismatch"),
        ("b.txt", stream.answer.replace(b'"Hel', b'"Hol', 1), "stream_mismatch"),
        ("c.txt", stream.answer.replace(b'"attestation":{', b'"attestation":{"raw":"evil",'), "not_an_attestation"),
        ("d.txt", b'data: {"choices":[]}\n\ndata: [DONE]\n\n', "not_an_attestation"),
        ("e.json", b"{", "not_json"),
    ):
        ran = run("verify", file(name, content), *SIMULATED)
        assert (ran.status, f"INVALID: {code}: " in ran.out) == (1, True), name
    good = file("good.json", whole.answer)
    for given, code in (
        (["--request", file("other.json", b'{"a":1}')], "request_mismatch"),
        (["--response", file("other.json", b'{"a":1}')], "response_mismatch"),
        (["--endpoint", "/v1/messages"], "endpoint_mismatch"),
        (["--max-age", "10"], "too_old"),
        (["--require-level", "gpu"], "policy_refused"),
    ):
        ran = run("verify", good, *SIMULATED, *given)
        assert (ran.status, f"\nINVALID: {code}: " in ran.out) == (1, True), code


def test_the_last_line_says_what_to_do_next(run: Any, file: Any) -> None:
    whole = recorded("chat-whole")
    good = file("good.json", whole.answer)
    ran = run("verify", good, *AT)
    assert ran.status == 1
    assert re.search(r"\nINVALID: simulated_root_refused: .*\nnext: ", ran.out)
    assert "--allow-simulated" in ran.last
    ran = run("verify", good, "--offline", "--allow-simulated", ROOT, "--max-age", "300")
    assert (ran.status, "INVALID: too_old" in ran.out) == (1, True)
    assert re.match(r"next: the attestation is of 2025-06-01 and this machine's clock says 20\d\d-", ran.last)
    assert "--at TIME" in ran.last


def test_a_check_that_could_not_run_makes_it_incomplete(run: Any, file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    unavailable = Check("revocation", "fail", "nobody answers", "revocation_unavailable")
    wrong = Check("reference_values", "fail", "another version", "rim_mismatch")
    claims = Claims(simulated=False, time=None, nonce=None, batch=None, token=None, devices=(), cpu=None)
    good = file("good.json", recorded("chat-whole").answer)
    for checks, incomplete, status, verdict in (
        (
            (unavailable,),
            True,
            3,
            "INCOMPLETE: revocation_unavailable: nobody could say whether a certificate was revoked; nothing was found wrong",
        ),
        (
            (unavailable, wrong),
            False,
            1,
            "INVALID: revocation_unavailable: nobody could say whether a certificate was revoked",
        ),
    ):
        report = VerificationReport(False, incomplete, "none", checks, claims, (), ())
        monkeypatch.setattr(
            countersign_verify.cli.options, "appraise_attestation", lambda *_, report=report, **__: report
        )
        ran = run("verify", good, "--offline")
        assert (ran.status, f"\n{verdict}\nnext: " in ran.out) == (status, True)
        assert "--collateral DIR" in ran.last
        assert "--without-revocation" in ran.last
        assert run("verify", good, "--quiet") == Ran(status, "", "")
        assert run("verify", good, "--json").status == status


@needs_genuine
def test_genuine_evidence_without_collateral_is_incomplete_and_without_those_checks_valid(run: Any, file: Any) -> None:
    evidence = file("evidence.json", genuine("nvidia/h100-590.12/evidence.json"))
    ran = run("evidence", evidence, "--offline")
    assert ran.status == 3
    assert re.search(r"\nINCOMPLETE: \w+_unavailable: .*\nnext: ", ran.out)
    device = json.loads(Path(evidence).read_bytes())[0]
    one = file("one.json", json.dumps([device]))
    without = ["--offline", "--without-reference-values", "--without-revocation"]
    ran = run("evidence", one, *without)
    assert (ran.status, ran.last) == (0, "PASSED: evidence of devices, about no answer (level: gpu)")
    assert run("evidence", one, *without, "--require-level", "gpu+cpu").last.startswith("INVALID: policy_refused: ")
    assert run("evidence", one, *without, "--nonce", device["nonce"]).status == 0
    other = file("other.json", json.dumps([{**device, "nonce": "00" * 32}]))
    assert run("evidence", other, *without).last.startswith("INVALID: report_nonce_mismatch: ")
    assert run("verify", one, *without, "--quiet").status == 2


def test_quiet_prints_nothing_and_json_the_report(run: Any, file: Any) -> None:
    good = file("good.json", recorded("chat-whole").answer)
    assert run("verify", good, *SIMULATED, "--quiet") == Ran(0, "", "")
    assert run("verify", good, *AT, "--quiet") == Ran(1, "", "")
    report = json.loads(run("verify", good, *SIMULATED, "--json").out)
    assert list(report)[:4] == ["valid", "incomplete", "level", "checks"]
    assert (report["valid"], report["incomplete"], report["level"]) == (True, False, "none")
    assert "exchange" not in report
    assert run("verify", good, *SIMULATED, "--json", "--quiet") == Ran(0, "", "")


def test_an_answer_must_be_of_level_gpu_or_of_what_other_options_demand(run: Any, file: Any) -> None:
    good = file("good.json", recorded("chat-whole").answer)
    for given, said in (
        ([], "the level is none; the caller accepts gpu or more"),
        (["--require-level", "gpu+cpu"], "accepts gpu+cpu or more"),
        (["--allow-simulated", ROOT, "--require-level", "gpu"], "accepts gpu or more"),
        (["--product", "Milan"], "requires the check cpu_form"),
        (["--allow-simulated", ROOT, "--tcb", "UpToDate"], "requires the check cpu_form"),
        (["--challenge", "0" * 64, "--require-level", "none"], "requires the check cpu_form"),
        (["--require-level", "none"], "the caller asked for no more"),
        (["--allow-simulated", ROOT], "the caller asked for no more"),
    ):
        policy = next(
            line for line in run("verify", good, *AT, *given, "--verbose").out.splitlines() if " policy " in line
        )
        assert said in policy, given


def test_texts_of_others_stay_in_their_line(run: Any, file: Any) -> None:
    given = attestation()
    for odd in ("\n", "\r", "\x1b[2J", "\x9b2J", "\u2028", "\u202e", "\u200b"):
        claims = {"iss": f"x{odd}VALID (level: gpu)", "eat_nonce": given["nonce"]}
        parts = ({"alg": "none"}, claims)
        token = (
            ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."
        )
        odd_file = file("odd.json", json.dumps({"raw": given["raw"], "nonce": given["nonce"], "token": token}))
        ran = run("verify", odd_file, "--offline", "--verbose")
        assert ran.status == 1
        assert re.search(r"says it is from 'x\?[^\n]*VALID \(level: gpu\)'\n", ran.out)
        assert re.search(r"^VALID", ran.out, re.M) is None
        assert plain(ran.out.replace("\n", "")) == ran.out.replace("\n", "")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "a FILE or a command is needed"),
        (["verify"], "FILE"),
        (["nonsense", "x"], "nonsense"),
        (["verify", "nothing.json"], "no such file"),
        (["verify", "a", "b"], "one FILE at a time"),
        (["verify", "x", "--nonsense"], "nonsense"),
        (["verify", "x", "--req", "y"], "--req"),
        (["verify", "x", "--at", "yesterday"], "not a time"),
        (["verify", "x", "--at", "06/01/2025"], "not a time"),
        (["verify", "x", "--at", "20250601"], "not a time"),
        (["verify", "x", "--at", "2025-13-01"], "not a time"),
        (["verify", "x", "--at", "999999999999"], "not a time"),
        (["verify", "x", "--at", "١٢٣٤٥٦٧٨٩٠"], "not a time"),
        (["verify", "x", "--max-age=-1"], "max-age"),
        (["verify", "x", "--max-age", "1_0"], "max-age"),
        (["verify", "x", "--max-batch", "0"], "0: not a number of answers"),
        (["verify", "x", "--max-batch", "1.5"], "max-batch"),
        (["verify", "x", "--require-level", "best"], "not one of none, gpu, gpu+cpu, measured"),
        (["verify", "x", "--product", "Rome"], "not one of Milan, Genoa, Turin"),
        (["verify", "x", "--tcb", "Fine"], "not one of UpToDate"),
        (["verify", "x", "--challenge", "00"], "not 64 hexadecimal digits"),
        (["cpu", "x", "--report-data", "0"], "not 1 to 64 bytes"),
        (["verify", "x", "--report-data", "00"], "verify has no --report-data, which is of cpu"),
        (["evidence", "x", "--session=y"], "evidence has no --session, which is of verify"),
        (["evidence", "x", "--nonce", "00"], "not 64 hexadecimal digits"),
        (["verify", "x", "--endpoint", "/messages"], "not a path under /v1/"),
        (["verify", "x", "--endpoint", "/v1/messages?a=1"], "not a path under /v1/"),
        (["verify", "x", "--endpoint", "/v1/messages\n"], "not a path under /v1/"),
        (["verify", "x", "--rim-url", "rim.test"], "not an http(s) URL"),
        (["verify", "x\0y"], "cannot be used"),
        (["collateral", "x"], "--into"),
        (["collateral", "x", "--into", "y", "--offline"], "--offline"),
    ],
)
def test_wrong_use_is_one_clear_line_and_exit_2(argv: list[str], message: str, run: Any) -> None:
    ran = run(*argv)
    assert (ran.status, ran.out) == (2, "")
    assert re.fullmatch(r"countersign: [^\n]+\n(see --help|next: [^\n]+)\n", ran.err)
    assert message in ran.err


def test_a_file_or_folder_that_cannot_be_used_is_one_clear_line_and_exit_2(run: Any, file: Any, tmp_path: Path) -> None:
    answer = file("answer.json", "{}")
    evidence = file("evidence.json", "[]")
    rims = tmp_path / "rims"
    rims.mkdir()
    for argv, message in (
        (["verify", answer, "--allow-simulated", answer], "not a PEM certificate"),
        (["verify", answer, "--allow-simulated", tmp_path], "a folder, not a file"),
        (["verify", evidence], "verify does not take evidence of devices"),
        (["verify", answer, "--request", tmp_path / "gone.json"], "no such file or folder"),
        (["verify", answer, "--reference", answer], "--reference"),
        (["verify", answer, "--rim-dir", answer], "cannot be used (ENOTDIR)"),
        (["verify", answer, "--rim-dir", tmp_path / "gone"], "no such file or folder"),
        (["verify", answer, "--collateral", rims], "no such file or folder"),
        (["verify", answer, "--session", evidence], "--session"),
        (["collateral", answer, "--into", answer], "cannot be used"),
    ):
        given = ["--offline"] if argv[0] == "verify" else []
        ran = run(*argv, *given)
        assert (ran.status, ran.out) == (2, ""), argv
        assert re.fullmatch(r"countersign: [^\n]+\n(see --help|next: [^\n]+)\n", ran.err)
        assert message in ran.err


def test_a_file_that_is_not_utf_8_is_exit_2_whatever_it_is(run: Any, file: Any) -> None:
    good = file("good.json", recorded("chat-whole").answer)
    bad = file("bad.json", recorded("chat-whole").answer.replace(b"Hello.", b"\xff"))
    for argv in ([bad], [good, "--request", bad], [good, "--response", bad]):
        assert run("verify", *argv, *SIMULATED) == Ran(
            2, "", f"countersign: {bad}: not a text in UTF-8\nnext: {SAVE}\n"
        )


def test_standard_input_is_a_file(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = type("Stdin", (), {"buffer": io.BytesIO(recorded("chat-stream").answer)})()
    monkeypatch.setattr(sys, "stdin", stdin)
    assert run("verify", "-", *SIMULATED).last == "VALID (level: none)"


def test_help_has_examples_and_version_a_number(run: Any) -> None:
    for argv in (["--help"], ["verify", "--help"], ["collateral", "--help"]):
        ran = run(*argv)
        assert ran.status == 0
        assert "examples:\n  countersign verify answer.json" in ran.out
        assert (
            "exit status: 0 valid (of several all), passed or expanded, 1 invalid (of several any), 2 usage, 3 incomplete"
            in ran.out
        )
    assert re.fullmatch(r"countersign \d+\.\d+\.\d+\n", run("--version").out)


def test_a_clock_that_is_years_behind_is_told(run: Any, file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    good = file("good.json", recorded("chat-whole").answer)
    monkeypatch.setattr(countersign_verify.cli.main, "_MADE", datetime(2999, 1, 1, tzinfo=timezone.utc))
    ran = run("verify", good, "--offline")
    assert (ran.status, ran.out) == (2, "")
    assert "this machine's clock says 20" in ran.err
    assert "--at TIME" in ran.err
    assert run("verify", good, *SIMULATED).status == 0


SOURCE = str(Path(countersign_verify.cli.main.__file__).parents[2])
INHERITED = {**os.environ, "PYTHONPATH": SOURCE}


def test_an_error_of_the_program_itself_is_no_verdict(run: Any, file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise ValueError("SECRET")

    monkeypatch.setattr(countersign_verify.cli.options, "appraise_attestation", failing)
    ran = run("verify", file("good.json", recorded("chat-whole").answer), "--offline")
    assert (ran.status, ran.out) == (2, "")
    assert re.fullmatch(r"countersign: [^\n]* ValueError at test_cli.py:\d+; please report it\n", ran.err)


def started(*argv: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "countersign_verify", *argv], env={**INHERITED, **env}, capture_output=True, check=False
    )


def on_terminal(*argv: str, **env: str) -> bytes:
    """What the command writes to a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "countersign_verify", *argv], env={**INHERITED, **env}, stdout=theirs
    ) as process:
        os.close(theirs)
        written = b""
        try:
            while part := os.read(ours, 65536):
                written += part
        except OSError:  # Linux's word for the end of a terminal
            pass
        process.wait()
    os.close(ours)
    return written


def test_colours_are_for_terminals_alone_and_never_with_no_color(file: Any) -> None:
    argv = ("verify", file("good.json", recorded("chat-whole").answer), *SIMULATED)
    assert b"\x1b[" not in started(*argv).stdout
    assert b"\x1b[33mVALID (level: none)\x1b[39m" in on_terminal(*argv, TERM="xterm", NO_COLOR="")
    assert b"\x1b[" not in on_terminal(*argv, TERM="xterm", NO_COLOR="1")
    assert b"\x1b[" not in on_terminal(*argv, TERM="dumb", NO_COLOR="")


def test_a_reader_who_leaves_changes_no_exit_status(file: Any) -> None:
    command = [
        sys.executable,
        "-m",
        "countersign_verify",
        "verify",
        file("good.json", recorded("chat-whole").answer),
        *AT,
    ]
    with subprocess.Popen(command, env=INHERITED, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert (process.wait(), process.stderr.read()) == (1, b"")


def test_it_prints_in_any_locale(file: Any) -> None:
    ran = started("verify", file("ü.json", "{}"), "--offline", LC_ALL="C", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (ran.returncode, ran.stderr) == (1, b"")
    ran = started("verify", file("ü.json", "{}") + "x", "--offline", LC_ALL="C", PYTHONIOENCODING="ascii")
    assert ran.returncode == 2


@needs_genuine
def test_a_folder_is_filled_with_what_a_later_check_needs_offline(run: Any, file: Any, tmp_path: Path) -> None:
    names = ("NV_GPU_DRIVER_GH100_550.90.07", "NV_GPU_VBIOS_1010_0200_882_96009F0001")
    rims = {name: genuine(f"nvidia/h100-550.90.07/{name}.xml") for name in names}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            rim = rims.get(unquote(self.path.rsplit("/", 1)[-1]))
            self.send_response(404 if rim is None else 200)
            self.end_headers()
            if rim is not None:
                self.wfile.write(json.dumps({"rim": base64.b64encode(rim).decode()}).encode())

        def log_message(self, *_: Any) -> None:
            pass

    report = genuine("nvidia/h100-550.90.07/report.bin")
    device = {
        "arch": "HOPPER",
        "certificate": base64.b64encode(genuine("nvidia/h100-550.90.07/chain.pem")).decode(),
        "evidence": base64.b64encode(report).decode(),
        "nonce": report[4:36].hex(),
    }
    evidence = file("h100.json", json.dumps([device]))
    into = tmp_path / "collateral"
    common = ["--without-revocation", "--at", "2025-09-01T00:00:00Z"]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        ran = run("collateral", evidence, "--into", into, "--rim-url", url, *common)
    finally:
        server.shutdown()
        server.server_close()
    assert (ran.status, ran.last) == (0, "PASSED: evidence of devices, about no answer (level: gpu)")
    assert ran.err.endswith(f"2 files in {into}\n")
    assert sorted(one.name for one in (into / "rim").iterdir()) == sorted(f"{name}.xml" for name in names)
    for given in (["--collateral", into], ["--rim-dir", into / "rim"]):
        ran = run("evidence", evidence, "--offline", "--verbose", *given, *common)
        assert (ran.status, "all 33 active measurements" in ran.out) == (0, True)
