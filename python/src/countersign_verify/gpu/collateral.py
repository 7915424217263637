"""
The sources of reference values and OCSP responses: handed in, kept from before, or fetched. Nothing here is trusted.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Literal, Protocol
from urllib.parse import quote

import httpx

from ..common.lru import LruMap
from ..proto.bytes import from_base64
from ..proto.strict_json import parse
from ..token.signature import Jwks
from ..x509 import Certificate, DerError
from ..x509.certificate import without_space
from ..x509.ocsp import (
    MAX_OCSP_BYTES,
    OCSP_NONCE_BYTES,
    OcspRefusal,
    OcspResponse,
    make_cert_id,
    make_ocsp_request,
    parse_ocsp_response,
)
from ..x509.revocation import statuses_of, validity


@dataclass(frozen=True)
class RimQuery:
    """A RIM that a report's device needs."""

    id: str
    """The RIM service's name for it: `NV_GPU_DRIVER_GH100_550.90.07`."""
    version: str
    """Of the driver or the BIOS: with the chip, it finds documents that were handed in without a name."""
    chip: str
    """`GH100`"""


@dataclass(frozen=True)
class OcspQuery:
    certificate: Certificate
    issuer: Certificate
    at: datetime


@dataclass(frozen=True)
class OcspAnswer:
    """An OCSP response, with the nonce of its request where it was requested now."""

    response: bytes
    nonce: bytes | None = None


class Collateral(Protocol):
    """
    `rim` and `ocsp` return None for what this source does not have, and may raise what the network raises: the checks
    then report it as unavailable. A method `refused(query)`, where there is one, is called when a check refused what
    this query returned, which must then not be kept.
    """

    def rim(self, query: RimQuery) -> str | bytes | None: ...

    def ocsp(self, query: OcspQuery) -> OcspAnswer | None: ...


NVIDIA_RIM_URL = "https://rim.attestation.nvidia.com"
NVIDIA_OCSP_URL = "https://ocsp.ndis.nvidia.com"

_MAX_KEPT_RIMS = 128
# After this a RIM is fetched again: NVIDIA may have signed a new one.
_RIM_KEPT = timedelta(days=1)
_MAX_KEPT_RESPONSES = 1024
_MAX_HANDED_IN = 4096
_MAX_RIM_BYTES = 1024 * 1024
# A RIM in base64, in JSON.
_MAX_RIM_RESPONSE_BYTES = 2 * _MAX_RIM_BYTES
_MAX_KEYS_BYTES = 1024 * 1024
_TIMEOUT_SECONDS = 10.0
# What ECMAScript's encodeURIComponent leaves as it is.
_UNRESERVED = "-_.!~*'()"


class ServiceError(Exception):
    """A service did not answer as it should."""


@dataclass(frozen=True)
class Services:
    """NVIDIA's services over HTTP."""

    client: httpx.Client
    rim_url: str = NVIDIA_RIM_URL
    ocsp_url: str = NVIDIA_OCSP_URL
    timeout_seconds: float = _TIMEOUT_SECONDS
    """Of each request: to connect, for each wait for bytes, and for the body as a whole."""
    on_fetch: Callable[[str], None] | None = None
    """Called with the URL before each request."""
    on_fetched: Callable[[Literal["rim", "ocsp"], str, bytes], None] | None = None
    """Called with what was fetched: a RIM with its id, an OCSP response with its certID in hex."""
    random_bytes: Callable[[int], bytes] = secrets.token_bytes
    """32 bytes for each OCSP request."""


def create_collateral(
    *,
    rims: Mapping[str, str | bytes] | Iterable[str | bytes] = (),
    ocsp: Iterable[bytes] = (),
    online: bool = False,
    client: httpx.Client | None = None,
    clock: Callable[[], datetime] | None = None,
    rim_url: str | None = None,
    ocsp_url: str | None = None,
    timeout_seconds: float = _TIMEOUT_SECONDS,
    on_fetch: Callable[[str], None] | None = None,
    on_fetched: Callable[[Literal["rim", "ocsp"], str, bytes], None] | None = None,
    random_bytes: Callable[[int], bytes] = secrets.token_bytes,
) -> CollateralSource:
    """
    Keep one for as long as you verify: it keeps what it fetched unless a check refused it, RIMs by id for a day and
    OCSP responses until their next update. Threads may share it.

        collateral = create_collateral(online=True)
        verify_attestation(text, collateral=collateral)

    `rims`: RIM documents by their id; or without ids, then found by the version and the chip that they name. `ocsp`:
    OCSP responses, DER; unreadable ones are ignored. `online`: fetch from NVIDIA's services what is not at hand, over
    `client` where one is given; without either nothing is fetched. `clock`: for the age of kept RIMs. The others are
    those of Services.
    @raises ValueError: more than 4,096 OCSP responses.
    """
    services = None
    if online or client is not None:
        services = Services(
            client=httpx.Client() if client is None else client,
            rim_url=NVIDIA_RIM_URL if rim_url is None else rim_url,
            ocsp_url=NVIDIA_OCSP_URL if ocsp_url is None else ocsp_url,
            timeout_seconds=timeout_seconds,
            on_fetch=on_fetch,
            on_fetched=on_fetched,
            random_bytes=random_bytes,
        )
    return CollateralSource(_HandedInRims(rims), _index_ocsp(ocsp), services, clock or _now)


def _now() -> datetime:
    return datetime.now(timezone.utc)


class CollateralSource:
    """What `create_collateral` returns."""

    def __init__(
        self,
        rims: _HandedInRims,
        ocsp: Mapping[int, list[_HandedIn]],
        services: Services | None,
        clock: Callable[[], datetime],
    ) -> None:
        self._handed_in = rims
        self._responses = ocsp
        self._services = services
        self._clock = clock
        self._rims: LruMap[str, tuple[bytes, datetime]] = LruMap(_MAX_KEPT_RIMS)
        self._kept: LruMap[bytes, tuple[bytes, datetime]] = LruMap(_MAX_KEPT_RESPONSES)

    def rim(self, query: RimQuery) -> str | bytes | None:
        """@raises ServiceError, httpx.HTTPError, ValueError"""
        known = self._handed_in.find(query)
        if known is not None or self._services is None:
            return known
        before = self._rims.get(query.id)
        now = self._clock()
        if before is not None and now <= before[1]:
            return before[0]
        fetched = fetch_rim(query.id, self._services)
        if fetched is not None:
            self._rims.set(query.id, (fetched, now + _RIM_KEPT))
        return fetched

    def ocsp(self, query: OcspQuery) -> OcspAnswer | None:
        """@raises ServiceError, httpx.HTTPError"""
        known = _choose_answer(self._responses.get(query.certificate.serial, []), query)
        if (known is not None and known.holds) or self._services is None:
            return None if known is None else OcspAnswer(known.response)
        name = make_cert_id(query.certificate, query.issuer)
        before = self._kept.get(name)
        if before is not None and query.at <= before[1]:
            return OcspAnswer(before[0])
        fetched = fetch_ocsp(query, self._services)
        if fetched is None:
            return None if known is None else OcspAnswer(known.response)
        until = _holds_until(fetched.response, query)
        if until is not None:
            self._kept.set(name, (fetched.response, until))
        return fetched

    def refused(self, query: RimQuery | OcspQuery) -> None:
        if isinstance(query, RimQuery):
            self._rims.delete(query.id)
        else:
            self._kept.delete(make_cert_id(query.certificate, query.issuer))


_ATTRIBUTES = tuple(re.compile(rf'\b{name}="([^"]{{0,64}})"', re.ASCII) for name in ("colloquialVersion", "product"))


class _HandedInRims:
    """Finds a RIM by its id, or by the names in its own text, which are trusted only after it has been verified."""

    def __init__(self, rims: Mapping[str, str | bytes] | Iterable[str | bytes]) -> None:
        self._by_id: Mapping[str, str | bytes] = {}
        self._named: list[tuple[str, str, str | bytes]] = []
        if isinstance(rims, Mapping):
            self._by_id = dict(rims)
            return
        for rim in rims:
            text = rim if isinstance(rim, str) else rim[:_MAX_RIM_BYTES].decode("utf-8", "replace")
            matches = (pattern.search(text) for pattern in _ATTRIBUTES)
            version, product = ("" if match is None else match[1].lower() for match in matches)
            self._named.append((version, product, rim))

    def find(self, query: RimQuery) -> str | bytes | None:
        if query.id in self._by_id:
            return self._by_id[query.id]
        version, chip = query.version.lower(), query.chip.lower()
        candidates = [(product, rim) for named, product, rim in self._named if named == version]
        for product, rim in candidates:
            if product == chip:
                return rim
        # The product name is known for Hopper's RIMs alone. A driver's version is the same on every chip.
        if chip.startswith("gh"):
            return None
        return next((rim for product, rim in candidates if not product.startswith("gh")), None)


@dataclass(frozen=True)
class _HandedIn:
    response: bytes
    parsed: OcspResponse


def _index_ocsp(responses: Iterable[bytes]) -> dict[int, list[_HandedIn]]:
    index: dict[int, list[_HandedIn]] = {}
    for count, response in enumerate(responses):
        if count == _MAX_HANDED_IN:
            raise ValueError(f"more than {_MAX_HANDED_IN} OCSP responses")
        parsed = _readable(response)
        if parsed is not None:
            for serial in {one.cert_id.serial for one in parsed.responses}:
                index.setdefault(serial, []).append(_HandedIn(response, parsed))
    return index


def _readable(response: bytes) -> OcspResponse | None:
    try:
        return parse_ocsp_response(response)
    except (DerError, OcspRefusal):
        return None


@dataclass(frozen=True)
class _Chosen:
    response: bytes
    holds: bool


def _choose_answer(candidates: Iterable[_HandedIn], query: OcspQuery) -> _Chosen | None:
    """
    Chooses the newest response that is valid; without one the newest, so that the check can report its fault.
    A response with several statuses is as new as the newest of them. Of two equally new ones the one that is not good
    comes first, so that a bad status is not hidden.
    """
    best: tuple[tuple[bool, datetime, bool], _Chosen] | None = None
    for candidate in candidates:
        for answer in statuses_of(candidate.parsed, query.certificate, query.issuer):
            window = validity(answer)
            holds = window.this_update <= query.at <= window.next_update
            rank = (holds, window.this_update, answer.status != "good")
            if best is None or rank > best[0]:
                best = (rank, _Chosen(candidate.response, holds))
    return None if best is None else best[1]


def _holds_until(response: bytes, query: OcspQuery) -> datetime | None:
    """
    Until when the response may be kept; None where it must be fetched again: not good, not the only one, or unreadable.
    """
    parsed = _readable(response)
    answers = [] if parsed is None else statuses_of(parsed, query.certificate, query.issuer)
    return validity(answers[0]).next_update if len(answers) == 1 and answers[0].status == "good" else None


# NVIDIA's services over HTTP. RIMs and OCSP responses are not yet trusted; the keys of the remote attestation service
# are, by its host's TLS certificate.


def fetch_rim(rim_id: str, services: Services) -> bytes | None:
    """
    `GET /v1/rim/{id}` responds with JSON whose member `rim` is the document in base64.
    @raises ServiceError, httpx.HTTPError, ValueError
    """
    url = f"{services.rim_url.rstrip('/')}/v1/rim/{quote(rim_id, safe=_UNRESERVED)}"
    answer = _request("GET", url, {"accept": "application/json"}, None, _MAX_RIM_RESPONSE_BYTES, services)
    if answer is None:
        return None
    rim = _member(parse(_text(answer)), "rim")
    if not isinstance(rim, str):
        raise ServiceError("the RIM service answered without a document")
    document = from_base64(without_space(rim))
    if services.on_fetched is not None:
        services.on_fetched("rim", rim_id, document)
    return document


def fetch_ocsp(query: OcspQuery, services: Services) -> OcspAnswer | None:
    """POST of the request's DER. @raises ServiceError, httpx.HTTPError"""
    nonce = services.random_bytes(OCSP_NONCE_BYTES)
    body = make_ocsp_request(query.certificate, query.issuer, nonce)
    headers = {"content-type": "application/ocsp-request", "accept": "application/ocsp-response"}
    response = _request("POST", services.ocsp_url.rstrip("/"), headers, body, MAX_OCSP_BYTES, services)
    if response is None:
        return None
    if services.on_fetched is not None:
        services.on_fetched("ocsp", make_cert_id(query.certificate, query.issuer).hex(), response)
    return OcspAnswer(response, nonce)


def fetch_nras_keys(
    url: str,
    *,
    client: httpx.Client | None = None,
    timeout_seconds: float = _TIMEOUT_SECONDS,
    on_fetch: Callable[[str], None] | None = None,
) -> Jwks:
    """For the option `fetch_nras_keys`. @raises ServiceError, httpx.HTTPError, ValueError"""
    if client is None:
        with httpx.Client() as own:
            return fetch_nras_keys(url, client=own, timeout_seconds=timeout_seconds, on_fetch=on_fetch)
    services = Services(client=client, timeout_seconds=timeout_seconds, on_fetch=on_fetch)
    answer = _request("GET", url, {"accept": "application/json"}, None, _MAX_KEYS_BYTES, services)
    if answer is None:
        raise ServiceError(f"{_host(url)} has no keys")
    keys = parse(_text(answer))
    if not isinstance(keys, dict):
        raise ServiceError(f"{_host(url)} answered without keys")
    return keys


def _request(
    method: str, url: str, headers: Mapping[str, str], body: bytes | None, max_bytes: int, services: Services
) -> bytes | None:
    """The body of a 200; None for 404."""
    if services.on_fetch is not None:
        services.on_fetch(url)
    limits: dict[str, Any] = {"timeout": services.timeout_seconds, "follow_redirects": True}
    with services.client.stream(method, url, headers=headers, content=body, **limits) as response:
        if response.status_code == 404:
            return None
        if not response.is_success:
            raise ServiceError(f"{_host(url)} answered {response.status_code}")
        return _read_limited(response, max_bytes, time.monotonic() + services.timeout_seconds)


def _read_limited(response: httpx.Response, max_bytes: int, deadline: float) -> bytes:
    """The whole body. @raises ServiceError: more than `max_bytes`, or not whole at the deadline."""
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > max_bytes:
            raise ServiceError(f"an answer of more than {max_bytes} bytes")
        if time.monotonic() > deadline:
            raise ServiceError("an answer that was not whole in time")
    return bytes(body)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").removeprefix("\ufeff")


def _member(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, dict) else None


def _host(url: str) -> str:
    return httpx.URL(url).netloc.decode("ascii", "replace")
