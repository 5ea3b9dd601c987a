"""Statistics of a benchmark: quality, failures and bytes of each entry, with intervals and verdicts.

The tasks are the units that count as independent: blocks of one task share its data, so their differences are averaged
before a test. With fewer than five units the seeds are the units, and verdicts hold for these tasks only.

Entries are compared with the best one, which is chosen by the same data. Holm's correction for the comparisons alone
would ignore this choice and give several times as many false verdicts as its level. Each step therefore corrects for
all pairs of the entries that are not yet distinguished from the best one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from p2pkm.analysis.bench_blocks import (
    BASELINE,
    DONE,
    Blocks,
    check_rows,
    is_by_tests,
    list_main,
    name_method,
    read_blocks,
)
from p2pkm.analysis.paired_tests import (
    EQUIVALENT,
    LEVEL,
    MARGIN,
    SEEDS,
    check_margin,
    correct,
    find_p_values,
    t_interval,
)
from p2pkm.core.batch import Floats, Integers, Mask
from p2pkm.core.errors import ExperimentError
from p2pkm.core.late_binding import call
from p2pkm.storage.study_rows import Row
from topologies.single_thread import single_thread

BEST = "best"
BETTER = "better"
WORSE = "worse"
UNDECIDED = "undecided"
# Largest excess of a run that counts as close to the best known cost.
CLOSE = 0.01
_NUMBERS = ("start_excess", "excess_worst", "bytes_over_raw", "busiest_over_raw", "rounds", "disclosed")
_DECILE = 0.9
# Resamples of the bootstrap, and its seed.
_RESAMPLES = 2_000
_SEED = 0


class BenchEntry(NamedTuple):
    """Entry of a benchmark, summarized over its blocks.

    Attributes
    ----------
    entry, method, trust, defaults, encoding : str
        Name of the entry, of its method, and columns of its rows.
    place : int or None
        Place by `excess` among the main entries; None for variants of them and for baselines.
    excess, low, high : float
        Geometric mean of the excess, at least 0.0001 per run; a run without a result counts as 1. Then its 95 %
        interval by a bootstrap over tasks and their seeds.
    rank : float or None
        Mean rank among the main entries; None for other entries.
    worst_decile : float or None
        Excess that 90 % of the runs do not exceed; None if a run without a result is at this place.
    close : float
        Share of runs with an excess of at most 1 %.
    rejected, failed, missing : float
        Share of runs that were rejected before they began, that failed or exceeded their time, and without a row.
    bytes_over_raw, busiest_over_raw : float or None
        Geometric mean of the encoded bytes, in all and of the busiest device, over those of the points.
    runs : int
        Number of runs with a result.
    reference : str or None
        Entry that it is compared with: the best main entry, or for variants the main entry of their method.
    verdict : str
        "best", "better", "worse", "equivalent", "undecided", or "baseline".
    factor, factor_low, factor_high : float or None
        Excess divided by that of the reference (geometric mean), with its 95 % bootstrap interval.
    p : float or None
        Corrected p-value; None with too few units.
    test : {"t", "rank", ""}
        Test that was used.
    near_low, near_high : float or None
        90 % interval of the log ratio of the costs.
    is_start : bool
        Whether every run returned its initial centroids.
    """

    entry: str
    method: str
    trust: str
    defaults: str
    encoding: str
    place: int | None
    excess: float
    low: float
    high: float
    rank: float | None
    worst_decile: float | None
    close: float
    rejected: float
    failed: float
    missing: float
    bytes_over_raw: float | None
    busiest_over_raw: float | None
    runs: int
    reference: str | None = None
    verdict: str = UNDECIDED
    factor: float | None = None
    factor_low: float | None = None
    factor_high: float | None = None
    p: float | None = None
    test: str = ""
    near_low: float | None = None
    near_high: float | None = None
    is_start: bool = False

    @property
    def no_result(self) -> float:
        """Share of runs without a result."""
        return self.rejected + self.failed + self.missing


@dataclass(frozen=True, repr=False)
class BenchSummary:
    """Ranking of the entries of a benchmark, as returned by `summarize`.

    Attributes
    ----------
    entries : list of BenchEntry
        Main entries by place, then their variants, then baselines.
    unit : {"task", "seed"}
        Unit of the tests.
    units : int
        Number of units.
    tasks, blocks : int
        Numbers of tasks and of blocks (task, graph, seed).
    margin : float
        Relative difference of the costs up to which entries are equivalent.
    rows : list of dict
        Rows of the benchmark.
    """

    entries: list[BenchEntry]
    unit: str
    units: int
    tasks: int
    blocks: int
    margin: float = MARGIN
    rows: list[Row] = field(default_factory=list)

    @property
    def main(self) -> list[BenchEntry]:
        """Main entries by place."""
        return [entry for entry in self.entries if entry.place is not None]

    def find(self, name: str) -> BenchEntry:
        """Return the entry with a name."""
        return next(entry for entry in self.entries if entry.entry == name)

    def to_frame(self) -> Any:
        """Convert the ranking to a pandas.DataFrame with one row per entry and the columns of `BenchEntry`."""
        import pandas as pd

        return pd.DataFrame(self.entries, columns=list(BenchEntry._fields))

    def text(self) -> str:
        """Format the table, its rules and the verdicts for a terminal."""
        return str(call("bench_text", self))

    def to_latex(self, *, caption: str | None = None, label: str | None = None) -> str:
        """Format the table in LaTeX with booktabs rules; with a caption or label, in a ``table`` environment."""
        return str(call("bench_latex", self, caption, label))

    def to_csv(self, path: str | Path | None = None) -> str:
        """Format the table as CSV, and write it to a file if there is a path."""
        text = str(call("bench_csv", self))
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def advice(self) -> list[Any]:
        """List one sentence per class of situations, see `p2pkm.analysis.bench_advice.Advice`."""
        return list(call("bench_advice", self))

    def conclusion(self) -> str:
        """Summarize the ranking in sentences to quote."""
        return str(call("bench_conclusion", self))

    def __repr__(self) -> str:
        """Return the conclusion."""
        return self.conclusion()


def summarize(rows: Any, *, margin: float = MARGIN) -> BenchSummary:
    """Rank the entries of a benchmark.

    Parameters
    ----------
    rows : list of dict
        Rows of the benchmark, one per run.
    margin : float, default=0.005
        Relative difference of the costs up to which two entries are equivalent; 0: never.

    Raises
    ------
    ExperimentError
        If rows lack columns, occur twice or are ranked by test points, or `margin` is out of range.
    DataError
        If `rows` is empty.

    Examples
    --------
    >>> from p2pkm.analysis.bench_statistics import summarize
    >>> rows = [
    ...     {"task": task, "graph": "ring", "seed": seed, "entry": entry, "trust": "no server", "status": "done",
    ...      "excess": excess * (1 + seed)}
    ...     for task in ("wine-iid", "grid16-iid", "digits-iid", "cells-iid", "blobs-iid")
    ...     for seed in range(3) for entry, excess in (("a", 0.01), ("b", 0.1))
    ... ]
    >>> found = summarize(rows)
    >>> [(entry.entry, entry.verdict) for entry in found.entries], found.unit
    ([('a', 'best'), ('b', 'worse')], 'task')
    """
    margin = check_margin(margin)
    listed = check_rows(rows)
    if is_by_tests(listed):
        raise ExperimentError(
            "the rows are of a suite that ranks by test points, which has no figures and no report; use "
            "Benchmark.load(FOLDER).ranking(), or read ranking.txt in the folder"
        )
    blocks = read_blocks(listed, _NUMBERS)
    logs = np.log(blocks.excess)
    means = dict(zip(blocks.entries, multiply(logs, blocks.weights).tolist(), strict=True))
    order, references = _order(blocks, means)
    main = [name for name in order if name in list_main(blocks)]
    unit, averages = choose_units(blocks)
    verdicts: dict[str, Verdict] = {}
    for group, steps in ((main, list_steps(len(main))), ([name for name in order if name not in main], None)):
        names = [name for name in group if name in references]
        pairs = [(blocks.entries.index(name), blocks.entries.index(references[name])) for name in names]
        tests = judge(multiply(logs, averages), multiply(blocks.log_costs, averages), pairs, margin, steps)
        verdicts |= dict(zip(names, tests, strict=False))
    draws = resample(blocks, logs)
    ranks = dict(zip(main, multiply(_rank(blocks, main), blocks.weights).tolist(), strict=True))
    entries = []
    for name in order:
        entry = _describe(blocks, name, means[name], draws)
        if name in main:
            entry = entry._replace(place=main.index(name) + 1, rank=ranks[name])
        if name in references:
            entry = _compare(entry, references[name], blocks, means, draws)
        entry = entry._replace(**verdicts[name]._asdict()) if name in verdicts else entry
        entries.append(entry._replace(verdict=_name_verdict(entry)))
    tasks = len({row["task"] for row in listed})
    return BenchSummary(entries, unit, averages.shape[1], tasks, len(blocks.keys), margin, listed)


def _order(blocks: Blocks, means: dict[str, float]) -> tuple[list[str], dict[str, str]]:
    """Order main entries, their variants and baselines, and return the reference of each entry that has one.

    Main entries are in the order of their excess; those that return their initial centroids are last.
    """
    lazy = {name: _is_start(blocks, number) for number, name in enumerate(blocks.entries)}
    main = sorted(list_main(blocks), key=lambda name: (lazy[name], means[name], name))
    place = {name_method(name): number for number, name in enumerate(main)}
    baselines = [name for name in blocks.entries if blocks.facts[name]["trust"] == BASELINE]
    variants = [name for name in blocks.entries if name not in main and name not in baselines]
    variants.sort(key=lambda name: (place[name_method(name)], means[name]))
    references = {name: main[0] for name in main[1:]} | {name: main[place[name_method(name)]] for name in variants}
    return [*main, *variants, *sorted(baselines, key=lambda name: means[name])], references


def multiply(values: Floats, weights: Floats) -> Floats:
    """Multiply matrices on one thread, so that the bits do not depend on their number."""
    with single_thread():
        product: Floats = values @ weights
    return product


def list_steps(entries: int) -> list[int]:
    """List the numbers of pairs that the steps of Holm's method correct for: of all entries that are left.

    The true best entries stay in the set of those that are left until the first false verdict, which therefore has a
    p-value below the level divided by the number of all pairs among them.
    """
    return [left * (left - 1) // 2 for left in range(entries, 1, -1)]


class Verdict(NamedTuple):
    """Comparison of an entry with its reference; attributes as in `BenchEntry`."""

    verdict: str
    p: float
    test: str
    near_low: float
    near_high: float


def judge(
    logs: Floats, log_costs: Floats, pairs: Sequence[tuple[int, int]], margin: float, steps: Sequence[int] | None = None
) -> list[Verdict]:
    """Compare entries with their references over units.

    Parameters
    ----------
    logs, log_costs : float64[entries, units]
        Averages over each unit of the log excess and of the log cost.
    pairs : sequence of tuple
        Numbers of an entry and of its reference.
    margin : float
        Relative difference of the costs up to which two entries are equivalent.
    steps : sequence of int, optional
        Factors of Holm's method, see `p2pkm.analysis.paired_tests.correct`.

    Returns
    -------
    list of Verdict
        One per pair; empty with fewer than five units.
    """
    if not pairs or logs.shape[1] < SEEDS:
        return []
    first, second = (list(numbers) for numbers in zip(*pairs, strict=True))
    gaps = logs[first] - logs[second]
    p, by_rank = find_p_values(gaps)
    corrected, _ = correct(p, steps)
    verdicts = []
    for gap, costs, value, ranked in zip(gaps, log_costs[first] - log_costs[second], corrected, by_rank, strict=True):
        near_low, near_high = t_interval(costs, 2 * LEVEL)[1:]
        verdict = UNDECIDED
        if max(-near_low, near_high) <= math.log1p(margin) and margin:
            verdict = EQUIVALENT
        elif value <= LEVEL:
            verdict = WORSE if gap.mean() > 0.0 else BETTER
        verdicts.append(Verdict(verdict, float(value), "rank" if ranked else "t", near_low, near_high))
    return verdicts


def choose_units(blocks: Blocks) -> tuple[str, Floats]:
    """Return the kind of the units of a test, and the matrix float64[blocks, units] that averages over each unit.

    Units are the data of the tasks; with fewer than five of them, the seeds that all of them have.
    """
    count = int(blocks.units.max()) + 1
    if count >= SEEDS:
        averages = blocks.weights[:, None] * (blocks.units[:, None] == np.arange(count))
        return "task", averages / averages.sum(axis=0)
    seeds = np.array([seed for _, _, seed in blocks.keys])
    common = [seed for seed in np.unique(seeds) if len(np.unique(blocks.units[seeds == seed])) == count]
    averages = blocks.weights[:, None] * (seeds[:, None] == np.array(common, dtype=seeds.dtype))
    return "seed", averages / averages.sum(axis=0)


def resample(blocks: Blocks, logs: Floats, count: int = _RESAMPLES) -> Floats:
    """Draw bootstrap samples of the mean log excess, float64[entries, count], paired over the entries.

    Units are drawn with replacement; for each draw of a unit, so are its seeds.
    """
    draw = np.random.default_rng(_SEED)
    seeds = np.array([seed for _, _, seed in blocks.keys])
    units = int(blocks.units.max()) + 1
    times = draw.multinomial(units, np.full(units, 1.0 / units), size=count)
    weights = np.zeros((count, len(blocks.keys)))
    for unit in range(units):
        members = np.flatnonzero(blocks.units == unit)
        known, number = np.unique(seeds[members], return_inverse=True)
        counts: Integers = draw.multinomial(times[:, unit] * len(known), np.full(len(known), 1.0 / len(known)))
        weights[:, members] = counts[:, number] * blocks.weights[members]
    return multiply(logs, weights.T)


def _rank(blocks: Blocks, names: Sequence[str]) -> Floats:
    """Rank entries in each block by their excess with its floor, float64[names, blocks]; without a result last."""
    numbers = [blocks.entries.index(name) for name in names]
    values = np.where(blocks.is_missing, np.inf, blocks.excess)[numbers]
    lower = (values[:, None] > values).sum(axis=1)
    equal = (values[:, None] == values).sum(axis=1)
    ranks: Floats = lower + (equal + 1) / 2
    return ranks


def _describe(blocks: Blocks, name: str, mean: float, draws: Floats) -> BenchEntry:
    """Summarize an entry, without place and verdict."""
    number = blocks.entries.index(name)
    row = blocks.facts[name]
    low, high = np.exp(np.quantile(draws[number], [LEVEL / 2, 1 - LEVEL / 2]))
    states = blocks.states[number]
    known = ~blocks.is_missing[number]
    excess = np.where(known, blocks.excess[number], np.inf)
    worst = float(np.quantile(excess, _DECILE, method="inverted_cdf"))

    def share(where: Any) -> float:
        return float(blocks.weights[where].sum())

    return BenchEntry(
        name, name_method(name), str(row["trust"]), str(row.get("defaults", "")), str(row.get("encoding", "")), None,
        math.exp(mean), float(low), float(high), None, worst if math.isfinite(worst) else None,
        share(excess <= CLOSE), share(states == "rejected"), share((states == "failed") | (states == "timeout")),
        share(states == "missing"), average(blocks, "bytes_over_raw", number),
        average(blocks, "busiest_over_raw", number), int((states == DONE).sum()), is_start=_is_start(blocks, number),
    )  # fmt: skip


def average(blocks: Blocks, column: str, number: int) -> float | None:
    """Compute the geometric mean of a column over the runs with a result; None if it is not known."""
    values = blocks.values[column][number]
    known = ~np.isnan(values) & ~blocks.is_missing[number]
    if not known.any():
        return None
    if (values[known] <= 0.0).any():
        return 0.0
    return float(np.exp(np.average(np.log(values[known]), weights=blocks.weights[known])))


def _is_start(blocks: Blocks, number: int) -> bool:
    """Return whether every run with a result returned its initial centroids."""
    excess = blocks.values["excess"][number]
    known: Mask = ~np.isnan(excess)
    return bool(known.any() and (excess[known] == blocks.values["start_excess"][number][known]).all())


def _compare(
    entry: BenchEntry, reference: str, blocks: Blocks, means: dict[str, float], draws: Floats
) -> BenchEntry:  # fmt: skip
    """Add the reference and the ratio of the excesses, with its bootstrap interval."""
    first, second = blocks.entries.index(entry.entry), blocks.entries.index(reference)
    low, high = np.exp(np.quantile(draws[first] - draws[second], [LEVEL / 2, 1 - LEVEL / 2]))
    factor = math.exp(means[entry.entry] - means[reference])
    return entry._replace(reference=reference, factor=factor, factor_low=float(low), factor_high=float(high))


def _name_verdict(entry: BenchEntry) -> str:
    if entry.trust == BASELINE:
        return BASELINE
    return BEST if entry.place == 1 else entry.verdict
