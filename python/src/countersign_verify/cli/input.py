"""Reads the files that the command line names."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from pathlib import Path
from typing import Final

from .words import SAVE

MAX_INPUT_BYTES: Final = 256 * 1024 * 1024
"""Larger files are refused before they are read as text."""


class UsageError(Exception):
    """The command line cannot be followed. The message is one line, and so is what to do next."""

    def __init__(self, message: str, next_step: str | None = None) -> None:
        super().__init__(message)
        self.next_step = next_step


def is_many(path: str) -> bool:
    """A folder of files, or a file of lines."""
    return path.endswith(".jsonl") or Path(path).is_dir()


def unusable(path: str | Path, error: OSError) -> UsageError:
    """The error for a path that the file system refuses."""
    name = errno.errorcode.get(error.errno or 0, "unknown")
    if name == "EISDIR":
        return UsageError(f"{path}: a folder, not a file", "name a file that is in it")
    return UsageError(f"{path}: {'no such file or folder' if name == 'ENOENT' else f'cannot be used ({name})'}")


def read_bytes(file: str | Path) -> bytes:
    """:param file: ``-`` is standard input. :raises UsageError: when it cannot be read."""
    try:
        if file == "-":
            data = sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)
        else:
            with open(file, "rb") as opened:
                if os.fstat(opened.fileno()).st_size > MAX_INPUT_BYTES:
                    raise _too_large(file)
                data = opened.read(MAX_INPUT_BYTES + 1)
    except OSError as error:
        raise unusable(file, error) from error
    except ValueError as error:  # a name with a null character
        raise UsageError(f"{file}: cannot be used (EINVAL)") from error
    if len(data) > MAX_INPUT_BYTES:
        raise _too_large(file)
    return data


def _too_large(file: str | Path) -> UsageError:
    return UsageError(f"{file}: larger than 256 MiB, and so no answer", "give the file of one answer")


def read_text(file: str) -> str:
    """:raises UsageError: when it cannot be read, or is not UTF-8."""
    return decode(read_bytes(file), file)


def decode(data: bytes, file: str) -> str:
    """Rejects invalid UTF-8: a lossy decoding could equal another file's text."""
    if _is_utf_16(data):
        raise UsageError(f"{file}: a text in UTF-16, not in UTF-8", _UTF_8)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        for begin, what, step in _FORMS:
            if data.startswith(begin):
                raise UsageError(f"{file}: {what}, not a text", step) from error
        raise UsageError(f"{file}: not a text in UTF-8", SAVE) from error


_UTF_8: Final = "save it as UTF-8: Windows PowerShell's > writes UTF-16, curl.exe -o FILE does not"
_FORMS: Final = (
    (b"\x89PNG", "an image (PNG)", SAVE),
    (b"\x1f\x8b", "compressed (gzip)", "unpack it first, or ask with curl --compressed"),
)


def _is_utf_16(data: bytes) -> bool:
    """By its mark, or by the zero beside its first character: a text in UTF-8 has none there."""
    return data[:2] in (b"\xff\xfe", b"\xfe\xff") or (len(data) > 1 and (data[0] == 0) != (data[1] == 0))


def own_fault(error: Exception) -> str:
    """What is said of an error that nobody foresaw: where it was, and nothing that it holds."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}"
    return f"countersign: an error of this program, and no verdict: {where}; please report it"
