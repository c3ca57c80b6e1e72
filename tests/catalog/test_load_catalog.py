"""Reading a catalog's folder: what is there becomes definitions, and what is wrong becomes faults, all of them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

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
    from pathlib import Path

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
        {"promptkit.toml": ROOT, "prompts/é.toml": '[[messages]]\nrole="user"\ncontent="é—中🙂"\n'},
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
        for utf8, locale in (("1", "C.UTF-8"), ("0", "C.UTF-8"))
    }
    assert len(said) == 1
    assert definition_hash(load_catalog(root).prompts["é"]) in said.pop().decode()


def message(**fields: str) -> str:
    return "[[messages]]\n" + "".join(f"{name} = {value}\n" for name, value in fields.items())


# files, then what the one fault says: file, line, key, part of the message, suggestion
FAULTS: dict[str, tuple[dict[str, str | bytes], str | None, int | None, str | None, str, str | None]] = {
    "broken line": ({"promptkit.toml": ROOT + "\nmodel = \n"}, "promptkit.toml", 17, None, "is not TOML", None),
    "broken prompt": ({"prompts/a.toml": "a = 1\nb = [\n"}, "prompts/a.toml", None, None, "is not TOML", None),
    "duplicate key": (
        {"promptkit.toml": '[profiles.p]\nmodel = "a"\nmodel = "b"\n'},
        "promptkit.toml",
        3,
        None,
        "is not TOML",
        None,
    ),
    "duplicate table": (
        {"promptkit.toml": "[profiles.p]\n[profiles.p]\n"},
        "promptkit.toml",
        2,
        None,
        "not TOML",
        None,
    ),
    "duplicate key of a schema": (
        {"schemas/s.json": '{"a": {"type": 1, "type": 2}}'},
        "schemas/s.json",
        None,
        None,
        "'type' stands twice",
        None,
    ),
    "root not utf-8": ({"promptkit.toml": b"a = '\xe9'"}, "promptkit.toml", None, None, "byte 0xe9 at offset 5", None),
    "prompt not utf-8": ({"prompts/a.toml": b"\xff"}, "prompts/a.toml", None, None, "is not UTF-8", None),
    "schema not utf-8": ({"schemas/s.json": b'"\xe9"'}, "schemas/s.json", None, None, "is not UTF-8", None),
    "content file not utf-8": (
        {"prompts/a.toml": message(role="'user'", content_file="'t.txt'"), "prompts/t.txt": b"caf\xe9"},
        "prompts/a.toml",
        None,
        "messages[0].content_file",
        "t.txt is not UTF-8",
        None,
    ),
    "schema not json": ({"schemas/s.json": '{\n"a": }'}, "schemas/s.json", 2, None, "is not JSON", None),
    "schema with nan": ({"schemas/s.json": '{"a": NaN}'}, "schemas/s.json", None, None, "at a is nan", None),
    "schema with infinity": ({"schemas/s.json": '{"a": 1e999}'}, "schemas/s.json", None, None, "inf", None),
    "schema too deep": ({"schemas/s.json": "[" * 100_000}, "schemas/s.json", None, None, "", None),
    "schema of a wrong kind": (
        {"schemas/s.json": '"x"'},
        "schemas/s.json",
        None,
        "schemas.s",
        "neither an object",
        None,
    ),
    "bad schema": ({"schemas/s.json": '{"type": "nope"}'}, "schemas/s.json", None, "schemas.s", "/type", None),
    "remote reference": (
        {"schemas/s.json": '{"$ref": "http://127.0.0.1:1/x.json"}'},
        "schemas/s.json",
        None,
        "schemas.s",
        "nothing is fetched",
        None,
    ),
    "reference to a file": (
        {"schemas/s.json": '{"$ref": "t.json"}', "schemas/t.json": "{}"},
        "schemas/s.json",
        None,
        "schemas.s",
        "not a usable",
        None,
    ),
    "endless reference": ({"schemas/s.json": '{"$ref": "#"}'}, "schemas/s.json", None, "schemas.s", "never ends", None),
    "unknown table": (
        {"promptkit.toml": "[profile.p]\n"},
        "promptkit.toml",
        None,
        "profile",
        "not a table",
        "profiles",
    ),
    "unknown key of a backend": (
        {"promptkit.toml": '[backends.b]\nkind = "chat_completions"\nbase_ulr = "x"\nbase_url = "http://h"\n'},
        "promptkit.toml",
        None,
        "backends.b.base_ulr",
        "not a key",
        "base_url",
    ),
    "unknown key of a profile": (
        {"promptkit.toml": ROOT + "[profiles.fast.extra2]\n"},
        "promptkit.toml",
        None,
        "profiles.fast.extra2",
        "not a key",
        "extra",
    ),
    "unknown key of a nested table": (
        {"promptkit.toml": ROOT.replace("max_retries", "max_retry")},
        "promptkit.toml",
        None,
        "backends.local.retry.max_retry",
        "not a key",
        "max_retries",
    ),
    "unknown key of a prompt": (
        {"prompts/a.toml": "varibles = []\n" + HI},
        "prompts/a.toml",
        None,
        "varibles",
        "not a key",
        "variables",
    ),
    "id in a prompt": ({"prompts/a.toml": 'id = "b"\n' + HI}, "prompts/a.toml", None, "id", "not a key", None),
    "unknown key of a message": (
        {"prompts/a.toml": HI + 'contents = "x"\n'},
        "prompts/a.toml",
        None,
        "messages[0].contents",
        "not a key",
        "content",
    ),
    "unknown folder": (
        {"promptkit.toml": '[paths]\nprompt = "x"\n'},
        "promptkit.toml",
        None,
        "paths.prompt",
        "not a folder",
        "prompts",
    ),
    "folder of a wrong kind": (
        {"promptkit.toml": "[paths]\nprompts = 1\n"},
        "promptkit.toml",
        None,
        "paths.prompts",
        "",
        None,
    ),
    "paths of a wrong kind": (
        {"promptkit.toml": "paths = 1\n"},
        "promptkit.toml",
        None,
        "paths",
        "Expected a table",
        None,
    ),
    "backends of a wrong kind": (
        {"promptkit.toml": "backends = []\n"},
        "promptkit.toml",
        None,
        "backends",
        "tables",
        None,
    ),
    "profile of a wrong kind": (
        {"promptkit.toml": "[profiles]\np = 1\n"},
        "promptkit.toml",
        None,
        "profiles.p",
        "a table",
        None,
    ),
    "number for text": (
        {"promptkit.toml": ROOT.replace('"small"', "1.10")},
        "promptkit.toml",
        None,
        "profiles.fast.model",
        "Expected `str`, got `float`",
        None,
    ),
    "date for text": (
        {"promptkit.toml": ROOT.replace('"small"', "2026-01-02")},
        "promptkit.toml",
        None,
        "profiles.fast.model",
        "Expected `str`",
        None,
    ),
    "boolean for a number": (
        {"promptkit.toml": ROOT.replace("max_retries = 0", "max_retries = true")},
        "promptkit.toml",
        None,
        "backends.local.retry.max_retries",
        "got `bool`",
        None,
    ),
    "text for a tuple": (
        {"promptkit.toml": ROOT.replace('["END"]', '"END"')},
        "promptkit.toml",
        None,
        "profiles.fast.stop",
        "Expected `array`",
        None,
    ),
    "value for a table": (
        {"prompts/a.toml": 'output = "json"\n' + HI},
        "prompts/a.toml",
        None,
        "output",
        "Expected a table, got a string",
        None,
    ),
    "value for messages": (
        {"prompts/a.toml": 'messages = "hi"'},
        "prompts/a.toml",
        None,
        "messages",
        "array of tables",
        None,
    ),
    "no messages": ({"prompts/a.toml": "messages = []"}, "prompts/a.toml", None, "messages", "is empty", None),
    "missing messages": ({"prompts/a.toml": ""}, "prompts/a.toml", None, "messages", "is missing", None),
    "missing content": (
        {"prompts/a.toml": message(role="'user'")},
        "prompts/a.toml",
        None,
        "messages[0].content",
        "missing",
        None,
    ),
    "unknown role": (
        {"prompts/a.toml": message(role="'tool'", content="''")},
        "prompts/a.toml",
        None,
        "messages[0].role",
        "tool",
        None,
    ),
    "out of range": (
        {"promptkit.toml": ROOT.replace("temperature = 1", "temperature = -1")},
        "promptkit.toml",
        None,
        "profiles.fast.temperature",
        "0 or more",
        None,
    ),
    "nan": (
        {"promptkit.toml": ROOT.replace("temperature = 1", "temperature = nan")},
        "promptkit.toml",
        None,
        "profiles.fast.temperature",
        "nan",
        None,
    ),
    "infinity in extra": (
        {"promptkit.toml": ROOT.replace("top_k = 5", "top_k = inf")},
        "promptkit.toml",
        None,
        "profiles.fast.extra.top_k",
        "inf",
        None,
    ),
    "date in extra": (
        {"promptkit.toml": ROOT.replace("top_k = 5", "top_k = 2026-01-02")},
        "promptkit.toml",
        None,
        "profiles.fast.extra.top_k",
        "not a JSON value",
        None,
    ),
    "reserved field": (
        {"promptkit.toml": ROOT.replace("top_k = 5", "stream = true")},
        "promptkit.toml",
        None,
        "profiles.fast.extra.stream",
        "reserved",
        None,
    ),
    "credential header": (
        {"promptkit.toml": ROOT.replace("x-team", "authorization")},
        "promptkit.toml",
        None,
        "backends.local.headers.authorization",
        "credential_env",
        None,
    ),
    "bad address": (
        {"promptkit.toml": ROOT.replace("http://", "ftp://")},
        "promptkit.toml",
        None,
        "backends.local.base_url",
        "http",
        None,
    ),
    "dangling backend": (
        {"promptkit.toml": ROOT.replace('backend = "local"', 'backend = "locl"')},
        "promptkit.toml",
        None,
        "profiles.fast.backend",
        "no backend 'locl'",
        "local",
    ),
    "dangling profile": (
        {"prompts/a.toml": 'profile = "fats"\n' + HI},
        "prompts/a.toml",
        None,
        "prompts.a.profile",
        "no profile 'fats'",
        "fast",
    ),
    "dangling schema": (
        {"prompts/a.toml": HI + '[output]\nkind = "json_schema"\nschema = "x"\n'},
        "prompts/a.toml",
        None,
        "prompts.a.output.schema",
        "no schema 'x'",
        None,
    ),
    "template": (
        {"prompts/a.toml": message(role="'user'", content="'{{'")},
        "prompts/a.toml",
        None,
        "prompts.a.messages[0].content",
        "does not compile",
        None,
    ),
    "undeclared variable": (
        {"prompts/a.toml": 'variables = ["topic"]\n' + message(role="'user'", content="'{{ topic }}{{ topik }}'")},
        "prompts/a.toml",
        None,
        "prompts.a.messages[0].content",
        "'topik'",
        "topic",
    ),
    "unused variable": (
        {"prompts/a.toml": 'variables = ["topic"]\n' + HI},
        "prompts/a.toml",
        None,
        "prompts.a.variables",
        "'topic'",
        None,
    ),
    "undeclared input": (
        {"prompts/a.toml": message(role="'user'", content="'{{ inputs.doc }}'")},
        "prompts/a.toml",
        None,
        "prompts.a.messages[0].content",
        "input 'doc'",
        None,
    ),
    "unused input": (
        {"prompts/a.toml": 'inputs = ["doc"]\n' + HI},
        "prompts/a.toml",
        None,
        "prompts.a.inputs",
        "'doc'",
        None,
    ),
    "content twice": (
        {"prompts/a.toml": message(role="'user'", content="'x'", content_file="'t.txt'")},
        "prompts/a.toml",
        None,
        "messages[0].content_file",
        "one of the two",
        None,
    ),
    "content file missing": (
        {"prompts/a.toml": message(role="'user'", content_file="'t.txt'")},
        "prompts/a.toml",
        None,
        "messages[0].content_file",
        "t.txt cannot be read",
        None,
    ),
    "content file of a wrong kind": (
        {"prompts/a.toml": message(role="'user'", content_file="5")},
        "prompts/a.toml",
        None,
        "messages[0].content_file",
        "Expected the path",
        None,
    ),
    "content file with a nul": (
        {"prompts/a.toml": message(role="'user'", content_file='"a\\u0000b"')},
        "prompts/a.toml",
        None,
        "messages[0].content_file",
        "Expected the path",
        None,
    ),
    "folder for a file": (
        {"prompts/a.toml/b.txt": "", "schemas/s.json": "{"},
        "schemas/s.json",
        1,
        None,
        "not JSON",
        None,
    ),
    "file for a folder": ({"prompts": "x"}, "prompts", None, None, "cannot be read", None),
    "id of a file": ({"prompts/ a.toml": HI}, "prompts/ a.toml", None, "id", "whitespace", None),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_says_where_what_and_what_was_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def refuse(*_: object) -> None:
        message = "something was fetched"
        raise AssertionError(message)

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    files, file, line, key, sentence, suggestion = FAULTS[name]
    (fault,) = faults(tmp_path, files)
    assert (fault.file, fault.key, fault.suggestion) == (file, key, suggestion)
    assert sentence in fault.message
    assert line is None or fault.line == line


def test_all_faults_of_all_files_come_at_once_and_none_is_lost(tmp_path: Path) -> None:
    """One of each kind together: a fault of one kind never hides those of another."""
    files: dict[str, str | bytes] = {
        "promptkit.toml": """\
[unknown]
[paths]
prompt = "x"
[backends.one]
kind = "chat_completions"
base_url = "http://user:LEAK@h"
max_waiting = -1
headers = { cookie = "LEAK", x-n = 5 }
retry = { max_retries = "two", base_delay = -1.0, max_dealy = 3 }
[backends.two]
kind = "chat"
connect_timeout = 0
[profiles.a]
backend = "one"
temperature = "hot"
top_p = 7
extra = { stream = true }
[profiles.b]
backend = "three"
model = "m"
""",
        "prompts/broken.toml": "a = ",
        "prompts/binary.toml": b"\xff",
        "prompts/many.toml": """\
variables = "topic"
inputs = ["a-b"]
profile = 5
what = 1
[[messages]]
role = "tool"
[[messages]]
role = "user"
content = "x"
content_file = "y"
[[messages]]
role = "user"
content_file = "../../secret"
[output]
kind = "json"
schema = "s"
max_repairs = -1
""",
        "prompts/refers.toml": 'profile = "a"\nvariables = ["unused"]\nvarables = []\n'
        + message(role="'user'", content="'{{ missing }}'")
        + message(role="'user'", content="'{{'")
        + '[output]\nkind = "json_schema"\nschema = "broken"\n',
        "prompts/dangles.toml": 'profile = "zzz"\nvariables = ["unused"]\n'
        + message(role="'user'", content="'x'")
        + '[output]\nkind = "json_schema"\nschema = "nowhere"\n',
        "schemas/broken.json": "{",
        "schemas/odd.json": '{"type": "nope"}',
    }
    found = {(fault.file, fault.key) for fault in faults(tmp_path, files)}
    root, many = "promptkit.toml", "prompts/many.toml"
    assert found == {
        (root, "unknown"),
        (root, "paths.prompt"),
        (root, "backends.one.base_url"),
        (root, "backends.one.max_waiting"),
        (root, "backends.one.headers"),
        (root, "backends.one.retry.max_retries"),
        (root, "backends.one.retry.base_delay"),
        (root, "backends.one.retry.max_dealy"),
        (root, "backends.two.kind"),
        (root, "backends.two.connect_timeout"),
        (root, "profiles.a.model"),
        (root, "profiles.a.temperature"),
        (root, "profiles.a.top_p"),
        (root, "profiles.a.extra.stream"),
        (root, "profiles.b.backend"),
        ("prompts/broken.toml", None),
        ("prompts/binary.toml", None),
        (many, "variables"),
        (many, "inputs[0]"),
        (many, "profile"),
        (many, "what"),
        (many, "messages[0].role"),
        (many, "messages[0].content"),
        (many, "messages[1].content_file"),
        (many, "messages[2].content_file"),
        (many, "output.schema"),
        (many, "output.max_repairs"),
        ("prompts/refers.toml", "varables"),
        ("prompts/refers.toml", "prompts.refers.messages[0].content"),
        ("prompts/refers.toml", "prompts.refers.messages[1].content"),
        ("prompts/dangles.toml", "prompts.dangles.profile"),
        ("prompts/dangles.toml", "prompts.dangles.variables"),
        ("prompts/dangles.toml", "prompts.dangles.output.schema"),
        ("schemas/broken.json", None),
        ("schemas/odd.json", "schemas.odd"),
    }
    assert "LEAK" not in str(InvalidConfigError(*faults(tmp_path, files)))


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
    (tmp_path / "promptkit.toml").mkdir()
    with pytest.raises(InvalidConfigError, match="not a regular file"):
        load_catalog(tmp_path)


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
    assert [fault.key for fault in caught.value.faults] == ["messages[0].content_file"]
    assert "is outside the folder" in str(caught.value)
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
        ("prompts/link.toml", "is outside the folder"),
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
