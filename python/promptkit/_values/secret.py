"""The one type that holds a secret."""

from __future__ import annotations

from typing import NoReturn, final

from promptkit.errors import CredentialError, InvalidRequestError


@final
class Secret:
    """A credential. Its repr and str are constant, it cannot be encoded or pickled, and it compares by identity.

    Raises InvalidRequestError for what is not text, and CredentialError, without echo, for a key that no HTTP header
    can carry: empty, not ASCII, with control characters, or with whitespace around it (a line end read from a file).

    >>> Secret("sk-123")
    Secret(***)
    """

    __slots__ = ("_value",)
    _value: str

    def __init__(self, value: str) -> None:
        """Take the key."""
        if not isinstance(value, str):
            msg = f"Secret: Expected `str`, got `{type(value).__name__}`"
            raise InvalidRequestError(msg)
        fault = _fault(value)
        if fault:
            msg = f"the key {fault}: no HTTP header can carry it; check where it is read from"
            raise CredentialError(msg)
        object.__setattr__(self, "_value", value)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse: a secret does not change."""
        msg = "a Secret does not change: make a new one"
        raise AttributeError(msg)

    def __delattr__(self, name: str) -> NoReturn:
        """Refuse: a secret does not change."""
        msg = "a Secret does not change"
        raise AttributeError(msg)

    def reveal(self) -> str:
        """Give the key itself, for a ModelClient that puts it on the wire."""
        return self._value

    def __repr__(self) -> str:
        """Give a constant."""
        return "Secret(***)"

    __str__ = __repr__

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled."""
        msg = "a Secret cannot be pickled: pass the name of an environment variable instead"
        raise TypeError(msg)

    def __getstate__(self) -> NoReturn:
        """Refuse to be taken apart."""
        self.__reduce__()

    def __copy__(self) -> Secret:
        """Give the same secret."""
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        """Give the same secret."""
        return self


def _fault(value: str) -> str | None:
    if not value:
        return "is empty"
    if not value.isascii():
        return "is not ASCII"
    if value != value.strip():
        return "has whitespace around it"
    if not value.isprintable():
        return "has control characters"
    return None
