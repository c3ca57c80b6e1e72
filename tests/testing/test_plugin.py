"""The pytest plugin: the network switched off by a setting, an option and markers."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

import pytest

from promptkit._effects.network import Limit, switch

if TYPE_CHECKING:
    from collections.abc import Callable

pytest_plugins = ["pytester"]

# By the name of its entry point where promptkit is installed with it, else by that of its module.
PLUGIN = "promptkit-network" if entry_points(group="pytest11", name="promptkit-network") else "_promptkit_pytest"
PROGRAM = """
import pytest
from promptkit._effects.network import switch

def allowed():
    return "any" if switch.limit is None else "loopback" if switch.limit.loopback else "none"
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., pytest.RunResult]:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # what else is installed here is none of its business

    def run(program: str, *options: str, ini: str = "") -> pytest.RunResult:
        pytester.makeini(f"[pytest]\naddopts = --strict-markers --strict-config\nfilterwarnings = error\n{ini}\n")
        pytester.makepyfile(PROGRAM + program)
        return pytester.runpytest_inprocess("-p", PLUGIN, *options)

    return run


def test_without_a_word_all_is_allowed(run: Callable[..., pytest.RunResult]) -> None:
    result = run("def test_it(): assert allowed() == 'any'")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("promptkit: *")


@pytest.mark.parametrize(
    ("options", "ini", "allowed", "header"),
    [
        ((), "promptkit_network = none", "none", "promptkit: promptkit_network = none"),
        ((), "promptkit_network = loopback", "loopback", "promptkit: promptkit_network = loopback"),
        (("--promptkit-network=none",), "", "none", "promptkit: --promptkit-network=none"),
        (("--promptkit-network=loopback",), "promptkit_network = none", "loopback", "promptkit: --promptkit-network=*"),
    ],
)
def test_a_setting_and_an_option_limit_the_session_and_the_option_wins(
    run: Callable[..., pytest.RunResult], options: tuple[str, ...], ini: str, allowed: str, header: str
) -> None:
    result = run(
        f"""
assert allowed() == {allowed!r}  # collection too

@pytest.fixture(scope="session", autouse=True)
def session():
    assert allowed() == {allowed!r}
    yield
    assert allowed() == {allowed!r}

def test_it():
    assert allowed() == {allowed!r}
""",
        *options,
        ini=ini,
    )
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([header])
    assert switch.limit is None


def test_an_option_for_any_lifts_the_setting(run: Callable[..., pytest.RunResult]) -> None:
    program = "def test_it(): assert allowed() == 'any'"
    run(program, "--promptkit-network=any", ini="promptkit_network = none").assert_outcomes(passed=1)


def test_a_marker_holds_for_its_test_with_its_fixtures_and_for_no_other(run: Callable[..., pytest.RunResult]) -> None:
    result = run(
        """
@pytest.fixture
def near():
    assert allowed() == "loopback"
    yield
    assert allowed() == "loopback"

@pytest.mark.promptkit_network("loopback")
def test_marked(near): assert allowed() == "loopback"

def test_after(): assert allowed() == "none"

@pytest.mark.promptkit_network("any")
class TestAll:
    def test_of_the_class(self): assert allowed() == "any"

    @pytest.mark.promptkit_network("none")
    def test_nearer(self): assert allowed() == "none"

@pytest.fixture
def failing():
    assert allowed() == "any"
    raise ValueError

@pytest.mark.promptkit_network("any")
def test_whose_setup_fails(failing): pass

def test_last(): assert allowed() == "none"
""",
        ini="promptkit_network = none",
    )
    result.assert_outcomes(passed=5, errors=1)


@pytest.mark.parametrize("ini", ["promptkit_network = none", "promptkit_network = any"])
def test_a_session_inside_another_one_leaves_that_ones_limit(run: Callable[..., pytest.RunResult], ini: str) -> None:
    outer = Limit(loopback=True, said_by="the outer one", allow_loopback="", allow_all="")
    before = switch.set_general(outer)
    try:
        run("@pytest.mark.promptkit_network('any')\ndef test_it(): assert allowed() == 'any'", ini=ini)
        assert switch.limit is outer
    finally:
        switch.set_general(before)


def test_a_marker_limits_where_nothing_else_does(run: Callable[..., pytest.RunResult]) -> None:
    result = run(
        """
@pytest.mark.promptkit_network("none")
def test_marked(): assert allowed() == "none"

def test_after(): assert allowed() == "any"
"""
    )
    result.assert_outcomes(passed=2)


@pytest.mark.parametrize("arguments", ["", "'off'", "'none', 'any'", "allowed='none'"])
def test_a_marker_that_says_something_else_is_an_error_of_the_test(
    run: Callable[..., pytest.RunResult], arguments: str
) -> None:
    result = run(f"@pytest.mark.promptkit_network({arguments})\ndef test_it(): pass\ndef test_next(): pass")
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines(["*promptkit_network(*): give one of 'none', 'loopback', 'any'"])


def test_a_setting_that_says_something_else_is_refused(run: Callable[..., pytest.RunResult]) -> None:
    result = run("def test_it(): pass", ini="promptkit_network = off")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*promptkit_network is 'off': it is one of none, loopback, any"])


def test_a_refused_connection_fails_the_test_with_the_remedy_although_the_program_handles_errors(
    run: Callable[..., pytest.RunResult],
) -> None:
    result = run(
        """
from promptkit import *

CATALOG = Catalog(
    backends=[Backend(id="main", kind="chat_completions", base_url="https://llm.example.com/v1")],
    profiles=[Profile(id="p", backend="main", model="m")],
    prompts=[PromptDefinition(id="hi", messages=(MessageTemplate(role="user", content="Hi"),), profile="p")],
)

def test_it():
    with BlockingEngine(CATALOG) as engine:
        try:
            engine.run(RunRequest(prompt_id="hi"))
        except (PromptKitError, OSError, RuntimeError):
            pass
""",
        ini="promptkit_network = none",
    )
    result.assert_outcomes(failed=1)
    said = (
        "NetworkRefusedError: backend 'main' would be asked at llm.example.com, and this test may open no connection "
        "(promptkit_network = none): give the engine a model for tests, Engine(catalog, client=ScriptedClient(...)), "
        'or let this test through, @pytest.mark.promptkit_network("any")'
    )
    assert said in result.stdout.str()


def test_a_block_adds_to_what_the_plugin_allows(run: Callable[..., pytest.RunResult]) -> None:
    result = run(
        """
from promptkit.testing import no_network

def test_it():
    with no_network():
        assert allowed() == "none"
    with no_network(allow_loopback=True):
        assert allowed() == "loopback"
    assert allowed() == "loopback"
""",
        ini="promptkit_network = loopback",
    )
    result.assert_outcomes(passed=1)


def test_the_marker_is_listed_and_the_option_explained(run: Callable[..., pytest.RunResult]) -> None:
    listed = run("", "--markers")
    listed.stdout.fnmatch_lines(["@pytest.mark.promptkit_network(allowed): none, loopback, any: *"])
    run("", "--help").stdout.fnmatch_lines(["*--promptkit-network=*"])


def test_a_session_that_uses_none_of_it_does_not_load_promptkit(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import sys\ndef test_it(): assert 'promptkit' not in sys.modules")
    pytester.makeini("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", PLUGIN]
    environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": ":".join(sys.path)}
    result = subprocess.run(
        command, cwd=pytester.path, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert "1 passed" in result.stdout, result.stdout + result.stderr
