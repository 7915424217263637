"""One sealed exchange, without the network: what is sent outside and inside, and what is read of the answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from email.utils import formatdate
from types import ModuleType
from typing import Any, Final

from ..unproven import HEADERS
from .binary_http import END, Field, ResponseHead, ResponseParser, write_content, write_request_head
from .errors import SealedError, malformed
from .oblivious_http import MAX_CHUNK_BYTES, REQUEST_MEDIA_TYPE, RESPONSE_MEDIA_TYPE, RequestSealer
from .sessions import Sealing

MAX_REFUSAL_BYTES: Final = 64 * 1024
"""Of an error in the clear; of a larger one, what it says is not read."""

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


class Gateway:
    """Where a request goes: to whatever stands at its URL, before the path that the gateway serves."""

    def __init__(self, url: Any) -> None:
        raw: bytes = url.raw_path
        # A proxy in front may have another path before the gateway's.
        at = max(0, raw.split(b"?", 1)[0].rfind(b"/v1/"))
        self.target = raw[at:]
        self._prefix = raw[:at]
        self._url = url

    def __str__(self) -> str:
        return str(self.at(b"/"))

    def at(self, target: bytes) -> Any:
        """Without the user and password of the request's URL: they are sealed, in its `authorization`."""
        url = self._url
        origin: dict[str, Any] = {"scheme": url.scheme, "host": url.host, "port": url.port}
        return type(url)(**origin).copy_with(raw_path=self._prefix + target)


class SealedExchange:
    """A request, sealed to the key of a session, and what reads the answer to it."""

    def __init__(self, request: Any, gateway: Gateway, sealing: Sealing) -> None:
        """@raises SealedError: sealed_malformed where a header or the key cannot be sent."""
        self._head = _head_of(request, gateway)
        length: str | None = request.headers.get("content-length")
        self._left_bytes = int(length) if length is not None and length.isascii() and length.isdigit() else None
        self._sealer = RequestSealer(sealing.key)
        self.headers = {
            "content-type": REQUEST_MEDIA_TYPE,
            # Whoever is in between should hand on chunks as they come (draft-ietf-httpbis-incremental).
            "incremental": "?1",
            "accept": RESPONSE_MEDIA_TYPE,
            "accept-encoding": "identity",
        }

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

    def _counted(self, part: bytes) -> bytes:
        if self._left_bytes is not None:
            self._left_bytes -= len(part)
        return write_content(part)

    def _end(self) -> bytes:
        """A content that came to its end before, in another attempt, may come as an empty one: it must not pass for a whole one."""
        if self._left_bytes not in (None, 0):
            raise malformed()
        return END

    def reader(self) -> SealedReader:
        return SealedReader(self._sealer)


def _head_of(request: Any, gateway: Gateway) -> bytes:
    headers: list[Field] = [(name.lower(), value) for name, value in request.headers.raw]
    fields = [(name, value) for name, value in headers if name not in _WITHHELD]
    fields.append((b"date", formatdate(usegmt=True).encode()))
    authority = next((value for name, value in headers if name == b"host"), request.url.netloc)
    return write_request_head(request.method.encode(), request.url.raw_scheme, authority, gateway.target, fields)


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


def can_come_again(request: Any) -> bool:
    """Whether the content of a request can be sent a second time: there is none, or it has a length that shows whether it came whole."""
    return "transfer-encoding" not in request.headers


def is_sealed(response: Any) -> bool:
    kind: str = response.headers.get("content-type", "")
    plain_encoding = response.headers.get("content-encoding", "identity") == "identity"
    return (
        response.status_code == 200 and plain_encoding and kind.split(";", 1)[0].strip().lower() == RESPONSE_MEDIA_TYPE
    )


def refusal_of(response: Any, body: bytes) -> SealedError:
    """What an answer in the clear means: an error of whatever stands in front, or of the gateway before it opened the request."""
    if response.status_code == 422 and _code_of(body) == "sealed_key_unknown":
        return SealedError("sealed_key_unknown")
    return (
        SealedError("sealed_refused", response.status_code)
        if response.status_code >= 400
        else SealedError("sealed_answer_plain")
    )


def _code_of(body: bytes) -> object:
    try:
        error = json.loads(body)["error"]
        return error["code"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def refusal_response(library: ModuleType, error: SealedError, retry_after: str | None) -> Any:
    """Stands in place of an answer, in the shape of OpenAI's errors. A client may retry only what a server refused for now."""
    fields = {"message": str(error), "type": "sealed_error", "param": None, "code": error.code}
    headers = dict(HEADERS) if error.status == 422 else {"content-type": HEADERS["content-type"]}
    if retry_after is not None and retry_after.isascii() and retry_after.isdigit():
        headers["retry-after"] = retry_after
    return library.Response(error.status, headers=headers, content=json.dumps({"error": fields}).encode())
