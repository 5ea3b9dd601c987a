"""Groups on the benchmark of two communities: ``python -m tests.benchmarks.groups [--seeds 12]``.

Two communities of 8 devices with mixtures of their own, joined by a few bridges. Score = cost of a device's centroids
on 400 test points of its mixture over that of the true centers, mean over the devices of a run; the table gives the
mean and the worst run. Found = runs whose groups are the communities; with the same mixture twice, runs with one group.
"""

import argparse
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np

import p2pkm
import topologies
from p2pkm.core.batch import Search, cluster
from p2pkm.kernels import numba as compiled

K = 4


def draw(second: str, bridges: int, seed: int) -> tuple[Any, Any, p2pkm.Shards]:
    """Return the benchmark, its graph and the points of the devices."""
    made = p2pkm.communities(second=second, seed=seed)
    return made, topologies.communities(16, bridges=bridges, seed=seed), p2pkm.Shards.deal(made.points, made.device)


def alone(made: Any, graph: Any, shards: p2pkm.Shards, seed: int) -> tuple[Any, Any]:
    """Run k-means at every device by itself, best of 5."""
    return _cluster_each(made, made.device, 5, seed), None


def central(made: Any, graph: Any, shards: p2pkm.Shards, seed: int) -> tuple[Any, Any]:
    """Run k-means on the points of each community, best of 20."""
    sets = _cluster_each(made, made.truth[made.device], 20, seed)
    return sets[made.truth], None


def _cluster_each(made: Any, owner: Any, starts: int, seed: int) -> Any:
    parts = [made.points[owner == i] for i in range(owner.max() + 1)]
    search = Search(K, 1, starts=starts)
    return np.array([cluster(compiled, seed, part, np.ones(len(part)), search)[0] for part in parts])


def fkm(made: Any, graph: Any, shards: p2pkm.Shards, seed: int) -> tuple[Any, Any]:
    """Run FKM through a server, which knows one mixture only."""
    result = p2pkm.simulate(p2pkm.FKM(K), None, shards, seed=seed, rounds=10, record_every=1000, baselines=False)
    return np.broadcast_to(result.server_centroids, (16, K, 2)), result


def peers(made: Any, graph: Any, shards: p2pkm.Shards, seed: int, *, method: Any) -> tuple[Any, Any]:
    """Run a method without a server."""
    result = p2pkm.simulate(method, graph, shards, seed=seed, record_every=1000, baselines=False)
    return result.centroids, result


METHODS: dict[str, Callable[..., Any]] = {
    "local only": alone,
    "FKM": fkm,
    "gtvmin": partial(peers, method=p2pkm.GTVMin(K)),
    "gtvmin, groups": partial(peers, method=p2pkm.GTVMin(K, groups="auto")),
    "gtvmin, groups, saturate": partial(peers, method=p2pkm.GTVMin(K, groups="auto", robust="saturate")),
    "treelloyd, groups": partial(peers, method=p2pkm.TreeLloyd(K, groups="auto")),
    "central per community": central,
}


def measure(name: str, second: str, bridges: int, seeds: range) -> str:
    """Return the row of a method."""
    scores, results, found = [], [], 0
    for seed in seeds:
        made, graph, shards = draw(second, bridges, seed)
        centroids, result = METHODS[name](made, graph, shards, seed)
        scores.append(made.score(centroids).mean())
        results += [] if result is None else [result.summary]
        truth = made.truth if second != "same" else np.zeros_like(made.truth)
        found += result is not None and np.array_equal(result.groups, truth)
    mean, worst = np.mean(scores), max(scores)
    row = f"{second:8} {bridges:7} {name:24} {mean:7.4f} {worst:7.4f}"
    if results:
        volume, wire, rounds = (np.mean([one[key] for one in results]) for key in ("bytes", "wire_bytes", "rounds"))
        row += f" {found if results[0]['groups'] else '-':>5} {volume / 1000:5.0f} {wire / 1000:5.0f} {rounds:6.0f}"
    return row


def main() -> None:
    """Print one row per mixture, number of bridges and method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--second", nargs="*", default=["fresh"])
    parser.add_argument("--bridges", nargs="*", type=int, default=[1, 4, 16])
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    print("second   bridges method                      mean   worst found    kB  wire rounds")
    for second, bridges, name in product(given.second, given.bridges, given.methods):
        print(measure(name, second, bridges, seeds), flush=True)


if __name__ == "__main__":
    main()
