"""Traces for tests: events with the fields that a test is about, and lines of a file."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from promptkit import AttemptFinished, ExecutionEvent, ReportedUsage, RetryDelayed, RunFinished, RunStarted, TokenUsage
from promptkit._report.report import report_of
from promptkit._values.usage import UNKNOWN_USAGE, contribution

if TYPE_CHECKING:
    from collections.abc import Iterable

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
KNOWN = contribution(
    ReportedUsage(input_tokens=11, output_tokens=7, cache_read_tokens=0, cache_write_tokens=0, reasoning_tokens=0)
)


def after(seconds: float) -> datetime:
    """Give the instant so many seconds after the beginning of the trace."""
    return START + timedelta(seconds=seconds)


def started(run_id: str = "r", at: float = 0.0, **fields: Any) -> RunStarted:
    """Give the start of a run."""
    return RunStarted(at=after(at), **{"run_id": run_id, "parent_run_id": None, "prompt_id": "ask", **fields})


def attempted(run_id: str = "r", at: float = 1.0, **fields: Any) -> AttemptFinished:
    """Give the end of an attempt: the first one, completed, after half a second, with 11 tokens in and 7 out."""
    known: dict[str, Any] = {
        "run_id": run_id,
        "parent_run_id": None,
        "profile": "fast",
        "backend": "local",
        "backend_kind": "chat_completions",
        "model": "small",
        "response_id": "answer-1",
        "attempt": 1,
        "purpose": "generate",
        "outcome": "completed",
        "error": None,
        "status": 200,
        "queued": 0.0,
        "duration": 0.5,
        "usage": KNOWN,
    }
    return AttemptFinished(at=after(at), **{**known, **fields})


def failed(run_id: str = "r", at: float = 1.0, **fields: Any) -> AttemptFinished:
    """Give the end of an attempt that failed with a 503."""
    facts = {"outcome": "failed", "error": "OverloadedError", "status": 503, "usage": UNKNOWN_USAGE, **fields}
    return attempted(run_id, at, **facts)


def delayed(run_id: str = "r", at: float = 1.0, **fields: Any) -> RetryDelayed:
    """Give the wait of half a second after the first attempt."""
    known = {"run_id": run_id, "parent_run_id": None, "attempt": 1, "delay": 0.5, "source": "backoff"}
    return RetryDelayed(at=after(at), **{**known, **fields})


def finished(run_id: str = "r", at: float = 1.0, **fields: Any) -> RunFinished:
    """Give the end of a run that completed with its first attempt, a second after its start."""
    known: dict[str, Any] = {
        "run_id": run_id,
        "parent_run_id": None,
        "prompt_id": "ask",
        "profile": "fast",
        "backend": "local",
        "model": "small",
        "definition_hash": "sha256:" + "0" * 64,
        "outcome": "completed",
        "error": None,
        "validation": "not_requested",
        "attempts": 1,
        "transient_retries": 0,
        "repair_calls": 0,
        "usage": KNOWN,
        "duration": 1.0,
    }
    return RunFinished(at=after(at), **{**known, **fields})


def whole(run_id: str = "r", at: float = 0.0, **fields: Any) -> list[ExecutionEvent]:
    """Give all events of a run that takes a second."""
    return [started(run_id, at, **fields), attempted(run_id, at + 1, **fields), finished(run_id, at + 1, **fields)]


def lines_of(events: Iterable[ExecutionEvent]) -> list[bytes]:
    """Write a trace."""
    return [msgspec.json.encode(event) + b"\n" for event in events]


def page(events: Iterable[ExecutionEvent], file: str = "trace.jsonl") -> str:
    """Give the page of a trace."""
    return report_of(lines_of(events), file).unwrap().html


def usage(**counts: int | None) -> TokenUsage:
    """Give what one attempt contributes that reported these counts."""
    return contribution(ReportedUsage(**counts))


def eventful() -> list[ExecutionEvent]:
    """Give a trace with everything that a page shows: each outcome, a queue, waits, repairs, a tree, an idle hour."""
    many = {"attempts": 3, "transient_retries": 1, "repair_calls": 1, "usage": KNOWN + KNOWN + UNKNOWN_USAGE}
    return [
        *whole("first", 0),
        started("second", 0.5, prompt_id="extract/figures"),
        failed("second", 2.0, queued=0.5),
        delayed("second", 2.0),
        attempted("second", 3.0, attempt=2),
        attempted("second", 4.0, attempt=3, purpose="repair"),
        finished("second", 4.0, duration=3.5, validation="invalid", prompt_id="extract/figures", **many),
        started("third", 4.0),
        failed("third", 4.5),
        delayed("third", 4.5, delay=20.0, source="retry_after"),
        finished("third", 5.0, outcome="cancelled", error="CancelledError", validation=None, usage=UNKNOWN_USAGE),
        started("fourth", 5.0, parent_run_id="first"),
        attempted("fourth", 6.0, outcome="cancelled", error="CancelledError", status=None, parent_run_id="first"),
        finished("fourth", 6.0, outcome="cancelled", error="CancelledError", validation=None, parent_run_id="first"),
        started("fifth", 3600, parent_run_id="fourth"),
        failed("fifth", 3601, parent_run_id="fourth"),
        finished("fifth", 3601, outcome="failed", error="OverloadedError", validation=None, parent_run_id="fourth"),
        *whole("sixth", 3601, parent_run_id="of another trace"),
        started("seventh", 3602, prompt_id="slow"),
        attempted("seventh", 3603, usage=usage(input_tokens=5)),
        finished(
            "eighth",
            3603,
            outcome="failed",
            error="TemplateError",
            profile=None,
            backend=None,
            model=None,
            definition_hash=None,
            validation=None,
            attempts=0,
            usage=usage(input_tokens=0),
            duration=0.0,
        ),
    ]
