"""The kinds of files: which command takes each, and which options it can answer. The caller names the command, and never the file."""

from __future__ import annotations

import argparse
from typing import Any, Final, Literal, NamedTuple

from ..binding.bundle import BUNDLE_MEMBERS
from ..binding.exchange import is_transcript
from ..binding.input import kind_of
from ..common.bounded_json import parse_bounded, unquoted
from ..common.checks import CheckFailure, Limits
from ..policy.options import Level
from ..proto.stream.events import is_final_response
from .input import MAX_INPUT_BYTES, UsageError

FileKind = Literal["attestation", "answer", "event", "stream", "evidence", "cpu", "session", "bundle", "unknown"]
"""``unknown``: no kind, or a text over the limits. The command's own reader reports what is wrong with it."""

INPUT_LIMITS: Final = Limits(max_characters=MAX_INPUT_BYTES)
"""A file that may be read may be checked: a gateway attests more than the library takes by default."""


class _Row(NamedTuple):
    words: str
    command: str
    """The command that checks it."""
    unfit: tuple[str, ...] = ()
    """The options of that command that it cannot answer."""


_ANSWERS: Final[dict[FileKind, _Row]] = {
    "attestation": _Row("an attestation by itself", "verify", ("event",)),
    "answer": _Row("a whole answer", "verify", ("event",)),
    "event": _Row("an event of a stream", "verify"),
    "stream": _Row("a stream", "verify", ("event",)),
}
_KINDS: Final[dict[FileKind, _Row]] = {
    **_ANSWERS,
    "evidence": _Row("evidence of devices", "evidence", ("release",)),
    "cpu": _Row("a processor's evidence", "cpu"),
    "session": _Row("a session", "session"),
}
_AMD: Final = _Row("AMD's evidence", "cpu", ("tcb",))
_INTEL: Final = _Row("Intel's evidence", "cpu", ("product",))
_ALSO: Final = {"collateral": ("verify", "evidence", "session"), "expand": ("verify",)}
"""What a command takes that checks more than one kind."""
_OF_PROCESSORS: Final = ("session", "challenge", "product", "tcb", "chip", "demand", "reference", "weights", "release")
"""The options that only a processor's evidence can meet: what they name must be found."""


def is_answer(kind: FileKind) -> bool:
    return kind in _ANSWERS


def given_options(args: argparse.Namespace) -> list[str]:
    """The names of the options on the command line."""
    given = (name for name, value in vars(args).items() if value is not None and value is not False and value != [])
    return [name.replace("_", "-") for name in given]


def refuse_misfit(args: argparse.Namespace, kind: FileKind) -> None:
    """@raises UsageError naming the command that checks such a file, or the option that it cannot answer."""
    if kind == "unknown":
        return
    if kind == "bundle":
        beside = "name it beside its attestation, with --bundle FILE"
        raise UsageError(f"{args.command} does not take a bundle: {beside}")
    row = _KINDS[kind]
    if row.command not in _ALSO.get(args.command, (args.command,)):
        raise UsageError(f"{args.command} does not take {row.words}: countersign {row.command} FILE checks it")
    _refuse_options(args, row)


def refuse_other_processor(args: argparse.Namespace, type_: str | None) -> None:
    """:param type_: of the processor; None: none was read. :raises UsageError:"""
    if type_ is not None:
        _refuse_options(args, _INTEL if type_.endswith("TDX") else _AMD)


def _refuse_options(args: argparse.Namespace, row: _Row) -> None:
    name = next((one for one in given_options(args) if one in row.unfit), None)
    if name is not None:
        raise UsageError(f"--{name} has no use for {row.words}")


def demands_processor(args: argparse.Namespace) -> bool:
    return any(name in _OF_PROCESSORS for name in given_options(args))


def least_level(args: argparse.Namespace) -> Level:
    """Evidence and sessions are about no answer: any level of them passes."""
    if args.require_level is not None:
        return args.require_level  # type: ignore[no-any-return]
    if args.command in ("evidence", "session") or args.allow_simulated is not None:
        return "none"
    if any(one is not None for one in (args.reference, args.weights, args.release)):
        return "measured"
    return "gpu+cpu" if args.product or args.tcb or args.chip or args.demand else "gpu"


def passed_words(kind: FileKind, level: str | None, simulated: bool = False) -> str:
    """The last line for what passes: only an answer is valid. :param level: None of a processor's evidence, which has none."""
    if is_answer(kind):
        return f"VALID (level: {level})"
    what = "a file" if kind in ("unknown", "bundle") else _KINDS[kind].words
    how = (" (simulated)" if simulated else "") if level is None else f" (level: {level})"
    return f"PASSED: {what}, about no answer{how}"


def file_kind_of(text: str) -> FileKind:
    """By its shape alone."""
    if is_transcript(text):
        return "stream"
    kind = kind_of(text, INPUT_LIMITS)
    return _answer_kind_of(parsed(text)) if kind == "attestation" else kind


def _answer_kind_of(value: Any) -> FileKind:
    if not isinstance(value, dict):
        return "unknown"
    if _is_bundle(value):
        return "bundle"
    if is_final_response(value.get("type")) and isinstance(value.get("response"), dict):
        return "event"
    if "attestation" not in value:
        return "attestation" if "raw" in value else "unknown"
    return "event" if value.get("type") == "message_delta" or _is_chunk(value) else "answer"


def _is_bundle(value: dict[str, Any]) -> bool:
    return ("token" in value or "cpu" in value) and all(name in BUNDLE_MEMBERS for name in value)


def _is_chunk(value: dict[str, Any]) -> bool:
    """A text completion looks the same whole and as a chunk: the caller knows which of them it is."""
    choices = value.get("choices")
    if value.get("object") == "chat.completion" or not isinstance(choices, list):
        return False
    return all(not isinstance(choice, dict) or "message" not in choice for choice in choices)


def parsed(text: str) -> Any:
    try:
        return parse_bounded(unquoted(text, INPUT_LIMITS), INPUT_LIMITS)
    except CheckFailure:
        return None
