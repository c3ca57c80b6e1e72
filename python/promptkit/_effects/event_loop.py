"""Which event loop this is, whether another one still runs, and what native cancellation has reached the task."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import anyio.lowlevel

if TYPE_CHECKING:
    import asyncio


def current_loop() -> Any:
    """Give what identifies the running event loop: the asyncio loop, or the trio token."""
    return anyio.lowlevel.current_token().native_token


def has_ended(loop: Any) -> bool:
    """Say whether an event loop has ended, so that what was bound to it can be left behind."""
    if hasattr(loop, "is_closed"):  # a loop of asyncio's interface
        return bool(loop.is_closed() or not loop.is_running())
    trio = sys.modules["trio"]  # a token of it exists
    try:
        loop.run_sync_soon(_nothing, idempotent=True)
    except trio.RunFinishedError:
        return True
    return False


def _nothing() -> None:
    """Do nothing: a token is asked whether it would."""


def current_task() -> Any:
    """Give what identifies the running task: that of asyncio, or that of trio."""
    return asyncio_task() or sys.modules["trio"].lowlevel.current_task()


def asyncio_task() -> asyncio.Task[Any] | None:
    """Give the running asyncio task, or None on trio."""
    library: Any = getattr(sys.modules.get("asyncio"), "current_task", None)  # where it is not loaded, it runs nothing
    task: asyncio.Task[Any] | None = None
    if library is not None:
        with contextlib.suppress(RuntimeError):  # no loop of asyncio runs in this thread
            task = library()
    return task
