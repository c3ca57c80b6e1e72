"""From what the files say to the definitions of a catalog, or to every fault in them, in the order of the files."""

from __future__ import annotations

import difflib
import unicodedata
from typing import TYPE_CHECKING, NamedTuple

from returns.result import Failure, Result, Success

from promptkit._catalog.consistency import Known, profile_faults, prompt_faults, schema_faults
from promptkit._catalog.places import in_file, written_pointer
from promptkit._catalog.root import ROOT_FILE
from promptkit._values.catalog import Definitions
from promptkit._values.frozen import FrozenDict
from promptkit.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import PurePath

    from promptkit._catalog.files import Document
    from promptkit._catalog.fragments import Gathered
    from promptkit._catalog.prompts import ReadPrompt
    from promptkit._catalog.root import Root
ENDINGS = {"prompts": ".toml", "schemas": ".json"}
FORMATS = (".toml", ".json", ".yaml", ".yml")
NEARLY = 0.85  # "prompt", "promts" and "schemes", not "promptkit"


class Folder(NamedTuple):
    """The files of one kind: the ids of all, also of those that cannot be read, and the faults of their reading.

    ``files`` are all files below it, with their names for people. Not ``complete``: there may be files that were not
    found.
    """

    ids: Collection[str]
    files: Mapping[str, str]
    faults: tuple[Fault, ...]
    complete: bool


def chosen(walked: Collection[str], ending: str, shown: Mapping[str, str]) -> tuple[list[str], list[Fault]]:
    """Choose the files with an ending, and find those whose names will not do. ``shown`` has the names for people."""
    names = [name for name in walked if name.endswith(ending) and shown[name] != ROOT_FILE]
    faults = [
        Fault(file=shown[name], message=f"is ignored, because its ending is not {ending!r}: rename it.")
        for name in walked
        if name.lower().endswith(ending) and not name.endswith(ending)
    ]
    seen: dict[str, str] = {}
    for name in names:
        first = seen.setdefault(unicodedata.normalize("NFC", name).casefold(), name)
        if first != name:
            message = (
                f"differs from {shown[first]} only in case or Unicode form, which not every file system tells apart: "
                "rename one of the two."
            )
            faults.append(Fault(file=shown[name], message=message))
    return names, faults


def misnamed_folder(kind: str, name: str, files: Collection[str]) -> Fault | None:
    """Say that a folder with files of a kind is not read, when its name is nearly that of the kind's folder."""
    if not difflib.get_close_matches(name.casefold(), [kind], cutoff=NEARLY):
        return None
    if not any(file.lower().endswith(ENDINGS[kind]) for file in files):
        return None
    return Fault(file=name, message=f"is not read: the {kind} are in {kind!r}; rename it, or name it in [paths].")


def strays(kind: str, folder: Folder, used: Collection[str], inputs_folder: str) -> list[Fault]:
    """Find what was probably meant for a prompt or a schema and has another format.

    ``used`` are files that something names or that are of another kind, and ``inputs_folder`` is where inputs are.
    """
    if ROOT_FILE in folder.files.values():  # the folder of the whole catalog holds other things as well
        return []
    return [
        Fault(file=shown, message=f"is not read: {kind} end in {ENDINGS[kind]!r}; write it so, or move it elsewhere.")
        for shown in folder.files.values()
        if shown.lower().endswith(FORMATS)
        and not shown.lower().endswith(ENDINGS[kind])
        and shown not in used
        and not shown.startswith(f"{inputs_folder}/")
    ]


def used_files(prompts: Mapping[str, tuple[ReadPrompt, Gathered]]) -> frozenset[str] | None:
    """Give the files that prompts name and include, with their names for people; None: not all can be told."""
    used: set[str] = set()
    for read, gathered in prompts.values():
        if not (read.facts.complete and gathered.fragments.complete):
            return None
        used.update(text.file for text in read.facts.texts if text.file is not None)
        used.update(gathered.fragments.files.values())
    return frozenset(used)


def assemble(
    root: Root,
    prompts: Mapping[str, tuple[ReadPrompt, Gathered]],
    schemas: Mapping[str, Document],
    folders: Mapping[str, Folder],
    inputs_folder: PurePath,
) -> Result[Definitions, tuple[Fault, ...]]:
    """Put the definitions together, or give every fault: of promptkit.toml, then of prompts, then of schemas."""
    complete = folders["schemas"].complete and "schemas" not in root.unsure
    known = Known(root.profile_facts, root.backend_facts, folders["schemas"].ids if complete else None)
    faults = (
        *_in_order((*root.faults, *_of_profiles(root, known))),
        *_in_order((*folders["prompts"].faults, *_of_prompts(prompts, known))),
        *_in_order((*folders["schemas"].faults, *_of_schemas(schemas))),
    )
    if faults:
        return Failure(faults)
    return Success(
        Definitions(
            prompts=FrozenDict(
                {name: read.definition for name, (read, _) in prompts.items() if read.definition is not None}
            ),
            profiles=FrozenDict(root.profiles),
            backends=FrozenDict(root.backends),
            schemas=FrozenDict({name: document.value for name, document in schemas.items()}),
            fragments=FrozenDict(
                {
                    name: FrozenDict(gathered.fragments.texts)
                    for name, (_, gathered) in prompts.items()
                    if gathered.fragments.texts
                }
            ),
            inputs_folders=(inputs_folder,),
            sources=FrozenDict({name: read.document.source.name for name, (read, _) in prompts.items()}),
        )
    )


def _in_order(faults: Iterable[Fault]) -> list[Fault]:
    """Sort the faults by file, line and key; those of a text that several prompts use are the same, and stay once."""
    return sorted(
        dict.fromkeys(faults), key=lambda fault: (fault.file or "", fault.line or 0, fault.key or "", fault.message)
    )


def _of_profiles(root: Root, known: Known) -> Iterator[Fault]:
    for name, facts in (root.profile_facts or {}).items():
        for found in profile_faults(facts, known):
            yield in_file(found, ROOT_FILE, root.lines, ("profiles", name))


def _of_prompts(prompts: Mapping[str, tuple[ReadPrompt, Gathered]], known: Known) -> Iterator[Fault]:
    for read, gathered in prompts.values():
        yield from (*read.faults, *gathered.faults)
        source, lines = read.document.source, read.document.lines
        for found in (*read.found, *gathered.found, *prompt_faults(read.facts, known, gathered.fragments)):
            yield in_file(found, source.name, lines)


def _of_schemas(schemas: Mapping[str, Document]) -> Iterator[Fault]:
    for document in schemas.values():
        for found in schema_faults(document.value):
            fault = in_file(found, document.source.name, document.lines)
            yield Fault(
                file=fault.file, line=fault.line, key=written_pointer(found.path) or None, message=fault.message
            )
