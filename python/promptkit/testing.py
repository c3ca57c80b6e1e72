"""Doubles for testing an application offline: a scripted model and a recorder of events.

>>> import anyio
>>> from promptkit import Backend, Catalog, Engine, MessageTemplate, Profile, PromptDefinition, RunRequest
>>> catalog = Catalog(
...     backends=[Backend(id="b", kind="chat_completions", base_url="http://localhost:1/v1")],
...     profiles=[Profile(id="p", backend="b", model="m")],
...     prompts=[PromptDefinition(id="hi", messages=(MessageTemplate(role="user", content="Hi"),), profile="p")],
... )
>>> client = ScriptedClient("Hello!")
>>> anyio.run(Engine(catalog, client=client).run, RunRequest(prompt_id="hi")).raw_output
'Hello!'
>>> client.calls[0].messages[0].content
'Hi'
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from promptkit._values.generation import GenerationReply

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptkit._values.events import ExecutionEvent
    from promptkit._values.generation import GenerationCall

__all__ = ["EventRecorder", "ScriptedClient"]


class ScriptedClient:
    """A ModelClient that answers each call with the next step.

    A step is a GenerationReply, a text (the content of a reply that reports no usage), an exception to raise, or a
    function of the call that gives one of these, awaited if it is async. ``calls`` has every call in order. A call
    beyond the last step is an AssertionError.
    """

    calls: list[GenerationCall]

    def __init__(self, *steps: GenerationReply | str | BaseException | Callable[[GenerationCall], Any]) -> None:
        """Take the steps. Raises TypeError for what cannot be one, such as a dict: give the JSON text."""
        for index, step in enumerate(steps):
            if not (isinstance(step, GenerationReply | str | BaseException) or callable(step)):
                msg = (
                    f"step {index + 1} of a ScriptedClient is a {type(step).__name__}: a step is a GenerationReply, "
                    "the text of an answer (JSON as text, too), an exception, or a function of the call"
                )
                raise TypeError(msg)
        self.calls = []
        self._steps = list(steps)

    async def generate(self, call: GenerationCall) -> GenerationReply:
        """Take the next step."""
        if len(self.calls) >= len(self._steps):
            msg = f"call {len(self.calls) + 1} of a ScriptedClient with {len(self._steps)} steps: {call!r}"
            raise AssertionError(msg)
        step: Any = self._steps[len(self.calls)]
        self.calls.append(call)
        if callable(step) and not isinstance(step, type):
            step = step(call)
            if isinstance(step, Awaitable):
                step = await step
        if isinstance(step, BaseException):
            raise step
        return GenerationReply(content=step) if isinstance(step, str) else step

    def assert_exhausted(self) -> None:
        """Raise an AssertionError when there are steps that no call took."""
        left = len(self._steps) - len(self.calls)
        if left > 0:
            msg = f"{left} of {len(self._steps)} steps were not used: there were {len(self.calls)} calls"
            raise AssertionError(msg)


class EventRecorder:
    """An observer that keeps every event, in order, in ``events``."""

    events: list[ExecutionEvent]

    def __init__(self) -> None:
        """Begin empty."""
        self.events = []

    def __call__(self, event: ExecutionEvent) -> None:
        """Keep an event."""
        self.events.append(event)
