"""The graphs of textbooks, papers and the field against networkx, their definitions and their spectra; the gallery."""

import math
from itertools import combinations
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import topologies
from tests.support.each import each
from tests.support.run_cli import here
from topologies import GraphError

REAL = {"karate": (34, 78, 5), "davis": (32, 89, 4), "les-miserables": (77, 254, 5), "florentine": (15, 20, 5)}


def edges(graph):
    return sorted(tuple(sorted(link)) for link in graph.edges)


def degrees(graph):
    return [degree for _, degree in sorted(graph.degree)]


# --- against networkx ---


@pytest.mark.parametrize("half", [1, 2, 3, 4, 9])
def test_ladders(half):
    ladder = topologies.ladder(2 * half)
    assert edges(ladder) == edges(nx.ladder_graph(half))
    assert ladder.number_of_edges() == 3 * half - 2 and nx.diameter(ladder) == half
    prism = topologies.circular_ladder(2 * half)
    if half > 2:
        assert edges(prism) == edges(nx.circular_ladder_graph(half))
        assert degrees(prism) == [3] * 2 * half and nx.diameter(prism) == half // 2 + 1
    else:
        assert edges(prism) == edges(ladder)  # a ring of two is one link


@each("n", [1, 2, 3, 4, 5, 6, 20])
def test_wheel_and_lollipop(n):
    assert edges(topologies.wheel(n)) == edges(nx.wheel_graph(n))
    for clique in range(2, n + 1):
        graph = topologies.lollipop(n, clique=clique)
        assert edges(graph) == edges(nx.lollipop_graph(clique, n - clique))
        assert nx.diameter(graph) == n - clique + 1
    assert edges(topologies.lollipop(n, clique=1)) == edges(topologies.path(n))
    assert edges(topologies.lollipop(n)) == edges(topologies.lollipop(n, clique=(n + 1) // 2))


@pytest.mark.parametrize(("n", "left"), [(2, 1), (5, 1), (5, 2), (9, 6)])
def test_bipartite(n, left):
    assert edges(topologies.bipartite(n, left=left)) == edges(nx.complete_bipartite_graph(left, n - left))
    assert edges(topologies.bipartite(n)) == edges(topologies.bipartite(n, left=n // 2))


@pytest.mark.parametrize("side", [1, 2, 3, 5, 8])
def test_margulis(side):
    reference = nx.Graph(nx.convert_node_labels_to_integers(nx.margulis_gabber_galil_graph(side), ordering="sorted"))
    reference.remove_edges_from(list(nx.selfloop_edges(reference)))
    graph = topologies.margulis(side * side)
    assert edges(graph) == edges(reference)
    assert max(degrees(graph)) <= 8 and nx.is_connected(graph)


def test_margulis_graphs_of_all_sizes_keep_their_gap():
    gaps = [np.sort(nx.laplacian_spectrum(topologies.margulis(side * side)))[1] for side in (5, 10, 20)]
    assert min(gaps) > 8 - 5 * math.sqrt(2) - 0.1  # the bound of Gabber and Galil, for the graph with its self-links


@pytest.mark.parametrize("name", REAL)
def test_real_graphs(name):
    n, links, diameter = REAL[name]
    graph = topologies.build(name)
    assert (len(graph), graph.number_of_edges(), nx.diameter(graph)) == (n, links, diameter)
    assert not any(attributes for _, _, attributes in graph.edges(data=True))
    topologies.check(graph)
    assert edges(topologies.build(name, n)) == edges(graph)
    with pytest.raises(GraphError, match=f"{name} has {n} devices, but 9 were requested. Request {n}"):
        topologies.build(name, 9)


def test_the_novel_has_weights_if_they_are_wanted():
    graph = topologies.les_miserables(weighted=True)
    assert graph["Cosette"]["Valjean"]["weight"] == 31
    topologies.check(graph)


def test_powerlaw_cluster_closes_triangles():
    plain, closed = (topologies.powerlaw_cluster(300, m=3, triangle=chance) for chance in (0.0, 1.0))
    assert plain.number_of_edges() <= 3 * 297
    assert nx.average_clustering(closed) > 3 * nx.average_clustering(plain)
    assert max(degrees(closed)) > 20


def test_stochastic_blocks_have_their_densities():
    graphs = [topologies.stochastic_block_model(31, blocks=3, inside=0.8, between=0.1, seed=seed) for seed in range(60)]
    block = [0] * 10 + [1] * 10 + [2] * 11
    counts = np.zeros((2, 2))
    for graph in graphs:
        for i, j in combinations(range(31), 2):
            counts[int(block[i] == block[j])] += [graph.has_edge(i, j), 1]
    far, near = counts[:, 0] / counts[:, 1]
    assert abs(near - 0.8) < 0.02 and abs(far - 0.1) < 0.02


@given(n=st.integers(1, 70), size=st.integers(1, 12))
def test_d_cliques_are_cliques_with_a_link_between_every_two(n, size):
    graph, count = topologies.d_cliques(n, size=size), -(-n // size)
    clique = [i // size for i in range(n)]
    assert all(graph.has_edge(i, j) for i, j in combinations(range(n), 2) if clique[i] == clique[j])
    between = sorted((clique[i], clique[j]) for i, j in edges(graph) if clique[i] != clique[j])
    assert between == list(combinations(range(count), 2))
    assert n == 1 or nx.diameter(graph) <= 3
    outside = [sum(clique[i] != clique[j] for j in graph[i]) for i in range(n)]
    for members in (range(first, min(first + size, n)) for first in range(0, n, size)):
        assert max(outside[i] for i in members) - min(outside[i] for i in members) <= 1


def test_d_cliques_on_a_ring():
    graph = topologies.d_cliques(20, size=5, between="ring")
    assert graph.number_of_edges() == 4 * 10 + 4
    assert sorted(degrees(graph)) == [4] * 12 + [5] * 8
    assert edges(topologies.d_cliques(9, size=1, between="ring")) == edges(topologies.ring(9))


# --- spectra in closed form ---


def spectrum(graph):
    return np.sort(nx.laplacian_spectrum(graph))


def waves(n, steps):
    """Return the Laplacian spectrum of a circulant graph."""
    turn = 2 * np.pi * np.arange(n) / n
    both = {*steps, *(n - step for step in steps)}
    return np.sort(sum((1 - np.cos(turn * step) for step in both), np.zeros(n)))


@pytest.mark.parametrize("n", [3, 4, 7, 16, 21])
def test_spectra_of_ring_complete_and_exponential(n):
    assert np.allclose(spectrum(topologies.ring(n)), waves(n, [1]))
    assert np.allclose(spectrum(topologies.complete(n)), [0] + [n] * (n - 1))
    for base in (2, 3, 5):
        steps = [base**t for t in range(5) if base**t < n]
        assert np.allclose(spectrum(topologies.exponential(n, base=base)), waves(n, steps))


@pytest.mark.parametrize("rows", [3, 4, 6])
def test_spectrum_of_the_torus(rows):
    sums = np.add.outer(waves(rows, [1]), waves(24 // rows, [1]))
    assert np.allclose(spectrum(topologies.torus(24, rows=rows)), np.sort(sums.ravel()))


@pytest.mark.parametrize("digits", [0, 1, 2, 3, 6])
def test_hypercube(digits):
    graph = topologies.hypercube(1 << digits)
    assert edges(graph) == sorted((i, j) for i, j in combinations(range(1 << digits), 2) if (i ^ j).bit_count() == 1)
    assert degrees(graph) == [digits] * (1 << digits) and nx.diameter(graph) == digits
    assert np.allclose(spectrum(graph), [2 * k for k in range(digits + 1) for _ in range(math.comb(digits, k))])


# --- refusals ---


@each(
    ("name", "n", "options", "message"),
    [
        ("hypercube", 12, {}, r"the number of devices is 12; expected a power of two\. Use 8 or 16"),
        ("hypercube", 0, {}, "n is 0"),
        ("ladder", 7, {}, r"the number of devices is 7; expected an even number\. Use 6 or 8"),
        ("circular-ladder", 1, {}, "n is 1; expected a whole number, 2 or more"),
        ("bipartite", 1, {}, "n is 1"),
        ("bipartite", 4, {"left": 4}, "left is 4 of 4 devices; expected 1 to 3"),
        ("lollipop", 4, {"clique": 5}, "clique is 5; expected 1 to 4, the number of devices"),
        ("margulis", 12, {}, r"the number of devices is 12; expected a square number\. Use 9 or 16"),
        ("d-cliques", 8, {"size": 0}, "size is 0"),
        ("d-cliques", 8, {"between": "star"}, "between is 'star'; expected 'complete' or 'ring'"),
        ("powerlaw-cluster", 2, {}, "the largest legal value is 1"),
        ("powerlaw-cluster", 9, {"triangle": 2}, "triangle is 2; expected a number from 0 to 1"),
        ("stochastic-block-model", 4, {"blocks": 5}, "blocks is 5; expected 1 to 4, the number of devices"),
        ("stochastic-block-model", 40, {"between": 0}, r"none of 100 draws .*\. Use a larger inside or between"),
        ("gallery", None, {}, "graph 'gallery' requires the option recipe="),
        ("gallery", None, {"recipe": "nix"}, "gallery recipe is 'nix'; expected one of: .*karate"),
        ("gallery", 12, {"recipe": "karate"}, "gallery:karate has 34 devices, but 12 were requested"),
    ],
)
def test_refusals_name_the_remedy(name, n, options, message):
    with pytest.raises(GraphError, match=message):
        topologies.build(name, n, **options)


# --- the gallery ---


@each("name", topologies.recipes())
def test_every_recipe_makes_its_graph(name):
    recipe = topologies.read_recipe(name)
    graph = topologies.build("gallery", recipe=name)
    assert len(graph) == recipe.n and graph.number_of_edges()
    assert recipe.description.endswith(".") and recipe.reference
    known = topologies.FAMILIES | topologies.TIME_VARYING
    wanted = known[recipe.family].__kwdefaults__ or {}
    assert not {"seed"} & wanted.keys() - recipe.options.keys(), "a drawn graph of the gallery names its seed"


def test_the_gallery_is_taken_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("--data", "grid16:points=5", "--rounds", 2, "--out", "none", "--format", "json", "--graph")
    one, other = here(*words, "gallery:karate").summary, here(*words, "karate").summary
    assert one["graph"] == "gallery:karate"
    assert one["centroids_sha256"] == other["centroids_sha256"]
    ending = here(*words, "gallery:nix")
    assert ending.code == 3 and "gallery recipe is 'nix'" in ending.err


def test_recipes_are_part_of_the_package():
    folder = Path(topologies.__file__).parent / "gallery"
    assert sorted(path.stem for path in folder.glob("*.toml")) == topologies.recipes()
