"""Rows that stand for points: they merge exactly, what they say of the cost is true, and small ones can be avoided."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from p2pkm.kernels import numba as compiled
from p2pkm.kernels import reference
from p2pkm.methods.building_blocks.weighted_rows import Rows, cost_upper_bound, summarize
from tests.support.play_rounds import arrange


def points_as_rows(points, weights):
    """Return each point as a row."""
    return Rows(points, weights, np.zeros(len(points)))


def cost(points, weights, centroids):
    """Return what centroids cost on weighted points."""
    return (weights * ((points[:, None] - centroids) ** 2).sum(axis=2).min(axis=1)).sum()


def group_up(rng, m, most):
    """Return a group from 0 of each of m rows; every group has a row."""
    return np.unique(rng.integers(0, most, m), return_inverse=True)[1]


@given(st.integers(0, 10**6), st.integers(1, 40), st.sampled_from([0.0, 1e6]))
def test_merging_in_two_steps_is_merging_at_once_and_by_the_textbook(seed, m, origin):
    rng = np.random.default_rng(seed)
    points, weights = origin + rng.normal(size=(m, 3)), rng.uniform(0.1, 5, m)
    fine, coarse = group_up(rng, m, 9), group_up(rng, 9, 3)
    coarse = np.unique(coarse[: fine.max() + 1], return_inverse=True)[1]
    first = points_as_rows(points, weights).merge(fine, points[[np.argmax(fine == g) for g in range(fine.max() + 1)]])
    second = first.merge(coarse, first.means[[np.argmax(coarse == g) for g in range(coarse.max() + 1)]])
    for g in range(coarse.max() + 1):
        own = coarse[fine] == g
        mean = np.average(points[own], axis=0, weights=weights[own])
        assert_allclose(second.means[g], mean, rtol=1e-12, atol=1e-9)
        assert_allclose(second.weights[g], weights[own].sum(), rtol=1e-12)
        assert_allclose(second.within[g], cost(points[own], weights[own], mean[None]), rtol=1e-7, atol=1e-8)


@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 8))
def test_lemma_the_cost_is_at_most_the_bound_of_the_rows(seed, m, k):
    """Lemma of docs/explain/proofs.md, for rows of any partition and any centroids; equal if every row is a point."""
    rng = np.random.default_rng(seed)
    points, weights = rng.normal(size=(m, 2)) * rng.uniform(0.1, 9), rng.uniform(0.1, 5, m)
    group, centroids = group_up(rng, m, 12), rng.normal(size=(k, 2)) * 4
    rows = points_as_rows(points, weights).merge(group, points[[np.argmax(group == g) for g in range(group.max() + 1)]])
    whole = cost(points, weights, centroids)
    assert whole <= cost_upper_bound(rows, centroids) * (1 + 1e-12)
    assert_allclose(cost_upper_bound(points_as_rows(points, weights), centroids), whole, rtol=1e-12)
    assert_allclose(
        cost_upper_bound(rows, centroids[:1]), cost(points, weights, centroids[:1]), rtol=1e-9
    )  # one choice for all


def devices_of(*sizes, kernels=compiled, seed=0):
    """Return a path of devices with so many points each."""
    rng = np.random.default_rng(seed)
    data = [rng.normal(rng.integers(0, 3, (size, 1)) * 8.0, 1.0, (size, 2)) for size in sizes]
    return arrange(data, [(i, i + 1) for i in range(len(sizes) - 1)], kernels=kernels).devices


@pytest.mark.parametrize("least", [1, 2, 5])
def test_rows_keep_weight_mean_and_total_variation_of_every_device(least):
    devices = devices_of(30, 0, 7, 50)
    tables = summarize(devices, np.array([8, 8, 8, 20]), least)
    assert tables.rows[1] == 0 and (tables.rows <= [8, 0, 8, 20]).all()
    for i in (0, 2, 3):
        flat = tables.take(np.array([i])).flat()
        rows, points = Rows.of(flat[:, 1:]), devices.table(i)[0]
        assert (flat[:, 0] == i).all()
        assert rows.weights.sum() == len(points) and rows.weights.min() >= least
        mean = points.mean(axis=0)[None]
        assert_allclose((rows.weights[:, None] * rows.means).sum(axis=0) / len(points), mean[0], rtol=1e-9)
        assert_allclose(cost_upper_bound(rows, mean), ((points - mean) ** 2).sum(), rtol=1e-9)


def test_a_device_of_too_few_points_sends_no_row():
    tables = summarize(devices_of(1, 4, 9), np.full(3, 4), 5)
    assert_array_equal(tables.rows[:2], [0, 0])
    assert tables.rows[2] >= 1


def test_as_many_rows_as_points_are_the_points():
    devices = devices_of(6, 9)
    tables = summarize(devices, np.array([6, 9]))
    for i in range(2):
        flat = tables.take(np.array([i])).flat()
        assert_array_equal(np.sort(flat[:, 1:3], axis=0), np.sort(devices.table(i)[0], axis=0))
        assert_array_equal(flat[:, 3:], np.tile([1.0, 0.0], (len(flat), 1)))


def test_both_forms_of_the_kernels_make_the_same_rows():
    one, other = (
        summarize(devices_of(40, 3, 25, kernels=form), np.array([9, 9, 4]), 2) for form in (compiled, reference)
    )
    assert_array_equal(one.flat(), other.flat())
