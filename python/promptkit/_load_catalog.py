"""The catalog, and how it is read from a folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, final

from returns.result import Failure

from promptkit._catalog.consistency import inconsistencies
from promptkit._catalog.files import (
    ROOT_FILE,
    assemble,
    read_draft,
    read_prompt,
    read_root,
    read_schema,
)
from promptkit._effects.source_files import SourceFiles
from promptkit._values.catalog import Definitions
from promptkit._values.definitions import Backend, Profile, PromptDefinition
from promptkit._values.frozen import FrozenDict, UnfitError, frozen_json
from promptkit.errors import Fault, InvalidConfigError

if TYPE_CHECKING:
    from os import PathLike

    from promptkit._values.construction import Checked
    from promptkit._values.json import JSON

NO_SCHEMAS: FrozenDict[str, JSON] = FrozenDict()


@final
class Catalog:
    """An immutable set of definitions, complete and consistent once constructed.

    Every fault is reported at once in one InvalidConfigError: an id defined twice, a reference to what is not there, a
    template or schema that does not compile, a variable or input that is used but not declared or declared but not
    used. ``a | b`` combines two catalogs, each complete in itself; an id on both sides is a fault.
    """

    __slots__ = ("_definitions",)
    _definitions: Definitions

    def __init__(
        self,
        *,
        prompts: Iterable[PromptDefinition] = (),
        profiles: Iterable[Profile] = (),
        backends: Iterable[Backend] = (),
        schemas: Mapping[str, JSON] = NO_SCHEMAS,
    ) -> None:
        """Take definitions made in Python; ``schemas`` are JSON Schemas by id."""
        faults: list[Fault] = []
        definitions = Definitions(
            prompts=_by_id(PromptDefinition, prompts, "prompts", faults),
            profiles=_by_id(Profile, profiles, "profiles", faults),
            backends=_by_id(Backend, backends, "backends", faults),
            schemas=_frozen_schemas(schemas, faults),
        )
        faults.extend(inconsistencies(definitions, {}))
        if faults:
            raise InvalidConfigError(*faults)
        object.__setattr__(self, "_definitions", definitions)

    @property
    def prompts(self) -> Mapping[str, PromptDefinition]:
        """The prompts by id."""
        return self._definitions.prompts

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """The profiles by id."""
        return self._definitions.profiles

    @property
    def backends(self) -> Mapping[str, Backend]:
        """The backends by id."""
        return self._definitions.backends

    @property
    def schemas(self) -> Mapping[str, JSON]:
        """The JSON Schemas by id."""
        return self._definitions.schemas

    def __or__(self, other: Catalog) -> Catalog:
        """Combine two catalogs. Raises InvalidConfigError when an id stands on both sides."""
        if not isinstance(other, Catalog):
            return NotImplemented
        left, right = self._definitions, other._definitions
        faults = [
            Fault(key=f"{kind}.{identifier}", message="is defined in both catalogs.")
            for kind in ("prompts", "profiles", "backends", "schemas")
            for identifier in sorted(getattr(left, kind).keys() & getattr(right, kind).keys())
        ]
        if faults:
            raise InvalidConfigError(*faults)
        return catalog_of(
            Definitions(
                prompts=FrozenDict({**left.prompts, **right.prompts}),
                profiles=FrozenDict({**left.profiles, **right.profiles}),
                backends=FrozenDict({**left.backends, **right.backends}),
                schemas=FrozenDict({**left.schemas, **right.schemas}),
                inputs_folders=tuple(dict.fromkeys((*left.inputs_folders, *right.inputs_folders))),
                fragments=FrozenDict({**left.fragments, **right.fragments}),
                sources=FrozenDict({**left.sources, **right.sources}),
            )
        )

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse: a catalog does not change."""
        msg = "a Catalog does not change: combine two with |"
        raise AttributeError(msg)

    def __delattr__(self, name: str) -> NoReturn:
        """Refuse: a catalog does not change."""
        msg = "a Catalog does not change"
        raise AttributeError(msg)

    def __copy__(self) -> Catalog:
        """Give the same catalog."""
        return self

    def __deepcopy__(self, memo: object) -> Catalog:
        """Give the same catalog."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the definitions."""
        return (catalog_of, (self._definitions,))

    def __repr__(self) -> str:
        """Count what there is."""
        counts = ", ".join(
            f"{len(getattr(self, kind))} {kind}" for kind in ("prompts", "profiles", "backends", "schemas")
        )
        return f"<promptkit.Catalog: {counts}>"


def catalog_of(definitions: Definitions) -> Catalog:
    """Wrap definitions that are known to be consistent."""
    catalog: Catalog = object.__new__(Catalog)
    object.__setattr__(catalog, "_definitions", definitions)
    return catalog


def definitions_of(catalog: Catalog) -> Definitions:
    """Give the definitions of a catalog."""
    return catalog._definitions  # noqa: SLF001  # the two halves of one value


def _by_id(cls: type[Checked], given: Any, kind: str, faults: list[Fault]) -> FrozenDict[str, Any]:
    found: dict[str, Any] = {}
    if not isinstance(given, Iterable):
        faults.append(Fault(key=kind, message=f"Expected several of {cls.__name__}, got `{type(given).__name__}`."))
        return FrozenDict(found)
    for index, definition in enumerate(given.values() if isinstance(given, Mapping) else given):
        if not isinstance(definition, cls):
            message = f"Expected a {cls.__name__}, got `{type(definition).__name__}`."
            faults.append(Fault(key=f"{kind}[{index}]", message=message))
        elif definition.id in found:  # type: ignore[attr-defined]  # all three have one
            faults.append(Fault(key=f"{kind}[{index}]", message=f"the id {definition.id!r} stands twice."))  # type: ignore[attr-defined]
        else:
            found[definition.id] = definition  # type: ignore[attr-defined]
    return FrozenDict(found)


def _frozen_schemas(given: Any, faults: list[Fault]) -> FrozenDict[str, Any]:
    found: dict[str, Any] = {}
    if not isinstance(given, Mapping):
        faults.append(Fault(key="schemas", message=f"Expected a mapping, got `{type(given).__name__}`."))
        return FrozenDict(found)
    for identifier, schema in given.items():
        if not isinstance(identifier, str) or not identifier:
            faults.append(Fault(key="schemas", message=f"{identifier!r} is not an id: ids are text."))
            continue
        try:
            found[identifier] = frozen_json(schema)
        except UnfitError as error:
            place = f" at {error.path}" if error.path else ""
            faults.append(Fault(key=f"schemas.{identifier}", message=f"a value{place} {error}."))
    return FrozenDict(found)


def load_catalog(root: str | PathLike[str]) -> Catalog:
    """Read ``promptkit.toml``, ``prompts/**/*.toml`` and ``schemas/**/*.json`` below the folder ``root``.

    ``promptkit.toml`` has the tables ``[backends.ID]`` and ``[profiles.ID]``, and may move the folders in ``[paths]``
    (``prompts``, ``schemas``, ``inputs``). The id of a prompt or a schema is its path below its folder without the
    ending, with "/". Raises InvalidConfigError with every fault of every file.
    """
    folder = Path(root)
    source = SourceFiles(folder)
    root_file = source.read_one(ROOT_FILE)
    if isinstance(root_file, Failure):
        raise InvalidConfigError(root_file.failure())
    settings = read_root(root_file.unwrap())
    faults = list(settings.faults)
    faults.extend(
        Fault(file=ROOT_FILE, key=f"paths.{name}", message=f"there is no folder {settings.folders[name]!r}.")
        for name in settings.named
        if not (folder / settings.folders[name]).is_dir()
    )
    files = {f"backends.{name}": ROOT_FILE for name in settings.backends}
    files |= {f"profiles.{name}": ROOT_FILE for name in settings.profiles}
    prompts = _read_prompts(source, settings.folders["prompts"], files, faults)
    schemas = _read_schemas(source, settings.folders["schemas"], files, faults)
    definitions, inconsistent = assemble(
        settings,
        prompts,
        schemas,
        files=files,
        unread_schemas={key.removeprefix("schemas.") for key in files if key.startswith("schemas.")},
        inputs_folder=(folder / settings.folders["inputs"]).absolute(),
    )
    if faults or inconsistent:
        raise InvalidConfigError(*faults, *inconsistent)
    return catalog_of(definitions)


def _read_prompts(
    source: SourceFiles, folder: str, files: dict[str, str], faults: list[Fault]
) -> dict[str, PromptDefinition]:
    prompts: dict[str, PromptDefinition] = {}
    for found in source.below(folder, ".toml", faults):
        files[f"prompts.{found.identifier}"] = found.name
        draft = read_draft(found)
        if isinstance(draft, Failure):
            faults.extend(draft.failure())
            continue
        named = {file for _, file in draft.unwrap().content_files}
        contents = {file: source.read_beside(found, file, within=folder) for file in named}
        prompt = read_prompt(draft.unwrap(), contents)
        faults.extend(prompt.faults)
        if prompt.definition is not None:
            prompts[found.identifier] = prompt.definition
    return prompts


def _read_schemas(source: SourceFiles, folder: str, files: dict[str, str], faults: list[Fault]) -> dict[str, Any]:
    schemas: dict[str, Any] = {}
    for found in source.below(folder, ".json", faults):
        files[f"schemas.{found.identifier}"] = found.name
        schema = read_schema(found)
        if isinstance(schema, Failure):
            faults.append(schema.failure())
        else:
            schemas[found.identifier] = schema.unwrap()
    return schemas
