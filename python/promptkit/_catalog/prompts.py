"""A prompt's file, completed with the files that its messages name."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any, NamedTuple

from returns.result import Failure, Result

from promptkit._catalog.facts import PromptFacts, prompt_facts
from promptkit._catalog.places import Found
from promptkit._catalog.tables import read_table
from promptkit._values.definitions import PromptDefinition
from promptkit.errors import Fault, near

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from promptkit._catalog.files import Document
    from promptkit._catalog.lines import Path


class Neighbour(NamedTuple):
    """A text file that a prompt uses: its name for people, and its text, or why there is none.

    A Fault is about the file itself, whoever uses it; a text says why it cannot be had, as the end of a sentence.
    """

    file: str
    text: Result[str, Fault | str]


class ReadPrompt(NamedTuple):
    """What a prompt's file says: the definition, unless it cannot be built, its facts and every fault."""

    document: Document
    definition: PromptDefinition | None
    facts: PromptFacts
    found: tuple[Found, ...]
    faults: tuple[Fault, ...]  # of the files that it names


def read_prompt(document: Document, read: Callable[[str], Neighbour], names: Collection[str]) -> ReadPrompt:
    """Read a prompt. ``read`` gives a file by its name relative to this one; ``names`` are those that there are."""
    table: dict[str, Any] = dict(document.value)
    contents = _Contents(document, read, names)
    if isinstance(table.get("messages"), list):
        table["messages"] = [contents.completed(index, message) for index, message in enumerate(table["messages"])]
    built = read_table(PromptDefinition, table, given={"id": document.source.identifier})
    found = (*contents.found, *built.found)
    whole = not (found or contents.faults)
    return ReadPrompt(
        document=document,
        definition=built.definition if whole else None,
        facts=prompt_facts(table, [*(each.path for each in found), *contents.missing], contents.files),
        found=found,
        faults=tuple(contents.faults),
    )


class _Contents:
    """The texts of messages that stand in files of their own."""

    def __init__(self, document: Document, read: Callable[[str], Neighbour], names: Collection[str]) -> None:
        self._document = document
        self._read = read
        self._names = names
        self.found: list[Found] = []
        self.faults: list[Fault] = []
        self.files: dict[Path, str] = {}
        self.missing: list[Path] = []

    def completed(self, index: int, message: Any) -> Any:
        """Put the text of ``content_file`` into ``content``; where there is none, the text is empty and missing."""
        if not (isinstance(message, dict) and "content_file" in message):
            return message
        rest = {name: value for name, value in message.items() if name != "content_file"}
        path: Path = ("messages", index, "content_file")
        if "content" in message:
            self.found.append(Found(path, "stands beside content: give one of the two."))
            return rest
        name = message["content_file"]
        content: Path = ("messages", index, "content")
        if isinstance(name, str) and name and "\0" not in name:
            text = self._text(name, path, content)
        else:
            text = None
            self.found.append(Found(path, "Expected the path of a file."))
        if text is None:
            self.missing.append(content)
        return {**rest, "content": text or ""}

    def _text(self, name: str, path: Path, content: Path) -> str | None:
        neighbour = self._read(name)
        if isinstance(neighbour.text, Failure):
            why = neighbour.text.failure()
            if isinstance(why, Fault):
                self.faults.append(why)
            else:
                self.found.append(Found(path, f"{name!r} {why}", _near_file(name, self._document, self._names)))
            return None
        self.files[content] = neighbour.file
        return neighbour.text.unwrap()


def _near_file(name: str, document: Document, names: Collection[str]) -> str | None:
    here = posixpath.dirname(document.source.identifier)
    return near(name, sorted(posixpath.relpath(each, here or ".") for each in names))
