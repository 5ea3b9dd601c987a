"""Execution of the runs of a study on ranks or processes.

Each run executes in a single process. Its row is stored under a hash of configuration, data and program, so that an
interrupted study continues with the missing runs.
"""

import hashlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, partial, wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, ParamSpec

import numpy as np

from p2pkm.core import errors
from p2pkm.core.cache import digest, memoize_in_study, shared_cache
from p2pkm.core.errors import ExperimentError, NetworkError, P2PKMError
from p2pkm.core.mpi_environment import launched
from p2pkm.core.termination import STOPPED
from p2pkm.engine.run_options import RunOptions
from p2pkm.engine.signals import OutOfTimeError, asked_to_stop, limit_time
from p2pkm.experiments.config import Prepared, build_topology, parse_graph, parse_method
from p2pkm.experiments.console import print_note
from p2pkm.experiments.program_objects import (
    ProgramObjects,
    available,
    dump,
    is_reference,
    known_objects,
    restore,
)
from p2pkm.experiments.run import OutputOptions, execute, prepare_and_validate
from p2pkm.experiments.studies.process_pool import serve, work_through
from p2pkm.kernels.compile_time import announce_compilation
from p2pkm.methods.init.pipelines import describe_graph_use, needs_hub
from p2pkm.metrics.milestones import accumulate_rounds
from p2pkm.metrics.registry import ShownIn, keys
from p2pkm.metrics.result import Result
from p2pkm.network.graph import Topology
from p2pkm.network.local import LocalWorld
from p2pkm.network.transport import World
from p2pkm.network.world import connect
from p2pkm.storage.checkpoint import identify
from p2pkm.storage.graph_measures import MEASURES
from p2pkm.storage.run_folder import check_target, make_new, name_folder
from p2pkm.storage.study_table import OPTIONS, SERVED, Row, Study, name_run, name_values, read_row, save_row
from topologies import FIXED

ProgressCallback = Callable[[Row, int, int], None]
Arguments = ParamSpec("Arguments")
_DESCRIBED = tuple(name for name in MEASURES if name != "residual_noise")
_ROWS = "runs"  # folder with one file for each row
_MAX_MEASURED = 20_000  # devices up to which a graph is measured
_MAX_CHECKED = 4_000_000  # points up to which they have a checksum
_GRAPHS = 64  # graphs whose measures a study keeps for later runs
# Runs with equal values of the first of these options follow one another, so that they share points and graphs.
_ORDER = ("seed", "data", "partition", "devices", "clusters", "graph")
_SERVE = "from p2pkm.experiments.studies.run_study import serve_study; serve_study({!r})"


class Measuring(NamedTuple):
    """Settings of the runs of a study that are not options of a run.

    Attributes
    ----------
    link_models : sequence of str
        Link models for whose simulated time the rows have a column, ``seconds_lan`` for "lan"; all from one run.
    time_limit : float or None
        Seconds after which a run ends, with a row whose termination is "timeout"; None: no limit.
    """

    link_models: Sequence[str] = ()
    time_limit: float | None = None


UNMEASURED = Measuring()


def _ignore_progress(row: Row, number: int, count: int) -> None:
    """Show no progress."""


def run_study(  # noqa: PLR0913 - the parts of a study
    cells: Sequence[RunOptions],
    folder: Path | None,
    world: World,
    progress: ProgressCallback = _ignore_progress,
    *,
    jobs: int = 1,
    measuring: Measuring = UNMEASURED,
    labels: Sequence[Row] = (),
) -> list[Row]:
    """Run all cells whose row is not in the folder yet, and return all rows in order, on rank 0.

    Parameters
    ----------
    cells : sequence of RunOptions
        One for each run, with its seed; `out` and `plot` are ignored.
    folder : Path or None
        Folder in which each row is stored when its run has ended; None: rows are not stored.
    world : World
        The cells are distributed over its ranks; each cell runs in one process.
    progress : callable
        Called with the row of each finished cell, the number of finished cells, and the number of cells of this rank.
    jobs : int
        Number of processes, without MPI.
    measuring : Measuring
    labels : sequence of dict
        Further columns of the row of each cell, such as its task; empty: none.

    Notes
    -----
    A run that was rejected, has failed or ran out of time is a row with its error; the column ``termination`` is
    "rejected", "failed" or "timeout". An interrupted run ends the study without a row.
    """
    order = {
        "cells": [cell.to_mapping() for cell in cells],
        "folder": None if folder is None else str(folder),
        "jobs": jobs,
        "measuring": measuring,
    }
    program = known_objects()
    arrays = {"study": np.frombuffer(json.dumps(order).encode(), np.uint8)}
    if program.objects and world.size > 1:
        arrays["objects"] = np.frombuffer(dump(program), np.uint8)

    def show(row: Row, number: int, count: int) -> None:
        progress(name_values(row, program.names), number, count)

    rows = _run_share(world, world.broadcast(arrays), show) or {}
    return [
        name_values(row, program.names) | (labels[number] if labels else {}) for number, row in sorted(rows.items())
    ]


def follow_study(world: World, order: dict[str, Any]) -> None:
    """Run this rank's cells of a study that rank 0 has broadcast."""
    with available(restore(order["objects"].tobytes()) if "objects" in order else ProgramObjects()):
        _run_share(world, order, _ignore_progress)


def _run_share(world: World, order: dict[str, Any], progress: ProgressCallback) -> dict[int, Row] | None:
    """Run this rank's cells; return all rows by the number of their cells on rank 0, None on other ranks."""
    study = json.loads(order["study"].tobytes())
    folder = None if study["folder"] is None else Path(study["folder"])
    cells: list[Row] = study["cells"]
    if world.size > 1:
        _compile_once(world, sorted({cell["dtype"] for cell in cells}))
    share = select_share(cells, world.rank, world.size)
    measuring = Measuring(*study["measuring"])
    run = _run_in_this_process if study["jobs"] == 1 else partial(run_in_processes, jobs=study["jobs"])
    finished: list[tuple[int, Row]] = []
    with asked_to_stop() as interrupted:
        for place, row in run([cells[number] for number in share], folder, interrupted, measuring):
            if row["termination"] in STOPPED:
                break
            finished.append((share[place], row))
            progress(row, len(finished), len(share))
    parts = world.gather(np.frombuffer(json.dumps(finished).encode(), np.uint8))
    if parts is None:
        return None
    rows = dict(pair for part in parts for pair in json.loads(part.tobytes()))
    return {number: row | {OPTIONS: cells[number]} for number, row in rows.items()}


def select_share(cells: Sequence[Row], index: int, count: int) -> list[int]:
    """Return the numbers of the cells in share `index` of `count` shares, 0 <= index < count."""
    return sorted(range(len(cells)), key=partial(_sort_key, cells))[index::count]


def _sort_key(cells: Sequence[Row], number: int) -> tuple[str, ...]:
    """Return a key by which cells that share points or a graph follow one another."""
    return (*(str(cells[number].get(name)) for name in _ORDER), f"{number:09}")


def _run_in_this_process(
    cells: Sequence[Row], folder: Path | None, interrupted: Callable[[], int], measuring: Measuring
) -> Iterator[tuple[int, Row]]:
    """Run cells one after the other."""
    with shared_cache():
        for place, cell in enumerate(cells):
            if interrupted():
                return
            yield place, run_cell(RunOptions.from_mapping(cell, "the study"), folder, measuring)


def run_in_processes(
    cells: Sequence[Row],
    folder: Path | None,
    interrupted: Callable[[], int],
    measuring: Measuring = UNMEASURED,
    *,
    jobs: int,
) -> Iterator[tuple[int, Row]]:
    """Run cells in worker processes."""
    path = None if folder is None else str(folder)
    tasks = [json.dumps([cell, path, measuring]) for cell in cells]
    with _objects_for_processes() as objects:
        groups = [_sort_key(cells, number)[:-1] for number in range(len(cells))]
        for number, answer in work_through(_SERVE.format(objects), tasks, jobs, interrupted, groups):
            if answer is not None:
                yield number, json.loads(answer)
                continue
            error = "NetworkError: its process ended unexpectedly, possibly for lack of memory. Use fewer --jobs"
            row = _start_row(RunOptions.from_mapping(cells[number], "the study"))
            yield number, row | {"error": error, "termination": "failed"}


@contextmanager
def _objects_for_processes() -> Iterator[str]:
    """Write the objects of the study into a file that only this user can read; yield its path, "" without objects."""
    program = known_objects()
    if not program.objects:
        yield ""
        return
    with TemporaryDirectory(prefix="p2pkm-") as folder:
        path = Path(folder, "objects")
        path.write_bytes(dump(program))
        yield str(path)


def serve_study(objects: str = "") -> None:
    """Run cells that another process sends, until it sends no more.

    Parameters
    ----------
    objects : str
        File with the objects of the study, which the other process has written; "": none.
    """

    def work(task: str) -> str:
        cell, path, measuring = json.loads(task)
        options = RunOptions.from_mapping(cell, "the study")
        row = run_cell(options, None if path is None else Path(path), Measuring(*measuring))
        return json.dumps(row)

    with shared_cache(), available(restore(Path(objects).read_bytes()) if objects else ProgramObjects()):
        serve(work)


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


def announce_study_compilation(*, quiet: bool) -> None:
    """Print a note if the runs have to wait for the compilation of kernels."""
    if not quiet:
        announce_compilation(print_note)


def print_graph_notes(cells: Sequence[RunOptions], *, quiet: bool) -> None:
    """Print each note on graph files and on methods that ignore link weights once.

    A graph or a method that cannot be used is reported by its run.
    """
    notes: dict[str, None] = {}
    for cell in () if quiet else cells:
        with suppress(P2PKMError):
            method = parse_method(cell).build(cell.draft_k)
            graph = parse_graph(cell, method)
            if not needs_hub(method) and (graph.name in FIXED or is_reference(graph.name)):
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


def run_cell(cell: RunOptions, folder: Path | None, measuring: Measuring = UNMEASURED) -> Row:
    """Run one cell in this process, or read its stored row."""
    start = _start_row(cell)
    try:
        with limit_time(measuring.time_limit):
            prepared = prepare_and_validate(replace(cell, out="none", plot=False), LocalWorld())
        key = fingerprint(prepared, measuring.link_models)
        resolved, on_star = prepared.experiment, prepared.run.topology.hub >= 0
        graph = SERVED if on_star else cell.graph or resolved.graph
        start |= {"graph": graph, "devices": resolved.devices, "key": key} | describe_points(prepared)
    except Exception as error:
        return start | _describe_error(error, "rejected", measuring)
    path = None if folder is None else folder / _ROWS / f"{key}.json"
    if (row := _read_stored(path)) is not None:
        return row
    try:
        with limit_time(measuring.time_limit):
            output = OutputOptions(quiet=True, link_models=measuring.link_models)
            result = execute(prepared, LocalWorld(), None, output)
        row = start | collect_metrics(result) | measure_graph(prepared.run.topology, str(resolved.graph))
        if path is not None and row["termination"] not in STOPPED:
            _store(path, row | {OPTIONS: cell.to_mapping()})
        return row
    except Exception as error:
        return start | _describe_error(error, "failed", measuring)


def _describe_error(error: Exception, termination: str, measuring: Measuring) -> Row:
    """Return error and termination of a row whose run has not ended by itself."""
    if isinstance(error, OutOfTimeError):
        reason = f"took longer than {measuring.time_limit:g} s. Use a longer time limit, or a smaller task"
        return {"error": f"TimeLimit: the run {reason}", "termination": "timeout"}
    if not isinstance(error, P2PKMError):
        # An unexpected error, for example of a plug-in, must not end the other runs of the study.
        traceback.print_exception(error, file=sys.stderr)
        termination = "failed"
    return {"error": f"{type(error).__name__}: {error}", "termination": termination}


def describe_points(prepared: Prepared) -> Row:
    """Return number, features and checksum of the points; no checksum of points on disk."""
    shards = prepared.shards
    points = shards.m
    checksum = shards.checksum() if shards.in_memory and points <= _MAX_CHECKED else None
    return {"points": points, "features": shards.d, "points_sha256": checksum}


def _read_stored(path: Path | None) -> Row | None:
    """Read the row of a finished run; None if there is none, or its file is damaged."""
    if path is None or not path.is_file():
        return None
    try:
        row = read_row(path)
    except ValueError:
        return None
    return {name: value for name, value in row.items() if name != OPTIONS}


def _store(path: Path, row: Row) -> None:
    """Store the row of a finished run."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_row(path, row)
    except OSError as error:
        raise NetworkError(
            f"{path} cannot be written: {error.strerror or error}. Free disk space and run the command again"
        ) from None


def _start_row(cell: RunOptions) -> Row:
    """Return the entries of a row that are known before its run."""
    return {"algorithm": cell.algorithm, "graph": cell.graph, "seed": cell.seed, "error": None, "termination": None}


def on_every_rank(call: Callable[Arguments, Study]) -> Callable[Arguments, Study]:
    """Distribute the runs of a study that all ranks call; every rank returns the result.

    The arguments of rank 0 count. Its objects are sent to the other ranks.
    """

    @wraps(call)
    def run_on_ranks(*arguments: Arguments.args, **options: Arguments.kwargs) -> Study:
        world = connect()
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
    raise vars(errors)[end["kind"]](end["error"])


def open_folder(out: str | None, kind: str, mark: str) -> Path | None:
    """Create or open the folder of a study.

    Parameters
    ----------
    out : str or None
        Path of the folder; None: a new one, ``runs/<time>-<kind>``; "none": no folder.
    kind : str
        "sweep" or "comparison".
    mark : str
        Name of the file that marks the folder of an interrupted study, which is continued.

    Raises
    ------
    ExperimentError
        If the folder cannot be written, or holds something else.
    """
    if out == "none":
        return None
    if not out:
        return make_new(name_folder(kind))
    folder = Path(out)
    try:
        # Listed once: several jobs may start a study in the same folder at the same time.
        names = os.listdir(folder) if folder.is_dir() else []
        if names and mark not in names:
            raise ExperimentError(f"--out {folder} is not empty and does not hold a {kind}. Use another folder")
        if not names:
            check_target(folder, force=True)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExperimentError(f"--out {folder} cannot be used: {error.strerror or error}. Use another folder") from None
    return folder


def fingerprint(prepared: Prepared, link_models: Sequence[str] = ()) -> str:
    """Hash a resolved configuration, the content of all files that it names, further link models, and the program."""
    shards = prepared.shards.part(0, prepared.shards.n)
    identity = identify(prepared.experiment.to_mapping(), prepared.run)
    arrays = (
        shards.points,
        shards.offsets,
        shards.labels,
        prepared.scores.centers,
        prepared.scores.groups,
        *(prepared.run.link_model or ()),
    )
    parts = [json.dumps(identity, sort_keys=True).encode(), digest_program(), *map(str.encode, link_models)]
    parts.append(digest(*(array for array in arrays if array is not None)))
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]


@cache
def digest_program() -> bytes:
    """Compute the SHA-256 of the source of the program, so that rows of another version are not reused."""
    root, sha256 = Path(__file__).parents[3], hashlib.sha256()
    for path in sorted(path for package in ("p2pkm", "topologies") for path in (root / package).rglob("*.py")):
        text = path.read_bytes()
        sha256.update(f"{path.relative_to(root).as_posix()} {len(text)}\n".encode() + text)
    return sha256.digest()


def measure_graph(topology: Topology, name: str) -> Row:
    """Measure a graph; all values are None for the star of a server and above 20,000 devices, infinite ones always."""
    if topology.hub >= 0 or topology.n > _MAX_MEASURED:
        return dict.fromkeys(MEASURES)
    from topologies import CSRGraph, measures

    graph = topology.varying or CSRGraph(topology.indptr, topology.indices, topology.weights)
    measured = memoize_in_study("measures", lambda: (name, topology.n), lambda: measures.describe(graph), keep=_GRAPHS)
    values = {name: measured[name].value for name in _DESCRIBED}
    # The noise that GTVMin leaves at coupling 1. It is not predicted for time-varying graphs.
    values["residual_noise"] = None if topology.varying else float(measures.residual_noise(graph, (1.0,))[0])
    return {name: value if value is not None and np.isfinite(value) else None for name, value in values.items()}


def collect_metrics(result: Result) -> Row:
    """Collect the metrics that a study reports for each run."""
    summary = result.summary
    is_integer = summary["quantize"] is not None or summary["wire_bytes"] != summary["bytes"]
    times = {f"seconds_{name}": seconds for name, seconds in result.times.items()}
    row = {name: summary[name] for name in keys(ShownIn.STUDY)}
    row["message_encoding"] = "integer" if is_integer else "real"
    return row | times | {"trace": accumulate_rounds(result.rounds)}


def format_progress(row: Row, number: int, count: int) -> str:
    """Format a progress line for a finished run."""
    outcome = row["error"] or ("" if row.get("ratio_mean") is None else f"ratio {row['ratio_mean']:.4f}")
    return f"{number} of {count}: {name_run(row['algorithm'], row['graph'])}, seed {row['seed']}: {outcome}"
