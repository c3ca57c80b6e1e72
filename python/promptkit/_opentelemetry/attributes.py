"""Events as attributes, and what a catalog adds to them. Nothing here waits, or knows a span."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from promptkit._opentelemetry import conventions as names

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from promptkit import AttemptFinished, Backend, Catalog, Profile, RunFinished, TokenCount, TokenUsage

Value = str | int | float | tuple[str, ...]
Attributes = dict[str, Value]

MAX_TEXT = 256  # characters of a name: models and ids come from backends, which may write anything
MAX_INTEGER = 2**63 - 1  # what an exporter can encode; a larger one would cost it the whole batch


class Configured(NamedTuple):
    """What a catalog says about the attempts of a profile: settings for their spans, and what their metrics share."""

    settings: Mapping[str, Value]
    target: Mapping[str, Value]  # the model, and the server
    provider: str | None


UNCONFIGURED = Configured({}, {}, None)


def configured(catalog: Catalog | None) -> dict[tuple[str, str], Configured]:
    """Give what a catalog says, by the ids of profile and backend."""
    if catalog is None:
        return {}
    return {
        (profile.id, profile.backend): _configured(profile, catalog.backends[profile.backend])
        for profile in catalog.profiles.values()
    }


def _configured(profile: Profile, backend: Backend) -> Configured:
    given = {
        names.REQUEST_TEMPERATURE: profile.temperature,
        names.REQUEST_TOP_P: profile.top_p,
        names.REQUEST_MAX_TOKENS: profile.max_output_tokens,
        names.REQUEST_SEED: profile.seed,
    }
    settings: Attributes = {name: _number(value) for name, value in given.items() if value is not None}
    target: Attributes = {names.REQUEST_MODEL: text(profile.model)}
    if backend.base_url is None:
        return Configured(settings, target, None)
    address = urlsplit(backend.base_url)
    host = address.hostname or ""
    target[names.SERVER_ADDRESS] = text(host)
    target[names.SERVER_PORT] = address.port or (443 if address.scheme == "https" else 80)
    return Configured(settings, target, provider_at(host))


def provider_at(host: str) -> str | None:
    """Give the well-known provider at a host, or None."""
    labels = host.lower().split(".")
    parents = (".".join(labels[start:]) for start in range(len(labels)))
    return next((names.PROVIDERS_BY_HOST[parent] for parent in parents if parent in names.PROVIDERS_BY_HOST), None)


def text(value: str) -> str:
    """Give a name as every exporter takes it: bounded, and without lone surrogates."""
    if len(value) <= MAX_TEXT and value.isascii():
        return value
    return value[:MAX_TEXT].encode("utf-8", "replace").decode()


def nanoseconds(at: datetime) -> int:
    """Give an instant as spans have it."""
    seconds = int(at.replace(microsecond=0).timestamp())  # a float of it all would lose the microseconds
    return seconds * 1_000_000_000 + at.microsecond * 1_000


def usage_attributes(usage: TokenUsage, by_field: Mapping[str, str]) -> Attributes:
    """Give the known counts. Those that are lower bounds are named as such; what is unknown is not there."""
    counts: dict[str, TokenCount] = {field: getattr(usage, field) for field in by_field}
    known: Attributes = {by_field[field]: _number(count.value) for field, count in counts.items() if count.known}
    partial = tuple(field for field, count in counts.items() if count.known and not count.complete)
    return known | {names.USAGE_PARTIAL: partial} if partial else known


def operation_attributes(event: AttemptFinished, found: Configured, providers: Mapping[str, str]) -> Attributes:
    """Give what the span of an attempt and its metrics share: few values each, but for the models.

    The event has one model: the reported one, or the asked one where nothing was reported. An attempt without a reply
    thus names what was asked; the asked model of the others is known from a catalog alone.
    """
    provider = providers.get(event.backend) or found.provider or names.PROVIDERS_BY_KIND.get(event.backend_kind)
    shared: Attributes = {
        names.OPERATION: names.CHAT,
        names.PROVIDER: text(provider or event.backend_kind),
        (names.RESPONSE_MODEL if event.outcome == "completed" else names.REQUEST_MODEL): text(event.model),
        **found.target,
    }
    return shared | error_attributes(event)


def error_attributes(event: AttemptFinished | RunFinished) -> Attributes:
    """Give the class of what went wrong. Both event loops call a cancellation by another name; here it has one."""
    if event.outcome == "completed":
        return {}
    return {names.ERROR_TYPE: names.CANCELLED if event.outcome == "cancelled" else text(event.error or "_OTHER")}


def attempt_attributes(event: AttemptFinished, found: Configured) -> Attributes:
    """Give what the span of an attempt has beside what it shares with the metrics."""
    attributes: Attributes = {
        **found.settings,
        names.RUN_ID: text(event.run_id),
        names.PROFILE: text(event.profile),
        names.BACKEND: text(event.backend),
        names.ATTEMPT: event.attempt,
        names.PURPOSE: event.purpose,
        names.QUEUED: event.queued,
        names.OUTCOME: event.outcome,
        **usage_attributes(event.usage, names.ATTEMPT_USAGE),
    }
    if event.response_id is not None:
        attributes[names.RESPONSE_ID] = text(event.response_id)
    if event.status is not None:
        attributes[names.STATUS_CODE] = _number(event.status)
    return attributes


def run_attributes(event: RunFinished) -> Attributes:
    """Give what the span of a run has when it ends."""
    given = {
        names.PROMPT_VERSION: event.definition_hash,
        names.PROFILE: event.profile,
        names.BACKEND: event.backend,
        names.VALIDATION: event.validation,
    }
    return {
        names.OUTCOME: event.outcome,
        names.ATTEMPTS: event.attempts,
        names.TRANSIENT_RETRIES: event.transient_retries,
        names.REPAIR_CALLS: event.repair_calls,
        **{name: text(value) for name, value in given.items() if value is not None},
        **usage_attributes(event.usage, names.RUN_USAGE),
        **error_attributes(event),
    }


def _number(value: float) -> float:
    return max(-MAX_INTEGER, min(value, MAX_INTEGER))
