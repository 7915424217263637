"""Instants as the reports print them: ISO 8601 in UTC with milliseconds, as ECMAScript writes them."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_DAY = 86_400_000
_MAX = 100_000_000 * _DAY
"""Milliseconds from the epoch to the last instant that ECMAScript has a name for."""


def iso_time(seconds: float) -> str | None:
    """Of Unix seconds; None for an instant that is too far off for a calendar."""
    milliseconds = seconds * 1000
    if not abs(milliseconds) <= _MAX:
        return None
    days, rest = divmod(math.trunc(milliseconds), _DAY)
    # Python's calendar ends with the year 9999; that of ECMAScript does not. After 400 years the days of a year
    # come again.
    cycles, day = divmod(days, 146_097)
    date = _EPOCH + timedelta(days=day)
    year = date.year + 400 * cycles
    name = f"{year:04}" if 0 <= year <= 9999 else f"{'-' if year < 0 else '+'}{abs(year):06}"
    hours, rest = divmod(rest, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    return f"{name}-{date.month:02}-{date.day:02}T{hours:02}:{minutes:02}:{rest // 1000:02}.{rest % 1000:03}Z"


def iso_instant(instant: datetime) -> str:
    text = iso_time(milliseconds(instant) / 1000)
    assert text is not None
    return text


def milliseconds(instant: datetime) -> int:
    """Since the epoch, rounded down, as clocks here count."""
    return (instant - _EPOCH) // timedelta(milliseconds=1)
