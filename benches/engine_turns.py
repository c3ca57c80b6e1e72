"""A long conversation through the engine, in a process of its own: prepared, body made, captured; nothing is sent.

Prints one line of JSON: CPU seconds of the whole, and of a turn at turn 15 and at turn 1,000.
"""

from __future__ import annotations

import json
import sys
import time
from statistics import median

import anyio

from catalogs import saying
from promptkit import Engine, GenerationCall, GenerationReply, RunRequest
from worker import turns

_CATALOG = saying()


class _Client:
    reply = ""

    async def generate(self, call: GenerationCall) -> GenerationReply:
        call.encoded_messages("chat_completions")
        return GenerationReply(content=self.reply)


async def _hold(depth: int) -> list[float]:
    spent, exchange, client = [], None, _Client()
    async with Engine(_CATALOG, client=client) as engine:
        for user, client.reply in turns(depth):
            start = time.process_time()
            request = RunRequest(
                prompt_id="say", variables={"text": user}, continue_from=exchange, capture_exchange=True
            )
            exchange = (await engine.run(request)).exchange
            spent.append(time.process_time() - start)
    return spent


if __name__ == "__main__":
    anyio.run(_hold, 20)  # what is loaded on first use is loaded
    costs = anyio.run(_hold, 1000)
    figures = {"whole": sum(costs), "turn 15": median(costs[9:21]), "turn 1000": median(costs[-12:])}
    sys.stdout.write(json.dumps(figures) + "\n")
