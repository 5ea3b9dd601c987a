"""The graph as arrays: bounds on its diameter, and what its devices are called."""

from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

import topologies
from p2pkm.core.errors import TopologyError
from p2pkm.network.graph import _LISTED, SERVER, Topology
from tests.support.each import each
from topologies import CSRGraph, path


@pytest.mark.parametrize(
    ("graph", "hops"),
    [
        (topologies.ring(32), 16),  # the diameter itself
        (topologies.ring(33), 32),  # twice the way from device 0, which is 16
        (topologies.path(33), 32),  # at most one less than the devices
    ],
)
def test_the_diameter_is_exact_up_to_32_devices_and_bounded_above(graph, hops):
    assert Topology.from_graph(graph).hops == hops


def test_the_bound_is_about_the_largest_component():
    apart = np.array([[0, 1], *([i, i + 1] for i in range(2, 20)), *([i, i + 1] for i in range(21, 39))])
    assert Topology.from_links(40, np.column_stack((apart, np.ones(len(apart))))).hops == 2 * 18


def test_clients_of_a_server_may_be_called_again():
    star = Topology.star(2).call(("b", "a"))
    assert star.names == ("b", "a", SERVER)
    assert star.call(("b", "a")).names == star.names


def test_a_topology_keeps_the_line_about_the_file_of_its_graph(tmp_path):
    (tmp_path / "g.csv").write_text("Turku,Oulu,2\nOulu,Rauma\n")
    topology = Topology.from_graph(topologies.read(tmp_path / "g.csv"))
    assert topology.file_summary == (
        "g.csv: 3 nodes and 2 links; names are the ids; weight 2 on 1 of 2 links, 1 on the others"
    )
    assert topology.call(("Turku", "Rauma", "Oulu")).file_summary == topology.file_summary
    assert Topology.from_arrays(topology.to_arrays()).file_summary == ""
    assert Topology.from_graph(topologies.ring(4)).file_summary == ""


def excess_of_root(graph):
    """Return by how much the eccentricity of the root of a connected graph exceeds the least one."""
    topology = Topology.from_graph(graph)
    _, layer = topology.spanning_tree
    return int(layer.max()) - min(int(topology.layers(i).max()) for i in range(topology.n))


@each("seed", range(20))
def test_the_root_of_a_tree_is_a_center(seed):
    for n in (1, 2, 7, 30):
        assert excess_of_root(nx.random_labeled_tree(n, seed=seed)) == 0


@pytest.mark.slow
def test_the_root_of_other_graphs_may_lie_next_to_the_center():
    found = [excess_of_root(topologies.small_world(n, degree=4, rewire=0.2, seed=seed))
             for seed in range(60) for n in (10, 16, 30, 60)]  # fmt: skip
    assert np.bincount(found).tolist() == [143, 85, 12]


def test_names_of_nodes_and_devices_must_be_equal_sets():
    named = replace(Topology.from_graph(path(3)), names=("a", "b", "c"))
    assert named.call(("c", "b", "a")).names == ("c", "b", "a")
    with pytest.raises(TopologyError, match=r"Nodes without points: .c.; devices without a node: .d."):
        named.call(("a", "b", "d"))


def test_inconsistent_arrays_of_a_graph_are_refused():
    with pytest.raises(TopologyError):
        Topology.from_graph(CSRGraph(np.array([0, 1, 2]), np.array([1, 7])))


def test_links_to_a_server_have_weight_1():
    assert Topology.star(3).weights.tolist() == [1.0] * 6


@pytest.mark.parametrize("clients", [1, _LISTED, _LISTED + 1])
def test_of_many_names_the_first_are_listed(clients):
    topology = Topology.from_graph(path(clients))
    assert topology.list_names() is None
    words = replace(topology, names=tuple(f"n{i}" for i in range(clients))).list_names().split(", ")
    assert words[:_LISTED] == [f"n{i}" for i in range(min(clients, _LISTED))]
    assert words[_LISTED:] == ([f"... ({clients} in all)"] if clients > _LISTED else [])


def test_what_follows_from_the_links_goes_to_other_ranks_but_not_to_files():
    ring = Topology.from_graph(topologies.ring(5))
    stored, derived = ring.to_arrays(), ring.derive()
    assert not stored.keys() & derived.keys()
    copy, moved = Topology.from_arrays(stored | derived), ring.move(stored | derived)
    for name, array in derived.items():
        assert getattr(copy, name) is getattr(moved, name) is array
    assert Topology.from_arrays(stored).degrees.tolist() == [2] * 5
