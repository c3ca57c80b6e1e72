"""A group of runs against a plain model: the list of all its events, read again for every question."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from promptkit import (
    AttemptFinished,
    ExecutionEvent,
    ExecutionGroup,
    ExecutionGroupMember,
    ExecutionGroupSummary,
    RetryDelayed,
    RunFinished,
    RunStarted,
    TokenCount,
    TokenUsage,
)

AT = datetime(2026, 1, 1, tzinfo=UTC)
MOST = 2**64 - 1
FIELDS = TokenUsage.__struct_fields__

run_ids = st.sampled_from(["", "a", "b", "\0", "é", "\U0001f600"]) | st.text(max_size=2)
numbers = st.integers(0, 1000) | st.integers(MOST - 2000, MOST + 2000) | st.integers(0, 10**30)
counts = st.builds(
    lambda value, known, complete: TokenCount(value=value, known=known or value > 0, complete=complete),
    numbers,
    st.booleans(),
    st.booleans(),
)
usages = st.builds(TokenUsage, **dict.fromkeys(FIELDS, counts))
ordinary = st.one_of(
    st.builds(RunStarted, at=st.just(AT), run_id=run_ids, parent_run_id=st.none(), prompt_id=st.just("p")),
    st.builds(
        RetryDelayed,
        at=st.just(AT),
        run_id=run_ids,
        parent_run_id=run_ids,
        attempt=st.just(1),
        delay=st.just(0.5),
        source=st.just("backoff"),
    ),
    st.builds(
        AttemptFinished,
        at=st.just(AT),
        run_id=run_ids,
        parent_run_id=st.none(),
        profile=st.just("p"),
        backend=st.just("b"),
        backend_kind=st.just("k"),
        model=st.just("m"),
        response_id=st.none(),
        attempt=st.just(1),
        purpose=st.just("generate"),
        outcome=st.just("completed"),
        error=st.none(),
        status=st.none(),
        queued=st.just(0.0),
        duration=st.just(0.0),
        usage=usages,  # no terminal: it must not count
    ),
)
terminals = st.builds(
    RunFinished,
    at=st.just(AT),
    run_id=run_ids,
    parent_run_id=st.none(),
    prompt_id=st.just("p"),
    profile=st.none(),
    backend=st.none(),
    model=st.none(),
    definition_hash=st.none(),
    outcome=st.sampled_from(["completed", "failed", "cancelled"]),
    error=st.none(),
    validation=st.none(),
    attempts=numbers,
    transient_retries=numbers,
    repair_calls=numbers,
    usage=usages,
    duration=st.just(0.0),
)


def total(contributions: list[TokenCount]) -> TokenCount:
    """Add without a limit, then cut."""
    value = sum(count.value for count in contributions)
    known = any(count.known for count in contributions)
    complete = all(count.complete for count in contributions) and value <= MOST
    return TokenCount(value=min(value, MOST), known=known or complete, complete=complete)


def expected(events: list[ExecutionEvent]) -> ExecutionGroupSummary:
    members = list(dict.fromkeys(event.run_id for event in events))
    first: dict[str, RunFinished] = {}
    for event in events:
        if isinstance(event, RunFinished):
            first.setdefault(event.run_id, event)
    if members and not first:
        usage = TokenUsage(**dict.fromkeys(FIELDS, TokenCount(value=0, known=False, complete=False)))
    else:
        usage = TokenUsage(
            **{field: total([getattr(event.usage, field) for event in first.values()]) for field in FIELDS}
        )
    return ExecutionGroupSummary(
        members=tuple(ExecutionGroupMember(run_id=run_id, terminal_observed=run_id in first) for run_id in members),
        terminal_coverage_complete=len(first) == len(members),
        attempts=min(MOST, sum(event.attempts for event in first.values())),
        transient_retries=min(MOST, sum(event.transient_retries for event in first.values())),
        repair_calls=min(MOST, sum(event.repair_calls for event in first.values())),
        usage=usage,
    )


class GroupMachine(RuleBasedStateMachine):
    """Events come in any order, again, and in contradiction; snapshots are kept while the group goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.group = ExecutionGroup()
        self.events: list[ExecutionEvent] = []
        self.kept: list[tuple[ExecutionGroupSummary, int]] = []

    def _tell(self, event: ExecutionEvent) -> None:
        self.group.observe(event)
        self.events.append(event)

    @rule(event=ordinary)
    def a_run_is_under_way(self, event: ExecutionEvent) -> None:
        self._tell(event)

    @rule(event=terminals)
    def a_run_ends(self, event: RunFinished) -> None:
        self._tell(event)

    @precondition(lambda self: self.events)
    @rule(data=st.data())
    def an_event_comes_again(self, data: st.DataObject) -> None:
        self._tell(data.draw(st.sampled_from(self.events)))

    @rule()
    def a_snapshot_is_kept(self) -> None:
        self.kept.append((self.group.snapshot(), len(self.events)))

    @invariant()
    def the_group_says_what_its_events_say(self) -> None:
        assert self.group.snapshot() == expected(self.events)

    @invariant()
    def a_kept_snapshot_stays_as_it_was(self) -> None:
        for snapshot, length in self.kept:
            assert snapshot == expected(self.events[:length])


GroupMachine.TestCase.settings = settings(deadline=None)
TestGroup = GroupMachine.TestCase
