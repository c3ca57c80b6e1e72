"""How long a backend asks to wait.

The first usable demand counts: ``retry-after-ms``, then ``retry-after``, then a ``google.rpc.RetryInfo`` in the error's
details. What is zero, past, negative, not finite, not ASCII, repeated or unreadable is no demand, and the next source
is asked: a useless header does not hide a useful one. Without any, the caller's own backoff decides.

Sources: RFC 9110, sections 5.6.7 (dates) and 10.2.3 (Retry-After).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from promptkit._wire.documents import member

Headers = Sequence[tuple[str, str]]

_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+", re.ASCII)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_TIME = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
# RFC 9110 asks recipients to be robust: the other spellings of UTC are taken for GMT. No other zone is.
_ZONE = r"(?:GMT|UTC|[+-]0000)"
_DATES = tuple(
    re.compile(pattern, re.ASCII | re.IGNORECASE)
    for pattern in (
        rf"[a-z]{{3}}, (?P<day>[0-9]{{2}}) (?P<month>[a-z]{{3}}) (?P<year>[0-9]{{4}}) {_TIME} {_ZONE}",
        rf"[a-z]{{6,9}}, (?P<day>[0-9]{{2}})-(?P<month>[a-z]{{3}})-(?P<year>[0-9]{{2}}) {_TIME} {_ZONE}",
        rf"[a-z]{{3}} (?P<month>[a-z]{{3}}) (?P<day>[ 0-9][0-9]) {_TIME} (?P<year>[0-9]{{4}})",
    )
)
_LEAP_SECOND = 60


def demand(headers: Headers, error: object, now: datetime) -> float | None:
    """Give the wait in seconds, above 0 and finite, or None. ``error`` is the error object of the body, if any."""
    milliseconds = _seconds(_single(headers, "retry-after-ms"))
    header = _single(headers, "retry-after")
    waits = (
        None if milliseconds is None else _usable(milliseconds / 1000),
        _seconds(header),
        _until(header, now),
        _seconds(_retry_info(error)),
    )
    return next((wait for wait in waits if wait is not None), None)


def _single(headers: Headers, name: str) -> str | None:
    values = [value for key, value in headers if key.lower() == name]
    return values[0].strip(" \t") if len(values) == 1 else None


def _usable(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) and seconds > 0 else None


def _seconds(text: str | None) -> float | None:
    # float() alone would take "nan", "1_0", "1e999" and the digits of every script.
    if text is None or _SECONDS.fullmatch(text) is None:
        return None
    return _usable(float(text))


def _until(text: str | None, now: datetime) -> float | None:
    if text is None:
        return None
    for form in _DATES:
        found = form.fullmatch(text)
        if found is not None:
            then = _instant(found, now)
            return None if then is None else _usable((then - now).total_seconds())
    return None


def _instant(found: re.Match[str], now: datetime) -> datetime | None:
    month, second = found["month"].lower(), int(found["second"])
    if month not in _MONTHS or second > _LEAP_SECOND:
        return None
    year = _year(found["year"], now)
    try:
        minute = datetime(
            year,
            _MONTHS.index(month) + 1,
            int(found["day"]),
            int(found["hour"]),
            int(found["minute"]),
            tzinfo=UTC,
        )
        return minute + timedelta(seconds=second)
    except (ValueError, OverflowError):
        return None


def _year(digits: str, now: datetime) -> int:
    """Read a year. Of two digits, it is the one with these digits that is at most 50 years ahead (RFC 9110)."""
    if len(digits) == len("1994"):
        return int(digits)
    year = now.year - now.year % 100 + int(digits)
    if year > now.year + 50:
        return year - 100
    return year + 100 if year <= now.year - 50 else year


def _retry_info(error: object) -> str | None:
    """Find the delay, such as "36s" or "3.957525076s", and give its number."""
    details = member(error, "details")
    if not isinstance(details, list):
        return None
    kinds = [(member(detail, "@type"), member(detail, "retryDelay")) for detail in details]
    delays = [delay for kind, delay in kinds if isinstance(kind, str) and kind.endswith("google.rpc.RetryInfo")]
    if len(delays) != 1 or not isinstance(delays[0], str) or not delays[0].endswith("s"):
        return None
    return delays[0][:-1]
