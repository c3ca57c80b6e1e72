"""Inputs and attachments through a whole engine: files, a reader of one's own, bounds, cancellation."""

from __future__ import annotations

import os
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

from promptkit import (
    Backend,
    Catalog,
    Engine,
    FilePart,
    ImagePart,
    InputError,
    InvalidRequestError,
    Message,
    MessageTemplate,
    Profile,
    PromptDefinition,
    RunFinished,
    RunRequest,
    TextPart,
    load_catalog,
)
from promptkit.testing import EventRecorder, ScriptedClient

if TYPE_CHECKING:
    from os import PathLike

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n\x00\xff"
CATALOG = Catalog(
    backends=[Backend(id="b", kind="chat_completions", base_url="http://127.0.0.1:1/v1")],
    profiles=[Profile(id="f", backend="b", model="m")],
    prompts=[
        PromptDefinition(
            id="look",
            messages=(MessageTemplate(role="user", content="{{ inputs.note }}", attachments=("photo",)),),
            inputs=("note", "photo"),
            profile="f",
        ),
    ],
)
TOML = """
[backends.b]
kind = "chat_completions"
base_url = "http://127.0.0.1:1/v1"
[profiles.f]
backend = "b"
model = "m"
"""
PROMPT = """
profile = "f"
inputs = ["note", "photo", "report"]
[[messages]]
role = "user"
content = "{{ inputs.note }}"
attachments = ["photo", "report"]
"""


class Reader:
    """Reads from a mapping; what is an exception is raised."""

    def __init__(self, **files: Any) -> None:
        self.files = files
        self.asked: list[tuple[str, int]] = []

    async def read(self, path: PathLike[str], limit: int) -> Any:
        self.asked.append((os.fspath(path), limit))
        found = self.files[os.fspath(path)]
        if isinstance(found, BaseException):
            raise found
        return found


class PlainReader:
    """Has forgotten to be async."""

    def read(self, path: PathLike[str], limit: int) -> Any:
        return b"x"


REQUEST = RunRequest(prompt_id="look", inputs={"note": PurePath("note"), "photo": PurePath("photo")})


async def test_files_of_the_catalogs_folder_become_text_and_parts(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "inputs" / "sub").mkdir(parents=True)
    (tmp_path / "promptkit.toml").write_text(TOML)
    (tmp_path / "prompts" / "look.toml").write_text(PROMPT)
    (tmp_path / "inputs" / "note.txt").write_bytes(b"\xef\xbb\xbfRead\r\nthis.")
    (tmp_path / "inputs" / "photo").write_bytes(PNG)
    (tmp_path / "inputs" / "sub" / "report.pdf").write_bytes(b"%PDF-1.7")
    request = RunRequest(
        prompt_id="look",
        inputs={"note": Path("note.txt"), "photo": Path("photo"), "report": Path("sub/report.pdf")},
    )
    prepared = await Engine(load_catalog(tmp_path)).prepare(request)
    assert prepared.messages == (
        Message(
            role="user",
            content=(
                TextPart(text="Read\r\nthis."),
                ImagePart(media_type="image/png", data=PNG),
                FilePart(media_type="application/pdf", data=b"%PDF-1.7", filename="report.pdf"),
            ),
        ),
    )


async def test_a_reader_of_ones_own_is_asked_for_each_file_with_the_bound() -> None:
    reader = Reader(note=b"n", photo=PNG)
    prepared = await Engine(CATALOG, input_reader=reader, max_input_bytes=77).prepare(REQUEST)
    assert prepared.messages[0].content == (TextPart(text="n"), ImagePart(media_type="image/png", data=PNG))
    assert sorted(reader.asked) == [("note", 77), ("photo", 77)]


@pytest.mark.parametrize(
    ("reader", "sentence"),
    [
        (PlainReader(), "input 'note': the input reader's read is not an async function"),
        (Reader(note="text", photo=PNG), "input 'note': its reader gave a str, not bytes"),
        (Reader(note=b"n", photo=None), "input 'photo': its reader gave a NoneType, not bytes"),
        (Reader(note=b"n", photo=b"x" * 101), "input 'photo' has 101 bytes, and at most 100 are taken"),
        (Reader(note=b"n", photo=PermissionError(13, "Permission denied")), "input 'photo': 'photo' cannot be read"),
        (Reader(note=InputError("is not for you"), photo=PNG), "input 'note': is not for you"),
    ],
)
async def test_what_a_reader_does_wrong_is_the_same_input_error_everywhere(reader: Any, sentence: str) -> None:
    client, events = ScriptedClient(), EventRecorder()
    engine = Engine(CATALOG, client=client, input_reader=reader, max_input_bytes=100)
    for ask in (engine.validate_request, engine.prepare, engine.prepare_execution, engine.run):
        with pytest.raises(InputError) as caught:
            await ask(RunRequest(prompt_id="look", inputs=REQUEST.inputs, observer=events))
        assert type(caught.value) is InputError
        assert sentence in str(caught.value)
    assert [type(event).__name__ for event in events.events] == ["RunStarted", "RunFinished"]
    assert isinstance(events.events[-1], RunFinished)
    assert (events.events[-1].outcome, events.events[-1].error) == ("failed", "InputError")
    assert not client.calls


async def test_what_a_reader_raises_that_is_about_no_file_leaves_as_itself() -> None:
    error = LookupError("no connection to the archive")
    with pytest.raises(LookupError) as caught:
        await Engine(CATALOG, input_reader=Reader(note=b"n", photo=error)).prepare(REQUEST)
    assert caught.value is error


async def test_inputs_are_bounded_where_they_are_given_too() -> None:
    engine = Engine(CATALOG, max_input_bytes=3)
    with pytest.raises(InputError, match=r"input 'note' has 4 bytes, and at most 3 are taken: .*max_input_bytes"):
        await engine.prepare(RunRequest(prompt_id="look", inputs={"note": "éé", "photo": b""}))


@pytest.mark.parametrize("bound", [0, -1, pytest.param(-(10**5000), id="negative"), True, "x", 1.5, None, b"1"])
def test_a_bound_that_is_none_is_refused_at_construction(bound: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"^Engine\.max_input_bytes: "):
        Engine(CATALOG, max_input_bytes=bound)


class Pretender:
    """Is a path as far as it says."""

    def __init__(self, path: Any) -> None:
        self.path = path

    def __fspath__(self) -> Any:
        if isinstance(self.path, Exception):
            raise self.path
        return self.path


@pytest.mark.parametrize(
    "folder", [b"folder", 5, Pretender(b"folder"), Pretender(5), Pretender(ZeroDivisionError("no"))]
)
def test_what_is_no_folder_is_refused_at_construction(folder: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"^Engine\.inputs: "):
        Engine(CATALOG, inputs=folder)


@pytest.mark.parametrize("folder", ["", "gone", "a\0b", "\ud800"])
async def test_a_folder_that_is_not_there_is_an_input_error(folder: str, tmp_path: Path) -> None:
    engine = Engine(CATALOG, inputs=f"{tmp_path}/{folder}/no")
    with pytest.raises(InputError, match=r"input 'note': the file 'note' cannot be read: there is no folder '"):
        await engine.prepare(REQUEST)


@pytest.mark.parametrize("bound", [100, 2**31, 2**63, 2**100])
async def test_a_bound_of_any_size_is_taken(bound: int, tmp_path: Path) -> None:
    (tmp_path / "n.txt").write_text("n")
    engine = Engine(CATALOG, inputs=tmp_path, max_input_bytes=bound)
    prepared = await engine.prepare(RunRequest(prompt_id="look", inputs={"note": Path("n.txt"), "photo": PNG}))
    assert isinstance(prepared.messages[0].content, tuple)


async def test_a_cancellation_while_a_file_is_read_ends_the_run_at_once() -> None:
    asked = anyio.Event()

    class Slow:
        async def read(self, path: PathLike[str], limit: int) -> bytes:
            asked.set()
            await anyio.sleep_forever()
            return b""

    events = EventRecorder()
    engine = Engine(CATALOG, client=ScriptedClient(), input_reader=Slow())
    async with anyio.create_task_group() as group:
        group.start_soon(engine.run, RunRequest(prompt_id="look", inputs=REQUEST.inputs, observer=events))
        await asked.wait()
        group.cancel_scope.cancel()
    assert isinstance(events.events[-1], RunFinished)
    assert events.events[-1].outcome == "cancelled"
    await engine.aclose()


async def test_a_path_that_changes_after_the_request_was_made_changes_nothing() -> None:
    class Movable:
        path = "note"

        def __fspath__(self) -> str:
            return self.path

    movable = Movable()
    request = RunRequest(prompt_id="look", inputs={"note": movable, "photo": PNG})
    movable.path = "other"
    reader = Reader(note=b"note", other=b"other")
    prepared = await Engine(CATALOG, input_reader=reader).prepare(request)
    assert prepared.messages[0].content[0] == TextPart(text="note")
    assert [path for path, _ in reader.asked] == ["note"]


async def test_an_attachment_that_is_not_given_is_named_before_any_file_is_read() -> None:
    reader = Reader(note=b"n")
    with pytest.raises(InputError, match=r"prompt 'look', messages\[0\] \(user\) attaches the input 'photo'"):
        await Engine(CATALOG, input_reader=reader).prepare(
            RunRequest(prompt_id="look", inputs={"note": PurePath("note")})
        )
    assert not reader.asked
