"""What must hold between definitions: references resolve, templates and schemas compile, names agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from returns.result import Failure

from promptkit._catalog.places import Found
from promptkit._values.construction import sentence
from promptkit._values.definitions import DIALECTS, Dialect
from promptkit._values.schemas import compile_schema
from promptkit._values.template_faults import normal_form
from promptkit._values.templates import compile_template, names_of
from promptkit.errors import listed, near

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from promptkit._catalog.facts import BackendFacts, Name, ProfileFacts, PromptFacts, Text
    from promptkit._catalog.fragments import Fragments
    from promptkit._catalog.lines import Path
    from promptkit._values.template_faults import Place


class Known(NamedTuple):
    """What can be referred to, also what has faults of its own; None: it cannot be told, and nothing dangles."""

    profiles: Collection[str] | None
    backends: Mapping[str, BackendFacts] | None
    schemas: Collection[str] | None


def profile_faults(profile: ProfileFacts, known: Known) -> Iterator[Found]:
    """Find what is wrong between a profile and its backend."""
    if profile.backend is None or known.backends is None:
        return
    backend = known.backends.get(profile.backend)
    if backend is None:
        yield dangling("backend", profile.backend, known.backends, ("backend",))
        return
    extra = profile.settings.get("extra")
    if backend.session_parameter is not None and isinstance(extra, Mapping) and backend.session_parameter in extra:
        message = f"is the field that carries the session id of backend {profile.backend!r}: leave it out here."
        yield Found(("extra", backend.session_parameter), message)
    if backend.kind in DIALECTS:
        yield from _dialect_faults(profile, backend, DIALECTS[backend.kind])


def _dialect_faults(profile: ProfileFacts, backend: BackendFacts, dialect: Dialect) -> Iterator[Found]:
    """Compare what a profile sets with what its backend's kind takes."""
    settings, extra = profile.settings, profile.settings.get("extra")
    for name, why in dialect.settings.items():
        if name in settings and backend.model_path is None:  # a model of the user's own may take them all
            yield Found((name,), f"has no effect on backend {profile.backend!r}: {why}; leave it out.")
    for (name, value), why in dialect.choices.items():
        if settings.get(name) == value:
            yield Found((name,), f'is "{value}", which backend {profile.backend!r} does not have: {why}.')
    for name, why in dialect.needs.items():
        if name not in settings and name not in profile.wrong:
            yield Found((name,), f"is missing: backend {profile.backend!r} needs it, because {why}.")
    for name, remedy in dialect.taken.items():
        if isinstance(extra, Mapping) and name in extra:
            yield Found(("extra", name), f"is set by promptkit for backend {profile.backend!r}: {remedy}.")


def schema_faults(schema: Any) -> Iterator[Found]:
    """Find all that makes a schema unusable; a path is that of its JSON Pointer."""
    compiled = compile_schema(schema)
    for fault in compiled.failure() if isinstance(compiled, Failure) else ():
        yield Found(_followed(schema, fault.pointer), sentence(f"is not a usable JSON Schema: {fault.message}"))


def _followed(document: Any, pointer: str) -> Path:
    path: Path = ()
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(document, list | tuple) and name.isdecimal() and int(name) < len(document):
            path, document = (*path, int(name)), document[int(name)]
        elif isinstance(document, Mapping) and name in document:
            path, document = (*path, name), document[name]
        else:
            break
    return path


def prompt_faults(prompt: PromptFacts, known: Known, fragments: Fragments) -> Iterator[Found]:
    """Find what is wrong between a prompt and what it names, and inside its templates."""
    if prompt.profile is not None and known.profiles is not None and prompt.profile not in known.profiles:
        yield dangling("profile", prompt.profile, known.profiles, ("profile",))
    yield from _contract_faults(prompt.schema, known)
    for path in sorted(set(prompt.silent) & set(prompt.marked)):
        yield Found((*path, "cache_control"), "marks a message without text, which backends refuse: leave it out.")
    if any(text.path == ("session",) and not text.source for text in prompt.texts):
        yield Found(("session",), "is empty: leave it out, and there is no session id.")
    yield from _attachment_faults(prompt)
    yield from _name_faults(prompt, fragments)


def dangling(kind: str, name: str, known: Collection[str], path: Path) -> Found:
    """Find a reference to something that does not exist."""
    message = (
        f"there is no {kind} {name!r}; the {kind}s are: {listed(known)}." if known else f"there is no {kind} {name!r}."
    )
    return Found(path, message, near(name, known))


def _contract_faults(schema: str | Mapping[str, Any] | None, known: Known) -> Iterator[Found]:
    path = ("output", "schema")
    if isinstance(schema, str):
        if known.schemas is not None and schema not in known.schemas:
            yield dangling("schema", schema, known.schemas, path)
    elif schema is not None:
        for found in schema_faults(schema):
            yield found._replace(path=(*path, *found.path))


def _attachment_faults(prompt: PromptFacts) -> Iterator[Found]:
    declared = None if prompt.inputs is None else {each.name for each in prompt.inputs}
    seen: set[tuple[Path, str]] = set()
    for path, name, _ in prompt.attachments:
        if declared is not None and name not in declared:
            message = f"attaches the input {name!r}, which the prompt does not declare: add it to inputs."
            yield Found(path, message, near(name, declared))
        if (path[:-1], name) in seen:
            yield Found(path, f"{name!r} is attached twice to one message.")
        seen.add((path[:-1], name))


def _name_faults(prompt: PromptFacts, fragments: Fragments) -> Iterator[Found]:
    """Compare the names that are declared with those that the templates use."""
    variables: set[str] = set()
    inputs = {each.name for each in prompt.attachments}
    whole = prompt.complete and fragments.complete
    for text in prompt.texts:
        compiled = compile_template(text.source, fragments.texts)
        if isinstance(compiled, Failure):
            whole = False
            for fault in compiled.failure():
                message = sentence(fault.message)
                yield _in_text(text, message, fault.line, fragments, fragment=fault.fragment, itself=True)
            names = names_of(text.source, fragments.texts)
        else:
            names = compiled.unwrap().names
        if names is None:
            continue
        yield from _undeclared("variable", names.variables, prompt.variables, text, fragments)
        yield from _undeclared("input", names.inputs, prompt.inputs, text, fragments)
        variables |= names.variables.keys() | names.optional
        inputs |= names.inputs.keys()
        if names.all_inputs:  # used by a name that is only known when it is rendered
            inputs |= {each.name for each in prompt.inputs or ()}
    if whole:
        yield from _unused("variable", prompt.variables, variables)
        yield from _unused("input", prompt.inputs, inputs)


def _undeclared(
    kind: str, used: Mapping[str, Place], names: Collection[Name] | None, text: Text, fragments: Fragments
) -> Iterator[Found]:
    if names is None:
        return
    declared = {normal_form(each.name) for each in names}  # a name in another form has a fault of its own
    for name in sorted(used.keys() - declared):
        message = f"uses the {kind} {name!r}, which the prompt does not declare: add it to {kind}s."
        found = _in_text(text, message, used[name].line, fragments, fragment=used[name].fragment)
        yield found._replace(suggestion=near(name, declared))


def _in_text(
    text: Text,
    message: str,
    line: int | None,
    fragments: Fragments,
    *,
    fragment: str | None = None,
    itself: bool = False,
) -> Found:
    """Find something at a line of a text or of a fragment; ``itself``: whoever uses it."""
    file = text.file if fragment is None else fragments.files.get(fragment)
    if file is None and "\n" not in text.source:
        line = None
    return Found(() if itself and file is not None else text.path, message, line=line, file=file)


def _unused(kind: str, declared: Collection[Name] | None, used: Collection[str]) -> Iterator[Found]:
    names = declared or ()
    user = "template or attachment" if kind == "input" else "template"
    for path, name, sound in names:
        if name not in used and sound:
            message = f"declares the {kind} {name!r}, which no {user} of the prompt uses."
            yield Found(path, message, near(name, set(used) - {each.name for each in names}))
