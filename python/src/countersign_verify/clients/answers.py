"""One exchange of a verifying client: the request as it is sent, what proves its answer, and the proofs that were seen."""

from __future__ import annotations

import re
import secrets
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from types import ModuleType
from typing import Any, Final

import anyio

from ..attestation import verify_attestation
from ..binding.input import attestation_in
from ..common.bundles import Bundles, Load
from ..common.checks import Limits, VerificationError
from ..policy.options import Expected, Level, Policy, Verified, VerifyOptions, read_options
from ..proto.attestation.raw import nonce_of
from ..proto.bytes import to_base64url
from ..proto.json import with_last_member
from ..proto.stream.forms import stream_form_of
from ..proto.strict_json import JsonTextError, parse
from .held_stream import HeldStream
from .transcript import TranscriptSink, record_of
from .unproven_error import HEADERS, STATUS, UnprovenAnswerError, cause_in, refusal_body

MAX_STREAM_BYTES: Final = 64 * 1024 * 1024
MAX_AGE_SECONDS: Final = 300
MAX_AHEAD_SECONDS: Final = 60
MAX_SEEN: Final = 100_000
"""The proofs of an hour at 28 a second, or all fresh ones at 277 a second."""

_JSON_TYPES = ("application/json", "", "text/plain")
"""Of a body that may be JSON; the last is that of a text whose type its sender does not name."""
_READ_ONLY = re.compile(r"/(models(/[^/]+)?|attestation)/?\Z")
"""Lists of models and attestations: nothing that a model wrote. HEAD and OPTIONS have no answer to prove."""
_LAST_NAMES = re.compile(r"(/chat)?/[^/]*/?\Z")
_COMPACT = '"compact":true,'
_CHALLENGE_BYTES = 32
_MAX_DECODED_BYTES = 64 * 1024


@dataclass(frozen=True)
class Asked:
    """A request as it is sent."""

    request: Any
    endpoint: str
    text: str
    stream: bool


class Verifier:
    """What both kinds of client share: which requests are sent, how each answer is checked, and the proofs that were seen."""

    def __init__(
        self,
        library: ModuleType,
        verify: dict[str, Any],
        on_verified: Callable[[Verified], object] | None = None,
        on_unproven: Callable[[UnprovenAnswerError], object] | None = None,
        unproven_paths: Iterable[str] = (),
        strict: bool | None = None,
        compact: bool = False,
        transcript: TranscriptSink | None = None,
        max_stream_bytes: int = MAX_STREAM_BYTES,
        verify_limits: Limits | None = None,
    ) -> None:
        if isinstance(unproven_paths, str):
            raise TypeError("unproven_paths is a text and not a list of paths")
        policy: Policy = verify.get("policy") or Policy()
        self.library = library
        self.max_bytes = max_stream_bytes
        self._strict = policy.max_batch == 1 if strict is None else strict
        self._compact = compact
        self.transcript = transcript
        self._bundles = Bundles()
        self._unproven_paths = tuple(path for path in unproven_paths if path.startswith("/"))
        self._on_verified = on_verified
        self._on_unproven = on_unproven
        self._verify = {
            **verify,
            "policy": replace(
                policy,
                max_batch=1 if policy.max_batch is None and self._strict else policy.max_batch,
                min_level=policy.min_level or _least_level(verify),
                max_age_seconds=MAX_AGE_SECONDS if policy.max_age_seconds is None else policy.max_age_seconds,
                max_ahead_seconds=MAX_AHEAD_SECONDS if policy.max_ahead_seconds is None else policy.max_ahead_seconds,
            ),
            **({} if verify_limits is None else {"limits": verify_limits}),
        }
        # What is wrong with an option is told now and not with the first answer.
        read_options(VerifyOptions(**self._verify))
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()

    # Requests.

    def passes(self, request: Any) -> bool:
        if request.method in ("HEAD", "OPTIONS"):
            return True
        path = _path_of(request.url)
        if request.method == "GET" and _READ_ONLY.search(path):
            return True
        return path.endswith(self._unproven_paths) if self._unproven_paths else False

    def refuse_kind(self, request: Any) -> None:
        """@raises UnprovenAnswerError for a request whose answer no proof covers. Its body is not read."""
        if request.method != "POST" or _media_type(request) not in _JSON_TYPES:
            raise UnprovenAnswerError("endpoint_not_proven")

    def asked(self, request: Any, body: bytes) -> Asked:
        """@raises UnprovenAnswerError when the body is no JSON object."""
        try:
            text = body.decode("utf-8")
            value = parse(text)
        except (UnicodeDecodeError, JsonTextError) as cause:
            raise UnprovenAnswerError("request_not_provable") from cause
        if not isinstance(value, dict):
            raise UnprovenAnswerError("request_not_provable")
        if "tee" not in value:
            text = with_last_member(text, "tee", _fresh_tee(self._strict, self._compact))
        headers = self.library.Headers(request.headers)
        for name in ("content-length", "transfer-encoding"):
            headers.pop(name, None)
        # The one encoding that is decoded here, within a limit.
        headers["accept-encoding"] = "gzip"
        sent = self.library.Request(
            request.method, request.url, headers=headers, content=text.encode(), extensions=request.extensions
        )
        return Asked(sent, _endpoint_of(_path_of(request.url)), text, value.get("stream") is True)

    # Answers.

    def held(self, response: Any, asked: Asked) -> HeldStream | None:
        """How to read the answer: a stream, or None for a whole one. @raises UnprovenAnswerError for what no proof covers."""
        if response.status_code != 200:
            raise UnprovenAnswerError("response_not_provable")
        kind = _media_type(response)
        form = stream_form_of(asked.endpoint)
        if kind == "text/event-stream" and asked.stream and form is not None:
            return HeldStream(form, self.max_bytes)
        # A client that requested a stream reads nothing of a whole response, and reports no error.
        if kind != "application/json" or asked.stream:
            raise UnprovenAnswerError("response_not_provable")
        return None

    def bundle_request(self, asked: Asked, sha256: str) -> Any:
        """For a bundle of the service that answers, with the headers that its edge may need."""
        url = asked.request.url
        base = _path_of(url).removesuffix(asked.endpoint.removeprefix("/v1"))
        headers = self.library.Headers(asked.request.headers)
        for name in ("content-length", "content-type"):
            headers.pop(name, None)
        bundle = url.copy_with(raw_path=f"{base}/attestation/bundles/{sha256}".encode())
        return self.library.Request("GET", bundle, headers=headers, extensions=asked.request.extensions)

    def prove(self, answer: bytes, asked: Asked, load: Load, *, stream: bool) -> Verified:
        """
        Checks the bytes of an answer. Of no effect on others: it may run in any thread. @raises UnprovenAnswerError
        @param load gets a bundle from the service that answered, where the caller has no other source.
        """
        given: str | bytes = answer
        if not stream:
            try:
                given = answer.decode("utf-8")
            except UnicodeDecodeError as cause:
                raise UnprovenAnswerError("attestation_missing") from cause
            if attestation_in(given) is None:
                raise UnprovenAnswerError("attestation_missing")
        try:
            expected = Expected(endpoint=asked.endpoint, request=asked.text)
            bundles = self._verify.get("bundles") or self._bundles.loading(load)
            verified = verify_attestation(given, **{**self._verify, "bundles": bundles}, expected=expected)
        except VerificationError as cause:
            raise UnprovenAnswerError(cause.code, cause_in(cause)) from cause
        # A part of a stream must not pass for a whole answer.
        if not stream and verified.exchange.stream is not None:
            raise UnprovenAnswerError("response_mismatch")
        return verified

    def see(self, verified: Verified) -> None:
        """@raises UnprovenAnswerError for a proof that was accepted before."""
        name = nonce_of(verified.attestation.raw)
        with self._lock:
            if name in self._seen:
                self._seen.move_to_end(name)
                raise UnprovenAnswerError("attestation_seen")
            self._seen[name] = None
            if len(self._seen) > MAX_SEEN:
                self._seen.popitem(last=False)

    def keep(self, answer: bytes, verified: Verified, *, stream: bool) -> None:
        """Hands the exchange to the transcript. It may run in any thread. @raises UnprovenAnswerError where that raises."""
        if self.transcript is None:
            return
        try:
            bundles = self._verify.get("bundles") or self._bundles
            self.transcript(record_of(answer, verified, bundles, stream=stream))
        except Exception as cause:
            raise UnprovenAnswerError("transcript_failed") from cause

    def tell(self, verified: Verified) -> None:
        if self._on_verified is not None:
            self._on_verified(verified)

    def report(self, error: UnprovenAnswerError) -> None:
        """Tells the caller, once of each."""
        if self._on_unproven is not None and not error.reported:
            error.reported = True
            self._on_unproven(error)

    def refusal(self, error: UnprovenAnswerError, request: Any) -> Any:
        self.report(error)
        response = self.library.Response(STATUS, headers=HEADERS, content=refusal_body(error), request=request)
        response.elapsed = timedelta(0)
        return response

    def rebuilt(self, response: Any, content_type: str, **body: Any) -> Any:
        """The body is decoded here, so the headers of its encoding go; a charset in its type could have it read in another way."""
        headers = self.library.Headers(response.headers)
        for name in ("content-length", "content-encoding", "transfer-encoding"):
            headers.pop(name, None)
        headers["content-type"] = content_type
        return self.library.Response(
            response.status_code,
            headers=headers,
            request=response.request,
            extensions=response.extensions,
            history=response.history,
            default_encoding=response.default_encoding,
            **body,
        )

    def broken(self) -> tuple[type[Exception], ...]:
        """The errors of a body that breaks off. The caller's own timeouts are none."""
        return (self.library.RequestError, OSError, anyio.EndOfStream, zlib.error)


class Body:
    """A whole answer within its limit."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts = bytearray()

    def add(self, part: bytes) -> None:
        if len(self._parts) + len(part) > self._max_bytes:
            raise UnprovenAnswerError("response_too_large")
        self._parts += part

    def whole(self) -> bytes:
        return bytes(self._parts)


class Decoder:
    """Decodes a body in parts of a bounded size, however small its encoded form is."""

    def __init__(self, response: Any) -> None:
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("identity", "", "gzip", "x-gzip"):
            raise UnprovenAnswerError("response_not_provable")
        self._gzip = zlib.decompressobj(zlib.MAX_WBITS | 16) if encoding in ("gzip", "x-gzip") else None

    def push(self, data: bytes) -> Iterator[bytes]:
        if self._gzip is None:
            yield data
            return
        while not self._gzip.eof:
            part = self._gzip.decompress(data, _MAX_DECODED_BYTES)
            data = self._gzip.unconsumed_tail
            if part:
                yield part
            if not data and len(part) < _MAX_DECODED_BYTES:
                return


def _least_level(verify: dict[str, Any]) -> Level:
    """Who names a simulated root expects nothing of hardware."""
    return "gpu" if verify.get("simulated_root") is None else "none"


def _fresh_tee(strict: bool, compact: bool) -> str:
    """``challenge``: 32 random bytes in base64url. They are in no older proof."""
    challenge = to_base64url(secrets.token_bytes(_CHALLENGE_BYTES))
    batch = "" if strict else '"batch":true,'
    return f'{{{batch}{_COMPACT if compact else ""}"challenge":"{challenge}"}}'


def _path_of(url: Any) -> str:
    path: bytes = url.raw_path
    return path.split(b"?", 1)[0].decode("ascii")


def _endpoint_of(path: str) -> str:
    """The path that raw names. A proxy in front may have another one before it, and none of ``/v1`` itself."""
    at = path.rfind("/v1/")
    if at >= 0:
        return path[at:]
    last = _LAST_NAMES.search(path)
    return f"/v1{'' if last is None else last.group()}"


def _media_type(message: Any) -> str:
    kind: str = message.headers.get("content-type", "")
    return kind.split(";", 1)[0].strip(" \t").lower()
