"""Advice from a benchmark: the entry to use in each class of situations, by one rule."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from p2pkm.storage.bench_blocks import BASELINE, DONE, name_unit
from p2pkm.storage.bench_text import list_names, write_excess, write_ratio
from p2pkm.storage.paired_tests import EQUIVALENT
from p2pkm.storage.study_table import Row

if TYPE_CHECKING:
    from p2pkm.storage.bench_statistics import BenchEntry, BenchSummary

# Smallest share of runs with a result.
_RELIABLE = 0.95
# Largest encoded bytes over those of the points that are few.
_FEW = 0.1
RULE = (
    "Considered are the methods of a class with a result in at least 95 % of their runs. Advised is the one with the "
    "lowest geometric mean of the excess; if others are equivalent to it, the one of these with the fewest bytes."
)
# Names of classes of tasks, by the part of a task's name that they share.
_CLASSES = {"skew": "skewed devices", "iid": "devices with equal distributions", "poor": "poor starts"}
_TRUSTS = {
    "no server": "No server", "server": "With a server", "private": "Differential privacy",
    "raw points leave": "Raw points may leave their device",
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

    Classes of tasks are those with a common part of their names after the first hyphen, such as ``skew``.
    """
    main = {entry.entry: entry for entry in summary.main if not entry.is_start}
    rows = [row for row in summary.rows if row["entry"] in main]
    advice = [
        _advise(title, [row for row in rows if row["trust"] == trust], summary)
        for trust, title in _TRUSTS.items()
        if any(row["trust"] == trust for row in rows)
    ]
    few = {name for name, entry in main.items() if _is_few(entry)}
    advice.append(
        _advise(f"At most {_FEW:.0%} of the bytes of the points".replace("%", " %"),
                [row for row in rows if row["entry"] in few], summary)
    )  # fmt: skip
    for part, title in list_classes(summary.rows).items():
        members = [row for row in rows if part in _split(row["task"])]
        for trust in ("no server", "server"):
            listed = [row for row in members if row["trust"] == trust]
            if listed:
                advice.append(_advise(f"{title[0].upper()}{title[1:]}, {_TRUSTS[trust].lower()}", listed, summary))
    return advice


def list_classes(rows: Sequence[Row]) -> dict[str, str]:
    """List the parts of names that tasks of several data share, but not all tasks, with the names of their classes."""
    tasks = {str(row["task"]): name_unit(row) for row in rows}
    titles = {}
    for part in dict.fromkeys(part for task in tasks for part in _split(task)):
        members = [task for task in tasks if part in _split(task)]
        if len(members) < len(tasks) and len({tasks[task] for task in members}) > 1:
            titles[part] = _CLASSES.get(part, f"tasks named {part}")
    return titles


def choose(rows: Sequence[Row], margin: float) -> "tuple[BenchEntry | None, BenchSummary | None]":
    """Choose the entry that the rule advises, and return it with the ranking of the entries that qualify."""
    from p2pkm.storage.bench_statistics import summarize

    counts: dict[str, list[bool]] = {}
    for row in rows:
        counts.setdefault(row["entry"], []).append(row["status"] == DONE)
    reliable = {name for name, done in counts.items() if sum(done) >= _RELIABLE * len(done)}
    listed = [row for row in rows if row["entry"] in reliable and row["trust"] != BASELINE]
    if not listed:
        return None, None
    ranking = summarize(listed, margin=margin)
    best, *remaining = ranking.main
    equal = [best, *(entry for entry in remaining if entry.verdict == EQUIVALENT)]
    return min(equal, key=_count_bytes), ranking


def _advise(situation: str, rows: Sequence[Row], summary: "BenchSummary") -> Advice:
    """Write the advice for the rows of a class of situations."""
    entry, ranking = choose(rows, summary.margin)
    if entry is None or ranking is None:
        return Advice(situation, None, f"{situation}: no method qualifies.")
    groups: dict[str, list[str]] = {}
    for other in ranking.main:
        if other is not entry and other.verdict in ("undecided", EQUIVALENT, "best"):
            groups.setdefault("undecided" if other.verdict == "undecided" else EQUIVALENT, []).append(other.entry)
    notes = [f"{verdict}: {list_names(names)}" for verdict, names in groups.items()]
    rest = "; ".join(notes) or ("all others are worse" if len(ranking.main) > 1 else "the only method that qualifies")
    size = (
        "" if entry.bytes_over_raw is None else f", {write_ratio(entry.bytes_over_raw)} times the bytes of the points"
    )
    return Advice(
        situation, entry.entry, f"{situation}: {entry.entry}, excess {write_excess(entry.excess)} %{size} ({rest})."
    )


def _is_few(entry: "BenchEntry") -> bool:
    return entry.bytes_over_raw is not None and entry.bytes_over_raw <= _FEW


def _count_bytes(entry: "BenchEntry") -> float:
    return float("inf") if entry.bytes_over_raw is None else entry.bytes_over_raw


def _split(task: object) -> list[str]:
    """Return the parts of the name of a task after its first hyphen."""
    return str(task).split("-")[1:]
