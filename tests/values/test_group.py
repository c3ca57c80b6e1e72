"""What a group's totals look like to people: unknown is never a number, and a part is never a whole."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit import (
    ExecutionGroup,
    ExecutionGroupMember,
    ExecutionGroupSummary,
    InvalidRequestError,
    TokenCount,
    TokenUsage,
    summary_table,
)

FIELDS = TokenUsage.__struct_fields__


def count(value: int, *, known: bool = True, complete: bool = True) -> TokenCount:
    return TokenCount(value=value, known=known, complete=complete)


UNKNOWN = count(0, known=False, complete=False)


def summary(*ended: bool, usage: tuple[TokenCount, ...] = (count(0),) * 5, **numbers: int) -> ExecutionGroupSummary:
    counted: dict[str, Any] = {"attempts": 0, "transient_retries": 0, "repair_calls": 0, **numbers}
    return ExecutionGroupSummary(
        members=tuple(
            ExecutionGroupMember(run_id=f"r{number}", terminal_observed=seen) for number, seen in enumerate(ended)
        ),
        terminal_coverage_complete=all(ended),
        usage=TokenUsage(**dict(zip(FIELDS, usage, strict=True))),
        **counted,
    )


WHOLE = summary(
    *(True, True),
    attempts=4,
    transient_retries=1,
    repair_calls=1,
    usage=(count(1200), count(80), UNKNOWN, count(0), count(7, complete=False)),
)
PARTIAL = summary(*(True, False), attempts=1, usage=(count(9), UNKNOWN, UNKNOWN, count(0), count(7, complete=False)))


def test_a_group_is_one_line_for_people() -> None:
    assert str(WHOLE) == (
        "2 runs: 4 attempts, 1 retry, 1 repair; "
        "tokens: input 1200, output 80, cache read unknown, cache write 0, reasoning at least 7"
    )


def test_a_member_without_a_terminal_makes_every_number_a_lower_bound() -> None:
    assert str(PARTIAL) == (
        "2 runs (1 not seen to end): at least 1 attempt, at least 0 retries, at least 0 repairs; "
        "tokens: input at least 9, output unknown, cache read unknown, cache write at least 0, reasoning at least 7"
    )


def test_an_empty_group_shows_known_zeros() -> None:
    assert str(ExecutionGroup().snapshot()) == (
        "0 runs: 0 attempts, 0 retries, 0 repairs; tokens: input 0, output 0, cache read 0, cache write 0, reasoning 0"
    )


def test_a_table_has_a_line_for_each_group_and_no_totals() -> None:
    table = summary_table({"all runs": WHOLE, "assessment": PARTIAL})
    lines = table.splitlines()
    assert len({len(line) for line in lines}) == 1
    assert [re.split(r" {2,}", line.strip()) for line in lines] == [
        ["runs", "attempts", "retries", "repairs", "input", "output", "cache read", "cache write", "reasoning"],
        ["all runs", "2", "4", "1", "1", "1200", "80", "unknown", "0", "at least 7"],
        [
            *("assessment", "2 (1 ended)", "at least 1", "at least 0", "at least 0"),
            *("at least 9", "unknown", "unknown", "at least 0", "at least 7"),
        ],
    ]


def test_a_table_of_no_groups_is_its_head() -> None:
    assert summary_table({}).split()[:2] == ["runs", "attempts"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        pytest.param({"mine": ExecutionGroup()}, "'mine': Expected `ExecutionGroupSummary`, got `ExecutionGroup`"),
        pytest.param(WHOLE, "Expected a mapping of names to summaries, got `ExecutionGroupSummary`"),
        pytest.param([WHOLE], "Expected a mapping of names to summaries, got `list`"),
        pytest.param({1: WHOLE}, "Expected names that are `str`, got `int`"),
    ],
)
def test_what_is_no_summary_is_refused_with_the_remedy(wrong: Any, said: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        summary_table(wrong)
    assert str(caught.value) == f'summary_table: {said}: give {{"name": group.snapshot()}}'


def test_a_name_takes_one_line_of_the_table() -> None:
    assert len(summary_table({"a\nb\x1b": WHOLE}).splitlines()) == 2
    assert "'a\\nb\\x1b' " in summary_table({"a\nb\x1b": WHOLE})


COUNTS = st.one_of(
    st.just(UNKNOWN), st.builds(lambda value, complete: count(value, complete=complete), st.integers(0), st.booleans())
)


@given(st.lists(st.booleans(), max_size=4), st.tuples(*[COUNTS] * 5), st.tuples(*[st.integers(0, 10**6)] * 3))
def test_a_number_is_shown_if_and_only_if_it_is_known_and_as_exact_only_if_it_is(
    ended: list[bool], counts: tuple[TokenCount, ...], numbers: tuple[int, int, int]
) -> None:
    names = ("attempts", "transient_retries", "repair_calls")
    shown = summary(*ended, usage=counts, **dict(zip(names, numbers, strict=True)))
    before, _, after = str(shown).partition("; tokens: ")
    cells = [re.sub(r"^(input|output|cache read|cache write|reasoning) ", "", cell) for cell in after.split(", ")]
    for cell, each in zip(cells, counts, strict=True):
        exact = each.complete and all(ended)
        assert cell == ("unknown" if not each.known else f"{each.value}" if exact else f"at least {each.value}")
    assert before.count("at least") == (0 if all(ended) else 3)
    for number in numbers:
        assert str(number) in before
    last = summary_table({"it": shown}).splitlines()[-1]
    assert re.split(r" {2,}", last)[-5:] == cells
