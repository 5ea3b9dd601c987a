"""What privacy costs: the cost ratio of `private` over data, trust, number of devices and epsilon, and a rule of thumb.

    python -m tests.benchmarks.privacy [table | rule | gtvmin] [--seeds 40] [--only NAME]

Ratio: cost on all points over the best of 20 central k-means; mean over seeds, standard error in brackets, and how many
seeds are worse than 1.2: there a cluster is missed. The tables are those of docs/howto/private-clustering.md.

`gtvmin` is a GTVMin with the guarantee of trust=none, which p2pkm does not offer, beside the steps of `private`.
"""

import argparse
import json
import time

import numpy as np
from sklearn.cluster import KMeans

import p2pkm
import topologies
from p2pkm.data.sources import digits
from p2pkm.methods.building_blocks.gdp import mu_of
from p2pkm.methods.building_blocks.private_tables import clip, step_layout

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
CENTRAL = ("server", 16)
DATA = {  # points of a cluster, who adds noise, seeds at most
    "grid16, 3,200": (200, (CENTRAL, ("masks", 16), ("masks", 64), ("none", 16), ("none", 64)), 40),
    "grid16, 12,800": (800, (CENTRAL, ("masks", 16), ("masks", 256), ("none", 16), ("none", 64), ("none", 256)), 10),
    "grid16, 100,000": (6250, (CENTRAL, ("masks", 16), ("none", 16), ("none", 256), ("none", 1000)), 5),
    "digits": (0, (CENTRAL, ("masks", 16), ("none", 16), ("none", 64)), 10),
}
GTVMIN = {"grid16, 3,200": (200, 4.0, 20), "grid16, 12,800": (800, 1.0, 10), "grid16, 100,000": (6250, 1.0, 5)}
COUPLINGS, TURNS = (1.0, 3.0, 10.0, 30.0, 100.0), (3, 10, 30)
STEPS = 0.38  # share of mu^2 that the steps of `private` have
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
    return ((X[:, None] - centroids) ** 2).sum(axis=2).min(axis=1).sum() if len(X) < 50_000 else sum(
        price(part, centroids) for part in np.array_split(X, len(X) // 20_000))  # fmt: skip


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
            found = np.array(found)
            columns = found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(len(found)), (found > 1.2).sum(axis=0)
            cells = [f"{mean:.3f} ({error:.3f}) {bad}" for mean, error, bad in zip(*columns, strict=True)]
            print(f"| {name} | {trust}, {devices} | {len(found)} | {' | '.join(cells)} |", flush=True)


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


def turn(parts, rows, near, alpha, reach, rng, sd):
    """Return the rows of all devices, float64[n, k, d], after a turn of GTVMin with clipped offsets and noise.

    ``w_c <- w_c + m + noise, m = (sum of own offsets + alpha sum of offsets of received rows) / (n_c + A_c)``; A_c is
    at least ``alpha |near|``, and no offset is longer than `reach`: so a point moves a row by at most
    ``2 reach / (1 + alpha |near|)``.
    """
    new = rows.copy()
    for i, own in enumerate(rows):
        labels = np.argmin(((parts[i][:, None] - own) ** 2).sum(axis=2), axis=1)
        sums, weights = np.zeros_like(own), np.bincount(labels, minlength=len(own)).astype(float)
        np.add.at(sums, labels, clip(parts[i] - own[labels], reach))
        for other in (rows[j] for j in near[i]):
            apart = ((other[:, None] - own) ** 2).sum(axis=2)
            theirs, mine = np.argmin(apart, axis=1), np.argmin(apart, axis=0)
            np.add.at(sums, theirs, alpha * clip(other - own[theirs], reach))
            sums += alpha * clip(other[mine] - own, reach)
            weights += alpha * (1.0 + np.bincount(theirs, minlength=len(own)))
        new[i] += sums / weights[:, None] + sd * rng.normal(size=own.shape)
    return new


def settle(parts, start, reach, coupling, turns, mu, seed):
    """Return the rows of devices on a ring, float64[n, k, d], after `turns` turns that together give mu."""
    near = [((i - 1) % len(parts), (i + 1) % len(parts)) for i in range(len(parts))]
    alpha = coupling * sum(map(len, parts)) / len(parts) / start.shape[1] / 2.0
    sd = np.sqrt(turns) * 2.0 * reach / ((1.0 + 2.0 * alpha) * mu)
    rows, rng = np.array(start), np.random.default_rng(seed)
    for _ in range(turns):
        rows = turn(parts, rows, near, alpha, reach, rng, sd)
    return rows


def gtvmin(seeds, only):
    """Compare GTVMin with noise, in the best of 15 settings, with the steps of `private`, both from its seeds."""
    settings = [(coupling, turns) for coupling in COUPLINGS for turns in TURNS]
    for name, (points, epsilon, most) in GTVMIN.items():
        if only not in name:
            continue
        ratios, mu = [], np.sqrt(STEPS) * mu_of(epsilon, 1e-6)
        for seed in range(min(seeds, most)):
            X, k, radius = draw(points, seed)
            best, owner, alone = baseline(X, k), deal(16, len(X), seed), ("none", 16, epsilon, seed)
            parts = [X[owner == i] for i in range(16)]
            seeded = play(X, k, radius, *alone, steps=0)
            reach = step_layout(k, X.shape[1], seeded.summary["size"], "add").reach
            ends = [settle(parts, seeded.centroids, reach, *setting, mu, seed) for setting in settings]
            found = [seeded.centroids[:1], run(X, k, radius, *alone)[None], *ends]
            ratios.append([np.mean([price(X, own) for own in rows]) / best for rows in found])
        mean, error = np.mean(ratios, axis=0), np.std(ratios, axis=0, ddof=1) / np.sqrt(len(ratios))
        least = 2 + int(np.argmin(mean[2:]))
        cells = " | ".join(f"{mean[i]:.3f} ({error[i]:.3f})" for i in (0, least, 1))
        print(f"| {name} | {epsilon:g} | {len(ratios)} | {cells} | {settings[least - 2]} |", flush=True)
        print({one: round(value, 3) for one, value in zip(settings, mean[2:].tolist(), strict=True)}, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("table", "rule", "gtvmin"), default="table", nargs="?")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--only", default="", help="what is in the name of the data, or grid or random")
    asked, began = parser.parse_args(), time.perf_counter()
    {"table": table, "rule": rule, "gtvmin": gtvmin}[asked.what](asked.seeds, asked.only)
    print(json.dumps({"seconds": round(time.perf_counter() - began, 1)}))
