"""What runs used, by prompt, and by profile, backend and model.

Counts are added by the package's own sum of usages, so that unknown stays unknown, and what was added to something
unknown is a lower bound.
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import TYPE_CHECKING

import msgspec

from promptkit._values.events import RunFinished
from promptkit._values.group import contributed
from promptkit._values.usage import NO_USAGE, TokenUsage, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from promptkit._report.runs import Run


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """The sums of some runs. Where runs did not end, ``attempts``, ``retries`` and ``repairs`` are lower bounds."""

    runs: int
    completed: int
    failed: int
    cancelled: int
    did_not_end: int
    invalid: int
    attempts: int
    retries: int
    repairs: int
    usage: TokenUsage


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The totals of the runs that have the same names: of prompts, or of profiles, backends and models.

    A name is None where the trace does not say it: the run failed before it was selected, or did not end.
    """

    names: tuple[str | None, ...]
    totals: Totals


def totals_of(runs: Iterable[Run]) -> Totals:
    """Add up runs."""
    runs = tuple(runs)
    states = [run.state for run in runs]
    return Totals(
        runs=len(runs),
        completed=states.count("completed"),
        failed=states.count("failed"),
        cancelled=states.count("cancelled"),
        did_not_end=states.count("did_not_end"),
        invalid=sum(run.validation == "invalid" for run in runs),
        attempts=sum(run.attempts_made for run in runs),
        retries=sum(run.transient_retries for run in runs),
        repairs=sum(run.repair_calls for run in runs),
        usage=shown(reduce(add, map(_contributed, runs), NO_USAGE)),
    )


def _contributed(run: Run) -> TokenUsage:
    """Give what a run adds to a sum, as a group counts it; what is known of one that did not end is a lower bound."""
    if run.state == "did_not_end":
        return run.usage
    end = RunFinished(
        at=run.ended,
        run_id=run.run_id,
        parent_run_id=run.parent_run_id,
        prompt_id=run.prompt_id or "",
        profile=run.profile,
        backend=run.backend,
        model=run.model,
        definition_hash=run.definition_hash,
        outcome=run.state,
        error=run.error,
        validation=run.validation,
        attempts=run.attempts_made,
        transient_retries=run.transient_retries,
        repair_calls=run.repair_calls,
        usage=run.usage,
        duration=run.duration or 0.0,
    )
    return contributed(end)


def by_prompt(runs: Iterable[Run]) -> tuple[Group, ...]:
    """Add up the runs of each prompt, by its id."""
    return _grouped(runs, lambda run: (run.prompt_id,))


def by_profile(runs: Iterable[Run]) -> tuple[Group, ...]:
    """Add up the runs of each profile, backend and model."""
    return _grouped(runs, lambda run: (run.profile, run.backend, run.model))


def _grouped(runs: Iterable[Run], names_of: Callable[[Run], tuple[str | None, ...]]) -> tuple[Group, ...]:
    grouped: dict[tuple[str | None, ...], list[Run]] = {}
    for run in runs:
        grouped.setdefault(names_of(run), []).append(run)
    names = sorted(grouped, key=lambda names: [(name is None, name or "") for name in names])
    return tuple(Group(names=each, totals=totals_of(grouped[each])) for each in names)
