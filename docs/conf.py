"""How the documentation is built: ``sphinx-build -W --keep-going -b html docs docs/_build/html``."""

import os
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT), str(HERE)]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))

import gallery  # noqa: E402 - modules of this folder
import pictures  # noqa: E402
import write_pages  # noqa: E402

import p2pkm  # noqa: E402

project = "p2pkm"
author = "The p2pkm authors"
copyright = "The p2pkm authors, MIT license"
release = p2pkm.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # the pages bring MathJax along and need no network
    "sphinx_gallery.gen_gallery",
]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
templates_path = ["_templates"]
exclude_patterns = ["_build", "_gallery", "_made"]
default_role = "code"  # `name` in docstrings

autodoc_typehints = "none"  # the docstrings give types
autodoc_member_order = "bysource"
autosummary_generate = True
numpydoc_show_class_members = False

html_theme = "furo"
html_title = f"p2pkm {release}"
html_static_path = ["_static"]
html_css_files = ["p2pkm.css"]
html_show_sourcelink = False
html_show_sphinx = False

sphinx_gallery_conf: dict[str, Any] = {
    "examples_dirs": str(gallery.prepare(ROOT / "examples", HERE / "_gallery")),
    "gallery_dirs": "gallery",
    "filename_pattern": r"/(?!topology_study)\w+\.py$",  # that one takes over a minute
    "image_scrapers": ("gallery.collect_pictures",),
    "reset_modules": (),
    "min_reported_time": 1,
    "write_computation_times": False,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "remove_config_comments": True,
    "default_thumb_file": str(HERE / "_made" / "gtvmin.png"),  # of scripts that only print
    "plot_gallery": "True",
    "abort_on_example_error": True,
    "copyfile_regex": r"a^",
}


def skip_inherited(app: Any, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what scikit-learn adds to estimators, whose docstrings refer to its own documentation."""
    return True if name.startswith("set_") and name.endswith("_request") else None


# Pages that only the built documentation has, after the links of a section of index.md.
_BUILT = {"Tutorials": "gallery/index", "Reference": "ref/docstrings"}
_TOCTREE = "\n```{{toctree}}\n:caption: {caption}\n:maxdepth: 1\n:hidden:\n\n{pages}\n```\n"


def add_to_page(app: Any, name: str, source: list[str]) -> None:
    """Add what plain Markdown has no words for: the navigation from lists of links, and pictures of methods."""
    text = source[0]
    if name == "index":
        for caption, links in re.findall(r"^## (.+)\n\n((?:\* .+\n)+)", text, re.MULTILINE):
            pages = [*re.findall(r"\]\(([\w/-]+)\.md\)", links), _BUILT.get(caption, "")]
            source[0] += _TOCTREE.format(caption=caption, pages="\n".join(pages))
    elif name == "ref/methods":
        pages = dict.fromkeys(re.findall(r"\]\((methods/[\w-]+)\.md\)", text))
        source[0] += _TOCTREE.format(caption="Methods", pages="\n".join(pages))
    elif name.startswith("ref/methods/"):
        picture = f"../../_made/{name.rpartition('/')[2]}.png"
        shown = f"![Points and centroids of six devices, and the cost ratio against the plain bytes sent]({picture})"
        source[0] = text.replace("\n```\n", f"\n```\n\n{shown}\n", 1)


def setup(app: Any) -> None:
    """Draw and count what the pages show."""
    app.connect("autodoc-skip-member", skip_inherited)
    app.connect("source-read", add_to_page)
    pictures.draw_missing(HERE / "_made")
    if outdated := write_pages.list_outdated():
        raise ValueError(f"{outdated[0]} is out of date. Run python docs/write_pages.py")
