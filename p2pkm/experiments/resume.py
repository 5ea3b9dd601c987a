"""A run that was killed or interrupted goes on in its own folder, on any number of ranks, with the same bits."""

import sys
from pathlib import Path
from typing import Any

from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.engine.run_options import RunOptions
from p2pkm.engine.run_secret import UNREPEATABLE
from p2pkm.experiments.config import parse_method
from p2pkm.experiments.run import OutputOptions, ResumePoint, execute, prepare_and_validate, print_and_exit_code
from p2pkm.metrics.result import Result
from p2pkm.network.world import connect
from p2pkm.storage.checkpoint import Checkpoint, identify, newest
from p2pkm.storage.load import load
from p2pkm.storage.lock import Lock
from p2pkm.storage.run_folder import hold
from p2pkm.storage.run_status import explain, read_manifest, repeated_from, require_single_run, run_status, tell_new_run
from p2pkm.storage.toml import read_toml

_FILES = {"trace": "fault trace", "stream": "data stream"}
_MENDED = "the run could not end with the same bits; begin a new one with --config"


def resume(path: Path, manner: OutputOptions) -> int:
    """Let a run go on from its last checkpoint, from its start if it has none; return the exit code.

    The results are those of the run without an interruption. Of a finished run the summary is printed again.

    Raises
    ------
    DataError
        If the folder is not that of a run, the run is still going on, or points, graph or options have changed.
    ExperimentError
        If the program is not the version that began the run.
    """
    require_single_run(path)
    state = run_status(path) if path.is_dir() else ""
    config = path / "config.toml"
    if not config.is_file() or not state:
        where = f"{path} is not the folder of a single run: it has no {config.name if state else 'manifest.json'}"
        raise DataError(where if path.is_dir() else f"{path} {explain(path)}")
    if state == "running":
        raise DataError(f"{path} {explain(path)}; wait for it, or end it first")
    experiment = RunOptions.from_mapping(read_toml(str(config)), str(config))
    if state == "done":
        return print_and_exit_code(load(path), experiment, manner)
    try:
        lock = hold(path)
    except ExperimentError as error:
        raise DataError(str(error)) from None
    with lock:
        if read_manifest(path).get("state") == "done":  # by another that has just ended
            return print_and_exit_code(load(path), experiment, manner)
        return print_and_exit_code(go_on(experiment, lock, manner), experiment, manner)


def go_on(experiment: RunOptions, lock: Lock, manner: OutputOptions) -> Result:
    """Let a run that has not ended go on in its folder, which is held."""
    path = lock.folder
    if parse_method(experiment).build(experiment.draft_k).traits.is_secret:
        raise DataError(f"{path} cannot be resumed: {UNREPEATABLE}; begin a new run: {tell_new_run(path)}")
    saved = newest(path, _tell)
    world = connect()
    with repeated_from(path):
        prepared = prepare_and_validate(experiment, world)
    if saved is not None:
        _compare(saved, identify(prepared.experiment.to_mapping(), prepared.run), path)
    if not manner.quiet:
        _tell(f"{path} goes on {_where(saved)}")
    return execute(prepared, world, lock, manner, taken=ResumePoint(saved))


def _compare(saved: Checkpoint, now: dict[str, Any], path: Path) -> None:
    """Refuse to go on with another program, other options or another graph."""
    before = saved.facts
    if before["version"] != now["version"]:
        raise ExperimentError(
            f"{path} was begun by p2pkm {before['version']}, and this is {now['version']}: {_MENDED}, or install "
            f"p2pkm=={before['version']}"
        )
    names = {*before["config"], *now["config"]}
    changed = sorted(name for name in names if before["config"].get(name) != now["config"].get(name))
    if changed:
        name = changed[0]
        raise DataError(
            f"{path}/config.toml is not what the run was begun with: {name} was {before['config'].get(name)!r} and is "
            f"{now['config'].get(name)!r}; put it back, or begin a new run with --config"
        )
    for name, option in (("graph", "graph"), ("trace", "faults"), ("stream", "stream")):
        if before.get(name) != now[name]:
            given = f"{_FILES.get(name, name)} {now['config'].get(option)}"
            raise DataError(f"the {given} is not what the run in {path} was begun on: {_MENDED}")


def _where(saved: Checkpoint | None) -> str:
    if saved is None:
        return "from its start: it has no checkpoint"
    t = saved.outline["parts"]["scene"]["parts"]["round"]["value"]
    return f"after round {t} of {ResumePoint(saved).records[-1]['stage']}"  # whose opening is always recorded


def _tell(note: str) -> None:
    print(f"p2pkm: {note}", file=sys.stderr, flush=True)
