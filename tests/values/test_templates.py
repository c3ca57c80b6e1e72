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
from promptkit._values.templates import Include, TemplateFault, compile_template, includes_of

NAMES = ("a", "b", "c")


def outcome(source: str, values: dict[str, Any], fragments: dict[str, str] | None = None) -> Result[str, TemplateFault]:
    return compile_template(source, fragments or {}).bind(lambda t: t.render(frozen_json(values), {"doc": "D"}))


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
    ("source", "variables", "functions"),
    [
        ("{% macro m() %}{{ y }}{% endmacro %}{% if x %}{% set y = 1 %}{% endif %}{{ m() }}", {"x"}, {"y"}),
        ("{% macro m() %}{{ y }}{% endmacro %}{{ m() }}{{ y }}{% set y = 1 %}", {"y"}, set()),
        ("{% macro m() %}{{ y }}{% endmacro %}{{ m() }}", {"y"}, set()),
        ("{{ range(2) }}{{ dict() }}", set(), {"range", "dict"}),
    ],
)
def test_what_may_be_set_when_a_macro_is_called_need_not_be_declared_and_counts_as_used(
    source: str, variables: set[str], functions: set[str]
) -> None:
    template = compile_template(source).unwrap()
    assert template.variables == variables
    assert template.functions == functions


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


@given(several(nested))
def test_a_name_that_is_not_used_changes_nothing(source: str) -> None:
    given_all = dict.fromkeys(NAMES, "ab")
    template = compile_template(source).unwrap()
    used = template.variables | template.functions
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
    assert includes_of(source).unwrap() == (Include("tone.txt", 1), Include("a/b.md", 3), Include("tone.txt", 3))
    assert includes_of("plain").unwrap() == ()


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
    fault = includes_of("\n" + source).failure()
    assert sentence in fault.message
    assert (fault.line, fault.fragment) == (2, None)
    assert compile_template("\n" + source, {"a": "", "b": ""}).failure() == fault


def test_a_fragment_that_is_not_there_is_a_fault_with_the_remedy() -> None:
    fault = compile_template("\n{% include 'x' %}", {"y": ""}).failure()
    assert fault == TemplateFault(
        "includes 'x', and a prompt made in Python has no prompts folder: put the text into content", 2
    )


@pytest.mark.parametrize(
    ("fragments", "fault"),
    [
        ({"f": "a\n{{ }}"}, ("does not compile", 2, "f")),
        ({"f": "a\n{{ x|uper }}"}, ("did you mean 'upper'", 2, "f")),
        ({"f": "{% include 'g' %}", "g": "\n\n{% break %}"}, ("does not compile", 3, "g")),
        ({"f": "\n{% include 'f' %}"}, ("includes itself: f -> f", 2, "f")),
        ({"f": "{% include 'g' %}", "g": "\n{% include 'f' %}"}, ("includes itself: f -> g -> f", 2, "g")),
        ({"f": "\n{% include 'gone' %}"}, ("includes 'gone'", 2, "f")),
        ({"f": "\n{% include '../g' %}"}, ("not inside", 2, "f")),
        ({"f": "\n{{ loop.index }}"}, ("outside a loop", 2, "f")),
    ],
)
def test_a_fault_of_a_fragment_names_it_and_its_line(fragments: dict[str, str], fault: tuple[str, int, str]) -> None:
    found = compile_template("text\n\n\n{% include 'f' %}", fragments).failure()
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
    assert "more than 1,000 fragments" in compile_template("{% include '0' %}", twice).failure().message
    assert outcome("{% include '35' %}", {}, twice) == Success("ha" * 32)
    deep = {str(i): f"{{% include '{i + 1}' %}}" for i in range(2000)} | {"2000": "ha"}
    assert "depth of more than 50" in compile_template("{% include '0' %}", deep).failure().message
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
    assert sentence in compile_template(source).failure().message


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
    for compiled in (compile_template(source), compile_template("{% include 'f' %}", {"f": source})):
        rendered = compiled.bind(lambda template: template.render(frozen_json({"a": [{"a": "b"}]}), {"doc": "D"}))
        assert isinstance(rendered.value_or(""), str)
        assert is_successful(rendered) or rendered.failure().message
    assert is_successful(includes_of(source)) or includes_of(source).failure().message


def test_a_source_that_was_too_deep_for_the_stack_once_is_tried_again() -> None:
    source = "{{ " + "-" * 100 + "1 }}"

    def below(depth: int) -> Result[Any, TemplateFault]:
        return below(depth - 1) if depth else compile_template(source)

    room = sys.getrecursionlimit() - len(inspect.stack(0))
    assert below(room - 60).failure().message == "is nested too deeply"
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
