"""The engine: the public functions that prepare, run and coordinate."""

from __future__ import annotations

from os import PathLike, fspath
from typing import TYPE_CHECKING, Self, final

from promptkit._effects.coordination import Coordination, coordination_of
from promptkit._effects.credentials import resolve_credential
from promptkit._effects.frames import forget_locals
from promptkit._effects.prepared_execution import Payload, PreparedExecution, claimed, execution_of
from promptkit._effects.raising import or_raise
from promptkit._effects.shared import Shared
from promptkit._load_catalog import Catalog, definitions_of
from promptkit._prepare.views import below, qualified
from promptkit._values.definitions import namespace_problem
from promptkit._values.requests import RunRequest
from promptkit._values.turns import expect_coordination
from promptkit.errors import InvalidRequestError

if TYPE_CHECKING:
    from types import TracebackType

    import httpx

    from promptkit._effects.shared import LoopState
    from promptkit._prepare.pipeline import Prepared
    from promptkit._values.details import BackendDetails, ProfileDetails, PromptDetails
    from promptkit._values.generation import InputReader, ModelClient
    from promptkit._values.results import PreparedRun, RunResult
    from promptkit._values.turns import CoordinateRequest

MAX_INPUT_BYTES = 16 * 2**20


@final
class Engine:
    """Runs the prompts of a catalog. Usable without being entered; ``async with`` adds closing.

    An engine serves one event loop at a time (asyncio or trio) and any number of tasks on it.

    ``client`` replaces the built-in client of every backend; ``http_client`` is an httpx.AsyncClient that the caller
    owns, instead of promptkit's own. ``inputs`` is the folder of file inputs (None: that of the loaded catalog, else no
    files are read), ``input_reader`` replaces reading from it, ``max_input_bytes`` (1 or more; 16 MiB unless it is
    given) bounds each input.

    ``scoped`` gives a view: an engine whose ids are resolved below a namespace. An engine and its views are one:
    one capacity, one set of clients, one event loop, one owner of prepared executions.
    """

    __slots__ = ("__weakref__", "_namespace", "_shared")
    _namespace: str  # of a view; empty for the engine itself

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
        """Take the catalog; nothing is opened or sent yet."""
        self._namespace = ""
        self._shared = shared_for(
            "Engine",
            catalog,
            client=client,
            http_client=http_client,
            inputs=inputs,
            input_reader=input_reader,
            max_input_bytes=max_input_bytes,
        )

    async def __aenter__(self) -> Self:
        """Give the engine itself. Raises EngineStateError when it is closed."""
        self._shared.expect_usable()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.aclose()

    async def aclose(self) -> None:
        """Refuse new runs, wait for those that were admitted, then close what the engine made.

        A cancellation while it waits closes nothing, so that those runs go on: call it again. On a view it does
        nothing.
        """
        if not self._namespace:
            await self._shared.aclose()

    def scoped(self, namespace: str) -> Engine:
        """Give a view of this engine: below ``namespace`` are the ids of what is asked of it.

        These are the ``prompt_id``, ``profile`` and schema id (``output.schema``) of a request, those of ``coordinate``
        too, and the ids of the ``inspect_`` functions. ``engine.scoped("team")`` runs the prompt "team/ask" as "ask",
        and reaches nothing outside "team/". All else is absolute: references inside definitions are those of the
        catalog, and results, events, errors and details have full ids. Hashes and captured history do not depend on
        the view. Views nest. Closing a view does nothing: close the engine.

        Raises InvalidRequestError for what is not a namespace: names separated by single slashes, such as "team" or
        "team/research". There need be nothing below it.
        """
        if not isinstance(namespace, str):
            msg = f"scoped: Expected a namespace such as 'team', got `{type(namespace).__name__}`"
            raise InvalidRequestError(msg)
        problem = namespace_problem(namespace)
        if problem is not None:
            msg = f"scoped: {problem}, such as 'team' or 'team/research'"
            raise InvalidRequestError(msg)
        return engine_over(self._shared, below(self._namespace, str.__str__(namespace)))

    def inspect_prompt(self, prompt_id: str) -> PromptDetails:
        """Show a prompt as it is defined: the source of its templates, its contract, its hash, its file.

        Raises UnknownPromptError, with a near miss.
        """
        full_id = self._full_id(prompt_id, "inspect_prompt")
        from promptkit._prepare.inspection import prompt_details

        return or_raise(prompt_details(self._shared.definitions, full_id, self._namespace))

    def inspect_profile(self, profile_id: str) -> ProfileDetails:
        """Show a profile, with each setting of it and of its backend, and where that comes from.

        Raises UnknownProfileError, with a near miss.
        """
        full_id = self._full_id(profile_id, "inspect_profile")
        from promptkit._prepare.inspection import profile_details

        return or_raise(profile_details(self._shared.definitions, full_id, self._namespace))

    def inspect_backend(self, backend_id: str) -> BackendDetails:
        """Show how a backend is configured and how busy it is now. Any thread may ask.

        Raises UnknownBackendError, with a near miss.
        """
        full_id = self._full_id(backend_id, "inspect_backend")
        counts = self._shared.counts(full_id)
        from promptkit._prepare.inspection import backend_details

        return or_raise(backend_details(self._shared.definitions, full_id, counts, self._namespace))

    async def validate_request(self, request: RunRequest) -> None:
        """Prepare a request and forget it. Raises what ``prepare`` raises; calls no model."""
        try:
            await self._prepared(self._qualified(request))
        except BaseException as error:
            del request
            forget_locals(error)
            raise

    async def prepare(self, request: RunRequest) -> PreparedRun:
        """Show exactly what ``run`` would send. Calls no model, takes no capacity, emits no event.

        Raises InvalidRequestError or a subclass of it: an unknown id, a value that is missing, an input that cannot be
        read.
        """
        from promptkit._prepare.pipeline import details

        try:
            return details(await self._prepared(self._qualified(request)))
        except BaseException as error:
            del request
            forget_locals(error)
            raise

    async def prepare_execution(self, request: RunRequest) -> PreparedExecution:
        """Fix everything that a run needs, to run it later with ``run_prepared``.

        The key is fixed too, where it comes from the environment. Costs no more with a longer history. Raises what
        ``prepare`` raises, and CredentialError.
        """
        try:
            return execution_of(await self._payload(self._qualified(request)))
        except BaseException as error:
            del request
            forget_locals(error)
            raise

    async def run(self, request: RunRequest) -> RunResult:
        """Run a request. An output that breaks its contract after all repairs is a result, not an error.

        Raises InvalidRequestError before anything is sent, CredentialError without a usable key, CapacityError when the
        backend admits no more, and GenerationError for what the backend did. A cancellation leaves as itself, and never
        loses a reply that has arrived.
        """
        from promptkit._effects.run import RunDriver  # what runs is loaded with the first run

        try:
            with self._shared.entered() as loop:
                return await RunDriver(self._shared, loop, self._qualified(request), self._namespace).drive()
        except BaseException as error:
            del request
            forget_locals(error)
            raise

    async def run_prepared(self, execution: PreparedExecution) -> RunResult:
        """Run what ``prepare_execution`` of this engine, or of a view of it, prepared.

        Raises PreparedExecutionError when it has run, was discarded, or belongs to another engine, and what ``run``
        raises.
        """
        if not isinstance(execution, PreparedExecution):
            msg = f"run_prepared: Expected a PreparedExecution, got `{type(execution).__name__}`"
            raise InvalidRequestError(msg)
        try:
            with self._shared.entered() as loop:
                return await _run_claimed(self._shared, loop, claimed(execution, self._shared))
        except BaseException as error:
            forget_locals(error)
            raise

    def coordinate(self, request: CoordinateRequest) -> Coordination:
        """Make a coordination of one branch: await it to let it run.

        Raises InvalidRequestError for what is not a CoordinateRequest, and EngineStateError when the engine is closed;
        neither waits for the await. What is wrong with a field, CoordinateRequest itself refuses.
        """
        expect_coordination(request)
        self._shared.expect_usable()
        return coordination_of(request, self.run, self._shared.expect_usable_here)

    async def _payload(self, full: RunRequest) -> Payload:
        prepared = await self._prepared(full)
        credential = or_raise(resolve_credential(prepared.selection.backend, full.credential))
        return Payload(self._shared, prepared, full, credential)

    async def _prepared(self, full: RunRequest) -> Prepared:
        from promptkit._effects.preparation import prepare

        return or_raise(await prepare(self._shared, full, self._namespace))

    def _qualified(self, request: RunRequest) -> RunRequest:
        """Give the request with full ids: from here on, nothing depends on the view but what an error suggests."""
        if not isinstance(request, RunRequest):
            given = f"prompt_id={request!r}" if isinstance(request, str) and len(request) < 100 else "prompt_id=..."
            msg = f"Expected a RunRequest, got `{type(request).__name__}`: give RunRequest({given})"
            raise InvalidRequestError(msg)
        return qualified(request, self._namespace)

    def _full_id(self, identifier: str, function: str) -> str:
        if not isinstance(identifier, str):
            msg = f"{function}: Expected an id, got `{type(identifier).__name__}`"
            raise InvalidRequestError(msg)
        return below(self._namespace, str.__str__(identifier))

    def __repr__(self) -> str:
        """Give a constant."""
        return "<promptkit.Engine>"


def engine_over(shared: Shared, namespace: str = "") -> Engine:
    """Make an engine, or the view of one below a namespace."""
    engine = object.__new__(Engine)
    engine._shared, engine._namespace = shared, namespace  # as its constructor does
    return engine


def shared_for(
    name: str,
    catalog: Catalog,
    *,
    client: ModelClient | None,
    http_client: httpx.AsyncClient | None,
    inputs: str | PathLike[str] | None,
    input_reader: InputReader | None,
    max_input_bytes: int,
) -> Shared:
    """Make what an engine holds from the arguments of its constructor. ``name`` is that of its class.

    Raises InvalidRequestError for an argument of the wrong kind.
    """
    if not isinstance(catalog, Catalog):
        msg = f"{name}: Expected a Catalog (load_catalog gives one), got `{type(catalog).__name__}`"
        raise InvalidRequestError(msg)
    for option, given, method in (
        ("client", client, "generate"),
        ("http_client", http_client, "aclose"),  # which a client that does not await has not
        ("input_reader", input_reader, "read"),
    ):
        if isinstance(given, type):
            msg = f"{name}.{option}: `{given.__name__}` is a class: give an instance of it, {given.__name__}(...)"
            raise InvalidRequestError(msg)
        if given is not None and not callable(getattr(given, method, None)):
            msg = f"{name}.{option}: `{type(given).__name__}` has no method {method}"
            raise InvalidRequestError(msg)
    if not isinstance(inputs, str | PathLike | None):
        msg = f"{name}.inputs: Expected the path of a folder, got `{type(inputs).__name__}`"
        raise InvalidRequestError(msg)
    _expect_bound(max_input_bytes, f"{name}.max_input_bytes")
    from pathlib import Path  # with the first engine

    from promptkit._effects.input_files import FolderReader

    definitions = definitions_of(catalog)
    folders = definitions.inputs_folders if inputs is None else (_readable_path(inputs, f"{name}.inputs"),)
    return Shared(
        definitions,
        client=client,
        http_client=http_client,
        reader=input_reader or FolderReader([Path(folder).absolute() for folder in folders]),
        max_input_bytes=max_input_bytes,
    )


async def _run_claimed(shared: Shared, loop: LoopState, payload: Payload) -> RunResult:
    # In a frame of its own, so that it ends before the error of a run that fails leaves.
    from promptkit._effects.run import RunDriver

    driver = RunDriver(shared, loop, payload.request)
    return await driver.drive(payload.prepared, payload.credential)


def _readable_path(given: str | PathLike[str], where: str) -> str:
    try:
        path: object = fspath(given)
    except Exception as error:  # noqa: BLE001  # it is the caller's own method, and can raise anything
        msg = f"{where}: its __fspath__ gives no path: {type(error).__name__}: {error}"[:300]
        raise InvalidRequestError(msg) from None
    if not isinstance(path, str):
        msg = f"{where}: Expected the path of a folder, got one of `{type(path).__name__}`"
        raise InvalidRequestError(msg)
    return path


def _expect_bound(given: object, where: str) -> None:
    if not isinstance(given, int) or isinstance(given, bool):
        msg = f"{where}: Expected a number of bytes, got `{type(given).__name__}`"
        raise InvalidRequestError(msg)
    if given < 1:
        msg = f"{where}: must be 1 or more"
        raise InvalidRequestError(msg)
