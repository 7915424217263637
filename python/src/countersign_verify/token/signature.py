"""Who signed a token, and whether that proves anything: NVIDIA's service, Countersign, or nobody in particular."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA384

from ..common.checks import CheckFailure
from ..common.times import iso_time, milliseconds
from ..proto.bytes import EncodingError, from_base64url
from ..proto.strict_json import as_double, is_number
from .jws import Jws
from .token import COUNTERSIGN_ISSUER, Bundle, ParsedToken, TokenKind, text_claim

TokenSigner = Literal["nvidia-signed", "countersign-signed", "self-asserted"]
"""`self-asserted`: anyone can have made it."""
Jwks = Mapping[str, Any]
"""A JSON Web Key Set (RFC 7517): `{"keys": [{"kty", "kid", "crv", "x", "y"}]}`."""


NRAS_KEYS_URL = "https://nras.attestation.nvidia.com/.well-known/jwks.json"
"""
Where NVIDIA publishes the keys of its remote attestation service. They change daily and stay for about a month.
"""
_NRAS_ISSUER = "https://nras.attestation.nvidia.com"
# The Python SDK's published constants: for its outer JWT, and for what its local verifier makes.
_ENVELOPE_SECRET = b"notasecret"
_LOCAL_SECRET = b"secret"
_CLOCK_SKEW_SECONDS = 60
"""The tolerance between the signer's clock and ours."""
_ALGORITHMS: Mapping[TokenKind, tuple[str, ...]] = {
    "nvtrust": ("HS256", "ES384"),
    "nvattest": ("none",),
    "jwt": ("HS256", "ES384", "none"),
    "nras": ("ES384",),
    "countersign": ("ES384",),
}
"""
Which algorithms a shape may have. NVIDIA's Python SDK wraps what NRAS signed as it wraps what it made itself.
"""


@dataclass(frozen=True)
class TokenSignature:
    signature: TokenSigner
    detail: str


@dataclass(frozen=True)
class TokenKeys:
    """
    The keys that signed tokens are checked under. Countersign's verify no token of NVIDIA's; nor the other way round.
    """

    nras: Jwks | None = None
    countersign: Jwks | None = None
    fetch_nras: Callable[[str], Jwks] | None = None
    """Fetches NVIDIA's keys, at most once, where `nras` lacks the one that is needed."""


def verify_token_signature(parsed: ParsedToken, keys: TokenKeys, at: datetime) -> TokenSignature:
    """
    Verifies every JWT of a token. The weakest part decides.
    @param at the instant at which a signed token must be valid.
    @raises CheckFailure: token_signature_invalid, token_expired, token_issuer_unknown, token_key_unavailable
    """
    if parsed.envelope is not None:
        _verify_constant(parsed.envelope, [_ENVELOPE_SECRET])
    # The key of a native sidecar lives as long as its process. Without it the token counts for no more than its
    # evidence.
    keyless = parsed.kind == "countersign" and keys.countersign is None
    sources = _KeySources(keys)
    signers = {
        "self-asserted" if keyless else _verify_bundle(bundle, parsed.kind, sources, at) for bundle in parsed.bundles
    }
    if "self-asserted" in signers:
        how = (
            "signed by a key of Countersign that is not at hand"
            if keyless
            else "not signed"
            if any(bundle.overall.algorithm == "none" for bundle in parsed.bundles)
            else "signed with NVIDIA's published constant"
        )
        detail = f"the token is {how}: anyone can have made it, and it proves nothing by itself"
        return TokenSignature("self-asserted", detail)
    if "countersign-signed" in signers:
        return TokenSignature("countersign-signed", "signed by Countersign (ES384)")
    return TokenSignature("nvidia-signed", "signed by NVIDIA's remote attestation service (ES384)")


def _verify_bundle(bundle: Bundle, kind: TokenKind, keys: _KeySources, at: datetime) -> TokenSigner:
    algorithm = bundle.overall.algorithm
    parts = [bundle.overall, *bundle.submodules.values()]
    if algorithm not in _ALGORITHMS[kind]:
        raise _invalid("a JWT has an algorithm that is not accepted")
    if any(part.algorithm != algorithm for part in parts):
        raise _invalid("the parts of a token have several algorithms")
    if algorithm == "ES384":
        return _verify_signed(parts, keys, at)
    # NVIDIA's service signs with ES384 alone, so this token is a forgery.
    if any(_issuer_of(part) == _NRAS_ISSUER for part in parts):
        raise _invalid("a token in NVIDIA's name without NVIDIA's signature")
    for part in parts:
        if algorithm == "HS256":
            _verify_constant(part, [_LOCAL_SECRET, _ENVELOPE_SECRET] if kind == "jwt" else [_LOCAL_SECRET])
        elif part.signature:
            raise _invalid("a JWT without algorithm has a signature")
    return "self-asserted"


def _verify_signed(parts: Sequence[Jws], keys: _KeySources, at: datetime) -> TokenSigner:
    issuer, *others = dict.fromkeys(_issuer_of(part) for part in parts)
    ours = COUNTERSIGN_ISSUER.match(issuer or "") is not None
    if others or (issuer != _NRAS_ISSUER and not ours):
        raise CheckFailure("token_issuer_unknown", "the token is signed in the name of an issuer that is not known")
    for part in parts:
        key = _key_of(part.kid, keys.countersign() if ours else keys.nras())
        if not _verifies(key, part):
            raise _invalid("a signature does not verify")
    for part in parts:
        _check_time(part, at)
    return "countersign-signed" if ours else "nvidia-signed"


def _verifies(key: ec.EllipticCurvePublicKey, part: Jws) -> bool:
    if len(part.signature) != 96:
        return False
    r, s = (int.from_bytes(half, "big") for half in (part.signature[:48], part.signature[48:]))
    try:
        key.verify(encode_dss_signature(r, s), part.signing_input.encode("ascii"), ec.ECDSA(SHA384()))
    except InvalidSignature:
        return False
    return True


def _check_time(part: Jws, at: datetime) -> None:
    """RFC 7519 §4.1.4 and §4.1.5. A signed token without an end is refused."""
    now = milliseconds(at) / 1000
    exp, nbf = part.claims.get("exp"), part.claims.get("nbf", 0)
    if exp is None or nbf is None or not is_number(exp) or not is_number(nbf):
        raise _expired("the token does not say until when it is valid")
    end, start = as_double(exp), as_double(nbf)
    if not now < end + _CLOCK_SKEW_SECONDS:
        raise _expired(f"the token expired at {iso_time(end) or 'no instant'}")
    if not now >= start - _CLOCK_SKEW_SECONDS:
        raise _expired(f"the token is not valid before {iso_time(start) or 'no instant'}")


def _verify_constant(part: Jws, constants: Sequence[bytes]) -> None:
    if part.algorithm != "HS256":
        raise _invalid("a JWT has an algorithm that is not accepted")
    signed = part.signing_input.encode("ascii")
    if all(hmac.digest(constant, signed, "sha256") != part.signature for constant in constants):
        raise _invalid("a JWT does not verify under NVIDIA's published constant")


def _issuer_of(part: Jws) -> str | None:
    return text_claim(part.claims, "iss")


def _invalid(message: str) -> CheckFailure:
    return CheckFailure("token_signature_invalid", message)


def _expired(message: str) -> CheckFailure:
    return CheckFailure("token_expired", message)


# The keys: a JSON Web Key Set (RFC 7517) handed in or fetched.

_MAX_KEYS = 1024


class _KeySources:
    def __init__(self, keys: TokenKeys) -> None:
        self._keys = keys
        self._fetch = keys.fetch_nras
        self._fetched: Jwks | CheckFailure | None = None

    def countersign(self) -> Iterator[Jwks | None]:
        yield self._keys.countersign

    def nras(self) -> Iterator[Jwks | None]:
        yield self._keys.nras
        fetch, self._fetch = self._fetch, None
        if fetch is not None:
            self._fetched = _fetched(fetch)
        if isinstance(self._fetched, CheckFailure):
            raise self._fetched
        yield self._fetched


def _fetched(fetch: Callable[[str], Jwks]) -> Jwks | CheckFailure:
    try:
        return fetch(NRAS_KEYS_URL)
    except Exception:  # Whatever the network raises.
        return _unavailable("NVIDIA's keys could not be fetched")


def _key_of(kid: str | None, sources: Iterator[Jwks | None]) -> ec.EllipticCurvePublicKey:
    """The P-384 key of that id. @raises CheckFailure: token_key_unavailable"""
    if kid is None:
        raise _unavailable("a JWT names no key")
    for source in sources:
        jwk = None if source is None else _find_key(source, kid)
        if jwk is not None:
            return _imported(jwk)
    raise _unavailable("the key that a JWT names is in no key set at hand")


def _find_key(jwks: object, kid: str) -> Mapping[str, object] | None:
    keys = jwks.get("keys") if isinstance(jwks, Mapping) else None
    if not isinstance(keys, list | tuple) or len(keys) > _MAX_KEYS:
        raise _unavailable("the key set is not one")
    return next((key for key in keys if isinstance(key, Mapping) and key.get("kid") == kid), None)


def _imported(jwk: Mapping[str, object]) -> ec.EllipticCurvePublicKey:
    x, y = jwk.get("x"), jwk.get("y")
    if jwk.get("kty") != "EC" or jwk.get("crv") != "P-384" or not isinstance(x, str) or not isinstance(y, str):
        raise _unavailable("the key that a JWT names is not on P-384")
    try:
        numbers = [int.from_bytes(from_base64url(coordinate), "big") for coordinate in (x, y)]
        return ec.EllipticCurvePublicNumbers(numbers[0], numbers[1], ec.SECP384R1()).public_key()
    except (EncodingError, ValueError) as cause:
        raise _unavailable("the key that a JWT names is broken") from cause


def _unavailable(message: str) -> CheckFailure:
    return CheckFailure("token_key_unavailable", message)
