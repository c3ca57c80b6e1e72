"""Input files are read off the event loop, from one folder, and each is bounded."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from returns.result import Failure, Success

from promptkit._effects import input_files
from promptkit._effects.input_files import FILES_AT_ONCE, THREADS, FolderReader, read_inputs
from promptkit._prepare.inputs import Needed
from promptkit.errors import InputError, InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
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
    (tmp_path / "inputs-old").mkdir()
    (tmp_path / "inputs-old" / "k.txt").write_text("SECRET")
    (inside / "outside").symlink_to(tmp_path / "inputs-old")
    (inside / "device").symlink_to("/dev/zero")
    (inside / "dangling").symlink_to("nowhere")
    (inside / "circle").symlink_to("circle")
    with socket.socket(socket.AF_UNIX) as server:
        at = os.open(inside, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{at}/socket")  # the path of a socket is short
        os.close(at)
    return inside


async def read(reader: Any, limit: int = LIMIT, /, **given: Any) -> Result[Mapping[str, bytes], InvalidRequestError]:
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
        ("", "is not a regular file"),
        (".", "is not a regular file"),
        ("..", "is outside the folder"),
        ("socket", "is not a regular file"),
        ("device", "is outside the folder"),
        ("dangling", "cannot be read: No such file"),
        ("circle", "cannot be read: Too many levels"),
        ("outside", "is outside the folder"),
        ("outside/k.txt", "outside the folder"),
        ("../inputs-old/k.txt", "outside the folder"),
        ("a.txt/x", "cannot be read: Not a directory"),
        ("x" * 300, "cannot be read: File name too long"),
        ("\ud800", "is not the name of a file"),
        ("a\udcff", "cannot be read: No such file"),
        ("~/a.txt", "cannot be read: No such file"),
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
    str(error).encode()
    assert any(remedy in str(error) for remedy in (" Give the path of ", " Put it there, ", " Shorten it, "))


async def test_without_a_folder_no_file_is_read(tmp_path: Path) -> None:
    found = await read(FolderReader([]), doc=folder(tmp_path) / "a.txt")
    assert "no inputs folder; give Engine(inputs=folder)" in str(found.failure())
    assert await read(FolderReader([]), doc=b"inline") == Success({"doc": b"inline"})


async def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    found = await read(FolderReader([tmp_path / "gone"]), doc=PurePath("a.txt"))
    assert str(found.failure()) == (
        f"input 'doc': the file 'a.txt' cannot be read: there is no folder {str(tmp_path / 'gone')!r}: make it,"
        " or give Engine(inputs=folder)"
    )


async def test_links_that_stay_inside_are_followed(tmp_path: Path) -> None:
    inside = folder(tmp_path)
    (inside / "short").symlink_to("sub")
    assert await read(FolderReader([inside]), doc=PurePath("short/b.txt")) == Success({"doc": b"b"})


async def test_a_name_that_is_not_unicode_is_a_name(tmp_path: Path) -> None:
    inside = folder(tmp_path)
    (inside / "a\udcff.txt").write_bytes(b"x")
    assert await read(FolderReader([inside]), doc=PurePath("a\udcff.txt")) == Success({"doc": b"x"})


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


class Blocking:
    """A path that says its name when it may. The folder's reader asks for it in its thread, like for a slow file."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.asked = threading.Event()
        self.free = threading.Event()

    def __fspath__(self) -> str:
        self.asked.set()
        assert self.free.wait(60)  # longer than a test has
        return self._name


async def until(fact: Callable[[], bool]) -> None:
    """Let other tasks act until something is so; the time-out of tests ends what never becomes so."""
    while not fact():
        await anyio.lowlevel.checkpoint()


async def test_reading_does_not_hold_the_event_loop(tmp_path: Path) -> None:
    """The reading ends only when another task of the same loop has acted."""
    inside, slow = folder(tmp_path), Blocking("a.txt")
    found = []

    async def reading() -> None:
        found.append(await read(FolderReader([inside]), doc=slow))

    async with anyio.create_task_group() as group:
        group.start_soon(reading)
        await until(slow.asked.is_set)
        assert not found
        slow.free.set()
    assert [result.unwrap() for result in found] == [{"doc": (inside / "a.txt").read_bytes()}]


async def test_a_cancellation_during_a_slow_reading_ends_it_at_once(tmp_path: Path) -> None:
    """The file is let go only after the call has ended."""
    inside = folder(tmp_path)
    for count in (1, 3):
        slow = [Blocking("a.txt") for _ in range(count)]
        async with anyio.create_task_group() as group:

            async def reading(paths: list[Blocking]) -> None:
                await read(FolderReader([inside]), **{f"doc{i}": path for i, path in enumerate(paths)})

            group.start_soon(reading, slow)
            await until(lambda: all(path.asked.is_set() for path in slow))  # noqa: B023  # waited for here
            group.cancel_scope.cancel()
        for path in slow:
            path.free.set()


async def test_slow_files_take_no_thread_from_others(tmp_path: Path) -> None:
    """Each may be waited for; the threads of anyio's own limiter are all free, and so are those of a next reading."""
    inside = folder(tmp_path)
    slow = [Blocking("a.txt") for _ in range(FILES_AT_ONCE)]
    reader = FolderReader([inside])
    async with anyio.create_task_group() as group:

        async def reading() -> None:
            await read(reader, **{f"doc{i}": path for i, path in enumerate(slow)})

        group.start_soon(reading)
        await until(lambda: all(path.asked.is_set() for path in slow))
        assert anyio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
        assert await read(reader, doc=PurePath("sub/b.txt")) == Success({"doc": b"b"})
        for path in slow:
            path.free.set()


async def test_the_threads_that_read_are_bounded_over_all_requests(tmp_path: Path) -> None:
    inside = folder(tmp_path)
    slow = [Blocking("a.txt") for _ in range(THREADS + 1)]
    found = []

    async def reading(path: Blocking) -> None:
        found.append(await read(FolderReader([inside]), doc=path))

    async with anyio.create_task_group() as group:
        for path in slow:
            group.start_soon(reading, path)
        await until(lambda: sum(path.asked.is_set() for path in slow) >= THREADS)
        await anyio.wait_all_tasks_blocked()
        assert sum(path.asked.is_set() for path in slow) == THREADS
        for path in slow:
            path.free.set()
    assert [result.unwrap() for result in found] == [{"doc": (inside / "a.txt").read_bytes()}] * len(slow)


async def test_cancelled_readings_leave_their_places_to_others(tmp_path: Path) -> None:
    inside = folder(tmp_path)
    reader = FolderReader([inside])
    slow = [Blocking("a.txt") for _ in range(THREADS)]
    async with anyio.create_task_group() as group:

        async def reading(path: Blocking) -> None:
            await read(reader, doc=path)

        for path in slow:
            group.start_soon(reading, path)
        await until(lambda: all(path.asked.is_set() for path in slow))
        group.cancel_scope.cancel()
    assert await read(reader, doc=PurePath("sub/b.txt")) == Success({"doc": b"b"})
    for path in slow:
        path.free.set()
    await until(lambda: input_files.left_behind.count == 0)


async def test_more_readings_than_a_bound_are_notleft_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_files, "MOST_LEFT", 3)
    reader = FolderReader([folder(tmp_path)])
    slow = [Blocking("a.txt") for _ in range(3)]
    async with anyio.create_task_group() as group:
        for path in slow:
            group.start_soon(reader.read, path, 100)
        await until(lambda: all(path.asked.is_set() for path in slow))
        group.cancel_scope.cancel()
    with pytest.raises(InputError, match="3 reads that were given up do not come back"):
        await reader.read(PurePath("sub/b.txt"), 100)
    for path in slow:
        path.free.set()
    await until(lambda: input_files.left_behind.count == 0)
    assert await reader.read(PurePath("sub/b.txt"), 100) == b"b"


async def test_nothing_is_told_of_files_outside_the_folder(tmp_path: Path) -> None:
    reader = FolderReader([folder(tmp_path)])
    for name in ("../no-such-file", "../secret.txt", "/no/such/file", "/etc/passwd"):
        with pytest.raises(InputError, match="is outside the folder"):
            await reader.read(PurePath(name), 100)


async def test_an_interruption_of_a_reader_leaves_as_itself_among_several_files() -> None:
    class Interrupted:
        async def read(self, path: PathLike[str], limit: int) -> bytes:
            del path, limit
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await read(Interrupted(), a=PurePath("a"), b=PurePath("b"))


async def test_the_files_of_a_request_are_read_at_the_same_time_and_in_bounded_number() -> None:
    running, most = 0, 0
    free = anyio.Event()

    class Counting:
        async def read(self, path: PathLike[str], limit: int) -> bytes:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await free.wait()
            running -= 1
            return os.fspath(path).encode()

    found = []

    async def reading() -> None:
        found.append(await read(Counting(), **{f"f{i}": PurePath(str(i)) for i in range(3 * FILES_AT_ONCE)}))

    async with anyio.create_task_group() as group:
        group.start_soon(reading)
        await until(lambda: running == FILES_AT_ONCE)
        await anyio.wait_all_tasks_blocked()
        free.set()
    assert most == FILES_AT_ONCE
    assert found == [Success({f"f{i}": str(i).encode() for i in range(3 * FILES_AT_ONCE)})]


async def test_of_several_failures_the_first_of_the_request_is_reported() -> None:
    second_failed = anyio.Event()

    class Failing:
        async def read(self, path: PathLike[str], limit: int) -> bytes:
            if os.fspath(path) == "first":
                await second_failed.wait()
            second_failed.set()
            msg = "is bad"
            raise InputError(msg)

    found = await read(Failing(), zebra=PurePath("first"), ant=PurePath("second"))
    assert str(found.failure()) == "input 'zebra': is bad"


async def test_an_unexpected_error_of_a_reader_leaves_as_itself_and_ends_the_other_readings() -> None:
    ended = []

    class Breaking:
        async def read(self, path: PathLike[str], limit: int) -> bytes:
            if os.fspath(path) == "bad":
                raise ZeroDivisionError
            try:
                await anyio.sleep_forever()
            finally:
                ended.append(os.fspath(path))
            return b""

    with pytest.raises(ZeroDivisionError):
        await read(Breaking(), a=PurePath("slow"), b=PurePath("bad"), c=PurePath("slower"))
    assert sorted(ended) == ["slow", "slower"]


async def test_a_reader_that_is_no_async_function_is_an_input_error_that_says_so() -> None:
    class Plain:
        def read(self, path: PathLike[str], limit: int) -> bytes:
            return b"x"

    found = await read(Plain(), doc=PurePath("x"))
    assert type(found.failure()) is InputError
    assert str(found.failure()) == "input 'doc': the input reader's read is not an async function: it must be awaitable"


async def test_what_a_reader_gives_is_plain_bytes() -> None:
    class Marked(bytes):
        pass

    found = (await read(Reader(Marked(b"x")), doc=PurePath("x"))).unwrap()
    assert type(found["doc"]) is bytes


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
        (bytearray(b"x"), "gave a bytearray, not bytes"),
        (FileNotFoundError(2, "No such file"), "'x' cannot be read: No such file"),
        (PermissionError(13, "Permission denied"), "'x' cannot be read: Permission denied"),
        (TimeoutError(), "'x' cannot be read: TimeoutError"),
        (InputError("too strange"), "too strange"),
    ],
)
async def test_what_a_reader_of_ones_own_does_wrong_is_an_input_error(content: object, sentence: str) -> None:
    error = (await read(Reader(content), doc=PurePath("x"))).failure()
    assert type(error) is InputError
    assert "input 'doc'" in str(error)
    assert sentence in str(error)
