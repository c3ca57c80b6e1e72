"""The decisions of the commands, as plain values: exits, contracts, sentences, places."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import pytest

from promptkit import OutputContract, errors
from promptkit._cli.asking import Typed, contract_of, hint_of
from promptkit._cli.catalog_folder import fault_from_here, nearest
from promptkit._cli.command_words import command_first
from promptkit._cli.exits import CancelledError, FailedError, StdoutClosedError, WrongUseError, exit_of
from promptkit._cli.failure import note_of, object_of, sentence_of, usage_text
from promptkit._cli.help_pages import folded_command
from promptkit._cli.init import next_steps
from promptkit._cli.show import asked_for
from promptkit._cli.starter_files import in_the_way
from promptkit._cli.trace import is_event
from promptkit._values.usage import KNOWN_ZERO, NO_USAGE, UNKNOWN_USAGE, TokenCount, shown

SCHEMA = OutputContract(kind="json_schema", schema="number", max_repairs=2)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (FailedError("x"), 1),
        (WrongUseError("x"), 2),
        (CancelledError("cancelled"), 130),
        (StdoutClosedError(), 141),
        (TimeoutError(), 1),
        (errors.InvalidConfigError(errors.Fault(message="x")), 1),
        (errors.UnknownPromptError("x"), 2),
        (errors.TemplateError("x"), 2),
        (errors.MissingProfileError("x"), 2),
        (errors.InputError("x"), 1),
        (errors.CredentialError("x"), 1),
        (errors.CapacityError("x"), 1),
        (errors.RateLimitError("x"), 1),
    ],
)
def test_wrong_use_and_failed_work_end_differently(error: BaseException, status: int) -> None:
    assert exit_of(error) == status


@pytest.mark.parametrize(
    ("typed", "own", "contract"),
    [
        ({}, SCHEMA, None),
        ({"output": "text"}, SCHEMA, OutputContract()),
        ({"output": "json"}, SCHEMA, OutputContract(kind="json")),
        ({"output": "json", "max_repairs": 1}, OutputContract(), OutputContract(kind="json", max_repairs=1)),
        ({"schema": "n"}, OutputContract(), OutputContract(kind="json_schema", schema="n")),
        ({"schema": "n", "output": "json"}, SCHEMA, OutputContract(kind="json_schema", schema="n")),
        ({"max_repairs": 0}, SCHEMA, OutputContract(kind="json_schema", schema="number")),
        ({"max_repairs": 5}, SCHEMA, msgspec.structs.replace(SCHEMA, max_repairs=5)),
        ({"max_repairs": 0}, OutputContract(), OutputContract()),
    ],
)
def test_options_replace_the_prompts_contract_as_far_as_they_go(
    typed: dict[str, Any], own: OutputContract, contract: OutputContract | None
) -> None:
    assert contract_of(Typed("ask", **typed), own).unwrap() == contract


@pytest.mark.parametrize(
    ("typed", "remedy"),
    [
        ({"output": "xml"}, "type --output text or --output json, or --schema ID"),
        ({"output": "text", "schema": "n"}, "leave one of them out"),
        ({"max_repairs": 1}, "add --output json or --schema ID"),
        ({"output": "text", "max_repairs": 1}, "a text is never invalid"),
    ],
)
def test_options_that_contradict_each_other_are_told(typed: dict[str, Any], remedy: str) -> None:
    assert remedy in contract_of(Typed("ask", **typed), OutputContract()).failure()


def test_a_hint_is_given_only_where_it_explains_the_error() -> None:
    left = ("--var a=TEXT", "--input b=FILE")
    assert hint_of(errors.TemplateError("x"), left) == "not given: --var a=TEXT --input b=FILE"
    assert hint_of(errors.TemplateError("x"), ()) is None
    assert hint_of(errors.UnknownProfileError("x"), left) is None
    assert hint_of(errors.InputError("x"), left) is None
    assert hint_of(errors.InputError("x"), left, attached=["b"]) == "not given: --var a=TEXT --input b=FILE"


def test_usage_names_input_and_output_always_and_the_rest_when_there_is_some() -> None:
    assert usage_text(UNKNOWN_USAGE) == "unknown input, unknown output tokens"
    usage = msgspec.structs.replace(
        shown(NO_USAGE), cache_read_tokens=TokenCount(value=3, known=True, complete=False), output_tokens=KNOWN_ZERO
    )
    assert usage_text(usage) == "0 input, 0 output, at least 3 cache read tokens"


def test_a_run_that_failed_after_it_was_sent_says_what_it_cost() -> None:
    error = errors.RateLimitError("slow down")
    assert note_of(error) is None
    error.attempts, error.usage = 3, UNKNOWN_USAGE
    assert note_of(error) == "the run made 3 attempts, and used unknown input, unknown output tokens"
    assert note_of(TimeoutError()) is None
    assert note_of(CancelledError("cancelled")) is None


def test_an_error_is_encoded_with_all_that_is_known_of_it() -> None:
    error = errors.RateLimitError("slow down", status=429, retry_after=7.0)
    error.run_id, error.attempts, error.usage = "r", 1, UNKNOWN_USAGE
    told = msgspec.json.decode(msgspec.json.encode(object_of(error, "slow down", "wait")))["error"]
    assert (told["type"], told["message"], told["hint"]) == ("RateLimitError", "slow down", "wait")
    assert (told["run_id"], told["attempts"], told["status"], told["retry_after"]) == ("r", 1, 429, 7.0)
    assert told["usage"]["input_tokens"] == {"value": 0, "known": False, "complete": False}
    faults = object_of(errors.InvalidConfigError(errors.Fault(message="x", file="f")), "x")["error"]["faults"]
    assert faults == (errors.Fault(message="x", file="f"),)
    assert object_of(errors.CapacityError("x", backend="b"), "x")["error"]["backend"] == "b"


def test_an_error_of_the_system_names_the_file() -> None:
    assert sentence_of(FileNotFoundError(2, "No such file", "x.txt")) == "x.txt: No such file"
    assert sentence_of(TimeoutError()) == "TimeoutError"


@pytest.mark.parametrize(
    ("argv", "first"),
    [
        (["-C", "a", "check"], ["check", "-C", "a"]),
        (["-Ca", "--json", "check", "b"], ["check", "-Ca", "--json", "b"]),
        (["--no-color", "--help"], ["--help"]),
        (["check", "-C", "a"], ["check", "-C", "a"]),
        (["--json"], ["--json"]),
        (["-C"], ["-C"]),
        (["--json", "--trace", "t"], ["--json", "--trace", "t"]),
        ([], []),
    ],
)
def test_options_before_a_command_are_read_as_its_own(argv: list[str], first: list[str]) -> None:
    assert command_first(argv) == first


def test_an_example_is_folded_so_that_a_shell_takes_it_as_one() -> None:
    line = "promptkit run ask --var question='Why is the sky blue?' --json"
    pieces = list(folded_command(line, 40))
    assert pieces == ["promptkit run ask --var \\", "  question='Why is the sky blue?' \\", "  --json"]
    assert list(folded_command(line, 80)) == [line]


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (b'{"kind":"run_started","run_id":"a","at":"x"}\n', True),
        (b'\xef\xbb\xbf{"at":"x","run_id":"a","kind":"of a later version"}\n', True),
        (b'{"kind":"run_sta', True),
        (b'{"kind":"a letter"}', False),
        (b"{}\n", False),
        (b'[[messages]]\nrole = "user"', False),
        (b"\xff", False),
    ],
)
def test_a_trace_is_known_by_its_first_line(line: bytes, event: bool) -> None:  # noqa: FBT001
    assert is_event(line) is event


def test_the_nearest_catalog_upward_is_taken() -> None:
    start = Path("/a/b/c")
    assert nearest(start, lambda folder: folder in {Path("/a"), Path("/a/b")}) == Path("/a/b")
    assert nearest(start, lambda folder: folder == start) == start
    assert nearest(start, lambda folder: False) is None


def test_a_fault_is_shown_with_the_way_to_its_file() -> None:
    fault = errors.Fault(message="is wrong.", file="prompts/a.toml", line=3)
    assert str(fault_from_here(fault, "")) == "prompts/a.toml:3: is wrong."
    assert str(fault_from_here(fault, "../my")) == "../my/prompts/a.toml:3: is wrong."
    assert str(fault_from_here(errors.Fault(message="is wrong.", file="/x/a.toml"), "my")) == "/x/a.toml: is wrong."
    assert str(fault_from_here(errors.Fault(message="is wrong."), "my")) == "is wrong."


def test_what_would_be_written_over_is_found_also_where_a_folder_is_needed() -> None:
    planned = [PurePosixPath("a.toml"), PurePosixPath("prompts/b.toml")]
    there = [PurePosixPath("prompts"), PurePosixPath("other"), PurePosixPath("a.toml")]
    assert in_the_way(planned, there) == (PurePosixPath("a.toml"), PurePosixPath("prompts"))


def test_the_next_steps_can_be_pasted() -> None:
    assert "  cd 'my prompts'\n" in next_steps("my prompts")
    assert "  cd ./-x\n" in next_steps("-x")
    assert "cd " not in next_steps(".")


def test_kinds_are_taken_in_the_singular_and_the_plural() -> None:
    assert asked_for("prompt", "a").unwrap() == asked_for("prompts", "a").unwrap() == ("prompts", "a")
    assert asked_for(None, None).unwrap() == (None, None)
    assert asked_for("schemas", None).unwrap() == ("schemas", None)
    assert asked_for("schema", "finding").unwrap() == ("schemas", "finding")
    for kind, identifier in (("model", None), ("", None)):
        assert "type show prompt ID" in asked_for(kind, identifier).failure()
