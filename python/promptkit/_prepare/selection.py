"""Step 1: which prompt, profile, backend and contract.

A continuation inherits nothing from the run that it continues: selection never looks at ``continue_from``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from returns.result import Failure, Result, Success

from promptkit._prepare.plan import Plan, plan_of
from promptkit._values.contracts import NAME_CHARACTERS, OutputContract
from promptkit._values.definitions import Backend, Profile
from promptkit._values.schemas import CompiledSchema, compile_schema
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
    from promptkit._values.requests import RunRequest


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """An output contract that is ready: its schema resolved and compiled."""

    output: OutputContract
    schema: CompiledSchema | None = None


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
    return Result.do(
        Selection(plan=plan_of(prompt), profile=chosen, backend=definitions.backends[chosen.backend], contract=agreed)
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
    if output.schema is None:
        return Success(Contract(output=output))
    schema: Any = output.schema
    name = output.name
    if isinstance(schema, str):
        if schema not in definitions.schemas:
            return Failure(UnknownSchemaError(_unknown("schema", schema, definitions.schemas)))
        name = name or _usable_name(schema)
        schema = _as_mapping(definitions.schemas[schema])
    compiled = compile_schema(schema)
    if isinstance(compiled, Failure):
        return Failure(InvalidRequestError(f"the output contract's schema is not usable: {compiled.failure()}"))
    resolved = msgspec.structs.replace(output, schema=schema, name=name)
    return Success(Contract(output=resolved, schema=compiled.unwrap()))


def _as_mapping(schema: Any) -> Any:
    """Write the schemas true and false as the objects that mean the same."""
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    return schema


def _usable_name(identifier: str) -> str:
    return "".join(c if c in NAME_CHARACTERS else "_" for c in identifier)[-64:]


def _unknown(kind: str, name: str, known: Any) -> str:
    suggestion = near(name, known)
    hint = f"did you mean {suggestion!r}? " if suggestion else ""
    return f"there is no {kind} {name!r}: {hint}the {kind}s are: {listed(known)}"
