"""The line that says what a run is waiting for, as plain values."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from promptkit import AttemptFinished, ExecutionEvent, RetryDelayed, RunFinished, RunStarted
from promptkit._cli.progress import Progress, State, after, line_of
from promptkit._cli.streams import Streams
from promptkit._values.usage import UNKNOWN_USAGE

if TYPE_CHECKING:
    import pytest

AT = datetime(2026, 1, 1, tzinfo=UTC)
STARTED = RunStarted(at=AT, run_id="r", parent_run_id=None, prompt_id="ask")


def _attempt(number: int, outcome: Any) -> AttemptFinished:
    return AttemptFinished(
        at=AT, run_id="r", parent_run_id=None, profile="p", backend="b", backend_kind="chat_completions", model="m",
        response_id=None, attempt=number, purpose="generate", outcome=outcome, error=None, status=None, queued=0.0,
        duration=1.0, usage=UNKNOWN_USAGE,
    )  # fmt: skip


def _delayed(source: Any) -> RetryDelayed:
    return RetryDelayed(at=AT, run_id="r", parent_run_id=None, attempt=1, delay=2.0, source=source)


def _lines(*events: ExecutionEvent, since: float = 0.5) -> str:
    state = State()
    for event in events:
        state = after(state, event)
    return line_of("ask", state, 12.3, since)


def test_a_first_attempt_is_only_its_time() -> None:
    assert _lines(STARTED) == "ask  12 s"


def test_a_wait_counts_down_and_says_who_wants_it() -> None:
    failed = _attempt(1, "failed")
    assert _lines(STARTED, failed, _delayed("backoff")) == "ask  12 s  waiting 1.5 s, then attempt 2"
    asked = "ask  12 s  waiting 1.5 s, as the server asks, then attempt 2"
    assert _lines(STARTED, failed, _delayed("retry_after")) == asked


def test_after_the_wait_the_attempt_is_told() -> None:
    assert _lines(STARTED, _attempt(1, "failed"), _delayed("backoff"), since=2.5) == "ask  12 s  attempt 2"


def test_a_completed_attempt_that_is_followed_by_another_is_repaired() -> None:
    assert _lines(STARTED, _attempt(1, "completed")) == "ask  12 s  attempt 2, a repair"


def test_the_download_is_told_where_nothing_is_drawn(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    with Progress(Streams(), "ask"):
        logging.getLogger("promptkit.embedded").warning("fetching the default model once: 98 MB")
    assert capsysbinary.readouterr() == (b"", b"fetching the default model once: 98 MB\n")


def test_a_run_that_ended_waits_for_no_further_attempt() -> None:
    ended = RunFinished(
        at=AT, run_id="r", parent_run_id=None, prompt_id="ask", profile="p", backend="b", model="m",
        definition_hash=None, outcome="completed", error=None, validation="valid", attempts=1, transient_retries=0,
        repair_calls=0, usage=UNKNOWN_USAGE, duration=1.0,
    )  # fmt: skip
    assert _lines(STARTED, _attempt(1, "completed"), ended) == "ask  12 s"


def test_the_download_of_the_model_is_told_before_all_else() -> None:
    state = after(State(fetching="fetching the default model once: 98 MB"), STARTED)
    assert line_of("ask", state, 1.0, 1.0) == "ask  1 s  fetching the default model once: 98 MB"


def test_the_download_is_told_as_json_where_all_is_json(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    with Progress(Streams(json=True), "ask"):
        logging.getLogger("promptkit.embedded").warning("fetching the default model once: 98 MB")
    assert capsysbinary.readouterr() == (b"", b'{"note":"fetching the default model once: 98 MB"}\n')


def test_the_download_says_how_much_of_it_is_here() -> None:
    fetching = State(fetching="fetching the default model once: 98 MB", fetched=41_900_000, about=98_300_000)
    assert (
        line_of("ask", after(fetching, STARTED), 3.0, 3.0) == "ask  3 s  fetching the default model: 41 of about 98 MB"
    )


def test_the_bytes_of_the_download_are_told_by_the_line_alone(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    logger = logging.getLogger("promptkit.embedded")
    level = logger.level
    with Progress(Streams(), "ask"):
        logger.debug("1 of about 2 bytes are fetched", extra={"fetched_bytes": 1, "about_bytes": 2})
    assert (capsysbinary.readouterr(), logger.level) == ((b"", b""), level)
