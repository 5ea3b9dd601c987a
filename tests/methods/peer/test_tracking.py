"""Tracking Lloyd: two rounds by hand, fixed points under label skew, and the least count of a cluster."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import p2pkm
import topologies
from p2pkm.methods.peer.tracking import TrackingLloyd
from tests.support.averages import column, lloyd, scene, states
from tests.support.play_rounds import arrange, last


def close(found, expected):
    assert_allclose(found, expected, rtol=0, atol=1e-9)


def test_two_rounds_by_hand():
    # P = [[1/2, 1/2], [1/2, 1/2]]: both get ((0 + 2 + 3) / 3, 10) from the mean of (0, 1) (2 + 3, 2) and (10, 1)
    table = arrange([column(0), column(2, 3, 10)], [(0, 1)])
    start = np.array([column(2, 8)] * 2)
    found, _ = states(TrackingLloyd(2, gossips=1), table, start, 2)
    close(found[0].averages, [[[0, 1], [0, 0]], [[5, 2], [10, 1]]])
    close(found[1].centroids, [column(5 / 3, 10)] * 2)
    close(found[1].averages, [[[2.5, 1.5], [5, 0.5]]] * 2)
    # other centroids at the start: device 1 moves its point 2 from the first cluster to the second
    start = np.array([column(2, 8), column(2, 8)])
    start[1] = column(-1, 4.5)
    found, _ = states(TrackingLloyd(2, gossips=1), table, start, 1)
    close(found[0].averages, [[[0, 1], [0, 0]], [[0, 0], [15, 3]]])
    close(found[1].centroids, [column(0, 5)] * 2)
    # own sums of device 1 at (0, 5): 2 goes to 0, so (2, 1) and (13, 2): a change of (2, 1) and (-2, -1)
    close(found[1].averages, [[[0, 0.5], [7.5, 1.5]], [[2, 1.5], [5.5, 0.5]]])


def test_on_a_complete_graph_the_first_step_is_a_central_one():
    data, _, table, start = scene("complete")
    found = last(TrackingLloyd(4, gossips=1), table, start, 1)
    close(found[:, :3], [lloyd(data, start[0])[:3]] * 4)


@pytest.mark.parametrize("gossips", [1, 3])
def test_it_settles_at_a_fixed_point_of_central_lloyd_under_label_skew(gossips):
    X, y = p2pkm.blobs(clusters=4, points=40, seed=2)
    shards = p2pkm.Shards.from_list([X[y == c] for c in (0, 1, 2, 3)])  # every device has one class only
    result = p2pkm.simulate(TrackingLloyd(4, gossips=gossips, tol=1e-9), topologies.ring(4), shards, rounds=400)
    assert result.summary["termination"] == "converged"
    for one in result.centroids:
        assert_allclose(one, lloyd([X], one), atol=1e-6)


def test_a_row_of_less_than_a_thousandth_of_a_point_stays():
    # 0.004 of the mean weight is shared by four devices: 0.001, which is enough, and 0.00098 is not
    data, links = [column(7, 90), *[np.zeros((0, 1))] * 3], [(i, j) for i in range(4) for j in range(i)]
    for mean in (1.0, 1e-9, 1e9):
        for share, expected in ((0.004001, 7.0), (0.0039, 3.0)):
            table = arrange(data, links, d=1, weights=[share * mean, (2 - share) * mean])
            found = last(TrackingLloyd(2, gossips=1), table, np.full((4, 2, 1), [[3.0], [99.0]]), 1)
            close(found, np.full((4, 2, 1), [[expected], [90.0]]))
