"""A response that arrived and never reached `next`: who has not kept the coordination is told where it is."""

from __future__ import annotations

import asyncio
import time
import traceback
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

from promptkit import BlockingEngine, CoordinateRequest, Engine, RunRequest
from promptkit._effects.branch import UNDELIVERED
from promptkit.testing import ScriptedClient
from servers.catalogs import small_catalog

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit import Exchange, GenerationCall

FIRST = RunRequest(prompt_id="ask", variables={"question": "Where?"}, capture_exchange=True)
MORE = RunRequest(prompt_id="more")
on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])


async def started(*answers: Any) -> tuple[Engine, Exchange]:
    engine = Engine(small_catalog(), client=ScriptedClient("Rome.", *answers))
    return engine, (await engine.run(FIRST)).exchange


def request(start: Exchange, **fields: Any) -> CoordinateRequest:
    return CoordinateRequest(start=start, additional_turns=3, next=lambda _: MORE, **fields)


def test_the_sentence_says_where_the_response_is_and_what_to_keep() -> None:
    assert UNDELIVERED == (
        "the response that next was not given is in .result.undelivered of the coordination: "
        "keep what engine.coordinate(...) gives, and run that"
    )


@pytest.mark.anyio
async def test_the_cancellation_that_leaves_says_where_the_undelivered_response_is() -> None:
    def answer(_: GenerationCall) -> str:
        scope.cancel()
        return "paid"

    engine, start = await started(answer)
    notes: list[str] = []
    with anyio.CancelScope() as scope:
        try:
            await engine.coordinate(request(start))
        except anyio.get_cancelled_exc_class() as cancellation:
            notes.extend(cancellation.__notes__)
            raise
    assert scope.cancelled_caught
    assert notes == [UNDELIVERED]


@on_asyncio
@pytest.mark.anyio
async def test_a_traceback_of_a_deadline_around_an_inline_coordination_says_it() -> None:
    def answer(_: GenerationCall) -> str:
        scope.deadline = anyio.current_time() - 1
        return "paid"

    engine, start = await started(answer)
    said = ""
    try:
        with anyio.fail_after(60) as scope:
            await engine.coordinate(request(start))
    except TimeoutError as error:
        said = "".join(traceback.format_exception(error))
    assert UNDELIVERED in said
    assert "paid" not in said.replace('return "paid"', "")


@on_asyncio
@pytest.mark.anyio
async def test_a_native_cancellation_keeps_its_identity_beside_the_note() -> None:
    def answer(_: GenerationCall) -> str:
        task.cancel("mine")
        return "paid"

    engine, start = await started(answer)
    task = asyncio.ensure_future(engine.coordinate(request(start)).run())
    with pytest.raises(asyncio.CancelledError) as left:
        await task
    assert left.value.__notes__ == [UNDELIVERED]


@pytest.mark.anyio
async def test_a_cancellation_that_withholds_nothing_has_no_note() -> None:
    async def answer(_: GenerationCall) -> str:
        scope.cancel()
        await anyio.lowlevel.checkpoint()
        return "never"

    engine, start = await started(answer)
    notes: list[list[str]] = []
    with anyio.CancelScope() as scope:
        try:
            await engine.coordinate(request(start))
        except anyio.get_cancelled_exc_class() as cancellation:
            notes.append(getattr(cancellation, "__notes__", []))
            raise
    assert notes == [[]]


def blocking(answer: Callable[[GenerationCall], str]) -> tuple[BlockingEngine, Exchange]:
    engine = BlockingEngine(small_catalog(), client=ScriptedClient("Rome.", answer))
    return engine, engine.run(FIRST).exchange


def test_a_timeout_of_a_blocking_coordination_says_it_once() -> None:
    def answer(_: GenerationCall) -> str:
        until = time.monotonic() + 0.05
        while time.monotonic() <= until:  # it blocks, as synchronous code does
            pass
        return "paid"

    engine, start = blocking(answer)
    with engine, pytest.raises(TimeoutError) as left:
        engine.coordinate(request(start)).run(timeout=0.02)
    assert str(left.value) == f"the coordination did not finish within its timeout of 0.02 s: {UNDELIVERED}"
    assert getattr(left.value, "__notes__", []) == []
