"""Whether what is sent for a conversation begins with what was sent before, byte for byte."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from promptkit._values.exchange import Exchange
from promptkit._values.generation import GenerationCall
from promptkit._values.results import PreparedRun, RunResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptkit._values.messages import Message

AROUND = 24  # characters of the text before a difference that are shown
AFTER = 40
# What changes from run to run: a date, a time of day, the hexadecimal digits of an id, the seconds of a clock.
CHANGING = re.compile(
    r"\d{4}-\d\d-\d\d|\d\d?:\d\d(:\d\d(\.\d+)?)?|\b(?=[a-f-]*\d)[0-9a-f]{8}-?[0-9a-f]{4}[0-9a-f-]*|\d{9,}",
    re.IGNORECASE,
)


def assert_prefix_stable(*calls: GenerationCall) -> None:
    """Assert that what is sent for each call begins, byte for byte, with what was sent for the one before.

    A provider's prompt cache is used only then. ``calls`` are two or more of one conversation, in order, as
    ``client.calls`` of a ScriptedClient has them: ``assert_prefix_stable(first, second)``, or
    ``assert_prefix_stable(*client.calls)``. Branches are compared with what they branch from, not with each other.

    What is compared are the bytes of the messages in the dialect of the backend, the system text before them, and the
    model, which caches do not cross; other settings are not. What a repair adds is never kept, so a call is compared
    with the messages that a repair before it repeats.

    Raises AssertionError that shows the first message that differs, where, and the likely cause, also when there are
    fewer than two calls; TypeError for what is no call.
    """
    for number, call in enumerate(calls, 1):
        if not isinstance(call, GenerationCall):
            raise TypeError(_no_call(number, call))
    if len(calls) < 2:
        msg = f"there is nothing to compare: {len(calls)} calls were given, and it takes two"
        raise AssertionError(msg)
    for number, (earlier, later) in enumerate(pairwise(calls), 1):
        difference = _difference(msgspec.structs.replace(earlier, _extra=()), later)
        if difference is not None:
            title = f"call {number + 1} does not begin with what was sent for call {number}:"
            msg = f"{title} no cache of prompts helps it\n  {difference}"
            raise AssertionError(msg)


def _no_call(number: int, given: object) -> str:
    remedy = "give calls of a ScriptedClient: assert_prefix_stable(*client.calls)"
    if isinstance(given, Exchange | RunResult | PreparedRun):
        remedy = f"what is sent depends on the backend too; {remedy}"
    elif isinstance(given, list | tuple):
        remedy = "give its elements: assert_prefix_stable(*client.calls)"
    return f"assert_prefix_stable: argument {number}: Expected a GenerationCall, got `{type(given).__name__}`: {remedy}"


def _difference(earlier: GenerationCall, later: GenerationCall) -> str | None:
    """Tell how the later call differs from a continuation of the earlier one; None: it is one."""
    for what, before, now in (
        ("backend", earlier.backend.id, later.backend.id),
        ("model", earlier.profile.model, later.profile.model),
    ):
        if before != now:
            return f"it goes to another {what}, {now!r} after {before!r}\n  Use one profile for the conversation."
    begun, sent = _bytes(earlier), _bytes(later)
    if all(now.startswith(before) for before, now in zip(begun, sent, strict=True)):
        return None
    return _first_message(earlier.messages, later.messages) or (
        "the messages are the same and their encoding is not\n"
        "  The two backends differ in cache_markers or late_system."
    )


def _bytes(call: GenerationCall) -> tuple[bytes, bytes]:
    """Give what is sent of the system text and of the messages, each without what closes the last of it."""
    if call.backend.kind != "anthropic_messages":
        return b"", call.encoded_messages("chat_completions").messages[:-1]
    encoded = call.encoded_messages("anthropic_messages")
    system = encoded.system or b"[]"
    return (system if encoded.messages != b"[]" else system[:-1]), encoded.messages[:-1]


def _first_message(earlier: Sequence[Message], later: Sequence[Message]) -> str | None:
    for number, before in enumerate(earlier, 1):
        if number > len(later):
            cause = _conversation(first=number == 1)
            return f"it has {len(later)} messages, fewer than the {len(earlier)} before\n  {cause}"
        now = later[number - 1]
        if before != now:
            place = f"message {number} of {len(earlier)} ({before.role})"
            return f"{place} {_changed(before, now, first=number == 1)}"
    return None


def _changed(before: Message, now: Message, *, first: bool) -> str:
    if before.role != now.role:
        return f"is now of the role {now.role!r}\n  {_conversation(first=first)}"
    if before.content == now.content:
        return (
            f"has another cache marker, {_marker(now)} after {_marker(before)}\n"
            "  Markers are sent with their message: leave them where they are, and mark later messages in addition."
        )
    if not (isinstance(before.content, str) and isinstance(now.content, str)):
        return (
            f"has other parts\n  before: {before.content!r}\n  now:    {now.content!r}\n  Attach the same inputs to it."
        )
    place = _first_difference(before.content, now.content)
    old, new = _window(before.content, place), _window(now.content, place)
    if _changes_there(before.content, place) and _changes_there(now.content, place):
        cause = "A time or an id stands there, which changes from run to run: move it to the last message."
    elif before.role in {"system", "developer"}:
        cause = "The system text changed: what varies belongs in a later message."
    else:
        cause = _conversation(first=first)
    return f"differs from character {place + 1} on\n  before: {old!r}\n  now:    {new!r}\n  {cause}"


def _conversation(*, first: bool) -> str:
    return (
        "Is it of another conversation?" if first else "Was it run without continue_from, or is it of another branch?"
    )


def _marker(message: Message) -> str:
    marker = message.cache_control
    return "none" if marker is None else f"{marker.type} {marker.ttl or ''}".strip()


def _first_difference(before: str, now: str) -> int:
    pairs: Any = enumerate(zip(before, now, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(before), len(now)))


def _changes_there(text: str, place: int) -> bool:
    around = CHANGING.finditer(text, max(0, place - AROUND), place + AFTER)
    return any(found.start() <= place < found.end() for found in around)


def _window(text: str, place: int) -> str:
    start = max(0, place - AROUND)
    shown = text[start : place + AFTER]
    return f"{'…' if start else ''}{shown}{'…' if place + AFTER < len(text) else ''}"
