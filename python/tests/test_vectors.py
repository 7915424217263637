"""Every file of vectors/cases has the verdict that it states, and fails, if it fails, by that one check."""

import pytest

from countersign_verify import (
    CHECKS,
    VerificationError,
    VerificationReport,
    appraise_attestation,
    appraise_evidence,
    verify_attestation,
    verify_evidence,
)
from countersign_verify.common.checks import UNAVAILABLE
from vectors import Vector, read_vectors

VECTORS = read_vectors()
each = pytest.mark.parametrize("vector", VECTORS, ids=[vector.name for vector in VECTORS])


def appraise(vector: Vector) -> VerificationReport:
    call = appraise_evidence if vector.is_evidence else appraise_attestation
    return call(vector.given, **vector.options)


@each
def test_has_the_verdict_that_it_states(vector: Vector) -> None:
    report, stated = appraise(vector), vector.expect
    failed = [(check.name, check.code) for check in report.checks if check.status == "fail"]
    assert failed == ([] if stated["valid"] else [(stated["failed_check"], stated["code"])])
    assert (report.valid, report.level) == (stated["valid"], stated["level"])
    skipped = {check.name: check.detail for check in report.checks if check.status == "skip"}
    assert "" not in skipped.values()
    if stated["valid"]:
        assert set(skipped) == set(stated.get("skipped", []))
        assert vector.check in {check.name for check in report.checks if check.status == "pass"} | set(skipped)


@each
def test_raises_or_returns_as_it_appraises(vector: Vector) -> None:
    call = verify_evidence if vector.is_evidence else verify_attestation
    if vector.expect["valid"]:
        assert call(vector.given, **vector.options).valid
        return
    with pytest.raises(VerificationError) as error:
        call(vector.given, **vector.options)
    assert error.value.code == vector.expect["code"]


@each
def test_is_incomplete_where_nothing_was_found_wrong(vector: Vector) -> None:
    assert appraise(vector).incomplete == (vector.expect.get("code") in UNAVAILABLE)


def test_every_check_has_one_that_passes_and_one_that_fails() -> None:
    for check in (*CHECKS, "bundle"):
        about = [vector for vector in VECTORS if vector.check == check]
        assert any(vector.expect["valid"] for vector in about), check
        assert any(vector.expect.get("failed_check") == check for vector in about), check
