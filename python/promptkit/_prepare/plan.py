"""What a prompt says, compiled once: its templates and the hash of its definition."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from typing import Any

import msgspec

from promptkit._values.definitions import MessageTemplate, PromptDefinition
from promptkit._values.templates import CompiledTemplate, compile_template


class Plan(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A prompt ready to be rendered."""

    prompt: PromptDefinition
    templates: tuple[tuple[MessageTemplate, CompiledTemplate], ...]
    session: CompiledTemplate | None
    definition_hash: str


class _Same:
    """A prompt as a key: equal is only itself. By value, a schema with 1 would find the plan of one with true."""

    __slots__ = ("prompt",)

    def __init__(self, prompt: PromptDefinition) -> None:
        self.prompt = prompt

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.prompt is self.prompt

    def __hash__(self) -> int:
        return id(self.prompt)


def plan_of(prompt: PromptDefinition) -> Plan:
    """Compile a prompt of a consistent catalog."""
    return _plan(_Same(prompt))


@lru_cache(maxsize=4096)
def _plan(key: _Same) -> Plan:
    prompt = key.prompt
    return Plan(
        prompt=prompt,
        templates=tuple((message, compile_template(message.content).unwrap()) for message in prompt.messages),
        session=None if prompt.session is None else compile_template(prompt.session).unwrap(),
        definition_hash=definition_hash(prompt),
    )


def definition_hash(prompt: PromptDefinition) -> str:
    """Hash what the prompt says, not where it is stored nor how it is described.

    SHA-256 of the compact JSON array of "promptkit/definition/1" and the definition without ``id`` and
    ``description``, with the keys of every object sorted.
    """
    said: dict[str, Any] = msgspec.to_builtins(prompt)
    del said["id"], said["description"]
    return digest(msgspec.json.encode(["promptkit/definition/1", said], order="sorted"))


def digest(content: bytes) -> str:
    """Give the SHA-256 of some bytes in the form of all hashes here."""
    return f"sha256:{sha256(content).hexdigest()}"
