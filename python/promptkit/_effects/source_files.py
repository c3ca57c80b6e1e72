"""The files of a catalog's folder."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from returns.result import Failure, Result, Success

from promptkit._catalog.files import SourceFile
from promptkit._effects.confined import read_confined
from promptkit.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_SOURCE_BYTES = 16 * 2**20


class SourceFiles:
    """Reads the files below one root; names are relative to it, with "/"."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read_one(self, name: str) -> Result[SourceFile, Fault]:
        """Read one file of the root by its name."""
        if not self._root.is_dir():
            return Failure(Fault(file=str(self._root), message="is not a folder."))
        if not (self._root / name).exists():
            return Failure(Fault(file=str(self._root), message=f"has no {name}: a catalog's folder has one."))
        content = read_confined(self._root / name, within=self._root, limit=MAX_SOURCE_BYTES)
        if isinstance(content, Failure):
            return Failure(Fault(file=name, message=content.failure()))
        return Success(SourceFile(name, name, content.unwrap()))

    def below(self, folder: str, ending: str, faults: list[Fault]) -> Iterator[SourceFile]:
        """Read all files with this ending below a folder, by name. What cannot be read is a fault."""
        top = self._root / folder
        found = list(_walk(top, lambda error: faults.append(self._unreadable(error))))
        for path in sorted(found, key=Path.as_posix):
            if path.suffix != ending:
                continue
            name = PurePosixPath(os.path.relpath(path, self._root)).as_posix()
            content = read_confined(path, within=top, limit=MAX_SOURCE_BYTES)
            if isinstance(content, Failure):
                faults.append(Fault(file=name, message=content.failure()))
            else:
                identifier = path.relative_to(top).with_suffix("").as_posix()
                yield SourceFile(name, identifier, content.unwrap())

    def _unreadable(self, error: OSError) -> Fault:
        name = PurePosixPath(os.path.relpath(error.filename, self._root)).as_posix()
        return Fault(file=name, message=f"cannot be read: {error.strerror}.")

    def read_beside(self, source: SourceFile, file: str, *, within: str) -> Result[bytes, str]:
        """Read a file that another one names, relative to that one and inside the folder."""
        path = (self._root / source.name).parent / file
        return read_confined(path, within=self._root / within, limit=MAX_SOURCE_BYTES)


def _walk(top: Path, on_error: Callable[[OSError], None]) -> Iterator[Path]:
    for folder, _, names in os.walk(top, onerror=on_error if top.exists() else None):
        for name in names:
            yield Path(folder) / name
