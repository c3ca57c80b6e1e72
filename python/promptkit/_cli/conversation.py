"""The conversation of a chat as a value: its turns, the place where it goes on, and what each command does to both.

The turns make a tree. They are numbered from 1 in the order in which they came; 0 is the beginning, before any turn.
"""

from __future__ import annotations

from typing import NamedTuple

from returns.result import Failure, Result, Success

BEGINNING = 0
MOST_KEPT = 200  # characters of an answer, which are for the tree: the answer itself is in the run's result


class Turn(NamedTuple):
    """One run that completed. ``said`` is None where a prompt began by itself; ``parent`` is a number."""

    run_id: str
    parent: int
    said: str | None
    answer: str
    remark: str = ""


class Attempt(NamedTuple):
    """What is to be said, and after which turn."""

    parent: int
    said: str | None


class Conversation(NamedTuple):
    """All turns, the number of the one that is continued next, and what was said last and brought no answer."""

    turns: tuple[Turn, ...] = ()
    place: int = BEGINNING
    unanswered: Attempt | None = None

    @property
    def here(self) -> Turn | None:
        """The turn that is continued next; None at the beginning."""
        return None if self.place == BEGINNING else self.turns[self.place - 1]


def first_words(text: str) -> str:
    """Give so much of a text as the tree shows, on one line."""
    return " ".join(text[: 2 * MOST_KEPT].split())[:MOST_KEPT]


def answered(conversation: Conversation, attempt: Attempt, run_id: str, answer: str, remark: str = "") -> Conversation:
    """Add the turn of an attempt that brought an answer, and go there."""
    turn = Turn(run_id, attempt.parent, attempt.said, first_words(answer), remark)
    turns = (*conversation.turns, turn)
    return Conversation(turns, len(turns))


def failed(conversation: Conversation, attempt: Attempt) -> Conversation:
    """Stay, and keep what was said, to be said again."""
    return conversation._replace(unanswered=attempt)


def said(conversation: Conversation, text: str) -> Attempt:
    """Say something at the current place."""
    return Attempt(conversation.place, text)


def back(conversation: Conversation, turns: int = 1) -> Result[Conversation, str]:
    """Go so many turns towards the beginning.

    >>> there = Conversation((Turn("a", 0, "Hi", "Hello"), Turn("b", 1, "Why?", "Because")), 2)
    >>> back(there).unwrap().place, back(there, 2).unwrap().place
    (1, 0)
    """
    place = conversation.place
    for gone in range(turns):
        if place == BEGINNING:
            far = f"{gone} back" if gone else "there is nothing to go back to"
            return Failure(f"the beginning is {far}: say something, or /branch NUMBER goes to a turn of /tree")
        place = conversation.turns[place - 1].parent
    return Success(conversation._replace(place=place, unanswered=None))


def branch(conversation: Conversation, number: int | None = None) -> Result[Conversation, str]:
    """Go to a turn, so that what is said next is a branch of it; without a number, beside the current turn."""
    if number is None:
        if conversation.place == BEGINNING:
            return Failure("there is no turn yet to branch beside: say something, or /branch NUMBER with one of /tree")
        return back(conversation)
    last = len(conversation.turns)
    if not BEGINNING <= number <= last:
        there = f"they go to {last}" if last else "there is none yet"
        return Failure(f"there is no turn {number}: {there}, and 0 is the beginning; /tree shows them")
    return Success(conversation._replace(place=number, unanswered=None))


def retry(conversation: Conversation) -> Result[Attempt, str]:
    """Give what to say again: what brought no answer, else what led to the current turn, as a branch beside it."""
    if conversation.unanswered is not None:
        return Success(conversation.unanswered)
    here = conversation.here
    if here is None:
        return Failure("there is nothing here to say again: say something, or /branch NUMBER goes to a turn of /tree")
    return Success(Attempt(here.parent, here.said))


def place_text(conversation: Conversation) -> str:
    """Say where the conversation goes on."""
    here = conversation.here
    if here is None:
        return "you are at the beginning"
    return f"you are after turn {conversation.place}: {first_words(here.said or here.answer)}"


def children_of(turns: tuple[Turn, ...]) -> list[list[int]]:
    """Give the numbers of what follows each turn, by its number; at 0, of what began."""
    children: list[list[int]] = [[] for _ in range(len(turns) + 1)]
    for number, turn in enumerate(turns, 1):
        children[turn.parent].append(number)
    return children


def branches(turns: tuple[Turn, ...]) -> int:
    """Count the ends of the tree."""
    return sum(not following for following in children_of(turns)[1:])
