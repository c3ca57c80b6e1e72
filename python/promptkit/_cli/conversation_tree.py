"""The tree of a chat, as lines for a terminal."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.cells import cell_len, chop_cells

from promptkit._cli.conversation import BEGINNING, children_of, first_words
from promptkit._values.counted import counted
from promptkit._values.tree_rows import Row, rows_of
from promptkit._values.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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


def tree_lines(conversation: Conversation, title: str, width: int, signs: Signs = DRAWN) -> Iterator[str]:
    """Draw the conversation, with ``*`` before the turn that is continued next.

    Where the branches above a line do not fit before it, their number does, and the last of them.
    """
    width = min(width, WIDEST)
    children = children_of(conversation.turns)
    rows = list(rows_of([BEGINNING], children.__getitem__, first=FIRST, last=LAST, place=conversation.place))
    begin, end = _window(rows, conversation.place)
    if begin:
        yield f"  {signs.cut} {counted(begin, 'line')} above"
    digits = len(str(len(conversation.turns)))
    for row, before in islice(zip(rows, _drawn(rows, signs), strict=True), begin, end):
        mark = "* " if row.node == conversation.place and not row.left_out else "  "
        if row.left_out:
            text = f"{signs.cut} {counted(row.left_out, 'turn')}"
        elif row.node == BEGINNING:
            text = f"{row.node:>{digits}}  {title}"
        else:
            text = f"{row.node:>{digits}}  {turn_text(conversation.turns[row.node - 1], width // 2, signs)}"
        fits = len(before) <= width // 3
        yield cut(mark + (before if fits else f"{signs.cut}{row.level} {before[-3:]}") + visible(text), width, signs)
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


def _window(rows: Sequence[Row[int]], place: int) -> tuple[int, int]:
    if len(rows) <= MOST_LINES:
        return 0, len(rows)
    here = next(index for index, row in enumerate(rows) if row.node == place and not row.left_out)
    begin = min(max(0, here - MOST_LINES // 2), len(rows) - MOST_LINES)
    return begin, begin + MOST_LINES


def _drawn(rows: Iterable[Row[int]], signs: Signs) -> Iterator[str]:
    """Draw what stands before each row."""
    beside: list[str] = []  # what runs along the rows of each level
    for row in rows:
        if not row.begins:
            yield beside[row.level]
            continue
        del beside[row.level :]
        if not row.level:
            beside.append("")
            yield ""
            continue
        above = beside[-1]
        beside.append((above + (NOTHING if row.last else signs.beside))[-DEEPEST:])
        yield above + (signs.last if row.last else signs.more)
