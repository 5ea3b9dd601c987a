"""Repetition of an experiment: with several seeds, or on another number of ranks to verify that it is bit-identical."""

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
from p2pkm.core.units import count, describe_folder
from p2pkm.core.validation import check_integer
from p2pkm.core.version import __version__
from p2pkm.engine.run_options import RunOptions
from p2pkm.engine.run_secret import UNREPEATABLE
from p2pkm.experiments.config import Prepared, parse_method
from p2pkm.experiments.resume import resume_run
from p2pkm.experiments.run import (
    OutputOptions,
    execute,
    exit_code,
    lock_default_folder,
    lock_output_folder,
    prepare_and_validate,
)
from p2pkm.experiments.studies.run_study import fingerprint
from p2pkm.metrics.closing_rows import describe_publication
from p2pkm.metrics.registry import ShownIn, metrics_shown_in
from p2pkm.metrics.result import Result
from p2pkm.network.world import connect
from p2pkm.storage.checksums import FileMismatch, check_files
from p2pkm.storage.conclusion import conclude
from p2pkm.storage.load import load
from p2pkm.storage.lock import Lock
from p2pkm.storage.run_folder import lock_folder, move_to_backup
from p2pkm.storage.run_status import repeated_from, run_status
from p2pkm.storage.save import write_bytes, write_json
from p2pkm.storage.study_table import name_run
from p2pkm.storage.toml import load_toml, read_toml

MARK = "seeds.toml"  # file that marks a folder of several seeds, with their configuration
_DIFFERENT = 6  # exit code of `verify` if the results differ
_MAX_SEEDS = 10_000
_DIGITS = 18  # maximum number of digits of a seed


def parse_seeds(text: str) -> list[int]:
    """Read a list of seeds such as ``0-9`` or ``0,3,5-7``.

    Raises
    ------
    ExperimentError
        If the text is not such a list, contains a seed twice, or contains more than 10,000 seeds.
    """
    seeds: list[int] = []
    for part in text.split(","):
        numbers = read_range(part.strip(), _DIGITS)
        if numbers is None:
            raise ExperimentError(
                f"--seeds is {text!r}; expected a list of seeds, such as 0-9 or 0,3,5-7, with the smaller number of a "
                "range first"
            )
        if len(seeds) + len(numbers) > _MAX_SEEDS:
            raise ExperimentError(f"--seeds is {text!r}; expected at most {_MAX_SEEDS} seeds")
        seeds += numbers
    if len(set(seeds)) < len(seeds):
        raise ExperimentError(f"--seeds is {text!r}; expected each seed once")
    return seeds


def write_seeds(seeds: Sequence[int]) -> str:
    """Write seeds in the format of `parse_seeds`, consecutive ones as a range."""
    parts: list[list[int]] = []
    for seed in seeds:
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def run_seeds_command(experiment: RunOptions, seeds: list[int], output: OutputOptions) -> int:
    """Run one configuration over seeds, one folder each, and print mean, standard deviation and worst."""
    with ExitStack() as stack:
        lock = lock_output_folder(experiment, output, stack)
        world = connect()
        if output.dry_run:
            runs = [prepare_and_validate(replace(experiment, seed=seed), world).experiment for seed in seeds]
            resolved = {"seeds": seeds, "runs": [run.to_mapping() for run in runs]}
            print(json.dumps(resolved, indent=None if output.json else 1))
            return 0
        first = prepare_and_validate(replace(experiment, seed=seeds[0]), world)
        lock = lock or lock_default_folder(first, stack)
        if lock is not None:
            _begin(lock, experiment, seeds, first)
        return _run_seeds(experiment, seeds, output, lock, {seeds[0]: first})


def resume_seeds(folder: Path, output: OutputOptions) -> int:
    """Complete the runs in a folder of several seeds, and print the summary as `run_seeds_command` does.

    Finished seeds are not run again. An interrupted one continues from its last checkpoint.

    Raises
    ------
    DataError
        If points, graph or options have changed, or another process uses the folder.
    ExperimentError
        If another version of the program started the runs.
    """
    mark = folder / MARK
    original = load_toml(str(mark), "list of seeds")
    try:
        seeds, options = parse_seeds(original["seeds"]), original["options"]
        version, key = original["version"], original.get("key")
    except KeyError as error:
        raise DataError(f"{mark} is damaged: {error} is missing. Start again with --seeds") from None
    experiment = RunOptions.from_mapping(options, str(mark))
    if version != __version__:
        raise ExperimentError(
            f"{folder} was started with p2pkm {version}; this is p2pkm {__version__}. Install p2pkm=={version}, or "
            "start again with --seeds"
        )
    try:
        lock = lock_folder(folder)
    except ExperimentError as error:
        raise DataError(str(error)) from None
    with lock:
        with repeated_from(folder / f"seed-{seeds[0]}"):
            first = prepare_and_validate(replace(experiment, seed=seeds[0]), connect())
        if key != _identify(first):
            raise DataError(
                f"points, graph, options or program differ from those of the original runs in {folder}. Restore them, "
                "or start again with --seeds"
            )
        return _run_seeds(experiment, seeds, output, lock, {seeds[0]: first})


def _begin(lock: Lock, experiment: RunOptions, seeds: list[int], first: Prepared) -> None:
    """Write the file from which the runs can be resumed; earlier content of the folder is moved aside."""
    import tomli_w

    old = move_to_backup(lock.folder)
    # The number of devices may come from the number of MPI ranks, which may be another one on resumption.
    options = replace(experiment, devices=first.experiment.devices).to_mapping()
    content = {
        "seeds": write_seeds(seeds),
        "version": __version__,
        "key": _identify(first),
        "aside": None if old is None else old.name,
        "options": options,
    }
    text = tomli_w.dumps({name: value for name, value in content.items() if value is not None})
    _write(lock, partial(write_bytes, lock.folder, MARK, lambda file: file.write(text.encode())))


def _identify(prepared: Prepared) -> str | None:
    """Hash points, graph and options; None for points on disk, which no process reads completely."""
    return fingerprint(prepared) if prepared.shards.in_memory else None


def _run_seeds(
    experiment: RunOptions, seeds: list[int], output: OutputOptions, lock: Lock | None, ready: dict[int, Prepared]
) -> int:
    """Run the seeds that have not finished, and print the summary; `ready` has prepared runs by seed."""
    world = connect()
    summaries: list[dict[str, Any]] = []
    code = 0

    def prepare(seed: int) -> Prepared:
        return ready.pop(seed, None) or prepare_and_validate(replace(experiment, seed=seed), world)

    for seed in seeds:
        folder = None if lock is None else lock.folder / f"seed-{seed}"
        summary = _run_seed(partial(prepare, seed), folder, output)
        summaries.append(summary)
        code = max(code, exit_code(summary["termination"], experiment))
        if summary["termination"] in STOPPED:
            break
        _tell_seed(summary, output)
    closing = summarize(summaries)
    if lock is not None:
        _write(lock, partial(write_json, lock.folder, "summary.json", closing))
        if code not in STOPPED.values():
            _remove_aside(lock.folder)
    if output.json:
        print(json.dumps(closing), flush=True)
    else:
        _show(closing, None if lock is None else lock.folder)
    return code


def _run_seed(prepare: Callable[[], Prepared], folder: Path | None, output: OutputOptions) -> dict[str, Any]:
    """Return the summary of one seed, which is run or resumed unless it has finished."""
    if folder is None:
        return execute(prepare(), connect(), None, output).summary
    state = run_status(folder) if folder.is_dir() else ""
    if state == "done":
        return load(folder).summary
    with lock_folder(folder) as lock:
        if not state:
            return execute(prepare(), connect(), lock, output).summary
        config = str(folder / "config.toml")
        return resume_run(RunOptions.from_mapping(read_toml(config), config), lock, output).summary


def _remove_aside(folder: Path) -> None:
    """Remove the folder that --force has replaced and moved aside."""
    aside = Path(str(load_toml(str(folder / MARK), "list of seeds").get("aside", ""))).name
    if aside.startswith(f"{folder.resolve().name}.old-"):
        shutil.rmtree(folder.resolve().with_name(aside), ignore_errors=True)


def _write(lock: Lock, write: Callable[[], object]) -> None:
    """Write a file next to the folders of the seeds."""
    try:
        lock.check()
        write()
    except OSError as error:
        raise NetworkError(
            f"folder {lock.folder} cannot be written: {error.strerror or error}. Make it writable, then run: python -m "
            f"p2pkm resume {lock.folder}"
        ) from None


def _tell_seed(summary: dict[str, Any], output: OutputOptions) -> None:
    if not output.quiet:
        ratio = summary["ratio_mean"]
        shown = "not compared" if ratio is None else f"{ratio:.4f}"
        print(f"seed {summary['seed']}: ratio {shown}, {summary['termination']}", file=sys.stderr, flush=True)


def summarize(summaries: list[dict[str, Any]]) -> dict[str, Any]:
    """Compute mean, standard deviation (n - 1) and worst value of the main metrics; None if a run lacks the metric."""
    closing: dict[str, Any] = {"seeds": [summary["seed"] for summary in summaries], "mean": {}, "sd": {}, "worst": {}}
    for metric in metrics_shown_in(ShownIn.SEEDS):
        name = metric.key
        values = [summary[name] for summary in summaries]
        known = np.array([value for value in values if value is not None], float)
        is_complete = len(known) == len(values)
        worst = np.min if metric.better == "higher" else np.max
        closing["mean"][name] = float(known.mean()) if is_complete else None
        closing["sd"][name] = float(known.std(ddof=1)) if is_complete and len(known) > 1 else None
        closing["worst"][name] = float(worst(known)) if is_complete else None
    releases = _compose_releases(summaries)
    runs = {summary["seed"]: summary for summary in summaries}
    name = name_run(str(summaries[0].get("algorithm")), summaries[0].get("graph"))
    closing["conclusion"] = conclude({name: runs})
    return closing | ({} if releases is None else {"privacy": releases}) | {"runs": summaries}


def _compose_releases(summaries: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Compose the privacy guarantees of runs on the same points; None unless all runs have one for all points."""
    from p2pkm.methods.building_blocks.gdp import compose, epsilon_of

    for summary in summaries:
        if summary.get("mu") is None or summary.get("noise_seed") is not None or summary.get("server_points"):
            return None
    mu, delta = compose(*(summary["mu"] for summary in summaries)), max(summary["delta"] for summary in summaries)
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
        print(
            f"  differential privacy: {count(privacy['releases'], 'release')}, of the same points together eps "
            f"{privacy['epsilon']:.3g} at delta {privacy['delta']:g} (mu {privacy['mu']:.3g}, "
            f"{privacy['mu'] / closing['runs'][0]['mu']:.3g} times that of one run)"
        )
        published, withheld = describe_publication(closing["runs"][0]["relation"])
        print(f"  may be published: {published}; {withheld}; p2pkm privacy budget RUN... adds up further runs")
    print(f"  {describe_folder(parent)}", flush=True)


def verify(path: Path, ranks: int | None, output: OutputOptions, *, files_only: bool = False) -> int:
    """Check the files of a run, then repeat the run and compare the results.

    Parameters
    ----------
    path : Path
        Run folder.
    ranks : int or None
        Number of ranks of the repetition; None: the current number.
    output : OutputOptions
    files_only : bool
        Only compare the files with their checksums.

    Returns
    -------
    int
        Exit code: 6 if files or results differ.

    Raises
    ------
    DataError
        If the folder does not hold a finished run.
    """
    faults = check_files(path)
    if faults or files_only:
        return _report_files(path, faults, output)
    before = load(path)
    if not (path / "config.toml").is_file() or before.summary["termination"] in STOPPED:
        raise DataError(
            f"{path} holds an interrupted run, or lacks config.toml; expected a run that ended by itself. Its files "
            "are unchanged; use --files-only to check nothing else"
        )
    experiment = RunOptions.from_mapping(read_toml(str(path / "config.toml")), str(path / "config.toml"))
    if parse_method(experiment).build(experiment.draft_k).traits.is_secret:
        return _report_files(path, faults, output, note=f"; the run was not repeated, because {UNREPEATABLE}")
    if ranks is not None and not launched():
        return _launch(path, ranks, output)
    world = connect()
    if ranks is not None and ranks != world.size:
        raise ExperimentError(f"--ranks is {ranks}; expected {world.size}, the number of running ranks. Remove --ranks")
    with repeated_from(path):
        prepared = prepare_and_validate(replace(experiment, plot=False, out="none"), world)
    difference = compare(before, execute(prepared, world, None, output._replace(quiet=True)))
    verdict = {
        "same": not difference,
        "run": str(path),
        "ranks_before": before.summary["ranks"],
        "ranks": world.size,
        "difference": difference or None,
        "files": [],
        "note": None,
    }
    if output.json:
        print(json.dumps(verdict), flush=True)
    else:
        ranks_text = _describe_ranks(before.summary["ranks"], world.size)
        agreement = f"the same bits {ranks_text}, in every recorded round, and the same ledger"
        print(f"{path}: {difference or agreement}", flush=True)
    return _DIFFERENT if difference else 0


def _describe_ranks(before: int, after: int) -> str:
    """Name the numbers of ranks of a run and of its repetition."""
    now = count(after, "rank")
    return f"on {now} both times" if before == after else f"on {count(before, 'rank')} and on {now}"


def _report_files(path: Path, faults: list[FileMismatch], output: OutputOptions, note: str = "") -> int:
    """Print the files that have changed and return the exit code; `note` is the reason for not repeating the run."""
    first = f"the file {faults[0].file} {faults[0].what}" if faults else None
    verdict = {
        "same": not faults,
        "run": str(path),
        "ranks_before": None,
        "ranks": None,
        "difference": first,
        "files": [fault._asdict() for fault in faults],
        "note": note.removeprefix("; ") or None,
    }
    if output.json:
        print(json.dumps(verdict), flush=True)
    elif not faults:
        print(f"{path}: all files are unchanged since the run ended{note}", flush=True)
    else:
        lines = "".join(f"\n  {fault.file} {fault.what}" for fault in faults)
        print(f"{path}: files have changed since the run ended; the run was not repeated{lines}", flush=True)
    return _DIFFERENT if faults else 0


def compare(before: Result, after: Result) -> str:
    """Describe the first difference between two runs, "" if they are bit-identical."""
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
        original, repeated = getattr(before.ledger, name), getattr(after.ledger, name)
        if not np.array_equal(original, repeated):
            has_other_edges = original.shape != repeated.shape
            where = "the number of edges" if has_other_edges else _first_edge(before, original, repeated)
            return f"the ledger differs: {name} of {where}"
    return ""


def _first_edge(before: Result, original: Any, repeated: Any) -> str:
    """Name the first edge on which the ledgers differ."""
    e = int(np.flatnonzero(original != repeated)[0])
    return f"{before.ledger.src[e]} -> {before.ledger.dst[e]} ({original[e]}, then {repeated[e]})"


def _launch(path: Path, ranks: int, output: OutputOptions) -> int:
    """Start the same command under mpirun."""
    check_integer(ranks, 1, "--ranks")
    # The mpirun of the same environment belongs to the MPI library that mpi4py uses.
    of_environment = Path(sys.executable).with_name("mpirun")
    mpirun = str(of_environment) if of_environment.exists() else shutil.which("mpirun")
    if mpirun is None:
        raise NetworkError('--ranks requires mpirun, which was not found. Install MPI: pip install "p2pkm[mpich]"')
    command = [mpirun, "-n", str(ranks), sys.executable, "-m", "p2pkm", "verify", str(path)]
    command += ["--format", "json"] if output.json else []
    return subprocess.run(command, check=False).returncode
