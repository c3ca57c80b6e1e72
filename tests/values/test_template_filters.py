"""Every filter, test and function of Jinja2 over JSON values: text stays text, all else is printed as compact JSON."""

from __future__ import annotations

from typing import Any

import jinja2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from promptkit._values.frozen import frozen_json
from promptkit._values.template_environment import STEPS, base_environment
from promptkit._values.template_filters import REFUSED
from promptkit._values.templates import compile_template

VALUES: dict[str, Any] = {
    "x": "<b>&\r\n",
    "w": "two words",
    "n": 3,
    "f": 2.5,
    "b": True,
    "nothing": None,
    "xs": [3, 1, 2],
    "d": {"k": True, "l": None},
    "ds": [{"k": True, "v": [1]}, {"k": False, "v": []}, {"k": True, "v": "x"}],
}
FILTERS: dict[str, dict[str, str]] = {
    "abs": {"-n|abs": "3"},
    "attr": {"d|attr('k')": "true", "d|attr('none') is defined": "false"},
    "batch": {"xs|batch(2)|list": "[[3,1],[2]]", "xs|batch(2, b)|list": "[[3,1],[2,true]]"},
    "capitalize": {"w|capitalize": "Two words", "b|capitalize": "True"},
    "center": {"b|center(6)": " true ", "x|center(2)": "<b>&\r\n"},
    "count": {"xs|count": "3"},
    "d": {"missing|d(b)": "true"},
    "default": {"missing|default(x)": "<b>&\r\n", "nothing|default(b, true)": "true"},
    "dictsort": {"d|dictsort": '[["k",true],["l",null]]'},
    "e": {"x|e": "&lt;b&gt;&amp;\r\n", "x|e|e": "&amp;lt;b&amp;gt;&amp;amp;\r\n", "b|e": "true"},
    "escape": {"x|escape": "&lt;b&gt;&amp;\r\n"},
    "filesizeformat": {"1500|filesizeformat": "1.5 kB"},
    "first": {"xs|first": "3", "ds|first": '{"k":true,"v":[1]}'},
    "float": {"'2'|float": "2.0"},
    "forceescape": {"x|forceescape": "&lt;b&gt;&amp;\r\n"},
    "format": {
        "'%s|%s|%s'|format(x, b, d)": '<b>&\r\n|true|{"k":true,"l":null}',
        "'%(a)s%(z)05.1f'|format(a=x, z=f)": "<b>&\r\n002.5",
        "'%s%%' % n": "3%",
        "'%s' % d": '{"k":true,"l":null}',
        "'%(k)s' % d": "true",
        "'%-6s|%+d|%x|%c|%e' % (b, n, 255, 'é', f)": "true  |+3|ff|é|2.500000e+00",
        "'%*d' % (4, n)": "   3",
        "'%s' % [[1, b]]": "[[1,true]]",
        "'%s' % 1e16 == 1e16|string": "true",
    },
    "groupby": {
        "ds|groupby('k')|map(attribute=0)|list": "[false,true]",
        "(ds|groupby('k')|last).grouper": "true",
        "(ds|groupby('k')|first).list": '[{"k":false,"v":[]}]',
    },
    "indent": {
        "'a\\n\\nb'|indent(1)": "a\n\n b",
        "'a\\n\\nb\\n'|indent('>', true, true)": ">a\n>\n>b\n>",
        "'a\\r\\u2028\\x0cb'|indent": "a\r\u2028\x0cb",
        "b|indent": "true",
    },
    "int": {"'7'|int": "7"},
    "items": {"d|items|list": '[["k",true],["l",null]]'},
    "join": {"[x, b, d.k, xs]|join(n)": "<b>&\r\n3true3true3[3,1,2]", "ds|join(',', 'k')": "true,false,true"},
    "last": {"xs|last": "2"},
    "length": {"xs|length": "3"},
    "list": {"'ab'|list": '["a","b"]'},
    "lower": {"x|upper|lower": "<b>&\r\n", "d|lower": '{"k":true,"l":null}'},
    "map": {"[b, n]|map('string')|list": '["true","3"]', "ds|map(attribute='k')|join": "truefalsetrue"},
    "max": {"xs|max": "3"},
    "min": {"xs|min": "1"},
    "reject": {"xs|reject('odd')|list": "[2]"},
    "rejectattr": {"ds|rejectattr('k')|list": '[{"k":false,"v":[]}]'},
    "replace": {
        "x|replace('<', b)": "trueb>&\r\n",
        "b|replace(true, 'yes')": "yes",
        "'aaa'|replace('a', 'b', 2)": "bba",
        "'aa'|replace('', '-')": "-a-a-",
    },
    "reverse": {"w|reverse": "sdrow owt", "xs|reverse|list": "[2,1,3]"},
    "round": {"f|round": "2.0", "2.25|round(1, 'floor')": "2.2"},
    "safe": {"x|safe": "<b>&\r\n", "b|safe": "true", "xs|safe": "[3,1,2]"},
    "select": {"xs|select('odd')|list": "[3,1]"},
    "selectattr": {"ds|selectattr('k')|map(attribute='v')|list": '[[1],"x"]'},
    "slice": {"xs|slice(2)|list": "[[3,1],[2]]"},
    "sort": {"xs|sort": "[1,2,3]"},
    "string": {"b|string": "true", "x|string": "<b>&\r\n", "d|string": '{"k":true,"l":null}'},
    "striptags": {"'<i>a  b</i>&amp;'|striptags": "a b&", "b|striptags": "true"},
    "sum": {"xs|sum": "6", "ds|sum('k')": "2"},
    "title": {"w|title": "Two Words"},
    "tojson": {"x|tojson": '"<b>&\\r\\n"', "nothing|tojson": "null", "[1]|tojson(indent=1)": "[\n 1\n]"},
    "trim": {"x|trim": "<b>&", "b|trim('t')": "rue"},
    "truncate": {"'a b c'|truncate(3, leeway=0)": "...", "b|truncate": "true"},
    "unique": {"[1, 1, 2]|unique|list": "[1,2]"},
    "upper": {"w|upper": "TWO WORDS", "nothing|default(b, true)|upper": "TRUE"},
    "urlencode": {"'a b/ü'|urlencode": "a%20b/%C3%BC", "{'a': b, 'c': 'd e'}|urlencode": "a=true&c=d+e",
                  "b|urlencode": "true"},
    "urlize": {
        "'<https://a.org>'|urlize": '&lt;<a href="https://a.org" rel="noopener">https://a.org</a>&gt;',
        "b|urlize": "true",
    },
    "wordcount": {"w|wordcount": "2", "b|wordcount": "1"},
    "wordwrap": {"w|wordwrap(4)": "two \nword\ns", "w|wordwrap(5, wrapstring='|')": "two|words", "b|wordwrap": "true"},
    "xmlattr": {"d|xmlattr": ' k="true"', "{'a': x, 'b': xs}|xmlattr(false)": 'a="&lt;b&gt;&amp;\r\n" b="[3,1,2]"'},
}  # fmt: skip
TESTS = {
    "odd": "n", "even": "2", "divisibleby": "n is divisibleby 3", "defined": "n", "undefined": "missing",
    "filter": "'upper'",
    "test": "'odd'", "none": "nothing", "boolean": "b", "false": "false", "true": "true", "integer": "n", "float": "f",
    "lower": "b", "upper": "'A'", "string": "x", "mapping": "d", "number": "n", "sequence": "xs", "iterable": "xs",
    "callable": "range", "sameas": "b is sameas true", "escaped": "not (x|e is escaped)", "in": "3 is in xs",
    "==": "[3]|select('==', 3)|first == 3", "eq": "n is eq 3", "equalto": "n is equalto 3",
    "!=": "[3]|select('!=', 4)|list",
    "ne": "n is ne 4", ">": "[3]|select('>', 2)|list", "gt": "n is gt 2", "greaterthan": "n is greaterthan 2",
    "ge": "n is ge 3", ">=": "[3]|select('>=', 3)|list", "<": "[3]|select('<', 4)|list", "lt": "n is lt 4",
    "lessthan": "n is lessthan 4", "<=": "[3]|select('<=', 3)|list", "le": "n is le 3",
}  # fmt: skip
FUNCTIONS = {
    "range": {"range(2)": "[0,1]", "range(4)|sum": "6", "range(2)|tojson": "[0,1]", "[range(2)]": "[[0,1]]"},
    "dict": {"dict(a=b)": '{"a":true}', "dict(d, l=1)": '{"k":true,"l":1}'},
    "cycler": {"cycler(x, b).next()": "<b>&\r\n"},
    "joiner": {"[joiner(x)]|length": "1"},
    "namespace": {"namespace(a=b).a": "true"},
}


def rendered(source: str, values: dict[str, Any] = VALUES) -> str:
    return compile_template(source).unwrap().render(frozen_json(values), {}).unwrap()


def refused(source: str) -> str:
    compiled = compile_template(source).alt(lambda faults: faults[0])
    return compiled.bind(lambda template: template.render(frozen_json(VALUES), {})).failure().message


def test_every_filter_test_and_function_of_jinja_has_been_looked_at() -> None:
    """Whoever upgrades Jinja2 and sees this fail: say what the new one does to values, then add it here."""
    assert set(jinja2.filters.FILTERS) == FILTERS.keys() | REFUSED.keys()
    assert base_environment().filters.keys() == FILTERS.keys() | {STEPS}
    assert set(jinja2.tests.TESTS) == base_environment().tests.keys() == TESTS.keys()
    assert set(jinja2.defaults.DEFAULT_NAMESPACE) == FUNCTIONS.keys() | {"lipsum"}
    assert base_environment().globals.keys() == FUNCTIONS.keys()
    assert not base_environment().extensions


@pytest.mark.parametrize(
    ("expression", "text"),
    [pair for table in (FILTERS, FUNCTIONS) for cases in table.values() for pair in cases.items()],
)
def test_filters_and_functions_print_json_and_keep_text(expression: str, text: str) -> None:
    assert rendered(f"{{{{ {expression} }}}}") == text
    assert rendered(f"{{{{ [{expression}]|join }}}}") == text
    assert rendered(f"{{{{ ({expression}) ~ x }}}}") == text + "<b>&\r\n"
    assert rendered(f"{{% set y = {expression} %}}{{{{ y }}}}") == text


@pytest.mark.parametrize("name", sorted(FILTERS))
def test_no_filter_makes_text_that_escapes_what_is_joined_to_it(name: str) -> None:
    for expression, text in FILTERS[name].items():
        if rendered(f"{{{{ ({expression}) is string }}}}") == "true":
            assert rendered(f"{{{{ ({expression}) + x }}}}{{{{ x + ({expression}) }}}}") == text + 2 * "<b>&\r\n" + text
            assert rendered(f"{{{{ [({expression})]|join(x) + ({expression}) * 2 }}}}") == text * 3


@pytest.mark.parametrize(("name", "expression"), TESTS.items())
def test_tests_answer_about_json(name: str, expression: str) -> None:
    condition = expression if " " in expression or "|" in expression else f"{expression} is {name}"
    assert rendered(f"{{{{ 'yes' if {condition} else 'no' }}}}") == "yes"


@given(st.text())
@example("<&>")
def test_what_gathers_text_does_not_change_it(text: str) -> None:
    source = (
        "{% macro m(a) %}{{ a }}{{ caller() if caller is defined }}{% endmacro %}"
        "{{ m(x) + x }}{% call m(x) %}{{ x }}{% endcall %}"
        "{% set y %}{{ x }}{% endset %}{{ y + x }}{% set z | safe | string %}{{ x }}{% endset %}{{ z + x }}"
        "{% filter safe %}{{ x }}{% endfilter %}{{ (x|safe) + x }}{{ ''|e + x }}{{ x ~ (x|safe) }}{{ '%s' % x }}"
        "{{ ('%s'|safe) % x }}{{ [x|safe, x]|join }}{{ x|replace('', '') }}{{ x|indent(0) }}{{ x|default('') }}"
    )
    assert rendered(source, {"x": text}) == text * 21


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        ("'%r' % x", "%r"),
        ("'%a' % x", "%a"),
        ("'100%' % ()", "write %% for a percent sign"),
        ("'%y' % x", "write %% for a percent sign"),
        ("'%d' % x", "takes a number"),
        ("'%d' % b", "takes a number"),
        ("'%f' % (f * 1e308 * 10)", "takes a number"),
        ("'%s' % ()", "more directives"),
        ("'%s' % (x, x)", "fewer directives"),
        ("'%(a)s' % d", "%(a)"),
        ("'%(a)s' % x", "%(a)"),
        ("'%s'|format(x, a=x)", "not both"),
        ("'%s' % missing", "'missing' was not given"),
        ("'%d' % missing", "'missing' was not given"),
        ("'%s' % nothing", "{{ name or '' }}"),
        ("[missing]", "'missing' was not given"),
        ("{'a': missing}|tojson", "'missing' was not given"),
        ("[f * 1e308 * 10]", "inf"),
        ("xs|map('random')|list", "random"),
        ("xs|map('pprint')|list", "pprint"),
        ("x|replace(nothing, '')", "{{ name or '' }}"),
        ("x|xmlattr", "takes a mapping"),
        ("{'a b': 1}|xmlattr", "name of an attribute"),
        ("'x'|filesizeformat", "takes a number"),
        ("x|center('wide')", "whole number"),
        ("x.nope", "a text has no attribute 'nope'"),
        ("xs.nope", "a list has no attribute 'nope'"),
        ("{'a': 1}.nope", "a mapping has no attribute 'nope'"),
        ("n.nope", "a number has no attribute 'nope'"),
    ],
)
def test_what_has_no_json_form_is_refused_and_says_why(expression: str, sentence: str) -> None:
    assert sentence in refused(f"{{{{ {expression} }}}}")
