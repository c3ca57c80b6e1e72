"""How the lines of a chat become requests: which prompt a line goes to, and which variable of it the line fills.

A prompt of one user message is a form for every line. One that says more, such as a system message, examples or a file,
is an opening: it is sent once, since to send it again with each line would repeat all that, and some backends refuse a
system message in the middle. What follows an opening is sent as it is, unless a prompt is named for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from returns.result import Failure, Result, Success

from promptkit import Catalog, MessageTemplate, PromptDefinition

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

SAY = "promptkit-chat/say"
TEXT = "text"


class Target(NamedTuple):
    """Where a line goes: a prompt, and a variable of it. Without a variable it is added as a user message."""

    prompt_id: str
    variable: str | None


class Routing(NamedTuple):
    """Where the first line of a branch from the beginning goes, and where all others go."""

    opening: Target
    further: Target

    @property
    def begins_by_itself(self) -> bool:
        """Whether the prompt is run before anything is said."""
        return self.opening.variable is None


def with_say(catalog: Catalog) -> tuple[Catalog, str]:
    """Add a prompt that is one user message, as it is, and give its id, which no other prompt has."""
    identifier = SAY
    while identifier in catalog.prompts:
        identifier += "-"
    message = MessageTemplate(role="user", content="{{ text }}")
    say = PromptDefinition(id=identifier, messages=(message,), variables=(TEXT,))
    return catalog | Catalog(prompts=[say]), identifier


def routing_of(
    prompt: PromptDefinition,
    given: Collection[str],
    line: str | None,
    say: str,
    following: tuple[PromptDefinition, Collection[str]] | None = None,
) -> Result[Routing, str]:
    """Decide where lines go.

    ``given`` are the variables that have values already, ``line`` is the one that ``--line`` names, ``say`` the prompt
    that sends a line as it is, ``following`` the prompt that ``--continue-with`` names, with the variables it has.
    """
    if line is not None and line not in prompt.variables:
        there = ", ".join(prompt.variables) or "none"
        return Failure(f"--line {line!r} is no variable of {prompt.id} (its variables: {there})")
    if line is not None and line in given:
        return Failure(f"--line {line!r} has a value already: leave --line or --var {line} out")
    free = [line] if line is not None else [name for name in prompt.variables if name not in given]
    if len(free) > 1:
        return Failure(
            f"{prompt.id} has {len(free)} variables that are not given ({', '.join(free)}), and your lines fill one: "
            f"give the others ({' '.join(f'--var {name}=TEXT' for name in free[1:])}), or name it (--line {free[0]})"
        )
    opening = Target(prompt.id, free[0] if free else None)
    if following is None:
        return Success(Routing(opening, opening if free and is_form(prompt) else Target(say, TEXT)))
    other, has = following
    left = [name for name in other.variables if name not in has]
    if len(left) != 1:
        have = f"{len(left)} variables that are not given ({', '.join(left)})" if left else "none that is not given"
        return Failure(f"--continue-with {other.id}: your lines fill one variable, and it has {have}")
    return Success(Routing(opening, Target(other.id, left[0])))


def is_form(prompt: PromptDefinition) -> bool:
    """Say whether a prompt is made to be said again and again: one user message, and no file."""
    return len(prompt.messages) == 1 and prompt.messages[0].role == "user" and not prompt.inputs


def sentence_of(routing: Routing, say: str) -> str:
    """Tell a person where the lines go."""
    opening, further = routing
    if opening == further:
        return f"each line fills {opening.variable!r} of {opening.prompt_id}"
    then = "are sent as they are" if further.prompt_id == say else f"fill {further.variable!r} of {further.prompt_id}"
    if opening.variable is None:
        return f"{opening.prompt_id} begins by itself; your lines {then}"
    return f"your first line fills {opening.variable!r} of {opening.prompt_id}; those after it {then}"


def shared_out(
    typed: Sequence[str], opening: Collection[str], following: Collection[str]
) -> tuple[Sequence[str], Sequence[str]]:
    """Give the typed values (NAME=VALUE) for the opening prompt, and those for the one that follows.

    What neither declares goes to the opening, which refuses it by its name.
    """
    name = {each: each.partition("=")[0] for each in typed}
    return (
        [each for each in typed if name[each] in opening or name[each] not in following],
        [each for each in typed if name[each] in following],
    )
