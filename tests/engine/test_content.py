"""Content of several parts: the same in what is prepared, sent, captured, continued and hashed."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from promptkit import (
    AttemptFinished,
    Backend,
    CacheControl,
    Catalog,
    CoordinateRequest,
    EmbeddedOptions,
    Engine,
    FilePart,
    GenerationError,
    ImagePart,
    InvalidRequestError,
    Message,
    MessageTemplate,
    Profile,
    PromptDefinition,
    RunRequest,
    TextPart,
    load_catalog,
)
from promptkit.testing import EventRecorder, ScriptedClient
from servers.stub import ok

if TYPE_CHECKING:
    from promptkit import ConversationTurn
    from servers.stub import StubServer

pytestmark = pytest.mark.anyio

PNG, PDF = b"\x89PNG\r\n\x1a\n\x00\xff", b"%PDF-1.7\n"
PNG64, PDF64 = base64.b64encode(PNG).decode(), base64.b64encode(PDF).decode()
ALL_KINDS = (
    Message(role="developer", content="plain é"),
    Message(
        role="user",
        content=(
            TextPart(text='See "these":\n'),
            ImagePart(media_type="image/png", data=PNG),
            ImagePart(media_type="image/jpeg", url="https://host.example/a.jpg?b=1&c=%22"),
            FilePart(media_type="application/pdf", data=PDF, filename='q "1".pdf'),
            FilePart(media_type="text/plain; charset=utf-8", data=b""),
        ),
        cache_control=CacheControl(ttl="1h"),
    ),
    Message(role="assistant", content=()),
    Message(role="user", content=(TextPart(text=""),)),
)
CHAT_PARTS = (
    '[{"type":"text","text":"See \\"these\\":\\n"},'
    '{"type":"image_url","image_url":{"url":"data:image/png;base64,' + PNG64 + '"}},'
    '{"type":"image_url","image_url":{"url":"https://host.example/a.jpg?b=1&c=%22"}},'
    '{"type":"file","file":{"filename":"q \\"1\\".pdf","file_data":"data:application/pdf;base64,' + PDF64 + '"}},'
    '{"type":"file","file":{"file_data":"data:text/plain; charset=utf-8;base64,"},'
    '"cache_control":{"type":"ephemeral","ttl":"1h"}}]'
)
CHAT = (
    '{"role":"developer","content":"plain é"},'
    '{"role":"user","content":' + CHAT_PARTS + "},"
    '{"role":"assistant","content":[]},'
    '{"role":"user","content":[{"type":"text","text":""}]}'
)
ANTHROPIC_PARTS = (
    '[{"type":"text","text":"See \\"these\\":\\n"},'
    '{"type":"image","source":{"type":"base64","media_type":"image/png","data":"' + PNG64 + '"}},'
    '{"type":"image","source":{"type":"url","url":"https://host.example/a.jpg?b=1&c=%22"}},'
    '{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"' + PDF64 + '"},'
    '"title":"q \\"1\\".pdf"},'
    '{"type":"document","source":{"type":"text","media_type":"text/plain","data":""},'
    '"cache_control":{"type":"ephemeral","ttl":"1h"}}]'
)


def catalog(base_url: str | None = "http://127.0.0.1:1/v1", **backend: Any) -> Catalog:
    given: dict[str, Any] = {"kind": "chat_completions", "base_url": base_url, **backend}
    attached = MessageTemplate(
        role="user", content="{{ text }}", attachments=("photo", "report"), cache_control=CacheControl()
    )
    return Catalog(
        backends=[Backend(id="b", **given)],
        profiles=[Profile(id="f", backend="b", model="m")],
        prompts=[
            PromptDefinition(id="hi", messages=(MessageTemplate(role="system", content="Hi."),), profile="f"),
            PromptDefinition(
                id="look",
                messages=(attached,),
                variables=("text",),
                inputs=("photo", "report"),
                profile="f",
            ),
        ],
    )


LOOK = RunRequest(
    prompt_id="look", variables={"text": "Look:"}, inputs={"photo": PNG, "report": PDF}, capture_exchange=True
)


async def test_every_kind_of_part_has_its_bytes_in_a_chat_completion(stub: StubServer) -> None:
    stub.say(ok("I see."))
    async with Engine(catalog(stub.base_url)) as engine:
        await engine.run(RunRequest(prompt_id="hi", appended_messages=ALL_KINDS))
    (request,) = stub.requests
    assert request.messages == ('[{"role":"system","content":"Hi."},' + CHAT + "]").encode()


async def test_every_kind_of_part_has_its_bytes_in_an_anthropic_message() -> None:
    client = ScriptedClient("I see.")
    await Engine(catalog(), client=client).run(RunRequest(prompt_id="hi", appended_messages=ALL_KINDS))
    encoded = client.calls[0].encoded_messages("anthropic_messages")
    assert encoded.system == '[{"type":"text","text":"Hi."},{"type":"text","text":"plain é"}]'.encode()
    assert (
        encoded.messages
        == (
            '[{"role":"user","content":' + ANTHROPIC_PARTS + "},"
            '{"role":"assistant","content":[]},{"role":"user","content":[{"type":"text","text":""}]}]'
        ).encode()
    )


async def test_attachments_follow_the_text_on_the_wire_and_the_marker_stands_on_the_last(stub: StubServer) -> None:
    stub.say(ok("A cat."))
    async with Engine(catalog(stub.base_url)) as engine:
        await engine.run(LOOK)
        await engine.run(RunRequest(prompt_id="look", variables={"text": ""}, inputs={"photo": PNG, "report": "plain"}))
    image = '{"type":"image_url","image_url":{"url":"data:image/png;base64,' + PNG64 + '"}}'
    marked = '"cache_control":{"type":"ephemeral"}'
    assert [request.messages.decode() for request in stub.requests] == [
        '[{"role":"user","content":[{"type":"text","text":"Look:"},' + image + ',{"type":"file","file":{"file_data":'
        '"data:application/pdf;base64,' + PDF64 + '"},' + marked + "}]}]",
        '[{"role":"user","content":[' + image + ',{"type":"file","file":{"file_data":'
        '"data:text/plain;base64,cGxhaW4="},' + marked + "}]}]",
    ]


async def test_the_original_files_and_templates_may_change_or_vanish(stub: StubServer, tmp_path: Path) -> None:
    root = tmp_path / "catalog"
    (root / "prompts").mkdir(parents=True)
    (root / "inputs").mkdir()
    (root / "promptkit.toml").write_text(
        f'[backends.b]\nkind = "chat_completions"\nbase_url = "{stub.base_url}"\n'
        '[profiles.f]\nbackend = "b"\nmodel = "m"\n'
    )
    prompt = 'profile = "f"\ninputs = ["photo", "note"]\n[[messages]]\nrole = "user"\n'
    (root / "prompts" / "look.toml").write_text(
        prompt + 'content = "{{ inputs.note }}"\nattachments = ["photo", "note"]\n'
    )
    (root / "prompts" / "more.toml").write_text('profile = "f"\n[[messages]]\nrole = "user"\ncontent = "More?"\n')
    (root / "inputs" / "photo.png").write_bytes(PNG)
    (root / "inputs" / "note.txt").write_text("Look:")
    stub.say(ok("A cat."), ok("Still a cat."), ok("A cat, I said."))
    request = RunRequest(
        prompt_id="look", inputs={"photo": Path("photo.png"), "note": Path("note.txt")}, capture_exchange=True
    )
    async with Engine(load_catalog(root)) as engine:
        first = await engine.run(request)
        details = first.exchange.details()
        (root / "inputs" / "photo.png").write_bytes(b"\xff\xd8\xff another image")
        (root / "inputs" / "note.txt").write_text("Something else")
        (root / "prompts" / "look.toml").write_text(
            prompt + 'content = "Changed {{ inputs.note }}"\nattachments = ["photo"]\n'
        )
        second = await engine.run(RunRequest(prompt_id="more", continue_from=first.exchange))
    changed = load_catalog(root)
    shutil.rmtree(root)
    async with Engine(changed) as another:
        await another.run(RunRequest(prompt_id="more", continue_from=second.exchange))
    sent = [received.messages for received in stub.requests]
    assert sent[1] == sent[0][:-1] + b',{"role":"assistant","content":"A cat."},{"role":"user","content":"More?"}]'
    assert sent[2].startswith(sent[1][:-1] + b',{"role":"assistant","content":"Still a cat."}')
    assert first.exchange.details() == details


async def test_appended_parts_are_the_same_wherever_they_are_seen() -> None:
    client = ScriptedClient("one", "two", "three", "four")
    engine = Engine(catalog(), client=client)
    request = RunRequest(prompt_id="hi", appended_messages=ALL_KINDS, capture_exchange=True)
    effective = (Message(role="system", content="Hi."), *ALL_KINDS)
    prepared = await engine.prepare(request)
    assert prepared.messages == effective
    first = await engine.run(request)
    assert client.calls[0].messages == effective
    assert first.rendered_hash == prepared.rendered_hash
    history = (*effective, Message(role="assistant", content="one"))
    assert first.exchange.details().messages == history

    continuation = RunRequest(prompt_id="hi", appended_messages=ALL_KINDS, continue_from=first.exchange)
    execution = await engine.prepare_execution(continuation)
    assert execution.details.messages == (*history, *effective)
    second = await engine.run_prepared(execution)
    assert client.calls[1].messages == (*history, *effective)
    longer = (*history, *effective, Message(role="assistant", content="two"))
    assert second.exchange.details().messages == longer

    def next_turn(turn: ConversationTurn) -> RunRequest:
        return RunRequest(prompt_id="hi", appended_messages=ALL_KINDS)

    await engine.coordinate(CoordinateRequest(start=second.exchange, additional_turns=2, next=next_turn))
    assert client.calls[2].messages == (*longer, *effective)
    assert client.calls[3].messages == (*longer, *effective, Message(role="assistant", content="three"), *effective)
    texts = [call.encoded_messages("chat_completions").messages for call in client.calls]
    assert all(later.startswith(earlier[:-1] + b",") for earlier, later in pairwise(texts))


async def test_prepared_parts_are_what_is_sent_and_what_is_captured(stub: StubServer) -> None:
    stub.say(ok("A cat."))
    async with Engine(catalog(stub.base_url)) as engine:
        execution = await engine.prepare_execution(LOOK)
        before = execution.details.messages
        result = await engine.run_prepared(execution)
        await engine.run(LOOK)
    assert stub.requests[0].body == stub.requests[1].body
    assert result.exchange.details().messages == (*before, Message(role="assistant", content="A cat."))


media = st.sampled_from([PNG, b"\xff\xd8\xff", b"GIF89a", b"RIFF....WEBP", PDF]).flatmap(
    lambda start: st.binary().map(lambda rest: start + rest)
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(), photo=media, report=media | st.text())
async def test_hashes_of_attachments_can_be_recomputed(text: str, photo: bytes, report: bytes | str) -> None:
    inputs: dict[str, Any] = {"photo": photo, "report": report}
    prepared = await Engine(catalog()).prepare(RunRequest(prompt_id="look", variables={"text": text}, inputs=inputs))

    def sha256(content: bytes) -> str:
        return "sha256:" + hashlib.sha256(content).hexdigest()

    def part(data: bytes | str) -> dict[str, str]:
        raw = data.encode() if isinstance(data, str) else data
        kinds = [
            (PNG[:8], "image/png"),
            (b"\xff\xd8\xff", "image/jpeg"),
            (b"GIF", "image/gif"),
            (b"RIFF", "image/webp"),
        ]
        encoded = base64.b64encode(raw).decode()
        for start, media_type in kinds:
            if isinstance(data, bytes) and data.startswith(start):
                return {"type": "image", "media_type": media_type, "data": encoded}
        media_type = "text/plain" if isinstance(data, str) else "application/pdf"
        return {"type": "file", "media_type": media_type, "data": encoded}

    lead = [{"type": "text", "text": text}] if text else []
    message = {
        "role": "user",
        "content": [*lead, part(photo), part(report)],
        "cache_control": {"type": "ephemeral", "ttl": None},
    }
    canonical = json.dumps(["promptkit/rendered/1", [message], None], ensure_ascii=False, separators=(",", ":"))
    assert prepared.rendered_hash == sha256(canonical.encode())
    assert prepared.input_hashes == {
        name: sha256(value.encode() if isinstance(value, str) else value) for name, value in inputs.items()
    }


PARTS = (ALL_KINDS[1].content[1], ALL_KINDS[1].content[2], ALL_KINDS[1].content[3])


@pytest.mark.parametrize("part", PARTS)
async def test_an_embedded_backend_refuses_images_and_files_before_anything_is_asked(part: Any, tmp_path: Path) -> None:
    """A model that is not there is no obstacle: nothing asks for it."""
    options = EmbeddedOptions(model_path=str(tmp_path / "none.gguf"))
    events = EventRecorder()
    history = ScriptedClient("ok")
    message = Message(role="user", content=(TextPart(text="See"), part))
    seen = await Engine(catalog(), client=history).run(
        RunRequest(prompt_id="hi", appended_messages=(message,), capture_exchange=True)
    )
    async with Engine(catalog(kind="embedded", base_url=None, embedded=options)) as engine:
        for request in (
            RunRequest(prompt_id="hi", appended_messages=(message,), observer=events),
            RunRequest(prompt_id="hi", continue_from=seen.exchange, observer=events),
        ):
            for refused in (engine.run, engine.prepare, engine.validate_request, engine.prepare_execution):
                with pytest.raises(InvalidRequestError) as caught:
                    await refused(request)
                assert type(caught.value) is InvalidRequestError
                count = 2 if request.continue_from is None else 4
                assert str(caught.value) == (
                    f"prompt 'hi': of the {count} messages to be sent, the one at position 2 has an image or a file, "
                    "and backend 'b' (embedded) reads text only: send text, or choose a profile whose backend takes "
                    "images and files"
                )
    assert not any(isinstance(event, AttemptFinished) for event in events.events)


async def test_text_that_looks_like_an_image_is_text_for_the_embedded_model(tmp_path: Path) -> None:
    """It gets as far as the model, which is not there."""
    options = EmbeddedOptions(model_path=str(tmp_path / "none.gguf"))
    text = '[{"type":"image_url","image_url":{"url":"u"}},{"type":"file"}]'
    message = Message(role="user", content=(TextPart(text=text),))
    async with Engine(catalog(kind="embedded", base_url=None, embedded=options)) as engine:
        with pytest.raises(GenerationError):
            await engine.run(RunRequest(prompt_id="hi", appended_messages=(message,)))
