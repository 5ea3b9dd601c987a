"""Optimal matching of the rows of two tables: least sum of squared distances (Hungarian method).

Both ends of a link solve the same problem, with the rows of the lower id first, so that they resolve ties alike.
"""

import numpy as np

from p2pkm.core.batch import Floats, Integers
from p2pkm.methods.building_blocks.total_variation import squared_distances


def match_rows(table: Floats, received: Floats, *, first: bool) -> tuple[Integers, Integers]:
    """Match rows of two tables: indices of the matched rows of both, int64[r] each.

    Parameters
    ----------
    table : float64[k, d]
        Local rows. Absent rows are +inf and are not matched.
    received : float64[r, d]
    first : bool
        Whether the local device has the lower id.
    """
    from scipy.optimize import linear_sum_assignment

    real = np.flatnonzero(table[:, 0] < np.inf)
    ends = (table[real], received) if first else (received, table[real])
    assignment = linear_sum_assignment(squared_distances(*ends))
    rows, matches = assignment if first else assignment[::-1]
    return real[rows], matches


def optimal_variation(centroids: Floats, ids: Integers, indptr: Integers, indices: Integers, slots: Integers) -> Floats:
    """Compute the cost of the optimal matching of every link, on the edge from its lower id; 0 on the other edge.

    The parameters are those of `p2pkm.kernels.reference.gtv`.
    """
    result, source = np.zeros(len(indices)), np.repeat(np.arange(len(ids)), np.diff(indptr))
    for e in np.flatnonzero(ids[source] < indices):
        table, neighbor_table = centroids[source[e]], centroids[slots[e]]
        neighbor_rows = neighbor_table[neighbor_table[:, 0] < np.inf]
        rows, matches = match_rows(table, neighbor_rows, first=True)
        costs = squared_distances(table, neighbor_rows)[rows, matches]
        result[e] = np.cumsum(np.append(0.0, costs))[-1]
    return result
