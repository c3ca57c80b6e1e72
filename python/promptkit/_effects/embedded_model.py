"""The model that runs inside the process: the one place that knows xllamacpp (llama.cpp).

What the library does on its own, and what is done about it here:

- It holds the interpreter lock while it loads. Nothing can be done about that from outside.
- It always opens its HTTP server, although it is called directly. Here that server listens on a socket file that is
  removed at once (on Windows on loopback), behind a random key: nobody can talk to it.
- A call that does not stream cannot be stopped. A streaming one stops when its callback says so; ``return_progress``
  makes callbacks during the prompt too, one a batch, and batches are small for that reason.
- Threads as many as the cores collapse beside a busy neighbour, and spinning ones burn a core while they wait.
- It rounds the context up to a multiple of 256 tokens; refusals name the number that it has.
- More than one slot divides the context, and sibling branches lose the shared prefix.
- A forked child has the memory of the model but none of its threads: any use of it, its end included, waits for ever.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib
import os
import secrets
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from promptkit._wire.redaction import plain
from promptkit.errors import ConnectError, RejectedRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BATCH_TOKENS = 128  # of a prompt, between two chances to stop: 0.5 s with the default model on one thread
KEPT_PROMPTS_MIB = 512  # memory for the prompts of other branches; the library's own bound is 8 GiB

_SAID = 200
_PATIENCE = 15.0  # seconds, longer than the wait before a retry mostly is
_EXIT_WAIT = 10.0
_SOCKET_NAME = 100  # bytes, under the bound of every platform


class ModelOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What tells one loaded model from another. ``path`` None is the default model."""

    path: str | None
    context_tokens: int
    threads: int


class NativeServer(Protocol):
    """What is used of xllamacpp.Server."""

    def handle_chat_completions(self, prompt: bytes, callback: Callable[[bytes], bool]) -> None:
        """Answer. ``callback`` gets one JSON document a call and returns True to stop."""


class EmbeddedModel:
    """One model, loaded on first use; one generation at a time."""

    def __init__(self, options: ModelOptions, default_path: Callable[[Callable[[], bool]], Path]) -> None:
        self.users = 0
        self._options = options
        self._default_path = default_path
        self._lock = threading.Lock()
        self._stops: list[threading.Event] = []  # of those who wait for an answer
        self._unwanted_since: float | None = None
        self._closing = threading.Event()
        self._server: NativeServer | None = None

    def answer(self, body: bytes, stop: threading.Event) -> list[bytes]:
        """Generate, and give the documents of the streamed reply. Blocks: call it in a thread.

        After ``stop`` is set the model is free again within one batch, and what is returned is of no use.
        Raises ConnectError when there is no model to ask, RejectedRequestError when it does not take the body.
        """
        _refuse_inherited()
        chunks: list[bytes] = []

        def take(chunk: bytes) -> bool:
            chunks.append(chunk)
            return stop.is_set()

        self._stops.append(stop)
        try:
            with self._lock:
                if stop.is_set():
                    return chunks
                if self._server is None:
                    _started.set()
                    self._server = _load(self._options, lambda: self._default_path(self._given_up))
                try:
                    self._server.handle_chat_completions(body, take)
                except (ValueError, RuntimeError) as error:  # what C++ threw
                    raise _rejected(error, body) from None
        finally:
            self._stops.remove(stop)
        return chunks

    def _given_up(self) -> bool:
        """Say whether nobody has waited for the model for a while: a retry comes back before that."""
        if self._closing.is_set():
            return True
        if not all(stop.is_set() for stop in self._stops):
            self._unwanted_since = None
            return False
        now = time.monotonic()
        self._unwanted_since = self._unwanted_since or now
        return now - self._unwanted_since > _PATIENCE

    def unload(self, timeout: float = -1) -> None:
        """Wait for the generation that runs, ``timeout`` seconds if that is not negative, then free the memory."""
        self._closing.set()
        if _inherited.is_set() or not self._lock.acquire(timeout=timeout):
            return
        self._server = None
        self._lock.release()

    def outlive_process(self) -> None:
        """Never destroy the library's object: in a forked child that would wait for threads that are not there."""
        if self._server is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._server))


def _rejected(error: Exception, body: bytes) -> RejectedRequestError:
    remedy = "check the profile's settings and the prompt's messages"
    if b'"response_format":' in body:
        remedy = f'set the profile\'s native_output to "json_object" or "none", or {remedy}'
    return RejectedRequestError(
        f"the embedded model does not accept the request: {plain(str(error), _SAID, None)}; {remedy}",
        status=400,
        provider_code="invalid_request_error",
    )


# ------------------------------------------------------------------ models shared by the process

_models: dict[ModelOptions, EmbeddedModel] = {}
_registry = threading.Lock()
_started = threading.Event()  # set: this process has begun to load a model
_inherited = threading.Event()  # set: it did so before this one was forked from it


def borrow(options: ModelOptions, default_path: Callable[[Callable[[], bool]], Path]) -> EmbeddedModel:
    """Give the model of these options; it stays loaded until each borrower has given it back."""
    with _registry:
        model = _models.get(options)
        if model is None:
            model = _models[options] = EmbeddedModel(options, default_path)
        model.users += 1
        return model


def give_back(model: EmbeddedModel) -> None:
    """End a loan; the last one frees the memory, after the generation that runs. Blocks: call it in a thread."""
    with _registry:
        model.users -= 1
        last = model.users == 0
        if last:
            _models.pop(model._options, None)  # noqa: SLF001  # the registry is the model's own
    if last:
        model.unload()


@atexit.register
def _unload_all() -> None:
    """Let cancelled generations leave: a thread that is still in C++ when the interpreter ends crashes the process."""
    for model in list(_models.values()):
        model.unload(_EXIT_WAIT)


# ------------------------------------------------------------------ loading


def _load(options: ModelOptions, default_path: Callable[[], Path]) -> NativeServer:
    path = default_path() if options.path is None else _own_file(options.path)
    library = _library()
    params = _parameters(library, options, path)
    with _out_of_reach(params):
        try:
            return cast("NativeServer", library.Server(params))
        except RuntimeError:
            msg = (
                f"the model {str(path)!r} cannot be loaded: it is damaged, of a kind that this xllamacpp does not "
                f"know, or needs more memory than there is (context_tokens is {options.context_tokens})"
            )
            raise ConnectError(msg, transient=False) from None


def _library() -> Any:
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read once, when the library's threads start
    try:
        return importlib.import_module("xllamacpp")
    except ModuleNotFoundError:
        msg = (
            'the embedded model needs the package xllamacpp: pip install "promptkit-engine[embedded]" '
            '(in a clone: pip install ".[embedded]")'
        )
        raise ConnectError(msg, transient=False) from None
    except ImportError as error:
        msg = f"xllamacpp is installed but does not load ({plain(str(error), _SAID, None)}): slim systems lack libgomp1"
        raise ConnectError(msg, transient=False) from None


def _own_file(path: str) -> Path:
    try:
        with Path(path).open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        msg = f"the model file {path!r} cannot be read ({error.strerror}): check the backend's embedded.model_path"
        raise ConnectError(msg, transient=False) from None
    if magic != b"GGUF":
        msg = f"the model file {path!r} is not a GGUF file: check the backend's embedded.model_path"
        raise ConnectError(msg, transient=False)
    return Path(path)


def _parameters(library: Any, options: ModelOptions, path: Path) -> Any:
    params = library.CommonParams()
    params.model.path = str(path)
    params.model_alias = {path.stem}  # what replies call the model; without it, the path
    params.n_ctx = options.context_tokens
    params.n_parallel = 1
    params.cpuparams.n_threads = options.threads
    params.cpuparams_batch.n_threads = options.threads
    params.n_batch = params.n_ubatch = BATCH_TOKENS
    params.cache_ram_mib = KEPT_PROMPTS_MIB
    params.fit_params = options.path is not None  # fits large models to a GPU; doubles the time that a small one loads
    params.warmup = False
    params.verbosity = -1  # writes nothing to stderr
    params.sse_ping_interval = -1
    params.api_keys = [secrets.token_urlsafe(32)]
    params.n_threads_http = 1
    params.ui = params.endpoint_slots = False
    return params


@contextlib.contextmanager
def _out_of_reach(params: Any) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        if sys.platform != "win32":
            with contextlib.suppress(OSError):  # no temporary folder: on loopback then
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="promptkit-"))
                name = f"{folder}/http.sock"  # an address that ends so is a socket file
                if len(os.fsencode(name)) <= _SOCKET_NAME:
                    params.hostnames = [name]
        yield


# ------------------------------------------------------------------ forked children


def _refuse_inherited() -> None:
    if _inherited.is_set():
        msg = (
            "this process was forked from one that had loaded an embedded model, whose threads did not come along: "
            'start processes with the "spawn" method, or fork before the first run'
        )
        raise ConnectError(msg, transient=False)


def _after_fork_in_child() -> None:
    global _registry  # noqa: PLW0603  # another thread may have held it
    _registry = threading.Lock()
    if not _started.is_set():
        return
    if not _inherited.is_set():
        _leave_without_destructors()
    _inherited.set()
    for model in _models.values():
        model.outlive_process()


def _leave_without_destructors() -> None:
    """Let a child that ends by ``exit`` do so: glibc waits for ever when the library's static objects are destroyed.

    Python has flushed and finalized everything by then. What C code has buffered is flushed here.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):  # glibc's; elsewhere the destructors do not wait
        libc.on_exit(libc._exit, None)  # noqa: SLF001  # a name of C
        # Registered later, called earlier.
        libc.__cxa_atexit(libc.fflush, None, None)  # noqa: SLF001  # a name of C


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
