"""Parallel links, self-loops, network maps of Shadow, weights of very different size, and files of other formats."""

import json

import networkx as nx
import numpy as np
import pytest
from scipy import io as scipy_io
from scipy import sparse

import topologies
from topologies import GraphError

# Links with weights that are powers of two, so that every sum tells its terms; sorted numbers would be times.
LINKS = [("0", "1", 1), ("1", "0", 2), ("1", "2", 16), ("1", "2", 8), ("2", "1", 4), ("2", "3", 32)]
SUMS = {("0", "1"): 3, ("1", "2"): 28, ("2", "3"): 32}
FIRST = {("0", "1"): 1, ("1", "2"): 16, ("2", "3"): 32}


def multigraph():
    graph = nx.MultiGraph()
    graph.add_weighted_edges_from(LINKS)
    return graph


def weights_of(graph):
    """Weights by the numbers of the sorted nodes."""
    number = {node: str(i) for i, node in enumerate(topologies.sort_nodes(graph))}
    return {tuple(sorted((number[u], number[v]))): data.get("weight", 1) for u, v, data in graph.edges(data=True)}


def write(place, suffix):
    """Write the parallel links in a format."""
    path = place / f"links{suffix}"
    if suffix == ".json":
        path.write_text(json.dumps(nx.node_link_data(multigraph(), edges="edges")))
    elif suffix == ".mtx":
        ends = [sorted((int(u), int(v)), reverse=True) for u, v, _ in LINKS]
        rows = "".join(f"{u + 1} {v + 1} {weight}\n" for (u, v), (*_, weight) in zip(ends, LINKS, strict=True))
        path.write_text(f"%%MatrixMarket matrix coordinate real symmetric\n4 4 {len(LINKS)}\n{rows}")
    elif suffix == ".edgelist":
        ordered = [(*sorted((u, v)), weight) for u, v, weight in LINKS]
        path.write_text("".join(f"{u} {v} {weight}\n" for u, v, weight in ordered))
    elif suffix == ".gml":
        plain = nx.convert_node_labels_to_integers(multigraph())
        text = "\n".join(nx.generate_gml(plain)).replace("  multigraph 1\n", "")
        path.write_text(text)
    else:
        {".graphml": nx.write_graphml, ".gexf": nx.write_gexf, ".net": nx.write_pajek}[suffix](multigraph(), path)
    return path


@pytest.mark.parametrize("suffix", [".graphml", ".gexf", ".gml", ".net", ".json", ".mtx", ".edgelist"])
def test_parallel_links_are_refused_added_or_the_first_is_kept(suffix, tmp_path):
    path = write(tmp_path, suffix)
    with pytest.raises(GraphError, match=r"parallel=sum"):
        topologies.read(path)
    added = topologies.read(path, parallel="sum")
    assert weights_of(added) == SUMS
    assert "parallel=sum: " in added.graph[topologies.FILE_SUMMARY]
    assert weights_of(topologies.read(path, parallel="first")) == FIRST
    assert weights_of(topologies.file(path=str(path), parallel="sum")) == SUMS


def test_parallel_links_of_objects():
    igraph = pytest.importorskip("igraph")
    graph = igraph.Graph([(int(u), int(v)) for u, v, _ in LINKS], edge_attrs={"weight": [w for *_, w in LINKS]})
    matrix = sparse.coo_array(([1.0, 2.0, 1.0, 2.0], ([0, 0, 1, 1], [1, 1, 0, 0])), (2, 2))
    for item, sums, first in (
        (multigraph(), SUMS, FIRST),
        (graph, SUMS, FIRST),
        (matrix, {("0", "1"): 3}, {("0", "1"): 1}),
    ):
        with pytest.raises(GraphError, match=r"topologies\.read\(graph, parallel='sum'\)"):
            topologies.read(item)
        assert weights_of(topologies.read(item, parallel="sum")) == sums
        assert weights_of(topologies.read(item, parallel="first")) == first


def test_sums_of_links_without_numbers_and_of_both_directions():
    graph = nx.MultiDiGraph()
    graph.add_edge(0, 1, weight=2.0, bandwidth=10.0, latency=0.5, cable="x")
    graph.add_edge(0, 1, bandwidth="8 Mbit", latency=0.25, cable="y", owner="z")
    graph.add_edge(1, 0, weight=5.0)
    graph.add_edge(1, 2, bandwidth=1.0)
    graph.add_edge(1, 2)
    merged = topologies.read(graph, parallel="sum", directed="union")
    # The mean of both directions, 3 and 5.
    assert merged[0][1] == {"weight": 4.0, "bandwidth": 1_000_010.0, "latency": 0.25, "cable": "x", "owner": "z"}
    assert merged[1][2] == {"weight": 2.0}
    graph.add_edge(1, 2, weight="heavy")
    with pytest.raises(GraphError, match="weight 'heavy'"):
        topologies.read(graph, parallel="sum", directed="union")
    for name in ("parallel", "loops"):
        with pytest.raises(GraphError, match=f"{name} is 'mean'; expected one of: refuse"):
            topologies.read(graph, **{name: "mean"})


def test_self_loops_are_refused_or_left_out(tmp_path):
    path = tmp_path / "loop.edgelist"
    path.write_text("0 1\n1 1\n1 2\n")
    with pytest.raises(GraphError, match=r"link to itself\. .*loops=drop"):
        topologies.read(path)
    graph = topologies.read(path, loops="drop")
    assert sorted(graph.edges) == [("0", "1"), ("1", "2")]
    assert "links of a node to itself left out: 1" in graph.graph[topologies.FILE_SUMMARY]
    assert sorted(topologies.read(np.eye(2) + 1, loops="drop").edges) == [(0, 1)]


SHADOW = """graph [
  directed 0
  node [ id 0 host_bandwidth_up "100 Mbit" host_bandwidth_down "1 Gbit" ]
  node [ id 1 host_bandwidth_up "16 Mbit" host_bandwidth_down "8 Mbit" ]
  edge [ source 0 target 0 latency "1 ms" packet_loss 0.0 ]
  edge [ source 0 target 1 latency "50 ms" jitter "0 ms" packet_loss 0.01 ]
  edge [ source 1 target 1 latency "1 ms" packet_loss 0.0 ]
]
"""


def test_network_maps_of_shadow(tmp_path):
    path = tmp_path / "map.gml"
    path.write_text(SHADOW)
    graph = topologies.read(path)
    assert graph.edges[0, 1]["latency"] == 0.05
    assert [graph.nodes[node]["access"] for node in (0, 1)] == [12_500_000.0, 1_000_000.0]
    summary = graph.graph[topologies.FILE_SUMMARY]
    for piece in (
        "links of a node to itself left out: 2",
        "access is the smaller of host_bandwidth_up and host_bandwidth_down",
        "packet_loss on links (0.01 to 0.01; a run loses messages by faults",
        "jitter on links",
    ):
        assert piece in summary
    path.write_text(SHADOW.replace("16 Mbit", "fast"))
    with pytest.raises(GraphError, match="bandwidths of a host are"):
        topologies.read(path)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("# A\nB 1\nC 2\n# B\nC 1\n", "LGL"),
        ("# A\nB\nC\n", "LGL"),
        ("# A\nB 1\nC 1\n", "LGL"),
        ("# 0\n1 1\n2 1\n# 1\n2 1\n", "LGL"),
        ("1 A\n2 B\n3 C\n#\n1 2\n2 3 x\n", "TGF"),
        ("4 6\n2 3 4\n1 3 4\n1 2 4\n1 2 3\n", "METIS"),
    ],
)
def test_lines_of_other_formats_are_not_links(text, kind, tmp_path):
    path = tmp_path / "graph.txt"
    path.write_text(text)
    with pytest.raises(GraphError, match=f"looks like {kind}: "):
        topologies.read(path)


@pytest.mark.parametrize(
    "text",
    ["# core\n0 1\n# access\n1 2\n", "# 3\n0 1\n1 2\n", "# nodes\n# links\n0 1\n1 2\n", "#\n# x\n#\n0 1\n1 2\n",
     "0 1\n#\n1 2\n", "# 2\n0 1 1\n1 2 1\n"],
)  # fmt: skip
def test_comments_of_edge_lists(text, tmp_path):
    path = tmp_path / "graph.txt"
    path.write_text(text)
    assert sorted(topologies.read(path).edges) == [("0", "1"), ("1", "2")]


@pytest.mark.parametrize("suffix", [".txt", ".csv", ".xml", ".graph", ".json"])
@pytest.mark.parametrize("content", [".graphml", ".gexf", ".gml", ".net"])
def test_the_content_tells_the_format_whatever_the_suffix(suffix, content, tmp_path):
    path = write(tmp_path, content).rename(tmp_path / f"graph{suffix}")
    graph = topologies.read(path, parallel="sum")
    assert weights_of(graph) == SUMS
    assert f"read as {content}, by its content" in graph.graph[topologies.FILE_SUMMARY]


def test_matrices_need_their_suffix(tmp_path):
    scipy_io.mmwrite(tmp_path / "graph.mtx", sparse.coo_array(1 - np.eye(3)))
    path = (tmp_path / "graph.mtx").rename(tmp_path / "graph.txt")
    with pytest.raises(GraphError, match=r"rename it, so that it ends with \.mtx"):
        topologies.read(path)


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        (1.0, 1e20, "ratio of at most"),
        (1e-20, 1.0, "ratio of at most"),
        (1e308, 1e308, "expected from 1e-100 to 1e"),
        (5e-324, 5e-324, "expected from 1e-100 to 1e"),
        pytest.param(1.0, 10**400, "expected a finite number above 0", id="huge"),
    ],
)
def test_weights_whose_sums_lose_digits_are_refused(low, high, message):
    graph = nx.cycle_graph(4)
    nx.set_edge_attributes(graph, low, "weight")
    graph[0][3]["weight"] = high
    with pytest.raises(GraphError, match=message):
        topologies.check(graph)
    with pytest.raises(GraphError, match=message):
        topologies.read(nx.DiGraph(graph), directed="union")
    with pytest.raises(GraphError, match=message):
        topologies.measures.describe(graph)
    if high < 10**309:
        arrays = topologies.CSRGraph.from_networkx(nx.cycle_graph(4))
        weighted = topologies.CSRGraph(
            arrays.indptr, arrays.indices, np.array([low, high, low, low, low, low, high, low])
        )
        with pytest.raises(GraphError, match=message):
            topologies.measures.describe(weighted)


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_weights_at_the_limit_are_used():
    import p2pkm

    shards = p2pkm.Shards.deal(np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 4)
    for low, high in ((1.0, 1e12), (1e88, 1e100), (1e-100, 1e-88)):
        graph = nx.cycle_graph(4)
        nx.set_edge_attributes(graph, low, "weight")
        graph[0][3]["weight"] = high
        for coupling in ("auto", "strong", "bayes", 10.0):
            result = p2pkm.simulate(p2pkm.GTVMin(2, coupling=coupling), graph, shards, rounds=3, progress=False)
            assert np.isfinite(result.summary["ratio_mean"])
        assert all(value.value is not None for value in topologies.measures.describe(graph).values())


@pytest.mark.parametrize("graph", [nx.Graph(), nx.MultiGraph(), np.zeros((0, 0)), sparse.csr_array((0, 0))])
def test_graphs_without_nodes_are_refused_everywhere(graph):
    import p2pkm

    with pytest.raises(GraphError, match="no nodes"):
        topologies.read(graph)
    with pytest.raises(p2pkm.TopologyError, match="no nodes"):
        p2pkm.Topology.from_graph(graph)
    with pytest.raises(GraphError):
        topologies.measures.describe(graph)
    with pytest.raises(GraphError, match="no devices"):
        topologies.measures.describe(topologies.CSRGraph(np.zeros(1, int), np.zeros(0, int)))
