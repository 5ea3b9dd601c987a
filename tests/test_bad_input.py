"""What a user can get wrong: the exit code, a message that says what, no traceback, and nothing written."""

import os

import numpy as np
import pytest

from tests.bad_input import CONTENT, FILES, USAGE
from tests.invoke import SMALL, here, listed, needs_mpirun, ranks, there


def _rows(table, code):
    for line in table:
        words, piece = line.split(" | ")
        yield pytest.param(words.split(), code, piece, id=words.strip())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Stand in a folder with all the files."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    for name in ("binary.toml", "binary.csv"):
        (tmp_path / name).write_bytes(b"\xff\xfe\x00")
    arrays = {"nan": [[0.0, 1.0], [np.nan, 2.0]], "flat": [1.0, 2.0, 3.0, 4.0], "none": np.zeros((0, 2)),
              "text": [["a", "b"], ["c", "d"]], "pickled": np.array([[{}]])}  # fmt: skip
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    np.savez(tmp_path / "several.npz", a=np.zeros((3, 2)), b=np.ones((3, 2)))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").write_text("do not touch")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _check(ending, code, piece, folder, before):
    assert (ending.code, ending.out) == (code, "")
    assert piece in " ".join(ending.err.split())
    assert "Traceback" not in ending.err
    assert listed(folder) == before
    assert (folder / "full" / "precious").read_text() == "do not touch"


@pytest.mark.parametrize(("words", "code", "piece"), [*_rows(USAGE, 2), *_rows(CONTENT, 3)])
def test_message(folder, words, code, piece):
    before = listed(folder)
    fixed = SMALL if words[0].startswith("-") and words[0] != "--config" and words[-1] != "run" else ()
    code = 2 if words == ["--data", "full"] else code
    _check(here(*fixed, *words), code, piece, folder, before)


@pytest.mark.parametrize("key", ["hops", "candidates"])
def test_values_of_a_seeding(folder, key):
    before = listed(folder)
    _check(here(*SMALL, "--seeding", f"summaries:{key}=0"), 2, "at least 1", folder, before)


def test_long_name(folder):
    before = listed(folder)
    _check(here(*SMALL, "--out", "a" * 300), 2, "cannot be used", folder, before)


def test_folder_that_may_not_be_written_to(folder, monkeypatch):
    locked = folder / "locked"
    locked.mkdir(mode=0o500)
    if os.access(locked, os.W_OK):  # root may write anywhere
        access = os.access
        monkeypatch.setattr(os, "access", lambda path, mode: path != locked and access(path, mode))
    before = listed(folder)
    _check(here(*SMALL, "--out", "locked/run"), 2, "may be written to", folder, before)


def test_dry_run_refuses_as_well(folder):
    before = listed(folder)
    _check(here(*SMALL, "--dry-run", "--graph", "file:two.edgelist"), 3, "disconnected", folder, before)


@needs_mpirun
@pytest.mark.parametrize(
    ("words", "code", "piece"),
    [
        (["--graph", "rnig"], 2, "Did you mean 'ring'?"),
        (["--nope"], 2, "No such option"),
        (["--data", "ragged.csv"], 3, "3 fields, expected 2"),
        (["--graph", "file:two.edgelist", "--devices", "4"], 3, "it has 2 components"),
    ],
)
def test_all_ranks_end_alike(folder, words, code, piece):
    """The launcher returns the logical OR of the codes, so a rank with another one would show."""
    before = listed(folder)
    ending = there(*ranks(3), "-m", "p2pkm", *words)
    _check(ending, code, piece, folder, before)
    assert ending.err.count(piece) == 1
    assert "Abort" not in ending.err
