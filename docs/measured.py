"""Measured values of the documentation: tables in docs/results/*.csv, pages made from them, and the role ``{result}``.

A value in a page is written with the row that it comes from: ``{result}`1.0014 <methods-without-server.1>` ``. The role
shows the value and links to the table; `check_values` compares it with the row.
"""

import csv
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
ROLE = re.compile(r"\{result\}`([^`<]+?)\s*<([\w.-]+)>`")


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


def write_pages(folder: Path) -> None:
    """Write one page of tables for each file, and the list of all claims."""
    folder.mkdir(parents=True, exist_ok=True)
    claims = ["| claim | experiment | values | page |", "|---|---|---|---|"]
    for name, rows in read_results().items():
        lines = []
        for claim, group in _by_claim(rows):
            lines += [f"({claim})=", f"## {claim.replace('-', ' ').capitalize()}", "", f"{group[0].setting}.", ""]
            lines += [*_make_table(group), "", _describe_origin(group[0]), ""]
            claims.append(f"| [{claim}](#{claim}) | {group[0].setting} | {len(group)} | {name} |")
        (folder / f"results-{name}.md").write_text("\n".join(lines), encoding="utf-8")
    (folder / "claims.md").write_text("\n".join(claims) + "\n", encoding="utf-8")


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


def _describe_origin(row: Row) -> str:
    machine = "" if row.machine == "any" else f", {row.machine}"
    return f"Seeds: {row.seeds}. Version {row.version}, {row.date}{machine}. `{row.command}`"


def check_values(text: str) -> list[str]:
    """List the values of a page that differ from their row, or that have none."""
    values = {row.id: row.value for rows in read_results().values() for row in rows}
    errors = []
    for value, name in ROLE.findall(text):
        if name not in values:
            errors.append(f"no row {name} in docs/results")
        elif not re.search(rf"(?<![\w.]){re.escape(value)}(?![\w.]*\d)", values[name]):
            errors.append(f"{name} is {values[name]}, not {value}")
    return errors


def link_value(name: str, rawtext: str, text: str, lineno: int, inliner: Any, **options: Any) -> Any:
    """Show a measured value as a link to its table; the role ``{result}``."""
    from docutils import nodes
    from sphinx import addnodes

    value, row = re.fullmatch(r"(.+?)\s*<([\w.-]+)>", text, re.DOTALL).groups()  # type: ignore[union-attr]
    claim = row.rpartition(".")[0]
    link = addnodes.pending_xref("", refdomain="std", reftype="ref", reftarget=claim, refexplicit=True, refwarn=True)
    link += nodes.inline("", value)
    return [link], []
