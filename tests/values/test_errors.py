"""Errors are values: equal by class, message and fields, and nothing of them is lost in a pickle or a copy."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit import errors
from promptkit._values.results import Violation
from promptkit._values.usage import NO_USAGE, ReportedUsage
from promptkit.errors import (
    CapacityError,
    Fault,
    GenerationError,
    InvalidConfigError,
    OutputInvalidError,
    PromptKitError,
    listed,
    near,
    with_article,
)

CLASSES = [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, PromptKitError)]
TEXT = st.text(st.characters())  # surrogates too
FAULTS = (Fault(message="is wrong", key="profiles.a", file="f.toml", line=3, suggestion="b"), Fault(message="too"))


def full(cls: Any) -> PromptKitError:
    """Make an error of a class with every field set."""
    error: PromptKitError
    if cls is InvalidConfigError:
        error = cls(*FAULTS)
    elif cls is CapacityError:
        error = cls("no room", backend="b", running=1, waiting=2, max_concurrency=3, max_waiting=4, reason="re-entrant")
    elif issubclass(cls, GenerationError):
        error = cls(
            "failed",
            transient=True,
            status=503,
            provider_code="overloaded",
            retry_after=1.5,
            excerpt="<html>",
            response_id="r",
            reported=ReportedUsage(input_tokens=3),
        )
    elif cls is OutputInvalidError:
        error = cls("invalid", violations=(Violation(pointer="/a", message="is not it"),))
    else:
        error = cls("what happened")
    error.run_id, error.parent_run_id, error.attempts, error.usage = "r2", "r1", 3, NO_USAGE
    return error


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])  # noqa: S301
def test_every_error_pickles_and_copies_with_its_fields(cls: Any, again: Any) -> None:
    error = full(cls)
    other = again(error)
    assert other is not error
    assert type(other) is cls
    assert other == error
    assert hash(other) == hash(error)
    assert other.__dict__ == error.__dict__
    assert str(other) == str(error)
    assert other.args == error.args


@pytest.mark.parametrize("cls", CLASSES)
def test_errors_differ_by_class_message_and_fields(cls: Any) -> None:
    changed = full(cls)
    changed.run_id = "r9"
    assert full(cls) == full(cls)
    assert full(cls) != changed
    assert full(cls) != Exception(*full(cls).args)
    assert cls() == cls()


def test_every_class_is_exported_and_has_its_place_in_the_tree_of_the_docstring() -> None:
    assert {cls.__name__ for cls in CLASSES} | {"Fault"} == set(errors.__all__)
    for cls in CLASSES:
        assert cls.__name__ in (errors.__doc__ or "")
        assert cls.__doc__


def test_an_error_without_a_run_says_none() -> None:
    error = PromptKitError("x")
    assert (error.run_id, error.parent_run_id, error.attempts, error.usage) == (None, None, None, None)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (Fault(message="is wrong."), "is wrong."),
        (Fault(message="is wrong.", key="a.b"), "a.b: is wrong."),
        (Fault(message="is wrong.", key="a.b", file="f.toml"), "f.toml: a.b: is wrong."),
        (Fault(message="is wrong.", file="f.toml", line=3), "f.toml:3: is wrong."),
        (Fault(message="is wrong.", suggestion="c"), "is wrong. Did you mean 'c'?"),
    ],
)
def test_a_fault_is_one_line_with_the_place_first(fault: Fault, text: str) -> None:
    assert str(fault) == str(InvalidConfigError(fault)) == text


def test_several_faults_stand_one_a_line_under_their_count() -> None:
    lines = str(InvalidConfigError(*FAULTS)).splitlines()
    assert lines[0].startswith("2 faults")
    assert len(lines) == 3


def test_suggestions_are_near_and_lists_are_bounded() -> None:
    assert near("investgate", ["investigate", "other"]) == "investigate"
    assert near("xyz", ["investigate"]) is None
    assert listed([]) == "there are none"
    assert listed("ba") == "'a', 'b'"
    assert listed(map(str, range(100))).endswith("and 92 more")


@given(message=TEXT, key=st.none() | TEXT, file=st.none() | TEXT, suggestion=st.none() | TEXT)
def test_a_fault_of_any_text_prints_on_one_line_and_encodes(
    message: str, key: str | None, file: str | None, suggestion: str | None
) -> None:
    fault = Fault(message=message, key=key, file=file, suggestion=suggestion)
    assert str(fault).isprintable()
    assert str(InvalidConfigError(fault, fault)).encode().count(b"\n") == 2
    assert msgspec.json.decode(msgspec.json.encode([fault]), type=list[Fault]) == [fault]


def test_what_cannot_be_printed_is_escaped_where_it_can_be_seen() -> None:
    fault = Fault(message="a\x1b[31mb\n\u202e\x85é中🙂", file="pro\udcffmpts")
    assert str(fault) == "pro\\udcffmpts: a\\x1b[31mb\\n\\u202e\\x85é中🙂"
    assert fault.message == "a\x1b[31mb\n\u202e\x85é中🙂"


@pytest.mark.parametrize(
    ("name", "written"),
    [("int", "an int"), ("Exchange", "an Exchange"), ("object", "an object"), ("str", "a str"), ("User", "a User")],
)
def test_the_name_of_a_kind_has_its_article(name: str, written: str) -> None:
    assert with_article(name) == written
