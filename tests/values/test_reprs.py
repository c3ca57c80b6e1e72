from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit import (
    CoordinationResult,
    Exchange,
    ExchangeDetails,
    ExecutionGroupMember,
    ExecutionGroupSummary,
    GenerationReply,
    ImagePart,
    Message,
    MessageTemplate,
    OutputContract,
    PreparedRun,
    ProfileDetails,
    PromptDefinition,
    PromptDetails,
    RunRequest,
    RunResult,
    Secret,
    Setting,
    TextPart,
    Timing,
    Validation,
    Violation,
)
from promptkit._history import Turn
from promptkit._values.exchange import exchange_of
from promptkit._values.reprs import MAX_REPR, bounded_repr
from promptkit._values.results import with_exchange
from promptkit._values.usage import UNKNOWN_USAGE
from servers.call_counter import counted

BIG = "x" * 1_000_000
MANY = tuple(Message(role="user", content=f"message {number}") for number in range(10_000))


def result(**fields: Any) -> RunResult:
    given: dict[str, Any] = {
        "run_id": "r",
        "parent_run_id": None,
        "prompt_id": "ask",
        "profile": "p",
        "backend": "b",
        "model": "m",
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
        "attempts": 1,
        "transient_retries": 0,
        "repair_calls": 0,
        "usage": UNKNOWN_USAGE,
        "timing": Timing(started_at=datetime(2026, 3, 1, tzinfo=UTC), duration=1.5),
        **fields,
    }
    return RunResult(**given)


def prepared(messages: tuple[Message, ...], **fields: Any) -> PreparedRun:
    return PreparedRun(
        prompt_id="ask",
        parent_run_id=None,
        profile="p",
        backend="b",
        model="m",
        session_id=None,
        output=OutputContract(),
        messages=messages,
        definition_hash="sha256:0",
        input_hashes={},
        rendered_hash="sha256:1",
        settings={"seed": Setting(value=5, origin="profile")},
        **fields,
    )


def prompt_details(messages: tuple[MessageTemplate, ...]) -> PromptDetails:
    return PromptDetails(
        id="ask",
        description=BIG,
        messages=messages,
        variables=(),
        inputs=(),
        profile=None,
        session=None,
        output=OutputContract(),
        fragments={"shared": BIG},
        definition_hash="sha256:0",
        source=None,
    )


LARGE: list[Any] = [
    result(raw_output=BIG, value={"text": BIG, "list": [BIG] * 10_000}, refusal=BIG),
    result(validation=Validation(status="invalid", violations=(Violation(pointer="", message=BIG),) * 10_000)),
    Violation(pointer="", message=BIG),
    CoordinationResult(undelivered=result(raw_output=BIG)),
    ExchangeDetails(run_id="r", parent_run_id=None, messages=MANY),
    Message(role="user", content=BIG),
    Message(role="user", content=(TextPart(text=BIG),) * 1_000),
    prepared(MANY),
    prompt_details((MessageTemplate(role="user", content=BIG),) * 1_000),
    ProfileDetails(
        id="p",
        backend="b",
        model="m",
        settings={f"s{number}": Setting(value=[BIG], origin="profile") for number in range(1_000)},
    ),
    ExecutionGroupSummary(
        members=tuple(ExecutionGroupMember(run_id=f"r{n}", terminal_observed=True) for n in range(10_000)),
        terminal_coverage_complete=True,
        attempts=1,
        transient_retries=0,
        repair_calls=0,
        usage=UNKNOWN_USAGE,
    ),
    RunRequest(prompt_id="ask", variables={"question": BIG}, inputs={"file": b"x" * 1_000_000}, appended_messages=MANY),
    GenerationReply(content=BIG),
    PromptDefinition(id="ask", messages=(MessageTemplate(role="user", content=BIG),) * 1_000),
]


@pytest.mark.parametrize("value", LARGE, ids=[type(value).__name__ for value in LARGE])
def test_the_repr_of_a_large_value_is_short_and_takes_few_steps(value: Any) -> None:
    calls, text = counted(lambda: repr(value))
    assert calls.total() < 10_000
    assert text.startswith(type(value).__name__ + "(")
    assert len(text) <= MAX_REPR + 1_000
    assert str(value) == text or isinstance(value, ExecutionGroupSummary)


def test_a_long_text_is_cut_and_its_length_told() -> None:
    assert repr(TextPart(text="x" * 1_000)) == f"TextPart(text={'x' * 100!r}… <1,000 characters>)"
    assert repr(TextPart(text="x" * 200)) == f"TextPart(text={'x' * 200!r})"


def test_a_long_sequence_shows_its_ends() -> None:
    shown = repr(ExchangeDetails(run_id="r", parent_run_id=None, messages=MANY))
    assert "'message 0'" in shown
    assert "'message 9999'" in shown
    assert ", … 9,992 more, " in shown


def test_a_large_mapping_shows_its_first_entries_and_how_many_more_there_are() -> None:
    def mapping(size: int) -> dict[int, int]:
        return dict.fromkeys(range(size), 0)

    assert bounded_repr(mapping(50)) == repr(mapping(50))
    assert bounded_repr(mapping(10_050)) == repr(mapping(50))[:-1] + ", … 10,000 more}"


def test_the_repr_of_a_small_value_is_as_msgspec_writes_it() -> None:
    class Same(msgspec.Struct, frozen=True, kw_only=True):
        role: str
        content: Any
        cache_control: Any = None

    for content in (
        "Where?",
        "",
        "both \" and ' and \n",
        (TextPart(text="a"),),
        (TextPart(text="a"), TextPart(text="b")),
    ):
        message = Message(role="user", content=content)
        same = Same(role="user", content=content)
        assert repr(message) == repr(same).replace(type(same).__name__, "Message", 1)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
        max_leaves=20,
    )
)
def test_what_is_small_is_written_as_python_does(value: Any) -> None:
    if len(repr(value)) < 500 and _depth(value) < 8:
        assert bounded_repr(value) == repr(value)


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inner), default=0)


def test_a_deep_value_is_cut_where_it_is_too_deep() -> None:
    value: Any = "bottom"
    for _ in range(100_000):
        value = [value]
    assert bounded_repr(value) == "[" * 9 + "…" + "]" * 9


def test_a_number_of_too_many_digits_is_no_error() -> None:
    assert "<a number of too many digits>" in repr(result(value=10**5_000))


def test_no_control_character_gets_through_a_repr() -> None:
    text = repr(result(raw_output="\x1b]0;title\x07\u202e", value={"\x1b[2J": "\x9b"}))
    assert text.isprintable()


def test_no_secret_and_no_content_of_parts_is_in_a_repr() -> None:
    image = ImagePart(media_type="image/png", data=b"y" * 1_000)
    request = RunRequest(
        prompt_id="ask", credential=Secret("MARK"), appended_messages=(Message(role="user", content=(image,)),)
    )
    assert "MARK" not in repr(request)
    assert "Secret(***)" in repr(request)
    assert "<1,000 bytes>" in repr(request)


def test_the_repr_of_an_exchange_is_constant_and_so_is_not_in_that_of_its_result() -> None:
    exchange = exchange_of(Turn(None, [("user", "MARK", None)]).capture("r", "MARK"))
    assert isinstance(exchange, Exchange)
    assert "MARK" not in repr(exchange) + repr(with_exchange(result(captured=True), exchange))
