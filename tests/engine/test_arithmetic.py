"""How many requests a run sends, and that everybody who counts them counts the same."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from promptkit import (
    AttemptFinished,
    ExecutionGroup,
    GenerationError,
    RetryDelayed,
    RetryPolicy,
    RunFinished,
    RunRequest,
    RunResult,
    RunStarted,
    TokenCount,
    TokenUsage,
    compose_observers,
)
from promptkit.testing import EventRecorder
from servers.catalogs import small_catalog
from servers.stub import StubServer, completion, error, http, ok
from servers.surroundings import Still, engine_in

if TYPE_CHECKING:
    import socket

    from promptkit import ExecutionEvent
    from servers.stub import Received, Reply

pytestmark = pytest.mark.anyio

COUNTS = list(itertools.product(range(4), range(4)))


def policy(retries: int) -> RetryPolicy:
    return RetryPolicy(max_retries=retries, base_delay=1.0, max_delay=1.0)


def cut(_: Received, connection: socket.socket) -> None:
    connection.sendall(ok("cut off")[:-5])
    connection.shutdown(2)


def counted(content: str, given: int | None, made: int | None, **choice: str) -> bytes:
    reply = completion(content, **choice)
    usage = {"prompt_tokens": given, "completion_tokens": made}
    reply["usage"] = {name: count for name, count in usage.items() if count is not None}
    return http(200, json.dumps(reply).encode())


class Say(NamedTuple):
    """What a backend says once: the reply, what becomes of a run then, and the tokens in and out.

    ``then`` is "done", "reject" (an answer that a repair may cure), "give up" (an answer that none can), "again" (a
    transient failure) or "fail". A count that is None is unknown; NONE_MADE contributes nothing at all.
    """

    reply: Reply
    then: str
    tokens: tuple[int | None, int | None]
    status: int = 200


NONE_MADE = (-1, -1)

VOCABULARY = {
    "ok": Say(counted('{"a": 1}', 11, 7), "done", (11, 7)),
    "ok without usage": Say(counted('{"a": 1}', None, None), "done", (None, None)),
    "ok with half of it": Say(counted('{"a": 1}', 0, None), "done", (0, None)),
    "bad": Say(counted("no", 13, 3), "reject", (13, 3)),
    "bad without usage": Say(counted('{"a": "x"}', None, None), "reject", (None, None)),
    "bad that cost nothing": Say(counted("", 0, 0), "reject", (0, 0)),
    "refusal": Say(
        http(
            200,
            json.dumps(
                completion("", message={"role": "assistant", "content": None, "refusal": "I will not."})
            ).encode(),
        ),
        "give up",
        (11, 7),
    ),
    "length": Say(counted('{"a":', 5, 99, finish_reason="length"), "give up", (5, 99)),
    "503": Say(error(503), "again", NONE_MADE, 503),
    "500": Say(error(500), "again", (None, None), 500),
    "429": Say(error(429), "again", NONE_MADE, 429),
    "429 with a demand": Say(error(429, "slow", ("retry-after", "3")), "again", NONE_MADE, 429),
    "408": Say(error(408), "again", (None, None), 408),
    "cut": Say(cut, "again", (None, None)),
    "error in a 200": Say(http(200, b'{"error": {"message": "no", "code": 503}}'), "again", (None, None), 503),
    "400": Say(error(400), "fail", NONE_MADE, 400),
    "429 of a quota": Say(error(429, "no", code="insufficient_quota"), "fail", NONE_MADE, 429),
    "501": Say(error(501), "fail", (None, None), 501),
    "malformed": Say(http(200, b"<html>"), "fail", (None, None)),
}


class Expected(NamedTuple):
    """What a run comes to: the names of what it heard, the purpose of each request, and its end."""

    heard: list[str]
    purposes: list[str]
    retries: int
    repairs: int
    end: str


def expected(script: list[str], max_retries: int, max_repairs: int) -> Expected:
    """Count by hand: two budgets, and a request is a repair from the first rejected answer on."""
    heard, purposes = [], []
    retries = repairs = 0
    purpose = "generate"
    for name in script:
        heard.append(name)
        purposes.append(purpose)
        then = VOCABULARY[name].then
        if then == "again" and retries < max_retries:
            retries += 1
        elif then == "reject" and repairs < max_repairs:
            repairs += 1
            purpose = "repair"
        else:
            end = {"done": "valid", "reject": "invalid", "give up": "invalid"}.get(then, "error")
            return Expected(heard, purposes, retries, repairs, end)
    raise AssertionError(script)


def total(counts: list[int | None]) -> TokenCount:
    """Add what was reported; -1 is an attempt that cannot have generated."""
    able = [count for count in counts if count != -1]
    known = [count for count in able if count is not None]
    return TokenCount(value=sum(known), known=bool(known) or not able, complete=len(known) == len(able))


def tokens(usage: TokenUsage) -> tuple[TokenCount, TokenCount]:
    return usage.input_tokens, usage.output_tokens


def usage_of(names: list[str]) -> tuple[TokenCount, TokenCount]:
    given, made = zip(*(VOCABULARY[name].tokens for name in names), strict=True)
    return total(list(given)), total(list(made))


async def check(stub: StubServer, script: list[str], max_retries: int, max_repairs: int) -> None:
    """Run a script, and compare what everybody counted with what was counted by hand."""
    stub.requests.clear()
    stub.say(*(VOCABULARY[name].reply for name in script))
    recorder, group = EventRecorder(), ExecutionGroup()
    follow = RunRequest(prompt_id="follow", observer=compose_observers(recorder, group.observe))
    still = Still()
    came: RunResult | GenerationError
    async with engine_in(
        still, small_catalog(stub.base_url, max_repairs=max_repairs, retry=policy(max_retries))
    ) as engine:
        try:
            came = await engine.run(follow)
        except GenerationError as failure:
            came = failure
    want = expected(script, max_retries, max_repairs)
    attempts = len(want.heard)

    # the server
    assert len(stub.requests) == attempts <= 1 + max_retries + max_repairs
    original = stub.requests[0].json["messages"]
    for name, request, following in zip(want.heard, stub.requests, stub.requests[1:], strict=False):
        if VOCABULARY[name].then == "again":
            assert following.body == request.body
        else:
            repair = following.json["messages"]
            assert (repair[:-2], len(repair)) == (original, len(original) + 2)

    # the result or the error
    assert came.attempts == attempts == 1 + want.retries + want.repairs
    assert came.usage is not None
    assert tokens(came.usage) == usage_of(want.heard)
    if isinstance(came, RunResult):
        assert came.validation.status == want.end
        assert (came.transient_retries, came.repair_calls) == (want.retries, want.repairs)
    else:
        assert want.end == "error"
        assert came.status == VOCABULARY[want.heard[-1]].status

    # the events
    check_events(recorder.events, want, still.waits)
    finished = recorder.events[-1]
    assert isinstance(finished, RunFinished)
    totals = (attempts, want.retries, want.repairs, came.usage)
    assert (finished.attempts, finished.transient_retries, finished.repair_calls, finished.usage) == totals
    assert {event.run_id for event in recorder.events} == {came.run_id}

    # the group
    summary = group.snapshot()
    assert summary.terminal_coverage_complete
    assert (summary.attempts, summary.transient_retries, summary.repair_calls, summary.usage) == totals


def check_events(events: list[ExecutionEvent], want: Expected, waits: list[float]) -> None:
    told = [event for event in events if isinstance(event, AttemptFinished)]
    assert [event.attempt for event in told] == list(range(1, len(want.heard) + 1))
    assert [event.purpose for event in told] == want.purposes
    failed = [VOCABULARY[name].then in {"again", "fail"} for name in want.heard]
    assert [event.outcome for event in told] == ["failed" if bad else "completed" for bad in failed]
    assert [event.status for event in told] == [VOCABULARY[name].status for name in want.heard]
    assert [tokens(event.usage) for event in told] == [usage_of([name]) for name in want.heard]
    waited = [event for event in events if isinstance(event, RetryDelayed)]
    assert [event.delay for event in waited] == waits
    assert [event.source for event in waited] == [
        "retry_after" if "demand" in name else "backoff"
        for name in (want.heard[:-1] if want.end == "error" else want.heard)
        if VOCABULARY[name].then == "again"
    ]
    assert isinstance(events[0], RunStarted)
    finished = [event for event in events if isinstance(event, RunFinished)]
    assert finished == events[-1:]
    assert finished[0].outcome == ("failed" if want.end == "error" else "completed")


@pytest.mark.parametrize(("retries", "repairs"), COUNTS)
async def test_a_backend_that_always_fails_sees_one_request_and_the_retries(
    retries: int, repairs: int, stub: StubServer
) -> None:
    await check(stub, ["503"] * 8, retries, repairs)
    assert len(stub.requests) == retries + 1


@pytest.mark.parametrize(("retries", "repairs"), COUNTS)
async def test_a_backend_that_always_answers_badly_sees_one_request_and_the_repairs(
    retries: int, repairs: int, stub: StubServer
) -> None:
    await check(stub, ["bad"] * 8, retries, repairs)
    assert len(stub.requests) == repairs + 1


@pytest.mark.parametrize("first", sorted(VOCABULARY))
async def test_whatever_a_backend_says_is_counted_alike_by_all(first: str, stub: StubServer) -> None:
    await check(stub, [first, "bad", "ok"], 1, 1)


@given(data=st.data(), retries=st.integers(0, 3), repairs=st.integers(0, 3))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_a_run_sends_at_most_one_request_its_retries_and_its_repairs_and_all_count_them_alike(
    data: st.DataObject, retries: int, repairs: int, stub: StubServer
) -> None:
    going_on = st.sampled_from([name for name, say in VOCABULARY.items() if say.then in {"again", "reject"}])
    word = st.one_of(going_on, going_on, st.sampled_from(sorted(VOCABULARY)))  # most scripts are long
    length = 1 + retries + repairs
    await check(stub, data.draw(st.lists(word, min_size=length, max_size=length)), retries, repairs)


async def test_a_group_of_many_runs_has_the_sum_of_what_the_server_saw(stub: StubServer) -> None:
    group = ExecutionGroup()
    names = ["bad", "503", "ok", "cut", "429", "bad", "ok", "ok without usage", "503", "503", "503"]
    stub.say(*(VOCABULARY[name].reply for name in names))
    ends = []
    async with engine_in(Still(), small_catalog(stub.base_url, max_repairs=1, retry=policy(2))) as engine:
        while len(stub.requests) < len(names):
            try:
                ends.append((await engine.run(RunRequest(prompt_id="follow", observer=group.observe))).attempts)
            except GenerationError as failure:
                ends.append(failure.attempts or 0)
    summary = group.snapshot()
    assert ends == [3, 4, 1, 3]
    assert summary.attempts == sum(ends) == len(stub.requests)
    assert (summary.transient_retries, summary.repair_calls, len(summary.members)) == (5, 2, 4)
    assert summary.usage.input_tokens.value == 2 * 11 + 2 * 13
    assert not summary.usage.input_tokens.complete
