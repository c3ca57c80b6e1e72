"""The documentation site: `make docs` builds it into docs/_build/html, and a warning ends the build."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "promptkit"
author = "the promptkit authors"
project_copyright = author
version = release = importlib.metadata.version("promptkit-engine")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "dev"]
html_theme = "furo"
html_title = f"promptkit {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False

myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
maximum_signature_line_length = 88
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False

PARTS = {
    "": "About",
    "adr": "Decisions",
    "coming-from": "Coming from",
    "concepts": "Concepts",
    "guides": "Guides",
    "reference": "Formats and rules",
    "reference/api": "Names",
}


def write_llms_txt(app: Sphinx, exception: Exception | None) -> None:
    """Write the index of the site for language models (llmstxt.org): each page, with its first sentence."""
    if exception is not None or app.builder.name != "html":
        return
    told: dict[str, list[str]] = {}
    for name in sorted(app.env.found_docs - {"index"}):
        document = app.env.get_doctree(name)
        told_first = (
            found.astext() for found in document.findall(nodes.paragraph) if isinstance(found.parent, nodes.section)
        )
        sentence = re.split(r"(?<=[.?!])\s", " ".join(next(told_first, "").split()), maxsplit=1)[0]
        title = app.env.titles[name].astext()
        told.setdefault(name.rpartition("/")[0], []).append(f"- [{title}]({name}.html): {sentence}")
    index = app.env.get_doctree("index")
    summary = next(index.findall(nodes.paragraph)).astext()
    lines = [
        f"# {project}",
        "",
        f"> {' '.join(summary.split())}",
        "",
        "- [The first page](index.html): a program to begin with",
    ]
    for part, pages in sorted(told.items()):
        lines += ["", f"## {PARTS[part]}", "", *pages]
    (Path(app.outdir) / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Do more than the extensions do."""
    app.connect("build-finished", write_llms_txt)
