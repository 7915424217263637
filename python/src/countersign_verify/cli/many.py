"""
`countersign verify DIR|FILE.jsonl`: many files or lines on many cores, a line for each, in their order, and a summary.
What is kept at a time does not grow with their number.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Final

from ..common.bundles import Bundles
from ..common.checks import CheckFailure
from .bundle_files import files_under
from .collateral_folder import Folders, collateral_from
from .input import MAX_INPUT_BYTES, UsageError, decode, read_bytes, unusable
from .kinds import file_kind_of, given_options
from .options import INCOMPLETE, INVALID, VALID, appraise, options_of, services_of, session_of
from .report import plain


@dataclass(frozen=True)
class Job:
    """A file, or a line of one."""

    name: str
    line: bytes | None
    """None: `name` is a file to be read."""
    bundles: tuple[str, ...] = ()
    """The texts of bundles from earlier lines that the line names."""


@dataclass(frozen=True)
class Line:
    name: str
    verdict: str
    level: str
    code: str | None
    report: dict[str, Any] | None
    """Where the caller wants JSON."""


_MAX_WORKERS: Final = 16
_AHEAD: Final = 8
"""Jobs that a worker is given before the first is done."""
_PROGRESS_SECONDS: Final = 0.2
_OF_ONE: Final = ("request", "response", "event", "verbose")
"""Options that are about one file."""
_LOOKS_LIKE_BUNDLE: Final = re.compile(rb'\s*\{\s*"(token|evidence|cpu)"')
"""By its beginning, as gateways write them."""
_NAMES_BUNDLE: Final = re.compile(rb'"bundle\\*"\s*:\s*\\*"([0-9a-f]{64})')


def verify_files(args: argparse.Namespace) -> int:
    """Returns the exit status. @raises UsageError"""
    one = next((name for name in given_options(args) if name in _OF_ONE), None)
    if one is not None:
        raise UsageError(f"--{one} is about one answer, and {args.file} has several")
    is_lines = args.file.endswith(".jsonl")
    if not is_lines:
        args = argparse.Namespace(**{**vars(args), "bundle": [*args.bundle, args.file]})
    # Options that cannot be used are found before the first file.
    _prepared(args)
    summary = _Summary(args)
    size = min(_MAX_WORKERS, os.cpu_count() or 1)
    pool = ProcessPoolExecutor(size, get_context("spawn"), initializer=_start, initargs=(args,))
    pending: deque[Future[Line | None]] = deque()
    try:
        for job in _lines_of(args.file) if is_lines else _files_of(args.file):
            pending.append(pool.submit(_checked, job))
            if len(pending) >= size * _AHEAD:
                summary.add(pending.popleft().result())
        while pending:
            summary.add(pending.popleft().result())
    finally:
        pool.shutdown(cancel_futures=True)
        summary.clear()
    return summary.end()


def _files_of(folder: str) -> Iterator[Job]:
    try:
        for name in files_under(folder):
            yield Job(name, None)
    except OSError as error:
        raise unusable(folder, error) from error


def _lines_of(file: str) -> Iterator[Job]:
    """@raises UsageError where it cannot be read, or a line is too long for an answer."""
    bundles = Bundles()
    try:
        with open(file, "rb") as opened:
            number = 0
            while line := opened.readline(MAX_INPUT_BYTES + 1):
                number += 1
                if len(line) > MAX_INPUT_BYTES:
                    raise UsageError(f"{file}:{number}: a line of more than 256 MiB")
                line = line.removesuffix(b"\n")
                if any(byte > 0x20 for byte in line):
                    yield Job(f"{file}:{number}", line, _named(line, bundles))
    except OSError as error:
        raise unusable(file, error) from error


def _named(line: bytes, bundles: Bundles) -> tuple[str, ...]:
    """The bundles of earlier lines that this one names; one that it is by itself is kept for later lines."""
    if _LOOKS_LIKE_BUNDLE.match(line) is not None:
        try:
            text = decode(line, "")
            if file_kind_of(text) == "bundle":
                bundles.add(text)
        except (UsageError, CheckFailure):
            pass  # its own check says so
        return ()
    found = (bundles.find(name.decode()) for name in dict.fromkeys(_NAMES_BUNDLE.findall(line)[-2:]))
    return tuple(one.text for one in found if one is not None)


# In a worker process: one file or line after the other is checked, with what was computed so far.


@dataclass(frozen=True)
class _Prepared:
    args: argparse.Namespace
    options: dict[str, Any]


_worker: list[_Prepared] = []


def _start(args: argparse.Namespace) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _worker.append(_prepared(argparse.Namespace(**{**vars(args), "quiet": True})))


def _prepared(args: argparse.Namespace) -> _Prepared:
    """@raises UsageError"""
    folders = Folders(args.collateral, args.rim_dir, tuple(args.ocsp))
    options = options_of(args, collateral_from(folders, services_of(args)))
    session = session_of(args, options)
    # The session is verified once.
    return _Prepared(argparse.Namespace(**{**vars(args), "session": None}), {**options, "session": session})


def _checked(job: Job) -> Line | None:
    """None for a bundle. A file that cannot be read, or is no text, is no valid answer, and ends nothing."""
    try:
        return _line_of(job, *_worker)
    except UsageError:
        return Line(job.name, "INVALID", "none", "unreadable", None)


def _line_of(job: Job, prepared: _Prepared) -> Line | None:
    data = read_bytes(job.name) if job.line is None else job.line
    text = decode(data, job.name)
    kind = file_kind_of(text)
    if kind == "bundle":
        return None
    for bundle in job.bundles:
        prepared.options["bundles"].add(bundle)
    report = appraise(prepared.args, kind, text, data, dict(prepared.options))
    code = next((check.code for check in report.checks if check.status == "fail"), None)
    verdict = "VALID" if report.valid else "INCOMPLETE" if report.incomplete else "INVALID"
    return Line(job.name, verdict, report.level, code, report.to_dict() if prepared.args.json else None)


class _Summary:
    def __init__(self, args: argparse.Namespace) -> None:
        self._file: str = args.file
        self._json: bool = args.json
        self._quiet: bool = args.quiet
        self._counts: Counter[str] = Counter()
        self._levels: Counter[str] = Counter()
        self._bundles = 0
        self._is_shown = sys.stderr.isatty() and not args.quiet
        self._began = self._shown = time.monotonic()

    def add(self, line: Line | None) -> None:
        if line is None:
            self._bundles += 1
        else:
            self._counts[line.verdict] += 1
            if line.verdict == "VALID":
                self._levels[line.level] += 1
            self._print(line)
        self._progress()

    def clear(self) -> None:
        """Ends the line of the progress."""
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def end(self) -> int:
        """Prints the counts. Returns the exit status. @raises UsageError where there was no answer."""
        done, counts = self._counts.total(), self._counts
        if done == 0:
            raise UsageError(f"{self._file}: no answer is in it")
        each = ", ".join(f"{count} {level}" for level, count in self._levels.items())
        valid = f"{counts['VALID']} valid{f' (level: {each})' if each else ''}"
        more = f"; {self._bundles} bundles beside them" if self._bundles else ""
        words = f"{done} answers: {valid}, {counts['INVALID']} invalid, {counts['INCOMPLETE']} incomplete{more}"
        if not self._quiet and not self._json:
            print(f"\n{words}")
        return INVALID if counts["INVALID"] else INCOMPLETE if counts["INCOMPLETE"] else VALID

    def _print(self, line: Line) -> None:
        if self._quiet:
            return
        self.clear()
        if self._json:
            print(json.dumps({"file": line.name, **(line.report or {})}))
        else:
            print(plain(f"{line.verdict:<10}  {line.level:<8}  {line.code or '-'}  {line.name}"))

    def _progress(self) -> None:
        now = time.monotonic()
        if not self._is_shown or now - self._shown < _PROGRESS_SECONDS:
            return
        self._shown = now
        done = self._counts.total()
        rate = round(done / (now - self._began))
        words = f"{done} verified, {self._counts['INVALID']} invalid, {rate}/s …"
        print(f"\r\x1b[K{words}", end="", file=sys.stderr, flush=True)
