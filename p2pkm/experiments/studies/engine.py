"""Engine of everything that repeats runs: studies, comparisons, benchmarks, seeds and paths of couplings.

A design says what is varied and what is said of the rows. The engine opens the folder, marks it with the design, runs
what is missing, and lets the design write and print what it says.
"""

import json
import sys
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from p2pkm.analysis.explanation import Explanation
from p2pkm.analysis.study_table import Study, name_run
from p2pkm.core.cache import shared_cache
from p2pkm.core.errors import ExperimentError, NetworkError
from p2pkm.core.mpi_environment import launched
from p2pkm.core.termination import INTERRUPTED
from p2pkm.core.units import count, describe_folder, format_seconds
from p2pkm.core.validation import check_integer, check_scalar
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.console import StatusLine, print_note
from p2pkm.experiments.progress_line import StudyBar, in_notebook
from p2pkm.experiments.run import OutputOptions
from p2pkm.experiments.studies.executor import check_executor
from p2pkm.experiments.studies.fingerprint import Fingerprints
from p2pkm.experiments.studies.measuring import UNMEASURED, Measuring
from p2pkm.experiments.studies.run_study import (
    ProgressCallback,
    StudyPlan,
    check_jobs,
    list_retries,
    print_graph_notes,
    run_study,
)
from p2pkm.kernels.compile_time import announce_compilation
from p2pkm.network.local import LocalWorld
from p2pkm.network.world import connect
from p2pkm.storage.lock import Lock
from p2pkm.storage.study_folder import mark_folder, open_folder
from p2pkm.storage.study_rows import Row

FAILED = 4  # exit code if a run failed


class Execution(NamedTuple):
    """Execution of the missing runs of a study: by which processes, and which stored runs are repeated.

    Attributes
    ----------
    jobs : int
        Number of processes, without MPI.
    retry : collection of str
        Terminations of stored runs that are executed again, see `RETRIES`.
    part : str or None
        Share of the runs, ``i/n``, if several jobs share the folder: rows are stored, and the table is left to a later
        call without `part`.
    executor : concurrent.futures.Executor or None
        Executes the runs; None: this machine's processes, or the ranks of MPI.
    on_run : callable or None
        Called with the row of each run that has ended.
    """

    jobs: int = 1
    retry: Collection[str] = ()
    part: str | None = None
    executor: Any = None
    on_run: Callable[[Row], None] | None = None


def read_execution(
    jobs: int, executor: Any = None, *, retry_failed: bool = False, retry_rejected: bool = False,
    on_run: Callable[[Row], None] | None = None,
) -> Execution:  # fmt: skip
    """Check how a program asks for the execution of runs; the parameters are those of `p2pkm.study`.

    Raises
    ------
    ExperimentError
        If a value cannot be used.
    """
    check_integer(jobs, 1, "jobs")
    check_executor(executor)
    if executor is None:
        check_jobs(jobs)
    if on_run is not None and not callable(on_run):
        raise ExperimentError(f"on_run is {on_run!r}; expected a function of a row, such as on_run=print")
    check_scalar(retry_failed, "retry_failed")
    check_scalar(retry_rejected, "retry_rejected")
    return Execution(jobs, list_retries(failed=retry_failed, rejected=retry_rejected), executor=executor, on_run=on_run)


# The remaining time is extrapolated from the last _RECENT finished runs, with at least _MIN_INTERVALS intervals.
_RECENT, _MIN_INTERVALS = 21, 3
_PAUSE = 3.0  # minimum seconds between two progress lines, except on a terminal


IN_THIS_PROCESS = Execution()


class Design(ABC):
    """What is varied, and what is said of the rows.

    Attributes
    ----------
    kind : str
        Kind of the study, see `p2pkm.storage.study_mark`.
    cells : sequence of RunOptions
        Options of each run, with its seed.
    names : dict of dict
        Name of each value that has one, by option and value.
    measuring : Measuring
    elsewhere : int
        Number of runs that other jobs of the folder still execute.
    """

    kind: ClassVar[str]
    cells: Sequence[RunOptions]
    names: Mapping[str, Mapping[Any, str]] = {}
    measuring: Measuring = UNMEASURED
    elsewhere: int = 0

    def label(self) -> Sequence[Row]:
        """Return further columns of the row of each cell; empty: none."""
        return ()

    def open(self, out: str | None, output: OutputOptions, stack: ExitStack, *, shared: bool) -> Path | None:
        """Open and mark the folder, if any; it is locked until the stack is closed, unless several jobs share it."""
        folder = open_folder(out, self.kind)
        if folder is not None and not shared:
            stack.enter_context(Lock(folder))
        self.prepare(folder, quiet=output.quiet)
        if folder is not None:
            mark_folder(folder, self.kind, self.to_mapping(), shared=shared)
        return folder

    def prepare(self, folder: Path | None, *, quiet: bool) -> None:
        """Check the folder and compute what all rows need, before the first run; most designs need nothing."""
        return

    @cached_property
    def keys(self) -> list[str]:
        """Keys of the runs, under which their rows are stored."""
        return Fingerprints(self.measuring).find_all(self.cells)

    def run(
        self, folder: Path | None, output: OutputOptions, execution: Execution, progress: ProgressCallback
    ) -> list[Row]:
        """Run what is missing, each run in one process, and return the rows of all runs that have ended."""
        plan = StudyPlan(self.cells, self.keys, folder, execution.retry)
        if not output.quiet:
            for note in plan.describe():
                print_note(note)
            if plan.missing:
                announce_compilation(print_note)
                print_graph_notes([self.cells[number] for number in plan.missing])
        # The ranks of an executor that uses MPI are not those of the world.
        world = connect() if execution.executor is None else LocalWorld()
        rows = run_study(
            self.cells, folder, world, progress, jobs=execution.jobs, measuring=self.measuring,
            labels=self.label(), names=self.names, plan=plan, executor=execution.executor,
            waits=execution.part is None,
        )  # fmt: skip
        self.elsewhere = plan.elsewhere
        return rows

    @abstractmethod
    def to_mapping(self) -> dict[str, Any]:
        """Return what was asked, for the file in the folder."""

    @abstractmethod
    def list_rows(self, study_rows: Sequence[Row]) -> list[Row]:
        """Make the rows of the table from the rows of the runs."""

    @abstractmethod
    def say(self, outcome: "Outcome") -> dict[str, Any]:
        """Return what is said of the rows, as JSON."""

    @abstractmethod
    def write(self, outcome: "Outcome") -> None:
        """Write table, statements and figures into the folder."""

    @abstractmethod
    def format(self, outcome: "Outcome") -> str:
        """Format table and statements as text."""

    @abstractmethod
    def describe(self, output: OutputOptions) -> str:
        """Describe the runs, for a dry run."""

    def exit_code(self, outcome: "Outcome") -> int:
        """Return the exit code."""
        if not outcome.is_complete:
            return INTERRUPTED
        return FAILED if outcome.failed else 0


@dataclass(frozen=True)
class Outcome:
    """Rows of a study and what is said of them.

    Attributes
    ----------
    design : Design
    study_rows : list of dict
        Rows of the runs that have ended.
    folder : Path or None
    part : str or None
        Share of the runs, ``i/n``.
    """

    design: Design
    study_rows: list[Row]
    folder: Path | None
    part: str | None = None

    @cached_property
    def rows(self) -> list[Row]:
        """Table of the study."""
        return self.design.list_rows(self.study_rows)

    @cached_property
    def explanation(self) -> Explanation:
        """Relation of graph measures and outcomes."""
        return Study(self.rows).explain()

    @property
    def ended(self) -> int:
        """Number of runs that have ended."""
        return len(self.study_rows)

    @property
    def is_complete(self) -> bool:
        """Whether all runs have ended, except those of other jobs."""
        return self.ended + self.design.elsewhere == len(self.design.cells)

    @property
    def failed(self) -> list[Row]:
        """Rows of runs without a result."""
        return [row for row in self.rows if row.get("error") is not None]

    @property
    def out(self) -> str | None:
        """Path of the folder as text."""
        return None if self.folder is None else str(self.folder)

    @cached_property
    def said(self) -> dict[str, Any]:
        """What is said of the rows, as JSON."""
        return self.design.say(self)


def conduct(design: Design, out: str | None, output: OutputOptions, execution: Execution = IN_THIS_PROCESS) -> Outcome:
    """Run what is missing of a study, and write its folder, if any.

    Parameters
    ----------
    design : Design
    out : str or None
        Folder; None: a new one below ``runs``; "none": no folder.
    output : OutputOptions
    execution : Execution

    Raises
    ------
    P2PKMError
        If the folder cannot be used or written.
    """
    with ExitStack() as stack:
        stack.enter_context(design.measuring.request())
        # Jobs that run different parts write to the same folder at the same time.
        folder = design.open(out, output, stack, shared=execution.part is not None)
        bar = StudyBar() if in_notebook() and not output.quiet else None
        progress = StudyProgress(output.console.line(), quiet=output.quiet)

        def show(row: Row, number: int, count: int) -> None:
            (bar or progress)(row, number, count)
            if execution.on_run is not None:
                execution.on_run({name: value for name, value in row.items() if name != "trace"})

        try:
            rows = design.run(folder, output, execution, show)
        finally:
            progress.close()
        outcome = Outcome(design, rows, folder, execution.part)
        if folder is not None and execution.part is None:
            with writing(folder):
                design.write(outcome)
        if bar is not None:
            bar.finish(format_outcome(outcome))
    return outcome


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Convert errors of the operating system to a `NetworkError` about the folder of a study."""
    try:
        yield
    except OSError as error:
        raise NetworkError(
            f"{folder} cannot be written: {error.strerror or error}. Finished runs are stored: free disk space and "
            f"run: python -m p2pkm resume {folder}"
        ) from None


def conduct_command(
    read: Callable[[], Design],
    out: str | None,
    output: OutputOptions,
    execution: Execution = IN_THIS_PROCESS,
    *,
    shares: bool = True,
) -> int:
    """Run a study, print what is said of its rows, and return the exit code.

    Parameters
    ----------
    read : callable
        Returns the design.
    out, output, execution
        As in `conduct`.
    shares : bool
        Whether the runs share points and graphs. Runs on all ranks do not: their points may fill the memory.

    Raises
    ------
    P2PKMError
        If an option cannot be used; nothing has been computed then.
    """
    check_jobs(execution.jobs)
    with shared_cache() if shares else nullcontext():
        design = read()
        if output.dry_run:
            print(design.describe(output))
            return 0
        outcome = conduct(design, out, output, execution)
    if output.json:
        print(json.dumps(outcome.said), flush=True)
    else:
        print(format_outcome(outcome), flush=True)
    return design.exit_code(outcome)


def format_outcome(outcome: Outcome) -> str:
    """Format what is said of the rows, how to complete an interrupted study or one of several parts, and the folder."""
    lines = []
    if outcome.part is None:
        lines.append(outcome.design.format(outcome))
    elsewhere = outcome.design.elsewhere
    missing = len(outcome.design.cells) - outcome.ended - elsewhere
    if elsewhere:
        lines.append(f"{count(elsewhere, 'run')} left to other jobs, which execute them now")
    if missing > 0 and outcome.folder is not None:
        resume = f"python -m p2pkm resume {outcome.folder}"
        lines.append(f"interrupted with {count(missing, 'run')} missing; continue with: {resume}")
    if outcome.part is not None:
        # Without a table: from a share of the runs it would rank configurations by a part of their seeds.
        stored = f"part {outcome.part} is stored: {count(outcome.ended, 'run')}"
        if outcome.failed:
            stored += f", {len(outcome.failed)} of them without a result, which p2pkm study status lists"
        lines.append(f"{stored}. After all parts, run the study without --part for the table")
    return "\n".join([*lines, describe_folder(outcome.out)])


def format_progress(row: Row, number: int, count: int) -> str:
    """Format a progress line for a finished run."""
    outcome = row["error"] or ("" if row.get("ratio_mean") is None else f"ratio {row['ratio_mean']:.4f}")
    return f"{number} of {count}: {name_run(row['algorithm'], row['graph'])}, seed {row['seed']}: {outcome}"


class StudyProgress:
    """Progress of a study on standard error: finished runs and the estimated remaining time.

    On a terminal one line is updated in place; otherwise a line is printed every few seconds.

    Parameters
    ----------
    line : StatusLine
    quiet : bool
        Show nothing.
    """

    def __init__(self, line: StatusLine, *, quiet: bool) -> None:
        self._quiet = quiet
        self._live = line
        self._shown = time.monotonic()
        # Times at which runs of this process have ended, and the number of finished runs of all processes.
        self._ends: deque[tuple[float, int]] = deque(maxlen=_RECENT)
        self._terminal = sys.stderr.isatty() and not launched()

    def __call__(self, row: Row, number: int, count: int) -> None:
        """Show a finished run unless the last line is too recent; failed runs are always shown."""
        now = time.monotonic()
        self._ends.append((now, number))
        due = row["error"] is not None or number == count or now - self._shown > _PAUSE
        if self._quiet or not (due or self._terminal):
            return
        line = format_progress(row, number, count) + self._estimate(count - number)
        if not self._terminal or row["error"] is not None:
            self._shown = now
            print(line, file=sys.stderr, flush=True)
            return
        self._live.update(line)

    def _estimate(self, runs: int) -> str:
        """Estimate the time of the remaining runs from intervals between the last ends.

        The start of the first run is not used: it waits for the compilation of kernels.
        """
        if not runs or len(self._ends) <= _MIN_INTERVALS:
            return ""
        (began, first), (ended, last) = self._ends[0], self._ends[-1]
        return f", about {format_seconds((ended - began) / (last - first) * runs)} left"

    def close(self) -> None:
        """Remove the live line."""
        self._live.close()
