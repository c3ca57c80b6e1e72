"""The events of one run, delivered to its observer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit._effects.cancellation import cancellations
from promptkit._values.events import deliver

if TYPE_CHECKING:
    from promptkit._values.events import ExecutionEvent, Observer


class Narrator:
    """Delivers events in order. After an observer has raised, the run has no further event."""

    __slots__ = ("_observer", "broken")

    def __init__(self, observer: Observer | None) -> None:
        self._observer = observer
        self.broken = False

    @property
    def listening(self) -> bool:
        """Whether anybody receives what is told."""
        return self._observer is not None and not self.broken

    def tell(self, event: ExecutionEvent) -> None:
        """Deliver an event. What the observer raises ends the run."""
        if self._observer is None or self.broken:
            return
        try:
            deliver(self._observer, event)
        except BaseException:
            self.broken = True
            raise

    def tell_beside(self, cancellation: BaseException, event: ExecutionEvent) -> None:
        """Deliver an event while a cancellation leaves: what the observer raises becomes a note of it."""
        try:
            self.tell(event)
        except BaseException as error:
            if not isinstance(error, (Exception, *cancellations())):
                raise  # an interrupt goes first
            cancellation.add_note(f"an observer raised {type(error).__name__}{_said(error)}")


def _said(error: BaseException) -> str:
    """Give an error's text, if it has one: it is other people's code."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001
        return ""
    return f": {text}" if text else ""
