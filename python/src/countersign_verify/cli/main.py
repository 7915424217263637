"""The command ``countersign``: checks what was saved of an answer or its evidence, prints the report, and exits by the verdict."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, Final, TextIO

from ..attestation import appraise_attestation
from ..common.bounded_json import unquoted
from ..cpu.cpu_options import CpuExpected, CpuOptions, CpuPolicy, CpuWithout, VerifiedSession
from ..cpu.verify_cpu import appraise_cpu
from ..evidence import appraise_evidence
from ..gpu.collateral import fetch_nras_keys
from ..gpu.devices import Without
from ..policy.options import Expected, Policy
from ..session import appraise_session
from ..x509.certificate import read_pem
from .args import read_arguments
from .collateral_folder import Folders, Services, collateral_from, fetching_into
from .input import UsageError, decode, own_fault, read_bytes, read_text
from .kinds import (
    INPUT_LIMITS,
    FileKind,
    demands_processor,
    file_kind_of,
    is_answer,
    least_level,
    passed_words,
    refuse_misfit,
    refuse_other_processor,
)
from .report import Printing, Verdict, cpu_report_text, plain, report_text, verdict_of
from .stranger import Stranger, stranger_in
from .words import Circumstances, next_step

VALID: Final = 0
INVALID: Final = 1
USAGE: Final = 2
INCOMPLETE: Final = 3

_MADE: Final = datetime(2026, 11, 23, tzinfo=timezone.utc)
"""No clock is right that is before this version."""


def main(argv: Sequence[str] | None = None) -> int:
    """:returns: the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        return _run(sys.argv[1:] if argv is None else argv)
    except UsageError as error:
        step = "see --help" if error.next_step is None else f"next: {error.next_step}"
        print(f"countersign: {plain(str(error))}\n{plain(step)}", file=sys.stderr)
        return USAGE
    except Exception as error:
        # Python's own exit status for it is that of an invalid file.
        print(own_fault(error), file=sys.stderr)
        return USAGE


def _run(argv: Sequence[str]) -> int:
    args = read_arguments(argv)
    _check_clock(args.at)
    data = read_bytes(args.file)
    text = decode(data, args.file)
    kind = file_kind_of(text)
    refuse_misfit(args, kind)
    if args.command == "collateral":
        return _collateral(args, kind, text, data)
    if args.command == "cpu":
        return _verify_cpu(args, text)
    folders = Folders(args.collateral, args.rim_dir, tuple(args.ocsp))
    report = _appraise(args, kind, text, data, _options(args, collateral_from(folders, _services(args))))
    return _concluded(args, kind, report, text)


def _appraise(args: argparse.Namespace, kind: FileKind, text: str, data: bytes, options: dict[str, Any]) -> Any:
    session = _session(args, options)
    if session is not None:
        options["session"] = session
    # The caller's command decides, and not the file; only `collateral` takes several kinds.
    about = kind if args.command == "collateral" else args.command
    if about == "session":
        return appraise_session(unquoted(text, INPUT_LIMITS), **options)
    if about == "evidence":
        return appraise_evidence(text, **options)
    options["expected"] = Expected(
        request=None if args.request is None else read_text(args.request),
        response=None if args.response is None else read_text(args.response),
        endpoint=args.endpoint,
        event=args.event,
        challenge=args.challenge,
    )
    return appraise_attestation(data if kind == "stream" else text, **options)


def _options(args: argparse.Namespace, collateral: Any) -> dict[str, Any]:
    return {
        "at": args.at,
        "simulated_root": _root(args.allow_simulated),
        "collateral": collateral,
        "policy": Policy(
            devices=args.device,
            max_age_seconds=args.max_age,
            max_batch=args.max_batch,
            min_level=least_level(args),
            required_checks=("cpu_form",) if demands_processor(args) else (),
        ),
        "cpu": CpuOptions(policy=_cpu_policy(args), reference=_reference(args.reference)),
        "expected": Expected(challenge=args.challenge, nonce=args.nonce),
        "limits": INPUT_LIMITS,
        "without": Without(reference_values=args.without_reference_values, revocation=args.without_revocation),
        # NVIDIA's keys for its remote service's tokens come over the network too.
        "fetch_nras_keys": None if args.offline else partial(fetch_nras_keys, on_fetch=_told(args)),
    }


def _session(args: argparse.Namespace, options: dict[str, Any]) -> VerifiedSession | None:
    """The session that the caller holds. The policy judges the attestation, which alone says how old it is. @raises UsageError"""
    if args.session is None:
        return None
    report = appraise_session(unquoted(read_text(args.session), INPUT_LIMITS), **{**options, "policy": Policy()})
    if report.session is not None:
        return report.session
    failed = next(check for check in report.checks if check.status == "fail")
    raise UsageError(f"--session {args.session}: it does not verify: {failed.code}: {failed.detail}")


def _verify_cpu(args: argparse.Namespace, text: str) -> int:
    """A processor's evidence alone: everything that it needs is in it, so nothing is fetched."""
    report = appraise_cpu(
        unquoted(text, INPUT_LIMITS),
        at=args.at,
        simulated_roots=_root(args.allow_simulated),
        expected=CpuExpected(report_data=args.report_data),
        policy=_cpu_policy(args),
        reference=_reference(args.reference),
        without=CpuWithout(revocation=args.without_revocation),
    )
    refuse_other_processor(args, None if report.claims is None else report.claims.type)
    words = passed_words("cpu", None, report.claims is not None and report.claims.simulated)
    verdict, step, printing = _judged(args, report, words, text, None)
    _print(args, report, lambda: cpu_report_text(report.checks, report.claims, verdict, step, printing))
    return _status(verdict)


def _collateral(args: argparse.Namespace, kind: FileKind, text: str, data: bytes) -> int:
    """Runs the check, which fetches what it needs, and keeps that. Prints the report too."""
    kept: list[Path] = []
    options = _options(args, fetching_into(args.into, _services(args), kept.append))
    if not is_answer(kind):
        options["policy"] = Policy()
    status = _concluded(args, kind, _appraise(args, kind, text, data, options), text)
    print(f"{len(kept)} files in {plain(str(args.into))}", file=sys.stderr)
    return status


def _concluded(args: argparse.Namespace, kind: FileKind, report: Any, text: str) -> int:
    refuse_other_processor(args, None if report.claims.cpu is None else report.claims.cpu.type)
    verdict, step, printing = _judged(args, report, passed_words(kind, report.level), text, report.claims.time)
    _print(args, report, lambda: report_text(report, kind, verdict, step, printing))
    return _status(verdict)


def _judged(
    args: argparse.Namespace, report: Any, words: str, text: str, time: str | None
) -> tuple[Verdict, str | None, Printing]:
    """The verdict, what to do next, and how to print them."""
    now = datetime.now(timezone.utc)
    failed = next((check for check in report.checks if check.status == "fail"), None)
    about = stranger_in(text, None if failed is None else failed.code)
    verdict = verdict_of(report.checks, report.valid, words, about)
    printing = Printing(args.verbose, _has_colours(sys.stdout), args.at or now, about)
    return (
        verdict,
        _step(verdict, about, Circumstances(args.offline, _instant(time), None if args.at else now)),
        printing,
    )


def _step(verdict: Verdict, about: Stranger | None, circumstances: Circumstances) -> str | None:
    if about is not None:
        return about.next
    return None if verdict.failed is None else next_step(verdict.failed, circumstances)


def _status(verdict: Verdict) -> int:
    return {"valid": VALID, "incomplete": INCOMPLETE}.get(verdict.word, INVALID)


def _print(args: argparse.Namespace, report: Any, words: Callable[[], str]) -> None:
    if not args.quiet:
        _write(json.dumps(report.to_dict(), indent=2) if args.json else words())


def _write(text: str) -> None:
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # The reader has seen enough, and the exit status is still the verdict's. Nothing is written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _has_colours(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _check_clock(at: datetime | None) -> None:
    now = datetime.now(timezone.utc)
    if at is None and now < _MADE:
        raise UsageError(
            f"this machine's clock says {now:%Y-%m-%d}, which is before this version was made: set it, or give --at TIME"
        )


def _services(args: argparse.Namespace) -> Services:
    return Services(online=not args.offline, rim_url=args.rim_url, ocsp_url=args.ocsp_url, on_fetch=_told(args))


def _told(args: argparse.Namespace) -> Callable[[str], None]:
    """Who is told what is fetched."""
    return _silent if args.quiet else _fetching


def _silent(_: str) -> None:
    pass


def _fetching(what: str) -> None:
    print(f"fetching {plain(what)} …", file=sys.stderr)


def _instant(time: str | None) -> datetime | None:
    try:
        return None if time is None else datetime.fromisoformat(time.replace("Z", "+00:00"))
    except ValueError:  # a year that Python's calendar does not have
        return None


# The options of a verification.


def _root(file: str | None) -> str | None:
    """@raises UsageError"""
    if file is None:
        return None
    text = read_text(file)
    try:
        read_pem(text, "--allow-simulated")
    except TypeError as cause:
        raise UsageError(f"--allow-simulated {file}: not a PEM certificate") from cause
    return text


def _cpu_policy(args: argparse.Namespace) -> CpuPolicy:
    demands = args.demand or ()
    return CpuPolicy(
        products=args.product,
        tcb=args.tcb,
        chips=args.chip,
        require_alias_check="alias_check" in demands,
        require_ciphertext_hiding="ciphertext_hiding" in demands,
        require_smt_off="smt_off" in demands,
    )


def _reference(file: str | None) -> Any:
    """@raises UsageError"""
    from ..cpu.reference import read_reference

    if file is None:
        return None
    try:
        return read_reference(read_text(file))
    except TypeError as cause:
        raise UsageError(f"--reference {file}: {cause}") from cause
