"""
The checks that a verification consists of: their names and codes, the list that runs them, and the error that carries
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

T = TypeVar("T")

CHECKS: tuple[str, ...] = (
    "form",  # 1
    "raw_hash",  # 2
    "raw_members",  # 3
    "expected_exchange",  # 3: equality with the request, response or stream the caller holds
    "token_shape",  # 4
    "token_nonce",
    "token_result",
    "token_digests",
    "token_signature",
    "report_form",  # 5
    "report_nonce",
    "report_signature",
    "report_chain",
    "report_fwid",
    "revocation",  # 6
    "reference_values",  # 7
    "token_report_match",  # 8
    "device_mode",  # 9
    "topology",  # 9: over all devices at once
    "policy",  # 10
)
"""Of every attestation, in the order in which they run, in ten groups."""

CPU_CHECKS: tuple[str, ...] = (
    "cpu_form",
    "cpu_signature",
    "cpu_chain",
    "cpu_identity",
    "cpu_revocation",
    "cpu_vtpm",  # of Azure's types alone
    "cpu_binding",
    "cpu_devices",
    "cpu_answer",
    "cpu_mode",
    "cpu_tcb",
    "cpu_measurement",
    "cpu_software",
    "cpu_weights",
)
"""Of a processor's evidence, where there is some; they run after `topology` and before `policy`."""

RELEASE_CHECKS: tuple[str, ...] = ("release", "release_status")
"""Of a release, where the caller names one; they run before those of a processor's evidence, which is compared with its list."""

_ORDER = ("form", "bundle", *CHECKS[1:-1], *RELEASE_CHECKS, *CPU_CHECKS, "policy")
"""Every name, in the order in which checks are reported. The check of a compact attestation's bundle runs after `form`."""
_RANK = {name: rank for rank, name in enumerate(_ORDER)}

FailureCode = Literal[
    "not_json",
    "not_an_attestation",
    "unsigned_member",
    "event_not_expected",
    "too_large",
    "bundle_unavailable",
    "bundle_mismatch",
    "bundle_malformed",
    "raw_hash_mismatch",
    "batch_malformed",
    "batch_proof_invalid",
    "raw_malformed",
    "endpoint_mismatch",
    "request_mismatch",
    "response_mismatch",
    "stream_malformed",
    "stream_mismatch",
    "stream_not_foldable",
    "token_malformed",
    "token_nonce_mismatch",
    "token_result_false",
    "token_digest_mismatch",
    "token_signature_invalid",
    "token_expired",
    "token_issuer_unknown",
    "token_key_unavailable",
    "evidence_missing",
    "evidence_malformed",
    "report_malformed",
    "report_nonce_mismatch",
    "report_signature_invalid",
    "chain_invalid",
    "certificate_expired",
    "untrusted_root",
    "simulated_root_refused",
    "fwid_mismatch",
    "revocation_unavailable",
    "revocation_invalid",
    "certificate_revoked",
    "rim_unavailable",
    "rim_malformed",
    "rim_signature_invalid",
    "rim_chain_invalid",
    "rim_signer_expired",
    "rim_mismatch",
    "measurement_mismatch",
    "token_report_mismatch",
    "device_not_confidential",
    "debug_enabled",
    "topology_mismatch",
    "too_old",
    "policy_refused",
    "device_not_accepted",
    "cpu_missing",
    "cpu_malformed",
    "cpu_unsupported",
    "cpu_signature_invalid",
    "cpu_identity_mismatch",
    "cpu_vtpm_invalid",
    "cpu_binding_mismatch",
    "session_expired",
    "session_mismatch",
    "cpu_devices_mismatch",
    "answer_signature_invalid",
    "cpu_policy_refused",
    "collateral_unavailable",
    "collateral_invalid",
    "collateral_expired",
    "tcb_not_accepted",
    "event_log_mismatch",
    "software_mismatch",
    "weights_missing",
    "weights_mismatch",
    "release_unavailable",
    "release_too_large",
    "release_malformed",
    "release_unsupported",
    "release_untrusted",
    "release_root_expired",
    "release_log_ended",
    "release_time_invalid",
    "release_time_ahead",
    "release_certificate_invalid",
    "release_certificate_expired",
    "release_sct_invalid",
    "release_entry_mismatch",
    "release_proof_invalid",
    "release_checkpoint_invalid",
    "release_signature_invalid",
    "release_issuer_mismatch",
    "release_repository_mismatch",
    "release_id_mismatch",
    "release_ref_mismatch",
    "release_tag_mismatch",
    "release_event_mismatch",
    "release_runner_mismatch",
    "release_workflow_mismatch",
    "release_identity_mismatch",
    "release_commit_mismatch",
    "release_statement_malformed",
    "release_subject_duplicate",
    "release_subject_mismatch",
    "release_list_malformed",
    "release_status_unavailable",
    "release_status_malformed",
    "release_status_stale",
    "release_withdrawn",
    "release_not_shown",
]
"""Why a check failed. A closed union: programs branch on it, and every code is documented in docs/errors.md."""

UNAVAILABLE: frozenset[str] = frozenset(
    {
        "revocation_unavailable",
        "rim_unavailable",
        "token_key_unavailable",
        "collateral_unavailable",
        "bundle_unavailable",
        "release_unavailable",
        "release_status_unavailable",
    }
)
"""Codes of checks that could not run: nothing was found wrong."""


@dataclass(frozen=True)
class Check:
    name: str
    status: Literal["pass", "fail", "skip"]
    detail: str
    """What was seen, or the reason of a skip: one sentence, without prompt or completion text."""
    code: FailureCode | None = None
    """Present when and only when the status is `fail`."""
    device: int | None = None
    """Which device, counted from 0, for a check made on one of several."""

    def to_dict(self) -> dict[str, Any]:
        code = {} if self.code is None else {"code": self.code}
        device = {} if self.device is None else {"device": self.device}
        return {"name": self.name, "status": self.status, **code, "detail": self.detail, **device}


class CheckFailure(Exception):
    """Raised inside a check; the list turns it into a `fail`."""

    def __init__(self, code: FailureCode, message: str) -> None:
        super().__init__(message)
        self.code: FailureCode = code
        self.message = message


class VerificationError(Exception):
    """The verification failed. `code` is that of the first check that failed; `checks` is the whole list."""

    def __init__(self, checks: Sequence[Check]) -> None:
        failed = next((check for check in checks if check.status == "fail"), None)
        if failed is None or failed.code is None:
            raise TypeError("a VerificationError needs a failed check")
        super().__init__(f"{failed.name}: {failed.detail}")
        self.code: FailureCode = failed.code
        self.checks: tuple[Check, ...] = tuple(checks)

    def __reduce__(self) -> tuple[type[VerificationError], tuple[tuple[Check, ...]]]:
        return (VerificationError, (self.checks,))


# Runs checks and keeps their list: a check whose grounds have failed is a skip, never a pass.


@dataclass(frozen=True)
class Passed(Generic[T]):
    """A check that passed: what was seen, and the value that may be used from now on."""

    detail: str
    value: T


@dataclass(frozen=True)
class Skipped:
    """There is nothing to check here, for this reason."""

    skip: str


def passed(detail: str, value: T) -> Passed[T]:
    return Passed(detail, value)


def seen(detail: str) -> Passed[Literal[True]]:
    return Passed(detail, True)


def skipped(skip: str) -> Skipped:
    return Skipped(skip)


class CheckList:
    def __init__(self, stops_at_failure: bool = False) -> None:
        """@param stops_at_failure nothing runs after a check that failed."""
        self._checks: list[Check] = []
        self._unmet: set[tuple[str, int | None]] = set()
        """What failed or could not run for a failure, by name and device."""
        self._stops_at_failure = stops_at_failure
        self._failed: str | None = None
        """The check that failed first."""

    def run(
        self,
        name: str,
        after: Sequence[str],
        check: Callable[[], Passed[T] | Skipped],
        device: int | None = None,
    ) -> T | None:
        """
        Runs `check` when everything in `after` went well, of the same device or of none. A CheckFailure becomes a
        `fail`; other errors are not the evidence's fault and pass through.
        Returns the value, or None when there is none to use.
        """
        ground = next((one for one in after if (one, None) in self._unmet or self.unmet(one, device)), None)
        if ground is None and self._stops_at_failure:
            ground = self._failed
        if ground is not None:
            self._unmet.add((name, device))
            self.skip(name, f"not run: {ground} failed", device)
            return None
        try:
            outcome = check()
        except CheckFailure as failure:
            self._unmet.add((name, device))
            self._failed = self._failed or name
            self._checks.append(Check(name, "fail", failure.message, failure.code, device))
            return None
        if isinstance(outcome, Skipped):
            self.skip(name, outcome.skip, device)
            return None
        self._checks.append(Check(name, "pass", outcome.detail, None, device))
        return outcome.value

    def skip(self, name: str, detail: str, device: int | None = None) -> None:
        self._checks.append(Check(name, "skip", detail, None, device))

    def unmet(self, name: str, device: int | None = None) -> bool:
        """True when this check failed or could not run, for any device where none is named."""
        if device is not None:
            return (name, device) in self._unmet
        return any(one == name for one, _ in self._unmet)

    @property
    def checks(self) -> tuple[Check, ...]:
        """In the order in which they are reported, then of the devices."""
        return tuple(
            sorted(self._checks, key=lambda check: (_RANK[check.name], -1 if check.device is None else check.device))
        )

    @property
    def valid(self) -> bool:
        return len(self._checks) > 0 and all(check.status != "fail" for check in self._checks)

    @property
    def incomplete(self) -> bool:
        """True when it is not valid, and only for checks that could not run."""
        codes = [check.code for check in self._checks if check.status == "fail"]
        return len(codes) > 0 and all(code in UNAVAILABLE for code in codes)

    def passed(self, name: str) -> bool:
        own = [check for check in self._checks if check.name == name]
        return len(own) > 0 and all(check.status == "pass" for check in own)


@dataclass(frozen=True)
class Limits:
    """What is read of an input at most."""

    max_characters: float | None = None
    """Characters of JSON text; 64 Mi by default."""
    max_values: float | None = None
    """Names and values in it, and again in raw; 16 Mi by default."""
