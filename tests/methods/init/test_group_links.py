"""Links whose ends are in the same group stay in use."""

import numpy as np
from numpy.testing import assert_array_equal

from p2pkm.core.messages import DenseMessages
from p2pkm.methods.building_blocks.spanning_tree import build_spanning_tree
from p2pkm.methods.init.group_links import GroupLinks
from p2pkm.methods.init.tree_groups import TreeGroups
from tests.methods.init.test_tree_groups import PATH, two_kinds
from tests.methods.init.test_tree_summaries import listen
from tests.support.play_rounds import arrange


def test_links_inside_a_group_stay_and_their_number_is_known():
    table = arrange(two_kinds(), [*PATH, (0, 2), (2, 5)])
    _, start = listen(TreeGroups(3, build_spanning_tree(table.topology)), table)
    method, devices = GroupLinks(3), table.devices
    state, awake = method.initial_state(devices, start), np.ones(7, np.bool_)
    said = method.message(state, devices.at_stage_start(awake))
    table.network.open()
    for t in (1, 2):
        assert isinstance(said, DenseMessages)
        now = devices.at_turn(t, 0, awake)
        state = method.update(state, table.network.exchange(said), now)
        said = method.message(state, now)
    same = start.group[devices.sources] == start.group[devices.indices]
    assert_array_equal(state.edge_active, same)
    kept = np.bincount(devices.sources[same], minlength=7)
    assert_array_equal(state.edge_degrees, np.where(same, kept[devices.indices], 0))
