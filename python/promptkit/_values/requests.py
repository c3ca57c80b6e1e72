"""What is asked: one run of a configured prompt."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, NoReturn

from promptkit._values.construction import Checked
from promptkit._values.contracts import OutputContract
from promptkit._values.events import Observer
from promptkit._values.exchange import Exchange, read_exchange
from promptkit._values.frozen import FrozenDict, UnfitError, frozen_json, frozen_mapping
from promptkit._values.json import JSON
from promptkit._values.messages import Message
from promptkit._values.secret import Secret
from promptkit.errors import with_article

if TYPE_CHECKING:
    from promptkit._values.construction import Reader

FileInput = PathLike[str]
Input = str | bytes | FileInput
"""An input: inline text, inline data, or (a path object) a file below the engine's inputs folder."""

NO_VARIABLES: FrozenDict[str, JSON] = FrozenDict()
NO_INPUTS: FrozenDict[str, Input] = FrozenDict()


class FilePath:
    """The text of a path, kept in place of a path object that could change."""

    __slots__ = ("_text",)
    _text: str

    def __init__(self, text: str) -> None:
        object.__setattr__(self, "_text", text)

    def __fspath__(self) -> str:
        return self._text

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"FilePath({self._text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FilePath) and other._text == self._text

    def __hash__(self) -> int:
        return hash((FilePath, self._text))

    def __reduce__(self) -> tuple[type[FilePath], tuple[str]]:
        return (FilePath, (self._text,))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        msg = "the path of an input does not change"
        raise AttributeError(msg)


@cache
def _immutable_paths() -> frozenset[type]:
    from pathlib import PosixPath, PurePosixPath, PureWindowsPath, WindowsPath  # is there with the first path

    return frozenset({PurePosixPath, PureWindowsPath, PosixPath, WindowsPath})


def _read_input(value: object, path: str, _depth: int) -> Input:
    if isinstance(value, str):
        text: str = frozen_json(value, path)
        return text
    if isinstance(value, bytes | bytearray | memoryview):
        return _read_data(value, path)
    if isinstance(value, PathLike):
        return value if type(value) in _immutable_paths() else _read_path(value, path)
    kind = with_article(type(value).__name__)
    msg = f"is {kind}; an input is text, bytes, or a path object (pathlib.Path) for a file"
    raise UnfitError(msg, path)


def _read_data(value: bytes | bytearray | memoryview, path: str) -> bytes:
    try:
        return value if type(value) is bytes else memoryview(value).tobytes()
    except ValueError:
        msg = "is a memoryview that was released"
        raise UnfitError(msg, path) from None


def _read_path(value: PathLike[Any], path: str) -> FileInput:
    try:
        text: object = fspath(value)
    except Exception as error:  # noqa: BLE001  # it is the caller's own method, and can raise anything
        kind = with_article(type(value).__name__)
        msg = f"is {kind} whose __fspath__ gives no path: {type(error).__name__}: {error}"[:300]
        raise UnfitError(msg, path) from None
    if not isinstance(text, str):
        msg = "is a path of bytes; give a path of text"
        raise UnfitError(msg, path)
    return FilePath(str.__str__(text))


def _read_inputs(value: Any) -> Any:
    if not isinstance(value, Mapping):
        msg = f"Expected a mapping, got `{type(value).__name__}`"
        raise UnfitError(msg)
    return frozen_mapping(value, item=_read_input)


def _read_exchange(value: Any) -> Any:
    return None if value is None else read_exchange(value)


def _read_credential(value: Any) -> Any:
    if value is None or isinstance(value, Secret):
        return value
    msg = f"Expected a Secret, got `{type(value).__name__}`: wrap the key, Secret(key)"
    raise UnfitError(msg)


class RunRequest(Checked, frozen=True, kw_only=True):
    """One run: which prompt, with which values, continuing what.

    Raises InvalidRequestError, naming the field, for values of the wrong kind.

    Attributes:
        prompt_id: the id of the prompt; below the namespace, if it is asked of a view.
        variables: JSON values for the templates, by name.
        inputs: the declared inputs, by name. Text and bytes are the content itself; a path object (``pathlib.Path``) is
            a file below the inputs folder, kept by the text of its path.
        profile: the id of a profile, in place of the prompt's; None: the prompt's.
        output: a contract, which replaces the prompt's completely; None: the prompt's.
        session_id: a session id, in place of what the prompt's template gives; None: that.
        credential: the key for this run; None: the backend's environment variable.
        appended_messages: messages that follow the prompt's own.
        observer: is called with the run's events.
        capture_exchange: whether the result carries its exchange.
        continue_from: an exchange whose history comes before this prompt's messages; it implies capture. Nothing but
            that history crosses from the run that it continues.
    """

    prompt_id: str
    variables: Mapping[str, JSON] = NO_VARIABLES
    inputs: Mapping[str, Input] = NO_INPUTS
    profile: str | None = None
    output: OutputContract | None = None
    session_id: str | None = None
    credential: Secret | None = None
    appended_messages: tuple[Message, ...] = ()
    observer: Observer | None = None
    capture_exchange: bool = False
    continue_from: Exchange | None = None

    @classmethod
    def _special_fields(cls) -> Mapping[str, Reader]:
        """Name the fields that an annotation cannot describe."""
        return {"inputs": _read_inputs, "continue_from": _read_exchange, "credential": _read_credential}
