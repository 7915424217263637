"""Instants as the reports print them: ISO 8601 in UTC with milliseconds, as ECMAScript writes them."""

from __future__ import annotations

import math
import re
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


_ISO = re.compile(r"([+-][0-9]{6}|[0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})\.([0-9]{3})Z")


def unix_milliseconds(text: str) -> int:
    """Of what `iso_time` writes. @raises ValueError"""
    match = _ISO.fullmatch(text)
    if match is None:
        raise ValueError("not a time of a report")
    year, month, day, hour, minute, second, rest = map(int, match.groups())
    cycles, year = divmod(year, 400)
    date = datetime(2000 + year, month, day, hour, minute, second, 1000 * rest, timezone.utc)
    return milliseconds(date) + (cycles - 5) * 146_097 * _DAY
