"""Reads the files that the command line names."""

from __future__ import annotations

import errno
import sys
import traceback
from pathlib import Path
from typing import Final

MAX_INPUT_BYTES: Final = 256 * 1024 * 1024
"""Larger files are refused before they are read as text."""


class UsageError(Exception):
    """The command line cannot be followed. The message is one line."""


def unusable(path: str | Path, error: OSError) -> UsageError:
    """The error for a path that the file system refuses."""
    name = errno.errorcode.get(error.errno or 0, "unknown")
    return UsageError(f"{path}: {'no such file or folder' if name == 'ENOENT' else f'cannot be used ({name})'}")


def read_bytes(file: str | Path) -> bytes:
    """:param file: ``-`` is standard input. :raises UsageError: when it cannot be read."""
    try:
        if file == "-":
            data = sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)
        else:
            with open(file, "rb") as opened:
                data = opened.read(MAX_INPUT_BYTES + 1)
    except OSError as error:
        raise unusable(file, error) from error
    except ValueError as error:  # a name with a null character
        raise UsageError(f"{file}: cannot be used (EINVAL)") from error
    if len(data) > MAX_INPUT_BYTES:
        raise UsageError(f"{file}: larger than {MAX_INPUT_BYTES} bytes")
    return data


def read_text(file: str) -> str:
    """:raises UsageError: when it cannot be read, or is not UTF-8."""
    return decode(read_bytes(file), file)


def decode(data: bytes, file: str) -> str:
    """Rejects invalid UTF-8: a lossy decoding could equal another file's text."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: not a text in UTF-8") from error


def own_fault(error: Exception) -> str:
    """What is said of an error that nobody foresaw: where it was, and nothing that it holds."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}"
    return f"countersign: an error of this program, and no verdict: {where}; please report it"
