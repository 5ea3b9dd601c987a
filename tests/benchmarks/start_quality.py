"""How good a start is: pooled cost over the best of 20 central runs, before and after Lloyd on the pooled points.

``python -m tests.benchmarks.start_quality [case ...] [--seeds 12] [--init rows,global,...]`` prints a line per case and
start: mean and worst ratio of the start, of the Lloyd point that it leads to, in how many runs that is below 1, and the
bytes that were sent.
"""

import argparse
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, load_wine

import p2pkm
import topologies
from p2pkm.data.partition import dirichlet, iid
from p2pkm.kernels import numba as kernels

Points = Any


def mix(k: int, d: int, seed: int) -> tuple[Points, Points]:
    """Return 60 points of each of k unit Gaussians, centers uniform in a cube of side 3 k^(1/d), and their labels."""
    rng = np.random.default_rng(seed)
    centers, labels = rng.uniform(0.0, 3.0 * k ** (1.0 / d), (k, d)), np.repeat(np.arange(k), 60)
    return centers[labels] + rng.normal(size=(len(labels), d)), labels


CASES: dict[str, tuple[int, int, Callable[[int], tuple[Points, Points]], Callable[[int], Any], float | None]] = {
    "mix:50": (50, 10, lambda seed: mix(50, 2, seed), topologies.ring, 0.3),
    "mix:50, 32 devices": (50, 32, lambda seed: mix(50, 2, seed), topologies.grid, 0.3),
    "mix:100": (100, 16, lambda seed: mix(100, 2, seed), lambda n: topologies.small_world(n, degree=4, seed=0), 0.3),
    "mix:50:8": (50, 10, lambda seed: mix(50, 8, seed), topologies.ring, 0.3),
    "mix:100, 64 devices": (100, 64, lambda seed: mix(100, 2, seed), topologies.grid, 0.3),
    "digits, k = 50": (50, 10, lambda seed: load_digits(return_X_y=True), topologies.ring, 0.3),
    "wine, k = 3": (3, 10, lambda seed: load_wine(return_X_y=True), topologies.ring, None),
}


def measure(case: str, init: str, seed: int) -> tuple[float, float, int]:
    """Return the ratios of start and Lloyd point, and the bytes."""
    k, n, draw, graph, alpha = CASES[case]
    points, labels = draw(seed)
    owner = iid(len(points), n, seed=seed) if alpha is None else dirichlet(labels, n, alpha=alpha, seed=seed)
    shards = p2pkm.Shards.deal(points, owner, devices=n)
    # With a coupling that is given no choice of the coupling adds its bytes to those of the start.
    method = p2pkm.GTVMin(k, init=init, coupling=30)
    start = p2pkm.simulate(method, graph(n), shards, rounds=0, seed=seed, baselines=False)
    central = KMeans(k, n_init=20, tol=1e-8, max_iter=1000, random_state=seed).fit(points).inertia_
    rows, whole, none = np.array([k]), np.array([0, len(points)]), np.zeros(0)
    pooled = np.ascontiguousarray(points, float), none, whole, start.centroids[:1].copy(), rows
    costs = [kernels.refine(*pooled, limit, np.zeros(1), False)[2][0] / central for limit in (0, 1000)]
    spent = [record["wire_bytes"] for record in start.rounds if record["stage"] != "gtvmin"][-1]
    return costs[0], costs[1], spent


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--init", default="rows;rows:lean=true;rows:least=2,lean=true;global")
    options = parser.parse_args()
    for case in options.cases:
        for init in options.init.split(";"):
            found = np.array([
                measure(case, init, seed) for seed in range(options.first, options.first + options.seeds)
            ])
            start, end, spent = found.T
            sys.stdout.write(
                f"{case:20} {init:26} start {start.mean():.4f} / {start.max():.4f}  Lloyd {end.mean():.4f} / "
                f"{end.max():.4f}  below 1: {(end < 1).sum()} of {len(end)}  {spent.mean() / 1000:.1f} kB\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
