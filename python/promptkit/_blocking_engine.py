"""The engine for people without an event loop: each function of ``Engine``, as one that blocks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar, final

from promptkit._effects.blocking_coordination import BlockingCoordination, Work, coordination_of
from promptkit._effects.call import Call
from promptkit._effects.loop_thread import LoopOwner
from promptkit._effects.prepared_execution import PreparedExecution, prompt_of
from promptkit._effects.time_limit import limit_of
from promptkit._engine import MAX_INPUT_BYTES, Engine, engine_over, shared_for
from promptkit._prepare.views import below
from promptkit._values.functions import function_kind
from promptkit._values.requests import RunRequest
from promptkit._values.results import RunResult
from promptkit._values.turns import expect_coordination
from promptkit.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from os import PathLike
    from types import TracebackType

    import httpx

    from promptkit._load_catalog import Catalog
    from promptkit._values.details import BackendDetails, ProfileDetails, PromptDetails
    from promptkit._values.generation import InputReader, ModelClient
    from promptkit._values.results import PreparedRun
    from promptkit._values.turns import CoordinateRequest

T = TypeVar("T")

IN_HAND = "the run had completed: its result is the attribute undelivered of this exception"
ASYNC_NEXT = (
    "coordinate: next is an async function, which a BlockingEngine does not await: give a plain one, or use Engine"
)


@final
class BlockingEngine:
    """Runs the prompts of a catalog, for people without an event loop. Close it, or use ``with``.

    Takes what ``Engine`` takes, with the same defaults. Many threads may call it and share its capacity. It runs an
    event loop of its own in a thread, from the first call until ``close``; an engine that is dropped, or left to the
    end of the program, cancels what is in flight and is a ResourceWarning.

    Ctrl-C in a call cancels its run, and leaves as KeyboardInterrupt when that has ended; a second one leaves at once.
    The engine stays usable.

    Observers and model clients run in the engine's own thread: they must not call back, which is an EngineStateError.
    So is each method where an event loop runs in the thread (there is ``Engine``), and in the child of a fork.
    """

    __slots__ = ("__weakref__", "_engine", "_namespace", "_owner")
    _engine: Engine
    _namespace: str  # of a view; empty for the engine itself
    _owner: LoopOwner

    def __init__(
        self,
        catalog: Catalog,
        *,
        client: ModelClient | None = None,
        http_client: httpx.AsyncClient | None = None,
        inputs: str | PathLike[str] | None = None,
        input_reader: InputReader | None = None,
        max_input_bytes: int = MAX_INPUT_BYTES,
    ) -> None:
        """Take the catalog; nothing is started, opened or sent yet."""
        shared = shared_for(
            "BlockingEngine",
            catalog,
            client=client,
            http_client=http_client,
            inputs=inputs,
            input_reader=input_reader,
            max_input_bytes=max_input_bytes,
        )
        self._engine, self._namespace = engine_over(shared), ""
        self._owner = LoopOwner(self._engine.aclose)

    def __enter__(self) -> Self:
        """Give the engine itself. Raises EngineStateError when it is closed."""
        self._owner.expect_usable()
        self._owner.expect_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close. After Ctrl-C, or another exception that is no Exception, cancel what is in flight first."""
        self._close(cancel=kind is not None and not issubclass(kind, Exception))

    def close(self) -> None:
        """Refuse new calls, wait for those in flight, then close what the engine made, and end its thread.

        A coordination that is inside ``next`` is not waited for: its next run is refused. ``inspect_`` functions and
        ``scoped`` go on working. Ctrl-C while it waits cancels what is in flight, and leaves when all is closed. A
        second call waits for the same end. On a view it does nothing. Raises EngineStateError where an event loop runs
        in this thread, the engine's own too.
        """
        self._close(cancel=False)

    def scoped(self, namespace: str) -> BlockingEngine:
        """Give a view of this engine: below ``namespace`` are the ids of what is asked of it, as for ``Engine.scoped``.

        A view shares capacity and thread with its engine. Raises InvalidRequestError for what is not a namespace.
        """
        self._owner.expect_usable()
        view = object.__new__(BlockingEngine)
        view._engine = self._engine.scoped(namespace)
        view._owner, view._namespace = self._owner, below(self._namespace, namespace)
        return view

    def inspect_prompt(self, prompt_id: str) -> PromptDetails:
        """Show a prompt as it is defined: the source of its templates, its contract, its hash, its file.

        Raises UnknownPromptError, with a near miss.
        """
        self._owner.expect_usable()
        return self._engine.inspect_prompt(prompt_id)

    def inspect_profile(self, profile_id: str) -> ProfileDetails:
        """Show a profile, with each setting of it and of its backend, and where that comes from.

        Raises UnknownProfileError, with a near miss.
        """
        self._owner.expect_usable()
        return self._engine.inspect_profile(profile_id)

    def inspect_backend(self, backend_id: str) -> BackendDetails:
        """Show how a backend is configured and how busy it is now.

        Raises UnknownBackendError, with a near miss.
        """
        self._owner.expect_usable()
        return self._engine.inspect_backend(backend_id)

    def validate_request(self, request: RunRequest) -> None:
        """Prepare a request and forget it. Raises what ``prepare`` raises; calls no model."""
        self._perform(partial(self._engine.validate_request, request))

    def prepare(self, request: RunRequest) -> PreparedRun:
        """Show exactly what ``run`` would send. Calls no model, takes no capacity, emits no event.

        Raises InvalidRequestError or a subclass of it: an unknown id, a value that is missing, an input that cannot be
        read.
        """
        return self._perform(partial(self._engine.prepare, request))

    def prepare_execution(self, request: RunRequest) -> PreparedExecution:
        """Fix everything that a run needs, to run it later with ``run_prepared``, in any thread.

        Raises what ``prepare`` raises, and CredentialError.
        """
        return self._perform(partial(self._engine.prepare_execution, request))

    def run(self, request: RunRequest, *, timeout: float | None = None) -> RunResult:
        """Run a request to its end.

        ``timeout`` bounds the whole in seconds: waiting for capacity, attempts and the waits between them (None: no
        limit; 0: nothing is begun). A reply that is in hand is not lost to it. Raises TimeoutError, InvalidRequestError
        for a timeout that is none, and what ``Engine.run`` raises. A KeyboardInterrupt that comes when the run has
        completed has its result as the attribute ``undelivered``.
        """
        return self._perform(partial(self._engine.run, request), timeout, self._subject(request))

    def run_prepared(self, execution: PreparedExecution, *, timeout: float | None = None) -> RunResult:
        """Run what ``prepare_execution`` of this engine, or of a view of it, prepared.

        ``timeout`` is as for ``run``. Raises PreparedExecutionError when it has run, was discarded, or belongs to
        another engine, and what ``run`` raises.
        """
        return self._perform(partial(self._engine.run_prepared, execution), timeout, self._subject(execution))

    def coordinate(self, request: CoordinateRequest) -> BlockingCoordination:
        """Make a coordination of one branch: call its ``run``. Its ``next`` is a plain function.

        Raises InvalidRequestError for what is not a CoordinateRequest, or one whose ``next`` is async, and
        EngineStateError when the engine is closed.
        """
        self._owner.expect_usable()
        self._owner.expect_open()
        expect_coordination(request)
        if function_kind(request.next) == "async":
            raise InvalidRequestError(ASYNC_NEXT)
        return coordination_of(Work(request, self._owner, self._engine.run, self._full_id))

    def _subject(self, work: object) -> str:
        """Say what a timeout of ``work`` ends. What is neither is refused when it runs."""
        prompt_id = None
        if isinstance(work, RunRequest):
            prompt_id = self._full_id(work.prompt_id)
        elif isinstance(work, PreparedExecution):
            prompt_id = prompt_of(work)
        return "the run" if prompt_id is None else f"the run of prompt {prompt_id!r}"

    def _full_id(self, prompt_id: str) -> str:
        return below(self._namespace, prompt_id)

    def _perform(self, work: Callable[[], Awaitable[T]], timeout: float | None = None, subject: str = "") -> T:
        self._owner.expect_usable()
        call = Call(work, limit_of(timeout, subject))
        try:
            return self._owner.perform(call)
        except BaseException as interrupt:
            # What a call gives that has ended by itself is raised nowhere: something interrupted the way back.
            if call.reply is not None and isinstance(call.reply[0], RunResult):
                vars(interrupt)["undelivered"] = call.reply[0]
                interrupt.add_note(IN_HAND)
            raise

    def _close(self, *, cancel: bool) -> None:
        if self._owner.forked:
            return  # what there is to close is the parent's
        self._owner.expect_usable()
        if not self._namespace:
            self._owner.close(cancel=cancel)

    def __repr__(self) -> str:
        """Give a constant."""
        return "<promptkit.BlockingEngine>"
