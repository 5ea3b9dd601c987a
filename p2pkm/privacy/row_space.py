"""Span of rows of coefficients: an orthonormal basis, and its exact dimension in a finite field.

Coefficients of gossip are fractions. In the field of the integers modulo the prime 2^31 - 1, a fraction is a number,
and arithmetic is free of rounding. Dimension and membership in this field are those of the exact rows, unless the prime
divides one of the determinants involved (probability about n / 2^31). The dimension is never too large.
"""

import numpy as np

from p2pkm.core.batch import Floats, Integers, Mask
from topologies.single_thread import single_thread

PRIME = 2**31 - 1
# Residual length, of rows of length 1, below which a direction counts as contained in the span.
_NEGLIGIBLE = 1e-9
# Products of a 31-bit and a 16-bit number whose sum float64 holds exactly: 64 * 2^47 = 2^53.
_EXACT_PRODUCTS = 64
# Bits of the lower half into which a factor is split.
_HALF = 16


class Orthonormal:
    """Orthonormal basis of the rows that were added.

    Parameters
    ----------
    n : int
        Length of a row.
    units : int64[b]
        Distinct coordinates whose unit vectors begin the basis.

    Attributes
    ----------
    rows : float64[r, n]
    """

    def __init__(self, n: int, units: Integers) -> None:
        self.rows: Floats = np.zeros((len(units), n))
        self.rows[np.arange(len(units)), units] = 1.0

    @single_thread()
    def add(self, rows: Floats) -> Floats:
        """Extend the basis by the span of rows, float64[b, n]; return the new part of it.

        Rows are normalized first. Directions whose residual is shorter than 1e-9 count as contained in the span.
        """
        lengths = np.linalg.norm(rows, axis=1)
        residual = rows[lengths > 0] / lengths[lengths > 0, None]
        if not len(residual) or len(self.rows) == rows.shape[1]:
            return residual[:0]
        # Projected twice: rounding of the first projection leaves components in the span.
        for _ in range(2):
            residual = residual - (residual @ self.rows.T) @ self.rows
        _, sizes, directions = np.linalg.svd(residual, full_matrices=False)
        new_rows = directions[sizes > _NEGLIGIBLE]
        new_rows = np.linalg.qr((new_rows - (new_rows @ self.rows.T) @ self.rows).T)[0].T
        self.rows = np.concatenate((self.rows, new_rows))
        return new_rows


class RowEchelonBasis:
    """Reduced row echelon form, modulo `PRIME`, of the rows that were added; parameters as in `Orthonormal`.

    Every row has a pivot: its entry there is 1, and that of all other rows is 0.

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
        """Extend the basis by the span of rows, int64[b, n]; return rows that span the new part of it."""
        if len(self.pivots) == rows.shape[1]:
            return rows[:0]
        new_rows, pivots = _reduce((rows - multiply_modulo(rows[:, self.pivots], self.rows)) % PRIME)
        old_rows = (self.rows - multiply_modulo(self.rows[:, pivots], new_rows)) % PRIME
        self.rows = np.concatenate((old_rows, new_rows))
        self.pivots = np.concatenate((self.pivots, pivots))
        return new_rows

    @property
    def solved(self) -> Mask:
        """Columns whose unit vector is in the span, bool[n]."""
        mask = np.zeros(self.rows.shape[1], np.bool_)
        mask[self.pivots[np.count_nonzero(self.rows, axis=1) == 1]] = True
        return mask


def _reduce(rows: Integers) -> tuple[Integers, Integers]:
    """Compute the reduced row echelon form of rows, without zero rows, and its pivots."""
    pivots = np.full(len(rows), -1)
    for i, row in enumerate(rows):
        nonzero = np.flatnonzero(row)
        if not len(nonzero):
            continue
        pivot = nonzero[0]
        pivots[i] = pivot
        row[:] = row * pow(int(row[pivot]), -1, PRIME) % PRIME
        affected = np.flatnonzero(rows[:, pivot])
        affected = affected[affected != i]
        rows[affected] = (rows[affected] - rows[affected, pivot, None] * row) % PRIME
    return rows[pivots >= 0], pivots[pivots >= 0]


def multiply_modulo(a: Integers, b: Integers) -> Integers:
    """Multiply int64[a, b] by int64[b, c] modulo `PRIME`, by exact floating-point products."""
    total = np.zeros((len(a), b.shape[1]), np.int64)
    high, low = (b >> _HALF).astype(np.float64), (b & ((1 << _HALF) - 1)).astype(np.float64)
    factor = a.astype(np.float64)
    for first in range(0, len(b), _EXACT_PRODUCTS):
        part = slice(first, first + _EXACT_PRODUCTS)
        upper = (factor[:, part] @ high[part]).astype(np.int64) % PRIME
        total += ((upper << _HALF) + (factor[:, part] @ low[part]).astype(np.int64)) % PRIME
    return total % PRIME
