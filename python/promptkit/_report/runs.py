"""From events to runs: whatever the order of the lines, repetition, and what is missing.

The first event of each step counts: one start and one end a run, one end and one wait an attempt. Later ones of the
same step are counted as repetitions. An event of an attempt says when the attempt ended and how long it took, and so
when it began.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from promptkit._values.events import AttemptFinished, Outcome, RetryDelayed, RunFinished, RunStarted
from promptkit._values.usage import UNKNOWN_USAGE, TokenUsage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from promptkit._values.events import ExecutionEvent

State = Literal["completed", "failed", "cancelled", "did_not_end"]


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """A wait after a failed attempt: ``delay`` seconds were meant, which a cancellation may have cut short."""

    attempt: int
    started: datetime
    ended: datetime
    delay: float
    source: Literal["backoff", "retry_after"]


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One call to a backend. ``retry``: the attempt before it failed."""

    number: int
    purpose: Literal["generate", "repair"]
    retry: bool
    outcome: Outcome
    error: str | None
    status: int | None
    profile: str
    backend: str
    backend_kind: str
    model: str
    response_id: str | None
    asked: datetime
    started: datetime
    ended: datetime
    queued: float
    duration: float
    usage: TokenUsage


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run, as far as the trace knows it.

    ``started`` and ``ended`` are the first and the last instant that is known of it; it ended then unless ``state`` is
    "did_not_end". The counts and the usage of such a run are those of the attempts that are in the trace: lower
    bounds. ``missing_attempts`` were made and are not in the trace.
    """

    run_id: str
    parent_run_id: str | None
    prompt_id: str | None
    profile: str | None
    backend: str | None
    backend_kind: str | None
    model: str | None
    definition_hash: str | None
    state: State
    error: str | None
    validation: Literal["not_requested", "valid", "invalid"] | None
    start_seen: bool
    started: datetime
    ended: datetime
    duration: float | None
    attempts: tuple[Attempt, ...]
    waits: tuple[Wait, ...]
    missing_attempts: int
    attempts_made: int
    transient_retries: int
    repair_calls: int
    queued: float
    waited: float
    usage: TokenUsage


class Runs(NamedTuple):
    """All runs, by their starts. ``repeated`` events said again what another event of the same step had said."""

    runs: tuple[Run, ...]
    repeated: int


@dataclass(slots=True)
class _Gathered:
    """The events of one run so far."""

    first: ExecutionEvent
    started: RunStarted | None = None
    finished: RunFinished | None = None
    attempts: dict[int, AttemptFinished] = field(default_factory=dict)
    delays: dict[int, RetryDelayed] = field(default_factory=dict)

    def take(self, event: ExecutionEvent) -> bool:
        """Take an event. Says whether it is the first of its step."""
        match event:
            case RunStarted():
                first = self.started is None
                self.started = self.started or event
            case RunFinished():
                first = self.finished is None
                self.finished = self.finished or event
            case AttemptFinished():
                first = self.attempts.setdefault(event.attempt, event) is event
            case RetryDelayed() | _:
                first = self.delays.setdefault(event.attempt, event) is event
        return first


def runs_of(events: Iterable[ExecutionEvent]) -> Runs:
    """Make the runs of a trace."""
    gathered: dict[str, _Gathered] = {}
    repeated = 0
    until: datetime | None = None
    for event in events:
        repeated += not gathered.setdefault(event.run_id, _Gathered(event)).take(event)
        until = event.at if until is None else max(until, event.at)
    if until is None:
        return Runs((), 0)
    runs = [_run(each, until) for each in gathered.values()]
    return Runs(tuple(sorted(runs, key=lambda run: run.started)), repeated)


def _run(seen: _Gathered, until: datetime) -> Run:
    started, finished = seen.started, seen.finished
    attempts = _attempts(seen)
    waits = _waits(seen, finished.at if finished else until)
    last = attempts[-1] if attempts else None
    instants = [*_instants(seen, attempts), *(each.ended for each in waits)]
    selected = finished or last
    attempts_made = finished.attempts if finished else last.number if last else 0
    return Run(
        run_id=seen.first.run_id,
        parent_run_id=seen.first.parent_run_id,
        prompt_id=started.prompt_id if started else finished.prompt_id if finished else None,
        profile=selected.profile if selected else None,
        backend=selected.backend if selected else None,
        backend_kind=last.backend_kind if last else None,
        model=selected.model if selected else None,
        definition_hash=finished.definition_hash if finished else None,
        state=finished.outcome if finished else "did_not_end",
        error=finished.error if finished else None,
        validation=finished.validation if finished else None,
        start_seen=started is not None,
        started=min(instants),
        ended=max(instants),
        duration=finished.duration if finished else None,
        attempts=attempts,
        waits=waits,
        missing_attempts=max(0, attempts_made - len(attempts)),
        attempts_made=attempts_made,
        transient_retries=finished.transient_retries if finished else sum(each.retry for each in attempts),
        repair_calls=finished.repair_calls if finished else _repairs(attempts),
        queued=sum(each.queued for each in attempts),
        waited=sum((each.ended - each.started).total_seconds() for each in waits),
        usage=finished.usage if finished else reduce(add, (each.usage for each in attempts), UNKNOWN_USAGE),
    )


def _instants(seen: _Gathered, attempts: tuple[Attempt, ...]) -> list[datetime]:
    """Give the instants at which a run is known to have been under way."""
    instants = [seen.first.at, *(each.asked for each in attempts), *(each.ended for each in attempts)]
    if seen.started:
        instants.append(seen.started.at)
    if seen.finished:
        instants.append(seen.finished.at)
        if not seen.started:
            instants.append(seen.finished.at - timedelta(seconds=seen.finished.duration))
    return instants


def _repairs(attempts: tuple[Attempt, ...]) -> int:
    return sum(each.purpose == "repair" and not each.retry for each in attempts)


def _attempts(seen: _Gathered) -> tuple[Attempt, ...]:
    made: list[Attempt] = []
    for number, event in sorted(seen.attempts.items()):
        started = event.at - timedelta(seconds=event.duration)
        before = seen.attempts.get(number - 1)
        made.append(
            Attempt(
                number=number,
                purpose=event.purpose,
                retry=before is not None and before.outcome == "failed",
                outcome=event.outcome,
                error=event.error,
                status=event.status,
                profile=event.profile,
                backend=event.backend,
                backend_kind=event.backend_kind,
                model=event.model,
                response_id=event.response_id,
                asked=started - timedelta(seconds=event.queued),
                started=started,
                ended=event.at,
                queued=event.queued,
                duration=event.duration,
                usage=event.usage,
            )
        )
    return tuple(made)


def _waits(seen: _Gathered, until: datetime) -> tuple[Wait, ...]:
    waits: list[Wait] = []
    for number, event in sorted(seen.delays.items()):
        following = seen.attempts.get(number + 1)
        end = until
        if following is not None:
            end = following.at - timedelta(seconds=following.duration + following.queued)
        ended = max(event.at, min(event.at + timedelta(seconds=event.delay), end))
        waits.append(Wait(attempt=number, started=event.at, ended=ended, delay=event.delay, source=event.source))
    return tuple(waits)
