"""The local pass beside scikit-learn, scikit-learn-intelex (oneDAL) and faiss.

Run ``python -m tests.benchmarks.peers.local`` with OMP_NUM_THREADS=1 and NUMBA_NUM_THREADS=1, in an environment of its
own that has the three and numba.
All start from the same centroids; a pass is the slope between 2 and 12 iterations.
"""

import argparse
import warnings
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from statistics import median
from typing import Any

import numpy as np

from p2pkm.core.batch import Floats
from tests.benchmarks.figure import interleave, show, slopes
from tests.benchmarks.local import SHAPES, draw, ours, theirs

_FEW, _MANY = 2, 12


def by_onedal(points: Floats, start: Floats, steps: int) -> Any:
    """Run scikit-learn-intelex."""
    from sklearnex.cluster import KMeans  # type: ignore[import-not-found]

    lloyd = KMeans(len(start), init=start, n_init=1, max_iter=steps, tol=0.0, algorithm="lloyd")
    return lloyd.fit(points).cluster_centers_


def by_faiss(points: Floats, start: Floats, steps: int) -> Any:
    """Run faiss, which computes in float32."""
    import faiss  # type: ignore[import-not-found]

    kmeans = faiss.Kmeans(points.shape[1], len(start), niter=steps, max_points_per_centroid=len(points))
    kmeans.train(points.astype(np.float32), init_centroids=start.astype(np.float32))
    return kmeans.centroids


def main() -> None:
    """Print a line per shape."""
    from threadpoolctl import threadpool_limits

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--most", type=int, default=10**9, help="leave out shapes of more numbers than this")
    most = parser.parse_args().most
    peers: dict[str, Callable[..., Any]] = {"scikit-learn": theirs, "scikit-learn-intelex": by_onedal,
                                            "faiss-cpu": by_faiss}  # fmt: skip
    print(", ".join(f"{name} {version(name)}" for name in (*peers, "numba", "numpy")))
    for m, k, d in SHAPES:
        if m * d > most:
            continue
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it did not converge
            points, start = draw(m, k, d)
            works = [partial(work, points, start, steps) for work in (ours, *peers.values()) for steps in (_FEW, _MANY)]
            taken = interleave(works)
        own, *others = (
            median(slopes(few, many, _MANY - _FEW)) for few, many in zip(taken[::2], taken[1::2], strict=True)
        )
        beside = ", ".join(f"{name} {show(one)} ({one / own:.2f} x)" for name, one in zip(peers, others, strict=True))
        print(f"{m:,} points, k = {k}, d = {d}: p2pkm {show(own)}; {beside}", flush=True)


if __name__ == "__main__":
    main()
