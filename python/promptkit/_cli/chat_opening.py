"""What a chat begins with, from what was typed: requests that a line completes, and where lines go."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from promptkit import Message, RunRequest
from promptkit._cli.arguments import Stdin, read_assignments
from promptkit._cli.asking import Asked, Typed, asked, hint_of, or_wrong_use
from promptkit._cli.chat_prompts import Routing, routing_of, shared_out, with_say
from promptkit._cli.exits import RefusedError, WrongUseError
from promptkit.errors import InvalidRequestError, PromptKitError, TemplateError

if TYPE_CHECKING:
    from promptkit import BlockingEngine, Catalog, PreparedRun, PromptDefinition, RunResult

SAMPLE = "?"  # stands for a line while nothing was said yet
STDIN = "chat reads your lines from standard input: give the value as text, or as a file with NAME=@FILE"


class Opening(NamedTuple):
    """The catalog with the prompt ``say``, the request that begins, the one for what follows, and where lines go.

    ``following`` is what was asked of the prompt that --continue-with names.
    """

    catalog: Catalog
    ask: Asked
    further: RunRequest
    routing: Routing
    say: str
    following: Asked | None = None

    def hint(self, error: Exception, *, further: bool = False) -> str | None:
        """Say what was not given, if that explains the error."""
        target, ask = (self.routing.further, self.following) if further else (self.routing.opening, self.ask)
        if ask is None or not isinstance(error, PromptKitError):
            return None
        return hint_of(error, [each for each in ask.missing if each != f"--var {target.variable}=TEXT"], ask.attached)

    def request(self, said: str | None, after: RunResult | None) -> RunRequest:
        """Complete a request: the first one, or one that continues a result."""
        target = self.routing.opening if after is None else self.routing.further
        request = self.ask.request if after is None else self.further
        if after is not None:
            # Nothing is inherited from a run; a line that is sent as it is has no session of its own.
            of_before = after.session_id if target.prompt_id == self.say else None
            request = msgspec.structs.replace(
                request, continue_from=after.exchange, session_id=request.session_id or of_before
            )
        if said is None:
            return request
        if target.variable is None:
            return msgspec.structs.replace(request, appended_messages=(Message(role="user", content=said),))
        return msgspec.structs.replace(request, variables={**request.variables, target.variable: said})


def opening_of(catalog: Catalog, typed: Typed, line: str | None, continue_with: str | None) -> Opening:
    """Read what was typed. Raises WrongUseError, FailedError, and UnknownPromptError for a prompt that is not there."""
    found = or_wrong_use(read_assignments(typed.variables, typed.json_variables, typed.inputs))
    if any(each.source == Stdin() for each in found):
        raise WrongUseError(STDIN)
    first, second = _shared_out(catalog, typed, continue_with)
    ask = asked(catalog, first, capture=True)
    prompt = _prompt(ask, catalog, ask.request.prompt_id)
    combined, say = with_say(catalog)
    further = _as_it_is(typed, ask.request, say, typed.profile or prompt.profile)
    after = following = None
    if continue_with is not None:
        other = _prompt(ask, catalog, continue_with)
        following = _by_prompt(catalog, second, other)
        further = following.request
        ask.files.add(following.files)
        after = (other, further.variables.keys())
    routing: Routing = or_wrong_use(routing_of(prompt, ask.request.variables.keys(), line, say, after))
    return Opening(
        combined, ask, ask.request if routing.opening == routing.further else further, routing, say, following
    )


def prepared(engine: BlockingEngine, opening: Opening) -> PreparedRun | None:
    """Let the engine look at the requests before anything is said. None if that depends on what will be said.

    Raises what the engine refuses.
    """
    variable = opening.routing.opening.variable
    details = _looked_at(engine, opening, opening.request(None if variable is None else SAMPLE, None), opening.ask)
    if opening.following is not None and opening.routing.opening != opening.routing.further:
        further = opening.routing.further.variable
        variables = {**opening.further.variables, **({} if further is None else {further: SAMPLE})}
        request = msgspec.structs.replace(opening.further, variables=variables)
        _looked_at(engine, opening, request, opening.following)
    return details


def _looked_at(engine: BlockingEngine, opening: Opening, request: RunRequest, ask: Asked) -> PreparedRun | None:
    further = ask is opening.following
    target = opening.routing.further if further else opening.routing.opening
    try:
        return engine.prepare(request)
    except InvalidRequestError as error:
        inputs_given = not any(each.startswith("--input ") for each in ask.missing)
        if isinstance(error, TemplateError) and target.variable is not None and inputs_given:
            return None  # the sample may be what does not fit
        hint = opening.hint(error, further=further)
        if hint is None:
            raise
        raise RefusedError(error, hint) from None


def _shared_out(catalog: Catalog, typed: Typed, continue_with: str | None) -> tuple[Typed, Typed]:
    """Give what was typed about the first prompt, and about the one that follows."""
    prompts = [None if each is None else catalog.prompts.get(each) for each in (typed.prompt_id, continue_with)]
    names = [() if each is None else each.variables for each in prompts]
    files = [() if each is None else each.inputs for each in prompts]
    variables, json_variables = shared_out(typed.variables, *names), shared_out(typed.json_variables, *names)
    inputs = shared_out(typed.inputs, *files)
    first, second = (
        typed._replace(variables=variables[place], json_variables=json_variables[place], inputs=inputs[place])
        for place in (0, 1)
    )
    return first, second


def _prompt(ask: Asked, catalog: Catalog, prompt_id: str) -> PromptDefinition:
    ask.engine.inspect_prompt(prompt_id)  # which knows near misses
    return catalog.prompts[prompt_id]


def _as_it_is(typed: Typed, opening: RunRequest, say: str, profile: str | None) -> RunRequest:
    """Make the request for lines that are sent as they are: options are meant for all lines."""
    asks = typed.output is not None or typed.schema is not None
    return RunRequest(
        prompt_id=say,
        profile=profile,
        output=opening.output if asks else None,
        session_id=opening.session_id,
        capture_exchange=True,
    )


def _by_prompt(catalog: Catalog, typed: Typed, prompt: PromptDefinition) -> Asked:
    own = typed.output is None and typed.schema is None and prompt.output.kind == "text"  # a text has no repairs
    first = catalog.prompts[typed.prompt_id]
    replaced = typed._replace(
        prompt_id=prompt.id,
        max_repairs=None if own else typed.max_repairs,
        profile=typed.profile or prompt.profile or first.profile,
    )
    return asked(catalog, replaced, capture=True)
