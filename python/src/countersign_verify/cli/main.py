"""The command ``countersign``: checks what was saved of an answer or its evidence, prints the report, and exits by the verdict."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final, TextIO

from ..common.bounded_json import unquoted
from ..cpu.cpu_options import CpuExpected, CpuWithout
from ..cpu.verify_cpu import appraise_cpu
from ..policy.options import Policy
from .args import read_arguments
from .collateral_folder import Folders, collateral_from, fetching_into
from .expand import expand
from .input import UsageError, decode, is_many, own_fault, read_bytes
from .kinds import (
    INPUT_LIMITS,
    FileKind,
    file_kind_of,
    is_answer,
    passed_words,
    refuse_misfit,
    refuse_other_processor,
)
from .many import verify_files
from .options import appraise, cpu_policy, options_of, read_references, read_root, services_of, status_of, told
from .report import Printing, Verdict, cpu_report_text, plain, report_text, verdict_of
from .stranger import Stranger, stranger_in
from .words import Circumstances, next_step

USAGE: Final = 2

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
    if args.release is not None:
        # Only here is its code loaded.
        from .release import release_options

        args.released = release_options(args, told(args))
    if args.command == "verify" and is_many(args.file):
        return verify_files(args)
    data = read_bytes(args.file)
    text = decode(data, args.file)
    kind = file_kind_of(text)
    refuse_misfit(args, kind)
    if args.command == "expand":
        return expand(args, kind, text, data)
    if args.command == "collateral":
        return _collateral(args, kind, text, data)
    if args.command == "cpu":
        return _verify_cpu(args, text)
    folders = Folders(args.collateral, args.rim_dir, tuple(args.ocsp))
    report = appraise(args, kind, text, data, options_of(args, collateral_from(folders, services_of(args))))
    return _concluded(args, kind, report, text)


def _verify_cpu(args: argparse.Namespace, text: str) -> int:
    """A processor's evidence alone: everything that it needs is in it, so nothing is fetched."""
    report = appraise_cpu(
        unquoted(text, INPUT_LIMITS),
        at=args.at,
        simulated_roots=read_root(args.allow_simulated),
        expected=CpuExpected(report_data=args.report_data),
        policy=cpu_policy(args),
        reference=read_references(args.reference),
        without=CpuWithout(revocation=args.without_revocation),
    )
    refuse_other_processor(args, None if report.claims is None else report.claims.type)
    words = passed_words("cpu", None, report.claims is not None and report.claims.simulated)
    verdict, step, printing = _judged(args, report, words, text, None)
    _print(args, report, lambda: cpu_report_text(report.checks, report.claims, verdict, step, printing))
    return status_of(verdict)


def _collateral(args: argparse.Namespace, kind: FileKind, text: str, data: bytes) -> int:
    """Runs the check, which fetches what it needs, and keeps that. Prints the report too."""
    kept: list[Path] = []
    options = options_of(args, fetching_into(args.into, services_of(args), kept.append))
    if not is_answer(kind):
        options["policy"] = Policy()
    report = appraise(args, kind, text, data, options)
    if args.released is not None and args.released.bundle is not None:
        from .release import keep_release

        kept.append(keep_release(args.released, args.into))
    status = _concluded(args, kind, report, text)
    print(f"{len(kept)} files in {plain(str(args.into))}", file=sys.stderr)
    return status


def _concluded(args: argparse.Namespace, kind: FileKind, report: Any, text: str) -> int:
    refuse_other_processor(args, None if report.claims.cpu is None else report.claims.cpu.type)
    verdict, step, printing = _judged(args, report, passed_words(kind, report.level), text, report.claims.time)
    _print(args, report, lambda: report_text(report, kind, verdict, step, printing))
    return status_of(verdict)


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


def _instant(time: str | None) -> datetime | None:
    try:
        return None if time is None else datetime.fromisoformat(time.replace("Z", "+00:00"))
    except ValueError:  # a year that Python's calendar does not have
        return None
