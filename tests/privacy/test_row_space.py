"""Spans of rows: against NumPy's rank and pseudoinverse, and against fractions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from p2pkm.privacy.row_space import PRIME, Orthonormal, RowEchelonBasis

NONE = np.zeros(0, np.int64)
whole_rows = st.integers(1, 6).flatmap(
    lambda n: st.lists(st.lists(st.integers(-3, 3), min_size=n, max_size=n), min_size=1, max_size=9)
)


@given(whole_rows, st.integers(1, 4))
def test_bases_span_what_was_added_in_whatever_parts(rows, step):
    rows = np.array(rows)
    n = rows.shape[1]
    basis, echelon = Orthonormal(n, NONE), RowEchelonBasis(n, NONE)
    for first in range(0, len(rows), step):
        basis.add(rows[first : first + step].astype(float))
        echelon.add(rows[first : first + step] % PRIME)
    rank = np.linalg.matrix_rank(rows)
    assert len(basis.rows) == len(echelon.rows) == rank
    assert_allclose(basis.rows @ basis.rows.T, np.eye(rank), atol=1e-12)
    projection = np.linalg.pinv(rows.astype(float)) @ rows
    assert_allclose(basis.rows.T @ basis.rows, projection, atol=1e-9)
    assert_array_equal(echelon.solved, np.isclose(np.diag(projection), 1.0))
    assert_array_equal(echelon.rows[:, echelon.pivots], np.eye(rank, dtype=int))


@given(whole_rows)
def test_the_new_part_is_what_was_not_there(rows):
    rows = np.array(rows) % PRIME
    echelon = RowEchelonBasis(rows.shape[1], np.array([0]))
    assert len(echelon.add(rows)) == len(echelon.rows) - 1
    assert len(echelon.add(rows)) == 0


def test_a_full_space_takes_nothing_more():
    basis = Orthonormal(2, np.arange(2))
    assert len(basis.add(np.ones((1, 2)))) == 0
    assert len(basis.rows) == 2


def test_fractions_are_residues_without_rounding():
    """Rows that differ by 1e-15 are two rows; in floating-point numbers they are one."""
    third, near = Fraction(1, 3), Fraction(1, 3) + Fraction(1, 10**15)
    rows = [[third, 1], [near, 1]]
    echelon, basis = RowEchelonBasis(2, NONE), Orthonormal(2, NONE)
    residues = [[value.numerator * pow(value.denominator, -1, PRIME) % PRIME for value in map(Fraction, row)]
                for row in rows]  # fmt: skip
    echelon.add(np.array(residues))
    basis.add(np.array(rows, float))
    assert (len(echelon.rows), len(basis.rows)) == (2, 1)


@pytest.mark.parametrize("terms", [1, 63, 64, 65, 200])
def test_products_of_the_largest_residues_are_exact(terms):
    from p2pkm.privacy.row_space import multiply_modulo

    a = np.full((2, terms), PRIME - 1)
    b = np.full((terms, 3), PRIME - 2)
    assert_array_equal(multiply_modulo(a, b), np.full((2, 3), terms * (PRIME - 1) * (PRIME - 2) % PRIME))


def test_rows_of_zeros_and_no_rows_add_nothing():
    for space in (Orthonormal(4, np.array([1])), RowEchelonBasis(4, np.array([1]))):
        kind = space.rows.dtype
        assert len(space.add(np.zeros((2, 4), kind))) == len(space.add(np.zeros((0, 4), kind))) == 0
        assert len(space.rows) == 1
