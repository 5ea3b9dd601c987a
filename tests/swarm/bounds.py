"""Tiny random runs of the methods whose averaging has a bound: `python -m tests.swarm.bounds --number 10000`."""

import argparse
import sys
from collections import Counter
from itertools import count, islice
from random import Random
from typing import Any

import networkx as nx
import numpy as np

import p2pkm

METHODS = ("consensus", "pushsum", "tracking")


def draw(seed: int) -> tuple[str, nx.Graph, p2pkm.Shards, dict[str, Any]]:
    """Draw method, graph (also in several parts, also with link weights), points and options of a run."""
    rng = Random(seed)
    n = rng.randint(2, 12)
    graph = nx.gnp_random_graph(n, rng.uniform(0.1, 1.0), seed=seed)
    if rng.random() < 0.8:
        # A random tree makes it connected.
        graph.add_edges_from((i, rng.randrange(i)) for i in range(1, n))
    if rng.random() < 0.4:
        for _, _, data in graph.edges(data=True):
            data["weight"] = 10.0 ** rng.uniform(-2, 2)
    values = np.random.default_rng(seed)
    k, d = rng.randint(1, 4), rng.randint(1, 3)
    points = values.normal(size=(rng.randint(max(2, k), 40), d))
    if rng.random() < 0.3:
        points = np.round(points)
    points = (points + rng.choice((0.0, 0.0, 10.0, 1e3))) * 10.0 ** rng.choice((-6, 0, 0, 0, 6))
    dtype = rng.choice(("float64", "float64", "float32"))
    owners = (
        values.integers(0, n, len(points)) if rng.random() < 0.7 else values.integers(0, max(1, n // 3), len(points))
    )
    method = f"{rng.choice(METHODS)}:gossips={rng.choice((2, 3, 4, 7, 12, 40))}"
    options = {"clusters": k, "rounds": rng.randint(1, 5), "seed": seed, "record_every": rng.choice((1, 1, 2))}
    start = values.normal(size=(k, d)) * float(points.std()) + points.mean(axis=0)
    return (
        method,
        graph,
        p2pkm.Shards.deal(points, owners, devices=n, dtype=dtype),
        options | {"start": np.tile(start, (n, 1, 1))},
    )


def play(seed: int) -> dict[str, Any]:
    """Play the run of a seed and return its summary."""
    method, graph, shards, options = draw(seed)
    fixed = {"baselines": False, "allow_disconnected": True, "progress": False, "all_rounds": True}
    return p2pkm.simulate(method, graph, shards, **options, **fixed).summary


def main() -> int:
    """Play runs; print each that breaks its bound, how many were measured, and the largest slack."""
    parser = argparse.ArgumentParser(prog="python -m tests.swarm.bounds", description=__doc__)
    parser.add_argument("--number", type=int, default=200, help="runs with a measured bound (200)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first one; the others follow (0)")
    given = parser.parse_args()
    slacks, without, broken = [], Counter[str](), 0
    summaries = ((seed, play(seed)) for seed in count(given.seed))
    for seed, summary in islice(summaries, given.number):
        if summary["bound_slack"] is None:
            without[summary["algorithm"]] += 1
            continue
        slacks.append(summary["bound_slack"])
        if slacks[-1] > 1.0:
            broken += 1
            print(f"seed {seed}: {summary['bound_measured']} above {summary['bound']}", flush=True)
    quantiles = np.quantile(slacks, (0.0, 0.1, 0.5, 0.9, 1.0)).round(4).tolist()
    print(f"{len(slacks):,} measured, {sum(without.values()):,} without links, {broken} broken; slack {quantiles}")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
