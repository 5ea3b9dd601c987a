"""Store the table of speed as measured values of the documentation."""

import csv
import subprocess
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path

import p2pkm

_ROOT = Path(__file__).parents[2]
_FILE = _ROOT / "docs" / "results" / "speed.csv"
_CLAIM = "benchmarks"


def find_commit() -> str:
    """Return the commit whose packages are measured.

    Raises
    ------
    SystemExit
        If they differ from those of the commit, which the table would name.
    """
    changed = _git("status", "--porcelain", "--", "p2pkm", "topologies", "tests/benchmarks")
    if changed:
        raise SystemExit(f"--write names the commit that was measured; commit first:\n{changed}")
    return _git("rev-parse", "--short=8", "HEAD")


def write(table: Iterable[Mapping[str, str]], commit: str, machine: str, path: Path = _FILE) -> None:
    """Replace the rows of an earlier table, by "what" and the other columns.

    Parameters
    ----------
    table : iterable of dict of str to str
        One for each figure: "what", and the texts of the other columns. Empty cells are not stored.
    commit, machine : str
        Commit and machine that were measured.
    path : Path
        Table of measured values, see docs/measured.py.
    """
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        rows = [row for row in reader if not row["id"].startswith(f"{_CLAIM}.")]
        columns = reader.fieldnames or ()
    origin = {
        "setting": "One run on an idle machine, medians", "unit": "", "seeds": "-",
        "command": "python -m tests.benchmarks", "version": f"{p2pkm.__version__} at {commit}",
        "machine": machine, "date": f"{date.today():%Y-%m-%d}",
    }  # fmt: skip
    values = [
        {"row": line["what"], "statistic": name, "value": value}
        for line in table
        for name, value in line.items()
        if name != "what" and value
    ]
    rows[:0] = [{"id": f"{_CLAIM}.{number}", **value, **origin} for number, value in enumerate(values, 1)]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _git(*words: str) -> str:
    done = subprocess.run(["git", "-C", str(_ROOT), *words], capture_output=True, check=True, text=True)
    return done.stdout.strip()
