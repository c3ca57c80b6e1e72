"""A model that answers from a script."""

from __future__ import annotations

import threading
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Self

from promptkit.testing.gate import Gate, passed
from promptkit.testing.steps import asked, checked, described, replied

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from promptkit._values.generation import GenerationCall, GenerationReply

ROWS = 12  # of calls and steps that are shown


class ScriptedClient:
    """A ModelClient that answers each call with the next step. Calls take steps in the order in which they arrive.

    A step is a GenerationReply, a text (the content of a reply that reports no usage), an exception to raise, a
    function of the call that gives one of these, awaited if it is async, or a Gate that holds the call first.

    A call beyond the last step is an AssertionError, and so are steps that no call took when ``assert_exhausted``
    looks: both show calls and steps side by side. ``with ScriptedClient(...) as client:`` looks when the block ends
    without an error. One client may serve several engines, loops and threads.
    """

    calls: list[GenerationCall]
    """Every call in the order of arrival, also one for which there was no step."""

    def __init__(self, *steps: GenerationReply | str | BaseException | Gate | Callable[[GenerationCall], Any]) -> None:
        """Take the steps. Raises TypeError for what cannot be one, such as a dict: give the JSON text."""
        gates: dict[int, int] = {}
        for number, step in enumerate(steps, 1):
            if not isinstance(step, Gate):
                checked(step, f"step {number} of a ScriptedClient")
            elif gates.setdefault(id(step), number) != number:
                msg = f"steps {gates[id(step)]} and {number} of a ScriptedClient are one Gate: make one for each"
                raise TypeError(msg)
        self.calls = []
        self._steps = list(steps)
        self._lock = threading.Lock()

    async def generate(self, call: GenerationCall) -> GenerationReply:
        """Take the next step."""
        with self._lock:
            self.calls.append(call)
            number = len(self.calls)
        if number > len(self._steps):
            raise AssertionError(self._too_many(number))
        step: Any = self._steps[number - 1]
        if isinstance(step, Gate):
            step = await passed(step)
        answer = step
        if callable(step) and not isinstance(step, BaseException):
            answer = step(call)
            if isinstance(answer, Awaitable):
                answer = await answer
        return replied(answer, step, f"step {number} of a ScriptedClient")

    def assert_exhausted(self) -> None:
        """Raise an AssertionError when there are steps that no call took, or there were calls without a step.

        A call without a step raised one already; this finds it where the program swallowed that.
        """
        there, used = len(self._steps), len(self.calls)
        if used > there:
            raise AssertionError(self._too_many(used))
        if used < there:
            msg = f"{there - used} of {there} steps of this ScriptedClient had no call:\n{self._side_by_side()}"
            raise AssertionError(msg)

    def __enter__(self) -> Self:
        """Give the client itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Assert that the script is exhausted, unless an error leaves."""
        if kind is None:
            self.assert_exhausted()

    def _too_many(self, number: int) -> str:
        call = self.calls[number - 1]
        if call.purpose == "repair":
            why = (
                "It is a repair, since the answer before it breaks the output contract: answer validly, or add a step."
            )
        elif call.attempt > 1:
            why = "It is a retry, since the attempt before it failed with a transient error: add a step."
        else:
            why = "Add a step, or find out why the program asks."
        return f"call {number} of this ScriptedClient has no step:\n{self._side_by_side()}\n{why}"

    def _side_by_side(self) -> str:
        """Show which call took which step, around the place where one side has no more."""
        calls, there = list(self.calls), len(self._steps)
        runs = {run_id: number for number, run_id in enumerate(dict.fromkeys(call.run_id for call in calls), 1)}
        rows = range(max(len(calls), there))
        first = max(0, min(len(calls), there) - ROWS // 2)
        lines = [f"  ... {first} before"] if first else []
        for row in rows[first : first + ROWS]:
            call = f"call {row + 1}  {asked(calls[row], runs[calls[row].run_id])}" if row < len(calls) else "no call"
            lines += [
                f"  {call}",
                f"    <- step {row + 1}  {_told(self._steps[row])}" if row < there else "    <- no step",
            ]
        after = len(rows) - first - ROWS
        return "\n".join([*lines, f"  ... {after} after"] if after > 0 else lines)

    def __repr__(self) -> str:
        """Count calls and steps."""
        return f"<promptkit.testing.ScriptedClient: {len(self.calls)} calls, {len(self._steps)} steps>"


def _told(step: Any) -> str:
    return repr(step) if isinstance(step, Gate) else described(step)
