"""How long a blocking call may take, and what is said when that is over."""

from __future__ import annotations

import math
import time
from typing import NamedTuple

from promptkit.errors import InvalidRequestError


class TimeLimit(NamedTuple):
    """The limit of one call, which ``subject`` names; ``part`` is the work of it that the limit can meet."""

    seconds: float = math.inf
    ends: float = math.inf  # on the monotonic clock
    subject: str = "the call"
    part: str = "it"

    @property
    def over(self) -> bool:
        """Whether the time has passed."""
        return self.ends <= time.monotonic()

    def of_part(self, part: str) -> TimeLimit:
        """Give the same limit for a part of the work."""
        return self._replace(part=part)

    def error(self, fate: str) -> TimeoutError:
        """Give the error for a call whose time is over. ``fate`` says what became of its work."""
        return TimeoutError(f"{self.subject} did not finish within its timeout of {self.seconds:g} s: {fate}")


NO_LIMIT = TimeLimit()


def limit_of(timeout: float | None, subject: str) -> TimeLimit:
    """Read the ``timeout`` of a call that begins now. None: no limit.

    Raises InvalidRequestError for what is no number of seconds.
    """
    if timeout is None:
        return NO_LIMIT
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        msg = f"timeout: Expected a number of seconds, or None for no limit, got `{type(timeout).__name__}`"
        raise InvalidRequestError(msg)
    plain: float = (
        int.__pos__(timeout) if isinstance(timeout, int) else float.__pos__(timeout)
    )  # whatever a subclass says
    if not plain >= 0:  # NaN too
        msg = "timeout: must be 0 or more seconds, or None for no limit"
        raise InvalidRequestError(msg)
    seconds = min(plain, 1e12)  # an integer can be too large for a float
    return TimeLimit(seconds, time.monotonic() + seconds, subject)
