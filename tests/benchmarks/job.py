"""A whole job by the command line: wall time and memory of the process, from its start to the folder that it leaves."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.figure import Figure

_CLUSTERS, _POINTS, _ROUNDS = 4, 50, 20


def measure(quick: bool) -> list[Figure]:
    """Return wall seconds and peak memory."""
    n = 5_000 if quick else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        seconds, peak = run(n, Path(folder) / "run")
        without_choice, _ = run(n, Path(folder) / "strong", "--algorithm", "gtvmin:coupling=strong")
    what = f"whole job, {n:,} devices x {_POINTS} points, defaults, {_ROUNDS} sweeps"
    note = f"small world, k = {_CLUSTERS}, d = 2, 2 threads, folder written"
    return [
        Figure(f"{what}: wall time", seconds, "s", "at most", 35.0, note),
        Figure(f"{what}: wall time with coupling=strong, which is not chosen from the points", without_choice, "s"),
        Figure(f"{what}: memory", peak / 1e9, "GB", "at most", 3.0, "peak of the process"),
    ]


def run(n: int, folder: Path, *options: str) -> tuple[float, int]:
    """Return the seconds of the command, with more options, and the peak of its memory in bytes.

    Raises
    ------
    RuntimeError
        If the command fails.
    """
    data = f"blobs:clusters={_CLUSTERS},points={n * _POINTS // _CLUSTERS}"
    command = [
        sys.executable, "-m", "p2pkm", "--devices", str(n), "--data", data, "--clusters", str(_CLUSTERS),
        "--partition", "iid", "--graph", "small-world:degree=6", "--rounds", str(_ROUNDS), "--no-baselines",
        "--no-plot",
        "--out", str(folder), *options,
    ]  # fmt: skip
    return watch(command)


def watch(command: list[str]) -> tuple[float, int]:
    """Return the seconds of a command and the peak of its memory in bytes.

    Raises
    ------
    RuntimeError
        If the command fails.
    """
    with tempfile.TemporaryFile() as said:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)}\n{said.read().decode()}")
    return seconds, usage.ru_maxrss * 1024
