"""Benchmark: all entries on all tasks of a suite, as one study with a table."""

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from p2pkm.core.cache import shared_cache
from p2pkm.core.errors import DataError, ExperimentError, NetworkError
from p2pkm.core.termination import INTERRUPTED
from p2pkm.core.units import count, describe_folder
from p2pkm.core.validation import as_list, check_integer, check_positive, check_scalar
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.bench.entries import Entry, count_entries, list_entries, split_list
from p2pkm.experiments.bench.references import NAME, References, name_points
from p2pkm.experiments.bench.rows import COLUMNS, Place, list_best, make_row
from p2pkm.experiments.bench.suites import Suite, read_suite
from p2pkm.experiments.console import print_note
from p2pkm.experiments.program_objects import ProgramObjects, available
from p2pkm.experiments.run import OutputOptions
from p2pkm.experiments.studies.program_values import ProgramValues
from p2pkm.experiments.studies.run_study import (
    Measuring,
    announce_study_compilation,
    check_jobs,
    on_every_rank,
    open_folder,
    run_study,
)
from p2pkm.experiments.studies.sweep import SweepProgress
from p2pkm.network.world import connect
from p2pkm.storage.bench_statistics import BenchSummary, summarize
from p2pkm.storage.lock import Lock
from p2pkm.storage.paired_tests import MARGIN
from p2pkm.storage.save import write_bytes, write_json
from p2pkm.storage.study_table import SERVED, Row, Study

MARK = "bench.json"  # file that marks the folder of a benchmark, with its configuration
ROWS = "rows.jsonl"
_TABLE = "bench.csv"
_MAX_RUNS = 200_000
_PLACES = "places"  # column of a row of the study with its places in the benchmark


@dataclass(frozen=True, repr=False)
class Benchmark:
    """Rows of a benchmark, as returned by `p2pkm.bench`.

    Attributes
    ----------
    rows : list of dict
        One row per entry, task, graph and seed; see docs/howto/bench.md for the columns. A run that was rejected, has
        failed or ran out of time has its ``status`` and ``reason``.
    path : Path or None
        Folder of the benchmark.

    Examples
    --------
    >>> import p2pkm
    >>> found = p2pkm.bench(["local", "treelloyd"], tasks=["few-iid"], seeds=[0], progress=False)
    >>> sorted({row["entry"] for row in found.rows})
    ['local', 'treelloyd']
    """

    rows: list[Row]
    path: Path | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Benchmark":
        """Load the folder of a benchmark.

        Raises
        ------
        DataError
            If the folder does not contain a benchmark that has ended.
        """
        folder = Path(path)
        try:
            lines = (folder / ROWS).read_text("utf-8").splitlines()
            rows = [json.loads(line) for line in lines]
            json.loads((folder / MARK).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(
                f"{folder} cannot be read as a benchmark: {error}; expected a folder that p2pkm bench has written"
            ) from None
        return cls(rows, folder)

    @property
    def failed(self) -> list[Row]:
        """Rows without a result; ``reason`` tells why."""
        return [row for row in self.rows if row["status"] != "done"]

    def ranking(self, margin: float = MARGIN) -> BenchSummary:
        """Rank the entries: geometric means of the excess, intervals, and verdicts against the best one.

        Parameters
        ----------
        margin : float, default=0.005
            Largest absolute log ratio of two costs at which entries are equivalent.
        """
        return summarize(self.rows, margin=margin)

    def to_frame(self) -> Any:
        """Convert the rows to a pandas.DataFrame with one row per run."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    def __repr__(self) -> str:
        """Return a summary in one line."""
        entries, tasks = ({row[name] for row in self.rows} for name in ("entry", "task"))
        size = f"{count_entries(len(entries))}, {count(len(tasks), 'task')}"
        return f"Benchmark of {count(len(self.rows), 'run')}: {size}, {len(self.failed)} without result"


class BenchOptions(NamedTuple):
    """Options of a benchmark.

    Attributes
    ----------
    suite : str
        Name of a suite, or its file.
    algorithms : sequence of str
        Entries, see `p2pkm.experiments.bench.entries.list_entries`; empty: those of the suite.
    tasks : sequence of str
        Names of tasks; empty: all.
    seeds : str, list of int or None
        Seeds instead of those of the tasks.
    files : dict of str to str
        Paths of the files of the user, by the names in the suite.
    time_limit : float or None
        Seconds of a run; None: as in the suite.
    margin : float
        Largest absolute log ratio of two costs at which entries are equivalent.
    plot : bool
        Draw figures and a report into the folder.
    """

    suite: str = "core"
    algorithms: Sequence[str] = ()
    tasks: Sequence[str] = ()
    seeds: str | Sequence[int] | None = None
    files: Mapping[str, str] = {}
    time_limit: float | None = None
    margin: float = MARGIN
    plot: bool = True

    def read(self) -> tuple[Suite, list[Entry]]:
        """Read suite and entries.

        Raises
        ------
        P2PKMError
            If an option cannot be used.
        """
        suite = read_suite(self.suite).select(self.tasks, self.seeds).with_files(self.files)
        limit = suite.time_limit if self.time_limit is None else check_positive(self.time_limit, "time_limit")
        suite = suite._replace(time_limit=limit)
        return suite, list_entries(self.algorithms or split_list(suite.algorithm))


@on_every_rank
@shared_cache()
def _bench(options: BenchOptions, program: ProgramValues, out: str | None, jobs: int, progress: bool) -> Study:
    """Run a benchmark on all ranks."""
    folder = "none" if out is None else out
    with available(program.collect()):
        suite, entries = options.read()
        rows, path, complete = run_benchmark(options, suite, entries, folder, OutputOptions(quiet=not progress), jobs)
    if not complete:
        raise KeyboardInterrupt
    return Study(rows, path)


def bench(  # noqa: PLR0913 - the public signature
    algorithms: Any = None, *, suite: str = "core", tasks: Iterable[str] = (), seeds: str | Iterable[int] | None = None,
    files: Mapping[str, Any] | None = None, jobs: int = 1, out: str | os.PathLike[str] | None = None,
    time_limit: float | None = None, plot: bool = False, progress: bool = True,
) -> Benchmark:  # fmt: skip
    """Rank methods on the tasks of a suite, as ``p2pkm bench`` does.

    Parameters
    ----------
    algorithms : str, method class, list or dict, optional
        Methods, such as ``"all,mymethod"``, ``["gtvmin", MyMethod]`` or ``{"mine": MyMethod}``: names of methods or of
        entries, specs, names of methods of installed packages, and classes. None: those of the suite.
    suite : str, default="core"
        Name of a suite, or the path of a suite file.
    tasks : iterable of str
        Names of tasks; empty: all.
    seeds : str or iterable of int, optional
        Seeds instead of those of the suite.
    files : dict of str to path, optional
        Files for the tasks of the suite ``real``, by the names in the suite.
    jobs : int, default=1
        Number of processes.
    out : path, optional
        Folder of the benchmark. An interrupted benchmark continues there. None: nothing is written.
    time_limit : float, optional
        Seconds of a run; None: as in the suite.
    plot : bool, default=False
        Draw figures and a report into the folder.
    progress : bool, default=True
        Print progress and the estimated remaining time on standard error.

    Returns
    -------
    Benchmark
        With ``rows``, `ranking` and `to_frame`. A run that was rejected, has failed or ran out of time is a row with
        its reason.

    Raises
    ------
    P2PKMError
        If an option is unknown or invalid; nothing has been computed then.
    KeyboardInterrupt
        If the benchmark is interrupted; finished runs are in the folder, if there is one.

    Examples
    --------
    >>> import p2pkm
    >>> found = p2pkm.bench("mavg,kfed", tasks=["few-iid"], seeds=[0], progress=False)
    >>> len(found.rows), found.failed
    (6, [])
    """
    check_jobs(check_integer(jobs, 1, "jobs"))
    check_scalar(progress, "progress")
    program = ProgramValues("bench(...)")
    options = BenchOptions(
        suite,
        _take_algorithms(program, algorithms),
        as_list(tasks, "tasks"),
        seeds if seeds is None or isinstance(seeds, str) else as_list(seeds, "seeds"),
        {name: os.fspath(path) for name, path in (files or {}).items()},
        time_limit,
        plot=check_scalar(plot, "plot"),
    )
    study = _bench(options, program, None if out is None else os.fspath(out), jobs, progress)
    if plot and study.path is not None and connect().rank == 0:
        finish(study.rows, study.path, options.margin, plot=True)
    return Benchmark(study.rows, study.path)


def _take_algorithms(program: ProgramValues, algorithms: Any) -> list[str]:
    """Return names, specs and references of methods."""
    if algorithms is None:
        return []
    if isinstance(algorithms, Mapping):
        return [program.take("algorithm", value, name) for name, value in algorithms.items()]
    listed = algorithms if isinstance(algorithms, (list, tuple)) else [algorithms]
    return [
        text
        for value in listed
        for text in (split_list(value) if isinstance(value, str) else [program.take("algorithm", value)])
    ]


def run_bench_command(options: BenchOptions, out: str | None, jobs: int, output: OutputOptions) -> int:
    """Run a benchmark, print its table, and return the exit code.

    Raises
    ------
    P2PKMError
        If an option cannot be used; nothing has been computed then.
    """
    check_jobs(jobs)
    with shared_cache(), available(ProgramObjects()):
        suite, entries = options.read()
        if output.dry_run:
            print(describe_runs(suite, entries))
            return 0
        rows, folder, complete = run_benchmark(options, suite, entries, out, output, jobs)
    if output.json:
        print(json.dumps({"rows": rows, "out": None if folder is None else str(folder)}), flush=True)
    else:
        print(finish(rows, folder, options.margin, plot=options.plot and complete), flush=True)
        if not complete:
            print(f"interrupted; continue with: python -m p2pkm resume {folder}", flush=True)
    return 0 if complete else INTERRUPTED


def finish(rows: Sequence[Row], folder: Path | None, margin: float, *, plot: bool) -> str:
    """Write ranking, figures and report into the folder, if there is one, and return the ranking as text."""
    summary = summarize(rows, margin=margin)
    if folder is not None and plot:
        from p2pkm.viz import draw_bench

        draw_bench(summary, folder)
    return "\n".join([summary.text(), describe_folder(None if folder is None else str(folder))])


def update_references(options: BenchOptions, out: str | None, output: OutputOptions) -> int:
    """Search the references of a suite again, and write them into a folder, or below runs.

    Raises
    ------
    P2PKMError
        If an option or the folder cannot be used.
    """
    suite, _ = options.read()
    folder = open_folder(out, "references", NAME)
    references = References.load(folder)
    with shared_cache():
        references.complete(suite.tasks, (lambda note: None) if output.quiet else print_note, renew=True)
    if folder is not None:
        references.save(folder)
    print(describe_folder(None if folder is None else str(folder)), flush=True)
    return 0


def resume_bench(folder: Path, jobs: int, output: OutputOptions) -> int:
    """Complete the runs in the folder of a benchmark, and end as `run_bench_command` does.

    Raises
    ------
    DataError
        If the configuration in the folder cannot be read.
    """
    return run_bench_command(read_mark(folder), str(folder), jobs, output)


def read_mark(folder: Path) -> BenchOptions:
    """Read the options of the benchmark in a folder.

    Raises
    ------
    DataError
        If they cannot be read.
    """
    mark = folder / MARK
    try:
        content = json.loads(mark.read_text("utf-8"))
        return BenchOptions(**content["options"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{mark} cannot be read: {type(error).__name__}: {error}; expected the folder of a benchmark. Start the "
            "benchmark again with bench --out NEW"
        ) from None


def list_cells(suite: Suite, entries: Sequence[Entry]) -> dict[RunOptions, list[Place]]:
    """List the runs with the places of their rows; tasks that do not differ for a method share a run.

    Raises
    ------
    P2PKMError
        If an option of a task is wrong, or there are more than 200,000 runs.
    """
    cells: dict[RunOptions, list[Place]] = {}
    where = (
        (task, entry, graph, seed)
        for task, entry in product(suite.tasks, entries)
        for graph, seed in product((SERVED,) if entry.has_server else task.graphs, task.seeds)
    )
    for number, (task, entry, graph, seed) in enumerate(where):
        cell = entry.on(task, None if graph == SERVED else graph, seed)
        cells.setdefault(cell, []).append(Place(number, task, entry, graph, seed))
    if len(cells) > _MAX_RUNS:
        raise ExperimentError(f"the benchmark has {len(cells):,} runs; expected at most {_MAX_RUNS:,}. Select tasks")
    return cells


def run_benchmark(
    options: BenchOptions, suite: Suite, entries: Sequence[Entry], out: str | None, output: OutputOptions, jobs: int
) -> tuple[list[Row], Path | None, bool]:
    """Run a benchmark; return its rows, its folder, and whether all runs have ended."""
    cells = list_cells(suite, entries)
    folder = open_folder(out, "bench", MARK)
    with nullcontext() if folder is None else Lock(folder):
        references = References.load(folder)
        _check_suite(folder, suite)
        if folder is not None:
            write_json(folder, MARK, {"suite": suite.name, "version": suite.version, "options": options._asdict()})
        tell = (lambda note: None) if output.quiet else print_note
        references.complete(suite.tasks, tell)
        announce_study_compilation(quiet=output.quiet)
        progress = SweepProgress(output.console.line(), quiet=output.quiet)
        try:
            measuring = Measuring(suite.link_models, suite.time_limit)
            labels = [{_PLACES: places} for places in cells.values()]
            study_rows = run_study(
                list(cells), folder, connect(), progress, jobs=jobs, measuring=measuring, labels=labels
            )
        finally:
            progress.close()
        placed = _place(study_rows)
        for note in _improve(references, placed):
            print_note(note)
        rows = [make_row(suite, place, row, references) for place, row in placed]
        if folder is not None:
            write_folder(folder, rows, references)
    return rows, folder, len(study_rows) == len(cells)


def _check_suite(folder: Path | None, suite: Suite) -> None:
    """Check that a folder holds the same version of the same suite.

    Raises
    ------
    ExperimentError
        If it does not.
    """
    mark = None if folder is None else folder / MARK
    if mark is None or not mark.is_file():
        return
    try:
        content = json.loads(mark.read_text("utf-8"))
        before = content["suite"], content["version"]
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{mark} cannot be read: {error}. Use another folder") from None
    if before != (suite.name, suite.version):
        raise ExperimentError(
            f"--out {folder} holds suite {before[0]}, version {before[1]}; expected {suite.name}, version "
            f"{suite.version}. Use another folder"
        )


def _place(study_rows: Sequence[Row]) -> list[tuple[Place, Row]]:
    """Return the rows with their places, in the order of tasks, entries, graphs and seeds."""
    placed = [(place, row) for row in study_rows for place in row[_PLACES]]
    return sorted(placed, key=lambda pair: pair[0].number)


def _improve(references: References, placed: Sequence[tuple[Place, Row]]) -> list[str]:
    """Replace the references that a run beats, and return a note on each."""
    notes = []
    for place, cost in list_best(placed):
        before = references.find(place.task, place.seed)
        if before is not None and references.improve(place.task, place.seed, cost, place.entry.name):
            notes.append(
                f"the reference of {name_points(place.task, place.seed)} is replaced: {place.entry.name} has the cost "
                f"{cost:.10g} instead of {before.cost:.10g}"
            )
    return notes


def write_folder(folder: Path, rows: Sequence[Row], references: References) -> None:
    """Write references, rows.jsonl and bench.csv.

    Raises
    ------
    NetworkError
        If a file cannot be written.
    """
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    try:
        references.save(folder, (row["points"] for row in rows))
        write_bytes(folder, ROWS, lambda file: file.write(lines.encode()))
        write_bytes(folder, _TABLE, lambda file: file.write(text.getvalue().encode()))
    except OSError as error:
        raise NetworkError(
            f"{folder} cannot be written: {error.strerror or error}. Finished runs are stored: free disk space and "
            f"run: python -m p2pkm resume {folder}"
        ) from None


def describe_runs(suite: Suite, entries: Sequence[Entry]) -> str:
    """Describe the runs of a benchmark: their number, tasks and entries."""
    cells = list_cells(suite, entries)
    tasks = ", ".join(task.name for task in suite.tasks)
    names = ", ".join(entry.name for entry in entries)
    return "\n".join([
        f"suite {suite.name}, version {suite.version}: {count(len(cells), 'run')}",
        f"{count(len(suite.tasks), 'task')}: {tasks}",
        f"{count_entries(len(entries))}: {names}",
    ])
