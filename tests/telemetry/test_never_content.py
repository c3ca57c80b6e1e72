"""What people write, models answer and keys are is in nothing that is exported."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from promptkit import (
    Backend,
    Catalog,
    Engine,
    GenerationCall,
    GenerationReply,
    Message,
    MessageTemplate,
    OutputContract,
    OverloadedError,
    Profile,
    PromptDefinition,
    PromptKitError,
    RejectedRequestError,
    RetryPolicy,
    RunRequest,
    Secret,
    TemplateError,
)
from promptkit.testing import ScriptedClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from telemetry.conftest import Telemetry

pytestmark = pytest.mark.anyio

MARK = "MARKED"
SCHEMA: Any = {"type": "object", "properties": {"MARKED_KEY": {"const": "MARKED_CONST"}}, "required": ["MARKED_KEY"]}


def marked_catalog() -> Catalog:
    """Give a catalog in which all that is not a name or a number is marked."""
    return Catalog(
        backends=[
            Backend(
                id="server",
                kind="chat_completions",
                base_url="http://127.0.0.1:1/v1",
                credential_env="MARKED_ENVIRONMENT",
                headers={"x-marked": "MARKED_HEADER"},
                retry=RetryPolicy(base_delay=0.0, max_delay=0.0),
            )
        ],
        profiles=[Profile(id="p", backend="server", model="m", stop=("MARKED_STOP",), extra={"note": "MARKED_EXTRA"})],
        prompts=[
            PromptDefinition(
                id="ask",
                description="MARKED_DESCRIPTION",
                messages=(
                    MessageTemplate(role="system", content="MARKED_SYSTEM"),
                    MessageTemplate(role="user", content="{{ question }} {{ inputs.file }}"),
                ),
                variables=("question",),
                inputs=("file",),
                profile="p",
                session="MARKED_SESSION {{ question }}",
                output=OutputContract(kind="json_schema", schema=SCHEMA, name="MARKED_SCHEMA", max_repairs=1),
            )
        ],
    )


def marked(**fields: Any) -> RunRequest:
    given = {
        "variables": {"question": "MARKED_VARIABLE"},
        "inputs": {"file": "MARKED_INPUT"},
        "credential": Secret("MARKED_KEY_OF_THE_BACKEND"),
        "appended_messages": (Message(role="user", content="MARKED_APPENDED"),),
        "capture_exchange": True,
        **fields,
    }
    return RunRequest(prompt_id="ask", **given)


async def exported(telemetry: Telemetry, client: Any, **fields: Any) -> str:
    engine = Engine(marked_catalog(), client=client)
    observer = telemetry.observer(catalog=marked_catalog())
    with contextlib.suppress(PromptKitError):
        await engine.run(marked(observer=observer, **fields))
    return telemetry.everything()


def _answer() -> ScriptedClient:
    return ScriptedClient(GenerationReply(content='{"MARKED_KEY": "MARKED_CONST"}', refusal="MARKED_REFUSAL"))


def _repair() -> ScriptedClient:
    return ScriptedClient("MARKED_INVALID", "MARKED_STILL_INVALID")


def _failure() -> ScriptedClient:
    failed = RejectedRequestError("MARKED_ERROR", status=400, excerpt="MARKED_EXCERPT", provider_code="MARKED_CODE")
    return ScriptedClient(OverloadedError("MARKED_ERROR", status=503), failed)


def _bug() -> ScriptedClient:
    return ScriptedClient(ValueError("MARKED_BUG"))


@pytest.mark.parametrize("client", [_answer, _repair, _failure])
async def test_nothing_of_prompts_answers_errors_and_keys_is_exported(
    telemetry: Telemetry, client: Callable[[], ScriptedClient]
) -> None:
    text = await exported(telemetry, client())
    assert "run_prompt ask" in text
    assert MARK not in text


async def test_nothing_of_an_exception_that_is_none_of_promptkit_is_exported_but_its_class(
    telemetry: Telemetry,
) -> None:
    with pytest.raises(ValueError, match="MARKED_BUG"):
        await exported(telemetry, _bug())
    text = telemetry.everything()
    assert "ValueError" in text
    assert MARK not in text


async def test_nothing_of_a_request_that_cannot_be_prepared_is_exported(telemetry: Telemetry) -> None:
    engine = Engine(marked_catalog(), client=ScriptedClient())
    with pytest.raises(TemplateError):
        await engine.run(marked(observer=telemetry.observer(), variables={"question": None}))
    text = telemetry.everything()
    assert "TemplateError" in text
    assert MARK not in text


async def test_nothing_of_a_cancelled_or_continued_run_is_exported(telemetry: Telemetry) -> None:
    engine = Engine(marked_catalog(), client=_answer())
    first = await engine.run(marked())
    with anyio.CancelScope() as scope:

        class Client:
            async def generate(self, call: GenerationCall) -> GenerationReply:
                scope.cancel("MARKED_REASON")
                await anyio.sleep_forever()
                raise AssertionError

        await exported(telemetry, Client(), continue_from=first.exchange)
    text = telemetry.everything()
    assert "cancelled" in text
    assert MARK not in text
