"""Groups along a tree: what the root finds, who takes which table, what passes over the links, what is refused."""

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import p2pkm
import topologies
from p2pkm.methods.building_blocks.device_groups import find_groups
from p2pkm.methods.building_blocks.device_rows import DeviceRows
from p2pkm.methods.building_blocks.spanning_tree import build_spanning_tree
from p2pkm.methods.building_blocks.weighted_rows import Rows
from p2pkm.methods.init.tree_groups import TreeGroups, TreeGroupsState
from tests.methods.init.test_tree_summaries import listen
from tests.support.play_rounds import arrange

PATH = [(i, i + 1) for i in range(6)]


def two_kinds(seed=0, n=7, empty=()):
    """Return points of n devices, those from the middle on of another mixture; some have none."""
    rng = np.random.default_rng(seed)
    centers = rng.uniform(-20, 20, (2, 3, 2))
    return [
        np.zeros((0, 2)) if i in empty else centers[int(2 * i >= n)][np.arange(15) % 3] + rng.normal(size=(15, 2))
        for i in range(n)
    ]


def test_every_device_takes_the_cheapest_of_the_tables_that_all_rows_give():
    table = arrange(two_kinds(), PATH)
    method = TreeGroups(3, build_spanning_tree(table.topology))
    said, state = listen(method, table)
    every = method.summarize(table.devices).flat()
    rows = Rows.of(every[:, 1:])
    devices = DeviceRows(table.devices.kernels, table.devices.shared_key, rows, every[:, 0].astype(int), 3)
    found = find_groups(devices)
    assert len(found) == 2 and isinstance(state, TreeGroupsState) and state.converged.all()
    assert_array_equal(state.tables, np.tile(found.reshape(1, -1, 2), (7, 1, 1)))
    assert_array_equal(state.group, devices.costs(found).argmin(axis=0))
    assert_array_equal(state.centroids, found[state.group])
    assert len(set(state.group[:3])) == len(set(state.group[4:])) == 1 and state.group[0] != state.group[6]
    assert not [one for one in said if not one.tables.rows.max(initial=0) <= 6 * 7]


@pytest.mark.parametrize("empty", [(0,), (0, 1), (6,), (3,)])
@pytest.mark.sample(3)
def test_a_device_without_points_takes_the_group_of_its_parent(empty):
    table = arrange(two_kinds(empty=empty), PATH, d=2)
    tree = build_spanning_tree(table.topology)
    _, state = listen(TreeGroups(3, tree), table)
    for i in empty:
        parent = tree.parent[i]
        assert state.group[i] == (0 if parent < 0 else state.group[parent])
    assert state.group[0] != state.group[6]


def test_the_ledger_on_a_path_by_hand():
    """Root 1: three rows of 2 + 2 columns from 0, two times from 3 and 2; 2 groups of 3 rows and one row down.

    Before that the box and the votes on a step, 6 numbers, up and down; then the deepest device opens the method with
    its moments.
    """
    data = [points[:3] for points in two_kinds(n=4)]
    result = p2pkm.simulate(
        p2pkm.TreeLloyd(3, groups=2), topologies.path(4), p2pkm.Shards.from_list(data), rounds=0, baselines=False
    )
    assert result.summary["messages"] == 4 * 3 + 1
    assert result.summary["bytes"] == 6 * 6 * 8 + (3 + 3 + 6) * 4 * 8 + 3 * (2 * 3 + 1) * 2 * 8 + 4 * 8
    assert result.summary["wire_bytes"] < result.summary["bytes"] / 4


@pytest.mark.parametrize(("groups", "graph", "options", "said"), [
    (9, topologies.path(4), {}, "groups is 9; expected at most 4, the number of devices, or auto"),
    (2, nx.empty_graph(4), {"allow_disconnected": True}, "graph has 4 connected components; expected 1 with groups"),
    ("auto", topologies.path(4), {"start": np.zeros((4, 3, 2))}, "groups compute initial centroids of their own"),
], ids=["more than devices", "disconnected", "start"])  # fmt: skip
def test_what_cannot_be_grouped_is_refused(groups, graph, options, said):
    shards = p2pkm.Shards.from_list(two_kinds(n=4))
    with pytest.raises(p2pkm.ExperimentError, match=said):
        p2pkm.simulate(p2pkm.TreeLloyd(3, groups=groups), graph, shards, **options)
