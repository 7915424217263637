"""Signatures, ECDSA and RSASSA-PSS, with each public key parsed once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256, SHA384, SHA512, HashAlgorithm
from cryptography.hazmat.primitives.serialization import load_der_public_key

from ..common.lru import LruMap
from .der import DerError, at, integer, oid, read_one, sequence

Curve = Literal["P-256", "P-384"]
Hash = Literal["SHA-256", "SHA-384", "SHA-512"]


@dataclass(frozen=True, eq=False)
class PublicKey:
    spki: bytes
    """SubjectPublicKeyInfo, DER."""
    curve: Curve | None
    """None: a key that is on neither curve; for RSASSA-PSS it must be an RSA key."""


_MAX_KEYS = 256
# The SubjectPublicKeyInfo of an RSA key with 4,096 bits has 550 bytes.
_MAX_RSA_SPKI_BYTES = 600
_RSA_ENCRYPTION = "1.2.840.113549.1.1.1"
_HASHES: dict[Hash, HashAlgorithm] = {"SHA-256": SHA256(), "SHA-384": SHA384(), "SHA-512": SHA512()}
_COORDINATE_BYTES: dict[Curve, int] = {"P-256": 32, "P-384": 48}
_CURVE_NAMES: dict[Curve, str] = {"P-256": "secp256r1", "P-384": "secp384r1"}

_elliptic_keys: LruMap[bytes, ec.EllipticCurvePublicKey] = LruMap(_MAX_KEYS)
_rsa_keys: LruMap[bytes, rsa.RSAPublicKey] = LruMap(_MAX_KEYS)


def ecdsa_verify_raw(key: PublicKey, hash_name: Hash, signature: bytes, data: bytes) -> bool:
    """
    Whether `signature` (raw r ‖ s, as SPDM and JWS write it) is the key's over `data`. A key that is none verifies
    nothing.
    """
    if key.curve is None:
        return False
    size = _COORDINATE_BYTES[key.curve]
    if len(signature) != 2 * size:
        return False
    r, s = (int.from_bytes(half, "big") for half in (signature[:size], signature[size:]))
    return _ecdsa_verify(key, hash_name, r, s, data)


def ecdsa_verify(key: PublicKey, hash_name: Hash, signature: bytes, data: bytes) -> bool:
    """The same for DER of ECDSA-Sig-Value (RFC 3279 §2.2.3), as X.509 and OCSP write it."""
    try:
        values = sequence(read_one(signature))
        if len(values) != 2:
            return False
        r, s = (integer(value) for value in values)
    except DerError:
        return False
    return _ecdsa_verify(key, hash_name, r, s, data)


def _ecdsa_verify(key: PublicKey, hash_name: Hash, r: int, s: int, data: bytes) -> bool:
    if key.curve is None or r <= 0 or s <= 0:
        return False
    try:
        elliptic = _elliptic_key(key.spki, key.curve)
        if elliptic is None:
            return False
        elliptic.verify(encode_dss_signature(r, s), data, ec.ECDSA(_HASHES[hash_name]))
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
        return False
    return True


def _elliptic_key(spki: bytes, curve: Curve) -> ec.EllipticCurvePublicKey | None:
    known = _elliptic_keys.get(spki)
    if known is None:
        loaded = load_der_public_key(spki)
        if not isinstance(loaded, ec.EllipticCurvePublicKey):
            return None
        known = loaded
        _elliptic_keys.set(spki, known)
    return known if known.curve.name == _CURVE_NAMES[curve] else None


def pss_verify(key: PublicKey, signature: bytes, data: bytes) -> bool:
    """Whether `signature` is the RSA key's over `data`: RSASSA-PSS, SHA-384 throughout, 48 bytes of salt."""
    if key.curve is not None or len(key.spki) > _MAX_RSA_SPKI_BYTES:
        return False
    try:
        scheme = padding.PSS(mgf=padding.MGF1(SHA384()), salt_length=48)
        loaded = _rsa_key(key.spki)
        if loaded is None:
            return False
        loaded.verify(signature, data, scheme, SHA384())
    except (DerError, InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
        return False
    return True


def _rsa_key(spki: bytes) -> rsa.RSAPublicKey | None:
    known = _rsa_keys.get(spki)
    if known is not None:
        return known
    # A key under the identifier of RSASSA-PSS itself (RFC 4055 §1.2) is loaded as one of RSA; WebCrypto refuses it.
    if oid(at(sequence(at(sequence(read_one(spki)), 0)), 0)) != _RSA_ENCRYPTION:
        return None
    loaded = load_der_public_key(spki)
    if not isinstance(loaded, rsa.RSAPublicKey):
        return None
    _rsa_keys.set(spki, loaded)
    return loaded
