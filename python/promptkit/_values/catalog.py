"""The definitions of a catalog by id."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath

import msgspec

from promptkit._values.definitions import Backend, Profile, PromptDefinition
from promptkit._values.json import JSON


class Definitions(msgspec.Struct, frozen=True, kw_only=True):
    """A consistent set of definitions, and the folders of file inputs of the catalogs that it comes from."""

    prompts: Mapping[str, PromptDefinition]
    profiles: Mapping[str, Profile]
    backends: Mapping[str, Backend]
    schemas: Mapping[str, JSON]
    inputs_folders: tuple[PurePath, ...] = ()
