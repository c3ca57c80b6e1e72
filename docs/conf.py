"""The documentation site: `make docs` builds it into docs/_build/html, and a warning ends the build."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx import addnodes

if TYPE_CHECKING:
    from collections.abc import Iterator

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
highlight_language = "none"  # of blocks in docstrings that are no doctests: trees and tables

myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
maximum_signature_line_length = 88
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Attributes", "params_style")]  # one line a field, without an entry of its own

FENCE = re.compile(r"^(?:`\S+`:\n\n)?```(?P<language>[a-z]+) (?P<file>\S+)$", re.MULTILINE)
WITH_CAPTION = r"```{code-block} \g<language>" "\n" r":caption: \g<file>" "\n"


def name_files(_app: Sphinx, _name: str, source: list[str]) -> None:
    """Let the name of a file that stands in the first line of a fence be the caption of its box, in place of a line."""
    source[0] = FENCE.sub(WITH_CAPTION, source[0])


def mark_wide_tables(app: Sphinx, document: nodes.document) -> None:
    """Tell the tables that name tests from the others: they have columns of their own width (site.css)."""
    if app.env.docname == "acceptance":
        for table in document.findall(nodes.table):
            table["classes"].append("lines")


def pages_in_order(app: Sphinx) -> Iterator[tuple[str, str]]:
    """Give every page but the first with the part that it is in, as the sidebar has them."""
    for tree in app.env.get_doctree("index").findall(addnodes.toctree):
        for name in tree["includefiles"]:
            yield tree["caption"], name
            for below in app.env.toctree_includes.get(name, ()):
                yield tree["caption"], below


def first_sentence(document: nodes.document) -> str:
    """Give the first sentence of a page: of its own text, or of what its names say of themselves."""
    paragraphs = (found for found in document.findall(nodes.paragraph) if isinstance(found.parent, nodes.section))
    text = " ".join(next(paragraphs, nodes.paragraph()).astext().split())
    return re.split(r"(?<=[.?!])\s", text, maxsplit=1)[0]


def write_for_models(app: Sphinx, exception: Exception | None) -> None:
    """Write what language models read (llmstxt.org): llms.txt, the index of the site, and llms-full.txt, all of it.

    A page may give its sentence itself, as ``description`` in its front matter. Pages of names are written as their
    docstrings, all others as their sources.
    """
    if exception is not None or app.builder.name != "html":
        return
    index = app.env.get_doctree("index")
    begin = Path(app.env.doc2path("index")).read_text(encoding="utf-8").partition("```{toctree}")[0]
    lines = [f"# {project}", "", f"> {' '.join(next(index.findall(nodes.paragraph)).astext().split())}", ""]
    install, program = re.findall(r"^```(?:sh|python)\n.*?^```$", begin, re.MULTILINE | re.DOTALL)[:2]
    lines += ["In a clone of the repository (it is not on the package index yet):", "", install, "", program, ""]
    lines += ["[All pages in one file](llms-full.txt)."]
    whole, before = [begin.strip()], ""
    for part, name in pages_in_order(app):
        if part != before:
            lines, before = [*lines, "", f"## {part}", ""], part
        document = app.env.get_doctree(name)
        sentence = app.env.metadata[name].get("description") or first_sentence(document)
        lines.append(f"- [{app.env.titles[name].astext()}]({name}.html): {sentence}")
        source = Path(app.env.doc2path(name)).read_text(encoding="utf-8")
        whole.append((document.astext() if "```{eval-rst}" in source else source).strip())
    for file, texts in (("llms.txt", ["\n".join(lines)]), ("llms-full.txt", whole)):
        (Path(app.outdir) / file).write_text("\n\n\n".join(texts) + "\n", encoding="utf-8")


def without_what_nobody_gives(_app: Sphinx, *told: Any) -> tuple[str, None] | None:
    """Leave out arguments of classes that only promptkit makes, and those that an error has from its base."""
    what, _, found, _, signature, _ = told
    if not signature:
        return None
    made_elsewhere = "*_: object" in signature or " _turn: " in signature
    of_the_base = what == "exception" and "__init__" not in vars(found)
    protocol = what == "class" and signature == "(*args, **kwargs)"
    return ("", None) if made_elsewhere or of_the_base or protocol else None


def skip_unexplained(_app: Sphinx, *told: Any) -> bool | None:
    """Leave out fields of which Python only says that they are fields."""
    _, _, found, _, _ = told
    return True if str(getattr(found, "__doc__", "")).startswith("Alias for field number") else None


def setup(app: Sphinx) -> None:
    """Do more than the extensions do."""
    app.connect("source-read", name_files)
    app.connect("doctree-read", mark_wide_tables)
    app.connect("autodoc-process-signature", without_what_nobody_gives)
    app.connect("autodoc-skip-member", skip_unexplained)
    app.connect("build-finished", write_for_models)
