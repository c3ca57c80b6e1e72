"""The engine: the public functions that prepare, run and coordinate."""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Self, final

from promptkit._effects.coordination import Coordination
from promptkit._effects.credentials import resolve_credential
from promptkit._effects.frames import forget_locals
from promptkit._effects.input_files import FolderReader
from promptkit._effects.preparation import prepare
from promptkit._effects.prepared_execution import Payload, PreparedExecution, claimed, execution_of
from promptkit._effects.raising import or_raise
from promptkit._effects.run import RunDriver
from promptkit._effects.shared import Shared
from promptkit._load_catalog import Catalog, definitions_of
from promptkit._prepare.pipeline import Prepared, details
from promptkit._values.requests import RunRequest
from promptkit._values.turns import CoordinateRequest
from promptkit.errors import InvalidRequestError

if TYPE_CHECKING:
    from types import TracebackType

    import httpx

    from promptkit._effects.shared import LoopState
    from promptkit._values.generation import InputReader, ModelClient
    from promptkit._values.results import PreparedRun, RunResult

MAX_INPUT_BYTES = 16 * 2**20


@final
class Engine:
    """Runs the prompts of a catalog. Usable without being entered; ``async with`` adds closing.

    An engine serves one event loop at a time (asyncio or trio) and any number of tasks on it.

    ``client`` replaces the built-in client of every backend; ``http_client`` is an httpx.AsyncClient that the caller
    owns, instead of promptkit's own. ``inputs`` is the folder of file inputs (None: that of the loaded catalog, else no
    files are read), ``input_reader`` replaces reading from it, ``max_input_bytes`` (1 or more) bounds each input.
    """

    __slots__ = ("__weakref__", "_shared")

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
        if not isinstance(catalog, Catalog):
            msg = f"Engine: Expected a Catalog (load_catalog gives one), got `{type(catalog).__name__}`"
            raise InvalidRequestError(msg)
        for name, given, method in (
            ("client", client, "generate"),
            ("http_client", http_client, "build_request"),
            ("input_reader", input_reader, "read"),
        ):
            if given is not None and not callable(getattr(given, method, None)):
                msg = f"Engine.{name}: `{type(given).__name__}` has no method {method}"
                raise InvalidRequestError(msg)
        if not isinstance(inputs, str | PathLike | None):
            msg = f"Engine.inputs: Expected the path of a folder, got `{type(inputs).__name__}`"
            raise InvalidRequestError(msg)
        _expect_bound(max_input_bytes)
        definitions = definitions_of(catalog)
        folders = definitions.inputs_folders if inputs is None else (_readable_path(inputs),)
        self._shared = Shared(
            definitions,
            client=client,
            http_client=http_client,
            reader=input_reader or FolderReader([Path(folder).absolute() for folder in folders]),
            max_input_bytes=max_input_bytes,
        )

    async def __aenter__(self) -> Self:
        """Give the engine itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.aclose()

    async def aclose(self) -> None:
        """Refuse new runs, wait for those that were admitted, then close what the engine made.

        A cancellation while it waits closes nothing, so that those runs go on: call it again.
        """
        await self._shared.aclose()

    async def validate_request(self, request: RunRequest) -> None:
        """Prepare a request and forget it. Raises what ``prepare`` raises; calls no model."""
        await self._prepared(request)

    async def prepare(self, request: RunRequest) -> PreparedRun:
        """Show exactly what ``run`` would send. Calls no model, takes no capacity, emits no event.

        Raises InvalidRequestError or a subclass of it: an unknown id, a value that is missing, an input that cannot be
        read.
        """
        return details(await self._prepared(request))

    async def prepare_execution(self, request: RunRequest) -> PreparedExecution:
        """Fix everything that a run needs, to run it later with ``run_prepared``.

        The key is fixed too, where it comes from the environment. Costs no more with a longer history. Raises what
        ``prepare`` raises, and CredentialError.
        """
        prepared = await self._prepared(request)
        credential = or_raise(resolve_credential(prepared.selection.backend, request.credential))
        return execution_of(Payload(self._shared, prepared, request, credential))

    async def run(self, request: RunRequest) -> RunResult:
        """Run a request. An output that breaks its contract after all repairs is a result, not an error.

        Raises InvalidRequestError before anything is sent, CredentialError without a usable key, CapacityError when the
        backend admits no more, and GenerationError for what the backend did. A cancellation leaves as itself, and never
        loses a reply that has arrived.
        """
        _expect(request)
        try:
            with self._shared.entered() as loop:
                return await RunDriver(self._shared, loop, request).drive()
        except BaseException as error:
            forget_locals(error)
            raise

    async def run_prepared(self, execution: PreparedExecution) -> RunResult:
        """Run what ``prepare_execution`` of this engine prepared.

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

        Raises InvalidRequestError for what is not a CoordinateRequest.
        """
        if not isinstance(request, CoordinateRequest):
            msg = f"coordinate: Expected a CoordinateRequest, got `{type(request).__name__}`"
            raise InvalidRequestError(msg)
        return Coordination(request, self.run)

    async def _prepared(self, request: RunRequest) -> Prepared:
        _expect(request)
        return or_raise(await prepare(self._shared, request))


async def _run_claimed(shared: Shared, loop: LoopState, payload: Payload) -> RunResult:
    # In a frame of its own, so that it ends before the error of a run that fails leaves.
    driver = RunDriver(shared, loop, payload.request)
    return await driver.drive(payload.prepared, payload.credential)


def _expect(request: object) -> None:
    if not isinstance(request, RunRequest):
        msg = f"Expected a RunRequest, got `{type(request).__name__}`"
        raise InvalidRequestError(msg)


def _readable_path(given: str | PathLike[str]) -> str:
    try:
        path: object = fspath(given)
    except Exception as error:  # noqa: BLE001  # it is the caller's own method, and can raise anything
        msg = f"Engine.inputs: its __fspath__ gives no path: {type(error).__name__}: {error}"[:300]
        raise InvalidRequestError(msg) from None
    if not isinstance(path, str):
        msg = f"Engine.inputs: Expected the path of a folder, got one of `{type(path).__name__}`"
        raise InvalidRequestError(msg)
    return path


def _expect_bound(given: object) -> None:
    if not isinstance(given, int) or isinstance(given, bool):
        msg = f"Engine.max_input_bytes: Expected a number of bytes, got `{type(given).__name__}`"
        raise InvalidRequestError(msg)
    if given < 1:
        msg = "Engine.max_input_bytes: must be 1 or more"
        raise InvalidRequestError(msg)
