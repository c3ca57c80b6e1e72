"""What comes back: replies as each provider writes them."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from returns.result import Failure, Success

from promptkit._values.generation import GenerationReply
from promptkit._values.usage import ReportedUsage
from promptkit._wire.chat_completions import read_reply
from promptkit.errors import (
    BackendStatusError,
    DisconnectedError,
    GenerationError,
    MalformedReplyError,
    PromptKitError,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
KEY = "sk-0123456789abcdef"
REPORTED = ReportedUsage(input_tokens=11, output_tokens=7)
MARK = "CONTENT-MARK"


def ok(content: Any, finish_reason: Any = "stop", **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, **more.pop("message", {})}
    choice = {"index": 0, "message": message, "finish_reason": finish_reason, **more.pop("choice", {})}
    return {
        "id": "r-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": USAGE,
    } | more


def encoded(document: Any) -> bytes:
    return document if isinstance(document, bytes) else json.dumps(document).encode()


def framed(body: bytes) -> list[tuple[str, str]]:
    return [("content-type", "application/json"), ("Content-Length", str(len(body)))]


def reply(document: Any, headers: list[tuple[str, str]] | None = None) -> GenerationReply:
    body = encoded(document)
    return read_reply(200, framed(body) if headers is None else headers, body, now=NOW).unwrap()


def error(document: Any, headers: list[tuple[str, str]] | None = None) -> GenerationError:
    body = encoded(document)
    return read_reply(200, framed(body) if headers is None else headers, body, now=NOW).failure()


def malformed(document: Any) -> str:
    found = error(document)
    assert type(found) is MalformedReplyError
    assert not found.transient
    assert found.status == 200
    assert found.excerpt is not None
    assert len(found.excerpt) <= 200
    assert MARK not in str(found)
    return str(found)


# ------------------------------------------------------------------ answers


def test_an_ordinary_reply_is_read_whole() -> None:
    assert reply(ok("hi")) == GenerationReply(
        content="hi",
        finish_reason="stop",
        model="m",
        response_id="r-1",
        status=200,
        usage=REPORTED,
    )


def test_null_content_is_empty_and_its_reason_visible() -> None:
    usage = {"prompt_tokens": 30, "completion_tokens": 1024, "total_tokens": 1054}
    found = reply(ok(None, "length", message={"reasoning_content": MARK}, usage=usage))
    assert (found.content, found.finish_reason) == ("", "length")
    assert found.usage == ReportedUsage(input_tokens=30, output_tokens=1024)


def test_missing_content_is_empty() -> None:
    document = ok("x")
    document["choices"][0]["message"] = {"role": "assistant"}
    assert reply(document).content == ""


@pytest.mark.parametrize("content", [[], [{"type": "thinking", "thinking": []}], [{"type": "text"}], None, ""])
def test_content_without_text_parts_is_empty_content(content: Any) -> None:
    assert reply(ok(content)).content == ""


@pytest.mark.parametrize("content", ["", "   \n", "\x00", "\ufeff{}", "😀 é 中", "```json\n{}\n```"])
def test_content_is_exact_with_and_without_usage(content: str) -> None:
    assert reply(ok(content)).content == content
    assert reply(ok(content, usage=None)).content == content
    assert reply(ok(content, usage=None)).usage is None


def test_text_parts_are_joined_with_nothing_between() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": " b"}, "c", {"type": "image_url"}, {"text": "d"}]
    assert reply(ok(parts)).content == "a bcd"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "thinking", "thinking": [{"type": "text", "text": MARK}]},
        {"type": "reasoning", "text": MARK},
        {"type": "text", "text": MARK, "thought": True},
        {"text": MARK, "thought": True},
        {"type": ["text"], "text": MARK},
    ],
)
def test_reasoning_text_is_never_the_answer(part: dict[str, Any]) -> None:
    found = reply(ok([part, {"type": "text", "text": "hi"}], message={"reasoning_content": MARK, "reasoning": MARK}))
    assert found.content == "hi"


@pytest.mark.parametrize(
    ("reason", "read"),
    [
        (None, None),
        ("eos", "eos"),
        ("insufficient_system_resource", "insufficient_system_resource"),
        ("model_length", "model_length"),
        ("content_filter", "content_filter"),
        ("", ""),
        (1, "1"),
        (1.5, "1.5"),
        (True, "true"),
        ({"type": "stop"}, None),
        (["stop"], None),
    ],
)
def test_a_finish_reason_outside_every_list_does_not_lose_the_answer(reason: Any, read: str | None) -> None:
    found = reply(ok("Once upon", reason))
    assert (found.content, found.finish_reason) == ("Once upon", read)


@pytest.mark.parametrize("content", ["", None, [], [{"type": "refusal", "refusal": "I can't help with that."}]])
def test_a_refusal_is_visible_beside_empty_content(content: Any) -> None:
    message = {} if isinstance(content, list) and content else {"refusal": "I can't help with that."}
    found = reply(ok(content, message=message))
    assert (found.content, found.refusal) == ("", "I can't help with that.")


@pytest.mark.parametrize("refusal", ["", None, False, [], {}])
def test_an_empty_refusal_is_none(refusal: Any) -> None:
    assert reply(ok("hi", message={"refusal": refusal})).refusal is None


def test_the_choice_with_index_0_is_the_answer_wherever_it_stands() -> None:
    document = ok("zero")
    other = {"index": 1, "message": {"content": "one"}, "finish_reason": "stop"}
    document["choices"].insert(0, other)
    assert reply(document).content == "zero"


@pytest.mark.parametrize("index", [None, 1, False, "0", 0.5])
def test_without_a_choice_of_index_0_the_first_is_the_answer(index: Any) -> None:
    document = ok("first")
    document["choices"][0]["index"] = index
    document["choices"].append({"index": 2, "message": {"content": "second"}})
    assert reply(document).content == "first"


@pytest.mark.parametrize("name", ["id", "model"])
@pytest.mark.parametrize("value", [None, 7, "", [], "\ud800"])
def test_an_odd_id_or_model_is_unknown_and_loses_nothing(name: str, value: Any) -> None:
    found = reply(ok("hi", **{name: value}))
    assert found.content == "hi"
    assert getattr(found, "response_id" if name == "id" else "model") is None


@pytest.mark.parametrize("usage", [None, [], "x", {"prompt_tokens": True, "completion_tokens": -1}, 7])
def test_unreadable_usage_never_fails_the_answer(usage: Any) -> None:
    found = reply(ok("hi", usage=usage))
    assert (found.content, found.usage) == ("hi", None)


def test_a_key_that_a_backend_echoes_does_not_reach_the_names_that_events_carry() -> None:
    body = encoded(ok(f"the key is {KEY}", id=f"r-{KEY}", model=KEY))
    found = read_reply(200, [], body, now=NOW, secret=KEY).unwrap()
    assert (found.response_id, found.model) == ("r-***", "***")
    assert found.content == f"the key is {KEY}"


# ------------------------------------------------------------------ bytes


@pytest.mark.parametrize("prefix", [b"\xef\xbb\xbf", b"\n\n\n\r\n \t", b"\n\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_blank_lines_and_a_byte_order_mark_before_the_document_are_accepted(prefix: bytes) -> None:
    assert reply(prefix + encoded(ok("hi")) + b"\n\n").content == "hi"


@pytest.mark.parametrize(
    "headers", [[], [("content-type", "text/plain; charset=utf-8")], [("content-type", "text/html")]]
)
def test_the_content_type_does_not_matter(headers: list[tuple[str, str]]) -> None:
    assert reply(ok("hi"), headers).content == "hi"


@pytest.mark.parametrize(
    "junk",
    [
        '{"content":[{"token":"a","logprob":-Infinity}]}',
        "NaN",
        "1e999",
        "-1e999",
        "9" * 5000,
        '"\\ud800"',
        '{"\\udc00":1}',
    ],
)
def test_odd_numbers_and_surrogates_in_unrelated_fields_lose_nothing(junk: str) -> None:
    body = encoded(ok("hi")).replace(b'"index": 0', b'"index": 0, "logprobs": ' + junk.encode())
    assert junk.encode() in body
    found = reply(body)
    assert (found.content, found.usage) == ("hi", REPORTED)


@pytest.mark.parametrize("count", [b"NaN", b"Infinity", b"1e999", b"9" * 5000, b'"\\ud800"'])
def test_no_nan_reaches_usage(count: bytes) -> None:
    body = encoded(ok("hi")).replace(b'"prompt_tokens": 11', b'"prompt_tokens": ' + count)
    assert reply(body).usage == ReportedUsage(output_tokens=7)


@pytest.mark.parametrize("field", ["content", "refusal"])
def test_a_lone_surrogate_in_what_the_model_said_is_malformed(field: str) -> None:
    document = ok("hi")
    document["choices"][0]["message"][field] = MARK + "\ud800"
    assert field in malformed(document)


def test_a_pair_of_surrogate_escapes_is_a_character() -> None:
    assert reply(encoded(ok("X")).replace(b'"X"', b'"\\ud83d\\ude00"')).content == "😀"


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"", "empty"),
        (b"\n\n \r\n", "empty"),
        (b"\xef\xbb\xbf", "empty"),
        (b"<!DOCTYPE html><title>CONTENT-MARK</title>", "HTML page"),
        (b'data: {"id":"CONTENT-MARK"}\n\n', "stream of events"),
        (b": keep-alive\n\ndata: CONTENT-MARK", "stream of events"),
        (b"CONTENT-MARK", "not JSON"),
        (b'{"a":1} CONTENT-MARK', "not JSON"),
        (b'{"a":"CONTENT-MARK\xff"}', "not UTF-8"),
        (b'{"a":"CONTENT-MARK\xed\xa0\x80"}', "not UTF-8"),
        ('{"a":1}'.encode("utf-16"), "not UTF-8"),
        (b'{"choices":[{"index":0,"mess', "ends before"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deep"),
        (b'{"x":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001, "nested too deep"),
    ],
)
def test_what_is_no_json_is_malformed_and_described(body: bytes, what: str) -> None:
    assert what in malformed(body)


@pytest.mark.parametrize(
    ("document", "what"),
    [
        (None, "the body is null, not an object"),
        ("CONTENT-MARK", "the body is a text, not an object"),
        (7, "the body is a number, not an object"),
        (True, "the body is a boolean, not an object"),
        ([], "the body is an array, not an object"),
        ([ok(MARK)], "the body is an array, not an object"),
        ({}, '"choices" is missing (its keys: none)'),
        (ok(MARK, choices=None), '"choices" is null, not an array'),
        (ok(MARK, choices={"0": MARK}), '"choices" is an object, not an array'),
        (ok(MARK, choices=[]), '"choices" is empty'),
        (ok(MARK, choices=[None]), '"choices[0]" is null, not an object'),
        (ok(MARK, choices=[MARK]), '"choices[0]" is a text, not an object'),
        (ok(MARK, choices=[{"index": 0}]), '"message" of the choice is missing'),
        (ok(MARK, choices=[{"index": 0, "text": MARK}]), '"message" of the choice is missing'),
        (ok(MARK, choices=[{"index": 0, "message": None}]), '"message" of the choice is null'),
        (ok(MARK, choices=[{"index": 0, "message": MARK}]), '"message" of the choice is a text'),
        (ok(7), '"content" of the message is a number'),
        (ok({"text": MARK}), '"content" of the message is an object'),
        (ok([MARK, None]), '"content" of the message has a part that'),
        (ok([{"type": "text", "text": {"value": MARK}}]), '"content" of the message has a text part without a text'),
        (ok("x", message={"refusal": {"text": MARK}}), '"refusal" of the message is an object'),
    ],
)
def test_what_is_missing_is_named_and_content_is_not(document: Any, what: str) -> None:
    assert what in malformed(document)


def test_only_top_level_keys_are_named() -> None:
    said = malformed(ok(MARK, choices=None, x_extra={"inner": MARK}))
    assert "its keys: id, object, created, model, choices, usage, x_extra" in said
    assert "inner" not in said


def test_many_and_long_keys_are_bounded() -> None:
    said = malformed({f"{number}-" + "k\n" * 500: 1 for number in range(1000)})
    assert len(said) < 400
    assert "and 988 more" in said
    assert said.isprintable()


def test_usage_and_id_of_a_malformed_reply_are_kept() -> None:
    found = error(ok(MARK, choices=[]))
    assert found.reported == REPORTED
    assert found.response_id == "r-1"


def test_the_excerpt_shows_the_beginning_without_the_key() -> None:
    body = f"not JSON: {KEY} {'x' * 180}{KEY}".encode() + b"\xff" * 3000
    found = read_reply(200, framed(body), body, now=NOW, secret=KEY).failure()
    assert found.excerpt is not None
    assert found.excerpt.startswith("not JSON: *** xxx")
    assert KEY[:5] not in found.excerpt
    assert len(found.excerpt) == 200


CUT = [b'{"id":"r-1","choices":[{"index":0,"mess', b'{"a":"\\', b'{"a":"\xe4\xb8', b"[1", b"{", b'\n\n{"a":1']


@pytest.mark.parametrize("body", CUT)
def test_a_body_that_nothing_framed_and_that_ends_inside_itself_was_cut(body: bytes) -> None:
    found = error(body, [("content-type", "application/json")])
    assert type(found) is DisconnectedError
    assert found.transient


@pytest.mark.parametrize("body", CUT)
@pytest.mark.parametrize("framing", [("Content-Length", "1"), ("transfer-encoding", "chunked")])
def test_a_body_that_was_framed_is_complete_and_malformed(body: bytes, framing: tuple[str, str]) -> None:
    found = error(body, [framing])
    assert type(found) is MalformedReplyError
    assert not found.transient


@pytest.mark.parametrize("body", [b"", b"<html>", b"text {", b'{"a":1}}', b'{"a":}', b'"abc', b"{]", b"[" * 100_000])
def test_other_unreadable_bodies_are_malformed_without_framing_too(body: bytes) -> None:
    assert type(error(body, [])) is MalformedReplyError


# ------------------------------------------------------------------ errors inside a 200


def test_a_null_error_beside_good_choices_is_no_error() -> None:
    assert reply(ok("hi", error=None, provider="P", x_extra={"a": [1]})).content == "hi"


@pytest.mark.parametrize(
    "document",
    [
        {"error": {"code": 502, "message": "upstream died"}, "user_id": None},
        [{"error": {"code": 502, "message": "upstream died"}}],
        {"error": [{"code": 502, "message": "upstream died"}]},
        ok(MARK, error={"code": 502, "message": "upstream died"}),
        ok(MARK, "error", choice={"native_finish_reason": None, "error": {"code": 502, "message": "upstream died"}}),
        ok(MARK, "stop", choice={"error": {"code": "502", "message": "upstream died"}}),
    ],
)
def test_an_error_inside_a_200_has_the_class_and_the_retry_of_its_status(document: Any) -> None:
    found = error(document)
    assert type(found) is BackendStatusError
    assert (found.status, found.provider_code, found.transient) == (502, "502", True)
    assert "upstream died" in str(found)
    assert MARK not in f"{found} {found.excerpt}"


@pytest.mark.parametrize("value", ["model not loaded", ["model not loaded"], {"message": "model not loaded"}])
def test_an_error_without_a_status_of_its_own_is_not_transient(value: Any) -> None:
    found = error({"error": value})
    assert type(found) is BackendStatusError
    assert (found.status, found.transient) == (200, False)
    assert "model not loaded" in str(found)


@pytest.mark.parametrize("value", ["", {}, [], False, 0])
def test_an_error_that_says_nothing_is_still_an_error(value: Any) -> None:
    assert type(error(ok(MARK, error=value))) is BackendStatusError


def test_an_error_finish_with_partial_text_is_a_failure_and_its_usage_is_kept() -> None:
    found = error(ok(MARK, "error"))
    assert type(found) is BackendStatusError
    assert found.reported == REPORTED
    assert found.response_id == "r-1"
    assert MARK not in f"{found!r} {vars(found)}"


def test_the_error_of_another_choice_is_not_the_answers() -> None:
    document = ok("hi")
    document["choices"].append({"index": 1, "error": {"code": 502}, "finish_reason": "error"})
    assert reply(document).content == "hi"


@pytest.mark.parametrize("status", [201, 202, 206, 299])
def test_every_2xx_is_read(status: int) -> None:
    assert read_reply(status, [], encoded(ok("hi")), now=NOW).unwrap().content == "hi"


@pytest.mark.parametrize("status", [100, 301, 307, 400, 500])
def test_the_status_decides_before_the_body(status: int) -> None:
    found = read_reply(status, [], encoded(ok(MARK)), now=NOW).failure()
    assert isinstance(found, BackendStatusError)
    assert found.status == status
    assert found.reported == REPORTED
    assert MARK not in f"{found!r} {vars(found)}"


# ------------------------------------------------------------------ anything at all

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["", "stop", "error", "text", "502", "insufficient_quota", "\ud800", KEY, f"x{KEY}y"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "id",
                    "object",
                    "model",
                    "choices",
                    "usage",
                    "error",
                    "index",
                    "message",
                    "content",
                    "refusal",
                    "finish_reason",
                    "type",
                    "text",
                    "code",
                    "details",
                    "detail",
                    "msg",
                    "loc",
                    "metadata",
                    "raw",
                    "status",
                    "prompt_tokens",
                    "completion_tokens",
                    "prompt_tokens_details",
                    "cached_tokens",
                    "input_tokens",
                    "thought",
                    "param",
                ],
            )
            | st.text(max_size=3)
            | st.just(KEY),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)
shaped = st.fixed_dictionaries(
    {},
    optional={
        "id": json_values,
        "model": json_values,
        "error": json_values,
        "usage": json_values,
        "choices": json_values
        | st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "index": json_values | st.just(0),
                    "error": json_values,
                    "finish_reason": json_values,
                    "message": json_values | st.fixed_dictionaries({"content": json_values, "refusal": json_values}),
                },
            ),
            max_size=2,
        ),
    },
)


def dumped(document: Any) -> bytes:
    return json.dumps(document).encode()


bodies = (
    st.binary()
    | json_values.map(dumped)
    | shaped.map(dumped)
    | st.tuples(shaped.map(dumped), st.integers(0, 400)).map(lambda cut: cut[0][: cut[1]])
    | st.tuples(shaped.map(dumped), st.binary(max_size=4), st.integers(0, 400)).map(
        lambda mixed: mixed[0][: mixed[2]] + mixed[1] + mixed[0][mixed[2] :],
    )
)
header_lists = st.lists(
    st.tuples(
        st.sampled_from(["retry-after", "Retry-After-Ms", "content-length", "X-Request-Id"]) | st.text(max_size=5),
        st.text(max_size=30) | st.just(KEY),
    ),
    max_size=4,
)
statuses = st.sampled_from([200, 200, 200, 400, 401, 402, 429, 500, 503]) | st.integers(-10, 1000)


@settings(max_examples=600, deadline=None)
@given(statuses, header_lists, bodies)
def test_nothing_makes_the_reader_raise_or_tell_the_key(
    status: int,
    headers: list[tuple[str, str]],
    body: bytes,
) -> None:
    match read_reply(status, headers, body, now=NOW, secret=KEY):
        case Success(found):
            assert isinstance(found, GenerationReply)
            found.content.encode()
        case Failure(failed):
            assert isinstance(failed, GenerationError)
            assert isinstance(failed, PromptKitError)
            assert KEY not in f"{failed} {failed!r} {failed.args} {vars(failed)}"
            assert str(failed).isprintable()
            assert len(str(failed)) < 1000
            assert failed.__cause__ is None
            assert failed.__context__ is None
        case other:
            raise AssertionError(other)


@settings(deadline=None)
@given(st.text(), header_lists)
def test_every_text_that_utf8_can_carry_comes_back_exactly(content: str, headers: list[tuple[str, str]]) -> None:
    body = dumped(ok(content))
    assert read_reply(200, headers, body, now=NOW, secret=KEY).unwrap().content == content


@pytest.mark.parametrize(
    ("document", "status", "code"),
    [
        ({"object": "error", "message": "bad", "type": "BadRequestError", "param": None, "code": 400}, 400, "400"),
        ({"object": "error", "message": {"detail": [{"msg": "bad"}]}, "type": "invalid_request_error"}, 400, None),
        ({"detail": "bad"}, 200, None),
        ({"detail": [{"loc": ["body", "n"], "msg": "bad", "type": "missing"}]}, 200, None),
        ({"message": "bad", "request_id": "r"}, 200, None),
        ({"message": "bad", "choices": None}, 200, None),
    ],
)
def test_an_error_inside_a_200_needs_no_key_named_error(document: Any, status: int, code: str | None) -> None:
    found = error(document)
    assert isinstance(found, BackendStatusError)
    assert "bad" in str(found)
    assert found.status == status
    assert code is None or found.provider_code == code


def test_a_message_that_is_an_object_is_no_error() -> None:
    assert "choices" in malformed({"message": {"role": "assistant", "content": MARK}, "done": True})


def test_a_backend_that_echoes_the_key_as_the_reason_shows_it_nowhere() -> None:
    body = encoded(ok("hi", KEY))
    found = read_reply(200, framed(body), body, now=NOW, secret=KEY).unwrap()
    assert found.finish_reason == "***"


def test_a_long_cut_answer_with_escaped_quotes_is_looked_through_once() -> None:
    """Looking from each quotation mark to the end would take minutes."""
    body = encoded(ok("x"))[:-40] + b'{\\"k\\": 1}' * 300_000
    found = read_reply(200, [], body, now=NOW).failure()
    assert type(found) is DisconnectedError
