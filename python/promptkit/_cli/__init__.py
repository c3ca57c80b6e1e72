"""The command line: one file a command, and beside them the facts that several commands share."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MISSING = (
    "error: the command line needs typer and rich, which are not installed: "
    "pip install 'promptkit-engine[cli]' (in a clone: pip install '.[cli]')\n"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and give its exit status; ``argv`` is without the name of the program."""
    try:
        return _main(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:  # before a command could begin, or after it had ended
        words = sys.argv[1:] if argv is None else argv
        told = '{"error":{"type":"Interrupted","message":"cancelled"}}' if "--json" in words else "cancelled"
        if sys.stderr is not None:
            sys.stderr.write(f"{told}\n")
        return 130


def _main(argv: Sequence[str]) -> int:
    try:
        import rich  # noqa: F401  # is there or not
        import typer  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name not in {"rich", "typer"}:
            raise
        sys.stderr.write(MISSING)
        return 2
    from promptkit._cli.invocation import invoke

    return invoke(argv)
