"""The coordinator as a pure state machine: one branch, a budget of turns, an application that chooses.

    state               input              condition         command      next state
    Checking(pending)   Clear              -                 Call         Choosing
    Checking(pending)   Cancelled          -                 Withhold     Ended(cancelled), pending kept if there is one
    Choosing            Chose(request)     -                 Check        Deciding(request)
    Choosing            Chose(stop)        -                 Check        Deciding(stop)
    Choosing            Raised             -                 Check        Deciding(raised)
    Deciding(any)       Cancelled          -                 Withhold     Ended(cancelled): it wins over the callback
    Deciding(raised)    Clear              -                 Propagate    Ended(failed)
    Deciding(stop)      Clear              -                 Finish       Ended(stopped)
    Deciding(request)   Clear              no turns left     Finish       Ended(exhausted), nothing prepared
    Deciding(request)   Clear              turns left        Execute      Running, one turn spent
    Running             Completed          -                 Check        Checking(pending), result pending
    Running             Raised             -                 Propagate    Ended(failed)

Being called is delivery: a callback that was called has received its response, even if it raised or was cancelled.
A turn is spent when it starts, even if its preparation fails. An input that the table does not have is refused with a
``NotInTableError`` and changes nothing. No clock, no I/O, and no exchange is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Choice = Literal["request", "stop", "raised"]
End = Literal["stopped", "exhausted", "failed", "cancelled"]


class NotInTableError(ValueError):
    """An input that the state does not take. The state is unchanged."""


class Checking(msgspec.Struct, frozen=True, kw_only=True):
    """About to call the application; ``pending`` says that a completed response waits for delivery."""

    remaining: int
    pending: bool


class Choosing(msgspec.Struct, frozen=True, kw_only=True):
    """The application chooses."""

    remaining: int


class Deciding(msgspec.Struct, frozen=True, kw_only=True):
    """The application has chosen, and cancellation is looked at once more."""

    remaining: int
    choice: Choice


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """A continuation runs; its turn is spent."""

    remaining: int


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The end; ``undelivered`` says that a completed response never reached the application."""

    end: End
    undelivered: bool = False


State = Checking | Choosing | Deciding | Running | Ended

# Inputs and commands are no tuples: empty ones would all be equal.


class Clear(msgspec.Struct, frozen=True):
    """The check found no cancellation."""


class Cancelled(msgspec.Struct, frozen=True):
    """The check found a cancellation."""


class Chose(msgspec.Struct, frozen=True):
    """The application returned a request, or None to stop."""

    stop: bool


class Raised(msgspec.Struct, frozen=True):
    """The application, or the run, raised."""


class Completed(msgspec.Struct, frozen=True):
    """The run completed with a result."""


Input = Clear | Cancelled | Chose | Raised | Completed

# What a driver gives again and again.
CLEAR, CANCELLED, RAISED, COMPLETED = Clear(), Cancelled(), Raised(), Completed()
GO_ON, STOP = Chose(stop=False), Chose(stop=True)


class Check(msgspec.Struct, frozen=True):
    """Look for a cancellation."""


class Call(msgspec.Struct, frozen=True):
    """Call the application with the pending result and this many turns left."""

    remaining: int


class Execute(msgspec.Struct, frozen=True):
    """Run the request that the application chose."""


class Finish(msgspec.Struct, frozen=True):
    """End normally."""

    outcome: Literal["stopped", "exhausted"]


class Propagate(msgspec.Struct, frozen=True):
    """Let the error through unchanged."""


class Withhold(msgspec.Struct, frozen=True):
    """Let the cancellation through; keep the pending result as undelivered, if there is one."""

    undelivered: bool


Command = Check | Call | Execute | Finish | Propagate | Withhold

_CHECK, _EXECUTE, _PROPAGATE = Check(), Execute(), Propagate()


class Step(NamedTuple):
    """The next state, and what to do."""

    state: State
    command: Command


def start(additional_turns: int) -> Step:
    """Begin with a budget: the first thing to do is to check. Raises TypeError and ValueError for what is none."""
    if isinstance(additional_turns, bool) or not isinstance(additional_turns, int):
        msg = f"additional_turns: Expected an int, got `{type(additional_turns).__name__}`"
        raise TypeError(msg)
    if additional_turns < 0:
        msg = f"additional_turns is {additional_turns}: 0 or more"
        raise ValueError(msg)
    return Step(Checking(remaining=additional_turns, pending=False), _CHECK)


def step(state: State, event: Input) -> Step:
    """Take one input.

    Raises NotInTableError for one that the state does not take, and TypeError for what is no state or no input.
    """
    row = _TABLE.get((type(state), type(event)))
    if row is None:
        raise _refused(state, event)
    return row(state, event)


def _refused(state: object, event: object) -> NotInTableError | TypeError:
    """Make the error for a pair that is not in the table: it says what would be."""
    if isinstance(state, Step):
        return TypeError("step: state: Expected a state, got a `Step`: give its .state, or unpack it, state, command")
    if type(state) not in get_args(State):
        return TypeError(f"step: state: Expected {_either(State)}, got {_given(state)}")
    if type(event) not in get_args(Input):
        return TypeError(f"step: event: Expected {_either(Input)}, got {_given(event)}")
    taken = [kind.__name__ for before, kind in _TABLE if before is type(state)]
    takes = f"it takes {' or '.join(taken)}" if taken else "the coordination has ended"
    return NotInTableError(f"{type(state).__name__} takes no {type(event).__name__}: {takes}")


def _either(union: object) -> str:
    """Name the kinds of a union."""
    *others, last = (each.__name__ for each in get_args(union))
    return f"{', '.join(others)} or {last}"


def _given(value: object) -> str:
    """Name what was given, and what to give instead of a class."""
    if isinstance(value, type):
        fields = ", ".join(f"{name}=..." for name in getattr(value, "__struct_fields__", ()))
        return f"the class `{value.__name__}`: give an instance of it, {value.__name__}({fields})"
    return f"`{type(value).__name__}`"


def _decided(state: Deciding, _: Clear) -> Step:
    if state.choice == "raised":
        return Step(Ended(end="failed"), _PROPAGATE)
    if state.choice == "stop":
        return Step(Ended(end="stopped"), Finish("stopped"))
    if state.remaining == 0:
        return Step(Ended(end="exhausted"), Finish("exhausted"))
    return Step(Running(remaining=state.remaining - 1), _EXECUTE)


def _chosen(state: Choosing, event: Chose) -> Step:
    return Step(Deciding(remaining=state.remaining, choice="stop" if event.stop else "request"), _CHECK)


# A lookup, and no match of classes, which asks for every row in turn: of a turn this was a third.
_TABLE: Mapping[tuple[type[State], type[Input]], Callable[[Any, Any], Step]] = {
    (Checking, Clear): lambda state, _: Step(Choosing(remaining=state.remaining), Call(state.remaining)),
    (Checking, Cancelled): lambda state, _: Step(
        Ended(end="cancelled", undelivered=state.pending), Withhold(state.pending)
    ),
    (Choosing, Chose): _chosen,
    (Choosing, Raised): lambda state, _: Step(Deciding(remaining=state.remaining, choice="raised"), _CHECK),
    (Deciding, Cancelled): lambda _, __: Step(Ended(end="cancelled"), Withhold(undelivered=False)),
    (Deciding, Clear): _decided,
    (Running, Completed): lambda state, _: Step(Checking(remaining=state.remaining, pending=True), _CHECK),
    (Running, Raised): lambda _, __: Step(Ended(end="failed"), _PROPAGATE),
}
