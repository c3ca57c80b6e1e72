"""Connections between runs: reused while they live, and no trouble when they do not."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

import anyio
import pytest

from promptkit import DisconnectedError, Engine, RetryPolicy
from servers.dialects import ASK, DIALECTS, Dialect
from servers.stub import error, http

if TYPE_CHECKING:
    from collections.abc import Callable

    from servers.stub import Received, StubServer

pytestmark = pytest.mark.anyio

AT_ONCE = RetryPolicy(max_retries=1, base_delay=0.0, max_delay=0.0)


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return DIALECTS[request.param]


def close(connection: socket.socket, *, hard: bool) -> None:
    """End what the server's thread reads, so that it closes the connection: in order, or with a reset."""
    if hard:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.shutdown(socket.SHUT_RD if hard else socket.SHUT_RDWR)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # it becomes true in another thread
        await anyio.sleep(0.001)


async def test_one_connection_serves_runs_that_follow_each_other(stub: StubServer, dialect: Dialect) -> None:
    stub.say(http(200, dialect.answer), error(400), http(200, dialect.answer))
    async with Engine(dialect.catalog(stub.base_url)) as engine:
        await engine.run(ASK)
        with pytest.raises(Exception, match="400"):
            await engine.run(ASK)
        await engine.run(ASK)
    assert len(stub.connections) == 1


@pytest.mark.parametrize("hard", [False, True], ids=["closed", "reset"])
async def test_a_connection_that_the_server_closed_while_it_was_idle_is_not_used_and_no_attempt_is_spent(
    stub: StubServer, dialect: Dialect, *, hard: bool
) -> None:
    stub.say(http(200, dialect.answer))
    async with Engine(dialect.catalog(stub.base_url)) as engine:  # without a retry
        await engine.run(ASK)
        close(stub.connections[0], hard=hard)
        await until(lambda: stub.connections[0].fileno() < 0)
        second = await engine.run(ASK)
    assert (second.raw_output, second.attempts, second.transient_retries) == ("Rome.", 1, 0)
    assert len(stub.connections) == 2


@pytest.mark.parametrize("hard", [False, True], ids=["closed", "reset"])
async def test_a_connection_that_dies_as_the_request_arrives_is_an_ordinary_transient_retry(
    stub: StubServer, dialect: Dialect, *, hard: bool
) -> None:
    def die(_: Received, connection: socket.socket) -> None:
        close(connection, hard=hard)

    stub.say(http(200, dialect.answer), die, http(200, dialect.answer))
    async with Engine(dialect.catalog(stub.base_url, retry=AT_ONCE)) as engine:
        await engine.run(ASK)
        second = await engine.run(ASK)
    assert (second.raw_output, second.attempts, second.transient_retries) == ("Rome.", 2, 1)
    assert [request.body for request in stub.requests[1:]] == [stub.requests[1].body] * 2
    assert second.usage.output_tokens.complete is False  # the first request may have been answered


async def test_without_a_retry_a_connection_that_dies_is_a_lost_one(stub: StubServer, dialect: Dialect) -> None:
    stub.say(http(200, dialect.answer), lambda _, connection: close(connection, hard=True), http(200, dialect.answer))
    async with Engine(dialect.catalog(stub.base_url)) as engine:
        await engine.run(ASK)
        with pytest.raises(DisconnectedError, match="lost before the whole reply"):
            await engine.run(ASK)
        assert (await engine.run(ASK)).raw_output == "Rome."


async def test_an_error_whose_connection_is_then_reset_is_that_error_and_the_retry_takes_a_new_one(
    stub: StubServer, dialect: Dialect
) -> None:
    def fail_and_reset(_: Received, connection: socket.socket) -> None:
        connection.sendall(error(500))
        close(connection, hard=False)

    stub.say(fail_and_reset, http(200, dialect.answer))
    retry = RetryPolicy(max_retries=3, base_delay=0.0, max_delay=0.0)
    async with Engine(dialect.catalog(stub.base_url, retry=retry)) as engine:
        result = await engine.run(ASK)
    # The retry may be under way before the end of the connection arrives, and is then one more that is lost.
    assert result.raw_output == "Rome."
    assert result.attempts in {2, 3}
