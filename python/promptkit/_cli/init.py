"""``promptkit init``: a catalog to start from."""

from __future__ import annotations

import contextlib
import shlex
from typing import TYPE_CHECKING

from promptkit._cli.exits import DONE, FailedError
from promptkit._cli.starter_files import in_the_way, starter_files
from promptkit._cli.user_files import shown_path

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path, PurePosixPath

    from promptkit._cli.starter_files import StarterFile
    from promptkit._cli.streams import Streams


def init(folder: Path, *, json: bool, streams: Streams) -> int:
    """Write the starter, all of it or nothing, and say what to do next."""
    planned = starter_files()
    present = (*_not_folders(folder, planned), *_files(folder, planned))
    taken = in_the_way([file.path for file in planned], present)
    if taken:
        names = "\n".join(f"  {shown_path(folder / path)}" for path in taken)
        msg = f"these are there already, and nothing was written:\n{names}\nname another folder, or move them"
        raise FailedError(msg)
    _write(folder, planned)
    if json:
        streams.json({"folder": str(folder), "files": [str(file.path) for file in planned]})
        return DONE
    for file in planned:
        streams.result(shown_path(folder / file.path))
    streams.say("\n" + next_steps(str(folder)))
    return DONE


def next_steps(folder: str) -> str:
    """Say what to type next.

    >>> print(next_steps("my prompts").splitlines()[1])
      cd 'my prompts'
    """
    commands = (
        *(() if folder == "." else (f"cd {_quoted(folder)}",)),
        "promptkit check",
        "promptkit run read --input letter=inputs/letter.txt --var question='What broke on Monday?'",
        "promptkit run finding --input letter=inputs/letter.txt",
        "python first.py",
    )
    return "Next:\n" + "\n".join(f"  {command}" for command in commands)


def _quoted(folder: str) -> str:
    return shlex.quote(f"./{folder}" if folder.startswith("-") else folder)  # which `cd` would take for an option


def _not_folders(folder: Path, planned: Iterable[StarterFile]) -> Iterable[PurePosixPath]:
    """Find what is a file where a folder is needed, or a link, which may lead anywhere. The outermost may be one."""
    above = {parent for file in planned for parent in file.path.parents}
    return [
        path for path in above if _is_there(folder / path) and not _is_folder(folder / path, outermost=not path.name)
    ]


def _is_folder(path: Path, *, outermost: bool) -> bool:
    return path.is_dir() and (outermost or not path.is_symlink())


def _files(folder: Path, planned: Iterable[StarterFile]) -> Iterable[PurePosixPath]:
    return [file.path for file in planned if _is_there(folder / file.path)]


def _is_there(path: Path) -> bool:
    # A broken link is there as well: writing would follow it.
    try:
        return path.is_symlink() or path.exists()
    except OSError:
        return False


def _write(folder: Path, planned: Iterable[StarterFile]) -> None:
    """Write all files. Where that fails, or is interrupted, delete what was written."""
    made: list[Path] = []
    try:
        for file in planned:
            _make(folder / file.path.parent, made)
            _write_file(folder / file.path, file.content, made)
    except BaseException:
        for path in reversed(made):
            with contextlib.suppress(OSError):  # a folder in which somebody else has put something stays
                path.rmdir() if path.is_dir() else path.unlink()
        raise


def _make(folder: Path, made: list[Path]) -> None:
    missing = [path for path in (folder, *folder.parents) if not _is_there(path)]
    try:
        for path in reversed(missing):
            path.mkdir(exist_ok=True)  # somebody may have been faster
            made.append(path)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        msg = f"the folder {shown_path(folder)} cannot be made: {reason}; name another one"
        raise FailedError(msg) from None


def _write_file(target: Path, content: bytes, made: list[Path]) -> None:
    try:
        with target.open("xb") as opened:  # whoever was faster keeps what is there
            made.append(target)
            opened.write(content)
    except OSError as error:
        msg = f"{shown_path(target)} cannot be written, and nothing was kept: {error.strerror or type(error).__name__}"
        raise FailedError(msg) from None
