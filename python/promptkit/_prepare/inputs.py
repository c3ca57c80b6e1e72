"""Step 2: which inputs are needed, and what was read for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from returns.result import Failure, Result, Success

from promptkit._prepare.media_types import IMAGES, media_type_of, names_media
from promptkit._prepare.plan import digest
from promptkit._values.frozen import FrozenDict, text_fault
from promptkit._values.messages import FilePart, ImagePart
from promptkit.errors import InputError, InvalidRequestError, listed, near

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptkit._prepare.plan import Plan
    from promptkit._prepare.selection import Selection
    from promptkit._values.requests import FileInput, Input, RunRequest
    from promptkit._values.templates import CompiledTemplate


class Inputs(NamedTuple):
    """What was read for a run, each by the name of its input.

    ``texts`` are for the templates, ``parts`` for the messages that attach them, ``hashes`` for the details.
    """

    texts: FrozenDict[str, str]
    parts: FrozenDict[str, ImagePart | FilePart]
    hashes: FrozenDict[str, str]


NO_INPUTS = Inputs(FrozenDict(), FrozenDict(), FrozenDict())


class Needed(NamedTuple):
    """The inputs of a request: inline ones, and the files to read, each by name."""

    inline: Mapping[str, bytes]
    files: Mapping[str, FileInput]


def needed(selection: Selection, request: RunRequest) -> Result[Needed, InvalidRequestError]:
    """Say what must be read. Only declared names are taken, and what is attached must be given."""
    prompt = selection.plan.prompt
    unknown = _undeclared("variable", request.variables, prompt.variables, prompt.id) or _undeclared(
        "input", request.inputs, prompt.inputs, prompt.id
    )
    if unknown is not None:
        return Failure(unknown)
    for index, message in enumerate(prompt.messages):
        for name in message.attachments:
            if name not in request.inputs:
                where = f"prompt {prompt.id!r}, messages[{index}] ({message.role})"
                remedy = "add it to the request's inputs"
                return Failure(InputError(f"{where} attaches the input {name!r}, which was not given: {remedy}"))
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
            there = f": {listed(declared)}" if declared else " none"
            return InvalidRequestError(f"prompt {prompt_id!r} declares no {kind} {name!r}: {hint}it declares{there}")
    return None


def taken(plan: Plan, request: RunRequest, contents: Mapping[str, bytes]) -> Result[Inputs, InvalidRequestError]:
    """Make texts and parts of what was read.

    A text is decoded (UTF-8, a byte-order mark dropped, nothing else touched), and its hash is that of the text. What
    a message attaches stays as it is, and its hash is that of the bytes. It is a text as well if a template names it,
    and, if it is UTF-8, where a template uses inputs without naming them (``inputs[name]``, ``inputs|items``).
    """
    if not contents:
        return Success(NO_INPUTS)
    attached = {name for message in plan.prompt.messages for name in message.attachments}
    texts: dict[str, str] = {}
    parts: dict[str, ImagePart | FilePart] = {}
    hashes: dict[str, str] = {}
    for name, given in request.inputs.items():
        content = contents[name]
        if name in attached:
            part = _part(name, given, content)
            if isinstance(part, Failure):
                return part
            parts[name] = part.unwrap()
            hashes[name] = digest(content)
        if name not in attached or _is_used(plan, name):
            text = _text(name, content)
            if isinstance(text, Failure):
                if name not in attached or _is_named(plan, name):
                    return text
                continue
            texts[name] = text.unwrap()
            hashes.setdefault(name, digest(texts[name].encode()))
    return Success(Inputs(FrozenDict(texts), FrozenDict(parts), FrozenDict(hashes)))


def _templates(plan: Plan) -> list[CompiledTemplate]:
    templates = [template for _, template in plan.templates]
    return templates if plan.session is None else [*templates, plan.session]


def _is_named(plan: Plan, name: str) -> bool:
    return any(name in template.inputs for template in _templates(plan))


def _is_used(plan: Plan, name: str) -> bool:
    return _is_named(plan, name) or any(template.all_inputs for template in _templates(plan))


def _text(name: str, content: bytes) -> Result[str, InvalidRequestError]:
    try:
        return Success(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        found = f"byte {content[error.start]:#04x} at offset {error.start}"
        remedy = "save it as UTF-8, or name it in attachments instead of a template"
        return Failure(InputError(f"input {name!r} is not UTF-8 text: {found}; {remedy}"))


def _part(name: str, given: Input, content: bytes) -> Result[ImagePart | FilePart, InvalidRequestError]:
    """Make the part that an attached input becomes. Text is text, whatever it begins with."""
    if isinstance(given, str):
        if names_media(given):
            looks = f"input {name!r} is the text {given[:80]!r}, which looks like the name of a file"
            return Failure(
                InputError(f"{looks}: give a path for a file below the inputs folder, such as Path({given[:80]!r})")
            )
        return Success(FilePart(media_type="text/plain", data=content))
    filename = None if isinstance(given, bytes) else _last_component(given)
    media_type = media_type_of(content, filename)
    if isinstance(media_type, Failure):
        return Failure(InputError(f"input {name!r} {media_type.failure()}"))
    if media_type.unwrap() in IMAGES:
        return Success(ImagePart(media_type=media_type.unwrap(), data=content))
    if filename is not None and text_fault(filename):
        shown = f"input {name!r} is the file {filename!r}, whose name is not Unicode and cannot be sent"
        return Failure(InputError(f"{shown}: rename the file"))
    return Success(FilePart(media_type=media_type.unwrap(), data=content, filename=filename))


def _last_component(path: FileInput) -> str | None:
    # Both separators on every platform, so that a request has the same hash on each.
    return path.__fspath__().replace("\\", "/").rstrip("/").rpartition("/")[2] or None
