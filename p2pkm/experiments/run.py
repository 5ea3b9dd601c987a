"""Execution of an experiment on rank 0: prepare, distribute, run, write the folder, print the summary.

The other ranks execute `p2pkm.experiments.worker`. All ranks end with the same exit code.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

from p2pkm.core.errors import NetworkError
from p2pkm.core.mpi_environment import check_threads, launched
from p2pkm.core.termination import STOPPED
from p2pkm.engine.receive_shard import receive_part
from p2pkm.engine.run_options import RunOptions
from p2pkm.engine.signals import asked_to_stop
from p2pkm.engine.signals import code_of as ended_by
from p2pkm.experiments.config import Prepared, parse_specs, prepare, record_defaults
from p2pkm.experiments.console import Console, Silent, print_note
from p2pkm.kernels import compiles
from p2pkm.metrics.final_labels import is_labeled
from p2pkm.metrics.result import Result
from p2pkm.network.transport import World
from p2pkm.network.world import connect
from p2pkm.storage.checkpoint import Checkpoint, CheckpointWriter, identify
from p2pkm.storage.lock import Lock
from p2pkm.storage.run_folder import RunFolder, check_target, lock_new_folder, lock_target, name_run

_NOT_CONVERGED = 5  # exit code of --require-converged
_INPUTS = ("graph", "data", "partition", "link_model", "faults", "stale_policy", "stream")  # recorded in the summary


class OutputOptions(NamedTuple):
    """Options of output and of the run folder, as opposed to those of the experiment.

    `link_models` are those for `p2pkm.metrics.result.Result.times`.
    """

    force: bool = False
    json: bool = False
    dry_run: bool = False
    quiet: bool = False
    verbose: bool = False
    guide: bool = False
    console: Console = Silent()
    link_models: Sequence[str] = ()


class ResumePoint(NamedTuple):
    """Position from which a run continues in its folder; without a checkpoint, its start."""

    checkpoint: Checkpoint | None

    @property
    def records(self) -> list[dict[str, Any]]:
        """Records of the rounds up to the checkpoint."""
        if self.checkpoint is None:
            return []
        return list(self.checkpoint.outline["parts"]["monitor"]["parts"]["trace"]["value"])


def run_on_root(experiment: RunOptions, output: OutputOptions) -> int:
    """Run an experiment on rank 0, print its summary, and return the exit code.

    Raises
    ------
    P2PKMError
        If options, graph, data or folder cannot be used; nothing has been written then.
    """
    with ExitStack() as stack:
        lock = lock_output_folder(experiment, output, stack)
        world = connect()
        # A list, so that this frame does not hold the points while the run lasts, see `execute`.
        inputs = [prepare_and_validate(experiment, world)]
        experiment = inputs[0].experiment
        if output.dry_run:
            print(json.dumps(_resolve(inputs[0]).to_mapping(), indent=None if output.json else 1))
            return 0
        lock = lock or lock_default_folder(inputs[0], stack)
        result = execute(inputs.pop(), world, lock, output)
    return print_and_exit_code(result, experiment, output)


def print_and_exit_code(result: Result, experiment: RunOptions, output: OutputOptions) -> int:
    """Print the summary of a run and return the exit code."""
    if output.json:
        print(json.dumps(result.summary), flush=True)
    else:
        output.console.close(result.summary, result.notes, guided=output.guide)
    return exit_code(result.summary["termination"], experiment)


def lock_output_folder(experiment: RunOptions, output: OutputOptions, stack: ExitStack) -> Lock | None:
    """Check the folder of ``--out``, if any, and lock it until the stack is closed; a dry run only checks."""
    if experiment.out in (None, "none"):
        return None
    path = Path(str(experiment.out))
    if output.dry_run:
        check_target(path, force=output.force)
        return None
    return stack.enter_context(lock_target(path, force=output.force))


def prepare_and_validate(experiment: RunOptions, world: World) -> Prepared:
    """Parse, check and assemble an experiment."""
    from p2pkm.experiments.plan.memory_check import check_memory

    ranks = world.size if launched() and world.library() is not None else None
    if compiles():
        check_threads()
    specs = parse_specs(experiment, world.size)
    check_memory(specs, ranks)
    return prepare(specs, ranks)


def lock_default_folder(prepared: Prepared, stack: ExitStack) -> Lock | None:
    """Lock a new folder below ``runs``; None with ``--out none``."""
    resolved = prepared.experiment
    if resolved.out == "none":
        return None
    fingerprint = hashlib.sha256(json.dumps(resolved.to_mapping()).encode()).hexdigest()
    return stack.enter_context(lock_new_folder(name_run(str(resolved.graph), resolved.algorithm, fingerprint)))


def execute(
    prepared: Prepared,
    world: World,
    lock: Lock | None,
    output: OutputOptions,
    start: Any = None,
    resumed: ResumePoint | None = None,
) -> Result:
    """Distribute the points to the ranks, run, and write the result; an error from here on ends all ranks.

    Parameters
    ----------
    prepared : Prepared
    world : World
    lock : Lock or None
        Of the run folder; None: nothing is written.
    output : OutputOptions
    start : float64[n, k, d], optional
        Centroids that replace the initialization stages.
    resumed : ResumePoint, optional
        Position from which the run in the folder continues.
    """
    from p2pkm.engine.run_job import RootHooks, run_for_root
    from p2pkm.kernels.compile_time import announce_compilation

    resolved, run = prepared.experiment, prepared.run
    facts = {"ranks": world.size, "mpi": world.library(), "defaults": _list_defaults(prepared)}
    facts |= {"resumable": False} if run.algorithm.traits.is_secret else {}
    names = {"device": run.topology.list_names(), "feature": run.list_features()}
    if not (output.quiet or prepared.shards.in_memory):
        print_note(prepared.shards.describe(world.size, run.algorithm.k, len(run.topology.indices)))
    part = _deal(world, prepared, start, None if resumed is None else resumed.checkpoint)
    # Frees what `part` does not share with the points of all ranks, unless the caller holds them.
    prepared = prepared._replace(shards=None)
    # Collecting the facts about the program takes time, in which the other ranks import the method.
    folder = None if lock is None else RunFolder(lock, resolved.to_mapping(), facts, names)
    progress = output.console.progress(run.algorithm.name, run.rounds, quiet=output.quiet, verbose=output.verbose)
    if not output.quiet:
        announce_compilation(progress.tell)
    options = resolved.to_mapping() | {"out": None if lock is None else str(lock.folder)}
    inputs = {name: options.get(name) for name in (*_INPUTS, "out")}

    def sink(record: dict[str, Any]) -> None:
        if folder is not None:
            folder.record(record)
        progress(record)

    try:
        with asked_to_stop() as interrupted:
            hooks = RootHooks(on_record=sink, tell=progress.tell, scores=prepared.scores, names=inputs)
            hooks = replace(hooks, link_models=_place_link_models(output.link_models, run.topology))
            if folder is not None:
                identity = partial(identify, resolved.to_mapping(), run)
                hooks = replace(
                    hooks,
                    checkpoints=CheckpointWriter(folder.lock, resolved.checkpoint_every, identity, progress.tell),
                    begin=folder.begin if resumed is None else partial(folder.reopen, resumed.records),
                )
            # Rank 0 receives the result.
            result = cast(Result, run_for_root(run, replace(part, interrupted=interrupted), world, hooks))
            result.notes.extend(prepared.notes)
            result = replace(result, schema=prepared.schema, copied=prepared.copied)
        if folder is not None:
            folder.finish(result, partial(_draw_all, resolved) if resolved.plot else None)
    except BaseException as error:
        _abort(world, folder, error)
        raise
    finally:
        progress.close()
    return result


def _place_link_models(profiles: Sequence[str], topology: Any) -> dict[str, Any]:
    from p2pkm.network.link_model import LinkModel

    models = {profile: LinkModel.of(profile) for profile in profiles}
    return {profile: model.place(topology) for profile, model in models.items() if model is not None}


def _resolve(prepared: Prepared) -> RunOptions:
    """Fill in the options that the run has chosen."""
    return record_defaults(prepared.experiment, prepared.specs.method, prepared.run)


def _list_defaults(prepared: Prepared) -> dict[str, Any]:
    """List the method options that the run has chosen."""
    requested = prepared.experiment.to_mapping()
    return {name: value for name, value in _resolve(prepared).to_mapping().items() if requested.get(name) != value}


def _draw_all(experiment: RunOptions, result: Result, folder: Path) -> None:
    from p2pkm.viz import draw_all

    draw_all(result, folder, **experiment.draw_kinds())


def _deal(world: World, prepared: Prepared, start: Any, saved: Checkpoint | None) -> Any:
    """Broadcast the configuration, scatter the points, and return the part of rank 0."""
    import numpy as np

    from p2pkm.engine.state_tree import split
    from p2pkm.network.rank_partition import choose

    shards, topology = prepared.shards, prepared.run.topology
    # Each rank reads one range of rows of points on disk, so each takes a block with the same number of devices.
    stored = not shards.in_memory
    if stored:
        division = choose(topology, np.ones(topology.n), world.size, "blocks")
    else:
        division = choose(topology, shards.sizes, world.size, prepared.experiment.rank_partition)
    texts = {"experiment": _resolve(prepared).to_mapping()}
    if stored:
        texts["stored"] = shards.to_mapping()
    if saved is not None:
        texts["saved"] = saved.outline
    order: dict[str, Any] = {name: np.frombuffer(json.dumps(text).encode(), np.uint8) for name, text in texts.items()}
    order |= prepared.run.to_arrays() | topology.to_arrays()
    if topology.varying is not None:
        order["changing"] = np.ones(1)
    order = world.broadcast(order | division.to_arrays())
    parts: Iterator[dict[str, Any]] = _split(None if stored else shards, start, division)
    if saved is not None:
        split_state = partial(split, saved.outline, saved.arrays, topology, division)
        parts = (part | split_state(rank) for rank, part in enumerate(parts))
    return receive_part(world, order, world.scatter(parts))


def _split(shards: Any, start: Any, division: Any) -> Iterator[dict[str, Any]]:
    """Yield the arrays of each rank, one rank at a time: a part of non-contiguous devices is a copy."""
    if shards is not None and not is_labeled(shards.m):
        shards = replace(shards, order=None)
    for rank in range(division.size):
        ids = division.of(rank)
        part = {} if shards is None else shards.take(ids).to_arrays()
        if rank == 0 and division.size > 1:
            # Views would hold the points of all ranks.
            part = {name: array.copy() for name, array in part.items()}
        yield part if start is None else part | {"start": start[ids]}


def exit_code(termination: str, experiment: RunOptions) -> int:
    """Return the exit code of a run that ended for this reason."""
    if termination in STOPPED:
        return STOPPED[termination]
    return _NOT_CONVERGED if experiment.require_converged and termination in ("round-limit", "oscillating") else 0


def _abort(world: World, folder: RunFolder | None, error: BaseException) -> None:
    """Record the failure in the folder and end the other ranks, which would wait for this one forever."""
    stopped = isinstance(error, KeyboardInterrupt)
    if folder is not None:
        # A failing disk may be the cause of the error, or another process may have replaced the folder.
        with suppress(OSError):
            if folder.begun:
                folder.end("interrupted" if stopped else "failed")
        # Before the abort, which ends this process at once.
        folder.lock.release()
    if world.size > 1:
        print_note(f"rank {world.rank} failed: {type(error).__name__}: {error}")
        world.abort(ended_by(error) if isinstance(error, KeyboardInterrupt) else NetworkError.code)
