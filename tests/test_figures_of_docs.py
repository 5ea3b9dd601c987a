"""The figures of README and documentation: one script makes them all, and sees what has changed."""

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from tests.docs.check_blocks import PAGES

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def figures():
    spec = importlib.util.spec_from_file_location("figures", ROOT / "docs" / "figures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_figure_of_the_documents_is_made_by_the_script(figures):
    link = re.compile(r"\]\((?:docs/|(?:\.\./)+)?(\w+\.(?:png|gif))\)")
    shown = {name for page in PAGES for name in link.findall(page.read_text("utf-8"))}
    made = {path.name for path in (ROOT / "docs").iterdir() if path.suffix in (".png", ".gif")}
    assert shown == set(figures.FIGURES) == made


def test_the_commands_stand_in_the_documents(figures):
    text = "".join(path.read_text("utf-8") for path in PAGES)
    text = re.sub(r" *\\\n *", " ", text)
    for command, _, _ in figures.FIGURES.values():
        assert command.removeprefix("python ") in text, command


def save(path, pixels, said="rounds 6"):
    facts = PngInfo()
    facts.add_text("Description", said, zip=True)
    Image.fromarray(pixels).save(path, pnginfo=facts)
    return path


def test_what_counts_as_a_change(figures, tmp_path):
    white = np.full((40, 50, 3), 255, np.uint8)
    noisy, marked = white.copy(), white.copy()
    noisy[::2] -= 8
    marked[33:37, 40:44] = 0  # a mark in a tile that is not a whole one
    one = save(tmp_path / "one.png", white)
    assert figures.compare(one, save(tmp_path / "noisy.png", noisy)) == ""
    assert "pixels differ by 0.062" in figures.compare(one, save(tmp_path / "marked.png", marked))
    assert "sizes" in figures.compare(one, save(tmp_path / "smaller.png", white[1:]))
    assert figures.compare(one, save(tmp_path / "told.png", white, "rounds 7")) == (
        "what was printed differs: 'rounds 6' and 'rounds 7'"
    )


def test_tables_and_figure_of_the_readme_have_the_numbers_of_the_rankings(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "docs"), *sys.path])
    import front_page

    text = (ROOT / "README.md").read_text("utf-8")
    assert all(table in text for table in front_page.make_tables().values())
    page = (ROOT / "docs/results/personal.md").read_text("utf-8")
    (line,) = re.findall(r"^ *\d+  gtvmin:coupling=links  .*$", page, re.MULTILINE)
    row = front_page.read_ranking("personal")["gtvmin:coupling=links"]
    assert line.split()[1:] == " ".join(row.values()).split()
    costs = front_page.read_families()
    for entry, cells in re.findall(r"^\| `([^`]+)` \| (.*) \|$", page, re.MULTILINE):
        assert [f"{cost:.3f}" for cost in costs[entry]] == re.findall(r"(\d\.\d+) /", cells)
