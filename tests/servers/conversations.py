"""Conversations that have begun: one answered question, and what tests need to go on from there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from promptkit import (
    BackendStatusError,
    CoordinateRequest,
    Engine,
    Exchange,
    GenerationReply,
    ReportedUsage,
    RunRequest,
    RunResult,
)
from promptkit.testing import ScriptedClient
from servers.catalogs import small_catalog

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit import ConversationTurn, Coordination

ASK = RunRequest(prompt_id="ask", variables={"question": "Where?"}, capture_exchange=True)
MORE = RunRequest(prompt_id="more")
FOLLOW = RunRequest(prompt_id="follow")
GOOD = '{"a": 1}'
HISTORY = ["You are terse.", "Where?", "Rome."]


def reply(content: str, given: int = 10, made: int = 2) -> GenerationReply:
    """Give an answer that reports its tokens."""
    return GenerationReply(content=content, usage=ReportedUsage(input_tokens=given, output_tokens=made))


def transient() -> BackendStatusError:
    """Give a failure that is worth a retry."""
    return BackendStatusError("503", status=503, transient=True)


def texts(exchange: Exchange) -> list[object]:
    """Give the contents of a history."""
    return [message.content for message in exchange.details().messages]


async def scene(*steps: Any, **backend: Any) -> tuple[Engine, ScriptedClient, RunResult]:
    """Hold the first exchange; the steps answer what follows."""
    client = ScriptedClient("Rome.", *steps)
    engine = Engine(small_catalog(**backend), client=client)
    return engine, client, await engine.run(ASK)


def coordinated(
    engine: Engine, start: Exchange, choose: Callable[[ConversationTurn], Any], turns: int = 3, **fields: Any
) -> Coordination:
    """Make a coordination of one branch."""
    return engine.coordinate(CoordinateRequest(start=start, additional_turns=turns, next=choose, **fields))
