"""The command line, read: what to check, with what, and how to print it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, get_args

from ..common.version import __version__
from ..cpu.cpu_options import TcbStatus
from ..cpu.evidence.snp_report import PRODUCTS
from ..policy.options import LEVELS
from .input import UsageError

_TCB_STATUSES: tuple[str, ...] = get_args(TcbStatus)

_DESCRIPTION = """\
Checks that an NVIDIA GPU signed exactly what was asked and answered, and in a confidential VM its processor too.
"""

_EXAMPLES = """\
FILE may be - for standard input. One event of a stream by itself needs --event.

examples:
  countersign verify answer.json --request request.json
  curl -sN … | countersign verify - --request request.json --quiet && echo proven
  countersign verify answer.json --allow-simulated run/simulated-root/root.pem
  countersign verify answer.json --require-level gpu+cpu --max-age 300
  countersign verify answers/2026-11 --bundle bundles
  countersign verify answer.json --release OWNER/REPO --gateway https://gateway.example
  countersign expand answer.json --bundle bundle.json > whole.json
  countersign evidence evidence.json --nonce "$nonce"
  countersign collateral answer.json --into kept
  countersign verify answer.json --offline --collateral kept --at 2026-11-23T12:00:00Z

exit status: 0 valid (of several all), passed or expanded, 1 invalid (of several any), 2 usage, 3 incomplete (nothing was found wrong, but a required check could not run)
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(_reworded(self.prog.split()[-1], message))


def _reworded(command: str, message: str) -> str:
    """argparse's message in the words that the command has in npm."""
    option, _, rest = message.removeprefix("argument ").partition(": ")
    if message.startswith("the following arguments are required: "):
        return f"{command}: a FILE is needed" if "FILE" in message else f"{command} needs --into DIR"
    if message.startswith("unrecognized arguments: "):
        other = next((one for one in rest.split() if one.startswith("-")), None)
        return "one FILE at a time" if other is None else f"Unknown option '{other}'"
    if rest.startswith("expected one argument"):
        return f"Option '{option}' needs an argument; write =VALUE for one that begins with a dash"
    if rest.startswith("ignored explicit argument"):
        return f"Option '{option}' does not take an argument"
    return f"{option} {rest}" if message.startswith("argument --") else message


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


def _digest(value: str) -> str:
    if re.fullmatch(r"[0-9a-fA-F]{64}", value) is None:
        raise _Refused(f"{value}: not 64 hexadecimal digits")
    return value.lower()


def _chip(value: str) -> str:
    """SEV-SNP's chip id has 64 bytes, Intel's PPID 16."""
    if re.fullmatch(r"[0-9a-fA-F]{128}|[0-9a-fA-F]{32}", value) is None:
        raise _Refused(f"{value}: not 128 or 32 hexadecimal digits")
    return value.lower()


def _report_data(value: str) -> str:
    if re.fullmatch(r"(?:[0-9a-fA-F]{2}){1,64}", value) is None:
        raise _Refused(f"{value}: not 1 to 64 bytes in hexadecimal digits")
    return value.lower()


def _url(value: str) -> str:
    if re.match(r"https?://.", value) is None:
        raise _Refused(f"{value}: not an http(s) URL")
    return value


class Release(NamedTuple):
    """The release that is named."""

    repository: str | None
    """None: it is the project's own."""
    tag: str | None


_RELEASE = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100})?(?:@([A-Za-z0-9][A-Za-z0-9._+-]{0,99}))?")
"""As GitHub allows them: each part may be left out."""


def _release(value: str) -> Release:
    match = _RELEASE.fullmatch(value)
    if match is None:
        raise _Refused(f"{value}: not OWNER/REPO, OWNER/REPO@TAG or @TAG")
    return Release(match.group(1), match.group(2))


def _one_of(among: Sequence[str]) -> Callable[[str], str]:
    def choose(value: str) -> str:
        if value not in among:
            raise _Refused(f"{value}: not one of {', '.join(among)}")
        return value

    return choose


_DEMANDS: Final = ("alias_check", "ciphertext_hiding", "smt_off")

_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "request": {"metavar": "FILE", "help": "the request you sent; must equal the one that was signed"},
    "endpoint": {
        "metavar": "PATH",
        "type": _endpoint,
        "help": "the endpoint you asked, such as /v1/responses; must be the one that was signed",
    },
    "response": {"metavar": "FILE", "help": "the response you received, with or without its attestation"},
    "event": {
        "action": "store_true",
        "help": "FILE is one event of a stream by itself, which shows only a part of the response",
    },
    "allow-simulated": {"metavar": "ROOT", "help": "accept a simulated GPU under this test root (a PEM file)"},
    "offline": {"action": "store_true", "help": "no network: what is not given counts as unavailable"},
    "collateral": {"metavar": "DIR", "type": Path, "help": "a folder that 'countersign collateral' filled"},
    "rim-dir": {"metavar": "DIR", "type": Path, "help": "reference values (RIM files) from a folder"},
    "ocsp": {
        "metavar": "FILE",
        "action": "append",
        "default": [],
        "help": "an OCSP response, DER or base64; may be repeated",
    },
    "rim-url": {"metavar": "URL", "type": _url, "help": "another service for reference values than NVIDIA's"},
    "ocsp-url": {"metavar": "URL", "type": _url, "help": "another OCSP responder than NVIDIA's"},
    "at": {
        "metavar": "TIME",
        "type": _time,
        "help": "check as of this time (ISO 8601 or Unix seconds) instead of now",
    },
    "without-reference-values": {
        "action": "store_true",
        "help": "do not compare the GPU's measurements (shown as a skip)",
    },
    "without-revocation": {
        "action": "store_true",
        "help": "do not ask whether certificates were revoked (shown as a skip)",
    },
    "session": {
        "metavar": "FILE",
        "help": "the session of an attestation that names it and carries neither it nor a bundle",
    },
    "bundle": {
        "metavar": "FILE",
        "action": "append",
        "default": [],
        "help": "a bundle that a compact attestation names, or a folder of some (HASH.json); may be repeated",
    },
    "url": {
        "metavar": "URL",
        "type": _url,
        "help": "ask this service for the bundle, such as http://127.0.0.1:8080/v1",
    },
    "device": {
        "metavar": "HEX",
        "type": _digest,
        "action": "append",
        "help": "accept this GPU or switch only: 64 digits, as in a session's statement; may be repeated",
    },
    "challenge": {"metavar": "HEX", "type": _digest, "help": "64 digits that the session must hold"},
    "nonce": {
        "metavar": "HEX",
        "type": _digest,
        "help": "64 digits: the nonce that every device must have signed",
    },
    "require-level": {
        "metavar": "LEVEL",
        "type": _one_of(LEVELS),
        "help": "the least level that is accepted; without it, of an answer: gpu, and none with --allow-simulated",
    },
    "max-age": {"metavar": "SECONDS", "type": _seconds, "help": "refuse an attestation older than this"},
    "max-batch": {
        "metavar": "N",
        "type": _answers,
        "help": "refuse one whose signature is shared by more than N answers",
    },
    "report-data": {
        "metavar": "HEX",
        "type": _report_data,
        "help": "what the processor must have been given to sign, at most 64 bytes",
    },
    "product": {
        "metavar": "NAME",
        "type": _one_of(PRODUCTS),
        "action": "append",
        "help": "of AMD's: accept this product; may be repeated; Genoa and Turin without it. An answer must then be of level gpu+cpu",
    },
    "tcb": {
        "metavar": "STATUS",
        "type": _one_of(_TCB_STATUSES),
        "action": "append",
        "help": "of Intel's: accept this TCB status; may be repeated; UpToDate without it. An answer must then be of level gpu+cpu",
    },
    "chip": {
        "metavar": "HEX",
        "type": _chip,
        "action": "append",
        "help": "accept this processor only: AMD's chip id or Intel's PPID; may be repeated. An answer must then be of level gpu+cpu",
    },
    "demand": {
        "metavar": "NAME",
        "type": _one_of(_DEMANDS),
        "action": "append",
        "help": f"of AMD's: what the report must say ({', '.join(_DEMANDS)}); may be repeated. An answer must then be of level gpu+cpu",
    },
    "reference": {
        "metavar": "FILE",
        "help": "guests and launch files that you know: an answer must then be of level measured, from one of them",
    },
    "weights": {
        "metavar": "FILE|ROOT",
        "help": "the weights that the launch file must name: weights.json or their verity root. An answer must then be of level measured, for which --reference names the software",
    },
    "release": {
        "metavar": "[OWNER/REPO][@TAG]",
        "type": _release,
        "help": "take the list of --reference from this signed release: an answer must then be of level measured. Without @TAG any that a fresh status does not withdraw",
    },
    "trusted-root": {
        "metavar": "FILE",
        "help": "of --release: a Sigstore trusted root in place of the public one",
    },
    "gateway": {
        "metavar": "URL",
        "type": _url,
        "help": "of --release: ask this service for the release and its status, and not GitHub",
    },
    "into": {
        "metavar": "DIR",
        "type": Path,
        "required": True,
        "help": "the folder that is filled; made where it does not exist",
    },
    "verbose": {"action": "store_true", "help": "print every check, what is proven and what is not"},
    "json": {"action": "store_true", "help": "the report as JSON"},
    "quiet": {"action": "store_true", "help": "print nothing; the exit status is the answer"},
}

_SOURCES = ("offline", "collateral", "rim-dir", "ocsp")
_NVIDIA = ("rim-url", "ocsp-url", "at", "without-reference-values", "without-revocation")
_GPU = ("allow-simulated", *_SOURCES, *_NVIDIA)
_PROCESSOR = ("product", "tcb", "chip", "demand", "reference")
_RELEASE_OPTIONS = ("release", "trusted-root", "gateway")
_OUTPUT = ("verbose", "json", "quiet")

COMMANDS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "verify": (
        "check an answer: a saved answer or stream, or its attestation; or all of a folder or of a file of lines (.jsonl)",
        (
            *("request", "endpoint", "response", "event", *_GPU, "bundle", "session", "challenge", "device"),
            *("require-level", "max-age", "max-batch", *_PROCESSOR, "weights", *_RELEASE_OPTIONS, *_OUTPUT),
        ),
    ),
    "evidence": (
        "check bare GPU evidence: a JSON array of {arch, certificate, evidence, nonce}",
        (*_GPU, "nonce", "device", "require-level", *_OUTPUT),
    ),
    "cpu": (
        "check a processor's bare evidence: the JSON of an attestation's member cpu",
        ("allow-simulated", "at", "without-revocation", "report-data", *_PROCESSOR, *_OUTPUT),
    ),
    "session": (
        "check a session by itself: what GET /v1/attestation/session returned",
        (*_GPU, "challenge", "device", "require-level", *_PROCESSOR, "weights", *_RELEASE_OPTIONS, *_OUTPUT),
    ),
    "collateral": (
        "fetch and keep what the check of FILE needs, for use with --offline --collateral DIR",
        ("into", "bundle", "allow-simulated", *_NVIDIA, *_RELEASE_OPTIONS, "verbose", "json"),
    ),
    "expand": (
        "print FILE with its compact attestation made whole, so that it stands for itself; its signatures are not verified",
        ("bundle", "url"),
    ),
}
"""Each with its text and its options. Parsing and help are made from it."""


def read_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """``countersign FILE`` is ``countersign verify FILE``. :raises UsageError:"""
    if not argv:
        raise UsageError("a FILE or a command is needed")
    first = argv[0]
    if first == "help":
        argv = [*argv[1:2], "--help"]
    elif first not in COMMANDS and first not in ("-h", "--help", "-v", "--version"):
        _refuse_no_command(first, argv[1] if len(argv) > 1 else "-")
        argv = ["verify", *argv]
    _refuse_options_of_others(argv)
    args = _parser().parse_args(_with_values(argv))
    args.released = None
    for name in ("trusted-root", "gateway"):
        if getattr(args, name.replace("-", "_")) is not None and args.release is None:
            raise UsageError(f"--{name} is for the release that --release names")
    if args.release is not None and args.reference is not None:
        raise UsageError("--release and --reference: one list at a time")
    return args


def _with_values(argv: Sequence[str]) -> list[str]:
    """The one option whose value may be left out: at the end, or before another option."""
    following = [*argv[1:], "-"]
    return [
        "--release=" if one == "--release" and after.startswith("-") else one
        for one, after in zip(argv, following, strict=True)
    ]


_MAX_WRONG: Final = 2
"""How many characters of a command's name may be wrong before it counts as a FILE's name."""


def _refuse_no_command(first: str, second: str) -> None:
    """:raises UsageError: for a misspelt command, which is no FILE either."""
    if re.fullmatch("[a-z]+", first) is None or Path(first).exists():
        return
    near = min(COMMANDS, key=lambda name: _distance(first, name))
    if not second.startswith("-") or _distance(first, near) <= _MAX_WRONG:
        raise UsageError(f"there is no command {first}: the nearest is {near}")


def _distance(one: str, other: str) -> int:
    """How many characters must be added, removed or changed (Levenshtein)."""
    row = list(range(len(other) + 1))
    for i, character in enumerate(one[:64], 1):
        before, row = row, [i]
        for j, another in enumerate(other, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (character != another)))
    return row[-1]


def _refuse_options_of_others(argv: Sequence[str]) -> None:
    """argparse would name the option, and not the command that has it."""
    if not argv or argv[0] not in COMMANDS:
        return
    for name in (one[2:].split("=", 1)[0] for one in argv if one.startswith("--")):
        owners = [command for command, (_, options) in COMMANDS.items() if name in options]
        if owners and argv[0] not in owners:
            raise UsageError(f"{argv[0]} has no --{name}, which is of {', '.join(owners)}")


def _parser() -> argparse.ArgumentParser:
    whole = _described(_Parser(prog="countersign", allow_abbrev=False), _DESCRIPTION)
    whole.add_argument("-v", "--version", action="version", version=f"countersign {__version__}")
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (words, options) in COMMANDS.items():
        command = _described(commands.add_parser(name, help=words, allow_abbrev=False), words)
        command.add_argument("file", metavar="FILE")
        for option, how in _OPTIONS.items():
            if option in options:
                command.add_argument(f"--{option}", **how)
            else:
                command.set_defaults(**{option.replace("-", "_"): _absent(how)})
    return whole


def _absent(how: dict[str, Any]) -> Any:
    return False if how.get("action") == "store_true" else how.get("default")


def _described(parser: argparse.ArgumentParser, words: str) -> argparse.ArgumentParser:
    parser.description = words
    parser.epilog = _EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    return parser
