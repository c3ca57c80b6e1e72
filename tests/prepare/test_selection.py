"""What a request selects, and that a continuation inherits nothing."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import msgspec
import pytest

from promptkit import (
    JSON,
    Backend,
    Catalog,
    EmbeddedOptions,
    Exchange,
    Message,
    MessageTemplate,
    OutputContract,
    Profile,
    PromptDefinition,
    RunRequest,
    Secret,
    Setting,
)
from promptkit._history import Turn
from promptkit._load_catalog import definitions_of
from promptkit._prepare.contract import contract_of
from promptkit._prepare.inputs import needed
from promptkit._prepare.pipeline import Prepared, complete, details
from promptkit._prepare.selection import Selection, select
from promptkit._prepare.settings import base_settings
from promptkit._values.exchange import exchange_of
from promptkit.errors import (
    InputError,
    InvalidRequestError,
    MissingProfileError,
    UnknownProfileError,
    UnknownPromptError,
    UnknownSchemaError,
)

NUMBERS: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}}
CATALOG = Catalog(
    backends=[
        Backend(id="near", kind="chat_completions", base_url="http://localhost/v1", session_parameter="user"),
        Backend(id="far", kind="chat_completions", base_url="https://far/v1", max_concurrency=2),
    ],
    profiles=[
        Profile(id="fast", backend="near", model="small", temperature=0.5),
        Profile(id="slow", backend="far", model="large"),
    ],
    prompts=[
        PromptDefinition(
            id="team/ask",
            messages=(
                MessageTemplate(role="system", content="You answer."),
                MessageTemplate(role="user", content="{{ q }}{{ inputs.doc|default('') }}"),
            ),
            variables=("q",),
            inputs=("doc",),
            profile="fast",
            session="s-{{ q }}",
            output=OutputContract(kind="json_schema", schema="team/numbers", max_repairs=2),
        ),
        PromptDefinition(id="bare", messages=(MessageTemplate(role="user", content="hi"),)),
        PromptDefinition(
            id="any",
            messages=(MessageTemplate(role="user", content="hi"),),
            profile="fast",
            output=OutputContract(kind="json_schema", schema="any"),
        ),
    ],
    schemas={"team/numbers": NUMBERS, "any": True, "none": False},
)


def selected(**fields: Any) -> Selection:
    return select(definitions_of(CATALOG), RunRequest(**fields)).unwrap()


def refused(**fields: Any) -> InvalidRequestError:
    return select(definitions_of(CATALOG), RunRequest(**fields)).failure()


def prepared(request: RunRequest, contents: dict[str, bytes] | None = None) -> Prepared:
    selection = select(definitions_of(CATALOG), request).unwrap()
    inline = needed(selection, request).unwrap().inline
    return complete(selection, request, {**inline, **(contents or {})}).unwrap()


def exchange(*messages: tuple[str, str]) -> Exchange:
    new: Any = [(role, text, None) for role, text in messages]
    return exchange_of(Turn(None, new).capture("r1", "answered"))


def test_the_profile_is_the_requests_else_the_prompts() -> None:
    assert selected(prompt_id="team/ask").profile.id == "fast"
    assert selected(prompt_id="team/ask").backend.id == "near"
    assert selected(prompt_id="team/ask", profile="slow").profile.id == "slow"
    assert selected(prompt_id="team/ask", profile="slow").backend.id == "far"
    assert selected(prompt_id="bare", profile="slow").profile.id == "slow"


def test_a_profile_that_neither_names_is_missing() -> None:
    error = refused(prompt_id="bare")
    assert type(error) is MissingProfileError
    assert "'fast', 'slow'" in str(error)


@pytest.mark.parametrize(
    ("fields", "cls", "sentences"),
    [
        ({"prompt_id": "team/aks"}, UnknownPromptError, ["'team/aks'", "did you mean 'team/ask'", "'bare'"]),
        ({"prompt_id": "zzz"}, UnknownPromptError, ["'zzz'", "the prompts are"]),
        ({"prompt_id": ""}, UnknownPromptError, ["the prompts are"]),
        ({"prompt_id": "bare", "profile": "fats"}, UnknownProfileError, ["did you mean 'fast'"]),
        ({"prompt_id": "team/ask", "profile": ""}, UnknownProfileError, ["no profile ''"]),
        (
            {"prompt_id": "team/ask", "output": OutputContract(kind="json_schema", schema="team/number")},
            UnknownSchemaError,
            ["did you mean 'team/numbers'"],
        ),
        (
            {"prompt_id": "team/ask", "output": OutputContract(kind="json_schema", schema={"type": "nope"})},
            InvalidRequestError,
            ["not usable", "/type"],
        ),
        (
            {
                "prompt_id": "team/ask",
                "output": OutputContract(kind="json_schema", schema={"type": "x", "not": {"$ref": "#/y"}, "allOf": 5}),
            },
            InvalidRequestError,
            ["not usable: at /allOf: 5 is not", "(and 2 more)"],
        ),
        (
            {"prompt_id": "team/ask", "output": OutputContract(kind="json_schema", schema={"$ref": "http://h/x"})},
            InvalidRequestError,
            ["not usable"],
        ),
        (
            {"prompt_id": "team/ask", "output": OutputContract(kind="json_schema", schema={"$ref": "#"})},
            InvalidRequestError,
            ["never ends"],
        ),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(fields: Any, cls: Any, sentences: list[str]) -> None:
    error = refused(**fields)
    assert type(error) is cls
    for sentence in sentences:
        assert sentence in str(error)


def test_the_requests_contract_replaces_the_prompts_completely() -> None:
    own = selected(prompt_id="team/ask").contract
    assert own.output == OutputContract(kind="json_schema", schema=NUMBERS, name="team_numbers", max_repairs=2)
    assert own.schema is not None
    assert own.schema.violations({"n": "x"})
    assert selected(prompt_id="team/ask", output=OutputContract()).contract.output == OutputContract()
    replaced = selected(prompt_id="team/ask", output=OutputContract(kind="json")).contract
    assert replaced.output == OutputContract(kind="json")
    assert replaced.schema is None
    named = selected(prompt_id="bare", profile="fast", output=OutputContract(kind="json_schema", schema="team/numbers"))
    assert named.contract.output.max_repairs == 0


def test_a_schema_that_is_true_or_false_is_a_schema_too() -> None:
    anything, nothing = (
        selected(prompt_id="any", output=OutputContract(kind="json_schema", schema=name)).contract
        for name in ("any", "none")
    )
    assert anything.schema is not None
    assert nothing.schema is not None
    assert anything.schema.violations({"a": [1]}) == ()
    assert nothing.schema.violations(1)
    assert isinstance(anything.output.schema, dict)


def test_a_continuation_inherits_nothing_but_the_conversation() -> None:
    first = RunRequest(
        prompt_id="team/ask",
        variables={"q": "1"},
        profile="slow",
        session_id="mine",
        output=OutputContract(kind="json", max_repairs=5),
    )
    told = details(prepared(first))
    start = exchange(("system", "You answer."), ("user", "1"))
    second = RunRequest(prompt_id="bare", profile="fast", continue_from=start)
    after = details(prepared(second))
    assert told.profile == "slow"
    assert (after.profile, after.backend, after.model) == ("fast", "near", "small")
    assert after.session_id is None
    assert after.output == OutputContract()
    assert after.parent_run_id == "r1"
    assert refused(prompt_id="bare", continue_from=start).__class__ is MissingProfileError


def test_history_comes_first_then_the_prompts_messages_then_the_appended_ones() -> None:
    request = RunRequest(
        prompt_id="team/ask",
        variables={"q": "{{ q }}"},
        continue_from=exchange(("user", "{{ old }}")),
        appended_messages=(Message(role="system", content="late"), Message(role="assistant", content="{{ a }}")),
    )
    shown = details(prepared(request))
    assert [(m.role, m.content) for m in shown.messages] == [
        ("user", "{{ old }}"),
        ("assistant", "answered"),
        ("system", "You answer."),
        ("user", "{{ q }}"),
        ("system", "late"),
        ("assistant", "{{ a }}"),
    ]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"variables": {"q": 1, "quest": 2}}, "declares no variable 'quest': it declares: 'q'"),
        ({"variables": {"qq": 1}}, "did you mean 'q'"),
        ({"inputs": {"dok": "x"}}, "declares no input 'dok': did you mean 'doc'"),
    ],
)
def test_only_declared_names_are_taken(fields: Any, sentence: str) -> None:
    request = RunRequest(prompt_id="team/ask", **fields)
    error = needed(select(definitions_of(CATALOG), request).unwrap(), request).failure()
    assert type(error) is InvalidRequestError
    assert sentence in str(error)


def test_inline_inputs_are_read_as_text_and_files_are_named() -> None:
    spellings: tuple[Any, ...] = (
        "é\n",
        "é\n".encode(),
        bytearray("é\n".encode()),
        "\ufeffé\n",
        b"\xef\xbb\xbf\xc3\xa9\n",
    )
    for given in spellings:
        request = RunRequest(prompt_id="team/ask", variables={"q": ""}, inputs={"doc": given}, session_id="s")
        assert details(prepared(request)).messages[1].content == "é\n"
    request = RunRequest(prompt_id="team/ask", inputs={"doc": PurePath("a/b.txt")})
    wanted = needed(select(definitions_of(CATALOG), request).unwrap(), request).unwrap()
    assert (dict(wanted.inline), dict(wanted.files)) == ({}, {"doc": PurePath("a/b.txt")})


@pytest.mark.parametrize("content", [b"caf\xe9", b"\xed\xa0\x80", b"\xff\xfe"])
def test_an_input_that_is_not_utf8_is_refused_with_its_name(content: bytes) -> None:
    request = RunRequest(prompt_id="team/ask", variables={"q": "1"}, inputs={"doc": content})
    selection = select(definitions_of(CATALOG), request).unwrap()
    error = complete(selection, request, {"doc": content}).failure()
    assert type(error) is InputError
    assert "'doc' is not UTF-8" in str(error)


def test_settings_say_where_each_value_comes_from() -> None:
    request = RunRequest(prompt_id="team/ask", variables={"q": "1"}, profile="fast")
    settings = details(prepared(request)).settings
    origins = {name: setting.origin for name, setting in settings.items()}
    assert origins["profile"] == "request"
    assert origins["backend"] == origins["model"] == origins["temperature"] == "profile"
    assert origins["top_p"] == origins["retry"] == origins["max_concurrency"] == "default"
    assert origins["base_url"] == origins["session_parameter"] == "backend"
    assert origins["output"] == origins["session_id"] == "prompt"
    assert settings["max_concurrency"].value == 8
    assert settings["session_id"].value == "s-1"
    other = RunRequest(prompt_id="bare", profile="slow", output=OutputContract(), session_id="x")
    again = details(prepared(other)).settings
    assert (again["output"].origin, again["session_id"].origin) == ("request", "request")
    assert (again["max_concurrency"].value, again["max_concurrency"].origin) == (2, "backend")


def test_settings_name_every_field_of_the_profile_and_the_backend_and_what_a_request_can_give() -> None:
    fields = [*Profile.__struct_fields__, *Backend.__struct_fields__]
    both = set(fields) - {"id"}
    assert len(both) == len(fields) - 2  # no name means two things
    request = RunRequest(prompt_id="team/ask", variables={"q": "1"})
    told = details(prepared(request)).settings
    assert told.keys() == both | {"profile", "output", "session_id", "credential"}
    assert base_settings(CATALOG.profiles["fast"], CATALOG.backends["near"]).keys() == both


def test_a_value_that_equals_the_default_counts_as_the_default() -> None:
    usual = Backend(id="b", kind="chat_completions", base_url="http://h")
    given = {
        field.name: field.default
        for field in msgspec.structs.fields(Backend)
        if not field.required and field.name not in {"base_url", "max_concurrency"}
    }
    written_out = Backend(
        id="c", kind="chat_completions", base_url="http://h", max_concurrency=usual.concurrency, **given
    )
    profile = Profile(id="f", backend="b", model="m")
    assert base_settings(profile, usual) == base_settings(profile, written_out)
    told = base_settings(profile, usual)
    assert {name for name, setting in told.items() if setting.origin == "profile"} == {"backend", "model"}
    assert {name for name, setting in told.items() if setting.origin == "backend"} == {"kind", "base_url"}
    assert told["max_concurrency"] == Setting(value=8, origin="default")


def test_what_none_stands_for_is_shown() -> None:
    profile = Profile(id="f", backend="e", model="m")
    plain = base_settings(profile, Backend(id="e", kind="embedded"))
    options = {"model_path": None, "context_tokens": 4096, "threads": None}
    assert plain["embedded"] == Setting(value=options, origin="default")
    assert plain["max_concurrency"] == Setting(value=1, origin="default")
    own = base_settings(profile, Backend(id="e", kind="embedded", embedded=EmbeddedOptions(threads=2)))
    assert own["embedded"] == Setting(value={**options, "threads": 2}, origin="backend")


def test_settings_of_equal_looking_definitions_are_told_apart() -> None:
    backend = Backend(id="b", kind="chat_completions", base_url="http://h")
    for value in (1, True, 1.0):
        profile = Profile(id="f", backend="b", model="m", extra={"x": value})
        extra = base_settings(profile, backend)["extra"].value
        assert repr(extra) == repr({"x": value})


@pytest.mark.parametrize(
    ("credential_env", "given", "setting"),
    [
        (None, None, Setting(value=None, origin="default")),
        ("THE_KEY", None, Setting(value="THE_KEY", origin="backend")),
        ("THE_KEY", Secret("planted"), Setting(value="given", origin="request")),
        (None, Secret("planted"), Setting(value="given", origin="request")),
    ],
)
def test_the_credential_is_told_by_its_origin_and_never_itself(
    credential_env: str | None, given: Secret | None, setting: Setting
) -> None:
    catalog = Catalog(
        backends=[Backend(id="b", kind="chat_completions", base_url="http://h", credential_env=credential_env)],
        profiles=[Profile(id="f", backend="b", model="m")],
        prompts=[PromptDefinition(id="p", messages=(MessageTemplate(role="user", content="hi"),), profile="f")],
    )
    request = RunRequest(prompt_id="p", credential=given)
    selection = select(definitions_of(catalog), request).unwrap()
    told = details(complete(selection, request, {}).unwrap())
    assert told.settings["credential"] == setting
    assert b"planted" not in msgspec.json.encode(told)


def test_the_contract_is_told_as_it_is_used() -> None:
    request = RunRequest(prompt_id="team/ask", variables={"q": "1"})
    told = details(prepared(request))
    output: JSON = {"kind": "json_schema", "schema": NUMBERS, "name": "team_numbers", "max_repairs": 2}
    assert told.settings["output"] == Setting(value=output, origin="prompt")
    assert msgspec.to_builtins(told.output) == output
    own = RunRequest(prompt_id="team/ask", variables={"q": "1"}, output=OutputContract(kind="json"))
    assert details(prepared(own)).settings["output"] == Setting(
        value={"kind": "json", "schema": None, "name": None, "max_repairs": 0}, origin="request"
    )
    bare = RunRequest(prompt_id="bare", profile="fast")
    assert details(prepared(bare)).settings["output"].origin == "default"


def test_a_contract_that_cannot_be_used_is_refused_anew_each_time() -> None:
    bad = OutputContract(kind="json_schema", schema={"type": "nope"})
    first, second = (refused(prompt_id="bare", profile="fast", output=bad) for _ in range(2))
    assert first == second
    assert first is not second


def test_equal_contracts_that_name_a_schema_are_made_ready_once() -> None:
    ready = {
        id(
            selected(
                prompt_id="bare", profile="fast", output=OutputContract(kind="json_schema", schema="team/numbers")
            ).contract
        )
        for _ in range(3)
    }
    assert len(ready) == 1
    other = selected(
        prompt_id="bare",
        profile="fast",
        output=OutputContract(kind="json_schema", schema="team/numbers", max_repairs=1),
    ).contract
    named = selected(
        prompt_id="bare", profile="fast", output=OutputContract(kind="json_schema", schema="team/numbers", name="n")
    ).contract
    assert (other.output.max_repairs, named.output.name) == (1, "n")


def test_contracts_that_name_the_same_id_of_different_catalogs_are_told_apart() -> None:
    output = OutputContract(kind="json_schema", schema="s")
    ready = [contract_of(output, {"s": {"const": value}}).unwrap() for value in (1, True)]
    assert [contract.schema is not None and contract.schema.violations(1) == () for contract in ready] == [True, False]


def test_equal_looking_schemas_of_contracts_are_told_apart() -> None:
    one, true = (OutputContract(kind="json_schema", schema={"const": value}) for value in (1, True))
    assert one == true
    ready = [selected(prompt_id="bare", profile="fast", output=output).contract for output in (one, true)]
    assert [contract.schema is not None and contract.schema.violations(1) == () for contract in ready] == [True, False]


def test_contracts_with_equal_schemas_share_the_validator() -> None:
    ready = [
        selected(
            prompt_id="bare", profile="fast", output=OutputContract(kind="json_schema", schema={"type": "integer"})
        ).contract
        for _ in range(2)
    ]
    assert ready[0].schema is ready[1].schema
