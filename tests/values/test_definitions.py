"""What is configured: ranges, addresses, headers and ids."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptkit import Backend, EmbeddedOptions, MessageTemplate, OutputContract, Profile, PromptDefinition, RetryPolicy
from promptkit.errors import InvalidConfigError

VALID: dict[Any, dict[str, Any]] = {
    Profile: {"id": "p", "backend": "b", "model": "m"},
    Backend: {"id": "b", "kind": "chat_completions", "base_url": "http://localhost/v1"},
    RetryPolicy: {},
    EmbeddedOptions: {},
    OutputContract: {},
    PromptDefinition: {"id": "p", "messages": [MessageTemplate(role="user", content="x")]},
    MessageTemplate: {"role": "user", "content": "x"},
}

RANGES: list[tuple[Any, str, list[Any], list[Any]]] = [
    (Profile, "temperature", [0, 0.0, 2.5, None], [-0.1, math.nan, math.inf, "1", True]),
    (Profile, "top_p", [0, 1, 0.5, None], [-0.1, 1.1, math.nan, math.inf, "1"]),
    (Profile, "max_output_tokens", [1, 10**9, None], [0, -1, 1.5, True]),
    (Profile, "seed", [0, -5, 2**63], [1.5, "1", True]),
    (Profile, "stop", [(), ["a"], ("a", "b")], ["END", [1], [None]]),
    (Profile, "model", ["gpt/x:1"], ["", None, 1.1]),
    (Profile, "native_output", ["json_schema", "json_object", "none"], ["json", None]),
    (Profile, "extra", [{}, {"top_k": 5, "nested": {"a": 1}}], [{"a": math.nan}, {1: 2}, [], "x"]),
    (Backend, "kind", ["chat_completions"], ["openai", None, ""]),
    (Backend, "max_concurrency", [1, 10_000, None], [0, -1, 1.5, True]),
    (Backend, "max_waiting", [0, 64], [-1, 0.5, None, True]),
    (Backend, "connect_timeout", [0.001, 5], [0, -1, math.nan, math.inf, "5"]),
    (Backend, "attempt_timeout", [0.001, 120], [0, -1, math.nan, math.inf, None]),
    (Backend, "trust_env", [True, False], [1, "yes"]),
    (Backend, "session_parameter", ["user", "session_id", None], ["model", "messages", "stream", "max_tokens", "n"]),
    (Backend, "token_limit_parameter", ["max_tokens", "max_completion_tokens"], ["max_output_tokens"]),
    (Backend, "cache_markers", ["cache_control", "prompt_cache_breakpoint", "omit"], ["none"]),
    (Backend, "credential_env", ["KEY", None], [5]),
    (Backend, "embedded", [None], [EmbeddedOptions(), {"threads": 0}]),
    (RetryPolicy, "max_retries", [0, 5], [-1, 1.5, True]),
    (RetryPolicy, "base_delay", [0, 0.5], [-0.1, math.nan, math.inf]),
    (RetryPolicy, "max_delay", [0, 8.0], [-0.1, math.nan, math.inf]),
    (RetryPolicy, "max_retry_after", [0, 60], [-0.1, math.nan, math.inf]),
    (EmbeddedOptions, "context_tokens", [1, 4096], [0, -1, 1.5]),
    (EmbeddedOptions, "threads", [1, 64, None], [0, -1, True]),
    (OutputContract, "kind", ["text", "json"], ["json_schema", "xml", None]),
    (OutputContract, "max_repairs", [0], [-1, 1, 1.5, True]),
    (OutputContract, "name", ["a", "A-9_z", "x" * 64, None], ["", "a b", "é", "x" * 65, "a/b"]),
    (PromptDefinition, "messages", [], [[], "x", None]),
    (PromptDefinition, "variables", [["a", "_b", "café"]], [["a-b"], ["a", "a"], ["1a"], [""], ["inputs"], "ab"]),
    (PromptDefinition, "inputs", [["doc"], ["inputs"]], [["a-b"], ["a", "a"], [""]]),
    (PromptDefinition, "output", [OutputContract(kind="json")], ["json", None]),
    (MessageTemplate, "role", ["system", "developer", "user", "assistant"], ["tool", "", None]),
    (MessageTemplate, "content", ["", " "], [None, 5, ["x"]]),
]
ACCEPTED = [(cls, field, value) for cls, field, good, _ in RANGES for value in good]
REFUSED = [(cls, field, value) for cls, field, _, bad in RANGES for value in bad]


@pytest.mark.parametrize(("cls", "field", "value"), ACCEPTED)
def test_values_in_range_are_taken(cls: Any, field: str, value: Any) -> None:
    made = getattr(cls(**{**VALID[cls], field: value}), field)
    assert made == (tuple(value) if isinstance(value, list) else value)


@pytest.mark.parametrize(("cls", "field", "value"), REFUSED)
def test_values_out_of_range_are_faults_with_the_key_of_the_field(cls: Any, field: str, value: Any) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        cls(**{**VALID[cls], field: value})
    keys = [fault.key or "" for fault in caught.value.faults]
    assert any(key.startswith(f"{cls.__name__}.{field}") or field == "kind" for key in keys), keys


@pytest.mark.parametrize("identifier", ["a", "a/b", "a.b", "é", "a b", "A-1_x"])
def test_ids_are_names_separated_by_slashes(identifier: str) -> None:
    assert Profile(id=identifier, backend="b", model="m").id == identifier


@pytest.mark.parametrize(
    "identifier", ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", " a", "a\n", "a\x00b", "a/./b"]
)
def test_other_ids_are_refused(identifier: str) -> None:
    for cls in (Profile, Backend, PromptDefinition):
        with pytest.raises(InvalidConfigError, match=rf"{cls.__name__}\.id"):
            cls(**{**VALID[cls], "id": identifier})


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost",
        "http://localhost/",
        "http://localhost:8080/v1",
        "https://h/v1/",
        "https://h/api/v1",
        "HTTP://H/V1",
        "http://127.0.0.1:1",
        "http://[::1]:8080/v1",
    ],
)
def test_an_address_is_kept_as_written(url: str) -> None:
    assert Backend(id="b", kind="chat_completions", base_url=url).base_url == url


@pytest.mark.parametrize(
    "url",
    [
        None,
        "",
        "LEAK",
        "localhost:8080/LEAK",
        "//host/LEAK",
        "file:///etc/LEAK",
        "ftp://host/LEAK",
        "javascript:LEAK",
        "http://",
        "http:///LEAK",
        "http://:80/LEAK",
        "http://user:LEAK@host/v1",
        "http://LEAK@host/v1",
        "http://@host/LEAK",
        "http://host/v1?key=LEAK",
        "http://host/v1?LEAK",
        "http://host/LEAK?",
        "http://host/v1#LEAK",
        "http://host/v1#",
        "http://user:LEAK@127.0.0.1:80/v1?key=LEAK",
        "http://host/LEAK ",
        " http://host/LEAK",
        "http://host/a LEAK",
        "http://host/LEAK\n",
        "http://ho\tst/LEAK",
        "http://host\x00/LEAK",
        "http://hóst/LEAK",
        "http://host:LEAK/v1",
        "http://host:99999/LEAK",
        "http://[::1/LEAK",
        "http://good\\@evil/LEAK",
    ],
)
def test_another_address_is_refused_and_not_repeated(url: str | None) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        Backend(id="b", kind="chat_completions", base_url=url)
    assert {fault.key for fault in caught.value.faults} == {"Backend.base_url"}
    assert "LEAK" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "Authorization",
        "proxy-authorization",
        "X-Api-Key",
        "apikey",
        "Cookie",
        "x-auth-token",
        "X-Client-Secret",
        "x-password",
        "Content-Type",
        "content-length",
        "HOST",
        "transfer-encoding",
        "Connection",
        "",
        "a b",
        "a:b",
        "a\r\nX-Evil",
        "é",
        "a(b)",
    ],
)
def test_headers_that_carry_credentials_or_are_promptkits_own_or_are_none_are_refused(name: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        Backend(id="b", kind="chat_completions", base_url="http://h", headers={name: "LEAK"})
    assert "LEAK" not in str(caught.value)


@pytest.mark.parametrize("value", ["x\r\nX-Evil: LEAK", "LEAK\n", " LEAK", "LEAK\x00", "LEÄK", "LE\x7fAK"])
def test_header_values_that_cannot_be_sent_are_refused_without_echo(value: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"headers\.x-team") as caught:
        Backend(id="b", kind="chat_completions", base_url="http://h", headers={"x-team": value})
    assert "LE" not in str(caught.value)


@pytest.mark.parametrize("field", ["model", "messages", "stream", "stream_options", "n"])
def test_reserved_body_fields_are_refused(field: str) -> None:
    with pytest.raises(InvalidConfigError, match=rf"extra\.{field}: is reserved"):
        Profile(id="p", backend="b", model="m", extra={field: 1})


@pytest.mark.parametrize("field", ["temperature", "max_tokens", "max_completion_tokens", "response_format", "stop"])
def test_body_fields_with_a_setting_of_their_own_name_it(field: str) -> None:
    with pytest.raises(InvalidConfigError, match=rf"extra\.{field}: has a setting of its own: \w+"):
        Profile(id="p", backend="b", model="m", extra={field: 1})


def test_an_embedded_model_has_no_address_and_runs_one_at_a_time() -> None:
    assert Backend(id="b", kind="embedded").concurrency == 1
    assert Backend(id="b", kind="embedded", max_concurrency=3, embedded=EmbeddedOptions(threads=2)).concurrency == 3
    assert Backend(id="b", kind="chat_completions", base_url="http://h").concurrency == 8
    with pytest.raises(InvalidConfigError, match="base_url"):
        Backend(id="b", kind="embedded", base_url="http://h")
    with pytest.raises(InvalidConfigError, match="embedded"):
        Backend(id="b", kind="chat_completions", base_url="http://h", embedded=EmbeddedOptions())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("base_url", "http://h"),
        ("credential_env", "KEY"),
        ("connect_timeout", 1),
        ("headers", {"x-a": "b"}),
        ("trust_env", True),
        ("session_parameter", "user"),
        ("token_limit_parameter", "max_completion_tokens"),
        ("cache_markers", "omit"),
    ],
)
def test_what_an_embedded_model_does_not_have_is_refused_unless_it_has_its_default(field: str, value: Any) -> None:
    with pytest.raises(InvalidConfigError, match=rf"Backend\.{field}: is given, but .*: leave it out"):
        Backend(id="b", kind="embedded", **{field: value})
    default = next(each.default for each in msgspec.structs.fields(Backend) if each.name == field)
    assert getattr(Backend(id="b", kind="embedded", **{field: default}), field) == default


@pytest.mark.parametrize(
    "name", ["api_key", "OpenAI-Api-Key", "authorization", "token", "access_token", "clientSecret"]
)
@pytest.mark.parametrize("around", [lambda x: x, lambda x: {"a": [x]}, lambda x: {"headers": {"more": x}}])
def test_a_credential_in_extra_is_refused_at_any_depth_without_echo(name: str, around: Any) -> None:
    for value in ("LEAK", ["LEAK"]):
        with pytest.raises(InvalidConfigError, match=r"Profile\.extra.*: carries a credential") as caught:
            Profile(id="p", backend="b", model="m", extra=around({name: value}))
        assert "LEAK" not in str(caught.value)


@pytest.mark.parametrize(
    "extra",
    [
        {"prompt_cache_key": "k", "stop_token_ids": [1], "skip_special_tokens": True, "max_thinking_tokens": 5},
        {"tools": [{"parameters": {"properties": {"password": {"type": "string"}, "token": {"type": "string"}}}}]},
    ],
)
def test_fields_that_only_sound_like_credentials_are_taken(extra: Any) -> None:
    assert Profile(id="p", backend="b", model="m", extra=extra).extra.keys() == extra.keys()


def test_a_contract_needs_its_schema_and_only_its_schema() -> None:
    with pytest.raises(InvalidConfigError, match="schema: is missing"):
        OutputContract(kind="json_schema")
    with pytest.raises(InvalidConfigError, match=r'use kind "json_schema"'):
        OutputContract(kind="text", schema={})
    with pytest.raises(InvalidConfigError, match=r'use kind "json_schema"'):
        OutputContract(kind="json", schema={})
    with pytest.raises(InvalidConfigError, match="never invalid"):
        OutputContract(kind="text", max_repairs=1)


@pytest.mark.parametrize("cls", VALID, ids=lambda cls: cls.__name__)
def test_definitions_encode_and_hash(cls: Any) -> None:
    made = cls(**VALID[cls])
    assert msgspec.json.decode(msgspec.json.encode(made), type=cls) == made
    assert hash(made) == hash(cls(**VALID[cls]))


@given(st.text(st.sampled_from("a\r\n{} ")))
def test_line_ends_of_sources_become_lf_and_nothing_else_changes(text: str) -> None:
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    message = MessageTemplate(role="user", content=text)
    assert message.content == plain
    assert message == MessageTemplate(role="user", content=plain)
    prompt = PromptDefinition(id="p", messages=[message], session=text)  # type: ignore[arg-type]  # lists are taken
    assert prompt == PromptDefinition(id="p", messages=(message,), session=plain)
    assert PromptDefinition(id="p", messages=(message,)).session is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("embedded", EmbeddedOptions()),
        ("session_parameter", "session"),
        ("token_limit_parameter", "max_completion_tokens"),
        ("cache_markers", "prompt_cache_breakpoint"),
        ("base_url", None),
        ("base_url", "https://api.anthropic.com/v1"),
        ("base_url", "https://api.anthropic.com/v1/messages/"),
    ],
)
def test_what_the_anthropic_dialect_lacks_is_refused_by_its_field(field: str, value: Any) -> None:
    given = {"base_url": "https://api.anthropic.com", field: value}
    with pytest.raises(InvalidConfigError) as caught:
        Backend(id="b", kind="anthropic_messages", **given)
    assert {fault.key for fault in caught.value.faults} == {f"Backend.{field}"}


def test_a_late_system_message_is_refused_by_default_where_the_dialect_has_none() -> None:
    anthropic = Backend(id="b", kind="anthropic_messages", base_url="https://api.anthropic.com")
    assert anthropic.late_system_treatment == "refuse"
    assert Backend(id="b", kind="chat_completions", base_url="http://h").late_system_treatment == "send"
    assert Backend(id="b", kind="embedded").late_system_treatment == "send"
    chosen = Backend(id="b", kind="anthropic_messages", base_url="https://h", late_system="as_user")
    assert chosen.late_system_treatment == "as_user"


@pytest.mark.parametrize("name", ["apiToken", "X-Passwd", "x-pwd", "xapikey", "bearer", "X-SAS", "private_key_pem"])
def test_a_name_that_carries_a_credential_is_refused_in_headers_and_in_extra(name: str) -> None:
    with pytest.raises(InvalidConfigError, match="carries a credential") as caught:
        Backend(id="b", kind="chat_completions", base_url="http://h", headers={name: "LEAK"})
    assert "LEAK" not in str(caught.value)
    if name != "X-SAS":
        with pytest.raises(InvalidConfigError) as caught:
            Profile(id="p", backend="b", model="m", extra={"inner": {name: "LEAK"}})
        assert "LEAK" not in str(caught.value)


@pytest.mark.parametrize("name", ["prompt_cache_key", "stop_token_ids", "max_tokens_hint", "x_keys"])
def test_names_of_other_things_are_taken_in_extra(name: str) -> None:
    assert Profile(id="p", backend="b", model="m", extra={name: "v"}).extra[name] == "v"
