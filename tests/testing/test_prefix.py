"""Whether what is sent for a conversation begins with what was sent before it, and what is said where it does not."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from promptkit import (
    Backend,
    CacheControl,
    Catalog,
    Engine,
    GenerationCall,
    ImagePart,
    Message,
    MessageTemplate,
    OutputContract,
    OverloadedError,
    Profile,
    PromptDefinition,
    RetryPolicy,
    RunRequest,
    TextPart,
)
from promptkit.testing import ScriptedClient, assert_prefix_stable

pytestmark = pytest.mark.anyio
KINDS = pytest.mark.parametrize("kind", ["chat_completions", "anthropic_messages"])
MARK = CacheControl()


def catalog(kind: Any = "chat_completions") -> Catalog:
    at_once = RetryPolicy(base_delay=0.0, max_delay=0.0)
    system = MessageTemplate(role="system", content="You are {{ mood }}.")
    return Catalog(
        backends=[Backend(id=id_, kind=kind, base_url="http://127.0.0.1:1", retry=at_once) for id_ in ("one", "other")],
        profiles=[
            Profile(id=id_, backend=backend_id, model=model, max_output_tokens=9)
            for id_, backend_id, model in (
                ("p", "one", "m"),
                ("other-model", "one", "n"),
                ("other-backend", "other", "m"),
            )
        ],
        prompts=[
            PromptDefinition(
                id="begin",
                messages=(system, MessageTemplate(role="user", content="{{ question }}")),
                variables=("mood", "question"),
                profile="p",
            ),
            PromptDefinition(
                id="more", messages=(MessageTemplate(role="user", content="{{ question }}"),), variables=("question",)
            ),
        ],
    )


def begin(question: str = "Where?", mood: str = "terse", **fields: Any) -> RunRequest:
    variables = {"question": question, "mood": mood}
    return RunRequest(prompt_id="begin", variables=variables, capture_exchange=True, **fields)


async def sent(*requests: RunRequest, kind: str = "chat_completions") -> list[GenerationCall]:
    client = ScriptedClient(*["yes"] * len(requests))
    engine = Engine(catalog(kind), client=client)
    for request in requests:
        await engine.run(request)
    return client.calls


async def refusal(*requests: RunRequest, kind: str = "chat_completions") -> str:
    with pytest.raises(AssertionError) as raised:
        assert_prefix_stable(*await sent(*requests, kind=kind))
    return str(raised.value)


@KINDS
async def test_the_turns_of_a_conversation_with_retries_and_repairs_between_them_are_stable(kind: str) -> None:
    client = ScriptedClient("{}", OverloadedError("busy", status=503), "bad", "{}", "worse", "bad", "[]", "{}")
    engine = Engine(catalog(kind), client=client)
    contract = OutputContract(kind="json", max_repairs=3)
    result = await engine.run(begin())
    for question in ("And then?", "And there?", "And?"):
        request = RunRequest(
            prompt_id="more",
            profile="p",
            variables={"question": question},
            output=contract,
            continue_from=result.exchange,
        )
        result = await engine.run(request)
    client.assert_exhausted()
    assert [call.purpose for call in client.calls].count("repair") == 3
    assert_prefix_stable(*client.calls)
    for earlier, later in itertools.combinations([call for call in client.calls if call.purpose == "generate"], 2):
        assert_prefix_stable(earlier, later)


@KINDS
async def test_branches_are_stable_against_what_they_branch_from_and_not_against_each_other(kind: str) -> None:
    client = ScriptedClient("1", "2", "3")
    engine = Engine(catalog(kind), client=client)
    start = (await engine.run(begin())).exchange
    for question in ("left?", "right?"):
        await engine.run(
            RunRequest(prompt_id="more", profile="p", variables={"question": question}, continue_from=start)
        )
    first, left, right = client.calls
    assert_prefix_stable(first, left)
    assert_prefix_stable(first, right)
    with pytest.raises(AssertionError, match=r"message 4 of 4 \(user\) differs from character 1 on\n"):
        assert_prefix_stable(left, right)


@KINDS
async def test_a_time_in_the_system_text_is_named_as_the_likely_cause(kind: str) -> None:
    said = await refusal(begin(mood="here at 12:04:01"), begin(mood="here at 12:04:02"), kind=kind)
    assert said == (
        "call 2 does not begin with what was sent for call 1: no cache of prompts helps it\n"
        "  message 1 of 2 (system) differs from character 24 on\n"
        "  before: 'You are here at 12:04:01.'\n"
        "  now:    'You are here at 12:04:02.'\n"
        "  A time or an id stands there, which changes from run to run: move it to the last message."
    )


@pytest.mark.parametrize(
    ("before", "now", "changing"),
    [
        ("on 2026-03-01", "on 2026-03-02", True),
        ("at 9:41", "at 9:42", True),
        ("id 3f2a9c1e-77aa-4b10-9f00-000000000001", "id 3f2a9c1e-77aa-4b10-9f00-000000000002", True),
        ("id 3f2a9c1e77aa", "id 4f2a9c1e77aa", True),
        ("since 1772366400.1", "since 1772366500.1", True),
        ("of 2026-03-01, terse", "of 2026-03-01, loud", False),
        ("version 12", "version 13", False),
        ("at 9:41", "on Monday", False),
    ],
)
async def test_a_time_is_the_likely_cause_only_where_one_stands_in_both(before: str, now: str, changing: bool) -> None:  # noqa: FBT001
    said = await refusal(begin(mood=before), begin(mood=now))
    assert ("A time or an id stands there" in said) is changing
    assert ("The system text changed" in said) is not changing


@KINDS
async def test_a_changed_system_text_is_told_with_what_is_around_the_difference(kind: str) -> None:
    said = await refusal(begin(mood="a" * 500 + "b" * 500), begin(mood="a" * 500 + "c" * 500), kind=kind)
    assert "message 1 of 2 (system) differs from character 509 on\n" in said
    assert said.endswith("\n  The system text changed: what varies belongs in a later message.")
    assert f"before: '…{'a' * 24}{'b' * 40}…'" in said
    assert f"now:    '…{'a' * 24}{'c' * 40}…'" in said


async def test_a_fresh_conversation_instead_of_a_continuation_is_told() -> None:
    said = await refusal(begin("Where?"), begin("And then?"))
    assert "message 2 of 2 (user) differs from character 1 on\n" in said
    assert said.endswith("\n  Was it run without continue_from, or is it of another branch?")


async def test_a_text_that_only_lost_its_end_differs_where_it_ends() -> None:
    assert "message 2 of 2 (user) differs from character 6 on" in await refusal(begin("Where?"), begin("Where"))


async def test_fewer_messages_are_told() -> None:
    client = ScriptedClient("yes", "yes")
    engine = Engine(catalog(), client=client)
    more = tuple(Message(role="user", content=text) for text in ("a", "b"))
    await engine.run(begin(appended_messages=more))
    await engine.run(begin())
    with pytest.raises(AssertionError, match=r"it has 2 messages, fewer than the 4 before\n  Was it run without"):
        assert_prefix_stable(*client.calls)


@KINDS
async def test_a_cache_marker_that_moved_is_told(kind: str) -> None:
    marked = (Message(role="user", content="long", cache_control=MARK),)
    plain = (Message(role="user", content="long"),)
    said = await refusal(begin(appended_messages=marked), begin(appended_messages=plain), kind=kind)
    assert "message 3 of 3 (user) has another cache marker, none after ephemeral\n  Markers are sent with" in said


async def test_another_role_and_other_parts_are_told() -> None:
    user, developer = (Message(role=role, content="x") for role in ("user", "developer"))
    said = await refusal(begin(appended_messages=(user,)), begin(appended_messages=(developer,)))
    assert "message 3 of 3 (user) is now of the role 'developer'" in said
    image = Message(role="user", content=(TextPart(text="x"), ImagePart(media_type="image/png", data=b"x" * 9999)))
    said = await refusal(begin(appended_messages=(image,)), begin(appended_messages=(user,)))
    assert "message 3 of 3 (user) has other parts\n  before: (" in said
    assert said.endswith("\n  Attach the same inputs to it.")
    assert len(said) < 1000


async def test_another_model_and_another_backend_share_no_cache() -> None:
    said = await refusal(begin(), begin(profile="other-model"))
    assert "it goes to another model, 'n' after 'm'\n  Use one profile for the conversation." in said
    assert "it goes to another backend, 'other' after 'one'" in await refusal(begin(), begin(profile="other-backend"))


async def test_the_same_messages_in_another_encoding_are_told() -> None:
    marked = RunRequest(
        prompt_id="begin",
        variables={"mood": "x", "question": "y"},
        appended_messages=(Message(role="user", content="long", cache_control=MARK),),
    )
    calls = []
    for markers in ("cache_control", "omit"):
        one = Backend(id="one", kind="chat_completions", base_url="http://127.0.0.1:1", cache_markers=markers)
        whole = catalog()
        client = ScriptedClient("yes")
        changed = Catalog(
            backends=[one, whole.backends["other"]], profiles=whole.profiles.values(), prompts=whole.prompts.values()
        )
        await Engine(changed, client=client).run(marked)
        calls += client.calls
    with pytest.raises(AssertionError, match="The two backends differ in cache_markers or late_system"):
        assert_prefix_stable(*calls)


async def test_less_than_two_calls_are_no_success() -> None:
    with pytest.raises(AssertionError, match="nothing to compare: 0 calls were given, and it takes two"):
        assert_prefix_stable()
    with pytest.raises(AssertionError, match="nothing to compare: 1 calls"):
        assert_prefix_stable(*await sent(begin()))


async def test_what_is_no_call_is_refused_with_the_remedy() -> None:
    calls = await sent(begin(), begin())
    result = await Engine(catalog(), client=ScriptedClient("x")).run(begin())
    given: list[tuple[Any, str]] = [
        (calls, r"got `list`: give its elements: assert_prefix_stable\(\*client.calls\)"),
        (result.exchange, "got `Exchange`: what is sent depends on the backend too; give calls"),
        ("x", "got `str`: give calls of a ScriptedClient"),
    ]
    for value, said in given:
        with pytest.raises(TypeError, match=f"argument 1: Expected a GenerationCall, {said}"):
            assert_prefix_stable(value)


async def test_the_first_pair_of_several_that_is_not_stable_is_named() -> None:
    said = await refusal(begin(), begin(), begin(mood="other"))
    assert said.startswith("call 3 does not begin with what was sent for call 2")
