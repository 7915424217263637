"""Verifying clients whose requests are sealed."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any, overload

import httpx

from ..clients.client import sorted_options, verifying_async_client, verifying_client
from ..policy.options import Policy
from .transport import AsyncSealedTransport, SealedTransport

_OWN_OPTIONS = ("edge_headers", "challenge", "padding", "on_session", "on_refused")
_OUTER_OPTIONS = ("transport", "mounts", "proxy", "verify", "cert", "http1", "http2", "limits")
"""Options of httpx that are of the connection."""


@overload
def sealed_client(url: str, *, library: None = None, **options: Any) -> httpx.Client: ...
@overload
def sealed_client(url: str, *, library: ModuleType, **options: Any) -> Any: ...
def sealed_client(url: str, *, library: ModuleType | None = None, **options: Any) -> Any:
    """A verifying client whose requests are sealed to the attested machine: :func:`verifying_client` over :class:`SealedTransport`.

    .. code-block:: python

        gateway = "https://gateway.example/v1"
        client = openai.OpenAI(base_url=gateway, http_client=sealed_client(gateway, collateral=…, cpu=…))

    :param url: :param library: those of :class:`SealedTransport`.
    :param options: those of :func:`verifying_client`, which hold for sessions and for answers, and ``edge_headers``, ``challenge``,
        ``padding``, ``on_session`` and ``on_refused`` of :class:`SealedTransport`. ``policy.min_level`` is ``measured`` by default.
        Headers, cookies and authentication are sealed with each request.
    :raises TypeError: a URL or an option that cannot be used.
    """
    chosen = httpx if library is None else library
    outer, sealed, inner = _sorted(options)
    transport = SealedTransport(url, chosen.Client(**outer), library=library, **sealed)
    return verifying_client(transport=transport, library=chosen, **inner)


@overload
def sealed_async_client(url: str, *, library: None = None, **options: Any) -> httpx.AsyncClient: ...
@overload
def sealed_async_client(url: str, *, library: ModuleType, **options: Any) -> Any: ...
def sealed_async_client(url: str, *, library: ModuleType | None = None, **options: Any) -> Any:
    """As :func:`sealed_client`, but an ``httpx.AsyncClient``."""
    chosen = httpx if library is None else library
    outer, sealed, inner = _sorted(options)
    transport = AsyncSealedTransport(url, chosen.AsyncClient(**outer), library=library, **sealed)
    return verifying_async_client(transport=transport, library=chosen, **inner)


def _sorted(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The options of the client that carries what is sealed, those of the transport, and those of the verifying client."""
    given: Policy = options.get("policy") or Policy()
    policy = replace(given, min_level=given.min_level or "measured")
    outer = {name: value for name, value in options.items() if name in (*_OUTER_OPTIONS, "trust_env")}
    own = {name: value for name, value in options.items() if name in _OWN_OPTIONS}
    inner = {name: value for name, value in options.items() if name not in (*_OUTER_OPTIONS, *_OWN_OPTIONS)}
    _, verify, _ = sorted_options(inner)
    # Checks that are required of answers may be none of a session.
    session = {name: value for name, value in verify.items() if name != "session"}
    return outer, {**own, **session, "policy": Policy(min_level=policy.min_level)}, {**inner, "policy": policy}
