"""Requests: what is given as an input is kept as it was at that moment."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Iterator, Mapping
from functools import partial
from os import fspath
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit import ConversationTurn, CoordinateRequest, InvalidRequestError, RunRequest
from promptkit._history import Turn
from promptkit._values.exchange import exchange_of


class Movable:
    """A path object that changes, or gives what it is told to."""

    def __init__(self, path: Any) -> None:
        self.path = path

    def __fspath__(self) -> Any:
        if isinstance(self.path, BaseException):
            raise self.path
        return self.path


class OwnPath(type(Path())):  # type: ignore[misc]  # PosixPath or WindowsPath
    """A subclass of a path, which may do anything."""


def taken(value: Any) -> Any:
    return RunRequest(prompt_id="p", inputs={"doc": value}).inputs["doc"]


@pytest.mark.parametrize("path", [Path("a/b"), PurePosixPath("a/b"), PureWindowsPath("a\\b")])
def test_a_path_of_pathlib_is_kept(path: Any) -> None:
    assert taken(path) is path


@given(st.text(st.characters()))
def test_another_path_object_is_kept_by_its_exact_text(text: str) -> None:
    movable = Movable(text)
    kept = taken(movable)
    movable.path = "elsewhere"
    assert fspath(kept) == str(kept) == text
    assert kept == taken(Movable(text)) == copy.deepcopy(kept) == pickle.loads(pickle.dumps(kept))  # noqa: S301  # made here
    assert hash(kept) == hash(taken(Movable(text)))
    assert kept != text
    with pytest.raises(AttributeError, match="does not change"):
        kept._text = "elsewhere"  # noqa: SLF001  # what must not be done


def test_a_subclass_of_a_path_is_kept_by_its_text_too() -> None:
    assert type(taken(OwnPath("a/b"))) is not OwnPath
    assert fspath(taken(OwnPath("a/b"))) == "a/b"


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        (ZeroDivisionError("no path today"), "whose __fspath__ gives no path: ZeroDivisionError: no path today"),
        (5, "whose __fspath__ gives no path: TypeError"),
        (None, "whose __fspath__ gives no path: TypeError"),
        (b"a.txt", "is a path of bytes; give a path of text"),
    ],
)
def test_a_path_object_that_gives_no_path_names_the_input(path: Any, sentence: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        taken(Movable(path))
    assert str(caught.value).startswith("RunRequest.inputs.doc: ")
    assert sentence in str(caught.value)
    assert caught.value.__cause__ is None


def test_data_is_kept_as_it_was() -> None:
    buffer = bytearray(b"before")
    for given_data in (buffer, memoryview(buffer), memoryview(buffer)[::-1]):
        kept = taken(given_data)
        before = bytes(given_data)
        buffer[0] = buffer[0] ^ 1
        assert type(kept) is bytes
        assert kept == before != bytes(given_data)


def test_a_memory_that_was_released_is_refused() -> None:
    view = memoryview(b"x")
    view.release()
    with pytest.raises(InvalidRequestError, match=r"RunRequest\.inputs\.doc: is a memoryview that was released"):
        taken(view)


def test_a_text_of_another_class_becomes_plain() -> None:
    class Marked(str):
        __slots__ = ()

        def encode(self, *_: object) -> bytes:
            return b"other"

    assert type(taken(Marked("x"))) is str


def test_a_mapping_that_cannot_be_read_is_refused_by_its_field() -> None:
    class Broken(dict[str, Any]):
        def items(self) -> Any:
            raise OSError

    class Foreign(Mapping[str, Any]):
        def __getitem__(self, key: str) -> Any:
            raise KeyError(key)

        def __iter__(self) -> Iterator[str]:
            return iter(["a"])

        def __len__(self) -> int:
            return 1

    with pytest.raises(InvalidRequestError, match=r"RunRequest\.variables: is a Foreign that cannot be read: KeyError"):
        RunRequest(prompt_id="p", variables=Foreign())
    with pytest.raises(
        InvalidRequestError, match=r"RunRequest\.variables\.a: is a Broken that cannot be read: OSError"
    ):
        RunRequest(prompt_id="p", variables={"a": Broken(b=1)})


# ---------------------------------------------------------------- CoordinateRequest


def test_the_signature_of_a_coordinate_request_is_that_of_its_fields() -> None:
    assert list(inspect.signature(CoordinateRequest).parameters) == ["start", "additional_turns", "next", "observer"]


class Interview:
    def next(self, turn: ConversationTurn) -> None:
        """Stop."""

    def with_more(self, turn: ConversationTurn, more: int = 0) -> None:
        """Stop."""

    def without(self) -> None:
        """Take no turn."""

    @staticmethod
    def free(turn: ConversationTurn) -> None:
        """Stop."""


def generator(_: ConversationTurn) -> Any:
    yield RunRequest(prompt_id="p")


async def asynchronous(_: ConversationTurn) -> Any:
    yield RunRequest(prompt_id="p")


async def coroutine(_: ConversationTurn) -> None:
    """Stop."""


TURN: Any = None
START = exchange_of(Turn(None, [("user", "x", None)]).capture("r", "x"))
A_FUNCTION = "Expected a function of a ConversationTurn, got"
NEEDS_TWO = f"{A_FUNCTION} one that needs 2 arguments, and is called with one"
YIELDS = "return the request instead of yielding it"


@pytest.mark.parametrize(
    ("choose", "says"),
    [
        (Interview(), f"{A_FUNCTION} `Interview`: give its .next"),
        (Interview.next, f"{NEEDS_TWO}: give next of an instance of Interview, not of the class"),
        (Interview().without, f"{A_FUNCTION} one that takes none, and is called with one"),
        (lambda _, __: None, NEEDS_TWO),
        (lambda: None, f"{A_FUNCTION} one that takes none, and is called with one"),
        (generator, f"Expected a plain or an async function, got a generator function: {YIELDS}"),
        (asynchronous, f"Expected a plain or an async function, got an async generator function: {YIELDS}"),
        (generator(TURN), f"{A_FUNCTION} `generator`: give a function, which is called anew each turn: {YIELDS}"),
    ],
)
def test_what_cannot_be_called_with_a_turn_is_refused_before_anything_runs(choose: Any, says: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        CoordinateRequest(start=START, additional_turns=1, next=choose)
    assert str(refused.value) == f"CoordinateRequest.next: {says}"


@pytest.mark.parametrize(
    "choose",
    [
        Interview().next,
        Interview().with_more,
        Interview.without,
        Interview.free,
        Interview().free,
        coroutine,
        lambda *_: None,
        lambda _, more=1: None,
        partial(Interview.next, Interview()),
        len,
    ],
)
def test_what_can_be_called_with_a_turn_is_taken(choose: Any) -> None:
    assert CoordinateRequest(start=START, additional_turns=1, next=choose).next is choose


def test_a_call_that_was_not_awaited_is_told_to_be() -> None:
    called = coroutine(TURN)
    with pytest.raises(InvalidRequestError, match=r"got `coroutine`: await it, and take \.exchange of a result with"):
        RunRequest(prompt_id="p", continue_from=called)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError) as refused:
        CoordinateRequest(start=called, additional_turns=1, next=called)  # type: ignore[arg-type]
    assert str(refused.value) == (
        "CoordinateRequest.start: Expected an Exchange, got `coroutine`: await it, and take .exchange of a result with "
        f"capture_exchange=True; CoordinateRequest.next: {A_FUNCTION} `coroutine`: "
        "give the async function itself, without calling it"
    )
    called.close()
