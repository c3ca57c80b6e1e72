"""promptkit.toml: backends, profiles, and the folders of the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import fields
from returns.result import Failure, Result

from promptkit._catalog.facts import BackendFacts, ProfileFacts, backend_facts, profile_facts
from promptkit._catalog.lines import Lines
from promptkit._catalog.places import Found, in_file, written
from promptkit._catalog.tables import read_table
from promptkit._values.definitions import Backend, Profile
from promptkit.errors import Fault, near

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from promptkit._catalog.files import Document

ROOT_FILE = "promptkit.toml"
TABLES = ("backends", "profiles", "paths")
FOLDERS = ("prompts", "schemas", "inputs")


class Root(NamedTuple):
    """What promptkit.toml says, and what can be told of definitions with faults.

    The facts of a section are None when it cannot be read. ``named`` are the folders that the file names itself, and
    ``unsure`` those of which it does not say clearly where they are.
    """

    backends: dict[str, Backend]
    profiles: dict[str, Profile]
    backend_facts: dict[str, BackendFacts] | None
    profile_facts: dict[str, ProfileFacts] | None
    folders: dict[str, str]
    named: tuple[str, ...]
    unsure: frozenset[str]
    lines: Lines
    faults: tuple[Fault, ...]


def read_root(parsed: Result[Document, Fault]) -> Root:
    """Read promptkit.toml."""
    defaults = {name: name for name in FOLDERS}
    if isinstance(parsed, Failure):
        unsure = frozenset(FOLDERS)
        return Root({}, {}, None, None, defaults, (), unsure, Lines(), (parsed.failure(),))
    document = parsed.unwrap()
    tables: Mapping[str, Any] = document.value
    found = [
        Found((name,), "is not a table of this file.", near(name, TABLES)) for name in tables if name not in TABLES
    ]
    backends = _read_section(Backend, backend_facts, "backends", tables.get("backends", {}))
    profiles = _read_section(Profile, profile_facts, "profiles", tables.get("profiles", {}))
    folders, misplaced = _read_folders(tables.get("paths", {}))
    found.extend((*backends.found, *profiles.found, *misplaced))
    return Root(
        backends=backends.definitions,
        profiles=profiles.definitions,
        backend_facts=backends.facts,
        profile_facts=profiles.facts,
        folders=defaults | folders,
        named=tuple(folders),
        unsure=frozenset(
            name
            for name in FOLDERS
            for each in misplaced
            if each.path == ("paths",) or name in {each.path[-1], each.suggestion}
        ),
        lines=document.lines,
        faults=tuple(in_file(each, document.source.name, document.lines) for each in found),
    )


def no_folder(name: str, root: Root, folders: Collection[str]) -> Fault:
    """Make the fault for a folder that is named and not there; ``folders`` are those beside promptkit.toml."""
    found = Found(("paths", name), f"there is no folder {root.folders[name]!r}.", near(root.folders[name], folders))
    return in_file(found, ROOT_FILE, root.lines)


class _Section(NamedTuple):
    """The definitions of one kind, and the facts of all of them or None."""

    definitions: dict[str, Any]
    facts: dict[str, Any] | None
    found: list[Found]


def _read_section(cls: type[Any], facts_of: Callable[..., Any], name: str, tables: Any) -> _Section:
    if not isinstance(tables, dict):
        return _Section({}, None, [Found((name,), f"Expected tables, [{name}.ID].")])
    definitions: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    found: list[Found] = []
    for identifier, table in tables.items():
        if not isinstance(table, dict):
            found.append(Found((name, identifier), f"Expected a table, [{name}.ID]."))
            facts[identifier] = facts_of({}, ())
            continue
        divided = list(_divided(table, cls))
        for path in divided:
            slash, dot = (f"[{written((name, sign.join((identifier, *path))))}]" for sign in "/.")
            message = f"ids with a slash are quoted: {slash}, and so are those with a dot: {dot}."
            found.append(Found((name, identifier, *path), message))
            facts["/".join((identifier, *path))] = facts_of({}, ())
        own = {key: value for key, value in table.items() if key not in {path[0] for path in divided}}
        if divided and not own:
            continue
        read = read_table(cls, own, given={"id": identifier}, path=(name, identifier))
        found.extend(each._replace(path=(name, identifier, *each.path)) for each in read.found)
        facts[identifier] = facts_of(own, [each.path for each in read.found])
        if read.definition is not None:
            definitions[identifier] = read.definition
    return _Section(definitions, facts, found)


def _divided(table: Mapping[str, Any], cls: type[Any]) -> Iterator[tuple[str, ...]]:
    """Find where definitions stand below an id: TOML reads [profiles.a.b] as b inside a, and a/b was meant."""
    keys = {field.name for field in fields(cls)} - {"id"}
    alone = not keys & table.keys()  # the id itself defines nothing
    left: list[tuple[tuple[str, ...], Any]] = [
        ((name,), below) for name, below in table.items() if name not in keys and near(name, keys) is None
    ]
    while left:
        path, below = left.pop(0)
        if not isinstance(below, dict):
            continue
        if keys & below.keys() or (alone and not below):
            yield path
        elif all(isinstance(value, dict) for value in below.values()):
            left.extend(((*path, name), value) for name, value in below.items())


def _read_folders(table: Any) -> tuple[dict[str, str], list[Found]]:
    if not isinstance(table, dict):
        return {}, [Found(("paths",), "Expected a table.")]
    found: list[Found] = []
    folders: dict[str, str] = {}
    for name, folder in table.items():
        if name not in FOLDERS:
            found.append(Found(("paths", name), "is not a folder's key.", near(name, FOLDERS)))
        elif not isinstance(folder, str) or not folder or "\0" in folder:
            found.append(Found(("paths", name), "Expected the path of a folder."))
        else:
            folders[name] = folder
    return folders, found
