"""Waits stay within their bounds, spread over them, and obey a demand of the backend."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from promptkit._machines.backoff import Delay, delay_before
from promptkit._values.definitions import RetryPolicy

seconds = st.floats(0, 1e9)
policies = st.builds(RetryPolicy, base_delay=seconds, max_delay=seconds, max_retry_after=seconds)
chances = st.floats(0, 1, exclude_max=True)
retries = st.integers(1, 10**30)
ALMOST_ONE = math.nextafter(1, 0)


@given(retries, policies, chances)
@example(1, RetryPolicy(base_delay=0.1, max_delay=0.7), ALMOST_ONE)
@example(10**30, RetryPolicy(base_delay=1e300, max_delay=1.7e308), ALMOST_ONE)
def test_a_wait_is_between_base_delay_and_the_growing_ceiling(retry: int, policy: RetryPolicy, chance: float) -> None:
    delay = delay_before(retry, policy, None, chance)
    assert delay is not None
    assert delay.source == "backoff"
    assert delay.seconds <= policy.max_delay
    assert delay.seconds <= policy.base_delay * 2.0 ** min(retry, 200)
    assert delay.seconds >= min(policy.base_delay, policy.max_delay)


@pytest.mark.parametrize(("retry", "ceiling"), [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 8.0), (10**9, 8.0)])
def test_the_default_ceiling_doubles_up_to_max_delay(retry: int, ceiling: float) -> None:
    assert delay_before(retry, RetryPolicy(), None, 0.0) == Delay(0.5, "backoff")
    highest = delay_before(retry, RetryPolicy(), None, ALMOST_ONE)
    assert highest is not None
    assert highest.seconds == pytest.approx(ceiling)


def test_waits_are_spread_evenly_over_the_whole_range() -> None:
    dice = random.Random(7)
    found = [delay_before(3, RetryPolicy(), None, dice.random()) for _ in range(4000)]
    waits = [delay.seconds for delay in found if delay is not None]
    quarters = [sum(low <= (wait - 0.5) / 3.5 < low + 0.25 for wait in waits) for low in (0, 0.25, 0.5, 0.75)]
    assert sum(quarters) == 4000
    assert all(800 < count < 1200 for count in quarters)


@given(retries, policies, chances, chances)
def test_a_higher_chance_never_waits_less(retry: int, policy: RetryPolicy, one: float, other: float) -> None:
    low = delay_before(retry, policy, None, min(one, other))
    high = delay_before(retry, policy, None, max(one, other))
    assert low is not None
    assert high is not None
    assert low.seconds <= high.seconds


@given(retries, chances)
def test_a_policy_without_delays_does_not_wait(retry: int, chance: float) -> None:
    policy = RetryPolicy(base_delay=0, max_delay=0, max_retry_after=0)
    assert delay_before(retry, policy, None, chance) == Delay(0, "backoff")


@given(retries, policies, st.floats(0, 2e9, exclude_min=True), chances)
def test_a_demand_is_waited_out_plus_at_most_one_base_delay_unless_it_is_above_the_limit(
    retry: int, policy: RetryPolicy, demand: float, chance: float
) -> None:
    delay = delay_before(retry, policy, demand, chance)
    if demand > policy.max_retry_after:
        assert delay is None
        return
    assert delay is not None
    assert delay.source == "retry_after"
    assert demand <= delay.seconds <= demand + policy.base_delay


def test_a_demand_of_just_the_limit_is_waited_for() -> None:
    assert delay_before(1, RetryPolicy(max_retry_after=60), 60.0, 0.5) == Delay(60.25, "retry_after")
    assert delay_before(1, RetryPolicy(max_retry_after=60), math.nextafter(60, 61), 0.5) is None


@pytest.mark.parametrize("demand", [0.0, -0.0, -3.0, math.nan, math.inf, -math.inf])
def test_a_demand_that_is_no_time_to_wait_means_backoff(demand: float) -> None:
    assert delay_before(2, RetryPolicy(), demand, 0.5) == delay_before(2, RetryPolicy(), None, 0.5)
