"""The scripted model: what it answers, and how it says that script and program disagree."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

from promptkit import (
    BlockingEngine,
    Engine,
    GenerationCall,
    GenerationReply,
    MalformedReplyError,
    Message,
    OverloadedError,
    PromptKitError,
    ReportedUsage,
    RunFinished,
    RunRequest,
    TextPart,
)
from promptkit.testing import EventRecorder, Gate, ScriptedClient
from servers.catalogs import small_catalog

if TYPE_CHECKING:
    from promptkit import ExecutionEvent

pytestmark = pytest.mark.anyio
BUSY = OverloadedError("busy", status=503)


def ask(**fields: Any) -> RunRequest:
    return RunRequest(prompt_id="ask", variables={"question": "Where?"}, **fields)


def engine(client: ScriptedClient) -> Engine:
    return Engine(small_catalog(), client=client)


# ---------------------------------------------------------------- what a step is


async def test_a_step_is_a_text_a_reply_an_error_or_a_function_plain_or_async() -> None:
    async def later(call: GenerationCall) -> str:
        await anyio.lowlevel.checkpoint()
        return f"{call.profile.id} later"

    class Answer:
        def __call__(self, call: GenerationCall) -> GenerationReply:
            return GenerationReply(content=str(call.messages[-1].content))

    with ScriptedClient("text", GenerationReply(content="reply"), lambda call: call.run_id, later, Answer()) as client:
        outputs = [(await engine(client).run(ask())).raw_output for _ in range(5)]
    assert outputs == ["text", "reply", client.calls[2].run_id, "warm later", "Where?"]


@pytest.mark.parametrize("step", [BUSY, lambda _: BUSY])
async def test_an_error_that_a_step_is_or_gives_is_what_the_backend_did(step: Any) -> None:
    with ScriptedClient(step, "yes") as client:
        result = await engine(client).run(ask())
    assert (result.raw_output, result.transient_retries) == ("yes", 1)


async def test_a_text_reports_no_usage_and_a_reply_what_it_says() -> None:
    reported = GenerationReply(content="b", usage=ReportedUsage(input_tokens=3))
    with ScriptedClient("a", reported) as client:
        first, second = [(await engine(client).run(ask())).usage for _ in range(2)]
    assert (first.input_tokens.known, second.input_tokens.value, second.output_tokens.known) == (False, 3, False)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({"a": 1}, r"step 2 of a ScriptedClient is a dict: a step is a text \(JSON as text, too\), a GenerationReply"),
        (None, "step 2 of a ScriptedClient is a NoneType"),
        (b"bytes", "step 2 of a ScriptedClient is a bytes"),
        (OverloadedError, r"step 2 of a ScriptedClient is the class OverloadedError: give an instance"),
    ],
)
def test_what_cannot_be_a_step_is_refused_when_the_script_is_made(step: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        ScriptedClient("first", step)
    with pytest.raises(TypeError, match=said.replace("step 2 of a ScriptedClient", "what a Gate holds")):
        Gate(step)


def answer_with_a_dict(call: GenerationCall) -> Any:
    return {"a": call.attempt}


@pytest.mark.parametrize(
    ("step", "given"),
    [
        (answer_with_a_dict, "function answer_with_a_dict.* gave a dict"),
        (lambda _: None, "gave nothing"),
        (lambda _: OverloadedError, "gave the class OverloadedError"),
        (lambda _: Gate("x"), "gave a Gate"),
    ],
)
async def test_a_function_that_gives_something_else_ends_the_run_with_a_type_error_that_names_the_step(
    step: Any, given: str
) -> None:
    client = ScriptedClient("first", step, "never")
    await engine(client).run(ask())
    with pytest.raises(TypeError, match=f"step 2 of a ScriptedClient .*{given}: it must give a text"):
        await engine(client).run(ask())
    assert len(client.calls) == 2


async def test_a_reply_with_fields_of_the_wrong_type_is_what_it_is_from_any_client() -> None:
    with ScriptedClient(lambda _: GenerationReply(content=7)) as client:  # type: ignore[arg-type]
        with pytest.raises(MalformedReplyError, match="content"):
            await engine(client).run(ask())


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancellation_that_comes_from_inside_the_client_leaves_the_run_as_itself() -> None:
    recorder = EventRecorder()
    raised = asyncio.CancelledError("from inside")
    with ScriptedClient(raised) as client:
        with pytest.raises(asyncio.CancelledError) as caught:
            await engine(client).run(ask(observer=recorder))
    assert caught.value is raised
    assert [event.outcome for event in recorder.events if isinstance(event, RunFinished)] == ["cancelled"]


async def test_a_step_can_cancel_when_its_reply_is_in_hand_and_the_run_still_returns_it() -> None:
    with anyio.CancelScope() as scope:

        def answer_and_cancel(_: GenerationCall) -> str:
            scope.cancel()
            return "paid for"

        with ScriptedClient(answer_and_cancel) as client:
            result = await engine(client).run(ask())
        with pytest.raises(anyio.get_cancelled_exc_class()):
            await anyio.lowlevel.checkpoint()
    assert result.raw_output == "paid for"


# ---------------------------------------------------------------- more calls than steps, more steps than calls


async def test_a_call_without_a_step_fails_with_calls_and_steps_side_by_side() -> None:
    client = ScriptedClient("one", BUSY)
    await engine(client).run(ask())
    with pytest.raises(AssertionError) as raised:
        await engine(client).run(ask())
    assert str(raised.value) == (
        "call 3 of this ScriptedClient has no step:\n"
        "  call 1  generate, attempt 1 of run 1, profile warm: 'Where?'\n"
        "    <- step 1  'one'\n"
        "  call 2  generate, attempt 1 of run 2, profile warm: 'Where?'\n"
        "    <- step 2  OverloadedError 'busy'\n"
        "  call 3  generate, attempt 2 of run 2, profile warm: 'Where?'\n"
        "    <- no step\n"
        "It is a retry, since the attempt before it failed with a transient error: add a step."
    )
    assert not isinstance(raised.value, PromptKitError)
    assert [call.attempt for call in client.calls] == [1, 1, 2]


async def test_a_call_without_a_step_says_that_it_is_a_repair() -> None:
    client = ScriptedClient("no JSON")
    with pytest.raises(AssertionError, match="It is a repair, since the answer before it breaks") as raised:
        await engine(client).run(RunRequest(prompt_id="follow"))
    assert "call 2  repair, attempt 2 of run 1, profile cold: 'Your" in str(raised.value)


async def test_a_call_with_no_script_at_all_says_what_was_asked() -> None:
    with pytest.raises(AssertionError, match=r"call 1 .*\n.*: 'Where\?'\n.*\nAdd a step, or find out why"):
        await engine(ScriptedClient()).run(ask())


async def test_steps_that_no_call_took_are_told() -> None:
    held = Gate(GenerationReply(content="second " * 20))
    client = ScriptedClient("one", held, answer_with_a_dict)
    await engine(client).run(ask())
    with pytest.raises(AssertionError) as raised:
        client.assert_exhausted()
    assert str(raised.value) == (
        "2 of 3 steps of this ScriptedClient had no call:\n"
        "  call 1  generate, attempt 1 of run 1, profile warm: 'Where?'\n"
        "    <- step 1  'one'\n"
        "  no call\n"
        "    <- step 2  Gate(reply 'second second second second second second second second sec…')\n"
        "  no call\n"
        "    <- step 3  function answer_with_a_dict"
    )


def test_the_only_step_that_no_call_took_is_told() -> None:
    with pytest.raises(AssertionError, match="1 of 1 steps of this ScriptedClient had no call"):
        ScriptedClient("x").assert_exhausted()


def test_a_script_without_steps_is_exhausted() -> None:
    ScriptedClient().assert_exhausted()


async def test_what_is_shown_of_a_long_script_is_bounded() -> None:
    client = ScriptedClient(*["x" * 10_000] * 1000)
    await engine(client).run(
        ask(appended_messages=(Message(role="user", content=(TextPart(text="a\n\nb"), TextPart(text="c" * 999))),))
    )
    with pytest.raises(AssertionError) as raised:
        client.assert_exhausted()
    assert len(str(raised.value)) < 3000
    assert str(raised.value).count("<- step") == 12
    assert "\n  call 1  generate, attempt 1 of run 1, profile warm: 'a b cccc" in str(raised.value)
    assert str(raised.value).endswith("\n  ... 988 after")


async def test_of_many_calls_those_before_the_one_without_a_step_are_shown() -> None:
    client = ScriptedClient(*["x"] * 20)
    for _ in range(20):
        await engine(client).run(ask())
    with pytest.raises(AssertionError) as raised:
        await engine(client).run(ask())
    assert "\n  ... 14 before\n  call 15  " in str(raised.value)
    assert "\n  call 21  generate, attempt 1 of run 21, profile warm: 'Where?'\n    <- no step\n" in str(raised.value)


async def test_leaving_the_block_without_an_error_asserts_that_the_script_is_exhausted() -> None:
    with pytest.raises(AssertionError, match="1 of 2 steps of this ScriptedClient had no call"):
        with ScriptedClient("one", "two") as client:
            await engine(client).run(ask())
    with pytest.raises(ValueError, match="of the test"), ScriptedClient("one"):
        int("of the test")


async def test_a_call_without_a_step_is_told_again_where_the_program_swallowed_it() -> None:
    client = ScriptedClient()
    with contextlib.suppress(Exception):  # as programs do
        await engine(client).run(ask())
    with pytest.raises(AssertionError, match="call 1 of this ScriptedClient has no step"):
        client.assert_exhausted()


async def test_no_key_is_shown() -> None:
    from promptkit import Secret

    with pytest.raises(AssertionError) as raised:
        await engine(ScriptedClient()).run(ask(credential=Secret("sk-MARK")))
    assert "MARK" not in str(raised.value)


# ---------------------------------------------------------------- many at once


async def test_calls_of_many_tasks_take_the_steps_in_the_order_in_which_they_arrive() -> None:
    gates = [Gate(str(number)) for number in range(4)]
    client = ScriptedClient(*gates)
    shared = engine(client)
    outputs: list[str] = []

    async def run() -> None:
        outputs.append((await shared.run(ask())).raw_output)

    async with anyio.create_task_group() as tasks:
        for gate in gates:
            tasks.start_soon(run)
            await gate.reached()
        for gate in reversed(gates):
            before = len(outputs)
            gate.release()
            while len(outputs) == before:
                await anyio.lowlevel.checkpoint()
    assert outputs == ["3", "2", "1", "0"]
    assert len({call.run_id for call in client.calls}) == 4


def test_engines_in_many_threads_share_one_script() -> None:
    client = ScriptedClient(*[str(number) for number in range(40)])
    outputs: list[str] = []

    def work() -> None:
        with BlockingEngine(small_catalog(), client=client) as blocking:
            outputs.extend(blocking.run(ask()).raw_output for _ in range(10))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client.assert_exhausted()
    assert sorted(outputs, key=int) == [str(number) for number in range(40)]


def test_a_call_of_another_thread_does_not_come_between_a_call_and_its_number() -> None:
    answers: dict[str, str] = {}
    came_between = threading.Event()

    class Calls(list[GenerationCall]):
        """Lets the other thread try, once a call is listed."""

        def append(self, call: GenerationCall) -> None:
            super().append(call)
            if len(self) > 1:
                came_between.set()
                return
            second.start()
            came_between.wait(0.1)  # passes where nothing can come between

    def work(name: str) -> None:
        with BlockingEngine(small_catalog(), client=client) as blocking:
            request = RunRequest(prompt_id="ask", variables={"question": name})
            answers[name] = blocking.run(request).raw_output

    client = ScriptedClient("to the first", "to the second")
    client.calls = Calls()
    second = threading.Thread(target=work, args=("second",))
    work("first")
    second.join()
    assert answers == {"first": "to the first", "second": "to the second"}


def test_a_client_says_in_its_repr_how_far_it_is() -> None:
    assert repr(ScriptedClient("x")) == "<promptkit.testing.ScriptedClient: 0 calls, 1 steps>"


async def test_a_recorder_keeps_the_events_in_order() -> None:
    recorder = EventRecorder()
    with ScriptedClient("x") as client:
        await engine(client).run(ask(observer=recorder))
    kinds: list[type[ExecutionEvent]] = [type(event) for event in recorder.events]
    assert [kind.__name__ for kind in kinds] == ["RunStarted", "AttemptFinished", "RunFinished"]
