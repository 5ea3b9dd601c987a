"""Costs of k-means on pooled points by others over those of the central baseline, which is what "ratio 1" means.

Run ``python -m tests.benchmarks.peers.quality [case ...] [--seeds 10] [--by WORD ...]`` in an environment of its own
with ``scikit-learn numba networkx bkmeans flspp hgmeans``; what is not installed is left out. All but hgmeans, whose
seed is fixed, get the run's seed; all but scikit-learn's ``n_init`` and hgmeans' iterations have the defaults of their
packages. The cost is worked out in one way, from the centroids or labels that each returns. Seconds are of one thread.
The best of all in a run is what "baseline over best" refers to.
"""

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from statistics import mean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans, kmeans_plusplus
from threadpoolctl import threadpool_limits

import p2pkm
from p2pkm.core.batch import Search, Stream, cluster
from p2pkm.kernels import numba as kernels
from p2pkm.kernels.streams import shared_key
from p2pkm.methods.building_blocks.breathing import search_centroids
from tests.benchmarks.start_quality import mix

Points = NDArray[np.float64]
_STARTS = 20  # of the central baseline
_BREATH, _SEEDINGS = 5, 1

CASES: dict[str, tuple[int, Callable[[int], Points]]] = {  # k, points of a seed
    "grid16": (16, lambda seed: p2pkm.grid16(points=50, seed=seed)[0]),
    "slike": (15, lambda seed: p2pkm.slike(seed=seed)[0]),
    "mix of 50": (50, lambda seed: mix(50, 2, seed)[0]),
    "mix of 100": (100, lambda seed: mix(100, 2, seed)[0]),
    "unbalanced": (20, lambda seed: unbalanced(20, seed)),
    "digits, k = 20": (20, lambda seed: p2pkm.digits()[0]),
    "digits, k = 50": (50, lambda seed: p2pkm.digits()[0]),
}


def unbalanced(k: int, seed: int) -> Points:
    """Return 3,000 points of k unit Gaussians, the next one having 0.8 times as many, means uniform in a square."""
    rng = np.random.default_rng(seed)
    sizes = 0.8 ** np.arange(k)
    labels = np.repeat(np.arange(k), np.maximum((3000 * sizes / sizes.sum()).astype(int), 5))
    return rng.uniform(0.0, 3.0 * k**0.5, (k, 2))[labels] + rng.standard_normal((len(labels), 2))


def baseline(points: Points, k: int, seed: int) -> Points:
    """Return the centroids of the central baseline, as `p2pkm.metrics.cost_ratio` finds them."""
    found = cluster(kernels, shared_key(seed), points, np.ones(len(points)), Search(k, Stream.CENTRAL, _STARTS))
    return found[0]


def breathing(points: Points, k: int, seed: int) -> Points:
    """Return those of p2pkm's own breathing k-means from one seeding."""
    ones = np.ones(len(points))
    return search_centroids(kernels, shared_key(seed), points, ones, k, most=_BREATH, seedings=_SEEDINGS)[0]


def breathing_baseline(points: Points, k: int, seed: int) -> Points:
    """Return where the central baseline's centroids come to by breathing."""
    start, ones = baseline(points, k, seed), np.ones(len(points))
    return kernels.breathe(points, ones, start, _BREATH, shared_key(seed), 0)[0]


def by_sklearn(points: Points, k: int, seed: int) -> Points:
    """Run scikit-learn's KMeans, best of 10 greedy seedings."""
    return KMeans(k, n_init=10, random_state=seed).fit(points).cluster_centers_


def by_seeds(points: Points, k: int, seed: int) -> Points:
    """Return scikit-learn's greedy k-means++ seeds as they are."""
    return kmeans_plusplus(points, k, random_state=seed)[0]


def by_bkmeans(points: Points, k: int, seed: int) -> Points:
    """Run breathing k-means by its author."""
    from bkmeans import BKMeans  # type: ignore[import-not-found]

    return BKMeans(n_clusters=k, random_state=seed).fit(points).cluster_centers_


def by_flspp(points: Points, k: int, seed: int) -> Points:
    """Run FLS++: seeds that are exchanged one by one."""
    from flspp import FLSpp  # type: ignore[import-not-found]

    return FLSpp(n_clusters=k, random_state=seed).fit(points).cluster_centers_


def by_hgmeans(points: Points, k: int, seed: int, most: int) -> Points:
    """Run the genetic algorithm HG-means; its seed is fixed, so the order of points stands for one."""
    import hgmeans  # type: ignore[import-not-found]

    drawn = points[np.random.default_rng(seed).permutation(len(points))]
    with _silent():
        labels = hgmeans.PyHGMeans().run(drawn.tolist(), [0] * len(drawn), 10, most, 1, [k])[0]
    counts = np.bincount(labels, minlength=k)
    sums = np.stack([np.bincount(labels, column, k) for column in drawn.T], axis=1)
    return sums[counts > 0] / counts[counts > 0, None]


RIVALS: dict[str, tuple[str, Callable[[Points, int, int], Points]]] = {  # package it needs
    "p2pkm, breathing of one seeding": ("numba", breathing),
    "p2pkm, baseline and then breathing": ("numba", breathing_baseline),
    "scikit-learn, greedy k-means++ alone": ("sklearn", by_seeds),
    "scikit-learn, KMeans(n_init=10)": ("sklearn", by_sklearn),
    "bkmeans": ("bkmeans", by_bkmeans),
    "flspp": ("flspp", by_flspp),
    "hgmeans, 100 iterations": ("hgmeans", partial(by_hgmeans, most=100)),
    "hgmeans, 1,000 iterations": ("hgmeans", partial(by_hgmeans, most=1000)),
}


@contextmanager
def _silent() -> Iterator[None]:
    """Send what compiled code prints nowhere."""
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    sys.stdout.flush()
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def price(points: Points, centroids: Points) -> float:
    """Return the sum of squared distances to the nearest centroid."""
    whole, real = np.array([0, len(points)]), np.ascontiguousarray(centroids[np.isfinite(centroids[:, 0])])
    costs, _ = kernels.evaluate_costs(points, np.zeros(0), whole, np.zeros(0, np.int64), 0, real[None])  # type: ignore[no-untyped-call]
    return float(costs.sum())


def measure(case: str, seeds: int, words: list[str]) -> dict[str, list[tuple[float, float]]]:
    """Return cost and seconds per seed of the baseline and of each rival with one of the words in its name."""
    k, draw = CASES[case]
    chosen = {name: run for name, (package, run) in RIVALS.items() if find_spec(package)}
    runs = {"p2pkm, central baseline": baseline} | {
        name: run for name, run in chosen.items() if any(word in name for word in words)
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for seed in range(seeds):
        points = np.ascontiguousarray(draw(seed))
        for name, run in runs.items():
            began = time.perf_counter()
            centroids = run(points, k, seed)
            taken = time.perf_counter() - began
            found[name].append((price(points, centroids), taken))
    return found


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--by", nargs="+", default=[""], help="words in the names of those to run")
    given = parser.parse_args()
    names = "p2pkm", "scikit-learn", "bkmeans", "flspp", "hgmeans", "numba", "numpy"
    print(", ".join(f"{name} {_find_version(name)}" for name in names))
    print("\n| points | k-means by | cost over the baseline's: mean | least | worst | lower by over 0.1 % | seconds |")
    print("|---|---|---|---|---|---|---|", flush=True)
    baseline(p2pkm.grid16(points=50)[0], 16, 0)  # compiles
    for case in given.cases:
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = measure(case, given.seeds, given.by)
        costs = {name: np.array([cost for cost, _ in pairs]) for name, pairs in found.items()}
        ours, best = costs["p2pkm, central baseline"], np.min(list(costs.values()), axis=0)
        for name, pairs in found.items():
            ratio, taken = costs[name] / ours, median(seconds for _, seconds in pairs)
            lower = f"{int((ratio < 0.999).sum())} of {len(ratio)}"
            row = f"{mean(ratio):.4f} | {min(ratio):.4f} | {max(ratio):.4f} | {lower} | {taken:.3f}"
            print(f"| {case} | {name} | {row} |")
        over = ours / best
        print(f"| {case} | baseline over best | {mean(over):.4f} | {min(over):.4f} | {max(over):.4f} | | |", flush=True)


def _find_version(name: str) -> Any:
    try:
        return p2pkm.__version__ if name == "p2pkm" else version(name)
    except PackageNotFoundError:
        return "(not installed)"


if __name__ == "__main__":
    main()
