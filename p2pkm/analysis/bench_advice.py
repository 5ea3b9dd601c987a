"""Advice from a benchmark: the entry to use in each class of situations, by one rule."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from p2pkm.analysis.bench_blocks import BASELINE, DONE, read_blocks
from p2pkm.analysis.bench_text import list_names, write_excess, write_percent, write_ratio
from p2pkm.analysis.paired_tests import EQUIVALENT
from p2pkm.storage.study_rows import Row

if TYPE_CHECKING:
    from p2pkm.analysis.bench_statistics import BenchEntry, BenchSummary

# Smallest share of runs with a result.
_RELIABLE = 0.95
# Largest encoded bytes over those of the points that are few.
_FEW = 1.0
# Most names of other methods in an advice.
_NAMED = 3
RULE = (
    "Considered are the methods of a class with a result in at least 95 % of their runs (data sets count equally). "
    "Advised is the one with the lowest geometric mean of the excess; if others are equivalent to it, the one of these "
    "with the fewest encoded bytes."
)
# Classes of tasks, by a part of their names: parts that name the split or start, and those that name the data.
_SPLITS = {
    "skew": "Skewed devices", "iid": "Devices with equal distributions", "own": "Poor starts", "leader": "Poor starts",
    "box": "Poor starts", "poor": "Poor starts",
}  # fmt: skip
_DATA = {
    "dominant": "One device with most points", "few": "Few points per device", "imbalanced": "Clusters of unequal size",
    "tails": "Heavy tails", "overlap": "Overlapping clusters", "outliers": "Outliers", "blobs50": "50 features",
    "digits50": "50 clusters",
}  # fmt: skip
_RAW = "raw points leave"
_TRUSTS = {
    "no server": "No server", "server": "With a server", "private": "Differential privacy",
    _RAW: "Methods that send raw points",
}  # fmt: skip


class Advice(NamedTuple):
    """Advice for a class of situations.

    Attributes
    ----------
    situation : str
        Name of the class.
    entry : str or None
        Entry to use; None if no method qualifies.
    sentence : str
        Advice with its numbers.
    """

    situation: str
    entry: str | None
    sentence: str


def advise(summary: "BenchSummary") -> list[Advice]:
    """List the advice for each class of trust, for few bytes, and for each class of tasks.

    Classes of tasks are those with a common part of their names, such as ``skew``; their advice names a method without
    a server and one with a server, and `entry` is the former.
    """
    main = {entry.entry: entry for entry in summary.main if not entry.is_start}
    rows = [row for row in summary.rows if row["entry"] in main]
    advice = [
        _advise(title, [row for row in rows if row["trust"] == trust], summary)
        for trust, title in _TRUSTS.items()
        if any(row["trust"] == trust for row in rows)
    ]
    few = {name for name, entry in main.items() if _is_few(entry)}
    advice.append(_advise("Fewer bytes than the points", [row for row in rows if row["entry"] in few], summary))
    for title, tasks in list_classes(summary.rows).items():
        members = [row for row in rows if row["task"] in tasks]
        parts = {
            trust: [row for row in members if row["trust"] == trust] for trust in ("no server", "server")
        }  # fmt: skip
        advised = [_advise(_TRUSTS[trust].lower(), part, summary) for trust, part in parts.items() if part]
        if advised:
            sentence = "; ".join(part.sentence.removesuffix(".") for part in advised)
            advice.append(Advice(title, advised[0].entry, f"{title}: {sentence}."))
    return advice


def list_classes(rows: Sequence[Row]) -> dict[str, list[str]]:
    """List the classes of tasks that not all tasks belong to, with their tasks."""
    tasks = sorted({str(row["task"]) for row in rows})
    classes: dict[str, list[str]] = {title: [] for title in (*_SPLITS.values(), *_DATA.values())}
    for task in tasks:
        first, *splits = task.split("-")
        titles = [_SPLITS[part] for part in splits if part in _SPLITS]
        titles += [_DATA[first]] if first in _DATA else []
        for title in dict.fromkeys(titles):
            classes[title].append(task)
    return {title: members for title, members in classes.items() if 0 < len(members) < len(tasks)}


def choose(rows: Sequence[Row], margin: float) -> "tuple[BenchEntry | None, BenchSummary | None]":
    """Choose the entry that the rule advises, and return it with the ranking of the entries that qualify."""
    from p2pkm.analysis.bench_statistics import summarize

    reliable = {name for name, share in _count_results(rows).items() if share >= _RELIABLE}
    listed = [row for row in rows if row["entry"] in reliable and row["trust"] != BASELINE]
    if not listed:
        return None, None
    ranking = summarize(listed, margin=margin)
    best, *remaining = ranking.main
    equal = [best, *(entry for entry in remaining if entry.verdict == EQUIVALENT)]
    return min(equal, key=_count_bytes), ranking


def _count_results(rows: Sequence[Row]) -> dict[str, float]:
    """Compute the share of runs with a result by entry, as in the table: data sets count equally."""
    if not rows:
        return {}
    blocks = read_blocks(rows, ("excess",))
    return {
        name: float(blocks.weights[states == DONE].sum())
        for name, states in zip(blocks.entries, blocks.states, strict=True)
    }


def _describe_reliability(rows: Sequence[Row]) -> str:
    """Describe the entry with most results, of those that do not qualify; empty without entries."""
    shares = _count_results(rows)
    if not shares:
        return ""
    name = max(shares, key=lambda entry: shares[entry])
    return f"; {name} has most results, in {write_percent(shares[name])} % of its runs"


def _advise(situation: str, rows: Sequence[Row], summary: "BenchSummary") -> Advice:
    """Write the advice for the rows of a class of situations."""
    entry, ranking = choose(rows, summary.margin)
    if entry is None or ranking is None:
        return Advice(situation, None, f"{situation}: no method qualifies{_describe_reliability(rows)}.")
    groups: dict[str, list[str]] = {}
    for other in ranking.main:
        if other is not entry and other.verdict in ("undecided", EQUIVALENT, "best"):
            groups.setdefault("undecided" if other.verdict == "undecided" else EQUIVALENT, []).append(other.entry)
    notes = [f"{verdict}: {list_names(names, _NAMED)}" for verdict, names in groups.items()]
    rest = "; ".join(notes) or ("all others are worse" if len(ranking.main) > 1 else "the only method that qualifies")
    size = "" if entry.bytes_over_raw is None else f", {write_ratio(entry.bytes_over_raw)} encoded bytes per raw byte"
    return Advice(
        situation, entry.entry, f"{situation}: {entry.entry}, excess {write_excess(entry.excess)} %{size} ({rest})."
    )


def _is_few(entry: "BenchEntry") -> bool:
    return entry.trust != _RAW and entry.bytes_over_raw is not None and entry.bytes_over_raw < _FEW


def _count_bytes(entry: "BenchEntry") -> float:
    return float("inf") if entry.bytes_over_raw is None else entry.bytes_over_raw
