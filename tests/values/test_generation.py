"""The messages of a call, in the forms that clients send."""

import json
from typing import Any

import pytest

from promptkit._history import Turn
from promptkit._values.contracts import OutputContract
from promptkit._values.definitions import Backend, Profile
from promptkit._values.generation import GenerationCall
from promptkit._values.messages import CacheControl, Message


def call(turn: Turn, *extra: Message, **backend: Any) -> GenerationCall:
    return GenerationCall(
        run_id="run-1",
        attempt=1,
        purpose="generate",
        backend=Backend(id="b", kind="chat_completions", base_url="http://localhost/v1", **backend),
        profile=Profile(id="p", backend="b", model="m"),
        output=OutputContract(),
        session_id=None,
        credential=None,
        _turn=turn,
        _extra=extra,
    )


def test_the_anthropic_form_has_system_text_apart_and_repairs_at_the_end() -> None:
    turn = Turn(None, [("system", "Be brief.", "5m"), ("user", "Why?", None)])
    repair = Message(role="user", content="Again.", cache_control=CacheControl())
    encoded = call(turn, repair).encoded_messages("anthropic_messages")
    assert encoded.system is not None
    assert json.loads(encoded.system) == [
        {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral", "ttl": "5m"}}
    ]
    assert json.loads(encoded.messages) == [
        {"role": "user", "content": "Why?"},
        {"role": "user", "content": [{"type": "text", "text": "Again.", "cache_control": {"type": "ephemeral"}}]},
    ]


def test_without_leading_instructions_there_is_no_system_text() -> None:
    encoded = call(Turn(None, [("user", "Why?", "")]), cache_markers="omit").encoded_messages("anthropic_messages")
    assert (encoded.messages, encoded.system) == (b'[{"role":"user","content":"Why?"}]', None)


def test_the_chat_form_has_all_messages_in_one_array() -> None:
    encoded = call(Turn(None, [("system", "Be brief.", None)])).encoded_messages("chat_completions")
    assert (encoded.messages, encoded.system) == (b'[{"role":"system","content":"Be brief."}]', None)


def test_a_form_or_a_marker_that_does_not_exist_is_refused() -> None:
    turn = Turn(None, [])
    with pytest.raises(ValueError, match=r"^backend 'b': the form 'anthropic_messages' has no cache markers"):
        call(turn, cache_markers="prompt_cache_breakpoint").encoded_messages("anthropic_messages")
    unknown: Any = "responses"
    with pytest.raises(ValueError, match=r"^unknown form 'responses': there are"):
        call(turn).encoded_messages(unknown)
