"""Step 3: each template becomes the opaque text of one message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from returns.result import Failure, Result, Success

from promptkit._values.frozen import FrozenDict
from promptkit._values.messages import ContentPart, Message, TextPart
from promptkit.errors import TemplateError, listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptkit._prepare.plan import Plan
    from promptkit._values.template_faults import TemplateFault

NO_PARTS: FrozenDict[str, ContentPart] = FrozenDict()
SHOWN = 60  # characters of a line in an error


def render(
    plan: Plan,
    variables: Mapping[str, Any],
    inputs: Mapping[str, str],
    parts: Mapping[str, ContentPart] = NO_PARTS,
) -> Result[tuple[Message, ...], TemplateError]:
    """Render every message of a prompt. How many there are and who says them never depends on the values.

    ``parts`` are the inputs that messages attach: all of them are there.
    """
    messages: list[Message] = []
    for index, (authored, template) in enumerate(plan.templates):
        where = f"prompt {plan.prompt.id!r}, messages[{index}] ({authored.role})"
        text = template.render(variables, inputs)
        if isinstance(text, Failure):
            return Failure(_failed(text.failure(), authored.content, plan, variables, where))
        content = _content(text.unwrap(), [parts[name] for name in authored.attachments])
        if not content and authored.cache_control is not None:
            return Failure(TemplateError(f"{where} has a cache marker and renders to nothing, which backends refuse"))
        messages.append(Message(role=authored.role, content=content, cache_control=authored.cache_control))
    return Success(tuple(messages))


def _content(text: str, attached: list[ContentPart]) -> str | tuple[ContentPart, ...]:
    if not attached:
        return text
    return (TextPart(text=text), *attached) if text else tuple(attached)


def render_session(
    plan: Plan, given: str | None, variables: Mapping[str, Any], inputs: Mapping[str, str]
) -> Result[str | None, TemplateError]:
    """Choose the session id: the request's, else the prompt's rendered, else none."""
    if given is not None or plan.session is None:
        return Success(given)
    where = f"prompt {plan.prompt.id!r}, session"
    text = plan.session.render(variables, inputs)
    if isinstance(text, Failure):
        return Failure(_failed(text.failure(), plan.prompt.session or "", plan, variables, where))
    if not text.unwrap():
        return Failure(
            TemplateError(f"{where} renders to nothing: give RunRequest(session_id=...) or the values it uses")
        )
    return Success(text.unwrap())


def _failed(fault: TemplateFault, source: str, plan: Plan, variables: Mapping[str, Any], where: str) -> TemplateError:
    """Say where a template failed and why, with its own line, and all variables at once that were not given."""
    message = fault.message
    if fault.absent is not None:
        others = [name for name in plan.prompt.variables if name not in variables and name != fault.absent]
        if others:
            message += f", and so were not: {listed(others)}"
    places = [fault.fragment] if fault.fragment is not None else []
    if fault.line is not None:
        text = source if fault.fragment is None else plan.fragments[fault.fragment]
        lines = text.split("\n")[fault.line - 1 : fault.line]
        shown = lines[0].strip() if lines else ""
        places.append(f"line {fault.line}" + (f" ({shown[:SHOWN]}{shown[SHOWN:] and '…'})" if shown else ""))
    place = " ".join(places)
    return TemplateError(f"{where}{place and ', '}{place}: {message}")
