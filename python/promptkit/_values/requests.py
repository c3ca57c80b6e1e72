"""What is asked: one run of a configured prompt."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from promptkit._values.construction import Checked
from promptkit._values.contracts import OutputContract
from promptkit._values.events import Observer
from promptkit._values.exchange import Exchange
from promptkit._values.frozen import FrozenDict, UnfitError, frozen_mapping, text_fault
from promptkit._values.json import JSON
from promptkit._values.messages import Message
from promptkit._values.secret import Secret

if TYPE_CHECKING:
    from promptkit._values.construction import Reader

FileInput = PathLike[str]
Input = str | bytes | FileInput
"""An input: inline text, inline data, or (a path object) a file below the engine's inputs folder."""

NO_VARIABLES: FrozenDict[str, JSON] = FrozenDict()
NO_INPUTS: FrozenDict[str, Input] = FrozenDict()


def _read_input(value: object, path: str, _depth: int) -> Input:
    if isinstance(value, str):
        fault = text_fault(value)
        if fault:
            raise UnfitError(fault, path)
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, PathLike):
        if isinstance(fspath(value), str):
            return value
        msg = "is a path of bytes; give a path of text"
        raise UnfitError(msg, path)
    msg = f"is a {type(value).__name__}; an input is text, bytes, or a path object (pathlib.Path) for a file"
    raise UnfitError(msg, path)


def _read_inputs(value: Any) -> Any:
    if not isinstance(value, Mapping):
        msg = f"Expected a mapping, got `{type(value).__name__}`"
        raise UnfitError(msg)
    return frozen_mapping(value, item=_read_input)


def _read_exchange(value: Any) -> Any:
    if value is None or isinstance(value, Exchange):
        return value
    msg = f"Expected an Exchange (RunResult.exchange), got `{type(value).__name__}`"
    raise UnfitError(msg)


def _read_credential(value: Any) -> Any:
    if value is None or isinstance(value, Secret):
        return value
    msg = f"Expected a Secret, got `{type(value).__name__}`: wrap the key, Secret(key)"
    raise UnfitError(msg)


class RunRequest(Checked, frozen=True, kw_only=True):
    """One run: which prompt, with which values, continuing what.

    ``variables`` are JSON values for the templates. ``inputs`` are the declared inputs: text and bytes are the content
    itself, a path object (``pathlib.Path``) is a file below the inputs folder. ``profile``, ``output`` and
    ``session_id`` replace what the prompt says; the contract is replaced completely. ``appended_messages`` follow the
    prompt's own. ``observer`` receives the run's events. ``capture_exchange`` makes the result carry its exchange;
    ``continue_from`` puts an exchange's history before this prompt's messages and implies capture. Nothing but that
    history crosses from the run it continues.

    Raises InvalidRequestError, naming the field, for values of the wrong kind.
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
    def special_fields(cls) -> Mapping[str, Reader]:
        """Name the fields that an annotation cannot describe."""
        return {"inputs": _read_inputs, "continue_from": _read_exchange, "credential": _read_credential}
