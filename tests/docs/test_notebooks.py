"""The notebooks of `examples/` run cell by cell, print what is stored in them, and their conclusions hold."""

import ast
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def notebooks():
    spec = importlib.util.spec_from_file_location("notebooks", ROOT / "docs" / "notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@each
def test_a_notebook_prints_what_is_stored_in_it(notebooks, path, tmp_path, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    stored = [cell["outputs"] for cell in notebooks.read(path)["cells"] if cell["cell_type"] == "code"]
    made = notebooks.run(path, tmp_path)
    assert list(map(notebooks.printed, made)) == list(map(notebooks.printed, stored)), "python docs/notebooks.py"
    assert [len(one) for one in made] == [len(one) for one in stored]


@each
def test_a_notebook_is_a_script_for_the_gallery(notebooks, path):
    script = ast.parse(notebooks.to_script(path))
    assert ast.get_docstring(script) and len(script.body) > 1


@each
def test_a_notebook_checks_its_conclusions(notebooks, path):
    *_, last = (cell for cell in notebooks.read(path)["cells"] if cell["cell_type"] == "code")
    assert sum(isinstance(node, ast.Assert) for node in ast.parse("".join(last["source"])).body) >= 5
