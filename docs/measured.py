"""Measured values of the documentation: rows of docs/results/*.csv, the tables made of them, and values in pages.

A value in a page is a link to its file, whose title is the row:
``[1.0010](../results/methods.csv "methods-on-ring.1")``. To add one, write ``[?](# "methods-on-ring.1")`` and run
docs/write_pages.py. A page shows the table of a claim between ``<!-- made: table-CLAIM -->`` and ``<!-- end -->``.
"""

import csv
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
# Values such as "-0.95 [-0.98, -0.84]" have brackets of their own.
VALUE = re.compile(r'\[((?:[^\[\]]|\[[^\[\]]*\])+)\]\([^()\s]* "([\w.-]+\.\w+)"\)')


class Row(NamedTuple):
    """One measured value.

    Attributes
    ----------
    id : str
        ``claim.number``; a page names the row by it.
    setting, row, statistic : str
        Experiment, row and column of the table.
    value, unit : str
    seeds, command, version, machine, date : str
        How the value was measured. Machine "any": the value does not depend on it.
    """

    id: str
    setting: str
    row: str
    statistic: str
    value: str
    unit: str
    seeds: str
    command: str
    version: str
    machine: str
    date: str

    @property
    def claim(self) -> str:
        """Name of the table that the row belongs to."""
        return self.id.rpartition(".")[0]


@cache
def read_results() -> dict[str, list[Row]]:
    """Read all rows, by the name of the file."""
    tables = {}
    for path in sorted((HERE / "results").glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            tables[path.stem] = [Row(**line) for line in csv.DictReader(file)]
    return tables


def make_tables() -> dict[str, str]:
    """Make the list of all claims, and the table of each claim under the name ``table-CLAIM``, in Markdown."""
    made = {}
    claims = ["| file | values | claims |", "|---|---|---|"]
    for name, rows in read_results().items():
        groups = dict(_by_claim(rows))
        for claim, group in groups.items():
            made[f"table-{claim}"] = "\n".join([*_make_table(group), "", _describe_origin(name, group[0])]) + "\n"
        claims.append(f"| [{name}]({name}.csv) | {len(rows)} | {', '.join(f'`{claim}`' for claim in groups)} |")
    return made | {"claims": "\n".join(claims) + "\n"}


def _by_claim(rows: list[Row]) -> Iterator[tuple[str, list[Row]]]:
    for claim in dict.fromkeys(row.claim for row in rows):
        yield claim, [row for row in rows if row.claim == claim]


def _make_table(rows: list[Row]) -> list[str]:
    """Format the values of a claim as a Markdown table: a line for each row, a column for each statistic."""
    columns = list(dict.fromkeys(row.statistic for row in rows))
    cells: dict[str, dict[str, str]] = {}
    for row in rows:
        cells.setdefault(row.row, {})[row.statistic] = row.value
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    lines += [
        f"| {name} | {' | '.join(values.get(column, '') for column in columns)} |" for name, values in cells.items()
    ]
    return lines


def _describe_origin(name: str, row: Row) -> str:
    machine = "" if row.machine == "any" else f", {row.machine}"
    origin = f"Seeds: {row.seeds}. Version {row.version}, {row.date}{machine}. `{row.command}`"
    return f"`{row.claim}` in {name}.csv. {row.setting}. {origin}"


def write_values(text: str, page: Path) -> str:
    """Update the measured values of a page and their links.

    A page may show a part of a value, such as 45 of "45 of 68". What does not occur in its row is replaced by the value
    of the row.

    Raises
    ------
    KeyError
        If no row has the name.
    """
    known = {row.id: (name, row) for name, rows in read_results().items() for row in rows}

    def write(match: re.Match[str]) -> str:
        shown, (name, row) = match[1], known[match[2]]
        if not re.search(rf"(?<![\w.]){re.escape(shown)}(?![\w.]*\d)", row.value):
            shown = row.value
        place = Path(os.path.relpath(HERE / "results" / f"{name}.csv", page.parent)).as_posix()
        return f'[{shown}]({place} "{row.id}")'

    return VALUE.sub(write, text)
