"""Every example runs, in a folder of its own, and says something."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.run_cli import environment

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


SMALL = {"week": ("--devices", "40", "--hours", "26", "--jobs", "1")}
OPTIONAL = {"anndata", "jax", "polars", "pyarrow", "pymetis", "dp_accounting"}


def test_an_example_without_its_optional_package_says_what_to_install(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({sorted(OPTIONAL)}))\n")
    paths = os.pathsep.join((str(tmp_path), str(EXAMPLES[0].parents[1])))
    path = next(path for path in EXAMPLES if path.stem == "deep_clustering")
    done = subprocess.run([sys.executable, path], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
                          env=os.environ | {"PYTHONPATH": paths})  # fmt: skip
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("deep clustering needs JAX") and 'pip install "p2pkm[deep]"' in done.stderr


def test_no_other_example_imports_an_optional_package():
    for path in EXAMPLES:
        tree = ast.parse(path.read_text("utf-8"))
        names = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
        names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not {name.partition(".")[0] for name in names} & OPTIONAL, path


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path, tmp_path):
    if path.stem == "deep_clustering":
        pytest.importorskip("jax", reason="needs the extra deep")
    done = subprocess.run(
        [sys.executable, "-W", "error", path, *SMALL.get(path.stem, ())],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert not done.stderr.strip()
