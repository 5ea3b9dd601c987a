"""Cost of `treelloyd` from encoded rows over its cost from rows in real numbers, on data of many shapes.

``python -m tests.benchmarks.lean_start [case ...] [--seeds 12] [--first 0]`` prints for each case the mean and the
worst ratio of the costs at the end, the number of runs from encoded rows that end with fewer than k centroids, and the
bytes of both.
"""

import argparse
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits, load_wine

import p2pkm
import topologies
from p2pkm.data.partition import beta, dirichlet, iid
from tests.benchmarks.start_quality import mix

Data = tuple[Any, Any]  # points and their classes


class Case(NamedTuple):
    """Number of clusters and of devices, data by seed, their partition among the devices, and the graph."""

    k: int
    n: int
    draw: Callable[[int], Data]
    deal: Callable[[Data, int, int], Any] = lambda data, n, seed: iid(len(data[0]), n, seed=seed)
    graph: Callable[[int], Any] = topologies.ring


def skewed(alpha: float) -> Callable[[Data, int, int], Any]:
    """Return a Dirichlet partition."""
    return lambda data, n, seed: dirichlet(data[1], n, alpha=alpha, seed=seed)


def outlier(seed: int, far: float = 1e5) -> Data:
    """Return 16 clusters on a grid, and one point far away."""
    points, labels = p2pkm.grid16(points=200, seed=seed)
    return np.concatenate((np.full((1, 2), far), points[1:])), labels


def dominant(seed: int, d: int = 10, k: int = 100, times: float = 100.0) -> Data:
    """Return k clusters along one feature, the others of unit variance."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(k), 60)
    points = rng.normal(size=(len(labels), d))
    points[:, 0] += times * rng.uniform(size=k)[labels] * k / 10.0
    return points, labels


def line(seed: int, d: int = 20, k: int = 50) -> Data:
    """Return k clusters on a line through d dimensions, and noise of a thousandth of its length."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(k), 60)
    along = rng.uniform(0.0, 100.0, k)[labels] + 0.3 * rng.normal(size=len(labels))
    direction = rng.normal(size=d)
    return along[:, None] * direction / np.sqrt((direction**2).sum()) + 0.1 * rng.normal(size=(len(labels), d)), labels


def heavy(seed: int, df: float = 1.0) -> Data:
    """Return ten clusters with noise of Student's t distribution; of one degree of freedom, Cauchy's."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(10), 200)
    return 30.0 * rng.uniform(size=(10, 2))[labels] + rng.standard_t(df, size=(2000, 2)), labels


def nested(seed: int) -> Data:
    """Return four groups of 25 clusters, the groups a thousand times as far apart as their clusters."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(100), 40)
    centers = 1e4 * np.array([[0, 0], [0, 1], [1, 0], [1, 1]])[np.arange(100) // 25] + rng.uniform(0, 10, (100, 2))
    return centers[labels] + 0.2 * rng.normal(size=(4000, 2)), labels


def large_and_small(seed: int) -> Data:
    """Return one cluster of 5,000 points and 15 of 8 each."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(16), [5000, *15 * [8]])
    centers = 10.0 * np.stack(np.meshgrid(np.arange(4), np.arange(4)), axis=2).reshape(-1, 2)
    return centers[labels] + rng.normal(size=(len(labels), 2)), labels


def _grid(seed: int) -> Data:
    return p2pkm.grid16(points=200, seed=seed)


CASES = {
    "outlier": Case(17, 10, outlier),
    "outlier, 200 devices": Case(17, 200, outlier, graph=topologies.tree),
    "outlier at 1e12": Case(17, 10, lambda seed: outlier(seed, 1e12)),
    "dominant": Case(100, 10, dominant),
    "dominant, .3": Case(100, 10, dominant, skewed(0.3)),
    "line": Case(50, 10, line),
    "Cauchy": Case(50, 10, heavy),
    "Cauchy, .3": Case(50, 10, heavy, skewed(0.3)),
    "t, 2": Case(50, 10, lambda seed: heavy(seed, 2.0)),
    "wine, unscaled": Case(20, 10, lambda seed: load_wine(return_X_y=True)),
    "nested": Case(100, 10, nested),
    "5000 + 15 x 8, .1": Case(16, 10, large_and_small, skewed(0.1)),
    "grid16": Case(16, 10, _grid, lambda data, n, seed: beta(data[0], n, beta=0.1, seed=seed)),
    "digits, k = 50": Case(50, 10, lambda seed: load_digits(return_X_y=True), skewed(0.3)),
    "mix:50": Case(50, 10, lambda seed: mix(50, 2, seed), skewed(0.3)),
    "mix:50:8": Case(50, 10, lambda seed: mix(50, 8, seed), skewed(0.3)),
    "mix:100, 64 devices": Case(100, 64, lambda seed: mix(100, 2, seed), skewed(0.3), topologies.grid),
}


def measure(case: Case, seed: int) -> tuple[float, bool, int, int]:
    """Return the ratio of the costs, whether centroids are missing at the end, and the bytes of both runs."""
    data = case.draw(seed)
    shards = p2pkm.Shards.deal(data[0], case.deal(data, case.n, seed), devices=case.n)
    plain, lean = (
        p2pkm.simulate(p2pkm.TreeLloyd(case.k, init=init), case.graph(case.n), shards, seed=seed, baselines=False)
        for init in ("rows", "rows:lean=true")
    )
    ratio = float(lean.rounds[-1]["objective"] / plain.rounds[-1]["objective"])
    missing = bool(np.isinf(lean.centroids[0, :, 0]).any())
    return ratio, missing, plain.summary["wire_bytes"], lean.summary["wire_bytes"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    for name in options.cases:
        seeds = range(options.first, options.first + options.seeds)
        ratios, missing, plain, lean = np.array([measure(CASES[name], seed) for seed in seeds]).T
        sys.stdout.write(
            f"{name:22} {ratios.mean():8.4f} / {ratios.max():8.4f}  fewer than k: {int(missing.sum())} of {len(ratios)}"
            f"  {plain.mean() / 1000:.1f} kB in real numbers, {lean.mean() / 1000:.2f} encoded\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
