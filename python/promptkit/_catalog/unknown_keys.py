"""A key that its table does not have: where it belongs, or what was probably meant."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from promptkit._catalog.places import Found, written
from promptkit._values.definitions import CREDENTIAL_ENDINGS, CREDENTIAL_WORDS, Backend, Profile
from promptkit.errors import listed, near

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from promptkit._catalog.lines import Path

# In the words of other libraries; the key of the fault has the whole path.
REMEDIES: Mapping[tuple[type, str], tuple[str, str]] = {
    (Backend, "timeout"): (
        "attempt_timeout bounds one attempt, whole, and connect_timeout only its connecting",
        "attempt_timeout",
    ),
}
CREDENTIAL_REMEDIES: Mapping[type, str] = {
    Backend: "the key is not in the file: name its environment variable in credential_env",
    Profile: "the key is not in the file: name its environment variable in credential_env of the backend",
}


class Table(NamedTuple):
    """A table of a file: what it defines, its keys, those of the tables in it by their path below it, and its path."""

    defines: type[Any]
    keys: Collection[str]
    inner: Mapping[Path, Collection[str]]
    path: Path


def unknown_key(name: str, table: Table, around: tuple[Table, ...]) -> Found:
    """Say where a key belongs. ``around`` are the tables that the one with the key is in, the outermost first."""
    tables = (*around, table)
    for outer, inside in reversed(list(pairwise(tables))):
        if name in outer.keys:
            first = "the first " if isinstance(inside.path[-1], int) else ""
            whose = written(outer.path) or "the prompt"
            return Found((name,), f"{name!r} is a key of {whose}: move it above {first}{_header(inside.path)}.")
    home = next(_homes(name, tables), None)
    if home is not None:
        return Found((name,), f"{name!r} is a key of {_header(home)}: move it there.")
    if table.defines in CREDENTIAL_REMEDIES and _names_a_credential(name):
        return Found((name,), f"is not a key of this table: {CREDENTIAL_REMEDIES[table.defines]}.")
    if (table.defines, name) in REMEDIES:
        why, meant = REMEDIES[table.defines, name]
        return Found((name,), f"is not a key of this table: {why}.", meant)
    suggestion = near(name, sorted(table.keys))
    keys = "" if suggestion else f"; its keys are: {listed(table.keys, most=20)}"
    return Found((name,), f"is not a key of this table{keys}.", suggestion)


def _homes(name: str, tables: tuple[Table, ...]) -> Iterator[Path]:
    """Find the tables that are in these, nearest first, and have the key."""
    for table in reversed(tables):
        yield from ((*table.path, *path) for path, keys in table.inner.items() if name in keys)


def _header(path: Path) -> str:
    names = written(tuple(step for step in path if isinstance(step, str)))
    return f"[[{names}]]" if isinstance(path[-1], int) else f"[{names}]"


def _names_a_credential(name: str) -> bool:
    squashed = re.sub(r"[-_. ]", "", name).lower().removesuffix("env")
    return squashed in CREDENTIAL_WORDS or squashed.endswith(CREDENTIAL_ENDINGS)
