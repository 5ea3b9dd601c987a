"""Matrix product and eigenvectors with a fixed order of summation: bit-identical on all processors and thread counts.

Only elementwise operations of NumPy are used: their results do not depend on the vector instructions of the processor.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Largest number of Jacobi sweeps. Convergence is quadratic; ten suffice for a few hundred columns.
_SWEEPS = 30
# Off-diagonal entries below this fraction of the largest diagonal entry count as 0.
_TOLERANCE = 1e-15


def multiply(a: Floats, b: Floats) -> Floats:
    """Multiply two matrices, with sums in ascending order of the inner index."""
    total = np.zeros((len(a), b.shape[1]))
    for f in range(len(b)):
        total += a[:, f, None] * b[f]
    return total


def diagonalize(matrix: Floats) -> tuple[Floats, Floats]:
    """Compute the eigenvalues of a symmetric matrix, descending, and its eigenvectors as rows.

    Jacobi method in round-robin order [1]_: each of the n - 1 steps of a sweep rotates n / 2 disjoint pairs of rows and
    columns.

    Parameters
    ----------
    matrix : float64[n, n]

    References
    ----------
    .. [1] G. H. Golub, C. F. Van Loan, "Matrix Computations", 4th edition, 2013, section 8.5.
    """
    # Pairs need an even number: a row of zeros is appended, which no rotation mixes with other rows.
    n = len(matrix) + len(matrix) % 2
    a, vectors = np.zeros((n, n)), np.eye(n)
    a[: len(matrix), : len(matrix)] = matrix
    places = np.arange(n)
    for _ in range(_SWEEPS):
        off = np.abs(a)
        least = _TOLERANCE * off.diagonal().max(initial=0.0)
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
    difference = a[q, q] - a[p, p]
    is_zero = twice == 0.0
    ratio = difference / np.where(is_zero, 1.0, twice)
    slope = np.where(ratio < 0.0, -1.0, 1.0) / (np.abs(ratio) + np.sqrt(1.0 + ratio * ratio))
    tangent = np.where(is_zero, 0.0, slope)[:, None]
    cosine = 1.0 / np.sqrt(1.0 + tangent * tangent)
    sine = tangent * cosine
    for rows in (a, a.T, vectors):
        first = rows[p]
        second = rows[q]
        rows[p] = cosine * first - sine * second
        rows[q] = sine * first + cosine * second
    a[p, q] = a[q, p] = 0.0
