"""How long a backend asks to wait."""

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit._wire.retry_after import demand

NOW = datetime(1994, 11, 6, 8, 49, 7, tzinfo=UTC)  # half a minute before the date of RFC 9110's examples


def retry_info(delay: object) -> dict[str, object]:
    quota = {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": []}
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
    return {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [quota, info]}


def after(value: str) -> float | None:
    return demand([("retry-after", value)], None, NOW)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1", 1.0), ("30", 30.0), ("0.25", 0.25), (".5", 0.5), ("2.", 2.0), ("007", 7.0), (" 3\t", 3.0), ("1000000", 1e6)],
)
def test_decimal_seconds_are_a_demand(text: str, seconds: float) -> None:
    assert after(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
        "Sun, 06 Nov 1994 08:49:37 UTC",
        "Sun, 06 Nov 1994 08:49:37 +0000",
        "Sun, 06 Nov 1994 08:49:37 -0000",
        "sun, 06 nov 1994 08:49:37 gmt",
    ],
)
def test_a_date_in_each_of_its_forms_is_a_demand(text: str) -> None:
    assert after(text) == 30.0


def test_a_leap_second_is_a_time() -> None:
    assert after("Sun, 06 Nov 1994 08:49:60 GMT") == 53.0


def test_two_digits_of_a_year_more_than_fifty_years_ahead_are_in_the_past() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert demand([("retry-after", "Sunday, 06-Nov-94 08:49:37 GMT")], None, now) is None


def test_two_digits_of_a_year_reach_into_the_next_century() -> None:
    now = datetime(2099, 12, 31, 23, 59, 50, tzinfo=UTC)
    assert demand([("retry-after", "Friday, 01-Jan-00 00:00:00 GMT")], None, now) == 10.0


def test_a_far_future_is_a_long_demand() -> None:
    wait = after("Fri, 31 Dec 9999 23:59:59 GMT")
    assert wait is not None
    assert wait > 8000 * 365 * 86400


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "0.0",
        "-1",
        "+1",
        "nan",
        "inf",
        "Infinity",
        "1e3",
        "1e999",
        "1_0",
        "0x10",
        "1,5",
        "5, 5",
        "5;q=1",
        "5s",
        "6m0s",
        "\u0661\u0662",
        "\uff11",
        "\u00b2",
        "1\u00a0",
        "\u20031",
        "1\n",
        "9" * 400,
        ".",
        "soon",
    ],
)
def test_other_texts_are_no_demand(text: str) -> None:
    assert after(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "Wed, 21 Oct 1992 07:28:00 GMT",
        "Wed, 21 Oct 1992 07:28:00 -0000",
        "Sun, 06 Nov 1994 08:49:07 GMT",
        "Sat, 01 Jan 10000 00:00:00 GMT",
        "Sun, 00 Nov 1995 08:49:37 GMT",
        "Sun, 31 Feb 1995 08:49:37 GMT",
        "Sun, 06 Foo 1995 08:49:37 GMT",
        "Sun, 06 Nov 0000 08:49:37 GMT",
        "Sun, 06 Nov 1995 24:00:00 GMT",
        "Sun, 06 Nov 1995 08:49:61 GMT",
        "Sun, 06 Nov 1995 08:49:37",
        "Sun, 06 Nov 1995 08:49:37 PST",
        "Sun, 06 Nov 1995 08:49:37 +0200",
        "1995-11-06T08:49:37Z",
        "Fri, 31 Dec 9999 23:59:60 GMT",
    ],
)
def test_past_and_impossible_dates_are_no_demand(text: str) -> None:
    assert after(text) is None


def test_milliseconds_come_before_seconds() -> None:
    assert demand([("retry-after", "30"), ("retry-after-ms", "250")], None, NOW) == 0.25


@pytest.mark.parametrize("useless", ["0", "-5", "nan", "Sun, 06 Nov 1994 08:49:37 GMT", ""])
def test_a_useless_milliseconds_header_does_not_hide_the_next_source(useless: str) -> None:
    assert demand([("retry-after-ms", useless), ("retry-after", "30")], None, NOW) == 30.0


def test_header_names_have_no_case() -> None:
    assert demand([("Retry-After", "3")], None, NOW) == 3.0
    assert demand([("RETRY-AFTER-MS", "3000")], None, NOW) == 3.0


@pytest.mark.parametrize("second", ["5", "7", "x"])
def test_a_repeated_header_is_no_demand(second: str) -> None:
    assert demand([("retry-after", "5"), ("Retry-After", second)], None, NOW) is None


@pytest.mark.parametrize(("delay", "seconds"), [("36s", 36.0), ("3.957525076s", 3.957525076)])
def test_retry_info_in_the_body_is_a_demand(delay: str, seconds: float) -> None:
    assert demand([], retry_info(delay), NOW) == seconds


@pytest.mark.parametrize("delay", ["0s", "-3s", "36", "36ms", "infs", 36, None, {"seconds": 36}, "s", ""])
def test_other_retry_infos_are_no_demand(delay: object) -> None:
    assert demand([], retry_info(delay), NOW) is None


def test_a_header_comes_before_retry_info() -> None:
    assert demand([("retry-after", "2")], retry_info("36s"), NOW) == 2.0
    assert demand([("retry-after", "soon")], retry_info("36s"), NOW) == 36.0


def test_two_retry_infos_are_no_demand() -> None:
    info = retry_info("36s")["details"]
    assert isinstance(info, list)
    assert demand([], {"details": [*info, *info]}, NOW) is None


@pytest.mark.parametrize("error", [None, "text", [], {}, {"details": None}, {"details": [None, 3, [], {"@type": 4}]}])
def test_bodies_without_retry_info_are_no_demand(error: object) -> None:
    assert demand([], error, NOW) is None


def test_rate_limit_resets_are_no_demand() -> None:
    headers = [("x-ratelimit-reset-requests", "6m0s"), ("ratelimitbysize-reset", "12"), ("x-should-retry", "true")]
    assert demand(headers, None, NOW) is None


@given(
    st.lists(st.tuples(st.sampled_from(["retry-after", "Retry-After-Ms", "x"]), st.text() | st.floats().map(str))),
    st.text(),
)
def test_a_demand_is_always_finite_and_positive(headers: list[tuple[str, str]], delay: str) -> None:
    wait = demand(headers, retry_info(delay), NOW)
    assert wait is None or (math.isfinite(wait) and wait > 0)


@given(st.datetimes(min_value=datetime(1995, 1, 1), max_value=datetime(9999, 12, 31)))  # noqa: DTZ001 - hypothesis wants naive bounds
def test_every_future_second_is_read_back(naive: datetime) -> None:
    then = naive.replace(microsecond=0, tzinfo=UTC)
    expected = (then - NOW).total_seconds()
    days = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
    months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    day, month = days[then.weekday()], months[then.month - 1]
    clock = f"{then:%H:%M:%S}"
    assert after(f"{day}, {then.day:02} {month} {then.year:04} {clock} GMT") == expected
    assert after(f"{day} {month} {then.day:2} {clock} {then.year:04}") == expected
