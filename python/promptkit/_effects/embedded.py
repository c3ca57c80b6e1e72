"""The client for the model that runs inside the process."""

from __future__ import annotations

import logging
import os
import threading
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from promptkit._effects.embedded_model import EmbeddedModel, ModelOptions, borrow, give_back
from promptkit._effects.model_weights import SMOLLM2, fetch_default_model
from promptkit._effects.network import expect_embedded, switch
from promptkit._effects.raising import or_raise
from promptkit._values.definitions import EmbeddedOptions
from promptkit._wire.streamed import read_streamed, streaming_body

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from promptkit._values.definitions import Backend
    from promptkit._values.generation import GenerationCall, GenerationReply

DEFAULT_OUTPUT_TOKENS = 1024  # bounds an answer whose profile does not; an endless one would keep the model busy

_LOGGER = logging.getLogger("promptkit.embedded")


class EmbeddedClient:
    """Answers with a model in this process. Clients with the same options share it, on any event loop.

    One generation runs at a time; another waits for it inside its own attempt. A cancelled one lets its caller go at
    once and the model within one batch of the prompt or one token of the answer. An answer has at most
    ``max_output_tokens`` of the profile, else DEFAULT_OUTPUT_TOKENS, and ends with the context in any case.
    """

    def __init__(self) -> None:
        self._models: dict[ModelOptions, EmbeddedModel] = {}

    async def generate(self, call: GenerationCall) -> GenerationReply:
        """Make one attempt. The first one loads the model, and fetches the default one if it is not there yet.

        Raises ConnectError when there is no model to ask, and RejectedRequestError when the messages do not fit its
        context or it does not take a setting.
        """
        if switch.limit is not None:  # in tests only
            expect_embedded(switch.limit, call.backend)
        options = model_options(call.backend)
        body = streaming_body(call, min(DEFAULT_OUTPUT_TOKENS, options.context_tokens))
        model = self._model(options)
        stop = threading.Event()
        try:
            chunks = await anyio.to_thread.run_sync(
                partial(model.answer, body, stop),
                abandon_on_cancel=True,
                limiter=anyio.CapacityLimiter(1),  # its own: a thread that still waits takes nobody's place
            )
        finally:
            stop.set()
        # Nothing is awaited from here on, so a reply that is here arrives.
        return or_raise(read_streamed(chunks, now=datetime.now(UTC)))

    async def aclose(self) -> None:
        """Give the models back; the memory of each is freed when no other client has it."""
        models, self._models = self._models, {}
        for model in models.values():
            await anyio.to_thread.run_sync(give_back, model, limiter=anyio.CapacityLimiter(1))

    def _model(self, options: ModelOptions) -> EmbeddedModel:
        found = self._models.get(options)
        if found is None:
            found = self._models[options] = borrow(options, _default_path)
        return found


def _default_path(given_up: Callable[[], bool]) -> Path:
    # Warnings are shown where logging is not set up: nobody should wait for 100 MB without a word.
    return fetch_default_model(_LOGGER.warning, given_up, fetched=_fetched)


def _fetched(count: int) -> None:
    fetched = {"fetched_bytes": count, "about_bytes": SMOLLM2.size}
    _LOGGER.debug("%(fetched_bytes)d of about %(about_bytes)d bytes are fetched", fetched, extra=fetched)


def model_options(backend: Backend) -> ModelOptions:
    """Resolve the defaults of a backend."""
    options = backend.embedded or EmbeddedOptions()
    path = options.model_path
    return ModelOptions(
        path=None if path is None else os.path.abspath(os.path.expanduser(path)),  # noqa: PTH100, PTH111  # reads no disk
        context_tokens=options.context_tokens,
        threads=options.threads or max(1, _cores() - 1),
    )


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
