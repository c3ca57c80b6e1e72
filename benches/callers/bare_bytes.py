"""What sending alone costs: a body encoded beforehand, posted with an httpx.AsyncClient, its reply not decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from callers import QUESTION
from callers.bare_httpx import Implementation as Bare

if TYPE_CHECKING:
    from collections.abc import Iterable


class Implementation(Bare):
    """Nothing is made for a call but the request."""

    async def hold(self, turns: Iterable[tuple[str, str]]) -> None:
        await super().hold(turns)
        messages = [*self._messages, {"role": "user", "content": QUESTION}]
        self._body = msgspec.json.encode({"model": "model", "messages": messages})
        self._messages = []

    async def call(self) -> str:
        response = await self._client.post(self._url, content=self._body, headers={"content-type": "application/json"})
        return response.text
