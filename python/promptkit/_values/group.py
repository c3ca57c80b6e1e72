"""What a group of runs amounts to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from promptkit._values.reprs import bounded_repr
from promptkit._values.usage import NO_USAGE, TOKENS, TokenUsage, shown
from promptkit.errors import InvalidRequestError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from promptkit._values.events import RunFinished

_NO_USAGE_SHOWN = shown(NO_USAGE)

_TABLE_OF = 'give {"name": group.snapshot()}'


def contributed(finished: RunFinished) -> TokenUsage:
    """Give what a run contributes to a sum, from the event that shows it.

    A run of which no attempt can have generated is shown as five known zeros, but is the identity of the sum. A run
    that got a reply is told from it by being completed, or by its repair. What is left over cannot be told apart, and
    is taken for the identity: five zeros that a failed attempt reported, or an answer whose repair was not begun.
    """
    without_reply = finished.attempts == 0 or (finished.outcome != "completed" and not finished.repair_calls)
    return NO_USAGE if without_reply and finished.usage == _NO_USAGE_SHOWN else finished.usage


class ExecutionGroupMember(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a group.

    Attributes:
        run_id: the id of the run.
        terminal_observed: whether its terminal event was seen.
    """

    run_id: str
    terminal_observed: bool


class ExecutionGroupSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The totals of a group at one moment, from the terminal events seen. ``str`` gives one line for people.

    Attributes:
        members: the runs of the group, in no promised order.
        terminal_coverage_complete: whether each member was seen to end. It says nothing about runs to come.
        attempts: how many attempts were made.
        transient_retries: how many of them were retries.
        repair_calls: how many of them were first tries of a repair.
        usage: what the runs used.
    """

    members: tuple[ExecutionGroupMember, ...]
    terminal_coverage_complete: bool
    attempts: int
    transient_retries: int
    repair_calls: int
    usage: TokenUsage

    __repr__ = bounded_repr

    def __rich__(self) -> RenderableType:
        """Give what rich shows for people."""
        from promptkit._values.renderables import summary_view

        return summary_view(self)

    def __str__(self) -> str:
        """Give one line: what is not known is "unknown", and what may be more is "at least" so much."""
        unfinished = sum(not member.terminal_observed for member in self.members)
        beside = f" ({unfinished} not seen to end)" if unfinished else ""
        said = zip(_COUNTS, _counts(self), strict=True)
        counts = ", ".join(f"{count} {name if count.split()[-1] == '1' else plural}" for (name, plural), count in said)
        runs = f"{len(self.members)} run{'' if len(self.members) == 1 else 's'}"
        return f"{runs}{beside}: {counts}; tokens: " + ", ".join(
            f"{name} {count}" for name, count in zip(TOKENS, _tokens(self), strict=True)
        )


_COUNTS = (("attempt", "attempts"), ("retry", "retries"), ("repair", "repairs"))


def _counts(summary: ExecutionGroupSummary) -> tuple[str, ...]:
    bound = "" if summary.terminal_coverage_complete else "at least "
    numbers = (summary.attempts, summary.transient_retries, summary.repair_calls)
    return tuple(f"{bound}{number}" for number in numbers)


def _tokens(summary: ExecutionGroupSummary) -> tuple[str, ...]:
    """A member without a terminal makes every known number a lower bound, complete as it may be in itself."""
    counts = (getattr(summary.usage, name) for name in summary.usage.__struct_fields__)
    covered = summary.terminal_coverage_complete
    return tuple(str(count) if covered or not count.known else f"at least {count.value}" for count in counts)


def summary_cells(summary: ExecutionGroupSummary) -> tuple[str, ...]:
    """Give the cells of a line in a table of groups: runs, attempts, retries, repairs, and the five counts."""
    ended = sum(member.terminal_observed for member in summary.members)
    runs = f"{len(summary.members)}" + ("" if ended == len(summary.members) else f" ({ended} ended)")
    return (runs, *_counts(summary), *_tokens(summary))


def summary_table(summaries: Mapping[str, ExecutionGroupSummary]) -> str:
    """Give a text table of groups, one a line, by the names that they are given.

    Unknown counts are "unknown" and partial ones "at least" so much, as in ``str(summary)``. There is no line of
    totals: a run may be a member of several groups. Lines are equally long, and the last ends without a newline.
    A name that cannot be printed on one line is shown as Python writes it. Raises InvalidRequestError for what is no
    mapping of names to ExecutionGroupSummary: take ``group.snapshot()``.
    """
    if not isinstance(summaries, Mapping):
        msg = f"summary_table: Expected a mapping of names to summaries, got `{type(summaries).__name__}`: {_TABLE_OF}"
        raise InvalidRequestError(msg)
    rows = [("", "runs", *(plural for _, plural in _COUNTS), *TOKENS)]
    for name, summary in summaries.items():
        if not isinstance(name, str):
            msg = f"summary_table: Expected names that are `str`, got `{type(name).__name__}`: {_TABLE_OF}"
            raise InvalidRequestError(msg)
        if not isinstance(summary, ExecutionGroupSummary):
            got = type(summary).__name__
            msg = f"summary_table: {name!r}: Expected `ExecutionGroupSummary`, got `{got}`: {_TABLE_OF}"
            raise InvalidRequestError(msg)
        rows.append((name if name.isprintable() else repr(name), *summary_cells(summary)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join((first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))))
        for first, *rest in rows
    )
