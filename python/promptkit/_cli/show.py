"""``promptkit show``: what there is in a catalog, and what one thing of it is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import msgspec
from returns.result import Failure, Result, Success

from promptkit import BlockingEngine, ProfileDetails
from promptkit._cli.arguments import as_text
from promptkit._cli.asking import or_wrong_use
from promptkit._cli.catalog_folder import opened_catalog
from promptkit._cli.exits import DONE
from promptkit._cli.streams import BOLD
from promptkit._cli.value_text import value_text
from promptkit._values.folding_table import FoldingTable, pairs_table
from promptkit._values.renderables import settings_table
from promptkit.errors import UnknownSchemaError, listed, near

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from promptkit import BackendDetails, Catalog, PromptDetails
    from promptkit._cli.streams import Streams

KINDS = ("prompts", "profiles", "backends", "schemas")
TYPED = "show prompt ID, show profile ID, show backend ID, show schema ID, or one of them without an ID"


def asked_for(kind: str | None, identifier: str | None) -> Result[tuple[str | None, str | None], str]:
    """Read which kind is meant, in the plural; None is all of them. The failure says what to type."""
    if kind is None:
        return Success((None, None))
    plural = kind if kind.endswith("s") else f"{kind}s"
    if plural not in KINDS:
        meant = near(kind, (*KINDS, *(each.removesuffix("s") for each in KINDS)))
        hint = "" if meant is None else f"did you mean {meant!r}? "
        return Failure(f"there is no {kind!r} to show: {hint}type {TYPED}")
    return Success((plural, identifier))


def show(kind: str | None, identifier: str | None, *, catalog: Path | None, json: bool, streams: Streams) -> int:
    """List what there is, or show one thing."""
    if identifier is not None:
        identifier = as_text(identifier, sys.getfilesystemencoding())
    plural, chosen = or_wrong_use(asked_for(kind, identifier))
    opened = opened_catalog(catalog)
    if chosen is None:
        listed = {each: rows_of(opened, each) for each in (KINDS if plural is None else (plural,))}
        if json:
            streams.json(listed if plural is None else listed[plural])
        else:
            _list(listed, streams)
        return DONE
    if plural == "schemas":
        _show_schema(opened, chosen, json=json, streams=streams)
        return DONE
    with BlockingEngine(opened) as engine:
        details: Any = getattr(engine, f"inspect_{plural.removesuffix('s')}")(chosen)
    if json:
        streams.json(details)
    elif plural == "prompts":
        _show_prompt(details, streams)
    else:
        _show_settings(details, streams)
    return DONE


def rows_of(catalog: Catalog, kind: str) -> list[dict[str, str | None]]:
    """Give what a list says about each thing of a kind, by its heads."""
    match kind:
        case "prompts":
            return [
                {"id": each.id, "profile": each.profile, "output": each.output.kind, "description": each.description}
                for _, each in sorted(catalog.prompts.items())
            ]
        case "profiles":
            return [
                {"id": each.id, "backend": each.backend, "model": each.model}
                for _, each in sorted(catalog.profiles.items())
            ]
        case "backends":
            return [
                {"id": each.id, "kind": each.kind, "base_url": each.base_url}
                for _, each in sorted(catalog.backends.items())
            ]
        case _:
            return [{"id": identifier} for identifier in sorted(catalog.schemas)]


def _list(listed: dict[str, list[dict[str, str | None]]], streams: Streams) -> None:
    for place, (kind, rows) in enumerate(listed.items()):
        if place:
            streams.result("")
        if len(listed) > 1:
            streams.result(kind, BOLD)
        if not rows:
            streams.result("none")
            continue
        table = FoldingTable(list(rows[0]), [[value_text(cell) for cell in row.values()] for row in rows])
        streams.drawing(streams.drawn(table))


def prompt_facts(details: PromptDetails) -> Iterator[tuple[str, str]]:
    """Give what there is to know about a prompt apart from its messages."""
    yield "prompt", details.id
    if details.description is not None:
        yield "description", details.description
    yield "variables", ", ".join(details.variables) or "-"
    yield "inputs", ", ".join(details.inputs) or "-"
    yield "profile", details.profile or "- (give --profile)"
    if details.session is not None:
        yield "session", details.session
    yield "output", details.output.kind
    if details.output.kind != "text":
        yield "max_repairs", str(details.output.max_repairs)
    yield "source", details.source or "-"
    yield "definition", details.definition_hash


def _show_prompt(details: PromptDetails, streams: Streams) -> None:
    streams.drawing(streams.drawn(pairs_table(prompt_facts(details))))
    for message in details.messages:
        attached = f" (attaches {', '.join(message.attachments)})" if message.attachments else ""
        streams.result(f"\n--- {message.role}{attached}", BOLD)
        streams.result(message.content)
    for name, text in details.fragments.items():
        streams.result(f"\n--- included: {name}", BOLD)
        streams.result(text)
    if details.output.schema is not None:
        streams.result("\n--- schema", BOLD)
        streams.result(schema_text(details.output.schema))


def schema_text(schema: Any) -> str:
    """Write a JSON Schema for people."""
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode()


def _show_schema(catalog: Catalog, identifier: str, *, json: bool, streams: Streams) -> None:
    if identifier not in catalog.schemas:
        meant = near(identifier, catalog.schemas)
        hint = "" if meant is None else f"did you mean {meant!r}? "
        there = f"the schemas are: {listed(catalog.schemas)}" if catalog.schemas else "the catalog has none"
        msg = f"there is no schema {identifier!r}: {hint}{there}"
        raise UnknownSchemaError(msg)
    schema = catalog.schemas[identifier]
    if json:
        streams.json(schema)
    else:
        streams.result(schema_text(schema))


def _show_settings(details: ProfileDetails | BackendDetails, streams: Streams) -> None:
    fields: dict[str, Any] = msgspec.to_builtins(details)
    for apart in ("settings", "running", "waiting"):  # a table of their own; and nothing runs in this process
        fields.pop(apart, None)
    if fields.get("kind") == "embedded" and fields.get("embedded") is None:
        fields["embedded"] = "the default model, with default options"
    streams.drawing(streams.drawn(pairs_table((name, value_text(value)) for name, value in fields.items())))
    if isinstance(details, ProfileDetails):
        streams.result("")
        streams.drawing(streams.drawn(settings_table(details.settings, value_text)))
