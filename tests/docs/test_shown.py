"""What readers are shown: the uses that the guides and the examples have to have, and what they say in words."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from promptkit import Engine, errors, load_catalog
from promptkit.errors import OverloadedError
from promptkit.testing import ScriptedClient

ROOT = Path(__file__).parents[2]
GUIDES, EXAMPLES = ROOT / "docs" / "guides", ROOT / "examples"


def code_of(file: Path) -> str:
    """Give the Python of a page or a program."""
    text = file.read_text(encoding="utf-8")
    return (
        text
        if file.suffix == ".py"
        else "\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    )


def used(file: Path) -> set[str]:
    """Give the functions that a page or a program calls, and the fields that it gives: ``call(field)``."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(code_of(file))):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            names |= {name, *(f"{name}({keyword.arg})" for keyword in node.keywords)}
        elif isinstance(node, ast.Attribute):
            names.add(f".{node.attr}")
    return names


SHOWN = {
    "branches of one exchange": (GUIDES / "continue-a-conversation.md", "RunRequest(continue_from)"),
    "a capture that is asked for": (GUIDES / "continue-a-conversation.md", "RunRequest(capture_exchange)"),
    "a prepared capture": (EXAMPLES / "prepare.py", "prepare_execution run_prepared RunRequest(capture_exchange)"),
    "a group on a prepared run": (EXAMPLES / "prepare.py", "run_prepared RunRequest(observer) .observe"),
    "a group on ordinary runs": (GUIDES / "watch-and-count.md", "RunRequest(observer) .observe snapshot"),
    "an analysis that a function leads": (GUIDES / "lead-a-conversation.md", "coordinate CoordinateRequest(next)"),
    "a group on a coordination": (EXAMPLES / "assess.py", "CoordinateRequest(observer) .observe"),
    "a group of its own for a nested call": (EXAMPLES / "assess.py", "RunRequest(observer) .assessments snapshot"),
    "a group beside a diagnosis": (EXAMPLES / "assess.py", "compose_observers"),
    "the validation before the value": (EXAMPLES / "assess.py", ".validation .status .value"),
}


@pytest.mark.parametrize("what", SHOWN)
def test_the_guides_and_the_examples_show_each_use(what: str) -> None:
    file, names = SHOWN[what]
    assert set(names.split()) - used(file) == set()


def test_the_assessment_looks_at_the_validation_before_the_value() -> None:
    code = code_of(EXAMPLES / "assess.py")
    assert 0 < code.index("assessed.validation.status") < code.index("assessed.value")


def test_the_guide_shows_two_branches_from_one_exchange() -> None:
    code = code_of(GUIDES / "continue-a-conversation.md")
    assert code.count("continue_from=opening.exchange") >= 2


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("lead-a-conversation.md", "no capacity is held while it works"),
        ("watch-and-count.md", "Observers are called in the run itself, in order: keep them short"),
        ("watch-and-count.md", "the run that it starts from is no member of it"),
        ("continue-a-conversation.md", "The history comes first, then the prompt's own messages"),
        ("continue-a-conversation.md", "It inherits no profile, model, setting, key, contract, session id or observer"),
    ],
)
def test_the_guides_say_what_a_reader_has_to_know(page: str, sentence: str) -> None:
    assert sentence in " ".join((GUIDES / page).read_text(encoding="utf-8").split())


def test_the_reference_says_of_each_failure_of_a_backend_whether_it_is_tried_again() -> None:
    page = (ROOT / "docs" / "reference" / "api" / "errors.md").read_text(encoding="utf-8")
    kinds = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}
    failures = {name: kind for name, kind in kinds.items() if issubclass(kind, errors.GenerationError)}
    told = dict(re.findall(r"^\| `(\w+)` \| (yes|no) \|$", page, re.MULTILINE))
    assert told == {name: "yes" if kind.usually_transient else "no" for name, kind in failures.items()}


@pytest.mark.anyio
async def test_the_diagnosis_tells_a_failed_attempt_and_the_group_counts_it(capsys: pytest.CaptureFixture[str]) -> None:
    import importlib.util

    spec = importlib.util.spec_from_file_location("shown_assess", EXAMPLES / "assess.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    busy = OverloadedError("busy", status=503, transient=True, retry_after=0.001)
    client = ScriptedClient("The oven.", busy, "420 euros.", '{"sentence": "the fan", "euros": 420}')
    async with Engine(load_catalog(EXAMPLES / "bakery"), client=client) as engine:
        await module.main(engine)
    printed = capsys.readouterr().out
    assert printed.index("attempt 1 to generate failed: OverloadedError") < printed.index("answer: 420 euros.")
    turns = next(line for line in printed.splitlines() if line.startswith("turns"))
    assert re.split(r" {2,}", turns)[:4] == ["turns", "1", "2", "1"]
