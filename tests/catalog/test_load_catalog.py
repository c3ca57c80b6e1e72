"""Reading a catalog's folder: what is there becomes definitions, and what is wrong becomes faults, all of them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptkit import (
    Backend,
    CacheControl,
    Catalog,
    MessageTemplate,
    OutputContract,
    Profile,
    RetryPolicy,
    load_catalog,
)
from promptkit._load_catalog import definitions_of
from promptkit._prepare.plan import definition_hash
from promptkit.errors import Fault, InvalidConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = """\
[backends.local]
kind = "chat_completions"
base_url = "http://localhost:8080/v1"
[backends.local.headers]
x-team = "one"
[backends.local.retry]
max_retries = 0

[profiles.fast]
backend = "local"
model = "small"
temperature = 1
stop = ["END"]
[profiles.fast.extra]
top_k = 5
"""
PROMPT = """\
description = "asks"
variables = ["topic"]
profile = "fast"

[[messages]]
role = "user"
content = "Tell me about {{ topic }}."
"""
HI = '[[messages]]\nrole = "user"\ncontent = "hi"\n'


def folder(tmp_path: Path, files: Mapping[str, str | bytes]) -> Path:
    root = tmp_path / "catalog"
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def loaded(tmp_path: Path, files: Mapping[str, str | bytes]) -> Catalog:
    return load_catalog(folder(tmp_path, {"promptkit.toml": ROOT, **files}))


def faults(tmp_path: Path, files: dict[str, str | bytes]) -> tuple[Fault, ...]:
    with pytest.raises(InvalidConfigError) as caught:
        loaded(tmp_path, files)
    str(caught.value).encode()
    assert "LEAK" not in str(caught.value)
    return caught.value.faults


def test_a_folder_becomes_the_definitions_that_python_would_make(tmp_path: Path) -> None:
    catalog = loaded(
        tmp_path,
        {
            "prompts/ask.toml": PROMPT,
            "prompts/team/deep/review.toml": """\
session = "s-{{ inputs.doc }}"
inputs = ["doc"]
[[messages]]
role = "system"
content_file = "texts/system.txt"
cache_control = { type = "ephemeral", ttl = "1h" }
[[messages]]
role = "user"
content = '''{{ inputs.doc }}
'''
[output]
kind = "json_schema"
schema = "team/answer"
max_repairs = 2
""",
            "prompts/team/deep/texts/system.txt": "You review.\n",
            "schemas/team/answer.json": '{"type": "object"}',
            "schemas/readme.md": "ignored",
            "prompts/notes.txt": "ignored {{",
        },
    )
    assert catalog.backends == {
        "local": Backend(
            id="local",
            kind="chat_completions",
            base_url="http://localhost:8080/v1",
            headers={"x-team": "one"},
            retry=RetryPolicy(max_retries=0),
        )
    }
    assert catalog.profiles == {
        "fast": Profile(
            id="fast",
            backend="local",
            model="small",
            temperature=1.0,
            stop=("END",),
            extra={"top_k": 5},
        )
    }
    assert list(catalog.prompts) == ["ask", "team/deep/review"]
    review = catalog.prompts["team/deep/review"]
    assert review.messages == (
        MessageTemplate(role="system", content="You review.\n", cache_control=CacheControl(ttl="1h")),
        MessageTemplate(role="user", content="{{ inputs.doc }}\n"),
    )
    assert review.output == OutputContract(kind="json_schema", schema="team/answer", max_repairs=2)
    assert catalog.schemas == {"team/answer": {"type": "object"}}
    assert definitions_of(catalog).inputs_folders == (tmp_path / "catalog" / "inputs",)


def test_a_root_file_alone_is_a_catalog_and_an_empty_one_too(tmp_path: Path) -> None:
    assert list(loaded(tmp_path, {}).profiles) == ["fast"]
    assert repr(load_catalog(str(folder(tmp_path, {"promptkit.toml": ""})))).startswith("<promptkit.Catalog: 0 prompts")


def test_folders_can_be_moved(tmp_path: Path) -> None:
    paths = '[paths]\nprompts = "texts/all"\nschemas = "."\ninputs = "data"\n'
    catalog = loaded(
        tmp_path,
        {
            "promptkit.toml": ROOT + paths,
            "texts/all/a/ask.toml": PROMPT,
            "prompts/b.toml": "{{",
            "s.json": "true",
            "data/x": "",
        },
    )
    assert list(catalog.prompts) == ["a/ask"]
    assert list(catalog.schemas) == ["s"]
    assert definitions_of(catalog).inputs_folders == (tmp_path / "catalog" / "data",)


def test_a_mark_and_windows_line_ends_change_nothing(tmp_path: Path) -> None:
    files = {
        "prompts/ask.toml": "session = '''a\nb'''\n[[messages]]\nrole='user'\ncontent = '''x\ny\n'''\n"
        "[[messages]]\nrole='user'\ncontent_file='t.txt'\n",
        "prompts/t.txt": "é—中🙂\nline\n\n",
        "schemas/s.json": '{\n"type": "object"\n}',
    }
    plain = loaded(tmp_path / "plain", dict(files))
    spelled = {**files, "promptkit.toml": ROOT}
    windows = {name: b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode() for name, text in spelled.items()}
    marked = loaded(tmp_path / "marked", dict(windows))
    assert marked.prompts == plain.prompts
    assert marked.schemas == plain.schemas
    assert marked.profiles == plain.profiles
    assert definition_hash(marked.prompts["ask"]) == definition_hash(plain.prompts["ask"])
    assert plain.prompts["ask"].messages[1].content == "é—中🙂\nline\n\n"


def test_the_locale_does_not_matter(tmp_path: Path) -> None:
    root = folder(
        tmp_path,
        {
            "promptkit.toml": ROOT + '[paths]\nprompts = "ü"\n',
            "ü/é.toml": "[[messages]]\nrole='user'\ncontent_file='ß/ø.txt'\n",
            "ü/ß/ø.txt": "é—中🙂{% include 'ß/å.txt' %}",
            "ü/ß/å.txt": "å",
        },
    )
    script = (
        "import sys, promptkit; from promptkit._prepare.plan import definition_hash as h;"
        "print([(ascii(k), h(p)) for k, p in promptkit.load_catalog(sys.argv[1]).prompts.items()])"
    )
    said = {
        subprocess.run(  # the same interpreter
            [sys.executable, "-c", script, str(root)],
            env={**os.environ, "PYTHONUTF8": utf8, "LC_ALL": locale, "PYTHONCOERCECLOCALE": "0"},
            capture_output=True,
            check=True,
        ).stdout
        for utf8, locale in (("1", "C.UTF-8"), ("0", "C.UTF-8"), ("0", "C"))
    }
    assert len(said) == 1
    assert definition_hash(load_catalog(root).prompts["é"]) in said.pop().decode()


def message(**fields: str) -> str:
    return "[[messages]]\n" + "".join(f"{name} = {value}\n" for name, value in fields.items())


# files, and how the one fault starts as text
FAULTS: dict[str, tuple[dict[str, str | bytes], str]] = {
    "broken line": ({"promptkit.toml": ROOT + "\nmodel = \n"}, "promptkit.toml:17: is not TOML:"),
    "broken prompt": ({"prompts/a.toml": "a = 1\nb = [\n"}, "prompts/a.toml:2: is not TOML:"),
    "duplicate key": ({"promptkit.toml": '[profiles.p]\nmodel = "a"\nmodel = "b"\n'}, "promptkit.toml:3: is not TOML:"),
    "duplicate table": ({"promptkit.toml": "[profiles.p]\n[profiles.p]\n"}, "promptkit.toml:2: is not TOML:"),
    "duplicate key of a schema": (
        {"schemas/s.json": '{"a": {"type": 1, "type": 2}}'},
        "schemas/s.json:1: is not a JSON Schema: the key 'type' stands twice in one object.",
    ),
    "root not utf-8": ({"promptkit.toml": b"a = '\xe9'"}, "promptkit.toml:1: is not UTF-8: byte 0xe9 at offset 5."),
    "prompt not utf-8": ({"prompts/a.toml": b"\xff"}, "prompts/a.toml:1: is not UTF-8: byte 0xff at offset 0."),
    "schema not utf-8": ({"schemas/s.json": b'"\xe9"'}, "schemas/s.json:1: is not UTF-8: byte 0xe9 at offset 1."),
    "content file not utf-8": (
        {"prompts/a.toml": message(role="'user'", content_file="'t.txt'"), "prompts/t.txt": b"caf\xe9"},
        "prompts/t.txt:1: is not UTF-8: byte 0xe9 at offset 3.",
    ),
    "schema not json": ({"schemas/s.json": '{\n"a": }'}, "schemas/s.json:2: is not JSON:"),
    "schema with nan": (
        {"schemas/s.json": '{"a": NaN}'},
        "schemas/s.json:1: /a: is not a JSON Schema: a value is nan, which JSON cannot carry.",
    ),
    "schema with infinity": (
        {"schemas/s.json": '{"a": 1e999}'},
        "schemas/s.json:1: /a: is not a JSON Schema: a value is inf, which JSON cannot carry.",
    ),
    "schema too deep": ({"schemas/s.json": "[" * 100_000}, "schemas/s.json: is nested too deeply."),
    "schema of a wrong kind": (
        {"schemas/s.json": '"x"'},
        "schemas/s.json:1: is not a usable JSON Schema: it is neither an object nor true or false.",
    ),
    "bad schema": ({"schemas/s.json": '{"type": "nope"}'}, "schemas/s.json:1: /type: is not a usable JSON Schema:"),
    "remote reference": (
        {"schemas/s.json": '{"$ref": "http://127.0.0.1:1/x.json"}'},
        "schemas/s.json:1: ",
    ),
    "reference to a file": (
        {"schemas/s.json": '{"$ref": "t.json"}', "schemas/t.json": "{}"},
        "schemas/s.json:1: ",
    ),
    "endless reference": (
        {"schemas/s.json": '{"$ref": "#"}'},
        "schemas/s.json:1: ",
    ),
    "unknown table": (
        {"promptkit.toml": "[profile.p]\n"},
        "promptkit.toml:1: profile: is not a table of this file. Did you mean 'profiles'?",
    ),
    "unknown key of a backend": (
        {"promptkit.toml": '[backends.b]\nkind = "chat_completions"\nbase_ulr = "x"\nbase_url = "http://h"\n'},
        "promptkit.toml:3: backends.b.base_ulr: is not a key of this table. Did you mean 'base_url'?",
    ),
    "unknown key of a profile": (
        {"promptkit.toml": ROOT + "[profiles.fast.extra2]\n"},
        "promptkit.toml:16: profiles.fast.extra2: is not a key of this table. Did you mean 'extra'?",
    ),
    "unknown key of a nested table": (
        {"promptkit.toml": ROOT.replace("max_retries", "max_retry")},
        "promptkit.toml:7: backends.local.retry.max_retry: is not a key of this table. Did you mean 'max_retries'?",
    ),
    "unknown key of a prompt": (
        {"prompts/a.toml": "varibles = []\n" + HI},
        "prompts/a.toml:1: varibles: is not a key of this table. Did you mean 'variables'?",
    ),
    "id in a prompt": (
        {"prompts/a.toml": 'id = "b"\n' + HI},
        "prompts/a.toml:1: id: is not a key of this table; its keys are: 'description', 'inputs', 'messages',",
    ),
    "unknown key of a message": (
        {"prompts/a.toml": HI + 'contents = "x"\n'},
        "prompts/a.toml:4: messages[0].contents: is not a key of this table. Did you mean 'content'?",
    ),
    "key of the prompt below a message": (
        {"prompts/a.toml": HI + 'profile = "fast"\n'},
        (
            "prompts/a.toml:4: messages[0].profile: 'profile' is a key of the prompt: move it above the first "
            "[[messages]]."
        ),
    ),
    "key of the prompt below the output": (
        {"prompts/a.toml": HI + "[output]\nvariables = []\n"},
        "prompts/a.toml:5: output.variables: 'variables' is a key of the prompt: move it above [output].",
    ),
    "key of the message below its marker": (
        {"prompts/a.toml": HI + "[messages.cache_control]\nattachments = []\n"},
        (
            "prompts/a.toml:5: messages[0].cache_control.attachments: 'attachments' is a key of messages[0]: move it "
            "above [messages.cache_control]."
        ),
    ),
    "key of a backend below its retries": (
        {"promptkit.toml": ROOT.replace("max_retries = 0", "max_waiting = 3")},
        (
            "promptkit.toml:7: backends.local.retry.max_waiting: 'max_waiting' is a key of backends.local: move it "
            "above [backends.local.retry]."
        ),
    ),
    "key of a backend below its model": (
        {"promptkit.toml": '[backends."a b"]\nkind = "embedded"\n[backends."a b".embedded]\nmax_waiting = 3\n'},
        (
            'promptkit.toml:4: backends."a b".embedded.max_waiting: \'max_waiting\' is a key of backends."a b": move '
            'it above [backends."a b".embedded].'
        ),
    ),
    "key of the retries": (
        {"promptkit.toml": ROOT.replace("base_url", "max_retries = 3\nbase_url")},
        (
            "promptkit.toml:3: backends.local.max_retries: 'max_retries' is a key of [backends.local.retry]: move it "
            "there."
        ),
    ),
    "key of the embedded model": (
        {"promptkit.toml": ROOT.replace("max_retries", "model_path")},
        (
            "promptkit.toml:7: backends.local.retry.model_path: 'model_path' is a key of [backends.local.embedded]: "
            "move it there."
        ),
    ),
    "key of the messages": (
        {"prompts/a.toml": 'content_file = "a.txt"\n' + HI},
        "prompts/a.toml:1: content_file: 'content_file' is a key of [[messages]]: move it there.",
    ),
    "near miss of the key of a file": (
        {"prompts/a.toml": HI + 'content_fil = "a.txt"\n'},
        "prompts/a.toml:4: messages[0].content_fil: is not a key of this table. Did you mean 'content_file'?",
    ),
    "timeout": (
        {"promptkit.toml": ROOT.replace("base_url", "timeout = 3\nbase_url")},
        (
            "promptkit.toml:3: backends.local.timeout: is not a key of this table: attempt_timeout bounds one attempt, "
            "whole, and connect_timeout only its connecting. Did you mean 'attempt_timeout'?"
        ),
    ),
    **{
        f"{name} of a backend": (
            {"promptkit.toml": ROOT.replace("base_url", f'{name} = "LEAK"\nbase_url')},
            (
                f"promptkit.toml:3: backends.local.{name}: is not a key of this table: the key is not in the file: "
                "name its environment variable in credential_env."
            ),
        )
        for name in ("api_key", "key", "token", "OPENAI-API-KEY", "api_key_env")
    },
    "key of a profile": (
        {"promptkit.toml": ROOT.replace("temperature = 1", 'api_key = "LEAK"')},
        (
            "promptkit.toml:12: profiles.fast.api_key: is not a key of this table: the key is not in the file: name "
            "its environment variable in credential_env of the backend."
        ),
    ),
    "id with a slash": (
        {
            "promptkit.toml": ROOT.replace("profiles.fast", "profiles.support.fast"),
            "prompts/a.toml": 'profile = "support/fast"\n' + HI,
        },
        (
            'promptkit.toml:9: profiles.support.fast: ids with a slash are quoted: [profiles."support/fast"], and so '
            'are those with a dot: [profiles."support.fast"].'
        ),
    ),
    "id with a slash below another one": (
        {"promptkit.toml": ROOT + '[profiles.fast.a.b]\nbackend = "local"\n'},
        'promptkit.toml:16: profiles.fast.a.b: ids with a slash are quoted: [profiles."fast/a/b"], and so are',
    ),
    "id with a slash of an empty table": (
        {"promptkit.toml": "[backends.a.b]\n"},
        'promptkit.toml:1: backends.a.b: ids with a slash are quoted: [backends."a/b"], and so are',
    ),
    "id with a slash as it is": (
        {"promptkit.toml": ROOT.replace("[profiles.fast.", "[profiles.support/fast.")},
        (
            "promptkit.toml:14: is not TOML: Expected ']' at the end of a table declaration: ids with a slash are "
            'quoted: [profiles."support/fast".extra].'
        ),
    ),
    "unknown folder": (
        {"promptkit.toml": '[paths]\nprompt = "x"\n'},
        "promptkit.toml:2: paths.prompt: is not a folder's key. Did you mean 'prompts'?",
    ),
    "folder of a wrong kind": (
        {"promptkit.toml": "[paths]\nprompts = 1\n"},
        "promptkit.toml:2: paths.prompts: Expected the path of a folder.",
    ),
    "paths of a wrong kind": ({"promptkit.toml": "paths = 1\n"}, "promptkit.toml:1: paths: Expected a table."),
    "backends of a wrong kind": (
        {"promptkit.toml": "backends = []\n"},
        "promptkit.toml:1: backends: Expected tables, [backends.ID].",
    ),
    "profile of a wrong kind": (
        {"promptkit.toml": "[profiles]\np = 1\n"},
        "promptkit.toml:2: profiles.p: Expected a table, [profiles.ID].",
    ),
    "number for text": (
        {"promptkit.toml": ROOT.replace('"small"', "1.10")},
        "promptkit.toml:11: profiles.fast.model: Expected a text, got a float.",
    ),
    "date for text": (
        {"promptkit.toml": ROOT.replace('"small"', "2026-01-02")},
        "promptkit.toml:11: profiles.fast.model: Expected a text, got a date.",
    ),
    "boolean for a number": (
        {"promptkit.toml": ROOT.replace("max_retries = 0", "max_retries = true")},
        "promptkit.toml:7: backends.local.retry.max_retries: Expected an integer, got a boolean.",
    ),
    "text for a tuple": (
        {"promptkit.toml": ROOT.replace('["END"]', '"END"')},
        "promptkit.toml:13: profiles.fast.stop: Expected an array, got a text: put it in brackets.",
    ),
    "value for a table": (
        {"prompts/a.toml": 'output = "json"\n' + HI},
        "prompts/a.toml:1: output: Expected a table, got a text.",
    ),
    "value for messages": (
        {"prompts/a.toml": 'messages = "hi"'},
        "prompts/a.toml:1: messages: Expected an array of tables, got a text.",
    ),
    "no messages": (
        {"prompts/a.toml": "messages = []"},
        "prompts/a.toml:1: messages: is empty: a prompt has at least one message.",
    ),
    "missing messages": ({"prompts/a.toml": ""}, "prompts/a.toml:1: messages: is missing."),
    "missing content": (
        {"prompts/a.toml": message(role="'user'")},
        "prompts/a.toml:1: messages[0].content: is missing.",
    ),
    "unknown role": (
        {"prompts/a.toml": message(role="'tool'", content="''")},
        "prompts/a.toml:2: messages[0].role: 'tool' is not one of 'system', 'developer', 'user', 'assistant'.",
    ),
    "out of range": (
        {"promptkit.toml": ROOT.replace("temperature = 1", "temperature = -1")},
        "promptkit.toml:12: profiles.fast.temperature: is -1.0: 0 or more.",
    ),
    "nan": (
        {"promptkit.toml": ROOT.replace("temperature = 1", "temperature = nan")},
        "promptkit.toml:12: profiles.fast.temperature: is nan: 0 or more.",
    ),
    "infinity in extra": (
        {"promptkit.toml": ROOT.replace("top_k = 5", "top_k = inf")},
        "promptkit.toml:15: profiles.fast.extra.top_k: is inf, which JSON cannot carry.",
    ),
    "date in extra": (
        {"promptkit.toml": ROOT.replace("top_k = 5", "top_k = 2026-01-02")},
        "promptkit.toml:15: profiles.fast.extra.top_k: is a date, which JSON does not have: write it in quotes.",
    ),
    "reserved field": (
        {"promptkit.toml": ROOT.replace("top_k = 5", "stream = true")},
        "promptkit.toml:15: profiles.fast.extra.stream: is reserved: promptkit sets it.",
    ),
    "credential header": (
        {"promptkit.toml": ROOT.replace("x-team", "authorization")},
        "promptkit.toml:5: backends.local.headers.authorization: carries a credential: name its environment",
    ),
    "bad address": (
        {"promptkit.toml": ROOT.replace("http://", "ftp://")},
        "promptkit.toml:3: backends.local.base_url: must start with http:// or https:// and name a host.",
    ),
    "dangling backend": (
        {"promptkit.toml": ROOT.replace('backend = "local"', 'backend = "locl"')},
        "promptkit.toml:10: profiles.fast.backend: there is no backend 'locl'; the backends are: 'local'. Did",
    ),
    "dangling profile": (
        {"prompts/a.toml": 'profile = "fats"\n' + HI},
        "prompts/a.toml:1: profile: there is no profile 'fats'; the profiles are: 'fast'. Did you mean 'fast'?",
    ),
    "dangling schema": (
        {"prompts/a.toml": HI + '[output]\nkind = "json_schema"\nschema = "x"\n'},
        "prompts/a.toml:6: output.schema: there is no schema 'x'.",
    ),
    "template": (
        {"prompts/a.toml": message(role="'user'", content="'{{'")},
        "prompts/a.toml:3: messages[0].content: does not compile: unexpected 'end of template'.",
    ),
    "undeclared variable": (
        {"prompts/a.toml": 'variables = ["topic"]\n' + message(role="'user'", content="'{{ topic }}{{ topik }}'")},
        "prompts/a.toml:4: messages[0].content: uses the variable 'topik', which the prompt does not declare:",
    ),
    "unused variable": (
        {"prompts/a.toml": 'variables = ["topic"]\n' + HI},
        "prompts/a.toml:1: variables[0]: declares the variable 'topic', which no template of the prompt uses.",
    ),
    "undeclared input": (
        {"prompts/a.toml": message(role="'user'", content="'{{ inputs.doc }}'")},
        "prompts/a.toml:3: messages[0].content: uses the input 'doc', which the prompt does not declare: add it",
    ),
    "unused input": (
        {"prompts/a.toml": 'inputs = ["doc"]\n' + HI},
        "prompts/a.toml:1: inputs[0]: declares the input 'doc', which no template or attachment of the prompt uses.",
    ),
    "content twice": (
        {"prompts/a.toml": message(role="'user'", content="'x'", content_file="'t.txt'")},
        "prompts/a.toml:4: messages[0].content_file: stands beside content: give one of the two.",
    ),
    "content file missing": (
        {"prompts/a.toml": message(role="'user'", content_file="'t.txt'")},
        "prompts/a.toml:3: messages[0].content_file: 't.txt' cannot be read: ",
    ),
    "content file of a wrong kind": (
        {"prompts/a.toml": message(role="'user'", content_file="5")},
        "prompts/a.toml:3: messages[0].content_file: Expected the path of a file.",
    ),
    "content file with a nul": (
        {"prompts/a.toml": message(role="'user'", content_file='"a\\u0000b"')},
        "prompts/a.toml:3: messages[0].content_file: Expected the path of a file.",
    ),
    "folder for a file": ({"prompts/a.toml/b.txt": "", "schemas/s.json": "{"}, "schemas/s.json:1: is not JSON:"),
    "file for a folder": ({"prompts": "x"}, "prompts: cannot be read: Not a directory."),
    "id of a file": (
        {"prompts/ a.toml": HI},
        "prompts/ a.toml:1: ' a' has control characters or whitespace around it.",
    ),
    "cut": ({"prompts/a.toml": "a = [\n\n"}, "prompts/a.toml:1: is not TOML:"),
    "marker of a wrong lifetime": (
        {"prompts/a.toml": HI + 'cache_control = { ttl = "2h" }\n'},
        "prompts/a.toml:4: messages[0].cache_control.ttl: '2h' is not one of '5m', '1h'.",
    ),
    "marker of nothing": (
        {"prompts/a.toml": message(role="'user'", content="''", cache_control="{}")},
        "prompts/a.toml:4: messages[0].cache_control: marks a message without text, which backends refuse:",
    ),
    "empty session": (
        {"prompts/a.toml": "session = ''\n" + HI},
        "prompts/a.toml:1: session: is empty: leave it out, and there is no session id.",
    ),
    "near miss of a choice": (
        {"prompts/a.toml": message(role="'usr'", content="''")},
        (
            "prompts/a.toml:2: messages[0].role: 'usr' is not one of 'system', 'developer', 'user', 'assistant'. "
            "Did you mean 'user'?"
        ),
    ),
    "integer of many digits": (
        {"promptkit.toml": ROOT + "top_p = " + "1" * 5000},
        "promptkit.toml:16: has an integer of more digits than Python reads.",
    ),
    "integer of many digits in a schema": (
        {"schemas/s.json": '{\n"maximum": ' + "1" * 5000 + "}"},
        "schemas/s.json:2: has an integer of more digits than Python reads.",
    ),
    "hexadecimal integer without end": (
        {"promptkit.toml": ROOT.replace("temperature = 1", "seed = 0x" + "f" * 5000)},
        "promptkit.toml:12: profiles.fast.seed: a number of too many digits is out of range: from -2**63 to 2**64 - 1.",
    ),
    "attachment that is no input": (
        {"prompts/a.toml": 'inputs = ["photo"]\n' + HI + 'attachments = ["photo", "foto"]\n'},
        (
            "prompts/a.toml:5: messages[0].attachments[1]: attaches the input 'foto', which the prompt does not "
            "declare: add it to inputs. Did you mean 'photo'?"
        ),
    ),
    "attachment given twice": (
        {"prompts/a.toml": 'inputs = ["photo"]\n' + HI + 'attachments = [\n"photo",\n"photo"]\n'},
        "prompts/a.toml:7: messages[0].attachments[1]: 'photo' is attached twice to one message.",
    ),
    "message that is no table": (
        {"prompts/a.toml": "messages = ['hi']"},
        "prompts/a.toml:1: messages[0]: Expected a table, got a text.",
    ),
    "credential in extra": (
        {"promptkit.toml": ROOT.replace("top_k = 5", 'options = [{ OpenAI-API-Key = "LEAK" }]')},
        (
            "promptkit.toml:15: profiles.fast.extra.options[0].OpenAI-API-Key: carries a credential: name its "
            "environment variable in the backend's credential_env instead."
        ),
    ),
    "setting that a kind of backend lacks": (
        {"promptkit.toml": '[backends."a.b"]\nkind = "embedded"\nheaders = { x = "y" }\n'},
        'promptkit.toml:3: backends."a.b".headers: is given, but nothing is sent anywhere: leave it out.',
    ),
    "setting of a profile that its backend lacks": (
        {
            "promptkit.toml": '[backends.here]\nkind = "embedded"\n'
            '[profiles.p]\nbackend = "here"\nmodel = "m"\nreasoning_effort = "low"\n'
        },
        (
            "promptkit.toml:6: profiles.p.reasoning_effort: has no effect on backend 'here': the default embedded "
            "model does not reason; leave it out."
        ),
    ),
    "session parameter in extra": (
        {
            "promptkit.toml": ROOT.replace(
                "[backends.local.headers]", "session_parameter = 'top_k'\n[backends.local.headers]"
            )
        },
        (
            "promptkit.toml:16: profiles.fast.extra.top_k: is the field that carries the session id of backend "
            "'local': leave it out here."
        ),
    ),
    "template line of a text over many lines": (
        {"prompts/a.toml": '[[messages]]\nrole = \'user\'\ncontent = """\nfirst\n{% x %}\n"""\n'},
        "prompts/a.toml:5: messages[0].content: does not compile: Encountered unknown tag 'x'",
    ),
    "template line of a text with moved lines": (
        {"prompts/a.toml": '[[messages]]\nrole = \'user\'\ncontent = """\\\n\n{{ x }}\\n{{ y """\n'},
        (
            "prompts/a.toml:3: messages[0].content: does not compile: unexpected end of template, expected "
            "'end of print statement' (line 2 of the template)."
        ),
    ),
    "template line of a file": (
        {"prompts/a.toml": message(role="'user'", content_file="'t.txt'"), "prompts/t.txt": "first\n{% x %}"},
        "prompts/t.txt:2: does not compile: Encountered unknown tag 'x'",
    ),
    "undeclared variable of a file": (
        {"prompts/a.toml": message(role="'user'", content_file="'t.txt'"), "prompts/t.txt": "x\n\n{{ x }}"},
        (
            "prompts/t.txt:3: uses the variable 'x', which the prompt does not declare: add it to variables "
            "(messages[0].content of prompts/a.toml)."
        ),
    ),
    "near miss of a content file": (
        {"prompts/b/a.toml": message(role="'user'", content_file="'../t/on.txt'"), "prompts/t/one.txt": ""},
        "prompts/b/a.toml:3: messages[0].content_file: '../t/on.txt' cannot be read: ",
    ),
    "upper case ending": (
        {"prompts/a.TOML": HI},
        "prompts/a.TOML: is ignored, because its ending is not '.toml': rename it.",
    ),
    "ids that differ in case": (
        {"prompts/a.toml": HI, "prompts/A.toml": HI},
        (
            "prompts/a.toml: differs from prompts/A.toml only in case or Unicode form, which not every file system "
            "tells apart: rename one of the two."
        ),
    ),
    "ids that differ in Unicode form": (
        {"schemas/caf\u00e9.json": "{}", "schemas/cafe\u0301.json": "{}"},
        "schemas/caf\u00e9.json: differs from schemas/cafe\u0301.json only in case or Unicode form",
    ),
    "include of what is not there": (
        {
            "prompts/a.toml": message(role="'user'", content="'{% include \"parts/ton.txt\" %}'"),
            "prompts/parts/tone.txt": "",
        },
        "prompts/a.toml:3: messages[0].content: includes 'parts/ton.txt', which cannot be read: ",
    ),
    "include of what is outside": (
        {"prompts/a.toml": message(role="'user'", content="'{% include \"../promptkit.toml\" %}'")},
        "prompts/a.toml:3: messages[0].content: includes '../promptkit.toml', which is not inside the prompts folder: ",
    ),
    "include of what is not UTF-8": (
        {"prompts/a.toml": message(role="'user'", content="'{% include \"t.txt\" %}'"), "prompts/t.txt": b"a\nb\xff"},
        "prompts/t.txt:2: is not UTF-8: byte 0xff at offset 3.",
    ),
    "fragment that does not compile": (
        {"prompts/a.toml": message(role="'user'", content="'{% include \"t.txt\" %}'"), "prompts/t.txt": "a\n{% x %}"},
        "prompts/t.txt:2: does not compile: Encountered unknown tag 'x'",
    ),
    "undeclared variable of a fragment": (
        {"prompts/a.toml": message(role="'user'", content="'{% include \"t.txt\" %}'"), "prompts/t.txt": "a\n{{ x }}"},
        (
            "prompts/t.txt:2: uses the variable 'x', which the prompt does not declare: add it to variables "
            "(messages[0].content of prompts/a.toml)."
        ),
    ),
    "fragments that include each other": (
        {
            "prompts/a.toml": message(role="'user'", content="'{% include \"t.txt\" %}'"),
            "prompts/t.txt": "a\n{% include 'b.txt' %}",
            "prompts/b.txt": "\n\n{% include 't.txt' %}",
        },
        "prompts/b.txt:3: includes itself without an end: b.txt -> t.txt -> b.txt.",
    ),
    "fragment that includes itself": (
        {"prompts/a.toml": "session = '{% include \"t.txt\" %}'\n" + HI, "prompts/t.txt": "{% include 't.txt' %}"},
        "prompts/t.txt:1: includes itself without an end: t.txt -> t.txt.",
    ),
    "prompts in a folder of a near name": (
        {"prompt/a.toml": HI},
        "prompt: is not read: the prompts are in 'prompts'; rename it, or name it in [paths].",
    ),
    "schemas in a folder of a near name": (
        {"prompts/a.toml": HI + '[output]\nkind = "json_schema"\nschema = "s"\n', "schemes/s.json": "{}"},
        "schemes: is not read: the schemas are in 'schemas'; rename it, or name it in [paths].",
    ),
    "near miss of a folder": (
        {"promptkit.toml": '[paths]\nprompts = "text"\n', "texts/a.toml": HI},
        "promptkit.toml:2: paths.prompts: there is no folder 'text'. Did you mean 'texts'?",
    ),
    "schema of another format": (
        {"prompts/a.toml": HI + '[output]\nkind = "json_schema"\nschema = "s"\n', "schemas/s.yaml": "type: object"},
        "schemas/s.yaml: is not read: schemas end in '.json'; write it so, or move it elsewhere.",
    ),
    "prompt of another format": (
        {"prompts/a.toml": HI, "prompts/b/c.YML": "messages: []"},
        "prompts/b/c.YML: is not read: prompts end in '.toml'; write it so, or move it elsewhere.",
    ),
    "include of what is only known when rendered": (
        {"prompts/a.toml": "variables = ['x']\n" + message(role="'user'", content="'{% include x %}'")},
        "prompts/a.toml:4: messages[0].content: ",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_says_where_what_and_what_was_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def refuse(*_: object) -> None:
        message = "something was fetched"
        raise AssertionError(message)

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    files, said = FAULTS[name]
    (fault,) = faults(tmp_path, files)
    assert str(fault).startswith(said)


ONE_PROMPT = [files["prompts/a.toml"] for files, _ in FAULTS.values() if files.keys() == {"prompts/a.toml"}]


@given(st.lists(st.sampled_from(ONE_PROMPT), unique=True, max_size=8), st.booleans())
@settings(max_examples=30, deadline=None)
def test_a_fault_hides_none_of_another_file(prompts: list[str], broken: bool) -> None:  # noqa: FBT001
    """The report of many files has the lines of the reports of each."""
    root = "[profiles.x]\nmodel = 5\n" if broken else ""
    with TemporaryDirectory() as place:
        alone = [faults(Path(place) / str(n), {"prompts/a.toml": text}) for n, text in enumerate(prompts)]
        both: dict[str, str | bytes] = {f"prompts/{n}.toml": text for n, text in enumerate(prompts)}
        if not (both or broken):
            return
        together = faults(Path(place) / "all", {"promptkit.toml": ROOT + root, **both})
    expected = [
        str(fault).replace("prompts/a.toml", f"prompts/{n}.toml") for n, found in enumerate(alone) for fault in found
    ]
    lines = [line.replace("the profiles are: 'fast', 'x'", "the profiles are: 'fast'") for line in map(str, together)]
    assert [line for line in lines if line.startswith("prompts/")] == expected
    assert len(lines) - len(expected) == (2 if broken else 0)


def test_a_reference_to_what_has_faults_of_its_own_does_not_dangle(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"promptkit.toml": "[profiles.fast\n", "prompts/a.toml": PROMPT}
    assert [(fault.file, fault.line) for fault in faults(tmp_path, files)] == [("promptkit.toml", 1)]


def test_a_root_that_is_no_catalog_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"has no promptkit\.toml"):
        load_catalog(tmp_path)
    with pytest.raises(InvalidConfigError, match="is not a folder"):
        load_catalog(tmp_path / "missing")
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidConfigError, match="is not a folder"):
        load_catalog(tmp_path / "file")
    (tmp_path / "is").mkdir()
    (tmp_path / "is" / "promptkit.toml").write_text("")
    with pytest.raises(InvalidConfigError) as caught:
        load_catalog(tmp_path / "is" / "promptkit.toml")
    assert str(caught.value).endswith(f"promptkit.toml: is not a folder: give its folder, {tmp_path / 'is'}.")
    (tmp_path / "promptkit.toml").mkdir()
    with pytest.raises(InvalidConfigError, match="not a regular file"):
        load_catalog(tmp_path)


@pytest.mark.parametrize("named", [".", "missing", "missing/../empty"])
def test_a_root_that_is_no_catalog_is_told_by_its_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidConfigError) as caught:
        load_catalog(named)
    (fault,) = caught.value.faults
    assert fault.file == os.path.abspath(named)  # noqa: PTH100  # without ".."


@pytest.mark.parametrize(
    "named", ["../secret.txt", "../../secret.txt", "link.txt", "linked/secret.txt", "a/../../secret.txt"]
)
def test_a_content_file_outside_the_folder_is_refused(tmp_path: Path, named: str) -> None:
    files: dict[str, str | bytes] = {
        "promptkit.toml": ROOT,
        "secret.txt": "SECRET",
        "../outside/secret.txt": "SECRET",
        "../secret.txt": "SECRET",
        "prompts/a/x.txt": "",
        "prompts/a.toml": message(role="'user'", content_file=f"'{named}'"),
    }
    root = folder(tmp_path, files)
    (root / "prompts" / "link.txt").symlink_to(root / "secret.txt")
    (root / "prompts" / "linked").symlink_to(tmp_path / "outside")
    with pytest.raises(InvalidConfigError) as caught:
        load_catalog(root)
    assert [(fault.file, fault.key) for fault in caught.value.faults] == [
        ("prompts/a.toml", "messages[0].content_file"),
        ("prompts/linked", None),
    ]
    assert "is outside the folder 'prompts'." in str(caught.value)
    assert "is a link out of the folder 'prompts'." in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_an_absolute_content_file_is_refused_and_one_inside_is_taken(tmp_path: Path) -> None:
    root = folder(
        tmp_path,
        {
            "promptkit.toml": ROOT,
            "prompts/shared/x.txt": "shared",
            "prompts/team/a.toml": message(role="'user'", content_file="'../shared/x.txt'"),
            "secret.txt": "SECRET",
        },
    )
    assert load_catalog(root).prompts["team/a"].messages[0].content == "shared"
    (root / "prompts/b.toml").write_text(message(role="'user'", content_file=f"'{root / 'secret.txt'}'"))
    with pytest.raises(InvalidConfigError, match="outside the folder"):
        load_catalog(root)


def test_links_out_of_the_folders_and_special_files_are_faults(tmp_path: Path) -> None:
    root = folder(
        tmp_path, {"promptkit.toml": ROOT, "elsewhere.toml": HI, "prompts/ok.toml": HI, "schemas/s.json": "{}"}
    )
    (root / "prompts/link.toml").symlink_to(root / "elsewhere.toml")
    (root / "prompts/inside.toml").symlink_to(root / "prompts/ok.toml")
    (root / "schemas/loop.json").symlink_to(root / "schemas/loop.json")
    os.mkfifo(root / "schemas/pipe.json")
    with pytest.raises(InvalidConfigError) as caught:
        load_catalog(root)
    assert {(fault.file, fault.message.split(".")[0]) for fault in caught.value.faults} == {
        ("prompts/link.toml", "is outside the folder 'prompts'"),
        ("schemas/loop.json", "cannot be read: Too many levels of symbolic links"),
        ("schemas/pipe.json", "is not a regular file"),
    }


def test_two_loaded_catalogs_combine_and_keep_both_inputs_folders(tmp_path: Path) -> None:
    one = load_catalog(folder(tmp_path / "one", {"promptkit.toml": ROOT}))
    two = load_catalog(folder(tmp_path / "two", {"promptkit.toml": "", "prompts/a.toml": HI}))
    folders = tuple(tmp_path / name / "catalog" / "inputs" for name in ("one", "two"))
    assert definitions_of(one | two).inputs_folders == folders
    assert definitions_of(Catalog() | two).inputs_folders == folders[1:]


def test_the_root_is_text_or_a_path(tmp_path: Path) -> None:
    made = folder(tmp_path, {"promptkit.toml": ROOT})
    assert load_catalog(str(made)).profiles == load_catalog(made).profiles


def test_a_folder_that_is_named_and_not_there_is_a_fault(tmp_path: Path) -> None:
    made = folder(tmp_path, {"promptkit.toml": '[paths]\nprompts = "nosuch"\ninputs = "neither"\n'})
    with pytest.raises(InvalidConfigError) as caught:
        load_catalog(made)
    assert [(fault.key, fault.message) for fault in caught.value.faults] == [
        ("paths.prompts", "there is no folder 'nosuch'."),
        ("paths.inputs", "there is no folder 'neither'."),
    ]


def test_a_file_of_another_format_that_a_prompt_uses_is_no_stray(tmp_path: Path) -> None:
    files = {
        "prompts/a.toml": message(role="'user'", content_file="'parts/example.json'"),
        "prompts/b.toml": message(role="'user'", content="'{% include \"parts/rules.yaml\" %}'"),
        "prompts/parts/example.json": '{% include "parts/inner.yml" %}',
        "prompts/parts/rules.yaml": "- be brief",
        "prompts/parts/inner.yml": "",
        "prompts/notes.md": "",
    }
    assert list(loaded(tmp_path / "used", files).prompts) == ["a", "b"]
    files["prompts/a.toml"] = "["  # what it uses cannot be told
    assert [fault.file for fault in faults(tmp_path / "untold", dict(files))] == ["prompts/a.toml"]


@pytest.mark.parametrize(
    ("paths", "files"),
    [
        ('prompts = "."', ("a.toml", "compose.yaml", "schemas/s.json", "inputs/data.json")),
        ('prompts = "data"\nschemas = "data"', ("data/a.toml", "data/s.json")),
        ('prompts = "data"\nschemas = "data/schemas"', ("data/a.toml", "data/schemas/s.json")),
        ('inputs = "prompts/inputs"', ("prompts/a.toml", "prompts/inputs/data.yaml")),
        ('schemas = "schema"', ("prompts/a.toml", "schema/s.json")),
        ('prompts = "prompt"', ("prompt/a.toml",)),
        ("", ("promptkit/a.toml", "prompt/main.py", "schemata/s.json")),
        ("", ("prompts/a.toml", "schema/tables.json")),  # no prompt names a schema
    ],
)
def test_files_that_are_there_for_something_else_are_no_strays(
    tmp_path: Path, paths: str, files: tuple[str, ...]
) -> None:
    contents = {name: HI if name.endswith("a.toml") else "{}" for name in files}
    assert load_catalog(folder(tmp_path, {"promptkit.toml": f"{ROOT}[paths]\n{paths}\n", **contents})).profiles
