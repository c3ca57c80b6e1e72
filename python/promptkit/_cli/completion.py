"""What a shell completes: the ids of the catalog. Whatever goes wrong is no completion, and not a word."""

from collections.abc import Callable

import typer

SHOWN = ("prompt", "profile", "backend", "schema")


def ids_of(kind: str) -> Callable[[typer.Context, str], list[str]]:
    """Give the completion of the ids of "prompts", "profiles", "backends" or "schemas"."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        return _known(ctx, kind, incomplete)

    return complete


def kinds(incomplete: str) -> list[str]:
    """Complete what can be shown."""
    return [kind for kind in SHOWN if kind.startswith(incomplete)]


def ids_of_kind(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the ids of the kind that stands before."""
    kind = str(ctx.params.get("kind") or "").removesuffix("s")
    return _known(ctx, f"{kind}s", incomplete) if kind in SHOWN else []


def _known(ctx: typer.Context, kind: str, incomplete: str) -> list[str]:
    from promptkit._cli.catalog_folder import opened_catalog

    try:
        known = getattr(opened_catalog(ctx.params.get("catalog")), kind)
    except Exception:  # noqa: BLE001  # a shell shows what is said here in the middle of the line
        return []
    return sorted(name for name in known if name.startswith(incomplete))
