"""The commands and their options: what typer reads.

Each command is a function of its own file, and imported only when it is called.
"""

from pathlib import Path
from typing import Annotated

import typer

from promptkit._cli.completion import ids_of_kind, kinds
from promptkit._cli.exits import WrongUseError
from promptkit._cli.help_pages import Contents, Page
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
from promptkit._cli.streams import Streams

app = typer.Typer(
    name="promptkit",
    cls=Contents,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:  # noqa: FBT001  # typer calls it
    if asked:
        from importlib.metadata import version

        Streams().result(f"promptkit {version('promptkit-engine')}")
        raise typer.Exit


def examples(*lines: str) -> str:
    """Give the end of a command's help."""
    return "\n".join(lines)


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
    """Run configured prompts against language models.

    --catalog DIR, --json and --no-color can stand before the name of a command as well as after it.
    """


@app.command(cls=Page, epilog=examples("promptkit init my-prompts", "promptkit init ."))
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write into; made if it is not there.")],
    *,
    json: JsonOption = False,
    no_color: NoColorOption = False,
) -> int:
    """Make a starter: a small catalog that runs, and a program. Nothing is ever overwritten."""
    from promptkit._cli.init import init

    return init(folder, json=json, streams=Streams(no_color=no_color, json=json))


@app.command(
    cls=Page, epilog=examples("promptkit check", "promptkit check my-prompts", "promptkit check --json | jq .faults")
)
def check(
    ctx: typer.Context,
    folder: Annotated[Path | None, typer.Argument(metavar="DIR", help="The same as --catalog.")] = None,
    *,
    catalog: CatalogOption = None,
    json: JsonOption = False,
    no_color: NoColorOption = False,
) -> int:
    """Say everything that is wrong with a catalog. The exit status is 1 if anything is."""
    from promptkit._cli.check import check

    if folder is not None and str(ctx.get_parameter_source("catalog")).endswith("COMMANDLINE"):
        from promptkit._cli.user_files import shown_path

        msg = f"two folders are named, {shown_path(folder)} and {shown_path(catalog)}: leave one out"
        raise WrongUseError(msg)
    return check(folder or catalog, json=json, streams=Streams(no_color=no_color, json=json))


@app.command(
    cls=Page,
    epilog=examples(
        "promptkit show",
        "promptkit show prompts",
        "promptkit show profile talk --json",
        "promptkit show schema finding",
    ),
)
def show(
    kind: Annotated[
        str | None,
        typer.Argument(metavar="KIND", help="prompt, profile, backend or schema.", autocompletion=kinds),
    ] = None,
    identifier: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="Which one; without it all are listed.", autocompletion=ids_of_kind),
    ] = None,
    *,
    catalog: CatalogOption = None,
    json: JsonOption = False,
    no_color: NoColorOption = False,
) -> int:
    """Show what there is in a catalog. Or one prompt, profile, backend or schema, with all that is known of it."""
    from promptkit._cli.show import show

    return show(kind, identifier, catalog=catalog, json=json, streams=Streams(no_color=no_color, json=json))


@app.command(
    cls=Page,
    epilog=examples(
        "promptkit render ask --var question=Why?",
        "promptkit render read --input letter=letter.txt --var question=@q.txt -v",
        "promptkit render ask --var question=Why? --json | jq .messages",
    ),
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
    from promptkit._cli.asking import typed_of
    from promptkit._cli.render import render

    typed = typed_of(prompt_id, var, json_var, inputs, message, profile, session_id, output, schema, max_repairs)
    return render(typed, catalog=catalog, json=json, verbose=verbose, streams=Streams(no_color=no_color, json=json))


@app.command(
    cls=Page,
    epilog=examples(
        "promptkit run ask --var question='Why is the sky blue?'",
        "promptkit run read --input letter=letter.txt --var question=- < question.txt",
        "promptkit run ask --var question=Why? --json | jq .usage",
    ),
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
    from promptkit._cli.asking import typed_of
    from promptkit._cli.run import run

    typed = typed_of(prompt_id, var, json_var, inputs, message, profile, session_id, output, schema, max_repairs)
    streams = Streams(no_color=no_color, json=json)
    return run(typed, catalog=catalog, timeout=timeout, trace=trace, json=json, verbose=verbose, streams=streams)


@app.command(
    cls=Page,
    epilog=examples(
        "promptkit chat ask",
        "promptkit chat read --input letter=letter.txt --continue-with ask",
        "printf '%s\\n' 'Who are you?' '/back' 'What can you do?' | promptkit chat ask",
    ),
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
    from promptkit._cli.asking import typed_of
    from promptkit._cli.chat import ChatOptions, chat

    typed = typed_of(prompt_id, var, json_var, inputs, None, profile, session_id, output, schema, max_repairs)
    options = ChatOptions(timeout, verbose)
    streams = Streams(no_color=no_color, json=json)
    return chat(
        typed, line=line, continue_with=continue_with, catalog=catalog, trace=trace, options=options, streams=streams
    )


@app.command(cls=Page, epilog=examples("promptkit demo", "promptkit demo --json | jq .usage"))
def demo(
    *,
    trace: TraceOption = None,
    json: JsonOption = False,
    no_color: NoColorOption = False,
) -> int:
    """Hold a short conversation with a small local model. It ends with the tree of its branches, and what they used."""
    from promptkit._cli.demo import demo

    return demo(trace=trace, json=json, streams=Streams(no_color=no_color, json=json))


@app.command(
    cls=Page,
    epilog=examples(
        "promptkit run ask --var question=Why? --trace trace.jsonl",
        "promptkit report trace.jsonl --output report.html",
        "promptkit report trace.jsonl --json | jq .totals",
    ),
)
def report(
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="A file that --trace has written; - is stdin.")],
    *,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to write the page; - is stdout, as without it."),
    ] = None,
    json: JsonOption = False,
    no_color: NoColorOption = False,
) -> int:
    """Make a page of HTML from a trace. It shows a timeline, the tree of runs and their usage, and needs no network."""
    from promptkit._cli.report import report

    return report(trace, output=output, json=json, streams=Streams(no_color=no_color, json=json))
