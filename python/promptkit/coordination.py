"""The coordinator as a pure state machine, for people who property-test it or their own policies against it.

``start(additional_turns)`` gives the first step, ``step(state, input)`` each further one: the next state and the
command that a driver carries out. States, inputs and commands are frozen values; there is no clock and no I/O.

>>> state, command = start(1)
>>> state, command = step(state, Clear())
>>> command
Call(remaining=1)
>>> state, command = step(state, Chose(stop=True))
>>> step(state, Clear()).command
Finish(outcome='stopped')

The table::

"""

from promptkit._machines import coordination as _machine
from promptkit._machines.coordination import (
    Call,
    Cancelled,
    Check,
    Checking,
    Choosing,
    Chose,
    Clear,
    Command,
    Completed,
    Deciding,
    Ended,
    Execute,
    Finish,
    Input,
    NotInTableError,
    Propagate,
    Raised,
    Running,
    State,
    Step,
    Withhold,
    start,
    step,
)

__doc__ += _machine.__doc__.partition("\n\n")[2]

__all__ = [
    "Call",
    "Cancelled",
    "Check",
    "Checking",
    "Choosing",
    "Chose",
    "Clear",
    "Command",
    "Completed",
    "Deciding",
    "Ended",
    "Execute",
    "Finish",
    "Input",
    "NotInTableError",
    "Propagate",
    "Raised",
    "Running",
    "State",
    "Step",
    "Withhold",
    "start",
    "step",
]
