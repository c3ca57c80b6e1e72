"""Write the JSON Schemas of the catalog's files, and the tables of settings in docs/reference, from the types.

    .venv/bin/python scripts/format_schemas.py          writes what changed
    .venv/bin/python scripts/format_schemas.py --check  only says what would change

The types say which keys there are, of which kind and with which default; this file adds what each of them means and
which numbers it takes. A test holds the numbers against what the types themselves refuse.
"""

import json
import re
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec

import promptkit
from promptkit import (
    Backend,
    CacheControl,
    EmbeddedOptions,
    MessageTemplate,
    OutputContract,
    Profile,
    PromptDefinition,
    RetryPolicy,
)
from promptkit._prepare.media_types import ENDINGS, SIGNED

ROOT = Path(__file__).resolve().parent.parent
SCHEMAS = Path(promptkit.__file__).parent / "schemas"
TABLES = ROOT / "docs" / "reference"
DRAFT = "http://json-schema.org/draft-07/schema#"  # the newest that editors of TOML know

SECONDS = {"exclusiveMinimum": 0}
DELAY = {"minimum": 0}
COUNT = {"minimum": 1}
NAME = {"minLength": 1}
NAMES = {"uniqueItems": True}

# What each key means, and what it takes beyond its type.
KEYS = {
    Backend: {
        "kind": ("The dialect, which is the protocol that is spoken there; or a model inside the process.", {}),
        "base_url": ("The address before the dialect's path, such as http://localhost:8080/v1.", NAME),
        "credential_env": ("The environment variable that holds the key. Without it no key is needed.", NAME),
        "max_concurrency": (
            "How many attempts are in flight at the same time. Without it 8, and 1 for embedded.",
            COUNT,
        ),
        "max_waiting": ("How many further runs are admitted; one more is refused at once.", {"minimum": 0}),
        "connect_timeout": ("How many seconds a connection may take.", SECONDS),
        "attempt_timeout": ("How many seconds one attempt may take, whole.", SECONDS),
        "retry": ("When and how often to try again after a transient failure.", {}),
        "headers": ("Further HTTP headers. Names that carry credentials are refused.", {}),
        "trust_env": ("Whether the proxies that the environment names are used.", {}),
        "session_parameter": ("The body field that carries a session id. Without it no session id is sent.", NAME),
        "token_limit_parameter": ("The body field that carries max_output_tokens.", {}),
        "cache_markers": ("How a cache marker of a message is sent, if at all.", {}),
        "late_system": ("What becomes of late system messages. Without it send; for anthropic_messages refuse.", {}),
        "embedded": ("The model inside the process; only for kind embedded.", {}),
    },
    RetryPolicy: {
        "max_retries": ("How many retries a whole run may make, those of its repairs included.", {"minimum": 0}),
        "base_delay": ("Seconds: the least wait, and what it doubles from.", DELAY),
        "max_delay": ("Seconds: the longest wait of our own choice.", DELAY),
        "max_retry_after": ("Seconds: a backend that demands a longer wait ends the run at once.", DELAY),
    },
    EmbeddedOptions: {
        "model_path": ("A GGUF file, looked for at the first run. Without it the default model, fetched once.", {}),
        "context_tokens": ("The bound of prompt and answer together, rounded up to a multiple of 256.", COUNT),
        "threads": ("How many threads compute. Without it the number of cores less one.", COUNT),
    },
    Profile: {
        "backend": ("The id of a backend.", NAME),
        "model": ("The model, by the name that the backend knows. For embedded it is only a name.", NAME),
        "temperature": ("How freely the model chooses.", {"minimum": 0}),
        "top_p": ("Only the likeliest tokens that make up this share are chosen from.", {"minimum": 0, "maximum": 1}),
        "max_output_tokens": ("How many tokens the answer may have. Required for anthropic_messages.", COUNT),
        "stop": ("Texts at which the answer ends.", {}),
        "seed": ("Makes choices repeatable, where the backend can.", {}),
        "reasoning_effort": ("How much the model reasons, in the backend's own words.", {}),
        "native_output": ("How a JSON contract is asked of the backend itself. Answers are validated anyway.", {}),
        "extra": ("Further fields of the request's body, sent as written.", {}),
    },
    PromptDefinition: {
        "messages": ("The messages, in the order in which they are sent.", {"minItems": 1}),
        "description": ("What the prompt is for. It is not sent.", {}),
        "variables": ("The names of the variables that the templates use.", NAMES),
        "inputs": ("The names of the inputs: inputs.NAME in templates, or attachments.", NAMES),
        "profile": ("The id of the profile used when a request names none.", NAME),
        "session": ("A template of the session id; it is sent where the backend has a session_parameter.", {}),
        "output": ("What the answer must be. Without it: free text.", {}),
    },
    MessageTemplate: {
        "role": ("Who the message is from.", {}),
        "content": ("The text, a Jinja2 template.", {}),
        "content_file": ("The file with the text, relative to this one.", NAME),
        "cache_control": ("Marks the end of what the backend may keep for reuse.", {}),
        "attachments": ("Names of inputs that follow the text as images or files.", NAMES),
    },
    CacheControl: {
        "type": ("The kind of marker.", {}),
        "ttl": ("How long it may be kept. Without it the backend's default.", {}),
    },
    OutputContract: {
        "kind": ("Free text, any JSON document, or JSON that satisfies a schema.", {}),
        "schema": ("The id of a schema in the catalog, or the schema itself.", {}),
        "name": ("What the backend is told the schema is called.", {"minLength": 1, "maxLength": 64}),
        "max_repairs": (
            "How often an invalid answer is repaired: sent back, with what is wrong with it.",
            {"minimum": 0},
        ),
    },
}
FOLDERS = {
    "prompts": "The folder of the prompts. Default: prompts.",
    "schemas": "The folder of the JSON Schemas. Default: schemas.",
    "inputs": "The folder of the inputs that requests name by path. Default: inputs.",
}
IN_FILE = {MessageTemplate: {"content_file": str}}  # what a file has and the value does not
NOT_IN_FILE = {"id"}  # is the name of the table, or of the file


def _when(key, value, then, otherwise=None):
    rule = {"if": {"properties": {key: {"const": value}}, "required": [key]}, "then": then}
    return rule if otherwise is None else {**rule, "else": otherwise}


RULES = {
    Backend: [
        _when("kind", "chat_completions", {"required": ["base_url"], "properties": {"embedded": False}}),
        _when("kind", "anthropic_messages", {"required": ["base_url"], "properties": {"embedded": False}}),
        _when("kind", "embedded", {"properties": {"base_url": False}}),
    ],
    MessageTemplate: [{"oneOf": [{"required": ["content"]}, {"required": ["content_file"]}]}],
    OutputContract: [_when("kind", "json_schema", {"required": ["schema"]}, {"properties": {"schema": False}})],
}


def keys(cls):
    """Give each key of a table: its name, type, default (msgspec.NODEFAULT: none) and meaning."""
    fields = {field.name: field for field in msgspec.structs.fields(cls) if field.name not in NOT_IN_FILE}
    kinds = {name: field.type for name, field in fields.items()} | IN_FILE.get(cls, {})
    for name, kind in kinds.items():
        if name not in KEYS[cls]:
            sys.exit(f"{Path(__file__).name}: KEYS does not say what {cls.__name__}.{name} means")
        meaning, takes = KEYS[cls][name]
        default = fields[name].default if name in fields else None
        yield name, kind, default, meaning, takes


def schema_of(kind, used):
    """Describe one type; tables go into ``used``."""
    if get_origin(kind) is Literal:
        return {"enum": list(get_args(kind))}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        used.setdefault(kind.__name__, None)
        if used[kind.__name__] is None:
            used[kind.__name__] = table_of(kind, used)
        return {"$ref": f"#/definitions/{kind.__name__}"}
    if get_origin(kind) is tuple:
        return {"type": "array", "items": schema_of(get_args(kind)[0], used)}
    if get_origin(kind) is Mapping:
        return {"type": "object", "additionalProperties": schema_of(get_args(kind)[1], used)}
    if kind is Any:
        return {}
    plain = {str: "string", bool: "boolean", int: "integer", float: "number"}
    if kind in plain:
        return {"type": plain[kind]}
    choices = [schema_of(choice, used) for choice in get_args(kind) if choice is not type(None)]  # TOML has no null
    return choices[0] if len(choices) == 1 else {"anyOf": choices}


def table_of(cls, used):
    """Describe a table: its keys and no others."""
    properties, required = {}, []
    for name, kind, default, meaning, takes in keys(cls):
        described = schema_of(kind, used)
        if "$ref" in described:  # nothing beside a reference counts in this draft
            described = {"allOf": [described]}
        properties[name] = {"description": meaning, **described, **takes}
        if default is msgspec.NODEFAULT:
            required.append(name)
        elif isinstance(default, bool | int | float | str):
            properties[name]["default"] = default
    if cls in IN_FILE:
        required = [name for name in required if name != "content"]  # one of the two, which a rule says
    made = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        made["required"] = sorted(required)
    if cls in RULES:
        made["allOf"] = RULES[cls]
    return made


def root_schema():
    """Describe promptkit.toml."""
    used = {}
    named = {
        "backends": ("Where models are, by id.", Backend),
        "profiles": ("How they are asked, by id.", Profile),
    }
    properties = {
        name: {
            "description": meaning,
            "type": "object",
            "propertyNames": NAME,
            "additionalProperties": schema_of(cls, used),
        }
        for name, (meaning, cls) in named.items()
    }
    properties["paths"] = {
        "description": "Folders with other names, relative to this file.",
        "type": "object",
        "properties": {name: {"description": meaning, "type": "string", **NAME} for name, meaning in FOLDERS.items()},
        "additionalProperties": False,
    }
    return {
        "$schema": DRAFT,
        "title": "promptkit.toml",
        "description": "A catalog of promptkit: backends and profiles.",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "definitions": dict(sorted(used.items())),
    }


def prompt_schema():
    """Describe the file of a prompt."""
    used = {}
    table = table_of(PromptDefinition, used)
    title = {"title": "a prompt", "description": "A prompt of promptkit: messages, and what they need."}
    return {"$schema": DRAFT, **title, **table, "definitions": dict(sorted(used.items()))}


def kind_in_words(kind):
    """Say what a key takes, for a table that people read."""
    if get_origin(kind) is Literal:
        return ", ".join(f'`"{choice}"`' for choice in get_args(kind))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return "table"
    if get_origin(kind) is tuple:
        element = get_args(kind)[0]
        return "array of tables" if kind_in_words(element) == "table" else f"array of {kind_in_words(element)}s"
    if get_origin(kind) is Mapping:
        return "table of strings" if get_args(kind)[1] is str else "table"
    plain = {str: "string", bool: "boolean", int: "integer", float: "number"}
    if kind in plain:
        return plain[kind]
    return " or ".join(kind_in_words(choice) for choice in get_args(kind) if choice is not type(None))


def default_in_words(default):
    """Say what a key is when it is left out."""
    if default is msgspec.NODEFAULT:
        return "required"
    if default is None or default == () or isinstance(default, Mapping | msgspec.Struct):
        return ""
    return f"`{json.dumps(default)}`"


def range_in_words(takes):
    """Say which numbers and texts a key takes."""
    if {"minimum", "maximum"} <= takes.keys():
        return f", {takes['minimum']} to {takes['maximum']}"
    if "minimum" in takes:
        return f", {takes['minimum']} or more"
    if "exclusiveMinimum" in takes:
        return f", above {takes['exclusiveMinimum']}"
    return ""


def markdown(cls):
    """Write the table of a class's keys."""
    lines = ["| key | takes | default | meaning |", "|---|---|---|---|"]
    for name, kind, default, meaning, takes in keys(cls):
        what = kind_in_words(kind) + range_in_words(takes)
        lines.append(f"| `{name}` | {what} | {default_in_words(default)} | {meaning} |")
    return "\n".join(lines)


def endings():
    """List the endings of file names that tell what an attachment is."""
    return textwrap.fill(" ".join(f"`.{ending}`" for ending in sorted(ENDINGS.keys() | SIGNED.keys())), width=120)


def with_tables(text):
    """Renew what a page lists: each table stands between two comments that name its class, and so do the endings."""
    classes = {cls.__name__: cls for cls in KEYS}
    block = re.compile(r"^(<!-- keys of (\w+) -->\n)(?:\|.*\n)*(<!-- end -->)$", re.MULTILINE)
    text = block.sub(lambda found: found[1] + markdown(classes[found[2]]) + "\n" + found[3], text)
    listed = re.compile(r"^(<!-- endings of attachments -->\n)(?:`.*\n)*(<!-- end -->)$", re.MULTILINE)
    return listed.sub(lambda found: found[1] + endings() + "\n" + found[2], text)


def wanted():
    """Give every file that this program keeps, with its text."""
    files = {
        SCHEMAS / "promptkit.schema.json": json.dumps(root_schema(), indent=2, ensure_ascii=False) + "\n",
        SCHEMAS / "prompt.schema.json": json.dumps(prompt_schema(), indent=2, ensure_ascii=False) + "\n",
    }
    for page in sorted(TABLES.glob("*.md")):
        files[page] = with_tables(page.read_text(encoding="utf-8"))
    return files


def main():
    changed = [file for file, text in wanted().items() if not file.exists() or file.read_text(encoding="utf-8") != text]
    for file in changed:
        print(file)  # noqa: T201
    if "--check" in sys.argv[1:]:
        sys.exit(bool(changed))
    SCHEMAS.mkdir(exist_ok=True)
    for file in changed:
        file.write_text(wanted()[file], encoding="utf-8")


if __name__ == "__main__":
    main()
