"""What a group of runs amounts to."""

from __future__ import annotations

import msgspec

from promptkit._values.usage import TokenUsage


class ExecutionGroupMember(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a group, and whether its terminal event was seen."""

    run_id: str
    terminal_observed: bool


class ExecutionGroupSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The totals of a group at one moment, from the terminal events seen.

    ``members`` have no promised order. ``terminal_coverage_complete`` says that no member is without a terminal
    event; it says nothing about runs to come.
    """

    members: tuple[ExecutionGroupMember, ...]
    terminal_coverage_complete: bool
    attempts: int
    transient_retries: int
    repair_calls: int
    usage: TokenUsage
