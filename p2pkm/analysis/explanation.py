"""Relation of outcomes of a study to measures of its graphs: rank correlations and predictors, per method.

A graph is one observation: runs on it are averaged over seeds. Graphs are compared with graphs of the same number of
devices where a method has at least 8 of them. All other graphs are compared together, each averaged over its numbers
of devices. Draws of a random graph with one spec count as one graph, because they resemble each other.
"""

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from p2pkm.analysis.graph_measures import DEVICES, MEASURES
from p2pkm.analysis.paired_tests import LEVEL, correct
from p2pkm.analysis.rank_correlations import Correlations, correlate, find_predictors, rank
from p2pkm.core.batch import Floats
from p2pkm.core.units import count
from p2pkm.storage.save import write_bytes

Row = dict[str, Any]
# Smallest number of graphs for a correlation: with 7, Holm's correction leaves nothing significant among 250 tests.
GRAPHS = 8
# Outcomes by column of the rows of a study, with their names in tables.
OUTCOMES = {
    "ratio_mean": "excess",
    "ratio_worst": "excess of the worst device",
    "wire_bytes": "encoded bytes",
    "bytes_busiest": "plain bytes of the busiest device",
    "rounds": "rounds",
    "virtual_seconds": "simulated time",
}
# Excess over central k-means below which all values are equal, as in the verdicts.
_FLOOR = 1e-4
# Columns of the table in a file.
COLUMNS = (
    "method", "devices", "graphs", "outcome", "measures", "statistic", "value", "low", "high", "p", "significant",
    "repeated",
)  # fmt: skip
# Sentence on the statistics, for texts and the report.
TESTS = (
    "Spearman's correlation with its 95 % interval (bootstrap over graphs). Significant: permutation test at level "
    "0.05, Holm correction over all. Explained: share of the variance of the logarithm on graphs left out; 0 % is the "
    "mean of the other graphs."
)
_DIGITS = 6  # of a number in the file
_DECIMALS = 9  # of logarithms that are compared
FILE = "explain.csv"  # in the folder of a study
_NAMED = 6  # most names in a note


@dataclass(frozen=True, repr=False)
class Explanation:
    """Relation of the outcomes of a study to measures of its graphs, as returned by `p2pkm.Study.explain`.

    Attributes
    ----------
    correlations : list of dict
        A row per method, number of devices, outcome and measure: ``correlation`` (Spearman), ``low`` and ``high`` (95 %
        interval, bootstrap over graphs), ``p`` (permutation test, Holm-corrected over all rows) and ``significant``.
        ``devices`` is None where graphs of several numbers of devices are compared.
    predictors : list of dict
        Two rows per method, number of devices and outcome: the best one and the best two ``measures``, the share of the
        variance that they ``explained`` on graphs left out, and the share of parts in which they were ``repeated``.
    notes : list of str
        Runs, measures and outcomes that are left out, with reasons.
    graphs : int
        Number of graphs.

    Examples
    --------
    >>> import p2pkm
    >>> from p2pkm.analysis.graph_measures import MEASURES
    >>> rows = [
    ...     {"algorithm": "gossip", "graph": f"graph {i}", "seed": 0, "rounds": 90 - i * i, **dict.fromkeys(MEASURES)}
    ...     | {"spectral_gap": 0.1 + i} for i in range(9)
    ... ]
    >>> found = p2pkm.Study(rows).explain()
    >>> row = found.correlations[0]
    >>> row["outcome"], row["measure"], row["correlation"], row["significant"]
    ('rounds', 'spectral_gap', -1.0, True)
    """

    correlations: list[Row]
    predictors: list[Row]
    notes: list[str]
    graphs: int

    def to_frame(self) -> Any:
        """Convert the correlations to a pandas.DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.correlations)

    def to_csv(self) -> str:
        """Format correlations and predictors as one table, with a line per value."""
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        for row in self.correlations:
            writer.writerow(_round(_rename(row, "rank correlation", correlation="value", measure="measures")))
        for row in self.predictors:
            measures = " + ".join(row["measures"])
            writer.writerow(_round(_rename(row | {"measures": measures}, "explained variance", explained="value")))
        return text.getvalue()

    def write(self, folder: Path) -> None:
        """Write ``explain.csv`` into the folder of a study, unless there are too few graphs."""
        if self.correlations:
            write_bytes(folder, FILE, lambda file: file.write(self.to_csv().encode()))

    @property
    def headline(self) -> str:
        """Sentence with the number of significant correlations and the strongest one."""
        if not self.correlations:
            return self.notes[0]
        significant = [row for row in self.correlations if row["significant"]]
        share = f"{len(significant):,} of {len(self.correlations):,} rank correlations"
        words = f"Measures of {count(self.graphs, 'graph')} and outcomes: {share} are significant"
        if not significant:
            return f"{words}."
        best = max(significant, key=_strength)
        return f"{words}, the strongest between {best['measure']} and {_name(best)} ({_format_correlation(best)})."

    def list_best(self) -> list[list[Row]]:
        """List for each method, number of devices and outcome: its strongest correlation, then its predictors."""
        groups: dict[Any, list[Row]] = {}
        for row in self.correlations:
            groups.setdefault(_key(row), []).append(row)
        best = {key: [max(group, key=_strength)] for key, group in groups.items()}
        for row in self.predictors:
            best[_key(row)].append(row)
        return list(best.values())

    def __repr__(self) -> str:
        """Return the headline, a line per method and outcome with a significant correlation, and the notes."""
        if not self.correlations:
            return "\n".join(self.notes)
        lines = [self.headline, TESTS]
        for strongest, *predictors in self.list_best():
            if strongest["significant"]:
                shares = [f"{' + '.join(row['measures'])} {100 * row['explained']:.0f} %" for row in predictors]
                correlation = f"{strongest['measure']} {_format_correlation(strongest)}"
                lines.append(f"{_name(strongest)}: {correlation}; explained: {', '.join(shares)}")
        return "\n".join([*lines, *self.notes])


def _round(row: Row) -> Row:
    return {name: f"{value:.{_DIGITS}g}" if isinstance(value, float) else value for name, value in row.items()}


def _rename(row: Row, statistic: str, **names: str) -> Row:
    """Return the row of a table in a file."""
    return {names.get(name, name): value for name, value in row.items()} | {"statistic": statistic}


def _strength(row: Row) -> float:
    return abs(float(row["correlation"]))


def _key(row: Row) -> tuple[Any, ...]:
    return row["method"], row["devices"], row["outcome"]


def _name(row: Row) -> str:
    """Name the outcome of a method: excess of gossip at 16 devices."""
    return f"{row['outcome']} of {_name_set(row['method'], row['devices'])}"


def _name_set(method: str, devices: int | None) -> str:
    return method if devices is None else f"{method} at {count(devices, 'device')}"


def _format_correlation(row: Row) -> str:
    return f"{row['correlation']:+.2f}, {row['low']:+.2f} to {row['high']:+.2f}"


class _GraphSet(NamedTuple):
    """Graphs that are compared with each other for one method.

    Attributes
    ----------
    method : str
    devices : int or None
        Number of devices; None: several.
    runs : dict of list
        Runs by graph.
    """

    method: str
    devices: int | None
    runs: dict[str, list[Row]]


@dataclass
class _Notes:
    """Names that are left out, by reason."""

    reasons: dict[str, list[str]] = field(default_factory=dict)

    def add(self, reason: str, name: str) -> None:
        """Add a name to a reason."""
        self.reasons.setdefault(reason, []).append(name)

    def write(self) -> list[str]:
        """Write a line for each reason, with the first names."""
        lines = []
        for reason, names in self.reasons.items():
            unique = list(dict.fromkeys(names))
            more = f" and {len(unique) - _NAMED} more" if len(unique) > _NAMED else ""
            lines.append(f"{reason}: {'; '.join(unique[:_NAMED])}{more}")
        return lines


def explain(rows: Sequence[Row], axes: Sequence[str], failed: int = 0) -> Explanation:
    """Relate the outcomes of runs to measures of their graphs; see `p2pkm.Study.explain`.

    Parameters
    ----------
    rows : sequence of dict
        Runs without an error.
    axes : sequence of str
        Options that differ between the runs.
    failed : int, default=0
        Number of runs that failed.
    """
    measured = [row for row in rows if any(row.get(name) is not None for name in MEASURES)]
    lines = [f"{count(failed, 'run')} failed and {_verb(failed)} left out"] if failed else []
    if other := len(rows) - len(measured):
        lines.append(f"{count(other, 'run')} {_verb(other)} left out: no graph, or one that is not measured")
    graphs = len({str(row["graph"]) for row in measured})
    notes = _Notes()
    sets = list(_split(measured, _find_sides(measured, axes), notes))
    if not sets:
        few = f"graph measures are not compared with outcomes: {count(graphs, 'graph')}; expected at least {GRAPHS} for"
        return Explanation([], [], [f"{few} a method. Add graphs to the study", *lines], graphs)
    correlations, predictors = list[Row](), list[Row]()
    for one_set in sets:
        for part in _relate(one_set, notes):
            correlations += part[0]
            predictors += part[1]
    p, _ = correct([row["p"] for row in correlations])
    for row, corrected in zip(correlations, p, strict=True):
        row |= {"p": float(corrected), "significant": bool(corrected <= LEVEL)}
    if not correlations:
        lines.insert(0, "graph measures are not compared with outcomes: no outcome and measure vary over the graphs")
    return Explanation(correlations, predictors, lines + notes.write(), graphs)


def _verb(number: int) -> str:
    return "is" if number == 1 else "are"


def _find_sides(rows: Sequence[Row], axes: Sequence[str]) -> list[str]:
    """List the options that name a method, without those that follow from the number of devices."""
    sides = ["algorithm"]
    for name in (axis for axis in axes if axis not in ("algorithm", "graph", DEVICES)):
        pairs = {(row.get(DEVICES), str(row.get(name))) for row in rows}
        sizes = len({size for size, _ in pairs})
        if sizes == 1 or len(pairs) > sizes:
            sides.append(name)
    return sides


def _split(rows: Sequence[Row], sides: Sequence[str], notes: _Notes) -> Iterator[_GraphSet]:
    """Split runs into sets of graphs: per method, and per number of devices if it has enough graphs."""
    methods: dict[str, dict[Any, dict[str, list[Row]]]] = {}
    for row in rows:
        name = ", ".join([str(row["algorithm"]), *(f"{side.replace('_', ' ')} {row.get(side)}" for side in sides[1:])])
        sizes = methods.setdefault(name, {})
        sizes.setdefault(row.get(DEVICES), {}).setdefault(str(row["graph"]), []).append(row)
    for method, sizes in methods.items():
        together: dict[str, list[Row]] = {}
        small = [size for size, runs in sizes.items() if len(runs) < GRAPHS]
        for size, runs in sizes.items():
            if size not in small:
                yield _GraphSet(method, size, runs)
                continue
            for graph, group in runs.items():
                together.setdefault(graph, []).extend(group)
        if len(together) >= GRAPHS:
            yield _GraphSet(method, small[0] if len(small) == 1 else None, together)
        elif together:
            notes.add(f"fewer than {GRAPHS} graphs", _name_set(method, small[0] if len(small) == 1 else None))


def _relate(graphs: _GraphSet, notes: _Notes) -> Iterator[tuple[list[Row], list[Row]]]:
    """Compute correlations and predictors of a set of graphs; outcomes that are known on the same graphs together."""
    where = _name_set(graphs.method, graphs.devices)
    names = list(graphs.runs)
    known: dict[tuple[bool, ...], dict[str, Floats]] = {}
    for outcome in OUTCOMES:
        values = np.array([_average_outcome(graphs.runs[name], outcome) for name in names])
        missing = sum(_read(row, outcome) is None for runs in graphs.runs.values() for row in runs)
        total = sum(map(len, graphs.runs.values()))
        mask = np.isfinite(values)
        if missing == total:
            notes.add("not measured", OUTCOMES[outcome])
            continue
        if missing:
            notes.add("runs without a value", f"{missing} of {total} for {OUTCOMES[outcome]} of {where}")
        if mask.sum() < GRAPHS:
            notes.add(f"known on fewer than {GRAPHS} graphs", f"{OUTCOMES[outcome]} of {where}")
        elif np.ptp(values[mask]) == 0.0:
            notes.add("constant over the graphs", f"{OUTCOMES[outcome]} of {where}")
        else:
            known.setdefault(tuple(mask.tolist()), {})[outcome] = values[mask]
    for mask_of_graphs, outcomes in known.items():
        runs = [graphs.runs[name] for name, is_known in zip(names, mask_of_graphs, strict=True) if is_known]
        measures = _measure(runs, graphs.devices, notes)
        if measures:
            yield _tabulate(graphs, measures, outcomes)


def _read(row: Mapping[str, Any], name: str) -> float | None:
    """Return a finite number of a row, else None."""
    value = row.get(name)
    return float(value) if isinstance(value, (int, float, np.number)) and math.isfinite(value) else None


def _round_off(value: Any) -> Any:
    """Round a logarithm, or several, so that values that differ by rounding errors are equal."""
    return np.round(value, _DECIMALS)


def _average_outcome(runs: Sequence[Row], name: str) -> float:
    """Average the logarithm of an outcome over the runs on a graph; NaN if no run has it."""
    values = np.array([value for row in runs if (value := _read(row, name)) is not None])
    if not len(values):
        return math.nan
    # Counts may be 0, such as the rounds of a method that has only an initialization.
    logs = np.log(np.maximum(values - 1.0, _FLOOR)) if name.startswith("ratio_") else np.log1p(values)
    return _round_off(logs.mean())


def _measure(runs: Sequence[Sequence[Row]], devices: int | None, notes: _Notes) -> dict[str, Floats]:
    """Average each measure over the runs on each graph, in logarithms if it is positive.

    Measures without a value on some graph, constant ones, and those that order the graphs as an earlier one are left
    out.
    """
    measures: dict[str, Floats] = {}
    size = "" if devices is None else f" at {count(devices, 'device')}"
    for name in MEASURES if devices is not None else (*MEASURES, DEVICES):
        columns = [[_read(row, name) for row in group] for group in runs]
        if any(value is None for values in columns for value in values):
            notes.add("measures that are not known on all graphs", name + size)
            continue
        means = np.array([np.mean(np.array(values, float)) for values in columns])
        values = _round_off(np.log(means) if means.min() > 0.0 else means)
        if np.ptp(values) == 0.0:
            notes.add("measures that are constant", name + size)
            continue
        same = [other for other, known in measures.items() if _have_same_order(values, known)]
        if same:
            notes.add("measures that order the graphs as another one", f"{name} ({same[0]}){size}")
        else:
            measures[name] = values
    return measures


def _have_same_order(first: Floats, second: Floats) -> bool:
    """Return whether two measures order the graphs alike, or in reverse, with the same ties."""
    ranks, other_ranks = rank(first), rank(second)
    return bool((ranks == other_ranks).all() or (ranks == len(first) + 1 - other_ranks).all())


def _tabulate(
    graphs: _GraphSet, measures: Mapping[str, Floats], outcomes: Mapping[str, Floats]
) -> tuple[list[Row], list[Row]]:
    """Compute the rows of correlations, with uncorrected p-values, and of predictors."""
    names = list(measures)
    x, y = (np.column_stack(list(columns.values())) for columns in (measures, outcomes))
    related: Correlations = correlate(x, y)
    start = {"method": graphs.method, "devices": graphs.devices, "graphs": len(x)}
    correlations: list[Row] = [
        start | {"outcome": OUTCOMES[outcome], "measure": name, "correlation": float(related.value[i, j]),
                 "low": float(related.low[i, j]), "high": float(related.high[i, j]), "p": float(related.p[i, j])}
        for j, outcome in enumerate(outcomes) for i, name in enumerate(names)
    ]  # fmt: skip
    predictors: list[Row] = [
        start | {"outcome": OUTCOMES[outcome], "measures": [names[i] for i in predictor.measures],
                 "explained": predictor.explained, "repeated": predictor.repeated}
        for size in range(1, min(2, len(names)) + 1)
        for outcome, predictor in zip(outcomes, find_predictors(x, y, size), strict=True)
    ]  # fmt: skip
    return correlations, predictors
