"""Templates as values: the names that they take from outside, fragments, limits."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from returns.pipeline import is_successful
from returns.result import Result, Success

from promptkit._values.frozen import FrozenDict, frozen_json
from promptkit._values.template_faults import Place
from promptkit._values.templates import Include, TemplateFault, compile_template, includes_of, names_of

NAMES = ("a", "b", "c")


def outcome(source: str, values: dict[str, Any], fragments: dict[str, str] | None = None) -> Result[str, TemplateFault]:
    compiled = compile_template(source, fragments or {}).alt(lambda faults: faults[0])
    return compiled.bind(lambda template: template.render(frozen_json(values), {"doc": "D"}))


def only_fault(source: str, fragments: dict[str, str] | None = None) -> TemplateFault:
    (fault,) = compile_template(source, fragments or {}).failure()
    return fault


# ------------------------------------------------------------------ names


@pytest.mark.parametrize(
    ("source", "variables"),
    [
        ("{% if x %}{% set y = 1 %}{% else %}{% set y = 2 %}{% endif %}{{ y }}", {"x"}),
        ("{% if x %}{% set y = 1 %}{% elif z %}{% set y = 2 %}{% else %}{% set y = 3 %}{% endif %}{{ y }}", {"x", "z"}),
        ("{% if x %}{% set y = 1 %}{% elif z %}{% set y = 2 %}{% endif %}{{ y }}", {"x", "y", "z"}),
        ("{% if x %}{% set y = 1 %}{% endif %}{{ y }}", {"x", "y"}),
        ("{% set y = x %}{{ y }}", {"x"}),
        ("{{ y }}{% set y = x %}", {"x", "y"}),
        ("{% set y = y or 1 %}{{ y }}", {"y"}),
        ("{% set y, z = x %}{{ y }}{{ z }}", {"x"}),
        ("{% set y %}{{ x }}{% endset %}{{ y }}", {"x"}),
        ("{% set y | replace(p, q) %}{{ x }}{% endset %}{{ y }}", {"p", "q", "x"}),
        ("{% set n = namespace(v=x) %}{% set n.v = z %}{{ n.v }}", {"x", "z"}),
        ("{% set n.v = 1 %}", {"n"}),
        ("{% for i in xs %}{{ i }}{{ loop.index }}{% set j = i %}{{ j }}{% endfor %}", {"xs"}),
        ("{% for i in xs %}{% set j = i %}{% endfor %}{{ i }}{{ j }}", {"xs", "i", "j"}),
        ("{% for i in i %}{{ i }}{% endfor %}", {"i"}),
        ("{% for k, v in xs if k %}{{ v }}{% else %}{{ k }}{% endfor %}", {"xs", "k"}),
        ("{% for i in xs recursive %}{{ loop(i.xs) }}{% endfor %}", {"xs"}),
        ("{% with a = x, b = a %}{{ a }}{{ b }}{% endwith %}{{ b }}", {"x", "a", "b"}),
        (
            "{% macro m(p, q=x) %}{{ p }}{{ q }}{{ r }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1) }}{{ p }}",
            set("xrp"),
        ),
        ("{% macro m() %}{{ caller(1) }}{% endmacro %}{% call(c) m() %}{{ c }}{{ x }}{% endcall %}", {"x"}),
        ("{% macro m() %}{{ y }}{% endmacro %}{% set y = 1 %}{{ m() }}", set()),
        ("{% macro m(n) %}{{ m(n - 1) if n }}{% endmacro %}{{ m(2) }}", set()),
        ("{% filter replace(p, q) %}{{ x }}{% set y = 1 %}{% endfilter %}{{ y }}", {"p", "q", "x", "y"}),
        ("{{ x is defined }}{{ y|default(z) }}", {"x", "y", "z"}),
        ("{{ x.y[z].w }}{{ [p, {q: r}, (s,)] }}{{ t[u:v] }}{{ f(g, h=i) }}", set("xzpqrstuvfgi")),
        ("{{ a if b else c }}{{ not d }}{{ e ~ f }}{{ g in h }}", set("abcdefgh")),
        ("{{ range(2) }}{{ dict(a=x) }}{% raw %}{{ nothing }}{% endraw %}{# {{ nothing }} #}", {"x"}),
    ],
)
def test_a_name_is_used_if_on_some_way_nothing_in_the_template_has_set_it(source: str, variables: set[str]) -> None:
    template = compile_template(source).unwrap()
    assert template.variables == variables
    assert (template.inputs, template.all_inputs) == (frozenset(), False)


@pytest.mark.parametrize(
    ("source", "inputs", "all_inputs"),
    [
        ("{{ inputs.doc }}{{ inputs['other'] }}", {"doc", "other"}, False),
        ("{% if inputs.doc is defined %}{% endif %}", {"doc"}, False),
        ("{% for inputs in xs %}{{ inputs.a }}{% endfor %}", set(), False),
        ("{% for i in xs %}{{ inputs.a }}{% endfor %}", {"a"}, False),
        ("{% macro m(inputs) %}{{ inputs.a }}{% endmacro %}", set(), False),
        ("{% for k, v in inputs|items %}{{ v }}{% endfor %}", set(), True),
        ("{% set i = inputs %}{{ i.doc }}", set(), True),
        ("{{ inputs[n] }}{{ inputs.doc }}", {"doc"}, True),
        ("{% if 'doc' in inputs %}{% endif %}", set(), True),
        ("{{ inputs|attr('doc') }}", set(), True),
        ("{{ inputs }}", set(), True),
        ("{{ inputs.doc[inputs.n] }}", {"doc", "n"}, False),
    ],
)
def test_inputs_are_used_by_name_or_all_of_them(source: str, inputs: set[str], all_inputs: bool) -> None:  # noqa: FBT001
    template = compile_template(source).unwrap()
    assert template.inputs == inputs
    assert template.all_inputs == all_inputs
    assert "inputs" not in template.variables


@pytest.mark.parametrize(
    ("source", "variables"),
    [
        ("{{ m }}{% macro m() %}{{ y }}{% endmacro %}{% set y = 1 %}{{ m() }}", {"m"}),
        ("{% macro m() %}{{ y }}{% endmacro %}{{ m() }}{% if x %}{% set y = 1 %}{% endif %}", {"x", "y"}),
        ("{% macro m() %}{{ y }}{% endmacro %}{% if x %}{% set y = 1 %}{% endif %}{{ m() }}", {"x", "y"}),
        ("{% macro m() %}{{ y }}{% endmacro %}{{ m() }}{{ y }}{% set y = 1 %}", {"y"}),
        ("{% macro m() %}{{ y }}{% endmacro %}{{ m() }}", {"y"}),
        ("{% macro m() %}{{ y }}{% endmacro %}{% set n = m %}{% set y = 1 %}{{ n() }}", {"y"}),
        ("{% macro m() %}{{ y }}{% endmacro %}{% for y in xs %}{{ m() }}{% endfor %}{% set y = 1 %}", {"xs", "y"}),
        ("{% macro m() %}{{ y }}{% endmacro %}{% macro n() %}{{ m() }}{% endmacro %}{% set y = 1 %}{{ n() }}", set()),
        ("{% macro n() %}{{ m() }}{% endmacro %}{% macro m() %}{{ y }}{% endmacro %}{{ n() }}{% set y = 1 %}", {"y"}),
        ("{% macro n() %}{{ m() }}{% endmacro %}{% macro m() %}{{ n() }}{% endmacro %}{{ n() }}", set()),
        ("{% macro m() %}{{ y }}{% endmacro %}{% call m() %}{% endcall %}{% set y = 1 %}", {"y"}),
        ("{% if x %}{% macro m() %}{{ y }}{% endmacro %}{{ m() }}{% endif %}{% set y = 1 %}", {"x", "y"}),
    ],
)
def test_a_macro_finds_what_is_set_when_it_is_called(source: str, variables: set[str]) -> None:
    assert compile_template(source).unwrap().variables == variables


def test_functions_of_jinja_need_not_be_declared_and_count_as_used() -> None:
    template = compile_template("{{ range(2) }}{{ dict() }}").unwrap()
    assert template.variables == frozenset()
    assert template.optional == {"range", "dict"}


@pytest.mark.parametrize(
    ("source", "name", "normal"),
    [
        ("{{ ﬁ }}", "\\ufb01", "fi"),
        ("{{ \N{MICRO SIGN} }}", "\\xb5", "\N{GREEK SMALL LETTER MU}"),
        ("{{ cafe\u0301 }}", "cafe\\u0301", "caf\xe9"),
        ("{% set ﬁ = 'S' %}{{ fi }}", "\\ufb01", "fi"),
        ("{% for ﬁ in xs %}{% endfor %}", "\\ufb01", "fi"),
        ("{% set n = namespace() %}{% with ﬁ = n %}{% endwith %}", "\\ufb01", "fi"),
        ("{% macro ﬁ() %}{% endmacro %}", "\\ufb01", "fi"),
        ("{% macro m(ﬁ) %}{% endmacro %}", "\\ufb01", "fi"),
        ("{{ dict(ﬁ=1) }}", "\\ufb01", "fi"),
        ("{{ 'x'|replace(old='x', ﬁ='y') }}", "\\ufb01", "fi"),
        ("{% set fi = namespace() %}{% set ﬁ.x = 1 %}", "\\ufb01", "fi"),
        ("{{ inputs.ﬁ }}{{ inputs['ﬁ'] }}", "\\ufb01", "fi"),
    ],
)
def test_a_name_that_python_would_take_for_another_one_is_refused_with_its_normal_form(
    source: str, name: str, normal: str
) -> None:
    assert only_fault("\n" + source) == TemplateFault(
        f"the name '{name}' is not in Unicode's normal form NFKC: write {normal!r}", 2
    )


def test_keys_and_texts_have_any_form() -> None:
    assert outcome("{{ d.ﬁ }}{{ d['ﬁ'] }}{{ 'ﬁ' }}{{ d.fi }}", {"d": {"ﬁ": 1, "fi": 2}}) == Success("11ﬁ2")


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("{{ a|length }}\n{{ length }}", ("length", 2, None)),
        ("{% for y in xs %}{{ y }}{% endfor %}\n\n{{ y }}", ("y", 3, None)),
        ("{{ m(key=1) }}\n{{ key }}", ("key", 2, None)),
        ("{{ d.key }}{{ 'key' }}{# key #}\n{{ key }}", ("key", 2, None)),
        ("\n{% include 'f' %}\n{{ y }}", ("y", 3, None)),
        ("{% set g = 1 %}\n{% include 'f' %}", ("y", 2, "f")),
        ("{% macro m() %}\n{{ y }}{% endmacro %}{{ m() }}{{\ny }}", ("y", 2, None)),
        ("{{ a if\nb else\nb + a }}", ("b", 2, None)),
    ],
)
def test_the_place_of_a_name_is_that_of_its_first_real_use(source: str, place: tuple[str, int, str | None]) -> None:
    name, line, fragment = place
    fragments = {"f": "{% set h = 1 %}{{ h }}\n{{ y }}"}
    assert compile_template(source, fragments).unwrap().names.variables[name] == Place(line, fragment)


def test_the_place_of_an_input_is_that_of_its_first_real_use() -> None:
    source = "{% for inputs in xs %}{{ inputs.doc }}{% endfor %}{{ d.doc }}\n{{ inputs['doc'] }}\n{{ inputs.doc }}"
    assert compile_template(source).unwrap().names.inputs == {"doc": Place(2, None)}


def test_an_input_is_found_by_the_attr_filter_as_well() -> None:
    assert outcome("{{ inputs|attr('doc') }}", {}) == Success("D")


names = st.sampled_from(NAMES)
output = names.map(lambda name: f"{{{{ {name} }}}}")
setting = st.builds(lambda name, value: f"{{% set {name} = {value} %}}", names, names | st.just("1"))


def branching(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(
        lambda test, one, two: f"{{% if {test} == 'a' %}}{one}{{% else %}}{two}{{% endif %}}", names, inner, inner
    )


def nesting(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return (
        branching(inner)
        | st.builds(lambda i, xs, body: f"{{% for {i} in {xs} %}}{body}{{% endfor %}}", names, names, inner)
        | st.builds(
            lambda name, value, body: f"{{% with {name} = {value} %}}{body}{{% endwith %}}", names, names, inner
        )
        | st.builds(lambda name, body: f"{{% set {name} %}}{body}{{% endset %}}", names, inner)
        | st.builds(lambda body: f"{{% filter upper %}}{body}{{% endfilter %}}", inner)
        | st.builds(lambda arg, body: f"{{% macro m({arg}) %}}{body}{{% endmacro %}}{{{{ m('x') }}}}", names, inner)
    )


def several(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(inner, min_size=1, max_size=4).map("".join)


flat = st.recursive(output | setting, lambda inner: branching(several(inner)), max_leaves=12)
nested = st.recursive(output | setting, lambda inner: nesting(several(inner)), max_leaves=12)


@given(several(flat))
def test_with_every_used_name_given_nothing_is_undefined(source: str) -> None:
    template = compile_template(source).unwrap()
    assert is_successful(outcome(source, dict.fromkeys(template.variables, "a"))), source
    assert is_successful(outcome(source, dict.fromkeys(template.variables, "b"))), source


macros = st.sampled_from(["m", "n"])
called = macros.map(lambda name: f"{{{{ {name}() if {name} is not string }}}}")


def with_macros(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return (
        nesting(inner)
        | st.builds(lambda name, body: f"{{% macro {name}() %}}{body}{{% endmacro %}}", macros, inner)
        | st.builds(lambda test, body: f"{{% if {test} == 'a' %}}{body}{{% endif %}}", names, inner)
        | st.builds(lambda test, body: f"{{% if {test} != 'a' %}}{body}{{% endif %}}", names, inner)
    )


calling = st.recursive(output | setting | called, lambda inner: with_macros(several(inner)), max_leaves=16)


@given(several(calling))
@example("{% macro m() %}{{ b }}{% endmacro %}{{ m() }}{% if a %}{% set b = 1 %}{% endif %}")
@example("{% macro m() %}{{ b }}{% endmacro %}{{ m() }}{% if a != 'a' %}{% set b = 1 %}{% endif %}")
@example("{% if a %}{{ range(2) }}{% endif %}{% set range = 1 %}")
def test_with_every_used_name_given_what_is_undefined_is_a_used_name_that_is_set_below(source: str) -> None:
    template = compile_template(source).unwrap()
    for value in "ab":
        rendered = outcome(source, dict.fromkeys(template.variables, value))
        message = "" if is_successful(rendered) else rendered.failure().message
        assert "was not given" not in message, source
        if "is read in an inner block above" in message:
            assert message.split("'")[1] in template.variables | template.optional, source


@pytest.mark.parametrize(
    ("source", "name"), [("{% macro m(a=a) %}{% endmacro %}", "a"), ("{% macro m(a=b ~ 1, b=2) %}{% endmacro %}", "b")]
)
def test_a_default_that_reads_an_argument_without_a_value_is_a_fault(source: str, name: str) -> None:
    assert only_fault(source).message == (
        f"the default of 'a' reads {name!r}, an argument that has no value yet: rename one"
    )
    assert outcome("{% macro m(a, b=a, c=b) %}{{ c }}{% endmacro %}{{ m(1) }}", {}) == Success("1")


@given(several(nested))
def test_a_name_that_is_not_used_changes_nothing(source: str) -> None:
    given_all = dict.fromkeys(NAMES, "ab")
    template = compile_template(source).unwrap()
    used = template.variables | template.optional
    assert outcome(source, given_all).value_or(None) == outcome(source, dict.fromkeys(used, "ab")).value_or(None)


@given(several(nested))
def test_what_is_read_through_a_fragment_is_what_is_read_in_its_place(source: str) -> None:
    inline = compile_template(f"{{% with %}}{source}{{% endwith %}}{{{{ a }}}}").unwrap()
    included = compile_template("{% include 'f' %}{{ a }}", {"f": source}).unwrap()
    assert included.variables == inline.variables


@given(several(flat))
def test_a_fragment_renders_as_its_text_in_its_place(source: str) -> None:
    values = dict.fromkeys(NAMES, "a")
    assert outcome("[{% include 'f' %}]", values, {"f": source}) == outcome(f"[{source}]", values)


# ------------------------------------------------------------------ fragments


def test_includes_are_listed_in_order_with_their_lines() -> None:
    source = "{% include 'tone.txt' %}\n{% if x %}\n{% include \"a/b.md\" %}{% endif %}{% include 'tone.txt' %}"
    assert includes_of(source) == (Include("tone.txt", 1), Include("a/b.md", 3), Include("tone.txt", 3))
    assert includes_of("plain") == ()


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("{% include name %}", "not literal"),
        ("{% include ['a', 'b'] %}", "not literal"),
        ("{% include ('a', 'b') %}", "not literal"),
        ("{% include 'a' if x else 'b' %}", "not literal"),
        ("{% include 'a' ~ x %}", "not literal"),
        ("{% include 5 %}", "not literal"),
        ("{% include 'a' ignore missing %}", "leave it out"),
        ("{% include 'a' without context %}", "leave it out"),
        ("{% include '/etc/passwd' %}", "not inside the prompts folder"),
        ("{% include '../a' %}", "not inside the prompts folder"),
        ("{% include 'a/../b' %}", "not inside the prompts folder"),
        ("{% include 'C:/a' %}", "not inside the prompts folder"),
        (r"{% include 'a\\b' %}", "with '/'"),
        ("{% include '' %}", "no name of a file"),
        (r"{% include 'a\x00b' %}", "no name of a file"),
        (r"{% include 'a\ud800' %}", "no name of a file"),
        ("{% include './a' %}", "without empty parts"),
        ("{% include 'a//b' %}", "without empty parts"),
        ("{% include 'a/' %}", "without empty parts"),
        ("{% import 'a' as a %}", "include a fragment"),
        ("{% from 'a' import b %}", "include a fragment"),
        ("{% extends 'a' %}", "include a fragment"),
        ("{% block a %}{% endblock %}", "include a fragment"),
        ("{% if x %}{{", "does not compile"),
    ],
)
def test_what_no_template_may_load_is_a_fault_with_its_line(source: str, sentence: str) -> None:
    fault = only_fault("\n" + source, {"a": "", "b": ""})
    assert sentence in fault.message
    assert (fault.line, fault.fragment) == (2, None)
    assert includes_of("\n" + source) == ()


def test_a_fragment_that_is_not_there_is_a_fault_with_the_remedy() -> None:
    fault = only_fault("\n{% include 'x' %}", {"y": ""})
    assert fault == TemplateFault(
        "includes 'x', and a prompt made in Python has no prompts folder: put the text into content", 2
    )


@pytest.mark.parametrize(
    ("fragments", "fault"),
    [
        ({"f": "a\n{{ }}"}, ("does not compile", 2, "f")),
        ({"f": "a\n{{ x|uper }}"}, ("did you mean 'upper'", 2, "f")),
        ({"f": "{% include 'g' %}", "g": "\n\n{% break %}"}, ("does not compile", 3, "g")),
        ({"f": "\n{% include 'f' %}"}, ("includes itself without an end: f -> f", 2, "f")),
        (
            {"f": "{% include 'g' %}", "g": "\n{% include 'f' %}"},
            ("includes itself without an end: f -> g -> f", 1, "f"),
        ),
        ({"f": "\n{% include 'gone' %}"}, ("includes 'gone'", 2, "f")),
        ({"f": "\n{% include '../g' %}"}, ("not inside", 2, "f")),
        ({"f": "\n{{ loop.index }}"}, ("outside a loop", 2, "f")),
    ],
)
def test_a_fault_of_a_fragment_names_it_and_its_line(fragments: dict[str, str], fault: tuple[str, int, str]) -> None:
    found = only_fault("text\n\n\n{% include 'f' %}", fragments)
    assert fault[0] in found.message
    assert (found.line, found.fragment) == fault[1:]


@pytest.mark.parametrize(
    ("fragments", "fault"),
    [
        ({"f": "a\n{{ x }}"}, ("'x' was not given", 2, "f")),
        ({"f": "{% include 'g' %}", "g": "a\n\n{{ 1 / 0 }}"}, ("ZeroDivisionError", 3, "g")),
        ({"f": "{{ m() }}"}, ("ZeroDivisionError", 2, None)),
    ],
)
def test_a_failure_to_render_names_the_fragment_and_its_line(
    fragments: dict[str, str], fault: tuple[str, int, str | None]
) -> None:
    source = "{% macro m() %}\n{{ 1 / 0 }}{% endmacro %}{% include 'f' %}"
    found = outcome(source, {}, fragments).failure()
    assert fault[0] in found.message
    assert (found.line, found.fragment) == fault[1:]


@pytest.mark.parametrize(
    ("source", "fragments", "text"),
    [
        ("{% for x in xs %}{% include 'f' %}{% endfor %}", {"f": "{{ loop.index }}{{ x }} "}, "1a 2b "),
        ("{% for x in xs %}{% include 'f' %}{% endfor %}", {"f": "{% include 'g' %}", "g": "{{ loop.index }}"}, "12"),
        ("{% for x in xs %}{% if x %}{% include 'f' %}{% endif %}{% endfor %}", {"f": "{{ loop.length }}"}, "22"),
        ("{% set y = 1 %}{% include 'f' %}{{ y }}", {"f": "{{ y }}{% set y = 2 %}{{ y }}"}, "121"),
        ("{% macro m(p) %}{% include 'f' %}{% endmacro %}{{ m(1) }}", {"f": "<{{ p }}>"}, "<1>"),
        ("{% macro m(p) %}<{{ p }}>{% endmacro %}{% include 'f' %}", {"f": "{{ m(2) }}"}, "<2>"),
        ("{% with p = 3 %}{% include 'f' %}{% endwith %}", {"f": "{{ p }}"}, "3"),
        ("{% include 'f' %}{% include 'f' %}", {"f": "{{ inputs.doc }}\n"}, "D\nD\n"),
        ("{% set t %}{% include 'f' %}{% endset %}{{ t|upper }}", {"f": "a"}, "A"),
        ("{% include 'a/f.txt' %}", {"a/f.txt": "{% include 'g.txt' %}", "g.txt": "root", "a/g.txt": "no"}, "root"),
    ],
)  # fmt: skip
def test_a_fragment_finds_what_is_set_where_it_is_included(source: str, fragments: dict[str, str], text: str) -> None:
    assert compile_template(source, fragments).unwrap().variables <= {"xs"}
    assert outcome(source, {"xs": ["a", "b"]}, fragments) == Success(text)


@given(st.text())
@example("{{ x }}")
@example("{% include 'f' %}")
@example("\r\n")
def test_values_appear_byte_for_byte_through_fragments_and_loops(text: str) -> None:
    fragments = {"f": "{{ x }}{% for t in xs %}{% include 'g' %}{% endfor %}", "g": "<{{ t }}{{ inputs.doc }}>"}
    template = compile_template("{% include 'f' %}", fragments).unwrap()
    rendered = template.render(frozen_json({"x": text, "xs": [text, text]}), {"doc": text})
    assert rendered == Success(text + f"<{text}{text}>" * 2)


def test_a_template_is_what_its_source_and_its_fragments_say() -> None:
    one = compile_template("{% include 'f' %}", {"f": "1"})
    assert compile_template("{% include 'f' %}", FrozenDict({"f": "1", "unreached": "x"})).unwrap().render({}, {}) == (
        one.unwrap().render({}, {})
    )
    other = {"f": "{% include 'g' %}", "g": "2"}
    assert outcome("{% include 'f' %}", {}, other) == Success("2")
    other["g"] = "3"
    assert outcome("{% include 'f' %}", {}, other) == Success("3")
    assert outcome("{% include 'f' %}", {}, {"f": "1"}) == Success("1")


def test_a_fragment_with_a_fault_matters_only_to_those_who_include_it() -> None:
    fragments = {"f": "1", "bad": "{{"}
    assert outcome("{% include 'f' %}", {}, fragments) == Success("1")
    assert not is_successful(compile_template("{% include 'bad' %}", fragments))


def test_includes_end() -> None:
    twice = {str(i): f"{{% include '{i + 1}' %}}" * 2 for i in range(40)} | {"40": "ha"}
    assert "more than 1,000 fragments" in only_fault("{% include '0' %}", twice).message
    assert outcome("{% include '35' %}", {}, twice) == Success("ha" * 32)
    deep = {str(i): f"{{% include '{i + 1}' %}}" for i in range(2000)} | {"2000": "ha"}
    assert "depth of more than 50" in only_fault("{% include '0' %}", deep).message
    assert outcome("{% include '1951' %}", {}, deep) == Success("ha")


# ------------------------------------------------------------------ faults that only a look at the whole finds


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("{% if x %}{{ y|uper }}{% endif %}", "no filter 'uper'; did you mean 'upper'?"),
        ("{% if x is strng %}{% endif %}", "no test 'strng'; did you mean 'string'?"),
        ("{{ x|pprint }}", "|tojson(indent=2)"),
        ("{{ xs|random }}", "another text each time"),
        ("{% autoescape true %}{{ x }}{% endautoescape %}", "autoescape"),
        ("{% autoescape false %}{{ x }}{% endautoescape %}", "autoescape"),
        ("{{ loop.index }}", "outside a loop"),
        ("{% for x in xs %}{% else %}{{ loop.index }}{% endfor %}", "outside a loop"),
        ("{{ self.title() }}", "inheritance"),
        ("{{ super() }}", "inheritance"),
        (r"{{ x|replace('\ud83d\ude00', '') }}", "lone surrogate"),
        ("{{ 1e999 }}", "too large"),
        ("{{ " + "9" * 5000 + " }}", "more digits"),
    ],
    ids=lambda value: value[:40],
)
def test_faults_are_found_before_rendering(source: str, sentence: str) -> None:
    assert sentence in only_fault(source).message


def test_every_fault_is_told_in_the_order_of_the_text() -> None:
    source = "{{ a|foo }}\n{{ a|bar }}\n{{ undeclared }}{{ loop }}\n{{ a is quux }}\n{% include 'g' %}{% include 'f' %}"
    faults = compile_template(source, {"f": "{% include '../a' %}\n{% include '/b' %}{{ zz }}", "g": "{{"}).failure()
    assert [(fault.fragment, fault.line, fault.message[:25]) for fault in faults] == [
        (None, 1, "there is no filter 'foo'"),
        (None, 2, "there is no filter 'bar'"),
        (None, 3, "'loop' is used outside a "),
        (None, 4, "there is no test 'quux'"),
        ("f", 1, "includes '../a', which is"),
        ("f", 2, "includes '/b', which is n"),
        ("g", 1, "does not compile: unexpec"),
    ]


def test_names_are_read_whatever_faults_there_are() -> None:
    source = (
        "{{ a|foo }}{% include b %}{% include 'f' %}{% import 'x' as y %}{% from 'x' import u, v as w %}{{ y }}{{ u }}"
        "{% block t %}{% set s = 1 %}{{ s }}{% endblock %}{% autoescape c %}{% set r = 1 %}{{ r }}{% endautoescape %}"
        "{{ w }}"
    )
    names = names_of(source, {"f": "{% include 'g' %}{{ d }}", "g": "{% include 'f' %}{{ e }}"})
    assert names is not None
    assert set(names.variables) == set("abcde")
    assert names_of("{{ a }}{{") is None


def test_every_fragment_that_python_does_not_compile_is_told() -> None:
    fragments = {"f": "{{ dict(a=1, a=2) }}", "g": "{{ dict(b=1, b=2) }}"}
    faults = compile_template("{% include 'f' %}{% include 'g' %}", fragments).failure()
    assert [fault.fragment for fault in faults] == ["f", "g"]


TOKENS = (
    *(
        "{{",
        "}}",
        "{%",
        "%}",
        "{#",
        "#}",
        "-",
        "(",
        ")",
        "[",
        "]",
        "|",
        "~",
        ".",
        ",",
        "=",
        "'",
        "a",
        "inputs",
        "loop",
        "0",
    ),
    *(
        "if",
        "else",
        "elif",
        "endif",
        "for",
        "in",
        "endfor",
        "set",
        "endset",
        "macro",
        "endmacro",
        "call",
        "endcall",
        "is",
    ),
    *(
        "include",
        "'f'",
        "import",
        "with",
        "endwith",
        "filter",
        "endfilter",
        "upper",
        "items",
        "defined",
        "\n",
        " ",
        " ",
    ),
)


@given(st.lists(st.sampled_from(TOKENS), max_size=30).map(" ".join) | st.text())
def test_whatever_stands_in_a_source_is_a_template_or_a_fault(source: str) -> None:
    values = {"a": [{"a": "b"}]}
    for rendered in (outcome(source, values), outcome("{% include 'f' %}", values, {"f": source})):
        assert isinstance(rendered.value_or(""), str)
        assert is_successful(rendered) or rendered.failure().message
    assert isinstance(includes_of(source), tuple)
    assert names_of(source) is not None or not is_successful(compile_template(source))


def test_a_source_that_was_too_deep_for_the_stack_once_is_tried_again() -> None:
    source = "{{ " + "-" * 100 + "1 }}"

    def below(depth: int) -> Result[Any, tuple[TemplateFault, ...]]:
        return below(depth - 1) if depth else compile_template(source)

    room = sys.getrecursionlimit() - len(inspect.stack(0))
    assert [fault.message for fault in below(room - 60).failure()] == ["is nested too deeply"]
    assert outcome(source, {}) == Success("1")


# ------------------------------------------------------------------ limits


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'x' * 10**10 }}",
        "{{ 10**10 * 'x' }}",
        "{{ [1] * 10**9 }}",
        "{{ 10 ** (10 ** 10) }}",
        "{{ 2 ** 14001 }}",
        "{{ 'x'|center(10**10) }}",
        "{{ 'x'|indent(10**10) }}",
        "{{ 'x'|replace('', 'y' * 10**8) }}",
        "{{ ('a' * 10**6)|replace('a', 'b' * 10**6) }}",
        "{{ ('\\n' * 10**6)|indent('b' * 10**6) }}",
        "{{ 'x'|wordwrap(1, true, 'y' * 10**8 ~ 'y') }}",
        "{{ ['y' * 10**8, 'y']|join }}",
        "{{ '%10001d' % 1 }}",
        "{{ '%*d' % (10**10, 1) }}",
        "{{ '%.10001f' % 1.0 }}",
        "{{ '%99999999999999999999s'|format('x') }}",
        "{{ [1]|batch(10**10, 0)|list }}",
        "{{ [1]|slice(10**10, 0)|list }}",
        "{{ 1.5|round(10**10, 'ceil') }}",
        "{{ {'a': 1}|tojson(indent=10**10) }}",
        "{{ range(10**9) }}",
        "{% set n = namespace(v='xxxxxxxxxx') %}{% for i in range(60) %}{% set n.v = n.v ~ n.v %}{% endfor %}",
        "{% set n = namespace(v='xxxxxxxxxx') %}{% for i in range(60) %}{% set n.v = n.v + n.v %}{% endfor %}",
        "{% set n = namespace(v=[1]) %}{% for i in range(60) %}{% set n.v = n.v + n.v %}{% endfor %}",
        "{% set n = namespace(v=[1]) %}{% for i in range(60) %}{% set n.v = [n.v, n.v] %}{% endfor %}{{ n.v }}",
        "{% set n = namespace(v=7) %}{% for i in range(60) %}{% set n.v = n.v * n.v %}{% endfor %}",
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "{% for i in range(100000) %}{% for j in range(100000)|select %}{% endfor %}{% endfor %}",
        "{% for i in range(50000) %}{% for j in range(50000) %}a line of some length{% endfor %}{% endfor %}",
        "{% for i in [range(100000)] * 50 recursive %}{{ loop(i) if i is not number }}{% endfor %}",
        "{% set t = 'x' * 10**7 %}{% for i in range(100) %}{{ t }}{% endfor %}",
        "{% for i in range(100000) %}{% for j in range(10) %}{{ dict() }}{% endfor %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    ],
)
def test_no_template_makes_too_much_or_goes_on_for_ever(source: str) -> None:
    fault = outcome(source, {}).failure()
    assert re.match(
        r"would make|a calculated|takes more than|recurses|OverflowError|.* more than [\d,]+$", fault.message
    )
    assert fault.line in {1, None}


def test_the_limits_leave_room_for_what_prompts_are() -> None:
    rows = [[f"{row}-{column}" for column in range(10)] for row in range(20_000)]
    table = "{% for row in rows %}{{ loop.index }}:{% for cell in row %} {{ cell }}{% endfor %}\n{% endfor %}"
    text = outcome(table, {"rows": rows}).unwrap()
    assert text.count("\n") == 20_000
    assert text.endswith("20000: " + " ".join(rows[-1]) + "\n")
    assert outcome("{{ x }}", {"x": "y" * 50_000_000}).unwrap() == "y" * 50_000_000
    assert outcome("{{ 2 ** 13999 }}{{ '=' * 80 }}", {}).unwrap() == str(2**13999) + "=" * 80


@pytest.mark.parametrize(
    ("source", "line"),
    [("{{ '%c' % 55296 }}", 1), ("a\n\n{{ '%c' % 55296 }}é", 3), ("é{% set x = '%c' % 57343 %}\n{{ x }}", 2)],
)
def test_a_lone_surrogate_that_a_template_makes_is_a_fault_with_its_line(source: str, line: int) -> None:
    fault = outcome(source, {}).failure()
    assert "lone surrogate" in fault.message
    assert fault.line == line
    assert outcome("\n{% include 'f' %}", {}, {"f": source}).failure().line == 2


def test_jinja_is_imported_when_the_first_template_is_compiled() -> None:
    program = (
        "import sys, promptkit; from promptkit._values import templates; assert 'jinja2' not in sys.modules;"
        "templates.compile_template('x'); assert 'jinja2' in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
