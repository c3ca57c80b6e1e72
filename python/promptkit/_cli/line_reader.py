"""Reads the lines of a chat: from a terminal with what readline offers, from a pipe as they are."""

from __future__ import annotations

import sys
from codecs import BOM_UTF8
from io import TextIOWrapper
from typing import TYPE_CHECKING

from promptkit._cli.arguments import as_text
from promptkit._cli.chat_lines import GOES_ON, completions
from promptkit._cli.exits import FailedError
from promptkit._cli.streams import BOLD
from promptkit._cli.user_files import MOST

if TYPE_CHECKING:
    from types import ModuleType

    from promptkit._cli.streams import Streams


class LineReader:
    """Gives one line after the other, without its end. ``interactive`` says whether a person types them.

    Bytes that are no UTF-8 come as lone surrogates, which nothing can be sent with: who takes the line tells it.
    """

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._first = True
        self._readline: ModuleType | None = None
        self.ended = False  # whether the last read found the end
        self.dropped = False  # whether the last Ctrl-C took away something that was being typed
        self.interactive = sys.stdin is not None and sys.stdin.isatty()
        if self.interactive and isinstance(sys.stdin, TextIOWrapper):
            sys.stdin.reconfigure(errors="surrogateescape")  # as in a pipe: keys that are no text end nothing
        if self.interactive and streams.out.terminal:
            self._readline = _with_readline()

    def read(self, marker: str) -> str | None:
        """Read a line; None at the end. Raises FailedError, and KeyboardInterrupt on Ctrl-C."""
        self.dropped = False
        try:
            line = self._typed(marker) if self.interactive else self._piped()
        except KeyboardInterrupt:
            typed = "" if self._readline is None else self._readline.get_line_buffer()
            self.dropped = bool(typed) or marker == GOES_ON
            raise
        except OSError as error:
            msg = f"standard input cannot be read: {error.strerror or type(error).__name__}"
            raise FailedError(msg) from None
        self.ended = line is None
        return line

    def _piped(self) -> str | None:
        if sys.stdin is None:
            msg = "there is no standard input to read your lines from"
            raise FailedError(msg)
        line = sys.stdin.buffer.readline(MOST + 1)
        if not line:
            return None
        if len(line) > MOST:
            msg = f"a line of standard input has more than {MOST:,} bytes: it was not sent; say it in several"
            raise FailedError(msg)
        if self._first:
            line = line.removeprefix(BOM_UTF8)
            self._first = False
        return line.decode(errors="surrogateescape").removesuffix("\n").removesuffix("\r")

    def _typed(self, marker: str) -> str | None:
        if not self._streams.out.terminal:  # the marker is no part of a result
            if sys.stderr is not None:
                sys.stderr.write(marker)
                sys.stderr.flush()
            line = sys.stdin.readline()
            if not line:
                return None
            line = line.removesuffix("\n")
        else:
            try:
                line = input(self._styled(marker))
            except EOFError:
                return None
        return as_text(line, sys.stdin.encoding)

    def _styled(self, marker: str) -> str:
        if not self._streams.out.colour:
            return marker
        before, after = f"\x1b[{BOLD}m", "\x1b[0m"
        # readline has to be told what takes no room.
        return f"\x01{before}\x02{marker}\x01{after}\x02" if self._readline else f"{before}{marker}{after}"


def _with_readline() -> ModuleType | None:
    """Let lines be edited, found again and completed, for as long as the process lives; nothing is kept in a file."""
    try:
        import readline
    except ImportError:  # on Windows the terminal itself does it
        return None
    readline.set_completer_delims("")
    readline.set_completer(_completion)
    libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if libedit else "tab: complete")
    return readline


def _completion(typed: str, state: int) -> str | None:
    found = completions(typed)
    return found[state] if state < len(found) else None
