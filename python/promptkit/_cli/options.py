"""The options that several commands have, each with its words of help."""

import math
from pathlib import Path
from typing import Annotated

import typer

from promptkit._cli.completion import ids_of


def seconds_of(typed: str) -> float:
    """Read how many seconds. Raises BadParameter with what to type."""
    try:
        seconds = float(typed)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        msg = f"{typed!r} is no number of seconds: type one from 0 on, such as 30 or 0.5, or leave it out for no limit"
        raise typer.BadParameter(msg)
    return seconds


def count_of(typed: str) -> int:
    """Read how many. Raises BadParameter with what to type."""
    if not (typed.isascii() and typed.isdigit() and len(typed) < 10):
        msg = f"{typed!r} is no count: type a whole number from 0 on, such as 2"
        raise typer.BadParameter(msg)
    return int(typed)


def trace_file(typed: str) -> Path:
    """Read the name of a file for a trace. Raises BadParameter: standard output has the answer."""
    if typed in {"", "-"}:
        msg = f"{typed!r} is no file, and a trace goes to one: name it, such as trace.jsonl"
        raise typer.BadParameter(msg)
    return Path(typed)


CatalogOption = Annotated[
    Path | None,
    typer.Option(
        "--catalog",
        "-C",
        metavar="DIR",
        envvar="PROMPTKIT_CATALOG",
        show_envvar=False,
        help="Folder of the catalog. Else PROMPTKIT_CATALOG, else the nearest one upward that has promptkit.toml.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write the result as JSON, and an error too.")]
NoColorOption = Annotated[bool, typer.Option("--no-color", help="No colour. So does NO_COLOR in the environment.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Say more.")]

PromptArgument = Annotated[
    str, typer.Argument(metavar="ID", help="Id of the prompt.", autocompletion=ids_of("prompts"), show_default=False)
]
VarOption = Annotated[
    list[str] | None,
    typer.Option(
        "--var",
        metavar="NAME=TEXT",
        help="A variable. NAME=@FILE takes the text of a file, NAME=- that of stdin; NAME=@@x is the text @x.",
    ),
]
JsonVarOption = Annotated[
    list[str] | None,
    typer.Option(
        "--json-var", metavar="NAME=JSON", help="A variable that is not text. NAME=@FILE and NAME=- work too."
    ),
]
InputOption = Annotated[
    list[str] | None,
    typer.Option("--input", "-i", metavar="NAME=FILE", help="An input, from a file; NAME=- takes stdin."),
]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile", "-p", metavar="ID", help="Profile instead of the prompt's.", autocompletion=ids_of("profiles")
    ),
]
MessageOption = Annotated[
    list[str] | None, typer.Option("--message", "-m", metavar="TEXT", help="A user message after those of the prompt.")
]
OutputOption = Annotated[
    str | None,
    typer.Option("--output", metavar="text|json", help="What to ask for instead of the prompt's own contract."),
]
SchemaOption = Annotated[
    str | None,
    typer.Option(
        "--schema",
        metavar="ID",
        help="Ask for JSON under this schema of the catalog.",
        autocompletion=ids_of("schemas"),
    ),
]
RepairsOption = Annotated[
    int | None,
    typer.Option(
        "--max-repairs",
        metavar="N",
        parser=count_of,
        help="How often an invalid answer is sent back to be repaired.",
    ),
]
SessionOption = Annotated[
    str | None, typer.Option("--session-id", metavar="TEXT", help="Session id instead of the prompt's.")
]
LineOption = Annotated[
    str | None,
    typer.Option("--line", metavar="NAME", help="The variable that lines fill, where more than one is not given."),
]
ContinueOption = Annotated[
    str | None,
    typer.Option(
        "--continue-with",
        metavar="ID",
        help="A prompt for the lines after the first; they fill its one variable that is not given.",
        autocompletion=ids_of("prompts"),
    ),
]
TimeoutOption = Annotated[
    float | None, typer.Option("--timeout", metavar="SECONDS", parser=seconds_of, help="Give up after so long.")
]
TraceOption = Annotated[
    Path | None,
    typer.Option(
        "--trace", metavar="FILE", parser=trace_file, help="Append the events of the run, one JSON object a line."
    ),
]
