"""The native collector: plain data goes in and comes out, and nothing else gets in."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import pytest

from promptkit._history import Group

KNOWN = (1, True, True)
NOTHING = (0, False, True)
MOST = 2**64 - 1


def test_a_group_begins_with_the_identity_of_addition() -> None:
    assert Group().snapshot() == ([], [], 0, 0, 0, 0, (NOTHING,) * 5)


def test_a_member_is_kept_once_in_the_order_of_its_first_event() -> None:
    group = Group()
    for run_id in ("b", "a", "b", "c", "a"):
        group.observe_member(run_id)
    group.observe_terminal("a", 3, 2, 1, (KNOWN,) * 5)
    group.observe_terminal("a", 9, 9, 9, (KNOWN,) * 5)
    group.observe_member("a")
    assert group.snapshot() == (["b", "a", "c"], [False, True, False], 1, 3, 2, 1, (KNOWN,) * 5)


def test_the_five_counts_keep_their_places() -> None:
    counts = ((1, True, True), (2, True, False), (3, True, True), (4, False, False), (5, False, True))
    group = Group()
    group.observe_terminal("a", 1, 0, 0, counts)
    assert group.snapshot()[6] == counts


def test_text_that_is_equal_is_the_same_run_whatever_its_storage() -> None:
    group = Group()
    text = "run \0 é \U0001f600"
    group.observe_member(text)
    group.observe_member("".join(list(text)))
    assert group.snapshot()[0] == [text]


class Whole(int):
    __slots__ = ()


@pytest.mark.parametrize(("number", "kept"), [(0, 0), (True, 1), (Whole(7), 7), (MOST, MOST), (2**64, MOST)])
def test_a_number_of_any_size_is_taken(number: int, kept: int) -> None:
    group = Group()
    group.observe_terminal("a", number, number, number, ((number, True, True),) * 5)
    complete = number <= MOST
    assert group.snapshot() == (["a"], [True], 1, kept, kept, kept, ((kept, True, complete),) * 5)


@pytest.mark.parametrize(
    ("usage", "error", "message"),
    [
        ([KNOWN] * 5, TypeError, r"usage must be a tuple of five tuples \(value, known, complete\), not list"),
        ((KNOWN,) * 4, ValueError, "usage must be a tuple of five tuples"),
        ((KNOWN,) * 6, ValueError, "usage must be a tuple of five tuples"),
        ((KNOWN,) * 4 + (None,), TypeError, "a count of usage must be a tuple of five tuples .*, not NoneType"),
        ((KNOWN,) * 4 + ((1, True),), ValueError, "a count of usage must be a tuple of five tuples"),
        ((KNOWN,) * 4 + (("1", True, True),), TypeError, "a value of usage must be a number .*, not str"),
        ((KNOWN,) * 4 + ((-1, True, True),), ValueError, "a value of usage must be a number that is not negative"),
        ((KNOWN,) * 4 + ((1, True, None),), TypeError, "a complete of usage must be True or False, not NoneType"),
    ],
)
def test_usage_of_another_form_is_refused_and_nothing_is_taken(
    usage: Any, error: type[Exception], message: str
) -> None:
    group = Group()
    with pytest.raises(error, match=message):
        group.observe_terminal("a", 1, 0, 0, usage)
    assert group.snapshot() == Group().snapshot()


@pytest.mark.parametrize(
    ("run_id", "error", "message"),
    [
        (b"a", TypeError, "run_id must be a str, not bytes"),
        (None, TypeError, "run_id must be a str, not NoneType"),
        ("\udfff", ValueError, "run_id contains a lone surrogate"),
    ],
)
def test_a_run_id_that_is_no_text_is_refused(run_id: Any, error: type[Exception], message: str) -> None:
    group = Group()
    with pytest.raises(error, match=message):
        group.observe_member(run_id)
    with pytest.raises(error, match=message):
        group.observe_terminal(run_id, 1, 0, 0, (KNOWN,) * 5)
    assert group.snapshot() == Group().snapshot()


def test_a_group_is_not_copied_pickled_subclassed_or_changed() -> None:
    group = Group()
    for refused in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot pickle"):
            refused(group)
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Sub", (Group,), {})
    with pytest.raises(AttributeError):
        group.x = 1  # type: ignore[attr-defined]


def test_one_group_is_told_and_asked_by_many_threads() -> None:
    group = Group()
    faults: list[object] = []

    def work(number: int) -> None:
        for step in range(2000):
            group.observe_member(f"{number}-{step}")
            group.observe_terminal(str(step), 2, 1, 1, (KNOWN,) * 5)
            if step % 100 == 0:
                _, seen, terminals, attempts, retries, repairs, usage = group.snapshot()
                if (sum(seen), attempts, retries, repairs) != (terminals, 2 * terminals, terminals, terminals):
                    faults.append((terminals, attempts))
                if usage != ((terminals, True, True),) * 5:
                    faults.append(usage)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    run_ids, seen, *sums, usage = group.snapshot()
    assert len(set(run_ids)) == len(run_ids) == len(seen) == 18_000
    assert sums == [2000, 4000, 2000, 2000]
    assert usage == ((2000, True, True),) * 5
