"""What goes out: the body of a chat-completions request."""

import json
from typing import Any

from promptkit._values.contracts import OutputContract
from promptkit._values.definitions import Backend, Profile
from promptkit._values.generation import GenerationCall
from promptkit._values.messages import Message
from promptkit._wire.chat_completions import request_body

MESSAGES = b'[{"role":"user","content":"\xc3\xa9\\u00e9 <not decoded>"}]'


class FakeTurn:
    """Stands for the history: gives the bytes it holds, whatever they are."""

    def __init__(self, encoded: bytes = MESSAGES) -> None:
        self.encoded = encoded
        self.asked: list[tuple[str, list[Any]]] = []

    def encode_chat(self, markers: str, extra: list[Any], late_system: str) -> bytes:
        assert late_system == "send"
        self.asked.append((markers, extra))
        return self.encoded


def call(
    profile: dict[str, Any] | None = None,
    backend: dict[str, Any] | None = None,
    output: OutputContract | None = None,
    **fields: Any,
) -> GenerationCall:
    given = {"run_id": "run-1", "attempt": 1, "purpose": "generate", "session_id": None, "credential": None}
    return GenerationCall(
        backend=Backend(id="b", kind="chat_completions", base_url="http://localhost/v1", **(backend or {})),
        profile=Profile(id="p", backend="b", model="m", **(profile or {})),
        output=output or OutputContract(),
        **{"_turn": FakeTurn(), **given, **fields},
    )


def body(*args: Any, **kwargs: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(request_body(call(*args, **kwargs)))
    return document


SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}


def test_a_bare_profile_sends_model_and_messages_only() -> None:
    assert request_body(call()) == b'{"model":"m","messages":' + MESSAGES + b"}"


def test_messages_are_spliced_in_as_bytes_and_never_decoded() -> None:
    not_json = b"[\xff not even JSON"
    assert not_json in request_body(call({"seed": 1}, _turn=FakeTurn(not_json)))


def test_settings_that_are_set_are_sent_and_others_are_not() -> None:
    sent = body(
        {
            "temperature": 0.0,
            "top_p": 0.5,
            "stop": ("END", "é"),
            "seed": 0,
            "reasoning_effort": "low",
            "max_output_tokens": 7,
        },
    )
    del sent["messages"]
    assert sent == {
        "model": "m",
        "temperature": 0.0,
        "top_p": 0.5,
        "stop": ["END", "é"],
        "seed": 0,
        "reasoning_effort": "low",
        "max_tokens": 7,
    }


def test_the_token_limit_has_the_name_that_the_backend_takes() -> None:
    sent = body({"max_output_tokens": 7}, {"token_limit_parameter": "max_completion_tokens"})
    assert sent["max_completion_tokens"] == 7
    assert "max_tokens" not in sent


def test_the_session_id_goes_where_the_backend_takes_it() -> None:
    assert body(backend={"session_parameter": "session_id"}, session_id="s-1")["session_id"] == "s-1"


def test_a_session_id_without_a_parameter_is_not_sent() -> None:
    assert set(body(session_id="s-1")) == {"model", "messages"}


def test_a_parameter_without_a_session_id_is_not_sent() -> None:
    assert set(body(backend={"session_parameter": "session_id"})) == {"model", "messages"}


def test_a_schema_contract_is_asked_for_natively_with_its_name() -> None:
    sent = body(output=OutputContract(kind="json_schema", schema=SCHEMA, name="answer"))
    assert sent["response_format"] == {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}


def test_a_schema_without_a_name_is_called_output() -> None:
    sent = body(output=OutputContract(kind="json_schema", schema=SCHEMA))
    assert sent["response_format"]["json_schema"]["name"] == "output"


def test_json_object_is_asked_for_where_the_profile_says_so() -> None:
    sent = body({"native_output": "json_object"}, output=OutputContract(kind="json_schema", schema=SCHEMA))
    assert sent["response_format"] == {"type": "json_object"}


def test_a_json_contract_asks_for_any_json_object() -> None:
    assert body(output=OutputContract(kind="json"))["response_format"] == {"type": "json_object"}


def test_native_output_none_and_free_text_ask_for_no_format() -> None:
    assert "response_format" not in body({"native_output": "none"}, output=OutputContract(kind="json"))
    assert "response_format" not in body(
        {"native_output": "none"},
        output=OutputContract(kind="json_schema", schema=SCHEMA),
    )
    assert "response_format" not in body()


def test_extra_fields_are_sent_as_written_and_last() -> None:
    extra = {"top_k": 3, "provider": {"order": ["a", "b"], "zero": 0.0}, "é": None}
    sent = body({"seed": 1, "extra": extra})
    assert {name: sent[name] for name in extra} == extra
    assert list(sent) == ["model", "messages", "seed", *extra]


def test_no_name_is_sent_twice() -> None:
    sent = request_body(call({"extra": {"user": "x"}}, {"session_parameter": "user"}, session_id="s-1"))
    assert json.loads(sent, object_pairs_hook=lambda pairs: [name for name, _ in pairs]) == [
        "model",
        "messages",
        "user",
    ]
    assert b'"user":"s-1"' in sent


def test_equal_calls_have_equal_bytes() -> None:
    settings = {"temperature": 0.7, "stop": ("x",), "extra": {"b": 1, "a": {"d": 2, "c": 3}}}
    assert request_body(call(settings)) == request_body(call(settings))


def test_markers_and_further_messages_reach_the_encoder() -> None:
    turn = FakeTurn()
    request_body(call(backend={"cache_markers": "omit"}, _turn=turn, _extra=(Message(role="user", content="x"),)))
    assert turn.asked == [("omit", [("user", "x", None)])]
