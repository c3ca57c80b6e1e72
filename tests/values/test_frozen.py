"""Frozen mappings read and encode like dicts, and refuse every change."""

from __future__ import annotations

import copy
import json
import operator
import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit._values.frozen import FrozenDict, frozen_json, thawed

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)

CHANGES: dict[str, Any] = {
    "setitem": lambda d: operator.setitem(d, "b", 2),
    "delitem": lambda d: operator.delitem(d, "a"),
    "ior": lambda d: d.__ior__({"b": 2}),
    "clear": lambda d: d.clear(),
    "pop": lambda d: d.pop("a"),
    "pop_default": lambda d: d.pop("z", None),
    "popitem": lambda d: d.popitem(),
    "setdefault": lambda d: d.setdefault("b", 2),
    "update": lambda d: d.update(b=2),
    "attribute": lambda d: setattr(d, "b", 2),
    "fromkeys": lambda d: type(d).fromkeys(["b"]),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_is_refused(change: Any) -> None:
    frozen = FrozenDict({"a": 1})
    with pytest.raises((TypeError, AttributeError)):
        change(frozen)
    assert frozen == {"a": 1}


def test_it_encodes_pickles_copies_and_hashes() -> None:
    frozen = frozen_json({"a": [1, {"b": None}], "é": 1.5})
    assert msgspec.json.encode(frozen) == '{"a":[1,{"b":null}],"é":1.5}'.encode()
    assert json.loads(json.dumps(frozen)) == thawed(frozen)
    assert msgspec.to_builtins(frozen) == {"a": (1, {"b": None}), "é": 1.5}
    assert copy.copy(frozen) is frozen
    assert copy.deepcopy(frozen) is frozen
    back = pickle.loads(pickle.dumps(frozen))  # noqa: S301  # made here
    assert back == frozen
    assert type(back) is FrozenDict
    assert hash(back) == hash(frozen)
    assert hash(frozen_json({"é": 1.5, "a": (1, {"b": None})})) == hash(frozen)


@given(json_values)
def test_freezing_keeps_the_value_and_thawing_gives_a_fresh_one(value: Any) -> None:
    frozen = frozen_json(value)
    assert frozen_json(frozen) == frozen
    assert thawed(frozen) == value
    assert msgspec.json.encode(frozen) == msgspec.json.encode(value)
    hash(frozen)


def test_what_is_thawed_belongs_to_the_receiver() -> None:
    frozen = frozen_json({"a": [1]})
    mine = thawed(frozen)
    mine["a"].append(2)
    mine["b"] = 3
    assert frozen == {"a": (1,)}
