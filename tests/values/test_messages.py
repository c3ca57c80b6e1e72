"""Messages: one canonical form, and nothing lost on the way into the store and back."""

from __future__ import annotations

import base64
import copy
import json
import pickle

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit import CacheControl, FilePart, ImagePart, Message, TextPart
from promptkit._history import Turn
from promptkit._values.exchange import exchange_of, node_of
from promptkit._values.messages import from_tuples, to_tuple

texts = st.text()
parts = st.one_of(
    st.builds(TextPart, text=texts),
    st.builds(ImagePart, media_type=texts, data=st.binary()),
    st.builds(ImagePart, media_type=texts, url=texts),
    st.builds(FilePart, media_type=texts, data=st.binary(), filename=st.none() | texts),
)
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "developer", "user", "assistant"]),
    content=texts | st.lists(parts).map(tuple),
    cache_control=st.none() | st.builds(CacheControl, ttl=st.sampled_from([None, "5m", "1h"])),
)


@given(st.lists(messages))
def test_messages_come_out_of_the_store_as_they_went_in(given_messages: list[Message]) -> None:
    tuples = [to_tuple(message) for message in given_messages]
    assert from_tuples(tuples) == tuple(given_messages)  # type: ignore[arg-type]
    assert from_tuples(Turn(None, tuples).messages()) == tuple(given_messages)


@given(messages)
def test_a_message_survives_encoding_pickling_and_copying(message: Message) -> None:
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message
    assert pickle.loads(pickle.dumps(message)) == message  # noqa: S301  # made here
    assert copy.copy(message) == copy.deepcopy(message) == message
    assert hash(message) == hash(copy.deepcopy(message))


@pytest.mark.parametrize(
    ("message", "encoded"),
    [
        (Message(role="user", content="é\n"), '{"role":"user","content":"é\\n"}'),
        (
            Message(role="system", content="", cache_control=CacheControl()),
            '{"role":"system","content":"","cache_control":{"type":"ephemeral","ttl":null}}',
        ),
        (
            Message(role="developer", content="x", cache_control=CacheControl(ttl="1h")),
            '{"role":"developer","content":"x","cache_control":{"type":"ephemeral","ttl":"1h"}}',
        ),
        (
            Message(role="user", content=(TextPart(text="a"), ImagePart(media_type="image/png", url="u"))),
            '{"role":"user","content":[{"type":"text","text":"a"},{"type":"image","media_type":"image/png","url":"u"}]}',
        ),
        (
            Message(role="user", content=(FilePart(media_type="a/b", data=b"\x00\xff"),)),
            '{"role":"user","content":[{"type":"file","media_type":"a/b","data":"AP8="}]}',
        ),
        (Message(role="assistant", content=()), '{"role":"assistant","content":[]}'),
    ],
)
def test_the_canonical_form_is_role_content_and_a_marker_if_any(message: Message, encoded: str) -> None:
    assert msgspec.json.encode(message).decode() == encoded


def test_data_is_base64_in_the_canonical_form() -> None:
    encoded = json.loads(msgspec.json.encode(ImagePart(media_type="image/png", data=b"\x89PNG")))
    assert base64.b64decode(encoded["data"]) == b"\x89PNG"


def test_an_exchange_is_opaque() -> None:
    exchange = exchange_of(Turn(None, [("user", "SECRET-TEXT", None)]).capture("r1", "reply"))
    assert repr(exchange) == str(exchange) == "<promptkit.Exchange>"
    assert copy.copy(exchange) is copy.deepcopy(exchange) is exchange
    assert exchange != exchange_of(node_of(exchange))  # type: ignore[arg-type]
    for refused in (
        type(exchange),
        lambda: pickle.dumps(exchange),
        lambda: msgspec.json.encode(exchange),
        lambda: type("Sub", (type(exchange),), {}),
    ):
        with pytest.raises(TypeError):
            refused()
    with pytest.raises(AttributeError):
        exchange.anything = 1


def test_the_details_of_an_exchange_are_the_whole_history_and_encode() -> None:
    first = Turn(None, [("user", "a", "")]).capture("r1", "b")
    details = exchange_of(Turn(first, [("user", "c", None)]).capture("r2", "d")).details()
    assert (details.run_id, details.parent_run_id) == ("r2", "r1")
    assert [(m.role, m.content) for m in details.messages] == [
        ("user", "a"),
        ("assistant", "b"),
        ("user", "c"),
        ("assistant", "d"),
    ]
    assert msgspec.json.decode(msgspec.json.encode(details), type=type(details)) == details
