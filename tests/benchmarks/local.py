"""The local pass against scikit-learn's Lloyd: the slope between 2 and 12 iterations from the same start."""

import warnings
from functools import partial
from typing import Any

import numpy as np

from p2pkm.devices import Floats
from p2pkm.kernels import compiled
from tests.benchmarks.figure import Figure, interleave, show, slope

SHAPES = {  # points, clusters, features: the target
    (200, 4, 2): ("at least", 2.0),
    (10_000, 16, 2): ("at least", 2.0),
    (100_000, 64, 16): ("more than", 1.0),
    (1_000_000, 16, 2): ("at least", 2.0),
    (70_000, 10, 784): ("at least", 0.95),
}
_FEW, _MANY = 2, 12
_QUICK = 2_000_000  # points x features of a quick run


def measure(quick: bool) -> list[Figure]:
    """Return how many times faster the own pass is, for every shape."""
    from threadpoolctl import threadpool_limits

    figures = []
    for (m, k, d), target in SHAPES.items():
        points, start = draw(min(m, _QUICK // d // 8) if quick else m, k, d)
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it did not converge
            few, many, their_few, their_many = interleave([
                partial(work, points, start, steps) for work in (ours, theirs) for steps in (_FEW, _MANY)
            ])  # fmt: skip
        own, other = slope(few, many, _MANY - _FEW), slope(their_few, their_many, _MANY - _FEW)
        what = f"local pass against scikit-learn, {len(points):,} points, k = {k}, d = {d}"
        figures.append(Figure(what, other / own, "x", *target, f"{show(own)} against {show(other)}"))
    return figures


def ours(points: Floats, start: Floats, steps: int) -> Floats:
    """Return the centroids after so many Lloyd steps."""
    none, offsets, rows = np.zeros(0), np.array([0, len(points)]), np.array([len(start)])
    return compiled.refine(points, none, offsets, start[None], rows, steps, np.zeros(1), False)[0][0]


def theirs(points: Floats, start: Floats, steps: int) -> Floats:
    """Return the same by scikit-learn."""
    return fit(points, start, steps).cluster_centers_


def fit(points: Floats, start: Floats, steps: int) -> Any:
    """Return scikit-learn's k-means after so many Lloyd steps."""
    from sklearn.cluster import KMeans

    lloyd = KMeans(len(start), init=start, n_init=1, max_iter=steps, tol=0.0, algorithm="lloyd")
    return lloyd.fit(points)


def draw(m: int, k: int, d: int) -> tuple[Floats, Floats]:
    """Return uniform points and a start from which Lloyd takes more steps than are timed, alike in both programs.

    Raises
    ------
    AssertionError
        If the two programs do not come to the same centroids.
    """
    rng = np.random.default_rng(0)
    while True:
        points = rng.random((m, d))
        start = points[rng.choice(m, k, replace=False)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            enough = fit(points, start, _MANY + 1).n_iter_ > _MANY
            other = theirs(points, start, _MANY)
        if enough:
            np.testing.assert_allclose(ours(points, start, _MANY), other, rtol=1e-3)
            return points, start
