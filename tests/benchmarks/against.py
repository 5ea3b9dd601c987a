"""The batched sweep against loops over devices: one in NumPy, one over scikit-learn's k-means."""

import time
import warnings
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats
from p2pkm.methods.peer.gtvmin import GTVMin
from tests.benchmarks.arena import Arena, build
from tests.benchmarks.figure import Figure, show

_TRIALS = 5


class Local(NamedTuple):
    """What one device has: points float64[m, d], own rows float64[k, d], heard rows float64[e, k, d], strengths [e]."""

    points: Floats
    own: Floats
    heard: Floats
    alpha: Floats


def measure(quick: bool) -> list[Figure]:
    """Return how many times faster the batched sweep is than both loops, per device, on one thread."""
    n, some, fewer = (2_000, 100, 20) if quick else (10_000, 1_000, 200)
    arena = build(n, 4, 2)
    parts = take(arena, some)
    check(arena, parts)
    taken = np.array([
        (median(arena.clock(5)) / n, clock(update, parts), clock(fit, parts[:fewer])) for _ in range(_TRIALS)
    ])  # fmt: skip
    own = show(float(np.median(taken[:, 0])))
    rows = (("a NumPy loop over devices", 1, 60.0), ("scikit-learn on the augmented set per device", 2, 600.0))
    figures = []
    for name, column, target in rows:
        ratio, other = float(np.median(taken[:, column] / taken[:, 0])), float(np.median(taken[:, column]))
        what = f"sweep against {name}, k = 4, d = 2"
        figures.append(Figure(what, ratio, "x", "at least", target, f"{own} against {show(other)} per device"))
    return figures


def take(arena: Arena, count: int) -> list[Local]:
    """Return what each of the first devices has at the start."""
    devices, start = arena.devices, arena.start()
    alpha = GTVMin(len(arena.means)).objective.link_alpha(devices)
    parts = []
    for i in range(count):
        own, edges = slice(*devices.offsets[i : i + 2]), slice(*devices.indptr[i : i + 2])
        parts.append(Local(devices.stored[own], start[i], start[devices.indices[edges]], alpha[edges]))
    return parts


def update(part: Local) -> Floats:
    """Return the centroids of a device after one pass; all distances come from one product of matrices."""
    (links, k, d), m = part.heard.shape, len(part.points)
    rows = np.concatenate((part.points, part.heard.reshape(-1, d)))
    distances = np.einsum("cf,cf->c", part.own, part.own) - 2.0 * (rows @ part.own.T)
    chosen = np.zeros((len(rows), k))
    chosen[np.arange(m), distances[:m].argmin(axis=1)] = 1.0
    chosen[np.arange(m, len(rows)), distances[m:].argmin(axis=1)] = np.repeat(part.alpha, k)
    squares = np.einsum("ecf,ecf->ec", part.heard, part.heard)
    back = (distances[m:].reshape(links, k, k) + squares[:, :, None]).argmin(axis=1)
    star = part.heard[np.arange(links)[:, None], back]
    sums = chosen.T @ rows + (part.alpha @ star.reshape(links, -1)).reshape(k, d)
    return sums / (chosen.sum(axis=0) + part.alpha.sum())[:, None]


def fit(part: Local) -> Any:
    """Run one step of scikit-learn's k-means on the points and the weighted rows of the neighbors."""
    from sklearn.cluster import KMeans

    rows = np.concatenate((part.points, part.heard.reshape(-1, part.own.shape[1])))
    weights = np.concatenate((np.ones(len(part.points)), np.repeat(part.alpha, len(part.own))))
    return KMeans(len(part.own), init=part.own, n_init=1, max_iter=1).fit(rows, sample_weight=weights)


def clock(work: Any, parts: list[Local]) -> float:
    """Return the seconds of one device."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it did not converge
        work(parts[0])
        began = time.perf_counter()
        for part in parts:
            work(part)
        return (time.perf_counter() - began) / len(parts)


def check(arena: Arena, parts: list[Local]) -> None:
    """See that the loop computes what the sweep does."""
    centroids = arena.play(1)[0].state.centroids
    np.testing.assert_allclose([update(part) for part in parts], centroids[: len(parts)], rtol=1e-9)
