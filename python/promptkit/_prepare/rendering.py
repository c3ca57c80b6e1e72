"""Step 3: each template becomes the opaque text of one message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from returns.result import Failure, Result, Success

from promptkit._values.frozen import FrozenDict
from promptkit._values.messages import ContentPart, Message, TextPart
from promptkit.errors import TemplateError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptkit._prepare.plan import Plan
    from promptkit._values.templates import CompiledTemplate

NO_PARTS: FrozenDict[str, ContentPart] = FrozenDict()


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
        text = _render_one(template, variables, inputs, where)
        if isinstance(text, Failure):
            return text
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
    text = _render_one(plan.session, variables, inputs, where)
    if isinstance(text, Success) and not text.unwrap():
        return Failure(
            TemplateError(f"{where} renders to nothing: give RunRequest(session_id=...) or the values it uses")
        )
    return text


def _render_one(
    template: CompiledTemplate, variables: Mapping[str, Any], inputs: Mapping[str, str], where: str
) -> Result[str, TemplateError]:
    rendered = template.render(variables, inputs)
    if isinstance(rendered, Failure):
        fault = rendered.failure()
        places = (fault.fragment, None if fault.line is None else f"line {fault.line}")
        place = " ".join(part for part in places if part is not None)
        return Failure(TemplateError(f"{where}{place and ', '}{place}: {fault.message}"))
    return Success(rendered.unwrap())
