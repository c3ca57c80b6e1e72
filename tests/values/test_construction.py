"""Values check, convert and freeze what they are made from."""

from __future__ import annotations

import dataclasses
import enum
import math
import types
from pathlib import Path
from typing import Any

import msgspec
import pytest

from promptkit import (
    Backend,
    CacheControl,
    CoordinateRequest,
    Exchange,
    FilePart,
    GenerationReply,
    ImagePart,
    Message,
    MessageTemplate,
    OutputContract,
    Profile,
    PromptDefinition,
    RetryPolicy,
    RunRequest,
    TextPart,
)
from promptkit._history import Turn
from promptkit._values.exchange import exchange_of
from promptkit.errors import InvalidConfigError, InvalidRequestError, MalformedReplyError, PromptKitError


class Colour(str, enum.Enum):  # noqa: UP042  # its str() is not its text, and people have many of them
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Ratio(float):
    pass


def request(**fields: Any) -> RunRequest:
    return RunRequest(**{"prompt_id": "p", **fields})


def profile(**fields: Any) -> Profile:
    return Profile(**{"id": "p", "backend": "b", "model": "m", **fields})


def exchange() -> Exchange:
    return exchange_of(Turn(None, [("user", "hi", None)]).capture("r1", "hello"))


WRONG: list[tuple[Any, dict[str, Any], str]] = [
    (RunRequest, {"prompt_id": 5}, "RunRequest.prompt_id"),
    (RunRequest, {"prompt_id": None}, "RunRequest.prompt_id"),
    (RunRequest, {"prompt_id": "p", "variables": [1]}, "RunRequest.variables"),
    (RunRequest, {"prompt_id": "p", "variables": "x"}, "RunRequest.variables"),
    (RunRequest, {"prompt_id": "p", "inputs": ["x"]}, "RunRequest.inputs"),
    (RunRequest, {"prompt_id": "p", "inputs": {"doc": 5}}, "RunRequest.inputs.doc"),
    (RunRequest, {"prompt_id": "p", "inputs": {"doc": "\ud800"}}, "RunRequest.inputs.doc"),
    (RunRequest, {"prompt_id": "p", "profile": 1}, "RunRequest.profile"),
    (RunRequest, {"prompt_id": "p", "output": "json"}, "RunRequest.output"),
    (RunRequest, {"prompt_id": "p", "session_id": b"x"}, "RunRequest.session_id"),
    (RunRequest, {"prompt_id": "p", "credential": "sk-plain"}, "RunRequest.credential"),
    (RunRequest, {"prompt_id": "p", "appended_messages": "hello"}, "RunRequest.appended_messages"),
    (RunRequest, {"prompt_id": "p", "appended_messages": ["hello"]}, "RunRequest.appended_messages[0]"),
    (RunRequest, {"prompt_id": "p", "observer": "print"}, "RunRequest.observer"),
    (RunRequest, {"prompt_id": "p", "capture_exchange": 1}, "RunRequest.capture_exchange"),
    (RunRequest, {"prompt_id": "p", "continue_from": "r1"}, "RunRequest.continue_from"),
    (Message, {"role": "tool", "content": "x"}, "Message.role"),
    (Message, {"role": "user", "content": None}, "Message.content"),
    (Message, {"role": "user", "content": "a\ud800"}, "Message.content"),
    (Message, {"role": "user", "content": "x", "cache_control": True}, "Message.cache_control"),
    (ImagePart, {"media_type": "image/png"}, "ImagePart.data"),
    (ImagePart, {"media_type": "image/png", "data": b"x", "url": "u"}, "ImagePart.data"),
    (ImagePart, {"media_type": "image/png", "data": "aGk="}, "ImagePart.data"),
    (FilePart, {"media_type": "text/plain", "data": "text"}, "FilePart.data"),
    (TextPart, {"text": 5}, "TextPart.text"),
    (GenerationReply, {"content": None}, "GenerationReply.content"),
    (GenerationReply, {"content": "x\udfff"}, "GenerationReply.content"),
    (CoordinateRequest, {"start": "r1", "additional_turns": 1, "next": print}, "CoordinateRequest.start"),
]


@pytest.mark.parametrize(("cls", "fields", "place"), WRONG, ids=[f"{place}-{i}" for i, (*_, place) in enumerate(WRONG)])
def test_a_value_of_the_wrong_kind_is_refused_with_the_name_of_its_field(
    cls: Any, fields: dict[str, Any], place: str
) -> None:
    refused = MalformedReplyError if cls is GenerationReply else InvalidRequestError
    with pytest.raises(refused) as caught:
        cls(**fields)
    assert place in str(caught.value)


def test_every_problem_of_a_value_is_reported_at_once() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        request(prompt_id=1, variables={"a": math.nan}, appended_messages="x", credential="sk-1")
    for field in ("prompt_id", "variables.a", "appended_messages", "credential"):
        assert f"RunRequest.{field}:" in str(caught.value)
    assert "sk-1" not in str(caught.value)


def test_wrong_kinds_do_not_hide_values_out_of_range() -> None:
    with pytest.raises(InvalidConfigError) as caught:
        Profile(id=7, backend="b", model="", temperature="hot", top_p=3.0, extra={"n": 2})  # type: ignore[arg-type]
    assert {fault.key for fault in caught.value.faults} == {
        "Profile.id",
        "Profile.temperature",
        "Profile.model",
        "Profile.top_p",
        "Profile.extra.n",
    }
    with pytest.raises(InvalidConfigError) as caught:
        OutputContract(kind="jsn", schema={}, max_repairs=-1)  # type: ignore[arg-type]
    assert [fault.key for fault in caught.value.faults] == ["OutputContract.kind", "OutputContract.max_repairs"]


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda value: profile(stop=value), "stop"),
        (lambda value: PromptDefinition(id="p", messages=value), "messages"),
        (lambda value: request(appended_messages=value), "appended_messages"),
        (
            lambda value: PromptDefinition(
                id="p", messages=(MessageTemplate(role="user", content="x"),), variables=value
            ),
            "variables",
        ),
    ],
)
@pytest.mark.parametrize("value", ["ab", b"ab", {"a", "b"}, frozenset("a"), {"a": 1}, 5, None])
def test_only_lists_and_tuples_are_taken_for_a_tuple(make: Any, field: str, value: Any) -> None:
    with pytest.raises(PromptKitError, match=field):
        make(value)


def test_a_list_is_taken_for_a_tuple_and_kept_apart_from_it() -> None:
    stop = ["A", "B"]
    made = profile(stop=stop)
    stop.append("C")
    assert made.stop == ("A", "B")
    parts = [TextPart(text="a")]
    message = Message(role="user", content=parts)  # type: ignore[arg-type]
    parts.clear()
    assert message.content == (TextPart(text="a"),)


def test_what_the_caller_changes_later_changes_nothing() -> None:
    inner = {"b": [1, {"c": 2}]}
    variables = {"a": inner}
    headers = {"x-team": "one"}
    schema = {"properties": {"a": {"enum": ["x"]}}}
    data = bytearray(b"abc")
    made = request(variables=variables, inputs={"doc": data})
    backend = Backend(id="b", kind="chat_completions", base_url="http://h", headers=headers)
    contract = OutputContract(kind="json_schema", schema=schema)
    before = msgspec.json.encode([made.variables, backend, contract])
    inner["b"].append(3)
    inner["b"][1]["c"] = 9  # type: ignore[index]
    variables["z"] = {}
    headers["x-team"] = "two"
    schema["properties"]["a"]["enum"].append("y")
    data[0] = 0
    assert msgspec.json.encode([made.variables, backend, contract]) == before
    assert made.inputs["doc"] == b"abc"


def test_any_mapping_is_taken_and_any_kind_of_text_or_number_becomes_plain() -> None:
    given = types.MappingProxyType({"t": Colour.RED, "n": Level.HIGH, "r": Ratio(0.5), "b": True})
    made = request(prompt_id=Colour.RED, variables=given).variables
    assert [type(made[key]) for key in "tnrb"] == [str, int, float, bool]
    assert dict(made) == {"t": "red", "n": 3, "r": 0.5, "b": True}
    assert type(request(prompt_id=Colour.RED).prompt_id) is str
    assert profile(stop=[Colour.RED], temperature=1).stop == ("red",)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (math.nan, "nan"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        ("a\ud800", "lone surrogate at position 1"),
        (b"x", "bytes"),
        ({1, 2}, "set"),
        (object(), "object"),
        (Path("x"), "Path"),
        ({1: 2}, "keys are text"),
        ({"\udc00": 2}, r"key '\udc00'"),
        (1 + 2j, "complex"),
        pytest.param(10**5000, "more digits", id="long integer"),
        ([[["deep", {"x": math.nan}]]], "nan"),
    ],
)
def test_what_is_not_json_is_refused_with_the_name_of_the_variable(value: Any, sentence: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        request(variables={"fine": 1, "wrong": value})
    assert "RunRequest.variables.wrong" in str(caught.value)
    assert sentence in str(caught.value)
    str(caught.value).encode()
    with pytest.raises(InvalidConfigError, match=r"Profile\.extra\.wrong"):
        profile(extra={"wrong": value})


def test_the_place_inside_a_variable_is_named() -> None:
    with pytest.raises(InvalidRequestError, match=r"RunRequest\.variables\.a\[1\]\.b\[0\]: is nan"):
        request(variables={"a": [1, {"b": [math.nan]}]})


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_a_lone_surrogate_is_refused_wherever_text_stands(text: str) -> None:
    for make in (
        lambda: profile(model=text),
        lambda: profile(stop=["fine", text]),
        lambda: profile(extra={text: 1}),
        lambda: request(session_id=text),
        lambda: request(variables={text: 1}),
        lambda: Message(role="user", content=(TextPart(text=text),)),
        lambda: MessageTemplate(role="user", content=text),
        lambda: Backend(id="b", kind="chat_completions", base_url="http://h", headers={"x-a": text}),
    ):
        with pytest.raises(PromptKitError, match="lone surrogate") as caught:
            make()
        str(caught.value).encode()


def test_the_place_of_what_is_too_deep_or_has_a_long_name_is_cut() -> None:
    deep: Any = 0
    for _ in range(900):
        deep = [deep]
    for value in (deep, {"k" * 10_000: math.nan}):
        with pytest.raises(InvalidRequestError) as caught:
            request(variables={"items": value})
        assert str(caught.value).startswith("RunRequest.variables.items")
        assert len(str(caught.value)) < 300


def test_endless_and_too_deep_values_are_refused_and_do_not_exhaust_the_stack() -> None:
    cyclic: dict[str, Any] = {}
    cyclic["again"] = [cyclic]
    deep: Any = 0
    for _ in range(100_000):
        deep = [deep]
    for value in (cyclic, deep):
        with pytest.raises(InvalidRequestError, match="deeper than"):
            request(variables={"v": value})
        with pytest.raises(InvalidConfigError, match="deeper than"):
            profile(extra={"v": value})
    with pytest.raises(InvalidConfigError, match="deeper than"):
        OutputContract(kind="json_schema", schema=cyclic)


def test_parts_given_as_tables_are_read_by_their_type() -> None:
    made = Message(role="user", content=[{"type": "text", "text": "a"}])  # type: ignore[arg-type]
    assert made.content == (TextPart(text="a"),)
    with pytest.raises(InvalidRequestError, match=r"content\[0\]\.text"):
        Message(role="user", content=[{"type": "text", "text": 5}])  # type: ignore[arg-type]


def test_a_nested_value_that_is_refused_does_not_hide_other_problems() -> None:
    image = {"type": "image", "media_type": "image/png"}
    with pytest.raises(InvalidRequestError) as caught:
        Message(role="nobody", content=[image])  # type: ignore[arg-type]
    assert "Message.role" in str(caught.value)
    assert "exactly one of data and url" in str(caught.value)


def test_values_cannot_be_changed_and_replacing_a_field_checks_again() -> None:
    made = request()
    with pytest.raises(AttributeError):
        made.prompt_id = "q"  # type: ignore[misc]
    with pytest.raises(InvalidRequestError, match="session_id"):
        msgspec.structs.replace(made, session_id=5)


def test_an_exchange_is_taken_where_one_belongs() -> None:
    start = exchange()
    assert request(continue_from=start).continue_from is start
    assert CoordinateRequest(start=start, additional_turns=0, next=lambda _: None).start is start
    with pytest.raises(InvalidRequestError, match="additional_turns"):
        CoordinateRequest(start=start, additional_turns=-1, next=lambda _: None)
    with pytest.raises(InvalidRequestError, match="next"):
        CoordinateRequest(start=start, additional_turns=1, next=5)  # type: ignore[arg-type]


def test_a_value_that_is_none_of_the_choices_is_told_what_they_are() -> None:
    with pytest.raises(
        InvalidConfigError, match="'chat_completion' is not one of 'chat_completions', 'anthropic_messages', 'embedded'"
    ):
        Backend(id="b", kind="chat_completion")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match=r"role: 'usr' is not one of .*; did you mean 'user'\?"):
        Message(role="usr", content="x")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match=r"ttl: '5min' is not one of '5m', '1h'; did you mean '5m'\?"):
        CacheControl(ttl="5min")  # type: ignore[arg-type]


def test_what_was_probably_meant_is_a_field_of_the_fault() -> None:
    with pytest.raises(InvalidConfigError) as caught:
        Profile(id="p", backend="b", model="m", native_output="json_shema")  # type: ignore[arg-type]
    (fault,) = caught.value.faults
    assert fault.suggestion == "json_schema"
    assert "mean" not in fault.message


@pytest.mark.parametrize(
    "number", [2**64, -(2**63) - 1, 10**5000, -(10**5000)], ids=["high", "low", "long", "negative"]
)
def test_an_integer_that_no_reader_takes_is_refused_without_being_written(number: int) -> None:
    with pytest.raises(InvalidConfigError, match=r"Profile\.seed: .* is out of range: from -2\*\*63 to 2\*\*64 - 1"):
        Profile(id="p", backend="b", model="m", seed=number)
    assert Profile(id="p", backend="b", model="m", seed=2**64 - 1).seed == 2**64 - 1


def test_a_group_given_as_an_observer_is_told_what_to_give() -> None:
    from promptkit import ExecutionGroup

    with pytest.raises(InvalidRequestError, match=r"got `ExecutionGroup`: give its \.observe"):
        RunRequest(prompt_id="x", observer=ExecutionGroup())  # type: ignore[arg-type]


@dataclasses.dataclass
class Cost:
    euros: float


SYSTEM = MessageTemplate(role="system", content="x")
SAID: list[tuple[Any, dict[str, Any], str]] = [
    (Profile, {"temperature": "hot"}, "temperature: Expected a float or None, got `str`"),
    (Profile, {"stop": "END"}, "stop: Expected a tuple, got one `str`: add a comma, (x,)"),
    (Profile, {"stop": {"a"}}, "stop: Expected a tuple, got `set`"),
    (Profile, {"temperature": {1.0}}, "temperature: Expected a float or None, got `set`"),
    (Profile, {"extra": [1]}, "extra: Expected a mapping, got `list`"),
    (Backend, {"headers": {"x-a": "b", "x-b": 1}}, "headers.x-b: Expected a str, got `int`"),
    (Backend, {"headers": {1: "b"}}, "headers: has a key that is no text"),
    (Backend, {"retry": {"max_retries": None}}, "retry.max_retries: Expected an int, got None"),
    (Backend, {"retry": RetryPolicy}, "retry: Expected a RetryPolicy, got the type `RetryPolicy`"),
    (
        PromptDefinition,
        {"messages": SYSTEM},
        "messages: Expected a tuple, got one `MessageTemplate`: add a comma, (x,)",
    ),
    (
        PromptDefinition,
        {"output": Cost},
        "output: Expected an OutputContract, got the type `Cost`: give OutputContract.of(Cost)",
    ),
    (OutputContract, {"schema": 5}, "schema: Expected a str, a mapping or None, got `int`"),
    (RunRequest, {"prompt_id": None}, "prompt_id: Expected a str, got None"),
    (
        RunRequest,
        {"output": list[Cost]},
        "output: Expected an OutputContract or None, got the type `list`: give OutputContract.of(...) of it",
    ),
    (RunRequest, {"appended_messages": ["x"]}, "appended_messages[0]: Expected a Message, got `str`"),
    (Message, {"content": None}, "content: Expected a str or a tuple, got None"),
    (
        Message,
        {"content": TextPart(text="x")},
        "content: Expected a str or a tuple, got one `TextPart`: add a comma, (x,)",
    ),
    (
        Message,
        {"content": ["x"]},
        "content[0]: Expected a TextPart, an ImagePart or a FilePart, got `str`: wrap it, TextPart(text=...)",
    ),
    (Message, {"content": [{"type": "text", "text": 5}]}, "content[0].text: Expected a str, got `int`"),
]
GIVEN: dict[Any, dict[str, Any]] = {
    Profile: {"id": "p", "backend": "b", "model": "m"},
    Backend: {"id": "b", "kind": "embedded"},
    PromptDefinition: {"id": "p", "messages": (SYSTEM,)},
    OutputContract: {"kind": "json_schema"},
    RunRequest: {"prompt_id": "p"},
    Message: {"role": "user"},
}


@pytest.mark.parametrize(("cls", "fields", "said"), SAID, ids=[said[:40] for *_, said in SAID])
def test_a_value_of_the_wrong_kind_is_spoken_of_in_the_words_of_python(
    cls: Any, fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(PromptKitError) as caught:
        cls(**GIVEN[cls] | fields)
    assert f"{cls.__name__}.{said}" in str(caught.value).splitlines()[-1].rstrip(".")


def test_what_is_suggested_stands_in_a_sentence_of_its_own() -> None:
    with pytest.raises(InvalidConfigError, match=r"'json_schema'\. Did you mean 'json'\?$"):
        OutputContract(kind="jsn")  # type: ignore[arg-type]
