"""Step 1: which prompt, profile, backend and contract.

A continuation inherits nothing from the run that it continues: selection never looks at ``continue_from``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from returns.result import Failure, Result, Success

from promptkit._prepare.contract import Contract, contract_of
from promptkit._prepare.plan import NOTHING, Plan, plan_of
from promptkit._prepare.views import choices, unknown
from promptkit._values.definitions import Backend, Profile
from promptkit.errors import (
    InvalidRequestError,
    MissingProfileError,
    UnknownProfileError,
    UnknownPromptError,
    UnknownSchemaError,
)

if TYPE_CHECKING:
    from promptkit._values.catalog import Definitions
    from promptkit._values.contracts import OutputContract
    from promptkit._values.requests import RunRequest


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """What a request selects."""

    plan: Plan
    profile: Profile
    backend: Backend
    contract: Contract


def select(
    definitions: Definitions, request: RunRequest, namespace: str = ""
) -> Result[Selection, InvalidRequestError]:
    """Resolve the ids of a request, which are full. ``namespace`` is that of the view that the request was given to."""
    prompt = definitions.prompts.get(request.prompt_id)
    if prompt is None:
        return Failure(UnknownPromptError(unknown("prompt", request.prompt_id, definitions.prompts, namespace)))
    name = prompt.profile if request.profile is None else request.profile
    profile = _profile(definitions, name, prompt.id, namespace)
    contract = resolved_contract(definitions, request.output or prompt.output, namespace)
    plan = plan_of(prompt, definitions.schemas, definitions.fragments.get(prompt.id, NOTHING))
    return Result.do(
        Selection(plan=plan, profile=chosen, backend=definitions.backends[chosen.backend], contract=agreed)
        for chosen in profile
        for agreed in contract
    )


def _profile(
    definitions: Definitions, name: str | None, prompt_id: str, namespace: str
) -> Result[Profile, InvalidRequestError]:
    if name is None:
        message = f"prompt {prompt_id!r} names no profile: give RunRequest(profile=...) or set profile in the prompt"
        return Failure(MissingProfileError(f"{message}; {choices('profile', definitions.profiles, namespace)}"))
    profile = definitions.profiles.get(name)
    if profile is None:
        return Failure(UnknownProfileError(unknown("profile", name, definitions.profiles, namespace)))
    return Success(profile)


def resolved_contract(
    definitions: Definitions, output: OutputContract, namespace: str = ""
) -> Result[Contract, InvalidRequestError]:
    """Put the schema in place of its id, and compile it."""
    if isinstance(output.schema, str) and output.schema not in definitions.schemas:
        return Failure(UnknownSchemaError(unknown("schema", output.schema, definitions.schemas, namespace)))
    agreed = contract_of(output, definitions.schemas)
    if isinstance(agreed, Failure):
        return Failure(InvalidRequestError(f"the output contract's schema is not usable: {agreed.failure()}"))
    return Success(agreed.unwrap())
