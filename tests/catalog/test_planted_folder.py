"""A folder with every kind of fault: all of them in one report, in the order of the files, whatever else is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptkit import load_catalog
from promptkit.errors import Fault, InvalidConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

PLANTED: dict[str, bytes] = {
    "promptkit.toml": b"""\
[unknown]
[paths]
prompt = "x"

[backends.one]
kind = "chat_completions"
base_url = "http://user:LEAK@h"
max_waiting = -1
headers.cookie = "LEAK"
session_parameter = "user"
retry = { max_retries = "two", base_delay = -1.0, max_dealy = 3 }

[backends."two.b"]
kind = "chat"
connect_timeout = 0

[backends.three]
kind = "embedded"
token_limit_parameter = "max_completion_tokens"
[backends.three.embedded]
threads = 0

[profiles.a]
backend = "one"
temperature = "hot"
top_p = 7
extra = { stream = true, user = "me", nested = [{ api_key = "LEAK" }] }

[profiles.b]
backend = "tree"
model = "m"
seed = nan
stop = "END"

[profiles.c]
backend = "three"
model = "m"
reasoning_effort = "high"
native_output = "json_shema"
""",
    "prompts/bad syntax.toml": b"a = 1\nb = \n",
    "prompts/binary.toml": b"a = 1\nb = '\xff'\n",
    "prompts/capital.TOML": b"",
    "prompts/case.toml": b"messages = [{ role = 'user', content = 'hi' }]\n",
    "prompts/Case.toml": b"messages = [{ role = 'user', content = 'hi' }]\n",
    "prompts/empty.toml": b"",
    "prompts/fragments/broken.txt": b"fine\n{% endfor %}\n",
    "prompts/fragments/round.txt": b"{% include 'fragments/trip.txt' %}",
    "prompts/fragments/tone.txt": b"Be kind.\n{{ mood }}\n",
    "prompts/fragments/trip.txt": b"\n{% include 'fragments/round.txt' %}",
    "prompts/includes.toml": b"""\
variables = ["topic"]
[[messages]]
role = "user"
content = '''
{% include "fragments/tone.txt" %}
{% include "fragments/tune.txt" %}
{% include "fragments/round.txt" %}
{{ topik }}
'''
[[messages]]
role = "user"
content = "{% include 'fragments/broken.txt' %}"
[[messages]]
role = "user"
content = "{% include topic %}"
[[messages]]
role = "user"
content = "{% include '../promptkit.toml' %}"
""",
    "prompts/many.toml": b"""\
variables = ["topic", "a-b", "loop"]
inputs = "doc"
profile = 5
what = 1
session = ""

[[messages]]
role = "usr"

[[messages]]
role = "user"
content = "x"
content_file = "y"

[[messages]]
role = "user"
content_file = "../../secret"

[[messages]]
role = "user"
content_file = "text.txt"

[[messages]]
role = "system"
content = "{{ topik }}"
cache_control = { ttl = "2h" }

[output]
kind = "json"
schema = "s"
max_repairs = -1
""",
    "prompts/refers.toml": b"""\
profile = "aa"
variables = ["unused"]
inputs = ["photo", "spare"]
varables = []
session = "{{ who }}"

[[messages]]
role = "user"
content = '''
{{ missing }} {{ inputs.dok }}
{{ unused
}}'''
attachments = ["photo", "photo", "foto"]

[[messages]]
role = "user"
content = "{{"

[[messages]]
role = "user"
content = ""
cache_control = {}

[output]
kind = "json_schema"
schema = "brken"
""",
    "prompts/text.txt": b"one\ntwo\n\xff",
    "prompts/unused.toml": b"""\
profile = "zzzz"
variables = ["unused"]
inputs = ["extra"]
messages = [
    { role = "user", content = "x" },
]
[output]
kind = "json_schema"
[output.schema]
type = "object"
[output.schema.properties.a]
type = "nope"
""",
    "schemas/broken.json": b'{\n"a": 1,\n}',
    "schemas/endless.json": b'{"$ref": "#"}',
    "schemas/fine.json": b'{"type": "object"}',
    "schemas/odd.json": b'{\n"properties": {\n"a": {"type": "nope"}}}',
    "schemas/remote.json": b'{"$ref": "http://127.0.0.1:1/x.json"}',
    "schemas/twice.json": b'{\n"type": "object",\n"type": "array"}',
}
# How each line of the report starts, in order.
REPORT = """\
promptkit.toml:1: unknown: is not a table of this file.
promptkit.toml:3: paths.prompt: is not a folder's key. Did you mean 'prompts'?
promptkit.toml:7: backends.one.base_url: has user information: put the key into an environment variable and name it in
promptkit.toml:8: backends.one.max_waiting: is -1: 0 or more.
promptkit.toml:9: backends.one.headers.cookie: carries a credential: name its environment variable in credential_env i
promptkit.toml:11: backends.one.retry.base_delay: is -1.0: a number of seconds, 0 or more.
promptkit.toml:11: backends.one.retry.max_dealy: is not a key of this table. Did you mean 'max_delay'?
promptkit.toml:11: backends.one.retry.max_retries: Expected an integer, got a text.
promptkit.toml:14: backends."two.b".kind: 'chat' is not one of 'chat_completions', 'anthropic_messages', 'embedded'.
promptkit.toml:15: backends."two.b".connect_timeout: is 0.0: a number of seconds above 0.
promptkit.toml:19: backends.three.token_limit_parameter: is given, but an embedded model knows one name only: leave it
promptkit.toml:21: backends.three.embedded.threads: is 0: 1 or more.
promptkit.toml:23: profiles.a.model: is missing.
promptkit.toml:25: profiles.a.temperature: Expected a number, got a text.
promptkit.toml:26: profiles.a.top_p: is 7.0: from 0 to 1.
promptkit.toml:27: profiles.a.extra.nested[0].api_key: carries a credential: name its environment variable in the back
promptkit.toml:27: profiles.a.extra.stream: is reserved: promptkit sets it.
promptkit.toml:27: profiles.a.extra.user: is the field that carries the session id of backend 'one': leave it out here
promptkit.toml:30: profiles.b.backend: there is no backend 'tree'; the backends are: 'one', 'three', 'two.b'. Did you
promptkit.toml:32: profiles.b.seed: Expected an integer, got a float.
promptkit.toml:33: profiles.b.stop: Expected an array, got a text: put it in brackets.
promptkit.toml:38: profiles.c.reasoning_effort: has no effect on backend 'three': the default embedded model does not
promptkit.toml:39: profiles.c.native_output: 'json_shema' is not one of 'json_schema', 'json_object', 'none'. Did you
prompts/bad syntax.toml:2: is not TOML:
prompts/binary.toml:2: is not UTF-8: byte 0xff at offset 11.
prompts/capital.TOML: is ignored, because its ending is not '.toml': rename it.
prompts/case.toml: differs from prompts/Case.toml only in case or Unicode form, which not every file system tells apar
prompts/empty.toml:1: messages: is missing.
prompts/fragments/broken.txt:2: does not compile: Encountered unknown tag 'endfor'.
prompts/fragments/round.txt:1: includes itself without an end: fragments/round.txt -> fragments/trip.txt -> fragments/
prompts/fragments/tone.txt:2: uses the variable 'mood', which the prompt does not declare: add it to variables (messag
prompts/includes.toml:6: messages[0].content: includes 'fragments/tune.txt', which cannot be read:
prompts/includes.toml:8: messages[0].content: uses the variable 'topik', which the prompt does not declare: add it to
prompts/includes.toml:15: messages[2].content: includes a name that is not literal
prompts/includes.toml:18: messages[3].content: includes '../promptkit.toml', which is not inside the prompts folder:
prompts/many.toml:1: variables[1]: 'a-b' is not a name that a template can use.
prompts/many.toml:1: variables[2]: 'loop' means something else in a template: choose another name.
prompts/many.toml:2: inputs: Expected an array, got a text: put it in brackets.
prompts/many.toml:3: profile: Expected a text, got an integer.
prompts/many.toml:4: what: is not a key of this table; its keys are: 'description', 'inputs', 'messages', 'output', 'p
prompts/many.toml:5: session: is empty: leave it out, and there is no session id.
prompts/many.toml:7: messages[0].content: is missing.
prompts/many.toml:8: messages[0].role: 'usr' is not one of 'system', 'developer', 'user', 'assistant'. Did you mean 'u
prompts/many.toml:13: messages[1].content_file: stands beside content: give one of the two.
prompts/many.toml:17: messages[2].content_file: '../../secret' is outside the folder 'prompts'.
prompts/many.toml:25: messages[4].content: uses the variable 'topik', which the prompt does not declare: add it to var
prompts/many.toml:26: messages[4].cache_control.ttl: '2h' is not one of '5m', '1h'.
prompts/many.toml:30: output.schema: is given, but kind is "json": use kind "json_schema".
prompts/many.toml:31: output.max_repairs: is -1: 0 or more.
prompts/refers.toml:1: profile: there is no profile 'aa'; the profiles are: 'a', 'b', 'c'. Did you mean 'a'?
prompts/refers.toml:4: varables: is not a key of this table. Did you mean 'variables'?
prompts/refers.toml:5: session: uses the variable 'who', which the prompt does not declare: add it to variables.
prompts/refers.toml:10: messages[0].content: uses the input 'dok', which the prompt does not declare: add it to inputs
prompts/refers.toml:10: messages[0].content: uses the variable 'missing', which the prompt does not declare: add it to
prompts/refers.toml:13: messages[0].attachments[1]: 'photo' is attached twice to one message.
prompts/refers.toml:13: messages[0].attachments[2]: attaches the input 'foto', which the prompt does not declare: add
prompts/refers.toml:17: messages[1].content: does not compile: unexpected 'end of template'.
prompts/refers.toml:22: messages[2].cache_control: marks a message without text, which backends refuse: leave it out.
prompts/refers.toml:26: output.schema: there is no schema 'brken'; the schemas are: 'broken', 'endless', 'fine', 'odd'
prompts/text.txt:3: is not UTF-8: byte 0xff at offset 8.
prompts/unused.toml:1: profile: there is no profile 'zzzz'; the profiles are: 'a', 'b', 'c'.
prompts/unused.toml:2: variables[0]: declares the variable 'unused', which no template of the prompt uses.
prompts/unused.toml:3: inputs[0]: declares the input 'extra', which no template or attachment of the prompt uses.
prompts/unused.toml:12: output.schema.properties.a.type: is not a usable JSON Schema:
schemas/broken.json:3: is not JSON:
schemas/endless.json:1: /$ref: is not a usable JSON Schema: the reference
schemas/odd.json:3: /properties/a/type: is not a usable JSON Schema:
schemas/remote.json:1: /$ref: is not a usable JSON Schema: the reference
schemas/twice.json:3: is not a JSON Schema: the key 'type' stands twice in one object.
"""


def planted(root: Path, names: Iterable[str] = PLANTED) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(PLANTED[name])
    return root


def report(root: Path) -> InvalidConfigError:
    with pytest.raises(InvalidConfigError) as caught:
        load_catalog(root)
    return caught.value


def test_every_fault_is_reported_at_once_in_the_order_of_the_files(tmp_path: Path) -> None:
    error = report(planted(tmp_path))
    count, *lines = str(error).splitlines()
    assert count == f"{len(error.faults)} faults in the configuration:"
    expected = REPORT.splitlines()
    wrong = [
        (line, start)
        for line, start in zip(lines, expected, strict=False)
        if not line.removeprefix("  ").startswith(start)
    ]
    assert wrong == []
    assert len(lines) == len(expected)


def test_the_report_says_no_secret_and_reads_back_from_json(tmp_path: Path) -> None:
    error = report(planted(tmp_path))
    assert "LEAK" not in str(error)
    encoded = msgspec.json.encode(error.faults)
    assert b"LEAK" not in encoded
    assert msgspec.json.decode(encoded, type=tuple[Fault, ...]) == error.faults


@given(names=st.permutations(list(PLANTED)))
@settings(max_examples=10)
def test_the_report_does_not_depend_on_the_order_in_which_files_were_made(names: list[str]) -> None:
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        assert report(planted(Path(one), names)).faults == report(planted(Path(other))).faults


def test_the_report_is_the_same_in_every_process(tmp_path: Path) -> None:
    planted(tmp_path)
    script = (
        "import sys, promptkit\n"
        "try: promptkit.load_catalog(sys.argv[1])\n"
        "except promptkit.errors.InvalidConfigError as error: print(ascii(str(error)))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert said == {f"{str(report(tmp_path))!a}\n".encode()}
