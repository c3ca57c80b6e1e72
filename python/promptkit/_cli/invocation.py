"""One call of the command: the words that were typed, and how it ends."""

import contextlib
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any

import typer

from promptkit._cli.app import app
from promptkit._cli.command_words import of_every_command
from promptkit._cli.exits import (
    CANCELLED,
    DONE,
    FAILED,
    WRONG_USE,
    CancelledError,
    RefusedError,
    StdoutClosedError,
    StopError,
    WrongUseError,
    exit_of,
)
from promptkit._cli.failure import note_of, sentence_of
from promptkit._cli.streams import DIM, Streams
from promptkit.errors import PromptKitError

COMPLETING = "_PROMPTKIT_COMPLETE"  # is there when a shell asks for completion, and then there are no arguments
OF_THE_SHELL = ("--install-completion", "--show-completion")


def invoke(argv: Sequence[str]) -> int:
    """Run one command, tell what went wrong, and give the exit status."""
    asked = _before_dashes(argv)
    streams = Streams(no_color="--no-color" in asked, json="--json" in asked)
    try:
        if argv and of_every_command(argv) >= len(argv):
            msg = "no command is named: `promptkit --help` lists them"
            raise WrongUseError(msg)
        if len(argv) > 1 and argv[0] in OF_THE_SHELL:
            msg = f"{argv[0]} takes nothing after it: it is for the shell in which you type it"
            raise WrongUseError(msg)
        if not argv and COMPLETING not in os.environ:
            with contextlib.redirect_stdout(sys.stderr):
                _call(["--help"])
            return WRONG_USE
        ended = _call(argv)
    except StdoutClosedError as error:
        return exit_of(error)
    except (KeyboardInterrupt, typer.Abort):
        ended = CANCELLED
    except (typer.TyperException, StopError, PromptKitError, OSError) as error:
        return _told(error, streams)
    if ended == CANCELLED:  # typer's own way to tell an interruption
        return _told(CancelledError("cancelled"), streams)
    return ended if isinstance(ended, int) else DONE


def _call(argv: Sequence[str]) -> Any:
    command = typer.main.get_command(app)
    return command.main(list(argv), prog_name="promptkit", standalone_mode=False, terminal_width=_width())


def _width() -> int:
    # That of the terminal, where typer would not go below 50.
    return max(20, min(shutil.get_terminal_size().columns, 100) - 2)


def _before_dashes(argv: Sequence[str]) -> Sequence[str]:
    return argv[: argv.index("--")] if "--" in argv else argv


def _told(error: Exception, streams: Streams) -> int:
    if isinstance(error, typer.TyperException):
        status = WRONG_USE if error.exit_code == WRONG_USE else FAILED
        message, hint = error.format_message(), _where_help_is(error)
    else:
        status, message = exit_of(error), sentence_of(error)
        hint = error.hint if isinstance(error, RefusedError) else None
        error = error.refusal if isinstance(error, RefusedError) else error
    if isinstance(error, CancelledError) and not streams.as_json:
        streams.say(message)
    else:
        streams.error(message, error, hint)
    note = None if streams.as_json else note_of(error)
    if note is not None:
        streams.note(note, DIM)
    return status


def _where_help_is(error: typer.TyperException) -> str | None:
    context = getattr(error, "ctx", None)
    if context is None:
        return None
    see = f"see `{context.command_path} --help`"
    if type(error).__name__ == "NoSuchOption" and context.parent is None:
        return f"{see}; an option of a command stands after its name, as in `promptkit run ID --trace FILE`"
    return see
