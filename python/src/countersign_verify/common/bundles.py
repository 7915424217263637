"""Keeps bundles, which compact attestations name by their SHA-256 (docs/attestation.md §9): their exact texts, a bounded number of them."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from hashlib import sha256
from threading import Lock
from typing import Final

import httpx

from ..proto.bytes import is_longer, length, utf8
from .checks import CheckFailure


@dataclass(frozen=True, eq=False)
class Bundle:
    """It is one object as long as it is kept."""

    text: str = field(repr=False)


Load = Callable[[str], str | None]
"""Gets a bundle by its SHA-256, as from `GET /v1/attestation/bundles/{sha256}`; None, or an exception: it is unavailable."""

_MAX_BUNDLES: Final = 64
MAX_BUNDLE_CHARACTERS: Final = 2 * 1024 * 1024
"""A bundle of 64 devices is shorter; one of a GPU has 24,000."""
_MAX_CHARACTERS: Final = 16 * 1024 * 1024


_TIMEOUT_SECONDS: Final = 30


def fetch_bundle(base_url: str, sha256: str) -> str | None:
    """
    Asks a service for a bundle, once, for at most 30 s: for `Bundles(partial(fetch_bundle, base_url))`.
    @param base_url with `/v1`, as clients are given it.
    Returns its text, unchecked; None where the service does not have it.
    @raises httpx.HTTPError, ValueError
    """
    ends = time.monotonic() + _TIMEOUT_SECONDS
    url = f"{base_url.rstrip('/')}/attestation/bundles/{sha256}"
    with httpx.stream("GET", url, timeout=_TIMEOUT_SECONDS, follow_redirects=True) as response:
        if response.status_code != 200:
            return None
        data = bytearray()
        for part in response.iter_bytes():
            data += part
            if len(data) > MAX_BUNDLE_CHARACTERS or time.monotonic() > ends:
                raise ValueError("a bundle is too large or comes too slowly")
        return data.decode("utf-8")


class Bundles:
    """A source of bundles, which it keeps: the least recently used are dropped first. Threads may share one."""

    def __init__(self, load: Load | None = None) -> None:
        self._load = load
        self._kept = _Kept()

    def add(self, text: str) -> str:
        """
        Keeps a bundle's exact text, such as that of a saved file. Returns its SHA-256 in hex.
        @raises CheckFailure: bundle_malformed
        """
        name = _sha256(text)
        self._kept.keep(name, text)
        return name

    def find(self, sha256: str) -> Bundle | None:
        """
        None: it is unavailable. Calls at the same time share one `load`.
        @raises CheckFailure: bundle_mismatch, bundle_malformed
        """
        while True:
            known, loading, is_first = self._kept.look_up(sha256)
            if known is not None:
                return known
            if is_first:
                self._load_into(loading, sha256)
                return loading.result()
            try:
                return loading.result()
            except CancelledError:  # whoever loaded it was interrupted
                continue

    def loading(self, load: Load) -> Bundles:
        """The same bundles, those that are not kept being got in another way."""
        other = Bundles(load)
        other._kept = self._kept
        return other

    def _load_into(self, loading: Future[Bundle | None], sha256: str) -> None:
        try:
            loading.set_result(self._loaded(sha256))
        except CheckFailure as failure:
            loading.set_exception(failure)
        except BaseException:
            loading.cancel()
            raise
        finally:
            self._kept.end(sha256)

    def _loaded(self, name: str) -> Bundle | None:
        """Only a text with this hash is kept, whoever serves it."""
        try:
            text = None if self._load is None else self._load(name)
        except CancelledError:
            raise
        except Exception:
            return None
        if text is None:
            return None
        if _sha256(text) != name:
            raise CheckFailure("bundle_mismatch", "what is served for the bundle has another SHA-256")
        return self._kept.keep(name, text)


def _sha256(text: str) -> str:
    """@raises CheckFailure: bundle_malformed"""
    if is_longer(text, MAX_BUNDLE_CHARACTERS):
        raise CheckFailure("bundle_malformed", f"it has more than {MAX_BUNDLE_CHARACTERS} characters")
    return sha256(utf8(text)).hexdigest()


class _Kept:
    def __init__(self) -> None:
        self._bundles: OrderedDict[str, Bundle] = OrderedDict()
        self._loading: dict[str, Future[Bundle | None]] = {}
        self._characters = 0
        self._lock = Lock()

    def look_up(self, name: str) -> tuple[Bundle | None, Future[Bundle | None], bool]:
        """The bundle; or what will be it, and whether it is the caller who loads it."""
        with self._lock:
            known = self._bundles.get(name)
            if known is not None:
                self._bundles.move_to_end(name)
            is_first = name not in self._loading
            loading = self._loading.get(name) or Future()
            if known is None:
                self._loading[name] = loading
            return known, loading, is_first

    def end(self, name: str) -> None:
        with self._lock:
            self._loading.pop(name, None)

    def keep(self, name: str, text: str) -> Bundle:
        with self._lock:
            bundle = self._bundles.get(name)
            if bundle is None:
                bundle = Bundle(text)
                self._characters += length(text)
            self._bundles[name] = bundle
            self._bundles.move_to_end(name)
            while len(self._bundles) > _MAX_BUNDLES or self._characters > _MAX_CHARACTERS:
                _, dropped = self._bundles.popitem(last=False)
                self._characters -= length(dropped.text)
            return bundle
