"""What is typed in a chat, and where it goes, as plain values."""

from __future__ import annotations

from typing import Any

import pytest
from returns.result import Failure, Success

from promptkit import Catalog, MessageTemplate, PromptDefinition
from promptkit._cli.chat_lines import COMMANDS, Do, Entry, Say, completions, help_lines, meaning, read_entry
from promptkit._cli.chat_prompts import SAY, TEXT, Way, Ways, is_form, sentence_of, shared_out, ways_of, with_say


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
    assert meaning(Entry(text, quoted=True)) == Success(Say(text))


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
        ("Hi", Say("Hi")),
        (" /tree", Say(" /tree")),
        ("//tree", Say("/tree")),
        ("/tree ", Do("/tree")),
        ("/back", Do("/back")),
        ("/back 12", Do("/back", 12)),
        ("/branch 0", Do("/branch", 0)),
        ("/exit", Do("/quit")),
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
    ways = ways_of(_prompt(variables=["question", "tone"]), {"tone"}, None, SAY).unwrap()
    assert ways == Ways(Way("ask", "question"), Way("ask", "question"))
    assert sentence_of(ways, SAY) == "each line fills 'question' of ask"


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
    ways = ways_of(prompt, (), None, SAY).unwrap()
    assert ways == Ways(Way("ask", "question"), Way(SAY, TEXT))
    assert sentence_of(ways, SAY) == "your first line fills 'question' of ask; those after it are sent as they are"


def test_a_prompt_that_needs_no_line_begins_by_itself() -> None:
    ways = ways_of(_prompt(variables=["tone"]), {"tone"}, None, SAY).unwrap()
    assert ways.begins_by_itself
    assert ways == Ways(Way("ask", None), Way(SAY, TEXT))
    assert sentence_of(ways, SAY) == "ask begins by itself; your lines are sent as they are"


def test_another_prompt_can_take_what_follows() -> None:
    follow = _prompt("more", variables=["a", "b"])
    ways = ways_of(_prompt(variables=["question"]), (), None, SAY, (follow, {"a"})).unwrap()
    assert ways.further == Way("more", "b")
    assert sentence_of(ways, SAY) == "your first line fills 'question' of ask; those after it fill 'b' of more"
    for has in ((), {"a", "b"}):
        refused = ways_of(_prompt(), (), None, SAY, (follow, has)).failure()
        assert refused.startswith("--continue-with more: your lines fill one variable, and it has ")


def test_more_than_one_free_variable_is_refused_or_chosen_from() -> None:
    prompt = _prompt(variables=["a", "b"])
    assert ways_of(prompt, (), None, SAY).failure() == (
        "ask has 2 variables that are not given (a, b), and your lines fill one: give the others (--var b=TEXT), or "
        "name it (--line a)"
    )
    assert ways_of(prompt, (), "b", SAY).unwrap().opening == Way("ask", "b")
    assert isinstance(ways_of(prompt, (), "c", SAY), Failure)
    assert isinstance(ways_of(prompt, {"a"}, "a", SAY), Failure)


def test_the_prompt_that_sends_lines_as_they_are_collides_with_none() -> None:
    catalog, say = with_say(Catalog(prompts=[_prompt(SAY)]))
    assert say not in {SAY, ""}
    assert catalog.prompts[say].variables == (TEXT,)


def test_values_go_to_the_prompts_that_declare_them() -> None:
    typed = ["a=1", "b=2", "both=3", "neither=4"]
    assert shared_out(typed, {"a", "both"}, {"b", "both"}) == (["a=1", "both=3", "neither=4"], ["b=2", "both=3"])
