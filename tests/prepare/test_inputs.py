"""What becomes of inputs: texts for templates, parts for the messages that attach them, and a hash of each."""

from __future__ import annotations

import hashlib
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from returns.result import Failure, Success

from promptkit import (
    Backend,
    CacheControl,
    Catalog,
    FilePart,
    ImagePart,
    InputError,
    InvalidRequestError,
    Message,
    MessageTemplate,
    Profile,
    PromptDefinition,
    RunRequest,
    TextPart,
)
from promptkit._load_catalog import definitions_of
from promptkit._prepare.inputs import Inputs, needed, taken
from promptkit._prepare.media_types import ENDINGS, IMAGES, SIGNATURES, SIGNED, media_type_of
from promptkit._prepare.pipeline import complete, details
from promptkit._prepare.selection import Selection, select

if TYPE_CHECKING:
    from collections.abc import Callable

    from returns.result import Result

PNG = b"\x89PNG\r\n\x1a\n\x00\xff"
JPEG = b"\xff\xd8\xff\xe0\x00"
WEBP = b"RIFF\x24\x00\x00\x00WEBPVP8 "
PDF = b"%PDF-1.7\n\xe2\xe3"
MARK = b"\xef\xbb\xbf"


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def catalog(*messages: MessageTemplate, inputs: tuple[str, ...], session: str | None = None) -> Catalog:
    return Catalog(
        backends=[Backend(id="b", kind="chat_completions", base_url="http://localhost/v1")],
        profiles=[Profile(id="f", backend="b", model="m")],
        prompts=[PromptDefinition(id="p", messages=messages, inputs=inputs, profile="f", session=session)],
    )


def user(content: str = "", *attachments: str, **fields: Any) -> MessageTemplate:
    return MessageTemplate(role="user", content=content, attachments=attachments, **fields)


def selected(catalog: Catalog, request: RunRequest) -> Selection:
    return select(definitions_of(catalog), request).unwrap()


def as_read(request: RunRequest, files: dict[str, bytes]) -> dict[str, bytes]:
    """Give what reading would: inline inputs, and the content of files from ``files``."""
    given = request.inputs.items()
    return {
        name: files[name] if name in files else value.encode() if isinstance(value, str) else bytes(value)  # type: ignore[arg-type]  # no path is left
        for name, value in given
    }


def read(of: Catalog, files: dict[str, bytes] | None = None, **inputs: Any) -> Result[Inputs, InvalidRequestError]:
    request = RunRequest(prompt_id="p", inputs=inputs)
    return taken(selected(of, request).plan, request, as_read(request, files or {}))


def messages(of: Catalog, files: dict[str, bytes] | None = None, **inputs: Any) -> tuple[Message, ...]:
    request = RunRequest(prompt_id="p", inputs=inputs)
    selection = selected(of, request)
    return details(complete(selection, request, as_read(request, files or {})).unwrap()).messages


# ------------------------------------------------------------------ texts


def test_a_text_is_decoded_without_its_mark_and_its_hash_is_that_of_the_text() -> None:
    of = catalog(user("{{ inputs.a }}{{ inputs.b }}{{ inputs.c }}"), inputs=("a", "b", "c"))
    inputs = read(of, a=MARK + b"x\r\n", b=b"", c="\ufeff\ufeffé").unwrap()
    assert dict(inputs.texts) == {"a": "x\r\n", "b": "", "c": "\ufeffé"}
    assert dict(inputs.hashes) == {"a": sha256(b"x\r\n"), "b": sha256(b""), "c": sha256("\ufeffé".encode())}
    assert not inputs.parts


@pytest.mark.parametrize("content", [b"ab\xff", b"\xfe\xff\x00a", b"\xed\xa0\x80", b"\xc3", "é".encode("latin-1")])
def test_a_text_that_is_not_utf8_names_the_input_the_place_and_the_remedy(content: bytes) -> None:
    failure = read(catalog(user("{{ inputs.doc }}"), inputs=("doc",)), doc=content).failure()
    assert type(failure) is InputError
    assert str(failure).startswith("input 'doc' is not UTF-8 text: byte 0x")
    assert "at offset" in str(failure)
    assert "save it as UTF-8" in str(failure)


# ------------------------------------------------------------------ attachments


def test_the_parts_of_a_message_are_its_text_and_then_its_attachments_in_order() -> None:
    of = catalog(user("Look:", "b", "a"), user("", "a"), user("no parts"), inputs=("a", "b"))
    files = {"a": PNG, "b": PDF}
    image = ImagePart(media_type="image/png", data=PNG)
    report = FilePart(media_type="application/pdf", data=PDF, filename="report.pdf")
    found = messages(of, files, a=PurePosixPath("sub/photo"), b=PurePosixPath("sub/report.pdf"))
    assert [message.content for message in found] == [(TextPart(text="Look:"), report, image), (image,), "no parts"]


@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        (PNG, "image/png"),
        (JPEG, "image/jpeg"),
        (b"GIF87a", "image/gif"),
        (b"GIF89a.", "image/gif"),
        (WEBP, "image/webp"),
    ],
)
@pytest.mark.parametrize("given", [None, "a", "a.txt", "a.png", "a.pdf"])
def test_an_image_is_known_by_its_content_whatever_its_name(content: bytes, media_type: str, given: str | None) -> None:
    value = content if given is None else PurePosixPath(given)
    inputs = read(catalog(user("", "x"), inputs=("x",)), {"x": content}, x=value).unwrap()
    assert inputs.parts == {"x": ImagePart(media_type=media_type, data=content)}
    assert inputs.hashes == {"x": sha256(content)}


@pytest.mark.parametrize(
    ("path", "media_type", "filename"),
    [
        (PurePosixPath("a.txt"), "text/plain", "a.txt"),
        (PurePosixPath("sub.d/B.CSV"), "text/csv", "B.CSV"),
        (PurePosixPath("/abs/x.y.json"), "application/json", "x.y.json"),
        (PureWindowsPath("sub\\é 🙂.docx"), ENDINGS["docx"], "é 🙂.docx"),
        (PurePosixPath("logo.svg"), "image/svg+xml", "logo.svg"),
    ],
)
def test_another_file_is_known_by_its_ending_and_keeps_its_name(path: Any, media_type: str, filename: str) -> None:
    content = MARK + b"\xff,\r\n"
    inputs = read(catalog(user("", "x"), inputs=("x",)), {"x": content}, x=path).unwrap()
    assert inputs.parts == {"x": FilePart(media_type=media_type, data=content, filename=filename)}
    assert inputs.hashes == {"x": sha256(content)}
    assert not inputs.texts


@given(st.text() | st.sampled_from(["%PDF-1.7", "GIF89a", "\ufeffx"]))
def test_text_that_is_attached_is_plain_text_whatever_it_begins_with(text: str) -> None:
    inputs = read(catalog(user("", "x"), inputs=("x",)), x=text).unwrap()
    assert inputs.parts == {"x": FilePart(media_type="text/plain", data=text.encode())}
    assert inputs.hashes == {"x": sha256(text.encode())}


def test_inline_data_has_no_name() -> None:
    inputs = read(catalog(user("", "x"), inputs=("x",)), x=PDF).unwrap()
    assert inputs.parts == {"x": FilePart(media_type="application/pdf", data=PDF, filename=None)}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (b"plain", "input 'x' is inline data of an unknown kind"),
        (PurePosixPath("data.bin"), "input 'x' is the file 'data.bin', whose name does not tell its kind"),
        (PurePosixPath("README"), "whose name does not tell its kind: let it end with .txt"),
        (PurePosixPath(".txt"), "is the file '.txt', whose name does not tell its kind"),
        (PurePosixPath("photo.png"), "input 'x' is named 'photo.png', and its content is no PNG image"),
        (PurePosixPath("photo.JPEG"), "its content is no JPEG image"),
        (PurePosixPath("a\udcff.pdf"), r"input 'x' is the file 'a\udcff.pdf', whose name is not Unicode"),
    ],
)
def test_an_attachment_of_an_unknown_kind_is_refused_with_the_remedy(given: Any, sentence: str) -> None:
    failure = read(catalog(user("", "x"), inputs=("x",)), {"x": b"plain"}, x=given).failure()
    assert type(failure) is InputError
    assert sentence in str(failure)
    assert ": give " in str(failure) or ": let it end" in str(failure) or ": rename" in str(failure)


def test_an_attachment_that_is_not_given_is_named() -> None:
    of = catalog(user("hi"), user("{{ inputs.other }}", "photo"), inputs=("other", "photo"))
    request = RunRequest(prompt_id="p", inputs={"other": "x"})
    failure = needed(selected(of, request), request).failure()
    assert type(failure) is InputError
    assert str(failure) == (
        "prompt 'p', messages[1] (user) attaches the input 'photo', which was not given: add it to the request's inputs"
    )


def test_what_is_attached_and_used_by_a_template_is_both_and_hashed_as_it_is() -> None:
    of = catalog(user("{{ inputs.x }}", "x"), inputs=("x",))
    content = MARK + "é".encode()
    inputs = read(of, {"x": content}, x=PurePosixPath("x.md")).unwrap()
    assert inputs.texts == {"x": "é"}
    assert inputs.parts == {"x": FilePart(media_type="text/markdown", data=content, filename="x.md")}
    assert inputs.hashes == {"x": sha256(content)}
    assert "is not UTF-8 text" in str(read(of, x=PNG).failure())


@pytest.mark.parametrize("use", ["inputs[k]", "inputs|attr(k)", "(inputs|items|first)[1]"])
def test_what_is_attached_and_utf8_is_a_text_where_a_template_uses_inputs_without_naming_them(use: str) -> None:
    of = catalog(user("{% for k in ['i'] %}{{ " + use + " }}{% endfor %}", "i"), inputs=("i",))
    (message,) = messages(of, i="text")
    assert message.content == (TextPart(text="text"), FilePart(media_type="text/plain", data=b"text"))


def test_what_is_attached_and_no_text_is_not_among_the_texts() -> None:
    of = catalog(user("{% for name in inputs %}{{ name }} {% endfor %}{{ inputs.t }}", "x"), inputs=("t", "x"))
    assert read(of, t="t", x=PNG).unwrap().texts == {"t": "t"}


def test_an_attached_image_that_a_template_reads_by_a_computed_name_is_said_to_be_no_text() -> None:
    of = catalog(user("{% for k in ['x'] %}{{ inputs[k] }}{% endfor %}", "x"), inputs=("x",))
    request = RunRequest(prompt_id="p", inputs={"x": PNG})
    failure = complete(selected(of, request), request, {"x": PNG}).failure()
    assert "the input 'x' was not given as text: add it to the request's inputs" in str(failure)


def test_what_only_the_session_uses_is_a_text() -> None:
    of = catalog(user("", "x"), inputs=("x",), session="{{ inputs.x }}")
    assert read(of, x="s").unwrap().texts == {"x": "s"}


def test_the_marker_of_a_message_can_stand_on_an_attachment() -> None:
    of = catalog(user("", "x", cache_control=CacheControl()), inputs=("x",))
    assert messages(of, x=PNG) == (
        Message(role="user", content=(ImagePart(media_type="image/png", data=PNG),), cache_control=CacheControl()),
    )


@given(text=st.text(), content=st.binary())
def test_the_number_of_parts_and_the_data_never_depend_on_the_values(text: str, content: bytes) -> None:
    of = catalog(user("> {{ inputs.t }}", "t", "d"), inputs=("t", "d"))
    path = PurePosixPath("d.zip")
    (message,) = messages(of, {"d": content}, t=text, d=path)
    assert isinstance(message.content, tuple)
    rendered, attached, data = message.content
    assert rendered == TextPart(text="> " + text.removeprefix("\ufeff"))
    assert attached == FilePart(media_type="text/plain", data=text.encode())
    assert data.data == content  # type: ignore[union-attr]  # an image or a file


# ------------------------------------------------------------------ media types


def test_every_media_type_of_the_tables_makes_a_part() -> None:
    for media_type in ENDINGS.values():
        assert FilePart(media_type=media_type, data=b"").media_type == media_type
    for media_type in IMAGES:
        assert ImagePart(media_type=media_type, data=b"").media_type == media_type
    assert {media_type for _, media_type in SIGNATURES} <= IMAGES | {"application/pdf"}
    assert not SIGNED.keys() & ENDINGS.keys()


@given(st.binary(max_size=20), st.none() | st.text())
def test_every_content_and_name_has_an_answer(content: bytes, name: str | None) -> None:
    found = media_type_of(content, name)
    if isinstance(found, Failure):
        assert ": " in found.failure()
    else:
        assert found.unwrap() in IMAGES | set(ENDINGS.values())


@given(st.sampled_from(sorted(ENDINGS)), st.text(min_size=1), st.sampled_from([str.upper, str.lower, str.title]))
def test_an_ending_counts_in_upper_and_lower_case(ending: str, stem: str, written: Callable[[str], str]) -> None:
    assert media_type_of(b"", f"{stem}.{written(ending)}") == Success(ENDINGS[ending])


@given(st.binary(max_size=40))
def test_the_beginning_decides_and_what_follows_does_not(rest: bytes) -> None:
    for signature, media_type in SIGNATURES:
        assert media_type_of(signature + rest, None) == Success(media_type)
        assert isinstance(media_type_of(signature[:-1], None), Failure)


@pytest.mark.parametrize("text", ["oven.png", "support/oven.PNG", "report.pdf", "/home/me/letter.txt", "a b.jpeg"])
def test_an_attached_text_that_looks_like_the_name_of_a_file_is_refused(text: str) -> None:
    of = catalog(user("See:", "photo"), inputs=("photo",))
    error = read(of, photo=text).failure()
    assert isinstance(error, InputError)
    assert str(error) == (
        f"input 'photo' is the text {text!r}, which looks like the name of a file: "
        f"give a path for a file below the inputs folder, such as Path({text!r})"
    )


@pytest.mark.parametrize("text", ["", "png", ".png", "the oven broke.", "see oven.png\nand more", "a.unknown"])
def test_an_attached_text_is_a_text(text: str) -> None:
    of = catalog(user("See:", "note"), inputs=("note",))
    assert read(of, note=text).unwrap().parts["note"] == FilePart(media_type="text/plain", data=text.encode())
