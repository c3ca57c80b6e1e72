"""Measure what a program waits for before promptkit works: its import, its first answer, and what is installed.

Run by `make bench`; exits with 1 when a gate is not kept. Each program is a process of its own, of which the wall time
counts, Python's own start included. All take turns in rounds; figures are medians. The first run of each writes its
byte code and does not count.

promptkit and httpx are measured in an environment that has what promptkit requires and nothing else: httpx loads trio,
rich and click wherever they are installed, which takes longer than promptkit.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from statistics import median
from textwrap import dedent

from packaging.requirements import Requirement

import promptkit
from process import PEERS_PYTHON, put_on_page, say
from report import goal_lines, judged, octets, ratio, seconds

FOLDER = Path(__file__).resolve().parent
PACKAGE = Path(promptkit.__file__).parent
DISTRIBUTION = "promptkit-engine"
ROUNDS = 15
QUESTION = "Is all well?"
ANSWER = "All is well."
IMPORTS = {
    "python": "",
    "httpx": "import httpx",
    "libraries": "import msgspec, anyio.lowlevel, returns.result",
    "promptkit": "import promptkit",
    "openai": "import openai",
    "pydantic-ai": "import pydantic_ai",
}
ANSWERS = {
    "httpx": """
        import asyncio, httpx, sys
        async def main():
            async with httpx.AsyncClient() as client:
                body = {"model": "model", "messages": [{"role": "user", "content": QUESTION}]}
                reply = await client.post(URL + "/chat/completions", json=body)
                print(reply.json()["choices"][0]["message"]["content"])
        asyncio.run(main())
    """,
    "promptkit": """
        import asyncio
        from promptkit import Backend, Catalog, Engine, MessageTemplate, Profile, PromptDefinition, RunRequest
        message = MessageTemplate(role="user", content="{{ question }}")
        catalog = Catalog(
            backends=[Backend(id="b", kind="chat_completions", base_url=URL)],
            profiles=[Profile(id="p", backend="b", model="model")],
            prompts=[PromptDefinition(id="ask", messages=(message,), variables=("question",), profile="p")],
        )
        async def main():
            async with Engine(catalog) as engine:
                result = await engine.run(RunRequest(prompt_id="ask", variables={"question": QUESTION}))
                print(result.raw_output)
        asyncio.run(main())
    """,
    "openai": """
        import asyncio
        from openai import AsyncOpenAI
        async def main():
            async with AsyncOpenAI(base_url=URL, api_key="none") as client:
                messages = [{"role": "user", "content": QUESTION}]
                reply = await client.chat.completions.create(model="model", messages=messages)
                print(reply.choices[0].message.content)
        asyncio.run(main())
    """,
    "pydantic-ai": """
        import asyncio
        from pydantic_ai import Agent
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider
        model = OpenAIChatModel("model", provider=OpenAIProvider(base_url=URL, api_key="none"))
        print(asyncio.run(Agent(model).run(QUESTION)).output)
    """,
}
HERE = ("python", "httpx", "libraries", "promptkit")


def bare_environment(folder: Path) -> Path:
    """Make an environment with what promptkit requires, and the package itself where it stands; give its Python."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)  # noqa: S603
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    project = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pip = (str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
    command = [*pip, "--constraint", str(FOLDER.parent / "constraints.txt"), *project["dependencies"]]
    subprocess.run(command, check=True)  # noqa: S603
    (site,) = folder.rglob("site-packages")
    (site / "promptkit.pth").write_text(str(PACKAGE.parent) + "\n", encoding="utf-8")
    return python


def answering(name: str, base_url: str) -> str:
    """Give the program that asks once."""
    return f"URL, QUESTION = {base_url!r}, {QUESTION!r}\n{dedent(ANSWERS[name])}"


def waited(python: Path, program: str) -> tuple[float, str]:
    """Run a program; its wall seconds and what it printed."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    done = subprocess.run([str(python), "-c", program], check=True, capture_output=True, text=True, env=environment)  # noqa: S603
    return time.perf_counter() - began, done.stdout.strip()


def in_turns(programs: dict[str, str], here: Path, rounds: int = ROUNDS) -> dict[str, float]:
    """Run each program in each round, the peers' in their environment; the medians of their wall seconds."""
    found: dict[str, list[float]] = {name: [] for name in programs}
    for number in range(rounds + 1):
        for name, program in programs.items():
            duration, printed = waited(here if name in HERE else PEERS_PYTHON, program)
            if ANSWER not in printed and "QUESTION" in program:
                msg = f"{name} printed {printed!r}"
                raise RuntimeError(msg)
            if number:
                found[name].append(duration)
    return {name: median(durations) for name, durations in found.items()}


def required(name: str, seen: set[str]) -> set[str]:
    """Give the distribution and all that it requires, without extras."""
    name = re.sub(r"[-_.]+", "-", name).lower()
    if name in seen:
        return seen
    seen.add(name)
    for line in importlib.metadata.requires(name) or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            required(requirement.name, seen)
    return seen


def installed(name: str) -> int:
    """Give the bytes of a distribution on disk, without the byte code that Python writes later."""
    if name == DISTRIBUTION:  # in editable form its files are those of the repository
        files = [file for file in PACKAGE.rglob("*") if file.is_file()]
    else:
        files = [Path(str(file.locate())) for file in importlib.metadata.files(name) or ()]
    return sum(file.stat().st_size for file in files if file.suffix != ".pyc" and file.exists())


def main() -> int:
    """Make an environment and measure in it."""
    with tempfile.TemporaryDirectory() as folder:
        say("an environment with what promptkit requires")
        return measure(bare_environment(Path(folder)))


def measure(here: Path) -> int:
    """Measure, print, keep."""
    names = (*HERE, *(("openai", "pydantic-ai") if PEERS_PYTHON.exists() else ()))
    say("imports")
    imports = in_turns({name: IMPORTS[name] for name in names}, here)
    say("first answers")
    command = [sys.executable, str(FOLDER / "server.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603
        try:
            base_url = f"http://127.0.0.1:{int(server.stdout.readline())}/v1"  # type: ignore[union-attr]  # it is a pipe
            answers = in_turns({name: answering(name, base_url) for name in names if name in ANSWERS}, here)
        finally:
            server.terminate()
    sizes = {name: installed(name) for name in sorted(required(DISTRIBUTION, set()))}
    found = [
        judged("15", "import promptkit *", imports["promptkit"], (0.070, 0.050), seconds),
        judged("15", "only what it imports beside itself *", imports["libraries"], (None, None), seconds),
        judged("16", "process start to first answer *", answers["promptkit"], (0.220, 0.160), seconds),
        judged("17", "installed, with all that it requires", sum(sizes.values()), (35e6, 26e6), octets),
    ]
    machine = f"{os.cpu_count()} {platform.machine()} cores, CPython {platform.python_version()}"
    lines = [
        f"wall time of a process, medians; N x: so many times promptkit's. {machine}",
        f"{'':>14}" + "".join(f"{name:>20}" for name in names),
        *(
            f"{title:>14}"
            + "".join(
                f"{seconds(costs[name])} {ratio(costs[name] / costs['promptkit']):>6}".rjust(20)
                if name in costs
                else f"{'-':>20}"
                for name in names
            )
            for title, costs in (("import", imports), ("first answer", answers))
        ),
        "installed: " + ", ".join(f"{name} {octets(size)}" for name, size in sizes.items()),
        "",
        *goal_lines(found),
    ]
    print(*lines, sep="\n")
    kept = {"machine": machine, "imports": imports, "answers": answers, "installed": sizes, "goals": found}
    (FOLDER / "results" / "startup.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    if len(names) > len(HERE):
        put_on_page("startup", lines)  # the page has a whole run
    return 1 if any(goal["verdict"] == "FAIL" for goal in found) else 0


if __name__ == "__main__":
    sys.exit(main())
