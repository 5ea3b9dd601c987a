"""One matching of the rows of two tables with the least sum of squared distances (Hungarian method).

Both ends of a link solve the same problem, the rows of the lower id against those of the higher, so that ties fall
alike.
"""

import numpy as np

from p2pkm.core.batch import Floats, Integers
from p2pkm.methods.building_blocks.total_variation import squared


def pair_rows(mine: Floats, theirs: Floats, *, first: bool) -> tuple[Integers, Integers]:
    """Return the rows of both tables that are matched, int64[r] each, r the number of rows of the shorter one.

    Parameters
    ----------
    mine : float64[k, d]
        Absent rows are +inf and are not matched.
    theirs : float64[r, d]
    first : bool
        Whether the own id is the lower one.
    """
    from scipy.optimize import linear_sum_assignment

    real = np.flatnonzero(mine[:, 0] < np.inf)
    ends = (mine[real], theirs) if first else (theirs, mine[real])
    chosen = linear_sum_assignment(squared(*ends))
    own, other = chosen if first else chosen[::-1]
    return real[own], other


def optimal_variation(centroids: Floats, ids: Integers, indptr: Integers, indices: Integers, slots: Integers) -> Floats:
    """Return the least sum of squared distances of matched rows for every link at its lower end, 0 at the upper one.

    Parameters are those of `p2pkm.kernels.reference.gtv`.
    """
    result, source = np.zeros(len(indices)), np.repeat(np.arange(len(ids)), np.diff(indptr))
    for e in np.flatnonzero(ids[source] < indices):
        mine, other = centroids[source[e]], centroids[slots[e]]
        theirs = other[other[:, 0] < np.inf]
        own, matched = pair_rows(mine, theirs, first=True)
        costs = squared(mine, theirs)[own, matched]
        result[e] = np.cumsum(np.append(0.0, costs))[-1]
    return result
