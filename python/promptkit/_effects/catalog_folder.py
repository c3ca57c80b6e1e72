"""Reads a catalog from its folder: finds and opens the files, and has what they say put together."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from returns.result import Failure

from promptkit._catalog.assembly import (
    ENDINGS,
    Folder,
    assemble,
    chosen,
    misnamed_folder,
    strays,
    used_files,
)
from promptkit._catalog.files import parse_schema, parse_toml
from promptkit._catalog.fragments import gather
from promptkit._catalog.prompts import read_prompt
from promptkit._catalog.root import ROOT_FILE, no_folder, read_root
from promptkit._effects.source_files import SourceFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from returns.result import Result

    from promptkit._catalog.files import Document, SourceFile
    from promptkit._catalog.fragments import Gathered
    from promptkit._catalog.prompts import ReadPrompt
    from promptkit._catalog.root import Root
    from promptkit._values.catalog import Definitions
    from promptkit.errors import Fault


def read_folder(root: Path) -> Result[Definitions, tuple[Fault, ...]]:
    """Read the definitions below a folder, or give every fault of every file."""
    source = SourceFiles(root)
    root_file = source.read_root_file(ROOT_FILE)
    if isinstance(root_file, Failure):
        return Failure((root_file.failure(),))
    settings = read_root(parse_toml(root_file.unwrap()))
    absent = [name for name in settings.named if not source.has_folder(settings.folders[name])]
    settings = settings._replace(
        faults=(*settings.faults, *(no_folder(name, settings, source.folders()) for name in absent)),
        unsure=settings.unsure | set(absent),
    )
    prompts, prompt_folder = _read_prompts(source, settings.folders["prompts"])
    schemas, schema_folder = _read_schemas(source, settings.folders["schemas"])
    folders = {"prompts": prompt_folder, "schemas": schema_folder}
    # What a prompt that cannot be read uses is not known.
    used = used_files(prompts) if len(prompts) == len(prompt_folder.ids) else None
    # A folder of other people's schemas is none of this catalog's, unless a prompt names a schema.
    looked_for = {"prompts"} | {"schemas" for read, _ in prompts.values() if isinstance(read.facts.schema, str)}
    return assemble(
        settings,
        prompts,
        schemas,
        {kind: _with_ignored(kind, source, settings, folders, used, near=kind in looked_for) for kind in folders},
        source.inputs_folder(settings.folders["inputs"]),
    )


def _with_ignored(
    kind: str,
    source: SourceFiles,
    settings: Root,
    folders: Mapping[str, Folder],
    used: frozenset[str] | None,
    *,
    near: bool,
) -> Folder:
    """Add the faults of what was probably meant for this kind and is not read.

    ``used`` are files of prompts, ``near`` says whether a folder of nearly the right name is one of them.
    """
    ignored: list[Fault] = []
    if kind not in {*settings.named, *settings.unsure} and not source.has_folder(kind):
        for name in source.folders() if near else ():
            if name not in settings.folders.values():
                fault = misnamed_folder(kind, name, source.walk(name).files)
                ignored.extend([] if fault is None else [fault])
    elif kind != "prompts" or used is not None:
        others = {shown for other, each in folders.items() if other != kind for shown in each.files.values()}
        inputs_folder = source.shown(settings.folders["inputs"], "")
        ignored.extend(strays(kind, folders[kind], {*others, *(used or ())}, inputs_folder))
    folder = folders[kind]
    return folder._replace(faults=(*folder.faults, *ignored), complete=folder.complete and not ignored)


def _documents(
    source: SourceFiles, folder: str, ending: str, parse: Callable[[SourceFile], Result[Document, Fault]]
) -> tuple[dict[str, Document], Folder]:
    """Read the files of one kind."""
    walked = source.walk(folder)
    files = {name: source.shown(folder, name) for name in walked.files}
    names, misnamed = chosen(walked.files, ending, files)
    faults = [*walked.faults, *misnamed]
    documents: dict[str, Document] = {}
    for name in names:
        document = source.read_below(folder, name, ending).bind(parse)
        if isinstance(document, Failure):
            faults.append(document.failure())
        else:
            documents[name.removesuffix(ending)] = document.unwrap()
    ids = [name.removesuffix(ending) for name in names]
    return documents, Folder(ids, files, tuple(faults), complete=not (walked.faults or misnamed))


def _read_prompts(source: SourceFiles, folder: str) -> tuple[dict[str, tuple[ReadPrompt, Gathered]], Folder]:
    documents, found = _documents(source, folder, ENDINGS["prompts"], parse_toml)
    read_fragment = cache(partial(source.read_text, folder))
    prompts: dict[str, tuple[ReadPrompt, Gathered]] = {}
    for identifier, document in documents.items():
        read = read_prompt(document, partial(source.read_text, folder, beside=identifier), tuple(found.files))
        prompts[identifier] = (read, gather(read.facts.texts, read_fragment, tuple(found.files)))
    return prompts, found


def _read_schemas(source: SourceFiles, folder: str) -> tuple[dict[str, Document], Folder]:
    return _documents(source, folder, ENDINGS["schemas"], parse_schema)
