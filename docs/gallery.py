"""The examples as sphinx-gallery wants them; they themselves stay plain scripts."""

import re
from pathlib import Path
from shutil import rmtree
from typing import Any

import notebooks
from sphinx_gallery.scrapers import figure_rst

_HEADER = """Gallery
=======

Plain scripts from `examples/`, and a case study, which is a notebook there; each runs within a minute, but for the
study of twelve graphs, which is shown without being run: its picture stands in :doc:`/tutorial/compare-graphs`.
"""


_THUMBS = {"topology_study.py": "topology_study.png"}  # it is not run


def prepare(examples: Path, target: Path) -> Path:
    """Copy the examples, notebooks as scripts, with a line under their titles and the words of a cell under its mark.

    A copy is written only if it would change, so that what is up to date is not run again; what earlier runs of the
    examples left there goes.
    """
    target.mkdir(exist_ok=True)
    for path in target.iterdir():
        if path.is_dir():
            rmtree(path)
        elif path.suffix not in {".py", ".rst"}:
            path.unlink()
    write(target / "GALLERY_HEADER.rst", _HEADER)
    for path in sorted((*examples.glob("*.py"), *examples.glob("*.ipynb"))):
        code = notebooks.to_script(path) if path.suffix == ".ipynb" else path.read_text(encoding="utf-8")
        title, rest = code.removeprefix('"""').split("\n", 1)
        text = f'r"""{title}\n{"=" * len(title)}\n{rest}'
        if path.name in _THUMBS:
            text += f"\n# sphinx_gallery_thumbnail_path = '{_THUMBS[path.name]}'\n"
        write(target / f"{path.stem}.py", re.sub(r"^# %% (.+)$", r"# %%\n# \1", text, flags=re.MULTILINE))
    return target


def write(path: Path, text: str) -> None:
    """Write a file unless it says this already."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def collect_pictures(block: Any, variables: dict[str, Any], conf: dict[str, Any]) -> str:
    """Return the reStructuredText of the pictures that the script has written beside itself since the last look."""
    folder = Path(variables["src_file"]).parent
    seen, names = variables.setdefault("seen_pictures", set()), variables["image_path_iterator"]
    found = []
    for path in sorted(folder.rglob("*.png")):
        if path not in seen:
            seen.add(path)
            target = Path(next(names))
            path.replace(target)
            found.append(str(target))
    return figure_rst(found, conf["src_dir"])
