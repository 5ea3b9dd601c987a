"""Groups that are more than chance: few devices that are alike, devices that differ, and the draws of the null."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from p2pkm.core.batch import Stream
from p2pkm.kernels import numba as compiled
from p2pkm.kernels import reference
from p2pkm.methods.building_blocks import group_bootstrap
from p2pkm.methods.building_blocks.device_groups import find_groups, search_groups
from p2pkm.methods.building_blocks.device_rows import DeviceRows
from p2pkm.methods.building_blocks.weighted_rows import Rows, compress
from tests.support.sampling import thin

PLACES = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [9.0, 9.0]])


def deal(shares, seed, points=40, groups=1, kernels=compiled):
    """Return rows of devices that hold given shares of four clusters; devices of the second half in another place."""
    rng, n, k = np.random.default_rng(seed), len(shares), len(PLACES)
    tables = []
    for i, share in enumerate(shares):
        moved = PLACES + (20.0 if i * groups >= n and groups > 1 else 0.0)
        tables.append(moved[rng.choice(k, points, p=share)] + rng.normal(size=(points, 2)))
    firsts, keys = np.arange(n + 1) * points, np.full(n, 5, np.uint64)
    owner, rows = compress(
        kernels, (np.concatenate(tables), np.zeros(0), firsts), 2 * k, (keys, int(Stream.SUMMARY), 0)
    )
    return DeviceRows(kernels, 5, rows, owner, k)


@pytest.mark.slow
@pytest.mark.parametrize("n", thin([4, 6, 8], 3))
def test_few_devices_that_are_alike_are_one_group_whatever_their_shares(n):
    for seed in range(3):
        shares = np.random.default_rng(seed).dirichlet([0.1] * 4, n)
        assert len(find_groups(deal(shares, seed))) == 1


@pytest.mark.slow
def test_devices_that_hold_one_cluster_each_are_one_group():
    devices = deal(np.eye(4), 0)
    alone = devices.cluster_each()
    one, two = (search_groups(devices, alone, count)[1] + devices.rows.within.sum() for count in (1, 2))
    assert two < 0.8 * one  # the cost alone would ask for two
    assert len(find_groups(devices)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("n", [4, 6])
def test_devices_of_two_mixtures_are_two_groups(n):
    for seed in range(2):
        shares = np.random.default_rng(seed).dirichlet([2.0] * 4, n)
        devices = deal(shares, seed, groups=2)
        tables = find_groups(devices)
        assert len(tables) == 2
        labels = devices.costs(tables).argmin(axis=0)
        assert len(set(labels[: n // 2])) == len(set(labels[n // 2 :])) == 1


def test_the_null_keeps_counts_means_and_covariances():
    devices = deal(np.array([[0.7, 0.3, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5], [0.25] * 4]), 3, points=300)
    tables = search_groups(devices, devices.cluster_each(), 1)[0]
    cells = group_bootstrap.describe_cells(devices, tables)
    assert_array_equal(cells.counts.sum(axis=1), [300] * 3)
    order = [np.argmin(((cells.means - place) ** 2).sum(axis=1)) for place in PLACES]
    assert_array_equal(cells.counts[0, order[2:]], 0)
    assert_array_equal(cells.counts[1, order[:2]], 0)
    assert_allclose(cells.means[order], PLACES, atol=0.4)
    products = cells.roots @ np.swapaxes(cells.roots, 1, 2)
    assert_allclose(products, np.broadcast_to(np.eye(2), (4, 2, 2)), atol=0.45)
    replicate = next(group_bootstrap.draw_replicates(devices, cells))
    assert_allclose(np.bincount(replicate.owner, replicate.rows.weights), 300)
    near = ((replicate.rows.means[replicate.owner == 0][:, None] - PLACES) ** 2).sum(axis=2).argmin(axis=1)
    assert set(near) == {0, 1}


@pytest.mark.parametrize("d", [2, 12])  # full and diagonal covariances
def test_covariances_are_those_of_the_points(d):
    rng = np.random.default_rng(d)
    points = rng.normal(size=(2, 60, d)) * np.arange(1.0, d + 1.0)
    firsts, keys = np.array([0, 60, 120]), np.full(2, 5, np.uint64)
    pooled = points.reshape(-1, d)
    owner, rows = compress(compiled, (pooled, np.zeros(0), firsts), 60, (keys, 1, 0))  # a point is a row
    devices = DeviceRows(compiled, 5, rows, owner, 1)
    cells = group_bootstrap.describe_cells(devices, pooled.mean(axis=0)[None, None])
    if d == 2:
        assert_allclose(cells.roots[0], np.linalg.cholesky(np.cov(pooled.T)), rtol=1e-9)
    else:
        assert_allclose(cells.roots[0], pooled.std(axis=0, ddof=1), rtol=1e-9)


def test_of_many_devices_a_sample_is_examined():
    rows = Rows(np.arange(80.0)[:, None], np.ones(80), np.zeros(80))
    some = group_bootstrap.sample_devices(DeviceRows(compiled, 1, rows, np.repeat(np.arange(40), 2), 1))
    assert some.n == 32 and len(some.rows.means) == 64
    assert_array_equal(some.owner, np.repeat(np.arange(32), 2))
    assert_array_equal(some.rows.means[::2, 0] % 2, 0)


def test_of_many_points_some_hundred_are_drawn_for_each_device():
    counts, weights = group_bootstrap.thin_counts(np.array([[3000, 1000, 0], [10, 0, 20]]))
    assert_array_equal(counts, [[300, 100, 0], [10, 0, 20]])
    assert_array_equal(weights, [10.0, 1.0])


def test_both_forms_of_the_kernels_find_the_same_bits():
    devices = [
        deal(np.full((2, 4), 0.25), 1, points=12, groups=2, kernels=kernels) for kernels in (compiled, reference)
    ]
    tables = [search_groups(one, one.cluster_each(), 1)[0] for one in devices]
    drawn = [
        next(group_bootstrap.draw_replicates(one, group_bootstrap.describe_cells(one, tables[0]))) for one in devices
    ]
    assert_array_equal(*tables)
    assert_array_equal(drawn[0].rows.table, drawn[1].rows.table)
