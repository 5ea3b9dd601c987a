"""Federated k-means (FKM) by p2pkm and by other simulators: the same points, first messages and centroids.

``python -m tests.benchmarks.peers.fkm --peer flwr=PYTHON --peer pfl=PYTHON`` prints a table in Markdown for 1,000 and
10,000 clients, each PYTHON being that of an environment of its own with that package (``uv venv`` and ``uv pip install
"flwr[simulation]"``, ``pfl scipy``, ``fluke-fl``, ``nvflare``; for ``gossipy=`` ``gossipy-dfl torchvision``).

A client of a peer is a NumPy step of `fkm_twin`; the server's k-means is p2pkm's in all of them, and its CPU time is
taken out of all of them, so that what is compared is clients and the way to them; ``--peer bare=PYTHON`` is a loop over
the NumPy steps without any simulator. CPU time is that of a program and its children, from the second round on.
Start-up is what passes until the first round has ended. Memory is the largest sum of a program and its children, a page
that several share being divided among them. A program that has not ended within ``--limit`` seconds is ended; the
rounds that it did count.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.benchmarks.peers.fkm_twin import list_family

_ROOT = Path(__file__).resolve().parents[3]
_PAUSE = 0.5  # seconds between two looks at the memory
_EQUAL = 1e-9
_HEAD = ("simulator", "clients", "client-updates per CPU second", "p2pkm over it", "with the server", "rounds",
         "start-up: seconds, CPU", "peak memory", "centroids")  # fmt: skip


class Seen(NamedTuple):
    """What a program printed after each round, its largest memory in bytes, when it began, what it said at all."""

    rounds: list[dict[str, Any]]
    memory: int
    began: float
    text: str


def watch(command: list[str], output: Path, limit: float) -> Seen:
    """Run a program with a time limit in seconds."""
    began, most = time.time(), 0
    with output.open("w") as file:
        program = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, cwd=_ROOT,
                                   env=os.environ | {"PYTHONPATH": str(_ROOT)})  # fmt: skip
        while program.poll() is None:
            family = [one for one, _ in list_family(program.pid)]
            most = max(most, sum(map(_weigh, family)))
            if time.time() - began > limit:
                _end(family)
            time.sleep(_PAUSE)
    text = output.read_text(errors="replace")
    return Seen([json.loads(line) for line in text.splitlines() if line.startswith('{"t"')], most, began, text)


def _weigh(process: int) -> int:
    """Return the bytes of a process in memory."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def _end(family: list[int]) -> None:
    for process in family:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue


def measure_gap(model: Any, other: Any) -> float:
    """Return how far centroids are apart; equally good starts differ in the order of rows."""
    apart = np.abs(np.array(model)[:, None] - np.array(other)[None]).max(axis=2)
    return max(float(apart.min(axis=axis).max()) for axis in (0, 1))


def cells(name: str, n: int, seen: Seen, ours: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return a row of the table; `ours` is what p2pkm printed."""
    if not seen.rounds:
        return name, f"{n:,}", "no round", "", "", "0", "", f"{seen.memory / 1e6:,.0f} MB", ""
    first, last = seen.rounds[0], seen.rounds[-1]
    versions = ", ".join(f"{package} {number}" for package, number in last["versions"].items())
    rate, times, whole = "one round only", "", ""
    if last["updates"] and ours[-1]["updates"]:
        each, own = (one["clients"] / one["updates"] for one in (last, ours[-1]))
        rate, times = f"{1 / each:,.0f}", f"{each / own:,.1f} x" if last is not ours[-1] else ""
        whole = f"{last['updates'] / (last['clients'] + last['server']):,.0f}"
    gap = measure_gap(last["model"], ours[last["t"] - 1]["model"])
    return (f"{name} ({versions})", f"{n:,}", rate, times, whole, str(last["t"]),
            f"{first['now'] - seen.began:.1f} s, {first['cpu']:.1f} s", f"{seen.memory / 1e6:,.0f} MB",
            "" if last is ours[-1] else f"{'equal' if gap <= _EQUAL else 'NOT EQUAL'} ({gap:.1e})")  # fmt: skip


def main() -> None:
    """Print a row per simulator and number of clients."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--clients", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds of a program")
    given = parser.parse_args()
    programs = {"p2pkm": sys.executable} | dict(peer.split("=", 1) for peer in given.peer)
    print(f"| {' | '.join(_HEAD)} |\n|{'---|' * len(_HEAD)}", flush=True)
    for n in given.clients:
        with tempfile.TemporaryDirectory() as place:
            made = [sys.executable, "-m", "tests.benchmarks.peers.fkm_p2pkm", place, str(n), "0", "write"]
            subprocess.run(made, check=True, cwd=_ROOT, env=os.environ | {"PYTHONPATH": str(_ROOT)})
            ours: list[dict[str, Any]] = []
            for name, python in programs.items():
                command = [python, "-m", f"tests.benchmarks.peers.fkm_{name}", place, str(n), str(given.rounds)]
                seen = watch(command, Path(place) / f"{name}.txt", given.limit)
                ours = ours or seen.rounds
                print(f"| {' | '.join(cells(name, n, seen, ours))} |", flush=True)
                said = "" if len(seen.rounds) >= given.rounds else f"{name} said last: {seen.text[-1500:]}\n"
                sys.stderr.write(said)


if __name__ == "__main__":
    main()
