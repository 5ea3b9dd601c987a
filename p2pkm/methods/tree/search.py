"""Breathing along a tree: rows are added where the error is large, and those that are missed least are taken out.

After B. Fritzke, "The breathing k-means algorithm", 2020, by sums over all devices alone: a trial adds m rows beside
those of the largest error ``phi_c = sum d1^2``, takes two Lloyd steps, takes out the m rows of the least utility
``U_c = sum (d2^2 - d1^2)`` one by one (the row nearest to one that was taken out stays), and takes at most four steps;
d1 and d2 are the distances of a point to the nearest and the second nearest row, c the nearest one. It is kept if the
cost fell, else taken back, and the next one is with m - 1.
"""

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers
from p2pkm.core.chunks import label

MOST, TRIALS = 5, 10  # rows that are added at first; trials
GROWN, SHRUNK = 2, 4  # Lloyd steps before and after rows are taken out
GAIN = 1e-6  # relative fall of the cost for which a trial is kept
_ASIDE = 0.05  # of the root mean square distance: how far a row is put beside another one


def sum_errors(devices: Devices, tables: Floats, scale: Floats, *, utility: bool) -> Floats:
    """Return phi, or U, of the own points for each row, float64[n, k], in 16-bit numbers.

    Parameters
    ----------
    tables : float64[n, k, d]
        Absent rows are +inf.
    scale : float64[n]
        What the sums are divided by.
    utility : bool
        Whether U is asked for.
    """
    n, k, d = tables.shape
    sums = np.zeros((n, k))
    for piece in label(devices, tables):
        count = piece.own.stop - piece.own.start
        owner = np.repeat(np.arange(count), np.diff(piece.offsets))
        points, rows = devices.stored[piece.rows].astype(np.float64, copy=False), tables[piece.own]
        least, second = np.full(len(owner), np.inf), np.full(len(owner), np.inf)
        for c in range(k):
            apart = np.zeros(len(owner))
            for f in range(d):
                apart += (points[:, f] - rows[owner, c, f]) ** 2
            second = np.minimum(second, np.maximum(least, apart))
            least = np.minimum(least, apart)
        taken = piece.labels >= 0
        error = (np.where(second < np.inf, second, 0.0) - least if utility else least)[taken]
        cells = (owner * k + piece.labels)[taken]
        weights = devices.point_weights[piece.rows][taken]
        sums[piece.own] = np.bincount(cells, weights * error, count * k).reshape(count, k)
    return shorten(sums / np.where(scale > 0.0, scale, 1.0)[:, None])


def shorten(values: Floats, digits: int = 8) -> Floats:
    """Return values rounded to what 8 + digits bits hold: sign, 8 bits of exponent, digits, of which the first is 1."""
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.rint(np.ldexp(mantissa, digits)), exponent - digits)


def choose_largest(phi: Floats, real: Integers, m: int) -> Integers:
    """Return the m rows of the largest error, int64[m]; real: the rows there are."""
    return real[np.argsort(-phi[real], kind="stable")[:m]]


def choose_least(utility: Floats, rows: Floats, m: int) -> Integers:
    """Return the m rows that are missed least, int64[m], one after the other; rows: float64[k, d], absent ones +inf."""
    real = np.isfinite(rows[:, 0])
    frozen, chosen = np.zeros(len(rows), np.bool_), list[int]()
    for c in sorted(np.flatnonzero(real).tolist(), key=lambda c: float(utility[c])):
        if frozen[c] or len(chosen) == m:
            continue
        chosen.append(c)
        real[c] = False
        others = np.flatnonzero(real)
        apart = np.cumsum((rows[others] - rows[c]) ** 2, axis=1)[:, -1]
        frozen[others[np.argmin(apart)]] = True
    rest = [c for c in sorted(np.flatnonzero(real).tolist(), key=lambda c: float(utility[c])) if c not in chosen]
    return np.array((chosen + rest)[:m], np.int64)


def aside(cost: float, mass: float) -> float:
    """Return how many steps a new row is put beside another one, at least 1; cost in squared steps."""
    spread = np.sqrt(cost / mass) if mass > 0.0 else 0.0
    return max(1.0, float(np.rint(_ASIDE * spread)))
