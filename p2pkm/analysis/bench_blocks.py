"""Rows of a benchmark as arrays: one line per entry, one column per block of runs on the same points.

A block is a task, a graph and a seed. A run without a graph (methods with a server, baselines) counts in the block of
each graph of its task and seed.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from p2pkm.analysis.study_table import SERVED
from p2pkm.core.batch import Floats, Integers, Mask
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.storage.study_rows import Row

# Smallest excess that is distinguished, 0.01 %: smaller ones depend on the best known cost.
FLOOR = 1e-4
# Excess of a run without a result: it costs twice the best known clustering.
FAILED = 1.0
# Columns that every row must have.
REQUIRED = ("task", "graph", "seed", "entry", "trust", "status", "excess")
DONE = "done"
MISSING = "missing"
STATES = (DONE, "rejected", "failed", "timeout", MISSING)
BASELINE = "baseline"
# Classes of trust, from the least to the most that devices must trust others.
TRUSTS = ("no server", "private", "server", "raw points leave", BASELINE)
_INTEGER = "integer"
_OURS = "ours"


class Blocks(NamedTuple):
    """Runs of a benchmark by entry and block.

    Attributes
    ----------
    entries : list of str
        Names of the entries.
    facts : dict of str to dict
        First row of each entry.
    keys : list of tuple
        Task, graph and seed of each block.
    units : int64[blocks]
        Number of the unit of each block, see `name_unit`.
    weights : float64[blocks]
        Share of each block: units, their seeds, the tasks of these, and their graphs count equally; the sum is 1.
    states : str[entries, blocks]
        Status of each run; "missing" without a row.
    values : dict of str to float64[entries, blocks]
        Numbers of the rows by column; NaN if a row lacks one. The excess is NaN without a result.
    """

    entries: list[str]
    facts: dict[str, Row]
    keys: list[tuple[str, str, int]]
    units: Integers
    weights: Floats
    states: Any
    values: dict[str, Floats]

    @property
    def is_missing(self) -> Mask:
        """Whether a run has no result, bool[entries, blocks]."""
        return np.isnan(self.values["excess"])

    @property
    def excess(self) -> Floats:
        """Excess with its floor and with that of runs without a result, float64[entries, blocks]."""
        known: Floats = np.where(self.is_missing, FAILED, np.maximum(self.values["excess"], FLOOR))
        return known

    @property
    def log_costs(self) -> Floats:
        """Logarithm of the cost divided by the best known one, float64[entries, blocks]."""
        logarithms: Floats = np.log1p(np.where(self.is_missing, FAILED, self.values["excess"]))
        return logarithms


def name_unit(row: Mapping[str, Any]) -> str:
    """Return the data of a task, the unit that counts as independent.

    These are the column ``points`` without the number of clusters and the seed, such as ``digits`` of ``digits k=10``;
    without this column, the name of the task without its last part, the partition, such as ``grid16`` of
    ``grid16-skew``.
    """
    parts = str(row.get("points") or "").split()
    data = " ".join(part for part in parts if not part.startswith(("k=", "seed=")))
    return data or str(row["task"]).rpartition("-")[0] or str(row["task"])


def is_by_tests(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether rows are those of a suite that ranks by test points."""
    return any("family" in row for row in rows)


def name_method(entry: str) -> str:
    """Return the method of an entry, such as "gtvmin" of "gtvmin (paper)"."""
    return entry.partition(" (")[0]


def check_rows(rows: Any) -> list[Row]:
    """Validate the rows of a benchmark and return them as a list.

    Raises
    ------
    ExperimentError
        If a row lacks a column or has an unknown status, or if two rows are the same run.
    DataError
        If `rows` is empty.
    """
    listed = list(rows) if isinstance(rows, Iterable) and not isinstance(rows, (Mapping, str)) else [rows]
    if not listed:
        raise DataError("the benchmark has no rows; expected at least one run. Run the benchmark first")
    if not all(isinstance(row, Mapping) for row in listed):
        raise ExperimentError(f"rows have type {type(rows).__name__}; expected a list of rows of a benchmark")
    lacking = sorted({name for row in listed for name in REQUIRED if name not in row})
    if lacking:
        raise ExperimentError(f"rows lack the columns {', '.join(lacking)}; expected rows of a benchmark")
    counts: dict[tuple[Any, ...], int] = {}
    for row in listed:
        if row["status"] not in STATES:
            raise ExperimentError(f"status of {row['entry']} is {row['status']!r}; expected {', '.join(STATES)}")
        key = row["entry"], row["task"], row["graph"], row["seed"]
        counts[key] = counts.get(key, 0) + 1
    twice = [key for key, number in counts.items() if number > 1]
    if twice:
        raise ExperimentError(
            f"rows contain {twice[0][0]} on task {twice[0][1]}, graph {twice[0][2]}, seed {twice[0][3]} "
            f"{counts[twice[0]]} times; expected one row per run. Remove the copies"
        )
    return [dict(row) for row in listed]


def read_blocks(rows: Sequence[Row], columns: Sequence[str]) -> Blocks:
    """Arrange rows by entry and block.

    Parameters
    ----------
    rows : sequence of Row
        As returned by `check_rows`.
    columns : sequence of str
        Columns with numbers, in addition to the excess.

    Notes
    -----
    Entries, blocks and units are sorted, so the result does not depend on the order of the rows.
    """
    rows = sorted(rows, key=lambda row: (str(row["task"]), row["seed"], str(row["graph"]), row["entry"]))
    graphs: dict[tuple[str, int], dict[str, None]] = {}
    for row in rows:
        known = graphs.setdefault((row["task"], row["seed"]), {})
        if _has_graph(row):
            known[row["graph"]] = None
    keys = [(task, graph, seed) for (task, seed), known in graphs.items() for graph in known or {SERVED: None}]
    facts: dict[str, Row] = {}
    for row in rows:
        facts.setdefault(row["entry"], row)
    entries = sorted(facts)
    place = {entry: number for number, entry in enumerate(entries)}
    column = {key: number for number, key in enumerate(keys)}
    shape = len(entries), len(keys)
    states = np.full(shape, MISSING, dtype=object)
    values = {name: np.full(shape, np.nan) for name in dict.fromkeys(("excess", *columns))}
    # Runs on a graph replace those without one.
    for row in sorted(rows, key=_has_graph):
        task, seed = row["task"], row["seed"]
        for graph in (row["graph"],) if _has_graph(row) else graphs[task, seed] or (SERVED,):
            cell = place[row["entry"]], column[task, graph, seed]
            excess = _read_number(row, "excess") if row["status"] == DONE else math.nan
            states[cell] = "failed" if row["status"] == DONE and math.isnan(excess) else row["status"]
            for name, table in values.items():
                table[cell] = excess if name == "excess" else _read_number(row, name)
    units = {(row["task"], row["seed"]): name_unit(row) for row in rows}
    names = list(dict.fromkeys(units.values()))
    numbers = np.array([names.index(units[task, seed]) for task, _, seed in keys])
    return Blocks(entries, facts, keys, numbers, _weigh(keys, numbers), states, values)


def list_main(blocks: Blocks) -> list[str]:
    """List an entry per method, without baselines: with our defaults and, where it exists, the integer encoding."""
    best: dict[str, str] = {}
    for entry, row in blocks.facts.items():
        method = name_method(entry)
        if row["trust"] != BASELINE and (method not in best or _prefer(row) > _prefer(blocks.facts[best[method]])):
            best[method] = entry
    return list(best.values())


def _prefer(row: Mapping[str, Any]) -> tuple[bool, bool]:
    return row.get("defaults", _OURS) == _OURS, row.get("encoding") == _INTEGER


def _has_graph(row: Mapping[str, Any]) -> bool:
    return row["graph"] not in (None, SERVED) and row["trust"] != BASELINE


def _read_number(row: Mapping[str, Any], name: str) -> float:
    """Return a number of a row; NaN if it is not finite or not known."""
    value = row.get(name)
    return float(value) if value is not None and math.isfinite(value) else math.nan


def _weigh(keys: Sequence[tuple[str, str, int]], units: Integers) -> Floats:
    """Compute the share of each block, see `Blocks.weights`."""
    paths = [(unit, seed, task, graph) for unit, (task, graph, seed) in zip(units.tolist(), keys, strict=True)]
    weights = np.ones(len(keys))
    for depth in range(4):
        children: dict[Any, set[Any]] = {}
        for path in paths:
            children.setdefault(path[:depth], set()).add(path[depth])
        weights /= [len(children[path[:depth]]) for path in paths]
    return weights
