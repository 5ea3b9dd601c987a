"""The figures of README and documentation: one script makes them all, and sees what has changed."""

import importlib.util
import os
import re
import subprocess
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
    pages = [*PAGES, *(ROOT / "docs" / "results" / "log").glob("*.md")]
    shown = {
        name for page in pages for name in re.findall(r"\]\((?:docs/|(?:\.\./)+)?(\w+\.png)\)", page.read_text("utf-8"))
    }
    assert shown == set(figures.FIGURES) == {path.name for path in (ROOT / "docs").glob("*.png")}


def test_the_commands_stand_in_the_documents(figures):
    text = "".join(path.read_text("utf-8") for path in (*PAGES, *(ROOT / "docs" / "results" / "log").glob("*.md")))
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


def test_the_table_of_the_readme_is_that_of_its_script():
    spec = importlib.util.spec_from_file_location("readme_table", ROOT / "docs" / "readme_table.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    table = (ROOT / "README.md").read_text("utf-8").split("| method |")[1].split("\n\n")[0]
    rows = [line.split(" | ") for line in table.splitlines()[2:]]
    assert [row[0].strip("| ") for row in rows] == list(module.METHODS)
    assert "python docs/readme_table.py" in (ROOT / "README.md").read_text("utf-8")


@pytest.mark.slow
def test_the_table_of_the_readme_is_measured():
    made = subprocess.run(
        [sys.executable, ROOT / "docs" / "readme_table.py"], capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    ).stdout  # fmt: skip
    assert made in (ROOT / "README.md").read_text("utf-8")
