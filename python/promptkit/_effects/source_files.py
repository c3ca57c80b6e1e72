"""The files of a catalog's folder."""

from __future__ import annotations

import os
import posixpath
from collections import deque
from pathlib import Path
from typing import NamedTuple

from returns.result import Failure, Result, Success

from promptkit._catalog.files import SourceFile, as_text
from promptkit._catalog.prompts import Neighbour
from promptkit._effects.confined import OUTSIDE, read_confined
from promptkit.errors import Fault

MAX_SOURCE_BYTES = 16 * 2**20


class Walk(NamedTuple):
    """The files below a folder, named relative to it with "/", and what could not be looked at."""

    files: tuple[str, ...]
    faults: tuple[Fault, ...]


class SourceFiles:
    """Reads the files below one root; names for people are relative to it, with "/"."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read_root_file(self, name: str) -> Result[SourceFile, Fault]:
        """Read the file that the root has to have."""
        whole = self._whole()
        if not os.path.isdir(self._root):  # noqa: PTH112  # Path.is_dir raises for some names
            above, last = os.path.split(whole)
            remedy = f": give its folder, {above}" if last == name and os.path.lexists(whole) else ""
            return Failure(Fault(file=whole, message=f"is not a folder{remedy}."))
        if not os.path.lexists(self._root / name):
            return Failure(Fault(file=whole, message=f"has no {name}: a catalog's folder has one."))
        return self._read(name, name, name, "")

    def _whole(self) -> str:
        try:
            return os.path.abspath(self._root)  # noqa: PTH100  # without ".."
        except OSError:  # the working folder is gone
            return str(self._root)

    def folders(self) -> list[str]:
        """Give the names of the folders in the root, those whose names start with a dot apart."""
        try:
            with os.scandir(self._root) as found:
                return sorted(_portable(each.name) for each in found if _is_folder(each) and each.name[0] != ".")
        except OSError:
            return []

    def has_folder(self, folder: str) -> bool:
        """Say whether a folder is there."""
        return os.path.isdir(self._root / _native(folder))  # noqa: PTH112  # Path.is_dir raises for some names

    def inputs_folder(self, folder: str) -> Path:
        """Give the absolute path of a folder."""
        return (self._root / _native(folder)).absolute()

    def read_below(self, folder: str, name: str, ending: str) -> Result[SourceFile, Fault]:
        """Read one of the files of a walk; its id is its name without the ending."""
        return self._read(self.shown(folder, name), name, name.removesuffix(ending), folder)

    def _read(self, shown: str, name: str, identifier: str, folder: str) -> Result[SourceFile, Fault]:
        top = self._root / _native(folder)
        content = read_confined(top / _native(name), within=top, limit=MAX_SOURCE_BYTES)
        if isinstance(content, Failure):
            return Failure(Fault(file=shown, message=self._said(content.failure(), folder)))
        return Success(SourceFile(shown, identifier, content.unwrap()))

    def read_text(self, folder: str, name: str, *, beside: str = "") -> Neighbour:
        """Read a text below a folder, by its name relative to that of ``beside``."""
        name = posixpath.join(posixpath.dirname(beside), name)
        file = self.shown(folder, posixpath.normpath(name))
        top = self._root / _native(folder)
        try:
            path = top / _native(name)
        except UnicodeEncodeError:  # a template can write what no file is called
            return Neighbour(file, Failure("is not the name of a file."))
        content = read_confined(path, within=top, limit=MAX_SOURCE_BYTES)
        if isinstance(content, Failure):
            return Neighbour(file, Failure(self._said(content.failure(), folder)))
        return Neighbour(file, as_text(content.unwrap(), file))

    def _said(self, why: str, folder: str) -> str:
        return f"is outside {self._called(folder)}." if why == OUTSIDE else why

    def _called(self, folder: str) -> str:
        shown = self.shown(folder, "")
        return f"the folder {self._whole() if shown == '.' else shown!r}"

    def shown(self, folder: str, name: str) -> str:
        """Give a file's name for people."""
        path = self._root / folder / name
        return Path(os.path.relpath(path, self._root)).as_posix()

    def walk(self, folder: str) -> Walk:
        """Find all files below a folder, those whose names start with a dot apart.

        A link to a folder inside is followed, each link once, so that links into each other come to an end. One to a
        folder that it is in is not followed, and one that leads outside is a fault.
        """
        top = self._root / _native(folder)
        if not os.path.lexists(top):
            return Walk((), ())
        files: list[str] = []
        faults: list[Fault] = []
        followed: set[str] = set()
        whole = os.path.realpath(top)
        left = deque([("", whole)])
        while left:
            below, real = left.popleft()
            try:
                with os.scandir(real) as found:
                    entries = sorted(found, key=lambda entry: entry.name)
            except OSError as error:
                faults.append(Fault(file=self.shown(folder, below), message=f"cannot be read: {error.strerror}."))
                continue
            for entry in entries:
                name = posixpath.join(below, _portable(entry.name))
                if entry.name.startswith("."):
                    continue
                if not _is_folder(entry):
                    files.append(name)
                    continue
                inner = os.path.realpath(entry.path)
                if entry.is_symlink():
                    if not Path(inner).is_relative_to(whole):
                        faults.append(
                            Fault(file=self.shown(folder, name), message=f"is a link out of {self._called(folder)}.")
                        )
                        continue
                    if entry.path in followed or Path(real).is_relative_to(inner):
                        continue
                    followed.add(entry.path)
                left.append((name, inner))
        return Walk(tuple(sorted(files)), tuple(faults))


# Files say names in UTF-8, and Python takes those of the system for text of the locale.


def _native(name: str) -> str:
    return name if os.name == "nt" else os.fsdecode(name.encode("utf-8", "surrogateescape"))


def _portable(name: str) -> str:
    return name if os.name == "nt" else os.fsencode(name).decode("utf-8", "surrogateescape")


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that goes round in circles: what reads it says so
        return False
