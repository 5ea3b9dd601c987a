"""Mixing matrices: Metropolis and Hastings with weights of links, and what is refused of a custom matrix."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.core.errors import TopologyError
from tests.support.each import each
from topologies import CSRGraph, GraphError, TimeVaryingGraph
from topologies.csr_graph import sources


def weighted(n, seed=0, share=0.5, spread=2.0):
    """Return a random graph with random weights over several orders of magnitude."""
    rng = np.random.default_rng(seed)
    graph = nx.empty_graph(n)
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n) if rng.random() < share]
    graph.add_weighted_edges_from((i, j, float(10 ** rng.normal(0, spread))) for i, j in pairs)
    return graph


def hastings(graph):
    """Return P by the definition: propose a link by its weight, or to stay by the mean weight; accept symmetrically."""
    n = len(graph)
    q = np.zeros((n, n))
    for i in range(n):
        own = {j: data.get("weight", 1.0) for j, data in graph[i].items()}
        total = sum(own.values()) + (sum(own.values()) / len(own) if own else 1.0)
        for j, weight in own.items():
            q[i, j] = weight / total
    P = np.zeros((n, n))
    for i in range(n):
        for j in graph[i]:
            P[i, j] = q[i, j] * min(1.0, q[j, i] / q[i, j])
        P[i, i] = 1.0 - sum(P[i])
    return P


def dense(links, shares):
    found = np.zeros((len(links), len(links)))
    found[sources(links), links.indices] = shares
    return found + np.diag(1.0 - found.sum(axis=1))


def test_a_triangle_by_hand():
    # strengths with the mean weight: device 0 has 1 + 3 and 2, device 1 1 + 2 and 1.5, device 2 3 + 2 and 2.5
    links = CSRGraph.from_networkx(nx.Graph([(0, 1, {"weight": 1}), (0, 2, {"weight": 3}), (1, 2, {"weight": 2})]))
    expected = [1 / 6, 3 / 7.5, 1 / 6, 2 / 7.5, 3 / 7.5, 2 / 7.5]  # 01 02 10 12 20 21
    assert_allclose(topologies.metropolis_weights(links), expected, rtol=1e-15)


@given(st.integers(1, 12), st.integers(0, 2**32 - 1), st.floats(0, 1))
def test_weights_are_those_of_the_definition_symmetric_and_doubly_stochastic(n, seed, share):
    graph = weighted(n, seed, share)
    links = CSRGraph.from_networkx(graph)
    P = dense(links, topologies.metropolis_weights(links))
    assert_allclose(P, hastings(graph), rtol=1e-12, atol=1e-15)
    assert_array_equal(P - np.diag(np.diag(P)), (P - np.diag(np.diag(P))).T)
    assert_allclose(P.sum(axis=0), 1.0, atol=1e-12)
    assert (np.diag(P) >= 1 / (1 + np.diff(links.indptr)) - 1e-12).all()


@pytest.mark.parametrize("factor", [1.0, 3.0, 1 / 7, 2.0**-1000, 1e300])
def test_equal_weights_give_the_bits_of_no_weights(factor):
    for plain in (nx.karate_club_graph(), nx.star_graph(5), nx.path_graph(1)):
        unweighted = CSRGraph.from_networkx(nx.Graph(plain.edges) if plain.edges else plain)
        equal = CSRGraph(unweighted.indptr, unweighted.indices, np.full(len(unweighted.indices), factor))
        degrees = np.diff(unweighted.indptr)
        expected = 1 / (1 + np.maximum(degrees[sources(unweighted)], degrees[unweighted.indices]))
        for links in (unweighted, equal):
            assert_array_equal(topologies.metropolis_weights(links), expected)


@pytest.mark.parametrize("power", [-600, 3, 600])
def test_only_the_ratios_of_weights_matter(power):
    links = CSRGraph.from_networkx(weighted(9, 3))
    scaled = CSRGraph(links.indptr, links.indices, links.weights * 2.0**power)
    assert_array_equal(topologies.metropolis_weights(scaled), topologies.metropolis_weights(links))


def test_weights_next_to_the_largest_number_do_not_overflow():
    links = CSRGraph.from_networkx(nx.Graph([(0, 1, {"weight": 1.5e308}), (0, 2, {"weight": 1.5e308}),
                                             (1, 2, {"weight": 1.0})]))  # fmt: skip
    shares = topologies.metropolis_weights(links)
    assert np.isfinite(shares).all() and shares[0] > 0.3


def test_only_links_in_use_count():
    links = CSRGraph.from_networkx(weighted(8, 5, 0.8))
    opposite = np.lexsort((sources(links), links.indices))
    rng = np.random.default_rng(1)
    active = rng.random(len(links.indices)) < 0.5
    active |= active[opposite]
    some = nx.empty_graph(8)
    some.add_weighted_edges_from(
        (int(i), int(j), float(w))
        for i, j, w, on in zip(sources(links), links.indices, links.weights, active, strict=True)
        if on
    )
    assert_allclose(dense(links, topologies.metropolis_weights(links, active)), hastings(some), atol=1e-14)
    changing = TimeVaryingGraph(links, 1, lambda turn: active)
    assert_array_equal(changing.mixing(0), topologies.metropolis_weights(links, active))


def test_measures_are_those_of_the_weighted_matrix():
    graph = weighted(9, 3)
    values = np.sort(np.abs(np.linalg.eigvalsh(hastings(graph))))
    assert topologies.measures.spectral_gap(graph).value == pytest.approx(1 - values[-2], abs=1e-10)
    decay = 0.9
    spectrum = np.linalg.eigvalsh(hastings(graph))
    variance = (spectrum**2 / (1 - decay * spectrum**2)).sum() / 9
    found = topologies.measures.effective_neighbors(graph, decay=decay).value
    assert found == pytest.approx(1 / (1 - decay) / variance, rel=1e-9)


# --- custom matrices ---

LINKS = CSRGraph.from_networkx(nx.cycle_graph(4))  # entries 01 03 10 12 21 23 30 32
GOOD = np.full(8, 0.3)


def fixed(shares, active=None, period=1):
    mask = np.ones(8, np.bool_) if active is None else active
    return TimeVaryingGraph(LINKS, period, lambda turn: mask, lambda turn: shares)


def change(**entries):
    found = GOOD.copy()
    for name, value in entries.items():
        found[int(name[1:])] = value
    return found


BAD = [
    (fixed(change(e0=np.nan)), r"the share nan of link 0 - 1 is not a finite number of at least 0"),
    (fixed(change(e0=np.inf, e2=np.inf)), "share inf"),
    (fixed(change(e0=-0.1, e2=-0.1)), r"the share -0\.1 of link 0 - 1 is not a finite number of at least 0"),
    (fixed(change(e3=0.4)), r"the share 0\.4 of link 1 - 2 differs from that at the other end"),
    (fixed(np.full(8, 1.0)), "the shares of device 0 add up to 2"),
    (fixed(change(e0=0.8, e2=0.8)), r"the shares of device 0 add up to 1\.1"),
    (fixed(np.full(7, 0.3)), r"own_mixing\(0\) is of type float64 and shape \(7,\); expected real numbers and \(8,\)"),
    (fixed(np.full((4, 4), 0.25)), r"shape \(4, 4\)"),
    (fixed(np.full(8, 0.3 + 0j)), "complex128"),
    (fixed(np.full(8, "x")), "expected real numbers"),
    (fixed(0.3), r"shape \(\)"),
    (fixed(GOOD, np.arange(8) > 2), r"active\(0\) differs at the ends of link 0 - 3"),
    (fixed(GOOD, np.isin(np.arange(8), (0, 2))), "of link 0 - 3 is above 0, but the link is not active"),
    (fixed(GOOD, np.ones(7, np.bool_)), r"active\(0\) is of type bool and shape \(7,\)"),
    (fixed(GOOD, np.ones(8)), r"active\(0\) is of type float64"),
    (fixed(GOOD, period=0), "period of the graph is 0"),
]


@each(("graph", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_what_is_not_doubly_stochastic_is_refused_before_a_run(graph, message):
    with pytest.raises(GraphError, match=message):
        topologies.check(graph)
    shards = p2pkm.Shards.from_list([np.zeros((1, 1))] * 4)
    with pytest.raises(TopologyError, match=message):
        p2pkm.simulate(p2pkm.ConsensusLloyd(1), graph, shards)


@each("name", sorted(topologies.TIME_VARYING))
def test_all_families_that_change_pass(name):
    topologies.check(replace(topologies.build(name, 16), checked=False))


@pytest.mark.parametrize("period", [None, 100])
def test_rounds_beyond_those_that_are_looked_at_before_are_checked_when_they_come(period):
    late = TimeVaryingGraph(
        LINKS, period, lambda turn: np.ones(8, np.bool_), lambda turn: np.full(8, 0.3 if turn < 40 else 0.6)
    )
    topologies.check(late)
    shards = p2pkm.Shards.from_list([np.full((1, 1), float(i)) for i in range(4)])
    method = p2pkm.ConsensusLloyd(1, gossips=10, tol=0.0)
    start = np.zeros((4, 1, 1))
    assert p2pkm.simulate(method, late, shards, rounds=3, start=start, baselines=False).summary["rounds"] == 3
    with pytest.raises(TopologyError, match=r"own_mixing\(40\): the shares of device 0 add up to 1.2"):
        p2pkm.simulate(method, late, shards, rounds=5, start=start, baselines=False)


@pytest.mark.parametrize("method", [p2pkm.ConsensusLloyd, p2pkm.TrackingLloyd])
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_a_static_graph_with_a_matrix_averages_by_it(method, kind):
    shares = change(e0=0.5, e2=0.5, e1=0.25, e6=0.25, e3=0.125, e4=0.125).astype(kind)
    shares[5] = shares[7] = 0.5
    graph, start = fixed(shares), np.full((4, 1, 1), 1.0)
    shards = p2pkm.Shards.from_list([np.full((1, 1), value) for value in (0.0, 8.0, 4.0, 0.0)])
    result = p2pkm.simulate(method(1, gossips=1), graph, shards, rounds=1, start=start, baselines=False)
    assert_array_equal(result.centroids[:, 0, 0], dense(LINKS, shares) @ [0.0, 8.0, 4.0, 0.0])
