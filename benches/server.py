"""A chat-completions server that answers everything with one reply, for measuring clients. Prints its port."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys

_REPLY = json.dumps(
    {
        "id": "reply",
        "object": "chat.completion",
        "model": "model",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "All is well. " * 60}}
        ],
        "usage": {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10},
        "created": 1,
    }
).encode()
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(_REPLY), _REPLY)
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class _Answering(asyncio.Protocol):
    """Reads requests that say their length, and looks at nothing else in them."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # a server's is one
        self.head, self.missing = b"", 0

    def data_received(self, data: bytes) -> None:
        self.head += b"" if self.missing else data
        if not self.missing:
            end = self.head.find(b"\r\n\r\n")
            length = _LENGTH.search(self.head, 0, end) if end >= 0 else None
            if length is None:
                return
            self.missing, data, self.head = int(length[1]), self.head[end + 4 :], b""
        self.missing -= len(data)
        if self.missing <= 0:
            self.missing = 0
            self.transport.write(_ANSWER)


async def _serve() -> None:
    if hasattr(os, "sched_setaffinity"):  # the clients have another core
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Answering, "127.0.0.1", 0, backlog=2048)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())
