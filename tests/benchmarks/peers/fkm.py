"""Federated k-means (FKM) by p2pkm and by other simulators: the same points, first messages and centroids.

Run ``python -m tests.benchmarks.peers.fkm --peer flwr=PYTHON --peer pfl=PYTHON``, each PYTHON being that of an
environment of its own with that package (``pip install "flwr[simulation]"``, ``pfl scipy``, ``fluke-fl``; for
``gossipy=`` ``gossipy-dfl torchvision``).
A client of a peer is a NumPy step of `fkm_twin`; the server's k-means is p2pkm's in all of them. CPU time is that of a
program and its children; that of a client-update is read inside the program, from the second round on, where clients
run in it (else: the slope between one round and all). The peers' server is taken out of it, p2pkm's is not. Memory is
the largest sum of resident pages of a program and its children (shared ones of each).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

_ROOT = Path(__file__).resolve().parents[3]
_PAUSE = 0.2  # seconds between two looks at the processes
_EQUAL = 1e-9


def watch(command: list[str], output: Path) -> dict[str, Any]:
    """Run a program; return what it printed last, and its memory, CPU time and time."""
    began, most, used, page = time.time(), 0, {}, os.sysconf("SC_PAGE_SIZE")
    with output.open("w") as file:
        program = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, cwd=_ROOT,
                                   env=os.environ | {"PYTHONPATH": str(_ROOT)})  # fmt: skip
        while program.poll() is None:
            pages = 0
            for one, ticks, resident in _list_family(program.pid):
                pages, used[one] = pages + resident, ticks
            most = max(most, pages * page)
            time.sleep(_PAUSE)
    lines = [line for line in output.read_text(errors="replace").splitlines() if line.startswith("{")]
    if program.returncode or not lines:
        raise SystemExit(f"{' '.join(command)} failed:\n{output.read_text(errors='replace')[-3000:]}")
    cpu = sum(used.values()) / os.sysconf("SC_CLK_TCK")
    return json.loads(lines[-1]) | {"memory": most, "cpu": cpu, "wall": time.time() - began}


def _list_family(root: int) -> list[tuple[int, int, int]]:
    """Return number, ticks of CPU and resident pages of a process and all below it."""
    found, parents = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            one = int(entry.name)
            parents[one], found[one] = int(fields[1]), (one, int(fields[11]) + int(fields[12]), int(fields[21]))
    family = {root}
    while more := {one for one, parent in parents.items() if parent in family} - family:
        family |= more
    return [found[one] for one in family if one in found]


def main() -> None:
    """Print a row per simulator."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    programs = {"p2pkm": sys.executable} | dict(peer.split("=", 1) for peer in given.peer)
    with tempfile.TemporaryDirectory() as place:
        made = [sys.executable, "-m", "tests.benchmarks.peers.fkm_p2pkm", place, str(given.clients), "0", "write"]
        subprocess.run(made, check=True, cwd=_ROOT, env=os.environ | {"PYTHONPATH": str(_ROOT)})
        ours = None
        for name, python in programs.items():
            command = [python, "-m", f"tests.benchmarks.peers.fkm_{name}", place, str(given.clients)]
            one, many = (watch([*command, str(t)], Path(place) / f"{name}.txt") for t in (1, given.rounds))
            model = np.array(many["model"])
            ours = model if ours is None else ours
            apart = np.abs(model[:, None] - ours[None]).max(axis=2)  # equally good starts differ in the order of rows
            gap = max(float(apart.min(axis=axis).max()) for axis in (0, 1))
            spent = many["spent"]
            if spent is None:
                spent = many["cpu"] - many["server"] - one["cpu"] + one["server"]
            rate = given.clients * (given.rounds - 1) / max(spent, 1e-9)
            print(f"{name}: {rate:,.0f} client-updates per CPU second ({spent:.2f} s); one round from the start: CPU "
                  f"{one['cpu']:.1f} s; {given.rounds} rounds: CPU {many['cpu']:.1f} s (server {many['server']:.1f}), "
                  f"wall {many['wall']:.0f} s, memory {many['memory'] / 1e6:,.0f} MB; gap of the centroids {gap:.1e} "
                  f"({'equal' if gap <= _EQUAL else 'NOT EQUAL'}); {many['versions']}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
