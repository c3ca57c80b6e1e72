"""Reading the input files of a request, off the event loop."""

from __future__ import annotations

from os import fspath
from typing import TYPE_CHECKING

import anyio.to_thread
from returns.result import Failure, Result, Success

from promptkit._effects.confined import read_confined
from promptkit.errors import InputError, InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike
    from pathlib import Path

    from promptkit._prepare.inputs import Needed
    from promptkit._values.generation import InputReader


class FolderReader:
    """Reads regular files inside the one folder of inputs; links that lead out of it are refused."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders

    async def read(self, path: PathLike[str], limit: int) -> bytes:
        """Read one file, in a worker thread."""
        if len(self._folders) != 1:
            found = "there are several inputs folders" if self._folders else "there is no inputs folder"
            msg = f"the file {fspath(path)!r} cannot be read: {found}; give Engine(inputs=folder)"
            raise InputError(msg)
        folder = self._folders[0]
        content = await anyio.to_thread.run_sync(
            lambda: read_confined(folder / path, within=folder, limit=limit), abandon_on_cancel=True
        )
        if isinstance(content, Failure):
            msg = f"the file {fspath(path)!r} below the inputs folder {str(folder)!r} {content.failure()}"
            raise InputError(msg)
        return content.unwrap()


async def read_inputs(
    needed: Needed, reader: InputReader, limit: int
) -> Result[Mapping[str, bytes], InvalidRequestError]:
    """Read what a request needs, each input bounded by ``limit`` bytes."""
    contents = dict(needed.inline)
    for name, path in needed.files.items():
        try:
            content: object = await reader.read(path, limit)
        except InputError as error:
            return Failure(InputError(f"input {name!r}: {error}"))
        except OSError as error:
            return Failure(InputError(f"input {name!r} cannot be read: {error.strerror or type(error).__name__}"))
        if not isinstance(content, bytes):
            return Failure(InputError(f"input {name!r}: its reader gave a {type(content).__name__}, not bytes"))
        contents[name] = content
    for name, content in contents.items():
        if len(content) > limit:
            return Failure(InputError(f"input {name!r} has {len(content):,} bytes, and at most {limit:,} are taken"))
    return Success(contents)
