"""What must hold between definitions: references resolve, templates and schemas compile, names agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from returns.result import Failure

from promptkit._values.schemas import compile_schema
from promptkit._values.templates import compile_template
from promptkit.errors import Fault, listed, near

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterator, Mapping

    from promptkit._values.catalog import Definitions
    from promptkit._values.contracts import OutputContract
    from promptkit._values.definitions import PromptDefinition


class Unread(NamedTuple):
    """The ids of what is there and has faults of its own: a reference to it does not dangle."""

    profiles: Container[str] = ()
    backends: Container[str] = ()
    schemas: Container[str] = ()


class Everything:
    """Contains whatever is asked for."""

    def __contains__(self, _: object) -> bool:
        return True


ALL_READ = Unread()


def inconsistencies(definitions: Definitions, files: Mapping[str, str], unread: Unread = ALL_READ) -> tuple[Fault, ...]:
    """Find every fault between definitions. ``files`` tells the file of a key such as "prompts.ID", where known."""
    return (
        *_profile_faults(definitions, files, unread),
        *_schema_faults(definitions, files),
        *(
            fault
            for identifier, prompt in definitions.prompts.items()
            for fault in _prompt_faults(prompt, definitions, files.get(f"prompts.{identifier}"), unread)
        ),
    )


def dangling(kind: str, name: str, known: Collection[str], *, key: str, file: str | None) -> Fault:
    """Make the fault for a reference to something that does not exist."""
    message = (
        f"there is no {kind} {name!r}; the {kind}s are: {listed(known)}." if known else f"there is no {kind} {name!r}."
    )
    return Fault(message=message, key=key, file=file, suggestion=near(name, known))


def _profile_faults(definitions: Definitions, files: Mapping[str, str], unread: Unread) -> Iterator[Fault]:
    for identifier, profile in definitions.profiles.items():
        if profile.backend not in definitions.backends and profile.backend not in unread.backends:
            key, file = f"profiles.{identifier}.backend", files.get(f"profiles.{identifier}")
            yield dangling("backend", profile.backend, definitions.backends, key=key, file=file)
        backend = definitions.backends.get(profile.backend)
        if backend is not None and backend.session_parameter in profile.extra:
            key, file = f"profiles.{identifier}.extra.{backend.session_parameter}", files.get(f"profiles.{identifier}")
            message = f"is the field that carries the session id of backend {backend.id!r}: leave it out here."
            yield Fault(message=message, key=key, file=file)


def _schema_faults(definitions: Definitions, files: Mapping[str, str]) -> Iterator[Fault]:
    for identifier, schema in definitions.schemas.items():
        yield from _uncompilable(schema, f"schemas.{identifier}", files.get(f"schemas.{identifier}"))


def _uncompilable(schema: object, key: str, file: str | None) -> Iterator[Fault]:
    compiled = compile_schema(schema)
    if isinstance(compiled, Failure):
        yield Fault(message=f"is not a usable JSON Schema: {compiled.failure()}", key=key, file=file)


def _prompt_faults(
    prompt: PromptDefinition, definitions: Definitions, file: str | None, unread: Unread
) -> Iterator[Fault]:
    where = f"prompts.{prompt.id}"
    profile = prompt.profile
    if profile is not None and profile not in definitions.profiles and profile not in unread.profiles:
        yield dangling("profile", profile, definitions.profiles, key=f"{where}.profile", file=file)
    yield from _contract_faults(prompt.output, definitions, f"{where}.output.schema", file, unread)
    used_variables: set[str] = set()
    used_inputs: set[str] = set()
    whole = True
    for index, message in enumerate(prompt.messages):
        key = f"{where}.messages[{index}].attachments"
        yield from _undeclared("input", message.attachments, prompt.inputs, key=key, file=file)
        used_inputs |= set(message.attachments)
    sources = [(f"{where}.messages[{index}].content", message.content) for index, message in enumerate(prompt.messages)]
    if prompt.session is not None:
        sources.append((f"{where}.session", prompt.session))
    for key, source in sources:
        compiled = compile_template(source)
        if isinstance(compiled, Failure):
            whole = False
            fault = compiled.failure()
            line = "" if fault.line is None else f" (line {fault.line} of the template)"
            yield Fault(message=fault.message + line, key=key, file=file)
            continue
        template = compiled.unwrap()
        yield from _undeclared("variable", template.variables, prompt.variables, key=key, file=file)
        yield from _undeclared("input", template.inputs, prompt.inputs, key=key, file=file)
        used_variables |= template.variables | template.functions
        used_inputs.update(prompt.inputs if template.all_inputs else template.inputs)
    if whole:
        yield from _unused("variable", prompt.variables, used_variables, key=f"{where}.variables", file=file)
        yield from _unused("input", prompt.inputs, used_inputs, key=f"{where}.inputs", file=file)


def _contract_faults(
    contract: OutputContract, definitions: Definitions, key: str, file: str | None, unread: Unread
) -> Iterator[Fault]:
    if isinstance(contract.schema, str):
        if contract.schema not in definitions.schemas and contract.schema not in unread.schemas:
            yield dangling("schema", contract.schema, definitions.schemas, key=key, file=file)
    elif contract.schema is not None:
        yield from _uncompilable(contract.schema, key, file)


def _undeclared(
    kind: str, used: Collection[str], declared: Collection[str], *, key: str, file: str | None
) -> Iterator[Fault]:
    for name in sorted(set(used) - set(declared)):
        message = f"uses the {kind} {name!r}, which the prompt does not declare: add it to {kind}s."
        yield Fault(message=message, key=key, file=file, suggestion=near(name, declared))


def _unused(
    kind: str, declared: Collection[str], used: Collection[str], *, key: str, file: str | None
) -> Iterator[Fault]:
    for name in declared:
        if name not in used:
            message = f"declares the {kind} {name!r}, which no template of the prompt uses."
            yield Fault(message=message, key=key, file=file, suggestion=near(name, set(used) - set(declared)))
