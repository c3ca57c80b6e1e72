"""The text of the page: what is in it, and that nothing of a trace is ever markup."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from returns.result import Success

from promptkit import ExecutionEvent, RunFinished
from promptkit._report.report import report_of
from report.traces import attempted, eventful, failed, finished, lines_of, page, started, whole

TAGS = set(
    """
    html head meta title style body svg defs pattern rect circle line text header p h1 h2 bdi time dl div dt dd ul
    li span b i small strong nav a main section details summary table thead tbody tfoot tr th td code footer
    """.split()  # noqa: SIM905  # a list of words
)
ATTRIBUTES = set(
    """
    lang charset http-equiv content name class width height aria-hidden aria-label aria-labelledby id href role
    tabindex scope colspan x y x1 x2 y1 y2 cx cy r dx text-anchor patternunits patterntransform
    """.split()  # noqa: SIM905  # a list of words
)
NAMES = ("run_id", "parent_run_id", "prompt_id", "profile", "backend", "backend_kind", "model", "response_id", "error")
PLANTED = [
    "<script>alert(1)</script>",
    "</style><img src=http://192.0.2.1/ onerror=alert(1)>",
    "\"'><svg onload=alert(1)>",
    "</title></bdi></td></details><h1>mine</h1>",
    "{{ 7 * 7 }}{% raw %}&lt;b&gt;",
    "a\u202eb\u2066c\u200f\u061c",
    "\x00\x01\x1b[2J\x7f\x85\r\n\t",
    "\u2028\u2029\ufeff\u200b\ufffe",
]


class Parts(HTMLParser):
    """The tags, attributes and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def values(self, name: str) -> list[str]:
        return [value for _, attribute, value in self.attributes if attribute == name]


def named(text: str) -> str:
    """Give the page of a trace in which a text stands wherever a file can name something."""
    lines: list[bytes] = []
    for number, event in enumerate([started(), failed(), failed(attempt=2), finished(outcome="failed")]):
        fields = msgspec.to_builtins(event)
        fields |= {name: text for name in NAMES if name in fields}
        # A parent of another name, and runs of other names that nobody started.
        fields |= {"definition_hash": text} if isinstance(event, RunFinished) else {}
        lines.append(msgspec.json.encode(fields) + b"\n")
        lines.append(msgspec.json.encode({**fields, "run_id": f"{number}", "parent_run_id": f"{text} too"}) + b"\n")
    lines.append(msgspec.json.encode({"kind": text}) + b"\n")
    lines.append(msgspec.json.encode({**msgspec.to_builtins(started()), text: 1}) + b"\n")
    lines.append(msgspec.json.encode({**msgspec.to_builtins(attempted()), "outcome": text}) + b"\n")
    return report_of(lines, text).unwrap().html


@pytest.mark.parametrize("planted", PLANTED)
def test_markup_in_names_is_text(planted: str) -> None:
    harmless, hostile = Parts(named("harmless")), Parts(named(planted))
    assert hostile.tags == harmless.tags
    # No name stands in an attribute at all; only the order of what is sorted by names differs.
    assert Counter(hostile.attributes) == Counter(harmless.attributes)


@pytest.mark.parametrize("planted", PLANTED)
def test_characters_that_do_not_print_are_written_out(planted: str) -> None:
    bad = {char for char in named(planted) if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp", "Cn"}}
    assert bad <= {"\n"}


def test_a_file_name_that_is_no_text_is_shown_escaped() -> None:
    assert "<h1><bdi>trace-\\udcff.jsonl</bdi></h1>" in page(whole(), "trace-\udcff.jsonl")


def test_a_name_of_a_million_characters_is_cut_and_says_so() -> None:
    text = page([started(prompt_id="p" * 10**6)])
    assert len(text) < 100_000
    assert "… and 999,800 more characters" in text


def test_the_page_has_only_tags_and_attributes_that_do_nothing() -> None:
    parts = Parts(page(eventful()))
    assert set(parts.tags) <= TAGS
    assert {name for _, name, _ in parts.attributes} <= ATTRIBUTES
    assert all(value.startswith("#") for value in parts.values("href"))


def test_the_policy_of_the_page_allows_its_own_style_and_nothing_else() -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page(whole()))
    assert policy
    assert re.fullmatch(
        r"default-src &#39;none&#39;; style-src &#39;sha256-[\w+/]{43}=&#39;; "
        r"base-uri &#39;none&#39;; form-action &#39;none&#39;",
        policy[1],
    )


def test_the_style_names_nothing_outside_of_the_page() -> None:
    style = re.search("<style>(.*?)</style>", page(whole()), re.DOTALL)
    assert style
    assert set(re.findall(r"url\(([^)]*)\)", style[1])) == {"#hatch", "#dots"}
    assert "@import" not in style[1]


def test_headings_are_in_order_and_sections_are_named_by_them() -> None:
    text = page(eventful())
    levels = [int(level) for level in re.findall(r"<h(\d)", text)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(below - above <= 1 for above, below in pairwise(levels))
    ids = Parts(text).values("id")
    assert len(ids) == len(set(ids))
    assert set(Parts(text).values("aria-labelledby")) <= set(ids)
    assert {value[1:] for value in Parts(text).values("href")} <= set(ids)


def test_every_head_of_a_table_says_what_it_heads() -> None:
    text = page(eventful())
    assert all('scope="' in head for head in re.findall(r"<th\b[^>]*>", text))


def test_the_heading_says_what_the_trace_is() -> None:
    text = words(page(eventful(), "night.jsonl"))
    assert "night.jsonl 2026-03-01 12:00:00.000 to 2026-03-01 13:00:03.000 UTC (1 h 00 min)" in text
    assert "Runs 8 Attempts at least 9 Retries at least 1 Repairs at least 1" in text
    assert "✓ 3 completed ✕ 2 failed ⊘ 2 cancelled … 1 did not end ! 1 invalid under its contract" in text
    assert "1 run did not end in this trace" in text


def test_a_trace_in_which_every_run_ended_says_so() -> None:
    assert "Every run ended." in words(page(whole()))


def test_unknown_counts_are_unknown_and_partial_ones_lower_bounds() -> None:
    text = words(page(eventful()))
    assert "slow 1 0 0 1 0 at least 1 at least 0 at least 0 at least 5 unknown unknown unknown unknown" in text
    assert "extract/figures 1 0 0 0 1 3 1 1 at least 22 at least 14 at least 0 at least 0 at least 0" in text


def test_a_run_that_continues_another_is_below_it_and_links_to_it() -> None:
    text = page(eventful())
    assert '<dt>Continues</dt><dd><a href="#run-1">run 1</a></dd>' in text
    assert "<bdi>of another trace</bdi></code>, which is not in this trace" in text
    assert "parent not in trace" in text


def test_what_is_not_shown_is_told() -> None:
    lines = [*lines_of([*whole(), *whole()]), b'{"kind":"tool_called"}\n', b"oops\n", b'{"kind":"run_']
    text = words(report_of(lines, "t").unwrap().html)
    assert "Line 9, the last one, is cut off" in text
    assert "3 events repeat what another says of the same step" in text
    assert "Kinds of events that this version does not know: tool_called (1)" in text
    assert "1 line could not be read: Line 8: is not JSON" in text


def test_many_faults_are_folded_and_none_is_dropped() -> None:
    text = page_of_lines([*lines_of(whole()), *[b"oops\n"] * 50])
    assert "30 more lines" in text
    assert text.count("is not JSON") == 50


def test_of_very_many_faults_the_page_lists_the_first_and_counts_the_rest() -> None:
    text = page_of_lines([*lines_of(whole()), *[b"oops\n"] * 1_500])
    assert "1,500 lines could not be read" in words(text)
    assert "1,480 more lines" in text
    assert "and 500 lines that are not listed" in text
    assert text.count("is not JSON") == 1_000


def test_a_trace_without_trouble_has_no_section_about_it() -> None:
    assert "What is not shown" not in page(whole())


def test_folded_rows_are_announced_and_all_are_there() -> None:
    text = page(event for n in range(350) for event in whole(str(n), float(n)))
    assert "250 further runs of 350 are folded below" in text
    assert [f'id="run-{n}"' in text for n in range(1, 352)] == [True] * 350 + [False]


def test_the_depth_of_a_chain_is_a_number_once_it_is_too_deep_to_be_indented() -> None:
    text = page(event for n in range(12) for event in whole(str(n), float(n), parent_run_id=str(n - 1) if n else None))
    assert re.findall(r'class="label (d\d+)"', text) == [f"d{min(n, 8)}" for n in range(12)]
    assert re.findall(r">(\d+) deep<", text) == ["9", "10", "11"]


@pytest.mark.timeout(90)
def test_a_chain_of_ten_thousand_runs_makes_a_page() -> None:
    events = (started(str(n), float(n), parent_run_id=str(n - 1) if n else None) for n in range(10_000))
    text = page(events)
    assert "9,999 deep" in text
    assert len(text) < 25_000_000


def test_the_same_trace_makes_the_same_page() -> None:
    assert page(eventful()) == page(eventful())


def test_the_summary_is_what_the_page_says_and_encodes() -> None:
    summary = report_of(lines_of(eventful()), "t").unwrap().summary
    again: Any = msgspec.json.decode(msgspec.json.encode(summary))
    assert [run["run_id"] for run in again["runs"]][:3] == ["first", "fourth", "fifth"]
    assert again["totals"]["runs"] == 8
    assert msgspec.json.decode(msgspec.json.encode(summary), type=type(summary)) == summary


def page_of_lines(lines: list[bytes]) -> str:
    return report_of(lines, "t").unwrap().html


def words(text: str) -> str:
    """Give what a page says, with single spaces."""
    body = text[text.index("<header>") :]
    return " ".join(" ".join(Parts(re.sub(r"<svg.*?</svg>", "", body, flags=re.DOTALL)).texts).split())


WORDS = st.sampled_from(["", "a", "<b>", "\u202e", "completed", "é" * 300])
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(WORDS, values, max_size=3),
    max_leaves=6,
)
EVENTS = [msgspec.to_builtins(event) for event in eventful()]
INSTANTS = st.sampled_from(["1970-01-01T00:00:00Z", "9899-12-31T23:59:59.999999Z", "2026-03-01T12:00:00.000001Z"])
SECONDS = st.sampled_from([0, 1e-6, 1e9]) | st.floats(0, 1e9)


@st.composite
def strange_lines(draw: st.DrawFn) -> bytes:
    """Draw a line: an event with some fields of any value or of an extreme one, any JSON, or any bytes."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=30) | ANY_JSON.map(msgspec.json.encode))
    event = dict(draw(st.sampled_from(EVENTS)))
    for name in draw(st.lists(st.sampled_from(sorted(event)), max_size=2)):
        event[name] = draw(ANY_JSON)
    event |= {name: draw(SECONDS) for name in ("queued", "duration", "delay") if name in event}
    event["at"] = draw(INSTANTS)
    return msgspec.json.encode(event) + b"\n"


@given(st.lists(strange_lines(), max_size=8))
def test_whatever_a_file_holds_there_is_a_page_or_a_fault(lines: list[bytes]) -> None:
    made = report_of(lines, "t")
    if isinstance(made, Success):
        assert made.unwrap().html.startswith("<!doctype html>")
    else:
        assert made.failure()


def test_instants_that_are_centuries_apart_have_an_axis() -> None:
    text = page([started("a"), started("b", 5e10), started("c", 2e11)])
    assert "2 stretches of time in which no run was under way are cut out" in text


def test_a_long_list_of_prompts_is_folded_and_none_is_dropped() -> None:
    text = page(started(f"r{n}", prompt_id=f"prompt-{n:03}") for n in range(250))
    assert "150 further rows are folded below" in words(text)
    assert len(set(re.findall(r'<th scope="row"><bdi>(prompt-\d+)', text))) == 250
    assert text.count("All runs") == 2


def test_an_attempt_that_is_short_beside_its_run_is_still_seen() -> None:
    short: list[ExecutionEvent] = [
        started("a"),
        attempted("a", 0.01, attempt=1, duration=0.001),
        attempted("a", 3600, attempt=2, duration=0.001, purpose="repair"),
        finished("a", 3600, duration=3600.0, attempts=2, repair_calls=1),
    ]
    drawn = re.findall(r'<rect class="(completed|repair)" x="([\d.]+)%" width="([\d.]+%?)"', page(short))
    assert [(shape, width) for shape, _, width in drawn] == [("completed", "2"), ("completed", "2"), ("repair", "2")]
    assert all(float(left) <= 99.7 for _, left, _ in drawn)
