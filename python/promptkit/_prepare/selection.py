"""Step 1: which prompt, profile, backend and contract.

A continuation inherits nothing from the run that it continues: selection never looks at ``continue_from``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from returns.result import Failure, Result, Success

from promptkit._prepare.contract import Contract, contract_of
from promptkit._prepare.plan import NOTHING, Plan, plan_of
from promptkit._values.definitions import Backend, Profile
from promptkit.errors import (
    InvalidRequestError,
    MissingProfileError,
    UnknownProfileError,
    UnknownPromptError,
    UnknownSchemaError,
    listed,
    near,
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


def select(definitions: Definitions, request: RunRequest) -> Result[Selection, InvalidRequestError]:
    """Resolve the ids of a request."""
    prompt = definitions.prompts.get(request.prompt_id)
    if prompt is None:
        return Failure(UnknownPromptError(_unknown("prompt", request.prompt_id, definitions.prompts)))
    profile = _profile(definitions, prompt.profile if request.profile is None else request.profile, prompt.id)
    contract = _contract(definitions, request.output or prompt.output)
    plan = plan_of(prompt, definitions.schemas, definitions.fragments.get(prompt.id, NOTHING))
    return Result.do(
        Selection(plan=plan, profile=chosen, backend=definitions.backends[chosen.backend], contract=agreed)
        for chosen in profile
        for agreed in contract
    )


def _profile(definitions: Definitions, name: str | None, prompt_id: str) -> Result[Profile, InvalidRequestError]:
    if name is None:
        message = f"prompt {prompt_id!r} names no profile: give RunRequest(profile=...) or set profile in the prompt"
        return Failure(MissingProfileError(f"{message}; the profiles are: {listed(definitions.profiles)}"))
    profile = definitions.profiles.get(name)
    if profile is None:
        return Failure(UnknownProfileError(_unknown("profile", name, definitions.profiles)))
    return Success(profile)


def _contract(definitions: Definitions, output: OutputContract) -> Result[Contract, InvalidRequestError]:
    if isinstance(output.schema, str) and output.schema not in definitions.schemas:
        return Failure(UnknownSchemaError(_unknown("schema", output.schema, definitions.schemas)))
    agreed = contract_of(output, definitions.schemas)
    if isinstance(agreed, Failure):
        return Failure(InvalidRequestError(f"the output contract's schema is not usable: {agreed.failure()}"))
    return Success(agreed.unwrap())


def _unknown(kind: str, name: str, known: Any) -> str:
    suggestion = near(name, known)
    hint = f"did you mean {suggestion!r}? " if suggestion else ""
    return f"there is no {kind} {name!r}: {hint}the {kind}s are: {listed(known)}"
