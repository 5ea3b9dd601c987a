"""Resumption of an interrupted run in its own folder, on any number of ranks, with bit-identical results."""

from pathlib import Path
from typing import Any

from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.engine.run_options import RunOptions
from p2pkm.engine.run_secret import UNREPEATABLE
from p2pkm.experiments.config import parse_method
from p2pkm.experiments.console import print_note
from p2pkm.experiments.run import OutputOptions, ResumePoint, assemble, execute, print_and_exit_code
from p2pkm.metrics.result import Result
from p2pkm.network.world import connect
from p2pkm.storage.checkpoint import Checkpoint, identify, load_newest
from p2pkm.storage.load import load
from p2pkm.storage.lock import Lock
from p2pkm.storage.run_folder import lock_folder
from p2pkm.storage.run_status import (
    describe_missing_results,
    new_run_command,
    read_manifest,
    repeated_from,
    require_single_run,
    run_status,
)
from p2pkm.storage.toml import read_toml

# Identity fields of a checkpoint, the option that sets each of them, and its name in messages.
_INPUTS = (("graph", "graph", "graph"), ("trace", "faults", "fault trace"), ("stream", "stream", "data stream"))


def resume(path: Path, output: OutputOptions) -> int:
    """Resume a run from its last checkpoint, or from its start if it has none, and return the exit code.

    Results equal those of an uninterrupted run. For a finished run, only the summary is printed again.

    Raises
    ------
    DataError
        If the folder does not hold a single run, the run is still in progress, or points, graph or options have
        changed.
    ExperimentError
        If another version of the program started the run.
    """
    require_single_run(path)
    state = run_status(path) if path.is_dir() else ""
    config = path / "config.toml"
    if not config.is_file() or not state:
        if not path.is_dir() or (path / "checkpoint").is_dir():
            raise DataError(f"{path} {describe_missing_results(path)}")
        missing = config.name if state else "manifest.json"
        raise DataError(f"{path} is not the folder of a single run: it has no {missing}. Give the folder of a run")
    if state == "running":
        raise DataError(f"{path} {describe_missing_results(path)}. Wait until it ends, or stop it first")
    experiment = RunOptions.from_mapping(read_toml(str(config)), str(config))
    if state == "done":
        return _print_again(path, experiment, output)
    try:
        lock = lock_folder(path)
    except ExperimentError as error:
        raise DataError(str(error)) from None
    with lock:
        # Another process may have finished the run between the check above and the lock.
        if read_manifest(path).get("state") == "done":
            return _print_again(path, experiment, output)
        return print_and_exit_code(resume_run(experiment, lock, output), experiment, output)


def _print_again(path: Path, experiment: RunOptions, output: OutputOptions) -> int:
    """Print the summary of a run that another call has finished, and return the exit code."""
    if not output.quiet:
        print_note(f"{path} was already finished: nothing was computed")
    return print_and_exit_code(load(path), experiment, output)


def resume_run(experiment: RunOptions, lock: Lock, output: OutputOptions) -> Result:
    """Continue an unfinished run in its folder, whose lock is held."""
    path = lock.folder
    if parse_method(experiment).build(experiment.draft_k).traits.is_secret:
        raise DataError(f"{path} cannot be resumed: {UNREPEATABLE}. Start a new run: {new_run_command(path)}")
    saved = load_newest(path, print_note)
    world = connect()
    with repeated_from(path):
        assembled = [assemble(experiment, world)]
    if saved is not None:
        _check_identity(saved, identify(assembled[0].options.to_mapping(), assembled[0]), path)
    if not output.quiet:
        print_note(f"resuming {path} {_describe_position(saved)}")
    return execute(assembled.pop(), world, lock, output, ResumePoint(saved))


def _check_identity(saved: Checkpoint, current: dict[str, Any], path: Path) -> None:
    """Check that program, options, graph and input files are those of the checkpoint."""
    original = saved.facts
    if original["version"] != current["version"]:
        raise ExperimentError(
            f"{path} was started with p2pkm {original['version']}; this is p2pkm {current['version']}, which may "
            f"compute other results. Install p2pkm=={original['version']}, or start a new run: {new_run_command(path)}"
        )
    # The run may be older than an option, which then has its default.
    defaults = RunOptions().to_mapping()
    before, now = defaults | original["config"], defaults | current["config"]
    changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    if changed:
        name = changed[0]
        raise DataError(
            f"{name} in {path}/config.toml is {now.get(name)!r}; the run was started with {before.get(name)!r}. "
            f"Restore this value, or start a new run: {new_run_command(path)}"
        )
    for key, option, label in _INPUTS:
        if original.get(key) != current[key]:
            raise DataError(
                f"the {label} {current['config'].get(option)} differs from that of the original run in {path}. "
                f"Restore it, or start a new run: {new_run_command(path)}"
            )


def _describe_position(saved: Checkpoint | None) -> str:
    """Describe where the run continues."""
    if saved is None:
        return "from its start: no checkpoint exists"
    t = saved.outline["parts"]["scene"]["parts"]["round"]["value"]
    # The initial exchange of a stage is always recorded, so the last record belongs to the current stage.
    return f"after round {t} of {ResumePoint(saved).records[-1]['stage']}"
