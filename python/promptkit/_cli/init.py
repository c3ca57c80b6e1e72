"""``promptkit init``: a catalog to start from."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from promptkit._cli.exits import DONE, FailedError
from promptkit._cli.starter_files import in_the_way, starter_files

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
        names = "\n".join(f"  {folder / path}" for path in taken)
        msg = f"these are there already, and nothing was written:\n{names}\nname another folder, or move them"
        raise FailedError(msg)
    _write(folder, planned)
    if json:
        streams.json({"folder": str(folder), "files": [str(file.path) for file in planned]})
        return DONE
    for file in planned:
        streams.result(str(folder / file.path))
    streams.say("\n" + next_steps(str(folder)))
    return DONE


def next_steps(folder: str) -> str:
    """Say what to type next.

    >>> print(next_steps("my prompts").splitlines()[1])
      cd 'my prompts'
    """
    commands = (
        *(() if folder == "." else (f"cd {shlex.quote(folder)}",)),
        "promptkit check",
        "promptkit run read --input letter=inputs/letter.txt --var question='What broke on Monday?'",
        "promptkit run finding --input letter=inputs/letter.txt",
        "python first.py",
    )
    return "Next:\n" + "\n".join(f"  {command}" for command in commands)


def _not_folders(folder: Path, planned: Iterable[StarterFile]) -> Iterable[PurePosixPath]:
    """Find what is a file where a folder is needed."""
    above = {parent for file in planned for parent in file.path.parents}
    return [path for path in above if _is_there(folder / path) and not (folder / path).is_dir()]


def _files(folder: Path, planned: Iterable[StarterFile]) -> Iterable[PurePosixPath]:
    return [file.path for file in planned if _is_there(folder / file.path)]


def _is_there(path: Path) -> bool:
    # A broken link is there as well: writing would follow it.
    try:
        return path.is_symlink() or path.exists()
    except OSError:
        return False


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"the folder {folder} cannot be made: {error.strerror or type(error).__name__}; name another one"
        raise FailedError(msg) from None


def _write(folder: Path, planned: Iterable[StarterFile]) -> None:
    for file in planned:
        target = folder / file.path
        try:
            _make(target.parent)
            with target.open("xb") as opened:  # whoever was faster keeps what is there
                opened.write(file.content)
        except OSError as error:
            msg = f"{target} cannot be written: {error.strerror or type(error).__name__}"
            raise FailedError(msg) from None
