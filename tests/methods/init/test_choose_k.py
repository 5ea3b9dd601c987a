"""The stage that chooses the number of clusters: what all devices have in the end, and whose the indices are."""

import numpy as np
from numpy.testing import assert_array_equal

from p2pkm.methods.building_blocks.spanning_tree import build_spanning_tree
from p2pkm.methods.init.choose_k import ChooseK
from tests.methods.building_blocks.test_number_of_clusters import clusters
from tests.support.play_rounds import arrange, play


def test_every_root_has_the_indices_of_its_component_and_all_below_it_the_number():
    data = [clusters(2, 4, 0), clusters(2, 4, 1), clusters(3, 4, 2), np.zeros((0, 2)), np.ones((1, 2))]
    table = arrange(data, [(0, 1), (1, 2)])  # 3 and 4 are alone
    _, state = play(ChooseK(5, build_spanning_tree(table.topology)), table, np.zeros((5, 5, 2)), 1)
    assert state.converged.all()
    assert_array_equal(state.chosen[:3], state.chosen[[1]].repeat(3))
    assert_array_equal(state.chosen[3:], [1, 1])
    assert_array_equal(state.table.counts, [0, 5, 0, 1, 5])  # a row for every k, but one alone without points
    assert len(state.table.values) == 11
