"""Many runs as one study: dealt to ranks or processes, each kept under the hash of its configuration."""

import hashlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from p2pkm.core.cache import digest, memoize_in_study, sharing
from p2pkm.core.errors import ExperimentError, NetworkError, P2PKMError
from p2pkm.core.mpi_environment import launched
from p2pkm.core.termination import STOPPED
from p2pkm.engine.run_options import RunOptions
from p2pkm.engine.signals import asked_to_stop
from p2pkm.experiments.config import Prepared, build_topology, parse_graph, parse_method
from p2pkm.experiments.console import tell
from p2pkm.experiments.run import OutputOptions, execute, prepare_and_validate
from p2pkm.experiments.studies.process_pool import serve, work_through
from p2pkm.kernels.compile_time import announce_compilation
from p2pkm.methods.init.pipelines import describe_graph_use, needs_hub
from p2pkm.metrics.milestones import trace
from p2pkm.metrics.registry import ShownIn, keys
from p2pkm.metrics.result import Result
from p2pkm.network.graph import Topology
from p2pkm.network.local import LocalWorld
from p2pkm.network.transport import World
from p2pkm.storage.checkpoint import identify
from p2pkm.storage.run_folder import check_target, make_new, name_folder
from p2pkm.storage.study_table import OPTIONS, SERVED, Row, keep_row, name_run, read_row
from topologies import FIXED

Tell = Callable[[Row, int, int], None]
_KEPT = "runs"  # folder of the rows, one file each
MEASURES = ("degree_min", "degree_mean", "degree_max", "diameter", "mean_path", "algebraic_connectivity",
            "spectral_gap", "effective_neighbors")  # fmt: skip
_MEASURED, _GRAPHS = 20_000, 64  # devices up to which a graph is measured; graphs whose measures a study keeps
_ORDER = ("seed", "data", "partition", "devices", "clusters", "graph")  # runs that share something follow one another
_SERVE = "from p2pkm.experiments.studies.run_study import serve_study; serve_study()"


def run_study(
    cells: Sequence[RunOptions], folder: Path | None, world: World, tell: Tell = lambda row, number, count: None,
    *, jobs: int = 1,
) -> list[Row]:  # fmt: skip
    """Run all cells and return their rows in order, on rank 0; what is kept in the folder is not computed again.

    Parameters
    ----------
    cells : sequence of RunOptions
        Each with its own seed; `out` and `plot` do not matter.
    folder : Path or None
        Where rows are kept, one file each, written when its run has ended; None: nowhere.
    world : World
        The cells are dealt to the ranks; each is run in one process.
    tell : callable
        Gets the row of every cell that has ended, how many have, and how many there are on this rank.
    jobs : int
        Number of processes, without MPI.

    Notes
    -----
    A run that fails is a row with its error. An interrupted run ends the study; its row is left out.
    """
    order = {"cells": [cell.to_mapping() for cell in cells], "folder": None if folder is None else str(folder),
             "jobs": jobs}  # fmt: skip
    text = np.frombuffer(json.dumps(order).encode(), np.uint8)
    return _work(world, world.broadcast({"study": text}), tell) or []


def follow_study(world: World, order: dict[str, Any]) -> None:
    """Do this rank's part of a study that rank 0 has broadcast."""
    _work(world, order, lambda row, number, count: None)


def _work(world: World, order: dict[str, Any], tell: Tell) -> list[Row] | None:
    """Run this rank's cells; return all rows on rank 0."""
    asked = json.loads(order["study"].tobytes())
    folder = None if asked["folder"] is None else Path(asked["folder"])
    if world.size > 1:
        _compile_once(world)
    cells: list[Row] = asked["cells"]
    mine = deal(cells, world.rank, world.size)
    run = _run_here if asked["jobs"] == 1 else partial(run_in_processes, jobs=asked["jobs"])
    own: list[tuple[int, Row]] = []
    with asked_to_stop() as interrupted:
        for place, row in run([cells[number] for number in mine], folder, interrupted):
            if row["termination"] in STOPPED:
                break
            own.append((mine[place], row))
            tell(row, len(own), len(mine))
    parts = world.gather(np.frombuffer(json.dumps(own).encode(), np.uint8))
    if parts is None:
        return None
    rows = dict(pair for part in parts for pair in json.loads(part.tobytes()))
    return [rows[number] | {OPTIONS: cells[number]} for number in sorted(rows)]


def deal(cells: Sequence[Row], turn: int, count: int) -> list[int]:
    """Return the numbers of the cells that are one's share of `count` shares, 0 <= turn < count."""
    return sorted(range(len(cells)), key=partial(_place, cells))[turn::count]


def _place(cells: Sequence[Row], number: int) -> tuple[str, ...]:
    """Return when it is the turn of a cell: next to those that it shares points or a graph with."""
    return (*(str(cells[number].get(name)) for name in _ORDER), f"{number:09}")


def _run_here(cells: Sequence[Row], folder: Path | None, interrupted: Callable[[], int]) -> Iterator[tuple[int, Row]]:
    """Run cells one after the other."""
    with sharing():
        for place, cell in enumerate(cells):
            if interrupted():
                return
            yield place, run_cell(RunOptions.from_mapping(cell, "the study"), folder)


def run_in_processes(
    cells: Sequence[Row], folder: Path | None, interrupted: Callable[[], int], *, jobs: int
) -> Iterator[tuple[int, Row]]:
    """Run cells in processes of their own."""
    place = None if folder is None else str(folder)
    tasks = [json.dumps([cell, place]) for cell in cells]
    for number, answer in work_through(_SERVE, tasks, jobs, interrupted):
        cell = RunOptions.from_mapping(cells[number], "the study")
        error = "NetworkError: its process died, perhaps for want of memory"
        yield number, _name(cell) | {"error": error, "termination": "failed"} if answer is None else json.loads(answer)


def serve_study() -> None:
    """Run cells that another process sends until it sends no more."""

    def work(task: str) -> str:
        cell, place = json.loads(task)
        row = run_cell(RunOptions.from_mapping(cell, "the study"), None if place is None else Path(place))
        return json.dumps(row)

    with sharing():
        serve(work)


def tell_compilation(*, quiet: bool) -> None:
    """Say on standard error if the runs have to wait for kernels to be compiled."""
    if not quiet:
        announce_compilation(lambda note: print(f"p2pkm: {note}", file=sys.stderr, flush=True))


def tell_graphs(cells: Sequence[RunOptions], *, quiet: bool) -> None:
    """Print what is read of the files of graphs, and which methods ignore weights of links, each once.

    A graph or a method that cannot be used is reported by its run.
    """
    found: dict[str, None] = {}
    for cell in () if quiet else cells:
        with suppress(P2PKMError):
            method = parse_method(cell).build(cell.draft_k)
            graph = parse_graph(cell, method)
            if not needs_hub(method) and graph.name in FIXED:
                found |= dict.fromkeys(describe_graph_use(method, build_topology(graph, None, 1)))
    for note in found:
        tell(note)


def _compile_once(world: World) -> None:
    """Let rank 0 compile the kernels while the others sleep."""
    from p2pkm.kernels import compile_ahead

    if world.rank == 0:
        compile_ahead()
    world.wait()


def run_cell(cell: RunOptions, folder: Path | None) -> Row:
    """Run one cell in this process, or read its row if it is kept."""
    world = LocalWorld()
    facts = _name(cell)
    try:
        prepared = prepare_and_validate(replace(cell, out="none", plot=False), world)
        key = fingerprint(prepared)
        resolved, served = prepared.experiment, prepared.run.topology.hub >= 0
        graph = SERVED if served else cell.graph or resolved.graph
        facts |= {"graph": graph, "devices": resolved.devices, "key": key}
        kept = None if folder is None else folder / _KEPT / f"{key}.json"
        if (row := _read_kept(kept)) is not None:
            return row
        result = execute(prepared, world, None, OutputOptions(quiet=True))
        row = facts | measure(result) | measure_graph(prepared.run.topology, str(resolved.graph))
        if kept is not None and row["termination"] not in STOPPED:
            _keep(kept, row | {OPTIONS: cell.to_mapping()})
        return row
    except P2PKMError as error:
        return facts | {"error": f"{type(error).__name__}: {error}", "termination": "failed"}
    except Exception as error:  # one run that breaks must not take the others with it
        traceback.print_exc(file=sys.stderr)
        return facts | {"error": f"{type(error).__name__}: {error}", "termination": "failed"}


def _read_kept(kept: Path | None) -> Row | None:
    """Return the row of a run that has ended before; None if there is none, or if its file is damaged."""
    if kept is None or not kept.is_file():
        return None
    try:
        row = read_row(kept)
    except ValueError:
        return None
    return {name: value for name, value in row.items() if name != OPTIONS}


def _keep(kept: Path, row: Row) -> None:
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        keep_row(kept, row)
    except OSError as error:
        raise NetworkError(f"{kept} cannot be written: {error.strerror or error}; make room and try again") from None


def _name(cell: RunOptions) -> Row:
    """Return what a row says of its cell before it has run."""
    return {"algorithm": cell.algorithm, "graph": cell.graph, "seed": cell.seed, "error": None, "termination": None}


def refuse_ranks(name: str, command: str) -> None:
    """Refuse a call from Python on several ranks."""
    if launched():
        raise ExperimentError(
            f"p2pkm.{name} runs in processes (jobs=2), not on MPI ranks; leave mpirun out, or give the "
            f"command mpirun python -m p2pkm {command}"
        )


def open_folder(out: str | None, kind: str, mark: str) -> Path | None:
    """Return a study's folder, made if it is new, ``runs/<time>-<kind>`` by default; a given one with the mark goes on.

    Raises
    ------
    ExperimentError
        If it cannot be written, or is in use by something else.
    """
    if out == "none":
        return None
    if not out:
        return make_new(name_folder(kind))
    folder = Path(out)
    try:
        found = os.listdir(folder) if folder.is_dir() else []  # one look: several jobs may begin a study at once
        if found and mark not in found:
            raise ExperimentError(f"--out {folder} is in use, but not by a {kind}; choose another folder")
        if not found:
            check_target(folder, force=True)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExperimentError(f"--out {folder} cannot be used: {error.strerror or error}") from None
    return folder


def fingerprint(prepared: Prepared) -> str:
    """Return the hash of a resolved configuration, of all that it names a file for, and of the program."""
    shards = prepared.shards.part(0, prepared.shards.n)
    told = identify(prepared.experiment.to_mapping(), prepared.run)
    read = (
        shards.points,
        shards.offsets,
        shards.labels,
        prepared.scores.centers,
        prepared.scores.groups,
        *(prepared.run.link_model or ()),
    )
    parts = [json.dumps(told, sort_keys=True).encode(), digest_program()]
    parts.append(digest(*(array for array in read if array is not None)))
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]


@cache
def digest_program() -> bytes:
    """Return the SHA-256 of the program's own source, so that what other code computed is not taken for its own."""
    root, found = Path(__file__).parents[3], hashlib.sha256()
    for path in sorted(path for package in ("p2pkm", "topologies") for path in (root / package).rglob("*.py")):
        text = path.read_bytes()
        found.update(f"{path.relative_to(root).as_posix()} {len(text)}\n".encode() + text)
    return found.digest()


def measure_graph(topology: Topology, name: str) -> Row:
    """Return the measures of a graph; None of the star around a server, of very many devices, or if infinite."""
    if topology.hub >= 0 or topology.n > _MEASURED:
        return dict.fromkeys(MEASURES)
    from topologies import CSRGraph, measures

    graph = topology.varying or CSRGraph(topology.indptr, topology.indices, topology.weights)
    found = memoize_in_study("measures", lambda: (name, topology.n), lambda: measures.describe(graph), keep=_GRAPHS)
    values = {name: found[name].value for name in MEASURES}
    return {name: value if value is not None and np.isfinite(value) else None for name, value in values.items()}


def measure(result: Result) -> Row:
    """Return what a study says of a run."""
    return {name: result.summary[name] for name in keys(ShownIn.STUDY)} | {"trace": trace(result.rounds)}


def describe(row: Row, number: int, count: int) -> str:
    """Return a line of progress."""
    shown = row["error"] or ("" if row.get("ratio_mean") is None else f"ratio {row['ratio_mean']:.4f}")
    return f"{number} of {count}: {name_run(row['algorithm'], row['graph'])}, seed {row['seed']}: {shown}"
