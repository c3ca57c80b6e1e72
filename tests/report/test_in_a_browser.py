"""The page in a real browser: what is seen, in both colour schemes, on a desk and on a phone."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from report.browser import document_of, find_browser, measured
from report.traces import attempted, eventful, failed, finished, page, started, whole
from servers.stub import http

if TYPE_CHECKING:
    from pathlib import Path

    from promptkit import ExecutionEvent
    from servers.stub import StubServer

pytestmark = pytest.mark.timeout(60)  # a browser starts in a second or two, on a machine that has nothing else to do

MEASURE = """(frame) => {
  const page = frame.document, canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const style = (element) => frame.getComputedStyle(element);
  const pixel = (colours) => {
    canvas.globalCompositeOperation = "copy";
    canvas.fillStyle = "white";
    canvas.fillRect(0, 0, 1, 1);
    canvas.globalCompositeOperation = "source-over";
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (colour) => colour.map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const grounds = (element) => {
    const found = [];
    for (let each = element; each; each = each.parentElement) found.unshift(style(each).backgroundColor);
    return found;
  };
  const folded = page.body.innerText;
  for (const each of page.querySelectorAll("details")) each.open = true;
  const texts = [], walker = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement, words = walker.currentNode.textContent.trim();
    if (!words || !element.checkVisibility() || element.tagName === "title") continue;
    const under = grounds(element), ink = element.tagName === "text" ? style(element).fill : style(element).color;
    texts.push([words, ratio(pixel([...under, ink]), pixel(under))]);
  }
  const marks = [];
  for (const each of page.querySelectorAll(".legend rect:not(.cut), .legend line, .legend circle")) {
    const under = grounds(each);
    marks.push([each.getAttribute("class"), ratio(pixel([...under, style(each).stroke]), pixel(under))]);
  }
  const boxes = [...page.querySelectorAll(".scroll")];
  const row = page.querySelector(".run > summary");
  return {
    folded,
    dark: frame.matchMedia("(prefers-color-scheme: dark)").matches,
    ground: style(page.body).backgroundColor,
    inner: frame.innerWidth,
    across: page.documentElement.scrollWidth,
    outside: [...page.querySelectorAll("body *")].filter((each) =>
      each.getBoundingClientRect().right > frame.innerWidth + 0.5 && !each.closest(".scroll, .label, .result, svg")
    ).map((each) => each.outerHTML.slice(0, 90)),
    scrolled: boxes.filter((each) => each.scrollWidth > each.clientWidth).length,
    boxed: boxes.every((each) => style(each).overflowX === "auto"),
    weakest: texts.sort((a, b) => a[1] - b[1])[0], texts: texts.length,
    marks: marks.sort((a, b) => a[1] - b[1]),
    numbers: [...page.querySelectorAll("td.n")].every((each) => style(each).textAlign === "right"),
    digits: style(page.querySelector("td.n")).fontVariantNumeric,
    lane: page.querySelector(".lane").getBoundingClientRect().width,
    lanes: [...page.querySelectorAll(".lane")].map((each) => Math.round(each.getBoundingClientRect().left)),
    grid: page.querySelector(".grid").getBoundingClientRect().left, row: row.getBoundingClientRect().height,
    shapes: [...page.querySelectorAll(".run .lane > *")].filter((each) =>
      each.getBoundingClientRect().width + parseFloat(style(each).strokeWidth || 0) < 0.5).length,
    labels: [...page.querySelectorAll(".scale text")].filter((each) => each.checkVisibility()).map((each) => {
      const box = each.getBoundingClientRect(), axis = each.closest("svg").getBoundingClientRect();
      return [box.left - axis.left, box.right - axis.left, axis.width];
    }),
    fills: Object.fromEntries(["completed", "failed", "cancelled"].map((shape) => {
      const drawn = style(page.querySelector(`.run rect.${shape}`));
      return [shape, [drawn.fill.replace(/rgb.*/, "plain"), drawn.strokeDasharray !== "none"]];
    })),
  };
}"""


def long_names() -> list[ExecutionEvent]:
    """Give a trace whose names have no place to break, as long as they are shown."""
    name: Any = "x" * 5000
    facts = {"run_id": name, "parent_run_id": name + "y"}
    profile = {"profile": name, "backend": name, "model": name}
    return [
        started(prompt_id=name, **facts),
        failed(error=name, response_id=name, backend_kind=name, **profile, **facts),
        attempted(attempt=2, **facts),
        attempted(attempt=3, at=2, outcome="cancelled", **facts),
        finished(prompt_id=name, error=name, outcome="failed", definition_hash=name, **profile, **facts),
    ]


def idle() -> list[ExecutionEvent]:
    """Give a trace with much idle time, whose labels are long: "1 h 1 m 40 s"."""
    return [*eventful(), *(event for n in range(30) for event in whole(str(n), 3700.4 + n * n))]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Measure the page of an eventful trace and of one with endless names, everything unfolded, in one browser."""
    shown, endless = page(eventful(), "night.jsonl"), page(long_names(), "n" * 300)
    return measured(
        tmp_path_factory.mktemp("frames"),
        MEASURE,
        light=(shown, 1280, "light"),
        dark=(shown, 1280, "dark"),
        phone=(shown, 390, "light"),
        dark_phone=(shown, 390, "dark"),
        endless=(endless, 1280, "light"),
        endless_phone=(endless, 390, "light"),
        idle=(page(idle()), 1280, "light"),
        tablet=(shown, 800, "light"),
        idle_phone=(page(idle()), 390, "light"),
    )


FRAMES = ("light", "dark", "phone", "dark_phone", "endless", "endless_phone")


@pytest.mark.parametrize("frame", ["tablet", *FRAMES])
def test_the_page_is_never_wider_than_its_window(seen: dict[str, Any], frame: str) -> None:
    width = 800 if frame == "tablet" else 390 if "phone" in frame else 1280
    assert seen[frame]["across"] <= seen[frame]["inner"] == width
    assert seen[frame]["outside"] == []


@pytest.mark.parametrize("frame", FRAMES)
def test_wide_tables_scroll_inside_their_own_box(seen: dict[str, Any], frame: str) -> None:
    assert seen[frame]["boxed"]
    assert seen[frame]["scrolled"] >= 1


@pytest.mark.parametrize("frame", FRAMES)
def test_all_text_has_the_contrast_that_wcag_aa_asks_for(seen: dict[str, Any], frame: str) -> None:
    assert seen[frame]["texts"] > 100
    words, ratio = seen[frame]["weakest"]
    assert ratio >= 4.5, words


@pytest.mark.parametrize("frame", FRAMES)
def test_all_marks_stand_out_from_their_ground(seen: dict[str, Any], frame: str) -> None:
    assert len(seen[frame]["marks"]) == 9
    assert seen[frame]["marks"][0][1] >= 3.0


@pytest.mark.parametrize("frame", FRAMES)
def test_the_colour_scheme_is_that_of_the_reader(seen: dict[str, Any], frame: str) -> None:
    assert seen[frame]["dark"] == ("dark" in frame)
    assert seen[frame]["ground"] == ("rgb(20, 23, 27)" if "dark" in frame else "rgb(255, 255, 255)")


@pytest.mark.parametrize("frame", FRAMES)
def test_outcomes_differ_in_more_than_colour(seen: dict[str, Any], frame: str) -> None:
    assert seen[frame]["fills"] == {
        "completed": ["plain", False],
        "failed": ['url("#hatch")', False],
        "cancelled": ["plain", True],
    }


@pytest.mark.parametrize("frame", FRAMES)
def test_numbers_are_aligned(seen: dict[str, Any], frame: str) -> None:
    assert seen[frame]["numbers"]
    assert seen[frame]["digits"] == "tabular-nums"


@pytest.mark.parametrize("frame", FRAMES)
def test_the_rows_of_the_timeline_share_one_axis_and_nothing_is_too_thin_to_see(
    seen: dict[str, Any], frame: str
) -> None:
    assert {*seen[frame]["lanes"]} == {round(seen[frame]["grid"])}
    assert seen[frame]["lane"] >= (340 if "phone" in frame else 560)
    assert seen[frame]["row"] <= (60 if "phone" in frame else 30)
    assert seen[frame]["shapes"] == 0


@pytest.mark.parametrize("frame", ["idle", "idle_phone", "tablet", *FRAMES])
def test_the_labels_of_an_axis_do_not_run_into_each_other(seen: dict[str, Any], frame: str) -> None:
    labels = seen[frame]["labels"]
    assert len(labels) >= 2
    for (_, right, _), (left, _, _) in pairwise(labels):
        assert right < left
    assert labels[-1][1] <= labels[-1][2]


@pytest.mark.parametrize("frame", ["light", "phone"])
def test_the_essentials_are_seen_without_scripts_and_without_unfolding_anything(
    seen: dict[str, Any], frame: str
) -> None:
    for text in ("night.jsonl", "1 run did not end", "OverloadedError", "extract/figures", "completed, invalid"):
        assert text in seen[frame]["folded"]
    assert "answer-1" not in seen[frame]["folded"]  # the id of a response is inside of its run


def test_without_a_browser_the_tests_are_skipped_and_fail_where_ci_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="install chromium"):
        find_browser()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="install chromium"):
        find_browser()


def test_a_link_to_a_folded_run_unfolds_its_part(tmp_path: Path) -> None:
    text = page(event for n in range(250) for event in whole(str(n), float(n)))
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    document = document_of(tmp_path / "page.html", fragment="#run-240")
    opened = re.findall(r'<details class="part" open="">\s*<summary>Runs (\d+) to (\d+)', document)
    assert opened == [("201", "250")]


def test_a_page_loads_nothing_even_if_markup_had_come_through(tmp_path: Path, stub: StubServer) -> None:
    stub.say(http(200, b"x", content_type="text/plain"))
    ways = (
        '<img src="HOST/i"><link rel="stylesheet" href="HOST/l"><iframe src="HOST/f"></iframe><script src="HOST/s">'
        '</script><style>body { background: url("HOST/b") }</style><p style="background: url(HOST/p)">x</p>'
        '<object data="HOST/o"></object><video src="HOST/v"></video><svg><image href="HOST/m"/></svg>'
    )
    guarded = page(whole()).replace("</header>", "</header>" + ways.replace("HOST", stub.base_url))
    open_to_all = re.sub("<meta http-equiv=[^>]*>", "", guarded)
    for text, name in ((guarded, "guarded"), (open_to_all, "open")):
        (tmp_path / f"{name}.html").write_text(text, encoding="utf-8")
    document_of(tmp_path / "guarded.html")
    assert stub.requests == []
    document_of(tmp_path / "open.html")
    assert len(stub.requests) >= 5  # or the test would prove nothing


def test_what_is_planted_in_names_reaches_no_network_and_runs_nothing(tmp_path: Path, stub: StubServer) -> None:
    stub.say(http(200, b"x", content_type="text/plain"))
    ways = '"\'></title></style><img src="HOST/i" onerror="document.title=1"><script>document.title=1</script>'
    planted: Any = ways.replace("HOST", stub.base_url)
    facts = {"run_id": planted, "parent_run_id": planted}
    events: list[ExecutionEvent] = [
        started(prompt_id=planted, **facts),
        failed(error=planted, model=planted, **facts),
    ]
    # The policy is taken away, so that only the escaping stands between the names and the network.
    text = re.sub("<meta http-equiv=[^>]*>", "", page(events, planted[:99]))
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    document = document_of(tmp_path / "page.html")
    assert stub.requests == []
    assert "<img" not in document
    assert "<script" not in document
    assert "<title>1</title>" not in document
