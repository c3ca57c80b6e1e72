"""Input files are read off the event loop, from one folder, and each is bounded."""

from __future__ import annotations

import os
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from returns.result import Failure, Success

from promptkit._effects.input_files import FolderReader, read_inputs
from promptkit._prepare.inputs import Needed
from promptkit.errors import InputError, InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from returns.result import Result

pytestmark = pytest.mark.anyio
LIMIT = 100


class Named:
    """A path object that is no Path."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __fspath__(self) -> str:
        return self._name


def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "inputs"
    (inside / "sub").mkdir(parents=True)
    (inside / "a.txt").write_bytes("é—中🙂\r\n".encode())
    (inside / "sub" / "b.txt").write_text("b")
    (inside / "long.txt").write_bytes(b"x" * (LIMIT + 1))
    (tmp_path / "secret.txt").write_text("SECRET")
    (inside / "link.txt").symlink_to(tmp_path / "secret.txt")
    os.mkfifo(inside / "pipe")
    return inside


async def read(reader: Any, limit: int = LIMIT, **given: Any) -> Result[Mapping[str, bytes], InvalidRequestError]:
    inline = {name: value for name, value in given.items() if isinstance(value, bytes)}
    files = {name: value for name, value in given.items() if not isinstance(value, bytes)}
    return await read_inputs(Needed(inline, files), reader, limit)


async def test_files_and_inline_inputs_come_back_byte_for_byte(tmp_path: Path) -> None:
    reader = FolderReader([folder(tmp_path)])
    found = await read(reader, inline=b"\x00", a=PurePath("a.txt"), b=Path("sub") / "b.txt", c=Named("sub/../a.txt"))
    text = "é—中🙂\r\n".encode()
    assert found == Success({"inline": b"\x00", "a": text, "b": b"b", "c": text})


async def test_an_absolute_path_inside_the_folder_is_taken(tmp_path: Path) -> None:
    inside = folder(tmp_path)
    assert await read(FolderReader([inside]), b=inside / "sub" / "b.txt") == Success({"b": b"b"})


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("../secret.txt", "outside the folder"),
        ("sub/../../secret.txt", "outside the folder"),
        ("link.txt", "outside the folder"),
        ("/etc/passwd", "outside the folder"),
        ("missing.txt", "cannot be read: No such file"),
        ("a\0b", "is not the name of a file"),
        ("sub", "is not a regular file"),
        ("pipe", "is not a regular file"),
        ("long.txt", "has 101 bytes, and at most 100"),
    ],
)
async def test_a_file_that_cannot_be_taken_names_the_input_and_the_file(
    tmp_path: Path, name: str, sentence: str
) -> None:
    found = await read(FolderReader([folder(tmp_path)]), fine=PurePath("a.txt"), doc=Named(name))
    assert isinstance(found, Failure)
    error = found.failure()
    assert type(error) is InputError
    assert "input 'doc'" in str(error)
    assert repr(name) in str(error)
    assert sentence in str(error)
    assert "SECRET" not in str(error)


async def test_without_a_folder_no_file_is_read(tmp_path: Path) -> None:
    found = await read(FolderReader([]), doc=folder(tmp_path) / "a.txt")
    assert "no inputs folder; give Engine(inputs=folder)" in str(found.failure())
    assert await read(FolderReader([]), doc=b"inline") == Success({"doc": b"inline"})


async def test_each_input_is_bounded_also_an_inline_one_and_one_of_another_reader() -> None:
    class Reader:
        async def read(self, path: PathLike[str], limit: int) -> bytes:
            return os.fspath(path).encode() * limit

    assert await read(Reader(), doc=Named("x")) == Success({"doc": b"x" * LIMIT})
    for given in (b"x" * (LIMIT + 1), Named("xy")):
        found = await read(Reader(), doc=given)
        assert type(found.failure()) is InputError
        assert "input 'doc' has " in str(found.failure())
    assert await read(Reader(), doc=b"x" * LIMIT) == Success({"doc": b"x" * LIMIT})


async def test_what_another_reader_refuses_names_the_input_and_what_it_raises_leaves_as_itself() -> None:
    class Reader:
        def __init__(self, error: Exception) -> None:
            self.error = error

        async def read(self, _path: PathLike[str], _limit: int) -> bytes:
            raise self.error

    found = await read(Reader(InputError("is gone")), doc=PurePath("x"))
    assert str(found.failure()) == "input 'doc': is gone"
    with pytest.raises(ZeroDivisionError):
        await read(Reader(ZeroDivisionError()), doc=PurePath("x"))


async def test_reading_does_not_hold_the_event_loop(tmp_path: Path) -> None:
    """A reading that waits for the loop's own task to act could not end if it held the loop."""
    inside = folder(tmp_path)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(other)
        for _ in range(3):
            await read(FolderReader([inside]), a=PurePath("a.txt"))
        group.cancel_scope.cancel()
    assert turns > 0


async def test_a_reading_can_be_cancelled(tmp_path: Path) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await read(FolderReader([folder(tmp_path)]), a=PurePath("a.txt"))
    assert scope.cancelled_caught


class Reader:
    """Reads what it is told, or raises it."""

    def __init__(self, content: object) -> None:
        self._content = content

    async def read(self, path: PathLike[str], limit: int) -> Any:
        if isinstance(self._content, Exception):
            raise self._content
        return self._content


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("text", "gave a str, not bytes"),
        (None, "gave a NoneType, not bytes"),
        (FileNotFoundError(2, "No such file"), "cannot be read: No such file"),
        (InputError("too strange"), "too strange"),
    ],
)
async def test_what_a_reader_of_ones_own_does_wrong_is_an_input_error(content: object, sentence: str) -> None:
    error = (await read(Reader(content), doc=PurePath("x"))).failure()
    assert type(error) is InputError
    assert "input 'doc'" in str(error)
    assert sentence in str(error)
