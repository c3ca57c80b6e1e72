"""The commands and their options: what typer reads, and how a command ends.

Each command is a function of its own file, and imported only when it is called.
"""

import contextlib
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from promptkit._cli.completion import ids_of_kind, kinds
from promptkit._cli.exits import (
    CANCELLED,
    DONE,
    FAILED,
    WRONG_USE,
    CancelledError,
    NobodyReadsError,
    RefusedError,
    StopError,
    exit_of,
)
from promptkit._cli.failure import note_of, object_of, sentence_of
from promptkit._cli.options import (
    CatalogOption,
    ContinueOption,
    InputOption,
    JsonOption,
    JsonVarOption,
    LineOption,
    MessageOption,
    NoColorOption,
    OutputOption,
    ProfileOption,
    PromptArgument,
    RepairsOption,
    SchemaOption,
    SessionOption,
    TimeoutOption,
    TraceOption,
    VarOption,
    VerboseOption,
)
from promptkit._cli.streams import DIM, Streams
from promptkit.errors import PromptKitError

app = typer.Typer(
    name="promptkit",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

COMPLETING = "_PROMPTKIT_COMPLETE"  # is there when a shell asks for completion, and then there are no arguments


def _version(asked: bool) -> None:  # noqa: FBT001  # typer calls it
    if asked:
        from importlib.metadata import version

        Streams().result(f"promptkit {version('promptkit-engine')}")
        raise typer.Exit


def examples(*lines: str) -> str:
    """Give the end of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


@app.callback(
    epilog=examples(
        "promptkit init my-prompts",
        "promptkit check my-prompts",
        "promptkit run ask --var question='Why is the sky blue?'",
    )
)
def promptkit(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    """Run configured prompts against language models."""


@app.command(epilog=examples("promptkit init my-prompts", "promptkit init ."))
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write into; made if it is not there.")],
    *,
    json: JsonOption = False,
    no_color: NoColorOption = False,
) -> int:
    """Make a starter: a small catalog that runs, and a program. Nothing is ever overwritten."""
    from promptkit._cli.init import init

    return init(folder, json=json, streams=Streams(no_color=no_color))


@app.command(epilog=examples("promptkit check", "promptkit check my-prompts", "promptkit check --json | jq .faults"))
def check(
    folder: Annotated[Path | None, typer.Argument(metavar="[DIR]", help="The same as --catalog.")] = None,
    *,
    catalog: CatalogOption = None,
    json: JsonOption = False,
    no_color: NoColorOption = False,
) -> int:
    """Say everything that is wrong with a catalog. The exit status is 1 if anything is."""
    from promptkit._cli.check import check

    return check(folder or catalog, json=json, streams=Streams(no_color=no_color))


@app.command(epilog=examples("promptkit show", "promptkit show prompts", "promptkit show profile talk --json"))
def show(
    kind: Annotated[
        str | None,
        typer.Argument(metavar="[prompt|profile|backend]", help="What to show.", autocompletion=kinds),
    ] = None,
    identifier: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="Which one; without it all are listed.", autocompletion=ids_of_kind),
    ] = None,
    *,
    catalog: CatalogOption = None,
    json: JsonOption = False,
    no_color: NoColorOption = False,
) -> int:
    """Show what there is in a catalog. Or one prompt, profile or backend, with all that is known of it."""
    from promptkit._cli.show import show

    return show(kind, identifier, catalog=catalog, json=json, streams=Streams(no_color=no_color))


@app.command(
    epilog=examples(
        "promptkit render ask --var question=Why?",
        "promptkit render read --input letter=letter.txt --var question=@question.txt -v",
        "promptkit render ask --var question=Why? --json | jq .messages",
    )
)
def render(
    prompt_id: PromptArgument,
    *,
    var: VarOption = None,
    json_var: JsonVarOption = None,
    inputs: InputOption = None,
    message: MessageOption = None,
    profile: ProfileOption = None,
    output: OutputOption = None,
    schema: SchemaOption = None,
    max_repairs: RepairsOption = None,
    session_id: SessionOption = None,
    catalog: CatalogOption = None,
    json: JsonOption = False,
    verbose: VerboseOption = False,
    no_color: NoColorOption = False,
) -> int:
    """Show the exact messages and hashes of a run; nothing is sent."""
    from promptkit._cli.asking import Typed
    from promptkit._cli.render import render

    typed = Typed(
        prompt_id,
        var or (),
        json_var or (),
        inputs or (),
        message or (),
        profile,
        session_id,
        output,
        schema,
        max_repairs,
    )
    return render(typed, catalog=catalog, json=json, verbose=verbose, streams=Streams(no_color=no_color))


@app.command(
    epilog=examples(
        "promptkit run ask --var question='Why is the sky blue?'",
        "promptkit run read --input letter=letter.txt --var question=- < question.txt",
        "promptkit run ask --var question=Why? --json | jq .usage",
    )
)
def run(
    prompt_id: PromptArgument,
    *,
    var: VarOption = None,
    json_var: JsonVarOption = None,
    inputs: InputOption = None,
    message: MessageOption = None,
    profile: ProfileOption = None,
    output: OutputOption = None,
    schema: SchemaOption = None,
    max_repairs: RepairsOption = None,
    session_id: SessionOption = None,
    timeout: TimeoutOption = None,
    trace: TraceOption = None,
    catalog: CatalogOption = None,
    json: JsonOption = False,
    verbose: VerboseOption = False,
    no_color: NoColorOption = False,
) -> int:
    """Run a prompt: the answer goes to stdout, all else to stderr."""
    from promptkit._cli.asking import Typed
    from promptkit._cli.run import run

    typed = Typed(
        prompt_id,
        var or (),
        json_var or (),
        inputs or (),
        message or (),
        profile,
        session_id,
        output,
        schema,
        max_repairs,
    )
    streams = Streams(no_color=no_color)
    return run(typed, catalog=catalog, timeout=timeout, trace=trace, json=json, verbose=verbose, streams=streams)


@app.command(
    epilog=examples(
        "promptkit chat ask",
        "promptkit chat read --input letter=letter.txt --continue-with ask",
        "printf '%s\\n' 'Who are you?' '/back' 'What can you do?' | promptkit chat ask",
    )
)
def chat(
    prompt_id: PromptArgument,
    *,
    var: VarOption = None,
    json_var: JsonVarOption = None,
    inputs: InputOption = None,
    line: LineOption = None,
    continue_with: ContinueOption = None,
    profile: ProfileOption = None,
    output: OutputOption = None,
    schema: SchemaOption = None,
    max_repairs: RepairsOption = None,
    session_id: SessionOption = None,
    timeout: TimeoutOption = None,
    trace: TraceOption = None,
    catalog: CatalogOption = None,
    json: JsonOption = False,
    verbose: VerboseOption = False,
    no_color: NoColorOption = False,
) -> int:
    """Hold a conversation that can branch, line by line.

    Your first line fills the one variable of the prompt that is not given. Where the prompt is one user message, so
    does every other line. Else what the prompt says is said once, and your other lines are sent as they are, or fill
    the variable of the prompt that --continue-with names. A prompt without such a variable begins by itself.

    /tree shows the branches, /back and /branch make them, /help lists the rest. An error or Ctrl-C while the model
    works leaves the conversation as it was. Lines can be piped: answers go to stdout, all else to stderr.
    """
    from promptkit._cli.asking import Typed
    from promptkit._cli.chat import How, chat

    typed = Typed(
        prompt_id,
        var or (),
        json_var or (),
        inputs or (),
        (),
        profile,
        session_id,
        output,
        schema,
        max_repairs,
    )
    how = How(timeout, json, verbose)
    streams = Streams(no_color=no_color)
    return chat(typed, line=line, continue_with=continue_with, catalog=catalog, trace=trace, how=how, streams=streams)


@app.command(epilog=examples("promptkit demo", "promptkit demo --json | jq .usage"))
def demo(
    *,
    trace: TraceOption = None,
    json: JsonOption = False,
    no_color: NoColorOption = False,
) -> int:
    """Hold a short conversation with a small local model. It ends with the tree of its branches, and what they used."""
    from promptkit._cli.demo import demo

    return demo(trace=trace, json=json, streams=Streams(no_color=no_color))


@app.command(
    epilog=examples(
        "promptkit run ask --var question=Why? --trace trace.jsonl",
        "promptkit report trace.jsonl --output report.html",
        "promptkit report trace.jsonl --json | jq .totals",
    )
)
def report(
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="A file that --trace has written; - is stdin.")],
    *,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write the page, instead of stdout.")
    ] = None,
    json: JsonOption = False,
    no_color: NoColorOption = False,
) -> int:
    """Make a page of HTML from a trace. It shows a timeline, the tree of runs and their usage, and needs no network."""
    from promptkit._cli.report import report

    return report(trace, output=output, json=json, streams=Streams(no_color=no_color))


def invoke(argv: Sequence[str]) -> int:
    """Run one command, tell what went wrong, and give the exit status."""
    asked = _before_dashes(argv)
    streams = Streams(no_color="--no-color" in asked)
    try:
        if not argv and COMPLETING not in os.environ:
            with contextlib.redirect_stdout(sys.stderr):
                _call(["--help"])
            return WRONG_USE
        ended = _call(argv)
    except NobodyReadsError as error:
        return exit_of(error)
    except (KeyboardInterrupt, typer.Abort):
        ended = CANCELLED
    except (typer.TyperException, StopError, PromptKitError, OSError) as error:
        return _told(error, streams, json="--json" in asked)
    if ended == CANCELLED:  # typer's own way to tell an interruption
        return _told(CancelledError("cancelled"), streams, json="--json" in asked)
    return ended if isinstance(ended, int) else DONE


def _call(argv: Sequence[str]) -> Any:
    command = typer.main.get_command(app)
    return command.main(list(argv), prog_name="promptkit", standalone_mode=False, terminal_width=_width())


def _width() -> int:
    # That of the terminal, where typer would not go below 50.
    return max(20, min(shutil.get_terminal_size().columns, 100) - 2)


def _before_dashes(argv: Sequence[str]) -> Sequence[str]:
    return argv[: argv.index("--")] if "--" in argv else argv


def _told(error: Exception, streams: Streams, *, json: bool) -> int:
    if isinstance(error, typer.TyperException):
        status = WRONG_USE if error.exit_code == WRONG_USE else FAILED
        message, hint = error.format_message(), _where_help_is(error)
    else:
        status, message = exit_of(error), sentence_of(error)
        hint = error.hint if isinstance(error, RefusedError) else None
        error = error.refusal if isinstance(error, RefusedError) else error
    if json:
        streams.json_error(object_of(error, message, hint))
        return status
    if isinstance(error, CancelledError):
        streams.say(message)
    else:
        streams.error(message)
    if hint is not None:
        streams.say(hint)
    note = note_of(error)
    if note is not None:
        streams.say(f"note: {note}", DIM)
    return status


def _where_help_is(error: typer.TyperException) -> str | None:
    context = getattr(error, "ctx", None)
    return None if context is None else f"see `{context.command_path} --help`"
