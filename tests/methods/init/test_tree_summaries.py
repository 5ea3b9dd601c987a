"""Summaries collected along a tree: what flooding finds, to the bit, for the bytes of a tree."""

from itertools import pairwise, product

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import p2pkm
import topologies
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import Tables
from p2pkm.methods.building_blocks.spanning_tree import PendingTables, build_spanning_tree
from p2pkm.methods.init import reduce_summaries
from p2pkm.methods.init import registry as recipe
from p2pkm.methods.init.reduce_summaries import reduce_tables
from p2pkm.methods.init.tree_summaries import TreeSummaries, choose_sets
from tests.contract.test_every_method import deal
from tests.support.play_rounds import arrange
from tests.support.sampling import thin

GRAPHS = {
    "path": topologies.path(6),
    "ring": topologies.ring(7),
    "star": topologies.star(6),
    "tree": topologies.tree(9),
    "complete": topologies.complete(5),
    "small world": topologies.small_world(16, degree=4, rewire=0.3, seed=2),
    "one device": topologies.path(1),
    "two devices": topologies.path(2),
    "in parts": nx.union(topologies.path(4), topologies.ring(3), rename=("a", "b")),
}


def seeds(seeding, graph, k=3, **options):
    """Return the run that ends with the seeding."""
    algorithm = p2pkm.GTVMin(k, init=seeding, coupling=30)
    given = {"rounds": 0, "seed": 3, "allow_disconnected": True} | options
    return p2pkm.simulate(algorithm, graph, deal(len(graph)), **given)


@pytest.mark.parametrize(("name", "candidates"), thin(product(GRAPHS, [1, 4]), 3))
@pytest.mark.sample(3)
def test_it_finds_what_flooding_finds_to_the_bit(name, candidates):
    found, expected = (
        seeds(f"{seeding}:candidates={candidates}", GRAPHS[name]) for seeding in ("tree-summaries", "flooded-summaries")
    )
    assert_array_equal(found.centroids, expected.centroids)
    assert np.isfinite(found.centroids).any()


def test_the_ledger_on_a_path_of_four_by_hand():
    """Root 1: device 3 is two links below, 0 and 2 one; k = 2, d = 1."""
    data = [[0.0, 9.0], [1.0, 8.0], [], [2.0]]
    shards = p2pkm.Shards.from_list([np.array(points)[:, None] for points in data])
    algorithm, path = p2pkm.GTVMin(2, init="tree-summaries:candidates=3", coupling=10), topologies.path(4)
    result = p2pkm.simulate(algorithm, path, shards, rounds=0, baselines=False)
    opening = 2 * 3 * 2 * 8  # GTVMin says its two rows over every link
    pairs = 2 * 2 * 8 + 1 * 2 * 8 + 1 * 2 * 8  # of 0; of 3 to 2; the same from 2 to 1
    candidates, losses, choice = 3 * (3 * 2) * 8, 3 * 3 * 8, 3 * 8  # over three links each
    assert result.summary["bytes"] == pairs + candidates + losses + choice + opening
    assert result.summary["messages"] == 4 * 3 + 2 * 3
    one = p2pkm.simulate(p2pkm.GTVMin(2, init="tree-summaries", coupling=10), path, shards, rounds=0, baselines=False)
    assert one.summary["bytes"] == pairs + 3 * 2 * 8 + opening


def test_it_costs_a_fraction_of_flooding():
    graph = GRAPHS["small world"]
    tree, flood = (
        seeds(f"{name}:candidates=5", graph).summary["bytes"] for name in ("tree-summaries", "flooded-summaries")
    )
    assert tree < flood / 3


def test_the_candidate_of_least_loss_wins():
    graph, shards = GRAPHS["ring"], deal(7, seed=5, k=3)
    costs = []
    for q in range(1, 7):
        run = p2pkm.simulate(p2pkm.GTVMin(3, init=f"tree-summaries:candidates={q}"), graph, shards, rounds=0, seed=8)
        costs.append(run.summary["ratio_mean"])
    assert not [(before, after) for before, after in pairwise(costs[1:]) if not after <= before + 1e-12]


BOUNDED = {
    "ring": topologies.ring,
    "star": topologies.star,
    "grid": topologies.grid,
    "small world": lambda n: topologies.small_world(n, degree=6, rewire=0.1, seed=1),
    "tree": topologies.tree,
}


def mix(n, k, seed, points=20):
    """Return uneven shares of k clusters, some of which overlap."""
    rng = np.random.default_rng(seed)
    centers, shares = rng.uniform(-8, 8, (k, 2)), rng.dirichlet(np.full(k, 0.2), n)
    blocks = [centers[rng.choice(k, points, p=share)] + rng.normal(0, 1.5, (points, 2)) for share in shares]
    return p2pkm.Shards.from_list(blocks)


def cost(shards, centroids):
    """Return what one set of centroids costs on all points."""
    return ((shards.points[:, None] - centroids) ** 2).sum(axis=2).min(axis=1).sum()


@pytest.mark.slow
@pytest.mark.parametrize("name", BOUNDED)
def test_bounded_tables_cost_at_most_a_percent(name):
    ratios = []
    for n, k, seed in ((100, 4, 0), (144, 8, 1), (400, 4, 2), (225, 10, 3)):
        shards, graph = mix(n, k, seed), BOUNDED[name](n)
        runs = [
            p2pkm.simulate(p2pkm.GTVMin(k, init=f"tree-summaries:candidates=5,rows={rows}"), graph, shards, rounds=0,
                           baselines=False)
            for rows in (40 * k, n * k)
        ]  # fmt: skip
        assert len(np.unique(runs[0].centroids, axis=0)) == 1
        assert runs[0].summary["bytes"] <= runs[1].summary["bytes"]
        ratios.append(cost(shards, runs[0].centroids[0]) / cost(shards, runs[1].centroids[0]))
    assert max(ratios) < 1.01


def listen(algorithm, table):
    """Return the sparse messages of every exchange of a walk over the tree, and the last state."""
    devices, network = table.devices, table.network
    awake = np.ones(len(devices), np.bool_)
    state = algorithm.initial_state(devices, None)
    said = [algorithm.message(state, devices.at_stage_start(awake))]
    for turn in range(int(algorithm.schedule.partition("*")[2])):
        now = devices.at_turn(1, turn, awake)
        state = algorithm.update(state, network.deliver(said[-1]), now)
        said.append(algorithm.message(state, now))
    return said, state


def walk(graph, data, k, rows, candidates=3):
    """Return what `listen` does of a graph with these points."""
    table = arrange(data, list(graph.edges))
    return listen(TreeSummaries(k, build_spanning_tree(table.topology), candidates, rows), table)


def test_no_message_has_more_rows_than_allowed():
    rng = np.random.default_rng(1)
    data = [rng.normal(0, 4, (12, 2)) for _ in range(90)]
    said, _ = walk(topologies.small_world(90, degree=4, rewire=0.2, seed=1), data, 3, 60)
    up = [sparse for sparse in said if sparse.header]
    assert max(sparse.tables.rows.max() for sparse in up) <= 60
    assert max(sparse.tables.rows.max() for sparse in up) > 30
    weights = np.concatenate([sparse.tables.flat() for sparse in up])[:, -1]
    assert (weights > 0).all()


def test_every_device_but_the_roots_says_each_way_one_table_to_its_parent_or_its_children():
    graph = nx.union(topologies.grid(16), topologies.path(3), rename=("a", "b"))
    graph = nx.convert_node_labels_to_integers(nx.union(graph, nx.empty_graph(1), rename=("", "c")))
    said, state = walk(graph, [np.ones((2, 2)) * i for i in range(20)], 2, 40)
    links = 20 - 3
    assert sum(len(sparse.edges) for sparse in said) == 4 * links
    assert [len(sparse.senders) for sparse in said][-1] == 0
    assert state.converged.all()
    assert np.isfinite(state.centroids).any(axis=(1, 2)).all()


def test_news_travel_one_link_per_turn():
    rng = np.random.default_rng(2)
    data, graph, disturbed = [rng.normal(0, 4, (6, 2)) for _ in range(60)], topologies.ring(60), 13
    other = [points + (i == disturbed) for i, points in enumerate(data)]
    calm, stirred = (walk(graph, points, 2, 40)[0] for points in (data, other))
    reached = set()
    for turn, (one, two) in enumerate(zip(calm, stirred, strict=True)):
        assert_array_equal(one.senders, two.senders)
        for place, device in enumerate(one.senders):
            here, there = (sparse.tables.take(np.array([place])).flat() for sparse in (one, two))
            if here.shape != there.shape or (here != there).any():
                assert min(abs(device - disturbed), 60 - abs(device - disturbed)) <= turn
                reached.add(int(device))
    assert len(reached) == 60


def test_bytes_grow_with_the_devices_and_not_faster():
    volume = [seeds("tree-summaries:candidates=5,rows=60", topologies.ring(n)).summary["bytes"] / n for n in (100, 400)]
    assert volume[1] < 1.5 * volume[0]


def test_devices_without_points_pass_tables_on():
    data = [np.zeros((0, 2)) if i % 3 else np.array([[i, i], [i, i + 0.5]]) for i in range(60)]
    _, state = walk(topologies.path(60), data, 2, 40)
    assert np.isfinite(state.centroids).all()
    assert len(np.unique(state.centroids, axis=0)) == 1
    _, state = walk(topologies.path(4), [np.zeros((0, 2))] * 3 + [np.ones((1, 2))], 1, None)
    assert_array_equal(state.centroids, np.ones((4, 1, 2)))
    table = arrange([np.zeros((0, 2)), np.zeros((0, 2)), np.ones((1, 2))], [(0, 1)])
    _, state = listen(TreeSummaries(1, build_spanning_tree(table.topology), 2), table)
    assert np.isposinf(state.centroids[:2]).all()


def test_reducing_keeps_weight_and_mean_and_leaves_small_tables_alone():
    rng = np.random.default_rng(3)
    table = arrange([np.ones((1, 2))] * 3, [(0, 1), (1, 2)])
    flat = np.column_stack((np.repeat([4.0, 5.0, 6.0], 50), rng.normal(size=(150, 2)), rng.uniform(1, 9, 150)))
    rows = np.array([30, 70, 50])
    tables = Tables(flat, np.cumsum(rows) - rows, rows)
    pending = PendingTables(np.array([0, 1, 2]), tables._replace(values=flat.copy()))
    front = reduce_tables(pending, 50, table.devices)
    assert_array_equal(front.tables.rows[[0, 2]], [30, 50])
    for i in (0, 2):
        assert_array_equal(front.tables.take(np.array([i])).flat(), tables.take(np.array([i])).flat())
    before, after = (part.take(np.array([1])).flat() for part in (tables, front.tables))
    assert len(after) <= 25
    assert (after[:, 0] == 1).all()  # the origin is the device that did it
    assert after[:, -1].sum() == pytest.approx(before[:, -1].sum(), rel=1e-12)
    for f in (1, 2):
        assert (after[:, f] * after[:, -1]).sum() == pytest.approx((before[:, f] * before[:, -1]).sum(), rel=1e-9)


@pytest.mark.parametrize("block", [1, 60, 1000])
def test_tables_that_are_reduced_in_blocks_do_not_depend_on_the_blocks(monkeypatch, block):
    rng = np.random.default_rng(5)
    table = arrange([np.ones((1, 2))] * 5, [(i, i + 1) for i in range(4)])
    rows = np.array([30, 12, 41, 8, 25])
    flat = np.column_stack((np.zeros(116), rng.normal(size=(116, 2)), rng.uniform(1, 9, 116)))
    pending = [PendingTables(np.arange(5), Tables(flat.copy(), np.cumsum(rows) - rows, rows)) for _ in range(2)]
    whole = reduce_tables(pending[0], 10, table.devices)
    monkeypatch.setattr(reduce_summaries, "_ROWS_PER_BLOCK", block)
    blocked = reduce_tables(pending[1], 10, table.devices)
    assert whole.tables.rows[3] == 8 and whole.tables.rows[[0, 1, 2, 4]].max() <= 5
    assert_array_equal(blocked.tables.rows, whole.tables.rows)
    assert_array_equal(blocked.tables.flat(), whole.tables.flat())


@pytest.mark.parametrize("name", ["_MAX_FLOOD_ROWS", "_MAX_FLOOD_MEMORY"])
def test_init_global_floods_where_messages_are_disturbed_up_to_a_bound(monkeypatch, name):
    graph, shards = GRAPHS["small world"], deal(16)
    plain = p2pkm.simulate(p2pkm.GTVMin(3, coupling=10), graph, shards, rounds=0)
    assert plain.summary["init"] == "tree-summaries:candidates=5"
    assert plain.rounds[0]["stage"] == "tree-summaries"
    rows, memory = 64 * 16 * 4, 4 * 16 * 16 + 3 * 16 * 8 * 3 * (shards.d + 2) * int(np.bincount(
        build_spanning_tree(p2pkm.Topology.from_graph(graph)).layer).max())  # fmt: skip
    for less, expected in ((0, "flooded-summaries"), (1, "tree-summaries")):
        monkeypatch.setattr(recipe, name, {"_MAX_FLOOD_ROWS": rows, "_MAX_FLOOD_MEMORY": memory}[name] - less)
        found = p2pkm.simulate(p2pkm.GTVMin(3), graph, shards, rounds=0, faults="loss=0.1")
        assert found.summary["init"] == f"{expected}:candidates=5"
        assert found.rounds[0]["stage"] == expected
    assert_array_equal(found.centroids, plain.centroids)


def test_rows_and_layers_out_of_range_are_refused(monkeypatch):
    with pytest.raises(ExperimentError, match="rows is 59; expected at least 60, 20 for each of 3 clusters"):
        seeds("tree-summaries:rows=59", GRAPHS["ring"])
    monkeypatch.setattr(recipe, "DEEPEST", 2)
    with pytest.raises(ExperimentError, match="has 3 layers"):
        seeds("tree-summaries", GRAPHS["ring"])


def test_each_device_with_candidates_has_one_set():
    values = np.arange(18.0).reshape(6, 3)
    some = Tables(values, np.array([2, 0, 4]), np.array([4, 0, 2]))
    found = choose_sets(some, np.array([1, 0, 0]), 2)
    assert found.tolist() == [values[4:6].tolist(), [[np.inf] * 3] * 2, values[4:6].tolist()]
    for choice, first in ((0, values[2:4]), (1, values[4:6])):
        found = choose_sets(some.take(np.array([0, 2])), np.array([choice, 0]), 2)
        assert found.tolist() == [first.tolist(), values[4:6].tolist()]
