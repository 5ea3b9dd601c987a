"""Two MPI ranks of one thread against one process of two threads: programs started in turn.

The program itself prints the seconds of each round on rank 0: ``mpirun -n 2 python -m tests.benchmarks.ranks 1000 5``.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median

from tests.benchmarks.figure import Figure, show

_TRIALS, _ROUNDS = 3, 7


def measure(quick: bool) -> list[Figure]:
    """Return how many times longer a jacobi sweep takes on two ranks."""
    n, trials = (20_000, 1) if quick else (1_000_000, _TRIALS)
    starter = find_launcher()
    program = [sys.executable, "-m", __name__, str(n), str(_ROUNDS)]
    one: list[float] = []
    two: list[float] = []
    for _ in range(trials):
        one += start(program, 2)
        two += start([starter, "-n", "2", *program], 1)
    what = f"jacobi sweep, two ranks of one thread over one process of two, {n:,} devices"
    note = f"{show(median(two))} against {show(median(one))}, k = 4, d = 2"
    return [Figure(what, median(two) / median(one), "x", "at most", 1.25, note)]


def find_launcher() -> str:
    """Return the path of ``mpirun``.

    Raises
    ------
    RuntimeError
        If there is none.
    """
    places = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    found = shutil.which("mpirun", path=places)
    if found is None:
        raise RuntimeError("there is no mpirun; `pip install mpich` brings one")
    return found


def start(command: list[str], threads: int) -> list[float]:
    """Return what the program prints."""
    environment = os.environ | {"NUMBA_NUM_THREADS": str(threads)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=True)
    seconds: list[float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def main() -> None:
    """Play rounds and print how long each took."""
    from p2pkm.network.world import connect
    from tests.benchmarks.arena import build

    n, rounds = map(int, sys.argv[1:])
    arena = build(n, 4, 2)
    seconds = arena.clock(rounds)
    arena.network.close()
    if connect().rank == 0:
        print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main()
