"""The client for OpenAI-compatible servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit._effects.http_transport import Dialect, HttpTransport
from promptkit._effects.raising import or_raise
from promptkit._wire.chat_completions import read_reply, request_pieces

if TYPE_CHECKING:
    import httpx
    from returns.result import Result

    from promptkit._effects.surroundings import Surroundings
    from promptkit._values.definitions import Backend
    from promptkit._values.generation import GenerationCall, GenerationReply
    from promptkit.errors import GenerationError


DIALECT = Dialect(path="/chat/completions", headers=(), key_header="authorization", key_scheme="Bearer ")


class ChatCompletionsClient:
    """Posts to ``{base_url}/chat/completions``."""

    def __init__(self, backend: Backend, http_client: httpx.AsyncClient | None, surroundings: Surroundings) -> None:
        self._transport = HttpTransport(backend, DIALECT, http_client)
        self._surroundings = surroundings

    async def generate(self, call: GenerationCall) -> GenerationReply:
        """Make one attempt."""
        # Raised out here, where no variable holds what came back: a backend may echo the key.
        return or_raise(await self._asked(call))

    async def _asked(self, call: GenerationCall) -> Result[GenerationReply, GenerationError]:
        answer = await self._transport.post(request_pieces(call), call.credential)
        return read_reply(
            answer.status,
            answer.headers,
            answer.body,
            now=self._surroundings.now(),
            secret=None if call.credential is None else call.credential.reveal(),  # in no variable: frames are shown
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()
