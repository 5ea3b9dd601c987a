"""Benchmark: all entries on all tasks of a suite, as one study with a table."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from p2pkm.analysis.bench_blocks import is_by_tests
from p2pkm.analysis.bench_personal import PersonalSummary, rank_by_tests
from p2pkm.analysis.bench_statistics import BenchSummary, summarize
from p2pkm.analysis.paired_tests import MARGIN
from p2pkm.analysis.study_table import SERVED, Study
from p2pkm.core.cache import shared_cache
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.keywords import show_call
from p2pkm.core.program_object import ProgramObject, describe, require_object
from p2pkm.core.termination import INTERRUPTED
from p2pkm.core.units import count, describe_folder
from p2pkm.core.validation import as_list, check_positive, check_scalar
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.bench.entries import Entry, add_entries, count_entries, list_entries, select_main, split_list
from p2pkm.experiments.bench.references import NAME, References, name_points
from p2pkm.experiments.bench.rows import Place, list_best, make_row
from p2pkm.experiments.bench.suites import EXCESS, TEST, Suite, read_entry_options, read_suite, suite_of_data
from p2pkm.experiments.console import print_note
from p2pkm.experiments.object_content import wrap_metrics
from p2pkm.experiments.run import OutputOptions, assemble
from p2pkm.experiments.studies.engine import Design, Outcome, conduct, read_execution
from p2pkm.experiments.studies.measuring import Measuring
from p2pkm.experiments.studies.program_values import ProgramValues
from p2pkm.experiments.studies.run_study import on_every_rank
from p2pkm.experiments.studies.sweep import to_study
from p2pkm.methods.registry import ALONE
from p2pkm.network.local import LocalWorld
from p2pkm.storage.save import write_bytes
from p2pkm.storage.study_folder import open_folder, read_table, write_table
from p2pkm.storage.study_mark import BENCH, Names, kind_of, read_mark
from p2pkm.storage.study_rows import Row

_CORE = "core"  # usual suite
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
            rows = read_table(folder)
            if kind_of(folder) != BENCH or rows is None:
                raise ValueError("it is none, or has not ended")
        except (OSError, ValueError) as error:
            raise DataError(
                f"{folder} cannot be read as a benchmark: {error}; expected a folder that p2pkm bench has written"
            ) from None
        return cls(rows, folder)

    @property
    def failed(self) -> list[Row]:
        """Rows without a result; ``reason`` tells why."""
        return [row for row in self.rows if row["status"] != "done"]

    def ranking(self, margin: float = MARGIN) -> BenchSummary | PersonalSummary:
        """Rank the entries: geometric means, intervals, and verdicts against the best one.

        By the excess over the best known cost or, in suites with ``measure = "test"``, by the cost of test points.

        Parameters
        ----------
        margin : float, default=0.005
            Relative difference of two costs up to which entries are equivalent.
        """
        return _rank(self.rows, margin)

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
    algorithms : sequence of str or ProgramObject
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
        Relative difference of two costs up to which entries are equivalent.
    plot : bool
        Draw figures and a report into the folder.
    data : dict of str to object
        Options of a run on data of the user, in place of a suite.
    metrics : ProgramObject or None
        Metrics of a program, for which the rows have a column.
    entry : dict of str to object
        Options of further entries, such as a share of the clients.
    """

    suite: str = _CORE
    algorithms: Sequence[Any] = ()
    tasks: Sequence[str] = ()
    seeds: str | Sequence[int] | None = None
    files: Mapping[str, str] = {}
    time_limit: float | None = None
    margin: float = MARGIN
    plot: bool = True
    data: Mapping[str, Any] = {}
    metrics: ProgramObject | None = None
    entry: Mapping[str, Any] = {}

    def read(self) -> tuple[Suite, list[Entry]]:
        """Read suite and entries.

        Raises
        ------
        P2PKMError
            If an option cannot be used.
        """
        if self.data and (self.tasks or self.files or self.suite != _CORE):
            raise ExperimentError(
                "data of your own cannot be combined with a suite, its tasks or their files: they are one task. Remove "
                "--suite, --task and --file, or remove the options of the data"
            )
        chosen = suite_of_data(self.data) if self.data else read_suite(self.suite)
        if self.data:
            # A mistake in the options of a table would otherwise be the reason of every row.
            assemble(replace(chosen.tasks[0].options, algorithm=ALONE, out="none"), LocalWorld())
        suite = chosen.select(self.tasks, self.seeds).with_files(self.files)
        limit = suite.time_limit if self.time_limit is None else check_positive(self.time_limit, "time_limit")
        suite = suite._replace(time_limit=limit)
        entries = list_entries(self.algorithms or split_list(suite.algorithm), suite.variants)
        if suite.measure == TEST:
            entries = select_main(entries)
        if self.entry:
            entries = add_entries(entries, read_entry_options(self.entry, "options of entries"), suite.tasks)
        return suite, entries


def split_options(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split options of a run that are not None into those of further entries, and those of data of the user."""
    given = {name: value for name, value in given.items() if value is not None}
    of_entries = ["client_share", "deadline", "stale_policy"]
    if "deadline" in given:
        # A deadline needs a link model; without one, the link model is an option of the user's data.
        of_entries.append("link_model")
    entry = {name: value for name, value in given.items() if name in of_entries}
    return entry, {name: value for name, value in given.items() if name not in of_entries}


class BenchDesign(Design):
    """Design of a benchmark: all entries on all tasks of a suite.

    Parameters
    ----------
    options : BenchOptions
    names : dict of dict
        Name of each value that has one, by option and value.

    Raises
    ------
    P2PKMError
        If an option cannot be used.
    """

    kind = BENCH

    def __init__(self, options: BenchOptions, names: Names | None = None) -> None:
        self.options = options
        self.names = names or {}
        self.suite, self.entries = options.read()
        # Of a folder that is resumed, metrics are text: only the program has the functions.
        self._metrics = [] if options.metrics is None else [m.key for m in require_object(options.metrics, "metrics")]
        self.measuring = Measuring(self.suite.link_models, self.suite.time_limit, options.metrics)
        places = list_cells(self.suite, self.entries)
        self.cells = list(places)
        self._places = list(places.values())
        self._references = References.load(None)

    def label(self) -> Sequence[Row]:
        """Return the places of each run in the benchmark."""
        return [{_PLACES: places} for places in self._places]

    def prepare(self, folder: Path | None, *, quiet: bool) -> None:
        """Check that the folder holds the same version of the same suite, and search the references that it lacks."""
        _check_suite(folder, self.suite)
        self._references = References.load(folder)
        if self.suite.measure == EXCESS:
            self._references.complete(self.suite.tasks, (lambda note: None) if quiet else print_note)

    def to_mapping(self) -> dict[str, Any]:
        """Return suite, version and options."""
        options = self.options._asdict() | {
            "algorithms": [describe(value) for value in self.options.algorithms],
            "metrics": describe(self.options.metrics),
        }
        return {
            "suite": self.suite.name,
            "version": self.suite.version,
            "options": {name: value for name, value in options.items() if value is not None},
        }

    def list_rows(self, study_rows: Sequence[Row]) -> list[Row]:
        """Make a row for each place, in the order of tasks, entries, graphs and seeds."""
        placed = _place(study_rows)
        if self.suite.measure == EXCESS:
            for note in _improve(self._references, placed):
                print_note(note)
        return [
            make_row(self.suite, place, row, self._references) | {key: row.get(key) for key in self._metrics}
            for place, row in placed
        ]

    def say(self, outcome: Outcome) -> dict[str, Any]:
        """Return the rows."""
        return {"rows": outcome.rows, "out": outcome.out}

    def write(self, outcome: Outcome) -> None:
        """Write references, table, figures and report."""
        assert outcome.folder is not None
        write_bench(outcome.folder, outcome.rows, self._references)
        if not outcome.is_complete:
            return
        ranking = _rank(outcome.rows, self.options.margin)
        if isinstance(ranking, PersonalSummary):
            write_text(outcome.folder, ranking)
        elif self.options.plot:
            from p2pkm.viz import draw_bench

            draw_bench(ranking, outcome.folder)

    def format(self, outcome: Outcome) -> str:
        """Format the ranking."""
        return _rank(outcome.rows, self.options.margin).text()

    def describe(self, output: OutputOptions) -> str:
        """Describe the runs: their number, tasks and entries."""
        tasks = ", ".join(task.name for task in self.suite.tasks)
        names = ", ".join(entry.name for entry in self.entries)
        return "\n".join([
            f"suite {self.suite.name}, version {self.suite.version}: {count(len(self.cells), 'run')}",
            f"{count(len(self.suite.tasks), 'task')}: {tasks}",
            f"{count_entries(len(self.entries))}: {names}",
        ])

    def exit_code(self, outcome: Outcome) -> int:
        """Return 0 also if runs failed: a run without a result is a result of the benchmark."""
        return 0 if outcome.is_complete else INTERRUPTED


@on_every_rank
@shared_cache()
def _bench(options: BenchOptions, program: ProgramValues, out: str | None, progress: bool, **manner: Any) -> Study:
    """Run a benchmark on all ranks; the further parameters are those of `read_execution`."""
    execution = read_execution(**manner)
    design = BenchDesign(options, program.collect())
    return to_study(
        conduct(design, "none" if out is None else out, OutputOptions(quiet=not progress), execution), MARGIN
    )


@show_call("p2pkm.bench('gtvmin,kfed', suite='core', tasks=['few-iid'], seeds='0-4')")
def bench(
    algorithms: Any = None, *, suite: str = _CORE, tasks: Iterable[str] = (), seeds: str | Iterable[int] | None = None,
    files: Mapping[str, Any] | None = None, jobs: int = 1, out: str | os.PathLike[str] | None = None,
    time_limit: float | None = None, plot: bool = False, progress: bool = True, metrics: Any = (),
    executor: Any = None, retry_failed: bool = False, retry_rejected: bool = False,
    on_run: Callable[[Row], None] | None = None, **data: Any,
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
        Draw figures and a report into the folder; a ranking by test points has none.
    progress : bool, default=True
        Print progress and the estimated remaining time on standard error.
    metrics : callable, Metric, or list of them
        Functions of the `Result` of a run, for each of which the rows have a column of its name; the ranking ignores
        them.
    executor : concurrent.futures.Executor, optional
        Executes the runs, with `jobs` workers, as in `p2pkm.study`.
    retry_failed, retry_rejected : bool, default=False
        Repeat the runs in the folder that failed or took too long, or that were rejected.
    on_run : callable, optional
        Called in this process with the row of each run that has ended.
    **data
        Options of a run on data of your own, in place of a suite, named as on the command line: ``data="visits.csv",
        device_column="site", clusters=4, test_share=0.2``. With ``test_share`` entries are ranked by test points.

        ``client_share=0.25``, ``deadline=0.1`` with ``link_model="edge"``, and ``stale_policy="drop"`` add an entry
        with these options for each method that can run with them, such as ``fkm (client_share=0.25)`` beside ``fkm``.

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
    check_scalar(progress, "progress")
    if not isinstance(files or {}, Mapping):
        raise ExperimentError(f"files is {files!r}; expected a dict of paths, such as {{'mnist': 'mnist.npz'}}")
    program = ProgramValues("bench(...)")
    entry, of_data = split_options(data)
    options = BenchOptions(
        suite,
        _take_algorithms(program, algorithms),
        as_list(tasks, "tasks"),
        seeds if seeds is None or isinstance(seeds, str) else as_list(seeds, "seeds"),
        {name: os.fspath(path) for name, path in (files or {}).items()},
        time_limit,
        plot=check_scalar(plot, "plot"),
        data=of_data,
        metrics=wrap_metrics(metrics, "bench(...): metrics"),
        # In the mark of a folder objects are text.
        entry={name: value if isinstance(value, (int, float)) else str(value) for name, value in entry.items()},
    )
    study = _bench(
        options, program, None if out is None else os.fspath(out), progress, jobs=jobs, executor=executor,
        retry_failed=retry_failed, retry_rejected=retry_rejected, on_run=on_run,
    )  # fmt: skip
    return Benchmark(study.rows, study.path)


def _take_algorithms(program: ProgramValues, algorithms: Any) -> list[Any]:
    """Return names, specs and objects of methods."""
    if algorithms is None:
        return []
    if isinstance(algorithms, Mapping):
        return [_take_algorithm(program, value, name) for name, value in algorithms.items()]
    listed = algorithms if isinstance(algorithms, (list, tuple)) else [algorithms]
    return [
        text
        for value in listed
        for text in (split_list(value) if isinstance(value, str) else [_take_algorithm(program, value)])
    ]


def _take_algorithm(program: ProgramValues, value: Any, name: Any = None) -> Any:
    """Return name, spec or object of a method; refuse anything else."""
    taken = program.take("algorithm", value, name)
    if not isinstance(taken, str | ProgramObject):
        raise ExperimentError(
            f"bench(...): algorithms contains {value!r}; expected text or classes, such as 'gtvmin' or p2pkm.FKM"
        )
    return taken


def update_references(options: BenchOptions, out: str | None, output: OutputOptions) -> int:
    """Search the references of a suite again, and write them into a folder, or below runs.

    Raises
    ------
    P2PKMError
        If an option or the folder cannot be used.
    """
    suite, _ = options.read()
    folder = open_folder(out, "references", mark=NAME)
    references = References.load(folder)
    with shared_cache():
        references.complete(suite.tasks, (lambda note: None) if output.quiet else print_note, renew=True)
    if folder is not None:
        references.save(folder)
    print(describe_folder(None if folder is None else str(folder)), flush=True)
    return 0


def read_mark_of(folder: Path) -> BenchOptions:
    """Read the options of the benchmark in a folder.

    Raises
    ------
    DataError
        If they cannot be read.
    """
    try:
        return BenchOptions(**read_mark(folder)["options"])
    except (KeyError, TypeError) as error:
        raise DataError(
            f"{folder} cannot be read: {type(error).__name__}: {error}; expected the folder of a benchmark. Start the "
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


def _check_suite(folder: Path | None, suite: Suite) -> None:
    """Check that a folder holds the same version of the same suite.

    Raises
    ------
    ExperimentError
        If it does not.
    """
    asked = {} if folder is None else read_mark(folder)
    before = asked.get("suite"), asked.get("version")
    if asked and before != (suite.name, suite.version):
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


def _rank(rows: Sequence[Row], margin: float) -> BenchSummary | PersonalSummary:
    """Rank the entries by the measure of the rows."""
    return rank_by_tests(rows, margin=margin) if is_by_tests(rows) else summarize(rows, margin=margin)


def write_text(folder: Path, ranking: PersonalSummary) -> None:
    """Write the ranking by test points as text and CSV; it has no figures."""
    write_bytes(folder, "ranking.txt", lambda file: file.write(f"{ranking.text()}\n".encode()))
    write_bytes(folder, "ranking.csv", lambda file: file.write(ranking.to_csv().encode()))


def write_bench(folder: Path, rows: Sequence[Row], references: References) -> None:
    """Write references and table."""
    references.save(folder, (row["points"] for row in rows))
    write_table(folder, rows)
