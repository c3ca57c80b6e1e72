"""Small catalogs for tests."""

from __future__ import annotations

from typing import Any

from promptkit import JSON, Backend, Catalog, MessageTemplate, OutputContract, Profile, PromptDefinition, RetryPolicy

NUMBER: JSON = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}


def small_catalog(base_url: str = "http://127.0.0.1:1/v1", *, max_repairs: int = 1, **backend: Any) -> Catalog:
    """Give a catalog with a question, a follow-up with a profile and a contract of its own, and free text.

    Retries wait for no time at all.
    """
    settings: dict[str, Any] = {"retry": RetryPolicy(base_delay=0.0, max_delay=0.0), **backend}
    return Catalog(
        backends=[Backend(id="server", kind="chat_completions", base_url=base_url, **settings)],
        profiles=[
            Profile(id="warm", backend="server", model="warm-model", temperature=0.7, seed=5, stop=("END",)),
            Profile(id="cold", backend="server", model="cold-model", max_output_tokens=99),
        ],
        prompts=[
            PromptDefinition(
                id="ask",
                messages=(
                    MessageTemplate(role="system", content="You are terse."),
                    MessageTemplate(role="user", content="{{ question }}"),
                ),
                variables=("question",),
                profile="warm",
                session="session of {{ question }}",
            ),
            PromptDefinition(
                id="follow",
                messages=(MessageTemplate(role="user", content="And then?"),),
                profile="cold",
                output=OutputContract(kind="json_schema", schema="number", max_repairs=max_repairs),
            ),
            PromptDefinition(id="more", messages=(MessageTemplate(role="user", content="More?"),), profile="cold"),
        ],
        schemas={"number": NUMBER},
    )


def team_catalog(base_url: str = "http://127.0.0.1:1/v1", **backend: Any) -> Catalog:
    """Give a catalog with the same names at the top, in "team/" and in "team/research/", each saying something else.

    References inside the definitions lead out of their namespace, where there is something of that name below too.
    """
    settings: dict[str, Any] = {"retry": RetryPolicy(base_delay=0.0, max_delay=0.0), **backend}
    places = ("", "team/", "team/research/")
    prompts = [
        prompt
        for place in places
        for prompt in (
            PromptDefinition(
                id=f"{place}ask",
                messages=(MessageTemplate(role="user", content=f"{place}: {{{{ question }}}}"),),
                variables=("question",),
                profile="warm",
            ),
            PromptDefinition(
                id=f"{place}number",
                messages=(MessageTemplate(role="user", content=f"A number for {place}{{{{ question }}}}"),),
                variables=("question",),
                profile="warm",
                output=OutputContract(kind="json_schema", schema="number"),
            ),
            PromptDefinition(id=f"{place}bare", messages=(MessageTemplate(role="user", content=f"{place} hi"),)),
        )
    ]
    return Catalog(
        backends=[
            Backend(id=f"{place}server", kind="chat_completions", base_url=base_url, **settings) for place in places
        ],
        profiles=[Profile(id=f"{place}warm", backend=f"{place}server", model=f"{place}model") for place in places],
        prompts=prompts,
        schemas={f"{place}number": {"type": "object", "required": ["a"], "description": place} for place in places},
    )
