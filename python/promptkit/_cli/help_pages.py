"""The pages of ``--help``: written as results are, and folded between words."""

import re
from collections.abc import Iterable
from functools import partial
from typing import Any

from typer.core import TyperCommand, TyperGroup

from promptkit._cli.command_words import command_first
from promptkit._cli.streams import Streams

NARROW = 60  # columns
WORDS = re.compile(r"(?:'[^']*'|\S)+")  # what stands in quotes is one


class Page(TyperCommand):
    """A command whose page of help is a result: where it cannot be written, that is told."""

    def get_help_option(self, ctx: Any) -> Any:
        """Give the option, which shows the page."""
        return _through_streams(super().get_help_option(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Name the arguments as all commands do: ID, and [DIR] for one that can be left out."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the page."""
        _below_where_narrow(formatter)
        super().format_help(ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  # typer's signature
        """Write the examples."""
        _write_examples(self.epilog, formatter)


class Contents(TyperGroup):
    """The page that lists the commands, each with its whole first sentence."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words; a shell that completes them comes here as well."""
        return super().parse_args(ctx, list(command_first(args)))

    def get_help_option(self, ctx: Any) -> Any:
        """Give the option, which shows the page."""
        return _through_streams(super().get_help_option(ctx))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands."""
        known = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, first_sentence(each.help or "")) for name, each in known if each is not None])

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the page."""
        _below_where_narrow(formatter)
        super().format_help(ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  # typer's signature
        """Write the examples."""
        _write_examples(self.epilog, formatter)


def first_sentence(text: str) -> str:
    """Give what a help begins with.

    >>> first_sentence("Make a starter. Nothing is overwritten.")
    'Make a starter.'
    """
    return re.split(r"(?<=\.)\s", text.strip(), maxsplit=1)[0]


def folded_command(line: str, width: int) -> Iterable[str]:
    r"""Break a command between its words so that a shell still takes it as one.

    >>> list(folded_command("promptkit run ask --var question='Why is it?'", 30))
    ['promptkit run ask --var \\', "  question='Why is it?'"]
    """
    begun = ""
    for word in WORDS.findall(line):
        if begun.strip() and len(begun) + len(word) + len("  \\") > width and len(line) > width:
            yield f"{begun} \\"
            begun = f"  {word}"
        else:
            begun = f"{begun} {word}" if begun else word
    yield begun


def _through_streams(option: Any) -> Any:
    if option is not None:
        option.callback = _shown
    return option


def _shown(ctx: Any, param: Any, value: Any) -> None:  # noqa: ARG001  # typer calls it so
    if value and not ctx.resilient_parsing:
        Streams().result(ctx.get_help())
        ctx.exit()


def _below_where_narrow(formatter: Any) -> None:
    """Let what an option does stand below its name, where beside it there is room for a word only."""
    if formatter.width < NARROW:
        formatter.write_dl = partial(formatter.write_dl, col_max=6)


def _write_examples(epilog: str | None, formatter: Any) -> None:
    if not epilog:
        return
    formatter.write_paragraph()
    with formatter.indentation():
        formatter.write("  Examples:\n")
        for line in epilog.splitlines():
            for piece in folded_command(line, formatter.width - 2):
                formatter.write(f"    {piece}\n")
