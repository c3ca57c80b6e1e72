"""A catalog made in Python: complete and consistent once constructed."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from promptkit import (
    Backend,
    CacheControl,
    Catalog,
    EmbeddedOptions,
    MessageTemplate,
    OutputContract,
    Profile,
    PromptDefinition,
)
from promptkit.errors import Fault, InvalidConfigError

BACKEND = Backend(id="b", kind="chat_completions", base_url="http://localhost/v1")
PROFILE = Profile(id="fast", backend="b", model="m")


def prompt(content: str = "hi", **fields: Any) -> PromptDefinition:
    return PromptDefinition(
        **{"id": "p", "messages": [MessageTemplate(role="user", content=content)], "profile": "fast", **fields}
    )


def catalog(*prompts: PromptDefinition, **fields: Any) -> Catalog:
    return Catalog(**{"backends": [BACKEND], "profiles": [PROFILE], "prompts": prompts, **fields})


def faults(*prompts: PromptDefinition, **fields: Any) -> dict[str | None, Fault]:
    with pytest.raises(InvalidConfigError) as caught:
        catalog(*prompts, **fields)
    return {fault.key: fault for fault in caught.value.faults}


def test_it_has_its_definitions_by_id() -> None:
    made = catalog(prompt(), schemas={"s": {"type": "object"}})
    assert (list(made.prompts), list(made.profiles), list(made.backends)) == (["p"], ["fast"], ["b"])
    assert made.schemas == {"s": {"type": "object"}}
    assert repr(made) == "<promptkit.Catalog: 1 prompts, 1 profiles, 1 backends, 1 schemas>"
    assert repr(Catalog()) == "<promptkit.Catalog: 0 prompts, 0 profiles, 0 backends, 0 schemas>"
    assert catalog(*(p for p in [prompt()])).prompts == made.prompts


def test_it_cannot_be_changed_by_anyone() -> None:
    schemas: dict[str, Any] = {"s": {"enum": ["a"]}}
    prompts = [prompt()]
    made = catalog(schemas=schemas, prompts=prompts)
    schemas["s"]["enum"].append("b")
    schemas["t"] = {}
    prompts.clear()
    assert made.schemas == {"s": {"enum": ("a",)}}
    assert list(made.prompts) == ["p"]
    held: Any = made
    for change in (
        lambda: held.prompts.__setitem__("q", prompt()),
        lambda: held.schemas["s"].update({}),
        lambda: setattr(held, "prompts", {}),
    ):
        with pytest.raises((TypeError, AttributeError)):
            change()


CASES: list[tuple[Any, dict[str, Any], str, str, str | None]] = [
    (prompt(profile="fats"), {}, "prompts.p.profile", "no profile 'fats'", "fast"),
    (prompt(profile="zzzzzz"), {}, "prompts.p.profile", "the profiles are: 'fast'", None),
    (prompt(), {"profiles": [Profile(id="fast", backend="c", model="m")]}, "profiles.fast.backend", "'b'", None),
    (prompt("{{ topik }}"), {}, "prompts.p.messages[0].content", "declare", None),
    (prompt("{{ topik }}{{ topic }}", variables=["topic"]), {}, "prompts.p.messages[0].content", "'topik'", "topic"),
    (prompt("hi", variables=["topic"]), {}, "prompts.p.variables[0]", "no template of the prompt uses", None),
    (prompt("{{ inputs.dok }}"), {}, "prompts.p.messages[0].content", "input 'dok'", None),
    (prompt("hi", inputs=["doc"]), {}, "prompts.p.inputs[0]", "'doc'", None),
    (prompt("{{"), {}, "prompts.p.messages[0].content", "does not compile", None),
    (prompt("a\n{% x %}"), {}, "prompts.p.messages[0].content", "line 2 of the template", None),
    (prompt("{% include 'x' %}"), {}, "prompts.p.messages[0].content", "has no prompts folder", None),
    (prompt(session="{{ who }}"), {}, "prompts.p.session", "'who'", None),
    (prompt(session="{{"), {}, "prompts.p.session", "does not compile", None),
    (prompt(session=""), {}, "prompts.p.session", "is empty", None),
    (prompt(id="a/b", profile="fats"), {}, 'prompts."a/b".profile', "no profile 'fats'", "fast"),
    (
        prompt(messages=[MessageTemplate(role="user", content="", cache_control=CacheControl())]),
        {},
        "prompts.p.messages[0].cache_control",
        "without text",
        None,
    ),
    (
        prompt(messages=[MessageTemplate(role="user", content="", attachments=("photo",))], inputs=["foto"]),
        {},
        "prompts.p.messages[0].attachments[0]",
        "declare",
        "foto",
    ),
    (
        prompt(messages=[MessageTemplate(role="user", content="", attachments=("a", "a"))], inputs=["a"]),
        {},
        "prompts.p.messages[0].attachments[1]",
        "attached twice",
        None,
    ),
    (
        prompt(),
        {
            "backends": [BACKEND, Backend(id="here", kind="embedded")],
            "profiles": [PROFILE, Profile(id="slow", backend="here", model="m", reasoning_effort="low")],
        },
        "profiles.slow.reasoning_effort",
        "no effect on backend 'here'",
        None,
    ),
    (
        prompt(),
        {
            "backends": [Backend(id="b", kind="chat_completions", base_url="http://h", session_parameter="a.b")],
            "profiles": [Profile(id="fast", backend="b", model="m", extra={"a.b": 1})],
        },
        'profiles.fast.extra."a.b"',
        "carries the session id",
        None,
    ),
    (
        prompt(output=OutputContract(kind="json_schema", schema="sc")),
        {"schemas": {"sch": {}}},
        "prompts.p.output.schema",
        "no schema 'sc'",
        "sch",
    ),
    (
        prompt(output=OutputContract(kind="json_schema", schema={"$ref": "http://127.0.0.1:1/"})),
        {},
        "prompts.p.output.schema",
        "not a usable JSON Schema",
        None,
    ),
    (prompt(), {"schemas": {"s": {"type": "nope"}}}, "schemas.s.type", "not a usable", None),
    (prompt(), {"schemas": {"s": {"$ref": "#"}}}, "schemas.s", "never ends", None),
    (prompt(), {"schemas": {"s": "text"}}, "schemas.s", "neither an object", None),
    (prompt(), {"schemas": {"s": {"a": float("nan")}}}, "schemas.s", "nan", None),
    (prompt(), {"schemas": {1: {}}}, "schemas", "ids are text", None),
    (prompt(), {"schemas": []}, "schemas", "Expected a mapping", None),
    (prompt(), {"backends": [BACKEND, BACKEND]}, "backends[1]", "'b' stands twice", None),
    (prompt(), {"profiles": [PROFILE, PROFILE]}, "profiles[1]", "'fast' stands twice", None),
    (prompt(), {"prompts": [prompt(), prompt("ho")]}, "prompts[1]", "'p' stands twice", None),
    (prompt(), {"prompts": [PROFILE]}, "prompts[0]", "Expected a PromptDefinition, got `Profile`", None),
    (prompt(), {"prompts": 5}, "prompts", "got `int`", None),
    (prompt(), {"profiles": "fast"}, "profiles[0]", "got `str`", None),
]


@pytest.mark.parametrize(("wrong", "fields", "key", "sentence", "suggestion"), CASES)
def test_every_inconsistency_is_a_fault(
    wrong: Any, fields: dict[str, Any], key: str, sentence: str, suggestion: str | None
) -> None:
    found = faults(wrong, **fields)
    (fault,) = (fault for place, fault in found.items() if place is not None and place.startswith(key))
    assert sentence in fault.message
    assert fault.suggestion == suggestion


def test_all_faults_come_at_once() -> None:
    found = faults(
        prompt("{{ a }}", id="one", profile="no"),
        prompt("{{", id="two", session="{{ b }}"),
        prompt(id="two"),
        schemas={"s": {"type": "nope"}},
        profiles=[PROFILE, Profile(id="x", backend="y", model="m")],
    )
    assert set(found) == {
        "prompts[2]",
        "profiles.x.backend",
        "schemas.s.type",
        "prompts.one.profile",
        "prompts.one.messages[0].content",
        "prompts.two.messages[0].content",
        "prompts.two.session",
    }


def test_a_reference_to_a_schema_with_a_fault_does_not_dangle() -> None:
    contract = OutputContract(kind="json_schema", schema="s")
    assert set(faults(prompt(output=contract), schemas={"s": {"a": float("nan")}})) == {"schemas.s"}


def test_a_broken_template_hides_no_unused_variable_wrongly() -> None:
    assert set(faults(prompt("{{", variables=["a"]))) == {"prompts.p.messages[0].content"}


def test_an_attached_input_is_used_and_a_marked_message_may_consist_of_it() -> None:
    attached = MessageTemplate(role="user", content="", cache_control=CacheControl(), attachments=("photo",))
    catalog(prompt(messages=[attached], inputs=["photo"]))


@pytest.mark.parametrize(
    ("settings", "key", "says"),
    [
        ({"max_output_tokens": None}, "max_output_tokens", "is missing: backend 'a' needs it, because this dialect"),
        ({"seed": 1}, "seed", "has no effect on backend 'a': this dialect has no seed; leave it out"),
        ({"native_output": "json_object"}, "native_output", "is \"json_object\", which backend 'a' does not have"),
        ({"extra": {"system": "x"}}, "extra.system", "is set by promptkit for backend 'a'"),
        ({"extra": {"stop_sequences": ["x"]}}, "extra.stop_sequences", "use the setting stop"),
    ],
)
def test_what_a_dialect_lacks_needs_or_sets_itself_is_a_fault_of_the_profile(
    settings: dict[str, Any], key: str, says: str
) -> None:
    anthropic = Backend(id="a", kind="anthropic_messages", base_url="https://h")
    profile = Profile(id="p", backend="a", model="m", **{"max_output_tokens": 99, **settings})
    with pytest.raises(InvalidConfigError) as caught:
        catalog(backends=[anthropic], profiles=[profile])
    (fault,) = caught.value.faults
    assert fault.key == f"profiles.p.{key}"
    assert says in fault.message


def test_a_model_of_your_own_may_reason() -> None:
    own = Backend(id="here", kind="embedded", embedded=EmbeddedOptions(model_path="m.gguf"))
    catalog(backends=[own], profiles=[Profile(id="p", backend="here", model="m", reasoning_effort="low")])


@pytest.mark.parametrize(
    "content", ["{% if a is defined %}x{% endif %}", "{{ a|default('x') }}", "{% for b in a %}{% endfor %}"]
)
def test_a_name_that_is_only_tested_counts_as_used(content: str) -> None:
    catalog(prompt(content, variables=["a"]))


def test_a_variable_may_be_called_like_a_function_of_jinja() -> None:
    catalog(prompt("{{ range }} {{ dict }}", variables=["range", "dict"]))
    catalog(prompt("{% for i in range(3) %}{{ i }}{% endfor %}"))


def test_two_catalogs_combine_and_neither_changes() -> None:
    left = catalog(prompt(), schemas={"s": {}})
    right = Catalog(
        backends=[Backend(id="c", kind="embedded")],
        profiles=[Profile(id="slow", backend="c", model="m")],
        prompts=[prompt(id="q", profile="slow")],
        schemas={"t": {}},
    )
    both = left | right
    assert list(both.prompts) == ["p", "q"]
    assert list(both.profiles) == ["fast", "slow"]
    assert list(both.backends) == ["b", "c"]
    assert list(both.schemas) == ["s", "t"]
    assert list(left.prompts) == ["p"]
    assert (left | Catalog()).prompts == left.prompts


def test_an_id_on_both_sides_is_a_fault_for_each() -> None:
    left = catalog(prompt(), schemas={"s": {}})
    with pytest.raises(InvalidConfigError) as caught:
        left | left
    assert [fault.key for fault in caught.value.faults] == ["prompts.p", "profiles.fast", "backends.b", "schemas.s"]
    with pytest.raises(TypeError):
        left | {}  # type: ignore[operator]


def test_copies_are_the_same_catalog_and_a_pickle_has_the_same_definitions() -> None:
    made = catalog(prompt("{{ a }}", variables=["a"]), schemas={"s": {"enum": [1]}})
    assert copy.copy(made) is copy.deepcopy(made) is made
    back = pickle.loads(pickle.dumps(made))  # noqa: S301  # made here
    assert (back.prompts, back.profiles, back.backends, back.schemas) == (
        made.prompts,
        made.profiles,
        made.backends,
        made.schemas,
    )
