"""`--release`: from OWNER/REPO@TAG to the texts of a bundle and a status, from a gateway, a folder or the release's assets on GitHub."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

import httpx

from ..common.release_options import ReleaseOptions
from ..proto.strict_json import JsonTextError, duplicate_member, parse, stringify
from ..release.project import PROJECT
from ..release.trusted_root import read_trusted_root
from .input import UsageError, read_text, unusable

_FILE: Final = "release.json"
"""In a folder of `countersign collateral`, and beside a gateway's keys: {"bundle":…,"status":…}."""
_PATH: Final = "/.well-known/countersign/release"
_BUNDLE_ASSET: Final = "release.sigstore.json"
_STATUS_ASSET: Final = "release-status.sigstore.json"
_STATUS_TAG: Final = "release-status"
"""The release on GitHub that has nothing but the newest status."""
_MAX_BYTES: Final = 1024 * 1024 + 4096
"""Two bundles of the largest size."""
_TIMEOUT_SECONDS: Final = 30.0

_Notify = Callable[[str], None]


class _Texts(NamedTuple):
    bundle: str | None
    status: str | None


def release_options(args: argparse.Namespace, notify: _Notify) -> ReleaseOptions:
    """The option `release` of the verifier. @raises UsageError"""
    repository, tag = args.release
    if repository is None and PROJECT is not None:
        repository = PROJECT.repository
    if repository is None:
        raise UsageError("--release: the project has no public repository yet; name one: --release OWNER/REPO")
    root = None if args.trusted_root is None else _read_root(args.trusted_root)
    bundle, status = _texts(args, repository, tag, notify)
    return ReleaseOptions(bundle=bundle, status=status, repository=repository, tag=tag, trusted_root=root)


def keep_release(release: ReleaseOptions, folder: Path) -> Path:
    """Keeps what was found for `--collateral DIR`. @raises UsageError"""
    path = folder / _FILE
    try:
        path.write_text(f'{{"bundle":{release.bundle},"status":{release.status or "null"}}}\n', "utf-8")
    except OSError as error:
        raise unusable(path, error) from error
    return path


def _texts(args: argparse.Namespace, repository: str, tag: str | None, notify: _Notify) -> _Texts:
    if args.gateway is not None and not args.offline:
        served = _fetched(re.sub(r"(?:/v1)?/*\Z", "", args.gateway, count=1) + _PATH, notify)
        if served is not None:
            return _parts_of(served, args.gateway)
    if args.collateral is not None:
        file = Path(args.collateral) / _FILE
        if file.exists():
            return _parts_of(read_text(str(file)), str(file))
    if args.offline:
        return _Texts(None, None)
    releases = f"https://github.com/{repository}/releases"
    assets = f"{releases}/latest/download" if tag is None else f"{releases}/download/{quote(tag, safe='')}"
    return _Texts(
        _fetched(f"{assets}/{_BUNDLE_ASSET}", notify),
        _fetched(f"{releases}/download/{_STATUS_TAG}/{_STATUS_ASSET}", notify),
    )


def _fetched(url: str, notify: _Notify) -> str | None:
    """None: it is not to be had there. @raises UsageError"""
    notify(url)
    ends = time.monotonic() + _TIMEOUT_SECONDS
    data = bytearray()
    try:
        with httpx.stream("GET", url, timeout=_TIMEOUT_SECONDS, follow_redirects=True) as response:
            if not response.is_success:
                return None
            for part in response.iter_bytes():
                data += part
                if len(data) > _MAX_BYTES:
                    raise UsageError(f"{url}: an answer of more than {_MAX_BYTES} bytes")
                if time.monotonic() > ends:
                    return None
    except (httpx.HTTPError, httpx.InvalidURL, OSError):
        return None
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as cause:
        raise UsageError(f"{url}: not a text in UTF-8") from cause


def _parts_of(text: str, source: str) -> _Texts:
    """@raises UsageError"""
    try:
        value = parse(text)
        if duplicate_member(text) is not None:
            raise JsonTextError("a member appears twice")
    except JsonTextError as cause:
        raise UsageError(f"{source}: the release there is not JSON, or names a member twice") from cause
    if not isinstance(value, dict) or not isinstance(value.get("bundle"), dict):
        raise UsageError(f"{source}: there is no release's bundle in it")
    status = value.get("status")
    return _Texts(stringify(value["bundle"]), None if status is None else stringify(status))


def _read_root(file: str) -> str:
    """@raises UsageError"""
    text = read_text(file)
    try:
        read_trusted_root(text)
    except TypeError as cause:
        raise UsageError(f"--trusted-root {file}: {cause}") from cause
    return text
