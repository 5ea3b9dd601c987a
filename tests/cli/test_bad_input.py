"""What a user can get wrong: the exit code, a message that says what, no traceback, and nothing written."""

import os
import shlex
import shutil

import pytest

from tests.support.bad_input_files import REJECTED, RUNS, damage, make_files, rows, table
from tests.support.run_cli import SMALL, here, listed, ranks, there
from tests.support.sampling import thin


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Make a folder with all the files, and runs, whole and damaged."""
    folder = tmp_path_factory.mktemp("place") / "here"
    folder.mkdir()
    make_files(folder)
    assert here(*SMALL, "--out", folder / "run-good", "-q").code == 0
    for name in RUNS.keys() - {"run-good"}:
        damage(name, shutil.copytree(folder / "run-good", folder / name))
    return folder


@pytest.fixture
def folder(place, monkeypatch):
    monkeypatch.chdir(place)
    return place


def _check(ending, code, piece, folder, before):
    assert ending.code == code, ending
    assert ending.out == "" or code == 6
    assert piece in " ".join((ending.err + ending.out).split())
    assert "Traceback" not in ending.err and "Warning" not in ending.err
    assert listed(folder) == before
    assert (folder / "full" / "precious").read_text() == "do not touch"


@pytest.mark.parametrize("third", thin(range(3), 3))
@pytest.mark.parametrize("section", dict.fromkeys(row.section for row in rows()))
def test_mistakes(folder, section, third, monkeypatch):
    """A third of the rows of a section, which takes less time than a test for each row."""
    wrong, before = [], listed(folder)
    for row in [row for row in rows() if row.section == section][third::3]:
        words = shlex.split(row.words)
        with monkeypatch.context() as patched:
            while words and words[0].startswith("P2PKM_"):
                patched.setenv(*words.pop(0).split("=", 1))
            fixed = SMALL if words[0].startswith("-") and words[0] != "--config" and words[-1] != "run" else ()
            try:
                _check(here(*fixed, *words), row.code, row.piece, folder, before)
            except Exception as error:
                wrong.append(f"{row.words}\n    {type(error).__name__}: {error}")
                before = listed(folder)
    assert not wrong, "\n".join((f"{len(wrong)} rows of {section!r} end otherwise:", *wrong))


def test_the_table_is_that_of_the_rows():
    found = rows()
    assert len(found) >= 120 and len({row.words for row in found}) > 0.98 * len(found)
    assert REJECTED.read_text("utf-8") == table(), "run python -m tests.support.bad_input_files"


@pytest.mark.parametrize("key", ["hops", "candidates"])
def test_values_of_a_seeding(folder, key):
    before = listed(folder)
    _check(here(*SMALL, "--init", f"flooded-summaries:{key}=0"), 2, "at least 1", folder, before)


def test_long_name(folder):
    before = listed(folder)
    _check(here(*SMALL, "--out", "a" * 300), 2, "cannot be used", folder, before)


def test_folder_that_may_not_be_written_to(folder, monkeypatch, request):
    locked = folder / "locked"
    locked.mkdir(mode=0o500)
    request.addfinalizer(locked.rmdir)
    if os.access(locked, os.W_OK):  # root may write anywhere
        access = os.access
        monkeypatch.setattr(os, "access", lambda path, mode: path != locked and access(path, mode))
    before = listed(folder)
    _check(here(*SMALL, "--out", "locked/run"), 2, "is not a writable folder", folder, before)


def test_dry_run_refuses_as_well(folder):
    before = listed(folder)
    _check(here(*SMALL, "--dry-run", "--graph", "file:two.edgelist"), 3, "disconnected", folder, before)


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("words", "code", "piece"),
    [
        (["--graph", "rnig"], 2, "Did you mean 'ring'?"),
        (["--nope"], 2, "No such option"),
        (["--data", "ragged.csv"], 3, "3 fields; expected 2"),
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
