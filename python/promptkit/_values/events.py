"""Observation: values that say what happened, never what was said."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Literal, TypeVar

import msgspec

from promptkit._values.frozen import UnfitError
from promptkit._values.functions import give_up, never_runs, plain_function
from promptkit._values.usage import TokenUsage
from promptkit.errors import InvalidRequestError, with_article

T = TypeVar("T")

_MOST_TOLD, _LONGEST_NAME = 3, 60  # of observers in the repr of one that is made of them

Outcome = Literal["completed", "failed", "cancelled"]


class RunStarted(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="run_started"):
    """A run began; nothing is selected yet.

    Attributes:
        at: when, in UTC.
        run_id: the id of the run.
        parent_run_id: the id of the run that it continues, or None.
        prompt_id: the full id of the prompt that is asked for.
    """

    at: datetime
    run_id: str
    parent_run_id: str | None
    prompt_id: str


class AttemptFinished(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="attempt_finished"):
    """One call to the backend ended, and its permit is back.

    Attributes:
        at: when, in UTC.
        run_id: the id of the run.
        parent_run_id: the id of the run that it continues, or None.
        profile: the id of the profile.
        backend: the id of the backend.
        backend_kind: the backend's ``kind``.
        model: the model as the backend reported it, else as asked.
        response_id: the backend's own id of the answer, or None.
        attempt: its number within the run, from 1.
        purpose: "generate" for the first try and its retries, "repair" for a repair and its retries.
        outcome: "completed", "failed" or "cancelled".
        error: the name of the error's class if it failed, else None.
        status: the HTTP status, or None where there was none.
        queued: the seconds that it waited for its permit.
        duration: the seconds of the attempt itself.
        usage: what this attempt used.
    """

    at: datetime
    run_id: str
    parent_run_id: str | None
    profile: str
    backend: str
    backend_kind: str
    model: str
    response_id: str | None
    attempt: int
    purpose: Literal["generate", "repair"]
    outcome: Outcome
    error: str | None
    status: int | None
    queued: float
    duration: float
    usage: TokenUsage


class RetryDelayed(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="retry_delayed"):
    """The run waits before it tries again.

    Attributes:
        at: when the wait begins, in UTC.
        run_id: the id of the run.
        parent_run_id: the id of the run that it continues, or None.
        attempt: the number of the attempt that failed.
        delay: the seconds that it waits.
        source: "retry_after" if the backend demanded the wait, else "backoff".
    """

    at: datetime
    run_id: str
    parent_run_id: str | None
    attempt: int
    delay: float
    source: Literal["backoff", "retry_after"]


class RunFinished(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="run_finished"):
    """The terminal event of a run: its capacity is back, and its totals are final.

    Attributes:
        at: when, in UTC.
        run_id: the id of the run.
        parent_run_id: the id of the run that it continues, or None.
        prompt_id: the full id of the prompt.
        profile: the id of the profile; None when the run failed before it was selected.
        backend: the id of the backend; None likewise.
        model: the model as the backend reported it if the run completed, else as asked; None likewise.
        definition_hash: the hash of what the prompt says; None likewise.
        outcome: "completed", "failed" or "cancelled".
        error: the name of the error's class if it failed, else None.
        validation: the status of the output's validation if it completed, else None.
        attempts: how many attempts were made.
        transient_retries: how many of them were retries.
        repair_calls: how many of them were first tries of a repair.
        usage: what the whole run used.
        duration: the seconds of the run, its waits included.
    """

    at: datetime
    run_id: str
    parent_run_id: str | None
    prompt_id: str
    profile: str | None
    backend: str | None
    model: str | None
    definition_hash: str | None
    outcome: Outcome
    error: str | None
    validation: Literal["not_requested", "valid", "invalid"] | None
    attempts: int
    transient_retries: int
    repair_calls: int
    usage: TokenUsage
    duration: float


ExecutionEvent = RunStarted | AttemptFinished | RetryDelayed | RunFinished
"""What an observer receives: one of the four events, told apart by class (encoded: by "kind")."""

Observer = Callable[[ExecutionEvent], None]
"""A plain function that is called with each event of a run, synchronously and in order.

It runs on the thread of the event loop, which waits for it. What it raises ends the run, and so does an awaitable that
it returns: nothing would await that. (A task that it has started is none of the run's business.)
"""


def deliver(observer: Observer, event: ExecutionEvent) -> None:
    """Call an observer. Raises InvalidRequestError when it returns work that nothing would do."""
    _expect_done(observer(event), "an observer")  # type: ignore[func-returns-value]  # it returns None, or should


def _expect_done(returned: object, function: str) -> None:
    if returned is not None and never_runs(returned):
        give_up(returned)
        kind = with_article(type(returned).__name__)
        msg = f"{function} returned {kind}, which nothing awaits: it is a plain function"
        raise InvalidRequestError(msg)


def compose_observers(*observers: Observer | None) -> Observer | None:
    """Make one observer that calls each of these in the given order.

    None is skipped, nothing is deduplicated, and with no observer left the result is None. What one raises reaches
    the run, and the later ones do not see that event. Raises InvalidRequestError for what is no plain function.
    """
    chosen = tuple(_plain(observer, "compose_observers") for observer in observers if observer is not None)
    if len(chosen) <= 1:
        return chosen[0] if chosen else None

    def composed(event: ExecutionEvent) -> None:
        for observer in chosen:
            deliver(observer, event)

    return _named(composed, "compose_observers", *chosen)


def guard_observer(observer: Observer, on_error: Callable[[Exception], None]) -> Observer:
    """Make an observer whose exceptions go to ``on_error`` and not to the run.

    What ``on_error`` raises reaches the run. Raises InvalidRequestError for what is no plain function.
    """
    _plain(observer, "guard_observer: observer")
    _plain(on_error, "guard_observer: on_error")

    def guarded(event: ExecutionEvent) -> None:
        try:
            deliver(observer, event)
        except Exception as error:  # noqa: BLE001  # the purpose of the guard
            _expect_done(on_error(error), "on_error of guard_observer")  # type: ignore[func-returns-value]  # as above

    return _named(guarded, "guard_observer", observer)


def _named(made: Observer, maker: str, *observers: Observer) -> Observer:
    """Let the repr of a function say what it was made of, in bounds: <function guard_observer(show) at 0x...>."""
    told = [_name(observer) for observer in observers[:_MOST_TOLD]]
    if len(observers) > _MOST_TOLD:
        told.append(f"{len(observers) - _MOST_TOLD} more")
    made.__qualname__ = f"{maker}({', '.join(told)})"
    return made


def _name(observer: Observer) -> str:
    function = isinstance(observer, FunctionType | BuiltinFunctionType | MethodType)
    name = str(getattr(observer if function else type(observer), "__qualname__", "?"))
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."


def _plain(value: T, place: str) -> T:
    try:
        if plain_function(value) is not None:
            return value
        sentence = "Expected a function, got `NoneType`"
    except UnfitError as error:
        sentence = str(error)
    msg = f"{place}: {sentence}"
    raise InvalidRequestError(msg)
