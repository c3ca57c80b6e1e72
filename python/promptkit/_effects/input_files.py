"""Reading the input files of a request, off the event loop."""

from __future__ import annotations

import threading
from collections.abc import Awaitable
from os import fspath
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import anyio.to_thread
from returns.result import Failure, Result, Success

from promptkit._effects.confined import OUTSIDE, read_confined
from promptkit.errors import InputError, InvalidRequestError, with_article

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike
    from pathlib import Path

    from promptkit._prepare.inputs import Needed
    from promptkit._values.generation import InputReader
    from promptkit._values.requests import FileInput

THREADS = 32  # that read files on one event loop; those of anyio's own limiter stay for the application
FILES_AT_ONCE = 8  # of one request
MOST_LEFT = 256  # threads whose reading was cancelled and that hang: a file system that does not answer

_threads: anyio.lowlevel.RunVar[anyio.CapacityLimiter] = anyio.lowlevel.RunVar("promptkit_input_threads")


class FolderReader:
    """Reads regular files inside the one folder of inputs; links that lead out of it are refused."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders

    async def read(self, path: PathLike[str], limit: int) -> bytes:
        """Read one file, in a worker thread. A cancellation leaves the thread behind, and its place is free at once.

        Raises InputError, with the file, what is wrong with it and what to do.
        """
        if len(self._folders) != 1:
            found = "there are several inputs folders" if self._folders else "there is no inputs folder"
            msg = f"the file {fspath(path)!r} cannot be read: {found}; give Engine(inputs=folder)"
            raise InputError(msg)
        folder = self._folders[0]
        if left_behind.count >= MOST_LEFT:
            msg = f"the file {fspath(path)!r} is not read: {MOST_LEFT} reads that were given up do not come back; "
            msg += f"see why files below {str(folder)!r} cannot be read"
            raise InputError(msg)
        reading = _Reading(lambda: _read_below(folder, path, limit))
        async with _places():
            # The thread's own limiter is one more: trio would keep a place for as long as an abandoned thread runs.
            own = anyio.CapacityLimiter(1)
            try:
                content = await anyio.to_thread.run_sync(reading, abandon_on_cancel=True, limiter=own)
            except BaseException:
                reading.leave()
                raise
        if isinstance(content, Failure):
            raise InputError(content.failure())
        return content.unwrap()


class _LeftBehind:
    """Counts the threads, of all event loops, whose reading was given up and that are not back yet."""

    def __init__(self) -> None:
        self.count = 0
        self.lock = threading.Lock()


left_behind = _LeftBehind()


class _Reading:
    """A piece of work in a thread, which may be left behind."""

    def __init__(self, work: Callable[[], Result[bytes, str]]) -> None:
        self._work = work
        self._left = self._done = False

    def __call__(self) -> Result[bytes, str]:
        try:
            return self._work()
        finally:
            with left_behind.lock:
                self._done = True
                left_behind.count -= self._left

    def leave(self) -> None:
        """Count it, unless it is back already."""
        with left_behind.lock:
            self._left = not self._done
            left_behind.count += self._left


def _places() -> anyio.CapacityLimiter:
    places = _threads.get(None)
    if places is None:
        places = anyio.CapacityLimiter(THREADS)
        _threads.set(places)
    return places


def _read_below(folder: Path, path: PathLike[str], limit: int) -> Result[bytes, str]:
    content = read_confined(folder / path, within=folder, limit=limit)
    if isinstance(content, Success):
        return content
    what = f"the file {fspath(path)!r}"
    if not folder.is_dir():
        return Failure(
            f"{what} cannot be read: there is no folder {str(folder)!r}: make it, or give Engine(inputs=folder)"
        )
    fault = content.failure()
    remedy = "Give the path of a regular file that can be read, relative to that folder."
    if fault == OUTSIDE:
        remedy = "Put it there, give its content itself as text or bytes, or give Engine(inputs=folder)."
    elif fault.startswith("has "):
        remedy = "Shorten it, or raise Engine(max_input_bytes=...)."
    return Failure(f"{what} below the inputs folder {str(folder)!r} {fault} {remedy}")


async def read_inputs(
    needed: Needed, reader: InputReader, limit: int
) -> Result[Mapping[str, bytes], InvalidRequestError]:
    """Read what a request needs, each input bounded by ``limit`` bytes.

    Of several that fail, the first in the order of the request is reported, whichever failed first. What a reader
    raises that says nothing about a file ends the reading and leaves as itself.
    """
    read: Mapping[str, Result[bytes, InputError]] = {}
    if len(needed.files) == 1:
        read = {name: await _read(name, path, reader, limit) for name, path in needed.files.items()}
    elif needed.files:
        read = await _read_all(needed.files, reader, limit)
    contents = dict(needed.inline)
    for name in needed.files:
        content = read[name]
        if isinstance(content, Failure):
            return content
        contents[name] = content.unwrap()
    for name, data in contents.items():
        if len(data) > limit:
            found = f"input {name!r} has {len(data):,} bytes, and at most {limit:,} are taken"
            return Failure(InputError(f"{found}: shorten it, or raise Engine(max_input_bytes=...)"))
    return Success(contents)


async def _read_all(
    files: Mapping[str, FileInput], reader: InputReader, limit: int
) -> Mapping[str, Result[bytes, InputError]]:
    """Read several files at the same time. An unexpected error leaves as itself, not in a group."""
    read: dict[str, Result[bytes, InputError]] = {}
    places = anyio.Semaphore(FILES_AT_ONCE)
    unexpected: list[BaseException] = []

    async def one(name: str, path: FileInput) -> None:
        async with places:
            try:
                read[name] = await _read(name, path, reader, limit)
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:  # noqa: BLE001  # of the application's own reader, an interruption too
                unexpected.append(error)
                group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for name, path in files.items():
            group.start_soon(one, name, path)
    if unexpected:
        raise unexpected[0]
    return read


async def _read(name: str, path: FileInput, reader: InputReader, limit: int) -> Result[bytes, InputError]:
    try:
        pending: Any = reader.read(path, limit)
        if not isinstance(pending, Awaitable):
            msg = f"input {name!r}: the input reader's read is not an async function: it must be awaitable"
            return Failure(InputError(msg))
        content: object = await pending
    except InputError as error:
        return Failure(InputError(f"input {name!r}: {error}"))
    except OSError as error:
        return Failure(
            InputError(f"input {name!r}: {fspath(path)!r} cannot be read: {error.strerror or type(error).__name__}")
        )
    if not isinstance(content, bytes):
        return Failure(InputError(f"input {name!r}: its reader gave {with_article(type(content).__name__)}, not bytes"))
    return Success(content if type(content) is bytes else memoryview(content).tobytes())
