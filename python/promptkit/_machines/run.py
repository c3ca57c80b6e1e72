"""One run: attempts, retries and repairs, as a state machine without I/O.

    phase      input            condition                         command    next phase
    queued     Sent             -                                 Generate   in_flight
    in_flight  Answered         valid, or no repair can help      Finish     ended
    in_flight  Answered         curable, repairs left             Repair     queued
    in_flight  Broke            not transient, or no budget,      Fail       ended
                                or a retry-after above
                                max_retry_after
    in_flight  Broke            transient, budget left            Wait       waiting
    waiting    Elapsed          -                                 Retry      queued

A driver asks for a permit in ``queued`` and says Sent when it has one. ``max_retries`` counts the retries of the whole
run, those of its repairs included; repairs themselves have ``max_repairs``. Cancellation is no input: a driver that is
cancelled reads the totals of the state that it had and stops. Any other input is refused with a ValueError and changes
nothing.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from promptkit._machines.backoff import Delay, delay_before
from promptkit._values.definitions import RetryPolicy
from promptkit._values.generation import Purpose
from promptkit._values.usage import NO_USAGE, UNKNOWN_USAGE, TokenUsage, contribution
from promptkit.errors import ConnectError, GenerationError

Phase = Literal["queued", "in_flight", "waiting", "ended"]

UNGENERATED_STATUSES = frozenset({503, 529})
POSSIBLY_GENERATED = frozenset({408, 499})


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a run. ``usage`` is the fold over its finished attempts."""

    policy: RetryPolicy
    max_repairs: int
    phase: Phase = "queued"
    purpose: Purpose = "generate"
    attempts: int = 0
    transient_retries: int = 0
    repair_calls: int = 0
    retrying: bool = False
    usage: TokenUsage = NO_USAGE


class Sent(NamedTuple):
    """The permit is there: the attempt begins."""


class Answered(NamedTuple):
    """The attempt brought a reply: what it used, whether its output is valid, and whether a repair could cure it."""

    usage: TokenUsage
    valid: bool
    curable: bool


class Broke(NamedTuple):
    """The attempt failed. ``chance`` is uniform in [0, 1), for the delay."""

    error: GenerationError
    usage: TokenUsage
    chance: float


class Elapsed(NamedTuple):
    """The wait is over."""


class Generate(NamedTuple):
    """Call the backend."""


class Repair(NamedTuple):
    """Send the answer back with what is wrong with it."""


class Wait(NamedTuple):
    """Wait without a permit."""

    delay: Delay


class Retry(NamedTuple):
    """Ask for a permit again."""


class Finish(NamedTuple):
    """Complete the run with this reply."""


class Fail(NamedTuple):
    """End the run with the error of the last attempt. ``reason`` completes its message, if there is more to say."""

    reason: str | None = None


Input = Sent | Answered | Broke | Elapsed
Command = Generate | Repair | Wait | Retry | Finish | Fail


class Step(NamedTuple):
    """The next state, and what to do."""

    state: Run
    command: Command


def step(state: Run, event: Input) -> Step:
    """Take one input."""
    match state.phase, event:
        case "queued", Sent():
            return Step(_sent(state), Generate())
        case "in_flight", Answered():
            return _answered(state, event)
        case "in_flight", Broke():
            return _broke(state, event)
        case "waiting", Elapsed():
            return Step(msgspec.structs.replace(state, phase="queued", retrying=True), Retry())
        case _:
            msg = f"a run that is {state.phase} takes no {type(event).__name__}"
            raise ValueError(msg)


def _sent(state: Run) -> Run:
    repairing = state.purpose == "repair" and not state.retrying
    return msgspec.structs.replace(
        state,
        phase="in_flight",
        attempts=state.attempts + 1,
        transient_retries=state.transient_retries + state.retrying,
        repair_calls=state.repair_calls + repairing,
        retrying=False,
    )


def _answered(state: Run, event: Answered) -> Step:
    usage = state.usage + event.usage
    if event.valid or not event.curable or state.repair_calls >= state.max_repairs:
        return Step(msgspec.structs.replace(state, phase="ended", usage=usage), Finish())
    return Step(msgspec.structs.replace(state, phase="queued", purpose="repair", usage=usage), Repair())


def _broke(state: Run, event: Broke) -> Step:
    state = msgspec.structs.replace(state, usage=state.usage + event.usage)
    ended = msgspec.structs.replace(state, phase="ended")
    retry = state.transient_retries + 1
    if not event.error.transient:
        return Step(ended, Fail())
    if retry > state.policy.max_retries:
        return Step(ended, Fail(_given_up(state)))
    delay = delay_before(retry, state.policy, event.error.retry_after, event.chance)
    if delay is None:
        demand = f"it demands a wait of {event.error.retry_after:g} s, and max_retry_after is"
        return Step(ended, Fail(f"{demand} {state.policy.max_retry_after:g} s"))
    return Step(msgspec.structs.replace(state, phase="waiting"), Wait(delay))


def _given_up(state: Run) -> str | None:
    return None if state.attempts <= 1 else f"given up after {state.attempts} attempts"


def failure_usage(error: GenerationError) -> TokenUsage:
    """Give what a failed attempt contributes: its counts if it came with any, nothing if it cannot have generated.

    It cannot have generated when there was no connection, or when the status was 503, 529, or a 4xx other than 408
    and 499. After anything else its counts are unknown.
    """
    if error.reported is not None:
        return contribution(error.reported)
    if isinstance(error, ConnectError):
        return NO_USAGE
    status = error.status
    if status is None or status in POSSIBLY_GENERATED:
        return UNKNOWN_USAGE
    refused = status in UNGENERATED_STATUSES or 400 <= status < 500
    return NO_USAGE if refused else UNKNOWN_USAGE
