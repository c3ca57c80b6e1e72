"""How long to wait before a retry, or whether to wait at all."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from promptkit._values.definitions import RetryPolicy

LARGEST_EXPONENT = 64  # 2**64 base delays are above any max_delay; more would overflow a float


class Delay(NamedTuple):
    """A wait in seconds, and who asked for it."""

    seconds: float
    source: Literal["backoff", "retry_after"]


def delay_before(retry: int, policy: RetryPolicy, demand: float | None, chance: float) -> Delay | None:
    """Choose the wait before retry ``retry`` (1 is the first), or None when the demand is longer than is allowed.

    ``chance`` is uniform in [0, 1). Without a demand the wait is uniform between ``base_delay`` and the lesser of
    ``max_delay`` and base_delay * 2**retry; a demand is waited out, plus up to one base delay. One that is no time to
    wait (zero, negative, infinite, not a number) is none.
    """
    if demand is not None and 0 < demand < math.inf:
        if demand > policy.max_retry_after:
            return None
        return Delay(demand + chance * policy.base_delay, "retry_after")
    ceiling = min(policy.max_delay, policy.base_delay * 2.0 ** min(retry, LARGEST_EXPONENT))
    floor = min(policy.base_delay, ceiling)
    return Delay(floor + chance * (ceiling - floor), "backoff")
