"""FKM by p2pkm itself: makes what the peers are given, too. Run by `tests.benchmarks.peers.fkm`."""

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import p2pkm
from p2pkm.core.batch import Floats
from p2pkm.engine.build_batch import build_batch
from p2pkm.kernels import select_kernels
from p2pkm.kernels.streams import shared_key
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.local import LocalNetwork
from tests.benchmarks.peers.fkm_twin import Spent, tell

_EACH, _K, _D, _SEED = 100, 4, 2, 0
_UPDATES, _TRIALS = 200_000, 3  # client-updates that are measured, how many times
_LONGEST = 1000  # rounds of a measurement: those of few clients take as long as those of a hundred


def deal(n: int) -> p2pkm.Shards:
    """Return 100 points for each of so many clients, of four Gaussians in the plane."""
    rng = np.random.default_rng(_SEED)
    means = rng.uniform(-10.0, 10.0, (_K, _D))
    points = means[rng.integers(_K, size=n * _EACH)] + rng.standard_normal((n * _EACH, _D))
    return p2pkm.Shards.deal(points, np.repeat(np.arange(n), _EACH), devices=n)


def write(folder: Path, shards: p2pkm.Shards) -> None:
    """Write points and first messages, as FKM's clients send them."""
    shards, star = shards.with_hub(), Topology.star(shards.n)
    network = LocalNetwork(place(star, 0, 1))
    devices = build_batch(star, shards, network, _SEED, select_kernels(1, 1, 0))
    values, rows, _ = p2pkm.FKM(_K).report(devices, np.full((star.n, _K, _D), np.inf))
    tables: Floats = np.where(np.arange(_K)[:, None] < rows[:, None, None], values, np.inf)
    np.save(folder / "points.npy", shards.points.reshape(star.clients, _EACH, _D))
    np.save(folder / "tables.npy", tables[: star.clients])
    (folder / "key.json").write_text(json.dumps(shared_key(_SEED)))


def main() -> None:
    """Write the task for so many clients and rounds, or run it."""
    folder, n, rounds = Path(sys.argv[1]), *map(int, sys.argv[2:4])
    if sys.argv[4:]:
        write(folder, deal(n))
        return
    points = np.load(folder / "points.npy")
    shards = p2pkm.Shards.deal(points.reshape(-1, _D), np.repeat(np.arange(n), _EACH), devices=n)
    served = _clock_server()

    def run(t: int) -> Floats:
        result = p2pkm.simulate(p2pkm.FKM(_K, server_n_init=1), None, shards, rounds=t, seed=_SEED, baselines=False,
                                record_every=t, quantize=None, all_rounds=True)  # fmt: skip
        return np.asarray(result.server_centroids)

    packages = "p2pkm", "numpy", "numba"
    for t in range(1, rounds + 1):
        tell(t, run(t), packages, Spent(0, 0.0, 0.0))
    many = max(min(_UPDATES // n, _LONGEST), rounds)  # the clock is too coarse for a few
    slopes = [_slope(partial(run, 1), partial(run, 1 + many), served) for _ in range(_TRIALS)]
    clients, server = zip(*slopes, strict=True)
    tell(rounds, run(rounds), packages, Spent(many * n, median(clients), median(server)))


def _clock_server() -> list[float]:
    """Return a list that gets the CPU seconds of each call of the server's k-means."""
    served, aggregate = [], p2pkm.FKM.aggregate

    def timed(*arguments: Any) -> Floats:
        began = time.process_time()
        found = aggregate(*arguments)
        served.append(time.process_time() - began)
        return found

    p2pkm.FKM.aggregate = timed  # type: ignore[method-assign, assignment]
    return served


def _slope(few: Callable[[], Any], many: Callable[[], Any], served: list[float]) -> tuple[float, float]:
    """Return the CPU seconds of clients and server that `many` takes more than `few`."""
    taken = []
    for work in (few, many):
        served.clear()
        began = time.process_time()
        work()
        taken.append((time.process_time() - began, sum(served)))
    (all_few, server_few), (all_many, server_many) = taken
    server = server_many - server_few
    return all_many - all_few - server, server


if __name__ == "__main__":
    main()
