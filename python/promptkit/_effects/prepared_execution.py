"""A prepared run that is executed once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple, final

from promptkit._prepare.pipeline import details
from promptkit._values.handle import Handle
from promptkit.errors import PreparedExecutionError

if TYPE_CHECKING:
    from promptkit._effects.shared import Shared
    from promptkit._prepare.pipeline import Prepared
    from promptkit._values.requests import RunRequest
    from promptkit._values.results import PreparedRun
    from promptkit._values.secret import Secret


class Payload(NamedTuple):
    """What only the execution needs: the handle drops it when it is claimed or discarded."""

    owner: Shared
    prepared: Prepared
    request: RunRequest
    credential: Secret | None


@final
class PreparedExecution(Handle):
    """A run whose messages and settings are fixed: give it to ``Engine.run_prepared`` of the engine that made it.

    It runs once, on that engine or a view of it. ``details`` read the same before and after, and hold neither the
    credential nor the observer; those are dropped when it has run or is discarded. Made by
    ``Engine.prepare_execution``. Usable in any thread.
    """

    __slots__ = ("__weakref__", "_details", "_lock", "_payload", "_prepared", "_state")
    _called = "a PreparedExecution"
    _comes_from = "engine.prepare_execution(request) makes one"
    _details: PreparedRun | None
    _lock: threading.Lock
    _payload: Payload | None
    _prepared: Prepared | None
    _state: str

    @property
    def details(self) -> PreparedRun:
        """What will be sent, or was, and under which settings. Built when first asked for, then kept."""
        with self._lock:
            prepared = self._prepared
        built = None if prepared is None else details(prepared)  # not in the lock: it takes what the history is long
        with self._lock:
            if self._details is None:
                self._details = built
            self._prepared = None
            return self._details  # type: ignore[return-value]  # one of the two is always there

    def discard(self) -> None:
        """Give it up: it cannot run any more. Does nothing after it has run."""
        with self._lock:
            if self._payload is not None:
                self._payload, self._state = None, "was discarded"

    def __repr__(self) -> str:
        """Give a constant."""
        return "<promptkit.PreparedExecution>"


def execution_of(payload: Payload) -> PreparedExecution:
    """Make the handle of a prepared run."""
    execution: PreparedExecution = object.__new__(PreparedExecution)
    execution._details, execution._prepared = None, payload.prepared  # noqa: SLF001  # the halves of one capability
    execution._payload, execution._state = payload, "ready"  # noqa: SLF001
    execution._lock = threading.Lock()  # noqa: SLF001
    return execution


def claimed(execution: PreparedExecution, owner: Shared) -> Payload:
    """Take a prepared run for its one execution. A foreign engine claims nothing.

    Raises PreparedExecutionError when it was taken or discarded before, or belongs to another engine.
    """
    with execution._lock:  # noqa: SLF001
        payload = execution._payload  # noqa: SLF001
        if payload is not None and payload.owner is owner:
            execution._payload, execution._state = None, "has run"  # noqa: SLF001
            return payload
        state = execution._state  # noqa: SLF001
    if payload is None:
        msg = f"this prepared execution {state}: make another with prepare_execution"
    else:
        msg = "this prepared execution belongs to another engine: run it on the one that made it"
    raise PreparedExecutionError(msg)
