"""Pairwise leaks: worked cases, the definition by dense matrices, and what the methods really send in a run."""

from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.core.errors import ExperimentError, TopologyError
from p2pkm.methods.peer.consensus import ConsensusLloyd
from p2pkm.methods.peer.pushsum import PushSumLloyd
from p2pkm.methods.peer.tracking import TrackingLloyd
from p2pkm.network.graph import Topology
from p2pkm.privacy.leak_report import read_devices
from tests.support.each import each
from tests.support.sampling import thin
from topologies.time_varying.random import switch_links

METHODS = ["consensus", "pushsum", "tracking"]
GRAPHS = {
    "ring": topologies.ring(16),
    "grid": topologies.grid(16),
    "star": topologies.star(16),
    "small world": topologies.small_world(16, degree=4, rewire=0.3, seed=1),
    "tree": topologies.tree(16),
}


def weigh(graph):
    """Return the graph with a weight on each link."""
    rng = np.random.default_rng(7)
    for u, v in graph.edges:
        graph[u][v]["weight"] = float(rng.integers(1, 9))
    return graph


GRAPHS["weighted"] = weigh(topologies.small_world(16, degree=4, rewire=0.3, seed=2))


def distances(graph, v):
    return Topology.from_graph(graph).layers(v)


def weights(graph, method):
    """Return W of one gossip, z <- W z, by loops."""
    topology = Topology.from_graph(graph)
    w = np.zeros((topology.n, topology.n))
    w[topology.sources, topology.indices] = topology.weights
    kept = w.sum(axis=1) / topology.degrees  # what a device keeps weighs as much as its mean link
    q = w / (w.sum(axis=1) + kept)[:, None]
    W = q.T if method == "pushsum" else np.minimum(q, q.T)
    return W + np.diag(1 - q.sum(axis=1) if method == "pushsum" else 1 - W.sum(axis=1))


def by_definition(rows):
    """Return e_u^T A^+ A e_u of every u, each row of A at length 1."""
    A = np.array([row / np.linalg.norm(row) for row in rows if np.any(row)])
    return np.diag(np.linalg.pinv(A, rcond=1e-11) @ A)


def test_the_far_end_of_a_path_is_known_after_two_gossips():
    assert_allclose(p2pkm.pair_leaks(topologies.path(3), 1, receivers=[0]).leak, [[1, 1, 0]], atol=1e-12)
    assert_allclose(p2pkm.pair_leaks(topologies.path(3), 2, receivers=[0]).leak, [[1, 1, 1]], atol=1e-12)


@pytest.mark.parametrize("gossips", [2, 3, 10])
def test_a_leaf_of_a_star_learns_the_sum_of_the_other_leaves(gossips):
    found = p2pkm.pair_leaks(topologies.star(16), gossips)
    others = found.leak[1, 2:]
    assert_allclose(others, 1 / 14, atol=1e-12)
    assert_array_equal(found.rank[1:], 3)
    assert found.solved[0].all() and not found.solved[1, 2:].any()


@pytest.mark.parametrize(("gossips", "rank"), [(3, 7), (10, 16)])
def test_on_a_ring_all_within_reach_is_known(gossips, rank):
    found = p2pkm.pair_leaks(topologies.ring(16), gossips)
    near = distances(topologies.ring(16), 0) <= gossips
    assert_allclose(found.leak[0], near, atol=1e-9)
    assert_array_equal(found.solved[0], near)
    assert_array_equal(found.rank, rank)
    assert found.certified.all()


def test_a_hypercube_hides_a_third_of_the_second_neighbors():
    found = p2pkm.pair_leaks(topologies.hypercube(16), 2)
    for v in range(16):
        assert_allclose(found.leak[v, distances(topologies.hypercube(16), v) == 2], 2 / 3, atol=1e-12)


def test_the_corner_of_a_grid():
    found = p2pkm.pair_leaks(topologies.grid(16), 2, receivers=[0])
    second = found.leak[0, distances(topologies.grid(16), 0) == 2]
    assert_allclose(np.sort(second), [0.561404, 0.719298, 0.719298], atol=1e-6)


@pytest.mark.parametrize(("graph", "method", "gossips"), thin(product(GRAPHS, METHODS, [1, 2, 4]), 5))
@pytest.mark.sample(5)
def test_leaks_are_those_of_the_definition(graph, method, gossips):
    graph = GRAPHS[graph]
    W, found = weights(graph, method), p2pkm.pair_leaks(graph, gossips, method)
    powers = [np.linalg.matrix_power(W, t) for t in range(gossips)]
    assert found.certified.all()
    assert_allclose(found.leak.sum(axis=1), found.rank, atol=1e-6)
    for v in range(16):
        near = [*Topology.from_graph(graph).indices[slice(*Topology.from_graph(graph).indptr[v : v + 2])]]
        leak = by_definition([np.eye(16)[v], *(power[w] for power in powers for w in near)])
        assert_allclose(found.leak[v], leak, atol=1e-9)
        assert_array_equal(found.solved[v], np.isclose(leak, 1.0, atol=1e-7))


def test_a_public_row_tells_what_the_neighbors_do_not():
    path = topologies.path(9)
    alone, told = (p2pkm.pair_leaks(path, 3, receivers=[0], public=public) for public in ((), (4,)))
    row = np.linalg.matrix_power(weights(path, "consensus"), 3)[4]
    assert_array_equal(told.rank, alone.rank + 1)
    assert_array_equal(alone.leak[0, 4:], 0)
    beyond = np.where(np.arange(9) < 4, 0, row)
    assert_allclose(told.leak[0, 4:], beyond[4:] ** 2 / (beyond**2).sum(), atol=1e-12)


def recording(kind):
    """Return the method of a kind that notes what each device receives; n devices, coordinate i is device i."""

    @dataclass(frozen=True)
    class Recording(kind):
        received: ClassVar[list] = []

        def update(self, state, inbox, devices):
            n = devices.total
            self.received.append([
                (devices.sources[e], inbox.tables[inbox.slots[e], 0, :n].copy()) for e in np.flatnonzero(inbox.fresh)
            ])
            return super().update(state, inbox, devices)

    return Recording


def really_received(method, graph, n, gossips, **more):
    """Return the rows that each device knows after one average of a run in which device i has the point e_i alone."""
    kind = {"consensus": ConsensusLloyd, "pushsum": PushSumLloyd, "tracking": TrackingLloyd}[method]
    played = recording(kind)
    shards = p2pkm.Shards.deal(np.eye(n), np.arange(n))
    start = np.full((n, 1, n), 0.5)
    p2pkm.simulate(played(1, gossips=gossips), graph, shards, rounds=1, start=start, baselines=False, **more)
    known = [[row] for row in np.eye(n)]
    for exchange in played.received:
        for v, row in exchange:
            known[v].append(row)
    assert len(played.received) == gossips
    return known


FAULTS = [
    None,
    "loss=0.3",
    "straggler=0.4,straggler_length=1",
    "dropout=0.3,dropout_length=1,loss=0.1",
    "link_failure=0.3,link_downtime=1",
]
CHANGING = {
    "one peer": topologies.one_peer_exponential(8),
    "matchings": topologies.random_matchings(8, seed=3),
    "links come and go": topologies.edge_markov(8, seed=3),
    "base": topologies.simple_base(8),
    "weighted links come and go": switch_links(
        topologies.CSRGraph.from_networkx(weigh(topologies.complete(8))), 0.3, 0.5, 3
    ),
}


@pytest.mark.parametrize(("faults", "method", "stale"), thin(product(FAULTS, METHODS, ["keep", "drop"]), 5))
@pytest.mark.sample(3)
def test_the_rows_are_those_that_a_run_sends(method, faults, stale):
    """Also with running totals, which push-sum and tracking send where messages may be lost, and with weights."""
    graph = topologies.small_world(9, degree=4, rewire=0.3, seed=2)
    graph = weigh(graph) if stale == "keep" else graph
    more = {} if faults is None else {"faults": faults, "stale_policy": stale, "seed": 5}
    found = p2pkm.pair_leaks(graph, 3, method, **more)
    known = really_received(method, graph, 9, 3, **more)
    assert found.certified.all()
    assert_allclose(found.leak, [by_definition(rows) for rows in known], atol=1e-9)
    assert_array_equal(found.rank, [np.linalg.matrix_rank(np.array(rows), tol=1e-9) for rows in known])


@pytest.mark.parametrize(
    ("graph", "method", "faults"), thin(product(CHANGING, METHODS, [None, "loss=0.2,dropout=0.1"]), 5)
)
@pytest.mark.sample(3)
def test_graphs_that_change_send_over_the_links_of_the_moment(method, graph, faults):
    more = {} if faults is None else {"faults": faults, "seed": 5}
    graph = CHANGING[graph]
    found = p2pkm.pair_leaks(graph, 4, method, **more)
    known = really_received(method, graph, 8, 4, **more)
    assert found.certified.all()
    assert_allclose(found.leak, [by_definition(rows) for rows in known], atol=1e-9)
    assert_allclose(found.leak.sum(axis=1), found.rank, atol=1e-6)


def test_a_late_message_is_received_all_the_same(tmp_path):
    """Whoever is sent z at the opening, a round late, knows it, whether the method still uses it or not."""
    tape = tmp_path / "late.jsonl"
    tape.write_text('{"kind": "delay", "round": 0, "src": 1, "dst": 0, "rounds": 1}\n')
    for stale in ("keep", "drop"):
        found = p2pkm.pair_leaks(topologies.path(3), 1, receivers=[0], faults=str(tape), stale_policy=stale)
        assert_allclose(found.leak, [[1, 1, 0]], atol=1e-12)
    tape.write_text('{"kind": "loss", "round": 0, "src": 1, "dst": 0}\n')
    assert_allclose(p2pkm.pair_leaks(topologies.path(3), 1, receivers=[0], faults=str(tape)).leak, [[1, 0, 0]])


def test_faults_that_never_strike_change_nothing(tmp_path):
    """The rows that are followed span what the Krylov spaces do."""
    tape = tmp_path / "none.jsonl"
    tape.write_text('{"kind": "loss", "round": 99, "src": 1, "dst": 0}\n')
    graph = topologies.grid(16)
    for method in METHODS:
        followed, krylov = (p2pkm.pair_leaks(graph, 4, method, public=[5], faults=one) for one in (str(tape), None))
        assert_allclose(followed.leak, krylov.leak, atol=1e-9)
        assert_array_equal(followed.solved, krylov.solved)
        assert_array_equal(followed.rank, krylov.rank)


def test_where_rounding_loses_a_direction_the_leak_is_not_understated(monkeypatch):
    from p2pkm.privacy import row_space

    monkeypatch.setattr(row_space, "_NEGLIGIBLE", 0.9)
    found = p2pkm.pair_leaks(topologies.path(5), 3, receivers=[0])
    assert not found.certified[0] and found.rank[0] == 4
    assert_array_equal(found.leak, [[1, 1, 1, 1, 0]])


@pytest.mark.parametrize("gossips", [2, 30])
def test_a_long_path_keeps_its_rank(gossips):
    found = p2pkm.pair_leaks(topologies.path(16), gossips)
    assert found.certified.all()
    assert_allclose(found.leak.sum(axis=1), found.rank, atol=1e-6)
    assert gossips < 30 or (found.rank == 16).all()


def test_one_device_knows_itself():
    found = p2pkm.pair_leaks(topologies.complete(1), 3)
    assert_array_equal(found.leak, [[1.0]])


@each(
    ("options", "said"),
    [
        ({"gossips": 0}, "gossips is 0"),
        ({"method": "gtvmin"}, "method is 'gtvmin'"),
        ({"receivers": [4]}, "receivers has device 4; expected numbers from 0 to 3"),
        ({"receivers": []}, "receivers is empty"),
        ({"public": [-1]}, "public is -1"),
        ({"faults": "loss=2"}, "faults loss is 2"),
        ({"stale_policy": "drop"}, "stale policy drop requires faults"),
        ({"stale_policy": "hold", "faults": "loss=0.1"}, "stale policy"),
    ],
)
def test_what_cannot_be_computed_is_refused(options, said):
    with pytest.raises(ExperimentError, match=said):
        p2pkm.pair_leaks(topologies.ring(4), **options)


@pytest.mark.slow
def test_too_many_pairs_are_refused():
    with pytest.raises(ExperimentError, match="name fewer receivers"):
        p2pkm.pair_leaks(topologies.build("ring", 20_000, light=True))


def test_a_graph_that_is_none_is_refused():
    import networkx as nx

    with pytest.raises(TopologyError):
        p2pkm.pair_leaks(nx.DiGraph([(0, 1)]))


@pytest.mark.slow
def test_leaks_of_a_larger_expander_fall_with_distance():
    """6-regular, 256 devices, ten gossips: mean sqrt(leak) at distance 1, 2, ... of an independent prototype."""
    graph = topologies.random_regular(256, degree=6, seed=0)
    found = p2pkm.pair_leaks(graph, 10)
    far = np.array([distances(graph, v) for v in range(256)])
    means = [np.sqrt(found.leak[far == step]).mean() for step in range(1, 6)]
    assert found.certified.all()
    assert_allclose(means[:4], [1, 0.59, 0.47, 0.43], atol=0.02)


def test_lists_of_devices():
    assert read_devices("0, 3-5", "--receivers") == [0, 3, 4, 5]
    for text in ("", "a", "5-3", "9" * 5000, "9" * 5000 + "-3", "0-9999999", ",".join(["0-999999"] * 20), "-1"):
        with pytest.raises(ExperimentError, match="receivers is"):
            read_devices(text, "--receivers")
