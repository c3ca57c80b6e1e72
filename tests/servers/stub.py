"""A server that says what it is told to, over raw sockets, and keeps every request as it came.

Runs in threads of its own, so that it serves tests on any event loop.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

Reply = bytes | Callable[["Received", socket.socket], None]


class Received(NamedTuple):
    """One request, as it came over the wire."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        """Give the value of a header."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    @property
    def json(self) -> Any:
        """Give the body as JSON."""
        return json.loads(self.body)

    @property
    def messages(self) -> bytes:
        """Give the exact bytes of the messages array."""
        start = self.body.index(b'"messages":') + len(b'"messages":')
        _, length = json.JSONDecoder().raw_decode(self.body[start:].decode())
        return self.body[start:].decode()[:length].encode()


def http(status: int, body: bytes, *headers: tuple[str, str], content_type: str = "application/json") -> bytes:
    """Write a reply."""
    lines = [f"HTTP/1.1 {status} Said", f"content-length: {len(body)}", f"content-type: {content_type}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def completion(content: str | None, **choice: Any) -> dict[str, Any]:
    """Give a chat completion with 11 tokens in and 7 out."""
    return {
        "id": "r-1",
        "object": "chat.completion",
        "created": 1,
        "model": "said-model",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}, **choice}
        ],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
    }


def ok(content: str | None, **choice: Any) -> bytes:
    """Write a 200 with a chat completion."""
    return http(200, json.dumps(completion(content, **choice)).encode())


def error(status: int, message: str = "no", *headers: tuple[str, str], **fields: Any) -> bytes:
    """Write an error in the common shape."""
    body = {"error": {"message": message, "type": "t", "param": None, "code": None, **fields}}
    return http(status, json.dumps(body).encode(), *headers)


class StubServer:
    """Answers the n-th request with the n-th reply, and the last one for ever."""

    def __init__(self, listening: socket.socket | None = None) -> None:
        self.requests: list[Received] = []
        self.replies: list[Reply] = []
        self.disconnected = threading.Event()  # set when a client has closed a connection
        self._lock = threading.Lock()
        self.connections: list[socket.socket] = []  # all that there were
        self.left = 0  # how many of them clients have closed
        self._socket = listening or socket.create_server(("127.0.0.1", 0), backlog=128)
        self._closing = False
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    @property
    def base_url(self) -> str:
        """Give the address below which chat/completions is."""
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"

    def say(self, *replies: Reply) -> None:
        """Set the replies: bytes, or functions of the request and the socket."""
        self.replies = list(replies)

    def close(self) -> None:
        """Stop serving."""
        self._closing = True
        # Closing alone would leave the accepting thread in its system call.
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._accepting.join()
        with self._lock:
            for connection in self.connections:
                connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with self._lock:
                self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as stream:
                while (received := _read(stream)) is not None:
                    with self._lock:
                        index = len(self.requests)
                        self.requests.append(received)
                    reply = self.replies[min(index, len(self.replies) - 1)]
                    if callable(reply):
                        reply(received, connection)
                    else:
                        connection.sendall(reply)
        except (OSError, ValueError):
            if not self._closing:
                self.disconnected.set()
        else:
            self.disconnected.set()
            with self._lock:
                self.left += 1


def _read(stream: Any) -> Received | None:
    line = stream.readline()
    if not line.strip():
        return None
    method, path, _ = line.decode("latin-1").split(" ", 2)
    headers = []
    while (header := stream.readline().decode("latin-1").strip()) != "":
        name, _, value = header.partition(":")
        headers.append((name, value.strip()))
    length = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
    return Received(method, path, tuple(headers), stream.read(length))


class Held:
    """A reply that waits until the test lets it go, and says when it was asked for."""

    def __init__(self, reply: bytes) -> None:
        self._reply = reply
        self.asked = threading.Event()
        self.free = threading.Event()

    def __call__(self, received: Received, connection: socket.socket) -> None:
        """Hold, then answer."""
        self.asked.set()
        self.free.wait(15)
        connection.sendall(self._reply)
