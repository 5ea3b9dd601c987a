"""The local pass against scikit-learn's Lloyd: the slope between 2 and 12 iterations from the same start."""

import warnings
from functools import partial
from statistics import median

import numpy as np

from p2pkm.core.batch import Floats
from p2pkm.kernels import numba as compiled
from tests.benchmarks.figure import Figure, interleave, of_trials, show, slopes

SHAPES = ((200, 4, 2), (10_000, 16, 2), (100_000, 64, 16), (1_000_000, 16, 2), (70_000, 10, 784))  # points, k, d
_FEW, _MANY = 2, 12
_QUICK, _LEAST, _TRIES = 250_000, 2_000, 1_000  # numbers and least points of a quick run; starts to try


def measure(quick: bool) -> list[Figure]:
    """Return how many times faster the own pass is, for every shape."""
    from threadpoolctl import threadpool_limits

    figures = []
    for m, k, d in SHAPES:
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it did not converge
            points, start = draw(min(m, max(_QUICK // d, _LEAST)) if quick else m, k, d)
            few, many, their_few, their_many = interleave([
                partial(work, points, start, steps) for work in (ours, theirs) for steps in (_FEW, _MANY)
            ])  # fmt: skip
        own, other = slopes(few, many, _MANY - _FEW), slopes(their_few, their_many, _MANY - _FEW)
        what = f"local pass against scikit-learn, {len(points):,} points, k = {k}, d = {d}"
        ratios = [two / one for one, two in zip(own, other, strict=True)]
        figures.append(
            of_trials(what, ratios, ("x", "at least", 1.0), f"{show(median(own))} against {show(median(other))}")
        )
    return figures


def ours(points: Floats, start: Floats, steps: int) -> Floats:
    """Return the centroids after so many Lloyd steps."""
    none, offsets, rows = np.zeros(0), np.array([0, len(points)]), np.array([len(start)])
    return compiled.refine(points, none, offsets, start[None], rows, steps, np.zeros(1), False)[0][0]


def theirs(points: Floats, start: Floats, steps: int) -> Floats:
    """Return the same by scikit-learn."""
    from sklearn.cluster import KMeans

    lloyd = KMeans(len(start), init=start, n_init=1, max_iter=steps, tol=0.0, algorithm="lloyd")
    return lloyd.fit(points).cluster_centers_


def draw(m: int, k: int, d: int) -> tuple[Floats, Floats]:
    """Return uniform points and a start from which Lloyd takes more steps than are timed, alike in both programs.

    Raises
    ------
    RuntimeError
        If there is no such start.
    AssertionError
        If the two programs do not come to the same centroids.
    """
    rng = np.random.default_rng(0)
    points = rng.random((m, d))
    for _ in range(_TRIES):
        start = points[rng.choice(m, k, replace=False)]
        found = ours(points, start, _MANY)
        if not np.array_equal(found, ours(points, start, _MANY + 1)):
            np.testing.assert_allclose(found, theirs(points, start, _MANY), rtol=1e-3)
            return points, start
    raise RuntimeError(f"Lloyd converges within {_MANY} steps on {m} points, k = {k}, d = {d}")
