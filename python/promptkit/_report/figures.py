"""Seconds, instants and names as the page shows them."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

from promptkit._values.visible import visible_name

if TYPE_CHECKING:
    from datetime import datetime

MINUTE, HOUR, DAY = 60, 3600, 86400
STEPS = (*(n * 10**-k for k in (6, 5, 4, 3, 2, 1) for n in (1, 2, 5)), 1, 2, 5, 10, 20, 30)
STEPS += (MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE)
STEPS += (HOUR, 2 * HOUR, 6 * HOUR, 12 * HOUR, *(n * 10**k * DAY for k in range(6) for n in (1, 2, 5)))
LONGEST = 200  # characters of a name that are shown


def bounded_name(text: str) -> str:
    """Give a name in which nothing hides, on one line; of a very long one the beginning, and how much follows."""
    if len(text) <= LONGEST:
        return visible_name(text)
    return f"{visible_name(text[:LONGEST])} … and {len(text) - LONGEST:,} more characters"


def seconds_text(seconds: float) -> str:
    """Give a duration with the precision that its length asks for."""
    if seconds < 10:
        return f"{seconds:.3f} s"
    if seconds < MINUTE:
        return f"{seconds:.2f} s"
    if round(seconds) < HOUR:
        minutes, rest = divmod(round(seconds), MINUTE)
        return f"{minutes} min {rest:02} s"
    if seconds < DAY:
        hours, rest = divmod(round(seconds / MINUTE), MINUTE)
        return f"{hours} h {rest:02} min"
    days, rest = divmod(round(seconds / HOUR), 24)
    return f"{days:,} d {rest} h"


def elapsed_text(seconds: float, step: float) -> str:
    """Give the label of a tick, as precise as the ticks are close."""
    if seconds < MINUTE:
        decimals = next((n for n in range(7) if step >= 0.999999 * 10**-n), 6)
        return f"{seconds:.{decimals}f} s" if seconds else "0"
    parts: list[str] = []
    rest = round(seconds, 6)
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "m")):
        whole, rest = divmod(rest, unit)
        if whole:
            parts.append(f"{whole:,.0f} {name}")
    if rest > 1e-6 and step < MINUTE:
        decimals = next((n for n in range(7) if step >= 0.999999 * 10**-n), 6)
        parts.append(f"{rest:.{decimals}f} s")
    return " ".join(parts[:3])


def step_of(seconds: float) -> float:
    """Choose the distance of ticks: the least round one that is not below the given."""
    return STEPS[min(bisect.bisect_left(STEPS, seconds), len(STEPS) - 1)]


def instant_text(at: datetime) -> str:
    """Give an instant in UTC, to the millisecond."""
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03}"
