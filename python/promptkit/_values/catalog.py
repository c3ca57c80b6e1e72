"""The definitions of a catalog by id."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

import msgspec

from promptkit._values.definitions import Backend, Profile, PromptDefinition
from promptkit._values.frozen import FrozenDict
from promptkit._values.json import JSON

NO_FRAGMENTS: FrozenDict[str, Mapping[str, str]] = FrozenDict()


class Definitions(msgspec.Struct, frozen=True, kw_only=True):
    """A consistent set of definitions, and the folders of file inputs of the catalogs that it comes from.

    ``fragments`` has the texts by name that a prompt's templates include, by the prompt's id, where there are any.
    """

    prompts: Mapping[str, PromptDefinition]
    profiles: Mapping[str, Profile]
    backends: Mapping[str, Backend]
    schemas: Mapping[str, JSON]
    fragments: Mapping[str, Mapping[str, str]] = NO_FRAGMENTS
    inputs_folders: tuple[PurePath, ...] = ()
