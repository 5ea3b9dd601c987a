"""Matrix product and eigenvectors whose sums run in one order: the same bits on every processor, however many threads.

Only elementwise operations of NumPy are used, whose bits do not depend on the vector features that it finds.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_SWEEPS = 30  # Jacobi converges quadratically; ten are enough for a few hundred columns
_SMALL = 1e-15  # of the largest diagonal entry: an off-diagonal entry that counts as 0


def multiply(a: Floats, b: Floats) -> Floats:
    """Return the product of two matrices, summed in ascending order of the inner index."""
    total = np.zeros((len(a), b.shape[1]))
    for f in range(len(b)):
        total += a[:, f, None] * b[f]
    return total


def diagonalize(matrix: Floats) -> tuple[Floats, Floats]:
    """Return the eigenvalues of a symmetric matrix, descending, and its eigenvectors as rows.

    Jacobi's method in round-robin order: each of the n - 1 steps of a sweep rotates n / 2 disjoint pairs of rows and
    columns.

    Parameters
    ----------
    matrix : float64[n, n]

    References
    ----------
    G. H. Golub, C. F. Van Loan, "Matrix Computations", 4th edition, 2013, section 8.5.
    """
    n = len(matrix) + len(matrix) % 2  # an odd number gets a row of zeros, which no rotation mixes with others
    a, vectors = np.zeros((n, n)), np.eye(n)
    a[: len(matrix), : len(matrix)] = matrix
    places = np.arange(n)
    for _ in range(_SWEEPS):
        off = np.abs(a)
        least = _SMALL * off.diagonal().max(initial=0.0)
        off[np.arange(n), np.arange(n)] = 0.0
        if off.max(initial=0.0) <= least:
            break
        for _ in range(n - 1):
            _rotate(a, vectors, places[: n // 2], places[: n // 2 - 1 : -1])
            places = np.concatenate((places[:1], places[-1:], places[1:-1]))
    order = np.argsort(-a.diagonal()[: len(matrix)], kind="stable")
    return a.diagonal()[order], vectors[order, : len(matrix)]


def _rotate(a: Floats, vectors: Floats, p: NDArray[np.int64], q: NDArray[np.int64]) -> None:
    """Rotate the pairs (p, q) of rows and columns so that their off-diagonal entries become 0."""
    twice = 2.0 * a[p, q]
    apart = a[q, q] - a[p, p]
    flat = twice == 0.0
    ratio = apart / np.where(flat, 1.0, twice)
    slope = np.where(ratio < 0.0, -1.0, 1.0) / (np.abs(ratio) + np.sqrt(1.0 + ratio * ratio))
    tangent = np.where(flat, 0.0, slope)[:, None]
    cosine = 1.0 / np.sqrt(1.0 + tangent * tangent)
    sine = tangent * cosine
    for rows in (a, a.T, vectors):
        one, other = rows[p], rows[q]
        rows[p], rows[q] = cosine * one - sine * other, sine * one + cosine * other
    a[p, q] = a[q, p] = 0.0
