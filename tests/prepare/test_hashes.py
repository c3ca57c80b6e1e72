"""Hashes that anyone can recompute, in any process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit import (
    JSON,
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
    load_catalog,
)
from promptkit._history import Turn
from promptkit._load_catalog import definitions_of
from promptkit._prepare.pipeline import complete, details
from promptkit._prepare.plan import Plan, definition_hash, plan_of
from promptkit._prepare.selection import select
from promptkit._values.exchange import exchange_of

FIRST: dict[str, Any] = {"role": "system", "content": "é\n", "cache_control": CacheControl(ttl="1h")}
OUTPUT: dict[str, Any] = {
    "kind": "json_schema",
    "schema": {"type": "object", "minProperties": 1},
    "max_repairs": 1,
}
PROMPT: dict[str, Any] = {
    "id": "p",
    "messages": (
        MessageTemplate(**FIRST),
        MessageTemplate(role="user", content="{{ q }}{{ inputs.doc }}"),
    ),
    "description": "d",
    "variables": ("q",),
    "inputs": ("doc",),
    "profile": "f",
    "session": "{{ q }}",
    "output": OutputContract(**OUTPUT),
}
CATALOG = Catalog(
    backends=[Backend(id="b", kind="chat_completions", base_url="http://localhost/v1")],
    profiles=[Profile(id="f", backend="b", model="m"), Profile(id="g", backend="b", model="n")],
    prompts=[PromptDefinition(**PROMPT)],
)


REFERENCE = (Path(__file__).parents[2] / "docs" / "reference" / "hashes.md").read_text(encoding="utf-8")
FUNCTIONS, EXAMPLE = re.findall(r"```python\n(.*?)```", REFERENCE, re.DOTALL)
OF_THE_REFERENCE: dict[str, Any] = {}
exec(compile(FUNCTIONS, "hashes.md", "exec"), OF_THE_REFERENCE)  # noqa: S102  # needs hashlib and json, nothing else


def sha256(content: bytes) -> str:
    found: str = OF_THE_REFERENCE["sha256"](content)
    return found


def said_by(
    prompt: PromptDefinition, schemas: dict[str, Any] | None = None, fragments: dict[str, str] | None = None
) -> Any:
    """Write down by hand what the reference says is hashed of a prompt."""
    output, schema, name = prompt.output, prompt.output.schema, prompt.output.name
    if isinstance(schema, str):
        name = name or re.sub("[^A-Za-z0-9_-]", "_", schema)[-64:]
        schema = (schemas or {})[schema]
        schema = {True: {}, False: {"not": {}}}[schema] if isinstance(schema, bool) else schema
    return {
        "messages": [
            {
                "role": message.role,
                "content": message.content,
                "cache_control": message.cache_control
                and {"type": message.cache_control.type, "ttl": message.cache_control.ttl},
                "attachments": list(message.attachments),
            }
            for message in prompt.messages
        ],
        "variables": list(prompt.variables),
        "inputs": list(prompt.inputs),
        "profile": prompt.profile,
        "session": prompt.session,
        "output": {"kind": output.kind, "schema": schema, "name": name, "max_repairs": output.max_repairs},
        "fragments": fragments or {},
    }


def recomputed(prompt: PromptDefinition, **beside: Any) -> str:
    found: str = OF_THE_REFERENCE["definition_hash"](said_by(prompt, **beside))
    return found


def shown(**fields: Any) -> PreparedRun:
    request = RunRequest(**{"prompt_id": "p", "variables": {"q": "é"}, "inputs": {"doc": "text"}, **fields})
    selection = select(definitions_of(CATALOG), request).unwrap()
    contents = {name: str(text).encode() for name, text in request.inputs.items()}
    return details(complete(selection, request, contents).unwrap())


def hashed(**changes: Any) -> str:
    return definition_hash(PromptDefinition(**{**PROMPT, **changes}))


def test_the_example_of_the_reference_is_right() -> None:
    script = FUNCTIONS + EXAMPLE
    command = [sys.executable, "-X", "utf8", "-c", script]
    printed = subprocess.run(command, capture_output=True, check=True, text=True, encoding="utf-8").stdout
    assert printed in REFERENCE
    assert len(printed.split()) == 3


def test_the_functions_of_the_reference_need_hashlib_and_json_alone() -> None:
    assert set(re.findall(r"^(?:import|from) (\S+)", FUNCTIONS, re.MULTILINE)) == {"hashlib", "json"}


def test_the_reference_names_every_field_that_is_hashed() -> None:
    said = set(PromptDefinition.__struct_fields__) - {"id", "description"} | {"fragments"}
    table = REFERENCE.split("| key | value |")[1].split("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| ([^|]*) \|", table, re.MULTILINE)))) == said
    nested: tuple[Any, ...] = (MessageTemplate, OutputContract, CacheControl)
    for kind in nested:
        assert {field for field in kind.__struct_fields__ if f"`{field}`" not in table} == set()
    order = re.findall(r"^\| (?:message|cache marker|\w+ part) \| (.*) \|$", REFERENCE, re.MULTILINE)
    kinds: tuple[Any, ...] = (Message, CacheControl, TextPart, ImagePart, FilePart)
    for kind, row in zip(kinds, order, strict=True):
        named = [key for key in re.findall(r"`(\w+)`", row) if key != "type" or kind is CacheControl]
        assert named == list(kind.__struct_fields__)


names = st.lists(st.from_regex(r"[a-z]{1,3}", fullmatch=True), unique=True, max_size=3).map(tuple)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
usable_schemas = st.booleans() | st.dictionaries(st.sampled_from(["const", "default", "examples", "x-é"]), json_values)
inline = usable_schemas.filter(lambda schema: isinstance(schema, dict) and isinstance(schema.get("examples", []), list))
contracts = (
    st.builds(OutputContract)
    | st.builds(OutputContract, kind=st.just("json"), max_repairs=st.integers(0, 3))
    | st.builds(
        OutputContract,
        kind=st.just("json_schema"),
        schema=st.sampled_from(["team/a b", "é" * 70]) | inline,
        name=st.none() | st.just("n-1"),
    )
)
definitions = st.builds(
    PromptDefinition,
    id=st.just("p"),
    messages=st.lists(
        st.builds(
            MessageTemplate,
            role=st.sampled_from(["system", "developer", "user", "assistant"]),
            content=st.text(),
            cache_control=st.none() | st.builds(CacheControl, ttl=st.sampled_from([None, "5m", "1h"])),
        ),
        min_size=1,
        max_size=3,
    ).map(tuple),
    description=st.none() | st.text(),
    variables=names,
    inputs=names,
    profile=st.none() | st.text(),
    session=st.none() | st.text(),
    output=contracts,
)


@given(prompt=definitions, content=usable_schemas, fragments=st.dictionaries(st.text(), st.text(), max_size=2))
def test_a_definition_hash_can_be_recomputed(prompt: PromptDefinition, content: Any, fragments: dict[str, str]) -> None:
    if isinstance(content, dict) and not isinstance(content.get("examples", []), list):
        content = True
    schemas = {"team/a b": content, "é" * 70: content}
    assert definition_hash(prompt, schemas, fragments) == recomputed(prompt, schemas=schemas, fragments=fragments)


def test_details_tell_the_hash_of_the_definition_whatever_contract_the_request_gives() -> None:
    assert shown().definition_hash == hashed() == recomputed(PromptDefinition(**PROMPT))
    assert shown(output=OutputContract(), profile="g", session_id="s").definition_hash == hashed()


def test_a_definition_is_hashed_with_the_content_of_its_schema_and_its_fragments() -> None:
    prompt = PromptDefinition(**{**PROMPT, "output": OutputContract(kind="json_schema", schema="s")})
    hashes = [
        definition_hash(prompt, {"s": {"const": 1}}),
        definition_hash(prompt, {"s": {"const": 2}}),
        definition_hash(prompt, {"s": {"const": True}}),
        definition_hash(prompt, {"s": {"const": 1}}, {"tone.txt": "a"}),
        definition_hash(prompt, {"s": {"const": 1}}, {"tone.txt": "b"}),
        definition_hash(prompt, {"s": {"const": 1}}, {"other.txt": "a"}),
    ]
    assert len(set(hashes)) == len(hashes)
    assert definition_hash(prompt, {"s": {"const": 1}, "t": {}}) == hashes[0]
    named = PromptDefinition(**{**PROMPT, "output": OutputContract(kind="json_schema", schema={"const": 1}, name="s")})
    assert definition_hash(named) == hashes[0]  # the same is said to the backend


def test_one_definition_in_two_catalogs_has_the_plan_of_each() -> None:
    prompt = PromptDefinition(**{**PROMPT, "output": OutputContract(kind="json_schema", schema="s")})
    plans: list[Plan] = [plan_of(prompt, {"s": schema}) for schema in ({"const": 1}, {"const": 2}, {"const": 1})]
    assert plans[0].definition_hash == plans[2].definition_hash != plans[1].definition_hash


def test_it_is_about_what_the_prompt_says_not_where_it_is_stored() -> None:
    assert hashed(id="elsewhere/q", description=None) == hashed()
    turned = OutputContract(kind="json_schema", schema={"minProperties": 1, "type": "object"}, max_repairs=1)
    assert hashed(output=turned) == hashed()


def _schema(value: JSON) -> OutputContract:
    return OutputContract(kind="json_schema", schema={"type": "object", "const": value}, max_repairs=1)


CHANGES: dict[str, list[Any]] = {
    "messages": [
        PROMPT["messages"][::-1],
        PROMPT["messages"][:1],
        *(
            (MessageTemplate(**{**FIRST, **change}), PROMPT["messages"][1])
            for change in (
                {"role": "developer"},
                {"content": "é"},
                {"content": "e\n"},
                {"cache_control": None},
                {"cache_control": CacheControl()},
                {"cache_control": CacheControl(ttl="5m")},
                {"attachments": ("doc",)},
            )
        ),
    ],
    "variables": [(), ("q", "r"), ("r",)],
    "inputs": [(), ("doc", "other")],
    "profile": [None, "g"],
    "session": [None, "{{ q }}!", ""],
    "output": [
        OutputContract(),
        OutputContract(kind="json"),
        OutputContract(kind="json", max_repairs=1),
        *(OutputContract(**{**OUTPUT, **change}) for change in ({"max_repairs": 2}, {"name": "n"})),
        *(_schema(value) for value in (1, 1.5, True, "1", None, [1], {"a": 1})),
    ],
}


def test_it_changes_with_everything_that_the_prompt_says() -> None:
    assert CHANGES.keys() == set(PromptDefinition.__struct_fields__) - {"id", "description"}
    changed = [hashed(**{field: value}) for field, values in CHANGES.items() for value in values]
    assert len({hashed(), *changed}) == 1 + len(changed)
    changes = {
        name
        for name in MessageTemplate.__struct_fields__
        if any(
            getattr(message, name) != getattr(PROMPT["messages"][0], name)
            for messages in CHANGES["messages"][2:]
            for message in messages[:1]
        )
    }
    assert changes == set(MessageTemplate.__struct_fields__)


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
    told = json.loads(msgspec.json.encode(run))
    assert run.rendered_hash == OF_THE_REFERENCE["rendered_hash"](told["messages"], told["session_id"])
    assert run.rendered_hash == sha256(msgspec.json.encode(["promptkit/rendered/1", run.messages, run.session_id]))
    assert run.input_hashes["doc"] == OF_THE_REFERENCE["input_hash"](doc.removeprefix("\ufeff").encode())


def test_it_does_not_depend_on_the_order_of_the_variables() -> None:
    prompt = PromptDefinition(
        id="two", messages=(MessageTemplate(role="user", content="{{ a }}{{ b }}"),), variables=("a", "b"), profile="f"
    )
    catalog = definitions_of(CATALOG | Catalog(prompts=[PromptDefinition(**{**PROMPT, "id": "q", "profile": None})]))
    hashes = set()
    orders: tuple[dict[str, JSON], ...] = ({"a": 1, "b": {"x": 1, "y": 2}}, {"b": {"x": 1, "y": 2}, "a": 1})
    for given_in in orders:
        request = RunRequest(prompt_id="two", variables=given_in)
        found = msgspec.structs.replace(catalog, prompts={"two": prompt})
        run = details(complete(select(found, request).unwrap(), request, {}).unwrap())
        hashes.add((run.definition_hash, run.rendered_hash))
    assert len(hashes) == 1


FILE = """
description = "of a file"
profile = "f"
variables = ["q"]
session = "{{ q }}"

[[messages]]
role = "user"
content = '''
Ask {{ q }}:
é
'''

[output]
kind = "json_schema"
schema = "s"
"""
ROOT = """
[backends.b]
kind = "chat_completions"
base_url = "http://localhost/v1"

[profiles.f]
backend = "b"
model = "m"
"""
BESIDE = FILE.replace(FILE[FILE.index("content") : FILE.index("[output]")], 'content_file = "ask.txt"\n')


def test_a_file_says_the_same_as_python_whatever_its_line_ends_and_marks(tmp_path: Path) -> None:
    text = "Ask {{ q }}:\né\n"
    prompt = PromptDefinition(
        id="made/in/python",
        messages=(MessageTemplate(role="user", content=text),),
        variables=("q",),
        profile="f",
        session="{{ q }}",
        output=OutputContract(kind="json_schema", schema="s"),
    )
    made = definition_hash(prompt, {"s": {"const": 1e16}})
    hashes = set()
    for number, (file, end, mark) in enumerate(product((FILE, BESIDE), ("\n", "\r\n"), ("", "\ufeff"))):
        folder = tmp_path / str(number)
        for kind in ("prompts", "schemas"):
            (folder / kind).mkdir(parents=True)
        for path, content in (
            ("promptkit.toml", ROOT),
            ("prompts/p.toml", file),
            ("prompts/ask.txt", text),
            ("schemas/s.json", '{"const": 10000000000000000.0}'),
        ):
            (folder / path).write_bytes((mark + content.replace("\n", end)).encode())
        loaded = definitions_of(load_catalog(folder))
        hashes.add(definition_hash(loaded.prompts["p"], loaded.schemas))
    assert hashes == {made}


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
print(definition_hash(prompt, {}, {"b.txt": "2", "a.txt": "1"}))
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
