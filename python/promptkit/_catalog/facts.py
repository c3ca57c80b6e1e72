"""What a definition says about others, as far as it can be read: a fault in one field hides none of another."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from promptkit._catalog.lines import Path


class Text(NamedTuple):
    """The source of a template: where it stands in the definition, and its file when it has one of its own."""

    path: Path
    source: str
    file: str | None = None


class Name(NamedTuple):
    """A name in a list of a definition; not ``sound``: it has a fault of its own."""

    path: Path
    name: str
    sound: bool


class PromptFacts(NamedTuple):
    """A prompt. A list of names is None when it cannot be read; not ``complete``: a text is missing."""

    profile: str | None
    schema: str | Mapping[str, Any] | None
    texts: tuple[Text, ...]
    variables: tuple[Name, ...] | None
    inputs: tuple[Name, ...] | None
    attachments: tuple[Name, ...]
    silent: tuple[Path, ...]  # messages with neither text nor attachments
    marked: tuple[Path, ...]  # messages with a cache marker
    complete: bool


class ProfileFacts(NamedTuple):
    """A profile: the backend that it names, what it sets, and the names of settings that have faults."""

    backend: str | None
    settings: Mapping[str, Any]
    wrong: Collection[str]


class BackendFacts(NamedTuple):
    """A backend: its kind, the field of the session id, and the model of the user's own, where there is one."""

    kind: str | None
    session_parameter: str | None
    model_path: str | None


class _Table:
    """A table of a definition, of which some paths are known to be wrong."""

    def __init__(self, table: Any, wrong: Collection[Path], path: Path = ()) -> None:
        self._table = table if isinstance(table, Mapping) else {}
        self._wrong = wrong
        self._path = path

    def sound(self, path: Path) -> bool:
        return not any(found and (found[: len(path)] == path or path[: len(found)] == found) for found in self._wrong)

    def get(self, name: str) -> Any:
        """Give a value that has no fault of its own, or None."""
        return self._table.get(name) if self.sound((*self._path, name)) else None

    def text(self, name: str) -> str | None:
        value = self.get(name)
        return value if isinstance(value, str) else None

    def names(self, name: str) -> tuple[Name, ...] | None:
        """Give the names in a list, also those with faults of their own: they are declared all the same."""
        value = self._table.get(name, ())
        if not isinstance(value, list | tuple):
            return None
        path = (*self._path, name)
        return tuple(
            Name((*path, index), item, self.sound((*path, index)))
            for index, item in enumerate(value)
            if isinstance(item, str)
        )

    def tables(self, name: str) -> list[_Table]:
        value = self._table.get(name)
        items = value if isinstance(value, list | tuple) else ()
        return [_Table(item, self._wrong, (*self._path, name, index)) for index, item in enumerate(items)]

    def table(self, name: str) -> _Table:
        return _Table(self._table.get(name), self._wrong, (*self._path, name))

    @property
    def path(self) -> Path:
        return self._path


def fields_of(definition: msgspec.Struct) -> dict[str, Any]:
    """Give a definition in the form of a table, the definitions inside it too."""
    return {name: _as_table(value) for name, value in msgspec.structs.asdict(definition).items()}


def _as_table(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return fields_of(value)
    if isinstance(value, tuple) and any(isinstance(item, msgspec.Struct) for item in value):
        return tuple(_as_table(item) for item in value)
    return value


def prompt_facts(table: Mapping[str, Any], wrong: Collection[Path], files: Mapping[Path, str]) -> PromptFacts:
    """Read a prompt. ``files`` has the paths of the texts that stand in files of their own."""
    prompt = _Table(table, wrong)
    messages = prompt.tables("messages")
    contents = [((*message.path, "content"), message.text("content")) for message in messages]
    session = prompt.text("session")
    texts = [Text(path, content, files.get(path)) for path, content in contents if content is not None]
    if session is not None:
        texts.append(Text(("session",), session))
    schema = prompt.table("output").get("schema")
    return PromptFacts(
        profile=prompt.text("profile"),
        schema=schema if isinstance(schema, str | Mapping) else None,
        texts=tuple(texts),
        variables=prompt.names("variables"),
        inputs=prompt.names("inputs"),
        attachments=tuple(name for message in messages for name in message.names("attachments") or ()),
        silent=tuple(m.path for m in messages if m.text("content") == "" and m.names("attachments") == ()),
        marked=tuple(m.path for m in messages if m.get("cache_control") is not None),
        complete=prompt.sound(("messages",))
        and prompt.sound(("session",))
        and not any(content is None for _, content in contents)
        and not any(message.names("attachments") is None for message in messages),
    )


def profile_facts(table: Mapping[str, Any], wrong: Collection[Path]) -> ProfileFacts:
    """Read a profile."""
    # What is wrong inside a value, such as a field of extra, says nothing about the rest of it.
    settings = {name: value for name, value in table.items() if value is not None and (name,) not in wrong}
    return ProfileFacts(_Table(table, wrong).text("backend"), settings, {str(path[0]) for path in wrong if path})


def backend_facts(table: Mapping[str, Any], wrong: Collection[Path]) -> BackendFacts:
    """Read a backend."""
    backend = _Table(table, wrong)
    return BackendFacts(
        backend.text("kind"), backend.text("session_parameter"), backend.table("embedded").text("model_path")
    )
