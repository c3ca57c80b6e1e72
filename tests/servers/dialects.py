"""Both dialects of HTTP backends, so that one statement can be made of each."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from promptkit import Backend, Catalog, MessageTemplate, Profile, PromptDefinition, RetryPolicy, RunRequest
from servers.stub import completion


def message(text: str) -> dict[str, Any]:
    """Give an Anthropic message with 11 tokens in and 7 out."""
    return {
        "id": "r-1",
        "type": "message",
        "role": "assistant",
        "model": "said-model",
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 11, "output_tokens": 7},
    }


class Dialect(NamedTuple):
    """A kind of backend: what it appends to base_url, where the key is, what the good answer "Rome." looks like."""

    kind: Any
    path: str  # below the base_url of the scripted server
    key_header: str
    answer: bytes

    def catalog(self, base_url: str, **backend: Any) -> Catalog:
        """Give a catalog with the prompt "ask"; base_url is the one of the scripted server, which ends with /v1."""
        settings: dict[str, Any] = {"retry": RetryPolicy(max_retries=0), **backend}
        root = base_url if self.kind == "chat_completions" else base_url.removesuffix("/v1")
        return Catalog(
            backends=[Backend(id="server", kind=self.kind, base_url=root, **settings)],
            profiles=[Profile(id="p", backend="server", model="m", max_output_tokens=9)],
            prompts=[
                PromptDefinition(id="ask", profile="p", messages=(MessageTemplate(role="user", content="Where?"),))
            ],
        )


DIALECTS = {
    "chat_completions": Dialect(
        "chat_completions", "/v1/chat/completions", "authorization", json.dumps(completion("Rome.")).encode()
    ),
    "anthropic_messages": Dialect(
        "anthropic_messages", "/v1/messages", "x-api-key", json.dumps(message("Rome.")).encode()
    ),
}
ASK = RunRequest(prompt_id="ask")
