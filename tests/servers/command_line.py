"""A catalog in a folder whose backend is the scripted server, and how a command ended."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from promptkit import ExecutionEvent

ROOT = Path(__file__).parents[2]

FILES = {
    "promptkit.toml": """\
[backends.server]
kind = "chat_completions"
base_url = "{url}"

[backends.server.retry]
max_retries = 1
base_delay = 0.0
max_delay = 0.0

[profiles.warm]
backend = "server"
model = "warm-model"
temperature = 0.7

[profiles.cold]
backend = "server"
model = "cold-model"
""",
    "prompts/ask.toml": """\
description = "Asks."
profile = "warm"
variables = ["question"]
[[messages]]
role = "system"
content = "You are terse."
[[messages]]
role = "user"
content = "{{{{ question }}}}"
""",
    "prompts/read.toml": """\
profile = "warm"
inputs = ["letter"]
[[messages]]
role = "user"
content = "{{{{ inputs.letter }}}}"
""",
    "prompts/look.toml": """\
profile = "warm"
inputs = ["picture"]
[[messages]]
role = "user"
content = "What is it?"
attachments = ["picture"]
""",
    "prompts/number.toml": """\
profile = "cold"
[[messages]]
role = "user"
content = "A number."
[output]
kind = "json_schema"
schema = "number"
""",
    "prompts/count.toml": """\
profile = "cold"
variables = ["items"]
[[messages]]
role = "user"
content = "{{{{ items|length }}}} things: {{{{ items }}}}"
""",
    "prompts/bare.toml": """\
[[messages]]
role = "user"
content = "Hi"
""",
    "schemas/number.json": '{{"type": "object", "required": ["a"], "properties": {{"a": {{"type": "integer"}}}}}}',
}


def write_catalog(folder: Path, url: str) -> Path:
    for name, content in FILES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content.format(url=url), encoding="utf-8")
    return folder


class Ended(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return json.loads(self.err)["error"]


Command = Callable[..., Ended]


def environment(**changes: str) -> dict[str, str]:
    """Give the environment of a child process: this code, and nothing that changes how it shows things."""
    kept = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "PROMPTKIT_CATALOG"}}
    path = os.pathsep.join([str(ROOT / "python"), *filter(None, [kept.get("PYTHONPATH")])])
    return {**kept, "PYTHONPATH": path, **changes}


def interrupting(kind: type[ExecutionEvent]) -> Callable[[ExecutionEvent], None]:
    """Give an observer that presses Ctrl-C at an event of this kind."""

    def observe(event: ExecutionEvent) -> None:
        if isinstance(event, kind):
            # To the thread that waits: a signal to another one would not wake it.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    return observe
