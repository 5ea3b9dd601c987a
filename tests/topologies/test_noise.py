"""What a coupling leaves of the devices' noise: closed forms, the trace, simulation, the estimate, components."""

import networkx as nx
import numpy as np
import pytest
from scipy.sparse import diags_array, eye_array
from scipy.sparse.linalg import cg

import topologies
from topologies.measures import EXACT, predict, residual_noise
from topologies.measures.noise import count_signs, weigh_edges
from topologies.measures.types import to_matrix

GRAPHS = {
    "ring": topologies.ring(12),
    "path": topologies.path(9),
    "star": topologies.star(11),
    "tree": topologies.tree(14),
    "barbell": topologies.barbell(10),
    "weighted": nx.Graph([(0, 1, {"weight": 2.0}), (1, 2, {"weight": 0.5}), (2, 0, {"weight": 3.0}), (2, 3)]),
}


def laplacian(graph, *, scaled=True):
    """The matrix entry by entry."""
    nodes = sorted(graph)
    matrix = np.zeros((len(nodes), len(nodes)))
    for i, j, data in graph.edges(data=True):
        weight = data.get("weight", 1.0) / (np.sqrt(graph.degree[i] * graph.degree[j]) if scaled else 1.0)
        matrix[[i, j], [j, i]] -= weight
        matrix[[i, j], [i, j]] += weight
    return matrix


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("scaled", [True, False])
def test_it_is_the_trace_without_the_common_mean(name, scaled):
    graph, couplings = GRAPHS[name], (0.0, 0.3, 10.0, 300.0)
    n = len(graph)
    inverse = [np.linalg.inv(np.eye(n) + 2 * c * laplacian(graph, scaled=scaled)) for c in couplings]
    expected = [(np.trace(one @ one) - 1) / n for one in inverse]
    np.testing.assert_allclose(residual_noise(graph, couplings, scaled=scaled), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["ring", "star", "barbell"])
def test_it_is_what_the_linear_model_leaves_of_noise(name):
    """Devices with noise of variance 1 on a common value, after (I + 2 c L)^-1: the mean over many draws."""
    graph, c, draws = GRAPHS[name], 3.0, 20_000
    n = len(graph)
    noise = np.random.default_rng(0).normal(size=(n, draws))
    ends = np.linalg.solve(np.eye(n) + 2 * c * laplacian(graph), noise)
    left = ((ends - noise.mean(axis=0)) ** 2).mean()  # the mean of all devices stays: columns of L add up to 0
    assert left == pytest.approx(residual_noise(graph, [c])[0], rel=0.03)


def test_the_normalized_laplacian_would_be_another_matrix_on_a_star():
    graph, c = GRAPHS["star"], 30.0
    values = np.sort(nx.normalized_laplacian_spectrum(graph))[1:]
    other = ((1 + 2 * c * values) ** -2).sum() / len(graph)
    assert residual_noise(graph, [c])[0] > 5 * other


def test_every_component_has_a_mean_of_its_own():
    ring, apart = topologies.ring(6), nx.disjoint_union(topologies.ring(6), topologies.ring(6))
    np.testing.assert_allclose(residual_noise(apart, [5.0]), residual_noise(ring, [5.0]), rtol=1e-9)
    alone = nx.empty_graph(3)
    assert residual_noise(alone, [5.0])[0] == 0.0
    assert residual_noise(nx.empty_graph(1), [5.0])[0] == 0.0


def test_the_estimate_of_large_graphs_is_near_and_repeats(monkeypatch):
    graph = topologies.small_world(400, degree=4, rewire=0.1, seed=1)
    exact = residual_noise(graph, (10.0, 300.0))
    monkeypatch.setattr("topologies.measures.noise.EIGENVALUES", 100)
    found = residual_noise(graph, (10.0, 300.0))
    assert (found != exact).all()
    np.testing.assert_allclose(found, exact, rtol=0.1)
    np.testing.assert_array_equal(found, residual_noise(graph, (10.0, 300.0)))


@pytest.mark.slow
def test_very_large_graphs_take_one_vector_in_single_precision(monkeypatch):
    graph, couplings = topologies.build("small-world", 40_000, degree=6, light=True), (30.0, 100.0)
    double = residual_noise(graph, couplings)
    assert count_signs(40_000) == 2
    monkeypatch.setattr("topologies.measures.noise._ONE", 30_000)
    assert count_signs(40_000) == 1
    found = residual_noise(graph, couplings)
    assert (found != double).all()
    np.testing.assert_allclose(found, double, rtol=0.03)
    one = np.random.default_rng(0).choice([-1.0, 1.0], (40_000, 1))
    probes = one - one.mean()
    adjacent = to_matrix(graph, weigh_edges(graph, scaled=True))
    matrix = diags_array(adjacent @ np.ones(40_000)) - adjacent
    for value, coupling in zip(found, couplings, strict=True):
        solved, failed = cg(eye_array(40_000) + 2 * coupling * matrix, probes[:, 0], rtol=1e-10)
        assert not failed
        assert value == pytest.approx((solved**2).mean(), rel=1e-3)


def test_it_is_predicted_with_the_rest_but_not_where_links_change():
    ring = topologies.ring(10)
    assert predict(ring, coupling=30).residual_noise.value == residual_noise(ring, [30])[0]
    assert predict(ring, strength=4).residual_noise.value == residual_noise(ring, [4], scaled=False)[0]
    assert predict(topologies.build("one-peer-exponential", 8), coupling=30).residual_noise.value is None
    assert EXACT < 2_000
