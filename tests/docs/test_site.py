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

from report.browser import measured

ROOT = Path(__file__).parents[2]
INDEX = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
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
    told = [page for _, page, _ in lines]
    pages = {page.relative_to(ROOT / "docs").with_suffix("").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert sorted(told) == sorted(page for page in pages - {"index"} if not page.startswith(("dev/", "_build/")))
    trees = re.findall(r"```\{toctree\}\n(?::[^\n]*\n)*\n(.*?)```", INDEX, re.DOTALL)
    assert [page for page in told if not page.startswith("adr/")] == "\n".join(trees).split()
    assert all(sentence.endswith((".", "?")) for _, _, sentence in lines)


@pytest.mark.timeout(120)
def test_language_models_are_given_the_first_program_and_the_whole_text(site: Path) -> None:
    index, whole = ((site / name).read_text(encoding="utf-8") for name in ("llms.txt", "llms-full.txt"))
    for language in ("sh", "python"):
        first = re.search(rf"^```{language}\n.*?^```$", INDEX, re.MULTILINE | re.DOTALL)
        assert first is not None
        assert first[0] in index
    assert whole.startswith("# promptkit\n")
    for page in (*(ROOT / "docs" / "guides").glob("*.md"), *(ROOT / "docs" / "concepts").glob("*.md")):
        assert page.read_text(encoding="utf-8").strip() in whole
    assert "Raised by RunResult.exchange when the run was not asked to capture its exchange." in whole


@pytest.mark.timeout(120)
def test_a_file_of_a_page_has_its_name_above_it(site: Path) -> None:
    page = (site / "guides" / "write-a-prompt.html").read_text(encoding="utf-8")
    source = (ROOT / "docs" / "guides" / "write-a-prompt.md").read_text(encoding="utf-8")
    names = re.findall(r"^```[a-z]+ (\S+)$", source, re.MULTILINE)
    assert len(names) > 5
    assert re.findall(r'<span class="caption-text">([^<]+\.\w+)</span>', page) == names


@pytest.mark.timeout(120)
def test_no_two_pages_have_one_title(site: Path) -> None:
    titles = [re.search("<title>(.*?) - ", page.read_text("utf-8")) for page in site.rglob("*.html")]
    told = [title[1] for title in titles if title]
    assert len(told) > 30
    assert sorted(told) == sorted(set(told))


WIDTHS = (390, 800, 1100, 1200, 1312, 1440, 1600, 1920)
OVERFLOW = """frame => {
  const page = frame.document.documentElement;
  const tables = [...frame.document.querySelectorAll("table.lines")];
  const beyond = Math.max(0, ...tables.map(table => table.scrollWidth - table.parentNode.clientWidth));
  return [page.scrollWidth - page.clientWidth, beyond, frame.document.styleSheets.length];
}"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["index", "acceptance", "performance", "guides/write-a-prompt", "concepts/runs"])
def test_no_page_is_wider_than_its_window(site: Path, name: str) -> None:
    page = site / f"{name}.html"
    text = page.read_text(encoding="utf-8")
    try:
        frames = {f"at {width}": (text, width, "light") for width in WIDTHS}
        found = measured(page.parent, OVERFLOW, **frames)
    finally:
        (page.parent / "frames.html").unlink(missing_ok=True)
    assert {frame: wide for frame, (wide, _, _) in found.items()} == dict.fromkeys(frames, 0)
    assert all(lines <= 0 for frame, (_, lines, _) in found.items() if frame != "at 390")  # there it scrolls
    assert all(sheets >= 4 for _, _, sheets in found.values())  # or nothing was laid out


@pytest.mark.parametrize("module", ["promptkit", "promptkit.errors", "promptkit.testing", "promptkit.opentelemetry"])
def test_the_reference_has_every_public_name(module: str) -> None:
    loaded = importlib.import_module(module)
    names = getattr(loaded, "__all__", None) or re.findall(r"\b(\w+Error)\b", loaded.__doc__ or "")
    assert names
    told = set(re.findall(r"^\.\. (?:auto|py:)\w+:: (?:[\w.]+\.)?(\w+)$", API, re.MULTILINE))
    assert set(names) <= told
