"""Breathing along a tree: which rows are added and taken out, and what 16 bits hold."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.core.batch import Stream
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.tree import search
from p2pkm.methods.tree.search import placement_distance
from tests.methods.tree.test_treelloyd import GRAPHS, agree, draw, halve, lloyd
from tests.support.play_rounds import arrange, play, squared

K, D = 5, 2


def breathe(data, links, start, rounds=140, **more):
    table = arrange(data, links, **more)
    method = p2pkm.TreeLloyd(len(start), search="breathing", tol=0.0).on(table.topology)
    history, state = play(method, table, np.array([start] * len(data)), rounds)
    return history[:: 2 * method.depth + 1], state, method


SLOW = pytest.mark.slow


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("ring", marks=SLOW), "star", pytest.param("grid", marks=SLOW)])
def test_a_search_lowers_the_cost_and_ends_at_a_lloyd_point(name):
    better = 0
    for seed in range(2):
        data = draw(9, seed, sizes=np.full(9, 25))
        pooled, start = np.concatenate(data), np.random.default_rng(seed).normal(6, 4, (K, D))
        history, state, _ = breathe(data, GRAPHS[name][1], start)
        assert state.converged.all() and (history == history[:, :1]).all()
        costs = [squared(pooled, table[0]).min(axis=1).sum() for table in history]
        assert (np.diff(costs) <= 1e-12 * costs[0]).all()
        step, unit, coarse = state.units[0]
        plain = lloyd(data, start, agree(data, GRAPHS[name][1], start)).cost
        assert costs[-1] <= plain * (1 + 1e-12)
        better += costs[-1] < 0.99 * plain
        root = int(np.argmax(state.sums[:, :, -1].sum(axis=1)))
        assert_array_equal(state.sums[root], state.sent_sums.sum(axis=0))
        assert_allclose(state.root.cost[root] * step**2 * unit, costs[-1])
        assert np.isfinite(state.accepted_reference[root, :, 0]).sum() == K
        nearest = squared(pooled, history[-1, 0]).argmin(axis=1)
        for c in np.unique(nearest):
            own = pooled[nearest == c]
            assert (np.abs(own.mean(axis=0) - history[-1, 0, c]) <= step * (1 + coarse * 9 / len(own))).all()
    assert better


@pytest.mark.slow
def test_the_result_does_not_depend_on_the_tree():
    data, start = draw(9, 3, sizes=np.full(9, 25)), np.random.default_rng(3).normal(6, 4, (K, D))
    found = [breathe(data, links, start)[1] for n, links in GRAPHS.values() if n == 9]
    for other in found:
        assert_allclose(other.centroids, found[0].centroids, rtol=1e-9)


class Search:
    """A search as the text of `search` has it, on the points of all, row by row."""

    def __init__(self, points, step, coarse, draw):
        self.points, self.step, self.coarse, self.draw = points, step, coarse, draw
        self.round = 1

    def measure(self, origin, table):
        """Return cost, the table after a Lloyd step, phi and U, which are one round."""
        self.round += 1
        apart = squared(self.points, origin + self.step * table)
        near, (least, second) = apart.argmin(axis=1), np.sort(apart, axis=1)[:, :2].T
        moved, errors = table.copy(), np.zeros((2, len(table)))
        for c in np.unique(near):
            own = near == c
            sums = np.rint((self.points[own] - origin[c]).sum(axis=0) / (self.coarse * self.step))
            moved[c] = np.rint(self.coarse * sums / own.sum())
            errors[:, c] = least[own].sum(), (second - least)[own].sum()
        return least.sum(), moved, *search.shorten(errors / self.step**2)

    def descend(self, origin, table):
        """Return the last table of which the cost is known to have fallen, and its cost."""
        kept, before = table, np.inf
        while True:
            cost, moved, *_ = self.measure(origin, table)
            if not cost < before:
                return kept, before
            finer = 2.0 ** halve(self.step, cost, len(self.points), table[np.isfinite(origin[:, 0])])
            kept, table, self.step = finer * table, finer * (table if finer > 1.0 else moved), self.step / finer
            if finer == 1.0 and (table == kept).all():
                return kept, cost
            before = cost if finer == 1.0 else np.inf

    def add(self, origin, table, phi, cost, count):
        """Return a table with rows beside those of the largest error, in the first free places."""
        real, base, found = np.isfinite(origin[:, 0]), origin.copy(), table.copy()
        placement_distance = max(1.0, np.rint(0.05 * np.sqrt(cost / len(self.points)) / self.step))
        largest = sorted(np.flatnonzero(real), key=lambda c: -phi[c])
        for place, c in zip(np.flatnonzero(~real), largest[:count], strict=False):
            offset = np.rint((2.0 * self.draw(self.round)[place] - 1.0) * placement_distance)
            base[place], found[place] = origin[c], table[c] + (offset if offset.any() else np.eye(D)[0])
        return base, found

    def play(self, origin, table):
        """Return the rows at the end and their cost."""
        kept, cost = self.descend(origin, table)
        rows, trials, phi = search.MOST, 0, None
        while rows and trials < search.TRIALS:
            phi = self.measure(origin, kept)[2] if phi is None else phi
            base, table = self.add(origin, kept, phi, cost, rows)
            for _ in range(2):
                table = self.measure(base, table)[1]
            utility = self.measure(base, table)[3]
            added = np.isfinite(base[:, 0]).sum() - np.isfinite(origin[:, 0]).sum()
            out = search.choose_least(utility, base + self.step * table, added)
            base[out], table[out] = np.inf, 0.0
            now, before = np.inf, np.inf
            for step in range(5):
                now, moved, *_ = self.measure(base, table)
                if step == 4 or (moved == table).all() or not now < before:
                    break
                table, before = moved, now
            trials += 1
            if now < cost * (1.0 - 1e-6):
                origin, kept, cost, phi = base, table, now, None
            else:
                rows -= 1
        kept, cost = self.descend(origin, kept)
        rows = origin + self.step * kept
        return rows[np.isfinite(rows[:, 0])], cost


@pytest.mark.parametrize(("k", "seed"), [(3, 0), (6, 4)])  # the second has all ten trials
def test_the_twin_finds_the_same_rows_in_as_many_rounds(k, seed):
    points, start = draw(1, seed, sizes=[60])[0], np.random.default_rng(seed).normal(6, 4, (k, D))
    key, origin = arrange([points], []).devices.shared_key, np.full((k + search.MOST, D), np.inf)
    origin[:k], (step, _, coarse) = start, agree([points], [], start)
    twin = Search(
        points, step, coarse, lambda t: uniforms(key, Stream.CHOICE, [t], origin.size)[0].reshape(origin.shape)
    )
    rows, cost = twin.play(origin, np.zeros(origin.shape))
    history, state, _ = breathe([points], [], start, twin.round)
    assert state.converged.all()
    assert_array_equal(history[-1, 0], rows)
    assert_allclose(state.root.cost[0] * state.units[0, 0] ** 2, cost)


def test_errors_and_utilities_by_hand():
    table = arrange([np.array([[0.0], [1.0], [9.0]]), np.zeros((0, 1))], [(0, 1)])
    rows = np.array([[[0.0], [10.0], [np.inf]]] * 2)
    found = [search.sum_errors(table.devices, rows, np.ones(2), utility=flag) for flag in (False, True)]
    assert_array_equal(found[0], [[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    assert_array_equal(found[1], [[180.0, 80.0, 0.0], [0.0, 0.0, 0.0]])  # 100 - 0 + 81 - 1 and 81 - 1


def test_an_order_is_a_byte_and_two_more_per_row_that_is_added_or_taken_out():
    table = arrange([np.zeros((1, D))], [])
    method = p2pkm.TreeLloyd(K, search="breathing").on(table.topology)
    tables = np.zeros((3, 1 + method.row_capacity, D))
    tables[:, 0, 0] = 8, 16, 32  # stop, add, remove
    tables[1:, 2:5, 0] = 1.0
    found = method.count_encoded_bytes(None, np.arange(3), tables, table.devices, up=False)
    assert_array_equal(found, [1, 1 + 3 * 2 + 2, 1 + 3 * 2])  # and how far beside


def test_16_bits_hold_8_digits():
    values = np.array([0.0, 1.0, 257.0, 259.0, 1e-30, 3.0])
    assert_array_equal(search.shorten(values)[[0, 1, 2, 3, 5]], [0.0, 1.0, 256.0, 260.0, 3.0])
    many = np.random.default_rng(0).uniform(0, 1e9, 1000)
    assert_allclose(search.shorten(many), many, rtol=2.0**-8)
    assert_array_equal(search.shorten(search.shorten(many)), search.shorten(many))


def test_the_neighbor_of_a_row_that_was_taken_out_stays():
    rows = np.array([[0.0], [1.0], [50.0], [90.0], [np.inf]])
    assert_array_equal(search.choose_least(np.array([1.0, 2.0, 3.0, 4.0, 0.0]), rows, 2), [0, 2])
    assert_array_equal(search.choose_least(np.array([1.0, 2.0, 3.0, 4.0, 0.0]), rows, 3), [0, 2, 1])
    assert_array_equal(search.choose_largest(np.array([1.0, 5.0, 5.0, 9.0, 7.0]), np.array([0, 1, 2, 4]), 3), [4, 1, 2])


@pytest.mark.parametrize("k", [1, pytest.param(2, marks=SLOW), 9])
def test_a_search_runs_with_few_and_with_many_rows(k):
    data = draw(9, 1)
    start = np.random.default_rng(1).normal(6, 4, (k, D))
    history, state, _ = breathe(data, GRAPHS["star"][1], start)
    assert state.converged.all() and np.isfinite(history).all()


@pytest.mark.slow
def test_a_run_with_a_search_is_planned_weighed_and_certified():
    parts = draw(8, 2, sizes=np.full(8, 20))
    found = []
    for factor in (1.0, 2.0**-60):
        weights = [np.full(len(part), factor) for part in parts]
        shards = p2pkm.Shards.from_list(parts, weights=weights)
        method = p2pkm.TreeLloyd(4, search="breathing", init="leader")
        result = p2pkm.simulate(method, topologies.star(8), shards, seed=2)
        found.append(result.summary)
    assert found[0]["descent"] == "certified" and found[0]["termination"] == "converged"
    for key in ("centroids_sha256", "chain_sha256", "bytes", "wire_bytes", "rounds"):
        assert found[0][key] == found[1][key]
    own = [entry for entry in result.rounds if entry["stage"] == "treelloyd"]
    per_round = np.diff([entry["bytes"] for entry in own])[1:]
    assert (per_round == 7 * 8 * (4 + 5 + 1) * (2 + 2 + 2)).all()
    assert found[0]["wire_bytes"] < found[0]["bytes"] / 5


def test_a_split_centroid_moves_by_at_least_one_step():
    assert placement_distance(0.0, 3.0) == placement_distance(5.0, 0.0) == 1.0 < placement_distance(1e4, 1.0)
