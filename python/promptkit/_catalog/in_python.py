"""Every fault between definitions that were made in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit._catalog.consistency import Known, profile_faults, prompt_faults, schema_faults
from promptkit._catalog.facts import backend_facts, fields_of, profile_facts, prompt_facts
from promptkit._catalog.fragments import NO_FRAGMENTS
from promptkit._catalog.places import in_memory

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from promptkit._values.catalog import Definitions
    from promptkit.errors import Fault


def inconsistencies(definitions: Definitions, schemas: Collection[str]) -> Iterator[Fault]:
    """Find the faults. ``schemas`` are the ids, also of those refused."""
    yield from profile_inconsistencies(definitions)
    known = Known(definitions.profiles, None, schemas)
    for name, schema in definitions.schemas.items():
        for found in schema_faults(schema):
            yield in_memory(found, "schemas", name)
    for name, prompt in definitions.prompts.items():
        facts = prompt_facts(fields_of(prompt), (), {})
        for found in prompt_faults(facts, known, NO_FRAGMENTS):
            yield in_memory(found, "prompts", name)


def profile_inconsistencies(definitions: Definitions) -> Iterator[Fault]:
    """Find the faults between profiles and their backends."""
    backends = {name: backend_facts(fields_of(backend), ()) for name, backend in definitions.backends.items()}
    known = Known(definitions.profiles, backends, None)
    for name, profile in definitions.profiles.items():
        for found in profile_faults(profile_facts(fields_of(profile), ()), known):
            yield in_memory(found, "profiles", name)
