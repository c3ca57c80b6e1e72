"""Definitions from a TOML file are spoken of in the words of TOML."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from promptkit import Backend, MessageTemplate, OutputContract, Profile, PromptDefinition, RetryPolicy
from promptkit._catalog.tables import read_table

TABLES = (Backend, MessageTemplate, OutputContract, Profile, PromptDefinition, RetryPolicy)
KEYS = [(cls, field.name) for cls in TABLES for field in msgspec.structs.fields(cls)]
SCALARS = st.one_of(
    st.just("text"),
    st.integers(-5, 5),
    st.floats(-5, 5),
    st.booleans(),
    st.just(dt.date(2026, 1, 2)),
    st.just(dt.time(1, 2)),
    st.just(dt.datetime(2026, 1, 2, tzinfo=dt.UTC)),
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.just("a b"), inner))


@given(st.sampled_from(KEYS), VALUES)
def test_no_fault_of_a_file_has_a_word_of_python(key: tuple[type[Any], str], value: Any) -> None:
    cls, name = key
    table = {"kind": "embedded", "backend": "b", "model": "m", "role": "user", "content": "x"}
    keys = {field.name for field in msgspec.structs.fields(cls)}
    read = read_table(cls, {**{k: v for k, v in table.items() if k in keys}, name: value})
    for found in read.found:
        assert re.search(r"`|\b(None|null|str|int|dict|tuple|object)\b", found.message) is None
