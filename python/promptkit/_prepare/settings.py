"""Where each resolved setting comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from promptkit._values.frozen import FrozenDict, frozen_json
from promptkit._values.results import Setting

if TYPE_CHECKING:
    from promptkit._prepare.selection import Selection
    from promptkit._values.requests import RunRequest

Origin = Literal["request", "prompt", "profile", "backend", "default"]

PROFILE_SETTINGS = (
    "temperature",
    "top_p",
    "max_output_tokens",
    "stop",
    "seed",
    "reasoning_effort",
    "native_output",
    "extra",
)
BACKEND_SETTINGS = (
    "kind",
    "base_url",
    "credential_env",
    "max_waiting",
    "connect_timeout",
    "attempt_timeout",
    "retry",
    "headers",
    "trust_env",
    "session_parameter",
    "token_limit_parameter",
    "cache_markers",
    "late_system",
    "embedded",
)


def settings(selection: Selection, request: RunRequest, session_id: str | None) -> FrozenDict[str, Setting]:
    """Name every resolved value with its origin. A value that equals the default counts as the default."""
    prompt, profile, backend = selection.plan.prompt, selection.profile, selection.backend
    found: dict[str, Setting] = {
        "profile": _setting(profile.id, "prompt" if request.profile is None else "request"),
        "output": _setting(selection.contract.output, _output_origin(selection, request)),
        "session_id": _setting(session_id, _session_origin(request.session_id, prompt.session)),
        "backend": _setting(backend.id, "profile"),
        "model": _setting(profile.model, "profile"),
    }
    defaults = {
        field.name: field.default
        for kind in (type(profile), type(backend))
        for field in msgspec.structs.fields(kind)
        if not field.required
    }
    for definition, names, origin in ((profile, PROFILE_SETTINGS, "profile"), (backend, BACKEND_SETTINGS, "backend")):
        for name in names:
            value = getattr(definition, name)
            found[name] = _setting(value, "default" if value == defaults.get(name, msgspec.NODEFAULT) else origin)
    found["max_concurrency"] = _setting(
        backend.concurrency, "default" if backend.max_concurrency is None else "backend"
    )
    return FrozenDict(found)


def _setting(value: Any, origin: Any) -> Setting:
    return Setting(value=frozen_json(msgspec.to_builtins(value)), origin=origin)


def _output_origin(selection: Selection, request: RunRequest) -> Origin:
    if request.output is not None:
        return "request"
    default = next(f.default for f in msgspec.structs.fields(type(selection.plan.prompt)) if f.name == "output")
    return "default" if selection.plan.prompt.output == default else "prompt"


def _session_origin(given: str | None, template: str | None) -> Origin:
    if given is not None:
        return "request"
    return "default" if template is None else "prompt"
