"""Verifies a certificate chain up to a pinned root (RFC 5280 §6.1, for chains that come in order)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Literal

from ..common.checks import CheckFailure, FailureCode
from ..common.lru import LruMap
from ..common.times import iso_instant
from .certificate import (
    AUTHORITY_KEY_ID,
    BASIC_CONSTRAINTS,
    EXTENDED_KEY_USAGE,
    KEY_USAGE,
    SUBJECT_KEY_ID,
    Certificate,
    Signature,
)
from .crl import Crl
from .public_key import PublicKey, ecdsa_verify, pss_verify

ChainReason = Literal["untrusted_root", "expired", "invalid"]


class ChainError(Exception):
    """`untrusted_root`: well-formed, but not under a root that the caller trusts."""

    def __init__(self, reason: ChainReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


_CODES: dict[ChainReason, FailureCode] = {
    "untrusted_root": "untrusted_root",
    "expired": "certificate_expired",
    "invalid": "chain_invalid",
}


def chain_failure(cause: ChainError) -> CheckFailure:
    """The failed check that it is on a device's own chain."""
    return CheckFailure(_CODES[cause.reason], str(cause))


_MAX_CHAIN = 8
# Critical extensions that are understood. Any other makes its certificate unusable (RFC 5280 §4.2).
_UNDERSTOOD = frozenset(
    {
        SUBJECT_KEY_ID,
        KEY_USAGE,
        BASIC_CONSTRAINTS,
        AUTHORITY_KEY_ID,
        EXTENDED_KEY_USAGE,
        "2.5.29.17",  # the subject's other names: nothing is decided by them
        "2.23.133.5.4.1",  # the firmware id, which the report check compares; TCG DICE lets it be critical
        "2.23.133.5.4.1.1",
    }
)


def verify_chain(chain: Sequence[Certificate], roots: Sequence[Certificate], at: datetime) -> list[Certificate]:
    """
    The full path, leaf first, the pinned root last. `chain` comes leaf first, with or without its root; the root that
    counts is the one in `roots`, never the one that came along.
    @raises ChainError
    """
    path = _anchored(chain, roots)
    if len(path) > _MAX_CHAIN:
        raise ChainError("invalid", "the chain is too long")
    for depth, certificate in enumerate(path):
        _check_certificate(certificate, depth)
    _check_signatures(path)
    # Last, so that an expired chain is known to be genuine otherwise.
    for certificate in path:
        if at < certificate.not_before:
            raise ChainError("expired", f"{label(certificate)} is not valid before {iso(certificate.not_before)}")
        if at > certificate.not_after:
            raise ChainError("expired", f"{label(certificate)} expired at {iso(certificate.not_after)}")
    return path


def _anchored(chain: Sequence[Certificate], roots: Sequence[Certificate]) -> list[Certificate]:
    """The chain with the pinned root at its end."""
    if not chain:
        raise ChainError("invalid", "the chain is empty")
    last = chain[-1]
    own = last if last.issuer == last.subject else None
    below = list(chain) if own is None else list(chain[:-1])
    # A chain that is a root alone has no leaf.
    if not below:
        raise ChainError("invalid", "the chain has no leaf")
    top = below[-1]
    for root in roots:
        if root.subject == top.issuer and (own is None or own.der == root.der or own.spki == root.spki):
            return [*below, root]
    end = f"the issuer of {label(top)}" if own is None else label(own)
    raise ChainError("untrusted_root", f"the chain ends in {end}, which is not a pinned root")


def not_understood(certificate: Certificate) -> str | None:
    """The object identifier of a critical extension that is not understood; None where there is none."""
    unknown = (name for name, one in certificate.extensions.items() if one.critical and name not in _UNDERSTOOD)
    return next(unknown, None)


def names(certificate: Certificate, issuer: Certificate) -> bool:
    """
    Whether this issuer is the one that the certificate names: by its name, and by its key's identifier where both
    state one (RFC 5280 §4.2.1.1).
    """
    stated, own = certificate.authority_key_id, issuer.subject_key_id
    return certificate.issuer == issuer.subject and (stated is None or own is None or stated == own)


def signed_by(signed: Signature, issuer: PublicKey) -> bool:
    """Whether `issuer`'s key signed this certificate, or this revocation list."""
    if signed.signature_scheme == "ECDSA":
        return ecdsa_verify(issuer, signed.signature_hash, signed.signature, signed.tbs)
    return pss_verify(issuer, signed.signature, signed.tbs)


def _check_certificate(certificate: Certificate, depth: int) -> None:
    unknown = not_understood(certificate)
    if unknown is not None:
        raise ChainError("invalid", f"{label(certificate)} has a critical extension that is not understood ({unknown})")
    if depth == 0:
        return
    if not certificate.is_ca:
        raise ChainError("invalid", f"{label(certificate)} is not a certificate authority")
    if not certificate.may("keyCertSign"):
        raise ChainError("invalid", f"{label(certificate)} may not sign certificates")
    # Authorities between this one and the leaf.
    if certificate.path_length is not None and depth - 1 > certificate.path_length:
        raise ChainError("invalid", f"{label(certificate)} allows a path of {certificate.path_length} authorities")


# Paths whose names and signatures were found right, by the certificates' hashes. Neither depends on time.
_verified: LruMap[bytes, bool] = LruMap(512)


def _check_signatures(path: Sequence[Certificate]) -> None:
    identity = b"".join(certificate.fingerprint for certificate in path)
    if _verified.get(identity):
        return
    for certificate, issuer in pairwise(path):
        if not names(certificate, issuer):
            raise ChainError("invalid", f"{label(certificate)} was not issued by {label(issuer)}")
    for certificate, issuer in pairwise(path):
        if not signed_by(certificate.signed, issuer):
            raise ChainError("invalid", f"the signature of {label(certificate)} does not verify under {label(issuer)}")
    _verified.set(identity, True)


def printable(text: str, most: int) -> str:
    """The first characters of a text of others, with a question mark for each that is not printable ASCII."""
    units = ("?" * (2 if one > "\uffff" else 1) if not " " <= one <= "~" else one for one in text[:most])
    return "".join(units)[:most]


def label(certificate: Certificate) -> str:
    return f"'{printable(certificate.subject_common_name, 80)}'"


def iso(instant: datetime) -> str:
    """`2025-01-31T00:00:00Z`"""
    return iso_instant(instant).replace(".000Z", "Z")


@dataclass(frozen=True)
class Anchors:
    roots: Sequence[Certificate]
    simulated_roots: Sequence[Certificate]
    """Roots of test keys, which prove nothing about hardware; empty unless the caller named some."""
    at: datetime


@dataclass(frozen=True)
class TrustedPath:
    path: Sequence[Certificate]
    """Leaf first, the root last."""
    simulated: bool


def trusted_path(chain: Sequence[Certificate], anchors: Anchors, what: str) -> TrustedPath:
    """
    A path to a pinned root, or to a simulated one that the caller named. `what` says of what a simulated one is
    refused: `a simulated device`.
    @raises CheckFailure: untrusted_root, simulated_root_refused, certificate_expired, chain_invalid
    """
    try:
        return TrustedPath(verify_chain(chain, anchors.roots, anchors.at), simulated=False)
    except ChainError as error:
        if error.reason != "untrusted_root":
            raise chain_failure(error) from error
    try:
        return TrustedPath(verify_chain(chain, anchors.simulated_roots, anchors.at), simulated=True)
    except ChainError as cause:
        if cause.reason == "untrusted_root" and not anchors.simulated_roots and any(map(_says_simulated, chain)):
            message = f"{what}, and the caller named no simulated root"
            raise CheckFailure("simulated_root_refused", message) from cause
        raise chain_failure(cause) from cause


def _says_simulated(certificate: Certificate) -> bool:
    return b"SIMULATED" in certificate.subject


def is_issued_by(crl: Crl, issuer: Certificate) -> bool:
    """Whether a revocation list has this authority's name and signature."""
    return crl.issuer == issuer.subject and issuer.may("cRLSign") and signed_by(crl.signed, issuer)
