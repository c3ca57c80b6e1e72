"""The whole way: select, (read inputs), render, assemble, hash."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from returns.result import Failure, Result, Success

from promptkit._history import Turn
from promptkit._prepare.inputs import taken
from promptkit._prepare.rendering import render, render_session
from promptkit._prepare.selection import Selection
from promptkit._prepare.settings import Given, settings
from promptkit._values.definitions import DIALECTS
from promptkit._values.exchange import node_of
from promptkit._values.messages import Message, TextPart, from_tuples, to_tuple
from promptkit._values.results import PreparedRun
from promptkit.errors import InvalidRequestError

if TYPE_CHECKING:
    from promptkit._values.requests import RunRequest


class Prepared(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Everything that a run needs, frozen. ``turn`` is the native history with the new messages."""

    selection: Selection
    given: Given
    turn: Any
    parent_run_id: str | None
    session_id: str | None
    input_hashes: Mapping[str, str]
    rendered_hash: str


def complete(
    selection: Selection, request: RunRequest, contents: Mapping[str, bytes]
) -> Result[Prepared, InvalidRequestError]:
    """Finish the preparation with the inputs' contents: history, then rendered messages, then appended ones."""
    for index, message in enumerate(request.appended_messages):
        if message.cache_control is not None and not _ends_with_content(message):
            where = f"appended_messages[{index}] ({message.role})"
            return Failure(InvalidRequestError(f"{where} has a cache marker and no content, which backends refuse"))
    read = taken(selection.plan, request, contents)
    if isinstance(read, Failure):
        return read
    inputs = read.unwrap()
    rendered = render(selection.plan, request.variables, inputs.texts, inputs.parts)
    if isinstance(rendered, Failure):
        return rendered
    session = render_session(selection.plan, request.session_id, request.variables, inputs.texts)
    if isinstance(session, Failure):
        return session
    history = node_of(request.continue_from)
    new = [to_tuple(message) for message in (*rendered.unwrap(), *request.appended_messages)]
    turn = Turn(history, new)
    refusal = _refusal(selection, turn)
    if refusal is not None:
        return Failure(InvalidRequestError(f"prompt {selection.plan.prompt.id!r}: {refusal}"))
    return Success(
        Prepared(
            selection=selection,
            given=Given(
                profile=request.profile is not None,
                output=request.output is not None,
                session_id=request.session_id is not None,
                credential=request.credential is not None,
            ),
            turn=turn,
            parent_run_id=None if history is None else history.run_id,
            session_id=session.unwrap(),
            input_hashes=inputs.hashes,
            rendered_hash=turn.digest(session.unwrap()),
        )
    )


def _refusal(selection: Selection, turn: Turn) -> str | None:
    """Say which of the messages the backend does not take, history included."""
    backend = selection.backend
    place = f"of the {turn.message_count} messages to be sent, the one at position"
    if backend.late_system_treatment == "refuse" and turn.late_system is not None:
        return (
            f"{place} {turn.late_system + 1} has a system or developer role after the conversation has begun, and "
            f'backend {backend.id!r} refuses that (late_system = "refuse"): give it the role user, or set late_system '
            'of the backend to "as_user" or "send"'
        )
    if DIALECTS[backend.kind].text_only and turn.media is not None:
        return (
            f"{place} {turn.media + 1} has an image or a file, and backend {backend.id!r} ({backend.kind}) reads text "
            "only: send text, or choose a profile whose backend takes images and files"
        )
    return None


def _ends_with_content(message: Message) -> bool:
    """Say whether there is something that a cache marker can stand on: the end of the message."""
    if isinstance(message.content, str):
        return bool(message.content)
    last = message.content[-1] if message.content else None
    return last is not None and not (isinstance(last, TextPart) and not last.text)


def details(prepared: Prepared) -> PreparedRun:
    """Build what ``prepare`` shows. Costs what the history is long, and nothing else of a preparation does."""
    selection = prepared.selection
    return PreparedRun(
        prompt_id=selection.plan.prompt.id,
        parent_run_id=prepared.parent_run_id,
        profile=selection.profile.id,
        backend=selection.backend.id,
        model=selection.profile.model,
        session_id=prepared.session_id,
        output=selection.contract.output,
        messages=from_tuples(prepared.turn.messages()),
        definition_hash=selection.plan.definition_hash,
        input_hashes=prepared.input_hashes,
        rendered_hash=prepared.rendered_hash,
        settings=settings(selection, prepared.given, prepared.session_id),
    )
