"""Token counts as backends report them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit._values.usage import MAX_COUNT, ReportedUsage
from promptkit._wire.usage import read_usage, reported_usage

OPENAI = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 10, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 12, "accepted_prediction_tokens": 0},
}


def test_openai_counts_are_read_with_their_details() -> None:
    assert read_usage(OPENAI) == ReportedUsage(
        input_tokens=100,
        output_tokens=20,
        cache_read_tokens=64,
        cache_write_tokens=10,
        reasoning_tokens=12,
    )


def test_cached_tokens_are_inside_the_input_and_not_added_to_it() -> None:
    usage = read_usage(OPENAI)
    assert usage is not None
    assert usage.input_tokens == 100


def test_a_total_is_never_used_to_derive_what_is_missing() -> None:
    assert read_usage({"prompt_tokens": 572, "total_tokens": 1278}) == ReportedUsage(input_tokens=572)
    assert read_usage({"total_tokens": 1278}) is None


def test_a_reported_zero_is_known_and_an_absent_count_is_not() -> None:
    assert read_usage({"prompt_tokens": 0, "completion_tokens": 3}) == ReportedUsage(input_tokens=0, output_tokens=3)


def test_null_completion_tokens_are_unknown() -> None:
    assert read_usage({"prompt_tokens": 5, "completion_tokens": None}) == ReportedUsage(input_tokens=5)


def test_null_details_are_no_details() -> None:
    usage = {"prompt_tokens": 5, "prompt_tokens_details": None, "completion_tokens_details": None}
    assert read_usage(usage) == ReportedUsage(input_tokens=5)


def test_cache_hit_tokens_of_deepseek_are_cached_tokens() -> None:
    usage = {"prompt_tokens": 100, "prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36}
    assert read_usage(usage) == ReportedUsage(input_tokens=100, cache_read_tokens=64)


def test_two_reports_of_the_same_cached_tokens_are_not_added() -> None:
    usage = {"prompt_tokens": 100, "prompt_cache_hit_tokens": 64, "prompt_tokens_details": {"cached_tokens": 64}}
    assert read_usage(usage) == ReportedUsage(input_tokens=100, cache_read_tokens=64)


def test_of_two_disagreeing_cache_reports_the_details_count() -> None:
    usage = {"prompt_tokens": 100, "prompt_cache_hit_tokens": 64, "prompt_tokens_details": {"cached_tokens": 0}}
    assert read_usage(usage) == ReportedUsage(input_tokens=100, cache_read_tokens=0)


def test_a_null_cached_count_leaves_the_word_to_the_other_field() -> None:
    usage = {"prompt_tokens": 9, "prompt_cache_hit_tokens": 4, "prompt_tokens_details": {"cached_tokens": None}}
    assert read_usage(usage) == ReportedUsage(input_tokens=9, cache_read_tokens=4)


def test_foreign_keys_costs_and_timings_are_ignored() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "cost": 0.1, "queue_time": 0.2, "prompt_audio_seconds": None}
    assert read_usage(usage) == ReportedUsage(input_tokens=1, output_tokens=2)


def test_input_with_cached_tokens_in_details_is_inclusive_already() -> None:
    usage = {
        "input_tokens": 50,
        "output_tokens": 9,
        "input_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 3},
    }
    assert read_usage(usage) == ReportedUsage(
        input_tokens=50,
        output_tokens=9,
        cache_read_tokens=40,
        cache_write_tokens=0,
        reasoning_tokens=3,
    )


def test_cache_tokens_beside_the_input_are_added_to_it() -> None:
    usage = {
        "input_tokens": 5,
        "output_tokens": 9,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "output_tokens_details": {"thinking_tokens": 4},
    }
    assert read_usage(usage) == ReportedUsage(
        input_tokens=125,
        output_tokens=9,
        cache_read_tokens=100,
        cache_write_tokens=20,
        reasoning_tokens=4,
    )


def test_an_absent_cache_field_adds_nothing_to_the_input() -> None:
    usage = {"input_tokens": 5, "output_tokens": 9, "cache_read_input_tokens": None}
    assert read_usage(usage) == ReportedUsage(input_tokens=5, output_tokens=9)


def test_an_unreadable_cache_field_makes_the_sum_unknown() -> None:
    usage = {"input_tokens": 5, "output_tokens": 9, "cache_read_input_tokens": "many"}
    assert read_usage(usage) == ReportedUsage(output_tokens=9)


def test_a_sum_out_of_range_is_unknown() -> None:
    usage = {"input_tokens": MAX_COUNT, "cache_read_input_tokens": 1}
    assert read_usage(usage) == ReportedUsage(cache_read_tokens=1)


@pytest.mark.parametrize("count", [True, False, -1, 1.5, float("nan"), float("inf"), "7", None, [], {}, 2**63, 1e300])
def test_what_is_no_count_is_unknown(count: object) -> None:
    assert read_usage({"prompt_tokens": count, "completion_tokens": 3}) == ReportedUsage(output_tokens=3)


@pytest.mark.parametrize(("count", "read"), [(0, 0), (7, 7), (7.0, 7), (0.0, 0), (MAX_COUNT, MAX_COUNT)])
def test_integers_and_integral_floats_are_counts(count: object, read: int) -> None:
    assert read_usage({"prompt_tokens": count}) == ReportedUsage(input_tokens=read)


@pytest.mark.parametrize("value", [None, {}, [], 0, True, "usage", {"prompt_tokens": "x"}, {"timings": {"cache_n": 3}}])
def test_nothing_reported_is_none(value: object) -> None:
    assert read_usage(value) is None


numbers = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
details = numbers | st.dictionaries(
    st.sampled_from(["cached_tokens", "cache_write_tokens", "reasoning_tokens", "thinking_tokens"]),
    numbers,
)
usages = st.dictionaries(
    st.sampled_from(
        [
            "prompt_tokens",
            "completion_tokens",
            "prompt_tokens_details",
            "completion_tokens_details",
            "prompt_cache_hit_tokens",
            "input_tokens",
            "output_tokens",
            "input_tokens_details",
            "output_tokens_details",
            "cache_read_input_tokens",
            "cache_creation_input_tokens",
            "cache_creation",
        ],
    ),
    details,
)
bodies = st.fixed_dictionaries(
    {}, optional={"usage": usages, "timings": st.dictionaries(st.sampled_from(["cache_n", "prompt_n"]), numbers)}
)


@given(usages)
def test_whatever_is_reported_only_counts_in_range_come_out(usage: dict[str, Any]) -> None:
    read = read_usage(usage)
    for name in ReportedUsage.__struct_fields__:
        count = getattr(read, name, None)
        assert count is None or (type(count) is int and 0 <= count <= MAX_COUNT)


@given(bodies)
def test_an_input_that_is_known_includes_its_cached_tokens_and_an_output_its_reasoning(body: dict[str, Any]) -> None:
    read = reported_usage(body) or ReportedUsage()
    if read.input_tokens is not None:
        assert read.input_tokens >= max(read.cache_read_tokens or 0, read.cache_write_tokens or 0)
    if read.output_tokens is not None:
        assert read.output_tokens >= (read.reasoning_tokens or 0)


@given(usages)
def test_the_callers_object_is_not_changed(usage: dict[str, Any]) -> None:
    before = repr(usage)
    read_usage(usage)
    assert repr(usage) == before


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 64}, "cache_read_input_tokens": 64},
            ReportedUsage(input_tokens=100, cache_read_tokens=64),
        ),
        (
            {"prompt_tokens": None, "input_tokens": 5, "output_tokens": 3},
            ReportedUsage(input_tokens=5, output_tokens=3),
        ),
        ({"completion_tokens_details": {"reasoning_tokens": 4}}, ReportedUsage(reasoning_tokens=4)),
        ({"prompt_cache_hit_tokens": 9}, ReportedUsage(cache_read_tokens=9)),
    ],
)
def test_a_cached_token_is_counted_once_and_each_field_is_known_by_itself(usage: Any, expected: ReportedUsage) -> None:
    assert read_usage(usage) == expected


def test_a_count_that_does_not_include_its_parts_is_unknown_and_not_corrected() -> None:
    usage = {
        "prompt_tokens": 12,
        "completion_tokens": 3,
        "total_tokens": 4055,
        "prompt_tokens_details": {"cached_tokens": 4000},
        "completion_tokens_details": {"reasoning_tokens": 40},
    }
    assert read_usage(usage) == ReportedUsage(cache_read_tokens=4000, reasoning_tokens=40)
    assert read_usage({"prompt_tokens": 12, "prompt_tokens_details": {"cache_write_tokens": 13}}) == ReportedUsage(
        cache_write_tokens=13
    )


@pytest.mark.parametrize(
    ("creation", "expected"),
    [
        (
            {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 7},
            ReportedUsage(input_tokens=32, cache_write_tokens=27),
        ),
        ({"ephemeral_5m_input_tokens": 20}, ReportedUsage(input_tokens=25, cache_write_tokens=20)),
        ({"ephemeral_5m_input_tokens": 0}, ReportedUsage(input_tokens=5, cache_write_tokens=0)),
        ({"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": "x"}, ReportedUsage()),
        ({}, ReportedUsage(input_tokens=5)),
        (None, ReportedUsage(input_tokens=5)),
    ],
)
def test_tokens_written_to_a_cache_are_the_sum_of_their_lifetimes_where_only_those_are_reported(
    creation: Any, expected: ReportedUsage
) -> None:
    assert (read_usage({"input_tokens": 5, "cache_creation": creation}) or ReportedUsage()) == expected


def test_of_a_whole_and_its_parts_the_whole_counts() -> None:
    parts = {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 7}
    usage = {"input_tokens": 5, "cache_creation_input_tokens": 27, "cache_creation": parts}
    assert read_usage(usage) == ReportedUsage(input_tokens=32, cache_write_tokens=27)


TIMINGS = {"cache_n": 100, "prompt_n": 20, "predicted_n": 4, "prompt_ms": 1.5}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"timings": TIMINGS}, ReportedUsage(input_tokens=120, output_tokens=4, cache_read_tokens=100)),
        ({"timings": TIMINGS, "usage": {}}, ReportedUsage(input_tokens=120, output_tokens=4, cache_read_tokens=100)),
        ({"timings": {**TIMINGS, "cache_n": "x"}}, ReportedUsage(output_tokens=4)),
        ({"timings": {"prompt_n": 20}}, None),
        ({"timings": []}, None),
        (
            {"timings": TIMINGS, "usage": {"prompt_tokens": 120}},
            ReportedUsage(input_tokens=120, cache_read_tokens=100),
        ),
        (
            {"timings": TIMINGS, "usage": {"prompt_tokens": 120, "prompt_tokens_details": {"cached_tokens": 0}}},
            ReportedUsage(input_tokens=120, cache_read_tokens=0),
        ),
        ({"usage": {"prompt_tokens": 120}}, ReportedUsage(input_tokens=120)),
        ({}, None),
        (None, None),
        ([], None),
    ],
)
def test_timings_have_the_cached_tokens_that_usage_does_not_and_all_counts_without_it(
    body: Any, expected: ReportedUsage | None
) -> None:
    assert reported_usage(body) == expected
