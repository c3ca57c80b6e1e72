"""Hashes that anyone can recompute, in any process."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit import (
    Backend,
    CacheControl,
    Catalog,
    Engine,
    FilePart,
    ImagePart,
    Message,
    MessageTemplate,
    OutputContract,
    PreparedRun,
    Profile,
    PromptDefinition,
    RunRequest,
    TextPart,
)
from promptkit._history import Turn
from promptkit._load_catalog import definitions_of
from promptkit._prepare.pipeline import complete, details
from promptkit._prepare.plan import definition_hash, plan_of
from promptkit._prepare.selection import select
from promptkit._values.exchange import exchange_of

PROMPT: dict[str, Any] = {
    "id": "p",
    "messages": (
        MessageTemplate(role="system", content="é\n", cache_control=CacheControl(ttl="1h")),
        MessageTemplate(role="user", content="{{ q }}{{ inputs.doc }}"),
    ),
    "description": "d",
    "variables": ("q",),
    "inputs": ("doc",),
    "profile": "f",
    "session": "{{ q }}",
    "output": OutputContract(kind="json_schema", schema={"type": "object", "minProperties": 1}, max_repairs=1),
}
CATALOG = Catalog(
    backends=[Backend(id="b", kind="chat_completions", base_url="http://localhost/v1")],
    profiles=[Profile(id="f", backend="b", model="m"), Profile(id="g", backend="b", model="n")],
    prompts=[PromptDefinition(**PROMPT)],
)


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def shown(**fields: Any) -> PreparedRun:
    request = RunRequest(**{"prompt_id": "p", "variables": {"q": "é"}, "inputs": {"doc": "text"}, **fields})
    selection = select(definitions_of(CATALOG), request).unwrap()
    contents = {name: str(text).encode() for name, text in request.inputs.items()}
    return details(complete(selection, request, contents).unwrap(), request)


def hashed(**changes: Any) -> str:
    return definition_hash(PromptDefinition(**{**PROMPT, **changes}))


def test_a_definition_hash_can_be_recomputed() -> None:
    said = msgspec.to_builtins(PromptDefinition(**PROMPT))
    del said["id"], said["description"]
    assert hashed() == sha256(msgspec.json.encode(["promptkit/definition/1", said], order="sorted"))
    assert shown().definition_hash == hashed()


def test_it_is_about_what_the_prompt_says_not_where_it_is_stored() -> None:
    assert hashed(id="elsewhere/q", description=None) == hashed()
    turned = OutputContract(kind="json_schema", schema={"minProperties": 1, "type": "object"}, max_repairs=1)
    assert hashed(output=turned) == hashed()


@pytest.mark.parametrize(
    "change",
    [
        {"messages": PROMPT["messages"][::-1]},
        {"messages": PROMPT["messages"][:1]},
        {"messages": (PROMPT["messages"][0], MessageTemplate(role="developer", content="{{ q }}{{ inputs.doc }}"))},
        {"messages": (PROMPT["messages"][0], MessageTemplate(role="user", content="{{ q }} {{ inputs.doc }}"))},
        {"messages": (MessageTemplate(role="system", content="é\n"), PROMPT["messages"][1])},
        {
            "messages": (
                MessageTemplate(role="system", content="é\n", cache_control=CacheControl()),
                PROMPT["messages"][1],
            )
        },
        {"variables": ()},
        {"variables": ("q", "r")},
        {"inputs": ()},
        {"profile": None},
        {"profile": "g"},
        {"session": None},
        {"session": "{{ q }}!"},
        {"output": OutputContract()},
        {"output": OutputContract(kind="json_schema", schema={"type": "object", "minProperties": 1}, max_repairs=2)},
        {"output": OutputContract(kind="json_schema", schema={"type": "object", "minProperties": 2}, max_repairs=1)},
        {"output": OutputContract(kind="json_schema", schema={"type": "object", "minProperties": True}, max_repairs=1)},
    ],
)
def test_it_changes_with_everything_that_the_prompt_says(change: dict[str, Any]) -> None:
    assert hashed(**change) != hashed()


def test_a_plan_is_that_of_its_own_prompt_although_python_takes_1_for_true() -> None:
    prompts = [
        PromptDefinition(**{**PROMPT, "output": OutputContract(kind="json_schema", schema={"const": value})})
        for value in (1, True, 1.0)
    ]
    assert prompts[0] == prompts[1] == prompts[2]
    plans = [plan_of(prompt) for prompt in prompts]
    assert [plan.definition_hash for plan in plans] == [definition_hash(prompt) for prompt in prompts]
    assert len({plan.definition_hash for plan in plans}) == 3
    assert plan_of(prompts[0]) is plans[0]


texts = st.text()


def _has_an_end(message: Message) -> bool:
    """Say whether a cache marker has something to stand on; without it preparation refuses the message."""
    last = message.content[-1:]
    return bool(last) and last != (TextPart(text=""),)


messages = st.builds(
    Message,
    role=st.sampled_from(["system", "developer", "user", "assistant"]),
    content=texts
    | st.lists(
        st.builds(TextPart, text=texts)
        | st.builds(ImagePart, media_type=st.just("image/png"), url=st.just("https://host.example/a.png"))
        | st.builds(ImagePart, media_type=st.just("image/webp"), data=st.binary())
        | st.builds(FilePart, media_type=st.just("application/pdf"), data=st.binary(), filename=st.none() | texts)
    ).map(tuple),
    cache_control=st.none() | st.builds(CacheControl, ttl=st.sampled_from([None, "5m", "1h"])),
).filter(lambda message: message.cache_control is None or _has_an_end(message))


@given(q=texts, doc=texts, session=st.none() | texts, appended=st.lists(messages), history=st.booleans())
def test_a_rendered_hash_can_be_recomputed(
    q: str, doc: str, session: str | None, appended: list[Message], *, history: bool
) -> None:
    old = exchange_of(Turn(None, [("user", q, "5m")]).capture("r1", doc)) if history else None
    run = shown(
        variables={"q": q or "q"},
        inputs={"doc": doc},
        session_id=session,
        appended_messages=appended,
        continue_from=old,
    )
    recomputed = sha256(msgspec.json.encode(["promptkit/rendered/1", run.messages, run.session_id]))
    assert run.rendered_hash == recomputed


def test_a_rendered_hash_covers_the_messages_and_the_session_and_nothing_else() -> None:
    same = shown()
    assert shown(profile="g").rendered_hash == same.rendered_hash
    assert shown(capture_exchange=True).rendered_hash == same.rendered_hash
    assert shown(output=OutputContract()).rendered_hash == same.rendered_hash
    changed = [
        shown(variables={"q": "e"}),
        shown(inputs={"doc": "Text"}),
        shown(session_id="other"),
        shown(appended_messages=[Message(role="user", content="")]),
        shown(continue_from=exchange_of(Turn(None, []).capture("r1", ""))),
    ]
    assert len({run.rendered_hash for run in [same, *changed]}) == 6
    first, second = (exchange_of(Turn(None, []).capture(run_id, "x")) for run_id in ("r1", "r2"))
    assert shown(continue_from=first).rendered_hash == shown(continue_from=second).rendered_hash


def test_details_encode_and_are_detached() -> None:
    run = shown(continue_from=exchange_of(Turn(None, [("user", "q", None)]).capture("r1", "a")))
    encoded = msgspec.json.encode(run)
    assert msgspec.json.encode(msgspec.json.decode(encoded, type=PreparedRun)) == encoded
    assert msgspec.to_builtins(run)["settings"]["model"] == {"value": "m", "origin": "profile"}


@pytest.mark.anyio
async def test_the_engine_prepares_the_same() -> None:
    request = RunRequest(prompt_id="p", variables={"q": "é"}, inputs={"doc": "text"})
    assert await Engine(CATALOG).prepare(request) == shown()


SCRIPT = """
from promptkit import CacheControl, Message, MessageTemplate, OutputContract, PromptDefinition
from promptkit._history import Turn
from promptkit._prepare.plan import definition_hash
from promptkit._values.frozen import frozen_json
from promptkit._values.templates import compile_template
schema = {"properties": {name: {"enum": ["x", 1.5]} for name in ("b", "a", "c")}}
prompt = PromptDefinition(id="p", messages=[MessageTemplate(role="user", content="{{ a }}{{ b }}")],
                          variables=["a", "b"], output=OutputContract(kind="json_schema", schema=schema))
print(definition_hash(prompt))
template = compile_template("{{ d }}{% for k, v in d|items %}{{ k }}{% endfor %}{{ d|dictsort }}").unwrap()
text = template.render({"d": frozen_json({"z": 1, "y": [1e22, 0.1], "x": {}})}, {}).unwrap()
print(text)
print(Turn(None, [("user", text, "1h")]).digest("s"))
"""


def test_hashes_and_texts_do_not_depend_on_the_process() -> None:
    said = {
        subprocess.run(  # the same interpreter
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": locale, "PYTHONUTF8": "0"},
            capture_output=True,
            check=True,
        ).stdout
        for seed, locale in (("0", "C"), ("1", "C.UTF-8"), ("4242", "POSIX"))
    }
    assert len(said) == 1
    assert said.pop().count(b"sha256:") == 2
