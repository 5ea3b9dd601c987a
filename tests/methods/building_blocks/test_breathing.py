"""Breathing k-means on weighted rows: its sums, what it adds and removes, and that it never gets worse."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from p2pkm.kernels import numba as compiled
from p2pkm.kernels import reference
from p2pkm.kernels.reference.breathing import add_centroids, centroid_errors, survivors, utilities
from p2pkm.methods.building_blocks.breathing import search_centroids

POINTS = np.array([[0.0], [1.0], [4.0], [5.0], [20.0]])
WEIGHTS = np.array([1.0, 2.0, 1.0, 1.0, 3.0])
CENTERS = np.array([[0.0], [4.0], [21.0]])


def cost(points, weights, centroids):
    """Return what centroids cost on weighted points."""
    return (weights * ((points[:, None] - centroids) ** 2).sum(axis=2).min(axis=1)).sum()


def test_errors_and_utilities_by_hand():
    assert_array_equal(centroid_errors(POINTS, WEIGHTS, CENTERS), [2.0 * 1, 1.0, 3.0])
    without = [1.0 * 16 + 2.0 * (9 - 1), 1.0 * 16 + 1.0 * (25 - 1), 3.0 * (256 - 1)]
    assert_array_equal(utilities(POINTS, WEIGHTS, CENTERS), without)


@given(st.integers(0, 10**6))
def test_a_utility_is_what_the_cost_rises_by(seed):
    rng = np.random.default_rng(seed)
    points, weights, centroids = rng.normal(size=(30, 2)), rng.uniform(1, 9, 30), rng.normal(size=(5, 2))
    whole = cost(points, weights, centroids)
    assert_allclose(centroid_errors(points, weights, centroids).sum(), whole, rtol=1e-12)
    rises = [cost(points, weights, np.delete(centroids, c, axis=0)) - whole for c in range(5)]
    assert_allclose(utilities(points, weights, centroids), rises, rtol=1e-9, atol=1e-9)


def test_centroids_are_added_beside_the_largest_errors():
    more = add_centroids(CENTERS, np.array([2.0, 1.0, 3.0]), np.array([[0.5], [-0.5]]))
    assert_array_equal(more, [[0.0], [4.0], [21.0], [21.5], [-0.5]])


def test_the_neighbor_of_a_removed_centroid_is_safe_while_enough_others_are_left():
    centroids = np.array([[0.0], [1.0], [10.0], [11.0], [30.0]])
    assert_array_equal(survivors(centroids, np.array([1.0, 2.0, 3.0, 4.0, 5.0]), 2), [1, 3, 4])  # not 0 and 1
    assert_array_equal(survivors(centroids, np.array([1.0, 2.0, 3.0, 4.0, 5.0]), 4), [1])


@given(st.integers(0, 10**6), st.integers(2, 9), st.data())
def test_as_many_are_removed_as_asked_for(seed, k, data):
    m = data.draw(st.integers(0, k - 1))
    rng = np.random.default_rng(seed)
    left = survivors(rng.normal(size=(k, 2)), rng.uniform(size=k), m)
    assert len(left) == k - m and (np.diff(left) > 0).all()


def crowd(seed, k=12):
    """Return weighted rows of overlapping clusters."""
    rng = np.random.default_rng(seed)
    centers = rng.uniform(0, 3 * k**0.5, (k, 2))
    return centers[rng.integers(0, k, 150)] + rng.normal(size=(150, 2)), rng.integers(1, 9, 150).astype(float)


@pytest.mark.parametrize("seed", range(4))
def test_breathing_ends_at_a_lloyd_point_that_costs_no_more(seed):
    points, weights = crowd(seed)
    start = compiled.refine(points, weights, np.array([0, 150]), points[None, :12].copy(), np.array([12]), 300,
                            np.zeros(1), True)  # fmt: skip
    found, total = compiled.breathe(points, weights, points[:12], 5, 7, 0)
    assert total < start[2][0]
    assert_allclose(total, cost(points, weights, found), rtol=1e-12)
    again = compiled.refine(points, weights, np.array([0, 150]), found[None], np.array([12]), 1, np.zeros(1), False)
    assert_allclose(again[0][0], found, rtol=1e-12)


def test_it_leaves_a_poor_minimum_that_lloyd_cannot_leave():
    points = np.repeat(np.array([[0.0], [0.1], [10.0], [10.1], [20.0], [20.1]]), 5, axis=0)
    poor = np.array([[0.0], [0.1], [15.05]])
    assert cost(points, np.ones(30), reference.breathe(points, np.ones(30), poor, 2, 1, 0)[0]) < 1.0


@pytest.mark.parametrize("seed", range(24))
def test_both_forms_of_the_kernel_find_the_same_bits(seed):
    rng = np.random.default_rng(seed)
    m, k, d = int(rng.integers(1, 60)), int(rng.integers(1, 12)), int(rng.choice([1, 2, 3, 9, 70]))
    # Rounded, so that distances tie and points coincide.
    points, weights = rng.normal(size=(m, d)).round(1), rng.integers(1, 9, m).astype(float)
    start = points[rng.integers(0, m, k)]
    start[rng.random(k) < 0.2] = np.inf
    compare(points, weights, start, 5, 2**64 - 1 - seed, seed)


@pytest.mark.parametrize("seed", range(8))
def test_both_forms_of_the_kernel_search_alike(seed):
    points, weights = crowd(seed, 30)
    compare(points, weights, points[:30], 5, seed, seed)


def compare(*arguments):
    """Check that both forms of the kernel return the same bits."""
    one, other = (form.breathe(*arguments) for form in (compiled, reference))
    assert_array_equal(one[0], other[0])
    assert one[1] == other[1]


def test_fewer_distinct_rows_than_clusters_leave_centroids_absent():
    points, weights = np.array([[1.0, 2.0], [1.0, 2.0], [3.0, 4.0]]), np.ones(3)
    found, total = search_centroids(reference, 0, points, weights, 4, most=5, seedings=1)
    assert_array_equal(np.isfinite(found[:, 0]), [True, True, False, False])
    assert total == 0.0
    assert_array_equal(search_centroids(reference, 0, points[:1], weights[:1], 1, most=5, seedings=1)[0], points[:1])
