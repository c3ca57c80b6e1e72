"""Build what is released, and test it as it will be installed: run by `make dist`.

The source distribution is built from the repository, the wheel from the source distribution. The wheel is installed
into an empty environment with every extra, and the whole test suite runs against it in a folder without its source.
"""

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
EXTRAS = "cli,embedded,opentelemetry"
GROUPS = ("test", "check", "docs")
SOURCE = ("python", "rust", ".ci")  # the tests find nothing there


def run(what, *command, folder=ROOT):
    print("dist: " + what, flush=True)  # noqa: T201
    if subprocess.run(list(map(str, command)), cwd=folder, check=False).returncode:  # noqa: S603
        sys.exit(f"dist: {what}: failed, see above")


def built(folder):
    """Build both; give the wheel."""
    maturin = Path(sys.executable).with_name("maturin")
    shutil.rmtree(DIST, ignore_errors=True)
    run("building the source distribution", maturin, "sdist", "--out", DIST)
    (archive,) = DIST.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    target = ROOT / "target"  # what was compiled before need not be again
    build = (maturin, "build", "--release", "--locked", "--target-dir", target, "--out", DIST)
    run("building the wheel from it", *build, folder=source)
    (wheel,) = DIST.glob("*.whl")
    return wheel


def environment(folder, wheel):
    """Make one that has the wheel, and what the tests need; give its Python."""
    run("making an empty environment", sys.executable, "-m", "venv", folder)
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    pip = (python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--constraint", "constraints.txt")
    run("updating pip in it", *pip, "--upgrade", "pip")
    groups = [part for name in GROUPS for part in ("--group", name)]
    run("installing the wheel into it", *pip, *groups, f"{wheel}[{EXTRAS}]")
    return python


def tracked():
    """Name what is in the repository; end when some of it is not in its folder."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout  # noqa: S607
    names = [name for name in listed.split("\0") if name]
    gone = [name for name in names if not (ROOT / name).exists()]
    if gone:
        sys.exit(f"dist: these files are tracked but deleted (git restore them, or git rm): {', '.join(gone)}")
    return names


def without_source(names, folder):
    """Copy what is in the repository but the package itself."""
    for name in names:
        if name.partition("/")[0] not in SOURCE:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def main():
    names = tracked()  # first of all: a build takes minutes
    with tempfile.TemporaryDirectory() as created:
        folder = Path(created)
        for name in ("source", "tests"):
            (folder / name).mkdir()
        wheel = built(folder / "source")
        python = environment(folder / "environment", wheel)
        without_source(names, folder / "tests")
        run("testing the wheel", python, "-m", "pytest", "-q", "tests", folder=folder / "tests")
    print(f"dist: {wheel.relative_to(ROOT)} passed every test")  # noqa: T201


if __name__ == "__main__":
    main()
