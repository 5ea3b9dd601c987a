"""The same experiment again: over several seeds, or on another number of ranks to compare it bit by bit."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from p2pkm.core.errors import DataError, ExperimentError, NetworkError
from p2pkm.core.mpi_environment import launched
from p2pkm.core.spec import read_range
from p2pkm.core.termination import STOPPED
from p2pkm.core.units import count, tell_folder
from p2pkm.core.validation import whole
from p2pkm.core.version import __version__
from p2pkm.engine.run_options import RunOptions
from p2pkm.engine.run_secret import UNREPEATABLE
from p2pkm.experiments.config import Prepared, parse_method
from p2pkm.experiments.resume import go_on
from p2pkm.experiments.run import OutputOptions, code_of, execute, hold_default, hold_out, prepare_and_validate
from p2pkm.experiments.studies.run_study import fingerprint
from p2pkm.metrics.registry import ShownIn, metrics_shown_in
from p2pkm.metrics.result import Result
from p2pkm.network.world import connect
from p2pkm.storage.checksums import Fault, check_files
from p2pkm.storage.conclusion import conclude
from p2pkm.storage.load import load
from p2pkm.storage.lock import Lock
from p2pkm.storage.run_folder import hold, set_aside
from p2pkm.storage.run_status import repeated_from, run_status
from p2pkm.storage.save import write_bytes, write_json
from p2pkm.storage.study_table import name_run
from p2pkm.storage.toml import load_toml, read_toml

MARK = "seeds.toml"  # what a folder of several seeds was begun with
_DIFFERENT, _MOST_SEEDS = 6, 10_000
_DIGITS = 18  # of a seed


def parse_seeds(text: str) -> list[int]:
    """Read a list of seeds such as ``0-9`` or ``0,3,5-7``.

    Raises
    ------
    ExperimentError
        If it is not such a list, or names a seed twice.
    """
    seeds: list[int] = []
    for part in text.split(","):
        found = read_range(part.strip(), _DIGITS)
        if found is None:
            raise ExperimentError(
                f"--seeds {text!r} is not a list of seeds; expected for example 0-9 or 0,3,5-7; in ranges the smaller "
                "number first, such as 2-5"
            )
        if len(seeds) + len(found) > _MOST_SEEDS:
            raise ExperimentError(f"--seeds {text!r}: up to {part.strip()} these are more than {_MOST_SEEDS} seeds")
        seeds += found
    if len(set(seeds)) < len(seeds):
        raise ExperimentError(f"--seeds {text!r} names a seed twice")
    return seeds


def write_seeds(seeds: Sequence[int]) -> str:
    """Return seeds as `parse_seeds` reads them, those that follow one another as a range."""
    parts: list[list[int]] = []
    for seed in seeds:
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def run_seeds_command(experiment: RunOptions, seeds: list[int], manner: OutputOptions) -> int:
    """Run one configuration over seeds, one folder each, and print mean, standard deviation and worst."""
    with ExitStack() as held:
        lock = hold_out(experiment, manner, held)
        world = connect()
        if manner.dry_run:
            runs = [prepare_and_validate(replace(experiment, seed=seed), world).experiment for seed in seeds]
            told = {"seeds": seeds, "runs": [run.to_mapping() for run in runs]}
            print(json.dumps(told, indent=None if manner.json else 1))
            return 0
        first = prepare_and_validate(replace(experiment, seed=seeds[0]), world)
        lock = lock or hold_default(first, held)
        if lock is not None:
            _begin(lock, experiment, seeds, first)
        return _run_seeds(experiment, seeds, manner, lock, {seeds[0]: first})


def resume_seeds(folder: Path, manner: OutputOptions) -> int:
    """Run what is missing in the folder of several seeds, and close as `run_seeds_command` does.

    Seeds that have ended are not run again; one that has not goes on from its last checkpoint.

    Raises
    ------
    DataError
        If points, graph or options are no longer those of the start, or somebody is still at it.
    ExperimentError
        If the program is not the version that began.
    """
    mark = folder / MARK
    begun = load_toml(str(mark), "list of seeds")
    try:
        seeds, options = parse_seeds(begun["seeds"]), begun["options"]
        version, key = begun["version"], begun.get("key")
    except KeyError as error:
        raise DataError(f"{mark} is damaged: it has no {error}; begin anew with --seeds") from None
    experiment = RunOptions.from_mapping(options, str(mark))
    if version != __version__:
        raise ExperimentError(
            f"{folder} was begun by p2pkm {version}, and this is {__version__}: install p2pkm=={version}, or begin anew"
        )
    try:
        lock = hold(folder)
    except ExperimentError as error:
        raise DataError(str(error)) from None
    with lock:
        with repeated_from(folder / f"seed-{seeds[0]}"):
            first = prepare_and_validate(replace(experiment, seed=seeds[0]), connect())
        if key != _identify(first):
            raise DataError(
                f"the points, the graph, the options or the program are not those that {folder} was begun with; put "
                "them back, or begin anew with --seeds"
            )
        return _run_seeds(experiment, seeds, manner, lock, {seeds[0]: first})


def _begin(lock: Lock, experiment: RunOptions, seeds: list[int], first: Prepared) -> None:
    """Note what will be run, so that it can be finished by others; what was in the folder is moved aside."""
    import tomli_w

    old = set_aside(lock.folder)
    options = replace(experiment, devices=first.experiment.devices).to_mapping()  # which the launcher may have said
    note = {"seeds": write_seeds(seeds), "version": __version__, "key": _identify(first),
            "aside": None if old is None else old.name, "options": options}  # fmt: skip
    text = tomli_w.dumps({name: value for name, value in note.items() if value is not None})
    _write(lock, partial(write_bytes, lock.folder, MARK, lambda file: file.write(text.encode())))


def _identify(prepared: Prepared) -> str | None:
    """Return the hash of points, graph and options; None of points on disk, which nobody reads as a whole."""
    return fingerprint(prepared) if prepared.shards.in_memory else None


def _run_seeds(
    experiment: RunOptions, seeds: list[int], manner: OutputOptions, lock: Lock | None, ready: dict[int, Prepared]
) -> int:
    """Run the seeds that have not ended in the folder, and close; ready: those that are prepared."""
    world = connect()
    summaries: list[dict[str, Any]] = []
    code = 0

    def prepare(seed: int) -> Prepared:
        return ready.pop(seed, None) or prepare_and_validate(replace(experiment, seed=seed), world)

    for seed in seeds:
        own = None if lock is None else lock.folder / f"seed-{seed}"
        summary = _run_seed(partial(prepare, seed), own, manner)
        summaries.append(summary)
        code = max(code, code_of(summary["termination"], experiment))
        if summary["termination"] in STOPPED:
            break
        _tell_seed(summary, manner)
    closing = summarize(summaries)
    if lock is not None:
        _write(lock, partial(write_json, lock.folder, "summary.json", closing))
        if code not in STOPPED.values():
            _remove_aside(lock.folder)
    if manner.json:
        print(json.dumps(closing), flush=True)
    else:
        _show(closing, None if lock is None else lock.folder)
    return code


def _run_seed(prepare: Callable[[], Prepared], folder: Path | None, manner: OutputOptions) -> dict[str, Any]:
    """Return the summary of one seed: as it is kept if it has ended, else it is run, or goes on."""
    if folder is None:
        return execute(prepare(), connect(), None, manner).summary
    state = run_status(folder) if folder.is_dir() else ""
    if state == "done":
        return load(folder).summary
    with hold(folder) as lock:
        if not state:
            return execute(prepare(), connect(), lock, manner).summary
        config = str(folder / "config.toml")
        return go_on(RunOptions.from_mapping(read_toml(config), config), lock, manner).summary


def _remove_aside(folder: Path) -> None:
    """Remove what --force has replaced."""
    aside = Path(str(load_toml(str(folder / MARK), "list of seeds").get("aside", ""))).name
    if aside.startswith(f"{folder.resolve().name}.old-"):
        shutil.rmtree(folder.resolve().with_name(aside), ignore_errors=True)


def _write(lock: Lock, write: Callable[[], object]) -> None:
    """Write a file beside the folders of the seeds."""
    try:
        lock.check()
        write()
    except OSError as error:
        raise NetworkError(f"the folder {lock.folder} cannot be written: {error.strerror or error}") from None


def _tell_seed(summary: dict[str, Any], manner: OutputOptions) -> None:
    if not manner.quiet:
        ratio = summary["ratio_mean"]
        shown = "not compared" if ratio is None else f"{ratio:.4f}"
        print(f"seed {summary['seed']}: ratio {shown}, {summary['termination']}", file=sys.stderr, flush=True)


def summarize(summaries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return mean, standard deviation (n - 1) and worst of the main figures over runs, None where one has none."""
    closing: dict[str, Any] = {"seeds": [one["seed"] for one in summaries], "mean": {}, "sd": {}, "worst": {}}
    for metric in metrics_shown_in(ShownIn.SEEDS):
        name = metric.key
        values = [one[name] for one in summaries]
        known = np.array([value for value in values if value is not None], float)
        whole = len(known) == len(values)
        worst = np.min if metric.better == "higher" else np.max
        closing["mean"][name] = float(known.mean()) if whole else None
        closing["sd"][name] = float(known.std(ddof=1)) if whole and len(known) > 1 else None
        closing["worst"][name] = float(worst(known)) if whole else None
    releases = _compose_releases(summaries)
    runs = {one["seed"]: one for one in summaries}
    name = name_run(str(summaries[0].get("algorithm")), summaries[0].get("graph"))
    closing["conclusion"] = conclude({name: runs})
    return closing | ({} if releases is None else {"privacy": releases}) | {"runs": summaries}


def _compose_releases(summaries: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return what runs with secret noise guarantee together if their points are the same; None without such runs."""
    from p2pkm.methods.building_blocks.gdp import compose, epsilon_of

    if any(one.get("mu") is None or one.get("noise_seed") is not None for one in summaries):
        return None
    mu, delta = compose(*(one["mu"] for one in summaries)), max(one["delta"] for one in summaries)
    return {"releases": len(summaries), "mu": mu, "epsilon": epsilon_of(mu, delta), "delta": delta}


def _show(closing: dict[str, Any], parent: Path | None) -> None:
    print(f"{count(len(closing['seeds']), 'seed')}: {', '.join(map(str, closing['seeds']))}")
    shown = metrics_shown_in(ShownIn.SEEDS)
    width = max(len(metric.label) for metric in shown)
    print(f"  {'':{width}} {'mean':>12} {'sd':>12} {'worst':>12}")
    for metric in shown:
        cells = [closing[kind][metric.key] for kind in ("mean", "sd", "worst")]
        line = " ".join(f"{'-' if cell is None else format(cell, '.6g'):>12}" for cell in cells)
        print(f"  {metric.label:{width}} {line}")
    if closing["mean"]["ratio_mean"] is not None:
        print(f"  {closing['conclusion']}")
    if (privacy := closing.get("privacy")) is not None:
        print(f"  differential privacy: {count(privacy['releases'], 'release')}, of the same points together eps "
              f"{privacy['epsilon']:.3g} at delta {privacy['delta']:g} (mu {privacy['mu']:.3g})")  # fmt: skip
    print(f"  {tell_folder(parent)}", flush=True)


def verify(path: Path, ranks: int | None, manner: OutputOptions, *, files_only: bool = False) -> int:
    """Check the files of a run, then repeat it, perhaps on another number of ranks, and compare; 6 if they differ.

    Parameters
    ----------
    files_only : bool
        Whether to leave it at the files: every one is compared with its checksum.

    Raises
    ------
    DataError
        If the folder is not that of a finished run.
    """
    faults = check_files(path)
    if faults or files_only:
        return _tell_files(path, faults, manner)
    before = load(path)
    if not (path / "config.toml").is_file() or before.summary["termination"] in STOPPED:
        raise DataError(
            f"{path} has no config.toml or was interrupted: expected a run that ended by itself; its files are as it "
            "left them (--files-only)"
        )
    experiment = RunOptions.from_mapping(read_toml(str(path / "config.toml")), str(path / "config.toml"))
    if parse_method(experiment).build(experiment.draft_k).traits.is_secret:
        return _tell_files(path, faults, manner, note=f"; the run was not repeated, because {UNREPEATABLE}")
    if ranks is not None and not launched():
        return _launch(path, ranks, manner)
    world = connect()
    if ranks is not None and ranks != world.size:
        raise ExperimentError(f"--ranks is {ranks}, but {world.size} ranks are running; leave it out under mpirun")
    with repeated_from(path):
        prepared = prepare_and_validate(replace(experiment, plot=False, out="none"), world)
    found = compare(before, execute(prepared, world, None, manner._replace(quiet=True)))
    verdict = {"same": not found, "run": str(path), "ranks_before": before.summary["ranks"], "ranks": world.size,
               "difference": found or None, "files": [], "note": None}  # fmt: skip
    if manner.json:
        print(json.dumps(verdict), flush=True)
    else:
        where = _tell_ranks(before.summary["ranks"], world.size)
        print(f"{path}: {found or f'the same bits {where}, in every recorded round, and the same ledger'}", flush=True)
    return _DIFFERENT if found else 0


def _tell_ranks(before: int, after: int) -> str:
    """Return on how many ranks a run was and is."""
    now = count(after, "rank")
    return f"on {now} both times" if before == after else f"on {count(before, 'rank')} and on {now}"


def _tell_files(path: Path, faults: list[Fault], manner: OutputOptions, note: str = "") -> int:
    """Print which files are not as the run left them, and return the code; note: why the run was not repeated."""
    first = f"the file {faults[0].file} {faults[0].what}" if faults else None
    verdict = {"same": not faults, "run": str(path), "ranks_before": None, "ranks": None, "difference": first,
               "files": [fault._asdict() for fault in faults], "note": note.removeprefix("; ") or None}  # fmt: skip
    if manner.json:
        print(json.dumps(verdict), flush=True)
    elif not faults:
        print(f"{path}: every file is as the run left it{note}", flush=True)
    else:
        lines = "".join(f"\n  {fault.file} {fault.what}" for fault in faults)
        print(f"{path}: not as the run left it; the run was not repeated{lines}", flush=True)
    return _DIFFERENT if faults else 0


def compare(before: Result, after: Result) -> str:
    """Return the first difference between two runs in words, nothing if there is none."""
    if len(before.rounds) != len(after.rounds):
        return f"{len(before.rounds)} recorded rounds, then {len(after.rounds)}"
    for number, record in enumerate(before.rounds):
        where = f"stage {record['stage']}, round {record['round']}"
        if np.array_equal(before.chain.heads[number], after.chain.heads[number]):
            continue
        if before.chain.digests is None or after.chain.digests is None:
            return f"the centroids differ first in {where}"
        differing = np.flatnonzero((before.chain.digests[number] != after.chain.digests[number]).any(axis=1))
        return f"the centroids differ first in {where}, at device {differing[0]}"
    for name in ("src", "dst", "messages", "bytes", "wire_bytes"):
        one, other = getattr(before.ledger, name), getattr(after.ledger, name)
        if not np.array_equal(one, other):
            where = "the number of edges" if one.shape != other.shape else _first_edge(before, one, other)
            return f"the ledger differs: {name} of {where}"
    return ""


def _first_edge(before: Result, one: Any, other: Any) -> str:
    e = int(np.flatnonzero(one != other)[0])
    return f"{before.ledger.src[e]} -> {before.ledger.dst[e]} ({one[e]}, then {other[e]})"


def _launch(path: Path, ranks: int, manner: OutputOptions) -> int:
    """Start the same command under mpirun."""
    whole(ranks, 1, "--ranks")
    beside = Path(sys.executable).with_name("mpirun")
    mpirun = str(beside) if beside.exists() else shutil.which("mpirun")
    if mpirun is None:
        raise NetworkError('--ranks needs mpirun, which was not found. Install MPI, as in pip install "p2pkm[mpich]"')
    command = [mpirun, "-n", str(ranks), sys.executable, "-m", "p2pkm", "verify", str(path)]
    command += ["--format", "json"] if manner.json else []
    return subprocess.run(command, check=False).returncode
