"""What does not grow with the points: a small run, the start of the program, a star's round, the look at a graph."""

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np

from tests.benchmarks.figure import Figure, of_trials, show, slopes
from tests.benchmarks.job import watch
from tests.benchmarks.ranks import find_launcher
from tests.benchmarks.samples import sample

_TRIALS, _PAIRS = 15, 7
# Parts of a run, by the functions that call everything in them.
_PARTS = {
    "record": "records", "send": "messages and their transforms", "_deliver": "delivery and ledger",
    "update": "updates", "initial_state": "updates", "_check_termination": "other parts of the round loop",
    "run_stage": "other parts of the round loop", "build_result": "result", "_complete": "result",
}  # fmt: skip
_IMPORTS = "import numpy, scipy.sparse, networkx, numba"
_RANK_IMPORTS = "import numpy; from mpi4py import MPI; MPI.COMM_WORLD.Barrier()"


def measure_simulate(quick: bool) -> list[Figure]:
    """Return the seconds of a default run of 16 devices on a ring, its baselines included, when all is warm."""
    import p2pkm

    graph, shards = _deal()

    def run() -> None:
        p2pkm.simulate(p2pkm.GTVMin(16), graph, shards, progress=False)

    seconds = [1e3 * each for each in _clock(run, 2 if quick else _TRIALS)]
    what = "simulate, 16 devices on a ring, 16 clusters, default start, baselines, warm"
    return [
        of_trials(what, seconds, ("ms", "at most", 25.0), "compiled kernels, processor time"),
        _measure_plain(what, run, 2 if quick else _TRIALS),
    ]


def measure_script(quick: bool) -> list[Figure]:
    """Return the processor time of a run without baselines, over 100 seeds, and its shares."""
    import p2pkm

    graph, shards = _deal()
    method, seeds = p2pkm.GTVMin(16, coupling="strong"), iter(range(1000))

    def run() -> None:
        p2pkm.simulate(method, graph, shards, seed=next(seeds), baselines=False, progress=False)

    count = 5 if quick else 100
    seconds = [1e3 * each for each in _clock(run, count)]
    what = f"simulate, 16 devices on a ring, 16 clusters, coupling strong, no baselines, {count} seeds"
    shares = sample(lambda: [run() for _ in range(count)], _PARTS)
    return [
        of_trials(what, seconds, ("ms", "", 0.0), "compiled kernels, processor time of a run"),
        _measure_plain(what, run, 5 if quick else 20),
        *(Figure(f"{what}: {part}", 100.0 * share, "%") for part, share in shares.items()),
    ]


def _measure_plain(what: str, run: Callable[[], None], trials: int) -> Figure:
    """Return the processor time of a run with the kernels that it has before they are compiled."""
    with patch.dict(os.environ, NUMBA_DISABLE_JIT="1"):
        seconds = [1e3 * each for each in _clock(run, trials)]
    return of_trials(
        f"{what}: kernels not compiled", seconds, ("ms", "", 0.0), "NumPy kernels, processor time of a run"
    )


def _deal() -> tuple[Any, Any]:
    """Return the graph and the points of the small run, when the kernels are loaded as after a few runs."""
    import p2pkm
    import topologies
    from p2pkm.kernels import load

    load()
    points, classes = p2pkm.grid16(points=50, seed=0)
    device = p2pkm.partition.dirichlet(classes, 16, alpha=0.3, by="class", seed=0)
    return topologies.ring(16), p2pkm.Shards.deal(points, device, devices=16, labels=classes)


def measure_start(quick: bool) -> list[Figure]:
    """Return how many times longer a short command takes in one process than the imports that it could not avoid."""
    run = [sys.executable, "-m", "p2pkm", "--graph", "ring", "--data", "grid16", "--no-plot", "--force", "--out"]
    imports = [sys.executable, "-c", _IMPORTS]
    with tempfile.TemporaryDirectory() as folder:
        pairs = [(watch([*run, f"{folder}/run"])[0], watch(imports)[0]) for _ in range(2 if quick else _PAIRS + 1)][1:]
    own, other = (median(times) for times in zip(*pairs, strict=True))
    what = f"python -m p2pkm --graph ring --data grid16 --no-plot, one process, over {_IMPORTS}"
    return [of_trials(what, [a / b for a, b in pairs], ("x", "at most", 1.3), f"{show(own)} against {show(other)}")]


def measure_program(quick: bool) -> list[Figure]:
    """Return how many times longer a short command takes on 16 ranks than imports that every rank needs."""
    ranks = [find_launcher(), "-n", "4" if quick else "16", sys.executable]
    run = [*ranks, "-m", "p2pkm", "--graph", "ring", "--data", "grid16", "--no-plot", "--force", "--out"]
    floor = [*ranks, "-c", _RANK_IMPORTS]
    with tempfile.TemporaryDirectory() as folder:
        pairs = [(watch([*run, f"{folder}/run"])[0], watch(floor)[0]) for _ in range(2 if quick else _PAIRS + 1)][1:]
    program, imports = (median(times) for times in zip(*pairs, strict=True))
    command = f"mpirun -n {ranks[2]} python -m p2pkm --graph ring --data grid16 --no-plot"
    what = f"{command} over import of numpy and MPI, and a barrier"
    note = f"{show(program)} against {show(imports)}"
    return [of_trials(what, [a / b for a, b in pairs], ("x", "at most", 2.5), note)]


def measure_star(quick: bool) -> list[Figure]:
    """Return the processor time of a round of FKM, the slope between one and six rounds."""
    import p2pkm

    n, rounds = (200 if quick else 10_000), 5
    rng = np.random.default_rng(0)
    points = rng.uniform(-10.0, 10.0, (4, 2))[rng.integers(4, size=100 * n)] + rng.standard_normal((100 * n, 2))
    shards = p2pkm.Shards.deal(points, np.repeat(np.arange(n), 100), devices=n)

    def run(rounds: int) -> None:
        p2pkm.simulate(p2pkm.FKM(4), None, shards, rounds=rounds, all_rounds=True, baselines=False,
                       record_every=1000, progress=False)  # fmt: skip

    run(1)
    few, many = [], []
    for _ in range(3):
        few += _clock(lambda: run(1), 1)
        many += _clock(lambda: run(1 + rounds), 1)
    what = f"round of FKM, {n:,} clients of 100 points, k = 4, d = 2"
    taken = [1e3 * each for each in slopes(few, many, rounds)]
    return [of_trials(what, taken, ("ms", "at most", 150.0), "clients and server")]


def measure_describe(quick: bool) -> list[Figure]:
    """Return the seconds of `topology describe` for a very large small world."""
    n = 20_000 if quick else 1_000_000
    graph = ["topology", "describe", "small-world:degree=6", "--devices", str(n)]
    seconds, peak = watch([sys.executable, "-m", "p2pkm", *graph])
    note = f"{peak / 1e9:.2f} GB, start of the program included"
    return [Figure(f"topology describe, small world of {n:,} devices", seconds, "s", "at most", 5.0, note)]


def measure_exchange(quick: bool) -> list[Figure]:
    """Return how many times more an exchange costs than a bare loop of persistent requests.

    Processor time for the small tables of sixteen ranks, which sleep while they wait; wall time on two.
    """
    figures = []
    for ranks, tables in ((16, ("4 x 2",)), (2, ("64 x 128", "64 x 784"))):
        command = [find_launcher(), "-n", str(ranks), sys.executable, "-m", "tests.benchmarks.exchange", "--json"]
        done = subprocess.run([*command, *(["--repeats", "20", "--trials", "3"] if quick else [])],
                              stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=True)  # fmt: skip
        rows = {row["table"]: row for row in json.loads(done.stdout.splitlines()[-1])}
        for name in tables:
            row, clock, target = rows[name], "cpu" if ranks > 2 else "wall", 2.0 if ranks > 2 else 1.2
            what = f"exchange of tables of {name} on {ranks} ranks over a bare loop, {clock} time"
            note = f"{row[clock]:.1f} us against {row['bare_' + clock]:.1f} us"
            figures.append(Figure(what, row["ratio_" + clock], "x", "at most", target, note))
    return figures


def _clock(work: Callable[[], Any], trials: int) -> list[float]:
    """Return the processor seconds of each of so many calls, after one that is not counted."""
    work()
    gc.collect()
    seconds = []
    for _ in range(trials):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return seconds
