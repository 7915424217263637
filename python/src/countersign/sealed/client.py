"""Verifying clients whose requests are sealed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any, overload

import httpx

from ..client import sorted_options, verifying_async_client, verifying_client
from ..options import Policy
from ..session import VerifiedSessionReport
from .transport import AsyncSealedTransport, SealedTransport

_OUTER_OPTIONS = ("transport", "mounts", "proxy", "verify", "cert", "http1", "http2", "limits")
"""Options of httpx that are of the connection."""


@overload
def sealed_client(
    *,
    edge_headers: Mapping[str, str] | None = None,
    on_session: Callable[[VerifiedSessionReport], object] | None = None,
    library: None = None,
    **options: Any,
) -> httpx.Client: ...
@overload
def sealed_client(*, library: ModuleType, **options: Any) -> Any: ...
def sealed_client(
    *,
    edge_headers: Mapping[str, str] | None = None,
    on_session: Callable[[VerifiedSessionReport], object] | None = None,
    library: ModuleType | None = None,
    **options: Any,
) -> Any:
    """A verifying client whose requests are sealed to the attested machine: see :func:`verifying_client` and :class:`SealedTransport`.

    .. code-block:: python

        client = openai.OpenAI(base_url="https://example.com/v1", http_client=sealed_client(collateral=…, cpu=…))

    ``policy.min_level`` is ``measured`` unless it is given, and holds for sessions and for answers.

    :param edge_headers: :param on_session: :param library: those of :class:`SealedTransport`.
    :param options: those of :func:`verifying_client`. Headers, cookies and authentication are sealed with each request.
    :raises TypeError: an option that cannot be used.
    """
    outer, inner, verify = _sorted(options)
    chosen = httpx if library is None else library
    own: dict[str, Any] = {"edge_headers": edge_headers, "on_session": on_session, "library": library}
    transport = SealedTransport(chosen.Client(**outer), **own, **verify)
    return verifying_client(transport=transport, library=chosen, **inner)


@overload
def sealed_async_client(
    *,
    edge_headers: Mapping[str, str] | None = None,
    on_session: Callable[[VerifiedSessionReport], object] | None = None,
    library: None = None,
    **options: Any,
) -> httpx.AsyncClient: ...
@overload
def sealed_async_client(*, library: ModuleType, **options: Any) -> Any: ...
def sealed_async_client(
    *,
    edge_headers: Mapping[str, str] | None = None,
    on_session: Callable[[VerifiedSessionReport], object] | None = None,
    library: ModuleType | None = None,
    **options: Any,
) -> Any:
    """As :func:`sealed_client`, but an ``httpx.AsyncClient``."""
    outer, inner, verify = _sorted(options)
    chosen = httpx if library is None else library
    own: dict[str, Any] = {"edge_headers": edge_headers, "on_session": on_session, "library": library}
    transport = AsyncSealedTransport(chosen.AsyncClient(**outer), **own, **verify)
    return verifying_async_client(transport=transport, library=chosen, **inner)


def _sorted(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The options of the client that sends what is sealed, those of the verifying client, and those that verify sessions."""
    given: Policy = options.get("policy") or Policy()
    policy = replace(given, min_level=given.min_level or "measured")
    outer = {name: value for name, value in options.items() if name in _OUTER_OPTIONS}
    if "trust_env" in options:
        outer["trust_env"] = options["trust_env"]
    inner = {name: value for name, value in options.items() if name not in _OUTER_OPTIONS}
    _, verify, _ = sorted_options(inner)
    # How old an answer may be, and what else is asked of one, is not asked of a session.
    return outer, {**inner, "policy": policy}, {**verify, "policy": Policy(min_level=policy.min_level)}
