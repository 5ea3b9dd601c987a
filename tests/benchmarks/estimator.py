"""`P2PKMeans` against `KMeans` of scikit-learn on the same blobs: fit and predict.

The default initialization takes the best of three starts on each device, so `KMeans` takes three, too.
"""

import os
import warnings
from statistics import median
from typing import Any

from tests.benchmarks.figure import Figure, interleave, of_trials, show

# Points, features, clusters, and the largest ratio; 0: shows what does not depend on the points.
_SHAPES = ((100_000, 10, 10, 1.5), (300_000, 16, 16, 1.3), (2_000, 8, 5, 8.0), (200, 8, 5, 0.0))
_DEVICES, _STARTS = 16, 3


def measure(quick: bool) -> list[Figure]:
    """Return the wall time of the estimator over that of KMeans; both may use the same number of threads."""
    figures = []
    for m, d, k, target in _SHAPES:
        m = min(m, 5_000) if quick else m
        estimator_times, reference_times = interleave(_prepare(m, d, k))
        ratios = [a / b for a, b in zip(estimator_times, reference_times, strict=True)]
        threads = os.environ.get("OMP_NUM_THREADS", "all")
        times = f"{show(median(estimator_times))} against {show(median(reference_times))}"
        note = f"{times}, {threads} threads each, {_DEVICES} devices"
        what = f"P2PKMeans over KMeans with n_init={_STARTS}, fit and predict, blobs, {m:,} x {d}, k = {k}"
        figures.append(of_trials(what, ratios, ("x", "at most" if target else "", target), note))
    return figures


def _prepare(m: int, d: int, k: int) -> list[Any]:
    """Return two functions, one for each estimator, that fit it to the same blobs and predict their labels."""
    from sklearn.cluster import KMeans
    from sklearn.datasets import make_blobs

    import p2pkm
    from p2pkm.kernels import load

    load()
    points, _ = make_blobs(m, d, centers=k, random_state=0)

    def fit(model: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it did not converge
            model.fit(points).predict(points)

    return [
        lambda: fit(p2pkm.P2PKMeans(k, n_devices=_DEVICES, random_state=0)),
        lambda: fit(KMeans(k, n_init=_STARTS, random_state=0)),
    ]
