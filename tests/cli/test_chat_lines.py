"""What is typed in a chat, and where it goes, as plain values."""

from __future__ import annotations

from typing import Any

import pytest
from returns.result import Failure, Success

from promptkit import Catalog, MessageTemplate, PromptDefinition
from promptkit._cli.chat_lines import COMMANDS, Command, Entry, Message, completions, help_lines, meaning, read_entry
from promptkit._cli.chat_prompts import (
    SAY,
    TEXT,
    Routing,
    Target,
    is_form,
    routing_of,
    sentence_of,
    shared_out,
    with_say,
)


def _entries(*lines: str) -> list[Any]:
    left = [*lines]
    found = []
    while (entry := read_entry(lambda _: left.pop(0) if left else None, "> ")) is not None:
        found.append(entry)
    return found


def test_each_line_is_an_entry() -> None:
    assert _entries("a", "", " b ") == [Success(Entry("a")), Success(Entry("")), Success(Entry(" b "))]


def test_a_line_that_ends_with_a_backslash_goes_on() -> None:
    assert _entries("a\\", "b\\", "c", "d") == [Success(Entry("a\nb\nc")), Success(Entry("d"))]


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (['"""', "a", "", "b", '"""'], "a\n\nb"),
        (['"""a', 'b"""'], "a\nb"),
        (['"""a"""'], "a"),
        (['"""', "/tree", "c:\\", '"""'], "/tree\nc:\\"),
    ],
)
def test_lines_in_quotes_are_one_message_whatever_is_in_them(lines: list[str], text: str) -> None:
    assert _entries(*lines) == [Success(Entry(text, quoted=True))]
    assert meaning(Entry(text, quoted=True)) == Success(Message(text))


def test_the_marker_says_whether_a_line_goes_on() -> None:
    asked: list[str] = []
    left = ["a\\", "b"]

    def read(marker: str) -> str:
        asked.append(marker)
        return left.pop(0)

    read_entry(read, "3> ")
    assert asked == ["3> ", "... "]


@pytest.mark.parametrize("lines", [["a\\"], ['"""', "a"], ['"""a']])
def test_what_the_end_cuts_off_is_not_sent(lines: list[str]) -> None:
    (entry,) = _entries(*lines)
    assert entry.failure().endswith("it was not sent")


@pytest.mark.parametrize(
    ("typed", "means"),
    [
        ("Hi", Message("Hi")),
        (" /tree", Message(" /tree")),
        ("//tree", Message("/tree")),
        ("/tree ", Command("/tree")),
        ("/back", Command("/back")),
        ("/back 12", Command("/back", 12)),
        ("/branch 0", Command("/branch", 0)),
        ("/exit", Command("/quit")),
        ("", None),
        ("  ", None),
    ],
)
def test_a_line_is_a_message_a_command_or_nothing(typed: str, means: Any) -> None:
    assert meaning(Entry(typed)) == Success(means)


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("/tre", "did you mean /tree?"),
        ("/etc/hosts is a file", "there is no command /etc/hosts: "),
        ("/back two", "type /back [N], such as /back 2"),
        ("/back -1", "type /back [N]"),
        ("/back \u0662", "type /back [N]"),
        ("/branch 1 2", "type /branch [NUMBER]"),
        ("/tree 1", "or //tree ... to send it as a message"),
    ],
)
def test_a_command_that_is_wrong_sends_nothing_and_says_what_to_type(typed: str, told: str) -> None:
    assert told in meaning(Entry(typed)).failure()


def test_commands_are_completed_and_messages_are_not() -> None:
    assert completions("/b") == ["/back", "/branch"]
    assert completions("") == completions("b") == []


@pytest.mark.parametrize("width", [40, 80, 120])
def test_help_names_every_command(width: int) -> None:
    lines = help_lines(width)
    assert all(any(line.startswith(name) for line in lines) for name in COMMANDS)


def _prompt(identifier: str = "ask", *roles: Any, variables: Any = (), inputs: Any = ()) -> PromptDefinition:
    messages = tuple(MessageTemplate(role=role, content="x") for role in roles or ("user",))
    return PromptDefinition(id=identifier, messages=messages, variables=variables, inputs=inputs)


def test_every_line_goes_to_a_prompt_of_one_user_message() -> None:
    routing = routing_of(_prompt(variables=["question", "tone"]), {"tone"}, None, SAY).unwrap()
    assert routing == Routing(Target("ask", "question"), Target("ask", "question"))
    assert sentence_of(routing, SAY) == "each line fills 'question' of ask"


@pytest.mark.parametrize(
    "prompt",
    [
        _prompt("ask", "system", "user", variables=["question"]),
        _prompt("ask", "user", "assistant", "user", variables=["question"]),
        _prompt("ask", variables=["question"], inputs=["letter"]),
    ],
)
def test_a_prompt_that_says_more_is_said_once(prompt: PromptDefinition) -> None:
    assert not is_form(prompt)
    routing = routing_of(prompt, (), None, SAY).unwrap()
    assert routing == Routing(Target("ask", "question"), Target(SAY, TEXT))
    assert sentence_of(routing, SAY) == "your first line fills 'question' of ask; those after it are sent as they are"


def test_a_prompt_that_needs_no_line_begins_by_itself() -> None:
    routing = routing_of(_prompt(variables=["tone"]), {"tone"}, None, SAY).unwrap()
    assert routing.begins_by_itself
    assert routing == Routing(Target("ask", None), Target(SAY, TEXT))
    assert sentence_of(routing, SAY) == "ask begins by itself; your lines are sent as they are"


def test_another_prompt_can_take_what_follows() -> None:
    follow = _prompt("more", variables=["a", "b"])
    routing = routing_of(_prompt(variables=["question"]), (), None, SAY, (follow, {"a"})).unwrap()
    assert routing.further == Target("more", "b")
    assert sentence_of(routing, SAY) == "your first line fills 'question' of ask; those after it fill 'b' of more"
    for has in ((), {"a", "b"}):
        refused = routing_of(_prompt(), (), None, SAY, (follow, has)).failure()
        assert refused.startswith("--continue-with more: your lines fill one variable, and it has ")


def test_more_than_one_free_variable_is_refused_or_chosen_from() -> None:
    prompt = _prompt(variables=["a", "b"])
    assert routing_of(prompt, (), None, SAY).failure() == (
        "ask has 2 variables that are not given (a, b), and your lines fill one: give the others (--var b=TEXT), or "
        "name it (--line a)"
    )
    assert routing_of(prompt, (), "b", SAY).unwrap().opening == Target("ask", "b")
    assert isinstance(routing_of(prompt, (), "c", SAY), Failure)
    assert isinstance(routing_of(prompt, {"a"}, "a", SAY), Failure)


def test_the_prompt_that_sends_lines_as_they_are_collides_with_none() -> None:
    catalog, say = with_say(Catalog(prompts=[_prompt(SAY)]))
    assert say not in {SAY, ""}
    assert catalog.prompts[say].variables == (TEXT,)


def test_values_go_to_the_prompts_that_declare_them() -> None:
    typed = ["a=1", "b=2", "both=3", "neither=4"]
    assert shared_out(typed, {"a", "both"}, {"b", "both"}) == (["a=1", "both=3", "neither=4"], ["b=2", "both=3"])
