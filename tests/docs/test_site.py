"""The documentation site: it builds without a warning, has all that is public, and says where it is."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
API = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference" / "api").glob("*.md"))


class Links(HTMLParser):
    """The ids of a page, and where its links lead."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.targets: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            elif value and ((name == "href" and tag == "a") or name == "src"):
                self.targets.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", str(ROOT / "docs")]
    built = subprocess.run([*command, str(folder)], capture_output=True, text=True, encoding="utf-8", check=False)
    assert (built.stdout, built.stderr, built.returncode) == ("", "", 0)
    return folder


@pytest.mark.timeout(120)
def test_every_link_inside_the_site_leads_somewhere(site: Path) -> None:
    pages = {page: Links(page) for page in site.rglob("*.html")}
    assert len(pages) > 30
    lost = []
    for page, links in pages.items():
        for target in links.targets:
            path, _, anchor = unquote(target).partition("#")
            if "://" in path or path.startswith(("mailto:", "data:")):
                continue
            reached = (page.parent / path.partition("?")[0]).resolve() if path else page
            if not reached.exists() or (anchor and reached in pages and anchor not in pages[reached].ids | {""}):
                lost.append((page.name, target))
    assert lost == []


@pytest.mark.timeout(120)
def test_the_index_for_language_models_has_every_page_with_a_sentence(site: Path) -> None:
    index = (site / "llms.txt").read_text(encoding="utf-8")
    assert index.startswith("# promptkit\n\n> Run configured prompts")
    lines = re.findall(r"^- \[(.+)\]\((.+)\.html\): (.+)$", index, re.MULTILINE)
    pages = {page.relative_to(ROOT / "docs").with_suffix("").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert {page for _, page, _ in lines} == {page for page in pages if not page.startswith(("dev/", "_build/"))}


@pytest.mark.parametrize("module", ["promptkit", "promptkit.errors", "promptkit.testing", "promptkit.opentelemetry"])
def test_the_reference_has_every_public_name(module: str) -> None:
    loaded = importlib.import_module(module)
    names = getattr(loaded, "__all__", None) or re.findall(r"\b(\w+Error)\b", loaded.__doc__ or "")
    assert names
    told = set(re.findall(r"^\.\. (?:auto|py:)\w+:: (?:[\w.]+\.)?(\w+)$", API, re.MULTILINE))
    assert set(names) <= told
