"""The engine without an event loop, where the process itself takes part: Ctrl-C, its end, a fork."""

from __future__ import annotations

import anyio
import pytest

from promptkit import Engine, EngineStateError, RunRequest
from promptkit.testing import ScriptedClient
from servers.catalogs import small_catalog
from servers.interpreters import on_posix, run_script

# ---------------------------------------------------------------- Ctrl-C

RANDOM = """
engine = BlockingEngine(small_catalog(max_concurrency=2, max_waiting=64), client=Quick())
first = engine.run(ASK)
chance = random.Random(7)
interrupted = undelivered = 0
for _ in range(120):
    completed, delivered = [], []

    def choose(turn):
        if turn.result is not None:
            delivered.append(turn.result.run_id)
        engine.run(MORE)
        return MORE if turn.remaining_turns else None

    def observe(event):
        if isinstance(event, RunFinished) and event.outcome == "completed":
            completed.append(event.run_id)

    coordination = engine.coordinate(
        CoordinateRequest(start=first.exchange, additional_turns=3, next=choose, observer=observe)
    )
    try:
        ctrl_c(chance.uniform(0.0003, 0.012))
        coordination.run()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt as error:
        interrupted += 1
        trace = error.__traceback__
        while trace is not None:
            # Interrupted at its first instruction, a callback was called all the same.
            turn = trace.tb_frame.f_locals.get("turn")
            if trace.tb_frame.f_code is choose.__code__ and turn.result is not None:
                delivered += [turn.result.run_id] if turn.result.run_id not in delivered else []
            trace = trace.tb_next
        kept = coordination.result.undelivered
        undelivered += kept is not None
        assert completed == delivered + ([] if kept is None else [kept.run_id]), (completed, delivered, kept)
    assert engine.run(MORE).raw_output == "x"
    assert settled(engine) == (0, 0)
assert interrupted > 20, interrupted
engine.close()
print("done")
"""


@on_posix
def test_ctrl_c_at_any_moment_loses_no_response_and_leaves_the_engine_usable() -> None:
    done = run_script(RANDOM)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
    assert "atexit" not in done.stderr


RUNS = """
chance = random.Random(11)
for round in range(100):
    engine = BlockingEngine(small_catalog(max_concurrency=2, max_waiting=64), client=Quick())
    try:
        ctrl_c(chance.uniform(0.0002, 0.006))
        with engine:
            for _ in range(50):  # CPython swallows a Ctrl-C that strikes in a callback of a weak reference
                assert engine.run(MORE).raw_output == "x"
    except KeyboardInterrupt:
        pass
    engine.close()
    try:
        engine.run(MORE)
    except EngineStateError:
        pass
    else:
        raise AssertionError
assert threading.active_count() == 1, threading.enumerate()
print("done")
"""


@on_posix
def test_ctrl_c_at_any_moment_of_an_engines_life_leaves_it_closed_after_its_block() -> None:
    done = run_script(RUNS)
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
    assert "atexit" not in done.stderr


IN_FLIGHT = """
client = Never()
with BlockingEngine(small_catalog(max_concurrency=1, max_waiting=0), client=client) as engine:
    events = []
    press_when(client.asked)
    try:
        engine.run(RunRequest(prompt_id="more", observer=events.append))
    except KeyboardInterrupt:
        print("interrupted", client.cancelled, events[-1].outcome, capacity(engine))
"""


@on_posix
def test_ctrl_c_ends_a_run_in_flight_and_leaves_when_it_has_ended() -> None:
    done = run_script(IN_FLIGHT)
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted 1 cancelled (0, 0)\n", "", 0)


TWICE = """
client = Deaf()
press_when(client.asked)
press_when(client.told)
script = ScriptedClient(client.generate, "x")
with BlockingEngine(small_catalog(max_concurrency=1, max_waiting=0), client=script) as engine:
    try:
        engine.run(MORE)
    except KeyboardInterrupt as error:
        print("second", isinstance(error.__context__, KeyboardInterrupt), capacity(engine))
    client.let_go = True
    print(settled(engine), engine.run(MORE).raw_output)
"""


@on_posix
def test_a_second_ctrl_c_leaves_at_once_and_the_run_ends_by_itself() -> None:
    done = run_script(TWICE)
    assert (done.stdout, done.stderr, done.returncode) == ("second True (1, 0)\n(0, 0) x\n", "", 0)


CLOSING = """
client = Never()
engine = BlockingEngine(small_catalog(), client=client)
failures = []

def work():
    try:
        engine.run(MORE)
    except EngineStateError as error:
        failures.append(str(error))

running = threading.Thread(target=work)
running.start()
client.asked.wait()
ctrl_c(0.01)
try:
    engine.close()
except KeyboardInterrupt:
    running.join()
    print("interrupted", client.cancelled, failures, threading.active_count())
try:
    engine.run(MORE)
except EngineStateError as error:
    print(error)
"""


@on_posix
def test_ctrl_c_while_closing_cancels_what_is_in_flight_and_finishes_closing() -> None:
    done = run_script(CLOSING)
    said, closed = done.stdout.splitlines()
    assert said.startswith("interrupted 1 ['this engine was closed while")
    assert said.endswith("1")
    assert closed == "this engine is closed: make a new one"
    assert (done.stderr, done.returncode) == ("", 0)


TERMINATED = """
client = Never()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))

def press():
    client.asked.wait()
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=press).start()
with BlockingEngine(small_catalog(), client=client) as engine:
    try:
        engine.run(MORE)
    finally:
        print("left", client.cancelled, capacity(engine))
"""


@on_posix
def test_a_handler_that_exits_ends_the_run_and_the_program() -> None:
    done = run_script(TERMINATED)
    assert (done.stdout, done.stderr, done.returncode) == ("left 1 (0, 0)\n", "", 7)


# ---------------------------------------------------------------- the end of the process

UNCLOSED = """
engine = BlockingEngine(small_catalog(), client={client})
{work}
print("end", flush=True)
"""
IDLE = UNCLOSED.format(client="Quick()", work="engine.run(MORE)")
BUSY = UNCLOSED.format(
    client="Never()",
    work="""
def work():
    try:
        engine.run(MORE)
    except EngineStateError:
        pass
threading.Thread(target=work, daemon=True).start()
engine._engine._shared._client.asked.wait()
""",
)


@pytest.mark.parametrize("script", [IDLE, BUSY], ids=["idle", "busy"])
def test_a_program_that_never_closes_ends_with_a_warning_and_nothing_else(script: str) -> None:
    silent = run_script(script)
    assert (silent.stdout, silent.stderr, silent.returncode) == ("end\n", "", 0)
    warned = run_script(script, "-W", "always::ResourceWarning")
    assert (warned.stdout, warned.returncode) == ("end\n", 0)
    assert warned.stderr.count("Warning") == 1
    assert "ResourceWarning: a BlockingEngine was never closed" in warned.stderr


def test_a_program_that_closes_at_exit_ends_without_a_warning() -> None:
    done = run_script(
        "engine = BlockingEngine(small_catalog(), client=Quick())\natexit.register(engine.close)\nengine.run(MORE)\n",
        "-W",
        "always::ResourceWarning",
    )
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


DEAF = """
client = Deaf()
engine = BlockingEngine(small_catalog(), client=client)
threading.Thread(target=engine.run, args=(MORE,), daemon=True).start()
client.asked.wait()
print("end", flush=True)
"""


def test_a_program_ends_although_a_client_does_not() -> None:
    done = run_script(DEAF)
    assert (done.stdout, done.returncode) == ("end\n", 0)


# ---------------------------------------------------------------- fork

FORK = """
client = Never()
engine = BlockingEngine(small_catalog(), client=ScriptedClient("Rome.", client.generate, "again", "child"))
view = engine.scoped("team")
exchange = engine.run(ASK).exchange
waiting = engine.coordinate(CoordinateRequest(start=exchange, additional_turns=0, next=lambda turn: None))

def work():
    try:
        engine.run(MORE)
    except EngineStateError:
        pass

threading.Thread(target=work).start()  # the loop is busy, and a thread waits for it
client.asked.wait()
faulthandler.cancel_dump_traceback_later()  # its thread is not there either, and the end would wait for it
child = os.fork()
if child == 0:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a deadlock ends the child
    signal.alarm(8)
    for call in (
        lambda: engine.run(MORE), lambda: engine.prepare(MORE), lambda: engine.inspect_backend("server"),
        lambda: view.run(MORE), waiting.run, lambda: engine.coordinate(None), engine.__enter__,
    ):
        try:
            call()
        except EngineStateError as error:
            assert "made before a fork: make a new one" in str(error), error
        else:
            raise AssertionError
    engine.close()
    engine.__exit__(KeyboardInterrupt, None, None)
    with BlockingEngine(small_catalog(), client=Quick()) as new:
        continued = new.run(RunRequest(prompt_id="more", continue_from=exchange))
        print(continued.raw_output, flush=True)
    del engine, view
    sys.exit(3)  # by way of what runs at the end of an interpreter
faulthandler.dump_traceback_later(15, exit=True)
print("child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(engine.run(MORE).raw_output, waiting.run().outcome)
try:
    engine._close(cancel=True)
finally:
    print("closed")
"""


@on_posix
def test_the_child_of_a_fork_is_refused_and_makes_an_engine_of_its_own() -> None:
    done = run_script(FORK, "-W", "ignore::DeprecationWarning")
    assert done.stdout.splitlines() == ["x", "child ended with 3", "again stopped", "closed"]
    assert (done.stderr, done.returncode) == ("", 0)


ASYNC_FORK = """
engine = Engine(small_catalog(), client=ScriptedClient("parent", "child"))
assert anyio.run(engine.run, MORE).raw_output == "parent"
engine._shared._lock.acquire()
child = os.fork()
if child == 0:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(8)
    async def use():
        async with engine:
            await engine.run(MORE)
    try:
        anyio.run(use)
    except EngineStateError as error:
        print(error, flush=True)
    os._exit(3)
print("child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@on_posix
def test_an_engine_made_before_a_fork_refuses_in_the_child_whatever_held_its_lock() -> None:
    done = run_script(ASYNC_FORK, "-W", "ignore::DeprecationWarning")
    assert done.stdout.splitlines() == [
        "this engine was made before a fork: make a new one in the child",
        "child ended with 3",
    ]
    assert (done.stderr, done.returncode) == ("", 0)


def test_an_engine_that_was_not_forked_is_not_refused() -> None:
    engine = Engine(small_catalog(), client=ScriptedClient("x"))
    assert anyio.run(engine.run, RunRequest(prompt_id="more")).raw_output == "x"
    anyio.run(engine.aclose)
    with pytest.raises(EngineStateError, match="closed"):
        anyio.run(engine.run, RunRequest(prompt_id="more"))


NO_FILES = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
engine, taken = BlockingEngine(small_catalog(), client=Quick()), []
try:
    while True:
        taken.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
for _ in range(2):
    try:
        engine.run(MORE)
    except EngineStateError as error:
        print(error)
engine.close()
for number in taken:
    os.close(number)
with BlockingEngine(small_catalog(), client=Quick()) as new:
    print(new.run(MORE).raw_output, threading.active_count())
"""


@on_posix
def test_an_event_loop_that_cannot_be_made_is_said_to_the_caller() -> None:
    done = run_script("import asyncio.runners, selectors\nfrom anyio._backends import _asyncio\n" + NO_FILES)
    first, second, after = done.stdout.splitlines()
    assert (
        first == "the engine's event loop could not be made: OSError: [Errno 24] Too many open files: make a new engine"
    )
    assert second == "this engine is closed: make a new one"
    assert (after, done.returncode) == ("x 2", 0)
    assert "Exception in thread" not in done.stderr  # asyncio may tell of its half of a loop
