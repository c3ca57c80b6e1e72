"""What a catalog says about one definition, for people and programs that look at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from returns.result import Failure, Result, Success

from promptkit._prepare.plan import NOTHING, plan_of
from promptkit._prepare.selection import resolved_contract
from promptkit._prepare.settings import base_settings
from promptkit._prepare.views import unknown
from promptkit._values.details import BackendDetails, ProfileDetails, PromptDetails
from promptkit.errors import InvalidRequestError, UnknownBackendError, UnknownProfileError, UnknownPromptError

if TYPE_CHECKING:
    from promptkit._values.catalog import Definitions


def prompt_details(
    definitions: Definitions, full_id: str, namespace: str = ""
) -> Result[PromptDetails, InvalidRequestError]:
    """Show a prompt, asked for through the view of a namespace."""
    prompt = definitions.prompts.get(full_id)
    if prompt is None:
        return Failure(UnknownPromptError(unknown("prompt", full_id, definitions.prompts, namespace)))
    fragments = definitions.fragments.get(prompt.id, NOTHING)
    return resolved_contract(definitions, prompt.output).map(
        lambda contract: PromptDetails(
            id=prompt.id,
            description=prompt.description,
            messages=prompt.messages,
            variables=prompt.variables,
            inputs=prompt.inputs,
            profile=prompt.profile,
            session=prompt.session,
            output=contract.output,
            fragments=fragments,
            definition_hash=plan_of(prompt, definitions.schemas, fragments).definition_hash,
            source=definitions.sources.get(prompt.id),
        )
    )


def profile_details(
    definitions: Definitions, full_id: str, namespace: str = ""
) -> Result[ProfileDetails, InvalidRequestError]:
    """Show a profile, asked for through the view of a namespace."""
    profile = definitions.profiles.get(full_id)
    if profile is None:
        return Failure(UnknownProfileError(unknown("profile", full_id, definitions.profiles, namespace)))
    settings = base_settings(profile, definitions.backends[profile.backend])
    return Success(ProfileDetails(id=profile.id, backend=profile.backend, model=profile.model, settings=settings))


def backend_details(
    definitions: Definitions, full_id: str, counts: tuple[int, int], namespace: str = ""
) -> Result[BackendDetails, InvalidRequestError]:
    """Show a backend, asked for through the view of a namespace. ``counts`` are its running and its waiting runs."""
    backend = definitions.backends.get(full_id)
    if backend is None:
        return Failure(UnknownBackendError(unknown("backend", full_id, definitions.backends, namespace)))
    running, waiting = counts
    configured = {name: getattr(backend, name) for name in backend.__struct_fields__}
    resolved = {"max_concurrency": backend.concurrency, "late_system": backend.late_system_treatment}
    return Success(BackendDetails(**{**configured, **resolved}, running=running, waiting=waiting))
