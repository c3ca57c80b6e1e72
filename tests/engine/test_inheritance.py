"""A continuation inherits nothing but the conversation: every setting, one by one.

Each row gives the run that is continued one setting that it usually has not. What its continuation sends, tells and
gives back must be the same as without it, byte for byte; and the first run itself must show the setting, or the row
would prove nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from promptkit import (
    Backend,
    Catalog,
    EmbeddedOptions,
    Engine,
    Message,
    MessageTemplate,
    OutputContract,
    Profile,
    PromptDefinition,
    RetryPolicy,
    RunRequest,
    Secret,
)
from promptkit._history import Turn
from promptkit._prepare.settings import base_settings
from promptkit._values.exchange import exchange_of
from promptkit.testing import EventRecorder, ScriptedClient
from servers.stub import ok

if TYPE_CHECKING:
    from servers.stub import StubServer

pytestmark = pytest.mark.anyio

ANSWER = '{"a": 1}'
ROOT = exchange_of(Turn(None, [("user", "the root", None)]).capture("root", "of all"))
EMBEDDED: dict[str, Any] = {"kind": "embedded", "base_url": None}
AS_SCHEMA: dict[str, Any] = {"kind": "json_schema", "schema": {"type": "object"}}

# For each field a value that the first run does not have otherwise. With a second one, that is what it has otherwise.
ROWS: dict[type[Any], dict[str, Any]] = {
    RunRequest: {
        "prompt_id": "another",
        "variables": {"q": "of the first"},
        "inputs": {"doc": "of the first"},
        "profile": "another",
        "output": OutputContract(kind="json"),
        "session_id": "of the first",
        "credential": Secret("of-the-first"),
        "appended_messages": (Message(role="user", content="of the first"),),
        "observer": EventRecorder(),
        "capture_exchange": True,
        "continue_from": ROOT,
    },
    Profile: {
        "id": "renamed",
        "backend": "another",
        "model": "of-the-first",
        "temperature": 0.25,
        "top_p": 0.25,
        "max_output_tokens": 77,
        "stop": ("STOP",),
        "seed": 77,
        "reasoning_effort": "high",
        "native_output": "none",
        "extra": {"of_the_first": 1},
    },
    Backend: {
        "id": "renamed",
        "kind": "embedded",
        "base_url": "{base_url}/of/the/first",
        "credential_env": "PROMPTKIT_TEST_KEY",
        "max_concurrency": 3,
        "max_waiting": 3,
        "connect_timeout": 3.5,
        "attempt_timeout": 13.5,
        "retry": RetryPolicy(max_retries=7),
        "headers": {"x-of-the-first": "1"},
        "trust_env": True,
        "session_parameter": "of_the_first",
        "token_limit_parameter": "max_completion_tokens",
        "cache_markers": "omit",
        "late_system": "as_user",
        "embedded": EmbeddedOptions(threads=3),
    },
    RetryPolicy: {"max_retries": 7, "base_delay": 0.25, "max_delay": 3.5, "max_retry_after": 13.5},
    EmbeddedOptions: {"model_path": "/of/the/first.gguf", "context_tokens": 512, "threads": 3},
    OutputContract: {"kind": "json", "schema": {"type": "object", "title": "T"}, "name": "n7", "max_repairs": 3},
}
CONTENT = {"variables", "inputs", "appended_messages", "continue_from"}  # of what a run says, which does cross
UNSEEN = {"observer", "capture_exchange"}  # no part of what is prepared


def test_every_setting_has_a_row() -> None:
    for kind, rows in ROWS.items():
        assert rows.keys() == set(kind.__struct_fields__), kind.__name__


def changed(kind: type[Any], field: str) -> tuple[dict[type[Any], dict[str, Any]], dict[type[Any], dict[str, Any]]]:
    """Give what the first run has beside the usual: without the setting, and with it."""
    without: dict[type[Any], dict[str, Any]] = {kind: {} for kind in ROWS}
    if kind is EmbeddedOptions or (kind is Backend and field == "embedded"):
        without[Backend] = dict(EMBEDDED)
    if kind is OutputContract and field in {"schema", "name", "max_repairs"}:
        without[OutputContract] = dict(AS_SCHEMA)
    if kind is RunRequest and field == "capture_exchange":
        without[RunRequest] = {"continue_from": ROOT, "capture_exchange": False}
    given = {other: dict(fields) for other, fields in without.items()}
    given[kind][field] = ROWS[kind][field]
    if kind is Backend and field == "kind":
        given[Backend] |= EMBEDDED
    return without, given


def catalog(base_url: str, fields: dict[type[Any], dict[str, Any]]) -> tuple[Catalog, str]:
    """Give a catalog for two prompts that have nothing in common, and the profile of the first."""
    made = {name: value for name, value in fields[Backend].items() if name != "base_url"}
    address = fields[Backend].get("base_url", "{base_url}")
    made = {"kind": "chat_completions", "id": "first", **made}
    made["base_url"] = None if address is None else address.format(base_url=base_url)
    if fields[RetryPolicy]:
        made["retry"] = RetryPolicy(**fields[RetryPolicy])
    if fields[EmbeddedOptions]:
        made["embedded"] = EmbeddedOptions(**fields[EmbeddedOptions])
    backends = [
        Backend(**made),
        *(Backend(id=name, kind="chat_completions", base_url=base_url) for name in ("another", "second")),
    ]
    profile = Profile(**{"id": "first", "backend": made["id"], "model": "m1", **fields[Profile]})
    profiles = [
        profile,
        Profile(id="another", backend="another", model="m1"),
        Profile(id="second", backend="second", model="m2"),
    ]
    text = "{{ q if q is defined else 'no q' }}, {{ inputs.doc if inputs.doc is defined else 'no doc' }}"
    named: dict[str, Any] = {"variables": ("q",), "inputs": ("doc",)}
    prompts = [
        PromptDefinition(
            id=name,
            messages=(MessageTemplate(role="user", content=text),),
            profile=chosen,
            output=output,
            **named,
        )
        for name, chosen, output in (
            ("first", profile.id, OutputContract(**fields[OutputContract])),
            ("another", profile.id, OutputContract(**fields[OutputContract])),
            ("second", "second", OutputContract()),
        )
    ]
    return Catalog(backends=backends, profiles=profiles, prompts=prompts), made["kind"]


def comparable(value: Any) -> Any:
    """Take out what differs between any two runs."""
    plain = msgspec.to_builtins(value)
    return {
        name: item
        for name, item in plain.items()
        if name not in {"at", "run_id", "parent_run_id", "queued", "duration", "timing"}
    }


async def conversation(stub: StubServer, fields: dict[type[Any], dict[str, Any]], *, content: bool) -> tuple[Any, Any]:
    """Hold a run and its continuation. Give what the first shows, and all that the second does."""
    stub.requests.clear()
    stub.say(ok(ANSWER))
    made, kind = catalog(stub.base_url, fields)
    first_request = RunRequest(**{"prompt_id": "first", "capture_exchange": True, **fields[RunRequest]})
    async with Engine(made, client=ScriptedClient(ANSWER) if kind == "embedded" else None) as engine:
        shown = msgspec.json.encode(await engine.prepare(first_request))
        first = await engine.run(first_request)
    told = list(first_request.observer.events) if isinstance(first_request.observer, EventRecorder) else []
    stub.requests.clear()
    recorder = EventRecorder()
    async with Engine(made) as engine:
        request = RunRequest(prompt_id="second", continue_from=first.exchange, observer=recorder)
        prepared = await engine.prepare(request)
        result = await engine.run(request)
    if isinstance(first_request.observer, EventRecorder):
        assert told == first_request.observer.events != []
    assert {event.parent_run_id for event in recorder.events} == {first.run_id}
    assert (result.parent_run_id, prepared.parent_run_id) == (first.run_id, first.run_id)
    assert prepared.settings.items() >= base_settings(made.profiles["second"], made.backends["second"]).items()
    sent = stub.requests[0]
    headers = [header for header in sent.headers if header[0].lower() != "content-length"]
    body, details, told_back = json.loads(sent.body), comparable(prepared), comparable(result)
    if content:
        for seen, name in ((body, "messages"), (details, "messages")):
            seen[name] = seen[name][-1:]
        del details["rendered_hash"], told_back["rendered_hash"]
    else:
        body = sent.body
    return shown, (sent.path, headers, body, details, told_back, [comparable(event) for event in recorder.events])


@pytest.mark.parametrize(
    ("kind", "field"),
    [pytest.param(kind, field, id=f"{kind.__name__}.{field}") for kind, rows in ROWS.items() for field in rows],
)
async def test_no_setting_crosses_from_a_run_to_its_continuation(
    stub: StubServer, monkeypatch: pytest.MonkeyPatch, kind: type[Any], field: str
) -> None:
    monkeypatch.setenv("PROMPTKIT_TEST_KEY", "of-the-first")
    monkeypatch.setenv("NO_PROXY", "*")
    without, given = changed(kind, field)
    content = kind is RunRequest and field in CONTENT
    usual, expected = await conversation(stub, without, content=content)
    shown, found = await conversation(stub, given, content=content)
    assert found == expected
    assert (shown != usual) == (field not in UNSEEN)
