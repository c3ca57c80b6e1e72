"""The starter that ships in the package: a small catalog, and a program on top of it."""

from __future__ import annotations

import contextlib
from importlib.resources import as_file, files
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from importlib.resources.abc import Traversable

FOLDER = "starter"
NOT_YET = ".txt"  # keeps the program from being one of the package's own modules


class StarterFile(NamedTuple):
    """A file of the starter: its path, relative and with "/", and its bytes."""

    path: PurePosixPath
    content: bytes


def starter_files() -> tuple[StarterFile, ...]:
    """Read the starter, ordered by path."""
    found = _below(files("promptkit._cli") / FOLDER, PurePosixPath())
    return tuple(sorted(found, key=lambda file: file.path))


def in_the_way(planned: Iterable[PurePosixPath], present: Iterable[PurePosixPath]) -> tuple[PurePosixPath, ...]:
    """Say which paths that are there would be written over, or written below though they are no folders."""
    there = set(present)
    return tuple(sorted({path for each in planned for path in (each, *each.parents) if path in there}))


@contextlib.contextmanager
def starter_folder() -> Iterator[Path]:
    """Give the starter as a folder, to be read as a catalog."""
    with as_file(files("promptkit._cli") / FOLDER) as folder:
        yield Path(folder)


def _below(folder: Traversable, path: PurePosixPath) -> Iterator[StarterFile]:
    for each in folder.iterdir():
        if each.name.startswith((".", "_")):
            continue
        if each.is_dir():
            yield from _below(each, path / each.name)
        else:
            name = each.name.removesuffix(NOT_YET) if each.name.endswith(".py" + NOT_YET) else each.name
            yield StarterFile(path / name, each.read_bytes())
