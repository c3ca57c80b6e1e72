"""The safe habit: a list of dicts, and a deep copy of it for every branch."""

from __future__ import annotations

from copy import deepcopy

from subjects import plain_list


class Implementation(plain_list.Implementation):
    """A history is a list of dicts, which nobody else has."""

    def branch(self, history: list[dict[str, str]], user: str, reply: str) -> list[dict[str, str]]:
        return self.grow(deepcopy(history), user, reply)

    def details(self, history: list[dict[str, str]]) -> list[dict[str, str]]:
        return deepcopy(history)
