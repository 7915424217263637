"""What a verification takes and what it returns: the options and the report. And the options, read once."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from typing import Any, Literal, TypedDict

from ..common.bundles import Bundles
from ..common.checks import Check, Limits
from ..common.release_options import ReleaseClaims, ReleaseOptions
from ..cpu.cpu_options import CpuClaims, CpuOptions, VerifiedSession
from ..gpu.collateral import Collateral
from ..gpu.devices import DeviceContext, Pinned, Without
from ..gpu.nvidia import device_roots, rim_roots
from ..gpu.reference_values import CachedCollateral, ContextClocks
from ..gpu.topology import DeviceClaims
from ..proto.attestation.attestation import Attestation
from ..proto.attestation.raw import StreamDigest
from ..proto.strict_json import is_number
from ..token.signature import Jwks, TokenSigner
from ..token.token import TokenKind
from ..x509 import Certificate
from ..x509.certificate import read_pem

Level = Literal["none", "gpu", "gpu+cpu", "measured"]
"""
From the least to the most. `none`: nothing about hardware. `gpu`: a GPU's signature. `gpu+cpu`: and a confidential VM
on a genuine processor asked for it. `measured`: and what that VM was started with is known to the caller (`cpu.reference`).
"""
LEVELS: tuple[Level, ...] = ("none", "gpu", "gpu+cpu", "measured")


@dataclass(frozen=True)
class Clocks:
    """Another instant for one kind of check."""

    report: datetime | None = None
    """The device's certificates."""
    ocsp: datetime | None = None
    """OCSP responses about the device's certificates."""
    rim: datetime | None = None
    """The certificates of those who signed reference values."""
    rim_ocsp: datetime | None = None
    """OCSP responses about those; as `ocsp` by default."""
    token: datetime | None = None
    """Signed tokens."""


@dataclass(frozen=True)
class Roots:
    """PEM certificates to trust in place of NVIDIA's pinned roots."""

    device: str | None = None
    rim: str | None = None


@dataclass(frozen=True)
class Expected:
    """What the caller holds and the evidence must be about."""

    request: str | None = None
    """The request body that was sent. White space between JSON tokens does not count."""
    response: str | None = None
    """The response body that was received, with or without its attestation. White space likewise."""
    endpoint: str | None = None
    """The path of the request from `/v1/` on, without its query."""
    transcript: bytes | None = None
    """The bytes of the event stream that was received."""
    event: bool = False
    """
    What is given is one event of a stream, by itself: the last chunk of a completion, or the event that ends a response
    or a message. It shows only a part of the response. Without this, what is given is compared as a whole response.
    """
    nonce: str | None = None
    """64 hex digits."""
    challenge: str | None = None
    """64 hex digits that the session's statement must hold."""


@dataclass(frozen=True)
class Policy:
    max_age_seconds: float | None = None
    """The oldest response that is accepted, by the time in raw."""
    max_ahead_seconds: float | None = None
    """How far the time in raw may be ahead of the time of the check; 300 with `max_age_seconds`."""
    required_checks: Sequence[str] = ()
    """
    Checks that must pass: a skip of one of these is a refusal. For known software demand `min_level="measured"`: an
    event log alone passes cpu_software.
    """
    min_level: Level | None = None
    """The least level that is accepted; any by default."""
    max_batch: int | None = None
    """
    How many answers the signed nonce may commit to; 4096 by default. With 1 no other answer has the same signature.
    """
    devices: Sequence[str] | None = None
    """
    The GPUs and switches that are accepted, each by SHA-256 of the SubjectPublicKeyInfo in its second certificate, as
    64 lowercase hex digits: so a session's statement lists them. Every device that signed must be one; any by default.
    """


class OptionFields(TypedDict, total=False):
    """The members of VerifyOptions, as keyword arguments."""

    at: datetime | None
    clocks: Clocks
    roots: Roots
    simulated_root: str | None
    collateral: Collateral | None
    without: Without
    expected: Expected
    policy: Policy
    cpu: CpuOptions | None
    release: ReleaseOptions | None
    session: VerifiedSession | None
    bundles: Bundles | None
    nras_keys: Jwks | None
    fetch_nras_keys: Callable[[str], Jwks] | None
    countersign_keys: Jwks | None
    limits: Limits
    stop_at_failure: bool


@dataclass(frozen=True)
class VerifyOptions:
    at: datetime | None = None
    """The instant of the verification, with its time zone. Now by default."""
    clocks: Clocks = Clocks()
    """For evidence and endorsements that were never valid together."""
    roots: Roots = Roots()
    simulated_root: str | None = None
    """
    PEM certificate of a simulated device's test root. A device under it passes, and proves nothing about hardware.
    """
    collateral: Collateral | None = None
    """The source of reference values and OCSP responses; without it there are none."""
    without: Without = field(default_factory=Without)
    expected: Expected = Expected()
    policy: Policy = Policy()
    cpu: CpuOptions | None = None
    """
    Of the processor's evidence: whom to trust in place of AMD and Intel, the caller's collateral, what is accepted.
    """
    release: ReleaseOptions | None = None
    """A release whose list stands in place of `cpu.reference`: the answer must then be of a guest on it."""
    session: VerifiedSession | None = None
    """A session that `verify_session` verified, for attestations that name it and carry neither it nor a bundle."""
    bundles: Bundles | None = None
    """Where compact attestations find their bundles; without it there are none."""
    nras_keys: Jwks | None = None
    """NVIDIA's keys for tokens of its remote service."""
    fetch_nras_keys: Callable[[str], Jwks] | None = None
    """Fetches NVIDIA's keys where `nras_keys` lacks the one that is needed."""
    countersign_keys: Jwks | None = None
    """Countersign's own keys, for tokens of its native attester."""
    limits: Limits = field(default_factory=Limits)
    stop_at_failure: bool = False
    """No check runs after the first that fails: for anybody who verifies what strangers send."""


@dataclass(frozen=True)
class TokenClaims:
    kind: TokenKind
    issuer: str
    signature: TokenSigner | None

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "issuer": self.issuer, "signature": self.signature}


@dataclass(frozen=True)
class BatchClaims:
    """The tree whose root a nonce commits to, and an answer's place in it."""

    tree_size: int
    leaf_index: int

    def to_dict(self) -> dict[str, Any]:
        return {"tree_size": self.tree_size, "leaf_index": self.leaf_index}


@dataclass(frozen=True)
class Claims:
    simulated: bool
    time: str | None
    """When the response was complete, by the gateway, ISO 8601."""
    nonce: str | None
    """What the devices signed."""
    batch: BatchClaims | None
    """None: the nonce is this answer's alone."""
    token: TokenClaims | None
    devices: tuple[DeviceClaims, ...]
    cpu: CpuClaims | None
    """None: no processor's evidence."""
    release: ReleaseClaims | None = None
    """The release that the caller named, where its check passed."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "simulated": self.simulated,
            "time": self.time,
            "nonce": self.nonce,
            "batch": None if self.batch is None else self.batch.to_dict(),
            "token": None if self.token is None else self.token.to_dict(),
            "devices": [device.to_dict() for device in self.devices],
            "cpu": None if self.cpu is None else self.cpu.to_dict(),
            **({} if self.release is None else {"release": self.release.to_dict()}),
        }


@dataclass(frozen=True)
class VerificationReport:
    """The result, for a program to print or keep."""

    valid: bool
    incomplete: bool
    """Not valid, and only for checks that could not run: nothing was found wrong."""
    level: Level
    checks: tuple[Check, ...]
    claims: Claims
    """Unless valid: only what could be read."""
    proven: tuple[str, ...]
    not_proven: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, with the names and in the order of the TypeScript verifier."""
        return {
            "valid": self.valid,
            "incomplete": self.incomplete,
            "level": self.level,
            "checks": [check.to_dict() for check in self.checks],
            "claims": self.claims.to_dict(),
            "proven": list(self.proven),
            "not_proven": list(self.not_proven),
        }


@dataclass(frozen=True)
class Exchange:
    """The texts that were signed, exactly."""

    endpoint: str
    """The path of the request, without its query."""
    request: str = field(repr=False)
    response: str = field(repr=False)
    stream: StreamDigest | None
    timestamp: int
    """Unix seconds, by the gateway's clock."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "endpoint": self.endpoint,
            "request": self.request,
            "response": self.response,
            "stream": None if self.stream is None else self.stream.to_dict(),
            "timestamp": self.timestamp,
        }


@dataclass(frozen=True)
class Verified(VerificationReport):
    """A report whose `valid` is true, and what was signed."""

    exchange: Exchange
    attestation: Attestation = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        return {
            **super().to_dict(),
            "exchange": self.exchange.to_dict(),
            "attestation": self.attestation.to_dict(),
        }


# The options, read once: certificates parsed, clocks chosen. What is wrong here is the caller's fault and no failed
# check.


@dataclass(frozen=True)
class Context(DeviceContext):
    options: VerifyOptions
    at: datetime


_NESTED: Mapping[str, tuple[type, ...]] = {
    "clocks": (Clocks,),
    "roots": (Roots,),
    "without": (Without,),
    "expected": (Expected,),
    "policy": (Policy,),
    "cpu": (CpuOptions, type(None)),
    "release": (ReleaseOptions, type(None)),
    "session": (VerifiedSession, type(None)),
    "bundles": (Bundles, type(None)),
    "limits": (Limits,),
    "nras_keys": (Mapping, type(None)),
    "countersign_keys": (Mapping, type(None)),
}
_HEX_32 = re.compile(r"[0-9a-fA-F]{64}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def read_options(options: VerifyOptions) -> Context:
    """@raises TypeError naming the option that cannot be used."""

    for name, types in _NESTED.items():
        if not isinstance(getattr(options, name), types):
            raise TypeError(f"{name} is not of the type {types[0].__name__}")
    if options.release is not None and options.cpu is not None and options.cpu.reference is not None:
        raise TypeError("release and cpu.reference: only one")
    _check_policy(options.policy)
    _check_expected(options.expected)
    _check_limits(options.limits)
    clocks, roots = options.clocks, options.roots
    at = datetime.now(timezone.utc) if options.at is None else _instant(options.at, "at")
    ocsp = _clock(clocks.ocsp, at, "ocsp")
    device = device_roots() if roots.device is None else read_pem(roots.device, "roots.device")
    rim = rim_roots() if roots.rim is None else read_pem(roots.rim, "roots.rim")
    simulated = () if options.simulated_root is None else read_pem(options.simulated_root, "simulated_root")
    return Context(
        options=options,
        at=at,
        without=options.without,
        clocks=ContextClocks(
            report=_clock(clocks.report, at, "report"),
            ocsp=ocsp,
            rim=_clock(clocks.rim, at, "rim"),
            rim_ocsp=_clock(clocks.rim_ocsp, ocsp, "rim_ocsp"),
            token=_clock(clocks.token, at, "token"),
        ),
        device_roots=tuple(device),
        rim_roots=tuple(rim),
        simulated_roots=tuple(simulated),
        collateral=CachedCollateral(options.collateral),
        nvidia=Pinned(_within(device, device_roots()), _within(rim, rim_roots())),
        checks_simulated=options.collateral is not None and roots.rim is not None,
    )


def _check_policy(policy: Policy) -> None:
    # Comparisons with NaN are false: it would switch the check off.
    for name in ("max_age_seconds", "max_ahead_seconds"):
        seconds = getattr(policy, name)
        if seconds is not None and not (is_number(seconds) and seconds >= 0):
            raise TypeError(f"policy.{name} is not a number of seconds")
    most = policy.max_batch
    if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
        raise TypeError("policy.max_batch is not a whole number from 1")
    if policy.min_level is not None and policy.min_level not in LEVELS:
        raise TypeError(f"policy.min_level is none of {', '.join(LEVELS)}")
    devices = () if policy.devices is None else policy.devices
    if isinstance(devices, str) or not all(isinstance(one, str) and _DIGEST.fullmatch(one) for one in devices):
        raise TypeError("policy.devices is not a list of 64 lowercase hex digits")
    if isinstance(policy.required_checks, str):
        raise TypeError("policy.required_checks is not a list of names")


def _check_expected(expected: Expected) -> None:
    for name in ("request", "response", "endpoint", "nonce", "challenge"):
        if not isinstance(getattr(expected, name), str | None):
            raise TypeError(f"expected.{name} is not a text")
    if not isinstance(expected.event, bool):
        raise TypeError("expected.event is neither True nor False")
    if not isinstance(expected.transcript, bytes | bytearray | memoryview | None):
        raise TypeError("expected.transcript is not bytes")
    if expected.challenge is not None and _HEX_32.fullmatch(expected.challenge) is None:
        raise TypeError("expected.challenge is not 64 hex digits")


def _check_limits(limits: Limits) -> None:
    for one in fields(limits):
        most = getattr(limits, one.name)
        if most is not None and (not is_number(most) or math.isnan(most)):
            raise TypeError(f"limits.{one.name} is not a number")


def _within(roots: Sequence[Certificate], pinned: Sequence[Certificate]) -> bool:
    return all(any(root.der == one.der for root in pinned) for one in roots)


def _clock(instant: datetime | None, otherwise: datetime, name: str) -> datetime:
    return otherwise if instant is None else _instant(instant, f"clocks.{name}")


def _instant(instant: object, name: str) -> datetime:
    if not isinstance(instant, datetime) or instant.tzinfo is None or instant.utcoffset() is None:
        raise TypeError(f"{name} is not a time with a time zone")
    return instant.astimezone(timezone.utc)
