"""Views: which ids a namespace reaches. What a view resolves is a full id from there on.

A namespace is empty for the engine itself. The ids that a caller gives are resolved below it; references inside
definitions are absolute.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Literal

from msgspec.structs import force_setattr

from promptkit.errors import listed, near

if TYPE_CHECKING:
    from collections.abc import Iterable

    from promptkit._values.requests import RunRequest

Kind = Literal["prompt", "profile", "backend", "schema"]


def below(namespace: str, identifier: str) -> str:
    """Give the full id of what a view calls ``identifier``."""
    return f"{namespace}/{identifier}" if namespace else identifier


def qualified(request: RunRequest, namespace: str) -> RunRequest:
    """Write the full ids into a request: of its prompt, its profile, and the schema of its contract."""
    if not namespace:
        return request
    full = copy(request)  # replace() would check and freeze every value again: the ids are the only ones that change
    force_setattr(full, "prompt_id", below(namespace, request.prompt_id))
    if request.profile is not None:
        force_setattr(full, "profile", below(namespace, request.profile))
    if request.output is not None and isinstance(request.output.schema, str):
        output = copy(request.output)
        force_setattr(output, "schema", below(namespace, request.output.schema))
        force_setattr(full, "output", output)
    return full


def unknown(kind: Kind, full_id: str, known: Iterable[str], namespace: str = "") -> str:
    """Say that there is no such definition, with a near miss and the choice that the view has, as they are written."""
    inside = below(namespace, "")
    names = [name.removeprefix(inside) for name in known if name.startswith(inside)]
    asked = full_id.removeprefix(inside)
    # The full id in a view is the first thing that goes wrong there: results and details have full ids.
    doubled = asked.removeprefix(inside) if namespace else ""
    suggestion = doubled if doubled in names else near(asked, names)
    hint = f"did you mean {suggestion!r}? " if suggestion else ""
    return f"there is no {kind} {full_id!r}: {hint}{choices(kind, known, namespace)}"


def choices(kind: Kind, known: Iterable[str], namespace: str = "") -> str:
    """Name what there is to choose from, as it is written in a request."""
    known = tuple(known)
    if not namespace:
        return f"the {kind}s are: {listed(known)}" if known else "the catalog has none"
    inside = below(namespace, "")
    reachable = [name.removeprefix(inside) for name in known if name.startswith(inside)]
    if not reachable:
        return f"there is no {kind} below {inside!r}"
    return f"ids of this view leave out {inside!r}, and its {kind}s are: {listed(reachable)}"
