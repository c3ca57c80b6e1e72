"""The pytest plugin of promptkit: a switch for the models that tests may ask.

    [tool.pytest.ini_options]
    promptkit_network = "none"      # or "loopback"; the default is "any"

"none" allows no connection and no embedded model, "loopback" servers on this machine and an embedded model whose
weights are there: what ``no_network()`` and ``no_network(allow_loopback=True)`` do for a block.

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

    from promptkit._effects.network import Limit

NAME = "promptkit_network"
CHOICES = ("none", "loopback", "any")
_said = pytest.StashKey[str | None]()  # by whom the session is limited, if it is
_before: pytest.StashKey[Limit | None] = pytest.StashKey()  # what held before: a session may run inside another


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option and the setting."""
    what = "models that promptkit may ask in tests: none, loopback (on this machine, embedded ones too), or any"
    parser.getgroup("promptkit").addoption("--promptkit-network", choices=CHOICES, help=what)
    parser.addini(NAME, what, default="any")


def pytest_configure(config: pytest.Config) -> None:
    """Limit the whole session, collection included."""
    config.addinivalue_line("markers", f"{NAME}(allowed): {', '.join(CHOICES)}: which models promptkit may ask")
    given = config.getoption("--promptkit-network")
    chosen = given or config.getini(NAME)
    if chosen not in CHOICES:
        msg = f"{NAME} is {chosen!r}: it is one of {', '.join(CHOICES)}"
        raise pytest.UsageError(msg)
    config.stash[_said] = None
    if chosen != "any":
        config.stash[_said] = said_by = f"--promptkit-network={given}" if given else f"{NAME} = {chosen}"
        _limit(config.stash, chosen, said_by)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave nothing behind."""
    _lift(config.stash)


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say what is switched off."""
    said_by = config.stash[_said]
    return None if said_by is None else f"promptkit: {said_by}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Apply the marker of a test before its fixtures."""
    marker = item.get_closest_marker(NAME)
    if marker is None:
        return
    if len(marker.args) != 1 or marker.kwargs or marker.args[0] not in CHOICES:
        given = ", ".join([*map(repr, marker.args), *(f"{name}={value!r}" for name, value in marker.kwargs.items())])
        pytest.fail(f"@pytest.mark.{NAME}({given}): give one of {', '.join(map(repr, CHOICES))}", pytrace=False)
    _limit(item.stash, marker.args[0], f'@pytest.mark.{NAME}("{marker.args[0]}")')


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[Any]:
    """Put the session's choice back, when the test's own fixtures are gone."""
    yield
    _lift(item.stash)


def _limit(stash: pytest.Stash, allowed: str, said_by: str) -> None:
    from promptkit._effects.network import Limit, switch

    loopback, everything = (f'let this test through, @pytest.mark.{NAME}("{least}")' for least in CHOICES[1:])
    limit = None if allowed == "any" else Limit(allowed == "loopback", said_by, loopback, everything)
    stash[_before] = switch.set_general(limit)


def _lift(stash: pytest.Stash) -> None:
    if _before in stash:
        from promptkit._effects.network import switch

        switch.set_general(stash[_before])
        del stash[_before]
