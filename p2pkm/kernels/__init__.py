"""Kernels: local computations on arrays, in a reference (NumPy) and a compiled (numba) implementation.

This is the only package that imports numba.
"""

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from p2pkm.core.batch import Kernels
from p2pkm.core.errors import ExperimentError
from p2pkm.core.mpi_environment import check_threads, count_cores, launched

# Largest number of devices on a rank, and of points x clusters x features in total, for which the reference
# implementation is faster than the import of numba: with several ranks, of which each would import numba,
_FEW, _SMALL = 2, 2_000_000
# and with one rank; the work of all runs of the process counts.
_FEW_ALONE, _SMALL_ALONE = 16, 120_000
# As long as the cache lacks compiled kernels: for which the reference implementation is faster than their compilation.
_FEW_COLD, _SMALL_COLD = 256, 1_000_000
# Processor seconds since the first run with the reference after which the import of numba pays, if kernels are
# compiled: as much as it takes.
_IMPORT = 1.5
# Work of the reference implementation in this process so far, and processor time of the process before it.
_plain_so_far = 0
_plain_since: float | None = None
# Types of points for which this process has used the compiled kernels.
_compiled_types: set[str] = set()


def select_kernels(ranks: int, devices: int, work: int, dtype: str = "float64") -> Kernels:
    """Select the compiled kernels, or the reference if import or compilation would take longer than the work.

    If kernels are missing in the cache, a second process compiles them.

    Parameters
    ----------
    ranks : int
        Number of ranks.
    devices : int
        Number of devices on this rank.
    work : int
        Points x clusters x features of all devices.
    dtype : str, default="float64"
        Type of the points. A single process that has imported numba uses compiled kernels for float64 at any size. For
        float32 it does so only after a larger run: their compilation takes many times longer than small work.

    Raises
    ------
    ExperimentError
        As in `load`.
    """
    global _plain_so_far, _plain_since
    is_single = ranks == 1
    is_ready = "numba" in sys.modules and (dtype == "float64" or dtype in _compiled_types)
    few, small, before = (_FEW_ALONE, _SMALL_ALONE, _plain_so_far) if is_single else (_FEW, _SMALL, 0)
    is_small = devices <= few and before + work <= small and not (is_single and is_ready)
    if is_small and is_single and compiles() and not launched():
        is_small = _stays_plain(dtype)
    # On several ranks rank 0 decides for all, see `p2pkm.engine.build_batch.choose_kernels`.
    if not is_small and is_single and dtype not in _compiled_types:
        is_small = starts_compilation(dtype) and is_faster_than_compilation(devices, before + work)
    if is_small:
        from p2pkm.kernels import reference as plain

        _plain_so_far += work
        if _plain_since is None:
            _plain_since = time.process_time()
        return cast(Kernels, plain)
    _compiled_types.add(dtype)
    return load()


def _stays_plain(dtype: str) -> bool:
    """Return whether a small run uses the reference: the import does not pay yet, or the cache may lack kernels.

    If it may, a second process looks, and compiles what it lacks.
    """
    from p2pkm.kernels.background import is_marked, start_compilation
    from p2pkm.kernels.compile_time import tell_missing

    if is_marked(dtype):
        return _plain_since is None or time.process_time() - _plain_since < _IMPORT
    if start_compilation(dtype, ahead=True):
        tell_missing()
    return True


def is_faster_than_compilation(devices: int, work: int) -> bool:
    """Return whether the reference takes less time for these devices of all ranks than compilation of the kernels."""
    return devices <= _FEW_COLD and work <= _SMALL_COLD


def starts_compilation(dtype: str) -> bool:
    """Return whether the cache lacks kernels for a type of points; a second process then compiles them for later runs.

    Raises
    ------
    ExperimentError
        As in `load`.
    """
    if not compiles():
        return False
    from p2pkm.kernels.background import are_cached, is_marked, start_compilation
    from p2pkm.kernels.compile_time import tell_missing

    if not launched() and "numba" not in sys.modules and not is_marked(dtype) and start_compilation(dtype, ahead=True):
        # The second process looks, so that this one need not import numba.
        tell_missing()
        return True
    if is_missing := not are_cached(load(), _calls(dtype)):
        start_compilation(dtype, ahead=True)
        tell_missing()
    return is_missing


def load() -> Kernels:
    """Return the compiled kernels, or the reference (bit-identical) if the user disabled compilation.

    Raises
    ------
    ExperimentError
        If numba cannot be imported, or does not find a writable cache folder.
    """
    if not compiles():
        from p2pkm.kernels import reference as plain

        return cast(Kernels, plain)
    check_threads()
    try:
        from p2pkm.kernels import numba as compiled
    # RuntimeError: numba does not find a writable cache folder.
    except (ImportError, RuntimeError) as error:
        raise ExperimentError(
            f"the kernels cannot be compiled: {error}. Set NUMBA_CACHE_DIR to a writable folder, or "
            "NUMBA_DISABLE_JIT=1 to run without compilation (same results, much slower)"
        ) from None
    return cast(Kernels, compiled)


def compiles() -> bool:
    """Return whether numba may compile: False with NUMBA_DISABLE_JIT=1, with which LLVM intrinsics do not run."""
    value = os.environ.get("NUMBA_DISABLE_JIT", "0")
    # The value is parsed as in numba.
    return not (value.strip().isdecimal() and int(value))


def compile_ahead(dtype: str = "float64", *, lock: bool = True, backwards: bool = False, helped: bool = False) -> None:
    """Compile all kernels for the types of a run, or load them from the cache; does nothing without compilation.

    Parameters
    ----------
    dtype : str, default="float64"
        Type of the points.
    lock : bool, default=True
        Wait for other processes that compile into the same cache, and load their result.
    backwards : bool, default=False
        Start with the last kernel. Without the lock, two processes that start from both ends share the work through
        the cache.
    helped : bool, default=False
        Start a second process that compiles from the other end, if this process may use more than one core.

    Raises
    ------
    ExperimentError
        As in `load`.
    """
    if compiles():
        from contextlib import nullcontext

        from p2pkm.kernels.background import are_cached, find_cache, mark_compiled, start_compilation, stop_compilation
        from p2pkm.kernels.cache_lock import lock_cache

        compiled: Any = load()
        calls = _calls(dtype)
        is_complete = partial(are_cached, compiled, calls)
        # Nobody waits for a process that compiles for others.
        must_wait = lock and not is_complete()
        with lock_cache(find_cache(compiled), is_needless=is_complete) if must_wait else nullcontext():
            if helped and count_cores() > 1 and not is_complete():
                start_compilation(dtype, ahead=False)
            for name, args in reversed(calls) if backwards else calls:
                getattr(compiled, name)(*args)
        # What it still compiles, this process has compiled.
        stop_compilation()
        if is_complete():
            mark_compiled(compiled, dtype)


def compile_for_later(dtype: str, goes_on: Callable[[], bool]) -> None:
    """Compile the kernels that the cache lacks, one at a time on this cache, as long as `goes_on`, but at least one."""
    if compiles():
        from p2pkm.kernels.background import compile_missing, mark_compiled

        compiled = load()
        if compile_missing(compiled, _calls(dtype), goes_on):
            mark_compiled(compiled, dtype)


def _calls(dtype: str) -> list[tuple[str, tuple[Any, ...]]]:
    """Return name and arguments of a call of every kernel, with the types of a run for this type of points.

    Kernels that methods also call with rows of tables, which are float64 in every run, are called with both types.

    The order suits two processes that start from both ends: compilation takes equally long from either end, the kernels
    in the middle are short, and the last kernels do not use helper functions of the first. `gtvmin` takes longest, and
    a run needs it late. A run of the default method needs all kernels from `gtv` on, and compiles `kmeans` meanwhile.
    """
    import numpy as np

    rows, weights, offsets = np.array([[0.0], [1.0]]), np.ones(2), np.array([0, 1, 2])
    points = rows.astype(dtype)
    variants = [points] if dtype == "float64" else [points, rows]
    keys = np.array([1, 2], np.uint64)
    indptr = np.array([0, 1, 2])
    neighbors = np.array([1, 0])
    centroids = np.zeros((2, 1, 1))
    received = np.ones(2, np.int64)
    fresh = np.ones(2, np.bool_)
    store = np.array([0, 1, 2]), np.array([0, 1]), np.ones(2, np.int64), np.zeros((2, 1))
    versions = np.eye(2, dtype=np.uint8)
    links = np.arange(2), indptr, centroids, received, neighbors, weights
    return [
        *[("kmeans", (values, weights, weights, offsets, 1, 1, 1, 1, weights, keys, 1, 0)) for values in variants],
        *[("refine", (values, weights, offsets, centroids, neighbors, 1, weights, False)) for values in variants],
        ("cdkm", (rows, weights, rows, 1)),
        ("breathe", (rows, weights, rows, 1, 1, 0)),
        *[("moments", (values, weights, offsets, rows[0])) for values in variants],
        ("moments", (points, weights[:0], offsets, rows[0])),
        ("cluster_moments", (points, weights, offsets, neighbors, centroids)),
        ("count_class_labels", (offsets, neighbors, neighbors, 2, 2)),
        ("color", (indptr, neighbors)),
        ("components", (indptr, neighbors)),
        ("layers", (indptr, neighbors, neighbors[:1])),
        ("mirror", (indptr, neighbors)),
        ("add_differences", (centroids, centroids, centroids, indptr, neighbors, weights)),
        ("lanczos", (indptr, neighbors.astype(np.int32), *np.ones((4, 2, 3)), np.ones(3), 1)),
        ("fuzzy_cmeans", (rows, weights, offsets, centroids, neighbors, 1, 0.0, 0)),
        ("concatenate_tables", (versions > 0, versions, *store)),
        ("merge_flooded", (np.zeros((2, 1, 2)), received, neighbors, fresh, indptr, versions, *store)),
        ("gtv", (centroids, np.array([0, 1]), indptr, neighbors, neighbors)),
        ("evaluate_costs", (points, weights, offsets, neighbors, 2, centroids)),
        *[("losses", (values, weights, offsets, centroids)) for values in variants],
        ("integer_bits", (np.ones((2, 1, 1), np.int64),)),
        ("gtvmin", (points, weights, offsets, centroids, centroids, *links, weights, 1, True, False, False)),
    ]
