"""The space that rows of coefficients span: an orthonormal basis, and its exact dimension in a finite field.

Coefficients of gossip are fractions. In the field of the integers modulo the prime 2^31 - 1 a fraction is a number, and
arithmetic has no rounding: dimension and membership found there are those of the exact rows, unless the prime divides
one of the determinants that decide (a chance of about n / 2^31), and never too large.
"""

import numpy as np

from p2pkm.core.batch import Floats, Integers, Mask
from topologies.single_thread import single_thread

PRIME = 2**31 - 1
_DROPPED = 1e-9  # a direction that is left of rows of length 1
_EXACT = 64  # products of 31 and 16 bits whose sum a float64 holds exactly
_HALF = 16  # bits


class Orthonormal:
    """An orthonormal basis of the rows added so far.

    Parameters
    ----------
    n : int
        Length of a row.
    units : int64[b]
        The basis begins with these unit vectors, no two of them the same.

    Attributes
    ----------
    rows : float64[r, n]
    """

    def __init__(self, n: int, units: Integers) -> None:
        self.rows: Floats = np.zeros((len(units), n))
        self.rows[np.arange(len(units)), units] = 1.0

    @single_thread()
    def add(self, rows: Floats) -> Floats:
        """Add the span of more rows, float64[b, n]; return the new part of the basis.

        Of each row only its direction counts. What is left of it next to the others and the basis is dropped if it is
        shorter than 1e-9.
        """
        lengths = np.linalg.norm(rows, axis=1)
        found = rows[lengths > 0] / lengths[lengths > 0, None]
        if not len(found) or len(self.rows) == rows.shape[1]:
            return found[:0]
        for _ in range(2):
            found = found - (found @ self.rows.T) @ self.rows
        _, sizes, directions = np.linalg.svd(found, full_matrices=False)
        found = directions[sizes > _DROPPED]
        found = np.linalg.qr((found - (found @ self.rows.T) @ self.rows).T)[0].T
        self.rows = np.concatenate((self.rows, found))
        return found


class Echelon:
    """The reduced echelon form, modulo `PRIME`, of the rows added so far; see `Orthonormal` for the parameters.

    Every row has a pivot: 1 there, and all others have 0.

    Attributes
    ----------
    rows : int64[r, n]
    pivots : int64[r]
    """

    def __init__(self, n: int, units: Integers) -> None:
        self.pivots = np.asarray(units, np.int64)
        self.rows: Integers = np.zeros((len(units), n), np.int64)
        self.rows[np.arange(len(units)), units] = 1

    def add(self, rows: Integers) -> Integers:
        """Add the span of more rows, int64[b, n]; return rows that span the new part of it."""
        if len(self.pivots) == rows.shape[1]:
            return rows[:0]
        found, pivots = _reduce((rows - multiply_modulo(rows[:, self.pivots], self.rows)) % PRIME)
        kept = (self.rows - multiply_modulo(self.rows[:, pivots], found)) % PRIME
        self.rows, self.pivots = np.concatenate((kept, found)), np.concatenate((self.pivots, pivots))
        return found

    @property
    def solved(self) -> Mask:
        """Return of each column whether its unit vector is in the span, bool[n]."""
        mask = np.zeros(self.rows.shape[1], np.bool_)
        mask[self.pivots[np.count_nonzero(self.rows, axis=1) == 1]] = True
        return mask


def _reduce(rows: Integers) -> tuple[Integers, Integers]:
    """Return the reduced echelon form of rows, without those that are 0, and its pivots."""
    pivots = np.full(len(rows), -1)
    for i, row in enumerate(rows):
        places = np.flatnonzero(row)
        if not len(places):
            continue
        pivots[i] = places[0]
        row[:] = row * pow(int(row[places[0]]), -1, PRIME) % PRIME
        others = np.flatnonzero(rows[:, places[0]])
        others = others[others != i]
        rows[others] = (rows[others] - rows[others, places[0], None] * row) % PRIME
    return rows[pivots >= 0], pivots[pivots >= 0]


def multiply_modulo(a: Integers, b: Integers) -> Integers:
    """Multiply int64[a, b] by int64[b, c] modulo `PRIME`, by exact floating-point products."""
    total = np.zeros((len(a), b.shape[1]), np.int64)
    high, low = (b >> _HALF).astype(np.float64), (b & ((1 << _HALF) - 1)).astype(np.float64)
    factor = a.astype(np.float64)
    for first in range(0, len(b), _EXACT):
        part = slice(first, first + _EXACT)
        upper = (factor[:, part] @ high[part]).astype(np.int64) % PRIME
        total += ((upper << _HALF) + (factor[:, part] @ low[part]).astype(np.int64)) % PRIME
    return total % PRIME
