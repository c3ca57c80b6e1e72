"""Token counts that know what they do not know."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit import ReportedUsage, TokenCount, TokenUsage
from promptkit._values.usage import (
    KNOWN_ZERO,
    MAX_COUNT,
    NO_USAGE,
    NOTHING,
    UNKNOWN,
    UNKNOWN_USAGE,
    contribution,
    shown,
)

FIELDS = msgspec.structs.fields(TokenUsage)

counts = st.builds(
    lambda value, complete: TokenCount(value=value, known=True, complete=complete),
    st.integers(0, MAX_COUNT),
    st.booleans(),
) | st.sampled_from([NOTHING, UNKNOWN, KNOWN_ZERO])
usages = st.builds(TokenUsage, **{field.name: counts for field in FIELDS})


@given(usages, usages, usages)
def test_addition_is_a_commutative_monoid(a: TokenUsage, b: TokenUsage, c: TokenUsage) -> None:
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert a + NO_USAGE == NO_USAGE + a == a


@given(st.lists(usages), st.randoms(use_true_random=False))
def test_a_fold_does_not_depend_on_the_order(parts: list[TokenUsage], random: object) -> None:
    shuffled = list(parts)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert reduce(add, shuffled, NO_USAGE) == reduce(add, parts, NO_USAGE)


@given(usages, usages)
def test_a_value_above_zero_is_known_and_unknown_parts_stay_visible(a: TokenUsage, b: TokenUsage) -> None:
    total = a + b
    for field in FIELDS:
        first, second, both = (getattr(usage, field.name) for usage in (a, b, total))
        assert both.value == first.value + second.value
        assert both.known == (first.known or second.known)
        assert both.complete == (first.complete and second.complete)
        assert both.known or both.value == 0


@given(usages)
def test_the_projection_changes_only_what_is_complete_and_not_known(usage: TokenUsage) -> None:
    assert shown(shown(usage)) == shown(usage)
    for field in FIELDS:
        before, after = getattr(usage, field.name), getattr(shown(usage), field.name)
        assert after == (KNOWN_ZERO if before == NOTHING else before)


def test_nothing_at_all_is_shown_as_known_zero_and_an_absent_report_is_not() -> None:
    assert shown(NO_USAGE).input_tokens == KNOWN_ZERO
    assert shown(UNKNOWN_USAGE).input_tokens == UNKNOWN
    assert contribution(None) == UNKNOWN_USAGE
    assert contribution(ReportedUsage()) == UNKNOWN_USAGE


def test_a_reported_zero_is_known_and_an_absent_count_is_unknown_never_zero() -> None:
    usage = contribution(ReportedUsage(input_tokens=0, output_tokens=7))
    assert usage.input_tokens == TokenCount(value=0, known=True, complete=True)
    assert usage.output_tokens == TokenCount(value=7, known=True, complete=True)
    assert usage.cache_read_tokens == usage.cache_write_tokens == usage.reasoning_tokens == UNKNOWN


@pytest.mark.parametrize("count", [-1, -(2**70), 2**63, 10**30, True, 1.5, float("nan"), float("inf"), "7", [7]])
def test_what_is_no_count_is_unknown_and_fails_nothing(count: Any) -> None:
    assert contribution(ReportedUsage(input_tokens=count)).input_tokens == UNKNOWN
    assert contribution(ReportedUsage(input_tokens=MAX_COUNT)).input_tokens.value == MAX_COUNT


def test_an_integral_float_is_a_count() -> None:
    assert ReportedUsage(input_tokens=7.0).input_tokens == 7  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (TokenCount(value=12, known=True, complete=True), "12"),
        (TokenCount(value=12, known=True, complete=False), "at least 12"),
        (UNKNOWN, "unknown"),
        (KNOWN_ZERO, "0"),
    ],
)
def test_a_count_says_what_it_knows(count: TokenCount, text: str) -> None:
    assert str(count) == text


def test_usage_encodes_and_decodes_however_large_the_sums_are() -> None:
    total = reduce(add, [contribution(ReportedUsage(input_tokens=MAX_COUNT))] * 5, NO_USAGE)
    assert msgspec.json.decode(msgspec.json.encode(total), type=TokenUsage) == total
    assert msgspec.to_builtins(total)["input_tokens"]["value"] == 5 * MAX_COUNT
