"""Tables of rich: quiet, without lines, and safe to show whatever is in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from promptkit._values.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from promptkit import JSON, Setting

GAP = "  "
ROOM = 24  # for the widest column


def value_text(value: JSON) -> str:
    """Write a value of a setting: texts as they are, fields by their names, all else as JSON, None as a dash."""
    if value is None:
        return "-"
    if isinstance(value, dict) and value:
        return ", ".join(f"{name} {'default' if each is None else value_text(each)}" for name, each in value.items())
    if not value and isinstance(value, dict | list | tuple):
        return "none"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def fits(rows: Sequence[Sequence[str]], width: int) -> bool:
    """Say whether columns are readable in so much width: all but the widest whole, and that with some room to fold."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widest = max(widths, default=0)
    return sum(widths) - widest + min(widest, ROOM) + len(GAP) * (len(widths) - 1) <= width


def table_of(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> RenderableType:
    """Make a table; where it does not fit, one paragraph a row. Nothing is cut."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    if not fits([heads, *rows], width):
        return Group(
            *(
                Group(Text(visible(name), "bold"), Padding(Text(visible(GAP.join(rest))), (0, 0, 0, 2)))
                for name, *rest in rows
            )
        )
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    table = Table(box=None, pad_edge=False, padding=(0, len(GAP), 0, 0), header_style="bold")
    for head, cells in zip(heads, widths, strict=True):
        table.add_column(head, overflow="fold", no_wrap=cells < max(widths))
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    return table


def pairs_of(pairs: Iterable[tuple[str, str]]) -> Table:
    """Make a table of names and values, without a head."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(Text(visible(name)), Text(visible(value)))
    return table


def settings_table(settings: Mapping[str, Setting], width: int) -> RenderableType:
    """Show settings with where each comes from."""
    rows = [(name, value_text(setting.value), setting.origin) for name, setting in sorted(settings.items())]
    return table_of(("setting", "value", "from"), rows, width)
