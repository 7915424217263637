"""The command line, read: what to check, with what, and how to print it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import NoReturn, get_args

from . import __version__
from .cpu.options import PRODUCTS, TcbStatus
from .files import UsageError
from .options import LEVELS

_TCB_STATUSES: tuple[str, ...] = get_args(TcbStatus)

_DESCRIPTION = """\
Checks that an NVIDIA GPU signed exactly what was asked and answered, and in a confidential VM its processor too.
"""

_EXAMPLES = """\
FILE is an attestation, an answer that carries one, a saved event stream, a session, bare GPU evidence (a JSON list)
or a processor's evidence; which of them is seen from what is in it. - is standard input. One event of a stream by
itself needs --event.

examples:
  countersign verify answer.json --request request.json
  curl -sN … | countersign verify -
  countersign verify answer.json --allow-simulated run/simulated-root/root.pem
  countersign verify answer.json --require-level gpu --max-age 300 --quiet
  countersign collateral answer.json --into kept
  countersign verify answer.json --offline --collateral kept --at 2026-11-23T12:00:00Z

exit status: 0 valid, 1 invalid, 2 usage, 3 incomplete (nothing was found wrong, but a required check could not run)
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def parser() -> argparse.ArgumentParser:
    whole = _Parser(
        prog="countersign",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    whole.add_argument("--version", action="version", version=f"countersign {__version__}")
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
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
    return whole


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
    add(
        "--event",
        action="store_true",
        help="FILE is one event of a stream by itself, which shows only a part of the response",
    )
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
