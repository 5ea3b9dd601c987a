"""The figures of README and documentation: one script makes them all, and sees what has changed."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

import p2pkm
import topologies
from p2pkm.metrics.closing_table import list_summary_rows
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


def test_the_readme_shows_the_figures_of_the_command():
    """Every line of the README's closing table, as far as it has one of the run: the same figures."""
    X, y = p2pkm.grid16(seed=0)
    device = p2pkm.partition.dirichlet(y, 16, alpha=0.3, seed=0)
    result = p2pkm.simulate(
        p2pkm.GTVMin(16), topologies.ring(16), p2pkm.Shards.deal(X, device, devices=16, labels=y), seed=0
    )
    made = {what: figure for what, figure, _ in list_summary_rows(result.summary, [])}
    block = (ROOT / "README.md").read_text("utf-8").split("## What you see")[1].split("```")[1]
    shown = {what: figure for what, figure in re.findall(r"^  (\S.*?) {2,}(\S+)  ", block, re.MULTILINE)}
    assert len(shown) > 8
    assert {what: made[what] for what in shown if what != "run folder"} == {
        what: figure for what, figure in shown.items() if what != "run folder"
    }
