"""Sums of the own points: who takes part in them."""

from dataclasses import replace

import numpy as np
from numpy.testing import assert_array_equal

from p2pkm.core.messages import DenseMessages
from p2pkm.methods.building_blocks.averaging import has_low_weight, local_sums, receive_increments, start_running_sums
from tests.support.play_rounds import arrange


def test_clusters_of_fewer_points_than_asked_for_count_as_empty_and_those_of_as_many_do_not():
    devices = arrange([[[0.0], [10.0], [11.0], [20.0], [21.0], [22.0]]], []).devices
    rows = local_sums(replace(devices, min_count=2), np.array([[[0.0], [10.0], [21.0]]]))
    assert_array_equal(rows, [[[0.0, 0.0], [21.0, 2.0], [63.0, 3.0]]])


def test_a_device_adds_what_the_running_total_of_a_neighbor_has_grown_by():
    table = arrange([[[0.0]], [[0.0]]], [(0, 1)])
    sums = start_running_sums(table.devices, np.zeros((2, 1, 2)))
    for total, grown in (([4.0, 1.0], [4.0, 1.0]), ([7.0, 3.0], [3.0, 2.0])):
        inbox = table.network.exchange(DenseMessages(np.array([[total], [total]]), np.ones(2, np.int64)))
        gain, received = receive_increments(table.devices, inbox, sums)
        sums = sums._replace(edge_received=received)
        assert_array_equal(gain, [[grown], [grown]])


def test_a_device_is_thin_that_holds_less_than_a_quarter_of_its_fair_share_in_all_rows_together():
    devices = arrange([[[0.0]] * 8, [], [], []], []).devices  # two points each on average
    counts = np.array([[0.0, 0.5], [0.5, 0.0], [0.0, 0.49], [0.1, 0.2]])
    mass = np.dstack((np.ones((4, 2)), counts))
    assert_array_equal(has_low_weight(devices, mass, np.array([1.0, 1.0, 1.0, 0.5])), [False, False, True, False])
