"""How the documentation is built: ``sphinx-build -W --keep-going -b html docs docs/_build/html``."""

import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT), str(HERE)]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))

import gallery  # noqa: E402 - modules of this folder
import measured  # noqa: E402
import pictures  # noqa: E402
import reference_pages  # noqa: E402
import verdicts  # noqa: E402

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


def setup(app: Any) -> None:
    """Draw and count what the pages show."""
    app.connect("autodoc-skip-member", skip_inherited)
    pictures.draw_missing(HERE / "_made")
    table = verdicts.count_verdicts(ROOT / "examples" / "reproduce" / "RESULTS.md")
    (HERE / "_made" / "verdicts.md").write_text(table, encoding="utf-8")
    reference_pages.write_pages(HERE)
    measured.write_pages(HERE / "_made")
    app.add_role("result", measured.link_value)
