"""What is prepared is what is sent: the bytes of a body against the messages that a preparation shows."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import anyio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from promptkit import (
    CacheControl,
    Catalog,
    Engine,
    FilePart,
    ImagePart,
    Message,
    MessageTemplate,
    PreparedRun,
    PromptDefinition,
    RunRequest,
    TextPart,
)
from servers.catalogs import small_catalog
from servers.stub import ok

if TYPE_CHECKING:
    from servers.stub import StubServer

MARKED = PromptDefinition(
    id="marked",
    messages=(
        MessageTemplate(role="system", content="{{ a }}\n", cache_control=CacheControl(ttl="1h")),
        MessageTemplate(role="developer", content="{{ a }}"),
        MessageTemplate(role="user", content="{{ b }}{{ inputs.doc }}\r\n{{ n }}"),
    ),
    variables=("a", "b", "n"),
    inputs=("doc",),
)
MARKER_FORMS = ("cache_control", "prompt_cache_breakpoint", "omit")


def documented(run: PreparedRun, markers: str) -> bytes:
    """Write the prepared messages as a chat-completions server is told them, with the standard library alone."""
    wire = [_as_chat(message, markers) for message in run.messages]
    return json.dumps(wire, ensure_ascii=False, separators=(",", ":")).encode()


def _as_chat(message: Message, markers: str) -> dict[str, Any]:
    marker, mark = message.cache_control, {}
    if marker is not None and markers == "cache_control":
        mark = {"cache_control": {"type": "ephemeral", **({"ttl": marker.ttl} if marker.ttl else {})}}
    elif marker is not None and markers == "prompt_cache_breakpoint":
        mark = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    if isinstance(message.content, str) and not mark:
        return {"role": message.role, "content": message.content}
    parts = (TextPart(text=message.content),) if isinstance(message.content, str) else message.content
    wire = [_as_part(part) for part in parts]
    if wire:
        wire[-1] |= mark
    return {"role": message.role, "content": wire}


def _as_part(part: TextPart | ImagePart | FilePart) -> dict[str, Any]:
    match part:
        case TextPart(text=text):
            return {"type": "text", "text": text}
        case ImagePart(data=None, url=url):
            return {"type": "image_url", "image_url": {"url": url}}
        case ImagePart(media_type=media_type, data=bytes(data)):
            return {"type": "image_url", "image_url": {"url": _data_url(media_type, data)}}
        case FilePart(media_type=media_type, data=data, filename=filename):
            named = {} if filename is None else {"filename": filename}
            return {"type": "file", "file": {**named, "file_data": _data_url(media_type, data)}}
    raise AssertionError(part)


def _data_url(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


texts = st.text()
parts = (
    st.builds(TextPart, text=texts)
    | st.builds(ImagePart, media_type=st.just("image/png"), url=st.just("https://h/%C3%A9?x=%22y%22&z='"))
    | st.builds(ImagePart, media_type=st.just("image/webp"), data=st.binary())
    | st.builds(FilePart, media_type=st.just("application/pdf"), data=st.binary(), filename=st.none() | texts)
)
roles = st.sampled_from(["system", "developer", "user", "assistant"])
plain = st.builds(Message, role=roles, content=texts | st.lists(parts, max_size=3).map(tuple))
marked = st.builds(
    Message,
    role=roles,
    content=st.text(min_size=1)
    | st.lists(parts, min_size=1, max_size=3).map(tuple).filter(lambda some: some[-1] != TextPart(text="")),
    cache_control=st.builds(CacheControl, ttl=st.sampled_from([None, "5m", "1h"])),
)
appended = st.lists(plain | marked, max_size=3).map(tuple)
values = st.fixed_dictionaries(
    {"a": texts, "b": texts, "n": st.integers() | st.booleans() | st.lists(texts, max_size=2)},
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    variables=values,
    doc=texts,
    first=appended,
    second=appended,
    answer=texts,
    markers=st.sampled_from(MARKER_FORMS),
    backend=st.sampled_from(["asyncio", "trio"]),
)
def test_the_messages_of_a_body_are_byte_for_byte_those_that_were_prepared(
    stub: StubServer,
    *,
    variables: dict[str, Any],
    doc: str,
    first: tuple[Message, ...],
    second: tuple[Message, ...],
    answer: str,
    markers: str,
    backend: str,
) -> None:
    stub.requests.clear()
    stub.say(ok(answer))

    async def converse() -> list[PreparedRun]:
        catalog = small_catalog(stub.base_url, cache_markers=markers)
        async with Engine(catalog | Catalog(prompts=[MARKED])) as engine:
            asked = RunRequest(
                prompt_id="marked",
                profile="warm",
                variables={**variables, "a": variables["a"] or "a"},
                inputs={"doc": doc},
                appended_messages=first,
                capture_exchange=True,
            )
            prepared = [await engine.prepare(asked)]
            start = (await engine.run(asked)).exchange
            again = RunRequest(prompt_id="more", appended_messages=second, continue_from=start)
            prepared.append(await engine.prepare(again))
            await engine.run(again)
            execution = await engine.prepare_execution(again)
            result = await engine.run_prepared(execution)
            prepared.append(execution.details)
            assert result.exchange.details().messages[:-1] == execution.details.messages
            return prepared

    prepared = anyio.run(converse, backend=backend)
    assert [request.messages for request in stub.requests] == [documented(run, markers) for run in prepared]
    assert prepared[1] == prepared[2]
    assert prepared[1].messages[: len(prepared[0].messages)] == prepared[0].messages
    assert prepared[1].messages[len(prepared[0].messages)] == Message(role="assistant", content=answer)
