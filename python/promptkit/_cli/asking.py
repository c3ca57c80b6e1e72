"""From what was typed to a request: the same for render, run and chat."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from returns.result import Failure, Result, Success

from promptkit import BlockingEngine, Catalog, Message, OutputContract, RunRequest
from promptkit._cli.arguments import Assignment, File, Text, as_text, inline, missing, read_assignments, readable
from promptkit._cli.exits import FailedError, RefusedError, WrongUseError
from promptkit._cli.user_files import ReadFiles, read_file, read_stdin, shown_path, text_of
from promptkit._values.visible import visible
from promptkit.errors import InputError, InvalidRequestError, PromptKitError, TemplateError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from promptkit import Input, Observer, PromptDefinition


class Typed(NamedTuple):
    """What was typed about a request, as it was typed."""

    prompt_id: str
    variables: Sequence[str] = ()
    json_variables: Sequence[str] = ()
    inputs: Sequence[str] = ()
    messages: Sequence[str] = ()
    profile: str | None = None
    session_id: str | None = None
    output: str | None = None
    schema: str | None = None
    max_repairs: int | None = None


def typed_of(  # noqa: PLR0917  # in the order of the fields
    prompt_id: str,
    variables: Sequence[str] | None,
    json_variables: Sequence[str] | None,
    inputs: Sequence[str] | None,
    messages: Sequence[str] | None,
    profile: str | None,
    session_id: str | None,
    output: str | None,
    schema: str | None,
    max_repairs: int | None,
) -> Typed:
    """Gather the options of a command; None is an option that was not typed."""
    several = (variables or (), json_variables or (), inputs or (), messages or ())
    return Typed(prompt_id, *several, profile, session_id, output, schema, max_repairs)


class Asked(NamedTuple):
    """A request, an engine that can read its inputs, and what to type for the names that were not given.

    ``attached`` are the inputs that the prompt cannot do without, ``files`` what the engine reads inputs from.
    """

    request: RunRequest
    engine: BlockingEngine
    missing: tuple[str, ...]
    attached: tuple[str, ...]
    files: ReadFiles


def decoded(typed: Typed, encoding: str) -> Typed:
    """Give what was typed with its ids and texts ``as_text``; what may name files is left to be split first."""

    def text(given: str | None) -> str | None:
        return None if given is None else as_text(given, encoding)

    return typed._replace(
        prompt_id=as_text(typed.prompt_id, encoding),
        profile=text(typed.profile),
        session_id=text(typed.session_id),
        schema=text(typed.schema),
        messages=tuple(as_text(each, encoding) for each in typed.messages),
    )


def all_text(typed: Typed, found: Sequence[Assignment]) -> Result[None, str]:
    """Say whether all that was typed is text, but for the paths of files, which can be any bytes."""
    given = [
        ("ID", typed.prompt_id),
        ("--profile", typed.profile),
        ("--schema", typed.schema),
        ("--session-id", typed.session_id),
        *(("--message", each) for each in typed.messages),
        *((f"{each.option} {visible(each.name)}", each.name) for each in found),
        *((f"{each.option} {each.name}", each.source.text) for each in found if isinstance(each.source, Text)),
    ]
    for what, text in given:
        if text is not None and any("\ud800" <= character <= "\udfff" for character in text):
            return Failure(f"{what}: is not UTF-8 text")
    return Success(None)


def contract_of(typed: Typed, prompts_own: OutputContract) -> Result[OutputContract | None, str]:
    """Give the contract that the options ask for; None when they leave the prompt's own as it is."""
    kind, schema, repairs = typed.output, typed.schema, typed.max_repairs
    if kind not in {None, "text", "json"}:
        return Failure(f"--output {kind!r} is not there: type --output text or --output json, or --schema ID")
    if schema is not None:
        if kind == "text":
            return Failure("--schema is given, and --output is text: leave one of them out")
        return Success(OutputContract(kind="json_schema", schema=schema, max_repairs=repairs or 0))
    if kind is None and repairs is None:
        return Success(None)
    if kind == "text" or (kind is None and prompts_own.kind == "text"):
        if repairs:
            return Failure("--max-repairs is given, and a text is never invalid: add --output json or --schema ID")
        return Success(OutputContract())
    if kind == "json":
        return Success(OutputContract(kind="json", max_repairs=repairs or 0))
    return Success(msgspec.structs.replace(prompts_own, max_repairs=repairs or 0))


def asked(catalog: Catalog, typed: Typed, observer: Observer | None = None, *, capture: bool = False) -> Asked:
    """Make the request. Reads the files and the stream that are named in it.

    Raises WrongUseError and FailedError; what the engine itself has to say about a request is said by ``prepare``.
    """
    encoding = sys.getfilesystemencoding()
    typed = decoded(typed, encoding)
    read = or_wrong_use(read_assignments(typed.variables, typed.json_variables, typed.inputs))
    found = tuple(readable(each, encoding) for each in read)
    or_wrong_use(all_text(typed, found))
    prompt = catalog.prompts.get(typed.prompt_id)
    inputs, contents = _inputs(found, prompt)
    request = RunRequest(
        prompt_id=typed.prompt_id,
        variables={each.name: _variable(each) for each in found if each.option != "--input"} if prompt else {},
        inputs=inputs,
        profile=typed.profile,
        output=None if prompt is None else or_wrong_use(contract_of(typed, prompt.output)),
        session_id=typed.session_id,
        appended_messages=tuple(Message(role="user", content=text) for text in typed.messages),
        observer=observer,
        capture_exchange=capture,
    )
    files = ReadFiles(contents)
    engine = BlockingEngine(catalog, input_reader=files)
    if prompt is None:
        return Asked(request, engine, (), (), files)
    attached = tuple(name for message in prompt.messages for name in message.attachments)
    return Asked(request, engine, missing(prompt.variables, prompt.inputs, found), attached, files)


def or_wrong_use(read: Result[Any, str]) -> Any:
    """Give what was read. Raises WrongUseError with what to type."""
    if isinstance(read, Failure):
        raise WrongUseError(read.failure())
    return read.unwrap()


def hint_of(error: PromptKitError, left: Sequence[str], attached: Sequence[str] = ()) -> str | None:
    """Say what was not given, if that explains the error. ``attached`` are the inputs that have to be given."""
    unattached = [each for each in left if each in {f"--input {name}=FILE" for name in attached}]
    explains = bool(unattached) if isinstance(error, InputError) else isinstance(error, TemplateError)
    return f"not given: {' '.join(left)}" if explains and left else None


@contextlib.contextmanager
def refusals(ask: Asked) -> Iterator[None]:
    """Add to what the engine refuses what there is to type. Raises RefusedError."""
    try:
        yield
    except InvalidRequestError as error:
        hint = hint_of(error, ask.missing, ask.attached)
        if hint is None:
            raise
        raise RefusedError(error, hint) from None


def _variable(each: Assignment) -> Any:
    what = f"{each.option} {each.name}"
    match each.source:
        case Text(text):
            pass
        case File(path):
            text = text_of(read_file(path, what), f"{what}: {shown_path(path)}")
        case _:
            text = text_of(read_stdin(what), f"{what}: standard input")
    if each.option == "--var":
        return text
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        msg = f"{what} is not JSON ({error}): type a text in quotes of JSON, or give it with --var {each.name}=TEXT"
        raise (WrongUseError if isinstance(each.source, Text) else FailedError)(msg) from None


def _inputs(
    found: Sequence[Assignment], prompt: PromptDefinition | None
) -> tuple[Mapping[str, Input], Mapping[str, bytes]]:
    """Read the inputs. One that the prompt does not declare is not read: the engine refuses it by its name."""
    inputs: dict[str, Input] = {}
    contents: dict[str, bytes] = {}
    declared = () if prompt is None else prompt.inputs
    for each in found:
        if each.option != "--input":
            continue
        what = f"--input {each.name}"
        match each.source:
            case _ if each.name not in declared:
                inputs[each.name] = ""
            case File(path):
                content = read_file(path, what)
                # A pipe that has the name of a file, such as <(command) of a shell, has a name that says nothing.
                inputs[each.name] = Path(path) if Path(path).is_file() else inline(content)
                contents[str(Path(path))] = content
            case _:
                inputs[each.name] = inline(read_stdin(what))
    return inputs, contents
