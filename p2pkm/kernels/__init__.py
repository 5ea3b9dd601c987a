"""The local computations: arrays in, arrays out; the only folder that knows numba."""

import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

from p2pkm.core.batch import Kernels
from p2pkm.core.errors import ExperimentError
from p2pkm.core.mpi_environment import check_threads
from p2pkm.kernels.cache_lock import lock_cache

# devices on this rank, and points x clusters x features in all, that plain NumPy handles
_FEW, _SMALL = 2, 2_000_000  # of several ranks
_FEW_ALONE, _SMALL_ALONE = 16, 120_000  # of one, of all its runs together, unless numba is there already
_plain_so_far = 0  # points x clusters x features that this process has left to plain NumPy


def select_kernels(ranks: int, devices: int, work: int) -> Kernels:
    """Return the compiled kernels, or the plain ones where importing numba would take longer than the work itself.

    Raises
    ------
    ExperimentError
        As `load`.

    Parameters
    ----------
    ranks : int
        Every one of them would import numba.
    devices : int
        Number of devices on this rank.
    work : int
        Points x clusters x features of all devices.
    """
    global _plain_so_far
    alone = ranks == 1
    few, small, before = (_FEW_ALONE, _SMALL_ALONE, _plain_so_far) if alone else (_FEW, _SMALL, 0)
    if devices <= few and before + work <= small and not (alone and "numba" in sys.modules):
        from p2pkm.kernels import reference as plain

        _plain_so_far += work
        return cast(Kernels, plain)
    return load()


def load() -> Kernels:
    """Return the compiled kernels, or the plain ones, with the same bits, where the user lets numba compile nothing.

    Raises
    ------
    ExperimentError
        If numba cannot be used.
    """
    if not compiles():
        from p2pkm.kernels import reference as plain

        return cast(Kernels, plain)
    check_threads()
    try:
        from p2pkm.kernels import numba as compiled
    except (ImportError, RuntimeError) as error:  # RuntimeError: numba finds no folder that it can write
        raise ExperimentError(
            f"the kernels cannot be compiled: {error}; set NUMBA_CACHE_DIR to a folder that can be written, or "
            "NUMBA_DISABLE_JIT=1 to do without, with the same results but much more slowly"
        ) from None
    return cast(Kernels, compiled)


def compiles() -> bool:
    """Return whether numba may compile: not with NUMBA_DISABLE_JIT=1, under which our vector operations do not run."""
    given = os.environ.get("NUMBA_DISABLE_JIT", "0")
    return not (given.strip().isdecimal() and int(given))  # as numba reads it


def compile_ahead(*, lock: bool = True, backwards: bool = False) -> None:
    """Compile every kernel for the types that a run uses, or read it from numba's cache; nothing if numba may not.

    Parameters
    ----------
    lock : bool, default=True
        Wait for any other process that compiles into the same cache, and read what it compiled.
    backwards : bool, default=False
        Begin with the last one: without the lock, two processes that start from both ends share the work through the
        cache.

    Raises
    ------
    ExperimentError
        As `load`.
    """
    if compiles():
        compiled: Any = load()
        calls = _calls(compiled)
        with lock_cache(Path(str(compiled.entry("moments").stats.cache_path))) if lock else nullcontext():
            for call in reversed(calls) if backwards else calls:
                call()


def _calls(compiled: Any) -> list[Callable[[], Any]]:
    """Return a call of every kernel with the types that a run uses.

    Both ends take equally long, and what lies between is short: two processes that meet there compile nothing twice but
    what is in hand. The last ones use nothing of the first, whose parts are in the cache when others need them.
    """
    import numpy as np

    points, weights, offsets = np.array([[0.0], [1.0]]), np.ones(2), np.array([0, 1, 2])
    keys, indptr, one = np.array([1, 2], np.uint64), np.array([0, 1, 2]), np.array([1, 0])
    centroids = np.zeros((2, 1, 1))
    received, awake = np.ones(2, np.int64), np.ones(2, np.bool_)
    store = np.array([0, 1, 2]), np.array([0, 1]), np.ones(2, np.int64), np.zeros((2, 1))
    versions = np.eye(2, dtype=np.uint8)
    links = np.arange(2), indptr, centroids, received, one, weights
    return [
        lambda: compiled.kmeans(points, weights, weights, offsets, 1, 1, 1, 1, weights, keys, 1, 0),
        lambda: compiled.refine(points, weights, offsets, centroids, one, 1, weights, False),
        lambda: compiled.cdkm(points, weights, points, 1),
        lambda: compiled.moments(points, weights, offsets, points[0]),
        lambda: compiled.moments(points, weights[:0], offsets, points[0]),
        lambda: compiled.tabulate(offsets, one, one, 2, 2),
        lambda: compiled.color(indptr, one),
        lambda: compiled.components(indptr, one),
        lambda: compiled.layers(indptr, one, one[:1]),
        lambda: compiled.mirror(indptr, one),
        lambda: compiled.lanczos(indptr, one.astype(np.int32), *np.ones((4, 2, 3)), np.ones(3), 1),
        lambda: compiled.gtv(centroids, np.array([0, 1]), indptr, one, one),
        lambda: compiled.fuzzy(points, weights, offsets, centroids, one, 1, 0.0),
        lambda: compiled.price(points, weights, offsets, one, 2, centroids),
        lambda: compiled.losses(points, weights, offsets, centroids),
        lambda: compiled.gtvmin(points, weights, offsets, centroids, centroids, *links, 1.0, 1, True, False, False),
        lambda: compiled.bundle(versions > 0, versions, *store),
        lambda: compiled.merge(np.zeros((2, 1, 2)), received, one, awake, indptr, versions, *store),
        lambda: compiled.integer_bits(np.ones((2, 1, 1), np.int64)),
    ]
