"""Make .venv: the tools, the extension built from source, and the package in editable form.

Run by make; safe to run again: what is up to date is left alone. Works on any Python 3, so that an old one gets a
sentence.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "promptkit-setup"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
EXTRAS = "cli,embedded,opentelemetry"
SOURCES = ("pyproject.toml", "constraints.txt", "Cargo.toml", "Cargo.lock", "scripts/setup.py")


def stop(sentence):
    sys.exit("setup: " + sentence)


def say(sentence):
    print("setup: " + sentence, flush=True)  # noqa: T201


def fingerprint():
    """Hash what the environment is made from."""
    digest = hashlib.sha256(sys.version.encode())
    files = [ROOT / name for name in SOURCES]
    files += sorted(p for p in (ROOT / "rust").rglob("*") if p.suffix in {".rs", ".toml"})
    for file in files:
        digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def check_python():
    if sys.version_info < (3, 11):
        stop("Python 3.11 or newer is needed, and this is %d.%d: make PYTHON=python3.12" % sys.version_info[:2])


def check_prerequisites():
    if shutil.which("cargo") is None:
        stop("cargo is not on the PATH: the history store is written in Rust; install a Rust toolchain (rustup)")
    if os.name == "posix" and not any(map(shutil.which, ("cc", "gcc", "clang"))):
        stop("there is no C compiler, which Rust links with: install one (on Debian: gcc and libc6-dev)")
    try:
        import ensurepip  # noqa: F401
    except ImportError:
        stop("this Python has no ensurepip, so it cannot make virtual environments: install python3-venv")


def run(what, *command):
    say(what)
    # The build backend looks for maturin on the PATH.
    path = os.pathsep.join([str(PYTHON.parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PIP_REQUIRE_VIRTUALENV": "1", "PATH": path}
    finished = subprocess.run(command, cwd=ROOT, check=False, env=environment)  # noqa: S603
    if finished.returncode:
        stop(f"{what}: failed, see above")


def main():
    check_python()
    wanted = fingerprint()
    if not (STAMP.exists() and STAMP.read_text() == wanted and PYTHON.exists()):
        check_prerequisites()
        make_environment()
        STAMP.write_text(wanted)
        say("done")
    fetch = (
        "from promptkit._effects.model_weights import fetch_default_model as f; f(lambda text: print('setup:', text))"
    )
    finished = subprocess.run([str(PYTHON), "-c", fetch], cwd=ROOT, check=False, capture_output=False)  # noqa: S603
    if finished.returncode:
        stop("the weights of the local model could not be fetched, see the last line above")


def usable():
    """Say whether .venv is a virtual environment of this Python with pip in it: nothing else is installed into."""
    if not PYTHON.exists():
        return False
    ask = "import sys, pip; print(sys.prefix != sys.base_prefix, sys.version)"
    asked = subprocess.run([str(PYTHON), "-c", ask], capture_output=True, text=True, check=False)  # noqa: S603
    return asked.returncode == 0 and asked.stdout.strip() == f"True {sys.version}".strip()


def make_environment():
    pip = (str(PYTHON), "-m", "pip", "--quiet", "--disable-pip-version-check")
    groups = [part for name in ("build", "test", "check", "docs") for part in ("--group", name)]
    if not usable():
        run("making .venv", sys.executable, "-m", "venv", "--clear", str(VENV))
    run("updating pip", *pip, "install", "--upgrade", "--constraint", "constraints.txt", "pip")
    run("installing the tools", *pip, "install", "--constraint", "constraints.txt", *groups)
    run(
        "building the history store and installing promptkit (the first time takes some minutes)",
        *pip, "install", "--constraint", "constraints.txt", "--no-build-isolation", "--editable", f".[{EXTRAS}]",
    )  # fmt: skip


if __name__ == "__main__":
    main()
