"""
Verifies an OCSP response about a certificate (RFC 6960 §3.2): which certificate, which responder, when, and which
status.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from hashlib import sha256

from ..common.checks import CheckFailure
from ..common.lru import LruMap
from .certificate import Certificate
from .chain import iso, label, names, not_understood, signed_by
from .der import DerError
from .ocsp import (
    CertId,
    CertStatus,
    OcspRefusal,
    OcspResponse,
    Revoked,
    SingleResponse,
    issuer_hashes,
    key_hash,
    parse_ocsp_response,
)
from .public_key import ecdsa_verify


@dataclass(frozen=True)
class GoodStatus:
    """The certificate is good, and for which time."""

    this_update: datetime
    next_update: datetime


# Between the responder's clock and ours.
_SKEW = timedelta(minutes=5)
# The validity of a response without nextUpdate. NVIDIA's responses have a day.
_DEFAULT_VALIDITY = timedelta(days=1)
_END_OF_TIME = datetime.max.replace(tzinfo=timezone.utc)
_ID_KP_OCSP_SIGNING = "1.3.6.1.5.5.7.3.9"
# RFC 5280 §5.3.1.
_REASONS = ("unspecified", "key compromise", "CA compromise", "affiliation changed", "superseded", "cessation")
_ON_HOLD = 6


@dataclass(frozen=True)
class _Answer:
    """
    What was verified in a response and does not depend on time. It is kept, so that the next check compares times
    alone.
    """

    single: SingleResponse
    delegate: Certificate | None
    """None: the issuer responds itself."""
    nonce: bytes | None


_answers: LruMap[bytes, _Answer] = LruMap(256)


def verify_ocsp(
    response: bytes, certificate: Certificate, issuer: Certificate, at: datetime, nonce: bytes | None = None
) -> GoodStatus:
    """
    `response`: DER. `at`: the instant at which the response and the responder's certificate must be valid. `nonce`: of
    the request, where there was one now: the response must repeat it.
    @raises CheckFailure: revocation_invalid: not a response about this certificate that holds at this time;
    certificate_revoked: it is one, and the certificate is revoked or on hold; revocation_unavailable: the responder
    refused or does not know the certificate.
    """
    about = label(certificate)
    identity = sha256(response + certificate.der + issuer.der).digest()
    answer = _answers.get(identity)
    if answer is None:
        answer = _find_verified(response, certificate, issuer, about)
        _answers.set(identity, answer)
    delegate = answer.delegate
    if delegate is not None and not delegate.not_before <= at <= delegate.not_after:
        raise _invalid(f"the OCSP responder's certificate is valid until {iso(delegate.not_after)}")
    if nonce is not None and answer.nonce != nonce:
        raise _invalid(f"the OCSP response about {about} does not answer the request: its nonce is another")
    window = validity(answer.single)
    if at < window.this_update - _SKEW:
        raise _invalid(
            f"the OCSP response about {about} is from {iso(window.this_update)}, later than the time of the check"
        )
    if at > window.next_update:
        raise _invalid(f"the OCSP response about {about} held until {iso(window.next_update)}")
    _check_status(answer.single.status, about)
    return window


def _find_verified(response: bytes, certificate: Certificate, issuer: Certificate, about: str) -> _Answer:
    parsed = _parse(response)
    answers = statuses_of(parsed, certificate, issuer)
    if not answers:
        raise _invalid(f"the OCSP response is not about {about}")
    if any(one.cert_id.hash is None for one in answers):
        raise _invalid(f"the OCSP response may be about {about}: it names its issuer by a hash that is not supported")
    single = answers[0]
    if not all(_says_the_same(other, single) for other in answers):
        raise _invalid(f"the OCSP response says of {about} now this and now that")
    responder = _find_responder(parsed, issuer)
    if responder is not issuer and not signed_by(responder.signed, issuer):
        raise _invalid("the OCSP responder's certificate is not signed by the issuer of the certificate")
    if not ecdsa_verify(responder, parsed.signature_hash, parsed.signature, parsed.signed):
        raise _invalid("the signature of the OCSP response does not verify")
    return _Answer(single, None if responder is issuer else responder, parsed.nonce)


def statuses_of(response: OcspResponse, certificate: Certificate, issuer: Certificate) -> Sequence[SingleResponse]:
    """
    The parts of a response that are about this certificate, by the hashes of its issuer's name and key and its serial
    number. A part with its serial number and an unsupported hash is among them, because it may be about this
    certificate.
    """
    return [one for one in response.responses if _is_about(one.cert_id, certificate, issuer)]


def _is_about(cert_id: CertId, certificate: Certificate, issuer: Certificate) -> bool:
    if cert_id.serial != certificate.serial:
        return False
    if cert_id.hash is None:
        return True
    return (cert_id.issuer_name_hash, cert_id.issuer_key_hash) == issuer_hashes(issuer, cert_id.hash)


def _says_the_same(a: SingleResponse, b: SingleResponse) -> bool:
    """The status with its time and reason, and for how long."""
    return (a.status, a.this_update, a.next_update) == (b.status, b.this_update, b.next_update)


def validity(single: SingleResponse) -> GoodStatus:
    if single.next_update is not None:
        return GoodStatus(single.this_update, single.next_update)
    end = min(single.this_update, _END_OF_TIME - _DEFAULT_VALIDITY) + _DEFAULT_VALIDITY
    return GoodStatus(single.this_update, end)


def _parse(response: bytes) -> OcspResponse:
    try:
        return parse_ocsp_response(response)
    except OcspRefusal as cause:
        raise CheckFailure("revocation_unavailable", f"OCSP: {cause}") from cause
    except DerError as cause:
        raise CheckFailure("revocation_invalid", f"OCSP: {cause}") from cause


def _find_responder(response: OcspResponse, issuer: Certificate) -> Certificate:
    """§4.2.2.2: the issuer itself, or whom the issuer certified for this and nothing else."""
    for candidate in (issuer, *response.certificates):
        if not _is_responder(response, candidate):
            continue
        if candidate.der == issuer.der:
            return issuer
        if not names(candidate, issuer):
            raise _invalid("the OCSP responder was not certified by the issuer of the certificate")
        if _ID_KP_OCSP_SIGNING not in (candidate.extended_key_usage or ()):
            raise _invalid("the OCSP responder may not sign OCSP responses")
        if not candidate.may("digitalSignature"):
            raise _invalid("the OCSP responder may not sign")
        unknown = not_understood(candidate)
        if unknown is not None:
            raise _invalid(
                f"the OCSP responder's certificate has a critical extension that is not understood ({unknown})"
            )
        return candidate
    raise _invalid("the OCSP response does not bring its responder")


def _is_responder(response: OcspResponse, candidate: Certificate) -> bool:
    if response.responder_name is not None:
        return response.responder_name == candidate.subject
    return response.responder_key_hash == key_hash(candidate)


def _check_status(status: CertStatus, about: str) -> None:
    if status == "good":
        return
    if not isinstance(status, Revoked):
        raise CheckFailure("revocation_unavailable", f"the responder does not know {about}")
    if status.reason == _ON_HOLD:
        raise CheckFailure("certificate_revoked", f"{about} is on hold since {iso(status.at)}")
    reason = "" if status.reason is None else f": {_reason(status.reason)}"
    raise CheckFailure("certificate_revoked", f"{about} was revoked at {iso(status.at)}{reason}")


def _reason(reason: int) -> str:
    return _REASONS[reason] if reason < len(_REASONS) else f"reason {reason}"


def _invalid(message: str) -> CheckFailure:
    return CheckFailure("revocation_invalid", message)
