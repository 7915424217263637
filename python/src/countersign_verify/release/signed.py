"""From a bundle to a verified statement: who signed it, by which identity, and since when the log has it."""

from __future__ import annotations

from dataclasses import dataclass

from ..common.checks import CheckFailure
from ..x509 import Certificate, ecdsa_verify
from . import times
from .bundle import ReleaseBundle
from .certificate import Identity, Named, check_chain, check_identity, check_receipts, read_leaf
from .log import check_body, check_inclusion, check_period, log_of, promised_time
from .timestamp import stamped_time
from .trusted_root import TrustedRoot

_SKEW_MS = 5 * 60 * 1000
"""The tolerance between the log's clock and ours."""


@dataclass(frozen=True)
class Signed:
    leaf: Certificate
    logged: int
    """When it was logged, Unix milliseconds: the earliest time that was shown."""


def verify_signed(bundle: ReleaseBundle, root: TrustedRoot, at: int | None) -> Signed:
    """
    Verifies certificate, log entry, times and signature: everything but whose they are. `at`: the time of the check,
    before which it must have been logged; None: any.
    @raises CheckFailure
    """
    material = bundle.material
    entry = material.entry
    leaf = read_leaf(material.certificate)
    log = log_of(entry, root.logs)
    promised = promised_time(entry, log)
    shown = [] if promised is None else [promised]
    shown += [stamped_time(stamp, bundle.signature, root.time_authorities) for stamp in material.timestamps]
    if not shown:
        raise CheckFailure("release_time_invalid", "neither the log nor a time authority says when it was logged")
    ahead = next((time for time in shown if at is not None and time > at + _SKEW_MS), None)
    if ahead is not None:
        message = f"it was logged at {times.iso(ahead)}, which is ahead of the time of the check"
        raise CheckFailure("release_time_ahead", message)
    for time in shown:
        check_period(log, time)
    issuer = check_chain(leaf, root.authorities, shown)
    check_receipts(leaf, issuer, root.certificate_logs)
    check_body(bundle, leaf)
    check_inclusion(entry, log)
    if leaf.curve != "P-256":
        raise CheckFailure("release_unsupported", "the certificate is of a key that is not P-256")
    if not ecdsa_verify(leaf, "SHA-256", bundle.signature, bundle.signed):
        raise CheckFailure("release_signature_invalid", "the signature over the statement does not verify")
    return Signed(leaf, min(shown))


@dataclass(frozen=True)
class SignedAs:
    named: Named
    logged: int


def verify_bundle(bundle: ReleaseBundle, root: TrustedRoot, identity: Identity, at: int | None) -> SignedAs:
    """@raises CheckFailure"""
    signed = verify_signed(bundle, root, at)
    return SignedAs(check_identity(signed.leaf, identity), signed.logged)
