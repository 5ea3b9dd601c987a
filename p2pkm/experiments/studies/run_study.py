"""Execution of the runs of a study on ranks or processes.

Each run executes in a single process. Its row is stored under a hash of options, files, objects and program, so that an
interrupted study continues with the missing runs.
"""

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Generator, Hashable, Mapping, Sequence
from contextlib import chdir, closing, nullcontext, suppress
from dataclasses import replace
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, ParamSpec

import numpy as np

from p2pkm.analysis.graph_measures import MEASURES
from p2pkm.analysis.study_table import SERVED, Study, name_values
from p2pkm.core import errors
from p2pkm.core.cache import memoize_in_study, shared_cache
from p2pkm.core.errors import ExperimentError, NetworkError, P2PKMError, name_arguments
from p2pkm.core.mpi_environment import launched
from p2pkm.core.program_object import ProgramObject
from p2pkm.core.termination import STOPPED
from p2pkm.core.units import count
from p2pkm.engine.build_run import Run
from p2pkm.engine.run_options import RunOptions
from p2pkm.engine.signals import OutOfTimeError, asked_to_stop, limit_time
from p2pkm.experiments.config import build_topology, parse_graph, parse_method
from p2pkm.experiments.console import print_note
from p2pkm.experiments.object_content import dump, restore
from p2pkm.experiments.run import OutputOptions, assemble, execute
from p2pkm.experiments.studies.blocks import divide_study
from p2pkm.experiments.studies.executor import work_in_executor
from p2pkm.experiments.studies.fingerprint import Fingerprints
from p2pkm.experiments.studies.measuring import UNMEASURED, Measuring
from p2pkm.experiments.studies.process_pool import serve, work_through
from p2pkm.methods.init.pipelines import describe_graph_use, needs_hub
from p2pkm.metrics.milestones import accumulate_rounds
from p2pkm.metrics.registry import ShownIn, keys
from p2pkm.metrics.result import Result
from p2pkm.network.graph import Topology
from p2pkm.network.local import LocalWorld
from p2pkm.network.transport import World
from p2pkm.network.world import connect
from p2pkm.storage.study_rows import NOTHING, OPTIONS, Row, RowWriter, Seen, StoredRows
from topologies import FIXED

ProgressCallback = Callable[[Row, int, int], None]
Arguments = ParamSpec("Arguments")
_DESCRIBED = tuple(name for name in MEASURES if name != "residual_noise")
_MAX_MEASURED = 20_000  # devices up to which a graph is measured
_MAX_CHECKED = 4_000_000  # points up to which they have a checksum
_PAUSE = 0.5  # seconds between two looks at what other workers have finished
_GRAPHS = 64  # graphs whose measures a study keeps for later runs
# Terminations of runs that an option of the command line repeats.
RETRIES = {"--retry-failed": ("failed", "timeout"), "--retry-rejected": ("rejected",)}


def list_retries(*, failed: bool, rejected: bool) -> tuple[str, ...]:
    """Return the terminations of the runs that these options repeat."""
    asked = zip(RETRIES.values(), (failed, rejected), strict=True)
    return tuple(name for terminations, is_asked in asked if is_asked for name in terminations)


# Signals, working folder and shared results belong to a process: threads of one run their blocks one after the other.
_process = threading.Lock()
_SERVE = "from p2pkm.experiments.studies.run_study import serve_study; serve_study({!r})"


class StudyPlan:
    """Runs of a study, of which some have ended already.

    Parameters
    ----------
    cells : sequence of RunOptions
    keys : sequence of str
        Key of each run, see `p2pkm.experiments.studies.fingerprint`.
    folder : Path or None
        Folder with the rows of the runs that have ended.
    retry : collection of str
        Terminations of runs that are executed again: "failed", "timeout", "rejected".

    Attributes
    ----------
    missing : list of int
        Numbers of the runs to execute; of runs with equal keys, the first one.
    elsewhere : int
        Number of runs that other workers still execute at the end.
    """

    def __init__(
        self, cells: Sequence[RunOptions], keys: Sequence[str], folder: Path | None, retry: Collection[str] = ()
    ) -> None:
        self.cells, self.keys, self.folder = cells, keys, folder
        self.stored = StoredRows(folder)
        self._ended = {
            key: row for key, row in self.stored.rows.items() if row["error"] is None or row["termination"] not in retry
        }
        first = {key: number for number, key in reversed(list(enumerate(keys)))}
        self.elsewhere = 0
        self._first = sorted(first.values())
        self.missing = [number for number in self._first if keys[number] not in self._ended]

    def select_missing(self) -> tuple[list[RunOptions], list[str]]:
        """Return the runs to execute, and their keys."""
        return [self.cells[number] for number in self.missing], [self.keys[number] for number in self.missing]

    def count_elsewhere(self) -> int:
        """Return the number of missing runs that living workers execute."""
        begun = {begun.key for begun in self.stored.list_begun()[0]}
        # Afterwards: a worker that is not alive any more has stored its row before.
        self.find_rows_of_others()
        return sum(key in begun and key not in self._ended for key in set(self.keys))

    def wait_for_others(self) -> bool:
        """Wait while other workers execute missing runs; return whether they have left some, which are `missing` then.

        Without such workers, or after an interruption, there is nothing to wait for.
        """
        has_waited = False
        with asked_to_stop() as interrupted:
            while self.count_elsewhere():
                has_waited = True
                time.sleep(_PAUSE)
                if interrupted():
                    return False
        self.missing = [number for number in self._first if self.keys[number] not in self._ended]
        return has_waited and bool(self.missing)

    def add(self, number: int, row: Row) -> None:
        """Add the row of a run that has ended."""
        self._ended[self.keys[number]] = row

    def find_rows_of_others(self) -> None:
        """Add the rows of runs that other workers have stored in the meantime, or a worker before it was lost."""
        if all(key in self._ended and self._ended[key]["error"] is None for key in self.keys):
            return
        self.stored.refresh()
        for key, row in self.stored.rows.items():
            if row["error"] is None or key not in self._ended:
                self._ended[key] = row

    def list_rows(self) -> list[tuple[int, Row]]:
        """Return the rows of all runs that have ended, with their numbers, in order."""
        return [
            (number, _name_objects(self._ended[key], cell) | {OPTIONS: cell.to_mapping()})
            for number, (key, cell) in enumerate(zip(self.keys, self.cells, strict=True))
            if key in self._ended
        ]

    def describe(self) -> list[str]:
        """Say what was found in the folder, and what of it is not used."""
        stored, asked = self.stored, set(self.keys)
        notes = []
        known = [self._ended[key] for key in asked if key in self._ended]
        if known:
            notes.append(f"{len(known):,} of {count(len(asked), 'run')} are stored in {self.folder}")
        for option, terminations in RETRIES.items():
            without = sum(row["error"] is not None and row["termination"] in terminations for row in known)
            if without:
                notes.append(f"{count(without, 'stored run')} ended without a result; {option} repeats them")
        other = len(stored.rows.keys() - asked - stored.earlier)
        if other:
            notes.append(
                f"{count(other, 'row')} in {self.folder} are of other options, files or versions, and are not used"
            )
        if stored.earlier - asked:
            notes.append(
                f"{count(len(stored.earlier - asked), 'row')} in {self.folder} are of an earlier version, and are not "
                "used: their runs are repeated"
            )
        if self.missing and (damaged := stored.count_damaged()):
            notes.append(f"{count(damaged, 'row')} in {self.folder} cannot be read; their runs are repeated")
        if stored.repeated:
            notes.append(f"{count(stored.repeated, 'run')} in {self.folder} were executed twice, with the same result")
        return notes


def _name_objects(row: Row, cell: RunOptions) -> Row:
    """Return a stored row with the names of this study; another one may have stored it under other names."""
    named = {name: value for name, value in row.items() if name != OPTIONS}
    named["algorithm"] = str(cell.algorithm)
    if cell.graph is not None and row["graph"] != SERVED:
        named["graph"] = str(cell.graph)
    return named


class StudyPart(NamedTuple):
    """Runs of a study for ranks or processes, with their objects.

    Attributes
    ----------
    cells : sequence of RunOptions
        Runs to execute.
    keys : sequence of str
        Their keys.
    blocks : sequence of sequence of int
        Numbers of the cells of each block, see `p2pkm.experiments.studies.blocks.divide_study`.
    folder : Path or None
    measuring : Measuring
    jobs : int
        Number of processes, without MPI.
    seen : Seen
        What of the rows in the folder is known.
    """

    cells: Sequence[RunOptions]
    keys: Sequence[str]
    blocks: Sequence[Sequence[int]]
    folder: Path | None
    measuring: Measuring
    jobs: int = 1
    seen: Seen = NOTHING

    def select(self, block: Sequence[int]) -> "StudyPart":
        """Return the part of one block."""
        cells, keys = [self.cells[number] for number in block], [self.keys[number] for number in block]
        return self._replace(cells=cells, keys=keys, blocks=[range(len(block))])

    def open_rows(self) -> RowWriter:
        """Open the file of this worker."""
        return RowWriter(self.folder, self.seen)

    def run(self, number: int, writer: RowWriter) -> Row | None:
        """Run a cell in this process; None if another worker of the folder executes it."""
        cell, key = self.cells[number], self.keys[number]
        try:
            if not writer.claim(key):
                return None
        except NetworkError as error:
            return _start_row(cell) | {"key": key} | _describe_error(error, "failed", self.measuring)
        return run_cell(cell, writer, self.measuring, key)


def _ignore_progress(row: Row, number: int, count: int) -> None:
    """Show no progress."""


def run_study(
    cells: Sequence[RunOptions],
    folder: Path | None,
    world: World,
    progress: ProgressCallback = _ignore_progress,
    *,
    jobs: int = 1,
    measuring: Measuring = UNMEASURED,
    labels: Sequence[Row] = (),
    names: Mapping[str, Mapping[Any, str]] = {},
    plan: StudyPlan | None = None,
    executor: Any = None,
    waits: bool = True,
) -> list[Row]:
    """Run all cells whose row is not in the folder yet, and return all rows in order, on rank 0.

    Parameters
    ----------
    cells : sequence of RunOptions
        One for each run, with its seed; `out` and `plot` are ignored.
    folder : Path or None
        Folder in which each row is stored when its run has ended; None: rows are not stored.
    world : World
        Its ranks take blocks of cells with equal points and graph as they become free; each cell runs in one process.
    progress : callable
        Called with the row of each cell that this rank has finished, the number of finished cells, and of all cells.
    jobs : int
        Number of processes, without MPI.
    measuring : Measuring
    labels : sequence of dict
        Further columns of the row of each cell, such as its task; empty: none.
    names : dict of dict
        Name of each value that has one, by option and value.
    plan : StudyPlan, optional
        What of the cells is missing; None: found in the folder.
    executor : concurrent.futures.Executor, optional
        Executes blocks of cells in place of the ranks and processes; `jobs` is the number of its workers.
    waits : bool
        Wait for runs that other workers of the folder execute, and execute what they leave.

    Notes
    -----
    A run that was rejected, has failed or ran out of time is a row with its error; the column ``termination`` is
    "rejected", "failed" or "timeout". An interrupted run ends the study without a row.
    """
    plan = plan or StudyPlan(cells, Fingerprints(measuring).find_all(cells), folder)

    def run_missing() -> None:
        missing, keys = plan.select_missing()
        blocks = divide_study(missing, max(jobs, world.size))
        part = StudyPart(missing, keys, blocks, folder, measuring, jobs, plan.stored.seen())
        if world.size > 1:
            world.broadcast({"study": np.frombuffer(dump(part), np.uint8)})
        before, numbers = len(cells) - len(missing), plan.missing

        def show(row: Row, number: int) -> None:
            progress(name_values(row, names), before + number, len(cells))

        for number, row in (_run_share(world, part, show, executor) or {}).items():
            plan.add(numbers[number], row)
        plan.find_rows_of_others()

    if plan.missing:
        run_missing()
    while waits and plan.wait_for_others():
        run_missing()
    plan.elsewhere = plan.count_elsewhere()
    rows = plan.list_rows()
    return [name_values(row, names) | (labels[number] if labels else {}) for number, row in rows]


def follow_study(world: World, order: dict[str, Any]) -> None:
    """Run this rank's cells of a study that rank 0 has broadcast."""
    _run_share(world, restore(order["study"].tobytes()), lambda row, number: None)


def _run_share(
    world: World, study: StudyPart, show: Callable[[Row, int], None], executor: Any = None
) -> dict[int, Row] | None:
    """Run the cells that this rank draws; return the rows of all cells by number on rank 0, None on other ranks."""
    cells, blocks = study.cells, study.blocks
    if world.size > 1:
        _compile_once(world, sorted({cell.dtype for cell in cells}))
    finished: list[tuple[int, Row]] = []
    elsewhere: list[int] = []  # blocks that other ranks have completed
    with asked_to_stop() as interrupted:
        if executor is not None:
            runs = run_in_executor(study, executor, interrupted)
        elif study.jobs == 1:
            runs = _run_in_this_process(study, world.draw_numbers(len(blocks), elsewhere.append), interrupted)
        else:
            runs = run_in_processes(study, interrupted)
        with closing(runs):
            for number, row in runs:
                if row is None:
                    continue
                if row["termination"] in STOPPED:
                    break
                finished.append((number, row))
                show(row, len(finished) + sum(len(blocks[block]) for block in elsewhere))
    parts = world.gather(np.frombuffer(json.dumps(finished).encode(), np.uint8))
    if parts is None:
        return None
    return dict(pair for part in parts for pair in json.loads(part.tobytes()))


def _run_in_this_process(
    study: StudyPart, drawn: Generator[int], interrupted: Callable[[], int]
) -> Generator[tuple[int, Row | None]]:
    """Run the cells of the blocks that this process draws, one after the other."""
    with shared_cache(), closing(drawn), study.open_rows() as writer:
        for block in drawn:
            for number in study.blocks[block]:
                if interrupted():
                    return
                yield number, study.run(number, writer)


def run_in_processes(study: StudyPart, interrupted: Callable[[], int]) -> Generator[tuple[int, Row | None]]:
    """Run cells in worker processes, each block in one of them until others are idle."""
    numbers = [number for block in study.blocks for number in block]
    groups = [place for place, block in enumerate(study.blocks) for _ in block]
    # A file that only this user can read.
    with TemporaryDirectory(prefix="p2pkm-") as shared:
        path = Path(shared, "study")
        path.write_bytes(dump(study))
        program = _SERVE.format(str(path))
        for task, answer in work_through(program, list(map(str, numbers)), study.jobs, interrupted, groups):
            number = numbers[task]
            if answer is not None:
                yield number, json.loads(answer)
                continue
            error = "NetworkError: its process ended unexpectedly, possibly for lack of memory. Use fewer --jobs"
            yield number, _start_row(study.cells[number]) | _end_without_result(error, "failed")


def run_in_executor(
    study: StudyPart, executor: Any, interrupted: Callable[[], int]
) -> Generator[tuple[int, Row | None]]:
    """Run each block as one task of an executor, which sends the cells with their objects to its workers."""
    tasks = [(dump(study.select(block)), os.getcwd()) for block in study.blocks]
    for task, answer in work_in_executor(executor, run_block, tasks, interrupted):
        block = study.blocks[task]
        if not isinstance(answer, Exception):
            yield from zip(block, json.loads(answer), strict=False)
            continue
        error = f"NetworkError: its task ended with {type(answer).__name__}: {answer}. Call study again with its folder"
        for number in block:
            yield number, _start_row(study.cells[number]) | _end_without_result(error, "failed")


def run_block(content: bytes, place: str) -> str:
    """Run the cells of one block in this process, and return their rows as JSON.

    Parameters
    ----------
    content : bytes
        The `StudyPart`.
    place : str
        Folder to which paths are relative.
    """
    rows: list[Row | None] = []
    with _process, chdir(place) if place != os.getcwd() and os.path.isdir(place) else nullcontext():
        study: StudyPart = restore(content)
        with shared_cache(), study.open_rows() as writer:
            for number in range(len(study.cells)):
                row = study.run(number, writer)
                rows.append(row)
                if row is not None and row["termination"] in STOPPED:
                    break
    return json.dumps(rows)


def serve_study(path: str) -> None:
    """Run cells of a study, given by their numbers, until another process sends no more.

    Parameters
    ----------
    path : str
        File with the `StudyPart`, which the other process has written.
    """
    study: StudyPart = restore(Path(path).read_bytes())
    with shared_cache(), study.open_rows() as writer:
        serve(lambda task: json.dumps(study.run(int(task), writer)))


def check_jobs(jobs: int) -> None:
    """Check that processes and MPI ranks are not combined.

    Raises
    ------
    ExperimentError
        If they are.
    """
    if jobs > 1 and launched():
        raise ExperimentError(
            f"--jobs {jobs} cannot be combined with mpirun: its ranks already share the runs. Remove --jobs or mpirun"
        )


def print_graph_notes(cells: Sequence[RunOptions]) -> None:
    """Print each note on graph files and on methods that ignore link weights once.

    A graph or a method that cannot be used is reported by its run.
    """
    notes: dict[str, None] = {}
    for cell in dict.fromkeys(cell.replaced(seed=0) for cell in cells):
        with suppress(P2PKMError):
            method = parse_method(cell).build(cell.draft_k)
            graph = parse_graph(cell, method)
            if not needs_hub(method) and (graph.name in FIXED or isinstance(graph, ProgramObject)):
                notes |= dict.fromkeys(describe_graph_use(method, build_topology(graph, None, 1)))
    for note in notes:
        print_note(note)


def _compile_once(world: World, types: Sequence[str]) -> None:
    """Compile the kernels for these types of points on rank 0 while the other ranks wait."""
    from p2pkm.kernels import compile_ahead

    if world.rank == 0:
        for dtype in types:
            compile_ahead(dtype, helped=True)
    world.wait()


def run_cell(
    cell: RunOptions, writer: RowWriter | None = None, measuring: Measuring = UNMEASURED, key: str | None = None
) -> Row:
    """Run one cell in this process, and store its row.

    Parameters
    ----------
    cell : RunOptions
    writer : RowWriter, optional
        Where the row is stored unless the run was interrupted; None: nowhere.
    measuring : Measuring
    key : str, optional
        Key of the run; None: found here.
    """
    key = key or Fingerprints(measuring).find(cell)
    row = _compute_row(cell, measuring, key)
    if writer is not None and row["termination"] not in STOPPED:
        try:
            writer.add(row | {OPTIONS: cell.to_mapping()})
        except NetworkError as error:
            return _start_row(cell) | {"key": key} | _describe_error(error, "failed", measuring)
    return row


def _compute_row(cell: RunOptions, measuring: Measuring, key: str) -> Row:
    """Run one cell and return its row, also if it fails."""
    start = _start_row(cell)
    try:
        with limit_time(measuring.time_limit):
            run = assemble(replace(cell, out="none", plot=False), LocalWorld())
        resolved, on_star = run.options, run.topology.hub >= 0
        graph = SERVED if on_star else str(cell.graph or resolved.graph)
        start |= {"graph": graph, "devices": resolved.devices, "key": key} | describe_points(run)
    except Exception as error:
        return start | {"key": key} | _describe_error(error, "rejected", measuring)
    try:
        with limit_time(measuring.time_limit):
            output = OutputOptions(quiet=True, link_models=measuring.link_models)
            with measuring.request():
                result = execute(run, LocalWorld(), None, output)
        if failure := result.summary["failure"]:
            # The scores are over the other devices only. With few such devices they are kept: `centroids_held` is 0.
            return start | _end_without_result(f"no result: {failure}", "failed")
        with measuring.request():
            row = start | collect_metrics(result)
        return row | measure_graph(run.topology, resolved.graph)
    except Exception as error:
        return start | _describe_error(error, "failed", measuring)


def _describe_error(error: Exception, termination: str, measuring: Measuring) -> Row:
    """Return error and termination of a row whose run has not ended by itself."""
    if isinstance(error, OutOfTimeError):
        reason = f"took longer than {measuring.time_limit:g} s. Use a longer time limit, or a smaller task"
        return _end_without_result(f"TimeLimit: the run {reason}", "timeout")
    if not isinstance(error, P2PKMError):
        # An unexpected error, for example of a plug-in, must not end the other runs of the study.
        traceback.print_exception(error, file=sys.stderr)
        termination = "failed"
    return _end_without_result(f"{type(error).__name__}: {error}", termination)


def _end_without_result(reason: str, termination: str) -> Row:
    """Return error and termination of a run without a result.

    Reasons are in the spelling of study files and of Python, so that rows do not depend on who starts or resumes.
    """
    return {"error": name_arguments(reason), "termination": termination}


def describe_points(run: Run) -> Row:
    """Return number, features and checksum of the points; no checksum of points on disk."""
    shards = run.points
    points = shards.m
    checksum = shards.checksum() if shards.in_memory and points <= _MAX_CHECKED else None
    return {"points": points, "features": shards.d, "points_sha256": checksum}


def _start_row(cell: RunOptions) -> Row:
    """Return the entries of a row that are known before its run."""
    graph = None if cell.graph is None else str(cell.graph)
    return {"algorithm": str(cell.algorithm), "graph": graph, "seed": cell.seed, "error": None, "termination": None}


def on_every_rank(call: Callable[Arguments, Study]) -> Callable[Arguments, Study]:
    """Distribute the runs of a study that all ranks call; every rank returns the result.

    The arguments of rank 0 count. Its objects are sent to the other ranks.
    """

    @wraps(call)
    def run_on_ranks(*arguments: Arguments.args, **options: Arguments.kwargs) -> Study:
        # An executor has workers of its own, which may be all other ranks.
        world = LocalWorld() if options.get("executor") is not None else connect()
        if world.size == 1:
            return call(*arguments, **options)
        if world.rank > 0:
            return _follow_call(world)
        end: dict[str, Any] = {"error": "", "kind": "KeyboardInterrupt"}
        try:
            study = call(*arguments, **options)
            end = {"rows": study.rows, "path": study.path and str(study.path), "margin": study.margin}
            return study
        except P2PKMError as error:
            end = {"error": str(error), "kind": type(error).__name__}
            raise
        except Exception:
            # The other ranks may wait in any exchange.
            traceback.print_exc(file=sys.stderr)
            world.abort(NetworkError.code)
            raise
        finally:
            world.broadcast({"end": np.frombuffer(json.dumps(end).encode(), np.uint8)})

    return run_on_ranks


def _follow_call(world: World) -> Study:
    """Run this rank's share of the studies of rank 0 until it returns, and return or raise the same."""
    while "end" not in (order := world.broadcast(None)):
        follow_study(world, order)
    end = json.loads(order["end"].tobytes())
    if "rows" in end:
        return Study(end["rows"], end["path"] and Path(end["path"]), end["margin"])
    if end["kind"] == "KeyboardInterrupt":
        raise KeyboardInterrupt
    # Kinds that only rank 0 distinguishes, such as that of a wrong call, are errors of the experiment.
    raise vars(errors).get(end["kind"], errors.ExperimentError)(end["error"])


def measure_graph(topology: Topology, key: Hashable) -> Row:
    """Measure a graph, the only one of a study with this key and number of devices.

    All values are None for the star of a server and above 20,000 devices, infinite ones always.
    """
    if topology.hub >= 0 or topology.n > _MAX_MEASURED:
        return dict.fromkeys(MEASURES)
    from topologies import CSRGraph, measures

    graph = topology.varying or CSRGraph(topology.indptr, topology.indices, topology.weights)

    def measure() -> Row:
        described = measures.describe(graph)
        values = {name: described[name].value for name in _DESCRIBED}
        # The noise that GTVMin leaves at coupling 1. It is not predicted for time-varying graphs.
        values["residual_noise"] = None if topology.varying else float(measures.residual_noise(graph, (1.0,))[0])
        return {name: value if value is not None and np.isfinite(value) else None for name, value in values.items()}

    measured: Row = memoize_in_study("measures", lambda: (key, topology.n), measure, keep=_GRAPHS)
    return dict(measured)


def collect_metrics(result: Result) -> Row:
    """Collect the metrics that a study reports for each run."""
    summary = result.summary
    is_integer = summary["quantize"] is not None or summary["wire_bytes"] != summary["bytes"]
    times = {f"seconds_{name}": seconds for name, seconds in result.times.items()}
    row = {name: summary[name] for name in keys(ShownIn.STUDY)}
    row["message_encoding"] = "integer" if is_integer else "real"
    return row | times | {"trace": accumulate_rounds(result.rounds)}
