"""Runs inside the model clients of several backends: none waits for ever, and none is refused that could have gone on.

The gates are real, and so are the tasks that wait at them. The model knows nothing of rings: it lets every client end
inside of which nothing is alive, again and again, and looks who is left.
"""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from promptkit._effects.gate import Gate, Inside
from promptkit._values.definitions import Backend
from promptkit.errors import CapacityError

if TYPE_CHECKING:
    from collections.abc import Iterator


def gate_of(name: str, concurrency: int) -> Gate:
    limits = {"max_concurrency": concurrency, "max_waiting": 10_000}
    return Gate(Backend(id=name, kind="chat_completions", base_url="http://localhost/v1", **limits))  # type: ignore[arg-type]


class Client:
    """A run at the backend ``place``, and the model client that makes its one attempt."""

    def __init__(self, place: int, parent: Client | None) -> None:
        self.place = place
        self.parent = parent
        self.inside = contextvars.Context()
        self.ending = asyncio.Event()
        self.refused = self.called = False

    def around(self) -> Iterator[Client]:
        client = self.parent
        while client is not None:
            yield client
            client = client.parent

    async def run(self, gate: Gate) -> None:
        try:
            await gate.acquire()
        except CapacityError as error:
            self.refused = error.reason == "re-entrant"
            return
        try:
            with Inside(gate):
                self.inside = contextvars.copy_context()
                self.called = True
                await self.ending.wait()
        finally:
            gate.release()


class NestedWaits(RuleBasedStateMachine):
    """Runs start at the top and inside clients; clients end, also before what they started; waiters are cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.tasks: dict[Client, asyncio.Task[None]] = {}

    @initialize(concurrency=st.lists(st.integers(1, 2), min_size=2, max_size=4))
    def start(self, concurrency: list[int]) -> None:
        self.concurrency = concurrency
        self.gates = [gate_of(f"backend {place}", limit) for place, limit in enumerate(concurrency)]
        self.calling: list[list[Client]] = [[] for _ in concurrency]
        self.queues: list[list[Client]] = [[] for _ in concurrency]

    def _settle(self) -> None:
        async def turns() -> None:
            for _ in range(4):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())

    def _all_calling(self) -> list[Client]:
        return [client for calling in self.calling for client in calling]

    def _all_end(self, calling: list[list[Client]], queues: list[list[Client]]) -> bool:
        calling, queues = [list(clients) for clients in calling], [list(clients) for clients in queues]
        while True:
            alive = [client for clients in (*calling, *queues) for client in clients]
            busy = {outer for client in alive for outer in client.around()}
            ending = [client for clients in calling for client in clients if client not in busy]
            if not ending:
                return not alive
            place = ending[0].place
            calling[place].remove(ending[0])
            calling[place] += queues[place][:1]
            del queues[place][:1]

    def _must_be_refused(self, client: Client) -> bool:
        outer = [each for each in client.around() if each in self._all_calling()]
        if any(each.place == client.place for each in outer):
            return True
        queues = [[*queue, client] if place == client.place else queue for place, queue in enumerate(self.queues)]
        return bool(outer) and not self._all_end(self.calling, queues)

    def _run(self, place: int, parent: Client | None) -> None:
        client = Client(place, parent)
        waits = len(self.calling[place]) == self.concurrency[place]
        refused = waits and self._must_be_refused(client)
        context = contextvars.Context() if parent is None else parent.inside.copy()
        self.tasks[client] = self.loop.create_task(client.run(self.gates[place]), context=context)
        self._settle()
        assert (client.refused, client.called) == (refused, not waits)
        if not refused:
            (self.queues if waits else self.calling)[place].append(client)

    @rule(data=st.data())
    def a_run_starts(self, data: st.DataObject) -> None:
        self._run(data.draw(st.integers(0, len(self.gates) - 1)), None)

    @precondition(lambda self: any(self.calling))
    @rule(data=st.data())
    def a_run_starts_inside_a_client(self, data: st.DataObject) -> None:
        parent = data.draw(st.sampled_from(self._all_calling()))
        self._run(data.draw(st.integers(0, len(self.gates) - 1)), parent)

    def _end(self, client: Client, *, cancelled: bool = False) -> None:
        calling, queue = self.calling[client.place], self.queues[client.place]
        calling.remove(client)
        calling += queue[:1]
        del queue[:1]
        if cancelled:
            self.tasks[client].cancel()
        else:
            client.ending.set()
        self._settle()
        assert self.tasks[client].done()

    @precondition(lambda self: any(self.calling))
    @rule(data=st.data(), cancelled=st.booleans())
    def a_client_ends_whatever_it_started(self, data: st.DataObject, cancelled: bool) -> None:  # noqa: FBT001
        self._end(data.draw(st.sampled_from(self._all_calling())), cancelled=cancelled)

    @precondition(lambda self: any(self.queues))
    @rule(data=st.data())
    def a_waiter_is_cancelled(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from([client for queue in self.queues for client in queue]))
        self.queues[client.place].remove(client)
        self.tasks[client].cancel()
        self._settle()
        assert self.tasks[client].cancelled()

    @invariant()
    def the_gates_are_as_the_model_says(self) -> None:
        for gate, calling, queue in zip(self.gates, self.calling, self.queues, strict=True):
            assert (gate.state.permits, len(gate.state.queue)) == (len(calling), len(queue))
            assert all(client.called for client in calling)
            assert not any(client.called or client.refused for client in queue)

    @invariant()
    def nobody_waits_for_ever(self) -> None:
        assert self._all_end(self.calling, self.queues)

    def teardown(self) -> None:
        if hasattr(self, "gates"):
            while alive := self._all_calling():
                waiting = [client for queue in self.queues for client in queue]
                busy = {outer for client in (*alive, *waiting) for outer in client.around()}
                self._end(next(client for client in alive if client not in busy))
            assert not any(self.queues)
            assert all(task.done() for task in self.tasks.values())
            assert not any(gate.waits_inside for gate in self.gates)
        self.loop.close()


NestedWaits.TestCase.settings = settings(deadline=None)
TestNestedWaits = NestedWaits.TestCase
