"""A group of runs against a plain model: the list of all its events, read again for every question."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
from hypothesis import assume, settings
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
counts = st.one_of(
    st.just(TokenCount(value=0, known=False, complete=False)),
    st.builds(lambda value: TokenCount(value=value, known=True, complete=True), st.just(0) | numbers),
)
usages = st.builds(TokenUsage, **dict.fromkeys(FIELDS, counts))
NOTHING = TokenUsage(**dict.fromkeys(FIELDS, TokenCount(value=0, known=False, complete=True)))
ZERO = TokenUsage(**dict.fromkeys(FIELDS, TokenCount(value=0, known=True, complete=True)))
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


def folded(contributions: list[TokenUsage]) -> TokenUsage:
    return TokenUsage(**{name: total([getattr(each, name) for each in contributions], None) for name in FIELDS})


def projected(usage: TokenUsage) -> TokenUsage:
    counts = {name: getattr(usage, name) for name in FIELDS}
    return TokenUsage(
        **{name: msgspec.structs.replace(count, known=count.known or count.complete) for name, count in counts.items()}
    )


@st.composite
def endings(draw: st.DrawFn) -> tuple[RunFinished, list[TokenUsage]]:
    """Give the terminal of a run as a run tells it, and what each of its attempts contributed."""
    failed = draw(st.lists(st.just(NOTHING) | usages, max_size=3))
    answers = draw(st.lists(usages, max_size=2))
    completed = bool(answers) and draw(st.booleans())
    attempts = [*failed, *answers]
    usage = folded(attempts)
    repairs = draw(numbers.filter(bool) if answers and not completed else numbers) if answers else 0
    assume(
        answers or usage == NOTHING or projected(usage) != ZERO
    )  # failures that report five zeros are told by nothing
    event = RunFinished(
        at=AT,
        run_id=draw(run_ids),
        parent_run_id=None,
        prompt_id="p",
        profile=None,
        backend=None,
        model=None,
        definition_hash=None,
        outcome="completed" if completed else draw(st.sampled_from(["failed", "cancelled"])),
        error=None,
        validation=None,
        attempts=draw(numbers.filter(bool)) if attempts else 0,
        transient_retries=draw(numbers) if attempts else 0,
        repair_calls=repairs,
        usage=projected(usage),
        duration=0.0,
    )
    return event, attempts


def total(contributions: list[TokenCount], most: int | None = MOST) -> TokenCount:
    """Add without a limit, then cut."""
    value = sum(count.value for count in contributions)
    known = any(count.known for count in contributions)
    complete = all(count.complete for count in contributions)
    if most is None or value <= most:
        return TokenCount(value=value, known=known, complete=complete)
    return TokenCount(value=most, known=known, complete=False)


Told = tuple[ExecutionEvent, list[TokenUsage]]


def expected(told: list[Told]) -> ExecutionGroupSummary:
    members = list(dict.fromkeys(event.run_id for event, _ in told))
    first: dict[str, tuple[RunFinished, list[TokenUsage]]] = {}
    for event, attempts in told:
        if isinstance(event, RunFinished):
            first.setdefault(event.run_id, (event, attempts))
    if members and not first:
        usage = TokenUsage(**dict.fromkeys(FIELDS, TokenCount(value=0, known=False, complete=False)))
    else:
        all_attempts = [attempt for _, attempts in first.values() for attempt in attempts]
        usage = projected(
            TokenUsage(**{field: total([getattr(attempt, field) for attempt in all_attempts]) for field in FIELDS})
        )
    ends = [event for event, _ in first.values()]
    return ExecutionGroupSummary(
        members=tuple(ExecutionGroupMember(run_id=run_id, terminal_observed=run_id in first) for run_id in members),
        terminal_coverage_complete=len(first) == len(members),
        attempts=min(MOST, sum(event.attempts for event in ends)),
        transient_retries=min(MOST, sum(event.transient_retries for event in ends)),
        repair_calls=min(MOST, sum(event.repair_calls for event in ends)),
        usage=usage,
    )


class GroupMachine(RuleBasedStateMachine):
    """Events come in any order, again, and in contradiction; snapshots are kept while the group goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.group = ExecutionGroup()
        self.events: list[Told] = []
        self.kept: list[tuple[ExecutionGroupSummary, int]] = []

    def _tell(self, event: ExecutionEvent, attempts: list[TokenUsage]) -> None:
        self.group.observe(event)
        self.events.append((event, attempts))

    @rule(event=ordinary)
    def a_run_is_under_way(self, event: ExecutionEvent) -> None:
        self._tell(event, [])

    @rule(ending=endings())
    def a_run_ends(self, ending: tuple[RunFinished, list[TokenUsage]]) -> None:
        self._tell(*ending)

    @precondition(lambda self: self.events)
    @rule(data=st.data())
    def an_event_comes_again(self, data: st.DataObject) -> None:
        self._tell(*data.draw(st.sampled_from(self.events)))

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
