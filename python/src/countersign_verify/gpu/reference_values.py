"""
A device's endorsements and reference values: finds and verifies its RIMs, checks revocation, compares measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import Any, Literal, TypeVar

from ..common.checks import CheckFailure
from ..common.times import milliseconds
from ..x509 import Certificate
from ..x509.chain import printable
from ..x509.revocation import verify_ocsp
from .collateral import Collateral, OcspAnswer, OcspQuery, RimQuery
from .nvidia import DeviceIdentity, rim_ids
from .rim.rim import Manifest, Measurement, Rim, verify_rim
from .spdm.report import Report


class CachedCollateral:
    """
    Requests each document once in one verification, however many devices need it. The next verification fetches again
    what was refused.
    """

    def __init__(self, source: Collateral | None) -> None:
        self._source = source
        self._known: dict[object, Any] = {}

    def rim(self, query: RimQuery) -> str | bytes | None:
        source = self._source
        return None if source is None else self._once(query, lambda: source.rim(query))

    def ocsp(self, query: OcspQuery) -> OcspAnswer | None:
        source = self._source
        key = (milliseconds(query.at), query.certificate.der)
        return None if source is None else self._once(key, lambda: source.ocsp(query))

    def refused(self, query: RimQuery | OcspQuery) -> None:
        refused = getattr(self._source, "refused", None)
        if refused is not None:
            refused(query)

    def _once(self, key: object, ask: Callable[[], Any]) -> Any:
        if key not in self._known:
            try:
                self._known[key] = (True, ask())
            except Exception as error:
                self._known[key] = (False, error)
        answered, result = self._known[key]
        if answered:
            return result
        raise result


@dataclass(frozen=True)
class ContextClocks:
    report: datetime
    ocsp: datetime
    rim: datetime
    rim_ocsp: datetime
    token: datetime


T = TypeVar("T")


@dataclass(frozen=True)
class EndorsementContext:
    """What reference values and revocation are checked with."""

    clocks: ContextClocks
    rim_roots: tuple[Certificate, ...]
    collateral: CachedCollateral


@dataclass(frozen=True)
class ReferenceValues:
    driver: Rim | None
    vbios: Rim
    queries: Sequence[RimQuery]
    """The queries that found them."""


def find_reference_values(identity: DeviceIdentity, report: Report, context: EndorsementContext) -> ReferenceValues:
    """@raises CheckFailure: rim_unavailable, and what verify_rim raises."""
    opaque = report.opaque
    ids = rim_ids(identity, opaque)
    if ids is None or opaque.vbios_version is None:
        raise CheckFailure("rim_unavailable", "the report does not say which reference values are its")
    of_vbios = RimQuery(ids.vbios, opaque.vbios_version, identity.chip)
    if ids.driver is None or opaque.driver_version is None:
        return ReferenceValues(None, _find_rim(of_vbios, False, context), [of_vbios])
    of_driver = RimQuery(ids.driver, opaque.driver_version, identity.chip)
    # Both are asked for, so that a source that keeps what it fetched has both; the first failure counts.
    driver, vbios = _all_results(
        [partial(_find_rim, of_driver, True, context), partial(_find_rim, of_vbios, False, context)]
    )
    return ReferenceValues(driver, vbios, [of_driver, of_vbios])


def _all_results(gets: Iterable[Callable[[], T]]) -> list[T]:
    """Calls every one, and only then raises the first failure."""
    results: list[T] = []
    failure: CheckFailure | None = None
    for get in gets:
        try:
            results.append(get())
        except CheckFailure as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return results


def _find_rim(query: RimQuery, of_driver: bool, context: EndorsementContext) -> Rim:
    document: str | bytes = _available("rim_unavailable", query.id, lambda: context.collateral.rim(query))
    with _or_refused([query], context):
        rim = verify_rim(document, context.rim_roots, context.clocks.rim)
        # How NVIDIA marks a switch's RIM has not been seen: version, signer and measurements tell its BIOS from a
        # GPU's.
        if (rim.manifest.kind == "driver") != of_driver:
            raise CheckFailure("rim_mismatch", f"what came for {query.id} is a RIM of another kind")
        return rim


@contextmanager
def _or_refused(queries: Sequence[RimQuery | OcspQuery], context: EndorsementContext) -> Iterator[None]:
    """Tells the collateral when a check refuses what it returned, so that a wrong response is not kept."""
    try:
        yield
    except CheckFailure:
        for query in queries:
            context.collateral.refused(query)
        raise


def _available(code: Literal["rim_unavailable", "revocation_unavailable"], what: str, get: Callable[[], Any]) -> Any:
    """An error of the network, or of the caller's collateral, counts as absence, with its reason."""
    try:
        got = get()
    except Exception as cause:
        raise CheckFailure(code, f"{what} could not be had: {printable(str(cause), 200)}") from cause
    if got is None:
        raise CheckFailure(code, f"{what} is not at hand")
    return got


def check_revocation(path: Sequence[Certificate], rims: ReferenceValues | None, context: EndorsementContext) -> int:
    """
    Checks the OCSP status of a device's certificates and of those that signed its reference values. Left out are its
    leaf, which the boot ROM issues at each start and no responder knows, and the roots.
    Returns how many certificates were good. @raises CheckFailure
    """
    clocks = context.clocks
    chains: list[tuple[Sequence[Certificate], datetime]] = [(path[1:], clocks.ocsp)]
    if rims is not None:
        signers = [rim.signer for rim in (rims.driver, rims.vbios) if rim is not None]
        chains += [(signer, clocks.rim_ocsp) for signer in signers]
    distinct: dict[bytes, OcspQuery] = {}
    for chain, at in chains:
        for certificate, issuer in pairwise(chain):
            distinct.setdefault(certificate.der, OcspQuery(certificate, issuer, at))
    # All are asked for, so that which failure is reported does not depend on an earlier one.
    return len(_all_results([partial(_check_status, query, context) for query in distinct.values()]))


def _check_status(query: OcspQuery, context: EndorsementContext) -> None:
    what = f"the status of '{query.certificate.subject_common_name}'"
    answer: OcspAnswer = _available("revocation_unavailable", what, lambda: context.collateral.ocsp(query))
    with _or_refused([query], context):
        verify_ocsp(answer.response, query.certificate, query.issuer, query.at, answer.nonce)


# Compares reference values with what a device measured: each active RIM index i against measurement block i + 1.


@dataclass(frozen=True)
class MatchedMeasurements:
    driver: int
    """Measurements compared and found right; a skipped one is not among them."""
    vbios: int
    skipped: Sequence[int]
    """RIM indices left out because NVDEC0 is disabled."""

    @property
    def matched(self) -> int:
        return self.driver + self.vbios


# The measurement of NVDEC0.
_NVDEC0_INDEX = 35


def compare(
    values: ReferenceValues, identity: DeviceIdentity, report: Report, context: EndorsementContext
) -> MatchedMeasurements:
    """
    A GPU has two RIMs; a switch has its BIOS RIM alone.
    @raises CheckFailure: rim_mismatch: a RIM is for another version, or the two claim the same index;
    measurement_mismatch: naming the RIM indices, counted from 0.
    """
    with _or_refused(values.queries, context):
        return _match_measurements(values, identity, report)


def _match_measurements(values: ReferenceValues, identity: DeviceIdentity, report: Report) -> MatchedMeasurements:
    driver = None if values.driver is None else values.driver.manifest
    vbios = values.vbios.manifest
    # The product name is known for Hopper's RIMs alone.
    product = identity.chip if identity.arch == "HOPPER" else None
    if driver is not None:
        _same_version("driver", driver, report.opaque.driver_version, product)
    _same_version("VBIOS", vbios, report.opaque.vbios_version, product)
    if driver is not None:
        _no_conflict(driver, vbios)
    of_driver = _Compared(0, [], []) if driver is None else _compared("driver", driver, report)
    of_vbios = _compared("VBIOS", vbios, report)
    wrong = [*of_driver.wrong, *of_vbios.wrong]
    if wrong:
        raise CheckFailure("measurement_mismatch", f"the device does not match {'; '.join(wrong)}")
    return MatchedMeasurements(of_driver.matched, of_vbios.matched, [*of_driver.skipped, *of_vbios.skipped])


@dataclass(frozen=True)
class _Compared:
    matched: int
    skipped: Sequence[int]
    wrong: Sequence[str]
    """What does not match, in words."""


def _compared(label: str, rim: Manifest, report: Report) -> _Compared:
    matching = {
        index: _is_one_of(measurement, report.blocks.get(index + 1))
        for index, measurement in rim.measurements.items()
        if measurement.active
    }
    # Disabled, NVDEC0 need not match; where it does, it counts like any other.
    exempt = report.opaque.nvdec0_disabled is True and matching.get(_NVDEC0_INDEX) is False
    skipped = [_NVDEC0_INDEX] if exempt else []
    required = {index: matches for index, matches in matching.items() if index not in skipped}
    mismatched = sorted(index for index, matches in required.items() if not matches)
    wrong = _too_old(rim, report.opaque.svns)
    if mismatched:
        wrong.insert(0, f"{label} RIM indices {', '.join(map(str, mismatched))}")
    if not required:
        wrong.insert(0, f"nothing in the {label} RIM")
    return _Compared(len(required) - len(mismatched), skipped, wrong)


def _is_one_of(measurement: Measurement, block: str | None) -> bool:
    return block is not None and block != "" and block in measurement.values


def _same_version(label: str, rim: Manifest, version: str | None, product: str | None) -> None:
    """
    NVIDIA's verifier compares versions without regard to case: reports and RIMs write their digits differently.
    """
    if version is None:
        raise CheckFailure("rim_mismatch", f"the report names no {label} version")
    if rim.version.lower() != version.lower():
        raise CheckFailure(
            "rim_mismatch", f"the {label} RIM is for {_quoted(rim.version)}, the report has {_quoted(version)}"
        )
    if product is not None and rim.product.lower() != product.lower():
        raise CheckFailure(
            "rim_mismatch", f"the {label} RIM is for {_quoted(rim.product)}, the report is of {_quoted(product)}"
        )


def _no_conflict(driver: Manifest, vbios: Manifest) -> None:
    both = [
        str(index)
        for index, measurement in driver.measurements.items()
        if measurement.active and index in vbios.measurements and vbios.measurements[index].active
    ]
    both += [f"opaque type {kind}" for kind in driver.minimum_svns if kind in vbios.minimum_svns]
    if both:
        raise CheckFailure("rim_mismatch", f"driver and VBIOS RIM both claim {', '.join(both)}")


def _too_old(rim: Manifest, svns: Mapping[int, int]) -> list[str]:
    return [
        f"security version {minimum} of opaque type {kind}"
        for kind, minimum in rim.minimum_svns.items()
        if svns.get(kind, -1) < minimum
    ]


def _quoted(text: str) -> str:
    return f"'{printable(text, 40)}'"
