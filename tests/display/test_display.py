from __future__ import annotations

import io
import re
import subprocess
import sys
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from msgspec.structs import replace
from rich.console import Console

from promptkit import (
    CacheControl,
    ConversationTurn,
    CoordinateRequest,
    CoordinationResult,
    Engine,
    Exchange,
    ExchangeDetails,
    ExecutionGroup,
    ExecutionGroupSummary,
    FilePart,
    ImagePart,
    Message,
    ReportedUsage,
    RunRequest,
    RunResult,
    TextPart,
    Timing,
    TokenCount,
    TokenUsage,
    Validation,
    Violation,
)
from promptkit._history import Turn
from promptkit._values.exchange import exchange_of, node_of
from promptkit._values.usage import KNOWN_ZERO, UNKNOWN, UNKNOWN_USAGE
from promptkit.display import conversation, conversation_tree, usage_table
from promptkit.testing import ScriptedClient
from servers.call_counter import counted
from servers.catalogs import small_catalog

if TYPE_CHECKING:
    from collections.abc import Iterable

STYLE = re.compile(r"\x1b\[[0-9;]*m")  # the only sequence that may be written
HOSTILE = "[bold red]a[/] [link=http://x]b[/link] :smile: \x1b]0;title\x07\x1b[2J\r\x9b\u202e\ud800 [/]"


def shown(value: Any, width: int = 80, *, colour: bool = False) -> str:
    """Give what rich writes."""
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=colour, color_system="truecolor" if colour else None).print(value)
    return "\n".join(row.rstrip() for row in out.getvalue().splitlines())


def said(run_id: str, question: str, answer: str, before: Exchange | None = None) -> Exchange:
    return exchange_of(Turn(node_of(before), [("user", question, None)]).capture(run_id, answer))


def chain(length: int) -> list[Exchange]:
    made: list[Exchange] = []
    for number in range(length):
        made.append(said(f"r{number}", f"q{number}", f"a{number}", made[-1] if made else None))
    return made


def result(**fields: Any) -> RunResult:
    given: dict[str, Any] = {
        "run_id": "r",
        "parent_run_id": None,
        "prompt_id": "ask",
        "profile": "p",
        "backend": "b",
        "model": "small",
        "response_id": None,
        "session_id": None,
        "definition_hash": "sha256:0",
        "rendered_hash": "sha256:1",
        "raw_output": "In Rome.",
        "value": None,
        "finish_reason": "stop",
        "refusal": None,
        "validation": Validation(status="not_requested"),
        "captured": False,
        "attempts": 2,
        "transient_retries": 1,
        "repair_calls": 0,
        "usage": USAGE,
        "timing": Timing(started_at=datetime(2026, 3, 1, tzinfo=UTC), duration=1.54),
        **fields,
    }
    return RunResult(**given)


USAGE = TokenUsage(
    input_tokens=TokenCount(value=50, known=True, complete=True),
    output_tokens=TokenCount(value=20, known=True, complete=False),
    cache_read_tokens=KNOWN_ZERO,
    cache_write_tokens=UNKNOWN,
    reasoning_tokens=UNKNOWN,
)

# ---------------------------------------------------------------- one value


def test_an_exchange_shows_its_messages_by_role() -> None:
    assert shown(said("run-1", "Where?", "In Rome.")).splitlines() == [
        "exchange of 2 messages",
        "user",
        "  Where?",
        "assistant",
        "  In Rome.",
    ]


def test_of_a_long_exchange_the_newest_messages_are_shown_and_the_others_counted() -> None:
    rows = shown(chain(100)[-1]).splitlines()
    assert rows[:4] == ["exchange of 200 messages", "… 180 earlier messages", "user", "  q90"]
    assert rows[-1] == "  a99"
    assert shown(conversation(chain(3)[-1], newest=1)).splitlines() == [
        "exchange of 6 messages",
        "… 5 earlier messages",
        "assistant",
        "  a2",
    ]


def test_details_are_shown_as_the_exchange_is() -> None:
    exchange = chain(30)[-1]
    assert shown(exchange.details()) == shown(exchange)


def test_a_long_message_is_cut_by_characters_and_lines_and_its_length_told() -> None:
    long = shown(said("r", "x" * 1_000_000, "\n" * 5_000))
    assert len(long) < 5_000
    assert "… (1,000,000 characters)" in long
    assert "… (5,000 characters)" in long


def test_roles_have_colours_on_a_terminal() -> None:
    text = shown(said("r", "Where?", "In Rome."), colour=True)
    assert "\x1b[1;36muser" in text
    assert "\x1b[1;32massistant" in text


def test_parts_that_are_no_text_are_told_by_what_they_are() -> None:
    parts = (
        TextPart(text="Look:"),
        ImagePart(media_type="image/png", data=b"x" * 2_000),
        ImagePart(media_type="image/png", url="https://a.example/b.png"),
        FilePart(media_type="application/pdf", data=b"x", filename="letter.pdf"),
    )
    message = Message(role="user", content=parts, cache_control=CacheControl(ttl="1h"))
    assert shown(ExchangeDetails(run_id="r", parent_run_id=None, messages=(message,))).splitlines()[1:] == [
        "user (cached for 1h)",
        "  Look:",
        "  <image/png: 2,000 bytes>",
        "  <image/png: https://a.example/b.png>",
        "  <application/pdf: letter.pdf, 1 byte>",
    ]


def test_a_result_shows_its_answer_and_what_it_used() -> None:
    assert shown(result(), 120).splitlines() == [
        "ask  small, 1.5 s, 2 attempts",
        "  In Rome.",
        "tokens: input 50, output at least 20, cache read 0, cache write unknown, reasoning unknown",
    ]


def test_an_invalid_result_says_why() -> None:
    violations = tuple(Violation(pointer=f"/{n}", message="is wrong") for n in range(30))
    text = shown(result(validation=Validation(status="invalid", violations=violations), refusal="I must not."))
    assert "refused: I must not." in text
    assert "invalid under its contract\n  /0: is wrong\n" in text
    assert "/19: is wrong\n  … 10 more" in text


def test_a_coordination_says_how_it_ended_and_what_was_withheld() -> None:
    assert shown(CoordinationResult(outcome="exhausted")) == "coordination exhausted"
    text = shown(CoordinationResult(undelivered=result()))
    assert "did not end normally" in text
    assert "In Rome." in text


def test_a_turn_shows_the_newest_answer_or_the_branch_as_it_begins() -> None:
    start = said("r", "Where?", "In Rome.")
    first = ConversationTurn(exchange=start, result=None, remaining_turns=2)
    assert shown(first) == "turn with 2 more permitted\n" + shown(start)
    assert shown(replace(first, result=result(), remaining_turns=0)) == "turn with 0 more permitted\n" + shown(result())


TOKENS = "input 50, output at least 20, cache read 0, cache write unknown, reasoning unknown"


def test_token_counts_are_a_line() -> None:
    assert str(USAGE) == TOKENS
    assert shown(USAGE, 120) == f"tokens: {TOKENS}"
    reported = shown(ReportedUsage(input_tokens=5, output_tokens=0), 120)
    assert reported == "reported tokens: input 5, output 0, cache read unknown, cache write unknown, reasoning unknown"


@pytest.mark.anyio
async def test_a_cancelled_coordination_shows_what_it_kept() -> None:
    def answer(_: object) -> str:
        scope.cancel()
        return "In Rome."

    engine = Engine(small_catalog(), client=ScriptedClient(answer))
    start, more = said("r", "q", "a"), RunRequest(prompt_id="more")
    coordination = engine.coordinate(CoordinateRequest(start=start, additional_turns=1, next=lambda _: more))
    assert shown(coordination) == "<promptkit.Coordination not run>"
    with anyio.CancelScope() as scope:
        await coordination
    rows = shown(coordination).splitlines()
    assert rows[1:2] + rows[3:4] == ["a completed response was not delivered:", "  In Rome."]


@pytest.mark.anyio
async def test_what_an_engine_prepares_and_inspects_is_shown() -> None:
    engine = Engine(small_catalog())
    prepared = await engine.prepare(RunRequest(prompt_id="ask", variables={"question": "Where?"}))
    expected: list[tuple[Any, tuple[str, ...]]] = [
        (prepared, ("prompt      ask", "model       warm-model", "rendered    sha256:", "user\n  Where?")),
        (engine.inspect_prompt("ask"), ("variables   question", "session     session of {{ question }}")),
        (engine.inspect_profile("warm"), ("temperature            0.7", '["END"]', "profile\n", "default")),
        (engine.inspect_backend("server"), ("kind                   chat_completions", "running                0")),
    ]
    for value, wanted in expected:
        text = shown(value)
        assert [words for words in wanted if words not in text] == []


# ---------------------------------------------------------------- several


def test_a_tree_shows_who_continued_whom_and_where_branches_part() -> None:
    first = said("r1", "Where?", "In Rome.")
    second = said("r2", "When?", "In 753.", first)
    left, right = said("r3", "Who?", "Romulus.", second), said("r4", "Why?", "Wolves.", second)
    last = said("r5", "Sure?", "No.", right)
    assert shown(conversation_tree([last, right, left, second, first, first])).splitlines() == [
        "conversation",
        "└── Where? → In Rome.",
        "    └── When? → In 753.",
        "        ├── Why? → Wolves.",
        "        │   └── Sure? → No.",
        "        └── Who? → Romulus.",
    ]


def test_a_tree_says_what_it_was_not_given() -> None:
    first, second = chain(2)
    assert shown(conversation_tree([second], title="half")).splitlines() == ["half", "└── (continues r0) q1 → a1"]
    assert shown(conversation_tree([])) == "conversation"
    mixed = conversation_tree([first.details(), second])
    assert shown(mixed).splitlines()[1:] == ["└── q0 → a0", "    └── q1 → a1"]


def test_of_a_long_stretch_a_tree_shows_the_ends() -> None:
    rows = shown(conversation_tree(chain(1_000))).splitlines()
    labels = [row.strip("│├└─ ") for row in rows]
    assert labels[1:8] == [*(f"q{number} → a{number}" for number in range(6)), "… 989 exchanges"]
    assert rows[-1].endswith("q999 → a999")
    assert len(rows) == 13


def test_a_tree_of_many_branches_is_bounded_and_says_how_many_there_are() -> None:
    first = said("r", "q", "a")
    many = [first, *(said(f"b{number}", "q", "a", first) for number in range(2_000))]
    rows = shown(conversation_tree(many)).splitlines()
    assert len(rows) == 502
    assert rows[-1].endswith("… 2,001 exchanges in all")


def test_a_tree_with_a_branch_at_each_of_many_exchanges_stays_narrow_and_bounded() -> None:
    stem = chain(2_000)
    leaves = [said(f"leaf{number}", "q", "a", exchange) for number, exchange in enumerate(stem[:1_999])]
    rows = shown(conversation_tree([*stem, *leaves])).splitlines()
    assert len(rows) <= 503
    assert max(map(len, rows)) <= 80


def test_usage_shows_what_is_unknown_and_what_is_a_lower_bound() -> None:
    group = ExecutionGroup()
    rows = shown(usage_table({"one": result(), "all": group.snapshot(), "bare": UNKNOWN_USAGE})).splitlines()
    assert [row.split() for row in rows] == [
        ["one", "all", "bare"],
        ["runs", "1", "0"],
        ["attempts", "2", "0"],
        ["retries", "1", "0"],
        ["repairs", "0", "0"],
        ["input", "50", "0", "unknown"],
        ["output", "at", "least", "20", "0", "unknown"],
        ["cache", "read", "0", "0", "unknown"],
        ["cache", "write", "unknown", "0", "unknown"],
        ["reasoning", "unknown", "0", "unknown"],
    ]


def test_usage_of_many_is_a_line_each() -> None:
    rows = shown(usage_table({f"run {number}": result() for number in range(5)}), 120).splitlines()
    assert rows[0].split()[:4] == ["runs", "attempts", "retries", "repairs"]
    assert [row.split()[:4] for row in rows[1:]] == [["run", str(number), "1", "2"] for number in range(5)]


def test_a_group_is_shown_as_a_table_of_itself() -> None:
    rows = [row.split() for row in shown(ExecutionGroup().snapshot()).splitlines()]
    assert (rows[:2], len(rows)) == ([["runs", "0"], ["attempts", "0"]], 9)


# ---------------------------------------------------------------- safe and bounded


def hostile_values() -> Iterable[Any]:
    details = ExchangeDetails(
        run_id=HOSTILE,
        parent_run_id=HOSTILE,
        messages=(Message(role="user", content="[/] \x1b[2J"), Message(role="assistant", content="\x1b]0;t\x07[bold]")),
    )
    bad = Validation(status="invalid", violations=(Violation(pointer=HOSTILE, message=HOSTILE),))
    answer = result(raw_output=HOSTILE, refusal=HOSTILE, model=HOSTILE, prompt_id=HOSTILE, validation=bad)
    yield details
    yield answer
    yield CoordinationResult(undelivered=answer)
    yield ConversationTurn(exchange=said("r", "q", "\x1b[2J"), result=answer, remaining_turns=1)
    yield conversation_tree([details], title=HOSTILE)
    yield usage_table({HOSTILE: answer})
    yield usage_table({f"{HOSTILE}{number}": answer for number in range(5)})


@pytest.mark.parametrize("value", list(hostile_values()), ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("width", [20, 80])
def test_what_models_write_is_no_markup_and_does_nothing_to_a_terminal(value: Any, width: int) -> None:
    text = STYLE.sub("", shown(value, width, colour=True))
    text.encode()
    assert all(character.isprintable() or character == "\n" for character in text)
    assert "\\x1b" in text.replace("\n", "").replace(" ", "").replace("│", "")


def test_no_blanks_stand_behind_what_is_shown_and_would_be_copied_with_it() -> None:
    out = io.StringIO()
    Console(file=out, width=40).print(said("r", "Where?\nAnd when?", "In Rome."))
    assert [row for row in out.getvalue().splitlines() if row != row.rstrip()] == []


def test_markup_and_names_of_emoji_are_shown_as_they_stand() -> None:
    text = shown(said("r", "q", "[bold red]a[/] :smile: [link=http://x]b[/link]"))
    assert "  [bold red]a[/] :smile: [link=http://x]b[/link]" in text


def shown_tree(exchanges: Iterable[Exchange]) -> str:
    return shown(conversation_tree(exchanges))


def test_a_conversation_of_many_turns_is_read_once_in_steps_as_many_as_it_has_turns() -> None:
    steps = []
    for length in (2_000, 4_000):
        calls, text = counted(partial(shown_tree, chain(length)))
        steps.append(calls.total())
        assert calls["messages"] == 1
        assert len(text) < 3_000
    assert steps[1] < 2.1 * steps[0]


def test_the_newest_messages_of_a_long_conversation_take_as_many_steps_as_those_of_a_short_one() -> None:
    short, long = (counted(partial(shown, chain(length)[-1]))[0] for length in (50, 50_000))
    assert long.total() == pytest.approx(short.total(), rel=0.1)


def test_showing_values_reads_nothing_of_rich_before_rich_asks() -> None:
    program = "import sys, promptkit; print([name for name in sys.modules if name.partition('.')[0] == 'rich'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_rich_the_import_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['rich'] = None\n"
        "try: import promptkit.display\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'promptkit-engine[cli]'" in done.stdout


def test_a_summary_is_what_it_was_as_text() -> None:
    summary: ExecutionGroupSummary = ExecutionGroup().snapshot()
    assert str(summary).startswith("0 runs: ")
