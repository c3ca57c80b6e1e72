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

from promptkit import CacheControl, FilePart, ImagePart, InvalidRequestError, Message, TextPart
from promptkit._history import Turn
from promptkit._values.exchange import exchange_of, node_of
from promptkit._values.messages import from_tuples, to_tuple

texts = st.text()
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9!$&^_.+-]{0,20}", fullmatch=True)
parameters = st.from_regex(r" ?; ?[a-z]{1,9}=[A-Z0-9'*+.^_`|~-]{1,9}", fullmatch=True)
image_types = st.builds("image/{}".format, names)
file_types = st.builds("{}/{}{}".format, names, names, st.lists(parameters, max_size=2).map("".join))
paths = st.text(st.characters(min_codepoint=33, max_codepoint=126))
urls = st.builds("{}://host.example/{}".format, st.sampled_from(["http", "https", "HTTPS"]), paths) | st.builds(
    "data:{},{}".format, st.sampled_from(["image/png;base64", "image/svg+xml", ""]), paths
)
parts = st.one_of(
    st.builds(TextPart, text=texts),
    st.builds(ImagePart, media_type=image_types, data=st.binary()),
    st.builds(ImagePart, media_type=image_types, url=urls),
    st.builds(FilePart, media_type=file_types, data=st.binary(), filename=st.none() | texts),
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
            Message(role="user", content=(TextPart(text="a"), ImagePart(media_type="image/png", url="http://h/"))),
            '{"role":"user","content":[{"type":"text","text":"a"},{"type":"image","media_type":"image/png","url":"http://h/"}]}',
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


@pytest.mark.parametrize(
    "media_type",
    [
        *("", "png", "image", "image/", "/png", "image//png", "image/png/x", "image/*", "image/png\n", "\nimage/png"),
        *(
            "image/p g",
            'a\nb"',
            'image/"',
            "im\0age/png",
            "imäge/png",
            " image/png",
            "image/png ",
            "image/" + "x" * 128,
        ),
    ],
)
def test_a_media_type_is_a_type_and_a_subtype(media_type: str) -> None:
    for make in (
        lambda: ImagePart(media_type=media_type, url="http://host/"),
        lambda: FilePart(media_type=media_type, data=b""),
    ):
        with pytest.raises(InvalidRequestError, match=r"(Image|File)Part\.media_type: is '.*no media type"):
            make()


@pytest.mark.parametrize("parameters", [";", "; ", ";a", ";a=", "; a=b c", ';a="b,c"', ";a=b\r\nx: y", ";=b", ";a=b#c"])
def test_the_parameters_of_a_media_type_are_checked(parameters: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"FilePart\.media_type"):
        FilePart(media_type="text/plain" + parameters, data=b"")


def test_an_image_is_an_image_and_its_media_type_has_no_parameters() -> None:
    with pytest.raises(InvalidRequestError, match=r"ImagePart\.media_type: .*'application/pdf'.* give a FilePart"):
        ImagePart(media_type="application/pdf", data=b"%PDF-")
    with pytest.raises(InvalidRequestError, match=r"ImagePart\.media_type"):
        ImagePart(media_type="image/png;x=y", data=b"")


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "u",
            "ftp://host/a.png",
            "file:///etc/passwd",
            "//host/a.png",
            "http:///a.png",
            "https://",
            "http://[::1/x",
        ),
        *("http://host:port/", "javascript:alert(1)", "data:", "data:image/png", "data:x,y", "http://host/a b"),
        *("http://host/\n", "http://hóst/", " http://host/", "data:image/png;base64, AA", "http://host/\0"),
    ],
)
def test_the_address_of_an_image_is_one_that_a_backend_can_read(url: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"ImagePart\.url: "):
        ImagePart(media_type="image/png", url=url)


def test_an_address_that_is_refused_is_not_repeated() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        ImagePart(media_type="image/png", url="ftp://user:SECRET@host/?sig=SECRET")
    assert "SECRET" not in str(caught.value)


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


def test_the_repr_of_a_part_is_bounded() -> None:
    image = ImagePart(media_type="image/png", data=b"\x00" * 2_000_000)
    assert repr(image) == "ImagePart(media_type='image/png', data=<2,000,000 bytes>, url=None)"
    file = FilePart(media_type="text/plain", data=b"short", filename="a.txt")
    assert repr(Message(role="user", content=(image, file))) == (
        f"Message(role='user', content=({image!r}, "
        "FilePart(media_type='text/plain', data=b'short', filename='a.txt')), cache_control=None)"
    )
    address = ImagePart(media_type="image/png", url="data:image/png;base64," + "A" * 500)
    assert repr(address) == "ImagePart(media_type='image/png', data=None, url=<522 characters>)"
