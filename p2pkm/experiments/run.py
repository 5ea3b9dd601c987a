"""Execution of an experiment on rank 0: assemble, deal, play, report, write the folder, print the summary.

The other ranks execute `p2pkm.experiments.worker`. All ranks end with the same exit code.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

from p2pkm.core.errors import NetworkError
from p2pkm.core.mpi_environment import check_threads, launched
from p2pkm.core.termination import STOPPED, WITHOUT_CENTROIDS
from p2pkm.engine.build_run import Run
from p2pkm.engine.run_options import RunOptions
from p2pkm.engine.signals import asked_to_stop
from p2pkm.engine.signals import code_of as ended_by
from p2pkm.experiments.config import parse_specs, prepare
from p2pkm.experiments.console import Console, Silent, print_note
from p2pkm.kernels import compiles
from p2pkm.metrics.result import Result
from p2pkm.network.transport import World
from p2pkm.network.world import connect
from p2pkm.storage.checkpoint import Checkpoint, CheckpointWriter, identify
from p2pkm.storage.lock import Lock
from p2pkm.storage.run_folder import RunFolder, check_target, lock_new_folder, lock_target, name_run

_NOT_CONVERGED = 5  # exit code of --require-converged
_INPUTS = (
    "graph",
    "data",
    "partition",
    "link_model",
    "faults",
    "stale_policy",
    "deadline",
    "client_share",
    "stream",
)  # recorded in the summary


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


def run_on_root(options: RunOptions, output: OutputOptions) -> int:
    """Run an experiment on rank 0, print its summary, and return the exit code.

    Raises
    ------
    P2PKMError
        If options, graph, data or folder cannot be used; nothing has been written then.
    """
    with ExitStack() as stack:
        lock = lock_output_folder(options, output, stack)
        world = connect()
        # A list, so that this frame does not hold the points while the run lasts, see `execute`.
        assembled = [assemble(options, world)]
        if output.dry_run:
            print(json.dumps(assembled[0].completed.to_mapping(), indent=None if output.json else 1))
            return 0
        lock = lock or lock_default_folder(assembled[0], stack)
        result = execute(assembled.pop(), world, lock, output)
    return print_and_exit_code(result, options, output)


def print_and_exit_code(result: Result, experiment: RunOptions, output: OutputOptions) -> int:
    """Print the summary of a run and return the exit code."""
    if output.json:
        # Unlike the table, the summary has no notes, only the failure.
        for note in result.notes:
            if not output.quiet and note != result.summary.get("failure"):
                print_note(note)
        print(json.dumps(result.summary), flush=True)
    else:
        output.console.close(result.summary, result.notes, guided=output.guide)
    return exit_code(result.summary, experiment)


def lock_output_folder(experiment: RunOptions, output: OutputOptions, stack: ExitStack) -> Lock | None:
    """Check the folder of ``--out``, if any, and lock it until the stack is closed; a dry run only checks."""
    if experiment.out in (None, "none"):
        return None
    path = Path(str(experiment.out))
    if output.dry_run:
        check_target(path, force=output.force)
        return None
    return stack.enter_context(lock_target(path, force=output.force))


def assemble(options: RunOptions, world: World) -> Run:
    """Check options, graph and points in a fixed order, and build the run, with its points.

    Raises
    ------
    P2PKMError
        If options, graph or data cannot be used, or the run does not fit into memory; nothing has been written then.
    """
    from p2pkm.experiments.plan.memory_check import check_memory

    ranks = world.size if launched() and world.library() is not None else None
    if compiles():
        check_threads()
    specs = parse_specs(options)
    check_memory(specs, ranks)
    return prepare(specs, ranks)


def lock_default_folder(run: Run, stack: ExitStack) -> Lock | None:
    """Lock a new folder below ``runs``; None with ``--out none``."""
    resolved = run.options
    if resolved.out == "none":
        return None
    fingerprint = hashlib.sha256(json.dumps(resolved.to_mapping()).encode()).hexdigest()
    return stack.enter_context(lock_new_folder(name_run(str(resolved.graph), resolved.algorithm, fingerprint)))


def execute(
    run: Run, world: World, lock: Lock | None, output: OutputOptions, resumed: ResumePoint | None = None
) -> Result:
    """Deal the points to the ranks, play the run, and write the result; an error from here on ends all ranks.

    Parameters
    ----------
    run : Run
        Result of `assemble`.
    world : World
    lock : Lock or None
        Of the run folder; None: nothing is written.
    output : OutputOptions
    resumed : ResumePoint, optional
        Position from which the run in the folder continues.
    """
    from p2pkm.engine.run_job import Observers, play, report_to_root
    from p2pkm.experiments.deal import deal
    from p2pkm.kernels.compile_time import announce_compilation

    options, shards = run.options, run.points
    facts = {"ranks": world.size, "mpi": world.library(), "defaults": _list_defaults(run)}
    facts |= {"resumable": False} if run.algorithm.traits.is_secret else {}
    names = {"device": run.topology.list_names(), "feature": run.list_features()}
    if not (output.quiet or shards.in_memory):
        print_note(shards.describe(world.size, run.algorithm.k, len(run.topology.indices)))
    schema, copied = shards.schema, shards.copied
    rank = deal(run, world, None if resumed is None else resumed.checkpoint)
    # Frees what `rank` does not share with the points of all ranks, unless the caller holds them.
    run = rank.run
    del shards
    # Collecting the facts about the program takes time, in which the other ranks import the method.
    folder = None if lock is None else RunFolder(lock, options.to_mapping(), facts, names)
    progress = output.console.progress(run.algorithm.name, run.rounds, quiet=output.quiet, verbose=output.verbose)
    if not output.quiet:
        announce_compilation(progress.tell)
    shown = options.to_mapping() | {"out": None if lock is None else str(lock.folder)}

    def record(record: dict[str, Any]) -> None:
        if folder is not None:
            folder.record(record)
        progress(record)

    try:
        with asked_to_stop() as interrupted:
            observers = Observers(
                on_record=record,
                tell=progress.tell,
                announce=progress.announce,
                names={name: shown.get(name) for name in (*_INPUTS, "out")},
                link_models=_place_link_models(output.link_models, run.topology),
            )
            if folder is not None:
                identity = partial(identify, options.to_mapping(), run)
                observers = replace(
                    observers,
                    checkpoints=CheckpointWriter(folder.lock, options.checkpoint_every, identity, progress.tell),
                    begin=folder.begin if resumed is None else partial(folder.reopen, resumed.records),
                )
            # A list, which is emptied: this frame must not hold the points while the result is gathered.
            ranks = [replace(rank, interrupted=interrupted)]
            del rank
            # Rank 0 receives the result.
            result = cast(Result, report_to_root(play(ranks.pop(), observers)))
            result.notes.extend(run.notes)
            result = replace(result, schema=schema, copied=copied)
        if folder is not None:
            folder.finish(result, partial(_draw_all, options) if options.plot else None)
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


def _list_defaults(run: Run) -> dict[str, Any]:
    """List the method options that the run has chosen."""
    requested = run.options.to_mapping()
    return {name: value for name, value in run.completed.to_mapping().items() if requested.get(name) != value}


def _draw_all(experiment: RunOptions, result: Result, folder: Path) -> None:
    from p2pkm.viz import draw_all

    draw_all(result, folder, **experiment.draw_kinds())


def exit_code(summary: Mapping[str, Any], experiment: RunOptions) -> int:
    """Return the exit code of a run from its summary."""
    termination = summary["termination"]
    if termination in STOPPED:
        return STOPPED[termination]
    if summary.get("failure"):
        return WITHOUT_CENTROIDS
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
