"""Tables of rich: quiet, without lines, and safe to show whatever is in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from promptkit._cli.streams import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.table import Table

    from promptkit import JSON, Setting


def value_text(value: JSON) -> str:
    """Write a value of a setting: texts as they are, all else as JSON, None as a dash."""
    if value is None:
        return "-"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def table_of(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    """Make a table; long cells are folded, never cut."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for head in heads:
        table.add_column(head, overflow="fold")
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


def settings_table(settings: Mapping[str, Setting]) -> Table:
    """Show settings with where each comes from."""
    rows = ((name, value_text(setting.value), setting.origin) for name, setting in sorted(settings.items()))
    return table_of(("setting", "value", "from"), rows)
