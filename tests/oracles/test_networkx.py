"""Every measure of a graph that networkx has, too, on graphs of all families; and which measures it has not."""

from inspect import signature

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose

import topologies
from topologies import FAMILIES, measures

N = 16
SIZED = sorted(set(FAMILIES) - {"karate", "davis", "les-miserables", "florentine", "margulis", "file", "gallery"})
KEYS = {
    "small-world": {"degree": 4},
    "random-regular": {"degree": 3},
    "caveman": {"size": 4},
    "erdos-renyi": {"p": 0.4},
}
QUICK = {"ring", "small-world", "barbell"}


def two_apart(graph):
    """Return how many devices are at most two links away."""
    return [len(nx.ego_graph(graph, i, radius=2)) - 1 for i in range(len(graph))]


def find_least_cut(graph):
    """Return how many devices a cut has that `find_cut` finds at the least bound."""
    return next((most for most in range(len(graph)) if measures.find_cut(graph, most) is not None), len(graph) - 1)


def mean_resistance(graph):
    whole = nx.resistance_distance(graph)
    return np.mean([whole[i][j] for i in graph for j in graph if i < j])


def contract(graph):
    """Return 1 minus the second largest modulus of the Metropolis matrix, from networkx's degrees."""
    matrix = np.zeros((len(graph), len(graph)))
    for i, j in graph.edges:
        matrix[i, j] = matrix[j, i] = 1.0 / (1 + max(graph.degree[i], graph.degree[j]))
    matrix += np.diag(1.0 - matrix.sum(axis=1))
    return 1.0 - np.sort(abs(np.linalg.eigvalsh(matrix)))[-2]


THEIRS = {
    "degrees": lambda g: [min(dict(g.degree).values()), 2 * nx.density(g) * (len(g) - 1) / 2,
                          max(dict(g.degree).values())],
    "diameter": nx.diameter,
    "mean_path": nx.average_shortest_path_length,
    "clustering": nx.average_clustering,
    "algebraic_connectivity": lambda g: nx.laplacian_spectrum(g, weight=None)[1],
    "effective_resistance": mean_resistance,
    "kirchhoff_index": nx.effective_graph_resistance,
    "edge_connectivity": nx.edge_connectivity,
    "vertex_connectivity": nx.node_connectivity,
    "hub_load": lambda g: max(dict(g.degree).values()) / g.number_of_edges(),
    "path_load": lambda g: max(nx.betweenness_centrality(g).values()),
    "spectral_gap": contract,
    "betweenness": lambda g: [nx.betweenness_centrality(g)[i] for i in range(len(g))],
    "closeness": lambda g: [nx.closeness_centrality(g)[i] for i in range(len(g))],
    "count_within": two_apart,
    "find_cut": nx.node_connectivity,
}  # fmt: skip
OURS = {"count_within": lambda g: measures.count_within(g, 2), "find_cut": find_least_cut}
WITHOUT = {
    "effective_neighbors": "against iterated covariances (tests/topologies/test_measures.py)",
    "residual_noise": "against the objective's own solutions (tests/topologies/test_noise.py)",
    "predict": "against the iteration itself", "fit": "of a series, not of a graph",
    "fitted": "of a series, not of a graph", "active_degrees": "of a graph that changes",
    "contraction_per_round": "of a graph that changes", "effective_neighbors_over_time": "of a graph that changes",
    "describe": "the others together", "explore": "what several of them share", "read": "no measure",
}  # fmt: skip


def number(found):
    """Return what a measure found as numbers; those of small graphs are exact."""
    if isinstance(found, measures.Measure):
        assert found.exact
        return found.value
    return [number(one) for one in found] if isinstance(found, tuple) else found


def test_every_measure_is_compared_or_has_a_reason():
    functions = {name for name in measures.__all__ if name[0].islower()}
    assert functions == THEIRS.keys() | WITHOUT.keys() and not THEIRS.keys() & WITHOUT.keys()


@pytest.mark.parametrize(
    "family", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in SIZED]
)
def test_measures_are_those_of_networkx(family):
    drawn = {"seed": 3} if "seed" in signature(FAMILIES[family]).parameters else {}
    graph = topologies.build(family, N, **KEYS.get(family, {}), **drawn)
    graph = nx.convert_node_labels_to_integers(graph)
    if not nx.is_connected(graph):
        pytest.skip(f"{family} of {N} devices came out in several parts")
    complete = nx.density(graph) == 1
    for name, theirs in THEIRS.items():
        if name == "find_cut" and complete:
            continue  # nothing cuts it
        ours = number(OURS.get(name, getattr(measures, name))(graph))
        assert_allclose(ours, theirs(graph), rtol=1e-8, atol=1e-9, err_msg=name)
