"""Rows of all devices searched at the root of a tree: what is sent, what comes back, and how good it is."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import p2pkm
import topologies
from p2pkm.core.messages import Tables
from p2pkm.methods.building_blocks.spanning_tree import PendingTables, build_spanning_tree
from p2pkm.methods.building_blocks.weighted_rows import Rows, cost_upper_bound
from p2pkm.methods.init import tree_rows
from p2pkm.methods.init.reduce_summaries import reduce_tables
from p2pkm.methods.init.tree_rows import TreeRows
from p2pkm.network.graph import Topology
from tests.methods.init.test_tree_summaries import GRAPHS, cost, listen, mix, seeds
from tests.support.play_rounds import arrange


@pytest.mark.parametrize(("costs", "rows", "searches", "best"), [
    ([2.0, 1.0, 1.0], 40, 3, 1),  # found twice
    ([1.0, 2.0, 3.0, 4.0, 1.0 + 1e-12], 40, 5, 0),  # but for rounding
    ([3.0, 3.0, 2.0, 4.0, 2.0], 40, 5, 2),  # a cost that is not the least does not count
    ([90.0 - i for i in range(20)], 40, 12, 11),
    ([90.0 - i for i in range(20)], 2_000_000 // (5 * 4 * 2) + 1, 4, 3),  # little work is left for so many rows
    ([90.0 - i for i in range(20)], 100_000, 3, 2),
])  # fmt: skip
def test_searches_go_on_until_two_have_found_the_least_cost(costs, rows, searches, best, monkeypatch):
    numbers = []

    def search(*given, first, **options):
        numbers.append(first)
        return np.full((4, 2), float(first)), costs[first]

    monkeypatch.setattr(tree_rows, "search_centroids", search)
    devices = arrange([np.zeros((1, 2))], []).devices
    table = np.ones((rows, 4))
    found = TreeRows(4, build_spanning_tree(Topology.from_graph(topologies.path(2)))).find_candidates(devices, [table])
    assert numbers == list(range(searches))
    assert_array_equal(found, np.full((1, 1, 4, 2), float(best)))


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.sample(3)
def test_all_devices_of_a_component_get_the_same_centroids(name):
    result = seeds("rows", GRAPHS[name])
    components = result.topology.components
    for number in range(components.max() + 1):
        own = result.centroids[components == number]
        assert np.isfinite(own).all()
        assert len(np.unique(own, axis=0)) == 1


def test_the_ledger_on_a_path_of_four_by_hand():
    """Root 1: device 3 is two links below, 0 and 2 one; k = 2, so 4 rows of d + 2 = 3 columns at most."""
    data = [[0.0, 9.0], [1.0, 8.0, 3.0, 4.0, 5.0, 6.0], [], [2.0]]
    shards = p2pkm.Shards.from_list([np.array(points)[:, None] for points in data])
    result = p2pkm.simulate(
        p2pkm.GTVMin(2, init="rows", coupling=10), topologies.path(4), shards, rounds=0, baselines=False
    )
    rows = (2 + 1 + 1) * 3 * 8  # of 0; of 3 to 2; the same from 2 to 1
    assert result.summary["bytes"] == rows + 3 * 2 * 8 + 2 * 3 * 2 * 8
    assert result.summary["messages"] == 2 * 3 + 2 * 3


def test_what_comes_down_costs_at_most_the_bound_and_is_a_lloyd_point_of_the_rows():
    rng = np.random.default_rng(4)
    data = [rng.normal(rng.uniform(-9, 9, 2), 2.0, (40, 2)) for _ in range(12)]
    table = arrange(data, [(i, (i + 1) % 12) for i in range(12)])
    said, state = listen(TreeRows(5, build_spanning_tree(table.topology)), table)
    every = TreeRows(5, build_spanning_tree(table.topology)).summarize(table.devices)
    rows = Rows.of(every.flat()[:, 1:])
    assert every.rows.max() == 10 and max(one.tables.values.shape[1] for one in said if one.header) == 1 + 2 + 2
    found = state.centroids[0]
    assert ((np.concatenate(data)[:, None] - found) ** 2).sum(axis=2).min(axis=1).sum() <= cost_upper_bound(rows, found)
    nearest = ((rows.means[:, None] - found) ** 2).sum(axis=2).argmin(axis=1)
    for c in range(5):
        own = nearest == c
        np.testing.assert_allclose(np.average(rows.means[own], axis=0, weights=rows.weights[own]), found[c], rtol=1e-9)


def test_no_point_leaves_its_device_with_rows_of_two():
    graph, shards = topologies.ring(10), mix(10, 6, 3)
    plain, merged, few = (
        p2pkm.simulate(p2pkm.GTVMin(6, init=init, coupling=30), graph, shards, rounds=0, **options).summary
        for init, options in (("rows", {}), ("rows:least=2", {}), ("rows", {"min_cluster_size": 2}))
    )
    assert plain["raw_points_disclosed"] > 0
    assert merged["raw_points_disclosed"] == few["raw_points_disclosed"] == 0
    assert merged["bytes"] == few["bytes"] < plain["bytes"]


@pytest.mark.slow
def test_a_start_from_rows_is_better_than_the_default_where_clusters_are_many():
    graph = topologies.ring(10)
    wins = []
    for seed in range(4):
        shards = mix(10, 24, seed, points=120)
        rows, usual = (
            cost(shards, p2pkm.simulate(p2pkm.GTVMin(24, init=init), graph, shards, rounds=0, seed=seed,
                                        baselines=False).centroids[0])
            for init in ("rows", "global")
        )  # fmt: skip
        wins.append(rows < usual)
    assert all(wins)


def test_reducing_rows_keeps_what_they_say_of_the_points():
    rng = np.random.default_rng(3)
    table = arrange([np.ones((1, 2))] * 3, [(0, 1), (1, 2)])
    flat = np.column_stack((np.zeros(140), rng.normal(size=(140, 2)), rng.uniform(1, 9, 140), rng.uniform(0, 2, 140)))
    tables = Tables(flat, np.array([0, 30, 90]), np.array([30, 60, 50]))
    front = reduce_tables(PendingTables(np.arange(3), tables._replace(values=flat.copy())), 40, table.devices)
    for i in (1, 2):
        before, after = (Rows.of(one.take(np.array([i])).flat()[:, 1:]) for one in (tables, front.tables))
        assert len(after.means) <= 20
        anywhere = np.array([[0.3, -2.0]])
        np.testing.assert_allclose(cost_upper_bound(after, anywhere), cost_upper_bound(before, anywhere), rtol=1e-12)
    assert_array_equal(front.tables.take(np.array([0])).flat(), flat[:30])
