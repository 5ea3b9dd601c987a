"""Groups of devices among rows: against every labeling of tiny cases, and the rule for their number."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from p2pkm.kernels import numba as compiled
from p2pkm.kernels import reference
from p2pkm.methods.building_blocks.device_groups import MAX_GROUPS, find_groups, search_groups
from p2pkm.methods.building_blocks.device_rows import DeviceRows, device_costs
from p2pkm.methods.building_blocks.weighted_rows import Rows
from tests.support.sampling import thin


def rows_of(data, k, kernels=compiled, seed=3):
    """Return the rows of devices, given as (mean, weight, SSE) each."""
    owner = np.repeat(np.arange(len(data)), [len(one) for one in data])
    return DeviceRows(kernels, seed, Rows.of(np.concatenate(data)), owner, k)


def tiny(seed, n=5, r=3):
    """Return rows of n devices on a line around one of two pairs of places."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(-5, 5, (2, 2))
    return [
        np.column_stack((rng.choice(places[rng.integers(2)], r) + rng.normal(0, 0.7, r), rng.integers(1, 6, r),
                         rng.uniform(0, 1, r)))
        for _ in range(n)
    ]  # fmt: skip


def best_clustering(rows, k):
    """Return the least weighted cost of k clusters of rows on a line, which are intervals."""
    rows = rows[np.argsort(rows[:, 0])]
    least = np.inf
    for cuts in product(range(len(rows) + 1), repeat=k - 1):
        cost = 0.0
        for part in np.split(rows, sorted(cuts)):
            if len(part):
                mean = np.average(part[:, 0], weights=part[:, 1])
                cost += (part[:, 1] * (part[:, 0] - mean) ** 2).sum()
        least = min(least, cost)
    return least


@pytest.mark.parametrize(("k", "count"), thin([(1, 2), (2, 1), (2, 2), (1, 3)], 2))
def test_the_search_finds_the_least_cost_of_all_labelings(k, count):
    for seed in range(6):
        data = tiny(seed)
        least = min(
            sum(best_clustering(np.concatenate(own), k) for g in range(count)
                if (own := [rows for rows, label in zip(data, labels, strict=True) if label == g]))
            for labels in product(range(count), repeat=len(data))
        )  # fmt: skip
        devices = rows_of(data, k)
        tables, cost = search_groups(devices, devices.cluster_each(), count)
        assert_allclose(cost, least, rtol=1e-9, atol=1e-12)
        assert_allclose(devices.costs(tables).min(axis=0).sum(), cost, rtol=1e-12, atol=1e-12)


def mixtures(groups, seed, n=12, r=8):
    """Return rows of n devices in groups of one size, each group with four centers of its own."""
    rng = np.random.default_rng(seed)
    centers = rng.uniform(-20, 20, (groups, 4, 2))
    return [
        np.column_stack((centers[i * groups // n][rng.integers(0, 4, r)] + rng.normal(0, 0.5, (r, 2)), np.full(r, 3.0),
                         rng.uniform(0, 2, r)))
        for i in range(n)
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("groups", [1, 2, 3, 4])
def test_the_rule_finds_the_number_of_groups_and_who_is_in_them(groups):
    for seed in range(3):
        devices = rows_of(mixtures(groups, seed), 4)
        tables = find_groups(devices)
        assert len(tables) == groups
        labels = devices.costs(tables).argmin(axis=0)
        truth = np.arange(12) * groups // 12
        assert_array_equal(labels[:, None] == labels, truth[:, None] == truth)
        assert len(find_groups(devices, 2)) == 2


@pytest.mark.parametrize(("within", "groups"), [(99.0, 2), (101.0, 1)])
def test_the_rule_counts_what_the_points_of_a_row_cost(within, groups):
    """Two rows 10 apart cost 50 per point as one group and nothing as two: 2 W < .8 (50 + 2 W) for W below 100."""
    devices = rows_of([np.array([[mean, 1000.0, 1000.0 * within]]) for mean in (0.0, 10.0)], 1)
    assert len(find_groups(devices)) == groups


@pytest.mark.slow
def test_equal_rows_are_one_group_and_groups_are_no_more_than_devices():
    same = rows_of([np.array([[1.0, 2.0, 3.0, 0.0]])] * 4, 2)
    assert len(find_groups(same)) == 1
    assert np.isfinite(find_groups(same)[0, :, 0]).tolist() == [True, False]
    apart = rows_of([np.array([[100.0 * i, 9.0, 9.0]]) for i in range(3)], 1)
    assert len(find_groups(apart)) == 3
    many = rows_of([np.array([[100.0 * i, 9.0, 9.0]]) for i in range(MAX_GROUPS + 3)], 1)
    assert len(find_groups(many)) <= MAX_GROUPS


@pytest.mark.slow
def test_both_kernels_find_the_same_bits():
    data = mixtures(2, 5)
    assert_array_equal(find_groups(rows_of(data, 4)), find_groups(rows_of(data, 4, reference)))


def test_a_price_is_that_of_plain_loops():
    data = tiny(1)
    devices, tables = rows_of(data, 2), np.array([[[0.0], [3.0]], [[-1.0], [np.inf]]])
    for g, table in enumerate(tables):
        for i, rows in enumerate(data):
            plain = sum(w * min((a - c) ** 2 for c in table[:, 0] if np.isfinite(c)) for a, w, _ in rows)
            assert_allclose(devices.costs(tables)[g, i], plain)
    assert device_costs(devices.rows, devices.owner, 7, tables).shape == (2, 7)
