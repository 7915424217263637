"""The transcript of a run: one record for each proven exchange, and the file that keeps them. `countersign transcript` of npm checks it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

from ..binding.exchange import attestation_of
from ..binding.input import attestation_in
from ..common.bundles import Bundles
from ..common.checks import Limits
from ..policy.options import Verified
from ..proto.bytes import utf8
from ..proto.strict_json import parse, stringify


@dataclass(frozen=True)
class TranscriptRecord:
    """One proven exchange. Its request and its answer are in the attestation's raw."""

    endpoint: str
    attestation: dict[str, Any] = field(repr=False)
    """As it was received: a compact one names its bundle."""
    bundle: str | None = field(repr=False)
    """The exact text of that bundle, a line; None: the attestation is whole."""


TranscriptSink = Callable[[TranscriptRecord], object]
"""Called once for each proven exchange. The answer is handed over when it has returned, and not if it raises."""


def record_of(answer: bytes, verified: Verified, bundles: Bundles, *, stream: bool) -> TranscriptRecord:
    endpoint, attestation = verified.exchange.endpoint, verified.attestation
    text = attestation_of(answer, Limits()) if stream else attestation_in(answer.decode("utf-8"))
    received: Any = parse(text or "{}")
    received = parse(received) if isinstance(received, str) else received
    name = received.get("bundle")
    bundle = bundles.find(name) if isinstance(name, str) else None
    whole = attestation.to_dict()
    if bundle is None or "\n" in bundle.text or "\r" in bundle.text:
        return TranscriptRecord(endpoint, whole, None)
    own = {member: received[member] for member in ("token", "batch", "cpu", "bundle") if member in received}
    evidence = {"evidence": whole["evidence"]} if "token" in own and "evidence" in whole else {}
    return TranscriptRecord(endpoint, {"raw": whole["raw"], "nonce": whole["nonce"], **own, **evidence}, bundle.text)


_MAX_BYTES: Final = 1024**3
_MAX_BUNDLES: Final = 1000
_PART_BYTES: Final = 64 * 1024
_BEGINNINGS: Final = (b'{"raw":', b'{"token":', b'{"evidence":', b'{"cpu":', b'{"redacted":')
"""How the lines begin that are written here, and those of `--redact`."""


class TranscriptFile:
    """
    A sink that appends to a file, which one process writes at a time and only its user may read. A line that an earlier process could not
    finish is removed: its answer was never handed over. It raises where the file is full, cannot be written, or is not a transcript.

    .. code-block:: python

        client = openai.OpenAI(base_url=url, http_client=verifying_client(transcript=TranscriptFile("run.jsonl")))
    """

    def __init__(self, path: str | os.PathLike[str], *, max_bytes: int = _MAX_BYTES) -> None:
        if max_bytes < 1:
            raise TypeError("max_bytes is not a number from 1")
        self._path = path
        self._max_bytes = max_bytes
        self._written: dict[str, None] = {}
        self._file: BinaryIO | None = None
        self._lock = threading.Lock()

    def __call__(self, record: TranscriptRecord) -> None:
        with self._lock:
            try:
                self._append(record)
            except BaseException:
                # The file is opened anew, which removes what was written of the line.
                self._end()
                raise

    def close(self) -> None:
        """A later exchange opens the file again."""
        with self._lock:
            self._end()

    def _append(self, record: TranscriptRecord) -> None:
        if self._file is None:
            self._file = self._opened()
        name = str(record.attestation.get("bundle"))
        is_known = record.bundle is None or name in self._written
        lines = utf8(("" if is_known else f"{record.bundle}\n") + stringify(record.attestation) + "\n")
        if os.fstat(self._file.fileno()).st_size + len(lines) > self._max_bytes:
            raise OSError(f"the transcript is full ({self._max_bytes} bytes)")
        if self._file.write(lines) != len(lines):
            raise OSError("the line could not be written to its end")
        os.fsync(self._file.fileno())
        if not is_known:
            self._written[name] = None
            if len(self._written) > _MAX_BUNDLES:
                del self._written[next(iter(self._written))]

    def _opened(self) -> BinaryIO:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
        file: BinaryIO = os.fdopen(os.open(self._path, flags, 0o600), "r+b", buffering=0)
        try:
            _mend(file)
        except BaseException:
            file.close()
            raise
        return file

    def _end(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _mend(file: BinaryIO) -> None:
    """Removes a last line that does not end. @raises OSError for what is not a transcript"""
    size = os.fstat(file.fileno()).st_size
    if size == 0:
        return
    file.seek(0)
    head = file.read(16)
    if not any(head.startswith(one) or one.startswith(head) for one in _BEGINNINGS):
        raise OSError("the file is not a transcript, so nothing is written to it")
    end = size
    while end > 0:
        begin = max(0, end - _PART_BYTES)
        file.seek(begin)
        at = file.read(end - begin).rfind(b"\n")
        if at >= 0 or begin == 0:
            if begin + at + 1 < size:
                os.ftruncate(file.fileno(), begin + at + 1)
            return
        end = begin
