"""Finding and reading the files of a catalog: whatever lies there, the answer is a catalog or faults."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptkit import load_catalog
from promptkit.errors import Fault, InvalidConfigError

HI = b'[[messages]]\nrole = "user"\ncontent = "hi"\n'


def folder(root: Path, *names: str, content: bytes = HI) -> Path:
    for name in ("promptkit.toml", *names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"" if name == "promptkit.toml" else content)
    return root


def faults(root: Any) -> tuple[Fault, ...]:
    with pytest.raises(InvalidConfigError) as caught:
        load_catalog(root)
    str(caught.value).encode()
    msgspec.json.encode(caught.value.faults)
    return caught.value.faults


class Unwilling:
    def __fspath__(self) -> str:
        raise RuntimeError


class Nonsense:
    def __fspath__(self) -> Any:
        return 5


@pytest.mark.parametrize("root", [5, None, b"x", ["a"], Unwilling(), Nonsense(), object])
def test_what_is_no_path_is_told_so(root: Any) -> None:
    (fault,) = faults(root)
    assert fault.message.startswith("Expected the path of a catalog's folder, got `")
    assert fault.key == "load_catalog.root"


@pytest.mark.parametrize("root", ["", "a\0b", "\ud800", "x" * 5000, "a/" * 3000])
def test_a_path_that_names_no_folder_is_told_so(tmp_path: Path, root: str) -> None:
    (fault,) = faults(str(tmp_path / root / "missing") if root in {"", "a/" * 3000} else root)
    assert fault.message == "is not a folder."


@pytest.mark.parametrize("name", ["prompts", "schemas", "inputs"])
@pytest.mark.parametrize("path", ["x" * 5000, "\\ud7ff", "a/\\u0001", "promptkit.toml", "promptkit.toml/x"])
def test_a_folder_of_any_name_that_is_not_there_is_a_fault(tmp_path: Path, name: str, path: str) -> None:
    folder(tmp_path)
    (tmp_path / "promptkit.toml").write_text(f'[paths]\n{name} = "{path}"\n')
    found = faults(tmp_path)
    assert (found[0].file, found[0].line, found[0].key) == ("promptkit.toml", 2, f"paths.{name}")
    assert found[0].message.startswith("there is no folder ")


def test_hidden_files_and_folders_are_ignored(tmp_path: Path) -> None:
    root = folder(
        tmp_path, "prompts/a.toml", "prompts/.b.toml", "prompts/.git/c.toml", "prompts/.toml", "schemas/.s.json"
    )
    (root / "prompts/.link").symlink_to("/")
    assert list(load_catalog(root).prompts) == ["a"]
    assert list(load_catalog(root).schemas) == []


def test_the_root_file_is_no_prompt(tmp_path: Path) -> None:
    root = folder(tmp_path, "a.toml", "deep/promptkit.toml")
    (root / "promptkit.toml").write_text('[paths]\nprompts = "."\n')
    assert list(load_catalog(root).prompts) == ["a", "deep/promptkit"]


def test_a_link_to_a_folder_inside_is_followed_and_one_outside_is_a_fault(tmp_path: Path) -> None:
    root = folder(tmp_path / "root", "prompts/shared/a.toml")
    folder(tmp_path / "elsewhere", "b.toml")
    (root / "prompts/team").symlink_to(root / "prompts/shared")
    assert list(load_catalog(root).prompts) == ["shared/a", "team/a"]
    (root / "prompts/out").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "schemas").mkdir()
    (root / "schemas").symlink_to(tmp_path / "schemas")
    assert [(fault.file, fault.message) for fault in faults(root)] == [
        ("prompts/out", "is a link out of the folder 'prompts'.")
    ]


def test_a_sibling_whose_name_starts_the_same_is_outside(tmp_path: Path) -> None:
    root = folder(tmp_path, "prompts/a.toml", "prompts2/b.toml")
    (root / "prompts/out").symlink_to(root / "prompts2")
    assert [fault.file for fault in faults(root)] == ["prompts/out"]


def test_links_that_lead_into_each_other_end(tmp_path: Path) -> None:
    names = [chr(ord("a") + n) for n in range(8)]
    root = folder(tmp_path, *(f"prompts/{name}/p.toml" for name in names))
    for one in names:
        (root / "prompts" / one / "up").symlink_to(root / "prompts")
        (root / "prompts" / one / "self").symlink_to(root / "prompts" / one)
        for other in names:
            (root / "prompts" / one / f"to-{other}").symlink_to(root / "prompts" / other)
    found = load_catalog(root).prompts
    assert {f"{name}/p" for name in names} | {f"{a}/to-{b}/p" for a in names for b in names if a != b} == set(found)


def test_special_files_are_faults_and_nothing_waits_for_them(tmp_path: Path) -> None:
    root = folder(tmp_path, "prompts/ok.toml")
    os.mkfifo(root / "prompts/pipe.toml")
    (root / "prompts/loop.toml").symlink_to("loop.toml")
    (root / "prompts/gone.toml").symlink_to("missing")
    (root / "prompts/device.toml").symlink_to("/dev/zero")
    (root / "prompts/folder.toml").mkdir()
    with socket.socket(socket.AF_UNIX) as listener, tempfile.TemporaryDirectory() as short:
        listener.bind(f"{short}/s")
        os.rename(f"{short}/s", root / "prompts/socket.toml")  # noqa: PTH104  # a name longer than a socket can have
        assert [fault.file for fault in faults(root)] == [
            f"prompts/{name}.toml" for name in ("device", "gone", "loop", "pipe", "socket")
        ]


def test_a_file_of_more_than_16_mib_is_a_fault(tmp_path: Path) -> None:
    root = folder(tmp_path, "prompts/a.toml")
    os.truncate(root / "prompts/a.toml", 16 * 2**20 + 1)
    (fault,) = faults(root)
    assert (fault.file, "16,777,217 bytes" in fault.message) == ("prompts/a.toml", True)


def test_a_file_and_a_folder_without_permission_are_faults() -> None:
    with tempfile.TemporaryDirectory() as name:
        root = folder(Path(name), "prompts/a.toml", "prompts/closed/b.toml", "prompts/open.toml")
        root.chmod(0o755)
        (root / "prompts/a.toml").chmod(0)
        (root / "prompts/closed").chmod(0)
        user = os.geteuid()
        try:
            if user == 0:  # who reads everything
                os.seteuid(65534)
            found = faults(root)
        finally:
            os.seteuid(user)
            (root / "prompts/closed").chmod(0o700)
    assert [(fault.file, fault.message) for fault in found] == [
        ("prompts/a.toml", "cannot be read: Permission denied."),
        ("prompts/closed", "cannot be read: Permission denied."),
    ]


def test_a_name_that_is_not_utf_8_is_a_fault_that_can_be_printed(tmp_path: Path) -> None:
    root = folder(tmp_path, "prompts/a.toml")
    try:
        (root / os.fsdecode(b"prompts/caf\xe9.toml")).write_bytes(HI)
    except OSError:
        pytest.skip("this file system has UTF-8 names only")
    (fault,) = faults(root)
    assert fault.file == "prompts/caf\\udce9.toml"
    assert "lone surrogate" in fault.message


TEXTS = st.one_of(
    st.binary(max_size=60),
    st.text(max_size=60).map(str.encode),
    st.text("[]{}\"'=.,#\n\\ab01x-_%", max_size=60).map(str.encode),
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "role": st.sampled_from(["user", "tool", "", 5]),
            "content": st.text(st.characters(codec="utf-8"), max_size=20)
            | st.text("{}%# includ'\"abx.\n", max_size=30)
            | st.integers(),
            "content_file": st.sampled_from(["t", "../t", "/", "", ".", "a\0", 5, "p.toml", "x" * 300]),
            "attachments": st.lists(st.text("ab", max_size=2)) | st.text(max_size=2),
            "cache_control": st.dictionaries(st.sampled_from(["type", "ttl", "x"]), st.text(max_size=3))
            | st.booleans(),
        },
    ),
    max_size=3,
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)
PROMPTS = st.fixed_dictionaries(
    {},
    optional={
        "messages": MESSAGES | VALUES,
        "variables": st.lists(st.text("ab-", max_size=2)) | VALUES,
        "inputs": st.lists(st.text("ab-", max_size=2)) | VALUES,
        "session": st.text(max_size=5) | VALUES,
        "profile": st.sampled_from(["p", "q"]) | VALUES,
        "output": st.dictionaries(st.sampled_from(["kind", "schema", "name", "max_repairs"]), VALUES) | VALUES,
        "other": VALUES,
    },
)
SETTINGS = st.dictionaries(
    st.sampled_from(["backends", "profiles", "paths", "x"]),
    st.dictionaries(
        st.sampled_from(["a", "b", "a.b", "", "prompts", "schemas"]),
        st.dictionaries(
            st.sampled_from(
                ["kind", "base_url", "backend", "model", "extra", "headers", "retry", "embedded", "seed", "stop", "id"]
            ),
            st.sampled_from(["embedded", "chat_completions", "a", "http://h"]) | VALUES,
        )
        | VALUES,
    )
    | VALUES,
)


def toml(value: Any) -> str:
    """Write a value as TOML, without what TOML does not have."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(key)} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, str):
        return msgspec.json.encode(value.encode(errors="replace").decode()).decode().replace("\x7f", "\\u007f")
    return {"None": '""', "True": "true", "False": "false"}.get(str(value), str(value))


def document(table: dict[str, Any]) -> bytes:
    return "\n".join(f"{key} = {toml(value)}" for key, value in table.items()).encode()


@given(
    root=TEXTS | SETTINGS.map(document),
    prompts=st.lists(TEXTS | PROMPTS.map(document), max_size=2),
    schema=TEXTS | VALUES.map(msgspec.json.encode),
    fragment=TEXTS,
)
@settings(max_examples=150, deadline=None)
def test_no_text_in_any_file_makes_anything_but_a_catalog_or_faults(
    root: bytes, prompts: list[bytes], schema: bytes, fragment: bytes
) -> None:
    with tempfile.TemporaryDirectory() as name:
        place = folder(Path(name))
        for file, content in {
            "promptkit.toml": root,
            "schemas/s.json": schema,
            "prompts/t": fragment,
            **{f"prompts/{'pq'[index]}.toml": content for index, content in enumerate(prompts)},
        }.items():
            (place / file).parent.mkdir(exist_ok=True)
            (place / file).write_bytes(content)
        try:
            load_catalog(place)
        except InvalidConfigError as error:
            assert str(error).isprintable() or all(line.isprintable() for line in str(error).splitlines())  # noqa: PT017
            assert msgspec.json.decode(msgspec.json.encode(error.faults), type=tuple[Fault, ...]) == error.faults  # noqa: PT017
