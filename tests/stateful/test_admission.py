"""Admission against a plain model, in which every run is an object in one of four lists."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from promptkit._machines.admission import Admission, admit, ask, leave, release, withdraw


class AdmissionMachine(RuleBasedStateMachine):
    """Runs take a lease, ask for a permit, wait, call, give it back, ask again, and leave."""

    state: Admission

    @initialize(concurrency=st.integers(1, 3), waiting=st.integers(0, 4))
    def start(self, concurrency: int, waiting: int) -> None:
        self.state = Admission(max_concurrency=concurrency, max_waiting=waiting)
        self.limit = concurrency + waiting
        self.names = 0
        self.idle: list[int] = []  # admitted, between attempts
        self.queue: list[int] = []
        self.calling: list[int] = []

    def _admitted(self) -> int:
        return len(self.idle) + len(self.queue) + len(self.calling)

    @rule()
    def a_run_comes(self) -> None:
        admitted = admit(self.state)
        assert (admitted is None) == (self._admitted() == self.limit)
        if admitted is not None:
            self.state = admitted
            self.idle.append(self.names)
            self.names += 1

    @precondition(lambda self: self.idle)
    @rule(data=st.data())
    def a_run_asks(self, data: st.DataObject) -> None:
        run = self.idle.pop(data.draw(st.integers(0, len(self.idle) - 1)))
        at_once = not self.queue and len(self.calling) < self.state.max_concurrency
        assert self.state.would_wait is not at_once
        self.state, granted = ask(self.state, run)
        assert granted == (run if at_once else None)
        (self.calling if at_once else self.queue).append(run)

    @precondition(lambda self: self.calling)
    @rule(data=st.data())
    def a_call_ends(self, data: st.DataObject) -> None:
        run = self.calling.pop(data.draw(st.integers(0, len(self.calling) - 1)))
        self.idle.append(run)
        self.state, granted = release(self.state)
        assert granted == (self.queue[0] if self.queue else None)
        if self.queue:
            self.calling.append(self.queue.pop(0))

    @precondition(lambda self: self.queue)
    @rule(data=st.data())
    def a_waiter_is_cancelled(self, data: st.DataObject) -> None:
        run = self.queue.pop(data.draw(st.integers(0, len(self.queue) - 1)))
        withdrawn = withdraw(self.state, run)
        assert withdrawn is not None
        self.state = leave(withdrawn)

    @precondition(lambda self: self.queue and self.calling)
    @rule()
    def a_waiter_is_cancelled_at_the_moment_of_hand_over(self) -> None:
        self.idle.append(self.calling.pop())
        self.state, granted = release(self.state)
        first = self.queue.pop(0)
        assert granted == first
        assert withdraw(self.state, first) is None
        self.state, granted = release(self.state)
        assert granted == (self.queue[0] if self.queue else None)
        if self.queue:
            self.calling.append(self.queue.pop(0))
        self.state = leave(self.state)

    @rule(ticket=st.integers(-3, 60))
    def who_does_not_wait_cannot_withdraw(self, ticket: int) -> None:
        if ticket not in self.queue:
            assert withdraw(self.state, ticket) is None

    @precondition(lambda self: self.idle)
    @rule(data=st.data())
    def a_run_ends(self, data: st.DataObject) -> None:
        self.idle.pop(data.draw(st.integers(0, len(self.idle) - 1)))
        self.state = leave(self.state)

    @invariant()
    def nothing_is_lost(self) -> None:
        assert self.state.queue == tuple(self.queue)
        assert self.state.permits == self.state.running == len(self.calling)
        assert self.state.leases == self._admitted()
        assert self.state.waiting == len(self.idle) + len(self.queue)

    @invariant()
    def no_limit_is_passed(self) -> None:
        assert 0 <= self.state.permits <= self.state.max_concurrency
        assert 0 <= self.state.leases <= self.state.max_concurrency + self.state.max_waiting

    @invariant()
    def nobody_waits_while_a_permit_is_free(self) -> None:
        assert not self.state.queue or self.state.permits == self.state.max_concurrency

    def teardown(self) -> None:
        if not hasattr(self, "state"):
            return
        while self.calling:
            self.a_call_ends_for_the_last()
        while self.idle:
            self.idle.pop()
            self.state = leave(self.state)
        empty = Admission(max_concurrency=self.state.max_concurrency, max_waiting=self.state.max_waiting)
        assert self.state == empty

    def a_call_ends_for_the_last(self) -> None:
        self.idle.append(self.calling.pop())
        self.state, granted = release(self.state)
        if granted is not None:
            self.calling.append(self.queue.pop(0))


AdmissionMachine.TestCase.settings = settings(deadline=None)
TestAdmission = AdmissionMachine.TestCase
