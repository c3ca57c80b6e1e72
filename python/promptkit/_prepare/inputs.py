"""Step 2: which inputs are needed, and what was read for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from returns.result import Failure, Result, Success

from promptkit._prepare.plan import digest
from promptkit._values.frozen import FrozenDict
from promptkit.errors import InputError, InvalidRequestError, listed, near

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptkit._prepare.selection import Selection
    from promptkit._values.requests import FileInput, RunRequest


class Inputs(NamedTuple):
    """The texts of a run's inputs by name, and the hash of each."""

    texts: FrozenDict[str, str]
    hashes: FrozenDict[str, str]


class Needed(NamedTuple):
    """The inputs of a request: inline ones, and the files to read, each by name."""

    inline: Mapping[str, bytes]
    files: Mapping[str, FileInput]


def needed(selection: Selection, request: RunRequest) -> Result[Needed, InvalidRequestError]:
    """Say what must be read. Only declared names are taken."""
    prompt = selection.plan.prompt
    unknown = _undeclared("variable", request.variables, prompt.variables, prompt.id) or _undeclared(
        "input", request.inputs, prompt.inputs, prompt.id
    )
    if unknown is not None:
        return Failure(unknown)
    files = {name: given for name, given in request.inputs.items() if not isinstance(given, str | bytes)}
    inline = {
        name: given.encode() if isinstance(given, str) else given
        for name, given in request.inputs.items()
        if isinstance(given, str | bytes)
    }
    return Success(Needed(inline, files))


def _undeclared(
    kind: str, given: Mapping[str, object], declared: tuple[str, ...], prompt_id: str
) -> InvalidRequestError | None:
    for name in given:
        if name not in declared:
            suggestion = near(name, declared)
            hint = f"did you mean {suggestion!r}? " if suggestion else ""
            return InvalidRequestError(
                f"prompt {prompt_id!r} declares no {kind} {name!r}: {hint}it declares: {listed(declared)}"
            )
    return None


def as_texts(contents: Mapping[str, bytes]) -> Result[Inputs, InvalidRequestError]:
    """Decode what was read: UTF-8, a byte-order mark dropped, nothing else touched."""
    texts: dict[str, str] = {}
    hashes: dict[str, str] = {}
    for name, content in contents.items():
        try:
            texts[name] = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            found = f"byte {content[error.start]:#04x} at offset {error.start}"
            return Failure(InputError(f"input {name!r} is not UTF-8 text: {found}"))
        hashes[name] = digest(texts[name].encode())
    return Success(Inputs(FrozenDict(texts), FrozenDict(hashes)))
