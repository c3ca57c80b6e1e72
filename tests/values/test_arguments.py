"""Arguments that a value does not take: which value, what was probably meant, what it takes, and nothing given."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import msgspec
import pytest

from promptkit import (
    Backend,
    CoordinateRequest,
    FilePart,
    GenerationReply,
    Message,
    MessageTemplate,
    OutputContract,
    Profile,
    PromptDefinition,
    ReportedUsage,
    RetryPolicy,
    RunRequest,
)

TAKES = (
    "t takes prompt_id, variables, inputs, profile, output, session_id, credential, appended_messages, observer, "
    "capture_exchange, continue_from"
)


def refusal(made: Any, *arguments: Any, **named: Any) -> str:
    with pytest.raises(TypeError) as refused:
        made(*arguments, **named)
    assert (refused.value.__cause__, refused.value.__suppress_context__) == (None, True)
    return str(refused.value)


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ({"prompt": "ask"}, f"unexpected argument 'prompt': did you mean 'prompt_id'? I{TAKES}"),
        (
            {"prompt_id": "ask", "capture": True},
            f"unexpected argument 'capture': did you mean 'capture_exchange'? I{TAKES}",
        ),
        ({"prompt_id": "ask", "wibble": 1}, f"unexpected argument 'wibble'; i{TAKES}"),
        ({"prompt_id": "ask", "prompt": "ask"}, f"unexpected argument 'prompt'; i{TAKES}"),
        ({}, f"missing argument 'prompt_id'; i{TAKES}"),
        ({"wibble": 1}, f"missing argument 'prompt_id'; unexpected argument 'wibble'; i{TAKES}"),
    ],
)
def test_a_wrong_name_says_of_what_and_what_was_meant(named: dict[str, Any], says: str) -> None:
    assert refusal(RunRequest, **named) == f"RunRequest: {says}"


@pytest.mark.parametrize(
    ("made", "named", "says"),
    [
        (Profile, {"id": "p", "backend": "b", "model": "m", "max_tokens": 3}, "did you mean 'max_output_tokens'?"),
        (Backend, {"id": "b", "kind": "embedded", "url": "x"}, "did you mean 'base_url'?"),
        (PromptDefinition, {"id": "p", "message": ()}, "did you mean 'messages'?"),
        (MessageTemplate, {"role": "user", "contents": ""}, "did you mean 'content'?"),
        (OutputContract, {"repairs": 1}, "did you mean 'max_repairs'?"),
        (Message, {"role": "user", "text": ""}, "Message: missing argument 'content'; unexpected argument 'text'"),
        (GenerationReply, {"text": ""}, "missing argument 'content'; unexpected argument 'text'"),
        (RetryPolicy, {"retries": 3}, "did you mean 'max_retries'?"),
        (ReportedUsage, {"input": 3}, "did you mean 'input_tokens'?"),
        (FilePart, {"data": b"", "mediatype": ""}, "did you mean 'media_type'?"),
        (CoordinateRequest, {"turns": 3}, "missing arguments 'start', 'next'; unexpected argument 'turns': did you"),
        (CoordinateRequest, {}, "CoordinateRequest: missing arguments 'start', 'additional_turns', 'next'; it takes "),
    ],
)
def test_every_value_that_people_make_says_it(made: Any, named: dict[str, Any], says: str) -> None:
    said = refusal(made, **named)
    assert said.startswith(f"{made.__name__}: ")
    assert says in said


def test_what_is_given_by_place_is_asked_for_by_name_and_not_repeated() -> None:
    assert refusal(RunRequest, "MARK") == f"RunRequest: give it by name: RunRequest(prompt_id=...); i{TAKES}"
    assert refusal(CoordinateRequest, 1, 2, len) == (
        "CoordinateRequest: give them by name: CoordinateRequest(start=..., additional_turns=..., next=...); "
        "it takes start, additional_turns, next, observer"
    )
    assert refusal(MessageTemplate, "MARK", content="x").startswith(
        "MessageTemplate: give it by name: MessageTemplate(role=...); it takes role, content, "
    )


def test_the_sentence_stays_short_whatever_is_given() -> None:
    said = refusal(Backend, *range(1_000), **{f"x{number}" * 100: None for number in range(1_000)})
    assert len(said) < 3_000
    assert said.endswith(" and 4 more")


def test_a_type_error_of_what_a_value_brings_along_leaves_as_itself() -> None:
    class Mine(RunRequest, frozen=True, kw_only=True):
        def __post_init__(self) -> None:
            raise error

    error = TypeError("mine")
    with pytest.raises(TypeError) as left:
        Mine(prompt_id="ask")
    assert left.value is error


@pytest.mark.parametrize("made", [RunRequest, CoordinateRequest, Message, Profile, Backend, OutputContract])
def test_the_signature_is_that_of_the_fields(made: Any) -> None:
    assert tuple(inspect.signature(made).parameters) == made.__struct_fields__


def test_such_a_value_is_a_struct_like_any_other() -> None:
    message = Message(role="user", content="x")
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message
    assert pickle.loads(pickle.dumps(message)) == message  # noqa: S301
    assert msgspec.structs.replace(message, content="y").content == "y"
