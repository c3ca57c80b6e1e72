"""``promptkit render``: exactly what would be sent. Nothing is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptkit import FilePart, ImagePart
from promptkit._cli.asking import asked, refusals
from promptkit._cli.catalog_folder import opened_catalog
from promptkit._cli.exits import DONE
from promptkit._cli.streams import BOLD, DIM
from promptkit._cli.value_text import value_text
from promptkit._values.renderables import settings_table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from promptkit import ContentPart, Message, PreparedRun
    from promptkit._cli.asking import Typed
    from promptkit._cli.streams import Streams


def render(typed: Typed, *, catalog: Path | None, json: bool, verbose: bool, streams: Streams) -> int:
    """Prepare the request and show it."""
    ask = asked(opened_catalog(catalog), typed)
    with ask.engine, refusals(ask):
        prepared = ask.engine.prepare(ask.request)
    if json:
        streams.json(prepared)
        return DONE
    for message in prepared.messages:
        streams.result(heading_of(message), BOLD)
        for text in texts_of(message):
            streams.result(text)
        streams.result("")
    for name, value in facts_of(prepared):
        streams.result(f"{name:<12} {value}", DIM)
    if verbose:
        streams.result("")
        streams.drawing(streams.drawn(settings_table(prepared.settings, value_text)))
    return DONE


def heading_of(message: Message) -> str:
    """Name the role, and the cache marker if there is one."""
    marker = message.cache_control
    cached = "" if marker is None else f" (cached{'' if marker.ttl is None else f' for {marker.ttl}'})"
    return f"--- {message.role}{cached}"


def texts_of(message: Message) -> Iterator[str]:
    """Give the texts of a message as they are, and a line for each other part."""
    if isinstance(message.content, str):
        yield message.content
        return
    for part in message.content:
        yield part_line(part)


def part_line(part: ContentPart) -> str:
    """Give a text as it is, and name what is no text."""
    match part:
        case ImagePart(data=bytes(data)):
            return f"[image, {part.media_type}, {len(data):,} bytes]"
        case ImagePart():
            return f"[image, {part.media_type}, {part.url}]"
        case FilePart():
            named = "" if part.filename is None else f" {part.filename!r}"
            return f"[file{named}, {part.media_type}, {len(part.data):,} bytes]"
        case _:
            return part.text


def facts_of(prepared: PreparedRun) -> Iterator[tuple[str, str]]:
    """Give what else there is to know, by name."""
    yield "profile", f"{prepared.profile}: {prepared.model} on {prepared.backend}"
    yield "output", prepared.output.kind
    if prepared.session_id is not None:
        yield "session", prepared.session_id
    yield "definition", prepared.definition_hash
    for name, digest in prepared.input_hashes.items():
        yield "input", f"{digest} {name}"
    yield "rendered", prepared.rendered_hash
