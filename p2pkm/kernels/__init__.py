"""The local computations: arrays in, arrays out; the only folder that knows numba."""

import sys
from typing import cast

from p2pkm.core.batch import Kernels

# devices on this rank, and points x clusters x features in all, that plain NumPy handles
_FEW, _SMALL = 2, 2_000_000  # of several ranks
_FEW_ALONE, _SMALL_ALONE = 16, 20_000  # of one, unless numba is there already


def pick(ranks: int, devices: int, work: int) -> Kernels:
    """Return the compiled kernels, or the plain ones where importing numba would take longer than the work itself.

    Parameters
    ----------
    ranks : int
        Every one of them would import numba.
    devices : int
        Number of devices on this rank.
    work : int
        Points x clusters x features of all devices.
    """
    alone = ranks == 1
    few, small = (_FEW_ALONE, _SMALL_ALONE) if alone else (_FEW, _SMALL)
    if devices <= few and work <= small and not (alone and "numba" in sys.modules):
        from p2pkm.kernels import reference as plain

        return cast(Kernels, plain)
    from p2pkm.kernels import numba as compiled

    return cast(Kernels, compiled)


def compile_ahead() -> None:
    """Compile every kernel for the types that a run uses, or read it from numba's cache."""
    import numpy as np

    from p2pkm.kernels import numba as compiled

    points, weights, offsets = np.array([[0.0], [1.0]]), np.ones(2), np.array([0, 1, 2])
    keys, indptr, one = np.array([1, 2], np.uint64), np.array([0, 1, 2]), np.array([1, 0])
    centroids, _, _ = compiled.kmeans(points, weights, weights, offsets, 1, 1, 1, 1, weights, keys, 1, 0)
    compiled.refine(points, weights, offsets, centroids, one, 1, weights, False)
    compiled.cdkm(points, weights, points, 1)
    compiled.fuzzy(points, weights, offsets, centroids, one, 1, 0.0)
    tables = centroids.view()
    tables.flags.writeable = False
    heard, awake = np.ones(2, np.int64), np.ones(2, np.bool_)
    compiled.gtvmin(
        points,
        weights,
        offsets,
        centroids,
        centroids,
        awake,
        indptr,
        tables,
        heard,
        one,
        one,
        weights,
        1.0,
        1,
        True,
        False,
    )
    compiled.gtv(centroids, np.array([0, 1]), indptr, one, one)
    compiled.losses(points, weights, offsets, centroids)
    compiled.price(points, weights, offsets, one, 2, centroids)
    for given in (weights, weights[:0]):
        compiled.moments(points, given, offsets, points[0])
    compiled.digest(centroids)
    compiled.tabulate(offsets, one, one, 2, 2)
    graph = [part.view() for part in (indptr, one, one[:1])]
    for part in graph:
        part.flags.writeable = False
    compiled.color(*graph[:2])
    compiled.components(*graph[:2])
    compiled.layers(*graph)
    compiled.mirror(*graph[:2])
    store = np.array([0, 1, 2]), np.array([0, 1]), np.ones(2, np.int64), np.zeros((2, 1))
    flooded = np.zeros((2, 1, 2))
    flooded.flags.writeable = False
    versions = np.eye(2, dtype=np.uint8)
    compiled.bundle(versions > 0, versions, *store)
    compiled.merge(flooded, heard, one, awake, indptr, versions, *store)
