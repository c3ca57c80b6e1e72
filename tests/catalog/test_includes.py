"""Fragments: texts that templates include, read when the catalog is loaded and kept with it."""

from __future__ import annotations

import pickle
import shutil
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptkit import Catalog, MessageTemplate, PromptDefinition, load_catalog
from promptkit._load_catalog import definitions_of
from promptkit._prepare.plan import plan_of
from promptkit.errors import Fault, InvalidConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


def folder(root: Path, files: Mapping[str, str]) -> Path:
    for name, content in {"promptkit.toml": "", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode())
    return root


def prompt(content: str, rest: str = "") -> str:
    return f"{rest}\n[[messages]]\nrole = 'user'\ncontent = '''{content}'''\n"


def faults(root: Path) -> tuple[Fault, ...]:
    with pytest.raises(InvalidConfigError) as caught:
        load_catalog(root)
    return caught.value.faults


def test_a_prompt_has_all_fragments_that_it_reaches_and_no_others(tmp_path: Path) -> None:
    files = {
        "prompts/a.toml": prompt('{% include "parts/one.md" %}', "session = '{% include \"id\" %}'"),
        "prompts/deep/b.toml": "[[messages]]\nrole = 'user'\ncontent_file = 'b.txt'\n",
        "prompts/deep/b.txt": "{% include 'parts/two' %}",
        "prompts/c.toml": prompt("none"),
        "prompts/parts/one.md": "one {% include 'parts/two' %} {% include 'parts/two' %}",
        "prompts/parts/two": "two\r\nlines",
        "prompts/parts/unused": "{{",
        "prompts/id": "\ufeffs-1",
    }
    fragments = definitions_of(load_catalog(folder(tmp_path, files))).fragments
    assert fragments == {
        "a": {"parts/one.md": files["prompts/parts/one.md"], "parts/two": "two\nlines", "id": "s-1"},
        "deep/b": {"parts/two": "two\nlines"},
    }
    with pytest.raises(TypeError):
        fragments["a"]["id"] = "x"  # type: ignore[index]


def test_fragments_stay_with_their_prompts_and_need_no_folder(tmp_path: Path) -> None:
    one = load_catalog(folder(tmp_path / "1", {"prompts/a.toml": prompt("{% include 't' %}"), "prompts/t": "one"}))
    two = load_catalog(folder(tmp_path / "2", {"prompts/b.toml": prompt("{% include 't' %}"), "prompts/t": "two"}))
    shutil.rmtree(tmp_path / "1")
    both = pickle.loads(pickle.dumps(one | two))  # noqa: S301  # made here
    assert definitions_of(both).fragments == {"a": {"t": "one"}, "b": {"t": "two"}}


def test_names_in_fragments_count_as_used(tmp_path: Path) -> None:
    files = {
        "prompts/a.toml": prompt("{% include 't' %}", 'variables = ["who"]\ninputs = ["doc"]'),
        "prompts/t": "{{ who }} {{ inputs.doc }}",
    }
    assert list(load_catalog(folder(tmp_path, files)).prompts) == ["a"]


@pytest.mark.parametrize("name", ["../t", "/t", "./t", "a/../t", "a//t", "", "a\\\\t", "..", "a/"])
def test_a_name_that_is_not_below_the_folder_is_refused_unread(tmp_path: Path, name: str) -> None:
    root = folder(tmp_path, {"prompts/a.toml": prompt(f"{{% include '{name}' %}}"), "t": "SECRET", "prompts/t": "x"})
    (fault,) = faults(root)
    assert fault.message.startswith("includes ")
    assert (fault.file, fault.line, fault.key) == ("prompts/a.toml", 4, "messages[0].content")


@pytest.mark.parametrize("name", ["\\ud800", "\\udc80", "\\x00", "x" * 5000, "a/b/c", "prompts"])
def test_a_name_of_no_file_is_a_fault(tmp_path: Path, name: str) -> None:
    (fault,) = faults(folder(tmp_path, {"prompts/a.toml": prompt(f"{{% include '{name}' %}}")}))
    assert fault.message.startswith("includes ")
    assert str(fault).encode()


def test_a_link_out_of_the_folder_is_no_fragment(tmp_path: Path) -> None:
    root = folder(tmp_path, {"prompts/a.toml": prompt("{% include 't' %}"), "secret": "SECRET"})
    (root / "prompts/t").symlink_to(root / "secret")
    (fault,) = faults(root)
    assert "is outside the folder" in fault.message
    assert "SECRET" not in fault.message


def test_a_missing_fragment_hides_nothing_else(tmp_path: Path) -> None:
    content = "{% include 'ton' %}\n{{ topic }}\n{% include 'tone' %}"
    root = folder(tmp_path, {"prompts/a.toml": prompt(content, 'profile = "x"'), "prompts/tone": "{{ mood }}"})
    assert [(fault.file, fault.line, fault.suggestion) for fault in faults(root)] == [
        ("prompts/a.toml", 1, None),
        ("prompts/a.toml", 4, "tone"),
        ("prompts/a.toml", 5, None),
        ("prompts/tone", 1, None),
    ]


def test_a_fault_of_a_fragment_is_reported_once_for_all_prompts(tmp_path: Path) -> None:
    include = prompt("{% include 't' %}")
    root = folder(tmp_path, {"prompts/a.toml": include, "prompts/b.toml": include, "prompts/t": "\n{% include 'no' %}"})
    assert [(fault.file, fault.line) for fault in faults(root)] == [("prompts/t", 2)]


def test_a_loop_is_one_fault_wherever_it_is_entered(tmp_path: Path) -> None:
    files = {f"prompts/{name}.toml": prompt(f"{{% include '{name}' %}}") for name in "abc"}
    links = {f"prompts/{name}": f"{{% include '{other}' %}}" for name, other in ("ab", "bc", "ca")}
    assert [str(fault) for fault in faults(folder(tmp_path, files | links))] == [
        "prompts/a:1: includes itself without an end: a -> b -> c -> a."
    ]


def test_a_loop_hides_no_undeclared_name_of_its_fragments(tmp_path: Path) -> None:
    files = {
        "prompts/a.toml": prompt("{% include 'x' %}"),
        "prompts/x": "{{ one }}\n{% include 'y' %}",
        "prompts/y": "{% include 'x' %}\n{{ two|nope }}",
    }
    assert [(fault.file, fault.line, fault.message[:23]) for fault in faults(folder(tmp_path, files))] == [
        ("prompts/x", 1, "uses the variable 'one'"),
        ("prompts/x", 2, "includes itself without"),
        ("prompts/y", 2, "there is no filter 'nop"),
        ("prompts/y", 2, "uses the variable 'two'"),
    ]


def test_a_refused_filter_or_include_hides_no_other_fault(tmp_path: Path) -> None:
    content = "{{ a|foo }}\n{{ a|bar }}\n{{ zz }}\n{% include '../a' %}\n{% include '/b' %}"
    root = folder(tmp_path, {"prompts/a.toml": prompt(content, "variables = ['a']")})
    assert [fault.line for fault in faults(root)] == [4, 5, 6, 7, 8]


def test_names_that_python_takes_for_each_other_are_refused_where_they_are_declared_and_used(tmp_path: Path) -> None:
    root = folder(
        tmp_path, {"prompts/a.toml": prompt("{{ cafe\u0301 }}", "variables = ['ﬁ', 'caf\xe9']\ninputs = ['ﬁ']")}
    )
    assert [(fault.key, fault.line) for fault in faults(root)] == [
        ("variables[0]", 1),
        ("inputs[0]", 2),
        ("messages[0].content", 5),
    ]
    assert all("NFKC" in fault.message for fault in faults(root))


def test_a_prompt_has_one_hash_whatever_the_line_ends_of_its_fragments(tmp_path: Path) -> None:
    hashes = set()
    for index, end in enumerate(("\n", "\r\n", "\r")):
        files = {"prompts/a.toml": prompt("{% include 't' %}"), "prompts/t": f"one{end}two{end}"}
        definitions = definitions_of(load_catalog(folder(tmp_path / str(index), files)))
        hashes.add(plan_of(definitions.prompts["a"], {}, definitions.fragments["a"]).definition_hash)
    assert len(hashes) == 1


def levels(count: int, each: int) -> dict[str, str]:
    inner = {f"prompts/{n}": f"{{% include '{n + 1}' %}}" * each for n in range(1, count)}
    return {"prompts/a.toml": prompt("{% include '1' %}"), f"prompts/{count}": "x", **inner}


@pytest.mark.parametrize(("count", "each"), [(50, 1), (9, 2)])
def test_fragments_that_meet_again_are_no_loop(tmp_path: Path, count: int, each: int) -> None:
    (fragments,) = definitions_of(load_catalog(folder(tmp_path, levels(count, each)))).fragments.values()
    assert len(fragments) == count


@pytest.mark.parametrize(
    ("count", "each", "said"),
    [
        (51, 1, "includes fragments inside each other at a depth of more than 50."),
        (10, 2, "includes more than 1,000 fragments, each counted as often as it is included."),
        (50, 9, "includes more than 1,000 fragments"),
        (3000, 1, "includes fragments inside each other at a depth of more than 50."),
    ],
)
def test_fragments_that_would_be_rendered_without_measure_are_a_fault(
    tmp_path: Path, count: int, each: int, said: str
) -> None:
    (fault,) = faults(folder(tmp_path, levels(count, each)))
    assert fault.message.startswith(said)
    assert (fault.file, fault.line) == ("prompts/a.toml", 4)


def test_a_prompt_made_in_python_includes_nothing() -> None:
    made = PromptDefinition(
        id="p", messages=(MessageTemplate(role="user", content="{% include 'a' %}"),), session="{% include 'b' %}"
    )
    with pytest.raises(InvalidConfigError) as caught:
        Catalog(prompts=[made])
    remedy = "a prompt made in Python has no prompts folder: put the text into content."
    assert [(fault.key, fault.message) for fault in caught.value.faults] == [
        ("prompts.p.messages[0].content", f"includes 'a', and {remedy}"),
        ("prompts.p.session", f"includes 'b', and {remedy}"),
    ]


@given(
    graph=st.dictionaries(st.sampled_from("abcdef"), st.lists(st.sampled_from("abcdefg"), max_size=3)),
    roots=st.lists(st.sampled_from("abcdef"), max_size=2),
)
@settings(deadline=None)
def test_a_catalog_has_what_is_reached_or_a_fault_for_what_is_missing_or_endless(
    graph: dict[str, list[str]], roots: list[str]
) -> None:
    def text(names: list[str]) -> str:
        return "".join(f"{{% include '{name}' %}}" for name in names)

    reached: dict[str, int] = {}
    left = list(roots)
    while left:
        name = left.pop()
        if name not in reached:
            reached[name] = 1
            left.extend(graph.get(name, []))
    sorter = TopologicalSorter({name: graph.get(name, []) for name in reached})
    with TemporaryDirectory() as place:
        files = {f"prompts/{name}": text(names) for name, names in graph.items()}
        root = folder(Path(place), {**files, "prompts/a.toml": prompt(text(roots))})
        try:
            sorter.prepare()
            endless = False
        except CycleError:
            endless = True
        if endless or not reached.keys() <= graph.keys():
            said = [fault.message for fault in faults(root)]
            assert any("without an end" in message for message in said) == endless
            missing = {name for name in reached if name not in graph}
            assert {
                name for name in "abcdefg" if any(m.startswith(f"includes '{name}', which") for m in said)
            } == missing
        else:
            found = definitions_of(load_catalog(root)).fragments
            assert found == ({"a": {name: text(graph[name]) for name in reached}} if reached else {})
