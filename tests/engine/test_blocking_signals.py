"""The engine without an event loop, and a signal at each place of its calls where Python lets one in."""

from __future__ import annotations

import pytest

from promptkit._blocking_engine import IN_HAND
from promptkit._effects.branch import UNDELIVERED
from servers.interpreters import on_posix, run_script

pytestmark = on_posix

STRIKE = """
class Strike:
    # Sends a signal at the n-th place of this thread where Python lets a handler in: a function begins, or C code ends.
    # Pure code is left out, where nothing can be held or half done.
    PLACES = ("promptkit._effects", "promptkit._blocking_engine", "promptkit._engine", "threading", "__main__")

    def __init__(self, place, number):
        self.left, self.number = place, number

    def __call__(self, frame, event, arg):
        if event in ("call", "c_return") and frame.f_globals.get("__name__", "").startswith(self.PLACES):
            self.left -= 1
            if self.left == 0:
                sys.setprofile(None)
                signal.raise_signal(self.number)

    def during(self, work):
        sys.setprofile(self)
        try:
            return work()
        finally:
            sys.setprofile(None)

start = BlockingEngine(small_catalog(), client=ScriptedClient("Rome."))
exchange = start.run(ASK).exchange
start.close()
"""

# ---------------------------------------------------------------- a handler that calls the engine

HANDLED = (
    STRIKE
    + """
def coordination(engine):
    chosen = iter([MORE, None])
    made = engine.coordinate(CoordinateRequest(start=exchange, additional_turns=2, next=lambda turn: next(chosen)))
    return made.run

class Calls:
    def __init__(self, inner, warm):
        self.engine = BlockingEngine(small_catalog(), client=Quick())
        self.prepared = None
        if warm:
            self.prepared = self.engine.prepare_execution(MORE)
        self.coordination = coordination(self.engine)
        self.inner, self.said = inner, None

    def handle(self, *_):
        try:
            self.said = getattr(self, self.inner)()
        except (EngineStateError, PreparedExecutionError) as error:
            self.said = str(error)

    def run(self):
        return self.engine.run(MORE).raw_output

    def coordinate(self):
        return self.coordination().outcome

    def execute(self):
        execution = self.prepared or self.engine.prepare_execution(MORE)
        assert execution.details.prompt_id == "more"
        try:
            return self.engine.run_prepared(execution).raw_output
        finally:
            execution.discard()

    def inspect(self):
        with self.engine.scoped("team") as view:
            return self.engine.inspect_backend("server").id

    def close(self):
        return self.engine.close()

signal.signal(signal.SIGALRM, lambda *_: calls.handle())
ANSWERS = {"run": "x", "coordinate": "stopped", "execute": "x", "inspect": "server", "close": None}
CLOSED = "this engine is closed: make a new one"
places = 0
for outer in ANSWERS:
    for warm in (True, False):
        place = 0
        while True:
            place += 1
            calls = Calls(INNER, warm)
            strike = Strike(place, signal.SIGALRM)
            try:
                said = strike.during(getattr(calls, outer))
            except (EngineStateError, PreparedExecutionError) as error:
                said = str(error)
            calls.engine.close()
            calls.coordination = None
            assert threading.active_count() == 1, (outer, warm, place, threading.enumerate())
            if strike.left > 0:
                break
            places += 1
            for answer, name in ((said, outer), (calls.said, INNER)):
                fine = (ANSWERS[name], CLOSED) if "close" in (outer, INNER) else (ANSWERS[name],)
                once = outer == INNER and ("runs once" in str(answer) or "has run" in str(answer))
                assert answer in fine or once or "was discarded" in str(answer), (outer, warm, place, answer)
print("done", places > 200)
"""
)


@pytest.mark.parametrize("inner", ["run", "coordinate", "execute", "inspect", "close"])
def test_a_signal_handler_may_call_the_engine_at_any_place_of_any_other_call(inner: str) -> None:
    done = run_script(f"INNER = {inner!r}\n" + HANDLED, "-W", "ignore::RuntimeWarning")
    assert (done.stdout, done.stderr, done.returncode) == ("done True\n", "", 0)


WAITING = """
class Gated:
    def __init__(self):
        self.asked, self.calls = threading.Event(), 0
    async def generate(self, call):
        self.calls += 1
        if self.calls == 1:
            self.free = anyio.Event()
            self.asked.set()
            await self.free.wait()
        else:
            self.free.set()
        return GenerationReply(content=f"answer {self.calls}")

def handle(*_):
    with engine.scoped("team"):
        said.append(capacity(engine))
    said.append(engine.run(MORE).raw_output)  # with which the first one is let go
    if CLOSES:
        engine.close()

client, said = Gated(), []
engine = BlockingEngine(small_catalog(max_concurrency=2), client=client)
signal.signal(signal.SIGINT, handle)
press_when(client.asked)
said.append(engine.run(MORE).raw_output)
print(*said)
try:
    print(engine.run(MORE).raw_output)
except EngineStateError as error:
    print(error)
engine.close()
"""


@pytest.mark.parametrize("closes", [True, False])
def test_a_signal_handler_may_run_and_close_while_the_same_thread_waits_for_a_run(*, closes: bool) -> None:
    done = run_script(f"CLOSES = {closes}\n" + WAITING)
    after = "this engine is closed: make a new one" if closes else "answer 3"
    assert (done.stdout.splitlines(), done.stderr) == (["(1, 0) answer 2 answer 2", after], "")


# ---------------------------------------------------------------- Ctrl-C

ANY_PLACE = (
    STRIKE
    + """
class Twice:
    # A client that lets others go first.
    async def generate(self, call):
        await anyio.lowlevel.checkpoint()
        return GenerationReply(content="x")

engine = BlockingEngine(small_catalog(max_concurrency=1, max_waiting=0), client=Twice())
engine.run(MORE)
place = undelivered = 0
while True:
    place += 1
    completed, delivered = [], []

    def choose(turn):
        if turn.result is not None:
            delivered.append(turn.result.run_id)
        return MORE if turn.remaining_turns else None

    def observe(event):
        if isinstance(event, RunFinished) and event.outcome == "completed":
            completed.append(event.run_id)

    made = engine.coordinate(CoordinateRequest(start=exchange, additional_turns=2, next=choose, observer=observe))
    strike = Strike(place, signal.SIGINT)
    try:
        strike.during(made.run)
    except KeyboardInterrupt as error:
        trace = error.__traceback__
        while trace is not None:
            # Interrupted at its first instruction, a callback was called all the same.
            turn = trace.tb_frame.f_locals.get("turn")
            if trace.tb_frame.f_code is choose.__code__ and turn.result is not None:
                delivered += [turn.result.run_id] if turn.result.run_id not in delivered else []
            trace = trace.tb_next
        kept = made.result.undelivered
        undelivered += kept is not None
        assert sum(".result.undelivered" in note for note in getattr(error, "__notes__", [])) == (kept is not None)
        assert completed == delivered + ([] if kept is None else [kept.run_id]), (place, completed, delivered, kept)
        assert made.result.outcome is None, place
        assert engine.run(MORE).raw_output == "x"
        assert settled(engine) == (0, 0), place
    else:
        assert strike.left > 0 or made.result.outcome == "stopped", place
        if strike.left > 0:
            break
engine.close()
assert threading.active_count() == 1
print("done", place > 50, undelivered > 5)
"""
)


def test_ctrl_c_at_each_place_of_a_coordination_loses_no_response_and_leaves_the_engine_usable() -> None:
    done = run_script(ANY_PLACE, "-W", "ignore::RuntimeWarning")  # at the first place, run was not yet called
    assert (done.stdout, done.stderr, done.returncode) == ("done True True\n", "", 0)


EACH_CALL = (
    STRIKE
    + """
def keep(event):
    if isinstance(event, RunFinished) and event.outcome == "completed":
        completed.append(event.run_id)

places = kept = 0
OBSERVED = RunRequest(prompt_id="more", observer=keep)
for call in ("run", "prepare", "run_prepared", "close"):
    for warm in (True, False):
        place = 0
        while True:
            place += 1
            engine = BlockingEngine(small_catalog(max_concurrency=1, max_waiting=0), client=Quick())
            execution = engine.prepare_execution(OBSERVED) if warm or call == "run_prepared" else None
            completed = []
            given = {"run": [OBSERVED], "prepare": [MORE], "run_prepared": [execution], "close": []}[call]
            strike = Strike(place, signal.SIGINT)
            try:
                strike.during(lambda: getattr(engine, call)(*given))
            except KeyboardInterrupt as interrupt:
                places += 1
                undelivered = getattr(interrupt, "undelivered", None)
                assert completed == ([] if undelivered is None else [undelivered.run_id]), (call, warm, place)
                kept += undelivered is not None
            else:
                assert strike.left > 0, (call, warm, place)
            try:
                assert engine.run(MORE).raw_output == "x", (call, warm, place)
                assert call != "close" or strike.left <= 0
            except EngineStateError:
                assert call == "close", (call, warm, place)
            assert capacity(engine) == (0, 0), (call, warm, place)
            engine.close()
            assert threading.active_count() == 1, (call, warm, place, threading.enumerate())
            if strike.left > 0:
                break
print("done", places > 100, kept > 0)
"""
)


def test_ctrl_c_at_each_place_of_each_call_leaves_nothing_behind_and_loses_no_result() -> None:
    done = run_script(EACH_CALL)
    assert (done.stdout, done.stderr, done.returncode) == ("done True True\n", "", 0)


STAGES = (
    STRIKE
    + """
def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

class Stages(Never):
    # The first answer is at once; what follows waits in flight, or fails and is tried again after a long time.
    def __init__(self):
        super().__init__()
        self.calls = 0

    async def generate(self, call):
        self.calls += 1
        if call.session_id == "backoff":
            raise GenerationError("once", transient=True)
        if call.session_id == "held":
            return await super().generate(call)
        return GenerationReply(content="x")

def pressing_at(kind, count=1):
    # An observer runs on the loop's thread. The signal is for the main thread, which waits.
    seen = []
    def observe(event):
        seen.append(type(event).__name__)
        if seen.count(kind) == count and seen[-1] == kind:
            interrupt()
    return observe

def press_when_waiting(engine):
    # Another run has the one permit: the main thread's is the one that waits.
    def press():
        while capacity(engine) != (1, 1):
            pass
        interrupt()
    threading.Thread(target=press).start()

slow = RetryPolicy(base_delay=60.0, max_delay=60.0)
client = Stages()
engine = BlockingEngine(small_catalog(max_concurrency=1, max_waiting=4, retry=slow), client=client)
failures, other = [], None
observer, session = None, None
if STAGE == "queued":
    def work():
        try:
            engine.run(RunRequest(prompt_id="more", session_id="held"))
        except EngineStateError as error:
            failures.append(str(error))
    other = threading.Thread(target=work)
    other.start()
    client.asked.wait()
    press_when_waiting(engine)
elif STAGE == "in flight":
    session = "held"
    press_when(client.asked)
elif STAGE == "backoff":
    session, observer = "backoff", pressing_at("RetryDelayed")
elif STAGE == "observer":
    session, observer = "held", pressing_at("RunStarted")
elif STAGE == "observer that raises":
    session = "held"
    press_when(client.asked)
    def observer(event):
        if isinstance(event, RunFinished):
            raise OSError("full disk")
elif STAGE == "finished":
    observer = pressing_at("RunFinished")

request = RunRequest(prompt_id="more", session_id=session, observer=observer)
kept = None

def choose(turn):
    if STAGE == "inside next":
        if turn.result is None:
            return request
        interrupt()
        raise AssertionError("was interrupted here")
    return request

try:
    if WAY == "run":
        engine.run(request)
    elif WAY == "run_prepared":
        engine.run_prepared(engine.prepare_execution(request))
    else:
        made = engine.coordinate(CoordinateRequest(start=exchange, additional_turns=1, next=choose))
        made.run()
except KeyboardInterrupt as error:
    said = [getattr(error, "__notes__", [])]
    if WAY == "coordinate":
        said += [repr(made), made.result.outcome, made.result.undelivered and made.result.undelivered.raw_output]
print("interrupted", *said)
print(capacity(engine))
if other is None:
    print(engine.run(MORE).raw_output)
engine._close(cancel=True)
if other is not None:
    other.join()
    print(failures)
print(threading.active_count())
"""
)
CUT_SHORT = "['this engine was closed while the work was in flight, which was cancelled']"


STAGED = [
    (stage, way)
    for stage in ("queued", "in flight", "backoff", "observer", "observer that raises", "finished")
    for way in ("run", "run_prepared", "coordinate")
]


@pytest.mark.parametrize(("stage", "way"), [*STAGED, ("inside next", "coordinate")])
def test_ctrl_c_ends_a_call_at_every_stage_and_leaves_the_engine_usable(stage: str, way: str) -> None:
    done = run_script(f"STAGE, WAY = {stage!r}, {way!r}\n" + STAGES)
    assert (done.stderr, done.returncode) == ("", 0)
    notes = ["an observer raised OSError: full disk"] if stage == "observer that raises" else []
    if stage == "finished":
        notes = [UNDELIVERED if way == "coordinate" else IN_HAND]
    # With RunFinished the response is there: a coordination keeps it.
    kept = "x" if stage == "finished" else None
    ended = (
        f" <promptkit.BlockingCoordination cancelled (KeyboardInterrupt)> None {kept}" if way == "coordinate" else ""
    )
    after = ["(1, 0)", CUT_SHORT] if stage == "queued" else ["(0, 0)", "x"]
    assert done.stdout.splitlines() == [f"interrupted {notes}{ended}", *after, "1"]
