"""What a prompt says, compiled once: its templates and the hash of its definition."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from promptkit._prepare.contract import contract_of
from promptkit._prepare.same import Same
from promptkit._values.definitions import MessageTemplate, PromptDefinition
from promptkit._values.frozen import FrozenDict
from promptkit._values.templates import CompiledTemplate, compile_template

if TYPE_CHECKING:
    from promptkit._values.json import JSON

NOTHING: FrozenDict[str, Any] = FrozenDict()


class Plan(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A prompt ready to be rendered."""

    prompt: PromptDefinition
    templates: tuple[tuple[MessageTemplate, CompiledTemplate], ...]
    session: CompiledTemplate | None
    fragments: Mapping[str, str]
    definition_hash: str


def plan_of(
    prompt: PromptDefinition, schemas: Mapping[str, JSON] = NOTHING, fragments: Mapping[str, str] = NOTHING
) -> Plan:
    """Compile a prompt of a consistent catalog, which has ``schemas``, and ``fragments`` for its templates."""
    output = prompt.output
    return _plan(Same(prompt, schemas[output.schema] if isinstance(output.schema, str) else None, fragments))


@lru_cache(maxsize=4096)
def _plan(key: Same) -> Plan:
    prompt: Any
    schema: Any
    fragments: Any
    prompt, schema, fragments = key.objects
    return Plan(
        prompt=prompt,
        templates=tuple(
            (message, compile_template(message.content, fragments).unwrap()) for message in prompt.messages
        ),
        session=None if prompt.session is None else compile_template(prompt.session, fragments).unwrap(),
        fragments=fragments,
        definition_hash=definition_hash(prompt, {prompt.output.schema: schema}, fragments),
    )


def definition_hash(
    prompt: PromptDefinition, schemas: Mapping[str, JSON] = NOTHING, fragments: Mapping[str, str] = NOTHING
) -> str:
    """Hash what the prompt says, not where it is stored nor how it is described: docs/reference/hashes.md.

    ``schemas`` has the one that its contract names, if it names one, and ``fragments`` what its templates include.
    """
    said: dict[str, Any] = msgspec.to_builtins(prompt)
    del said["id"], said["description"]
    said["output"] = contract_of(prompt.output, schemas).unwrap().said
    said["fragments"] = fragments
    # The standard library's form, numbers included, so that anyone can write it without this library.
    form = json.dumps(["promptkit/definition/2", said], sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return digest(form.encode())


def digest(content: bytes) -> str:
    """Give the SHA-256 of some bytes in the form of all hashes here."""
    from hashlib import sha256  # loads OpenSSL

    return f"sha256:{sha256(content).hexdigest()}"
