"""Status of a study, while it runs or later: what has ended, what is in progress, what failed and why, and the rest."""

import json
import re
import shlex
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from p2pkm.analysis.study_table import name_run
from p2pkm.core.cache import shared_cache
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.program_object import find_label
from p2pkm.core.text_table import align_columns
from p2pkm.core.units import count, format_seconds
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.bench.run_bench import BenchDesign, read_mark_of
from p2pkm.experiments.studies.engine import Design
from p2pkm.experiments.studies.run_study import StudyPlan
from p2pkm.experiments.studies.study_command import make_design
from p2pkm.experiments.studies.study_file import restore_study
from p2pkm.storage.study_mark import BENCH, COMPARISON, MARK, SWEEP, read_mark
from p2pkm.storage.study_rows import Row

_RECENT = 200  # runs from whose ends the rate is measured
_SHOWN = 5  # runs in progress, and reasons of failures, that are listed
_MAX_VALUES = 30  # values of an option up to which the table lists them
_AXES = ("algorithm", "graph")


class AxisCount(NamedTuple):
    """Runs with one value of an option.

    Attributes
    ----------
    option, value : str
    done, failed, total : int
        Runs that have ended with a result, without one, and all.
    """

    option: str
    value: str
    done: int
    failed: int
    total: int


class StudyStatus(NamedTuple):
    """Status of a study.

    Attributes
    ----------
    folder : str
    total : int
        Number of runs.
    done, failed, rejected : int
        Runs that have ended with a result, without one, and that were rejected.
    running : list of dict
        Runs in progress, with the seconds since they began.
    lost : int
        Runs whose worker was ended before them; they are repeated.
    workers : int
        Processes at work.
    reasons : dict of str to int
        Number of runs by the reason for which they failed or were rejected, the most frequent first.
    rate : float or None
        Runs per second, from the last ends; None if none is known.
    seconds_left : float or None
        Estimated remaining time; None if no worker is alive.
    axes : list of AxisCount
    """

    folder: str
    total: int
    done: int
    failed: int
    rejected: int
    running: list[dict[str, Any]]
    lost: int
    workers: int
    reasons: dict[str, int]
    rate: float | None
    seconds_left: float | None
    axes: list[AxisCount]

    @property
    def missing(self) -> int:
        """Number of runs that have not ended."""
        return self.total - self.done - self.failed - self.rejected

    def to_json(self) -> str:
        """Return the status as JSON."""
        content = self._asdict() | {"missing": self.missing, "axes": [axis._asdict() for axis in self.axes]}
        return json.dumps(content)

    def format(self) -> str:
        """Format the status as text."""
        lines = [f"{count(self.total, 'run')} in {self.folder}"]
        lines.append(f"  done      {self.done:6,}{self._format_rate()}")
        if self.workers or self.running:
            processes = f"{self.workers} process{'es' * (self.workers != 1)}"
            lines.append(f"  running   {len(self.running):6,}  in {processes}")
            lines += [f"    {run['name']}, since {format_seconds(run['seconds'])}" for run in self.running[:_SHOWN]]
        for name, number in (("failed", self.failed), ("rejected", self.rejected)):
            if number:
                lines.append(f"  {name:8}  {number:6,}")
        lines += [f"    {number:,} x {reason}" for reason, number in list(self.reasons.items())[:_SHOWN]]
        lines.append(f"  to do     {self.missing - len(self.running):6,}{self._format_lost()}")
        lines += self._format_axes()
        if self.missing and not self.workers:
            lines.append(f"nobody works on it; continue with: python -m p2pkm resume {self.folder}")
        for name, number in (("failed", self.failed), ("rejected", self.rejected)):
            if number and not self.workers:
                lines.append(f"repeat the {name} runs with: python -m p2pkm resume {self.folder} --retry-{name}")
        return "\n".join(lines)

    def _format_rate(self) -> str:
        if self.rate is None or not self.workers:
            return ""
        pace = f"{self.rate:.3g} per s" if self.rate >= 0.1 else f"{self.rate * 60:.3g} per min"
        left = "" if self.seconds_left is None else f", about {format_seconds(self.seconds_left)} left"
        return f"  {pace}{left}"

    def _format_lost(self) -> str:
        return f"  ({count(self.lost, 'run')} of them lost when a worker was ended)" if self.lost else ""

    def _format_axes(self) -> list[str]:
        """Return a table of the runs by the values of each option."""
        if not self.axes:
            return []
        lines = [["option", "value", "done", "failed", "of"]]
        lines += [[axis.option, axis.value, *(f"{number:,}" for number in axis[2:])] for axis in self.axes]
        return ["", *align_columns(lines, left=(0, 1))]


def read_status(folder: Path) -> StudyStatus:
    """Read the status of a study, a comparison or a benchmark, also while it runs.

    Raises
    ------
    P2PKMError
        If the folder holds none of these.
    """
    with shared_cache():
        design = _read_design(folder)
        plan = StudyPlan(design.cells, design.keys, folder)
    rows = {key: plan.stored.rows[key] for key in plan.keys if key in plan.stored.rows}
    cells = dict(zip(plan.keys, plan.cells, strict=True))
    running, lost = plan.stored.list_begun()
    now = time.time()
    # Of several workers that have begun a run, one executes it.
    since = {begun.key: begun.time for begun in sorted(running, key=lambda begun: -begun.time) if begun.key in cells}
    shown = [{"name": _name(cells[key]), "seconds": now - began} for key, began in since.items()]
    failures = [row for row in rows.values() if row["error"] is not None]
    rejected = sum(row["termination"] == "rejected" for row in failures)
    workers = plan.stored.count_workers()
    rate = _measure_rate([plan.stored.ends[key] for key in rows if key in plan.stored.ends])
    missing = len(cells) - len(rows)
    left = missing / rate if rate and workers else None
    return StudyStatus(
        str(folder), len(cells), len(rows) - len(failures), len(failures) - rejected, rejected, shown,
        sum(begun.key in cells for begun in lost), workers,
        _count_reasons(failures), rate, left, _count_axes(cells, rows),
    )  # fmt: skip


def list_commands(folder: Path) -> dict[str, str]:
    """Map the key of each run of a study to the command that repeats it, in the order of the runs.

    Of a run with an object of a program, the text says so instead, as a comment of the shell.

    Raises
    ------
    P2PKMError
        If the folder holds no study, comparison or benchmark.
    """
    with shared_cache():
        design = _read_design(folder)
        cells = dict(zip(design.keys, design.cells, strict=True))
    return {key: _write_command(cell) for key, cell in cells.items()}


def _write_command(cell: RunOptions) -> str:
    try:
        return shlex.join(["python", "-m", "p2pkm", *cell.to_words()])
    except ExperimentError:
        return f"# {_name(cell)}: no command, because it has an object of a Python program; run the program again"


def _read_design(folder: Path) -> Design:
    """Return the design of the study in a folder; configurations that cannot run are not searched."""
    asked = read_mark(folder)
    kind = asked.get("kind")
    if kind == BENCH:
        return BenchDesign(read_mark_of(folder))
    if kind not in (SWEEP, COMPARISON):
        raise DataError(
            f"{folder} is not the folder of a study; expected a folder written by p2pkm study, compare or bench"
        )
    where = str(folder / MARK)
    return make_design(restore_study(asked, where)._replace(refusals="rows"), where, str(folder))


def _name(cell: RunOptions) -> str:
    graph = None if cell.graph is None else str(find_label(cell.graph))
    return f"{name_run(str(find_label(cell.algorithm)), graph)}, seed {cell.seed}"


def _count_reasons(failures: Sequence[Row]) -> dict[str, int]:
    """Count the reasons of failures, the most frequent first; of those that differ in numbers, the first is named."""
    first: dict[str, str] = {}
    kinds = [re.sub(r"\d+", "0", str(row["error"])) for row in failures]
    for kind, row in zip(kinds, failures, strict=True):
        first.setdefault(kind, str(row["error"]))
    return {first[kind]: number for kind, number in Counter(kinds).most_common()}


def _measure_rate(ends: Sequence[float]) -> float | None:
    """Return the runs per second from the last ends."""
    last = sorted(ends)[-_RECENT:]
    if len(last) < 2 or last[-1] <= last[0]:
        return None
    return (len(last) - 1) / (last[-1] - last[0])


def _count_axes(cells: dict[str, RunOptions], rows: dict[str, Row]) -> list[AxisCount]:
    """Count the runs by the values of each option that differs between them, except the seed."""
    described = {key: {**cell.to_mapping(), "graph": cell.graph or "server"} for key, cell in cells.items()}
    names = dict.fromkeys((*_AXES, *(name for values in described.values() for name in values)))
    counts = []
    for name in names:
        if name == "seed":
            continue
        values = {key: str(find_label(options.get(name, "-"))) for key, options in described.items()}
        distinct = list(dict.fromkeys(values.values()))
        if not 1 < len(distinct) <= _MAX_VALUES:
            continue
        total = Counter(values.values())
        done = Counter(values[key] for key, row in rows.items() if row["error"] is None)
        failed = Counter(values[key] for key, row in rows.items() if row["error"] is not None)
        counts += [AxisCount(name, value, done[value], failed[value], total[value]) for value in distinct]
    return counts
