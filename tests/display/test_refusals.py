"""What cannot be shown is refused, with what to give."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from promptkit import ExecutionGroup, InvalidRequestError, RunResult, Timing, Validation
from promptkit._history import Turn
from promptkit._values.exchange import exchange_of
from promptkit._values.usage import UNKNOWN_USAGE
from promptkit.display import conversation, conversation_tree, usage_table

if TYPE_CHECKING:
    from collections.abc import Callable

EXCHANGE = exchange_of(Turn(None, [("user", "q", None)]).capture("r", "a"))
RESULT = RunResult(
    run_id="r",
    parent_run_id=None,
    prompt_id="ask",
    profile="p",
    backend="b",
    model="small",
    response_id=None,
    session_id=None,
    definition_hash="sha256:0",
    rendered_hash="sha256:1",
    raw_output="In Rome.",
    value=None,
    finish_reason="stop",
    refusal=None,
    validation=Validation(status="not_requested"),
    captured=False,
    attempts=1,
    transient_retries=0,
    repair_calls=0,
    usage=UNKNOWN_USAGE,
    timing=Timing(started_at=datetime(2026, 3, 1, tzinfo=UTC), duration=1.5),
)


def untyped(value: Any) -> Any:
    return value


def test_what_cannot_be_shown_is_refused_with_what_to_give() -> None:
    wrong: Any = RESULT
    with pytest.raises(InvalidRequestError, match=r"conversation: Expected an Exchange .*: take its \.exchange"):
        conversation(wrong)
    with pytest.raises(InvalidRequestError, match=r"conversation_tree: Expected an Exchange .*, got `RunResult`"):
        conversation_tree([wrong])
    wrong = {"x": "y"}
    with pytest.raises(InvalidRequestError, match=r"usage_table: 'x': Expected a RunResult, .*, got `str`"):
        usage_table(wrong)


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: usage_table(untyped([1])), "usage_table: Expected a mapping of names to what was used, got `list`"),
    (
        lambda: usage_table(untyped(RESULT)),
        "usage_table: Expected a mapping of names to what was used, got `RunResult`",
    ),
    (lambda: usage_table(untyped({1: RESULT})), "usage_table: a name: Expected a text, got 1"),
    (lambda: conversation_tree([], title=untyped(3)), "conversation_tree: title: Expected a text, got 3"),
    (lambda: conversation_tree(untyped(3)), "conversation_tree: Expected an iterable of exchanges, got 3"),
    (
        lambda: conversation_tree(untyped(EXCHANGE)),
        "conversation_tree: Expected an iterable of exchanges, got `Exchange`: give a list of it",
    ),
    (
        lambda: conversation(EXCHANGE, newest=untyped("3")),
        "conversation: newest: Expected a whole number, 0 or more, got `str`",
    ),
    (
        lambda: conversation(EXCHANGE, newest=True),
        "conversation: newest: Expected a whole number, 0 or more, got True",
    ),
    (
        lambda: conversation(EXCHANGE, newest=-1),
        "conversation: newest: Expected a whole number, 0 or more, got -1",
    ),
]


@pytest.mark.parametrize(("show", "text"), REFUSED, ids=[text for _, text in REFUSED])
def test_an_argument_of_another_kind_is_refused_before_anything_is_shown(show: Any, text: str) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        show()
    assert str(raised.value) == text


def test_a_group_is_told_to_give_its_snapshot() -> None:
    wrong: Any = {"a": ExecutionGroup()}
    with pytest.raises(InvalidRequestError, match=r"'a': .* got `ExecutionGroup`: give its \.snapshot\(\)$"):
        usage_table(wrong)
