"""An observer that keeps what it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from promptkit._values.events import ExecutionEvent


class EventRecorder:
    """An observer that keeps every event, in order, in ``events``."""

    events: list[ExecutionEvent]

    def __init__(self) -> None:
        """Begin empty."""
        self.events = []

    def __call__(self, event: ExecutionEvent) -> None:
        """Keep an event."""
        self.events.append(event)
