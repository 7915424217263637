"""One sealed exchange, without the network: what is sent outside and inside, and what is read of the answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from email.utils import formatdate
from types import ModuleType
from typing import Any, Final

from ..clients.unproven_error import HEADERS, STATUS
from .binary_http import END, Field, ResponseHead, ResponseParser, write_content, write_request_head
from .errors import SealedError, malformed
from .oblivious_http import MAX_CHUNK_BYTES, REQUEST_MEDIA_TYPE, RESPONSE_MEDIA_TYPE, RequestSealer, SealingKey

MAX_REFUSAL_BYTES: Final = 64 * 1024
"""Of an error in the clear; of a larger one, what it says is not read."""

OUTER_HEADERS: Final = {
    "content-type": REQUEST_MEDIA_TYPE,
    # A server in between should hand on chunks as they come (draft-ietf-httpbis-incremental).
    "incremental": "?1",
    "accept": RESPONSE_MEDIA_TYPE,
    "accept-encoding": "identity",
}
_WITHHELD = {
    *(
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"expect",
    ),
    # The authority says it.
    b"host",
    # The time of sealing counts.
    b"date",
    # How well a text compresses would show in the length of what is sealed.
    b"accept-encoding",
}
"""Headers that are of a connection, and others that mean nothing inside."""
_OUTER_CODES = (
    "overloaded",
    "store_unavailable",
    "sealed_required",
    "sealed_replayed",
    "sealed_key_unknown",
    "sealed_malformed",
)
"""Codes of the gateway itself, for what it did not open. Every other refusal counts as one of the edge."""
_SIZES = (1024, 4 * 1024, 16 * 1024, 64 * 1024)


class Address:
    """Of a gateway: its base URL, with or without ``/v1``. There may be a path before that."""

    def __init__(self, url: Any) -> None:
        """@raises TypeError: it is none."""
        path: bytes = url.raw_path.split(b"?", 1)[0].rstrip(b"/")
        if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment or url.userinfo:
            raise TypeError("url is not the base URL of a gateway")
        self._url = url
        self._prefix = path.removesuffix(b"/v1")

    def at(self, target: bytes) -> Any:
        return self._url.copy_with(raw_path=self._prefix + target)

    def target_of(self, url: Any) -> bytes:
        """What the gateway is asked for. @raises SealedError: other_gateway"""
        own = self._url
        raw: bytes = url.raw_path
        if (url.scheme, url.host, url.port) != (own.scheme, own.host, own.port) or not raw.startswith(
            self._prefix + b"/"
        ):
            raise SealedError("other_gateway")
        return raw[len(self._prefix) :]


class SealedExchange:
    """A request, sealed to a key, and what reads the answer to it."""

    def __init__(self, request: Any, target: bytes, key: SealingKey, padding: bool) -> None:
        """@raises SealedError: sealed_malformed where a header or the key cannot be sent."""
        self._head = _head_of(request, target)
        self._sealer = RequestSealer(key)
        self._padding = padding
        self._bytes = len(self._head)
        length: str | None = request.headers.get("content-length")
        self._left_bytes = int(length) if length is not None and length.isascii() and length.isdigit() else None

    def body(self, content: Iterable[bytes]) -> Iterator[bytes]:
        """What is sent outside, as the content of the request comes."""
        waiting = self._head
        for part in content:
            if len(waiting) >= MAX_CHUNK_BYTES:
                yield from self._sealer.seal(waiting)
                waiting = b""
            waiting += self._counted(part)
        yield from self._sealer.seal(waiting + self._end())
        yield self._sealer.end()

    async def async_body(self, content: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        """As ``body``."""
        waiting = self._head
        async for part in content:
            if len(waiting) >= MAX_CHUNK_BYTES:
                for chunk in self._sealer.seal(waiting):
                    yield chunk
                waiting = b""
            waiting += self._counted(part)
        for chunk in self._sealer.seal(waiting + self._end()):
            yield chunk
        yield self._sealer.end()

    def reader(self) -> SealedReader:
        return SealedReader(self._sealer)

    def _counted(self, part: bytes) -> bytes:
        if self._left_bytes is not None:
            self._left_bytes -= len(part)
        written = write_content(part)
        self._bytes += len(written)
        return written

    def _end(self) -> bytes:
        """A content that came to its end before, in another attempt, may come as an empty one: it must not pass for a whole one."""
        if self._left_bytes not in (None, 0):
            raise malformed()
        length = self._bytes + len(END)
        return END + bytes(_padded(length) - length if self._padding else 0)


def _head_of(request: Any, target: bytes) -> bytes:
    headers: list[Field] = [(name.lower(), value) for name, value in request.headers.raw]
    fields = [(name, value) for name, value in headers if name not in _WITHHELD]
    fields.append((b"date", formatdate(usegmt=True).encode()))
    authority = next((value for name, value in headers if name == b"host"), request.url.netloc)
    return write_request_head(request.method.encode(), request.url.raw_scheme, authority, target, fields)


def _padded(length: int) -> int:
    return next((size for size in _SIZES if length <= size), -(-length // _SIZES[-1]) * _SIZES[-1])


def can_come_again(request: Any) -> bool:
    """Whether the content of a request can be sent a second time: there is none, or it has a length that shows whether it came whole."""
    return "transfer-encoding" not in request.headers


class SealedReader:
    """Opens the answer and reads it. Only when ``end`` has returned is it whole."""

    def __init__(self, sealer: RequestSealer) -> None:
        self._opener = sealer.response_parser()
        self._message = ResponseParser()

    @property
    def head(self) -> ResponseHead | None:
        """None: it has not come yet."""
        return self._message.head

    def feed(self, data: bytes) -> list[bytes]:
        """The content that came. @raises SealedError"""
        return self._read(self._opener.feed(data))

    def end(self) -> list[bytes]:
        """@raises SealedError where the answer is not whole."""
        return self._read(self._opener.end()) + self._message.end()

    def _read(self, opened: list[bytes]) -> list[bytes]:
        return [part for chunk in opened for part in self._message.feed(chunk)]


# Answers in the clear. None of their words are handed over: anyone in between may have written them.


def is_sealed(response: Any) -> bool:
    kind: str = response.headers.get("content-type", "")
    is_encoded = response.headers.get("content-encoding", "identity") != "identity"
    return (
        response.status_code == 200 and not is_encoded and kind.split(";", 1)[0].strip().lower() == RESPONSE_MEDIA_TYPE
    )


def refusal_of(response: Any, body: bytes) -> SealedError:
    """An error of whatever stands in front, or of the gateway before it opened the request."""
    status = response.status_code
    if not 400 <= status <= 599:
        return SealedError("answer_not_sealed")
    code = next((one for one in _OUTER_CODES if one == _code_of(body)), "edge_refused")
    return SealedError(code, status, retry_after(response))


def session_refusal_of(response: Any) -> SealedError:
    status = response.status_code
    if status == 404:
        return SealedError("session_missing")
    return SealedError("session_unavailable", status if 400 <= status <= 599 else None, retry_after(response))


def _code_of(body: bytes) -> object:
    try:
        error = json.loads(body)["error"]
        return error["code"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def retry_after(response: Any) -> str | None:
    """Whole seconds. A date would need the server's clock."""
    value: str = response.headers.get("retry-after", "")
    return value if value.isascii() and value.isdigit() and len(value) <= 6 else None


def refusal_response(library: ModuleType, error: SealedError) -> Any:
    """Stands in place of an answer, in the shape of OpenAI's errors. Clients may ask again only where a server refused for now."""
    status = error.status
    kind = "sealing_refused" if status is None else "edge_refused"
    fields = {"message": str(error), "type": kind, "param": None, "code": error.code}
    content = json.dumps({"error": fields}).encode()
    # Statuses that clients have errors for, or ask again after. Others would make some ask again without a reason.
    if status is None or not (status in (401, 403, 429) or 500 <= status <= 599):
        return library.Response(STATUS, headers=HEADERS, content=content)
    headers = {"content-type": HEADERS["content-type"]}
    if error.retry_after is not None:
        headers["retry-after"] = error.retry_after
    return library.Response(status, headers=headers, content=content)
