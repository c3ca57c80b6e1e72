"""Tables for people: quiet, without lines, and nothing in them is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from promptkit._values.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

GAP = "  "
ROOM = 24  # for the widest column


def fits(rows: Sequence[Sequence[str]], width: int) -> bool:
    """Say whether columns are readable in so much width: all but the widest whole, and that with some room to fold."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widest = max(widths, default=0)
    return sum(widths) - widest + min(widest, ROOM) + len(GAP) * (len(widths) - 1) <= width


class FoldingTable:
    """A table with a head; where it does not fit, one paragraph a row. Texts are made visible."""

    def __init__(self, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        self._heads = heads
        self._rows = [[visible(cell) for cell in row] for row in rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Give the table or the paragraphs."""
        yield self._columns() if fits([self._heads, *self._rows], options.max_width) else self._paragraphs()

    def _columns(self) -> RenderableType:
        widths = [max(map(len, column)) for column in zip(self._heads, *self._rows, strict=True)]
        table = Table(box=None, pad_edge=False, padding=(0, len(GAP), 0, 0), header_style="bold")
        for head, cells in zip(self._heads, widths, strict=True):
            table.add_column(head, overflow="fold", no_wrap=cells < max(widths))
        for row in self._rows:
            table.add_row(*(Text(cell) for cell in row))
        return table

    def _paragraphs(self) -> RenderableType:
        return Group(
            *(Group(Text(name, "bold"), Padding(Text(GAP.join(rest)), (0, 0, 0, 2))) for name, *rest in self._rows)
        )


def pairs_table(pairs: Iterable[tuple[str, str]]) -> Table:
    """Make a table of names and values, without a head."""
    table = Table(box=None, pad_edge=False, padding=(0, len(GAP), 0, 0), show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(Text(visible(name)), Text(visible(value)))
    return table
