"""Groups on the benchmark of two communities: ``python -m tests.benchmarks.groups [--seeds 12]``.

Two communities of 8 devices with mixtures of their own, joined by a few bridges. Score = cost of a device's centroids
on 400 test points of its mixture over that of the true centers, mean over the devices of a run; the table gives the
mean and the worst run. Found = runs whose groups are the communities; with the same mixture twice, runs with one group.

``--alike`` counts runs with more than one group among devices that have the same mixture in uneven shares: number of
devices x Dirichlet weights x points of a device.

``--cases`` measures other numbers of groups, sizes, shifts, skews and devices on a ring: G mixtures, drawn as in
`p2pkm.communities`, for devices dealt to groups at random.
"""

import argparse
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

import p2pkm
import topologies
from p2pkm.core.batch import Search, cluster
from p2pkm.data.random import draw_separated
from p2pkm.data.synthetic_communities import Communities
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


class Case(NamedTuple):
    """Sizes of the groups; shift of every next mixture, None: drawn anew; Dirichlet weights of the clusters; points."""

    sizes: tuple[int, ...]
    shift: float | None = None
    skew: float = 2.0
    k: int = K
    points: int = 24


CASES = {
    "2 groups": Case((8, 8)), "3 groups": Case((8, 8, 8)), "4 groups, k = 6": Case((8, 8, 8, 8), k=6),
    "12 + 4 devices": Case((12, 4)), "shift 3": Case((8, 8), 3.0), "shift 2": Case((8, 8), 2.0),
    "skew .5": Case((8, 8), skew=0.5), "skew .2": Case((8, 8), skew=0.2),
    "32 devices, skew .3": Case((16, 16), skew=0.3),
    "same": Case((8, 8), 0.0), "same, skew .5": Case((8, 8), 0.0, 0.5), "same, skew .2": Case((8, 8), 0.0, 0.2),
    "same, skew .1": Case((8, 8), 0.0, 0.1), "same, skew .1, 100 points": Case((8, 8), 0.0, 0.1, points=100),
    "2 groups, 6 points": Case((8, 8), points=6), "same, 6 points": Case((8, 8), 0.0, points=6),
    "same, 12 points": Case((8, 8), 0.0, points=12),
}  # fmt: skip


def build(case: Case, seed: int) -> tuple[Any, p2pkm.Shards]:
    """Return the benchmark of a case, and the points of its devices."""
    rng, k = np.random.default_rng([seed, 7]), case.k
    sets = [draw_separated(rng, k, 2, side=16.0 if k == K else 20.0, separation=5.0)]
    for _ in case.sizes[1:]:
        way, drawn = rng.normal(size=2), draw_separated(rng, k, 2, side=16.0 if k == K else 20.0, separation=5.0)
        sets.append(drawn if case.shift is None else sets[-1] + case.shift * way / np.linalg.norm(way))
    truth = rng.permutation(np.repeat(np.arange(len(sets)), case.sizes))
    centers, n = np.stack(sets)[truth], len(truth)
    weights = rng.dirichlet([case.skew] * k, n)
    labels = np.array([rng.choice(k, case.points, p=share) for share in weights])
    points = np.concatenate([centers[i][labels[i]] + rng.normal(size=(case.points, 2)) for i in range(n)])
    tests = centers[:, np.arange(400) % k] + rng.normal(size=(n, 400, 2))
    device = np.repeat(np.arange(n), case.points)
    made = Communities(points, labels.ravel(), device, truth, centers, tests)
    return made, p2pkm.Shards.deal(points, device)


def measure_case(name: str, seeds: range) -> str:
    """Return the row of a case: mean and worst score of treelloyd's groups, in how many runs they are exact."""
    case, scores, found, numbers = CASES[name], [], 0, []
    for seed in seeds:
        made, shards = build(case, seed)
        truth = np.zeros_like(made.truth) if case.shift == 0.0 else made.truth
        method = p2pkm.TreeLloyd(case.k, groups="auto")
        result = p2pkm.simulate(method, topologies.ring(len(truth)), shards, seed=seed, record_every=1000,
                                baselines=False)  # fmt: skip
        scores.append(made.score(result.centroids).mean())
        pairs = {*zip(result.groups.tolist(), truth.tolist(), strict=True)}
        found += len(pairs) == len(set(truth.tolist())) == len({group for group, _ in pairs})
        numbers.append(len(set(result.groups.tolist())))
    right = sum(number == (1 if case.shift == 0.0 else len(case.sizes)) for number in numbers)
    return f"{name:26} {np.mean(scores):7.4f} {max(scores):7.4f} {found:6} {right:6} of {len(seeds)}"


ALIKE = tuple(product((4, 6, 8, 12, 16, 32), (0.1, 0.3), (24, 100, 400)))  # devices, Dirichlet weights, points


def measure_alike(n: int, skew: float, points: int, seeds: range) -> str:
    """Return the row of devices that are alike: runs with more than one group, mean and worst score."""
    case, several, scores = Case((n,), skew=skew, points=points), 0, []
    for seed in seeds:
        made, shards = build(case, seed)
        method = p2pkm.TreeLloyd(case.k, groups="auto")
        result = p2pkm.simulate(method, topologies.ring(n), shards, seed=seed, record_every=1000, baselines=False)
        several += result.summary["groups"] > 1
        scores.append(made.score(result.centroids).mean())
    return f"{n:7} {skew:9} {points:6} {several:8} of {len(seeds)} {np.mean(scores):8.4f} {max(scores):8.4f}"


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
    parser.add_argument("--cases", nargs="*", choices=list(CASES))
    parser.add_argument("--alike", action="store_true")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    if given.alike:
        print("devices Dirichlet points  several         mean    worst")
        for case in ALIKE:
            print(measure_alike(*case, seeds), flush=True)
        return
    if given.cases is not None:
        print("case                          mean   worst  exact number")
        for name in given.cases or CASES:
            print(measure_case(name, seeds), flush=True)
        return
    print("second   bridges method                      mean   worst found    kB  wire rounds")
    for second, bridges, name in product(given.second, given.bridges, given.methods):
        print(measure(name, second, bridges, seeds), flush=True)


if __name__ == "__main__":
    main()
