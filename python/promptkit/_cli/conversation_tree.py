"""The tree of a chat, as lines for a terminal.

What follows without a branch stands below each other on one level, so that a long talk is not moved to the right. Of a
long stretch the ends are shown, and what is around the current place. Nothing recurses: a conversation can be deep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rich.cells import cell_len, chop_cells

from promptkit._cli.conversation import BEGINNING, children_of, first_words
from promptkit._cli.failure import counted
from promptkit._values.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from promptkit._cli.conversation import Conversation, Turn

MOST_LINES = 60
FIRST = 2  # turns of a long stretch that are shown, at its beginning
LAST = 8  # and at its end
WIDEST = 160  # where the lines are not for a terminal


class Signs(NamedTuple):
    """What the lines are drawn with."""

    more: str  # another branch follows
    last: str
    beside: str  # runs along
    arrow: str
    cut: str


DRAWN = Signs("├─ ", "└─ ", "│  ", "→", "…")
ASCII = Signs("|- ", "`- ", "|  ", "->", "...")
NOTHING = "   "
DEEPEST = 3 * 40  # characters that are kept of what is drawn before a line; less is shown


class Row(NamedTuple):
    """One line: what is drawn before it, and a turn, or how many turns it stands for."""

    before: str
    number: int
    left_out: int = 0


def tree_lines(conversation: Conversation, title: str, width: int, signs: Signs = DRAWN) -> Iterator[str]:
    """Draw the conversation, with ``*`` before the turn that is continued next."""
    width = min(width, WIDEST)
    rows = _rows(conversation, signs)
    begin, end = _window(rows, conversation.place)
    if begin:
        yield f"  {signs.cut} {counted(begin, 'line')} above"
    digits = len(str(len(conversation.turns)))
    for row in rows[begin:end]:
        mark = "* " if row.number == conversation.place and not row.left_out else "  "
        if row.left_out:
            text = f"{signs.cut} {counted(row.left_out, 'turn')}"
        elif row.number == BEGINNING:
            text = f"{row.number:>{digits}}  {title}"
        else:
            text = f"{row.number:>{digits}}  {turn_text(conversation.turns[row.number - 1], width // 2, signs)}"
        yield cut(mark + _bounded(row.before, width // 3, signs) + visible(text), width, signs)
    if end < len(rows):
        yield f"  {signs.cut} {counted(len(rows) - end, 'line')} below"


def tree_value(conversation: Conversation) -> dict[str, Any]:
    """Give the conversation as data: the number of the turn that is continued next, and every turn."""
    turns = [{"number": number, **turn._asdict()} for number, turn in enumerate(conversation.turns, 1)]
    return {"place": conversation.place, "turns": turns}


def turn_text(turn: Turn, most_asked: int, signs: Signs = DRAWN) -> str:
    """Write a turn on one line. What was said has at most so many columns, so that the answer has some."""
    asked = "" if turn.said is None else f"{cut(first_words(turn.said), most_asked, signs)} {signs.arrow} "
    return f"{asked}{turn.answer}" + (f" ({turn.remark})" if turn.remark else "")


def cut(text: str, width: int, signs: Signs = DRAWN) -> str:
    """Shorten a line to so many columns, of which some characters take two.

    >>> cut("What broke on Monday?", 12)
    'What broke …'
    """
    if cell_len(text) <= width:
        return text
    return chop_cells(text, max(1, width - len(signs.cut)))[0] + signs.cut


def _bounded(before: str, most: int, signs: Signs) -> str:
    return before if len(before) <= most else signs.cut + before[-max(3, most - len(signs.cut)) :]


def _window(rows: Sequence[Row], place: int) -> tuple[int, int]:
    if len(rows) <= MOST_LINES:
        return 0, len(rows)
    here = next(index for index, row in enumerate(rows) if row.number == place and not row.left_out)
    begin = min(max(0, here - MOST_LINES // 2), len(rows) - MOST_LINES)
    return begin, begin + MOST_LINES


def _rows(conversation: Conversation, signs: Signs) -> Sequence[Row]:
    children = children_of(conversation.turns)
    rows: list[Row] = []
    waiting = [(BEGINNING, "", "")]  # a turn, what is before its line, and before those that follow it
    while waiting:
        first, before, beside = waiting.pop()
        stretch = [first]
        while len(children[stretch[-1]]) == 1:
            stretch += children[stretch[-1]]
        for number, left_out in _shortened(stretch, conversation.place):
            rows.append(Row(before, number, left_out))
            before = beside
        following = children[stretch[-1]]
        for number in reversed(following):
            last = number == following[-1]
            beside = beside[-DEEPEST:]
            waiting.append(
                (number, beside + (signs.last if last else signs.more), beside + (NOTHING if last else signs.beside))
            )
    return rows


def _shortened(stretch: Sequence[int], place: int) -> Iterator[tuple[int, int]]:
    """Give the numbers to show, each with 0, and between them how many are left out."""
    near = stretch.index(place) if place in stretch else len(stretch)
    left_out = 0
    for index, number in enumerate(stretch):
        shown = index < FIRST or index >= len(stretch) - LAST or abs(index - near) <= 1
        if not shown:
            left_out += 1
            continue
        if left_out:
            yield number, left_out
            left_out = 0
        yield number, 0
