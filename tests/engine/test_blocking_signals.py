"""The engine without an event loop, and a signal at each place of its calls where Python lets one in."""

from __future__ import annotations

import pytest

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
