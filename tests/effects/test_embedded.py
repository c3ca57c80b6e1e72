"""The embedded client with the real default model."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import msgspec
import pytest

from promptkit._effects.embedded import EmbeddedClient, model_options
from promptkit._effects.embedded_model import borrow, give_back
from promptkit._effects.model_weights import fetch_default_model
from promptkit._history import Turn
from promptkit._values.contracts import OutputContract
from promptkit._values.definitions import Backend, EmbeddedOptions, Profile
from promptkit._values.generation import GenerationCall, GenerationReply
from promptkit._wire.streamed import streaming_body
from promptkit.errors import (
    ConnectError,
    GenerationError,
    RejectedRequestError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from promptkit._history import Node

PERSON = OutputContract(
    kind="json_schema",
    schema={
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    },
)
ENDLESS: dict[str, Any] = {
    "max_output_tokens": 3000,
    "extra": {"ignore_eos": True},
}  # half a minute, unless it is stopped

LONG = "Sum: " + "12 + 7, " * 400  # ten seconds of reading
FRESH = EmbeddedOptions(context_tokens=512)  # not what the other tests have loaded: nothing is cached


def turn(question: str, history: Node | None = None) -> Turn:
    start: list[Any] = [] if history else [("system", "You are a helpful assistant.", None)]
    return Turn(history, [*start, ("user", question, None)])


def call(
    question: str | Turn,
    output: OutputContract | None = None,
    options: EmbeddedOptions | None = None,
    **profile: Any,
) -> GenerationCall:
    settings: dict[str, Any] = {"max_output_tokens": 8, "temperature": 0.0, "seed": 1, **profile}
    return GenerationCall(
        run_id="run",
        attempt=1,
        purpose="generate",
        backend=Backend(id="here", kind="embedded", embedded=options),
        profile=Profile(id="p", backend="here", model="default", **settings),
        output=output or OutputContract(),
        session_id=None,
        credential=None,
        _turn=turn(question) if isinstance(question, str) else question,
    )


@pytest.fixture(scope="module", autouse=True)
def loaded_once() -> Iterator[None]:
    """Keep the model between tests: loading is most of what each would take."""
    model = borrow(model_options(call("").backend), lambda _: fetch_default_model(print))
    yield
    give_back(model)


@pytest.fixture
async def client(anyio_backend: str) -> AsyncIterator[EmbeddedClient]:
    assert anyio_backend
    client = EmbeddedClient()
    yield client
    await client.aclose()


async def refusal(client: EmbeddedClient, refused: GenerationCall) -> GenerationError:
    with pytest.raises(GenerationError) as caught:
        await client.generate(refused)
    assert not caught.value.transient
    return caught.value


def run_script(script: str) -> subprocess.CompletedProcess[str]:
    """Run what would end or hang this process in one of its own."""
    setup = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\nfrom test_embedded import *\n"
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", setup + script],
        capture_output=True,
        text=True,
        timeout=18,
        check=False,
    )


# ------------------------------------------------------------------ answers


@pytest.mark.anyio
async def test_an_answer_has_text_finish_reason_model_and_every_count(client: EmbeddedClient) -> None:
    reply = await client.generate(call("What is the capital of France?", options=FRESH, max_output_tokens=3))
    assert reply.content
    assert reply.finish_reason == "length"
    assert reply.model == "SmolLM2-135M-Instruct.Q4_1"
    assert reply.response_id
    assert reply.usage is not None
    assert reply.usage.input_tokens
    assert reply.usage.output_tokens == 3
    assert reply.usage.cache_read_tokens == 0


@pytest.mark.anyio
async def test_an_answer_under_a_schema_parses(client: EmbeddedClient) -> None:
    reply = await client.generate(call("Ann is 7 years old. Who is it?", PERSON, max_output_tokens=60))
    assert reply.finish_reason == "stop"
    assert set(json.loads(reply.content)) == {"name", "age"}


@pytest.mark.anyio
async def test_a_continuation_reads_its_history_from_the_cache(client: EmbeddedClient) -> None:
    first = turn("Name a colour.")
    reply = await client.generate(call(first))
    for question in ("Another one?", "Why that one?"):  # siblings share the prefix
        again = await client.generate(call(turn(question, first.capture("run", reply.content))))
        assert again.usage is not None
        assert again.usage.cache_read_tokens is not None
        assert again.usage.cache_read_tokens > 20


@pytest.mark.anyio
async def test_the_same_seed_gives_the_same_answer(client: EmbeddedClient) -> None:
    asked = [call("Tell me about rain.", temperature=1.5, seed=seed, max_output_tokens=20) for seed in (5, 5, 6)]
    same, again, other = [(await client.generate(one)).content for one in asked]
    assert same == again != other


@pytest.mark.anyio
async def test_nothing_is_written_to_the_terminal(client: EmbeddedClient, capfd: pytest.CaptureFixture[str]) -> None:
    await client.generate(call("Hi", options=FRESH))
    await client.aclose()
    assert capfd.readouterr() == ("", "")


@pytest.mark.anyio
async def test_clients_share_a_model_and_one_that_closes_leaves_it_to_the_others(client: EmbeddedClient) -> None:
    other = EmbeddedClient()
    await client.generate(call("Name a colour."))
    shared = await other.generate(call("Name a colour."))
    await other.aclose()
    again = await client.generate(call("Name a colour."))
    for reply in (shared, again):
        assert reply.usage is not None
        assert reply.usage.cache_read_tokens


# ------------------------------------------------------------------ cancellation


@pytest.mark.anyio
@pytest.mark.parametrize("question", ["Count.", LONG], ids=["in the answer", "in the prompt"])
async def test_a_cancelled_generation_frees_the_model_for_the_next(client: EmbeddedClient, question: str) -> None:
    await client.generate(call("Hi", max_output_tokens=1))  # loaded: the time goes to the generation
    with anyio.move_on_after(0.3) as scope:
        await client.generate(call(question, **ENDLESS))
    assert scope.cancelled_caught
    with anyio.fail_after(10):
        assert (await client.generate(call("What is the capital of France?"))).content


@pytest.mark.anyio
async def test_a_cancelled_waiter_leaves_the_generation_before_it_alone(client: EmbeddedClient) -> None:
    replies: list[GenerationReply] = []
    begun = anyio.Event()

    async def first() -> None:
        begun.set()
        replies.append(await client.generate(call("Tell me about rain.", max_output_tokens=60)))

    async with anyio.create_task_group() as group:
        group.start_soon(first)
        await begun.wait()
        with anyio.move_on_after(0.1) as scope:
            await client.generate(call("Count.", **ENDLESS))
        assert scope.cancelled_caught
    assert len(replies) == 1
    assert (await client.generate(call("Hi"))).content


@pytest.mark.anyio
async def test_closing_waits_for_a_cancelled_generation_to_leave_the_model(client: EmbeddedClient) -> None:
    with anyio.move_on_after(0.1):
        await client.generate(call("Count.", **ENDLESS))
    await client.aclose()
    assert (await client.generate(call("Hi"))).content


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.anyio
async def test_a_native_cancellation_frees_the_model_too(client: EmbeddedClient) -> None:
    await client.generate(call("Hi", max_output_tokens=1))
    task = asyncio.create_task(client.generate(call("Count.", **ENDLESS)))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(task, 0.3)
    with anyio.fail_after(10):
        assert (await client.generate(call("Hi"))).content


# ------------------------------------------------------------------ refusals


@pytest.mark.anyio
async def test_messages_beyond_the_context_are_refused_with_both_numbers(client: EmbeddedClient) -> None:
    error = await refusal(client, call("word " * 600, options=EmbeddedOptions(context_tokens=256)))
    assert isinstance(error, RejectedRequestError)
    assert (error.status, error.provider_code) == (400, "exceed_context_size_error")
    assert " 256" in str(error)
    assert " 6" in str(error)
    assert "context_tokens" in str(error)


@pytest.mark.anyio
async def test_an_answer_ends_with_the_context(client: EmbeddedClient) -> None:
    small = EmbeddedOptions(context_tokens=256)
    reply = await client.generate(
        call("word " * 180, options=small, max_output_tokens=None, extra={"ignore_eos": True})
    )
    assert reply.finish_reason == "length"
    assert reply.usage is not None
    assert (reply.usage.input_tokens or 0) + (reply.usage.output_tokens or 0) <= 256


@pytest.mark.anyio
async def test_a_schema_that_the_library_does_not_take_names_the_setting(client: EmbeddedClient) -> None:
    strange = OutputContract(kind="json_schema", schema={"type": "object", "properties": {"a": {"$ref": "#/$defs/no"}}})
    error = await refusal(client, call("Hi", strange))
    assert isinstance(error, RejectedRequestError)
    assert "native_output" in str(error)
    assert (await client.generate(call("Hi"))).content


@pytest.mark.anyio
async def test_a_missing_model_file_is_named(client: EmbeddedClient, tmp_path: Path) -> None:
    missing = str(tmp_path / "none.gguf")
    error = await refusal(client, call("Hi", options=EmbeddedOptions(model_path=missing)))
    assert isinstance(error, ConnectError)
    assert missing in str(error)


@pytest.mark.anyio
@pytest.mark.parametrize(("content", "said"), [(b"no model", "is not a GGUF file"), (b"GGUF" + bytes(99), "damaged")])
async def test_a_file_that_is_no_model_is_named(
    client: EmbeddedClient,
    tmp_path: Path,
    content: bytes,
    said: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "own.gguf"
    path.write_bytes(content)
    error = await refusal(client, call("Hi", options=EmbeddedOptions(model_path=str(path))))
    assert isinstance(error, ConnectError)
    assert str(path) in str(error)
    assert said in str(error)
    assert capfd.readouterr() == ("", "")


# ------------------------------------------------------------------ processes

FORK = """
async def ask():
    client = EmbeddedClient()
    print((await client.generate(call("Hi"))).finish_reason, flush=True)
anyio.run(ask)
child = os.fork()
if child == 0:
    try:
        anyio.run(ask)
    except ConnectError as error:
        print(error)
    sys.exit(3)  # ends by exit(), not by _exit(): the library's static objects would be destroyed
print("child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
anyio.run(ask)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_refuses_with_a_sentence_and_ends_by_itself() -> None:
    done = run_script(FORK)
    first, said, ended, second = done.stdout.splitlines()
    assert first == second == "length"
    assert "spawn" in said
    assert ended == "child ended with 3"
    assert (done.returncode, done.stderr) == (0, "")


SIGNALS = """
import signal, threading
async def ask():
    await EmbeddedClient().generate(call("Hi"))
loop = threading.Thread(target=anyio.run, args=(ask,))  # where no event loop puts a handler of its own
loop.start()
loop.join()
try:
    signal.raise_signal(signal.SIGINT)
    print("went on")
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_is_still_the_programs_own_after_the_model_is_loaded() -> None:
    done = run_script(SIGNALS)
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)


LISTENERS = """
async def ask():
    await EmbeddedClient().generate(call("Hi"))
anyio.run(ask)
own = {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")
       or os.path.islink(f"/proc/self/fd/{fd}")}
listening = [row.split() for name in ("tcp", "tcp6") for row in open(f"/proc/self/net/{name}").readlines()[1:]]
print(len([row for row in listening if row[3] == "0A" and f"socket:[{row[9]}]" in own]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_library_listens_on_no_port() -> None:
    assert run_script(LISTENERS).stdout == "0\n"


EXIT = """
async def ask():
    with anyio.move_on_after(0.5):
        await EmbeddedClient().generate(call(LONG, **ENDLESS))
anyio.run(ask, backend={backend!r})
"""


def test_a_process_ends_cleanly_while_a_cancelled_generation_still_runs(anyio_backend: str) -> None:
    done = run_script(EXIT.format(backend=anyio_backend))
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_without_the_library_the_extra_is_named() -> None:
    script = (
        "sys.modules['xllamacpp'] = None\nasync def ask(): await EmbeddedClient().generate(call('Hi'))\nanyio.run(ask)"
    )
    assert 'pip install "promptkit-engine[embedded]"' in run_script(script).stderr.splitlines()[-1]


# ------------------------------------------------------------------ bodies and replies, without a model


def test_an_answer_is_always_bounded_and_streamed() -> None:
    body = json.loads(streaming_body(call("Hi", max_output_tokens=None), 1024))
    assert body["max_tokens"] == 1024
    assert body["stream"] is True
    assert json.loads(streaming_body(call("Hi", max_output_tokens=7), 1024))["max_tokens"] == 7


def test_messages_stay_the_bytes_that_they_are() -> None:
    asked = call('caf\u00e9 \u2028 \\ / "quoted"')
    assert asked.encoded_messages("chat_completions").messages in streaming_body(asked, 100)


def test_one_core_is_left_to_others() -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    assert model_options(call("Hi").backend).threads == max(1, cores - 1)
    assert model_options(call("Hi", options=EmbeddedOptions(threads=3)).backend).threads == 3


def test_the_home_folder_in_a_path_is_resolved() -> None:
    path = model_options(call("Hi", options=EmbeddedOptions(model_path="~/m.gguf")).backend).path
    assert path == str(Path.home() / "m.gguf")


@pytest.mark.anyio
async def test_closing_ends_a_download_that_is_still_going_on() -> None:
    started, ended = threading.Event(), threading.Event()

    def endless(given_up: Callable[[], bool]) -> Path:
        started.set()
        while not given_up():
            ended.wait(0.01)
        ended.set()
        msg = "given up"
        raise ConnectError(msg, transient=False)

    options = msgspec.structs.replace(model_options(call("Hi").backend), context_tokens=777)
    model = borrow(options, endless)
    stop = threading.Event()

    def ask() -> None:
        with pytest.raises(ConnectError):
            model.answer(b"{}", stop)

    thread = threading.Thread(target=ask)
    thread.start()
    await anyio.to_thread.run_sync(started.wait)
    stop.set()
    await anyio.to_thread.run_sync(give_back, model)
    assert ended.is_set()
    thread.join()
