"""Flooding: what nobody in the batch held is stored beside the rest."""

import numpy as np
from numpy.testing import assert_array_equal

from p2pkm.core.messages import Inbox
from p2pkm.methods.building_blocks.flooding import begin, distinct_collections, receive
from tests.support.play_rounds import arrange


def test_tables_from_other_ranks_are_stored_beside_the_own_ones():
    devices = arrange([[[0.0]]] * 3, [(0, 1), (0, 2)]).devices.part(slice(0, 1))  # device 0 of three is here
    flood = begin(devices, np.array([[[1.0, 2.0, 3.0]]]), np.array([1]))
    tables = np.full((3, 4, 6), 99.0)  # with what is left over from others
    tables[1, :2, :4] = [[1, 4, 5, 6], [1, 7, 8, 9]]
    tables[2, :2, :4] = [[1, -1, -1, -1], [2, 10, 11, 12]]  # another table of 1, which came later
    slots = np.array([1, 2, 0, 0])
    received = receive(flood, Inbox(tables, np.array([1, 2, 2]), slots, slots), devices)
    assert_array_equal(received.known, [[True, True, True]])
    assert_array_equal(received.new_origins, [[False, True, True]])
    (collection,), _ = distinct_collections(received, np.array([0]))
    assert_array_equal(collection, [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12]])
