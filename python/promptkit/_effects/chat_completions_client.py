"""The client for OpenAI-compatible servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from returns.result import Failure

from promptkit._effects.http_transport import HttpTransport
from promptkit._wire.chat_completions import read_reply, request_body

if TYPE_CHECKING:
    import httpx

    from promptkit._effects.surroundings import Surroundings
    from promptkit._values.definitions import Backend
    from promptkit._values.generation import GenerationCall, GenerationReply


class ChatCompletionsClient:
    """Posts to ``{base_url}/chat/completions``."""

    def __init__(self, backend: Backend, http_client: httpx.AsyncClient | None, surroundings: Surroundings) -> None:
        self._transport = HttpTransport(backend, http_client)
        self._surroundings = surroundings

    async def generate(self, call: GenerationCall) -> GenerationReply:
        """Make one attempt."""
        secret = None if call.credential is None else call.credential.reveal()
        headers = {**call.backend.headers, "content-type": "application/json", "accept": "application/json"}
        if secret is not None:
            headers["authorization"] = f"Bearer {secret}"
        answer = await self._transport.post("/chat/completions", headers, request_body(call))
        reply = read_reply(answer.status, answer.headers, answer.body, now=self._surroundings.now(), secret=secret)
        if isinstance(reply, Failure):
            raise reply.failure()
        return reply.unwrap()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()
