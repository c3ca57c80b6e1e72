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
