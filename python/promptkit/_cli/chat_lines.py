"""What a person types in a chat: messages of one line or of several, and commands."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import NamedTuple

from returns.result import Failure, Result, Success

ReadLine = Callable[[str], str | None]  # given what stands before the line on a terminal; None at the end

QUOTES = '"""'
GOES_ON = "... "


class Kind(NamedTuple):
    """A command: what can stand after it, whether that is a number, and what it does."""

    argument: str
    does: str


COMMANDS = {
    "/tree": Kind("", "show the conversation as a tree; * is where you are"),
    "/back": Kind("[N]", "go back one turn, or N"),
    "/branch": Kind("[NUMBER]", "say something else instead of the last turn, or go on from a turn of the tree"),
    "/retry": Kind("", "say the same again, as a branch; after an error or Ctrl-C, what brought no answer"),
    "/usage": Kind("", "show what the chat has used so far"),
    "/help": Kind("", "show this"),
    "/quit": Kind("", "leave; so does Ctrl-D"),
}
ALSO = {"/exit": "/quit", "/?": "/help"}
TYPING = (
    "A line that ends with \\ goes on in the next one.",
    'Several lines stand between """ and """.',
    "A message that begins with / is typed with //.",
)


class Entry(NamedTuple):
    """What was typed, whole. What stood in quotes is ``quoted``: a message, whatever it begins with."""

    text: str
    quoted: bool = False


class Message(NamedTuple):
    """A message to send."""

    text: str


class Command(NamedTuple):
    """A command, with its number if it has one."""

    command: str
    number: int | None = None


def read_entry(read: ReadLine, marker: str) -> Result[Entry, str] | None:
    """Read lines until an entry is whole. None at the end; the failure is about an entry that the end cuts off."""
    line = read(marker)
    if line is None:
        return None
    if line.startswith(QUOTES):
        return _quoted(line.removeprefix(QUOTES), read)
    lines: list[str] = []
    while line.endswith("\\"):
        lines.append(line[:-1])
        following = read(GOES_ON)
        if following is None:
            return Failure("the last line ends with \\, and nothing follows: it was not sent")
        line = following
    return Success(Entry("\n".join((*lines, line))))


def _quoted(line: str | None, read: ReadLine) -> Result[Entry, str]:
    lines: list[str] = []
    while line is not None:
        if line.rstrip().endswith(QUOTES):
            lines.append(line.rstrip().removesuffix(QUOTES))
            return Success(Entry("\n".join(lines).removeprefix("\n").removesuffix("\n"), quoted=True))
        lines.append(line)
        line = read(GOES_ON)
    return Failure(f"what begins with {QUOTES} has no {QUOTES} at its end: it was not sent")


def meaning(entry: Entry) -> Result[Message | Command | None, str]:
    """Say what an entry asks for; None for a blank one.

    >>> meaning(Entry("/back 2")).unwrap(), meaning(Entry("//etc")).unwrap()
    (Command(command='/back', number=2), Message(text='/etc'))
    >>> meaning(Entry("/tre")).failure()
    'there is no command /tre: did you mean /tree? /help lists them; a message that begins with / is typed with //'
    """
    text = entry.text
    if not text.strip():
        return Success(None)
    if any("\ud800" <= character <= "\udfff" for character in text):
        return Failure(f"what begins with {text[:40]!r} is not UTF-8 text: it was not sent")
    if entry.quoted or not text.startswith("/"):
        return Success(Message(text))
    if text.startswith("//"):
        return Success(Message(text[1:]))
    name, *arguments = text.split()
    name = ALSO.get(name, name)
    if name not in COMMANDS:
        near = get_close_matches(name, COMMANDS, 1)
        meant = f"did you mean {near[0]}? " if near else ""
        return Failure(
            f"there is no command {name}: {meant}/help lists them; a message that begins with / is typed with //"
        )
    return _with_number(name, arguments)


def _with_number(name: str, arguments: list[str]) -> Result[Message | Command | None, str]:
    if not arguments:
        return Success(Command(name))
    takes = COMMANDS[name].argument
    if not takes:
        return Failure(f"{name} has nothing after it: type {name}, or /{name} ... to send it as a message")
    number = arguments[0]
    if len(arguments) > 1 or not (number.isascii() and number.isdigit()) or len(number) > 9:
        return Failure(f"{name} {' '.join(arguments)}: type {name} {takes}, such as {name} 2")
    return Success(Command(name, int(number)))


def completions(typed: str) -> list[str]:
    """Give the commands that begin so."""
    return [name for name in COMMANDS if name.startswith(typed)] if typed.startswith("/") else []


def help_lines(width: int) -> list[str]:
    """List the commands. Where it is narrow, what each does stands below it."""
    typed = {name: f"{name} {kind.argument}".rstrip() for name, kind in COMMANDS.items()}
    room = max(map(len, typed.values())) + 2
    longest = max(len(kind.does) for kind in COMMANDS.values())
    if room + longest <= width:
        return [*(f"{typed[name]:<{room}}{kind.does}" for name, kind in COMMANDS.items()), *TYPING]
    return [*(line for name, kind in COMMANDS.items() for line in (typed[name], f"  {kind.does}")), *TYPING]
