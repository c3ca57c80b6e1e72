"""From the text of a catalog's files to its definitions, or to every fault in them."""

from __future__ import annotations

import json
import re
import tomllib
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace
from returns.result import Failure, Result, Success

from promptkit._catalog.consistency import Everything, Unread, inconsistencies
from promptkit._catalog.tables import Read, read_table
from promptkit._values.catalog import Definitions
from promptkit._values.definitions import Backend, Profile, PromptDefinition
from promptkit._values.frozen import FrozenDict, UnfitError, frozen_json
from promptkit.errors import Fault, near

if TYPE_CHECKING:
    from collections.abc import Container, Mapping
    from pathlib import PurePath

    from promptkit._values.construction import Checked

ROOT_FILE = "promptkit.toml"
TABLES = ("backends", "profiles", "paths")
FOLDERS = {"prompts": "prompts", "schemas": "schemas", "inputs": "inputs"}
AT_LINE = re.compile(r" \(at line (\d+), column \d+\)$")


class SourceFile(NamedTuple):
    """A file as it was read: its name for people, its id below its folder, and its bytes."""

    name: str
    identifier: str
    content: bytes


class Root(NamedTuple):
    """What promptkit.toml says: definitions, and the folders of the rest; ``named`` are those that it names itself."""

    backends: dict[str, Backend]
    profiles: dict[str, Profile]
    folders: dict[str, str]
    named: tuple[str, ...]
    faults: tuple[Fault, ...]
    unread: Unread


class Draft(NamedTuple):
    """A prompt whose messages may still stand in files of their own: (index of the message, file name)."""

    source: SourceFile
    table: dict[str, Any]
    content_files: tuple[tuple[int, str], ...]
    faults: tuple[Fault, ...] = ()


def as_text(content: bytes) -> Result[str, str]:
    """Decode a file: UTF-8 in every locale, a byte-order mark dropped, line ends made LF."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return Failure(f"is not UTF-8: byte {content[error.start]:#04x} at offset {error.start}.")
    return Success(text.replace("\r\n", "\n"))


def parse_toml(source: SourceFile) -> Result[dict[str, Any], Fault]:
    """Parse one TOML file."""
    text = as_text(source.content)
    if isinstance(text, Failure):
        return Failure(Fault(file=source.name, message=text.failure()))
    try:
        return Success(tomllib.loads(text.unwrap()))
    except tomllib.TOMLDecodeError as error:
        found = AT_LINE.search(str(error))
        line = int(found[1]) if found else None
        return Failure(Fault(file=source.name, line=line, message=f"is not TOML: {AT_LINE.sub('', str(error))}."))
    except RecursionError:
        return Failure(Fault(file=source.name, message="is nested too deeply."))


def read_root(source: SourceFile) -> Root:
    """Read promptkit.toml."""
    parsed = parse_toml(source)
    if isinstance(parsed, Failure):
        return Root({}, {}, FOLDERS, (), (parsed.failure(),), Unread(profiles=Everything(), backends=Everything()))
    tables = parsed.unwrap()
    faults: list[Fault] = [
        Fault(file=source.name, key=key, message="is not a table of this file.", suggestion=near(key, TABLES))
        for key in tables
        if key not in TABLES
    ]
    backends, backend_faults = _read_section(Backend, tables.get("backends", {}), "backends", source.name)
    profiles, profile_faults = _read_section(Profile, tables.get("profiles", {}), "profiles", source.name)
    paths = tables.get("paths", {})
    folders, folder_faults = _read_folders(paths, source.name)
    unread = Unread(profiles=_named(tables, "profiles"), backends=_named(tables, "backends"))
    named = tuple(name for name in FOLDERS if isinstance(paths, dict) and paths.get(name) == folders[name])
    found = (*faults, *backend_faults, *profile_faults, *folder_faults)
    return Root(backends, profiles, folders, named, found, unread)


def _named(tables: dict[str, Any], section: str) -> Container[str]:
    """Give the ids that a section defines, also those of definitions with faults."""
    found = tables.get(section, {})
    return found.keys() if isinstance(found, dict) else Everything()


def _read_section(cls: type[Any], tables: object, section: str, file: str) -> tuple[dict[str, Any], list[Fault]]:
    if not isinstance(tables, dict):
        return {}, [Fault(file=file, key=section, message=f"Expected tables, [{section}.ID].")]
    read: dict[str, Checked] = {}
    faults: list[Fault] = []
    for identifier, table in tables.items():
        key = f"{section}.{identifier}"
        if not isinstance(table, dict):
            faults.append(Fault(file=file, key=key, message=f"Expected a table, [{section}.ID]."))
            continue
        built = read_table(cls, table, key=key, given={"id": identifier})
        faults.extend(_in_file(built.faults, file))
        if built.definition is not None:
            read[identifier] = built.definition
    return read, faults


def _read_folders(table: object, file: str) -> tuple[dict[str, str], list[Fault]]:
    if not isinstance(table, dict):
        return FOLDERS, [Fault(file=file, key="paths", message="Expected a table.")]
    faults = []
    folders = dict(FOLDERS)
    for name, folder in table.items():
        if name not in FOLDERS:
            fault = Fault(
                file=file, key=f"paths.{name}", message="is not a folder's key.", suggestion=near(name, FOLDERS)
            )
            faults.append(fault)
        elif not isinstance(folder, str) or not folder or "\0" in folder:
            faults.append(Fault(file=file, key=f"paths.{name}", message="Expected the path of a folder."))
        else:
            folders[name] = folder
    return folders, faults


def read_draft(source: SourceFile) -> Result[Draft, tuple[Fault, ...]]:
    """Read a prompt's file as far as that goes without the files that it names in ``content_file``."""
    parsed = parse_toml(source)
    if isinstance(parsed, Failure):
        return Failure((parsed.failure(),))
    table = parsed.unwrap()
    messages = table.get("messages")
    if not isinstance(messages, list):
        return Success(Draft(source, table, ()))
    named: list[tuple[int, str]] = []
    faults: list[Fault] = []
    for index, message in enumerate(messages):
        if not (isinstance(message, dict) and "content_file" in message):
            continue
        key = f"messages[{index}].content_file"
        file = message.pop("content_file")
        if "content" in message:
            faults.append(Fault(file=source.name, key=key, message="stands beside content: give one of the two."))
        elif not isinstance(file, str) or not file or "\0" in file:
            faults.append(Fault(file=source.name, key=key, message="Expected the path of a file."))
            message["content"] = ""
        else:
            named.append((index, file))
            message["content"] = ""
    return Success(Draft(source, table, tuple(named), tuple(faults)))


def read_prompt(draft: Draft, contents: Mapping[str, Result[bytes, str]]) -> Read[PromptDefinition]:
    """Complete a prompt with the files that it names. Without one of them there is no prompt, and all its faults."""
    faults = list(draft.faults)
    for index, file in draft.content_files:
        text = contents[file].bind(as_text)
        if isinstance(text, Failure):
            key = f"messages[{index}].content_file"
            faults.append(Fault(file=draft.source.name, key=key, message=f"{file} {text.failure()}"))
        else:
            draft.table["messages"][index]["content"] = text.unwrap()
    whole = not faults
    built = read_table(PromptDefinition, draft.table, key="", given={"id": draft.source.identifier})
    faults.extend(_in_file(built.faults, draft.source.name))
    return Read(built.definition if whole else None, tuple(faults))


def read_schema(source: SourceFile) -> Result[Any, Fault]:
    """Read a JSON Schema file."""
    text = as_text(source.content)
    if isinstance(text, Failure):
        return Failure(Fault(file=source.name, message=text.failure()))
    try:
        return Success(frozen_json(json.loads(text.unwrap(), object_pairs_hook=_without_duplicates)))
    except json.JSONDecodeError as error:
        return Failure(Fault(file=source.name, line=error.lineno, message=f"is not JSON: {error.msg}."))
    except UnfitError as error:
        place = f" at {error.path}" if error.path else ""
        return Failure(Fault(file=source.name, message=f"is not a JSON Schema: a value{place} {error}."))
    except (RecursionError, ValueError) as error:
        return Failure(Fault(file=source.name, message=f"is not a JSON Schema: {error}."))


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        msg = f"the key {twice!r} stands twice in one object"
        raise ValueError(msg)
    return table


def _in_file(faults: tuple[Fault, ...], file: str) -> list[Fault]:
    return [replace(fault, file=file) for fault in faults]


def assemble(
    root: Root,
    prompts: Mapping[str, PromptDefinition],
    schemas: Mapping[str, Any],
    *,
    files: Mapping[str, str],
    unread_schemas: Container[str],
    inputs_folder: PurePath,
) -> tuple[Definitions, tuple[Fault, ...]]:
    """Put the definitions together, with the faults between them."""
    definitions = Definitions(
        prompts=FrozenDict(prompts),
        profiles=FrozenDict(root.profiles),
        backends=FrozenDict(root.backends),
        schemas=FrozenDict(schemas),
        inputs_folders=(inputs_folder,),
        sources=FrozenDict({identifier: files[f"prompts.{identifier}"] for identifier in prompts}),
    )
    return definitions, inconsistencies(definitions, files, root.unread._replace(schemas=unread_schemas))
