"""A block of code in which promptkit opens no connection."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from promptkit._effects.network import Limit, switch

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def no_network(*, allow_loopback: bool = False) -> Iterator[None]:
    """Let promptkit's own clients open no connection while the block runs, or only such as stay on this machine.

    A NetworkRefusedError takes the place of a connection, before anything is sent; the weights of the embedded model
    are not fetched either. It holds for the whole process, every thread of it, but not for what other libraries do, a
    ModelClient of one's own among them. Of an ``http_client`` only one whose transport talks to no network
    (httpx.MockTransport, httpx.ASGITransport) is let through. Blocks only add to each other and to the pytest option
    ``promptkit_network``. Also a decorator of plain functions; in unittest: ``self.enterContext(no_network())``.
    """
    call = f"no_network({'allow_loopback=True' if allow_loopback else ''})"
    with switch.block(Limit(allow_loopback, call, "allow that, no_network(allow_loopback=True)", "leave that block")):
        yield
