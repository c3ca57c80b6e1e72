"""Where each resolved setting comes from."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from promptkit._prepare.same import Same
from promptkit._values.contracts import OutputContract
from promptkit._values.definitions import EmbeddedOptions
from promptkit._values.frozen import FrozenDict, frozen_json
from promptkit._values.results import Origin, Setting

if TYPE_CHECKING:
    from promptkit._prepare.selection import Selection
    from promptkit._values.definitions import Backend, Profile

NO_CONTRACT = OutputContract()  # what a prompt that says nothing expects


class Given(NamedTuple):
    """Which settings the request itself gave. It keeps nothing of the request."""

    profile: bool = False
    output: bool = False
    session_id: bool = False
    credential: bool = False


def settings(selection: Selection, given: Given, session_id: str | None) -> FrozenDict[str, Setting]:
    """Name every resolved value of a run with its origin.

    The credential is told by its origin alone: the value is the name of the environment variable, or "given".
    """
    base = base_settings(selection.profile, selection.backend)
    prompt = selection.plan.prompt
    return FrozenDict(
        {
            "profile": Setting(value=selection.profile.id, origin="request" if given.profile else "prompt"),
            "output": Setting(
                value=selection.contract.said,
                origin="request" if given.output else "default" if prompt.output == NO_CONTRACT else "prompt",
            ),
            "session_id": Setting(
                value=session_id,
                origin="request" if given.session_id else "default" if prompt.session is None else "prompt",
            ),
            "credential": BY_REQUEST if given.credential else base["credential_env"],
            **base,
        }
    )


BY_REQUEST = Setting(value="given", origin="request")


def base_settings(profile: Profile, backend: Backend) -> FrozenDict[str, Setting]:
    """Name every field of a profile and of its backend, except their ids, with its resolved value and its origin.

    A value that equals the default counts as the default. A nested value, such as the retry policy, counts as a whole.
    """
    return _base(Same(profile, backend))


@lru_cache(maxsize=4096)
def _base(key: Same) -> FrozenDict[str, Setting]:
    profile: Any
    backend: Any
    profile, backend = key.objects
    return FrozenDict({**_of(profile, "profile"), **_of(backend, "backend")})


def _of(definition: Profile | Backend, origin: Origin) -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    for field in msgspec.structs.fields(definition):
        if field.name == "id":
            continue
        value = _resolved(definition, field.name, getattr(definition, field.name))
        usual = not field.required and value == _resolved(definition, field.name, field.default)
        plain = frozen_json(msgspec.to_builtins(value))
        found[field.name] = Setting(value=plain, origin="default" if usual else origin)
    return found


def _resolved(definition: Profile | Backend, name: str, value: Any) -> Any:
    """Give what None stands for, where it stands for something else than nothing."""
    match name, value:
        case "max_concurrency", None:
            return msgspec.structs.replace(definition, max_concurrency=None).concurrency  # type: ignore[union-attr]
        case "late_system", None:
            return msgspec.structs.replace(definition, late_system=None).late_system_treatment  # type: ignore[union-attr]
        case "embedded", None if definition.kind == "embedded":  # type: ignore[union-attr]
            return EmbeddedOptions()
    return value
