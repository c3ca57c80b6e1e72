"""Standard output and standard error: what each can show, and how text reaches it.

What is piped is UTF-8 whatever the locale, as with git and curl: a pipe has no encoding, and JSON is UTF-8. A terminal
gets its own encoding, with what that lacks escaped, and control characters made visible: a model, or whoever wrote what
it read, could otherwise move the cursor, rename the window or fill the clipboard.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from promptkit._cli.arguments import as_text
from promptkit._cli.exits import FailedError, StdoutClosedError
from promptkit._cli.failure import object_of
from promptkit._values.visible import ascii_json, visible, visible_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console, RenderableType

BOLD = "1"
DIM = "2"
RED = "31"
GREEN = "32"
PLAIN = ""

WIDE = 1_000_000  # a pipe has no width: nothing is folded for it


class Facts(NamedTuple):
    """What a stream can show. ``live`` says whether lines can be drawn over, which a dumb terminal cannot."""

    terminal: bool
    live: bool
    colour: bool
    encoding: str
    width: int


UTF_8 = Facts(terminal=False, live=False, colour=False, encoding="utf-8", width=WIDE)


def facts_of(*, terminal: bool, encoding: str, columns: int, environ: Mapping[str, str], no_color: bool) -> Facts:
    """Decide what a stream can show. NO_COLOR counts when it is not empty (no-color.org)."""
    live = terminal and environ.get("TERM", "") != "dumb"
    return Facts(
        terminal=terminal,
        live=live,
        colour=live and not no_color and not environ.get("NO_COLOR"),
        encoding=encoding if terminal else "utf-8",
        width=max(20, columns) if terminal else WIDE,
    )


def styled(text: str, style: str, facts: Facts) -> str:
    """Colour a text, where there is colour, and make it safe to show."""
    shown = visible(text)
    return f"\x1b[{style}m{shown}\x1b[0m" if style and facts.colour and shown else shown


def folded(text: str, width: int) -> str:
    r"""Break lines between words where a terminal is narrower; what goes on begins as far in as its line.

    A word that is longer than a line is left whole: the terminal breaks it, and what is copied of it is right.

    >>> folded("  say the same again", 12)
    '  say the\n  same again'
    """
    return "\n".join(_folded_line(line, width) for line in text.split("\n"))


def _folded_line(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    begin = line[: len(line) - len(line.lstrip())]
    return "\n".join(
        textwrap.wrap(line, width, subsequent_indent=begin, break_on_hyphens=False, break_long_words=False)
    )


def encoded(text: str, facts: Facts) -> bytes:
    """Give the bytes for a stream; what its encoding lacks is escaped."""
    try:
        return text.encode(facts.encoding)
    except UnicodeEncodeError:
        return as_text(text, sys.getfilesystemencoding()).encode(facts.encoding, "backslashreplace")


def encoded_json(value: Any, facts: Facts) -> bytes:
    """Give the bytes of a value as one line of JSON; on a terminal in escapes of JSON where it would act or cannot."""
    line = json_line(value)
    if facts.terminal:
        line = visible_json(line)
    try:
        return line.encode(facts.encoding)
    except UnicodeEncodeError:
        return ascii_json(line).encode()


class Streams:
    """The two streams of a command. Results go to ``out``, all else to ``err``.

    With ``json`` all that is told on ``err`` is JSON, one object a line: ``{"note": ...}`` or ``{"error": {...}}``.
    """

    def __init__(self, *, no_color: bool = False, json: bool = False) -> None:
        self.as_json = json
        self.out = _facts(sys.stdout, no_color=no_color)
        self.err = _facts(sys.stderr, no_color=no_color)

    def result(self, text: str, style: str = PLAIN) -> None:
        """Write a part of the result and a newline; on a terminal, control characters are made visible."""
        self._out(encoded((styled(text, style, self.out) if self.out.terminal else text) + "\n", self.out))

    def drawing(self, text: str) -> None:
        """Write a part of the result that has its colours already."""
        self._out(encoded(text, self.out))

    def json(self, value: Any) -> None:
        """Write a value as one line of JSON."""
        self._out(encoded_json(value, self.out))

    def say(self, text: str, style: str = PLAIN) -> None:
        """Tell something that is no result, on stderr."""
        if self.as_json:
            self.json_error({"note": text.strip("\n")})
            return
        self._err(encoded(styled(self._folded(text), style, self.err) + "\n", self.err))

    def note(self, text: str, style: str = PLAIN) -> None:
        """Tell what has to be known about a result, on stderr."""
        self.say(text if self.as_json else f"note: {text}", style)

    def end_line(self) -> None:
        """End the line that Ctrl-C or Ctrl-D has left unfinished on a terminal."""
        if self.err.terminal:
            self._err(b"\n")

    def error(self, message: str, error: BaseException | None = None, hint: str | None = None) -> None:
        """Tell what went wrong, and what to type. As JSON, with all that is known of the error."""
        if self.as_json:
            self.json_error(object_of(FailedError(message) if error is None else error, message, hint))
            return
        head = "error:"
        told = self._folded(visible(f"{head} {message}")).removeprefix(head)
        self._err(encoded(f"{styled(head, RED, self.err)}{told}\n", self.err))
        if hint is not None:
            self.say(hint)

    def json_error(self, value: Any) -> None:
        """Tell something that is known as a value, as one line of JSON on stderr."""
        self._err(encoded_json(value, self.err))

    def drawn(self, what: RenderableType) -> str:
        """Draw something of rich for stdout. What is in it must be ``visible``."""
        target = _Drawing() if self.out.encoding.lower().startswith("utf") else _AsciiDrawing()
        console = console_on(target, self.out)
        console.print(what)
        return "".join(f"{line.rstrip()}\n" for line in target.getvalue().splitlines())

    def _folded(self, text: str) -> str:
        return folded(text, self.err.width) if self.err.terminal else text

    def _out(self, data: bytes) -> None:
        if sys.stdout is None:  # closed before the program began
            msg = "there is no standard output to write to"
            raise FailedError(msg)
        try:
            _write(sys.stdout, data)
        except BrokenPipeError:
            _to_nowhere(sys.stdout)
            raise StdoutClosedError from None
        except OSError as error:
            _to_nowhere(sys.stdout)
            msg = f"the result cannot be written to standard output: {error.strerror or type(error).__name__}"
            raise FailedError(msg) from None

    @staticmethod
    def _err(data: bytes) -> None:
        if sys.stderr is None:
            return
        try:
            _write(sys.stderr, data)
        except OSError:
            _to_nowhere(sys.stderr)  # nobody is left who could be told


class _Drawing(io.StringIO):
    encoding = "utf-8"


class _AsciiDrawing(io.StringIO):
    encoding = "ascii"


def console_on(file: TextIO, facts: Facts) -> Console:
    """Make a console of rich that does what the facts say, whatever rich would find out itself."""
    from rich.console import Console

    return Console(
        file=file,
        width=min(facts.width, 10_000),
        force_terminal=facts.live,
        color_system="standard" if facts.colour else None,
        no_color=not facts.colour,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )


def json_line(value: Any) -> str:
    """Encode a value as one line. A path that is no text is written as what it most likely is, or with escapes."""
    import msgspec

    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:
        encoded = msgspec.json.encode(_encodable(msgspec.to_builtins(value)))
    return encoded.decode() + "\n"


def _encodable(value: Any) -> Any:
    match value:
        case str():
            return encoded(value, UTF_8).decode()
        case dict():
            return {_encodable(name): _encodable(each) for name, each in value.items()}
        case list() | tuple():
            return [_encodable(each) for each in value]
        case _:
            return value


def _facts(stream: TextIO | None, *, no_color: bool) -> Facts:
    terminal = stream is not None and stream.isatty()
    return facts_of(
        terminal=terminal,
        encoding=(stream.encoding if stream is not None else None) or "utf-8",
        columns=shutil.get_terminal_size().columns if terminal else WIDE,
        environ=os.environ,
        no_color=no_color or (terminal and os.name == "nt" and _old_windows()),
    )


def _old_windows() -> bool:
    from rich.console import detect_legacy_windows

    return detect_legacy_windows()


def _write(stream: TextIO, data: bytes) -> None:
    """Write all of it, past every buffer: a write to a disk that is almost full or to a pipe can be a short one."""
    stream.flush()
    raw: Any = getattr(stream.buffer, "raw", stream.buffer)
    left = memoryview(data)
    while left:
        written = raw.write(left)
        if written is None:  # a pipe that another program made non-blocking, and that is full
            select.select([], [stream], [])
        else:
            left = left[written:]


def _to_nowhere(stream: TextIO) -> None:
    """Let what Python still holds for a stream go nowhere: it would complain at its end."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
