"""The totals of a group of runs, collected from their events."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NoReturn, final

from promptkit._values.events import RunFinished
from promptkit._values.group import ExecutionGroupMember, ExecutionGroupSummary
from promptkit._values.usage import NO_USAGE, UNKNOWN_USAGE, shown

if TYPE_CHECKING:
    from promptkit._values.events import ExecutionEvent


@final
class ExecutionGroup:
    """Adds up the runs whose events it is shown: ``observer=group.observe``.

    Each run counts once, by the first terminal event seen of it, whatever the order or repetition. A run of which no
    terminal was seen is a member without totals. Groups may overlap, and then their totals are not additive. Safe to
    use from many threads; cannot be copied or pickled.
    """

    __slots__ = ("__weakref__", "_attempts", "_lock", "_members", "_repair_calls", "_transient_retries", "_usage")

    def __init__(self) -> None:
        """Begin empty."""
        self._lock = threading.Lock()
        self._members: dict[str, bool] = {}
        self._attempts = 0
        self._transient_retries = 0
        self._repair_calls = 0
        self._usage = NO_USAGE

    def observe(self, event: ExecutionEvent) -> None:
        """Take one event of one run."""
        with self._lock:
            if not isinstance(event, RunFinished):
                self._members.setdefault(event.run_id, False)
            elif not self._members.get(event.run_id, False):
                self._members[event.run_id] = True
                self._attempts += event.attempts
                self._transient_retries += event.transient_retries
                self._repair_calls += event.repair_calls
                self._usage = self._usage + event.usage

    def snapshot(self) -> ExecutionGroupSummary:
        """Give the totals at this moment: detached, and consistent in itself.

        With no member the totals are a known zero; with members and no terminal they are unknown.
        """
        with self._lock:
            members = tuple(self._members.items())
            attempts, retries, repairs = self._attempts, self._transient_retries, self._repair_calls
            usage = self._usage
        unseen = bool(members) and not any(terminal for _, terminal in members)
        return ExecutionGroupSummary(
            members=tuple(ExecutionGroupMember(run_id=run_id, terminal_observed=seen) for run_id, seen in members),
            terminal_coverage_complete=all(seen for _, seen in members),
            attempts=attempts,
            transient_retries=retries,
            repair_calls=repairs,
            usage=UNKNOWN_USAGE if unseen else shown(usage),
        )

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied."""
        msg = "an ExecutionGroup cannot be copied or pickled: take a snapshot()"
        raise TypeError(msg)
