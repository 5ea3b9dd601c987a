"""Sum-weight gossip: halves by hand, one receiver, and draws that are uniform and the same on any rank."""

import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_allclose, assert_array_equal

from p2pkm.core.batch import Stream
from p2pkm.kernels.reference import philox
from p2pkm.methods.building_blocks.random_matching import pick_neighbor
from p2pkm.methods.peer.gossip_sum import GossipSum
from tests.support.averages import column, draw, seeds, states
from tests.support.play_rounds import arrange


def close(found, expected):
    assert_allclose(found, expected, rtol=0, atol=1e-9)


def test_halves_on_two_devices():
    table = arrange([column(6, 8), np.zeros((0, 1))], [(0, 1)])
    found, said = states(GossipSum(1, sends=2), table, np.zeros((2, 1, 1)), 1)
    close(found[0].averages[:, 0], [[14, 2], [0, 0]])
    close(said[0].values[:, 0], [[7, 1], [0, 0]])
    close(found[1].averages[:, 0], [[7, 1], [7, 1]])
    close(found[2].centroids.ravel(), [7, 7])


@given(seeds)
def test_each_device_sends_to_one_neighbor(graph):
    table, start = draw(graph)
    _, said = states(GossipSum(3, sends=4), table, start, 2)
    for messages in said:
        receivers = np.bincount(table.devices.sources[messages.edges], minlength=graph[0])
        assert_array_equal(receivers, np.minimum(table.devices.degrees, 1))


@pytest.mark.slow
def test_neighbors_are_drawn_uniformly_among_the_links_in_use():
    table = arrange([column(0.0)] * 5, [(0, i) for i in range(1, 5)])
    use = np.ones(8, np.bool_)
    use[[1, 5]] = False  # 0 to 2 and back
    devices = table.devices.with_active_edges(use, table.devices.neighbor_degrees)
    picked = np.array([pick_neighbor(devices, t) for t in range(2000)])
    assert not picked[:, ~use].any()
    assert_allclose(picked[:, [0, 2, 3]].mean(axis=0), 1 / 3, atol=0.04)
    assert picked[:, [4, 6, 7]].all()


def test_a_draw_is_the_same_whoever_else_is_in_the_batch():
    ring = [(i, (i + 1) % 6) for i in range(6)]
    whole = arrange([column(0.0)] * 6, ring).devices
    for number in range(20):
        picked = pick_neighbor(whole, number)
        for i in range(6):
            draws = philox(0, number, whole.keys[i], Stream.NEIGHBOR)[0, 0]
            assert picked[2 * i + int(draws % np.uint64(2))]
