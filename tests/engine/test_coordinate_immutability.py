"""Whatever an application does to what it received and returned, the branch and its ancestry stay as they are.

Not by ordinary means only: the fields of frozen values are overwritten as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from msgspec.structs import force_setattr

from promptkit import CoordinateRequest, Engine, Exchange, ExchangeDetails, Message, RunRequest, RunResult
from promptkit.testing import ScriptedClient
from servers.catalogs import small_catalog

if TYPE_CHECKING:
    from promptkit import ConversationTurn

pytestmark = pytest.mark.anyio

FIRST = Message(role="user", content="Be brief.")


def overwrite(value: Any, names: tuple[str, ...] = ()) -> None:
    """Put something else into every field of a frozen value, whatever that takes."""
    for name in names or tuple(field.name for field in msgspec.structs.fields(value)):
        force_setattr(value, name, "MARK")


class Application:
    """Asks for a number twice, and then vandalises all that it holds, if it is told to."""

    def __init__(self, *, vandal: bool) -> None:
        self.vandal = vandal
        self.seen: list[tuple[RunResult | None, int]] = []
        self.hashes: list[str] = []
        self.last: Exchange | None = None
        self.returned: RunRequest | None = None
        self.variables: dict[str, Any] = {}
        self.appended: list[Message] = []

    def next(self, turn: ConversationTurn) -> RunRequest | None:
        self.last = turn.exchange
        self.hashes += [] if turn.result is None else [turn.result.rendered_hash]
        going_on = turn.remaining_turns > 0
        if self.vandal:
            self._spoil_received(turn)
        if not going_on:
            return None
        self.variables = {"question": f"Where {len(self.hashes)}?"}
        self.appended = [msgspec.structs.replace(FIRST)]
        self.returned = RunRequest(prompt_id="ask", variables=self.variables, appended_messages=self.appended)  # type: ignore[arg-type]
        return self.returned

    def _spoil_received(self, turn: ConversationTurn) -> None:
        details = turn.exchange.details()
        for message in details.messages:
            overwrite(message)
        overwrite(details)
        if turn.result is not None:
            if isinstance(turn.result.value, dict):
                turn.result.value["a"] = "MARK"
            turn.result.__dict__.clear()
            overwrite(turn.result)
        overwrite(turn)
        for message in self.appended:  # of the request that has been run
            overwrite(message)

    async def spoil_returned(self) -> None:
        """Strike after ``next`` has returned and before its request runs, each time."""
        spoilt: RunRequest | None = None
        while True:
            await anyio.lowlevel.checkpoint()
            if self.returned is not None and self.returned is not spoilt:
                spoilt = self.returned
                self.variables["question"] = "MARK"
                self.variables.clear()
                force_setattr(spoilt, "variables", {"question": "MARK"})
                self.appended.append(Message(role="user", content="MARK"))
                overwrite(spoilt, ("prompt_id", "profile", "output", "session_id", "continue_from", "observer"))
                force_setattr(spoilt, "appended_messages", (Message(role="user", content="MARK"),))


async def led(*, vandal: bool) -> tuple[list[list[Message]], ExchangeDetails, ExchangeDetails, list[str]]:
    client = ScriptedClient("Rome.", '{"a": 1}', '{"a": 2}')
    engine = Engine(small_catalog(), client=client)
    first = await engine.run(RunRequest(prompt_id="ask", variables={"question": "Where?"}, capture_exchange=True))
    start = first.exchange
    application = Application(vandal=vandal)
    async with anyio.create_task_group() as others:
        if vandal:
            others.start_soon(application.spoil_returned)
        request = CoordinateRequest(start=start, additional_turns=2, next=application.next)
        assert (await engine.coordinate(request)).outcome == "stopped"
        others.cancel_scope.cancel()
    assert application.last is not None
    sent = [list(call.messages) for call in client.calls]
    return sent, start.details(), application.last.details(), application.hashes


async def test_spoiling_all_that_was_received_and_returned_changes_neither_the_branch_nor_its_ancestry() -> None:
    sent, before, after, hashes = await led(vandal=False)
    spoilt_sent, spoilt_before, spoilt_after, spoilt_hashes = await led(vandal=True)
    assert "MARK" not in str(spoilt_sent) + str(spoilt_before) + str(spoilt_after)
    assert spoilt_sent == sent
    assert spoilt_before.messages == before.messages
    assert spoilt_after.messages == after.messages
    assert [message.content for message in after.messages][-4:] == [
        "You are terse.",
        "Where 1?",
        "Be brief.",
        '{"a": 2}',
    ]
    assert spoilt_hashes == hashes
    assert len(hashes) == 2
