"""The command ``countersign``: checks what was saved of an answer or its evidence, prints the report, and exits by the verdict."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, TextIO

from . import __version__
from .attestation import appraise_attestation
from .collateral import fetch_nras_keys
from .collateral_folder import Folders, Services, collateral_from, fetching_into
from .cpu.options import PRODUCTS, CpuExpected, CpuOptions, CpuPolicy, CpuWithout, VerifiedSession
from .cpu.verify import appraise_cpu
from .evidence import appraise_evidence
from .exchange import is_transcript
from .files import MAX_INPUT_BYTES, UsageError, decode, own_fault, read_bytes, read_text
from .options import LEVELS, Expected, Limits, Policy, Without, read_pem
from .report_text import Printer, Verdict, next_step, plain, verdict_of
from .session import appraise_session

VALID: Final = 0
INVALID: Final = 1
USAGE: Final = 2
INCOMPLETE: Final = 3

_MADE: Final = datetime(2026, 11, 23, tzinfo=timezone.utc)
"""No clock is right that is before this version."""

_TCB_STATUSES = (
    "UpToDate",
    "SWHardeningNeeded",
    "ConfigurationNeeded",
    "ConfigurationAndSWHardeningNeeded",
    "OutOfDate",
    "OutOfDateConfigurationNeeded",
    "TDRelaunchAdvised",
    "TDRelaunchAdvisedConfigurationNeeded",
    "Revoked",
    "NotSupported",
)

_DESCRIPTION = """\
Checks that an NVIDIA GPU signed exactly what was asked and answered, and in a confidential VM its processor too.
"""

_EXAMPLES = """\
FILE is an attestation, an answer that carries one, a saved event stream, a session, bare GPU evidence (a JSON list)
or a processor's evidence; which of them is seen from what is in it. - is standard input.

examples:
  countersign verify answer.json --request request.json
  curl -sN … | countersign verify -
  countersign verify answer.json --allow-simulated run/simulated-root/root.pem
  countersign verify answer.json --require-level gpu --max-age 300 --quiet
  countersign collateral answer.json --into kept
  countersign verify answer.json --offline --collateral kept --at 2026-11-23T12:00:00Z

exit status: 0 valid, 1 invalid, 2 usage, 3 incomplete (nothing was found wrong, but a required check could not run)
"""

Kind = Literal["attestation", "evidence", "cpu", "session"]

_OF_EXCHANGE = ("request", "response", "endpoint")
_NOT_FOR: Final[dict[Kind, tuple[str, tuple[str, ...]]]] = {
    "attestation": ("an attestation", ("report_data",)),
    "evidence": (
        "bare evidence, which holds no request, no response and no session",
        (*_OF_EXCHANGE, "session", "challenge", "report_data", "product", "tcb", "reference", "max_batch"),
    ),
    "session": (
        "a session, which holds no request and no response",
        (*_OF_EXCHANGE, "session", "report_data", "max_batch"),
    ),
    "cpu": (
        "a processor's evidence by itself",
        (*_OF_EXCHANGE, "session", "challenge", "require_level", "max_age", "max_batch"),
    ),
}
"""Options that demand what a file of the kind cannot show: they are refused, and not passed over."""


def main(argv: Sequence[str] | None = None) -> int:
    """:returns: the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        return _run(sys.argv[1:] if argv is None else argv)
    except UsageError as error:
        print(f"countersign: {plain(str(error))}\nsee --help", file=sys.stderr)
        return USAGE
    except Exception as error:
        # Python's own exit status for it is that of an invalid file.
        print(own_fault(error), file=sys.stderr)
        return USAGE


def _run(argv: Sequence[str]) -> int:
    args = _parser().parse_args(argv)
    _check_clock(args.at)
    data = read_bytes(args.file)
    text = decode(data, args.file)
    kind = kind_of(text)
    what, refused = _NOT_FOR[kind]
    for name in refused:
        if getattr(args, name, None) not in (None, []):
            raise UsageError(f"--{name.replace('_', '-')} has no use for {what}")
    if args.command == "collateral":
        return _collateral(args, kind, text, data)
    if kind == "cpu":
        return _verify_cpu(args, text)
    folders = Folders(args.collateral, args.rim_dir, tuple(args.ocsp))
    report = _appraise(args, kind, text, data, collateral_from(folders, _services(args)))
    return _concluded(args, report)


def kind_of(text: str) -> Kind:
    """What a file holds. What is none of the others is checked as an attestation, which says what is missing."""
    if is_transcript(text):
        return "attestation"
    value = _json(text.removeprefix("\ufeff"))
    if isinstance(value, str):
        value = _json(value)
    if isinstance(value, list):
        return "evidence"
    if not isinstance(value, dict) or "raw" in value or "attestation" in value:
        return "attestation"
    if "statement" in value and "gpu" in value:
        return "session"
    return "cpu" if "type" in value and "report" in value else "attestation"


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _unwrapped(text: str) -> str:
    """The text of an object that was kept as a JSON string."""
    bare = text.removeprefix("\ufeff")
    value = _json(bare)
    return value if isinstance(value, str) else bare


def _appraise(args: argparse.Namespace, kind: Kind, text: str, data: bytes, collateral: Any) -> Any:
    options = _options(args, collateral)
    session = _session(args, options)
    if session is not None:
        options["session"] = session
    if kind == "session":
        return appraise_session(_unwrapped(text), **options)
    if kind == "evidence":
        return appraise_evidence(text, **options)
    options["expected"] = Expected(
        request=None if args.request is None else read_text(args.request),
        response=None if args.response is None else read_text(args.response),
        endpoint=args.endpoint,
        challenge=args.challenge,
    )
    return appraise_attestation(data if is_transcript(text) else text, **options)


def _options(args: argparse.Namespace, collateral: Any) -> dict[str, Any]:
    return {
        "at": args.at,
        "simulated_root": _root(args.allow_simulated),
        "collateral": collateral,
        "policy": Policy(max_age_seconds=args.max_age, max_batch=args.max_batch, min_level=args.require_level),
        "cpu": CpuOptions(policy=_cpu_policy(args), reference=_reference(args.reference)),
        "expected": Expected(challenge=args.challenge),
        # A file that may be read may be checked: a gateway attests more than the library takes by default.
        "limits": Limits(max_characters=MAX_INPUT_BYTES),
        "without": Without(reference_values=args.without_reference_values, revocation=args.without_revocation),
        # NVIDIA's keys for its remote service's tokens come over the network too.
        "fetch_nras_keys": None if args.offline else _fetch_keys,
    }


def _session(args: argparse.Namespace, options: dict[str, Any]) -> VerifiedSession | None:
    """The session that the caller holds, verified as the attestation is. @raises UsageError"""
    if args.session is None:
        return None
    report = appraise_session(_unwrapped(read_text(args.session)), **options)
    if report.session is not None:
        return report.session
    failed = next(check for check in report.checks if check.status == "fail")
    raise UsageError(f"--session {args.session}: it does not verify: {failed.code}: {failed.detail}")


def _verify_cpu(args: argparse.Namespace, text: str) -> int:
    """A processor's evidence alone: everything that it needs is in it, so nothing is fetched."""
    report = appraise_cpu(
        _unwrapped(text),
        at=args.at,
        simulated_roots=_root(args.allow_simulated),
        expected=CpuExpected(report_data=args.report_data),
        policy=_cpu_policy(args),
        reference=_reference(args.reference),
        without=CpuWithout(revocation=args.without_revocation),
    )
    verdict = verdict_of(report.checks, report.valid, None)
    step = next_step(verdict.code, offline=args.offline, claimed=None, now=None)
    _print(args, report, verdict, step, lambda printer: printer.cpu_report(report.checks, report.claims, verdict))
    return _status(verdict)


def _collateral(args: argparse.Namespace, kind: Kind, text: str, data: bytes) -> int:
    """Runs the check, which fetches what it needs, and keeps that. Prints the report too."""
    if kind == "cpu":
        raise UsageError("a processor's evidence holds everything that its check needs: there is nothing to fetch")
    kept: list[Path] = []
    report = _appraise(args, kind, text, data, fetching_into(args.into, _services(args), kept.append))
    status = _concluded(args, report)
    print(f"{len(kept)} files in {plain(str(args.into))}", file=sys.stderr)
    return status


def _concluded(args: argparse.Namespace, report: Any) -> int:
    verdict = verdict_of(report.checks, report.valid, report.level)
    now = datetime.now(timezone.utc)
    step = next_step(
        verdict.code, offline=args.offline, claimed=_instant(report.claims.time), now=now if args.at is None else None
    )
    _print(args, report, verdict, step, lambda printer: printer.report(report, verdict, args.at or now))
    return _status(verdict)


def _status(verdict: Verdict) -> int:
    return {"valid": VALID, "incomplete": INCOMPLETE}.get(verdict.word, INVALID)


def _print(
    args: argparse.Namespace, report: Any, verdict: Verdict, step: str | None, words: Callable[[Printer], str]
) -> None:
    if args.json:
        return _write(json.dumps(report.to_dict(), indent=2))
    printer = Printer(colours=_has_colours(sys.stdout))
    lines = [printer.verdict(verdict) if args.quiet else words(printer)]
    if step is not None and not args.quiet:
        lines.append(f"next: {step}")
    _write("\n".join(lines))


def _write(text: str) -> None:
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Whoever reads has seen enough, and the exit status is still the verdict's. Nothing is written at exit either.
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
    return Services(online=not args.offline, rim_url=args.rim_url, ocsp_url=args.ocsp_url, on_fetch=_fetching)


def _fetch_keys(url: str) -> Any:
    return fetch_nras_keys(url, on_fetch=_fetching)


def _fetching(what: str) -> None:
    print(f"fetching {plain(what)} …", file=sys.stderr)


def _instant(time: str | None) -> datetime | None:
    try:
        return None if time is None else datetime.fromisoformat(time.replace("Z", "+00:00"))
    except ValueError:  # a year that Python's calendar does not have
        return None


# What the command line says, read.


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="countersign",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"countersign {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, words in (
        ("verify", "check FILE and print the report"),
        ("collateral", "fetch what FILE's check needs, for use with --offline --collateral DIR"),
    ):
        command = commands.add_parser(
            name,
            help=words,
            description=words,
            epilog=_EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.add_argument("file", metavar="FILE")
        if name == "collateral":
            command.add_argument("--into", metavar="DIR", required=True, type=Path, help="the folder to fill")
            command.set_defaults(offline=False, collateral=None, rim_dir=None, ocsp=[])
        else:
            _add_sources(command)
        _add_checks(command)
    return parser


def _add_sources(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("reference values and revocation")
    group.add_argument("--offline", action="store_true", help="no network: what is not given counts as unavailable")
    group.add_argument("--collateral", metavar="DIR", type=Path, help="a folder that 'countersign collateral' filled")
    group.add_argument("--rim-dir", metavar="DIR", type=Path, help="reference values (RIM files) from a folder")
    group.add_argument(
        "--ocsp", metavar="FILE", action="append", default=[], help="an OCSP response, DER or base64; may be repeated"
    )


def _add_checks(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--request", metavar="FILE", help="the request you sent; must equal the one that was signed")
    add("--response", metavar="FILE", help="the response you received, with or without its attestation")
    add("--endpoint", metavar="PATH", type=_endpoint, help="the endpoint you asked, such as /v1/responses")
    add("--allow-simulated", metavar="ROOT", help="accept a simulated GPU under this test root (a PEM file)")
    add("--at", metavar="TIME", type=_time, help="check as of this time (ISO 8601 or Unix seconds) instead of now")
    add("--session", metavar="FILE", help="the session of an attestation that names it and does not carry it")
    add("--challenge", metavar="HEX", type=_challenge, help="64 digits that the session must hold")
    add(
        "--require-level",
        metavar="LEVEL",
        type=_one_of(LEVELS),
        help="refuse less than gpu, gpu+cpu or measured",
    )
    add("--max-age", metavar="SECONDS", type=_seconds, help="refuse an attestation older than this")
    add("--max-batch", metavar="N", type=_answers, help="refuse one whose signature is shared by more than N answers")
    add(
        "--without-reference-values",
        action="store_true",
        help="do not compare the GPU's measurements (shown as a skip)",
    )
    add(
        "--without-revocation",
        action="store_true",
        help="do not ask whether certificates were revoked (shown as a skip)",
    )
    add(
        "--report-data",
        metavar="HEX",
        type=_report_data,
        help="of a processor's evidence: what it must have been given to sign, at most 64 bytes",
    )
    add(
        "--product",
        metavar="NAME",
        type=_one_of(PRODUCTS),
        action="append",
        help="of AMD's: accept Milan, Genoa or Turin; may be repeated; Genoa and Turin without it",
    )
    add(
        "--tcb",
        metavar="STATUS",
        type=_one_of(_TCB_STATUSES),
        action="append",
        help="of Intel's: accept this TCB status; may be repeated; UpToDate without it",
    )
    add("--reference", metavar="FILE", help="guests and launch files that you know: one of them is of level measured")
    add("--rim-url", metavar="URL", type=_url, help="another service of reference values than NVIDIA's")
    add("--ocsp-url", metavar="URL", type=_url, help="another OCSP service than NVIDIA's")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the report as JSON")
    form.add_argument("--quiet", action="store_true", help="the verdict alone")


_Refused = argparse.ArgumentTypeError

_ISO_8601 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?(Z|[+-]\d\d:\d\d)?)?", re.ASCII
)
_ENDPOINT = re.compile(r"/v1/[A-Za-z0-9_.~!$&'()*+,;=:@%/-]{1,250}")
_UNIX_SECONDS = re.compile(r"\d{9,12}", re.ASCII)
"""Fewer digits are a year or a day."""


def _time(value: str) -> datetime:
    """A day is one of UTC; a time without an offset is one of this machine's zone."""
    try:
        if _UNIX_SECONDS.fullmatch(value):
            return datetime.fromtimestamp(int(value), timezone.utc)
        match = _ISO_8601.fullmatch(value)
        if match is not None:
            year, month, day, hour, minute, second, fraction, zone = match.groups()
            instant = datetime(
                int(year),
                int(month),
                int(day),
                int(hour or 0),
                int(minute or 0),
                int(second or 0),
                _microseconds(fraction),
            )
            if hour is None or zone == "Z":
                return instant.replace(tzinfo=timezone.utc)
            return instant.astimezone() if zone is None else instant.replace(tzinfo=_zone(zone))
    except (ValueError, OverflowError, OSError):
        pass
    raise _Refused(f"{value}: not a time (ISO 8601 or Unix seconds)")


def _microseconds(fraction: str | None) -> int:
    return 0 if fraction is None else int(fraction[:6].ljust(6, "0"))


def _zone(text: str) -> timezone:
    offset = timedelta(hours=int(text[1:3]), minutes=int(text[4:6]))
    return timezone(-offset if text[0] == "-" else offset)


def _seconds(value: str) -> int:
    if re.fullmatch(r"[0-9]{1,12}", value) is None:
        raise _Refused(f"{value}: not a number of seconds")
    return int(value)


def _answers(value: str) -> int:
    if re.fullmatch(r"[1-9][0-9]{0,11}", value) is None:
        raise _Refused(f"{value}: not a number of answers")
    return int(value)


def _endpoint(value: str) -> str:
    if _ENDPOINT.fullmatch(value) is None:
        raise _Refused(f"{value}: not a path under /v1/, without its query")
    return value


def _challenge(value: str) -> str:
    if re.fullmatch(r"[0-9a-fA-F]{64}", value) is None:
        raise _Refused(f"{value}: not 64 hexadecimal digits")
    return value.lower()


def _report_data(value: str) -> str:
    if re.fullmatch(r"(?:[0-9a-fA-F]{2}){1,64}", value) is None:
        raise _Refused(f"{value}: not 1 to 64 bytes in hexadecimal digits")
    return value.lower()


def _url(value: str) -> str:
    if re.match(r"https?://.", value) is None:
        raise _Refused(f"{value}: not an http(s) URL")
    return value


def _one_of(among: Sequence[str]) -> Callable[[str], str]:
    def choose(value: str) -> str:
        if value not in among:
            raise _Refused(f"{value}: not one of {', '.join(among)}")
        return value

    return choose


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
    return CpuPolicy(products=args.product, tcb=args.tcb)


def _reference(file: str | None) -> Any:
    """@raises UsageError"""
    from .cpu.reference import read_reference

    if file is None:
        return None
    try:
        return read_reference(read_text(file))
    except TypeError as cause:
        raise UsageError(f"--reference {file}: {cause}") from cause
