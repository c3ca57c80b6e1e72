"""The totals of a group of runs, collected from their events."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, final

from promptkit._history import Group
from promptkit._values.events import AttemptFinished, RetryDelayed, RunFinished, RunStarted
from promptkit._values.group import ExecutionGroupMember, ExecutionGroupSummary, contributed
from promptkit._values.usage import UNKNOWN_USAGE, TokenCount, TokenUsage, shown

if TYPE_CHECKING:
    from promptkit._values.events import ExecutionEvent

_ORDINARY = frozenset({RunStarted, AttemptFinished, RetryDelayed})


@final
class ExecutionGroup:
    """Adds up the runs whose events it is shown: ``observer=group.observe``.

    Each run counts once, by the first terminal event seen of it, whatever the order or repetition. A run of which no
    terminal was seen is a member without totals. Groups may overlap, and then their totals are not additive. Safe to
    use from many threads; cannot be copied or pickled.
    """

    # The lock is the native group's, which is never held while Python code runs. One held here would be met again by a
    # signal handler or a finaliser of the same thread, and stay locked for ever in the child of a fork.
    __slots__ = ("__weakref__", "_group")

    def __init__(self) -> None:
        """Begin empty."""
        self._group = Group()

    def observe(self, event: ExecutionEvent) -> None:
        """Take one event of one run.

        Totals are kept in 64 bits: one that would pass 2**64 - 1 stays there, as a lower bound. Raises TypeError for
        what is no event, and TypeError or ValueError for an event made by hand whose run id or totals are not of
        their type, negative, or without a UTF-8 form; the group is then as it was.
        """
        ordinary = type(event) in _ORDINARY  # isinstance takes 70 ns to say no for each class of msgspec
        if not ordinary and isinstance(event, RunFinished):
            self._group.observe_terminal(
                event.run_id, event.attempts, event.transient_retries, event.repair_calls, _counts(contributed(event))
            )
        elif ordinary or isinstance(event, (RunStarted, AttemptFinished, RetryDelayed)):
            self._group.observe_member(event.run_id)
        else:
            msg = f"observe() takes an execution event, not {type(event).__name__}: give it as observer=group.observe"
            raise TypeError(msg)

    def snapshot(self) -> ExecutionGroupSummary:
        """Give the totals at this moment: detached, and consistent in itself.

        With no member the totals are a known zero; with members and no terminal they are unknown.
        """
        run_ids, seen, terminals, attempts, retries, repairs, counts = self._group.snapshot()
        members = [
            ExecutionGroupMember(run_id=run_id, terminal_observed=terminal)
            for run_id, terminal in zip(run_ids, seen, strict=True)
        ]
        return ExecutionGroupSummary(
            members=tuple(members),
            terminal_coverage_complete=terminals == len(members),
            attempts=attempts,
            transient_retries=retries,
            repair_calls=repairs,
            usage=UNKNOWN_USAGE if members and not terminals else shown(_usage(*counts)),
        )

    def __repr__(self) -> str:
        """Give the number of runs, and of those whose end was not seen."""
        run_ids, _, terminals, *_ = self._group.snapshot()
        unfinished = len(run_ids) - terminals
        runs = f"{len(run_ids)} run{'' if len(run_ids) == 1 else 's'}"
        return f"<promptkit.ExecutionGroup: {runs}{f', {unfinished} not ended' if unfinished else ''}>"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied."""
        msg = "an ExecutionGroup cannot be copied or pickled: take a snapshot()"
        raise TypeError(msg)


_Count = tuple[int, bool, bool]


def _counts(usage: TokenUsage) -> tuple[_Count, _Count, _Count, _Count, _Count]:
    try:
        given, made, read = usage.input_tokens, usage.output_tokens, usage.cache_read_tokens
        written, thought = usage.cache_write_tokens, usage.reasoning_tokens
        counts = (
            (given.value, given.known, given.complete),
            (made.value, made.known, made.complete),
            (read.value, read.known, read.complete),
            (written.value, written.known, written.complete),
            (thought.value, thought.known, thought.complete),
        )
    except AttributeError as error:
        msg = f"the usage of an event must be a TokenUsage of five TokenCounts: {error}"
        raise TypeError(msg) from None
    return counts


def _usage(*counts: _Count) -> TokenUsage:
    made = (TokenCount(value=value, known=known, complete=complete) for value, known, complete in counts)
    return TokenUsage(**dict(zip(TokenUsage.__struct_fields__, made, strict=True)))
