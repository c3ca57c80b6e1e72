"""Definitions as the key of what is made of them once."""

from __future__ import annotations


class Same:
    """Some objects as a key: equal are only the very same ones.

    By value, a schema with 1 would find what was made of one with true.
    """

    __slots__ = ("_ids", "objects")

    def __init__(self, *objects: object) -> None:
        self.objects = objects  # kept, so that no other object gets their ids
        self._ids = tuple(map(id, objects))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self._ids == other._ids

    def __hash__(self) -> int:
        return hash(self._ids)
