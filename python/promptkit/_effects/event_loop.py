"""Which event loop this is, whether another one still runs, and what native cancellation has reached the task."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import anyio.lowlevel


def current_loop() -> Any:
    """Give what identifies the running event loop: the asyncio loop, or the trio token."""
    return anyio.lowlevel.current_token().native_token


def has_ended(loop: Any) -> bool:
    """Say whether an event loop has ended, so that what was bound to it can be left behind."""
    if isinstance(loop, asyncio.AbstractEventLoop):
        return loop.is_closed() or not loop.is_running()
    trio = sys.modules["trio"]  # a token of it exists
    try:
        loop.run_sync_soon(_nothing, idempotent=True)
    except trio.RunFinishedError:
        return True
    return False


def _nothing() -> None:
    """Do nothing: a token is asked whether it would."""


def asyncio_task() -> asyncio.Task[Any] | None:
    """Give the running asyncio task, or None on trio."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
