"""A prepared run that is executed once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from promptkit._effects.once import Once
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


class _End:
    """How a handle came to be of no more use. Each is one of its own, so that who set it knows."""

    __slots__ = ("how",)

    def __init__(self, how: str) -> None:
        self.how = how


@final
class PreparedExecution(Handle):
    """A run whose messages and settings are fixed: give it to ``Engine.run_prepared`` of the engine that made it.

    It runs once, on that engine or a view of it. ``details`` read the same before and after, and hold neither the
    credential nor the observer; those are dropped when it has run or is discarded. Made by
    ``Engine.prepare_execution``. Usable in any thread.
    """

    __slots__ = ("__weakref__", "_details", "_end", "_payload", "_prepared")
    _called = "a PreparedExecution"
    _comes_from = "engine.prepare_execution(request) makes one"
    _details: Once[PreparedRun]
    _end: Once[_End]
    _payload: Payload | None
    _prepared: Prepared | None  # until the details are built

    @property
    def details(self) -> PreparedRun:
        """What will be sent, or was, and under which settings. Built when first asked for, then kept."""
        from promptkit._prepare.pipeline import details

        prepared = self._prepared
        built = self._details.value if prepared is None else self._details.settle(details(prepared))
        self._prepared = None
        return built  # type: ignore[return-value]  # one of the two is always there

    def discard(self) -> None:
        """Give it up: it cannot run any more. Does nothing after it has run."""
        self._end.settle(_End("was discarded"))
        self._payload = None

    def __repr__(self) -> str:
        """Give a constant."""
        return "<promptkit.PreparedExecution>"


def execution_of(payload: Payload) -> PreparedExecution:
    """Make the handle of a prepared run."""
    execution: PreparedExecution = object.__new__(PreparedExecution)
    execution._details, execution._prepared = Once(), payload.prepared  # noqa: SLF001  # the halves of one capability
    execution._payload, execution._end = payload, Once()  # noqa: SLF001
    return execution


def claimed(execution: PreparedExecution, owner: Shared) -> Payload:
    """Take a prepared run for its one execution. A foreign engine claims nothing.

    Raises PreparedExecutionError when it was taken or discarded before, or belongs to another engine.
    """
    payload = execution._payload  # noqa: SLF001
    if payload is not None and payload.owner is not owner:
        msg = "this prepared execution belongs to another engine: run it on the one that made it"
        raise PreparedExecutionError(msg)
    mine = _End("has run")
    end = execution._end.settle(mine)  # noqa: SLF001
    execution._payload = None  # noqa: SLF001
    if end is not mine or payload is None:
        msg = f"this prepared execution {end.how}: make another with prepare_execution"
        raise PreparedExecutionError(msg)
    return payload


def prompt_of(execution: PreparedExecution) -> str | None:
    """Say which prompt it runs, or None when it was taken or discarded."""
    payload = execution._payload  # noqa: SLF001
    return None if payload is None else payload.request.prompt_id
