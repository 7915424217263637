"""Times of proofs as Unix milliseconds: a log may state one that no calendar of Python's has."""

from __future__ import annotations

from datetime import datetime, timezone

from ..common.times import iso_time, milliseconds

MAX_MS = 8_640_000_000_000_000
"""What comes later is no time, as in ECMAScript."""


def of(instant: datetime) -> int:
    return milliseconds(instant)


def iso_exact(at: int) -> str:
    """`2025-01-31T00:00:00.000Z`"""
    return str(iso_time(at / 1000))


def iso(at: int) -> str:
    """`2025-01-31T00:00:00Z`"""
    return iso_exact(at).replace(".000Z", "Z")


def instant(at: int) -> datetime:
    """Of a time within a certificate's."""
    return datetime.fromtimestamp(at // 1000, timezone.utc)
