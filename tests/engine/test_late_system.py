"""A system message after the conversation has begun: sent as it is, refused before sending, or sent as the user's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from promptkit import Catalog, Engine, InvalidRequestError, Message, MessageTemplate, PromptDefinition, RunRequest
from promptkit.testing import EventRecorder
from servers.catalogs import small_catalog
from servers.stub import ok

if TYPE_CHECKING:
    from servers.stub import StubServer

pytestmark = pytest.mark.anyio

TURN: Any = [("system", "Be terse."), ("developer", "In English."), ("user", "Hello.")]
LATER: Any = [("system", "Now be verbose."), ("user", "Again."), ("developer", "In Latin.")]


def catalog(stub: StubServer, late_system: Any) -> Catalog:
    return small_catalog(stub.base_url, late_system=late_system) | Catalog(
        prompts=[
            PromptDefinition(id=name, messages=tuple(MessageTemplate(role=role, content=text) for role, text in said))
            for name, said in (("early", TURN), ("late", LATER))
        ]
    )


def as_sent(said: Any) -> Any:
    return [{"role": role, "content": text} for role, text in said]


@pytest.mark.parametrize("late_system", [None, "send", "as_user"])
async def test_a_late_system_message_is_sent_as_the_backend_says(stub: StubServer, late_system: Any) -> None:
    stub.say(ok("Hello."), ok("Ave."), ok("Vale."))
    async with Engine(catalog(stub, late_system)) as engine:
        first = await engine.run(RunRequest(prompt_id="early", profile="cold", capture_exchange=True))
        second = await engine.run(RunRequest(prompt_id="late", profile="cold", continue_from=first.exchange))
        await engine.run(RunRequest(prompt_id="early", profile="cold", continue_from=second.exchange))
    late = {"system": "user", "developer": "user", "user": "user"} if late_system == "as_user" else {}
    expected = [
        *TURN,
        ("assistant", "Hello."),
        *((late.get(role, role), text) for role, text in LATER),
        ("assistant", "Ave."),
        *((late.get(role, role), text) for role, text in TURN),
    ]
    sent = [request.messages for request in stub.requests]
    assert json.loads(sent[2]) == as_sent(expected)
    assert sent[1].startswith(sent[0][:-1] + b",")
    assert sent[2].startswith(sent[1][:-1] + b",")
    authored = [message.role for message in second.exchange.details().messages]
    assert authored == [role for role, _ in [*TURN, ("assistant", ""), *LATER, ("assistant", "")]]


async def test_a_late_system_message_is_refused_before_anything_is_sent(stub: StubServer) -> None:
    stub.say(ok("Hello."))
    recorder = EventRecorder()
    async with Engine(catalog(stub, "refuse")) as engine:
        first = await engine.run(RunRequest(prompt_id="early", profile="cold", capture_exchange=True))
        request = RunRequest(prompt_id="late", profile="cold", continue_from=first.exchange, observer=recorder)
        for refused in (engine.run, engine.prepare, engine.validate_request, engine.prepare_execution):
            with pytest.raises(InvalidRequestError) as caught:
                await refused(request)
            assert str(caught.value) == (
                "prompt 'late': of the 7 messages to be sent, the one at position 5 has a system or developer role "
                "after the conversation has begun, and backend 'server' refuses that (late_system = \"refuse\"): give "
                'it the role user, or set late_system of the backend to "as_user" or "send"'
            )
        appended = Message(role="system", content="And now?")
        with pytest.raises(InvalidRequestError, match="position 4 has a system"):
            await engine.run(RunRequest(prompt_id="early", profile="cold", appended_messages=(appended,)))
    assert len(stub.requests) == 1
    assert recorder.events[-1].attempts == 0  # type: ignore[union-attr]  # the terminal one has them
