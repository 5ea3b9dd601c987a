"""Compiled sums over the tables that every device received."""

import math

import numpy as np

from p2pkm.kernels.numba.compiling import compiled_backend
from p2pkm.kernels.numba.threads import divide


@compiled_backend(2)
def _add_differences(local, tables, indptr, slots, weights, begin, end, sums, counts):
    """Add the differences of the devices `begin` to `end` - 1; the rows of a table are in one row of the arrays."""
    size = local.shape[1]
    rows = counts.shape[1]
    width = size // max(rows, 1)
    for i in range(begin, end):
        for e in range(indptr[i], indptr[i + 1]):
            slot, weight = slots[e], weights[e]
            if slot < 0:
                continue
            for j in range(size):
                difference = tables[slot, j] - local[i, j]
                sums[i, j] += weight * difference if np.abs(difference) < np.inf else 0.0
            for c in range(rows):
                counts[i, c] += np.abs(tables[slot, c * width] - local[i, c * width]) < np.inf


def add_differences(start, local, tables, indptr, slots, weights):
    """Add the differences of received tables; see `p2pkm.kernels.reference.add_differences`."""
    n, r, w = start.shape
    # The rows of a table are contiguous, unless other tables of the stage are wider.
    tables = tables if tables.shape[2] == w else np.ascontiguousarray(tables[:, :r, :w])
    sums, counts = start.reshape(n, r * w).copy(), np.zeros((n, r), np.int64)
    inputs = local.reshape(n, r * w), tables.reshape(len(tables), math.prod(tables.shape[1:])), indptr, slots, weights
    divide(lambda begin, end: _add_differences(*inputs, begin, end, sums, counts), indptr)
    return sums.reshape(start.shape), counts
