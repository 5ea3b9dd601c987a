"""How often the verdict on the number of clusters is right, on shapes and seeds on which no rule was chosen.

``python -m tests.benchmarks.verdict_on_k [--seeds 30] [--first 0]`` prints for each shape: tables, tables on which
Calinski-Harabasz and the rule find the true number, clear verdicts, those of them that are right, and verdicts of no
clusters.

A table has 200 to 600 points in 2 to 4 dimensions on 8 devices. Clusters are 2 to 8; the means of every two are at
least 4 standard deviations apart, where a standard deviation is the mean of both along the line that connects them.
Rings have no number of k-means clusters; their number is that of connected parts (1 or 2).
"""

import argparse
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.benchmarks.number_of_clusters import guess

Generator = np.random.Generator


def place(rng: Generator, roots: list[Any], least: float) -> Any:
    """Draw centers in a growing ball, each far enough from those before it."""
    centers, radius = list[Any](), least
    while len(centers) < len(roots):
        new, d = len(centers), len(roots[0])
        direction = rng.normal(size=d)
        center = direction / np.linalg.norm(direction) * radius * rng.uniform() ** (1.0 / d)
        gaps = [center - other for other in centers]
        spreads = [
            0.5 * (np.linalg.norm(roots[new].T @ gap) + np.linalg.norm(roots[old].T @ gap)) / np.linalg.norm(gap)
            for old, gap in enumerate(gaps)
        ]
        if all(np.linalg.norm(gap) >= least * spread for gap, spread in zip(gaps, spreads, strict=True)):
            centers.append(center)
        else:
            radius *= 1.02
    return centers


def draw_root(rng: Generator, d: int) -> Any:
    """Draw a square root of a covariance of volume 1, with d + 1 degrees of freedom: many clusters are long."""
    values = rng.normal(size=(d, d + 1))
    left, singular, _ = np.linalg.svd(values, full_matrices=False)
    singular = np.maximum(singular, singular[0] / 10.0)
    return left * (singular / np.exp(np.log(singular).mean()))


def mix(rng: Generator, *, long: str = "", uneven: bool = False, noise: str = "normal") -> tuple[Any, Any]:
    """Draw clusters: round ones, long ones of one covariance ("alike") or of different ones ("own")."""
    k, d, m = int(rng.integers(2, 9)), int(rng.integers(2, 5)), int(rng.integers(200, 601))
    roots = [np.eye(d)] * k
    if long == "alike":
        roots = [draw_root(rng, d)] * k
    elif long == "own":
        roots = [draw_root(rng, d) * rng.uniform(0.7, 1.4) for _ in range(k)]
    shares = 1.0 / np.arange(1, k + 1) if uneven else np.ones(k)
    sizes = np.maximum((m * shares / shares.sum()).astype(int), 12)
    centers = place(rng, roots, rng.uniform(4.0, 8.0))
    draw: Callable[[Any], Any] = {
        "normal": lambda size: rng.normal(size=size),
        "t": lambda size: rng.standard_t(5, size=size) / np.sqrt(5.0 / 3.0),
        "gamma": lambda size: (rng.gamma(3.0, size=size) - 3.0) / np.sqrt(3.0),
    }[noise]
    parts = [center + draw((n, d)) @ root.T for n, root, center in zip(sizes.tolist(), roots, centers, strict=True)]
    return np.concatenate(parts), np.repeat(np.arange(k), sizes)


def ring(rng: Generator) -> tuple[Any, Any]:
    """Draw an annulus, an annulus around a round cluster, or two half circles."""
    kind, m, width = int(rng.integers(3)), int(rng.integers(200, 601)), rng.uniform(0.05, 0.25)
    angle, radius = rng.uniform(0.0, 2.0 * np.pi, m), 1.0 + width * rng.uniform(-1.0, 1.0, m)
    points, labels = np.column_stack((radius * np.cos(angle), radius * np.sin(angle))), np.zeros(m, np.int64)
    if kind == 1:
        points = np.concatenate((points, 0.12 * rng.normal(size=(m // 3, 2))))
        labels = np.repeat([0, 1], [m, m // 3])
    elif kind == 2:
        labels = (points[:, 1] > 0.0).astype(np.int64)
        points[labels == 1] += [1.0, -0.4]
    return points, labels


def single(rng: Generator) -> tuple[Any, Any]:
    """Draw a single cluster: Gaussian, uniform in a ball, skewed, or with tails."""
    d, m = int(rng.integers(2, 5)), int(rng.integers(200, 601))
    direction = rng.normal(size=(m, d))
    ball = direction / np.linalg.norm(direction, axis=1)[:, None] * rng.uniform(size=(m, 1)) ** (1.0 / d)
    points = (rng.normal(size=(m, d)), ball, rng.gamma(2.0, size=(m, d)), rng.standard_t(4, size=(m, d)))
    return points[int(rng.integers(4))] @ draw_root(rng, d).T, np.zeros(m, np.int64)


SHAPES: dict[str, Callable[[Generator], tuple[Any, Any]]] = {
    "round": mix,
    "long, alike": lambda rng: mix(rng, long="alike"),
    "long, own": lambda rng: mix(rng, long="own"),
    "uneven sizes": lambda rng: mix(rng, uneven=True),
    "tails": lambda rng: mix(rng, noise="t"),
    "skewed": lambda rng: mix(rng, noise="gamma"),
    "rings": ring,
    "none": single,
}
HEADINGS = ("tables", "CH right", "right", "clear", "clear right", "none")


def measure(shape: str, seeds: range) -> Any:
    """Return the numbers of a line, int64[6]."""
    counts = np.zeros(len(HEADINGS), np.int64)
    for seed in seeds:
        points, labels = SHAPES[shape](np.random.default_rng([seed, list(SHAPES).index(shape), 2026]))
        true = len(set(labels.tolist()))
        # Half of the tables are divided at random, half by label.
        alpha = 0.5 if true > 1 and seed % 2 else None
        found, best = guess(points, labels, 8, alpha, seed)
        is_right, is_clear = found.k == true, found.verdict.name == "CLEAR"
        counts += [1, best["ch"] == true, is_right, is_clear, is_right and is_clear, found.verdict.name == "NONE"]
    return counts


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    sys.stdout.write(f"{'shape':14}" + "".join(f"{heading:>12}" for heading in HEADINGS) + "\n")
    total = np.zeros(len(HEADINGS), np.int64)
    for shape in SHAPES:
        counts = measure(shape, range(options.first, options.first + options.seeds))
        total += counts
        _write(shape, counts)
    _write("all", total)


def _write(name: str, counts: Any) -> None:
    """Print a line."""
    sys.stdout.write(f"{name:14}" + "".join(f"{number:12}" for number in counts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
