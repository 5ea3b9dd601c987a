"""What privacy costs: the cost ratio of `private` over data, trust, number of devices and epsilon, and a rule of thumb.

    python -m tests.benchmarks.privacy [table | rule] [--seeds 10]

Ratio: cost on all points over the best of 20 central k-means; mean over seeds, standard error in brackets. `alone` is
trust=none, `central` trust=server. The table is the one of docs/privacy.md.
"""

import argparse
import json
import time

import numpy as np
from sklearn.cluster import KMeans

import p2pkm
import topologies
from p2pkm.data.sources import digits

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
WHO = {"central": ("server", 16), "masks 16": ("masks", 16), "alone 16": ("none", 16), "alone 64": ("none", 64),
       "alone 256": ("none", 256)}  # fmt: skip
DATA = {
    "grid16, 3,200": (200, ("central", "masks 16", "alone 16", "alone 64"), 10),
    "grid16, 12,800": (800, ("central", "masks 16", "alone 16", "alone 64"), 10),
    "digits": (0, ("central", "masks 16", "alone 16", "alone 64"), 10),
    "grid16, 100,000": (6250, ("central", "masks 16", "alone 16", "alone 256"), 5),
}
RULE = ((8, 2), (32, 2), (16, 5), (8, 10))  # k, d


def draw(points, seed):
    """Return points, k and a radius that is publicly known: 16 corners of a grid, or digits in ten components."""
    if points:
        return p2pkm.grid16(points=points, seed=seed)[0], 16, 30.0
    return digits(components=10)[0], 10, 100.0


def corners(k, d, each, seed):
    """Return clusters of equal size with variance 1 around centers that are well apart in a ball, and its radius."""
    rng, centers, radius = np.random.default_rng(seed), np.zeros((0, d)), 6.0 * k ** (1.0 / d)
    while len(centers) < k:
        one = rng.normal(size=d)
        one *= radius * rng.random() ** (1.0 / d) / np.linalg.norm(one)
        if not len(centers) or np.linalg.norm(centers - one, axis=1).min() > 5.0:
            centers = np.vstack((centers, one))
    return np.repeat(centers, each, axis=0) + rng.normal(size=(k * each, d)), 3.0 * radius


def price(X, centroids):
    return ((X[:, None] - centroids) ** 2).sum(axis=2).min(axis=1).sum() if len(X) < 50_000 else sum(
        price(part, centroids) for part in np.array_split(X, len(X) // 20_000))  # fmt: skip


def baseline(X, k):
    return KMeans(k, n_init=20, random_state=0).fit(X).inertia_


def run(X, k, radius, trust, devices, epsilon, seed):
    """Return the centroids of a run; masks on a ring, else a star, which has the same totals."""
    owner = np.random.default_rng(1000 + seed).integers(0, devices, len(X))
    shards = p2pkm.Shards.deal(X, owner, devices=devices)
    graph = topologies.ring(devices) if trust == "masks" else topologies.star(devices)
    method = p2pkm.Private(k, epsilon=epsilon, radius=radius, trust=trust)
    result = p2pkm.simulate(method, graph, shards, seed=seed, baselines=False, record_every=1000)
    return result.centroids[0]


def table(seeds):
    for name, (points, who, most) in DATA.items():
        ratios = {one: [] for one in who}
        for seed in range(min(seeds, most)):
            X, k, radius = draw(points, seed)
            best = baseline(X, k)
            for one in who:
                trust, devices = WHO[one]
                ratios[one].append([price(X, run(X, k, radius, trust, devices, eps, seed)) / best for eps in EPSILONS])
        for one, found in ratios.items():
            found = np.array(found)
            error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
            cells = [f"{m:.3f} ({e:.3f})" for m, e in zip(found.mean(axis=0), error, strict=True)]
            print(f"| {name} | {one} | {' | '.join(cells)} |", flush=True)


def rule(seeds):
    """Find the points per cluster at which the ratio is 1.05 at epsilon 1, between powers of sqrt(2)."""
    for k, d in RULE:
        before = None
        for each in np.rint(25.0 * 2.0 ** (np.arange(16) / 2)).astype(int).tolist():
            found = []
            for seed in range(seeds):
                X, radius = corners(k, d, each, seed)
                found.append(price(X, run(X, k, radius, "server", 16, 1.0, seed)) / baseline(X, k))
            ratio = float(np.mean(found))
            if ratio < 1.05:
                break
            before = each, ratio
        low, high = before or (each, ratio), (each, ratio)
        share = 0.0 if low[1] == high[1] else np.log((low[1] - 1) / 0.05) / np.log((low[1] - 1) / (high[1] - 1))
        around = ", ".join(f"{value:.3f} at {count}" for count, value in (low, high))
        print(f"| {k} | {d} | {low[0] * (high[0] / low[0]) ** share:.0f} | {around} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("table", "rule"), default="table", nargs="?")
    parser.add_argument("--seeds", type=int, default=10)
    asked, began = parser.parse_args(), time.perf_counter()
    {"table": table, "rule": rule}[asked.what](asked.seeds)
    print(json.dumps({"seconds": round(time.perf_counter() - began, 1)}))
