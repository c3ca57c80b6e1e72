"""What a scripted client answers with, and how that is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from promptkit._values.generation import GenerationReply
from promptkit.errors import with_article

if TYPE_CHECKING:
    from promptkit._values.generation import GenerationCall

SHOWN = 60  # characters of a text
STEPS = "a text (JSON as text, too), a GenerationReply, an exception, a function of the call, or a Gate around one"


def checked(step: Any, place: str) -> Any:
    """Give a step. Raises TypeError, which names the place, for what cannot be one."""
    if isinstance(step, type):
        made = f"give an instance, {step.__name__}(...)"
        msg = f"{place} is the class {step.__name__}: {made}; a step is {STEPS}"
        raise TypeError(msg)
    if not (isinstance(step, GenerationReply | str | BaseException) or callable(step)):
        msg = f"{place} is {with_article(type(step).__name__)}: a step is {STEPS}"
        raise TypeError(msg)
    return step


def replied(answer: Any, step: Any, place: str) -> GenerationReply:
    """Give the reply of a step, or raise its error. Raises TypeError when a function gave something else."""
    if isinstance(answer, BaseException):
        raise answer
    if isinstance(answer, str):
        return GenerationReply(content=answer)
    if isinstance(answer, GenerationReply):
        return answer
    if answer is None:
        given = "nothing"
    else:
        given = f"the class {answer.__name__}" if isinstance(answer, type) else with_article(type(answer).__name__)
    msg = f"{place} ({described(step)}) gave {given}: it must give a text, a GenerationReply or an exception"
    raise TypeError(msg)


def described(step: Any) -> str:
    """Tell a step in a few words."""
    if isinstance(step, str):
        return shortened(step)
    if isinstance(step, GenerationReply):
        return f"reply {shortened(step.content)}"
    if isinstance(step, BaseException):
        return f"{type(step).__name__} {shortened(str(step))}"
    return f"function {getattr(step, '__name__', type(step).__name__)}"


def asked(call: GenerationCall, run: int) -> str:
    """Tell a call in a few words. ``run`` numbers its run among those that were seen."""
    said = next((message for message in reversed(call.messages) if message.role == "user"), None)
    text = "no message of a user" if said is None else shortened(_text(said.content))
    return f"{call.purpose}, attempt {call.attempt} of run {run}, profile {call.profile.id}: {text}"


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return " ".join(getattr(part, "text", f"<{type(part).__name__}>") for part in content)


def shortened(text: str) -> str:
    """Quote the beginning of a text, on one line."""
    line = " ".join(text.split())
    return repr(line if len(line) <= SHOWN else line[: SHOWN - 1] + "…")
