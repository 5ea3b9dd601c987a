"""Distributed coreset: a twin by plain loops, the mass that never changes, unbiased costs, and ledgers by hand."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.core.batch import Search, Stream, cluster
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import Inbox
from p2pkm.kernels import numba as compiled
from p2pkm.kernels import reference as plain
from p2pkm.kernels.reference import philox, uniforms
from p2pkm.methods.building_blocks import flooding
from p2pkm.methods.building_blocks.spanning_tree import build_spanning_tree
from p2pkm.methods.init import pipelines as recipe
from p2pkm.methods.peer.coreset import Coreset
from tests.support.averages import GRAPHS, column, deal, states
from tests.support.play_rounds import arrange, points_of, squared
from tests.support.sampling import thin

SPREADS = pytest.mark.parametrize("spread", ["flood", "tree"])


def run(table, k, **options):
    """Return every state and what was said, from the opening to the end of the only round."""
    return states(Coreset(k, **options).on(table.topology), table, np.zeros((len(table.devices), k, 1)), 1)


def parts(table, k, size):
    """Return each device's rows of the coreset, float64[r, d + 1], by plain loops."""
    devices = table.devices
    found, costs = [], []
    for i in range(len(devices)):
        points, key = points_of(devices, i), int(devices.keys[i])
        own = cluster(devices.kernels, key, points, np.ones(len(points)), Search(k, Stream.SUMMARY, starts=3))[0]
        own = own[np.isfinite(own[:, 0])]
        distances = squared(points, own).min(axis=1) if len(points) else np.zeros(0)
        found.append((points, own, distances))
        costs.append(sum(distances))
    tables = []
    for i, (points, own, distances) in enumerate(found):
        same = devices_of(table.topology, i)
        total = sum(costs[j] for j in same)
        whole, fraction = divmod(size * costs[i] / total if total > 0 else 0.0, 1.0)
        count = int(whole) + int(uniforms(int(devices.keys[i]), Stream.CHOICE, [1], 1)[0, 0] < fraction)
        rows, mass = [], [sum(1.0 for x in points if nearest(x, own) == b) for b in range(len(own))]
        for u in uniforms(int(devices.keys[i]), Stream.CHOICE, [0], count)[0]:
            q, reached = 0, distances[0]
            while reached <= u * costs[i]:
                q += 1
                reached += distances[q]
            rows.append([*points[q], total / (size * distances[q])])
            mass[nearest(points[q], own)] -= rows[-1][-1]
        tables.append(np.array([*([*b, w] for b, w in zip(own, mass, strict=True)), *rows]).reshape(-1, devices.d + 1))
    return tables


def nearest(x, rows):
    return int(np.argmin([((x - row) ** 2).sum() for row in rows]))


def devices_of(topology, i):
    """Return the devices that have a path to device i, ascending."""
    return np.flatnonzero(topology.components == topology.components[i])


def twin(table, k, size, n_init):
    """Return the centroids of every device."""
    tables, devices = parts(table, k, size), table.devices
    found = np.full((len(devices), k, devices.d), np.inf)
    for i in range(len(devices)):
        rows = np.concatenate([tables[j] for j in devices_of(table.topology, i)])
        if len(rows):
            weights = np.array([max(w, 0.0) for w in rows[:, -1]])
            search = Search(k, Stream.CLUSTER, starts=n_init)
            found[i] = cluster(devices.kernels, devices.shared_key, rows[:, :-1], weights, search)[0]
    return found


def held(state, device):
    """Return the rows of the coreset that a device holds."""
    return flooding.distinct_collections(state.flood, np.array([device]))[0][0]


@SPREADS
@pytest.mark.parametrize("kernels", thin([plain, compiled], 2), ids=["plain", "compiled"])
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.sample(5)
def test_the_twin_finds_the_same(name, spread, kernels):
    n, links = GRAPHS[name]
    table = arrange(deal(n), links, kernels=kernels)
    found, _ = run(table, 2, size=9, n_init=4, spread=spread)
    assert np.isinf(found[0].centroids).all()
    assert found[-1].converged.all() and not found[-2].converged.any()
    assert_allclose(found[-1].centroids, twin(table, 2, 9, 4), atol=1e-9)


@SPREADS
def test_all_devices_of_a_component_end_with_the_same_rows(spread):
    table = arrange(deal(9, 3), [(0, 1), (1, 2), (2, 3), (3, 0), (5, 6), (6, 7), (7, 8)])
    centroids = run(table, 3, size=20, n_init=3, spread=spread)[0][-1].centroids
    for group in ([0, 1, 2, 3], [5, 6, 7, 8]):
        assert_array_equal(centroids[group], centroids[group[:1]].repeat(4, axis=0))
    assert (centroids[0] != centroids[5]).any()


@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 60), st.integers(0, 2**32 - 1))
def test_the_weights_of_every_device_add_up_to_its_points(n, k, size, seed):
    rng = np.random.default_rng(seed)
    data = [rng.normal(0, 3, (int(rng.integers(i == 0, 9)), 2)).round(int(rng.integers(0, 3))) for i in range(n)]
    table = arrange(data, [(i, i + 1) for i in range(n - 1)], d=2, seed=seed % 1000)
    first = Coreset(k, size=size).begin(table.devices)
    tables, rows = Coreset(k, size=size).draw(table.devices, first.local_centroids, np.full(n, first.costs.sum()))
    masses = [part[:count, -1].sum() for part, count in zip(tables, rows, strict=True)]
    assert_allclose(masses, table.devices.sizes, rtol=0, atol=1e-9 * (1 + np.abs(tables[:, :, -1]).sum()))
    assert sum(rows) < n * k + size + n


def test_a_negative_weight_counts_as_nothing():
    negative = 0
    for seed in range(12):  # B = {2}, costs 4, 1 and 9: who draws the point 1 gives it 14 of 3 points
        state = run(arrange([column(0, 1, 5)], [], seed=seed), 1, size=1)[0][-1]
        (_, mass), (point, worth) = held(state, 0)
        assert_allclose([mass + worth, worth], [3, {0: 14 / 4, 1: 14, 5: 14 / 9}[int(point)]])
        mean = point if mass < 0 else (2 * mass + point * worth) / 3
        assert_allclose(state.centroids, mean)
        negative += mass < 0
    assert 0 < negative < 12


def test_points_that_are_heavier_are_drawn_as_if_they_were_many():
    heavy = arrange([column(0, 2, 5, 20)], [], weights=[3, 1, 2, 1])
    first = Coreset(1, size=50).begin(heavy.devices)
    tables, rows = Coreset(1, size=50).draw(heavy.devices, first.local_centroids, first.costs)
    mean = 32 / 7
    assert_allclose(first.local_centroids[0], [[mean]])
    assert_allclose(first.costs, [3 * mean**2 + (2 - mean) ** 2 + 2 * (5 - mean) ** 2 + (20 - mean) ** 2])
    assert rows[0] == 51
    drawn = tables[0, 1:]
    assert_allclose(drawn[:, 1], first.costs[0] / (50 * (drawn[:, 0] - mean) ** 2))
    assert_allclose(tables[0, :, 1].sum(), 7)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "size"), [(10, 200), (500, 200), (1000, 200), (1000, 1)])
def test_so_many_points_are_drawn_on_average_whatever_the_number_of_devices(n, size):
    """A share of 0.2 points at each of 1,000 devices is 200 points, not none."""
    rng = np.random.default_rng(n)
    table = arrange(rng.normal(0, 3, (n, 5, 2)) * rng.uniform(0.5, 2, (n, 1, 1)), [])
    method = Coreset(2, size=size)
    first = method.begin(table.devices)
    shares, drawn = size * first.costs / first.costs.sum(), []
    for seed in range(10):
        keys = philox(np.arange(n, dtype=np.uint64), 1, seed, 99)[:, 0].copy()
        _, rows = method.draw(replace(table.devices, keys=keys), first.local_centroids, np.full(n, first.costs.sum()))
        drawn.append(rows - np.isfinite(first.local_centroids[:, :, 0]).sum(axis=1))
        assert ((drawn[-1] == np.floor(shares)) | (drawn[-1] == np.ceil(shares))).all()
    spread = np.sqrt((shares % 1 * (1 - shares % 1)).sum() / 10)
    assert abs(np.sum(drawn) / 10 - size) < 4.5 * spread


def test_a_point_without_cost_is_never_drawn(monkeypatch):
    monkeypatch.setattr("p2pkm.methods.peer.coreset.uniforms", lambda *given: np.zeros((1, given[-1])))
    table = arrange([column(2, 1, 3)], [])
    tables, rows = Coreset(1, size=4).draw(table.devices, np.full((1, 1, 1), 2.0), np.array([2.0]))
    assert_array_equal(tables[0, : rows[0]], [[2, 1], *[[1, 0.5]] * 4])


def test_what_lies_beyond_the_rows_of_a_table_is_not_read():
    table = arrange([column(1), column(1)], [(0, 1)])
    found, _ = run(table, 2, spread="tree")
    heard = Inbox(np.full((2, 2, 1), 7.0), np.array([1, 1]), np.array([1, 0]), np.array([1, 0]))
    late = table.devices.at_turn(1, 3, np.ones(2, bool))
    state = Coreset(2, spread="tree").on(table.topology).update(found[-1], heard, late)
    assert_array_equal(state.centroids[:, :, 0], [[7, np.inf]] * 2)


@pytest.mark.slow
def test_the_weighted_cost_of_any_centroids_is_right_on_average():
    rng = np.random.default_rng(0)
    blocks = [np.concatenate((block, -block)) for block in rng.normal(0, 3, (1, 20, 2))] * 2  # equal costs: t_i whole
    blocks = [block + 50 * i for i, block in enumerate(blocks)]
    table = arrange(blocks, [(0, 1)])
    method = Coreset(2, size=30)
    first = method.begin(table.devices)
    middles = np.array([[block.mean(axis=0)] * 2 for block in blocks])
    own = middles + np.array([[1.0, 0.0], [-1.0, 0.0]])  # any B_i will do
    costs = np.array([squared(block, rows).min(axis=1).sum() for block, rows in zip(blocks, own, strict=True)])
    totals = np.full(2, costs.sum())
    goal = rng.normal(25, 30, (3, 2))
    truth = sum(squared(block, goal).min(axis=1).sum() for block in blocks)
    prices = []
    for seed in range(600):
        keys = philox(np.arange(2, dtype=np.uint64), 1, seed, 99)[:, 0].copy()
        tables, rows = method.draw(replace(table.devices, keys=keys), own, totals)
        assert_array_equal(rows, 17)
        prices.append(sum((part[:, -1] * squared(part[:, :2], goal).min(axis=1)).sum() for part in tables))
    error = np.std(prices) / np.sqrt(len(prices))
    assert 0 < error < 0.02 * truth
    assert abs(np.mean(prices) - truth) < 4.5 * error
    assert first.local_centroids.shape == own.shape


@pytest.mark.slow
def test_the_weighted_cost_is_right_on_average_where_devices_draw_less_than_a_point():
    rng = np.random.default_rng(1)
    blocks = rng.normal(0, 3, (40, 4, 2)) * rng.uniform(0.5, 2, (40, 1, 1))
    table, method, goal = arrange(blocks, []), Coreset(2, size=8), rng.normal(0, 2, (3, 2))
    first = method.begin(table.devices)
    truth = sum(squared(block, goal).min(axis=1).sum() for block in blocks)
    prices = []
    for seed in range(100):
        keys = philox(np.arange(40, dtype=np.uint64), 1, seed, 99)[:, 0].copy()
        tables, _ = method.draw(
            replace(table.devices, keys=keys), first.local_centroids, np.full(40, first.costs.sum())
        )
        prices.append(
            (tables[:, :, -1] * squared(tables[:, :, :2].reshape(-1, 2), goal).min(axis=1).reshape(40, -1)).sum()
        )
    error = np.std(prices) / np.sqrt(len(prices))
    assert 0 < error < 0.02 * truth
    assert abs(np.mean(prices) - truth) < 4.5 * error


def test_a_tree_finds_what_flooding_finds_for_less():
    shards = grid(8)
    for graph in (topologies.ring(8), topologies.tree(8), topologies.small_world(8, degree=4, seed=1)):
        flood, tree = (p2pkm.simulate(Coreset(16, spread=spread), graph, shards) for spread in ("flood", "tree"))
        assert_allclose(flood.centroids, tree.centroids, atol=1e-9)
        assert flood.summary["ratio_mean"] < 1.2
        assert tree.summary["bytes"] < flood.summary["bytes"]
        assert flood.summary["centroid_sets"] == tree.summary["centroid_sets"] == 1


def grid(n, points=20):
    X, y = p2pkm.grid16(points=points, seed=0)
    return p2pkm.Shards.deal(X, p2pkm.partition.dirichlet(y, n, alpha=0.3, seed=0), devices=n, labels=y)


PATH = [column(0, 2, 10, 12), np.zeros((0, 1)), column(0, 0), column(50, 52, 60, 62)]


def test_the_ledger_of_flooding_on_a_path_of_four():
    # B: 2, 0, 1 and 2 rows; costs 4, -, 0 and 4: t_i = 4, -, 0 and 4 of t = 8; three costs and 13 rows over 6 edges
    ledger = p2pkm.simulate(Coreset(2, size=8, spread="flood"), topologies.path(4), p2pkm.Shards.from_list(PATH)).ledger
    assert ledger.bytes.sum() == 6 * 3 * 8 + 6 * 13 * 16 == 1392
    # who speaks: all, then 1 2 3, then 0 1 2, then 0 3; once for costs and once for rows
    assert ledger.messages.sum() == 2 * (6 + 5 + 5 + 2) == 36
    assert_array_equal(ledger.edge_rows, 3 + 13)


def test_the_ledger_of_a_tree_on_a_path_of_four():
    # root 1 between 0 and 2, 3 below 2: a number up and down each of 3 links, 6 + 6 + 7 rows up, 2 centroids down
    ledger = p2pkm.simulate(Coreset(2, size=8, spread="tree"), topologies.path(4), p2pkm.Shards.from_list(PATH)).ledger
    assert ledger.bytes.sum() == 3 * 8 + 3 * 8 + (6 + 6 + 7) * 16 + 3 * 2 * 8 == 400
    assert ledger.messages.sum() == 12
    rows = {(int(i), int(j)): int(r) for i, j, r in zip(ledger.src, ledger.dst, ledger.edge_rows, strict=True)}
    assert rows == {(0, 1): 7, (1, 0): 3, (1, 2): 3, (2, 1): 8, (2, 3): 3, (3, 2): 7}


@pytest.mark.parametrize(
    ("n", "links", "parent", "layer"),
    [
        (1, [], [-1], [0]),
        (4, [(0, 1), (1, 2), (2, 3)], [1, -1, 1, 2], [1, 0, 1, 2]),
        (5, [(0, 4), (1, 4), (2, 4), (3, 4)], [4, 4, 4, 4, -1], [1, 1, 1, 1, 0]),
        (5, [(0, 2), (2, 4)], [2, -1, -1, -1, 2], [1, 0, 0, 0, 1]),
    ],
)
def test_trees_grow_from_the_middle_of_every_component(n, links, parent, layer):
    tree = build_spanning_tree(arrange([np.ones((1, 1))] * n, links).topology)
    assert_array_equal(tree.parent, parent)
    assert_array_equal(tree.layer, layer)


def test_in_every_turn_what_a_device_holds_comes_from_one_link_farther():
    table = arrange(deal(9, empty=False), [(i, (i + 1) % 9) for i in range(9)])
    found, _ = run(table, 2, size=9, spread="flood")
    far = np.array([table.topology.layers(i) for i in range(9)])
    for turn in range(4):
        assert_array_equal(found[turn].flood.known, far <= turn)
        assert_array_equal(found[5 + turn].flood.known, far <= turn)
    other = arrange([*deal(9, empty=False)[:-1], np.full((3, 2), 7.0)], [(i, (i + 1) % 9) for i in range(9)])
    for one, two in zip(found[:9], run(other, 2, size=9, spread="flood")[0], strict=False):
        assert_array_equal(one.centroids, two.centroids)  # absent


@SPREADS
@pytest.mark.parametrize(("family", "n"), thin(product(["path", "ring", "star", "complete", "tree"], [1, 2, 3, 9]), 3))
@pytest.mark.sample(5)
def test_every_graph_and_every_number_of_devices(family, n, spread):
    graph = topologies.build(family, n)
    blocks = [np.random.default_rng(i).normal(0, 1, (0 if i % 3 == 1 else 4, 2)) for i in range(n)]
    result = p2pkm.simulate(Coreset(3, size=10, n_init=2, spread=spread), graph, p2pkm.Shards.from_list(blocks))
    assert np.isfinite(result.centroids).all()
    assert (result.summary["rounds"], result.summary["centroid_sets"]) == (1, 1)
    assert result.summary["termination"] in ({"converged"} if n > 1 or spread == "flood" else {"silent"})
    assert (result.summary["bytes"] > 0) == (n > 1)


@SPREADS
def test_components_without_points_have_no_centroids_and_the_others_do_not_notice(spread):
    table = arrange([column(0, 1, 8), column(9), np.zeros((0, 1)), np.zeros((0, 1))], [(0, 1), (2, 3)])
    alone = arrange([column(0, 1, 8), column(9)], [(0, 1)])
    found = [run(one, 2, size=5, n_init=2, spread=spread)[0][-1].centroids for one in (table, alone)]
    assert np.isinf(found[0][2:]).all()
    assert_array_equal(found[0][:2], found[1])


@SPREADS
def test_points_that_are_all_alike_cost_nothing_and_none_is_drawn(spread):
    table = arrange([np.full((5, 2), 3.0), np.full((2, 2), 3.0)], [(0, 1)])
    found, said = run(table, 4, size=10, spread=spread)
    assert_array_equal(found[-1].centroids[:, 0], 3.0)
    assert np.isinf(found[-1].centroids[:, 1:]).all()
    assert max(messages.rows.max() for messages in said) <= 2


def test_nothing_comes_before_it_and_it_takes_no_start():
    shards = grid(4, points=3)
    result = p2pkm.simulate(Coreset(16), topologies.ring(4), shards)
    assert {record["stage"] for record in result.rounds} == {"coreset"}
    assert result.summary["init"] is None
    with pytest.raises(ExperimentError, match="start"):
        p2pkm.simulate(Coreset(16), topologies.ring(4), shards, start=result.centroids)


@SPREADS
def test_graphs_whose_devices_cannot_all_remember_each_other_are_refused(spread, monkeypatch):
    monkeypatch.setattr(recipe, "_MOST_FLOODING", 3)
    with pytest.raises(ExperimentError, match="at most 3 with coreset, which floods the graph"):
        p2pkm.simulate(Coreset(2, spread=spread), topologies.ring(4), grid(4, points=3))


@pytest.mark.parametrize("options", [{"size": 0}, {"n_init": 0}, {"spread": "star"}, {"size": 2.5}])
def test_options_out_of_range_are_refused(options):
    with pytest.raises(ExperimentError):
        Coreset(3, **options)
