"""A prepared run that is executed once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple, NoReturn, final

from promptkit.errors import PreparedExecutionError

if TYPE_CHECKING:
    from promptkit._effects.shared import Shared
    from promptkit._prepare.pipeline import Prepared
    from promptkit._values.requests import RunRequest
    from promptkit._values.results import PreparedRun
    from promptkit._values.secret import Secret


class Payload(NamedTuple):
    """What only the execution needs: it is dropped when the execution is claimed or discarded."""

    owner: Shared
    prepared: Prepared
    request: RunRequest
    credential: Secret | None


@final
class PreparedExecution:
    """A run whose messages and settings are fixed: give it to ``Engine.run_prepared`` of the engine that made it.

    It runs once. ``details`` read the same before and after. Made by ``Engine.prepare_execution``.
    """

    __slots__ = ("__weakref__", "_details", "_lock", "_payload", "_state")

    def __init__(self, details: PreparedRun, payload: Payload) -> None:
        self._details = details
        self._payload: Payload | None = payload
        self._state = "ready"
        self._lock = threading.Lock()

    @property
    def details(self) -> PreparedRun:
        """What will be sent, and under which settings."""
        return self._details

    def discard(self) -> None:
        """Give it up: it cannot run any more. Does nothing after it has run."""
        with self._lock:
            if self._payload is not None:
                self._payload, self._state = None, "was discarded"

    def claim(self, owner: Shared) -> Payload:
        """Take it for the one run. A foreign engine claims nothing."""
        with self._lock:
            payload = self._payload
            if payload is None:
                msg = f"this prepared execution {self._state}: make another with prepare_execution"
                raise PreparedExecutionError(msg)
            if payload.owner is not owner:
                msg = "this prepared execution belongs to another engine: run it on the one that made it"
                raise PreparedExecutionError(msg)
            self._payload, self._state = None, "has run"
        return payload

    def __repr__(self) -> str:
        """Give a constant."""
        return "<promptkit.PreparedExecution>"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied."""
        msg = "a PreparedExecution cannot be copied or pickled"
        raise TypeError(msg)
