"""Ranking of methods by test points: the question of a clustering for each device.

The measure is the test cost over that of a common clustering, central k-means on all training points. A method that
divides the few classes of a device into many clusters has a low cost but does not find the classes, so the table also
shows agreement with the true classes, at each device and over all devices together.
"""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from p2pkm.analysis.bench_blocks import BASELINE, DONE, Blocks, check_rows, list_main, read_blocks
from p2pkm.analysis.bench_statistics import (
    BEST,
    UNDECIDED,
    average,
    choose_units,
    judge,
    list_steps,
    multiply,
    resample,
)
from p2pkm.analysis.bench_text import list_names, write_percent, write_ratio
from p2pkm.analysis.paired_tests import EQUIVALENT, LEVEL, MARGIN, SEEDS, check_margin
from p2pkm.core.batch import Floats
from p2pkm.core.text_table import align_columns
from p2pkm.core.units import count
from p2pkm.methods.registry import ALONE
from p2pkm.storage.study_rows import Row

# Column that is ranked.
RATIO = "test_ratio_common"
REFERENCE = "reference"
_RAW = "raw points leave"
_AGREEMENT = ("test_ari", "test_ari_all")
_HEAD = ("entry", "trust", "test/common", "95 % interval", "rank", "test ARI", "over all", "no result %",
         "encoded/raw bytes", "verdict", "by family")  # fmt: skip
_LONGEST = 34
_DASH = "-"


class PersonalEntry(NamedTuple):
    """Entry of a benchmark by test points, summarized over its blocks.

    Attributes
    ----------
    entry, trust : str
        Name, and class of trust.
    place : int or None
        Place by `ratio`; None for references, which collect points, and for variants.
    ratio, low, high : float
        Geometric mean of the test cost over that of a common clustering; a run without a result counts as 2. Then its
        95 % interval by a bootstrap over tasks and their seeds.
    rank : float or None
        Mean rank among the entries with a place.
    ari, ari_all : float or None
        Mean adjusted Rand index of the test points at the devices, and of all devices together; None if not known.
    no_result : float
        Share of runs without a result.
    bytes_over_raw : float or None
        Geometric mean of the encoded bytes over those of the points.
    verdict, by_family : str
        Comparison with the best one, with tasks and with families of tasks as units: "best", "worse", "equivalent",
        "undecided" or "reference".
    p, p_family : float or None
        Corrected p-values; None with too few units.
    """

    entry: str
    trust: str
    place: int | None
    ratio: float
    low: float
    high: float
    rank: float | None
    ari: float | None
    ari_all: float | None
    no_result: float
    bytes_over_raw: float | None
    verdict: str = UNDECIDED
    by_family: str = UNDECIDED
    p: float | None = None
    p_family: float | None = None


@dataclass(frozen=True, repr=False)
class PersonalSummary:
    """Ranking by test points, as returned by `rank_by_tests`.

    Attributes
    ----------
    entries : list of PersonalEntry
        Those with a place, then the others by their ratio.
    unit : {"task", "seed"}
        Unit of the tests.
    units, families, tasks, blocks : int
        Numbers of units, of families, of tasks and of blocks (task, graph, seed).
    margin : float
        Relative difference of the costs up to which entries are equivalent.
    rows : list of dict
        Rows of the benchmark.
    """

    entries: list[PersonalEntry]
    unit: str
    units: int
    families: int
    tasks: int
    blocks: int
    margin: float = MARGIN
    rows: list[Row] = field(default_factory=list)

    @property
    def main(self) -> list[PersonalEntry]:
        """Entries with a place."""
        return [entry for entry in self.entries if entry.place is not None]

    def find(self, name: str) -> PersonalEntry:
        """Return the entry with a name."""
        return next(entry for entry in self.entries if entry.entry == name)

    def to_frame(self) -> Any:
        """Convert the ranking to a pandas.DataFrame with one row per entry and the columns of `PersonalEntry`."""
        import pandas as pd

        return pd.DataFrame(self.entries, columns=list(PersonalEntry._fields))

    def text(self) -> str:
        """Format the table, the conclusion and the rules for a terminal."""
        lines = [["", *_HEAD]]
        for entry in self.entries:
            name = entry.entry if len(entry.entry) <= _LONGEST else f"{entry.entry[: _LONGEST - 1]}…"
            agreement = [_DASH if value is None else f"{value:.3f}" for value in (entry.ari, entry.ari_all)]
            lines.append([
                "" if entry.place is None else str(entry.place), name, entry.trust, f"{entry.ratio:.3f}",
                f"{entry.low:.3f} to {entry.high:.3f}", _DASH if entry.rank is None else f"{entry.rank:.1f}",
                *agreement, write_percent(entry.no_result), write_ratio(entry.bytes_over_raw), entry.verdict,
                entry.by_family,
            ])  # fmt: skip
        return "\n".join([*align_columns(lines, left=(1, 2, 10, 11)), "", self.conclusion(), self._describe_rules()])

    def to_csv(self, path: str | Path | None = None) -> str:
        """Format the table as CSV, and write it to a file if there is a path."""
        text = io.StringIO()
        writer = csv.DictWriter(text, PersonalEntry._fields, lineterminator="\n")
        writer.writeheader()
        writer.writerows(entry._asdict() for entry in self.entries)
        if path is not None:
            Path(path).write_text(text.getvalue(), encoding="utf-8")
        return text.getvalue()

    def conclusion(self) -> str:
        """Summarize the ranking in sentences to quote."""
        over = f"{count(self.tasks, 'task')} and {count(self.blocks, 'block')}"
        if not self.main:
            return f"No method was ranked over {over}."
        best, *others = self.main
        words = [
            f"Over {over}, {best.entry} has the lowest test cost of {len(self.main)} ranked entries, {best.ratio:.3f} "
            f"times that of a common clustering (95 % interval {best.low:.3f} to {best.high:.3f})."
        ]
        titles = {EQUIVALENT: "Equivalent to it", UNDECIDED: "Undecided against it", "worse": "Worse"}
        for verdict, title in titles.items():
            names = [entry.entry for entry in others if entry.verdict == verdict]
            if names:
                words.append(f"{title}: {list_names(names)}.")
        agreeing = [entry for entry in self.main if entry.ari_all is not None]
        if agreeing:
            first = max(agreeing, key=lambda entry: entry.ari_all or 0.0)
            words.append(f"{first.entry} agrees most with the true classes over all devices, ARI {first.ari_all:.3f}.")
        return " ".join(words)

    def _describe_rules(self) -> str:
        """Describe the statistics."""
        rules = (
            "Geometric mean of the test cost over that of central k-means on all training points; a run without a "
            "result counts as 2. Intervals: bootstrap over tasks and their seeds. ARI: mean over blocks, where classes "
            "are known. References collect points, and are not ranked."
        )
        if self.units < SEEDS:
            return f"{rules} No verdicts: a test requires at least {SEEDS} tasks with separate data, or {SEEDS} seeds."
        scope = f"{self.units} independent tasks" if self.unit == "task" else f"{self.units} seeds of these tasks only"
        if self.families >= SEEDS:
            scope += f", and over {self.families} families of tasks"
        return (
            f"{rules} Verdicts against the best: paired t-test on log cost over {scope}, Holm's correction for all "
            f"pairs of entries not yet distinguished, level 0.05; equivalent: 90 % interval of the cost ratio within "
            f"{100 * self.margin:.3g} %."
        )

    def __repr__(self) -> str:
        """Return the conclusion."""
        return self.conclusion()


def rank_by_tests(rows: Any, *, margin: float = MARGIN) -> PersonalSummary:
    """Rank the entries of a benchmark by the cost of test points.

    Parameters
    ----------
    rows : list of dict
        Rows of a suite with ``measure = "test"``, one per run.
    margin : float, default=0.005
        Relative difference of the costs up to which two entries are equivalent; 0: never.

    Raises
    ------
    ExperimentError
        If rows lack columns or occur twice, or `margin` is out of range.
    DataError
        If `rows` is empty.
    """
    margin = check_margin(margin)
    # The blocks measure what is above 0, which for test points is above the common clustering.
    listed = check_rows([{**row, "excess": _subtract_one(row), "trust": _class_of(row)} for row in rows])
    blocks = read_blocks(listed, ("bytes_over_raw", *_AGREEMENT))
    logs = blocks.log_costs
    means = dict(zip(blocks.entries, multiply(logs, blocks.weights).tolist(), strict=True))
    main = sorted(list_main(blocks), key=lambda name: (means[name], name))
    others = sorted((name for name in blocks.entries if name not in main), key=lambda name: (means[name], name))
    draws, ranks = resample(blocks, logs), _rank(blocks, main)
    unit, averages = choose_units(blocks)
    family = _average_families(blocks, listed)
    verdicts = _judge(blocks, main, averages, margin)
    by_family = _judge(blocks, main, family, margin)
    entries = []
    for name in [*main, *others]:
        number = blocks.entries.index(name)
        low, high = np.exp(np.quantile(draws[number], [LEVEL / 2, 1 - LEVEL / 2]))
        trust = str(blocks.facts[name]["trust"])
        entry = PersonalEntry(
            name, trust, main.index(name) + 1 if name in main else None, math.exp(means[name]), float(low), float(high),
            ranks.get(name), _mean(blocks, "test_ari", number), _mean(blocks, "test_ari_all", number),
            float(blocks.weights[blocks.states[number] != DONE].sum()), average(blocks, "bytes_over_raw", number),
        )  # fmt: skip
        if trust == BASELINE:
            entry = entry._replace(verdict=REFERENCE, by_family=_DASH)
        elif name in main:
            verdict, p = verdicts.get(name, (BEST if entry.place == 1 else UNDECIDED, None))
            second, p_family = by_family.get(name, (_DASH, None))
            entry = entry._replace(verdict=verdict, by_family=second, p=p, p_family=p_family)
        else:
            entry = entry._replace(verdict="variant", by_family=_DASH)
        entries.append(entry)
    tasks = len({row["task"] for row in listed})
    return PersonalSummary(
        entries, unit, averages.shape[1], family.shape[1], tasks, len(blocks.keys), margin, list(rows)
    )


def _subtract_one(row: Mapping[str, Any]) -> float | None:
    ratio = row.get(RATIO)
    return None if ratio is None else ratio - 1.0


def _class_of(row: Mapping[str, Any]) -> str:
    """Return the class of trust; methods that collect points are references, a device alone is not."""
    if row["trust"] == _RAW:
        return BASELINE
    return "no server" if row.get("algorithm") == ALONE else str(row["trust"])


def _average_families(blocks: Blocks, rows: Sequence[Row]) -> Floats:
    """Return the matrix that averages over the blocks of each family, float64[blocks, families]."""
    family = {row["task"]: str(row["family"]) for row in rows}
    names = [family[task] for task, _, _ in blocks.keys]
    known = list(dict.fromkeys(names))
    averages = blocks.weights[:, None] * (np.array(names)[:, None] == np.array(known))
    shares: Floats = averages / averages.sum(axis=0)
    return shares


def _judge(blocks: Blocks, main: Sequence[str], averages: Floats, margin: float) -> dict[str, tuple[str, float]]:
    """Compare all entries with the first one over units."""
    numbers = [blocks.entries.index(name) for name in main]
    logs = multiply(blocks.log_costs, averages)
    found = judge(logs, logs, [(number, numbers[0]) for number in numbers[1:]], margin, list_steps(len(main)))
    return {name: (one.verdict, one.p) for name, one in zip(main[1:], found, strict=False)}


def _rank(blocks: Blocks, names: Sequence[str]) -> dict[str, float]:
    """Rank entries in each block, without a result last, and average the ranks."""
    numbers = [blocks.entries.index(name) for name in names]
    values = np.where(blocks.is_missing, np.inf, blocks.values["excess"])[numbers]
    lower = (values[:, None] > values).sum(axis=1)
    equal = (values[:, None] == values).sum(axis=1)
    return dict(zip(names, multiply(lower + (equal + 1) / 2, blocks.weights).tolist(), strict=True))


def _mean(blocks: Blocks, column: str, number: int) -> float | None:
    """Average a column over the blocks in which it is known; None if there is none."""
    values = blocks.values[column][number]
    known = ~np.isnan(values)
    return float(np.average(values[known], weights=blocks.weights[known])) if known.any() else None
