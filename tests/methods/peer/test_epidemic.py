"""Epidemic k-means: both ends of a pair are equal, and messages go to the partner alone."""

import numpy as np
from hypothesis import given
from numpy.testing import assert_allclose, assert_array_equal

from p2pkm.methods.building_blocks.random_matching import match
from p2pkm.methods.peer.epidemic import Epidemic
from tests.support.averages import column, draw, seeds, states
from tests.support.play_rounds import arrange


def close(found, expected):
    assert_allclose(found, expected, rtol=0, atol=1e-9)


def partners(table, number):
    return match(table.topology, table.devices.shared_key, number)


def test_two_devices_agree_in_one_cycle():
    table = arrange([column(6, 8), column(1)], [(0, 1)])
    found, said = states(Epidemic(1, cycles=1).on(table.topology), table, np.zeros((2, 1, 1)), 1)
    close(said[0].values[:, 0], [[14, 2], [1, 1]])
    close(found[1].centroids.ravel(), [5, 5])


@given(seeds)
def test_a_cycle_leaves_both_ends_of_a_pair_bit_identical_and_only_pairs_send(graph):
    table, start = draw(graph)
    found, said = states(Epidemic(3, cycles=4).on(table.topology), table, start, 2)
    for before in (0, 4):
        for turn in (1, 2, 3):
            averages, partner = found[before + turn].averages, partners(table, before + turn)
            paired = np.flatnonzero(partner >= 0)
            assert_array_equal(averages[paired], averages[partner[paired]])
    for number, messages in enumerate(said, 1):
        partner = partners(table, number)
        assert_array_equal(messages.edges, partner[table.devices.sources] == table.devices.indices)
        assert_array_equal(messages.rows >= 0, (partner >= 0) | (table.devices.degrees == 0))
