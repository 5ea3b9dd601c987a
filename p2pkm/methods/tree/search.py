"""Breathing search along a tree: rows are added where the error is large, and rows of least utility are removed.

After B. Fritzke, "The breathing k-means algorithm", 2020, with sums over all devices. d1 and d2 are the distances of a
point to the nearest row c and to the second nearest row. A trial has four parts:

1. Add m rows next to those of largest error ``phi_c = sum d1^2``.
2. Take two Lloyd steps.
3. Remove the m rows of least utility ``U_c = sum (d2^2 - d1^2)``, one after another. The row nearest to a removed row
   stays.
4. Take at most four Lloyd steps.

The result is kept if the pooled cost decreased; otherwise it is reverted, and the next trial adds m - 1 rows.
"""

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.chunks import label

# Rows that the first trial adds, and largest number of trials.
MOST = 5
TRIALS = 10
# Lloyd steps after rows were added, and largest number of Lloyd steps after rows were removed.
GROWN = 2
SHRUNK = 4
# Relative decrease of the pooled cost for which a trial is kept.
GAIN = 1e-6
# Largest offset of a new row in each coordinate, relative to the root mean square distance of a point to its row.
_OFFSET = 0.05


def sum_errors(devices: Devices, tables: Floats, scale: Floats, *, utility: bool) -> Floats:
    """Compute the errors phi or utilities U of all rows over the local points, float64[n, k], as 16-bit numbers.

    Parameters
    ----------
    tables : float64[n, k, d]
        Absent rows are +inf.
    scale : float64[n]
        Divisor of the sums.
    utility : bool
        Utilities instead of errors.
    """
    n, k, d = tables.shape
    sums = np.zeros((n, k))
    for piece in label(devices, tables):
        count = piece.span.stop - piece.span.start
        owner = np.repeat(np.arange(count), np.diff(piece.offsets))
        points = devices.stored[piece.rows].astype(np.float64, copy=False)
        rows = tables[piece.span]
        least, second = np.full(len(owner), np.inf), np.full(len(owner), np.inf)
        for c in range(k):
            squared = np.zeros(len(owner))
            for f in range(d):
                squared += (points[:, f] - rows[owner, c, f]) ** 2
            second = np.minimum(second, np.maximum(least, squared))
            least = np.minimum(least, squared)
        labeled = piece.labels >= 0
        error = (np.where(second < np.inf, second, 0.0) - least if utility else least)[labeled]
        cells = (owner * k + piece.labels)[labeled]
        weights = devices.point_weights[piece.rows][labeled]
        sums[piece.span] = np.bincount(cells, weights * error, count * k).reshape(count, k)
    return shorten(sums / np.where(scale > 0.0, scale, 1.0)[:, None])


def shorten(values: Floats, digits: int = 8) -> Floats:
    """Round values to floating-point numbers of 8 + digits bits.

    A number has a sign, 8 bits of exponent, and `digits` binary digits, of which the first is always 1 and not sent.
    """
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.rint(np.ldexp(mantissa, digits)), exponent - digits)


def choose_largest(errors: Floats, present: Integers, m: int) -> Integers:
    """Choose the m rows of largest error, int64[m], among the row numbers `present`."""
    return present[np.argsort(-errors[present], kind="stable")[:m]]


def choose_least(utility: Floats, rows: Floats, m: int) -> Integers:
    """Choose the m rows of least utility, int64[m], one after another.

    Parameters
    ----------
    utility : float64[k]
    rows : float64[k, d]
        Absent rows are +inf.
    m : int
        Number of rows.
    """
    present = np.isfinite(rows[:, 0])
    frozen = np.zeros(len(rows), np.bool_)
    chosen = list[int]()
    for c in sorted(np.flatnonzero(present).tolist(), key=lambda c: float(utility[c])):
        if frozen[c] or len(chosen) == m:
            continue
        chosen.append(c)
        present[c] = False
        remaining = np.flatnonzero(present)
        squared = np.cumsum((rows[remaining] - rows[c]) ** 2, axis=1)[:, -1]
        # The nearest row takes over the points of the removed one, so its utility is no longer valid.
        frozen[remaining[np.argmin(squared)]] = True
    rest = [c for c in sorted(np.flatnonzero(present).tolist(), key=lambda c: float(utility[c])) if c not in chosen]
    return np.array((chosen + rest)[:m], np.int64)


def placement_distance(cost: float, weight: float) -> float:
    """Compute the largest offset of a new row in steps, at least 1, from a cost in squared steps."""
    spread = np.sqrt(cost / weight) if weight > 0.0 else 0.0
    return max(1.0, float(np.rint(_OFFSET * spread)))
