"""Reading the input files of a request, off the event loop."""

from __future__ import annotations

from os import fspath
from typing import TYPE_CHECKING

import anyio.to_thread
from returns.result import Failure, Result, Success

from promptkit._effects.confined import read_confined
from promptkit.errors import InputError, InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike
    from pathlib import Path

    from promptkit._prepare.inputs import Needed
    from promptkit._values.generation import InputReader


class FolderReader:
    """Reads regular files inside one folder; links that lead out of it are refused."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    async def read(self, path: PathLike[str], limit: int) -> bytes:
        """Read one file, in a worker thread."""
        folder = self._folder
        if folder is None:
            msg = f"the file {fspath(path)!r} cannot be read: there is no inputs folder; give Engine(inputs=folder)"
            raise InputError(msg)
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
            contents[name] = await reader.read(path, limit)
        except InputError as error:
            return Failure(InputError(f"input {name!r}: {error}"))
    for name, content in contents.items():
        if len(content) > limit:
            return Failure(InputError(f"input {name!r} has {len(content):,} bytes, and at most {limit:,} are taken"))
    return Success(contents)
