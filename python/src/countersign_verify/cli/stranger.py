"""A file that is no proof: what it seems to be instead, and what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from ..binding.exchange import is_transcript
from .kinds import parsed
from .words import SAVE

_MAX_SCANNED: Final = 4 * 1024 * 1024
"""Only a text up to this size is looked at closely."""
_WEB_PAGE: Final = re.compile(r"\s*<(!doctype|html|head|body|\?xml)\b", re.IGNORECASE)
_CODE: Final = re.compile(r"[\w.-]{1,64}", re.ASCII)
"""A code of the service may be printed; other words of its could be anything."""
_UNREADABLE: Final = ("not_json", "cpu_malformed", "evidence_malformed")
"""What a reader says of a text that is not JSON."""
_OF_ANSWERS: Final = ("choices", "content", "output", "data")
"""The members of answers, by which an answer is known whose service made no proof."""


@dataclass(frozen=True)
class Stranger:
    sentence: str
    next: str | None
    """None: the sentence says it."""


def stranger_in(text: str, code: str | None) -> Stranger | None:
    """:param code: of the check that failed first. :returns: None for a file that is one of ours, or of no known kind."""
    if code in _UNREADABLE:
        return _unreadable(text)
    if code != "not_an_attestation":
        return None
    if not is_transcript(text):
        return _answer(parsed(text))
    if '"attestation"' in text:
        return None
    return Stranger('the stream carries no proof; ask with "tee": true, and save it to its end', None)


def _unreadable(text: str) -> Stranger | None:
    text = text.removeprefix("\ufeff")
    head = text[:256]
    if len(text) < 256 and not head.strip():
        return Stranger("the file is empty", SAVE)
    if _WEB_PAGE.match(head):
        return Stranger("the file is a web page, not an answer", "ask the service's API, whose paths begin with /v1/")
    if _is_cut_off(text):
        return Stranger("the file breaks off before its end", "ask again, and save the whole answer")
    return None


def _is_cut_off(text: str) -> bool:
    """Whether JSON begins that does not end."""
    if not text[:256].lstrip().startswith(("{", "[")) or len(text) > _MAX_SCANNED:
        return False
    depth, quoted = 0, False
    characters = iter(text)
    for character in characters:
        if quoted and character == "\\":
            next(characters, None)
        elif character == '"':
            quoted = not quoted
        elif not quoted and character in "{[":
            depth += 1
        elif not quoted and character in "}]":
            depth -= 1
    return quoted or depth > 0


def _answer(value: Any) -> Stranger | None:
    if not isinstance(value, dict) or "attestation" in value:
        return None
    error = _error(value.get("error"))
    if error is not None:
        return Stranger(
            f"the file is an error of the service{f' ({error})' if error else ''}, not an answer",
            "do what the error says, and ask again",
        )
    if not any(isinstance(value.get(name), list) for name in _OF_ANSWERS):
        return None
    return Stranger('the answer carries no proof; ask with "tee": true', None)


def _error(error: Any) -> str | None:
    """The code of an error of OpenAI's or Anthropic's form, or an empty text; None: it is none."""
    if isinstance(error, str):
        return ""
    if not isinstance(error, dict):
        return None
    names = (error.get("code"), error.get("type"))
    return next((one for one in names if isinstance(one, str) and _CODE.fullmatch(one)), "")
