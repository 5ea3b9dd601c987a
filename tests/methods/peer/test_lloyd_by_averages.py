"""Common properties of the methods that average sums and counts: a dense reference, conserved sums, central steps."""

from itertools import pairwise, product
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.core.batch import Stream
from p2pkm.core.protocols import RunOutline, Work
from p2pkm.kernels import numba as compiled
from p2pkm.kernels import reference as plain
from p2pkm.kernels.reference import philox
from p2pkm.methods.building_blocks import averaging
from p2pkm.methods.building_blocks.averaging import count_turns
from p2pkm.methods.building_blocks.random_matching import match
from p2pkm.network.graph import Topology
from tests.support.averages import (
    GRAPHS,
    column,
    deal,
    divide,
    draw,
    lloyd,
    proposals,
    scene,
    seeds,
    states,
    sums,
)
from tests.support.play_rounds import arrange, last
from tests.support.sampling import thin


def _links(devices):
    weights = np.ones(len(devices.indices)) if devices.link_weights is None else devices.link_weights
    ends = zip(devices.sources.tolist(), devices.indices.tolist(), weights.tolist(), strict=True)
    return [(i, j, weight) for i, j, weight in ends if i < j]


def _mix(table, number):
    q = proposals(len(table.devices), _links(table.devices))
    P = np.minimum(q, q.T)
    return P + np.diag(1 - P.sum(axis=1))


def _share(table, number):
    A = proposals(len(table.devices), _links(table.devices)).T
    return A + np.diag(1 - A.sum(axis=0))


def _pair(table, number):
    partner = match(table.topology, table.devices.shared_key, number + 1)
    A = np.eye(len(partner))
    for i in np.flatnonzero(partner >= 0):
        A[i, [i, partner[i]]] = 0.5
    return A


def _push(table, number):
    devices, n = table.devices, len(table.devices)
    A = np.zeros((n, n))
    for i in range(n):
        near = devices.indices[devices.indptr[i] : devices.indptr[i + 1]]
        word = int(philox(0, number, devices.keys[i], Stream.NEIGHBOR)[0, 0])
        A[i, i] += 0.5
        A[near[word % len(near)] if len(near) else i, i] += 0.5
    return A


class Case(NamedTuple):
    """A method; its parameter for the turns of a round, the matrix of an exchange, and what a test needs to know.

    many: turns after which the averages are exact; messages: per exchange on a path of three; counted: rounds in which
    running totals give the same.
    """

    kind: Any
    parameter: str
    matrix: Any
    many: int
    messages: int
    defaults: tuple[int, int]
    weighted: bool = True
    continues: bool = False
    counted: int = 0

    def build(self, k, turns, **options):
        return self.kind(k, **{self.parameter: turns}, **options)

    def play(self, table, start, rounds, turns, **options):
        method = self.build(np.shape(start)[1], turns, **options).on(table.topology)
        return states(method, table, start, rounds)

    def last(self, table, start, rounds, turns, **options):
        method = self.build(np.shape(start)[1], turns, **options).on(table.topology)
        return last(method, table, start, rounds)

    def reference(self, data, table, start, rounds, turns):
        """Return the centroids by dense matrices and plain loops."""
        centroids, number = np.array(start), 0
        local = np.array([sums(points, w) for points, w in zip(data, centroids, strict=True)])
        averages = local
        for _ in range(rounds):
            for _ in range(turns):
                averages = np.einsum("ij,jcw->icw", self.matrix(table, number), averages)
                number += 1
            least = 1e-3 if self.continues else 1e-12
            centroids = np.array([divide(z, w, least) for z, w in zip(averages, centroids, strict=True)])
            before, local = local, np.array([sums(points, w) for points, w in zip(data, centroids, strict=True)])
            averages = averages + local - before if self.continues else local
        return centroids


CASES = {
    "consensus": Case(p2pkm.ConsensusLloyd, "gossips", _mix, 600, 4, (10, 30)),
    "pushsum": Case(p2pkm.PushSumLloyd, "gossips", _share, 600, 4, (10, 30), counted=1),
    "tracking": Case(p2pkm.TrackingLloyd, "gossips", _mix, 600, 4, (3, 150), continues=True, counted=4),
    "epidemic": Case(p2pkm.Epidemic, "cycles", _pair, 600, 2, (24, 20), weighted=False),
    "gossip-sum": Case(p2pkm.GossipSum, "sends", _push, 300, 3, (20, 20), weighted=False),
}
WEIGHTED = {name: case for name, case in CASES.items() if case.weighted}
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def close(found, expected):
    assert_allclose(found, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("kernels", "name"), thin(product([plain, compiled], GRAPHS), 5))
@cases
@pytest.mark.sample(5)
def test_centroids_are_those_of_dense_matrices(case, name, kernels):
    data, _, table, start = scene(name, kernels=kernels)
    for turns in (1, 3):
        found = case.last(table, start, 4, turns)
        close(found[:, :3], case.reference(data, table, start, 4, turns)[:, :3])
        assert np.isinf(found[:, 3]).all()


@pytest.mark.parametrize(("kernels", "name"), thin(product([plain, compiled], GRAPHS), 7))
@pytest.mark.parametrize("case", WEIGHTED.values(), ids=WEIGHTED)
def test_centroids_with_link_weights_are_those_of_dense_matrices(case, name, kernels):
    data, _, table, start = scene(name, kernels=kernels, weighted=True)
    for turns in (1, 3):
        found = case.last(table, start, 4, turns)
        close(found[:, :3], case.reference(data, table, start, 4, turns)[:, :3])
        assert np.isinf(found[:, 3]).all()
        # in the tree a device holds so few points that, with counters, it keeps its centroids
        if case.counted and not (case.continues and name == "tree"):
            found = case.last(table, start, case.counted, turns, counters=True)
            close(found[:, :3], case.reference(data, table, start, case.counted, turns)[:, :3])


@cases
@given(graph=seeds)
@pytest.mark.sample(3)
def test_every_turn_conserves_the_sums_over_all_devices(case, graph):
    table, start = draw(graph)
    found, _ = case.play(table, start, 2, 4)
    for number, state in enumerate(found):
        if state.local is not None or number % 4 == 0:
            whole = (state.averages if state.local is None else state.local).sum(axis=0)
        assert_allclose(state.averages.sum(axis=0), whole, atol=1e-11)
        assert np.isfinite(state.averages).all()
        assert case.continues or (state.averages[:, :, -1] >= 0).all()


@cases
def test_local_sums_of_a_round_are_those_of_its_centroids(case):
    data, _, table, start = scene("tree")
    found, _ = case.play(table, start, 3, 2)
    for state in found[::2]:
        expected = [sums(points, w) for points, w in zip(data, state.centroids, strict=True)]
        assert_allclose(state.averages if state.local is None else state.local, expected, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["star", "tree"])
@cases
def test_with_many_turns_a_round_is_a_central_lloyd_step(case, name):
    data, _, table, start = scene(name)
    found = case.last(table, start, 2, case.many)
    close(found[:, :3], [lloyd(data, lloyd(data, start[0]))[:3]] * len(data))


@pytest.mark.slow
def test_with_many_weighted_turns_a_round_is_a_central_lloyd_step():
    data, _, table, start = scene("tree", weighted=True)
    found = CASES["consensus"].last(table, start, 2, 4000)
    close(found[:, :3], [lloyd(data, lloyd(data, start[0]))[:3]] * len(data))


@cases
def test_an_isolated_device_runs_lloyd_whatever_the_turns(case):
    data, _, table, start = scene("one")
    for turns in (1, 7):
        close(case.last(table, start, 2, turns)[0, :3], lloyd(data, lloyd(data, start[0]))[:3])


@cases
def test_centroids_move_in_the_last_turn_of_a_round_alone(case):
    _, _, table, start = scene("ring")
    found, _ = case.play(table, start, 2, 3)
    moved = [(one.centroids != other.centroids).any() for one, other in pairwise(found)]
    assert moved == [False, False, True, False, False, True]


@cases
def test_a_cluster_without_points_keeps_its_centroid_and_an_absent_one_is_filled_by_neighbors(case):
    table = arrange([column(0, 2), column(10)], [(0, 1)])
    start = np.array([column(1, 50), column(np.inf, 9)])
    close(case.last(table, start, 1, 1), [column(1, 10), column(1, 10)])
    apart = case.last(arrange([column(0, 2), column(10)], []), start, 1, 1)
    close(apart[0], column(1, 50))
    assert_array_equal(apart[1], column(np.inf, 10))


@cases
def test_points_of_a_device_without_any_centroid_are_counted_nowhere(case):
    table = arrange([column(2, 3), column(7), column(10)], [])
    start = np.array([column(0, 2), column(np.inf, np.inf), column(9, 20)])
    found, _ = case.play(table, start, 1, 1)
    assert_array_equal(found[0].averages, [[[0, 0], [5, 2]], [[0, 0], [0, 0]], [[10, 1], [0, 0]]])
    assert np.isinf(found[1].centroids[1]).all()


@cases
def test_a_change_of_points_travels_one_link_per_turn(case):
    data = deal(9, empty=False)
    links, start = [(i, i + 1) for i in range(8)], np.random.default_rng(1).normal(size=(9, 3, 2))
    changed = [points + (i == 0) for i, points in enumerate(data)]
    before, after = (case.last(arrange(one, links), start, 1, 2) for one in (data, changed))
    reached = np.flatnonzero((before != after).any(axis=(1, 2)))
    assert set(reached) <= {0, 1, 2}
    assert case.messages < 4 or len(reached) == 3


@cases
def test_messages_by_hand(case):
    shards = p2pkm.Shards.from_list([np.zeros((1, 2)), np.zeros((0, 2)), np.ones((2, 2))])
    result = p2pkm.simulate(case.build(2, 4, tol=1e-9), topologies.path(3), shards, rounds=3,
                            start=[[[0, 0], [np.inf, np.inf]]] * 3, baselines=False)  # fmt: skip
    messages = (1 + 4 * result.summary["rounds"]) * case.messages
    assert (result.summary["messages"], result.summary["bytes"]) == (messages, messages * 2 * 3 * 8)
    assert [record["turn_count"] for record in result.rounds] == [0, *[4] * result.summary["rounds"]]


@pytest.mark.parametrize("name", ["epidemic", "gossip-sum"])
def test_operations_of_a_turn_by_hand(name):
    work = Work(np.array([6, 0]), np.array([2, 1]), np.array([4, 2]), 5)
    assert_array_equal(CASES[name].build(2, 3).flops(work), [5 * 8 * 6 // 3 + 24, 24])


@pytest.mark.parametrize("case", WEIGHTED.values(), ids=WEIGHTED)
def test_a_run_converges_near_central_k_means(case):
    X, y = p2pkm.grid16(points=20, seed=3)
    shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(len(X), 8, seed=0), devices=8, labels=y)
    result = p2pkm.simulate(case.kind(16), topologies.small_world(8, seed=1), shards)
    assert result.summary["termination"] == "converged"
    assert result.summary["ratio_worst"] < 1.02
    assert [record["stage"] for record in result.rounds if record["round"] == 0] == ["tree-summaries", case.kind.name]


@pytest.mark.parametrize(
    ("name", "faults"), thin(product(CASES, ["loss=0.4", "delay=0.5,max_delay=3", "dropout=0.3,dropout_length=2"]), 4)
)
@pytest.mark.sample(3)
def test_under_faults_centroids_stay_near_the_points(name, faults):
    case = CASES[name]
    X, y = p2pkm.grid16(points=10, seed=3)
    shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(len(X), 8, seed=0), devices=8, labels=y)
    result = p2pkm.simulate(case.kind(16), topologies.ring(8), shards, rounds=6, faults=faults)
    assert result.summary["ratio_worst"] < 2
    if not case.continues and not case.weighted:  # averages with positive weights
        assert (result.centroids >= X.min(axis=0)).all() and (result.centroids <= X.max(axis=0)).all()


@cases
def test_converged_means_that_no_coordinate_moved(case):
    table = arrange([column(0, 4), column(8)], [(0, 1)])
    start = np.full((2, 1, 1), 4 - 0.1 * table.devices.data_std)  # one exchange of two devices is the mean 4
    for tol, converged in ((0.11, True), (0.09, False)):
        found, _ = case.play(table, start, 2, 1, tol=tol)
        assert not found[0].converged.any()
        assert_array_equal(found[1].converged, converged)
        assert found[2].converged.all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "clusters is 0; expected a whole number of at least 1"),
        ({"turns": 0}, "{} is 0; expected a whole number of at least 1"),
        ({"turns": 1.5}, "{} is 1.5; expected a whole number of at least 1"),
        ({"turns": True}, "{} is True; expected a whole number of at least 1"),
        ({"tol": -1.0}, "tol is -1.0; expected a finite number of at least 0"),
        ({"tol": np.nan}, "tol is nan; expected a finite number of at least 0"),
    ],
)
@cases
def test_parameters_out_of_range_are_refused(case, options, message):
    with pytest.raises(p2pkm.ExperimentError, match=message.format(case.parameter)):
        case.build(**{"k": 3, "turns": 2} | options)


@cases
def test_defaults(case):
    method, (turns, rounds) = case.kind(3), case.defaults
    assert (method.schedule, str(method.init)) == (f"jacobi*{turns}", "global:candidates=1")
    assert (method.default_rounds, method.tol) == (rounds, 1e-3 if method.name in ("gossip-sum", "epidemic") else 1e-5)


def power_of_metropolis(graph, turns):
    """Compute P^turns by a dense matrix."""
    table = np.zeros((len(graph), len(graph)))
    for i, j in graph.edges():
        table[i, j] = table[j, i] = 1.0 / (1.0 + max(graph.degree(i), graph.degree(j)))
    table += np.diag(1.0 - table.sum(axis=1))
    return np.linalg.matrix_power(table, turns)


@pytest.mark.parametrize("unevenness", thin([1.0, 0.1], 3))
@pytest.mark.parametrize("graph", [
    nx.cycle_graph(9), nx.path_graph(9), nx.star_graph(8), nx.complete_graph(9),
    nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 3)),
], ids=["ring", "path", "star", "complete", "grid"])  # fmt: skip
@pytest.mark.sample(3)
def test_the_turns_of_a_graph_are_the_first_that_spread_the_sums_of_one_device(graph, unevenness):
    found = count_turns(Topology.from_graph(graph), 1, unevenness)
    # A device at an end of a longest path decides.
    ends = [i for i, far in nx.eccentricity(graph).items() if far == nx.diameter(graph)]
    spreads = [
        min(np.abs(9 * power_of_metropolis(graph, turns)[end] - 1.0).max() for end in ends) <= unevenness
        for turns in range(101)
    ]
    assert found == max(1, spreads.index(True)) < 100
    assert count_turns(Topology.from_graph(graph), 60, unevenness) == max(60, found)


def test_the_turns_of_large_graphs_are_bounded_and_each_component_counts(monkeypatch):
    assert count_turns(Topology.from_graph(topologies.path(200)), 10, 0.1) == 100
    with monkeypatch.context() as context:
        context.setattr(averaging, "_MOST_COUNTED", 199)
        assert count_turns(Topology.from_graph(topologies.path(200)), 10, 0.1) == 10
    two = Topology.from_graph(nx.disjoint_union(nx.path_graph(4), nx.path_graph(8)))
    assert count_turns(two, 1, 0.1) == count_turns(Topology.from_graph(nx.path_graph(8)), 1, 0.1)
    assert count_turns(Topology.from_graph(nx.empty_graph(3)), 4, 0.1) == 4


@pytest.mark.parametrize(
    ("kind", "turns"), [(p2pkm.ConsensusLloyd, 22), (p2pkm.PushSumLloyd, 22), (p2pkm.TrackingLloyd, 6)]
)
def test_the_default_number_of_turns_is_that_of_the_graph(kind, turns):
    """On the ring of ten; without a graph, or with links that change, the smallest number is used."""
    outline = RunOutline(Topology.from_graph(topologies.ring(10)))
    configured = kind(3).configure(outline)
    assert configured.gossips == turns and configured.configure(outline) == configured
    assert kind(3, gossips=4).configure(outline).gossips == 4
    least = 3 if kind is p2pkm.TrackingLloyd else 10
    assert kind(3).turns == kind(3).configure(RunOutline(None)).turns == least
    changing = Topology.from_graph(topologies.build("one-peer-exponential", 8))
    assert kind(3).configure(RunOutline(changing)).turns == least
