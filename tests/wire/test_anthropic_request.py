"""What goes out: the body of an Anthropic messages request."""

import json
from typing import Any

import pytest

from promptkit._history import Turn
from promptkit._values.contracts import OutputContract
from promptkit._values.definitions import Backend, Profile
from promptkit._values.generation import GenerationCall
from promptkit._values.messages import CacheControl, FilePart, ImagePart, Message, TextPart, to_tuple
from promptkit._wire.anthropic_messages import request_pieces

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
TERSE = Message(role="system", content="Be terse.", cache_control=CacheControl(ttl="1h"))
HELLO = Message(role="user", content="Hello.")


def call(
    *messages: Message, profile: dict[str, Any] | None = None, output: OutputContract | None = None, **backend: Any
) -> GenerationCall:
    return GenerationCall(
        run_id="run-1",
        attempt=1,
        purpose="generate",
        session_id="session-1",
        credential=None,
        backend=Backend(id="b", kind="chat_completions", base_url="http://localhost", **backend),
        profile=Profile(id="p", backend="b", model="m", **{"max_output_tokens": 99, **(profile or {})}),
        output=output or OutputContract(),
        _turn=Turn(None, [to_tuple(message) for message in messages]),
    )


def body(*messages: Message, **fields: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(b"".join(request_pieces(call(*messages, **fields))))
    return document


def test_a_bare_profile_sends_the_model_the_messages_and_the_required_limit() -> None:
    sent = b"".join(request_pieces(call(HELLO)))
    assert sent == b'{"model":"m","messages":[{"role":"user","content":"Hello."}],"max_tokens":99}'


def test_the_leading_system_and_developer_messages_are_the_system_blocks_in_order() -> None:
    developer = Message(role="developer", content="In English.")
    sent = body(TERSE, developer, HELLO)
    assert sent["system"] == [
        {"type": "text", "text": "Be terse.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        {"type": "text", "text": "In English."},
    ]
    assert sent["messages"] == [{"role": "user", "content": "Hello."}]


def test_a_body_begins_with_the_bytes_of_the_one_that_it_continues_up_to_the_end_of_its_messages() -> None:
    first = call(TERSE, HELLO)
    second = call(TERSE, HELLO, Message(role="assistant", content="Hi."), Message(role="user", content="And now?"))
    head, messages, _ = request_pieces(first)
    continued_head, continued, _ = request_pieces(second)
    assert continued_head == head
    assert continued.startswith(messages[:-1])


@pytest.mark.parametrize(("late_system", "role"), [(None, "system"), ("send", "system"), ("as_user", "user")])
def test_a_late_system_message_is_sent_as_the_backend_says(late_system: Any, role: str) -> None:
    sent = body(TERSE, HELLO, Message(role="system", content="Be verbose."), late_system=late_system)
    assert len(sent["system"]) == 1
    assert sent["messages"] == [
        {"role": "user", "content": "Hello."},
        {"role": role, "content": "Be verbose."},
    ]


def test_parts_and_markers_have_the_form_of_this_dialect() -> None:
    parts = (TextPart(text="Look:"), ImagePart(media_type="image/png", data=b"\x01"))
    file = FilePart(media_type="application/pdf", data=b"\x02", filename="a.pdf")
    message = Message(role="user", content=(*parts, file), cache_control=CacheControl())
    assert body(message)["messages"] == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look:"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AQ=="}},
                {
                    "type": "document",
                    "source": {"type": "base64", "media_type": "application/pdf", "data": "Ag=="},
                    "title": "a.pdf",
                    "cache_control": {"type": "ephemeral"},
                },
            ],
        }
    ]
    assert "cache_control" not in json.dumps(body(message, cache_markers="omit"))


def test_settings_that_are_set_are_sent_under_the_names_of_this_dialect() -> None:
    profile = {"temperature": 0.5, "top_p": 0.9, "stop": ("END",), "reasoning_effort": "low", "extra": {"top_k": 4}}
    sent = body(HELLO, profile=profile)
    del sent["messages"]
    assert sent == {
        "model": "m",
        "max_tokens": 99,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop_sequences": ["END"],
        "output_config": {"effort": "low"},
        "top_k": 4,
    }


def test_a_schema_is_asked_for_unless_the_profile_says_none_and_extra_stays_beside_it() -> None:
    contract = OutputContract(kind="json_schema", schema=SCHEMA)
    asked = {"format": {"type": "json_schema", "schema": SCHEMA}}
    assert body(HELLO, output=contract)["output_config"] == asked
    assert "output_config" not in body(HELLO, output=contract, profile={"native_output": "none"})
    assert "output_config" not in body(HELLO, output=OutputContract(kind="json"))
    extra = {"output_config": {"task_budget": 1, "format": "overruled"}}
    assert body(HELLO, output=contract, profile={"extra": extra})["output_config"] == {"task_budget": 1, **asked}
    assert body(HELLO, profile={"extra": extra})["output_config"] == extra["output_config"]


def test_a_key_that_extra_repeats_stands_once_in_the_body() -> None:
    names: list[str] = []
    sent = b"".join(request_pieces(call(HELLO, profile={"extra": {"metadata": {"user_id": "u"}}})))
    json.loads(sent, object_pairs_hook=lambda found: names.extend(name for name, _ in found))
    assert names.count("metadata") == 1
    assert names.count("max_tokens") == 1
