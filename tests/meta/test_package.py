"""The package itself: what it exports, documents, hides and needs."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import pkgutil
import subprocess
import sys
from typing import Any

import msgspec
import pytest

import promptkit
from promptkit import coordination, display, errors, opentelemetry, testing
from promptkit._values.construction import Checked
from promptkit.errors import PromptKitError

MODULES = [promptkit, errors, coordination, testing, display, opentelemetry]


def _public() -> list[tuple[str, Any]]:
    return [(f"{module.__name__}.{name}", getattr(module, name)) for module in MODULES for name in module.__all__]


def _classes() -> list[Any]:
    return [pytest.param(value, id=name) for name, value in _public() if inspect.isclass(value)]


def _errors() -> list[type[PromptKitError]]:
    return [value for _, value in _public() if inspect.isclass(value) and issubclass(value, PromptKitError)]


@pytest.mark.parametrize("module", MODULES)
def test_every_exported_name_exists_and_none_is_private(module: Any) -> None:
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        assert hasattr(module, name)
        assert not name.startswith("_")


@pytest.mark.parametrize("value", _classes())
def test_every_public_class_and_its_public_members_have_a_docstring(value: type) -> None:
    assert inspect.getdoc(value)
    for name, member in vars(value).items():
        if name.startswith("_") or not (inspect.isfunction(member) or isinstance(member, property | classmethod)):
            continue
        assert inspect.getdoc(member), f"{value.__name__}.{name}"


def test_every_public_function_has_a_docstring() -> None:
    functions = [(name, value) for name, value in _public() if inspect.isfunction(value)]
    assert functions
    assert [name for name, value in functions if not inspect.getdoc(value)] == []


def test_the_drawn_tree_of_errors_is_the_tree() -> None:
    drawn: dict[str, str | None] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        name = line.strip(" │├└─").split(" ")[0]
        if not name.endswith("Error"):
            continue
        depth = (len(line) - len(line.lstrip(" │├└─")) - 4) // 4
        above[depth:] = [name]
        drawn[name] = above[depth - 1] if depth else None
    assert drawn == {
        error.__name__: None if error is PromptKitError else error.__mro__[1].__name__ for error in _errors()
    }


@pytest.mark.parametrize("error_type", _errors())
def test_every_error_survives_pickling_and_copying_and_stays_equal(error_type: type[PromptKitError]) -> None:
    argument: Any = (
        errors.Fault(message="x", file="f") if error_type is errors.InvalidConfigError else "what, where, remedy"
    )
    error = error_type(argument)
    error.run_id, error.attempts = "r", 2
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):  # noqa: S301
        assert again == error
        assert (str(again), again.run_id, again.attempts) == (str(error), "r", 2)
        assert hash(again) == hash(error)
    assert error != error_type(argument)


def test_no_secret_shows_in_the_repr_of_what_holds_one() -> None:
    secret = promptkit.Secret("sk-MARK")
    request = promptkit.RunRequest(prompt_id="x", credential=secret)
    for shown in (repr(secret), str(secret), f"{secret}", repr(request), repr(vars(promptkit.Secret))):
        assert "MARK" not in shown
    for encode in (msgspec.json.encode, pickle.dumps):
        with pytest.raises(TypeError):
            encode(secret)


def test_importing_the_package_loads_no_slow_library() -> None:
    slow = ["httpx", "jinja2", "jsonschema_rs", "trio", "xllamacpp", "pydantic"]
    program = f"import sys, promptkit; print([name for name in {slow!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_every_module_can_be_imported_alone_first() -> None:
    names = [module.name for module in pkgutil.walk_packages(promptkit.__path__, "promptkit.")]
    assert "promptkit._effects.run" in names
    for name in names:
        assert importlib.import_module(name).__name__ == name


def test_public_classes_that_are_not_constructible_say_where_they_come_from() -> None:
    with pytest.raises(TypeError, match="capture_exchange=True"):
        promptkit.Exchange()


def test_an_exchange_is_opaque() -> None:
    from promptkit._history import Turn
    from promptkit._values.exchange import exchange_of

    exchange = exchange_of(Turn(None, [("user", "MARK", None)]).capture("r", "MARK"))
    assert repr(exchange) == str(exchange) == "<promptkit.Exchange>"
    assert copy.copy(exchange) is copy.deepcopy(exchange) is exchange
    assert exchange != exchange_of(Turn(None, [("user", "MARK", None)]).capture("r", "MARK"))
    with pytest.raises(TypeError, match="details"):
        pickle.dumps(exchange)
    with pytest.raises(TypeError):
        msgspec.json.encode(exchange)
    with pytest.raises(AttributeError):
        exchange.run_id = "x"
    with pytest.raises(TypeError, match="final"):
        type("Mine", (promptkit.Exchange,), {})


OWN: dict[type, set[str]] = {
    promptkit.OutputContract: {"of"},
    promptkit.Backend: {"concurrency", "late_system_treatment"},
}


@pytest.mark.parametrize(
    "value", [each for each in _classes() if issubclass(each.values[0], Checked)], ids=lambda value: value.__name__
)
def test_help_of_what_people_construct_shows_its_fields_and_nothing_of_how_it_is_checked(value: type[Checked]) -> None:
    shown = {name for name, *_ in inspect.classify_class_attrs(value) if not name.startswith("_")}
    assert shown - OWN.get(value, set()) == set(value.__struct_fields__)
