"""The conversation of a chat and its tree, as plain values."""

from __future__ import annotations

import pytest
from returns.result import Failure, Success

from promptkit._cli.conversation import (
    MOST_KEPT,
    Attempt,
    Conversation,
    Turn,
    answered,
    back,
    branch,
    branches,
    failed,
    place_text,
    retry,
    said,
)
from promptkit._cli.conversation_tree import ASCII, DRAWN, MOST_LINES, cut, tree_lines


def _talked(*steps: tuple[int, str]) -> Conversation:
    """Say something after each of these turns."""
    now = Conversation()
    for number, (parent, text) in enumerate(steps, 1):
        now = answered(now, Attempt(parent, text), f"run-{number}", f"{text}!")
    return now


def test_an_answer_becomes_the_place_and_what_is_said_next_follows_it() -> None:
    now = answered(Conversation(), said(Conversation(), "Hi"), "run-1", "Hello\nyou")
    assert now == Conversation((Turn("run-1", 0, "Hi", "Hello you"),), 1)
    assert said(now, "Why?") == Attempt(1, "Why?")


def test_a_failure_changes_nothing_but_what_can_be_said_again() -> None:
    now = _talked((0, "a"), (1, "b"))
    after = failed(now, Attempt(2, "c"))
    assert (after.turns, after.place) == (now.turns, now.place)
    assert retry(after) == Success(Attempt(2, "c"))
    assert retry(answered(after, Attempt(2, "c"), "run-3", "x")) == Success(Attempt(2, "c"))


def test_to_retry_an_answer_is_to_say_the_same_beside_it() -> None:
    assert retry(_talked((0, "a"), (1, "b"))) == Success(Attempt(1, "b"))
    assert isinstance(retry(Conversation()), Failure)


def test_to_move_forgets_what_brought_no_answer() -> None:
    now = failed(_talked((0, "a"), (1, "b")), Attempt(2, "c"))
    assert retry(back(now).unwrap()) == Success(Attempt(0, "a"))
    assert retry(branch(now, 2).unwrap()) == Success(Attempt(1, "b"))


def test_a_first_run_that_failed_can_be_run_again_without_a_word() -> None:
    assert retry(failed(Conversation(), Attempt(0, None))) == Success(Attempt(0, None))


@pytest.mark.parametrize(("turns", "place"), [(0, 3), (1, 2), (2, 1), (3, 0)])
def test_back_goes_to_the_parents(turns: int, place: int) -> None:
    now = _talked((0, "a"), (1, "b"), (2, "c"))
    assert back(now, turns).unwrap().place == place


def test_back_says_how_far_it_can_go() -> None:
    assert back(_talked((0, "a"), (1, "b")), 3).failure().startswith("the beginning is 2 back: ")
    assert "nothing to go back to" in back(Conversation()).failure()


def test_branch_goes_to_a_turn_to_the_beginning_or_beside_the_current_turn() -> None:
    now = _talked((0, "a"), (1, "b"), (1, "c"))
    assert [branch(now, number).unwrap().place for number in (2, 0, None)] == [2, 0, 1]
    assert branch(now, 4).failure().startswith("there is no turn 4: they go to 3")
    assert branch(Conversation(), 1).failure().startswith("there is no turn 1: there is none yet")
    assert isinstance(branch(Conversation()), Failure)


def test_the_ends_of_the_tree_are_its_branches() -> None:
    assert [branches(_talked(*steps).turns) for steps in ((), ((0, "a"),), ((0, "a"), (1, "b"), (1, "c")))] == [0, 1, 2]


def test_the_place_is_told_by_what_was_said() -> None:
    assert place_text(Conversation()) == "you are at the beginning"
    assert place_text(_talked((0, "Why\nso?"))) == "you are after turn 1: Why so?"
    assert place_text(answered(Conversation(), Attempt(0, None), "r", "Hello")) == "you are after turn 1: Hello"


def test_a_long_answer_is_kept_elsewhere() -> None:
    now = answered(Conversation(), Attempt(0, "a"), "r", "x" * 1_000_000)
    assert len(now.turns[0].answer) == MOST_KEPT


def test_a_talk_without_a_branch_stands_on_one_level_and_branches_are_moved_in() -> None:
    now = branch(_talked((0, "a"), (1, "b"), (2, "c"), (1, "d"), (0, "e")), 3).unwrap()
    assert list(tree_lines(now, "ask", 80)) == [
        "  0  ask",
        "  ├─ 1  a → a!",
        "  │  ├─ 2  b → b!",
        "* │  │  3  c → c!",
        "  │  └─ 4  d → d!",
        "  └─ 5  e → e!",
    ]
    assert list(tree_lines(Conversation(), "ask", 80)) == ["* 0  ask"]


def test_the_tree_can_be_drawn_in_ascii() -> None:
    lines = list(tree_lines(_talked((0, "a" * 100), (0, "b")), "ask", 40, ASCII))
    assert lines[1:] == ["  |- 1  " + "a" * 17 + "... -> aaaaa...", "* `- 2  b -> b!"]
    assert all(line.isascii() for line in lines)


def test_an_invalid_answer_and_a_beginning_without_a_word_are_marked_in_the_tree() -> None:
    now = answered(Conversation(), Attempt(0, None), "r", '{"a": 1', "invalid")
    assert list(tree_lines(now, "number", 80))[1] == '* 1  {"a": 1 (invalid)'


@pytest.mark.parametrize("width", [20, 40, 80])
def test_no_line_of_the_tree_is_wider_than_the_terminal(width: int) -> None:
    steps = [(0, "第一" * 40)]
    for _ in range(40):  # each time two branches, of which the second goes on
        steps += [(len(steps), "x" * 200), (len(steps), "漢" * 200)]
    lines = list(tree_lines(_talked(*steps), "ask", width))
    from rich.cells import cell_len

    assert max(map(cell_len, lines)) <= width
    assert [line for line in lines if line.startswith("*")]


def test_where_branches_do_not_fit_before_a_line_their_number_does_and_the_last_of_them() -> None:
    steps = [(0, "a")]
    for _ in range(500):  # each time two branches, of which the second goes on
        steps += [(len(steps), "b"), (len(steps), "c")]
    lines = list(tree_lines(_talked(*steps), "ask", 40))
    assert lines[-4:] == [
        "  …499 ├─  998  b → b!",
        "  …499 └─  999  c → c!",
        "  …500 ├─ 1000  b → b!",
        "* …500 └─ 1001  c → c!",
    ]


def test_what_was_said_cannot_command_the_terminal() -> None:
    lines = list(tree_lines(_talked((0, "a\x1b]0;x\x07")), "ask", 80))
    assert "a\\x1b]0;x\\x07 → " in lines[1]


def test_a_long_talk_shows_its_ends_and_the_place_and_counts_what_is_left_out() -> None:
    now = _talked(*((number, f"n{number + 1}") for number in range(2000)))
    at_the_end, in_the_middle = list(tree_lines(now, "ask", 80)), list(tree_lines(back(now, 1000).unwrap(), "ask", 80))
    assert at_the_end[1:4] == ["     1  n1 → n1!", "  … 1,991 turns", "  1993  n1993 → n1993!"]
    assert at_the_end[-1] == "* 2000  n2000 → n2000!"
    assert [line.split()[-1] for line in in_the_middle[2:6]] == ["turns", "n999!", "n1000!", "n1001!"]
    assert in_the_middle[4].startswith("* 1000")


def test_a_tree_with_many_branches_shows_those_around_the_place() -> None:
    now = branch(_talked((0, "a"), *((1, f"b{number}") for number in range(2, 2002))), 1000).unwrap()
    lines = list(tree_lines(now, "ask", 80))
    assert len(lines) == MOST_LINES + 2
    assert (lines[0].split()[-1], lines[-1].split()[-1]) == ("above", "below")
    assert [line for line in lines if line.startswith("*")] == ["* ├─ 1000  b1000 → b1000!"]


def test_a_conversation_of_a_hundred_thousand_turns_each_a_branch_is_drawn() -> None:
    turns = [Turn("r", max(0, number - 2 + number % 2), "a", "b") for number in range(1, 100_001)]
    lines = list(tree_lines(Conversation(tuple(turns), 50_001), "ask", 80))
    assert len(lines) == MOST_LINES + 2
    assert any(line.startswith("* …") for line in lines)


def test_a_line_is_cut_by_columns() -> None:
    assert [cut("漢漢漢", width) for width in (6, 5, 4)] == ["漢漢漢", "漢漢…", "漢…"]
    assert cut("abc", 2, DRAWN) == "a…"
