"""Measures of graphs: closed forms, networkx's answers, what renaming must not change, how good estimates are."""

import math
import sys
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import eigvalsh_tridiagonal
from scipy.sparse import eye_array
from scipy.sparse.csgraph import shortest_path

import p2pkm
import topologies
from p2pkm.kernels import numba as compiled
from p2pkm.kernels import reference as plain
from tests.support.each import each
from tests.support.sampling import thin
from topologies import CSRGraph, measures
from topologies.measures import lanczos as spectrum
from topologies.measures import time_varying
from topologies.measures.connectivity import dominating_set
from topologies.measures.distances import estimate_mean_path
from topologies.measures.spectral import mixing_laplacian
from topologies.measures.types import find_sources

DRAWN = [
    topologies.erdos_renyi(30, p=0.2, seed=1),
    topologies.small_world(40, degree=4, rewire=0.3, seed=2),
    topologies.barabasi_albert(35, m=2, seed=3),
    topologies.communities(24, p=0.5, bridges=2, seed=4),
    topologies.random_regular(20, degree=3, seed=5),
    topologies.karate(),
    topologies.barbell(11),
    topologies.tree(20),
    topologies.caveman(20, size=5),
]
CUBE = nx.convert_node_labels_to_integers(nx.hypercube_graph(5))


def value(measure):
    assert measure.exact
    return measure.value


def metropolis(graph):
    """The matrix entry by entry."""
    n, degree = len(graph), dict(graph.degree)
    matrix = np.zeros((n, n))
    for i, j in graph.edges:
        matrix[i, j] = matrix[j, i] = 1 / (1 + max(degree[i], degree[j]))
    return matrix + np.diag(1 - matrix.sum(axis=1))


def circle(n):
    return 2 - 2 * np.cos(2 * np.pi * np.arange(1, n) / n)


# --- closed forms ---


@pytest.mark.parametrize("n", [3, 4, 9, 16, 101])
def test_a_ring(n):
    ring = topologies.ring(n)
    modulus = max(abs(1 - circle(n) / 3))
    assert value(measures.algebraic_connectivity(ring)) == pytest.approx(2 - 2 * math.cos(2 * math.pi / n))
    assert value(measures.spectral_gap(ring)) == pytest.approx(1 - modulus)
    assert value(measures.kirchhoff_index(ring)) == pytest.approx((n**3 - n) / 12)
    assert value(measures.effective_resistance(ring)) == pytest.approx((n + 1) / 6)
    assert value(measures.diameter(ring)) == n // 2
    assert value(measures.mean_path(ring)) == pytest.approx((n * n // 4) / (n - 1))
    assert value(measures.edge_connectivity(ring)) == value(measures.vertex_connectivity(ring)) == 2
    assert value(measures.hub_load(ring)) == pytest.approx(2 / n)
    assert value(measures.clustering(ring)) == (1 if n == 3 else 0)


@pytest.mark.parametrize("n", [2, 3, 7, 30])
def test_a_complete_graph(n):
    graph = topologies.complete(n)
    assert value(measures.algebraic_connectivity(graph)) == pytest.approx(n)
    assert value(measures.spectral_gap(graph)) == pytest.approx(1)
    assert value(measures.effective_neighbors(graph)) == pytest.approx(n)
    assert value(measures.kirchhoff_index(graph)) == pytest.approx(n - 1)
    assert value(measures.diameter(graph)) == value(measures.mean_path(graph)) == 1
    assert value(measures.edge_connectivity(graph)) == value(measures.vertex_connectivity(graph)) == n - 1


@pytest.mark.parametrize("n", [2, 5, 40])
def test_a_path(n):
    path = topologies.path(n)
    assert value(measures.algebraic_connectivity(path)) == pytest.approx(2 - 2 * math.cos(math.pi / n))
    assert value(measures.kirchhoff_index(path)) == pytest.approx((n**3 - n) / 6)
    assert value(measures.mean_path(path)) == pytest.approx((n + 1) / 3)
    assert value(measures.diameter(path)) == n - 1
    assert value(measures.edge_connectivity(path)) == value(measures.vertex_connectivity(path)) == 1


@pytest.mark.parametrize("n", [3, 8, 50])
def test_a_star(n):
    star = topologies.star(n)
    assert value(measures.algebraic_connectivity(star)) == pytest.approx(1)
    assert value(measures.spectral_gap(star)) == pytest.approx(1 / n)  # every link weighs 1 / n: W = I - L / n
    assert value(measures.kirchhoff_index(star)) == pytest.approx((n - 1) ** 2)
    assert value(measures.hub_load(star)) == 1
    assert [value(one) for one in measures.degrees(star)] == [1, pytest.approx(2 - 2 / n), n - 1]


def test_a_hypercube():
    """Eigenvalues 2 j, each C(5, j) times; Metropolis weights 1 / 6."""
    times, eigenvalues = np.array([math.comb(5, j) for j in range(6)]), 2 * np.arange(6)
    assert value(measures.algebraic_connectivity(CUBE)) == pytest.approx(2)
    assert value(measures.spectral_gap(CUBE)) == pytest.approx(1 / 3)
    assert value(measures.kirchhoff_index(CUBE)) == pytest.approx(32 * (times[1:] / eigenvalues[1:]).sum())
    assert value(measures.diameter(CUBE)) == 5
    assert value(measures.mean_path(CUBE)) == pytest.approx(5 / 2 * 32 / 31)
    modulus = (1 - eigenvalues / 6) ** 2
    variance = (times * modulus / (1 - 0.8 * modulus)).sum() / 32
    assert value(measures.effective_neighbors(CUBE, decay=0.8)) == pytest.approx(5 / variance)
    assert value(measures.edge_connectivity(CUBE)) == value(measures.vertex_connectivity(CUBE)) == 5


def test_a_torus():
    torus = topologies.torus(30, rows=5)
    sums = np.add.outer(np.append(0, circle(5)), np.append(0, circle(6))).ravel()
    assert value(measures.algebraic_connectivity(torus)) == pytest.approx(1)  # 2 - 2 cos(2 pi / 6)
    assert value(measures.spectral_gap(torus)) == pytest.approx(1 - abs(1 - sums / 5)[1:].max())
    assert value(measures.kirchhoff_index(torus)) == pytest.approx(30 * (1 / sums[1:]).sum())
    assert value(measures.diameter(torus)) == 2 + 3


def test_one_device_and_two_components():
    alone, apart = topologies.ring(1), nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(4))
    found = measures.describe(alone)
    assert {name for name, one in found.items() if one.value is None} == {
        "mean_path", "algebraic_connectivity", "effective_resistance", "hub_load", "path_load",
    }  # fmt: skip
    assert (found["diameter"].value, found["spectral_gap"].value, found["effective_neighbors"].value) == (0, 1, 1)
    assert value(measures.kirchhoff_index(alone)) == 0
    found = measures.describe(apart)
    assert found["diameter"].value == found["mean_path"].value == found["effective_resistance"].value == math.inf
    assert [found[name].value for name in ("algebraic_connectivity", "spectral_gap", "edge_connectivity")] == [0, 0, 0]
    assert found["vertex_connectivity"].value == 0
    assert "no path" in found["diameter"].how


def test_decays_that_have_no_limit_are_refused():
    for decay in (1, -0.1, 2.0):
        with pytest.raises(topologies.GraphError, match="decay is"):
            measures.effective_neighbors(topologies.ring(4), decay=decay)


# --- the answers of others ---


@pytest.mark.parametrize("graph", DRAWN, ids=str)
@pytest.mark.sample(3)
def test_what_networkx_says(graph):
    laplacian = np.linalg.eigvalsh(nx.laplacian_matrix(graph, weight=None).toarray().astype(float))
    assert value(measures.diameter(graph)) == nx.diameter(graph)
    assert value(measures.mean_path(graph)) == pytest.approx(nx.average_shortest_path_length(graph))
    assert value(measures.clustering(graph)) == pytest.approx(nx.average_clustering(graph))
    assert value(measures.algebraic_connectivity(graph)) == pytest.approx(laplacian[1])
    assert value(measures.kirchhoff_index(graph)) == pytest.approx(nx.effective_graph_resistance(graph))
    assert value(measures.edge_connectivity(graph)) == nx.edge_connectivity(graph)
    assert value(measures.vertex_connectivity(graph)) == nx.node_connectivity(graph)


@pytest.mark.parametrize("graph", DRAWN, ids=str)
def test_the_metropolis_matrix(graph):
    matrix = metropolis(graph)
    moduli = np.sort(abs(np.linalg.eigvalsh(matrix)))
    assert value(measures.spectral_gap(graph)) == pytest.approx(1 - moduli[-2])
    covariance = np.zeros_like(matrix)
    for _ in range(600):
        covariance = matrix @ (0.9 * covariance + np.eye(len(matrix))) @ matrix
    expected = 10 / (covariance.trace() / len(matrix))
    assert value(measures.effective_neighbors(graph, decay=0.9)) == pytest.approx(expected)


@given(n=st.integers(2, 12), p=st.floats(0.2, 1), seed=st.integers(0, 10**6))
def test_connectivities_and_renaming(n, p, seed):
    graph = nx.gnp_random_graph(n, p, seed=seed)
    found = measures.describe(graph)
    assert found["edge_connectivity"][:2] == (nx.edge_connectivity(graph), True)
    assert found["vertex_connectivity"][:2] == (nx.node_connectivity(graph), True)
    order = np.random.default_rng(seed).permutation(n).tolist()
    renamed = measures.describe(nx.relabel_nodes(graph, dict(enumerate(order))))
    for name, one in found.items():
        assert renamed[name].value == (one.value and pytest.approx(one.value, rel=1e-9, abs=1e-12)), name


def test_arrays_and_objects_measure_the_same():
    graph = topologies.small_world(60, seed=3)
    assert measures.describe(graph) == measures.describe(CSRGraph.from_networkx(graph))
    reached = {j for i in dominating_set(measures.read(graph)) for j in [i, *graph[i]]}
    assert reached == set(range(60))


def test_all_measures_of_a_graph_take_the_seed(monkeypatch):
    monkeypatch.setattr(sys.modules["topologies.measures.path_load"], "_WORK", 4_000)  # so that it is estimated
    graph = topologies.barabasi_albert(200, seed=1)
    found = {seed: measures.describe(graph, seed=seed)["path_load"] for seed in (0, 5)}
    assert found[0] != found[5] and all(load == measures.path_load(graph, seed=seed) for seed, load in found.items())


# --- estimates ---


@pytest.mark.slow
@pytest.mark.parametrize(
    "graph",
    [
        topologies.small_world(1_100, seed=1),
        topologies.barabasi_albert(1_050, seed=2),
        topologies.random_geometric(1_050, seed=3),
        topologies.torus(1_056),
    ],
    ids=str,
)
def test_estimates_are_as_good_as_they_say(graph):
    found = measures.describe(graph, seed=4)
    matrix = nx.laplacian_matrix(graph, nodelist=range(len(graph))).toarray().astype(float)
    low = np.linalg.eigvalsh(matrix)[1:]
    mixing = np.linalg.eigvalsh(metropolis(graph))[:-1]
    connectivity = found["algebraic_connectivity"]
    assert not connectivity.exact and "residual" in connectivity.how
    assert connectivity.value == pytest.approx(low[0], rel=1e-3) and connectivity.value > low[0] * (1 - 1e-9)
    assert found["spectral_gap"].value == pytest.approx(1 - abs(mixing).max(), rel=1e-3)
    n = len(graph)
    hops = shortest_path(nx.to_scipy_sparse_array(graph), unweighted=True)
    variance = (20 + (mixing**2 / (1 - 0.95 * mixing**2)).sum()) / n
    for name, expected in (
        ("effective_resistance", 2 / (n - 1) * (1 / low).sum()),
        ("effective_neighbors", 20 / variance),
        ("mean_path", hops.sum() / (n * (n - 1))),
        ("clustering", nx.average_clustering(graph)),
    ):
        assert found[name].value == pytest.approx(expected, abs=4 * error(found[name]) + 1e-9), name
    diameter = hops.max()
    assert found["diameter"].value <= diameter <= 2 * found["diameter"].value
    assert not found["diameter"].exact or found["diameter"].value == diameter


def closed_form(name, n):
    """Return the eigenvalues of the Metropolis matrix of a regular graph by its closed form."""
    ring = np.append(0, circle(n))
    if name == "ring":
        return 1 - ring / 3
    if name == "circular-ladder":
        return 1 - np.add.outer(np.append(0, circle(n // 2)), [0, 2]) / 4
    rows = next(rows for rows in range(math.isqrt(n), 0, -1) if n % rows == 0)
    return 1 - np.add.outer(np.append(0, circle(rows)), np.append(0, circle(n // rows))) / 5


def count_exactly(eigenvalues, decay):
    return 1 / (1 - decay) / np.mean(eigenvalues**2 / (1 - decay * eigenvalues**2))


@pytest.mark.slow
@pytest.mark.parametrize("decay", [0.0, 0.95, 0.99])
@pytest.mark.parametrize("n", [1_002, 11_000, 20_000])
@pytest.mark.parametrize("name", ["ring", "torus", "circular-ladder"])
def test_effective_neighbors_of_many_devices_meet_their_closed_forms(name, n, decay):
    found = measures.effective_neighbors(topologies.build(name, n), decay=decay)
    expected = count_exactly(closed_form(name, n), decay)
    assert not found.exact and error(found) < 0.02 * expected
    assert found.value == pytest.approx(expected, abs=4 * error(found))


@pytest.mark.slow
@pytest.mark.parametrize("n", [1_002, 1_600, 20_000])
@pytest.mark.parametrize("name", ["path", "ladder", "tree"])
def test_effective_neighbors_of_thin_graphs_meet_exact_solutions(name, n):
    graph = topologies.build(name, n)
    matrix = (eye_array(n) - mixing_laplacian(measures.read(graph))[0]).tocsr()
    exact = {"path": _solve_path, "ladder": _solve_ladder, "tree": _solve_tree}[name]
    expected, found = exact(graph, matrix), measures.effective_neighbors(graph)
    assert error(found) < 0.01 * expected
    assert found.value == pytest.approx(expected, abs=4 * error(found))


def _solve_path(_, matrix):
    return count_exactly(eigvalsh_tridiagonal(matrix.diagonal(), matrix.diagonal(1)), 0.95)


def _solve_ladder(graph, _):
    """Both rails move alike or against each other, so a ladder is two tridiagonal matrices."""
    n = len(graph) // 2
    rung = np.full(n, 1 / 4)
    rung[[0, -1]] = 1 / 3
    rails = np.full(n, 2 / 4)
    rails[[0, -1]] = 1 / 4
    beside = np.full(n - 1, 1 / 4)
    modes = [eigvalsh_tridiagonal(1 - rails - against * rung, beside) for against in (0, 2)]
    return count_exactly(np.concatenate(modes), 0.95)


def _solve_tree(graph, matrix):
    """l^2 / (1 - g l^2) = ((1 / (1 - sl) + 1 / (1 + sl)) / 2 - 1) / g with s = sqrt(g): two inverses."""
    n, root = len(graph), math.sqrt(0.95)  # pivots from the leaves up, then of the whole from the root down
    parents, own = dict(nx.bfs_predecessors(graph, 0)), matrix.diagonal()
    order = [0, *parents]
    squares = {i: 0.95 * matrix[i, up] ** 2 for i, up in parents.items()}
    total = 0.0
    for sign in (1, -1):
        below = 1 - sign * root * own
        for i in reversed(order[1:]):
            below[parents[i]] -= squares[i] / below[i]
        for i in order[1:]:
            below[i] -= squares[i] / (below[parents[i]] + squares[i] / below[i])
        total += (1 / below).sum()
    return n / 0.05 / ((total / 2 - n) / 0.95)


@pytest.mark.slow
def test_too_few_steps_are_told():
    found = measures.effective_neighbors(topologies.build("ring", 1_500), decay=1 - 1e-9)
    assert "too few steps: an upper bound" in found.how


def error(measure):
    figure = measure.how.split("standard error ")[1].split()
    return float(figure[0]) * (measure.value / 100 if figure[1:] == ["%"] else 1)


@pytest.mark.slow
def test_a_long_ring_is_inverted_and_meets_its_closed_forms():
    n = 6_000
    ring = topologies.build("ring", n, light=True)
    connectivity, resistance = measures.algebraic_connectivity(ring), measures.effective_resistance(ring)
    assert "inverted" in connectivity.how
    assert connectivity.value == pytest.approx(2 - 2 * math.cos(2 * math.pi / n), rel=1e-4)
    assert resistance.value == pytest.approx((n + 1) / 6, abs=4 * error(resistance))
    assert measures.diameter(ring).value == n // 2
    assert measures.mean_path(ring).value == pytest.approx(n / 4, rel=1e-3)


def test_a_long_grid_stops_where_its_bounds_meet():
    grid = topologies.build("grid", 3_000, rows=30, light=True)
    assert measures.diameter(grid) == measures.Measure(128)


def test_of_a_long_ring_the_inverse_is_walked_through(monkeypatch):
    monkeypatch.setattr(spectrum, "EXACT", 100)
    found = measures.algebraic_connectivity(topologies.ring(400))
    assert "inverted" in found.how and not found.exact
    assert found.value == pytest.approx(2 - 2 * math.cos(2 * math.pi / 400), rel=1e-6)


def test_walks_side_by_side_find_the_ends_of_each_spectrum(monkeypatch):
    monkeypatch.setattr(spectrum, "_PROBES", 1)
    links = measures.read(topologies.small_world(120, degree=4, rewire=0.3, seed=2))
    source = find_sources(links)
    strengths = [1.0 + (source + links.indices) % number for number in (1, 2, 7)]
    for path, strength in zip(
        spectrum.run_three_recurrences(plain.lanczos, links, strengths, 0), strengths, strict=True
    ):
        exact = spectrum.find_spectrum(*measures.laplacian(links, strength), 0).values
        assert path.gather((0, -1)).values[[0, -1]] == pytest.approx(exact[[0, -1]], rel=1e-3)


def test_the_quadrature_of_a_matrix_with_few_eigenvalues_is_complete():
    """A star of n devices has the eigenvalues 0, 1 and n: two steps see all of them."""
    star = topologies.build("star", 3_000, light=True)
    found = measures.algebraic_connectivity(star)
    assert found.value == pytest.approx(1) and "2 steps" in found.how
    resistance = measures.effective_resistance(star)
    assert resistance.value == pytest.approx(2 * 2999 / 3000, abs=4 * error(resistance))


@pytest.mark.slow
def test_connectivities_of_larger_graphs_are_bounds_or_exact():
    caves = topologies.caveman(3_000, size=6)
    assert measures.edge_connectivity(caves) == measures.Measure(2)
    dense = measures.vertex_connectivity(topologies.erdos_renyi(300, p=0.5, seed=1))
    assert not dense.exact and "upper bound" in dense.how
    light = topologies.build("torus", 150_000)
    assert measures.edge_connectivity(light) == (4, False, "an upper bound: the smallest degree")
    assert measures.vertex_connectivity(topologies.tree(150_000)) == measures.Measure(1)


def test_the_sum_of_an_exact_spectrum_is_exact():
    exact = spectrum.find_spectrum(*measures.laplacian(measures.read(topologies.complete(4))), 0)
    assert exact.sum(lambda low: low).value == pytest.approx(12) and exact.exact


# --- graphs that change ---


class Turning:
    """Links of a union graph, each in use in the rounds of its own (a fake of topologies.TimeVaryingGraph)."""

    def __init__(self, n, rounds, period):
        union = nx.Graph([link for links in rounds for link in links])
        union.add_nodes_from(range(n))
        light = measures.read(union)
        self.indptr, self.indices, self.period = light.indptr, light.indices, period
        self._rounds = [{frozenset(link) for link in links} for links in rounds]

    def active(self, t):
        sources = np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))
        now = self._rounds[t % len(self._rounds)]
        return np.array([frozenset((int(i), int(j))) in now for i, j in zip(sources, self.indices, strict=True)])


HOPS = [[(i, i ^ 1 << bit) for i in range(8)] for bit in range(3)]  # pairs along one side of a cube after the other


def test_pairs_along_the_sides_of_a_cube_average_exactly():
    cube = Turning(8, HOPS, 3)
    assert measures.contraction_per_round(cube) == (0.0, True, "over 3 rounds")
    assert measures.active_degrees(cube).value == 1
    found = measures.describe(cube)
    assert found["spectral_gap"].value == 1 and found["period"].value == 3
    assert (found["links"].value, found["diameter"].value) == (12, 3)
    # after round t everybody averaged the last three noises with 2, 4 and 8 others, and all before with 8
    variance = 1 / 2 + 0.95 / 4 + 0.95**2 / 8 / 0.05
    assert found["effective_neighbors"].value == pytest.approx(20 / variance)


def test_the_active_degrees_weigh():
    rounds = [[(0, 1), (1, 2)], [(2, 3)]]
    product = metropolis(nx.Graph([(2, 3)]) | nx_nodes(4)) @ metropolis(nx.Graph([(0, 1), (1, 2)]) | nx_nodes(4))
    norm = np.linalg.norm(product - 1 / 4, 2)
    found = measures.contraction_per_round(Turning(4, rounds, 2))
    assert found.value == pytest.approx(math.sqrt(norm))


class nx_nodes:  # noqa: N801 - reads as a word of networkx's
    """Nodes to add: graph | nx_nodes(n)."""

    def __init__(self, n):
        self.n = n

    def __ror__(self, graph):
        graph.add_nodes_from(range(self.n))
        return graph


def test_a_graph_that_stays_has_the_measures_of_one_round():
    graph = topologies.small_world(30, seed=1)
    still = Turning(30, [list(graph.edges)], 1)
    assert value(measures.contraction_per_round(still)) == pytest.approx(1 - value(measures.spectral_gap(graph)))
    expected = value(measures.effective_neighbors(graph))
    assert value(measures.effective_neighbors_over_time(still)) == pytest.approx(expected)


def test_above_the_limit_the_effective_neighbors_over_time_are_estimated_by_random_walks(monkeypatch):
    turning = Turning(8, HOPS, 3)
    monkeypatch.setattr(time_varying, "EXACT", 8)
    expected = value(measures.effective_neighbors_over_time(turning, decay=0.5))
    monkeypatch.setattr(time_varying, "EXACT", 7)
    found = measures.effective_neighbors_over_time(turning, decay=0.5)
    assert not found.exact and "8 simulations of" in found.how
    assert found.value == pytest.approx(expected, rel=0.25)


def test_figures_over_a_part_of_the_period_are_estimates():
    cube = Turning(8, HOPS, 3)
    assert [measures.active_degrees(cube, rounds=rounds).exact for rounds in (2, 3, 4, 6)] == [False, True, False, True]


def test_what_never_repeats_is_an_estimate_over_a_window():
    cube = Turning(8, HOPS, None)
    assert measures.contraction_per_round(cube) == (0.0, False, "over 32 rounds")
    assert measures.describe(cube)["period"].value is None
    assert measures.contraction_per_round(cube, rounds=2).value == 1  # two halves never meet


@pytest.mark.slow
def test_large_graphs_that_change_are_estimated():
    graph = topologies.small_world(1_020, degree=6, rewire=0.5, seed=1)
    links = list(graph.edges)
    turning = Turning(1_020, [links[::2], links[1::2]], 2)
    one, other = (eye_less(turning, t) for t in (0, 1))
    norm = np.linalg.norm(other @ one - 1 / 1_020, 2)
    found = measures.contraction_per_round(turning)
    assert not found.exact and found.value == pytest.approx(math.sqrt(norm), rel=1e-3)
    still = Turning(1_020, [links], 1)
    expected = measures.effective_neighbors(graph).value
    assert measures.effective_neighbors_over_time(still).value == pytest.approx(expected, rel=0.05)


def eye_less(turning, t):
    graph = nx.Graph() | nx_nodes(len(turning.indptr) - 1)
    graph.add_edges_from(tuple(link) for link in turning._rounds[t])
    return metropolis(graph)


# --- predictions ---


@pytest.mark.parametrize("coupling", [0.3, 3, 30])
def test_predictions_of_regular_graphs_are_the_closed_forms(coupling):
    for graph, low in ((topologies.ring(12), (2 - 3**0.5) / 2), (CUBE, 2 / 5), (topologies.complete(6), 6 / 5)):
        found = measures.predict(graph, coupling=coupling)
        assert value(found.contraction) == pytest.approx(2 * coupling / (1 + 2 * coupling))
        assert value(found.disagreement) == pytest.approx(1 / (1 + 2 * coupling * low))
        assert value(found.rounds) == pytest.approx(math.log(1000) / math.log1p(1 / (2 * coupling)))


@each("graph", DRAWN, ids=str)
def test_predictions_are_those_of_the_iteration_itself(graph):
    n, degree = len(graph), np.array([graph.degree[i] for i in range(len(graph))])
    strength = 2 * nx.to_numpy_array(graph, nodelist=range(n), weight=None) / np.sqrt(np.outer(degree, degree))
    rows = strength.sum(axis=1)
    found = measures.predict(graph, coupling=2)
    radius = max(abs(np.linalg.eigvals(2 * strength / (1 + 2 * rows)[:, None])))
    assert value(found.contraction) == pytest.approx(radius)
    left = np.linalg.eigvalsh(np.linalg.inv(np.eye(n) + 2 * (np.diag(rows) - strength)))
    assert value(found.disagreement) == pytest.approx(left[-2])


def test_a_raw_strength_is_a_coupling_times_the_degree_and_weights_multiply_it():
    torus = topologies.torus(20)
    expected = [one.value for one in measures.predict(torus, strength=0.5)[:3]]
    assert [one.value for one in measures.predict(torus, coupling=2)[:3]] == pytest.approx(expected)
    nx.set_edge_attributes(torus, 4.0, "weight")
    heavy = measures.predict(torus, coupling=0.5)
    assert [one.value for one in heavy[:3]] == pytest.approx(expected)


@pytest.mark.slow
def test_large_predictions_are_close_to_exact_ones():
    grid = topologies.grid(1_056)
    found = measures.predict(grid, coupling=5)
    degree = np.array([grid.degree[i] for i in range(1_056)])
    strength = 5 * nx.to_numpy_array(grid, nodelist=range(1_056)) / np.sqrt(np.outer(degree, degree))
    rows = strength.sum(axis=1)
    half = 1 / np.sqrt(1 + 2 * rows)
    assert not found.contraction.exact
    assert found.contraction.value == pytest.approx(
        np.linalg.eigvalsh(2 * strength * np.outer(half, half))[-1], rel=1e-5
    )
    low = np.linalg.eigvalsh(np.diag(rows) - strength)[1]
    assert found.disagreement.value == pytest.approx(1 / (1 + 2 * low), rel=1e-4)


def test_predictions_need_one_strength():
    for wrong in ({}, {"coupling": 1, "strength": 1}, {"coupling": -1}, {"strength": math.inf}):
        with pytest.raises(topologies.GraphError):
            measures.predict(topologies.ring(4), **wrong)
    assert [one.value for one in measures.predict(topologies.ring(4), coupling=0)] == [0, 0, 1, None, None, 0.75]


@pytest.mark.parametrize("graph", [topologies.ring(6), topologies.star(6), topologies.grid(6)], ids=str)
@pytest.mark.sample(3)
def test_a_run_with_matched_centroids_contracts_as_predicted(graph):
    """Every device has 10 points of each of 16 clusters far apart; the objective falls with the square."""
    points, labels = p2pkm.grid16(points=60, sd=0.4, seed=0)
    shards = p2pkm.Shards.deal(points, np.arange(960) % 6, devices=6, labels=labels)
    method = p2pkm.GTVMin(16, schedule="jacobi", coupling=1, init="leader", tol=1e-9)
    result = p2pkm.simulate(method, graph, shards, rounds=60, baselines=False)
    predicted = value(measures.predict(graph, coupling=1).contraction)
    found = measures.fitted(result.rounds)
    assert found.contraction == pytest.approx(predicted**2, rel=1e-4)
    assert found.determination > 0.999_999 and found.rounds > 10


@pytest.mark.parametrize("graph", [topologies.ring(6), topologies.ring(7), topologies.grid(6)], ids=str)
@pytest.mark.sample(3)
def test_a_run_of_the_default_schedule_contracts_as_predicted(graph):
    """Clusters that every device has equally many points of, at a coupling at which no mode swings."""
    n = len(graph)
    points, labels = p2pkm.grid16(points=10 * n, sd=0.4, seed=0)
    shards = p2pkm.Shards.deal(points, np.arange(160 * n) % n, devices=n, labels=labels)
    method = p2pkm.GTVMin(16, coupling=10, init="leader", tol=1e-9)
    result = p2pkm.simulate(method, graph, shards, rounds=150, baselines=False)
    predicted = measures.predict(graph, coupling=10, colors=result.topology.colors)
    found = measures.fitted(result.rounds)
    assert found.contraction == pytest.approx(value(predicted.contraction_colored) ** 2, rel=0.01)
    assert value(predicted.rounds_colored) < value(predicted.rounds)


@pytest.mark.parametrize("coupling", thin([5, 10, 30], 3))
def test_two_colors_follow_young(coupling):
    """(l + theta - 1)^2 = theta^2 mu^2 l for the largest eigenvalue mu of a jacobi round (Young, 1954)."""
    ring, mu = topologies.ring(12), 2 * coupling / (1 + 2 * coupling)
    found = measures.predict(ring, coupling=coupling, colors=np.arange(12) % 2, theta=1.2).contraction_colored
    root = (1.2 * mu + math.sqrt(1.44 * mu**2 - 0.8)) / 2
    assert value(found) == pytest.approx(root**2)
    large = measures.predict(topologies.ring(1_200), coupling=coupling, colors=np.arange(1_200) % 2, theta=1.2)
    assert large.contraction_colored.value == pytest.approx(root**2, rel=0.01) and not large.rounds_colored.exact


@pytest.mark.slow
def test_very_large_graphs_take_fewer_sweeps_in_single_precision(monkeypatch):
    graph = topologies.small_world(1_500, degree=6, rewire=0.1, seed=2)
    colors = p2pkm.Topology.from_graph(graph).colors
    whole = measures.predict(graph, coupling=30, colors=colors).contraction_colored
    monkeypatch.setattr("topologies.measures.predictions._LARGE", 1_000)
    monkeypatch.setattr("topologies.measures.predictions._WORK", 100 * (1_500 + 9_000))
    fewer = measures.predict(graph, coupling=30, colors=colors).contraction_colored
    assert (whole.how, fewer.how) == ("power iteration, 400 rounds", "power iteration, 100 rounds")
    assert fewer.value != whole.value and fewer.value == pytest.approx(whole.value, rel=0.01)
    monkeypatch.setattr("topologies.measures.predictions._WORK", 1)
    least = measures.predict(graph, coupling=30, colors=colors).contraction_colored
    assert least.how == "power iteration, 40 rounds"


# --- fits ---


@given(limit=st.floats(-5, 5), start=st.floats(0.1, 100), factor=st.floats(0.05, 0.98))
def test_a_geometric_approach_is_fitted_whatever_its_limit(limit, start, factor):
    values = limit + start * factor ** np.arange(40)
    found = measures.fit(values)
    assert found.contraction == pytest.approx(factor, rel=1e-3)


def test_records_may_be_sparse_and_end_early():
    rounds = [0, 5, 10, 15, 20, 25, 27]
    found = measures.fit([1 + 0.8**t for t in rounds], rounds)
    assert found.contraction == pytest.approx(0.8) and found.determination == pytest.approx(1)


def test_too_little_to_fit():
    for values in ([], [1.0], [3.0, 2.0, 1.5], [4.0] * 9):
        assert measures.fit(values) == (None, 0, None)
    with pytest.raises(topologies.GraphError, match="one for each"):
        measures.fit([1.0, 2.0], [0])


def test_only_the_last_stage_with_known_figures_is_fitted():
    first = [{"stage": "local", "round": t, "objective": 9.0 - t} for t in range(6)]
    last = [{"stage": "gtvmin", "round": t, "objective": 2 + 0.5**t} for t in range(12)]
    assert measures.fitted(first + last).contraction == pytest.approx(0.5)
    assert measures.fitted([one | {"objective": None} for one in last]) == (None, 0, None)


@each("seed", range(25))
def test_a_cut_of_few_devices_is_found_just_where_there_is_one(seed):
    graph = nx.gnp_random_graph(9, 0.35 + 0.02 * (seed % 12), seed=seed)
    graph = graph.subgraph(max(nx.connected_components(graph), key=len))
    graph = nx.convert_node_labels_to_integers(graph)
    complete = nx.density(graph) == 1
    least = len(graph) if complete else nx.node_connectivity(graph)
    for most in range(5):
        cut = measures.find_cut(graph, most)
        assert (cut is None) == (most < least)
        if cut is not None:
            rest = nx.Graph(graph)
            rest.remove_nodes_from(cut)
            assert len(cut) <= most and not nx.is_connected(rest)


@pytest.mark.slow
def test_a_cut_that_would_take_too_long_is_refused():
    with pytest.raises(
        topologies.GraphError, match="most is 3, which would take too long for a graph of 4,000 devices; expected 1"
    ):
        measures.find_cut(topologies.random_regular(4000, degree=6, seed=1), 3)
    assert measures.find_cut(topologies.random_regular(4000, degree=6, seed=1), 1) is None


@pytest.mark.parametrize("steps", [5, pytest.param(10_000, marks=pytest.mark.slow)])
def test_one_walk_gives_the_spectrum_and_its_sample(monkeypatch, steps):
    monkeypatch.setattr(spectrum, "_PROBES", 3_000)
    monkeypatch.setattr(spectrum, "_SAMPLED", 3_000)
    matrix, null = mixing_laplacian(topologies.build("small-world", 1_500, light=True))
    apart = spectrum.find_spectrum(matrix, null, 1), spectrum.sample_spectrum(matrix, null, steps, 1)
    with monkeypatch.context() as patch:
        if steps == 5:  # else the sample takes more steps than the walk
            patch.setattr(spectrum, "sample_spectrum", None)
        both = spectrum.find_both(matrix, null, steps, 1)
    for one, other in zip(both, apart, strict=True):
        assert one[2:] == other[2:]
        np.testing.assert_array_equal(one[:2], other[:2])


def test_the_error_of_a_mean_path_is_that_of_sources_drawn_without_repetition():
    found = estimate_mean_path(10, np.arange(1.0, 6.0))
    assert found == (3.0, False, "5 random sources; standard error 0.5")  # root of (5/2) (1 - 5/10) / 5


def test_without_two_neighbors_nothing_is_clustered():
    pairs = nx.Graph([(2 * i, 2 * i + 1) for i in range(501)])
    assert measures.clustering(pairs) == measures.Measure(0.0)


def test_where_all_neighbors_are_linked_an_estimate_of_clustering_is_1_and_not_sure():
    groups = [nx.relabel_nodes(nx.complete_graph(4), dict(enumerate(range(4 * i, 4 * i + 4)))) for i in range(260)]
    found = measures.clustering(nx.compose_all(groups))
    assert found == (1.0, False, "200,000 random pairs of neighbors; standard error 5e-06")


@pytest.mark.parametrize("name", ["apart", *(pytest.param(name, marks=pytest.mark.slow)
                                             for name in ("small-world", "hypercube", "ring"))])  # fmt: skip
def test_what_is_found_in_common_is_what_each_measure_finds(monkeypatch, name):
    force = {"strength": 0.7} if name == "hypercube" else {"coupling": 30.0}
    monkeypatch.setattr(spectrum, "_PROBES", 1)
    monkeypatch.setattr(spectrum, "_SAMPLED", 1)
    monkeypatch.setattr(spectrum, "_WORK", 1_000_000)
    apart = nx.disjoint_union(nx.cycle_graph(700), nx.cycle_graph(800))
    graph = CSRGraph.from_networkx(apart if name == "apart" else topologies.build(name, 2048))
    if name == "ring":
        source = np.arange(2048).repeat(2)
        graph = replace(graph, weights=1.0 + (source + graph.indices) % 7)
    known = measures.explore(graph, compiled, decay=0.9, seed=3, **force)
    for found, usual in zip(
        measures.describe(graph, decay=0.9, seed=3, known=known).values(),
        measures.describe(graph, decay=0.9, seed=3).values(),
        strict=True,
    ):
        assert found.exact == usual.exact and found.value == pytest.approx(usual.value, rel=1e-3)
    assert not known.resistors.steps or name != "hypercube"  # of twelve eigenvalues
    found = measures.predict(graph, **force, seed=3, coupled=known.coupled).disagreement
    usual = measures.predict(graph, **force, seed=3).disagreement
    assert found.exact == usual.exact and found.value == pytest.approx(usual.value, rel=1e-3)
