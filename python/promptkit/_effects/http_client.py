"""The client for backends that answer over HTTP, whatever their dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from promptkit._effects.http_transport import Framing, HttpTransport
from promptkit._effects.raising import or_raise
from promptkit._wire import anthropic_messages, chat_completions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import httpx
    from returns.result import Result

    from promptkit._effects.surroundings import Surroundings
    from promptkit._values.definitions import Backend
    from promptkit._values.generation import GenerationCall, GenerationReply
    from promptkit._wire.replies import ReadReply
    from promptkit.errors import GenerationError


class Dialect(NamedTuple):
    """What the requests and replies of a kind of backend look like."""

    framing: Framing
    request_pieces: Callable[[GenerationCall], Sequence[bytes]]
    read_reply: ReadReply


DIALECTS = {
    "chat_completions": Dialect(
        Framing(path="/chat/completions", headers=(), key_header="authorization", key_scheme="Bearer "),
        chat_completions.request_pieces,
        chat_completions.read_reply,
    ),
    "anthropic_messages": Dialect(
        Framing(
            path="/v1/messages",
            headers=(("anthropic-version", "2023-06-01"),),
            key_header="x-api-key",
            key_scheme="",
        ),
        anthropic_messages.request_pieces,
        anthropic_messages.read_reply,
    ),
}


class HttpClient:
    """Asks one backend, in the dialect of its kind."""

    def __init__(self, backend: Backend, http_client: httpx.AsyncClient | None, surroundings: Surroundings) -> None:
        self._name = f"backend {backend.id!r} at {backend.base_url}"
        self._dialect = DIALECTS[backend.kind]
        self._transport = HttpTransport(backend, self._dialect.framing, http_client)
        self._surroundings = surroundings

    async def generate(self, call: GenerationCall) -> GenerationReply:
        """Make one attempt."""
        # Raised out here, where no variable holds what came back: a backend may echo the key.
        return or_raise((await self._asked(call)).alt(self._named))

    async def _asked(self, call: GenerationCall) -> Result[GenerationReply, GenerationError]:
        answer = await self._transport.post(self._dialect.request_pieces(call), call.credential)
        return self._dialect.read_reply(
            answer.status,
            answer.headers,
            answer.body,
            now=self._surroundings.now(),
            secret=None if call.credential is None else call.credential.reveal(),  # in no variable: frames are shown
        )

    def _named(self, error: GenerationError) -> GenerationError:
        """Say which backend it was."""
        message = str(error)
        said = message.removeprefix("the backend")
        error.args = (f"{self._name}{said}" if said != message else f"{self._name}: {message}",)
        return error

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()
