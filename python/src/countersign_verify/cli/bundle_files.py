"""Bundles from the files and folders that the command line names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Final

from ..common.bundles import MAX_BUNDLE_CHARACTERS, Bundles, Load
from ..common.lru import LruMap
from ..proto.bytes import utf8
from .input import UsageError, read_text, unusable
from .kinds import file_kind_of

_MAX_INDEXED: Final = 100_000
"""Bundles that are known by their content; more stand in files of a folder that are named HASH.json."""


def bundles_in(paths: Sequence[str], ask: Load | None = None) -> Bundles:
    """
    @param ask where no file has the bundle.
    @raises UsageError for a path that cannot be used, and for a file that is no bundle.
    """
    folders = [path for path in paths if _is_folder(path)]
    files = [path for path in paths if path not in folders]
    for file in files:
        if text_of_bundle(file) is None:
            raise UsageError(f"--bundle {file}: not a bundle")
    lock = Lock()
    index: list[LruMap[str, str]] = []

    def path_of(name: str) -> str | None:
        """Only where a folder has no file of the bundle's name is every file of it read."""
        named = next(
            (path for folder in folders if (path := os.path.join(folder, f"{name}.json")) and _is_file(path)), None
        )
        if named is not None or not paths:
            return named
        with lock:
            if not index:
                index.append(_index_of(files, folders))
        return index[0].get(name)

    def load(name: str) -> str | None:
        path = path_of(name)
        if path is not None:
            return read_text(path)
        return None if ask is None else ask(name)

    return Bundles(load)


def _is_folder(path: str) -> bool:
    try:
        return Path(path).stat() is not None and Path(path).is_dir()
    except OSError as error:
        raise unusable(path, error) from error


def _is_file(path: str) -> bool:
    return os.path.isfile(path)


def _index_of(files: Sequence[str], folders: Sequence[str]) -> LruMap[str, str]:
    index: LruMap[str, str] = LruMap(_MAX_INDEXED)
    for path in (*(file for folder in folders for file in files_under(folder)), *files):
        text = text_of_bundle(path)
        if text is not None:
            index.set(sha256(utf8(text)).hexdigest(), path)
    return index


def text_of_bundle(path: str) -> str | None:
    """None: it is none."""
    try:
        if Path(path).stat().st_size > MAX_BUNDLE_CHARACTERS:
            return None
        text = read_text(path)
    except (OSError, UsageError):
        return None
    return text if file_kind_of(text) == "bundle" else None


def files_under(folder: str) -> Iterator[str]:
    """The files of a folder and of those in it, one at a time, in the file system's order. Hidden ones and links are left out."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from files_under(entry.path)
            elif entry.is_file(follow_symlinks=False):
                yield entry.path
