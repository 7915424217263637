"""
Reference values and OCSP responses for the command line: from folders and files, from the network, or both. A folder of
kept files is the same for the TypeScript verifier: RIM documents in `rim/`, OCSP responses in `ocsp/`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..gpu.collateral import CollateralSource, create_collateral
from ..proto.bytes import EncodingError, from_base64
from ..x509.certificate import without_space
from .input import UsageError, read_bytes, unusable

_RIM_FOLDER = "rim"
_OCSP_FOLDER = "ocsp"
_MAX_FILES = 1024
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]")
_NAME_DIGITS = 40


@dataclass(frozen=True)
class Folders:
    collateral: str | Path | None
    """A folder that `fetching_into` filled."""
    rim_dir: str | Path | None
    """A folder of RIM documents."""
    ocsp: tuple[str | Path, ...]
    """Files with an OCSP response each: DER, or base64 of it."""


@dataclass(frozen=True)
class Services:
    online: bool
    rim_url: str | None
    ocsp_url: str | None
    on_fetch: Callable[[str], None] | None
    """Called with the URL before each request."""


def collateral_from(folders: Folders, services: Services) -> CollateralSource:
    """@raises UsageError: when a folder or a file cannot be read."""
    rims: list[bytes] = []
    ocsp = [der_or_base64(read_bytes(file)) for file in folders.ocsp]
    if folders.rim_dir is not None:
        rims += _files_in(Path(folders.rim_dir))
    if folders.collateral is not None:
        kept = Path(folders.collateral)
        rims += _files_in(kept / _RIM_FOLDER)
        ocsp += map(der_or_base64, _files_in(kept / _OCSP_FOLDER))
    return create_collateral(rims=rims, ocsp=ocsp, **_network(services))


def fetching_into(folder: str | Path, services: Services, on_kept: Callable[[Path], Any]) -> CollateralSource:
    """
    Fetches and keeps: what a check needed is then in `folder`, for `collateral_from`. `on_kept` is called with each
    file's path.
    @raises UsageError: when `folder` cannot be made or written to.
    """
    folders = {kind: Path(folder) / name for kind, name in (("rim", _RIM_FOLDER), ("ocsp", _OCSP_FOLDER))}
    for one in folders.values():
        try:
            one.mkdir(parents=True, exist_ok=True)
            if not os.access(one, os.W_OK):
                raise PermissionError(13, "not writable")
        except OSError as error:
            raise unusable(one, error) from error

    def keep(kind: Literal["rim", "ocsp"], name: str, data: bytes) -> None:
        file = f"{_NOT_IN_NAMES.sub('_', name)}.xml" if kind == "rim" else f"{name[-_NAME_DIGITS:]}.der"
        path = folders[kind] / file
        path.write_bytes(data)
        on_kept(path)

    return create_collateral(on_fetched=keep, **_network(services))


def _network(services: Services) -> dict[str, Any]:
    return {
        "online": services.online,
        "rim_url": services.rim_url,
        "ocsp_url": services.ocsp_url,
        "on_fetch": services.on_fetch,
    }


def _files_in(folder: Path) -> list[bytes]:
    try:
        paths = sorted(folder.iterdir())
        if len(paths) > _MAX_FILES:
            raise UsageError(f"{folder}: more than {_MAX_FILES} files")
        files = [path for path in paths if path.is_file()]
    except OSError as error:
        raise unusable(folder, error) from error
    return [read_bytes(path) for path in files]


def der_or_base64(data: bytes) -> bytes:
    """OCSP responses are kept as DER, or as base64 of it."""
    if data[:1] == b"\x30":
        return data
    try:
        return from_base64(without_space(data.decode("utf-8", "replace")))
    except EncodingError:
        return data
