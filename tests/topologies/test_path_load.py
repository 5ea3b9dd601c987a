"""How much goes through the busiest device, and how fast GTVMin converges where links change."""

import importlib

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import p2pkm
import topologies
from tests.support.each import each
from topologies.measures import path_load, predict

paths = importlib.import_module("topologies.measures.path_load")


@each(
    ("graph", "load"),
    [
        (topologies.star(9), 1.0),
        (topologies.complete(7), 0.0),
        (topologies.path(11), 10 / (2 * 9)),
        (topologies.path(10), 2 * 4 * 5 / (9 * 8)),
        (topologies.ring(9), (9 - 3) / (4 * (9 - 2))),
        (topologies.ring(10), (10 - 2) / (4 * (10 - 1))),
        (topologies.hypercube(16), (32 / 15 - 1) / 14),  # all alike: mean path - 1 others on the way, of n - 2
    ],
)
def test_closed_forms(graph, load):
    assert path_load(graph) == (pytest.approx(load), True, "")


@given(st.integers(3, 40), st.floats(0.02, 0.6), st.integers(0, 10**6))
def test_betweenness_of_networkx_also_where_paths_are_missing(n, p, seed):
    graph = nx.gnp_random_graph(n, p, seed=seed)
    assert path_load(graph) == (pytest.approx(max(nx.betweenness_centrality(graph).values()), abs=1e-12), True, "")


@pytest.mark.parametrize("cells", [300, 50])
def test_parts_of_searches_give_the_same(monkeypatch, cells):
    graph = topologies.small_world(80, seed=3)
    whole = path_load(graph)
    monkeypatch.setattr(paths, "_CELLS", cells)
    assert path_load(graph).value == pytest.approx(whole.value)


@pytest.mark.parametrize("name", ["barabasi-albert", "small-world"])
def test_an_estimate_is_near_and_says_how_it_was_found(monkeypatch, name):
    graph = topologies.build(name, 400, seed=1)
    exact = path_load(graph).value
    monkeypatch.setattr(paths, "_CELLS", 4_000)
    monkeypatch.setattr(paths, "_WORK", 200_000)
    found = path_load(graph)
    assert not found.exact and "random sources" in found.how
    spread = float(found.how.rpartition(" ")[2])
    assert abs(found.value - exact) < 4 * spread + 0.15 * exact
    assert found == path_load(graph)


def test_an_estimate_of_a_star_is_the_share_of_its_hub(monkeypatch):
    monkeypatch.setattr(paths, "_CELLS", 400)
    monkeypatch.setattr(paths, "_WORK", 800)
    for seed in range(20):  # the hub is among the first sources, among the others, or neither
        found = path_load(topologies.star(60), seed=seed)
        assert not found.exact and found.value == pytest.approx(1.0, abs=1e-12)


def test_where_only_the_hub_is_left_to_search_from_its_share_is_exact(monkeypatch):
    monkeypatch.setattr(paths, "_CELLS", 6)
    monkeypatch.setattr(paths, "_WORK", 5 * 1_506 - 1)  # five leaves, but not four
    seed = next(seed for seed in range(100) if np.random.default_rng(seed).permutation(6)[-1] == 0)
    assert path_load(topologies.star(6), seed=seed) == (1.0, True, "")


def test_what_has_no_path_load_says_why():
    assert path_load(topologies.path(2)).value is None
    many = path_load(topologies.build("ring", 100_001))
    assert many.value is None and "100,000" in many.how


def iterate(graph, coupling, rounds):
    """Return the distance between two starts under GTVMin with matched centroids, one cluster and one point each."""
    n, links = graph.n, [np.flatnonzero(graph.active(t)) for t in range(rounds)]
    source = np.repeat(np.arange(n), np.diff(graph.indptr))
    apart, found = np.random.default_rng(0).random(n), []
    for used in links:
        matrix = np.zeros((n, n))
        matrix[source[used], graph.indices[used]] = 1
        degrees = np.maximum(matrix.sum(axis=1), 1)
        matrix *= coupling / np.sqrt(np.outer(degrees, degrees))
        apart = 2 * matrix @ apart / (1 + 2 * matrix.sum(axis=1))
        found.append(np.linalg.norm(apart))
    return found


@pytest.mark.parametrize("graph", [
    topologies.one_peer_exponential(12), topologies.simple_base(11), topologies.inner_outer_exponential(12, size=4),
    topologies.random_waypoint(12, period=5, seed=1), topologies.peer_sampler(12, period=4, seed=2),
], ids=lambda graph: graph.name)  # fmt: skip
def test_contraction_over_links_that_change_is_that_of_a_period(graph):
    found = iterate(graph, 3.0, 60 * graph.period)
    rate = (found[-1] / found[-1 - 20 * graph.period]) ** (1 / (20 * graph.period))
    predicted = predict(graph, coupling=3.0)
    assert predicted.contraction.value == pytest.approx(rate, rel=1e-5) and predicted.contraction.exact
    assert predicted.disagreement.value is None and "time-varying" in predicted.disagreement.how


def test_power_iteration_finds_the_same_contraction(monkeypatch):
    graph = topologies.random_waypoint(14, period=3, seed=3)
    exact = predict(graph, coupling=2.0).contraction
    monkeypatch.setattr("topologies.measures.predictions.EXACT", 10)
    found = predict(graph, coupling=2.0).contraction
    assert found.value == pytest.approx(exact.value, rel=1e-6) and not found.exact and "power iteration" in found.how


def test_a_real_run_contracts_to_its_orbit_as_predicted():
    graph = topologies.simple_base(5)
    shards = p2pkm.Shards.from_list([np.array([[float(x)]]) for x in range(5)])
    method = p2pkm.GTVMin(1, coupling=2.0, schedule="jacobi", tol=0.0)
    period = graph.period
    ends = [p2pkm.simulate(method, graph, shards, rounds=r * period, start=np.full((5, 1, 1), 9.0), baselines=False)
            .centroids[:, 0, 0] for r in (10, 11, 12)]  # fmt: skip
    steps = [np.linalg.norm(ends[i + 1] - ends[i]) for i in (0, 1)]
    assert predict(graph, coupling=2.0).contraction.value == pytest.approx((steps[1] / steps[0]) ** (1 / period), 1e-3)
