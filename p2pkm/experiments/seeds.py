"""The same experiment again: over several seeds, or on another number of ranks to compare it bit by bit."""

import json
import shutil
import subprocess
import sys
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from p2pkm.core.errors import DataError, ExperimentError, NetworkError
from p2pkm.core.mpi_environment import launched
from p2pkm.core.termination import STOPPED
from p2pkm.core.units import tell_folder
from p2pkm.experiments.config import Experiment
from p2pkm.experiments.run import OutputOptions, code_of, execute, hold_default, hold_out, prepare_and_validate
from p2pkm.metrics.registry import Table, listed
from p2pkm.metrics.result import Result
from p2pkm.network.world import connect
from p2pkm.storage.checksums import Fault, check_files
from p2pkm.storage.load import load
from p2pkm.storage.lock import Lock
from p2pkm.storage.run_folder import hold, set_aside
from p2pkm.storage.run_status import repeated_from
from p2pkm.storage.save import write_json
from p2pkm.storage.toml import read_toml

_DIFFERENT, _MOST_SEEDS = 6, 10_000


def parse_seeds(text: str) -> list[int]:
    """Read a list of seeds such as ``0-9`` or ``0,3,5-7``.

    Raises
    ------
    ExperimentError
        If it is not such a list, or names a seed twice.
    """
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(first + last) > 18:
            raise ExperimentError(f"--seeds {text!r} is not a list of seeds; expected for example 0-9 or 0,3,5-7")
        low, high = int(first), int(last or first)
        if high < low or len(seeds) + high - low >= _MOST_SEEDS:
            raise ExperimentError(f"--seeds {text!r}: {part} is empty or more than {_MOST_SEEDS} seeds")
        seeds += range(low, high + 1)
    if len(set(seeds)) < len(seeds):
        raise ExperimentError(f"--seeds {text!r} names a seed twice")
    return seeds


def lead_seeds(experiment: Experiment, seeds: list[int], manner: OutputOptions) -> int:
    """Run one configuration over seeds, one folder each, and print mean, standard deviation and worst."""
    with ExitStack() as held:
        return _run_seeds(experiment, seeds, manner, held)


def _run_seeds(experiment: Experiment, seeds: list[int], manner: OutputOptions, held: ExitStack) -> int:
    """Do what `lead_seeds` says; held: until when the folder of all seeds is."""
    lock = hold_out(experiment, manner, held)
    world = connect()
    if manner.dry_run:
        runs = [prepare_and_validate(replace(experiment, seed=seed), world).experiment.to_mapping() for seed in seeds]
        print(json.dumps({"seeds": seeds, "runs": runs}, indent=None if manner.json else 1))
        return 0
    summaries: list[dict[str, Any]] = []
    code, old = 0, None
    for seed in seeds:
        prepared = prepare_and_validate(replace(experiment, seed=seed), world)
        lock = lock or hold_default(prepared, held)
        if seed == seeds[0]:
            old = None if lock is None else set_aside(lock.folder)
        with hold(lock.folder / f"seed-{seed}") if lock else nullcontext() as own:
            result = execute(prepared, world, own, manner)
        summaries.append(result.summary)
        code = max(code, code_of(result.summary["termination"], prepared.experiment))
        if result.summary["termination"] in STOPPED:
            break
        _tell_seed(result.summary, manner)
    closing = summarize(summaries)
    if old is not None and code not in STOPPED.values():
        shutil.rmtree(old)
    if lock is not None:
        _keep(lock, closing)
    if manner.json:
        print(json.dumps(closing), flush=True)
    else:
        _show(closing, None if lock is None else lock.folder)
    return code


def _keep(lock: Lock, closing: dict[str, Any]) -> None:
    """Write the closing figures beside the folders of the seeds."""
    try:
        lock.check()
        write_json(lock.folder, "summary.json", closing)
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
    for metric in listed(Table.SEEDS):
        name = metric.key
        values = [one[name] for one in summaries]
        known = np.array([value for value in values if value is not None], float)
        whole = len(known) == len(values)
        worst = np.min if metric.better == "higher" else np.max
        closing["mean"][name] = float(known.mean()) if whole else None
        closing["sd"][name] = float(known.std(ddof=1)) if whole and len(known) > 1 else None
        closing["worst"][name] = float(worst(known)) if whole else None
    return closing | {"runs": summaries}


def _show(closing: dict[str, Any], parent: Path | None) -> None:
    print(f"{len(closing['seeds'])} seeds: {', '.join(map(str, closing['seeds']))}")
    shown = listed(Table.SEEDS)
    width = max(len(metric.label) for metric in shown)
    print(f"  {'':{width}} {'mean':>12} {'sd':>12} {'worst':>12}")
    for metric in shown:
        cells = [closing[kind][metric.key] for kind in ("mean", "sd", "worst")]
        line = " ".join(f"{'-' if cell is None else format(cell, '.6g'):>12}" for cell in cells)
        print(f"  {metric.label:{width}} {line}")
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
    if ranks is not None and not launched():
        return _launch(path, ranks, manner)
    experiment = Experiment.from_mapping(read_toml(str(path / "config.toml")), str(path / "config.toml"))
    world = connect()
    if ranks is not None and ranks != world.size:
        raise ExperimentError(f"--ranks is {ranks}, but {world.size} ranks are running; leave it out under mpirun")
    with repeated_from(path):
        prepared = prepare_and_validate(replace(experiment, plot=False, out="none"), world)
    found = compare(before, execute(prepared, world, None, manner))
    verdict = {"same": not found, "run": str(path), "ranks_before": before.summary["ranks"], "ranks": world.size,
               "difference": found or None, "files": []}  # fmt: skip
    if manner.json:
        print(json.dumps(verdict), flush=True)
    else:
        many = f"{before.summary['ranks']} and on {world.size} rank{'s' * (world.size != 1)}"
        print(
            f"{path}: {found or f'the same bits on {many}, in every recorded round, and the same ledger'}", flush=True
        )
    return _DIFFERENT if found else 0


def _tell_files(path: Path, faults: list[Fault], manner: OutputOptions) -> int:
    """Print which files are not as the run left them, and return the code."""
    first = f"the file {faults[0].file} {faults[0].what}" if faults else None
    verdict = {"same": not faults, "run": str(path), "ranks_before": None, "ranks": None, "difference": first,
               "files": [fault._asdict() for fault in faults]}  # fmt: skip
    if manner.json:
        print(json.dumps(verdict), flush=True)
    elif not faults:
        print(f"{path}: every file is as the run left it", flush=True)
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
    if ranks < 1:
        raise ExperimentError(f"--ranks is {ranks}; expected a whole number of at least 1")
    beside = Path(sys.executable).with_name("mpirun")
    mpirun = str(beside) if beside.exists() else shutil.which("mpirun")
    if mpirun is None:
        raise NetworkError('--ranks needs mpirun, which was not found. Install MPI, as in pip install "p2pkm[mpich]"')
    command = [mpirun, "-n", str(ranks), sys.executable, "-m", "p2pkm", "verify", str(path)]
    command += ["--format", "json"] if manner.json else []
    return subprocess.run([*command, *(["-q"] if manner.quiet else [])], check=False).returncode
