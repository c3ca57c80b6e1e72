"""A capability that only the engine gives out."""

from __future__ import annotations

from typing import ClassVar, NoReturn, Self


class Handle:
    """A class of these is final, unless it says otherwise. Its objects cannot be constructed, copied or pickled.

    ``object.__new__`` makes one, in the module of the class. ``class Shared(Handle, final=False)`` has what several
    classes of handles are alike in.
    """

    __slots__ = ()
    _called: ClassVar[str]  # with its article
    _comes_from: ClassVar[str]
    _final: ClassVar[bool] = False

    def __new__(cls, *_: object, **__: object) -> Self:
        """Refuse: an engine makes it."""
        msg = f"{cls._called} cannot be constructed: {cls._comes_from}"
        raise TypeError(msg)

    def __init_subclass__(cls, *, final: bool = True) -> None:
        """Refuse to be subclassed once more, where the class is final."""
        if cls._final:  # its parent's, so far
            parent = next(base for base in cls.__mro__[1:] if issubclass(base, Handle))
            msg = f"{parent.__name__} is final"
            raise TypeError(msg)
        cls._final = final

    def __reduce__(self) -> NoReturn:
        """Refuse to be copied or pickled."""
        msg = f"{self._called} cannot be copied or pickled"
        raise TypeError(msg)
