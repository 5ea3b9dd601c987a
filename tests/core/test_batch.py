"""What a batch computes with: parts of it, and one table of rows."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from p2pkm.core.batch import Search, Stream, cluster
from p2pkm.core.chunks import label
from p2pkm.kernels import numba as compiled
from tests.support.play_rounds import arrange


@pytest.mark.parametrize("own", [slice(0, 2), slice(1, 3), slice(2, 5), slice(3, 3)])
@pytest.mark.parametrize("weights", [None, np.arange(1.0, 16.0)], ids=["plain", "weighted"])
def test_a_part_computes_what_the_whole_does_for_its_devices(own, weights):
    draw = np.random.default_rng(0)
    devices = arrange([draw.normal(size=(m, 2)) for m in (3, 0, 5, 4, 3)], [(0, 1), (2, 3)], weights=weights).devices
    part = devices.part(own)
    assert len(part) == len(part.sizes) == own.stop - own.start
    assert_array_equal(part.sizes, devices.sizes[own])
    found, wanted = (some.kmeans(2, Stream.LOCAL, starts=2) for some in (part, devices))
    for one, whole in zip(found, wanted, strict=True):
        assert_array_equal(one, whole[own])


def test_points_take_the_row_that_is_nearest_to_their_nearest_local_one():
    draw = np.random.default_rng(1)
    devices = arrange([draw.normal(size=(m, 2)) for m in (6, 0, 4)], [(0, 1), (1, 2)]).devices
    local, models = draw.normal(size=(3, 3, 2)), draw.normal(size=(3, 4, 2))
    local[0, 2] = np.inf

    def find_nearest(rows, table):
        return ((rows[:, None] - table) ** 2).sum(axis=2).argmin(axis=1)

    (piece,) = label(devices, models, through=local)
    for i in range(3):
        own = slice(*devices.offsets[i : i + 2])
        first = find_nearest(devices.stored[own], local[i])
        assert_array_equal(piece.labels[own], find_nearest(local[i], models[i])[first])
        assert_allclose(piece.losses[i], ((devices.stored[own] - local[i, first]) ** 2).sum())


def test_one_table_has_centroids_their_weights_and_a_cost():
    points = np.array([[0.0], [2.0], [20.0]])
    search = Search(2, Stream.CENTRAL, starts=3)
    centroids, counts, cost = cluster(compiled, 7, points, np.array([1.0, 3.0, 2.0]), search)
    order = np.argsort(centroids[:, 0])
    assert centroids[order].tolist() == [[1.5], [20.0]] and counts[order].tolist() == [4.0, 2.0]
    assert cost == 1.5**2 + 3 * 0.5**2


def test_every_turn_has_active_devices_of_its_own():
    devices = arrange([np.ones((1, 1))] * 4, [(0, 1), (2, 3)]).devices
    for active in ([0, 2], [1], [], [0, 1, 2, 3]):
        devices = devices.at_turn(1, 0, np.isin(np.arange(4), active))
        assert devices.active.tolist() == active


def test_equal_point_weights_other_than_1_reach_the_kernels():
    devices = arrange([np.ones((3, 1))], []).devices
    for weight, known in ((1.0, 0), (2.0, 3)):
        same = replace(devices, point_weights=np.broadcast_to(weight, 3))
        assert len(same.kernel_inputs[1]) == known
