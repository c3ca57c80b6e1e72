"""A transport of the HTTP library whose responses take their time to close."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import httpx

from servers.stub import completion

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class SlowlyClosing(httpx.AsyncBaseTransport):
    """Answers at once with a reply whose closing takes until the test lets it go."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.asked = 0
        self.closing = anyio.Event()
        self.free = anyio.Event()
        self.closed = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        outer = self
        self.asked += 1

        class Stream(httpx.AsyncByteStream):
            async def __aiter__(self) -> AsyncIterator[bytes]:
                yield httpx.Response(200, json=completion("Rome.")).content

            async def aclose(self) -> None:
                outer.closing.set()
                await outer.free.wait()
                outer.closed += 1

        return httpx.Response(self.status, stream=Stream(), request=request)
