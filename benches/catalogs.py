"""The catalog of the conversations that benchmarks hold: one prompt, whose only message is its variable."""

from __future__ import annotations

from typing import Any

from promptkit import Backend, Catalog, MessageTemplate, Profile, PromptDefinition


def saying(base_url: str = "http://127.0.0.1:1/v1", **backend: Any) -> Catalog:
    """Make a catalog with the prompt "say" and its variable "text". ``backend`` are further fields of the backend."""
    return Catalog(
        backends=[Backend(id="local", kind="chat_completions", base_url=base_url, **backend)],
        profiles=[Profile(id="plain", backend="local", model="model")],
        prompts=[
            PromptDefinition(
                id="say",
                messages=(MessageTemplate(role="user", content="{{ text }}"),),
                variables=("text",),
                profile="plain",
            )
        ],
    )
