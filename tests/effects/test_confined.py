"""Reading a file that must be inside a folder, whatever its name promises."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from returns.result import Failure, Success

from promptkit._effects.confined import read_confined

LIMIT = 1000


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Make a folder with a file in it, and secrets around it."""
    inside = tmp_path / "ws"
    (inside / "sub").mkdir(parents=True)
    (inside / "in.txt").write_bytes(b"in\r\n\x00\xff")
    (inside / "sub" / "deep.txt").write_text("deep")
    (tmp_path / "secret.txt").write_text("SECRET")
    (tmp_path / "ws-secret").mkdir()
    (tmp_path / "ws-secret" / "k.txt").write_text("SECRET")
    return inside


def why(path: Any, within: Path, limit: int = LIMIT) -> str:
    read = read_confined(path, within=within, limit=limit)
    assert isinstance(read, Failure)
    reason: str = read.failure()
    return reason


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("in.txt", b"in\r\n\x00\xff"),
        ("sub/deep.txt", b"deep"),
        ("sub/../in.txt", b"in\r\n\x00\xff"),
        ("../ws/in.txt", b"in\r\n\x00\xff"),
        ("./sub//deep.txt", b"deep"),
    ],
)
def test_a_file_inside_is_read_byte_for_byte(base: Path, name: str, content: bytes) -> None:
    assert read_confined(base / name, within=base, limit=LIMIT) == Success(content)
    assert read_confined(str(base / name), within=base, limit=LIMIT) == Success(content)


@pytest.mark.parametrize(
    "name", ["../secret.txt", "../ws-secret/k.txt", "sub/../../secret.txt", "sub/../../ws-secret/k.txt"]
)
def test_a_path_that_leads_out_is_refused(base: Path, name: str) -> None:
    assert why(base / name, base) == "is outside the folder."


def test_an_absolute_path_outside_and_a_folder_of_the_same_prefix_are_refused(base: Path) -> None:
    outside = base.parent / "ws-secret" / "k.txt"
    assert why(base / outside, base) == "is outside the folder."
    assert why("/etc/passwd", base) == "is outside the folder."


@pytest.mark.parametrize("name", ["..\\ws-secret\\k.txt", "missing.txt", "sub/missing/../../in.txt", "in.txt/x"])
def test_a_name_that_is_no_file_cannot_be_read(base: Path, name: str) -> None:
    assert why(base / name, base).startswith("cannot be read: ")


@pytest.mark.parametrize("name", ["a\0b", "in.txt\0.png", "\ud800", "a" * 5000, ""])
def test_a_name_that_no_file_can_have_is_refused(base: Path, name: str) -> None:
    assert why(f"{base}/{name}", base)


def test_links_are_judged_by_where_they_lead(base: Path) -> None:
    (base / "out.txt").symlink_to(base.parent / "secret.txt")
    (base / "relative.txt").symlink_to("../secret.txt")
    (base / "outdir").symlink_to(base.parent / "ws-secret")
    (base / "chain.txt").symlink_to("out.txt")
    (base / "loop.txt").symlink_to("loop.txt")
    (base / "dangling.txt").symlink_to("nowhere")
    (base / "device.txt").symlink_to("/dev/zero")
    (base / "inside.txt").symlink_to("sub/deep.txt")
    for name in ("out.txt", "relative.txt", "outdir/k.txt", "chain.txt", "device.txt"):
        assert why(base / name, base) == "is outside the folder."
    assert why(base / "loop.txt", base).startswith("cannot be read: ")
    assert why(base / "dangling.txt", base).startswith("cannot be read: ")
    assert read_confined(base / "inside.txt", within=base, limit=LIMIT) == Success(b"deep")


def test_a_folder_that_is_itself_a_link_is_followed(base: Path) -> None:
    link = base.parent / "link"
    link.symlink_to(base)
    assert read_confined(link / "in.txt", within=link, limit=LIMIT) == Success(b"in\r\n\x00\xff")
    assert why(link / "../secret.txt", link) == "is outside the folder."


def test_a_link_swapped_between_opening_and_judging_gains_nothing(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = base / "swapped.txt"
    link.symlink_to(base.parent / "secret.txt")
    opened = os.open

    def open_then_swap(path: Any, flags: int) -> int:
        descriptor = opened(path, flags)
        link.unlink()
        link.symlink_to(base / "in.txt")
        return descriptor

    monkeypatch.setattr(os, "open", open_then_swap)
    assert why(link, base) == "is outside the folder."


def test_only_regular_files_are_read_and_nothing_blocks(base: Path) -> None:
    os.mkfifo(base / "pipe")
    for path, within in ((base / "pipe", base), (base / "sub", base), (base, base), (Path("/dev/zero"), Path("/dev"))):
        assert why(path, within) == "is not a regular file."


def test_a_descriptor_is_closed_whatever_the_file_was(base: Path) -> None:
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    for path in (base / "in.txt", base / "sub", base / "../secret.txt", base / "missing"):
        read_confined(path, within=base, limit=1)
    assert len(list(Path("/proc/self/fd").iterdir())) == open_before


def test_size_is_bounded_before_anything_is_read(base: Path) -> None:
    sparse = base / "sparse"
    with sparse.open("wb") as file:
        file.truncate(2**31)
    assert why(sparse, base) == "has 2,147,483,648 bytes, and at most 1,000 are read."
    (base / "fits").write_bytes(b"x" * LIMIT)
    (base / "over").write_bytes(b"x" * (LIMIT + 1))
    (base / "empty").write_bytes(b"")
    assert read_confined(base / "fits", within=base, limit=LIMIT) == Success(b"x" * LIMIT)
    assert why(base / "over", base) == "has 1,001 bytes, and at most 1,000 are read."
    assert read_confined(base / "empty", within=base, limit=0) == Success(b"")


def test_a_bound_of_any_size_costs_nothing(base: Path) -> None:
    for limit in (2**40, 2**80):
        assert read_confined(base / "in.txt", within=base, limit=limit) == Success(b"in\r\n\x00\xff")


def test_a_file_that_grows_while_it_is_read_is_bounded_too(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    growing, piece = base / "growing", os.read

    def grow_and_read(descriptor: int, size: int) -> bytes:
        with growing.open("ab") as file:
            file.write(b"x" * 100)
        return piece(descriptor, size)

    growing.write_bytes(b"x" * 100)
    monkeypatch.setattr(os, "read", grow_and_read)
    assert why(growing, base) == "has more than 1,000 bytes."
    assert growing.stat().st_size < 2 * LIMIT


def test_what_is_no_regular_file_is_not_even_opened(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    opening = os.open

    def note_and_open(path: Any, flags: int) -> int:
        opened.append(path)
        return opening(path, flags)

    monkeypatch.setattr(os, "open", note_and_open)
    os.mkfifo(base / "pipe")
    for path, within in ((base / "pipe", base), (base, base), (Path("/dev/zero"), Path("/dev"))):
        assert why(path, within) == "is not a regular file."
    assert not opened


def test_a_file_that_is_longer_than_it_says_is_bounded_too() -> None:
    assert why("/proc/self/maps", Path("/proc/self"), limit=10) == "has more than 10 bytes."


def test_a_file_that_fails_while_it_is_read_is_a_failure_too() -> None:
    assert why("/proc/self/mem", Path("/proc/self")).startswith("cannot be read: ")


def test_a_file_without_permission_cannot_be_read(base: Path) -> None:
    (base / "in.txt").chmod(0)
    user = os.geteuid()
    if user == 0:  # root reads everything, so somebody else asks
        os.seteuid(65534)
    try:
        assert why(base / "in.txt", base) == "cannot be read: Permission denied."
    finally:
        os.seteuid(user)


def test_a_folder_that_is_gone_has_nothing_inside(base: Path) -> None:
    assert why(base / "in.txt", base / "gone") == "is outside the folder."
