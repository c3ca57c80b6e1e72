"""Completed runs: decoding, the exchange, and what survives a copy, a pickle or an encoder."""

from __future__ import annotations

import copy
import dataclasses
import enum
import pickle
import traceback
from datetime import UTC, datetime
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from promptkit import RunResult, Timing, Validation, Violation
from promptkit._history import Turn
from promptkit._values.exchange import exchange_of
from promptkit._values.results import with_exchange
from promptkit._values.usage import UNKNOWN_USAGE
from promptkit.errors import NotCapturedError, OutputInvalidError

MARK = "CONTENT-MARK"


class Struct(msgspec.Struct):
    a: int
    b: dict[str, list[int]] = {}


@dataclasses.dataclass
class Data:
    a: int


class Table(TypedDict):
    a: int


class Model(pydantic.BaseModel):
    a: int
    b: dict[str, list[int]] = {}


class Renamed(msgspec.Struct, rename={"a": "a/b"}):
    a: int


def result(value: Any = None, status: Any = "valid", **fields: Any) -> RunResult:
    made: dict[str, Any] = {
        "run_id": "r2",
        "parent_run_id": "r1",
        "prompt_id": "p",
        "profile": "fast",
        "backend": "b",
        "model": "m",
        "response_id": None,
        "session_id": None,
        "definition_hash": "sha256:0",
        "rendered_hash": "sha256:1",
        "raw_output": MARK,
        "value": value,
        "finish_reason": "stop",
        "refusal": None,
        "validation": Validation(status=status),
        "captured": False,
        "attempts": 1,
        "transient_retries": 0,
        "repair_calls": 0,
        "usage": UNKNOWN_USAGE,
        "timing": Timing(started_at=datetime(2026, 1, 1, tzinfo=UTC), duration=0.5),
        **fields,
    }
    return RunResult(**made)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Struct, {"a": 1}, Struct(a=1)),
        (Data, {"a": 1}, Data(a=1)),
        (Table, {"a": 1}, {"a": 1}),
        (Model, {"a": 1}, Model(a=1)),
        (int, 2**200, 2**200),
        (list[int], [1, 2], [1, 2]),
        (dict[str, float], {"a": 1}, {"a": 1.0}),
        (int | str, "x", "x"),
        (None | int, None, None),
        (Any, {"a": [None]}, {"a": [None]}),
    ],
)
def test_a_valid_output_is_given_as_a_value_of_the_type(kind: Any, value: Any, expected: Any) -> None:
    assert result(value).decode(kind) == expected


@pytest.mark.parametrize(
    ("kind", "value", "pointer"),
    [
        (Struct, {"a": MARK}, "/a"),
        (Struct, {"a": 1, "b": {MARK: [1, MARK]}}, "/b"),
        (Renamed, {"a/b": MARK}, "/a~1b"),
        (Data, {}, ""),
        (list[int], [1, MARK], "/1"),
        (list[list[int]], [[1], [1, 2, MARK]], "/1/2"),
        (int, MARK, ""),
        (int | None, MARK, ""),
        (Model, {"a": MARK}, "/a"),
        (list[Table], [{"a": MARK}], "/0/a"),
    ],
)
def test_what_does_not_fit_says_where_and_never_repeats_the_output(kind: Any, value: Any, pointer: str) -> None:
    with pytest.raises(OutputInvalidError) as caught:
        result(value).decode(kind)
    error = caught.value
    assert MARK not in str(error)
    assert MARK not in "".join(traceback.format_exception(error)).replace(repr(value), "")
    assert [violation.pointer for violation in error.violations] == [pointer]
    assert (error.run_id, error.parent_run_id, error.attempts, error.usage) == ("r2", "r1", 1, UNKNOWN_USAGE)


class Colour(enum.Enum):
    RED = "red"


@pytest.mark.parametrize("text", [f"x - at `$[0].{MARK}`", f"x - at `$[0]{MARK}", f"' - at `$.{MARK}`"])
def test_text_that_imitates_a_place_is_not_repeated(text: str) -> None:
    kinds: list[tuple[Any, Any]] = [(Colour, text), (list[Colour], [text]), (dict[Colour, int], {text: 1})]
    for kind, value in kinds:
        with pytest.raises(OutputInvalidError) as caught:
            result(value).decode(kind)
        assert MARK not in str(caught.value)
        assert MARK not in str(caught.value.violations)


def test_keys_of_a_pydantic_complaint_are_escaped() -> None:
    with pytest.raises(OutputInvalidError) as caught:
        result({"a": 1, "b": {"x/y~z": ["no"]}}).decode(Model)
    assert [violation.pointer for violation in caught.value.violations] == ["/b/x~1y~0z/0"]


@pytest.mark.parametrize(("status", "reason"), [("invalid", "is invalid"), ("not_requested", "has a text contract")])
def test_an_output_that_is_not_valid_is_not_decoded(status: str, reason: str) -> None:
    violations = (Violation(pointer="/a", message="m"),) if status == "invalid" else ()
    with pytest.raises(OutputInvalidError, match=reason) as caught:
        result(None, validation=Validation(status=status, violations=violations)).decode(int)  # type: ignore[arg-type]
    assert caught.value.violations == violations
    assert MARK not in str(caught.value)


def test_an_uncaptured_result_says_how_to_capture() -> None:
    with pytest.raises(NotCapturedError, match="capture_exchange=True") as caught:
        _ = result().exchange
    assert "r2" in str(caught.value)
    assert (caught.value.run_id, caught.value.parent_run_id) == ("r2", "r1")


def test_copies_keep_the_exchange_and_have_a_value_of_their_own() -> None:
    exchange = exchange_of(Turn(None, [("user", "q", None)]).capture("r2", MARK))
    made = with_exchange(result({"a": [1]}, captured=True), exchange)
    for again in (copy.copy(made), copy.deepcopy(made)):
        assert again == made
        assert again.exchange is exchange
    mine = copy.deepcopy(made)
    mine.value["a"].append(2)  # type: ignore[index,union-attr,call-overload]
    assert made.value == {"a": [1]}


def test_an_exchange_never_leaves_with_an_encoded_or_pickled_result() -> None:
    exchange = exchange_of(Turn(None, [("user", "HISTORY", None)]).capture("r2", "x"))
    made = with_exchange(result({"a": 1}, captured=True), exchange)
    for left in (msgspec.json.encode(made), pickle.dumps(made), repr(msgspec.to_builtins(made)).encode()):
        assert b"HISTORY" not in left
        assert b"_exchange" not in left
    for back in (
        pickle.loads(pickle.dumps(made)),  # noqa: S301  # made here
        msgspec.json.decode(msgspec.json.encode(made), type=RunResult),
    ):
        assert back == made
        with pytest.raises(NotCapturedError, match="never leaves its process"):
            _ = back.exchange


def test_a_value_with_integers_of_any_size_encodes() -> None:
    assert f'"value":[{2**200}]'.encode() in msgspec.json.encode(result([2**200]))
