"""Sphinx's settings: sphinx-build -W --keep-going -b html docs build/docs"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

from raymx import __version__  # noqa: E402

project, version, release = "raymx", __version__, __version__
copyright = "the authors of raymx, MIT license"
extensions = ["myst_parser", "sphinx.ext.autodoc", "reference"]
exclude_patterns = ["_ext"]

default_role = "code"  # a name in one backtick, as in docstrings
smartquotes = False  # two hyphens begin a flag
myst_heading_anchors = 3  # headings that a link can name: page.md#on-a-cluster

# The page of the loop's context needs a worker's modules, which import these.
autodoc_mock_imports = ["mxnet", "ray"]
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"

html_theme = "furo"
html_title = f"raymx {__version__}"
html_static_path, html_css_files = ["_static"], ["wide.css"]
html_show_sphinx = False
