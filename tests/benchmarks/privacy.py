"""What privacy costs: the cost ratio of `private` over data, trust, number of devices and epsilon, and a rule of thumb.

    python -m tests.benchmarks.privacy WHAT [--seeds 40] [--only NAME]

Ratio: cost on all points over the best of 20 central k-means; mean over seeds, standard error in brackets, and how many
seeds are worse than 1.2: there a cluster is missed. The tables are those of docs/howto/private-clustering.md.

WHAT is `table` (default), `rule`, `suite`, `few`, `rivals`, `verdicts`, `replace` or `devices`. `suite` has 16 data
sets of 2 to 784 features. `few` has 300 points in 2 and 3 features, with the radius of the points and twice it.
`rivals` runs `private` and `feddp` on them, with points at the server and without them. `verdicts`
reads its output from the standard input, and tests whether `private` is at most 0.5 % worse than the better of `feddp`
with points and the first edition. `replace` runs three data sets of `suite` under relation=replace. `devices` protects
whole devices of 20 to 50 points.
"""

import argparse
import csv
import json
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from scipy import stats
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.metrics import pairwise_distances_argmin_min

import p2pkm
import topologies
from p2pkm.data.sources import digits

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
CENTRAL = ("server", 16)
DATA = {  # points of a cluster, who adds noise, seeds at most
    "grid16, 3,200": (200, (("masks", 16), ("none", 16)), 10),
    "grid16, 12,800": (800, (("masks", 16), ("none", 16)), 5),
    "digits, 1,797": (0, (("masks", 16), ("none", 16)), 5),
    "grid16, 100,000": (6250, (("masks", 16), ("none", 16)), 3),
}
RULE = {  # places of centers: k, d
    "grid": ((9, 2), (16, 2), (25, 2), (64, 2), (8, 3), (27, 3), (16, 4)),
    "random": ((8, 2), (32, 2), (16, 5), (8, 10)),
}


def draw(points, seed):
    """Return points, k and a radius that is publicly known: 16 corners of a grid, or digits in ten components."""
    if points:
        return p2pkm.grid16(points=points, seed=seed)[0], 16, 30.0
    return digits(components=10)[0], 10, 100.0


def scatter(where, k, d, each, seed):
    """Return clusters of equal size with variance 1, 5 apart or more, and a radius that is publicly known.

    where: "grid", the corners of a cube, the radius 2.2 times what is needed as for grid16; or "random" in a ball, 3
    times its radius.
    """
    rng = np.random.default_rng(seed)
    if where == "grid":
        side = round(k ** (1.0 / d))
        ticks = 5.0 * (np.arange(side) - (side - 1) / 2.0)
        centers = np.stack(np.meshgrid(*[ticks] * d), axis=-1).reshape(k, d)
        radius = 2.2 * (float(np.linalg.norm(centers, axis=1).max()) + 3.0)
    else:
        centers, inner = np.zeros((0, d)), 6.0 * k ** (1.0 / d)
        while len(centers) < k:
            one = rng.normal(size=d)
            one *= inner * rng.random() ** (1.0 / d) / np.linalg.norm(one)
            if not len(centers) or np.linalg.norm(centers - one, axis=1).min() > 5.0:
                centers = np.vstack((centers, one))
        radius = 3.0 * inner
    return np.repeat(centers, each, axis=0) + rng.normal(size=(k * each, d)), radius


def price(X, centroids):
    return pairwise_distances_argmin_min(X, centroids, metric="sqeuclidean")[1].sum()


def baseline(X, k):
    return KMeans(k, n_init=20, random_state=0).fit(X).inertia_


def deal(devices, m, seed):
    return np.random.default_rng(1000 + seed).integers(0, devices, m)


def play(X, k, radius, trust, devices, epsilon, seed, **more):
    """Return the result of a run on a graph of few hops: the totals, and so the centroids, are those of any graph."""
    shards = p2pkm.Shards.deal(X, deal(devices, len(X), seed), devices=devices)
    graph = topologies.hypercube(devices) if trust == "masks" else topologies.star(devices)
    method = p2pkm.Private(k, epsilon=epsilon, radius=radius, trust=trust, noise_seed=0, **more)
    return p2pkm.simulate(method, graph, shards, seed=seed, baselines=False, record_every=1000)


def run(*given):
    return play(*given).centroids[0]


def table(seeds, only):
    for name, (points, who, most) in DATA.items():
        if only not in name:
            continue
        ratios = {one: [] for one in who}
        for seed in range(min(seeds, most)):
            X, k, radius = draw(points, seed)
            best = baseline(X, k)
            for one in who:
                ratios[one].append([price(X, run(X, k, radius, *one, eps, seed)) / best for eps in EPSILONS])
        for (trust, devices), found in ratios.items():
            report(name, f"{trust}, {devices}", np.array(found))


def rule(seeds, only):
    """Find the points per cluster at which the ratio is 1.05 at epsilon 1, between powers of sqrt(2)."""
    for where, k, d in ((where, *sizes) for where, all_sizes in RULE.items() for sizes in all_sizes):
        if only not in where:
            continue
        before = None
        for each in np.rint(25.0 * 2.0 ** (np.arange(16) / 2)).astype(int).tolist():
            found = []
            for seed in range(seeds):
                X, radius = scatter(where, k, d, each, seed)
                found.append(price(X, run(X, k, radius, *CENTRAL, 1.0, seed)) / baseline(X, k))
            ratio = float(np.mean(found))
            if ratio < 1.05:
                break
            before = each, ratio
        low, high = before or (each, ratio), (each, ratio)
        share = 0.0 if low[1] == high[1] else np.log((low[1] - 1) / 0.05) / np.log((low[1] - 1) / (high[1] - 1))
        around = ", ".join(f"{value:.3f} at {count}" for count, value in (low, high))
        print(f"| {where} | {k} | {d} | {low[0] * (high[0] / low[0]) ** share:.0f} | {around} |", flush=True)


def mixture(seed, d, n, k=10, *, within=0.5, stretch=1.0, balance=1.0, tail=np.inf):
    """Return n points of k Gaussians with means uniform in the unit cube, and a radius that is publicly known.

    within : standard deviation of a coordinate within a cluster.
    stretch : factor of the standard deviations of a random half of the directions, other ones in every cluster.
    balance : ratio of the sizes of two consecutive clusters.
    tail : degrees of freedom of a t distribution instead of the normal one.
    """
    rng = np.random.default_rng(seed)
    means, shares = rng.uniform(size=(k, d)), balance ** np.arange(k)
    label = rng.choice(k, n, p=shares / shares.sum())
    noise = rng.normal(size=(n, d)) * within
    if stretch != 1.0:
        scales = np.where(rng.random((k, d)) < 0.5, stretch, 1.0)
        turns = np.stack([np.linalg.qr(rng.normal(size=(d, d)))[0] for _ in range(k)])
        noise = np.einsum("nd,nde->ne", noise * scales[label], turns[label])
    if np.isfinite(tail):
        noise *= np.sqrt(tail / rng.chisquare(tail, n))[:, None]
    return means[label] + noise - 0.5, k


def embedded(seed, d, n):
    """Return a mixture in 20 dimensions, projected to d by a random matrix, with noise in all dimensions."""
    X, k = mixture(seed, 20, n, within=0.2)
    rng = np.random.default_rng(seed + 1)
    return X @ rng.normal(size=(20, d)) / np.sqrt(20.0) + 0.1 * rng.normal(size=(n, d)), k


def scaled(loader, k):
    """Return a data set of scikit-learn with features of variance 1."""
    X = loader().data
    X = X[:, X.std(axis=0) > 0.0]
    return (X - X.mean(axis=0)) / X.std(axis=0), k


SUITE = {  # points and k of a seed; largest number of seeds
    "wine d 13, n 178": (lambda seed: scaled(load_wine, 3), 10),
    "breast cancer d 30, n 569": (lambda seed: scaled(load_breast_cancer, 2), 10),
    "grid16 d 2, n 3,200": (lambda seed: (p2pkm.grid16(points=200, seed=seed)[0], 16), 10),
    "blobs d 2, n 2,000": (lambda seed: (p2pkm.blobs(features=2, points=250, seed=seed)[0], 8), 10),
    "blobs d 3, n 4,000": (lambda seed: (p2pkm.blobs(features=3, points=500, seed=seed)[0], 8), 10),
    "blobs d 10, n 4,000": (lambda seed: (p2pkm.blobs(features=10, points=500, seed=seed)[0], 8), 10),
    "digits d 64, n 1,797": (lambda seed: (load_digits().data, 10), 5),
    "mixture d 10, n 5,000": (partial(mixture, d=10, n=5_000, within=0.15), 5),
    "elongated d 10, n 5,000": (partial(mixture, d=10, n=5_000, within=0.08, stretch=3.0), 5),
    "unbalanced d 10, n 5,000": (partial(mixture, d=10, n=5_000, within=0.15, balance=0.7), 5),
    "heavy-tailed d 10, n 5,000": (partial(mixture, d=10, n=5_000, within=0.1, tail=3.0), 5),
    "mixture d 100, n 5,000": (partial(mixture, d=100, n=5_000), 3),
    "mixture d 50, n 10,000": (partial(mixture, d=50, n=10_000), 3),
    "blobs d 100, n 4,000": (lambda seed: (p2pkm.blobs(features=100, points=500, seed=seed)[0], 8), 3),
    "mixture d 100, n 10,000": (partial(mixture, d=100, n=10_000), 3),
    "embedded d 784, n 2,000": (partial(embedded, d=784, n=2_000), 2),
}
SUITE_EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0, 64.0)
FIRST_SEED = 200  # nothing was chosen on the seeds from here on


def suite(seeds, only):
    """Measure many data sets of any number of features; the radius is that of the points, so that none is clipped."""
    for name, (draw_points, most) in SUITE.items():
        if only not in name:
            continue
        ratios = []
        for seed in range(FIRST_SEED, FIRST_SEED + min(seeds, most)):
            X, k = draw_points(seed)
            radius, best = float(np.linalg.norm(X, axis=1).max()), baseline(X, k)
            ratios.append([price(X, run(X, k, radius, *CENTRAL, eps, seed)) / best for eps in SUITE_EPSILONS])
        report(name, f"{CENTRAL[0]}, {CENTRAL[1]}", np.array(ratios))


FEW = {  # 100 points of a cluster, so that epsilon times the points per cluster is 50 to 800
    "blobs d 2": lambda seed: (p2pkm.blobs(clusters=3, features=2, points=100, seed=seed)[0], 3),
    "blobs d 3": lambda seed: (p2pkm.blobs(clusters=3, features=3, points=100, seed=seed)[0], 3),
    "mixture d 2": partial(mixture, d=2, n=300, k=3, within=0.1),
    "mixture d 3": partial(mixture, d=3, n=300, k=3, within=0.1),
}


def few(seeds, only):
    """Measure tables of 300 points with the radius of the points, and with a public one twice as large."""
    for name, draw_points in FEW.items():
        if only not in name:
            continue
        ratios = {1.0: [], 2.0: []}
        for seed in range(FIRST_SEED, FIRST_SEED + seeds):
            X, k = draw_points(seed)
            farthest, best = float(np.linalg.norm(X, axis=1).max()), baseline(X, k)
            for times, values in ratios.items():
                values.append([price(X, run(X, k, times * farthest, *CENTRAL, eps, seed)) / best for eps in EPSILONS])
        for times, values in ratios.items():
            report(f"{name}, n 300", f"{times:g} times the radius of the points", np.array(values))


RIVALS = {  # the number of Lloyd steps of FedDP-KMeans is the better one in hindsight, for each data set and epsilon
    "private": (None,),
    "feddp with points": ({"server_points": 20, "steps": 0}, {"server_points": 20, "steps": 1}),
    "feddp without points": ({"steps": 0}, {"steps": 1}),
}
LARGE = {"mixture d 100, n 100,000": (partial(mixture, d=100, n=100_000), 2)}
RIVAL_SEEDS = 10
FEW_SEEDS = {"embedded d 784, n 2,000": 2, "mixture d 100, n 100,000": 2}
MARGIN = 0.005  # largest relative excess that counts as equivalent


def run_rival(X, k, radius, options, epsilon, seed):
    """Return the centroids of `private` (options None) or of FedDP-KMeans, on the same devices."""
    if options is None:
        return run(X, k, radius, *CENTRAL, epsilon, seed)
    devices = CENTRAL[1]
    shards = p2pkm.Shards.deal(X, deal(devices, len(X), seed), devices=devices)
    method = p2pkm.FedDPKMeans(k, epsilon=epsilon, radius=radius, noise_seed=0, **options)
    return p2pkm.simulate(method, None, shards, seed=seed, baselines=False, record_every=1000).centroids[0]


def rivals(seeds, only):
    """Print the cost ratios of each seed as a line of JSON for each data set and method, by variant and epsilon."""
    for name, (draw_points, _) in (SUITE | LARGE).items():
        if only not in name:
            continue
        ratios = {method: [] for method in RIVALS}
        for seed in range(FIRST_SEED, FIRST_SEED + min(seeds, FEW_SEEDS.get(name, RIVAL_SEEDS))):
            X, k = draw_points(seed)
            radius, best = float(np.linalg.norm(X, axis=1).max()), baseline(X, k)
            for method, variants in RIVALS.items():
                ratios[method].append([
                    [price(X, run_rival(X, k, radius, options, eps, seed)) / best for eps in SUITE_EPSILONS]
                    for options in variants
                ])  # fmt: skip
        for method, values in ratios.items():
            print(json.dumps({"data": name, "who": method, "ratios": np.round(values, 6).tolist()}), flush=True)


def first_edition():
    """Return mean, standard error and seeds of the first edition of `private`, by data set and epsilon."""
    with Path("docs/results/privacy.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["id"].startswith("private-editions.")]
    values = {}
    for row in rows:
        name, seeds, edition = row["row"].split("; ")
        if edition == "first edition":
            stored = values.setdefault(name, ([], [], int(seeds.split()[0])))
            stored["standard" in row["statistic"]].append(float(row["value"]))
    return values


def bound_of(new, old):
    """Return the upper 95 % bound of the ratio of two means less 1; old: values of the same seeds, or mean and error.

    Of the same seeds: by the differences of the logarithms. Otherwise by the errors of both means (delta method).
    """
    if isinstance(old, np.ndarray):
        difference = np.log(new / old)
        error = difference.std(ddof=1) / np.sqrt(len(new))
        return float(np.expm1(difference.mean() + stats.t.ppf(0.95, len(new) - 1) * error))
    mean, old_error, seeds = old
    first, second = stats.sem(new) / new.mean(), old_error / mean
    error = np.hypot(first, second)
    free = max(error**4 / (first**4 / (len(new) - 1) + second**4 / (seeds - 1)), 1.0) if error else 1.0
    return float(np.expm1(np.log(new.mean() / mean) + stats.t.ppf(0.95, free) * error))


def verdicts(seeds, only):
    """Print each data set and epsilon where the bound exceeds the margin, and counts."""
    measured, old, cells = {}, first_edition(), []
    for line in sys.stdin:
        if line.startswith('{"data"'):
            record = json.loads(line)
            ratios = np.array(record["ratios"])  # of each seed, variant and epsilon
            measured.setdefault(record["data"], {})[record["who"]] = ratios
    for name, by_method in measured.items():
        for e, epsilon in enumerate(SUITE_EPSILONS):
            new = by_method["private"][:, 0, e]
            rival_values = {}
            for rival in ("feddp with points", "feddp without points"):
                variants = by_method[rival][:, :, e]
                rival_values[rival] = variants[:, variants.mean(axis=0).argmin()]
            with_points = rival_values["feddp with points"]
            bounds = {"feddp with points": (with_points.mean(), bound_of(new, with_points))}
            if name in old:
                mean, error = old[name][0][e], old[name][1][e]
                bounds["first edition"] = mean, bound_of(new, (mean, error, old[name][2]))
            best = min(bounds, key=lambda rival: bounds[rival][0])
            cells.append((name, epsilon, new.mean(), best, *bounds[best]))
            columns = [f"{part.mean():.4f} ({stats.sem(part):.4f})" for part in (new, *rival_values.values())]
            columns += [f"{best} {bounds[best][0]:.4f}", f"{100 * bounds[best][1]:+.2f} %"]
            print("|", " | ".join((name, f"{epsilon:g}", *columns)), "|")
    better = sum(new < mean for _, _, new, _, mean, _ in cells)
    within = sum(bound <= MARGIN for *_, bound in cells)
    print(f"{len(cells)} cells: mean below the better rival in {better}; bound at most {100 * MARGIN:g} % in {within}")
    behind = [cell for cell in cells if cell[2] > (1 + MARGIN) * cell[4]]
    print(f"mean more than {100 * MARGIN:g} % behind in {len(behind)}:")
    for name, epsilon, new, best, mean, bound in behind:
        print(f"  {name}, epsilon {epsilon:g}: {new:.4f}, {best} {mean:.4f}, bound {100 * bound:+.2f} %")


REPLACED = ("digits d 64, n 1,797", "mixture d 50, n 10,000", "blobs d 2, n 2,000")


def replaced(seeds, only):
    """Measure relation=replace on data sets of `suite`."""
    for name in REPLACED:
        if only not in name:
            continue
        ratios = []
        for seed in range(FIRST_SEED, FIRST_SEED + min(seeds, 5)):
            X, k = SUITE[name][0](seed)
            radius, best = float(np.linalg.norm(X, axis=1).max()), baseline(X, k)
            results = [play(X, k, radius, *CENTRAL, eps, seed, relation="replace") for eps in (0.5, 2.0, 8.0)]
            ratios.append([price(X, result.centroids[0]) / best for result in results])
        report(name, f"{CENTRAL[0]}, {CENTRAL[1]}, replace", np.array(ratios))


DEVICES = {  # devices, features, clusters of a device (10: all), trust, points, seeds at most
    "1,000 devices, d 2, all clusters": (1_000, 2, 10, "server", 4, 5),
    "1,000 devices, d 2, two clusters": (1_000, 2, 2, "server", 4, 5),
    "1,000 devices, d 10, all clusters": (1_000, 10, 10, "server", 4, 5),
    "1,000 devices, d 10, two clusters": (1_000, 10, 2, "server", 4, 5),
    "1,000 devices, d 2, all clusters, masks": (1_000, 2, 10, "masks", 4, 3),
    **{
        f"1,000 devices, d {d}, two clusters, points={points}": (1_000, d, 2, "server", points, 5)
        for d in (2, 10)
        for points in (1, 16, 50)
    },
    "10,000 devices, d 2, all clusters": (10_000, 2, 10, "server", 4, 2),
    "10,000 devices, d 2, two clusters": (10_000, 2, 2, "server", 4, 2),
    "10,000 devices, d 10, all clusters": (10_000, 10, 10, "server", 4, 2),
    "10,000 devices, d 10, two clusters": (10_000, 10, 2, "server", 4, 2),
    "10,000 devices, d 2, all clusters, masks": (10_000, 2, 10, "masks", 4, 1),
}


def scatter_over_devices(n, d, local, seed, k=10):
    """Return points of n devices, the device of each point, and the means of the k clusters.

    Each device has 20 to 50 points of `local` clusters. Means are uniform in the unit cube.
    """
    rng = np.random.default_rng(seed)
    means = rng.uniform(size=(k, d)) - 0.5
    owner = np.repeat(np.arange(n), rng.integers(20, 51, n))
    clusters = rng.permuted(np.tile(np.arange(k), (n, 1)), axis=1)[:, :local]
    labels = clusters[owner, rng.integers(0, local, len(owner))]
    return means[labels] + (0.05 if d == 2 else 0.15) * rng.normal(size=(len(owner), d)), owner, means


def devices(seeds, only):
    """Measure relation=device: the guarantee holds for all points of a device together.

    Baseline: the best of central k-means from the means of the clusters and of five random starts.
    """
    for name, (n, d, local, trust, points, most) in DEVICES.items():
        if only not in name:
            continue
        ratios = []
        for seed in range(FIRST_SEED, FIRST_SEED + min(seeds, most)):
            X, owner, means = scatter_over_devices(n, d, local, seed)
            k, radius = len(means), float(np.linalg.norm(X, axis=1).max())
            starts = ({"init": means, "n_init": 1}, {"n_init": 5, "random_state": 0})
            best = min(KMeans(k, **start).fit(X).inertia_ for start in starts)
            shards = p2pkm.Shards.deal(X, owner, devices=n)
            graph = topologies.star(n) if trust == "server" else topologies.small_world(n, degree=4, rewire=0.2, seed=0)
            costs = []
            for eps in EPSILONS:
                method = p2pkm.Private(
                    k, epsilon=eps, radius=radius, trust=trust, relation="device", points=points, noise_seed=0
                )
                result = p2pkm.simulate(method, graph, shards, seed=seed, baselines=False, record_every=1000)
                costs.append(price(X, result.centroids[0]))
            ratios.append(np.array(costs) / best)
        report(name, trust, np.array(ratios))


def report(name, who, ratios):
    """Print means over seeds, standard errors, and the numbers of seeds above 1.2."""
    errors = ratios.std(axis=0, ddof=1) / np.sqrt(len(ratios)) if len(ratios) > 1 else np.full(ratios.shape[1], np.nan)
    columns = ratios.mean(axis=0), errors, (ratios > 1.2).sum(axis=0)
    cells = [f"{mean:.4f} ({error:.4f}) {bad}" for mean, error, bad in zip(*columns, strict=True)]
    print(f"| {name} | {who} | {len(ratios)} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parts = {"table": table, "rule": rule, "suite": suite, "few": few, "rivals": rivals, "verdicts": verdicts,
             "replace": replaced, "devices": devices}  # fmt: skip
    parser.add_argument("what", choices=tuple(parts), default="table", nargs="?")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--only", default="", help="what is in the name of the data, or grid or random")
    asked, began = parser.parse_args(), time.perf_counter()
    parts[asked.what](asked.seeds, asked.only)
    print(json.dumps({"seconds": round(time.perf_counter() - began, 1)}))
