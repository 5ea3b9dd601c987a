"""How often each index, and the rule, finds the number of clusters: data sets x three divisions x seeds.

``python -m tests.benchmarks.number_of_clusters [--data-dir DIR] [--seeds 12] [--first 0] [--lean] [--sets NAME ...]``
prints hits by set and index, and in how many runs the rule says that its number is unclear. ``--lean``: from the rows
as a root reads them that have been sent in few bits, as those of `treelloyd` are. Sets: ``nine`` and ``other`` have
several clusters, ``shaped`` long or uneven ones, ``one`` is a single Gaussian of any shape, ``unimodal`` another single
cluster, ``curved`` is no cluster at all in the sense of k-means.
DIR has the S-sets (Fraenti and Virmajoki 2006) as s1.csv to s4.csv (x0, x1, label); without it they are left out.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_iris, load_wine
from sklearn.preprocessing import scale

import p2pkm
from p2pkm.data.partition import dirichlet, iid
from p2pkm.data.random import draw_separated
from p2pkm.data.sources import grid16, slike
from p2pkm.methods.building_blocks.number_of_clusters import INDICES, Decision, Verdict, decide, prefer, tabulate
from p2pkm.methods.building_blocks.spanning_tree import build_spanning_tree
from p2pkm.methods.building_blocks.weighted_rows import Rows, summarize
from p2pkm.methods.init.choose_k import ChooseK
from tests.support.play_rounds import arrange, play

K_MAX, ROWS = 25, 32
DIVISIONS: dict[str, tuple[int, float | None]] = {"iid": (10, None), "0.3": (10, 0.3), "0.1": (32, 0.1)}
Data = tuple[Any, Any]


def five(seed: int, separation: float = 6.0) -> Data:
    """Return 8 unit Gaussians of 100 points in five dimensions, centers uniform in a cube of side 10 but apart."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(8), 100)
    return draw_separated(rng, 8, 5, side=10.0, separation=separation)[labels] + rng.normal(size=(800, 5)), labels


def uneven(seed: int) -> Data:
    """Return four unit Gaussians of 50, 100, 200 and 400 points, 6 apart."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(4), [50, 100, 200, 400])
    return np.array([[0, 0], [6, 0], [0, 6], [6, 6]])[labels] + rng.normal(size=(750, 2)), labels


def single(draw: Callable[[np.random.Generator], Any]) -> Callable[[int], Data]:
    """Return a data set of one cluster, drawn by a function of a generator."""

    def make(seed: int) -> Data:
        points = draw(np.random.default_rng(seed))
        return points, np.zeros(len(points), np.int64)

    return make


def turn(rng: np.random.Generator, points: Any) -> Any:
    """Return the points after a random rotation."""
    d = points.shape[1]
    return points @ np.linalg.qr(rng.normal(size=(d, d)))[0]


def gaussian(d: int, ratio: float) -> Callable[[int], Data]:
    """Return one Gaussian of 800 points with one axis longer than the others."""
    return single(lambda rng: turn(rng, rng.normal(size=(800, d)) * np.array([ratio] + [1.0] * (d - 1))))


def annulus(width: float) -> Callable[[int], Data]:
    """Return 800 points around a circle of radius 5."""

    def draw(rng: np.random.Generator) -> Any:
        angle, radius = rng.uniform(0.0, 2.0 * np.pi, 800), 5.0 + width * rng.normal(size=800)
        return np.column_stack((radius * np.cos(angle), radius * np.sin(angle)))

    return single(draw)


def banana(rng: np.random.Generator) -> Any:
    """Return one bent cluster of 800 points."""
    points = rng.normal(size=(800, 2)) * [2.0, 0.5]
    points[:, 1] += 0.3 * points[:, 0] ** 2
    return points


def mixture(centers: Any, deviations: Any, sizes: Sequence[int], *, turned: bool = False) -> Callable[[int], Data]:
    """Return Gaussians with given centers, standard deviations (of all, or per cluster and axis) and sizes."""

    def make(seed: int) -> Data:
        rng = np.random.default_rng([seed, 17])
        labels, places = np.repeat(np.arange(len(sizes)), sizes), np.array(centers, float)
        spread = np.broadcast_to(np.array(deviations, float), places.shape)
        points = places[labels] + rng.normal(size=(len(labels), places.shape[1])) * spread[labels]
        return (turn(rng, points) if turned else points), labels

    return make


def long_pair(sides: tuple[float, float], apart: tuple[float, float], points: int = 400) -> Callable[[int], Data]:
    """Return two long Gaussians side by side or end to end."""
    return mixture([(0.0, 0.0), apart], sides, (points, points), turned=True)


def doubling(seed: int) -> Data:
    """Return six unit Gaussians of 20, 40, ..., 640 points, at least 7 apart."""
    rng, sizes = np.random.default_rng([seed, 3]), [20 * 2**i for i in range(6)]
    labels = np.repeat(np.arange(6), sizes)
    return draw_separated(rng, 6, 2, side=24.0, separation=7.0)[labels] + rng.normal(size=(len(labels), 2)), labels


def noisy(share: float) -> Callable[[int], Data]:
    """Return 8 unit Gaussians of 100 points, at least 6 apart, and points uniform in a square around them."""

    def make(seed: int) -> Data:
        rng, labels = np.random.default_rng([seed, 4]), np.repeat(np.arange(8), 100)
        points = draw_separated(rng, 8, 2, side=20.0, separation=6.0)[labels] + rng.normal(size=(800, 2))
        extra = rng.uniform(-14.0, 14.0, (round(share * 800), 2))
        return np.concatenate((points, extra)), np.concatenate((labels, rng.integers(0, 8, len(extra))))

    return make


def thinned(path: Path, seed: int) -> Data:
    """Return 2,000 points of an S-set."""
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    table = table[np.random.default_rng(seed).choice(len(table), 2000, replace=False)]
    return table[:, :2] / 1e4, table[:, 2].astype(np.int64)


def list_sets(folder: Path | None) -> dict[str, dict[str, Callable[[int], Data]]]:
    """Return the data sets by group, functions of a seed."""
    nine: dict[str, Any] = {
        "grid16 sd 1": lambda seed: grid16(points=100, seed=seed),
        "grid16 sd 1.25": lambda seed: grid16(points=100, sd=1.25, seed=seed),
        "slike": lambda seed: slike(points=100, seed=seed),
        "8 in 5-d": five,
        "4 uneven": uneven,
    }
    for name in ("s1", "s2", "s3", "s4") if folder else ():
        nine[name] = lambda seed, path=folder / f"{name}.csv": thinned(path, seed)
    other = {
        "5-d, random": lambda seed: five(seed, 0.0),
        "iris": lambda seed: load_iris(return_X_y=True),
        "wine, scaled": lambda seed: (scale(load_wine().data), load_wine().target),
        "2, 3 apart": mixture([(0, 0), (3, 0)], 1, (400, 400)),
        "2 in 10-d, 4 apart": mixture([[0.0] * 10, [4.0] + [0.0] * 9], 1, (400, 400)),
        "1:9, 5 apart": mixture([(0, 0), (5, 0)], 1, (720, 80)),
        "sd 1 and 3": mixture([(0, 0), (8, 0)], [(1, 1), (3, 3)], (400, 400)),
        "20, 5 apart": lambda seed: twenty(seed),
        "3 % noise": noisy(0.03),
        "10 % noise": noisy(0.1),
    }
    shaped = {
        "sizes 1:32": doubling,
        "10:1, 5 apart": long_pair((10, 1), (0, 5)),
        "10:1, 8 apart": long_pair((10, 1), (0, 8)),
        "10:1, end to end": long_pair((10, 1), (50, 0)),
        "10:1, 200 points": long_pair((10, 1), (0, 5), 100),
        "1:.1, 5 apart": long_pair((1, 0.1), (0, 5)),
        "1:.1, end to end": long_pair((1, 0.1), (5, 0)),
        "3:1, 5 apart": long_pair((3, 1), (0, 5)),
        "3 of 3:1": mixture([(0, 0), (0, 8), (0, 16)], (3, 1), (270, 270, 270), turned=True),
        "crossed 6:1": mixture([(0, 0), (0, 15)], [(6, 1), (1, 6)], (400, 400)),
    }
    one = {f"{d}-d, axes {ratio}:1": gaussian(d, ratio) for d in (2, 3, 4, 5) for ratio in (1, 2, 4, 6, 10)}
    one |= {"1-d": gaussian(1, 1), "2-d, axes 30:1": gaussian(2, 30), "20-d, axes 3:1": gaussian(20, 3)}
    unimodal = {
        "exponential": lambda rng: rng.exponential(size=(800, 2)),
        "exponential, 3-d": lambda rng: rng.exponential(size=(800, 3)),
        "Laplace": lambda rng: rng.laplace(size=(800, 2)),
        "lognormal": lambda rng: rng.lognormal(sigma=0.7, size=(800, 2)),
        "t, 3 degrees": lambda rng: rng.standard_t(3, size=(800, 2)),
        "uniform square": lambda rng: rng.uniform(size=(800, 2)),
        "uniform 4:1": lambda rng: rng.uniform(size=(800, 2)) * [4.0, 1.0],
        "uniform 10:1": lambda rng: rng.uniform(size=(800, 2)) * [10.0, 1.0],
        "uniform, 4-d": lambda rng: rng.uniform(size=(800, 4)),
    }
    curved = {f"annulus sd {width}": annulus(width) for width in (0.2, 0.5, 1.0)} | {"banana": single(banana)}
    return {"nine": nine, "other": other, "shaped": shaped, "one": one,
            "unimodal": {name: single(draw) for name, draw in unimodal.items()}, "curved": curved}  # fmt: skip


def twenty(seed: int) -> Data:
    """Return 20 unit Gaussians of 40 points, at least 5 apart."""
    rng, labels = np.random.default_rng([seed, 6]), np.repeat(np.arange(20), 40)
    return draw_separated(rng, 20, 2, side=30.0, separation=5.0)[labels] + rng.normal(size=(800, 2)), labels


def guess(
    points: Any, labels: Any, n: int, alpha: float | None, seed: int, *, lean: bool = False
) -> tuple[Decision, dict[str, int | None]]:
    """Return the decision, and the k that each index prefers."""
    from p2pkm.kernels import numba as kernels

    owner = iid(len(points), n, seed=seed) if alpha is None else dirichlet(labels, n, alpha=alpha, seed=seed)
    data = [points[owner == i] for i in range(n)]
    ring = arrange(data, [(i, (i + 1) % n) for i in range(n)], kernels=kernels, seed=seed)
    if lean:
        stage = ChooseK(K_MAX, build_spanning_tree(ring.topology), lean=True)
        state = play(stage, ring, np.full((n, 1, points.shape[1]), np.inf), 1)[1]
        root = int(np.flatnonzero(state.table.counts)[0])
        return Decision(int(state.chosen[0]), Verdict(int(state.verdict[root]))), prefer(state.table.values)
    sent = summarize(ring.devices, np.minimum(ROWS, np.maximum(1, ring.devices.sizes // 2)))
    rows, key = Rows.of(sent.flat()[:, 1:]), ring.devices.shared_key
    table = tabulate(kernels, key, rows, K_MAX)
    return decide(kernels, key, rows, table), prefer(table)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--lean", action="store_true", help="from encoded rows")
    parser.add_argument("--sets", nargs="*", choices=list(list_sets(None)), default=list(list_sets(None)))
    options = parser.parse_args()
    names = ("rule", "unclear", *INDICES)
    sys.stdout.write(
        f"p2pkm {p2pkm.__version__}\n{'set':20}{'of':>5}" + "".join(f"{name:>11}" for name in names) + "\n"
    )
    seeds = range(options.first, options.first + options.seeds)
    for group in options.sets:
        total = np.zeros(1 + len(names), np.int64)
        for name, draw in list_sets(options.data_dir)[group].items():
            hits = measure(draw, seeds, lean=options.lean)
            total += hits
            _write(name, hits)
        _write(f"all: {group}", total)


def measure(draw: Callable[[int], Data], seeds: range, *, lean: bool) -> Any:
    """Return the runs, those in which the rule is right and unclear, and those in which each index is right."""
    hits = np.zeros(3 + len(INDICES), np.int64)
    for (n, alpha), seed in product(DIVISIONS.values(), seeds):
        points, labels = draw(seed)
        true = len(set(labels.tolist()))
        found, best = guess(points, labels, n, alpha if true > 1 else None, seed, lean=lean)
        unclear = found.verdict is Verdict.UNCLEAR
        hits += [1, found.k == true, unclear, *(best[index] == true for index in INDICES)]
    return hits


def _write(name: str, hits: Any) -> None:
    """Print a row."""
    sys.stdout.write(f"{name:20}{hits[0]:5}" + "".join(f"{hit:11}" for hit in hits[1:]) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
