"""What inspection shows: detached, encodable, and never a secret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import msgspec

from promptkit._values.contracts import OutputContract
from promptkit._values.definitions import EmbeddedOptions, MessageTemplate, RetryPolicy
from promptkit._values.reprs import bounded_repr
from promptkit._values.results import Setting

if TYPE_CHECKING:
    from rich.console import RenderableType


class PromptDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt as it is defined, nothing rendered. Built by ``Engine.inspect_prompt``.

    Attributes:
        id: the full id.
        description: what the prompt is for, or None.
        messages: the messages, with the source of their templates.
        variables: the names of the variables that the templates use.
        inputs: the names of the inputs that the templates and the attachments use.
        profile: the profile used when a request names none; None: each request has to name one.
        session: the source of the session id's template, or None.
        output: the contract, with its schema in place of the schema's id.
        fragments: the texts that the templates include, by name.
        definition_hash: "sha256:" and 64 hexadecimal digits, the same as that of every run of the prompt.
        source: the prompt's file, relative to the catalog's folder, with "/"; None for a prompt made in Python.
    """

    id: str
    description: str | None
    messages: tuple[MessageTemplate, ...]
    variables: tuple[str, ...]
    inputs: tuple[str, ...]
    profile: str | None
    session: str | None
    output: OutputContract
    fragments: Mapping[str, str]
    definition_hash: str
    source: str | None

    __repr__ = bounded_repr

    def __rich__(self) -> RenderableType:
        """Give what rich shows for people."""
        from promptkit._values.renderables import prompt_view

        return prompt_view(self)


class ProfileDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A profile with all that it decides. Built by ``Engine.inspect_profile``.

    Attributes:
        id: the full id.
        backend: the id of the backend.
        model: the model, by the name that the backend knows.
        settings: every setting of the profile and of its backend, the defaults resolved, and where each comes from: the
            profile, the backend, or the default. A value that equals the default counts as the default.
    """

    id: str
    backend: str
    model: str
    settings: Mapping[str, Setting]

    __repr__ = bounded_repr

    def __rich__(self) -> RenderableType:
        """Give what rich shows for people."""
        from promptkit._values.renderables import profile_view

        return profile_view(self)


class BackendDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A backend as it is configured, and how busy it is. Built by ``Engine.inspect_backend``.

    The fields are those of Backend; times are in seconds. ``max_concurrency`` and ``late_system`` have their defaults
    resolved. ``credential_env`` is the name of an environment variable, never its value. ``running`` attempts are in
    flight at this moment, and ``waiting`` other runs are admitted: queued, between two attempts, or about to begin.
    They count what goes through this engine and its views, and are 0 while nothing runs.
    """

    id: str
    kind: Literal["chat_completions", "anthropic_messages", "embedded"]
    base_url: str | None
    credential_env: str | None
    max_concurrency: int
    max_waiting: int
    connect_timeout: float
    attempt_timeout: float
    retry: RetryPolicy
    headers: Mapping[str, str]
    trust_env: bool
    session_parameter: str | None
    token_limit_parameter: Literal["max_tokens", "max_completion_tokens"]
    cache_markers: Literal["cache_control", "prompt_cache_breakpoint", "omit"]
    late_system: Literal["send", "refuse", "as_user"]
    embedded: EmbeddedOptions | None
    running: int
    waiting: int

    __repr__ = bounded_repr

    def __rich__(self) -> RenderableType:
        """Give what rich shows for people."""
        from promptkit._values.renderables import backend_view

        return backend_view(self)
