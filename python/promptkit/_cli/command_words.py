"""The words after ``promptkit``: which come before the name of a command, and where typer takes them."""

from collections.abc import Sequence

FLAGS = ("--json", "--no-color")
PAGES = ("-h", "--help", "--version")


def command_first(argv: Sequence[str]) -> Sequence[str]:
    """Give the words with the options that every command knows after its name, where typer takes them.

    >>> command_first(["-C", "mine", "--json", "show", "prompts"])
    ['show', '-C', 'mine', '--json', 'prompts']
    """
    before = of_every_command(argv)
    rest = argv[before:]
    if not before or not rest:
        return argv
    if rest[0] in PAGES:
        return rest
    return argv if rest[0].startswith("-") else [rest[0], *argv[:before], *rest[1:]]


def of_every_command(argv: Sequence[str]) -> int:
    """Count the words that are options of every command, up to the first that is none."""
    before = 0
    while before < len(argv):
        word = argv[before]
        if word in FLAGS or word.startswith("--catalog=") or (word.startswith("-C") and word != "-C"):
            before += 1
        elif word in {"-C", "--catalog"}:
            before += 2
        else:
            break
    return before
