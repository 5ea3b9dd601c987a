"""Tree Lloyd: a naive twin on the pooled points, the pooled cost, the sums, and what passes over the links."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.core import chunks
from p2pkm.core.protocols import Work
from p2pkm.core.wire_format import encode
from p2pkm.methods.building_blocks import tree_sums
from p2pkm.methods.building_blocks.spanning_tree import Tree
from p2pkm.methods.tree.treelloyd import TreeLloydOnGraph
from tests.support.play_rounds import arrange, play, random_links, squared
from tests.support.sampling import thin

GRAPHS = {
    "one": (1, []),
    "two": (2, [(0, 1)]),
    "path": (7, [(i, i + 1) for i in range(6)]),
    "ring": (9, [(i, (i + 1) % 9) for i in range(9)]),
    "star": (9, [(3, i) for i in range(9) if i != 3]),
    "complete": (5, [(i, j) for i in range(5) for j in range(i)]),
    "grid": (9, [(i, j) for i in range(9) for j in (i + 1, i + 3) if j < 9 and not (j == i + 1 and j % 3 == 0)]),
}
K, D = 4, 2


def draw(n, seed=0, d=D, sizes=None):
    """Return points of n devices around six corners; from three devices on, one has none, and one equal points."""
    rng = np.random.default_rng(seed)
    corners = rng.uniform(0, 12, (6, d))
    sizes = rng.integers(1, 15, n) if sizes is None else sizes
    data = [corners[rng.integers(0, 6, m)] + rng.normal(size=(m, d)) for m in sizes]
    if n > 2:
        data[1], data[2] = np.zeros((0, d)), np.repeat(data[2][:1], 5, axis=0)
    return data


def choose_units(cost, weight, touched, rows, d):
    """Return step, unit and grain for points whose weights are ones."""
    step = np.sqrt(cost / weight / d) * max(0.3 * np.sqrt(min(rows / weight, 1.0)), 1 / 64)
    return step, 1.0, max(1.0, np.floor(weight / np.sqrt(rows * touched)))


def halve(step, cost, points, table, unit=1.0):
    """Return how often the step of a table is halved at this cost of so many points of this mean weight."""
    rows, d = table.reshape(-1, table.shape[-1]).shape
    wish, room = choose_units(cost / unit, points, rows, rows, d)[0], 2.0**30 / max(np.abs(table).max(), 1.0)
    found = 0
    while wish and step / 2 ** (found + 1) >= wish and room >= 2 ** (found + 1):
        found += 1
    return found


class Lloyd(NamedTuple):
    """Whole numbers of the last accepted table, its step and cost, and whether a step was taken back."""

    accepted: np.ndarray
    step: float
    cost: float
    back: bool


def lloyd(data, start, units, tol=0.0, rounds=99, masses=None):
    """Take steps on the points of all, on the grid of step, unit and grain that was chosen at first."""
    step, unit, coarse = units
    table = kept = np.zeros_like(start)
    before, masses = np.inf, masses or [np.ones(len(points)) for points in data]
    for _ in range(rounds):
        sums, counts, cost = np.zeros_like(start), np.zeros(len(start)), 0.0
        for points, mass in zip(data, masses, strict=True):
            apart = squared(points, start + step * table).reshape(len(points), len(start))
            nearest = apart.argmin(axis=1)
            cost += (mass * apart.min(axis=1)).sum()
            for c in range(len(start)):
                own = nearest == c
                whole = (mass[own, None] * (points[own] - start[c])).sum(axis=0) / unit
                sums[c] += np.rint(whole / (coarse * step))
                counts[c] += np.rint(mass[own].sum() / unit)
        if cost >= before:
            return Lloyd(kept, step, before, True)
        kept = table
        means = np.rint(coarse * sums / np.maximum(counts, 1e-300)[:, None])
        moves = np.where(counts[:, None] > 0, means - table, 0.0)
        whole = sum(mass.sum() for mass in masses) / sum(map(len, data))
        finer = 2.0 ** halve(step, cost, sum(map(len, data)), table, whole)
        if before - cost < tol * before or not (moves.any() or finer > 1.0):
            return Lloyd(kept, step, cost, False)
        if finer > 1.0:
            table, kept, step, before = finer * table, finer * kept, step / finer, np.inf
        else:
            table, before = table + moves, cost
    return Lloyd(kept, step, before, False)


def agree(data, links, start, **more):
    """Return step, unit and grain that are chosen at first."""
    return run(data, links, start, rounds=1, **more)[1].units[0]


def run(data, links, start, rounds=30, tol=0.0, **more):
    """Return the history of centroids by round and the last state."""
    table = arrange(data, links, **more)
    method = p2pkm.TreeLloyd(len(start), tol=tol).on(table.topology)
    turns = 2 * method.depth + 1
    history, state = play(method, table, np.array([start] * len(data)), rounds)
    return history[::turns], state


@pytest.mark.parametrize("name", thin(GRAPHS, 3))
@pytest.mark.sample(3)
def test_the_twin_finds_the_same_whole_numbers(name):
    n, links = GRAPHS[name]
    for seed in range(2):
        data = draw(n, seed)
        pooled = np.concatenate(data)
        start = np.random.default_rng(seed).normal(6, 4, (K, D))
        for tol in (0.0, 1e-2):
            history, state = run(data, links, start, tol=tol)
            units = agree(data, links, start)
            apart = [squared(points, start) for points in data if len(points)]
            touched = sum(len(np.unique(one.argmin(axis=1))) for one in apart)
            first = sum(one.min(axis=1).sum() for one in apart)
            assert_allclose(units, choose_units(first, len(pooled), touched, K, D), rtol=1e-5)
            kept, step, cost, _ = lloyd(data, start, units, tol)
            assert state.converged.all()
            for i in range(n):
                assert_array_equal(state.accepted[i], kept)
                assert state.units[i, 0] == step
            assert_array_equal(state.centroids, np.array([start + step * kept] * n))
            assert_allclose(squared(pooled, state.centroids[0]).min(axis=1).sum(), cost)
            assert (history[-1] == state.centroids).all()


def test_units_by_hand():
    # weight, squares, exponent of the grain, rows with points; 16 rows of two coordinates of spread 2
    measured = np.array([[[1600.0, 12800.0, 0.0, 25.0]], [[16e6, 128e6, 0.0, 25.0]], [[4.0, 32.0, 0.0, 8.0]]])
    found = tree_sums.choose_units(measured, np.full(3, 16), 2, 1.0)
    expected = [[2 * 0.3 * 0.1, 1, 80], [2 / 64, 1, 800_000], [2 * 0.3, 1, 1]]
    assert_allclose(found, expected, rtol=2.0**-21)
    half = np.concatenate((measured[:1, :, :2] / 2, [[[-1.0, 25.0]]]), axis=2)  # weights of a half
    assert_allclose(tree_sums.choose_units(half, np.array([16]), 2, 0.5), [[0.06, 0.5, 80]], rtol=2.0**-21)
    fifth = measured[:1] * [0.2, 0.2, 0.0, 1.0] + [0.0, 0.0, -54.0, 0.0]  # 2^-32 of the weight is more than 2^-54
    assert_allclose(
        tree_sums.choose_units(fifth, np.array([16]), 2, 0.2), [[0.06, 2.0**-23, 16 * 2**23]], rtol=2.0**-21
    )
    assert_array_equal(found, tree_sums.shorten(found))


@pytest.mark.parametrize("coarse", [1.0, 64.0])
def test_two_steps_by_hand(monkeypatch, coarse):
    monkeypatch.setattr(tree_sums, "choose_units", lambda *given: np.array([[1.0, 1.0, coarse]]))
    monkeypatch.setattr(tree_sums, "find_step", lambda *given: np.ones(1))
    data = [np.array([[-512.0], [512.0]]), np.array([[-512.0], [512.0]])]
    history, state = run(data, [(0, 1)], np.array([[-400.0], [0.0]]), rounds=4)
    assert_array_equal(state.units, [[1.0, 1.0, coarse]] * 2)
    off = {1.0: 0.0, 64.0: 16.0}[coarse]  # -112 on two devices is twice -2 grains of 64
    assert_array_equal(state.accepted, [[[-112.0 - off], [512.0]]] * 2)
    assert_array_equal(state.sums[0] * [coarse, 1.0], [[-224.0 - 2 * off, 2.0], [1024.0, 2.0]])
    assert_array_equal(history[:, 0, :, 0], [[-400, 0]] * 3 + [[-512 - off, 512]] * 2)


def test_a_step_is_halved_where_the_cost_has_fallen():
    # a start a thousand times as far away as the points are from each other; on the first grid all would be one point
    data = draw(9, 4, sizes=np.full(9, 30))
    start = np.array([[9000.0, 9000.0], [-9000.0, 9000.0], [9000.0, 0.0]])
    units = agree(data, GRAPHS["grid"][1], start)
    history, state = run(data, GRAPHS["grid"][1], start)
    kept, step, cost, _ = lloyd(data, start, units)
    assert state.converged.all() and units[0] > 100.0 * step
    assert_array_equal(state.accepted[0], kept)
    assert_array_equal(state.units[:, 0], np.full(9, step))
    pooled = np.concatenate(data)
    costs = np.array([squared(pooled, table[0]).min(axis=1).sum() for table in history])
    assert (np.diff(costs) <= 0.0).all()
    assert_allclose([costs[-1], state.root.cost.min() * step**2], cost)
    apart = squared(pooled, history[-1, 0])
    exact = sum(((own - own.mean(axis=0)) ** 2).sum() for own in (pooled[apart.argmin(axis=1) == c] for c in range(3))
                if len(own))  # fmt: skip
    assert cost < 1.01 * exact


def test_a_step_that_raises_the_cost_is_taken_back():
    """Sums are off by up to half a grain per device, which can move a row beyond the grid point nearest to its mean."""
    found = 0
    for seed in range(10):
        data = [np.random.default_rng((seed, i)).normal(0, 3, (1, 1)) for i in range(3)]
        pooled = np.concatenate(data)
        start = pooled.mean(axis=0, keepdims=True) - 0.4 * pooled.std() * 0.3 / np.sqrt(3.0)
        history, state = run(data, [(0, 1), (1, 2)], start)
        kept, _, cost, back = lloyd(data, start, agree(data, [(0, 1), (1, 2)], start))
        assert_array_equal(state.accepted, np.array([kept] * 3))
        assert_array_equal(state.table, state.accepted)
        step, unit, _ = state.units[1]
        assert_allclose(state.root.cost[1] * step**2 * unit, cost)
        costs = [squared(pooled, table[0]).min(axis=1).sum() for table in history]
        assert (np.diff(costs) <= 0).all()
        found += back
    assert 1 < found < 9


@given(st.data())
def test_the_pooled_cost_never_rises(drawn):
    n, k, seed = drawn.draw(st.integers(1, 9)), drawn.draw(st.integers(1, 5)), drawn.draw(st.integers(0, 2**20))
    rng = np.random.default_rng(seed)
    grain = drawn.draw(st.sampled_from([None, 1.0]))
    data = [rng.normal(0, 3, (m, 2)) for m in rng.integers(0, 7, n)]
    data = data if grain is None else [np.rint(points / grain) * grain for points in data]
    assume(sum(map(len, data)))
    links = random_links(rng, n, 0.3, connected=True)
    history, state = run(data, links, rng.normal(0, 3, (k, 2)), rounds=30)
    pooled = np.concatenate(data)
    costs = np.array([squared(pooled, table[0]).min(axis=1).sum() for table in history])
    assert (np.diff(costs) <= 1e-12 * costs[0]).all()
    assert (history == history[:, :1]).all()  # all hold the same table between two rounds
    assert state.converged.all()


def test_sums_depend_neither_on_the_tree_nor_on_the_order():
    data = draw(9, 5)
    start = np.random.default_rng(3).normal(6, 4, (K, D))
    found = [run(data, links, start)[1] for n, links in GRAPHS.values() if n == 9]
    for other in found:
        root = int(np.argmax(other.sums[:, :, -1].sum(axis=1)))
        assert_array_equal(other.sums[root], other.sent_sums.sum(axis=0))
        assert_array_equal(other.accepted, found[0].accepted)
    order = np.random.default_rng(1).permutation(9)
    _, turned = run([data[i] for i in order], GRAPHS["ring"][1], start)
    assert_array_equal(turned.accepted, found[0].accepted)


def test_the_end_is_a_lloyd_point_of_the_pooled_points():
    for seed in range(3):
        data = draw(9, seed, sizes=np.full(9, 30))
        pooled, start = np.concatenate(data), np.random.default_rng(seed).normal(6, 4, (K, D))
        _, state = run(data, GRAPHS["grid"][1], start)
        if lloyd(data, start, agree(data, GRAPHS["grid"][1], start)).back:
            continue
        nearest = squared(pooled, state.centroids[0]).argmin(axis=1)
        for c in np.unique(nearest):
            own = pooled[nearest == c]
            off = np.abs(own.mean(axis=0) - state.centroids[0, c])
            step, _, coarse = state.units[0]
            assert (off <= step * (1 + coarse * 9 / len(own)) / 2).all()


def test_every_component_has_a_clustering_of_its_own():
    data, start = draw(9, 2), np.random.default_rng(2).normal(6, 4, (K, D))
    data[5] = np.zeros((0, D))  # alone, without points
    parts = [0, 1, 2, 3], [4, 6, 7, 8]
    links = [(0, 1), (1, 2), (2, 3), (4, 6), (6, 7), (7, 8), (8, 4)]
    _, state = run(data, links, start)
    units = run(data, links, start, rounds=1)[1].units
    assert state.converged.all()
    for part in parts:
        own = [data[i] for i in part]
        kept = lloyd(own, start, units[part[0]]).accepted
        assert_array_equal(state.accepted[part], np.array([kept] * 4))
    assert_array_equal(state.centroids[5], start)


def test_whole_weights_are_repeated_points(monkeypatch):
    data, rng = draw(9, 7), np.random.default_rng(0)
    masses = [rng.integers(1, 5, len(points)) for points in data]
    start = rng.normal(6, 4, (K, D))
    whole = [np.repeat(points, mass, axis=0) for points, mass in zip(data, masses, strict=True)]
    found = [
        run(data, GRAPHS["ring"][1], start, weights=factor * np.concatenate(masses))[1]
        for factor in (1.0, 2.0**-60, 2.0**40)
    ]
    # as on a grid that is chosen for so many points and not for their repetitions
    weights, find = np.concatenate(masses), tree_sums.find_step
    units = agree(data, GRAPHS["ring"][1], start, weights=weights)
    monkeypatch.setattr(tree_sums, "choose_units", lambda *given: units[None])
    monkeypatch.setattr(tree_sums, "find_step", lambda *given: find(*given[:-1], weights.mean()))
    _, repeated = run(whole, GRAPHS["ring"][1], start)
    for state in found:
        assert_array_equal(state.centroids, found[0].centroids)
        assert_array_equal(state.sent_sums, found[0].sent_sums)
        assert_array_equal(state.sent_sums[:, :, -1], repeated.sent_sums[:, :, -1])
        assert_array_equal(state.accepted, repeated.accepted)
    assert_array_equal(found[2].units[:, 1], np.full(9, 2.0**40))


def test_any_weights_are_followed_to_the_grid():
    data, rng = draw(9, 8), np.random.default_rng(1)
    masses = [rng.uniform(0.1, 5, len(points)) for points in data]
    start = rng.normal(6, 4, (K, D))
    given = data, GRAPHS["grid"][1], start
    _, state = run(*given, weights=np.concatenate(masses))
    units = agree(*given, weights=np.concatenate(masses))
    assert_array_equal(state.accepted[0], lloyd(data, start, units, masses=masses).accepted)


@pytest.mark.parametrize("scale", thin([2.0**332, 2.0**-332], 2))
def test_coordinates_may_be_huge_or_tiny(scale):
    data, start = draw(9, 3), np.random.default_rng(3).normal(6, 4, (K, D))
    one, other = (run([size * part for part in data], GRAPHS["ring"][1], size * start)[1] for size in (1.0, scale))
    assert np.isfinite(other.centroids).all()
    assert_allclose(other.centroids / scale, one.centroids, rtol=1e-9)


@pytest.mark.parametrize("far", thin([1e6, 1e60, 1e100], 2))
def test_rows_that_start_far_away_break_nothing(far):
    data, start = draw(9, 3), np.random.default_rng(3).normal(6, 4, (K, D))
    start[1] *= far
    history, state = run(data, GRAPHS["ring"][1], start)
    assert np.isfinite(history).all() and np.abs(state.sums).max() <= 2.0**52
    _, alone = run(data, GRAPHS["ring"][1], far * np.ones((2, D)), rounds=5)
    assert np.isfinite(alone.centroids).all() and np.abs(alone.sums).max() <= 2.0**52


def test_points_without_spread_end_it_at_once():
    data = [np.full((3, D), 0.5)] * 4
    history, state = run(data, [(0, 1), (1, 2), (2, 3)], np.array([[0.5, 0.5], [5.0, 5.0]]), rounds=1)
    assert_array_equal(state.units[:, 0], np.zeros(4))
    assert state.converged.all() and (history == history[0]).all()


def test_an_absent_row_stays_absent():
    start = np.array([[0.0, 0.0], [np.inf, np.inf], [9.0, 9.0]])
    _, state = run(draw(9, 1), GRAPHS["grid"][1], start)
    assert np.isinf(state.centroids[:, 1]).all() and np.isfinite(state.centroids[:, [0, 2]]).all()
    assert (state.sums[:, 1] == 0).all()


@pytest.mark.parametrize("name", thin(["path", "ring", "star", "complete"], 2))
def test_what_passes_over_the_links(name, monkeypatch):
    """Two messages per link of the tree and step, with the bytes of a table that can be read."""
    (n, links), said = GRAPHS[name], []
    message = TreeLloydOnGraph.message

    def watched(self, state, devices):
        messages = message(self, state, devices)
        said.append((devices.round, messages))
        return messages

    monkeypatch.setattr(TreeLloydOnGraph, "message", watched)
    data, start = draw(n, 4), np.random.default_rng(4).normal(6, 4, (K, D))
    table = arrange(data, links)
    method = p2pkm.TreeLloyd(K).on(table.topology)
    _, state = play(method, table, np.array([start] * n), 40)
    said = [(t, messages) for t, messages in said if (messages.rows >= 0).any()]
    steps = [one for number in range(2, 41) if (one := [messages for t, messages in said if t == number])]
    assert state.converged.all() and 2 < len(steps) < 30
    first = [messages for t, messages in said if t < 2]
    assert sum(int(messages.edges.sum()) for messages in first) == 2 * (n - 1)
    for messages in first:
        assert (messages.wire[messages.rows >= 0] == 4 * messages.values.shape[2]).all()
    for one in steps:
        assert sum(int(messages.edges.sum()) for messages in one) == 2 * (n - 1)
        for messages in one:
            for i in np.flatnonzero(messages.rows >= 0):
                values = messages.values[i].astype(np.int64)
                up = values.shape[1] == D + 1
                order, whole = (8, values[:K]) if up else (1, values[1:])
                silent = not up and not values[0, 0] & 4
                assert messages.wire[i] == order + (0 if silent else -(-len(encode(whole)) // 8))
    counted = table.network.ledger.edges
    over = 8 * (4 + 3) + len(steps) * 8 * (K + 1) * (2 * D + 1)
    assert counted[:, 2].sum() == (n - 1) * over
    assert counted[:, 3].sum() < 0.6 * counted[:, 2].sum()


def test_later_steps_are_shorter():
    """Changes are shorter than sums."""
    shards, graph = deal(10), topologies.ring(10)
    result = p2pkm.simulate(p2pkm.TreeLloyd(4, init="leader", tol=0.0), graph, shards, seed=3)
    wire = np.diff([entry["wire_bytes"] for entry in result.rounds if entry["stage"] == "treelloyd"])
    numbers = wire[1:-1] - 9 * (8 + 1)  # without costs and orders
    assert len(numbers) > 3 and numbers.argmax() == 0 and numbers[-1] < numbers[0] / 2


def deal(n, seed=0):
    return p2pkm.Shards.from_list(draw(n, seed, sizes=np.full(n, 30)))


def test_the_descent_is_that_of_the_pooled_cost():
    result = p2pkm.simulate(p2pkm.TreeLloyd(5, init="leader"), topologies.ring(10), deal(10), seed=1)
    summary = result.summary
    assert (summary["descent"], summary["termination"], summary["centroid_sets"]) == ("certified", "converged", 1)
    pooled = np.concatenate(draw(10, 0, sizes=np.full(10, 30)))
    assert_allclose(summary["objective"], squared(pooled, result.centroids[0]).min(axis=1).sum())


@pytest.mark.parametrize(("options", "said"), [
    ({"init": "local"}, "gives devices different centroids"),
    ({"init": "flooded-summaries:hops=1"}, "gives devices different centroids"),
    ({"tol": -1.0}, "tol is"),
    ({"k": 0}, "clusters"),
])  # fmt: skip
def test_parameters_out_of_range_are_refused(options, said):
    with pytest.raises(p2pkm.ExperimentError, match=said):
        p2pkm.TreeLloyd(**{"k": 3} | options)


def test_a_start_that_differs_is_refused():
    start = np.array([np.eye(3, 2)] * 9)
    same = p2pkm.simulate(p2pkm.TreeLloyd(3), topologies.ring(9), deal(9), start=start)
    assert same.summary["descent"] == "certified"
    start[4, 0] += 1.0
    with pytest.raises(p2pkm.DataError, match="start differs between device 0 and device 4"):
        p2pkm.simulate(p2pkm.TreeLloyd(3), topologies.ring(9), deal(9), start=start)


def test_a_round_costs_a_pass_over_the_own_points_and_the_additions():
    method = p2pkm.TreeLloyd(K).on(arrange([np.ones((1, D))] * 4, [(0, 1), (1, 2)]).topology)
    rows = np.array([1, 2, 1, 0]) * (K + 1)  # of all messages of a round
    sizes = np.array([5, 0, 7, 9])
    found = method.flops(Work(sizes, np.array([1, 2, 1, 0]), rows, D))
    assert_array_equal(found, [5 * 28 + rows[0] * 3, rows[1] * 3, 7 * 28 + rows[2] * 3, 0])  # (3 K + 2) D is 28


def test_the_tree_of_a_star_has_its_middle_as_the_root():
    tree: Tree = p2pkm.TreeLloyd(2).on(arrange([np.ones((1, 1))] * 5, [(2, i) for i in (0, 1, 3, 4)]).topology).tree
    assert_array_equal(tree.parent, [2, 2, -1, 2, 2])


def test_moments_of_devices_do_not_depend_on_the_pieces(monkeypatch):
    devices = arrange([[[1.0], [5.0]], [[2.0]], [[7.0], [8.0], [9.0]]], [(0, 1), (1, 2)]).devices
    tables = np.tile([[1.0], [8.0]], (3, 1, 1))
    whole = tree_sums.measure(devices, tables)
    monkeypatch.setattr(chunks, "_CHUNK_SIZE", 3)
    assert whole[:, 0, :2].tolist() == [[2.0, 9.0], [1.0, 1.0], [3.0, 2.0]]
    assert np.array_equal(tree_sums.measure(devices, tables), whole)
