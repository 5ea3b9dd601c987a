"""Verification of a run: its files have not changed, and a repetition, on any number of ranks, gives the same bits."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from p2pkm.core.errors import DataError, ExperimentError, NetworkError
from p2pkm.core.mpi_environment import launched
from p2pkm.core.termination import STOPPED
from p2pkm.core.units import count
from p2pkm.core.validation import check_integer
from p2pkm.engine.run_options import RunOptions
from p2pkm.engine.run_secret import UNREPEATABLE
from p2pkm.experiments.config import parse_method
from p2pkm.experiments.run import OutputOptions, assemble, execute
from p2pkm.metrics.closing_rows import describe_broken_bound
from p2pkm.metrics.result import Result
from p2pkm.network.world import connect
from p2pkm.storage.checksums import FileMismatch, check_files
from p2pkm.storage.load import load
from p2pkm.storage.run_status import describe_missing_results, repeated_from
from p2pkm.storage.toml import read_toml

_DIFFERENT = 6  # exit code if the results differ, or break a bound


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
        Exit code: 6 if files or results differ, or if the repetition breaks a bound.

    Raises
    ------
    DataError
        If the folder does not hold a finished run.
    """
    faults = check_files(path)
    if faults or files_only:
        return _report_files(path, faults, output)
    before = load(path)
    if not (path / "manifest.json").is_file():
        raise DataError(
            f"{path} was written by Result.save, without the arguments of the run, so that it cannot be repeated; "
            "expected the folder of a command. Its files are unchanged; use --files-only to check nothing else"
        )
    if before.summary["termination"] in STOPPED:
        raise DataError(
            f"{path} {describe_missing_results(path)}. Its files are unchanged; use --files-only to check nothing else"
        )
    if not (path / "config.toml").is_file():
        raise DataError(
            f"{path} lacks config.toml, without which the run cannot be repeated. Its files are unchanged; use "
            "--files-only to check nothing else"
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
        run = assemble(replace(experiment, plot=False, out="none"), world)
    after = execute(run, world, None, output._replace(quiet=True))
    # The repetition breaks the bound in the same way, so comparing the two runs does not find it.
    difference, broken = compare(before, after), describe_broken_bound(after.summary)
    verdict = {
        "same": not difference,
        "run": str(path),
        "ranks_before": before.summary["ranks"],
        "ranks": world.size,
        "difference": difference or None,
        "files": [],
        "note": None,
        "broken_bound": broken or None,
    }
    if output.json:
        print(json.dumps(verdict), flush=True)
    else:
        ranks_text = _describe_ranks(before.summary["ranks"], world.size)
        agreement = f"the same bits {ranks_text}, in every recorded round, and the same ledger"
        print("; ".join([f"{path}: {difference or agreement}", *filter(None, [broken])]), flush=True)
    return _DIFFERENT if difference or broken else 0


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
        "broken_bound": None,
    }
    if output.json:
        print(json.dumps(verdict), flush=True)
    elif not faults:
        print(f"{path}: all files are as the run wrote them{note}", flush=True)
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
        return f"the centroids differ first in {where}, at device {before.topology.label(int(differing[0]))}"
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
