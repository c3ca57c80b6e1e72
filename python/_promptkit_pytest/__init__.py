"""The pytest plugin of promptkit: a switch for the network.

    [tool.pytest.ini_options]
    promptkit_network = "none"      # or "loopback"; the default is "any"

``--promptkit-network=...`` takes its place for one session, ``@pytest.mark.promptkit_network("loopback")`` for a test,
a class or a module.

It is a package beside promptkit, not a module of it, because pytest imports the plugin whenever promptkit is installed,
in projects that never use it too. It imports nothing but pytest, and promptkit when something is switched off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "promptkit_network"
CHOICES = ("none", "loopback", "any")
_session = pytest.StashKey[str]()
_origin = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option and the setting."""
    what = "connections that promptkit may open in tests: none, loopback (this machine), or any"
    parser.getgroup("promptkit").addoption("--promptkit-network", choices=CHOICES, help=what)
    parser.addini(NAME, what, default="any")


def pytest_configure(config: pytest.Config) -> None:
    """Limit the whole session, collection included."""
    config.addinivalue_line("markers", f"{NAME}(allowed): {', '.join(CHOICES)}: what promptkit may connect to")
    given = config.getoption("--promptkit-network")
    chosen = given or config.getini(NAME)
    if chosen not in CHOICES:
        msg = f"{NAME} is {chosen!r}: it is one of {', '.join(CHOICES)}"
        raise pytest.UsageError(msg)
    config.stash[_session] = chosen
    config.stash[_origin] = f"--promptkit-network={given}" if given else f"{NAME} = {chosen}"
    if chosen != "any":
        _limit(chosen, config.stash[_origin])


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave nothing behind: a session may run inside another program."""
    if config.stash.get(_session, "any") != "any":
        _limit("any", "")


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say what is switched off."""
    return None if config.stash[_session] == "any" else f"promptkit: {config.stash[_origin]}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Apply the marker of a test before its fixtures."""
    marker = item.get_closest_marker(NAME)
    if marker is None:
        return
    if len(marker.args) != 1 or marker.kwargs or marker.args[0] not in CHOICES:
        given = ", ".join([*map(repr, marker.args), *(f"{name}={value!r}" for name, value in marker.kwargs.items())])
        pytest.fail(f"@pytest.mark.{NAME}({given}): give one of {', '.join(map(repr, CHOICES))}", pytrace=False)
    _limit(marker.args[0], f'@pytest.mark.{NAME}("{marker.args[0]}")')


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[Any]:
    """Put the session's choice back, when the test's own fixtures are gone."""
    yield
    if item.get_closest_marker(NAME) is not None:
        _limit(item.config.stash[_session], item.config.stash[_origin])


def _limit(allowed: str, said_by: str) -> None:
    from promptkit._effects.network import Limit, switch

    loopback, everything = (f'let this test through, @pytest.mark.{NAME}("{least}")' for least in CHOICES[1:])
    switch.set_general(None if allowed == "any" else Limit(allowed == "loopback", said_by, loopback, everything))
