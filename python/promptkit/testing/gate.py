"""A step that waits for the test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio

from promptkit.testing.changes import HELD, PATIENCE, Changes
from promptkit.testing.steps import checked, described

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit._values.generation import GenerationCall, GenerationReply


class Gate:
    """A step of a ScriptedClient that holds its call until the test releases it: the call is in flight that long.

    ``step`` is what the call then gets: any step but another gate. A gate serves one call. Where it is released before
    it is reached, it holds nothing. Tasks on any event loop use ``reached``, threads ``wait_until_reached``;
    ``release`` may be called from anywhere. A call that is not released ``within`` so many seconds, 15 if nothing is
    said, ends with an AssertionError: a test that failed meanwhile does not hang.
    """

    def __init__(
        self,
        step: GenerationReply | str | BaseException | Callable[[GenerationCall], Any],
        *,
        within: float = HELD,
    ) -> None:
        """Take the step. Raises TypeError for what cannot be one."""
        if isinstance(step, Gate):
            msg = "a Gate holds a text, a GenerationReply, an exception or a function of the call: not another Gate"
            raise TypeError(msg)
        self._step = checked(step, "what a Gate holds")
        self._within = within
        self._changes = Changes()
        self._reached = self._released = self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """Whether the call was cancelled while it was held, by its caller, a deadline or its attempt_timeout."""
        return self._cancelled

    async def reached(self, *, within: float = PATIENCE) -> None:
        """Wait until the call is held here.

        Raises AssertionError when it is not, ``within`` so many seconds (10 unless it is given).
        """
        self._expect(within, reached=await self._changes.expect(self._is_reached, within))

    def wait_until_reached(self, *, within: float = PATIENCE) -> None:
        """Wait as ``reached`` does, in a thread without an event loop: for a BlockingEngine in another thread."""
        self._expect(within, reached=self._changes.expect_in_thread(self._is_reached, within))

    def release(self) -> None:
        """Let the call go on to its step."""
        with self._changes.lock:
            self._released = True
        self._changes.tell()

    async def _hold(self) -> None:
        with self._changes.lock:
            if self._reached:
                msg = f"{self!r} was reached twice: a gate serves one call of one client"
                raise AssertionError(msg)
            self._reached = True
        self._changes.tell()
        try:
            released = await self._changes.expect(lambda: self._released, self._within)
        except anyio.get_cancelled_exc_class():
            self._cancelled = True
            raise
        if not released:
            msg = (
                f"{self!r} held its call for {self._within:g} s, and nobody released it: call release() in the test, "
                "which must run beside the program (or look for the failure of the test that came first)"
            )
            raise AssertionError(msg)

    def _is_reached(self) -> bool:
        return self._reached

    def _expect(self, within: float, *, reached: bool) -> None:
        if not reached:
            msg = (
                f"no call has reached {self!r} within {within:g} s: the program must run beside the test, in a task "
                "(await reached) or in a thread (wait_until_reached), and the steps before this one must be used"
            )
            raise AssertionError(msg)

    def __repr__(self) -> str:
        """Name the step."""
        return f"Gate({described(self._step)})"


async def passed(gate: Gate) -> Any:
    """Hold a call until the gate is released, and give the step behind it."""
    await gate._hold()  # noqa: SLF001  # the two halves of one step
    return gate._step  # noqa: SLF001
