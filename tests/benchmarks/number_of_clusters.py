"""How often each index, and the rule, finds the number of clusters: nine data sets x three divisions x seeds.

``python -m tests.benchmarks.number_of_clusters [--data-dir DIR] [--seeds 12] [--first 0] [--lean]`` prints hits by set,
index. ``--lean``: from the rows as a root reads them that have been sent in few bits, as those of `treelloyd` are.
DIR has the S-sets (Fraenti and Virmajoki 2006) as s1.csv to s4.csv (x0, x1, label); without it they are left out.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_iris, load_wine
from sklearn.preprocessing import scale

import p2pkm
from p2pkm.data.partition import dirichlet, iid
from p2pkm.data.sources import apart, grid16, slike
from p2pkm.methods.building_blocks.number_of_clusters import INDICES, choose, prefer, tabulate
from p2pkm.methods.building_blocks.weighted_rows import Rows, summarize
from p2pkm.methods.init.choose_k import ChooseK
from p2pkm.methods.init.registry import grow_shallow
from tests.support.play_rounds import arrange, play

K_MAX, ROWS = 25, 32
OUTSIDE = ("5-d, random", "iris", "wine, scaled", "one Gaussian", "uniform square")  # not among the nine
DIVISIONS: dict[str, tuple[int, float | None]] = {"iid": (10, None), "0.3": (10, 0.3), "0.1": (32, 0.1)}
Data = tuple[Any, Any]


def five(seed: int, separation: float = 6.0) -> Data:
    """Return 8 unit Gaussians of 100 points in five dimensions, centers uniform in a cube of side 10 but apart."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(8), 100)
    return apart(rng, 8, 5, side=10.0, separation=separation)[labels] + rng.normal(size=(800, 5)), labels


def uneven(seed: int) -> Data:
    """Return four unit Gaussians of 50, 100, 200 and 400 points, 6 apart."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(4), [50, 100, 200, 400])
    return np.array([[0, 0], [6, 0], [0, 6], [6, 6]])[labels] + rng.normal(size=(750, 2)), labels


def one(seed: int) -> Data:
    """Return one Gaussian of 800 points."""
    return np.random.default_rng(seed).normal(size=(800, 2)), np.zeros(800, np.int64)


def uniform(seed: int) -> Data:
    """Return 800 points uniform in a square."""
    return np.random.default_rng(seed).uniform(size=(800, 2)), np.zeros(800, np.int64)


def thinned(path: Path, seed: int) -> Data:
    """Return 2,000 points of an S-set."""
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    table = table[np.random.default_rng(seed).choice(len(table), 2000, replace=False)]
    return table[:, :2] / 1e4, table[:, 2].astype(np.int64)


def list_sets(folder: Path | None) -> dict[str, Any]:
    """Return the data sets, functions of a seed; those of one cluster last."""
    sets: dict[str, Any] = {
        "grid16 sd 1": lambda seed: grid16(points=100, seed=seed),
        "grid16 sd 1.25": lambda seed: grid16(points=100, sd=1.25, seed=seed),
        "slike": lambda seed: slike(points=100, seed=seed),
        "8 in 5-d": five,
        "4 uneven": uneven,
    }
    for name in ("s1", "s2", "s3", "s4") if folder else ():
        sets[name] = lambda seed, path=folder / f"{name}.csv": thinned(path, seed)
    outside = {
        "5-d, random": lambda seed: five(seed, 0.0),
        "iris": lambda seed: load_iris(return_X_y=True),
        "wine, scaled": lambda seed: (scale(load_wine().data), load_wine().target),
        "one Gaussian": one,
        "uniform square": uniform,
    }
    return sets | outside


def guess(
    points: Any, labels: Any, n: int, alpha: float | None, seed: int, *, lean: bool = False
) -> dict[str, int | None]:
    """Return the k that each index and the rule prefer."""
    from p2pkm.kernels import numba as kernels

    owner = iid(len(points), n, seed=seed) if alpha is None else dirichlet(labels, n, alpha=alpha, seed=seed)
    data = [points[owner == i] for i in range(n)]
    ring = arrange(data, [(i, (i + 1) % n) for i in range(n)], kernels=kernels, seed=seed)
    if lean:
        stage = ChooseK(K_MAX, grow_shallow(ring.topology), lean=True)
        table = play(stage, ring, np.full((n, 1, points.shape[1]), np.inf), 1)[1].table.values
    else:
        rows = summarize(ring.devices, np.minimum(ROWS, np.maximum(1, ring.devices.sizes // 2)))
        table = tabulate(kernels, ring.devices.shared_key, Rows.of(rows.flat()[:, 1:]), K_MAX)
    return {"rule": choose(table)} | prefer(table)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--lean", action="store_true", help="from encoded rows")
    options = parser.parse_args()
    names = ("rule", *INDICES)
    sys.stdout.write(
        f"p2pkm {p2pkm.__version__}\n{'set':16}{'of':>5}" + "".join(f"{name:>11}" for name in names) + "\n"
    )
    total = np.zeros(1 + len(names), np.int64)
    for name, draw in list_sets(options.data_dir).items():
        hits = np.zeros(1 + len(names), np.int64)
        for n, alpha in DIVISIONS.values():
            for seed in range(options.first, options.first + options.seeds):
                points, labels = draw(seed)
                found = guess(points, labels, n, alpha if len(set(labels)) > 1 else None, seed, lean=options.lean)
                hits += [1, *(found[index] == len(set(labels.tolist())) for index in names)]
        total += hits if name not in OUTSIDE else 0
        sys.stdout.write(f"{name:16}{hits[0]:5}" + "".join(f"{hit:11}" for hit in hits[1:]) + "\n")
        sys.stdout.flush()
    sys.stdout.write(f"{'several':16}{total[0]:5}" + "".join(f"{hit:11}" for hit in total[1:]) + "\n")


if __name__ == "__main__":
    main()
