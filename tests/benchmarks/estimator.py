"""`P2PKMeans.fit` against `KMeans.fit` of scikit-learn with one initialization, on the same blobs."""

import os
import warnings
from statistics import median
from typing import Any

from tests.benchmarks.figure import Figure, interleave, of_trials, show

# Points, features, clusters, and the largest ratio.
_SHAPES = ((100_000, 10, 10, 1.3), (300_000, 16, 16, 1.5), (2_000, 8, 5, 6.0))
_DEVICES = 16


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
        what = f"P2PKMeans.fit over KMeans with n_init=1, blobs, {m:,} x {d}, k = {k}"
        figures.append(of_trials(what, ratios, ("x", "at most", target), note))
    return figures


def _prepare(m: int, d: int, k: int) -> list[Any]:
    """Return both fits of the same blobs."""
    from sklearn.cluster import KMeans
    from sklearn.datasets import make_blobs

    import p2pkm
    from p2pkm.kernels import load

    load()
    points, _ = make_blobs(m, d, centers=k, random_state=0)

    def fit(model: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it did not converge
            model.fit(points)

    return [
        lambda: fit(p2pkm.P2PKMeans(k, n_devices=_DEVICES, random_state=0)),
        lambda: fit(KMeans(k, n_init=1, random_state=0)),
    ]
