"""What is shown of a definition is what the definitions say, and nothing of who asks."""

from __future__ import annotations

import pytest

from promptkit import Backend, MessageTemplate, Profile, PromptDefinition
from promptkit._prepare.inspection import backend_details, profile_details, prompt_details
from promptkit._values.catalog import Definitions
from promptkit._values.frozen import FrozenDict

PLAIN = PromptDefinition(id="team/plain", messages=(MessageTemplate(role="user", content="hi"),))
DEFINITIONS = Definitions(
    prompts=FrozenDict({PLAIN.id: PLAIN}),
    profiles=FrozenDict({"team/p": Profile(id="team/p", backend="team/b", model="m")}),
    backends=FrozenDict({"team/b": Backend(id="team/b", kind="embedded", max_waiting=1)}),
    schemas=FrozenDict(),
    fragments=FrozenDict({"team/plain": FrozenDict({"tone.txt": "Be kind."})}),
    sources=FrozenDict({"team/plain": "prompts/team/plain.toml"}),
)


def test_the_fragments_and_the_file_of_a_prompt_are_shown() -> None:
    details = prompt_details(DEFINITIONS, "team/plain").unwrap()
    assert details.fragments == {"tone.txt": "Be kind."}
    assert details.source == "prompts/team/plain.toml"


@pytest.mark.parametrize("namespace", ["", "team"])
def test_details_do_not_depend_on_the_view(namespace: str) -> None:
    assert prompt_details(DEFINITIONS, "team/plain", namespace) == prompt_details(DEFINITIONS, "team/plain")
    assert profile_details(DEFINITIONS, "team/p", namespace) == profile_details(DEFINITIONS, "team/p")
    assert backend_details(DEFINITIONS, "team/b", (1, 2), namespace) == backend_details(DEFINITIONS, "team/b", (1, 2))


def test_the_concurrency_shown_is_the_resolved_one_beside_the_counts_given() -> None:
    details = backend_details(DEFINITIONS, "team/b", (1, 2)).unwrap()
    assert (details.max_concurrency, details.max_waiting, details.running, details.waiting) == (1, 1, 1, 2)
