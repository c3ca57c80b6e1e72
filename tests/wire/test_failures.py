"""Error statuses and error objects to typed errors."""

import json
import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

from promptkit._values.usage import ReportedUsage
from promptkit._wire.chat_completions import read_reply
from promptkit._wire.failures import failure
from promptkit.errors import (
    AuthenticationError,
    BackendStatusError,
    GenerationError,
    OverloadedError,
    QuotaError,
    RateLimitError,
    RejectedRequestError,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
JSON = [("content-type", "application/json")]
KEY = "sk-Tr0ub4dor/and+3 more"


def error(status: int, body: Any, headers: list[tuple[str, str]] = JSON, secret: str | None = None) -> GenerationError:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_reply(status, headers, content, now=NOW, secret=secret).failure()


@pytest.mark.parametrize(
    ("status", "cls", "transient"),
    [
        (301, BackendStatusError, False),
        (302, BackendStatusError, False),
        (304, BackendStatusError, False),
        (307, BackendStatusError, False),
        (308, BackendStatusError, False),
        (400, RejectedRequestError, False),
        (401, AuthenticationError, False),
        (402, QuotaError, False),
        (403, AuthenticationError, False),
        (404, RejectedRequestError, False),
        (408, RejectedRequestError, True),
        (409, RejectedRequestError, True),
        (413, RejectedRequestError, False),
        (422, RejectedRequestError, False),
        (425, RejectedRequestError, True),
        (429, RateLimitError, True),
        (498, RejectedRequestError, False),
        (499, RejectedRequestError, False),
        (500, BackendStatusError, True),
        (501, BackendStatusError, False),
        (502, BackendStatusError, True),
        (503, OverloadedError, True),
        (504, BackendStatusError, True),
        (505, BackendStatusError, False),
        (520, BackendStatusError, True),
        (524, BackendStatusError, True),
        (529, OverloadedError, True),
        (599, BackendStatusError, True),
    ],
)
def test_each_status_has_its_class_and_its_retry_decision(
    status: int, cls: type[Exception], *, transient: bool
) -> None:
    for body in ({"error": {"message": "bad"}}, b"", b"plain text", b"<html></html>"):
        found = error(status, body)
        assert type(found) is cls
        assert found.transient is transient
        assert found.status == status
        assert str(status) in str(found)


QUOTA = {
    "error": {
        "message": "You exceeded your current quota",
        "type": "insufficient_quota",
        "param": None,
        "code": "insufficient_quota",
    },
}
SPEND_LIMIT = {
    "type": "error",
    "error": {"type": "rate_limit_error", "message": "x", "details": {"error_code": "enforced_spend_limit_reached"}},
}


@pytest.mark.parametrize(
    ("body", "code"),
    [(QUOTA, "insufficient_quota"), (SPEND_LIMIT, "enforced_spend_limit_reached")],
)
def test_a_quota_that_waiting_cannot_cure_is_not_transient(body: dict[str, Any], code: str) -> None:
    found = error(429, body)
    assert type(found) is QuotaError
    assert not found.transient
    assert found.status == 429
    assert found.provider_code == code


def test_prose_about_a_quota_is_still_a_rate_limit() -> None:
    body = {"error": {"message": "You exceeded your quota of requests per minute", "code": "rate_limit_exceeded"}}
    found = error(429, body, [("retry-after", "1")])
    assert type(found) is RateLimitError
    assert found.transient
    assert found.retry_after == 1.0


@pytest.mark.parametrize(
    "body",
    [
        [{"error": {"code": 400, "message": "bad", "status": "INVALID_ARGUMENT"}}],
        {"detail": "bad"},
        {"detail": [{"loc": ["body"], "msg": "bad", "type": "t"}]},
        {"error": "bad"},
        {"error": ["bad"]},
        {"error": [{"message": "bad"}]},
        {"error": {"error": {"message": "bad"}}},
        {"errors": [{"code": 1, "message": "bad"}]},
        {"object": "error", "message": "bad", "type": "BadRequestError", "code": 400},
        {"object": "error", "message": {"detail": [{"loc": ["body", "n"], "msg": "bad"}]}, "code": None},
        {"message": "bad", "request_id": "q"},
        {"error": {"message": "", "code": 400, "metadata": {"raw": {"error": {"message": "bad"}}}}},
        "bad",
        ["bad"],
    ],
)
def test_the_message_is_found_in_every_foreign_shape(body: Any) -> None:
    found = error(400, body)
    assert type(found) is RejectedRequestError
    assert "bad" in str(found)


@pytest.mark.parametrize(
    "body", [None, [], {}, 7, True, "", [None], [[]], {"error": {}}, {"error": False}, {"detail": 3}]
)
def test_a_body_that_says_nothing_leaves_the_status(body: Any) -> None:
    found = error(400, body)
    assert type(found) is RejectedRequestError
    assert str(found).startswith("the backend answered 400 Bad Request; ")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"error": {"code": "context_length_exceeded", "type": "invalid_request_error"}}, "context_length_exceeded"),
        ({"error": {"code": None, "type": "invalid_request_error"}}, "invalid_request_error"),
        ({"type": "error", "error": {"type": "not_found_error", "message": "x"}}, "not_found_error"),
        ({"error": {"code": 400, "message": "x"}}, "400"),
        ({"error": {"code": 1301, "message": "x"}}, "1301"),
        ({"error": {"code": True, "status": "NOT_FOUND"}}, "NOT_FOUND"),
        ({"object": "error", "message": "x", "type": "BadRequestError", "code": None}, "BadRequestError"),
        ({"error": "bad", "code": "outer"}, "outer"),
        ({"error": "bad"}, None),
        ("bad", None),
        ({"error": {"code": "x" * 500}}, "x" * 63 + "…"),
        ({"error": {"code": "a\nb\x00"}}, "a b"),
        ({"error": {"code": " \n"}}, None),
    ],
)
def test_the_backends_own_code_is_kept_as_text(body: Any, code: str | None) -> None:
    assert error(400, body).provider_code == code


def test_a_routers_error_shows_what_the_provider_said() -> None:
    body = {"error": {"message": "Provider returned error", "code": 502, "metadata": {"raw": "model is on fire"}}}
    assert "Provider returned error (model is on fire)" in str(error(502, body))


def test_a_complaint_says_where() -> None:
    body = {"detail": [{"loc": ["body", "messages", 0, "role"], "msg": "unknown role", "input": "PROMPT TEXT"}]}
    assert "body.messages.role: unknown role" in str(error(422, body))
    assert "PROMPT TEXT" not in str(error(422, body))


@pytest.mark.parametrize(
    ("status", "body", "remedy"),
    [
        (
            401,
            {"error": {"message": "no"}},
            "or the environment variable that credential_env names",
        ),
        (
            403,
            {"error": {"message": "no"}},
            "or the environment variable that credential_env names",
        ),
        (400, [{"error": {"code": 400, "message": "API key not valid."}}], "credential_env"),
        (402, {"error": {"message": "no"}}, "add credit"),
        (404, {"error": {"message": "no"}}, "check the backend's base_url and the profile's model"),
        (302, b"", "put the final address into the backend's base_url"),
        (400, {"error": {"message": "Unknown", "param": "response_format"}}, "native_output"),
        (400, {"error": {"message": "'json_schema' is not supported"}}, "native_output"),
        (
            400,
            {"error": {"message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."}},
            "token_limit_parameter",
        ),
        (400, {"error": {"code": 400, "type": "exceed_context_size_error", "message": "x"}}, "conversation shorter"),
        (413, {"error": {"message": "no"}}, "conversation shorter"),
        (429, {"error": {"message": "no"}}, "max_concurrency"),
        (501, {"error": {"message": "no"}}, "base_url"),
        (503, {"error": {"message": "no"}}, "try again later"),
    ],
)
def test_the_message_says_what_to_do(status: int, body: Any, remedy: str) -> None:
    assert remedy in str(error(status, body))


PAGE = b"<html><head><title>502 Bad Gateway</title></head><body>" + b"<p>PAGE</p>" * 800 + b"</body></html>"


@pytest.mark.parametrize("page", [PAGE, b"\xef\xbb\xbf\n<!DOCTYPE html>" + PAGE, b"<?xml version='1.0'?>" + PAGE])
def test_an_html_page_is_described_and_not_quoted(page: bytes) -> None:
    found = error(502, page, [("content-type", "text/html")])
    assert "an HTML page, not an API error" in str(found)
    assert "<" not in str(found)
    assert found.excerpt is not None
    assert len(found.excerpt) <= 200


def test_a_page_inside_an_error_object_is_not_quoted_either() -> None:
    found = error(502, {"error": {"message": "upstream said: " + PAGE.decode()}})
    assert "<" not in str(found)


def test_a_plain_text_error_is_quoted() -> None:
    assert "upstream connect error" in str(error(503, b"upstream connect error or disconnect", []))


def test_messages_are_bounded_and_on_one_line() -> None:
    text = "line\r\n\x1b[31mred\x00\u202e\u2028\ud800 " + "long " * 5000
    for status in (302, 400, 401, 404, 429, 500, 503):
        said = str(error(status, {"error": {"message": text, "code": "c" * 1000}}))
        assert len(said) <= 300
        assert said.isprintable()


def test_an_error_that_is_valid_json_has_no_excerpt() -> None:
    assert error(400, {"error": {"message": "bad"}}).excerpt is None


@pytest.mark.parametrize(
    ("code", "cls", "status", "transient"),
    [
        (429, RateLimitError, 429, True),
        (502, BackendStatusError, 502, True),
        ("502", BackendStatusError, 502, True),
        (502.0, BackendStatusError, 502, True),
        (529, OverloadedError, 529, True),
        (401, AuthenticationError, 401, False),
        (402, QuotaError, 402, False),
        (400, RejectedRequestError, 400, False),
        (501, BackendStatusError, 501, False),
        ("rate_limit_exceeded", RateLimitError, 429, True),
        ("insufficient_quota", QuotaError, 429, False),
        ("overloaded_error", OverloadedError, 529, True),
        ("server_error", BackendStatusError, 500, True),
        ("UNAVAILABLE", OverloadedError, 503, True),
        (None, BackendStatusError, 200, False),
        (True, BackendStatusError, 200, False),
        (7, BackendStatusError, 200, False),
        (200, BackendStatusError, 200, False),
        (302, BackendStatusError, 200, False),
        (-429, BackendStatusError, 200, False),
        (10**30, BackendStatusError, 200, False),
        ("\u0665\u0660\u0662", BackendStatusError, 200, False),
        ("something", BackendStatusError, 200, False),
    ],
)
def test_the_own_code_of_an_error_inside_a_200_counts_as_the_status(
    code: object,
    cls: type[Exception],
    status: int,
    *,
    transient: bool,
) -> None:
    found = error(200, {"error": {"code": code, "message": "upstream died"}})
    assert (type(found), found.status, found.transient) == (cls, status, transient)
    assert "upstream died" in str(found)
    assert "200" in str(found)


def test_the_http_status_wins_over_the_code_of_the_body() -> None:
    found = error(400, {"error": {"code": 503, "message": "x"}})
    assert (type(found), found.status, found.provider_code) == (RejectedRequestError, 400, "503")


def test_the_demand_is_readable_on_the_error() -> None:
    assert error(429, {"error": {"message": "x"}}, [("Retry-After", "7")]).retry_after == 7.0
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "36s"}
    body = [{"error": {"code": 429, "message": "x", "status": "RESOURCE_EXHAUSTED", "details": [info]}}]
    assert error(429, body).retry_after == 36.0
    assert error(200, body[0]).retry_after == 36.0


def test_should_retry_headers_do_not_change_the_decision() -> None:
    assert error(503, b"", [("x-should-retry", "false")]).transient
    assert not error(400, b"", [("x-should-retry", "true")]).transient


def test_usage_in_an_error_body_is_reported() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 0}
    expected = ReportedUsage(input_tokens=3, output_tokens=0)
    assert error(500, {"error": {"message": "x"}, "usage": usage}).reported == expected
    assert error(200, {"error": {"message": "x"}, "usage": usage}).reported == expected
    assert error(500, {"error": {"message": "x"}}).reported is None


def test_an_error_inside_a_200_without_counts_reports_unknown_counts_whatever_status_it_names() -> None:
    for code in (400, 429, 503, None):
        assert error(200, {"error": {"code": code, "message": "x"}}).reported == ReportedUsage()


def test_the_id_for_the_backends_support_is_kept() -> None:
    assert error(500, {"id": "r-1", "error": "x"}, [("x-request-id", "h-1")]).response_id == "r-1"
    assert error(529, {"type": "error", "error": {"type": "t"}, "request_id": "q-1"}).response_id == "q-1"
    assert error(500, {"error": "x"}, [("X-Request-Id", "h-1")]).response_id == "h-1"
    assert error(500, {"error": "x"}).response_id is None


def test_the_key_is_nowhere_in_an_error_that_echoes_it() -> None:
    for text in (
        KEY,
        f"bad key {KEY}",
        KEY.replace(" ", "\x00"),
        "x" * 150 + KEY + "y" * 150,
        KEY * 40,
        f"<html>{KEY}",
    ):
        bodies = (
            {"error": {"message": text, "code": text, "type": text}, "id": text},
            {"id": text, "error": text, "usage": {"prompt_tokens": text}},
            {text: text},
            text.encode(),
        )
        for status in (200, 302, 400, 401, 503):
            for body in bodies:
                found = error(status, body, [("x-request-id", text)], secret=KEY)
                assert KEY not in f"{found} {found!r} {found.args} {vars(found)}"
                assert KEY.encode() not in pickle.dumps(found)


def test_the_key_is_found_in_other_spellings() -> None:
    for key, spelling in (('a"b/c', 'a\\"b\\/c'), ("a/b+c", "a%2Fb%2Bc"), ("a\\b", "a\\\\b")):
        found = error(500, f"not json {spelling} end".encode(), secret=key)
        assert spelling not in f"{found} {found.excerpt}"


def test_an_empty_secret_hides_nothing() -> None:
    assert "bad" in str(error(400, {"error": "bad"}, secret=""))


def test_an_error_survives_pickling() -> None:
    found = error(429, QUOTA, [("retry-after", "7")])
    assert pickle.loads(pickle.dumps(found)) == found  # noqa: S301 - made one line above


def test_a_failure_can_be_made_from_the_error_object_alone() -> None:
    assert failure(429, {"message": "slow down"}) == error(429, {"error": {"message": "slow down"}})
