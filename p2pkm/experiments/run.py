"""From an experiment to a finished run: rank 0 leads, the others follow, all end with the same code."""

import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from p2pkm.core.errors import NetworkError
from p2pkm.core.mpi_environment import check_threads, launched
from p2pkm.core.termination import STOPPED
from p2pkm.engine.receive_shard import receive_part
from p2pkm.engine.run_options import RunOptions
from p2pkm.engine.signals import asked_to_stop
from p2pkm.engine.signals import code_of as ended_by
from p2pkm.experiments.config import Prepared, parse_specs, prepare, record_defaults
from p2pkm.experiments.console import Console, Silent
from p2pkm.kernels import compiles
from p2pkm.metrics.result import Result
from p2pkm.network.transport import World
from p2pkm.network.world import connect
from p2pkm.storage.checkpoint import Checkpoint, CheckpointWriter, identify
from p2pkm.storage.lock import Lock
from p2pkm.storage.run_folder import RunFolder, check_target, claim, claim_new, name_run

_NOT_CONVERGED = 5
_NAMED = ("graph", "data", "partition", "link_model", "faults", "stale_policy", "stream")


class OutputOptions(NamedTuple):
    """How to run, as opposed to what."""

    force: bool = False
    json: bool = False
    dry_run: bool = False
    quiet: bool = False
    verbose: bool = False
    guide: bool = False
    console: Console = Silent()


class ResumePoint(NamedTuple):
    """A run that goes on in its own folder: from its last checkpoint, or, without any, from its start."""

    checkpoint: Checkpoint | None

    @property
    def records(self) -> list[dict[str, Any]]:
        """Return the records up to there."""
        if self.checkpoint is None:
            return []
        return list(self.checkpoint.outline["parts"]["monitor"]["parts"]["trace"]["value"])


def run_on_root(experiment: RunOptions, manner: OutputOptions) -> int:
    """Run an experiment on rank 0, print how it ended, and return the exit code.

    Raises
    ------
    P2PKMError
        If something cannot be used; before anything was written.
    """
    with ExitStack() as held:
        lock = hold_out(experiment, manner, held)
        world = connect()
        prepared = prepare_and_validate(experiment, world)
        if manner.dry_run:
            print(json.dumps(_resolve(prepared).to_mapping(), indent=None if manner.json else 1))
            return 0
        result = execute(prepared, world, lock or hold_default(prepared, held), manner)
    return print_and_exit_code(result, prepared.experiment, manner)


def print_and_exit_code(result: Result, experiment: RunOptions, manner: OutputOptions) -> int:
    """Print how a run ended, and return the exit code."""
    if manner.json:
        print(json.dumps(result.summary), flush=True)
    else:
        manner.console.close(result.summary, result.notes, guided=manner.guide)
    return code_of(result.summary["termination"], experiment)


def hold_out(experiment: RunOptions, manner: OutputOptions, held: ExitStack) -> Lock | None:
    """Check the run folder that was asked for, if any, and hold it as long as the stack; a dry run only looks."""
    if experiment.out in (None, "none"):
        return None
    path = Path(str(experiment.out))
    if manner.dry_run:
        check_target(path, force=manner.force)
        return None
    return held.enter_context(claim(path, force=manner.force))


def prepare_and_validate(experiment: RunOptions, world: World) -> Prepared:
    """Prepare an experiment and refuse what cannot work."""
    from p2pkm.experiments.plan.memory_check import check_memory

    ranks = world.size if launched() and world.library() is not None else None
    if compiles():
        check_threads()
    specs = parse_specs(experiment, world.size)
    check_memory(specs, ranks)
    return prepare(specs, ranks)


def hold_default(prepared: Prepared, held: ExitStack) -> Lock | None:
    """Hold a new folder below ``runs``, none if nothing is to be written."""
    resolved = prepared.experiment
    if resolved.out == "none":
        return None
    fingerprint = hashlib.sha256(json.dumps(resolved.to_mapping()).encode()).hexdigest()
    return held.enter_context(claim_new(name_run(str(resolved.graph), resolved.algorithm, fingerprint)))


def execute(
    prepared: Prepared,
    world: World,
    lock: Lock | None,
    manner: OutputOptions,
    start: Any = None,
    taken: ResumePoint | None = None,
) -> Result:
    """Deal the points, run, and keep the result; what goes wrong from here on ends all ranks.

    lock: of the run folder, None: nothing is written. start: float64[n, k, d] or None, centroids that replace the
    seeding stages. taken: the run in the folder goes on.
    """
    from p2pkm.engine.run_job import RootHooks, run_job
    from p2pkm.kernels.compile_time import announce_compilation

    resolved, run = prepared.experiment, prepared.run
    facts = {"ranks": world.size, "mpi": world.library(), "defaults": _list_defaults(prepared)}
    facts |= {"resumable": False} if run.algorithm.traits.is_secret else {}
    called = {"device": run.topology.list_names(), "feature": run.list_features()}
    folder = None if lock is None else RunFolder(lock, resolved.to_mapping(), facts, called)
    if not (manner.quiet or prepared.shards.in_memory):
        described = prepared.shards.describe(world.size, run.algorithm.k, len(run.topology.indices))
        print(f"p2pkm: {described}", file=sys.stderr, flush=True)
    part = _deal(world, prepared, start, None if taken is None else taken.checkpoint)
    progress = manner.console.progress(run.algorithm.name, run.rounds, quiet=manner.quiet, verbose=manner.verbose)
    if not manner.quiet:
        announce_compilation(progress.tell)
    told = resolved.to_mapping()
    names = {name: told.get(name) for name in _NAMED}
    names["out"] = None if lock is None else str(lock.folder)

    def sink(record: dict[str, Any]) -> None:
        if folder is not None:
            folder.record(record)
        progress(record)

    try:
        with asked_to_stop() as interrupted:
            hooks = RootHooks(sink=sink, tell=progress.tell, scores=prepared.scores, names=names)
            if folder is not None:
                tells = partial(identify, resolved.to_mapping(), run)
                hooks = replace(
                    hooks,
                    checkpoints=CheckpointWriter(folder.lock, resolved.checkpoint_every, tells, progress.tell),
                    begin=folder.begin if taken is None else partial(folder.reopen, taken.records),
                )
            result = run_job(run, replace(part, interrupted=interrupted), world, hooks)
            result.notes.extend(prepared.notes)
        if folder is not None:
            folder.finish(result, partial(_draw_all, resolved) if resolved.plot else None)
    except BaseException as error:
        _give_up(world, folder, error)
        raise
    finally:
        progress.close()
    return result


def _resolve(prepared: Prepared) -> RunOptions:
    """Return the experiment with all that the run filled in."""
    return record_defaults(prepared.experiment, prepared.specs.method, prepared.run)


def _list_defaults(prepared: Prepared) -> dict[str, Any]:
    """Return what the run filled in of the method's options."""
    asked = prepared.experiment.to_mapping()
    return {name: value for name, value in _resolve(prepared).to_mapping().items() if asked.get(name) != value}


def _draw_all(experiment: RunOptions, result: Result, folder: Path) -> None:
    from p2pkm.viz import draw_all

    draw_all(result, folder, **experiment.draw_kinds())


def _deal(world: World, prepared: Prepared, start: Any, saved: Checkpoint | None) -> Any:
    """Tell every rank what to run and deal the points; return rank 0's own part."""
    import numpy as np

    from p2pkm.engine.state_tree import split
    from p2pkm.network.rank_partition import choose

    shards, topology = prepared.shards, prepared.run.topology
    stored = not shards.in_memory  # every rank reads its own, one range of rows
    sizes, wish = (np.ones(topology.n), "blocks") if stored else (shards.sizes, prepared.experiment.rank_partition)
    division = choose(topology, sizes, world.size, wish)
    texts = {"experiment": _resolve(prepared).to_mapping()} | ({"stored": shards.to_mapping()} if stored else {})
    texts |= {} if saved is None else {"saved": saved.outline}
    told = {name: np.frombuffer(json.dumps(text).encode(), np.uint8) for name, text in texts.items()}
    told |= prepared.run.to_arrays()
    changing = {} if topology.varying is None else {"changing": np.ones(1)}
    order = world.broadcast({**told, **topology.to_arrays(), **changing, **division.to_arrays()})
    parts: Iterator[dict[str, Any]] = _split(None if stored else shards, start, division)
    if saved is not None:
        more = partial(split, saved.outline, saved.arrays, topology, division)
        parts = (part | more(rank) for rank, part in enumerate(parts))
    return receive_part(world, order, world.scatter(parts))


def _split(shards: Any, start: Any, division: Any) -> Iterator[dict[str, Any]]:
    """Yield what each rank gets, one at a time: of devices here and there it is a copy."""
    for rank in range(division.size):
        own = division.of(rank)
        part = {} if shards is None else shards.take(own).to_arrays()
        yield part if start is None else part | {"start": start[own]}


def code_of(stop: str, experiment: RunOptions) -> int:
    """Return the exit code of a run that stopped for this reason."""
    if stop in STOPPED:
        return STOPPED[stop]
    return _NOT_CONVERGED if experiment.require_converged and stop in ("round-limit", "oscillating") else 0


def _give_up(world: World, folder: RunFolder | None, error: BaseException) -> None:
    """Say in the folder that the run failed, and end the other ranks, which wait for this one."""
    stopped = isinstance(error, KeyboardInterrupt)
    if folder is not None:
        with suppress(OSError):  # the disk may be what failed, or the folder no longer this run's
            if folder.begun:
                folder.end("interrupted" if stopped else "failed")
        folder.lock.release()  # to abort leaves no time for it
    if world.size > 1:
        print(f"p2pkm: rank {world.rank} failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        world.abort(ended_by(error) if isinstance(error, KeyboardInterrupt) else NetworkError.code)
