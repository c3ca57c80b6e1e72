"""What a server receives: the promises about bytes, seen from outside."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from promptkit import (
    CacheControl,
    Catalog,
    Engine,
    ImagePart,
    Message,
    MessageTemplate,
    OutputContract,
    PromptDefinition,
    RunRequest,
    Secret,
    TextPart,
)
from servers.catalogs import NUMBER, small_catalog
from servers.stub import error, ok

if TYPE_CHECKING:
    from servers.stub import StubServer

pytestmark = pytest.mark.anyio

FIRST = RunRequest(prompt_id="ask", variables={"question": 'Quo "vadis"?\n\u2028é🙂'}, capture_exchange=True)


async def test_the_second_requests_messages_start_with_the_bytes_of_the_firsts(stub: StubServer) -> None:
    stub.say(ok("Rome."), ok('{"a": 1}'), ok("Yes."))
    async with Engine(small_catalog(stub.base_url)) as engine:
        first = await engine.run(FIRST)
        second = await engine.run(RunRequest(prompt_id="follow", continue_from=first.exchange))
        await engine.run(RunRequest(prompt_id="more", continue_from=second.exchange))
    sent = [request.messages for request in stub.requests]
    assert sent[1].startswith(sent[0][:-1] + b",")
    assert sent[2].startswith(sent[1][:-1] + b",")
    assert json.loads(sent[2]) == [
        {"role": "system", "content": "You are terse."},
        {"role": "user", "content": 'Quo "vadis"?\n\u2028é🙂'},
        {"role": "assistant", "content": "Rome."},
        {"role": "user", "content": "And then?"},
        {"role": "assistant", "content": '{"a": 1}'},
        {"role": "user", "content": "More?"},
    ]


async def test_siblings_send_the_same_bytes_for_the_history_they_share(stub: StubServer) -> None:
    stub.say(ok("Rome."), ok('{"a": 1}'), ok("Yes."))
    async with Engine(small_catalog(stub.base_url)) as engine:
        first = await engine.run(FIRST)
        await engine.run(RunRequest(prompt_id="follow", continue_from=first.exchange))
    async with Engine(small_catalog(stub.base_url)) as another:
        await another.run(RunRequest(prompt_id="more", continue_from=first.exchange))
    shared = json.dumps([*json.loads(stub.requests[0].messages), {"role": "assistant", "content": "Rome."}])
    for request in stub.requests[1:]:
        assert json.loads(request.messages)[:3] == json.loads(shared)
    one, other = (request.messages for request in stub.requests[1:])
    common = len(stub.requests[0].messages) + len(',{"role":"assistant","content":"Rome."}')
    assert one[: common - 1] == other[: common - 1]


async def test_a_follow_up_uses_its_own_profile_and_contract_and_nothing_of_the_first_run_crosses(
    stub: StubServer,
) -> None:
    stub.say(ok("Rome."), ok('{"a": 1}'))
    catalog = small_catalog(stub.base_url, session_parameter="session")
    async with Engine(catalog) as engine:
        first = await engine.run(
            RunRequest(
                prompt_id="ask",
                variables={"question": "Where?"},
                credential=Secret("first-key"),
                output=OutputContract(kind="json", max_repairs=0),
                capture_exchange=True,
            )
        )
        second = await engine.run(RunRequest(prompt_id="follow", continue_from=first.exchange))
    asked, followed = (request.json for request in stub.requests)
    assert {key: asked[key] for key in asked if key != "messages"} == {
        "model": "warm-model",
        "temperature": 0.7,
        "seed": 5,
        "stop": ["END"],
        "session": "session of Where?",
        "response_format": {"type": "json_object"},
    }
    assert {key: followed[key] for key in followed if key != "messages"} == {
        "model": "cold-model",
        "max_tokens": 99,
        "response_format": {"type": "json_schema", "json_schema": {"name": "number", "schema": NUMBER}},
    }
    assert stub.requests[0].header("authorization") == "Bearer first-key"
    assert stub.requests[1].header("authorization") is None
    assert (second.profile, second.session_id, second.value) == ("cold", None, {"a": 1})


async def test_run_ids_and_parents_are_never_sent(stub: StubServer) -> None:
    stub.say(ok("Rome."), ok("Yes."))
    async with Engine(small_catalog(stub.base_url)) as engine:
        first = await engine.run(FIRST)
        second = await engine.run(RunRequest(prompt_id="more", continue_from=first.exchange))
    everything = b"".join(r.body + repr(r.headers).encode() for r in stub.requests)
    assert first.run_id.encode() not in everything
    assert second.run_id.encode() not in everything


async def test_the_prepared_messages_are_what_is_sent(stub: StubServer) -> None:
    stub.say(ok("Rome."), ok("Yes."))
    appended = (
        Message(role="assistant", content="Earlier."),
        Message(role="user", content=(TextPart(text="See:"), ImagePart(media_type="image/png", url="http://x/y"))),
    )
    async with Engine(small_catalog(stub.base_url)) as engine:
        first = await engine.run(FIRST)
        request = RunRequest(prompt_id="more", continue_from=first.exchange, appended_messages=appended)
        prepared = await engine.prepare(request)
        await engine.validate_request(request)
        await engine.run(request)
    assert len(stub.requests) == 2
    sent = json.loads(stub.requests[1].messages)
    assert [message["role"] for message in sent] == [message.role for message in prepared.messages]
    assert [message["content"] for message in sent[:5]] == [message.content for message in prepared.messages[:5]]
    assert sent[5]["content"][1] == {"type": "image_url", "image_url": {"url": "http://x/y"}}


async def test_a_retry_sends_the_same_bytes_again(stub: StubServer) -> None:
    stub.say(error(503), error(429), ok("Rome."))
    async with Engine(small_catalog(stub.base_url)) as engine:
        result = await engine.run(FIRST)
    assert (result.attempts, result.transient_retries, result.repair_calls) == (3, 2, 0)
    assert len({request.body for request in stub.requests}) == 1


async def test_a_repair_sends_the_original_messages_then_the_answer_and_what_is_wrong(stub: StubServer) -> None:
    stub.say(ok("Rome."), ok("x" * 50), ok('{"a": "y"}'), ok('{"a": 3}'), ok("Yes."))
    async with Engine(small_catalog(stub.base_url, max_repairs=2)) as engine:
        first = await engine.run(FIRST)
        second = await engine.run(RunRequest(prompt_id="follow", continue_from=first.exchange))
        await engine.run(RunRequest(prompt_id="more", continue_from=second.exchange))
    original, repair, again, after = (request.messages for request in stub.requests[1:])
    assert repair.startswith(original[:-1] + b",")
    assert again.startswith(original[:-1] + b",")
    assert [message["role"] for message in json.loads(repair)[-2:]] == ["assistant", "user"]
    assert json.loads(again)[-2]["content"] == '{"a": "y"}'
    assert len(json.loads(again)) == len(json.loads(repair))
    assert "/a" in json.loads(again)[-1]["content"]
    # The history has the final answer, and nothing of the repair.
    assert json.loads(after)[:-1] == [*json.loads(original), {"role": "assistant", "content": '{"a": 3}'}]
    assert (second.attempts, second.repair_calls, second.validation.status) == (3, 2, "valid")


async def test_a_redirect_is_not_followed(stub: StubServer) -> None:
    stub.say(error(307, "elsewhere", ("location", f"{stub.base_url}/other")))
    async with Engine(small_catalog(stub.base_url)) as engine:
        with pytest.raises(Exception, match="307"):
            await engine.run(FIRST)
    assert len(stub.requests) == 1


async def test_cookies_of_one_run_do_not_reach_another(stub: StubServer) -> None:
    stub.say(ok("Rome.").replace(b"content-type", b"set-cookie: who=me; path=/\r\ncontent-type"), ok("Rome."))
    async with Engine(small_catalog(stub.base_url)) as engine:
        await engine.run(FIRST)
        await engine.run(FIRST)
    assert stub.requests[1].header("cookie") is None


async def test_cache_markers_are_sent_as_authored_and_stay_in_the_history(stub: StubServer) -> None:
    stub.say(ok("Rome."), ok("Yes."))
    catalog = small_catalog(stub.base_url) | Catalog(
        prompts=[
            PromptDefinition(
                id="marked",
                messages=(MessageTemplate(role="system", content="Long.", cache_control=CacheControl(ttl="1h")),),
            )
        ]
    )
    async with Engine(catalog) as engine:
        first = await engine.run(RunRequest(prompt_id="marked", profile="warm", capture_exchange=True))
        await engine.run(RunRequest(prompt_id="more", continue_from=first.exchange))
    marker = {"type": "ephemeral", "ttl": "1h"}
    for request in stub.requests:
        assert json.loads(request.messages)[0]["content"] == [
            {"type": "text", "text": "Long.", "cache_control": marker}
        ]


async def test_a_long_body_that_is_sent_in_pieces_arrives_whole(stub: StubServer) -> None:
    stub.say(ok("Rome."))
    question = "é" * 200_000
    async with Engine(small_catalog(stub.base_url)) as engine:
        await engine.run(RunRequest(prompt_id="ask", variables={"question": question}))
    request = stub.requests[0]
    assert request.header("content-length") == str(len(request.body))
    assert request.header("transfer-encoding") is None
    assert request.json["messages"][1]["content"] == question
    assert request.json["model"] == "warm-model"
