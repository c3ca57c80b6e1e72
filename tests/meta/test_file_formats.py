"""The JSON Schemas of the catalog's files: in step with the types, and of one mind with load_catalog."""

from __future__ import annotations

import importlib.resources
import importlib.util
import json
import re
import string
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from returns.pipeline import is_successful

from promptkit import (
    Backend,
    Catalog,
    EmbeddedOptions,
    InvalidConfigError,
    MessageTemplate,
    OutputContract,
    Profile,
    RetryPolicy,
    load_catalog,
)
from promptkit._values.schemas import compile_schema

ROOT = Path(__file__).parents[2]
NAMES = ("promptkit.schema.json", "prompt.schema.json")
Document = dict[str, Any]


def program() -> Any:
    spec = importlib.util.spec_from_file_location("format_schemas", ROOT / "scripts" / "format_schemas.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shipped(name: str) -> Any:
    return json.loads((importlib.resources.files("promptkit") / "schemas" / name).read_text(encoding="utf-8"))


FILE, PROMPT = (shipped(name) for name in NAMES)
FILE_SCHEMA, PROMPT_SCHEMA = (compile_schema(schema).unwrap() for schema in (FILE, PROMPT))


def test_what_the_program_writes_is_what_is_there() -> None:
    """After a change of a definition: .venv/bin/python scripts/format_schemas.py."""
    for file, text in program().wanted().items():
        assert file.read_text(encoding="utf-8") == text, file.name


def test_the_reference_has_a_table_of_the_keys_of_every_definition() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md"))
    described = program().KEYS
    assert {cls.__name__ for cls in described} == set(re.findall(r"<!-- keys of (\w+) -->", pages))
    for cls, keys in described.items():
        fields = {field.name for field in msgspec.structs.fields(cls)} - {"id"}
        assert fields <= keys.keys()
        assert keys.keys() - fields <= {"content_file"}
        for name in fields:
            assert f"\n| `{name}` | " in pages, name


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_a_schema_and_describes_every_key(name: str) -> None:
    assert is_successful(compile_schema(shipped(name)))
    tables = [shipped(name), *shipped(name)["definitions"].values()]
    for table in tables:
        assert table["additionalProperties"] is False
        for key, described in table["properties"].items():
            assert described.get("description", "").endswith("."), key


TABLES: list[tuple[type[Any], Document, Document]] = [
    (Backend, FILE["definitions"]["Backend"], {"id": "b", "kind": "chat_completions", "base_url": "http://h"}),
    (RetryPolicy, FILE["definitions"]["RetryPolicy"], {}),
    (EmbeddedOptions, FILE["definitions"]["EmbeddedOptions"], {}),
    (Profile, FILE["definitions"]["Profile"], {"id": "p", "backend": "b", "model": "m"}),
    (OutputContract, PROMPT["definitions"]["OutputContract"], {"kind": "json"}),
    (MessageTemplate, PROMPT["definitions"]["MessageTemplate"], {"role": "user", "content": "x"}),
]
NUMBERS = (-1e9, -1, -0.5, -1e-300, 0, 1e-300, 0.5, 1, 1.0, 1.5, 2, 100, 10**9)
FIELDS = [
    (cls, name, described, base)
    for cls, table, base in TABLES
    for name, described in table["properties"].items()
    if described.get("type") in {"integer", "number"}
]


@pytest.mark.parametrize(("cls", "name", "described", "base"), FIELDS)
def test_a_number_is_in_range_for_the_schema_if_it_is_for_the_definition(
    cls: type[Any], name: str, described: Document, base: Document
) -> None:
    schema = compile_schema(described).unwrap()
    for number in NUMBERS:
        if described["type"] == "integer" and isinstance(number, float) and number.is_integer():
            continue  # JSON Schema takes 1.0 for an integer, TOML does not
        try:
            cls(**{**base, name: number})
        except InvalidConfigError:
            refused = True
        else:
            refused = False
        assert bool(schema.violations(number)) == refused, number


@pytest.mark.parametrize(
    ("cls", "name", "described", "base"),
    [
        (cls, name, described, base)
        for cls, table, base in TABLES
        for name, described in table["properties"].items()
        if described.get("type") == "string" and name not in {"content_file", "backend"}  # are looked up elsewhere
    ],
)
def test_an_empty_text_is_refused_by_the_schema_if_it_is_by_the_definition(
    cls: type[Any], name: str, described: Document, base: Document
) -> None:
    try:
        cls(**{**base, name: ""})
    except InvalidConfigError:
        refused = True
    else:
        refused = False
    assert bool(compile_schema(described).unwrap().violations("")) == refused


def test_every_number_of_a_definition_was_compared() -> None:
    assert {name for _, name, _, _ in FIELDS} >= {
        *("max_waiting", "max_concurrency", "connect_timeout", "attempt_timeout", "context_tokens", "threads"),
        *("max_retries", "base_delay", "max_delay", "max_retry_after", "max_repairs"),
        *("temperature", "top_p", "max_output_tokens", "seed"),
    }


@pytest.mark.parametrize(
    ("cls", "given_keys", "valid"),
    [
        (Backend, {"kind": "chat_completions"}, False),
        (Backend, {"kind": "chat_completions", "base_url": "http://h"}, True),
        (Backend, {"kind": "embedded", "base_url": "http://h"}, False),
        (Backend, {"kind": "embedded"}, True),
        (Backend, {"kind": "other", "base_url": "http://h"}, False),
        (OutputContract, {"kind": "json_schema"}, False),
        (OutputContract, {"kind": "json_schema", "schema": "s"}, True),
        (OutputContract, {"kind": "json_schema", "schema": {"type": "object"}}, True),
        (OutputContract, {"kind": "json", "schema": "s"}, False),
        (OutputContract, {"schema": "s"}, False),
        (OutputContract, {}, True),
        (OutputContract, {"kind": "json", "name": "x" * 64}, True),
        (OutputContract, {"kind": "json", "name": "x" * 65}, False),
        (OutputContract, {"kind": "json", "name": ""}, False),
    ],
)
def test_keys_that_do_not_fit_together_are_refused_by_both(
    cls: type[Any],
    given_keys: Document,
    valid: bool,  # noqa: FBT001  # of the table
) -> None:
    holder = FILE if cls is Backend else PROMPT
    schema = compile_schema({"$ref": f"#/definitions/{cls.__name__}", "definitions": holder["definitions"]}).unwrap()
    assert (schema.violations(given_keys) == ()) == valid
    identity = {"id": "b"} if cls is Backend else {}
    if valid:
        cls(**identity, **given_keys)
    else:
        with pytest.raises(InvalidConfigError):
            cls(**identity, **given_keys)


def toml(value: Any) -> str:
    """Write a value as TOML, tables inline."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{quoted(key)} = {toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return quoted(value) if isinstance(value, str) else json.dumps(value)


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def document(table: Document) -> str:
    return "".join(f"{quoted(key)} = {toml(value)}\n" for key, value in table.items())


WORD = st.text(string.ascii_lowercase, min_size=1, max_size=6)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="{\r"), max_size=12)
SPECIAL: dict[str, st.SearchStrategy[Any]] = {  # keys whose text has a form of its own
    "base_url": st.sampled_from(["http://localhost:8080/v1", "https://example.com"]),
    "credential_env": st.just("KEY"),
    "headers": st.dictionaries(WORD.map("x-{}x".format), WORD, max_size=2),  # no name of a credential ends so
    "session_parameter": WORD.map("s_{}x".format),
    "extra": st.dictionaries(WORD.map("f_{}x".format), st.integers(0, 9) | TEXT | st.lists(st.booleans()), max_size=2),
    "stop": st.lists(TEXT, max_size=2),
}


def values(described: Document, whole: Document) -> st.SearchStrategy[Any]:
    """Generate what one key takes, as its schema says."""
    reference = described.get("$ref") or next((rule["$ref"] for rule in described.get("allOf", ())), None)
    if reference is not None:
        return tables(whole["definitions"][reference.rpartition("/")[2]], whole)
    if "enum" in described:
        return st.sampled_from(described["enum"])
    least = described.get("minimum", 0)
    kinds: dict[str, st.SearchStrategy[Any]] = {
        "string": TEXT.filter(bool),
        "boolean": st.booleans(),
        "integer": st.integers(least, least + 10**6),
        "number": st.floats(max(least, 0.001), described.get("maximum", 10.0)) | st.just(1),
    }
    return kinds[described["type"]]


def tables(table: Document, whole: Document, **fixed: Any) -> st.SearchStrategy[Document]:
    required = set(table.get("required", ())) - fixed.keys()
    optional = table["properties"].keys() - required - fixed.keys()
    chosen = {
        key: SPECIAL[key] if key in SPECIAL else values(table["properties"][key], whole)
        for key in (*required, *optional)
    }
    return st.fixed_dictionaries(
        {key: chosen[key] for key in sorted(required)} | {key: st.just(value) for key, value in fixed.items()},
        optional={key: chosen[key] for key in sorted(optional)},
    )


def without(table: Document, *names: str) -> Document:
    return {**table, "properties": {key: value for key, value in table["properties"].items() if key not in names}}


BACKENDS = tables(
    without(FILE["definitions"]["Backend"], "embedded"), FILE, kind="chat_completions", base_url="http://h/v1"
)
PROFILES = tables(FILE["definitions"]["Profile"], FILE, backend="b")
MESSAGE = tables(without(PROMPT["definitions"]["MessageTemplate"], "content_file", "attachments"), PROMPT).flatmap(
    lambda table: TEXT.filter(bool).map(lambda text: {**table, "content": text})
)
OUTPUTS = st.sampled_from(
    [{}, {"kind": "json", "max_repairs": 2}, {"kind": "json_schema", "schema": {"type": "object"}, "name": "x"}]
)
PROMPTS = st.fixed_dictionaries(
    {"messages": st.lists(MESSAGE, min_size=1, max_size=3)},
    optional={"description": TEXT, "profile": st.just("p"), "session": TEXT.filter(bool), "output": OUTPUTS},
)


def load(root: Document, prompt: Document) -> Catalog:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "prompts").mkdir()
        (Path(folder) / "promptkit.toml").write_text(document(root), encoding="utf-8")
        (Path(folder) / "prompts" / "ask.toml").write_text(document(prompt), encoding="utf-8")
        return load_catalog(folder)


@given(BACKENDS, PROFILES, PROMPTS)
@settings(deadline=None)
def test_valid_files_are_accepted_by_the_schemas_and_by_load_catalog(
    backend: Document, profile: Document, prompt: Document
) -> None:
    root = {"backends": {"b": backend, "e": {"kind": "embedded"}}, "profiles": {"p": profile}}
    assert FILE_SCHEMA.violations(root) == ()
    assert PROMPT_SCHEMA.violations(prompt) == ()
    catalog = load(root, prompt)
    read = msgspec.to_builtins(catalog.prompts["ask"].messages)
    assert [message["content"] for message in read] == [message["content"] for message in prompt["messages"]]


ROOT_FILE: Document = {
    "backends": {"b": {"kind": "chat_completions", "base_url": "http://h", "retry": {"max_retries": 1}}},
    "profiles": {"p": {"backend": "b", "model": "m"}},
}
PROMPT_FILE: Document = {"messages": [{"role": "user", "content": "x"}], "profile": "p", "output": {"kind": "json"}}
IN_ROOT: list[tuple[str, Any]] = [
    ("unknown", {}),
    ("backends.b.unknown", 1),
    ("backends.b.id", "b"),
    ("backends.b.retry.unknown", 1),
    ("backends.b.retry.max_retries", "two"),
    ("backends.b.retry", 5),
    ("backends.b.kind", "chat"),
    ("backends.b.base_url", 5),
    ("backends.b.headers", {"x": 5}),
    ("backends.b.trust_env", "yes"),
    ("backends.b.max_waiting", -1),
    ("backends.b.attempt_timeout", 0),
    ("backends.b", 5),
    ("backends", []),
    ("profiles.p.temperature", "hot"),
    ("profiles.p.temperature", -1),
    ("profiles.p.top_p", 1.5),
    ("profiles.p.stop", "END"),
    ("profiles.p.extra", 5),
    ("profiles.p.native_output", "xml"),
    ("profiles.p.max_output_tokens", 0),
    ("profiles.p.max_output_tokens", 1.5),
    ("profiles.p.backend", None),
    ("profiles.p.model", ""),
    ("paths", 5),
    ("paths", {"unknown": "x"}),
    ("paths", {"prompts": 5}),
    ("paths", {"prompts": ""}),
]
IN_PROMPT: list[Any] = [
    ("unknown", 1),
    ("id", "ask"),
    ("messages", None),
    ("messages", []),
    ("messages", {}),
    ("messages", [{"role": "user"}]),
    ("messages", [{"content": "x"}]),
    ("messages", [{"role": "tool", "content": "x"}]),
    ("messages", [{"role": "user", "content": "x", "content_file": "y"}]),
    ("messages", [{"role": "user", "content": "x", "unknown": 1}]),
    ("messages", [{"role": "user", "content": "x", "cache_control": {"ttl": "2m"}}]),
    ("variables", "topic"),
    ("variables", ["a", "a"]),
    ("inputs", [5]),
    ("profile", 5),
    ("output.kind", "xml"),
    ("output.schema", "s"),
    ("output.max_repairs", -1),
    ("output.unknown", 1),
]


def planted(document: Document, key: str, value: Any) -> Document:
    changed: Document = json.loads(json.dumps(document))
    *tables, last = key.split(".")
    table = changed
    for name in tables:
        table = table[name]
    if value is None:
        del table[last]
    else:
        table[last] = value
    return changed


@pytest.mark.parametrize(("key", "value"), IN_ROOT)
def test_a_fault_of_structure_in_promptkit_toml_is_refused_by_both(key: str, value: Any) -> None:
    wrong = planted(ROOT_FILE, key, value)
    assert FILE_SCHEMA.violations(wrong)
    with pytest.raises(InvalidConfigError):
        load(wrong, {"messages": PROMPT_FILE["messages"]})


@pytest.mark.parametrize(("key", "value"), IN_PROMPT)
def test_a_fault_of_structure_in_a_prompt_is_refused_by_both(key: str, value: Any) -> None:
    wrong = planted(PROMPT_FILE, key, value)
    assert PROMPT_SCHEMA.violations(wrong)
    with pytest.raises(InvalidConfigError):
        load(ROOT_FILE, wrong)


def test_the_files_that_the_faults_are_planted_in_are_valid() -> None:
    assert FILE_SCHEMA.violations(ROOT_FILE) == PROMPT_SCHEMA.violations(PROMPT_FILE) == ()
    assert list(load(ROOT_FILE, PROMPT_FILE).prompts) == ["ask"]
