"""A real browser without a window: pages in, documents out. Each start has a profile of its own."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
FRAME = """<iframe name="{name}" sandbox="allow-same-origin" srcdoc="{page}"
 style="width:{width}px; height:844px; border:0; color-scheme:{scheme}"></iframe>"""
SCRIPT = """<script>
addEventListener("load", () => {
  const frames = {};
  for (const frame of document.querySelectorAll("iframe")) frames[frame.name] = measure(frame.contentWindow);
  const out = document.createElement("pre");
  out.textContent = "measured " + JSON.stringify(frames) + " end";
  document.body.replaceChildren(out);
});
</script>"""


def find_browser() -> str:
    """Find the browser. Without one a test is skipped, and where CI is set it fails."""
    found = next((path for path in map(shutil.which, NAMES) if path), None)
    if found is None:
        reason = f"no browser on the PATH ({', '.join(NAMES)}): install chromium"
        if "CI" in os.environ:
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def document_of(page: Path, *options: str, fragment: str = "") -> str:
    """Load a page in the browser, and give the document that it makes of it."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        loaded = subprocess.run(
            [find_browser(), *OPTIONS, f"--user-data-dir={profile}", *options, "--dump-dom", page.as_uri() + fragment],
            capture_output=True,
            timeout=50,
            check=True,
        )
    return loaded.stdout.decode("utf-8")


def measured(folder: Path, measure: str, **frames: tuple[str, int, str]) -> dict[str, Any]:
    """Show pages in frames in which no script runs, each given as (page, width, colour scheme), and measure them.

    ``measure`` is a function in JavaScript: from the window of a frame to what is given for it. It runs outside of the
    frames, so the pages are as they are.
    """
    shown = [
        FRAME.format(name=name, width=width, scheme=scheme, page=html.escape(page))
        for name, (page, width, scheme) in frames.items()
    ]
    script = SCRIPT.replace("<script>", f"<script>const measure = {measure};", 1)
    file = folder / "frames.html"
    file.write_text(f'<!doctype html><meta charset="utf-8">{script}<body>{"".join(shown)}</body>', encoding="utf-8")
    found = re.search("<pre>measured (.*) end</pre>", document_of(file), re.DOTALL)
    assert found, "the measuring script did not run to its end"
    result: dict[str, Any] = json.loads(html.unescape(found[1]))
    return result
