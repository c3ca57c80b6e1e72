"""Functions that applications give: which kind they are, before they are called."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from promptkit._values.frozen import UnfitError
from promptkit.errors import with_article

# The flags of code objects, as in inspect, which is slow to import.
_GENERATOR, _COROUTINE, _ASYNC_GENERATOR, _VARIABLE = 0x20, 0x80, 0x200, 0x04
_KINDS = {_COROUTINE: "async", _ASYNC_GENERATOR: "async generator", _GENERATOR: "generator"}


def function_kind(function: Any) -> str | None:
    """Say what a call gives that is no ordinary value: "async", "async generator" or "generator"; None if it is one.

    A partial is what it calls, and a callable object its ``__call__``.
    """
    while isinstance(function, partial):
        function = function.func
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    flags = getattr(code, "co_flags", 0)
    if not isinstance(flags, int):  # of an object that has every attribute
        return None
    return next((kind for flag, kind in _KINDS.items() if flags & flag), None)


def one_argument_misfit(function: Any) -> str | None:
    """Say why a function written in Python cannot be called with one argument by place; None: it can, or may.

    It is told from the code alone: that costs next to nothing, and a signature far more.
    """
    method = isinstance(function, MethodType)
    plain = function.__func__ if method else function
    if type(plain) is not FunctionType:
        return None
    most = plain.__code__.co_argcount - method
    least = most - len(plain.__defaults__ or ())
    if least > 1:
        around, _, name = plain.__qualname__.rpartition(".")
        owner = around.rpartition(".")[2]
        unbound = not method and least == 2 and owner not in {"", "<locals>"}
        remedy = f": give {name} of an instance of {owner}, not of the class" if unbound else ""
        return f"needs {least} arguments, and is called with one{remedy}"
    if most < 1 and not plain.__code__.co_flags & _VARIABLE:
        return "takes none, and is called with one"
    return None


def expect_no_class(value: object, expected: str) -> None:
    """Refuse a class where a function is expected: each call would make an instance and drop it."""
    if isinstance(value, type):
        msg = f"Expected {expected}, got the class `{value.__name__}`: give an instance of it, or a method of one"
        raise UnfitError(msg)


def plain_function(value: Any) -> Any:
    """Read a function that is called and never awaited, or None. Raises UnfitError for others."""
    if value is None:
        return None
    if not callable(value):
        hint = ": give its .observe" if callable(getattr(value, "observe", None)) else ""
        msg = f"Expected a function, got `{type(value).__name__}`{hint}"
        raise UnfitError(msg)
    expect_no_class(value, "a function")
    kind = function_kind(value)
    if kind is not None:
        msg = f"Expected a plain function, got {with_article(kind)} one: it is called, and never awaited"
        raise UnfitError(msg)
    return value


def never_runs(value: object) -> bool:
    """Say whether a value is work that nothing does until it is awaited, unlike a task or a future."""
    return isinstance(value, Awaitable) and not hasattr(value, "add_done_callback")


def give_up(value: object) -> None:
    """Close a coroutine that will not be awaited, so that it does not warn. Anything else is left alone."""
    if isinstance(value, Coroutine):
        value.close()
