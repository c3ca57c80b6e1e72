"""Leases and permits, one decision at a time."""

from __future__ import annotations

import pytest

from promptkit._machines.admission import Admission, Handover, admit, ask, leave, release, withdraw


def backend(leases: int = 0, permits: int = 0, queue: tuple[int, ...] = ()) -> Admission:
    return Admission(max_concurrency=2, max_waiting=3, leases=leases, permits=permits, queue=queue)


def test_a_free_lease_is_taken() -> None:
    assert admit(backend(leases=4)) == backend(leases=5)


def test_no_lease_is_free_above_concurrency_and_waiting() -> None:
    full = backend(leases=5)
    assert admit(full) is None
    assert admit(leave(full)) == full


@pytest.mark.parametrize("waiting", [0, 1])
def test_a_backend_without_room_to_wait_admits_what_it_runs(waiting: int) -> None:
    state: Admission | None = Admission(max_concurrency=1, max_waiting=waiting)
    for _ in range(1 + waiting):
        assert state is not None
        state = admit(state)
    assert state is not None
    assert admit(state) is None


def test_a_free_permit_is_granted_at_once() -> None:
    assert not backend(leases=2, permits=1).would_wait
    assert ask(backend(leases=2, permits=1), 7) == Handover(backend(leases=2, permits=2), 7)


def test_a_permit_that_is_not_free_is_waited_for_at_the_end_of_the_queue() -> None:
    busy = backend(leases=4, permits=2, queue=(1,))
    assert busy.would_wait
    assert ask(busy, 7) == Handover(backend(leases=4, permits=2, queue=(1, 7)), None)


def test_nobody_overtakes_who_waits() -> None:
    assert backend(leases=3, permits=1, queue=(1,)).would_wait
    assert ask(backend(leases=3, permits=1, queue=(1,)), 7).granted is None


def test_a_permit_goes_to_the_first_in_the_queue_without_being_free_in_between() -> None:
    assert release(backend(leases=4, permits=2, queue=(5, 3))) == Handover(backend(leases=4, permits=2, queue=(3,)), 5)


def test_a_permit_that_nobody_waits_for_is_free() -> None:
    assert release(backend(leases=2, permits=2)) == Handover(backend(leases=2, permits=1), None)


def test_who_withdraws_leaves_the_others_in_their_order() -> None:
    assert withdraw(backend(leases=5, permits=2, queue=(1, 2, 3)), 2) == backend(leases=5, permits=2, queue=(1, 3))


def test_who_was_granted_cannot_withdraw() -> None:
    state, granted = release(backend(leases=3, permits=2, queue=(1,)))
    assert granted == 1
    assert withdraw(state, 1) is None


def test_admitted_runs_are_running_or_waiting() -> None:
    state = backend(leases=5, permits=2, queue=(1,))
    assert (state.running, state.waiting) == (2, 3)


def test_what_nobody_holds_cannot_be_given_back() -> None:
    empty = Admission(max_concurrency=1, max_waiting=0)
    for give_back in (release, leave):
        with pytest.raises(ValueError, match="nobody holds"):
            give_back(empty)
    admitted = admit(empty)
    assert admitted is not None
    with pytest.raises(ValueError, match="nobody holds"):
        leave(ask(admitted, 1).state)
