"""A secret is shown nowhere, and cannot leave by an encoder."""

from __future__ import annotations

import copy
import json
import pickle
import traceback
from typing import Any

import msgspec
import pytest

from promptkit import RunRequest, Secret
from promptkit.errors import CredentialError, InvalidRequestError

KEY = "sk-Tr0ub4dor-and-3"


@pytest.mark.parametrize("show", [repr, str, format, "{!r}".format, "{!r:>20}".format, "%s".__mod__, ascii])
def test_its_repr_and_str_are_constant(show: Any) -> None:
    assert show(Secret(KEY)).strip() == "Secret(***)"
    assert show(Secret("other")).strip() == "Secret(***)"


@pytest.mark.parametrize(
    "leave",
    [
        msgspec.json.encode,
        msgspec.msgpack.encode,
        msgspec.to_builtins,
        json.dumps,
        pickle.dumps,
        lambda secret: pickle.dumps(secret, protocol=0),
        vars,
        lambda secret: msgspec.json.encode(RunRequest(prompt_id="p", credential=secret)),
    ],
)
def test_it_cannot_be_encoded_or_pickled(leave: Any) -> None:
    with pytest.raises(TypeError) as caught:
        leave(Secret(KEY))
    assert KEY not in "".join(traceback.format_exception(caught.value))


def test_it_compares_by_identity_and_copies_are_itself() -> None:
    secret = Secret(KEY)
    assert secret != Secret(KEY)
    assert copy.copy(secret) is secret
    assert copy.deepcopy([secret])[0] is secret
    assert secret.reveal() == KEY
    with pytest.raises(AttributeError):
        secret.value = "x"
    with pytest.raises(AttributeError):
        secret._value = "x"  # noqa: SLF001  # the point


@pytest.mark.parametrize(
    "key", ["", " ", "LEAK\n", " LEAK", "LEAK\t", "LE\rAK", "LE\x00AK", "LE\x7fAK", "LEÄK", "LEAK\u2028", "LE\ud800AK"]
)
def test_a_key_that_no_header_can_carry_is_refused_without_echo(key: str) -> None:
    with pytest.raises(CredentialError) as caught:
        Secret(key)
    assert "LE" not in str(caught.value)
    assert "LE" not in repr(caught.value.__dict__)


@pytest.mark.parametrize("value", [None, 5, b"LEAK", ["LEAK"]])
def test_what_is_not_text_is_refused_without_echo(value: Any) -> None:
    with pytest.raises(InvalidRequestError, match=type(value).__name__) as caught:
        Secret(value)
    assert "LEAK" not in str(caught.value)


def test_a_request_shows_none_of_it() -> None:
    assert KEY not in repr(RunRequest(prompt_id="p", credential=Secret(KEY)))
    with pytest.raises(InvalidRequestError) as caught:
        RunRequest(prompt_id="p", credential=KEY)  # type: ignore[arg-type]
    assert KEY not in str(caught.value)
