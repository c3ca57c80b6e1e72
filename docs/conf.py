"""The documentation site: `make docs` builds it into docs/_build/html, and a warning ends the build."""

from __future__ import annotations

import importlib.metadata

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
html_copy_source = False
html_show_sourcelink = False

myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
maximum_signature_line_length = 88
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
