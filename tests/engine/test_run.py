"""One run: its result, its events, and how it fails."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from promptkit import (
    AttemptFinished,
    AttemptTimeoutError,
    AuthenticationError,
    CapacityError,
    ConnectError,
    CredentialError,
    DisconnectedError,
    Engine,
    EngineStateError,
    ExecutionGroup,
    GenerationError,
    GenerationReply,
    InputError,
    InvalidRequestError,
    MalformedReplyError,
    NotCapturedError,
    OutputContract,
    OverloadedError,
    PreparedExecutionError,
    RateLimitError,
    ReportedUsage,
    RetryDelayed,
    RetryPolicy,
    RunFinished,
    RunRequest,
    RunStarted,
    Secret,
    TemplateError,
    UnknownPromptError,
    compose_observers,
    guard_observer,
)
from promptkit.testing import EventRecorder, ScriptedClient
from servers.catalogs import small_catalog
from servers.stub import Held, Received, completion, error, http, ok

if TYPE_CHECKING:
    import socket

    from servers.stub import StubServer

pytestmark = pytest.mark.anyio

ASK = RunRequest(prompt_id="ask", variables={"question": "Where?"})


def ask(**fields: Any) -> RunRequest:
    return RunRequest(prompt_id="ask", variables={"question": "Where?"}, **fields)


# ---------------------------------------------------------------- results


async def test_a_result_says_what_was_answered_by_whom_and_what_it_used(stub: StubServer) -> None:
    stub.say(ok("  Rome.\n"))
    async with Engine(small_catalog(stub.base_url)) as engine:
        result = await engine.run(ASK)
    assert result.raw_output == "  Rome.\n"
    assert (result.model, result.response_id, result.finish_reason) == ("said-model", "r-1", "stop")
    assert (result.prompt_id, result.profile, result.backend) == ("ask", "warm", "server")
    assert (result.usage.input_tokens.value, result.usage.output_tokens.value) == (11, 7)
    assert result.usage.input_tokens.complete
    assert not result.usage.cache_read_tokens.known
    assert result.validation.status == "not_requested"
    assert result.timing.started_at.tzinfo is not None
    assert result.session_id == "session of Where?"


async def test_an_output_that_stays_invalid_is_a_result_with_all_its_usage(stub: StubServer) -> None:
    stub.say(ok("no"), ok("still no"))
    async with Engine(small_catalog(stub.base_url)) as engine:
        result = await engine.run(RunRequest(prompt_id="follow", capture_exchange=True))
    assert (result.validation.status, result.value, result.raw_output) == ("invalid", None, "still no")
    assert (result.attempts, result.repair_calls, result.usage.output_tokens.value) == (2, 1, 14)
    assert result.exchange.details().messages[-1].content == "still no"


@pytest.mark.parametrize("choice", [{"finish_reason": "length"}, {"finish_reason": "content_filter"}])
async def test_a_cut_answer_is_not_repaired(stub: StubServer, choice: dict[str, Any]) -> None:
    stub.say(ok('{"a": 1', **choice))
    async with Engine(small_catalog(stub.base_url, max_repairs=3)) as engine:
        result = await engine.run(RunRequest(prompt_id="follow"))
    assert (len(stub.requests), result.finish_reason) == (1, choice["finish_reason"])
    assert result.validation.status == "invalid"


async def test_a_refusal_is_visible_and_not_repaired(stub: StubServer) -> None:
    refusal = {"role": "assistant", "content": None, "refusal": "I will not."}
    stub.say(ok("", message=refusal))
    async with Engine(small_catalog(stub.base_url)) as engine:
        result = await engine.run(RunRequest(prompt_id="follow"))
    assert (result.refusal, result.raw_output, result.validation.status) == ("I will not.", "", "invalid")
    assert len(stub.requests) == 1


async def test_repairs_and_retries_draw_on_separate_budgets_and_retries_on_one_for_the_run(stub: StubServer) -> None:
    stub.say(error(503), ok("no"), error(503), ok("no"), error(503), ok('{"a": 1}'))
    async with Engine(small_catalog(stub.base_url, max_repairs=5)) as engine:
        with pytest.raises(OverloadedError, match="503") as raised:
            await engine.run(RunRequest(prompt_id="follow"))
    assert len(stub.requests) == 5
    assert raised.value.attempts == 5
    assert raised.value.usage is not None
    assert raised.value.usage.output_tokens.value == 14


async def test_a_value_is_the_callers_own(stub: StubServer) -> None:
    stub.say(ok('{"a": 1}'), ok("Yes."))
    async with Engine(small_catalog(stub.base_url)) as engine:
        result = await engine.run(RunRequest(prompt_id="follow", capture_exchange=True))
        assert isinstance(result.value, dict)
        result.value["a"] = 2
        await engine.run(RunRequest(prompt_id="more", continue_from=result.exchange))
    assert stub.requests[1].json["messages"][1]["content"] == '{"a": 1}'


# ---------------------------------------------------------------- capture


async def test_asking_an_uncaptured_result_for_its_exchange_is_an_error_that_names_the_remedy() -> None:
    engine = Engine(small_catalog(), client=ScriptedClient("Rome."))
    result = await engine.run(ASK)
    with pytest.raises(NotCapturedError, match="capture_exchange=True") as raised:
        _ = result.exchange
    assert raised.value.run_id == result.run_id


async def test_a_continuation_is_always_captured_and_knows_its_parent() -> None:
    engine = Engine(small_catalog(), client=ScriptedClient("Rome.", "Yes."))
    first = await engine.run(ask(capture_exchange=True))
    second = await engine.run(RunRequest(prompt_id="more", continue_from=first.exchange))
    details = second.exchange.details()
    assert second.captured
    assert second.parent_run_id == details.parent_run_id == first.run_id
    assert details.run_id == second.run_id
    assert first.exchange.details().parent_run_id is None
    assert [m.content for m in details.messages] == ["You are terse.", "Where?", "Rome.", "More?", "Yes."]


async def test_empty_and_blank_answers_are_captured_as_they_are() -> None:
    engine = Engine(small_catalog(), client=ScriptedClient("", " \n\t "))
    for expected in ("", " \n\t "):
        result = await engine.run(ask(capture_exchange=True))
        assert result.exchange.details().messages[-1].content == expected


async def test_an_error_captures_nothing_and_leaves_the_source_reusable(stub: StubServer) -> None:
    stub.say(ok("Rome."), error(400), ok("Yes."))
    async with Engine(small_catalog(stub.base_url)) as engine:
        first = await engine.run(ask(capture_exchange=True))
        with pytest.raises(Exception, match="400"):
            await engine.run(RunRequest(prompt_id="more", continue_from=first.exchange))
        second = await engine.run(RunRequest(prompt_id="more", continue_from=first.exchange))
    assert second.raw_output == "Yes."


# ---------------------------------------------------------------- prepared execution


async def test_a_prepared_execution_runs_what_its_details_say_once() -> None:
    client = ScriptedClient("Rome.")
    engine = Engine(small_catalog(), client=client)
    execution = await engine.prepare_execution(ask(capture_exchange=True))
    before = execution.details
    result = await engine.run_prepared(execution)
    assert client.calls[0].messages == before.messages == execution.details.messages
    assert result.rendered_hash == before.rendered_hash
    assert result.exchange.details().messages[:-1] == before.messages
    with pytest.raises(PreparedExecutionError, match="has run"):
        await engine.run_prepared(execution)


async def test_a_discarded_execution_and_a_foreign_one_do_not_run_and_tell_nothing() -> None:
    recorder = EventRecorder()
    engine, other = (Engine(small_catalog(), client=ScriptedClient("Rome.")) for _ in range(2))
    execution = await engine.prepare_execution(ask(observer=recorder))
    with pytest.raises(PreparedExecutionError, match="another engine"):
        await other.run_prepared(execution)
    execution.discard()
    with pytest.raises(PreparedExecutionError, match="discarded"):
        await engine.run_prepared(execution)
    assert recorder.events == []
    assert repr(execution) == "<promptkit.PreparedExecution>"


# ---------------------------------------------------------------- events


async def test_events_tell_a_run_with_a_retry_and_a_repair_in_order(stub: StubServer) -> None:
    stub.say(error(503, "no", ("retry-after-ms", "1")), ok("MARK"), ok('{"a": 1}'))
    recorder = EventRecorder()
    async with Engine(small_catalog(stub.base_url)) as engine:
        result = await engine.run(RunRequest(prompt_id="follow", observer=recorder))
    kinds = [type(event) for event in recorder.events]
    assert kinds == [RunStarted, AttemptFinished, RetryDelayed, AttemptFinished, AttemptFinished, RunFinished]
    attempts = [event for event in recorder.events if isinstance(event, AttemptFinished)]
    assert [(a.attempt, a.purpose, a.outcome, a.status) for a in attempts] == [
        (1, "generate", "failed", 503),
        (2, "generate", "completed", 200),
        (3, "repair", "completed", 200),
    ]
    assert attempts[0].error == "OverloadedError"
    delayed = next(event for event in recorder.events if isinstance(event, RetryDelayed))
    assert (delayed.attempt, delayed.source) == (1, "retry_after")
    assert delayed.delay == pytest.approx(0.001)
    finished = recorder.events[-1]
    assert isinstance(finished, RunFinished)
    assert (finished.attempts, finished.transient_retries, finished.repair_calls) == (3, 1, 1)
    assert (finished.outcome, finished.validation, finished.usage) == ("completed", "valid", result.usage)
    assert {event.run_id for event in recorder.events} == {result.run_id}
    assert "MARK" not in repr(recorder.events)


async def test_a_run_that_fails_before_selection_tells_so() -> None:
    recorder = EventRecorder()
    engine = Engine(small_catalog(), client=ScriptedClient())
    with pytest.raises(UnknownPromptError) as raised:
        await engine.run(RunRequest(prompt_id="aks", observer=recorder))
    started, finished = recorder.events
    assert isinstance(started, RunStarted)
    assert isinstance(finished, RunFinished)
    assert (finished.outcome, finished.error, finished.profile) == ("failed", "UnknownPromptError", None)
    assert (finished.attempts, finished.usage.input_tokens.known, finished.usage.input_tokens.complete) == (
        0,
        True,
        True,
    )
    assert raised.value.run_id == finished.run_id


async def test_what_an_observer_raises_ends_the_run_and_no_further_event_is_delivered() -> None:
    recorder = EventRecorder()

    def observer(event: object) -> None:
        recorder(event)  # type: ignore[arg-type]
        if isinstance(event, AttemptFinished):
            raise ZeroDivisionError

    engine = Engine(small_catalog(max_concurrency=1, max_waiting=0), client=ScriptedClient("Rome.", "Rome."))
    group = ExecutionGroup()
    with pytest.raises(ZeroDivisionError):
        await engine.run(ask(observer=compose_observers(observer, group.observe)))
    assert [type(event) for event in recorder.events] == [RunStarted, AttemptFinished]
    assert not group.snapshot().terminal_coverage_complete
    assert (await engine.run(ASK)).raw_output == "Rome."


async def test_a_guarded_observer_does_not_end_the_run() -> None:
    caught: list[Exception] = []

    def observer(_: object) -> None:
        raise ZeroDivisionError

    engine = Engine(small_catalog(), client=ScriptedClient("Rome."))
    await engine.run(ask(observer=guard_observer(observer, caught.append)))
    assert [type(error) for error in caught] == [ZeroDivisionError] * 3


async def test_an_observer_may_look_at_its_group_while_it_is_told() -> None:
    group = ExecutionGroup()
    seen: list[int] = []
    engine = Engine(small_catalog(), client=ScriptedClient("Rome."))
    await engine.run(ask(observer=compose_observers(group.observe, lambda _: seen.append(group.snapshot().attempts))))
    assert seen == [0, 0, 1]


async def test_capacity_is_back_before_the_events_that_say_so() -> None:
    engine = Engine(small_catalog(max_concurrency=1, max_waiting=0), client=ScriptedClient("Rome.", "Rome."))
    held: dict[type, tuple[int, int]] = {}

    def observer(event: object) -> None:
        state = engine._shared._state  # noqa: SLF001  # nothing public shows the counts yet
        if state is not None and "server" in state.gates:
            counts = state.gates["server"].state
            held[type(event)] = (counts.permits, counts.leases)

    await engine.run(ask(observer=observer))
    assert held == {AttemptFinished: (0, 1), RunFinished: (0, 0)}


# ---------------------------------------------------------------- groups


async def test_a_group_counts_each_run_once_and_says_what_it_does_not_know() -> None:
    group = ExecutionGroup()
    known = GenerationReply(content="a", usage=ReportedUsage(input_tokens=3, output_tokens=0))
    engine = Engine(small_catalog(), client=ScriptedClient(known, "b"))
    assert group.snapshot().usage.input_tokens.known
    first = await engine.run(ask(observer=group.observe, capture_exchange=True))
    await engine.run(
        RunRequest(
            prompt_id="more",
            continue_from=first.exchange,
            observer=compose_observers(group.observe, group.observe),
        )
    )
    summary = group.snapshot()
    assert (len(summary.members), summary.attempts, summary.terminal_coverage_complete) == (2, 2, True)
    assert str(summary.usage.input_tokens) == "at least 3"
    assert str(summary.usage.output_tokens) == "at least 0"
    assert str(summary.usage.reasoning_tokens) == "unknown"


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("request_", "error_type", "says"),
    [
        (RunRequest(prompt_id="aks"), UnknownPromptError, r"'aks'.*did you mean 'ask'"),
        (RunRequest(prompt_id="ask"), TemplateError, r"prompt 'ask'.*'question' was not given"),
        (RunRequest(prompt_id="ask", variables={"qestion": "x"}), InvalidRequestError, r"did you mean 'question'"),
        (ask(inputs={"t": "x"}), InvalidRequestError, r"declares no input 't'"),
        (ask(profile="wram"), InvalidRequestError, r"did you mean 'warm'"),
        (ask(output=OutputContract(kind="json_schema", schema="numbr")), InvalidRequestError, r"did you mean 'number'"),
    ],
)
async def test_a_wrong_request_names_the_thing_and_the_remedy(
    request_: RunRequest, error_type: type[Exception], says: str
) -> None:
    client = ScriptedClient()
    engine = Engine(small_catalog(), client=client)
    with pytest.raises(error_type, match=says):
        await engine.run(request_)
    with pytest.raises(error_type, match=says):
        await engine.validate_request(request_)
    assert client.calls == []


async def test_an_unreachable_backend_says_where_and_what_to_check(closed_port: int) -> None:
    catalog = small_catalog(f"http://127.0.0.1:{closed_port}/v1")
    async with Engine(catalog) as engine:
        with pytest.raises(ConnectError, match=r"backend 'server' at http://127.*refused.*check base_url") as raised:
            await engine.run(ASK)
    assert raised.value.attempts == 3
    assert raised.value.usage is not None
    assert raised.value.usage.input_tokens.complete
    assert str(raised.value).endswith("(given up after 3 attempts)")


async def test_a_reply_that_is_not_json_says_so_without_its_text(stub: StubServer) -> None:
    stub.say(http(200, b"<!DOCTYPE html><p>MARK</p>", content_type="text/html"))
    async with Engine(small_catalog(stub.base_url)) as engine:
        with pytest.raises(MalformedReplyError) as raised:
            await engine.run(ASK)
    assert "MARK" not in str(raised.value)
    assert "MARK" in (raised.value.excerpt or "")
    assert len(stub.requests) == 1


@pytest.mark.parametrize(
    "cut",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 400\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{",
        b"",
    ],
)
async def test_a_cut_reply_is_retried_like_a_lost_connection(stub: StubServer, cut: bytes) -> None:
    def cutting(_: Received, connection: socket.socket) -> None:
        connection.sendall(cut)
        connection.shutdown(2)

    stub.say(cutting, ok("Rome."))
    recorder = EventRecorder()
    async with Engine(small_catalog(stub.base_url)) as engine:
        result = await engine.run(ask(observer=recorder))
    assert (result.raw_output, result.transient_retries) == ("Rome.", 1)
    failed = recorder.events[1]
    assert isinstance(failed, AttemptFinished)
    assert (failed.outcome, failed.error) == ("failed", "DisconnectedError")
    assert not result.usage.input_tokens.complete


async def test_a_body_that_its_encoding_does_not_describe_is_malformed(stub: StubServer) -> None:
    stub.say(ok("Rome.").replace(b"content-type", b"content-encoding: gzip\r\ncontent-type"))
    async with Engine(small_catalog(stub.base_url)) as engine:
        with pytest.raises(MalformedReplyError, match="content-encoding"):
            await engine.run(ASK)


async def test_an_attempt_is_bounded_as_a_whole_though_bytes_keep_coming(stub: StubServer) -> None:
    done = anyio.Event()

    def dripping(_: Received, connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while not stub.disconnected.wait(0.02):
            connection.sendall(b"1\r\n\n\r\n")

    stub.say(dripping)
    catalog = small_catalog(stub.base_url, attempt_timeout=0.3, retry=RetryPolicy(max_retries=0))
    async with Engine(catalog) as engine:
        with pytest.raises(AttemptTimeoutError, match="attempt_timeout") as raised:
            await engine.run(ASK)
    done.set()
    assert raised.value.transient
    assert raised.value.usage is not None
    assert not raised.value.usage.input_tokens.complete


async def test_an_error_status_keeps_its_facts_and_survives_pickling(stub: StubServer) -> None:
    stub.say(error(401, "bad key sk-secret", code="invalid_api_key"))
    async with Engine(small_catalog(stub.base_url)) as engine:
        with pytest.raises(AuthenticationError) as raised:
            await engine.run(ask(credential=Secret("sk-secret")))
    copy = pickle.loads(pickle.dumps(raised.value))  # noqa: S301
    assert copy == raised.value
    assert (copy.status, copy.provider_code, copy.attempts) == (401, "invalid_api_key", 1)
    assert "sk-secret" not in str(copy) + repr(copy.__dict__)
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None


async def test_a_missing_key_names_the_variable(monkeypatch: pytest.MonkeyPatch, stub: StubServer) -> None:
    stub.say(ok("Rome."))
    async with Engine(small_catalog(stub.base_url, credential_env="PROMPTKIT_TEST_KEY")) as engine:
        monkeypatch.delenv("PROMPTKIT_TEST_KEY", raising=False)
        with pytest.raises(CredentialError, match="PROMPTKIT_TEST_KEY"):
            await engine.run(ASK)
        monkeypatch.setenv("PROMPTKIT_TEST_KEY", "key-with-line-end\n")
        with pytest.raises(CredentialError, match=r"PROMPTKIT_TEST_KEY.*whitespace") as raised:
            await engine.run(ASK)
        assert "key-with" not in str(raised.value)
        monkeypatch.setenv("PROMPTKIT_TEST_KEY", "good-key")
        await engine.run(ASK)
    assert [request.header("authorization") for request in stub.requests] == ["Bearer good-key"]


async def test_a_full_backend_refuses_at_once_with_the_counts(stub: StubServer) -> None:
    held = Held(ok("Rome."))
    stub.say(held)
    async with (
        Engine(small_catalog(stub.base_url, max_concurrency=1, max_waiting=0)) as engine,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(engine.run, ASK)
        await anyio.to_thread.run_sync(held.asked.wait)
        with pytest.raises(CapacityError, match="max_waiting 0") as raised:
            await engine.run(ASK)
        held.free.set()
    assert (raised.value.running, raised.value.waiting, raised.value.reason) == (1, 0, "full")
    assert len(stub.requests) == 1


async def test_a_run_inside_its_own_model_client_that_would_wait_is_refused() -> None:
    class Nesting:
        async def generate(self, call: object) -> GenerationReply:
            await engine.run(ASK)
            return GenerationReply(content="never")

    engine = Engine(small_catalog(max_concurrency=1), client=Nesting())
    with pytest.raises(CapacityError, match="would wait for itself") as raised:
        await engine.run(ASK)
    assert raised.value.reason == "re-entrant"


async def test_what_a_model_client_raises_ends_the_run_unchanged() -> None:
    problem = ZeroDivisionError("mine")
    recorder = EventRecorder()
    engine = Engine(small_catalog(), client=ScriptedClient(problem))
    with pytest.raises(ZeroDivisionError) as raised:
        await engine.run(ask(observer=recorder))
    assert raised.value is problem
    assert [type(event) for event in recorder.events] == [RunStarted, AttemptFinished, RunFinished]


async def test_a_lost_connection_is_a_disconnected_error_when_the_budget_is_spent(stub: StubServer) -> None:
    stub.say(lambda _, connection: connection.shutdown(2))
    async with Engine(small_catalog(stub.base_url)) as engine:
        with pytest.raises(DisconnectedError):
            await engine.run(ASK)
    assert len(stub.requests) == 3


async def test_a_demand_beyond_max_retry_after_ends_the_run_with_the_demand_readable(stub: StubServer) -> None:
    stub.say(error(429, "slow down", ("retry-after", "3600")))
    async with Engine(small_catalog(stub.base_url)) as engine:
        with pytest.raises(RateLimitError, match="slow down") as raised:
            await engine.run(ASK)
    assert raised.value.retry_after == 3600
    assert len(stub.requests) == 1


# ---------------------------------------------------------------- inputs


async def test_inputs_are_read_below_the_folder_and_nowhere_else(tmp_path: Path) -> None:
    folder = tmp_path / "inputs"
    folder.mkdir()
    (folder / "note.txt").write_text("é\r\n", encoding="utf-8")
    (tmp_path / "secret.txt").write_text("secret")
    from promptkit import Catalog, MessageTemplate, PromptDefinition

    prompt = PromptDefinition(
        id="read", inputs=("note",), messages=(MessageTemplate(role="user", content="{{ inputs.note }}"),)
    )
    client = ScriptedClient("ok", "ok")
    engine = Engine(small_catalog() | Catalog(prompts=[prompt]), client=client, inputs=folder)
    await engine.run(RunRequest(prompt_id="read", profile="warm", inputs={"note": Path("note.txt")}))
    assert client.calls[0].messages[0].content == "é\r\n"
    with pytest.raises(InputError, match="outside"):
        await engine.run(RunRequest(prompt_id="read", profile="warm", inputs={"note": Path("../secret.txt")}))
    with pytest.raises(InputError, match=r"nope\.txt"):
        await engine.run(RunRequest(prompt_id="read", profile="warm", inputs={"note": Path("nope.txt")}))


# ---------------------------------------------------------------- engine state


async def test_a_closed_engine_says_so() -> None:
    engine = Engine(small_catalog(), client=ScriptedClient("Rome."))
    await engine.aclose()
    with pytest.raises(EngineStateError, match="closed"):
        await engine.run(ASK)


async def test_closing_waits_for_the_runs_that_were_admitted(stub: StubServer) -> None:
    held = Held(ok("Rome."))
    stub.say(held)
    engine = Engine(small_catalog(stub.base_url))
    results = []

    async def run() -> None:
        results.append(await engine.run(ASK))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await anyio.to_thread.run_sync(held.asked.wait)
        tasks.start_soon(engine.aclose)
        await anyio.wait_all_tasks_blocked()
        held.free.set()
    assert [result.raw_output for result in results] == ["Rome."]


async def test_many_runs_share_the_capacity_and_all_finish(stub: StubServer) -> None:
    stub.say(ok("Rome."))
    group = ExecutionGroup()
    async with Engine(small_catalog(stub.base_url, max_concurrency=3)) as engine, anyio.create_task_group() as tasks:
        for _ in range(60):
            tasks.start_soon(engine.run, ask(observer=group.observe))
    summary = group.snapshot()
    assert (len(summary.members), summary.usage.output_tokens.value) == (60, 420)
    assert completion("x")["usage"]["completion_tokens"] * 60 == 420


@pytest.mark.parametrize("fields", [{"client": object()}, {"inputs": 3}, {"catalog": {}}])
async def test_an_engine_made_of_the_wrong_things_names_them(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match=f"{next(iter(fields)).capitalize()}|{next(iter(fields))}"):
        Engine(**{"catalog": small_catalog(), **fields})


async def test_an_error_of_a_nested_run_keeps_the_facts_of_that_run() -> None:
    class Nesting:
        async def generate(self, call: object) -> GenerationReply:
            await engine.run(RunRequest(prompt_id="nope", observer=inner))
            return GenerationReply(content="never")

    inner, outer = EventRecorder(), EventRecorder()
    engine = Engine(small_catalog(), client=Nesting())
    with pytest.raises(UnknownPromptError) as raised:
        await engine.run(ask(observer=outer))
    assert raised.value.run_id == inner.events[0].run_id != outer.events[0].run_id


WRONG: Any = GenerationError


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (WRONG("x", transient=True, retry_after="5"), r"retry_after is a str: it must be a number of seconds"),
        (WRONG("x", status="503"), r"status is a str"),
        (WRONG.__new__(WRONG), r"transient is missing: it must be True or False"),
    ],
)
async def test_an_error_of_a_model_client_that_is_not_well_formed_is_named(error: Any, says: str) -> None:
    recorder = EventRecorder()
    engine = Engine(small_catalog(), client=ScriptedClient(error))
    with pytest.raises(GenerationError, match=says):
        await engine.run(RunRequest(prompt_id="more", observer=recorder))
    assert [type(event).__name__ for event in recorder.events] == ["RunStarted", "AttemptFinished", "RunFinished"]
