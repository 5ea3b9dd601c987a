"""What is printed reaches terminals of every encoding; letters that one lacks become question marks.

Each note of a short run is printed once.
"""

import io
import json
import re
import sys
from itertools import product

import pytest

from p2pkm.cli import summary_table
from p2pkm.cli.main import main
from tests.support.run_cli import fill, here, there
from tests.support.sampling import thin

NAMES = ("Zürich", "東京", "Oulu", "Łódź")
ENCODINGS = ("ascii", "latin-1", "cp1252", "utf-8", "shift_jis")


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "Größen.csv"
    lines = [f"{i}.5,{i % 3},{NAMES[i % 4]}" for i in range(16)]
    path.write_text("\n".join(["x,y,device", *lines]) + "\n", "utf-8")
    return path


def call(encoding, errors, *words):
    """Return the code of a command line, and what it printed in an encoding."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding, errors=errors) for _ in range(2))
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = out, err
    try:
        code = main([str(word) for word in words])
    finally:
        sys.stdout, sys.stderr = before
    out.flush()
    err.flush()
    return code, out.buffer.getvalue().decode(encoding), err.buffer.getvalue().decode(encoding)


@pytest.mark.parametrize(("encoding", "errors"), thin(product(ENCODINGS, ["strict", "surrogateescape"]), 3))
@pytest.mark.sample(3)
def test_a_run_with_names_ends_in_every_encoding(table, encoding, errors, tmp_path):
    code, out, err = call(encoding, errors, "--data", table, "-k", 2, "--no-plot", "--out", tmp_path / "Zürich",
                          "--rounds", 1)  # fmt: skip
    assert code == 0, err
    shown = str(tmp_path / "Zürich").encode(encoding, "replace").decode(encoding)
    assert shown in out.replace("\n", "")


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.sample(3)
def test_json_errors_and_pages_reach_every_encoding(table, encoding):
    code, out, _ = call(encoding, "strict", "--data", table, "-k", 2, "--out", "none", "--format", "json",
                        "--rounds", 1)  # fmt: skip
    assert code == 0 and out.isascii()
    code, _, err = call(encoding, "strict", "--data", table.with_name("Łódź.csv"), "-k", 2, "--out", "none")
    assert code == 3 and "csv" in err
    assert call(encoding, "strict", "algorithms", "gtvmin")[0] == 0


@pytest.mark.slow
def test_a_terminal_that_knows_ascii_alone(table, tmp_path):
    table = table.rename(tmp_path / "names.csv")
    found = there(sys.executable, "-m", "p2pkm", "--data", table, "-k", 2, "--no-plot", "--rounds", 1, cwd=tmp_path,
                  PYTHONIOENCODING="ascii", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", LC_ALL="C")  # fmt: skip
    assert found.code == 0, found.err
    assert len(list((tmp_path / "runs").glob("*/checksums*"))) == 1


# Runs with a note, by what writes it: transforms, a stage, the graph, the secret, the choice of k, defaults.
NOTED = {
    "faults": ("--faults", "dropout=0.2"),
    "deadline": ("--deadline", 1, "--link-model", "wan", "--schedule", "jacobi"),
    "client share": ("--algorithm", "fkm", "--client-share", 0.5),
    "secret": ("--algorithm", "private:epsilon=40,radius=60"),
    "link weights": ("--graph", "les-miserables", "--devices", 77),
    "choice of k": ("--data", "balls:points=60", "-k", "auto", "--k-max", 3),
    "default": ("--noise", 0.1),
}


@pytest.mark.parametrize("name", NOTED)
@pytest.mark.sample(3)
def test_a_note_is_printed_once_with_the_table_or_with_the_summary(name):
    usual = ("--data", "grid16:points=10", "--devices", "6", "--rounds", "2", "--out", "none")
    command = fill(usual, NOTED[name])
    table = here(*command)
    listed = re.findall(r"^  note +(\S.*)$", table.out, re.MULTILINE)
    assert listed and table.err == ""
    summary = here(*command, "--format", "json")
    assert json.loads(summary.out)["rounds"] <= 2
    assert summary.err.splitlines() == [f"p2pkm: {note}" for note in listed]
    quiet = here(*command, "-q")
    assert re.findall(r"^  note +(\S.*)$", quiet.out, re.MULTILINE) == listed
    assert here(*command, "-q", "--format", "json").err == ""


@pytest.mark.parametrize(("pause", "is_long"), [(-1.0, True), (60.0, False)])
def test_a_long_run_has_its_notes_while_it_runs_too(monkeypatch, pause, is_long):
    monkeypatch.setattr(summary_table, "_PAUSE", pause)
    found = here(
        *fill(("--data", "grid16:points=10", "--devices", "6", "--rounds", "3", "--out", "none"), NOTED["faults"])
    )
    notes = re.findall(r"^  note +(\S.*)$", found.out, re.MULTILINE)
    announced = [line.removeprefix("p2pkm: ") for line in found.err.splitlines() if line.startswith("p2pkm: ")]
    # Others are known at the end only.
    assert announced == ([note for note in notes if note.startswith("faults")] if is_long else [])
    assert bool(announced) == is_long
