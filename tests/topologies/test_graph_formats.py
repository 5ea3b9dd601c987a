"""Graph files of other programs, graph objects of other libraries, directed graphs, units and coordinates."""

import gzip
import pickle
import struct
import tempfile
from contextlib import suppress
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import scipy.io
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import p2pkm
import topologies
from p2pkm.core.spec import parse
from p2pkm.network.link_model import LinkModel
from p2pkm.viz.graph_layout import place_devices
from tests.support.each import each
from topologies import FILE_SUMMARY, GraphError
from topologies.coordinates import find_coordinates
from topologies.units import parse_quantity


def write(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def weights_of(graph):
    return {tuple(sorted((u, v))): weight for u, v, weight in graph.edges(data="weight", default=1)}


def arrays_of(graph):
    """Return the links and weights by number of device."""
    csr = topologies.CSRGraph.from_networkx(graph)
    weights = np.ones(len(csr.indices)) if csr.weights is None else csr.weights
    return csr.indptr.tolist(), csr.indices.tolist(), weights.tolist()


def summary(graph):
    return graph.graph[FILE_SUMMARY]


# --- files of other programs ---


KARATE = nx.karate_club_graph()
WRITERS = {
    "gml": nx.write_gml,
    "gml.gz": nx.write_gml,
    "net": nx.write_pajek,
    "graphml": nx.write_graphml,
    "gexf": nx.write_gexf,
    "mtx": lambda graph, path: scipy.io.mmwrite(path, nx.to_scipy_sparse_array(graph)),
    "npz": lambda graph, path: sparse.save_npz(path, nx.to_scipy_sparse_array(graph)),
    "dense.npz": lambda graph, path: np.savez(path, nx.to_numpy_array(graph)),
    "npy": lambda graph, path: np.save(path, nx.to_numpy_array(graph)),
    "array.mtx": lambda graph, path: scipy.io.mmwrite(path, nx.to_numpy_array(graph)),
    "edgelist": nx.write_weighted_edgelist,
    "edges.gz": nx.write_weighted_edgelist,
    "csv": lambda graph, path: nx.to_pandas_edgelist(graph).to_csv(path, index=False),
    "semicolon.csv": lambda graph, path: nx.to_pandas_edgelist(graph).to_csv(path, index=False, sep=";", decimal=","),
}  # fmt: skip


@pytest.mark.parametrize("suffix", WRITERS)
def test_files_of_networkx_scipy_and_pandas(suffix, tmp_path):
    path = tmp_path / f"karate.{suffix}"
    WRITERS[suffix](KARATE, str(path))
    assert arrays_of(topologies.read(path)) == arrays_of(KARATE)


@pytest.mark.parametrize("suffix", ["gml", "graphml", "net"])
def test_files_of_igraph(suffix, tmp_path):
    igraph = pytest.importorskip("igraph")
    graph = igraph.Graph.Famous("Zachary")
    # Numbers with an exponent, and names that are not ASCII.
    graph.es["weight"] = [1e-7 * (i + 1) for i in range(78)]
    graph.vs["name"] = [f"Jäsen {i}" for i in range(34)]
    path = tmp_path / f"g.{suffix}"
    graph.write(str(path), format="pajek" if suffix == "net" else suffix)
    read = topologies.read(path)
    expected = topologies.read(graph)
    # igraph writes 15 digits.
    for part, expected_part in zip(arrays_of(read), arrays_of(expected), strict=True):
        assert part == pytest.approx(expected_part, rel=1e-14)
    assert suffix == "net" or list(topologies.name_nodes(read).values()) == graph.vs["name"]


def test_graphml_of_graph_tool(tmp_path):
    keys = "".join(
        f'<key id="{key}" for="{kind}" attr.name="{name}" attr.type="{form}"/>'
        for key, kind, name, form in [
            ("key0", "node", "label", "string"), ("key1", "node", "pos", "vector_float"),
            ("key2", "node", "age", "short"), ("key3", "edge", "weight", "double"),
            ("key4", "edge", "latency", "long_double"),
            ("key5", "node", "blob", "python_object"),
        ]
    )  # fmt: skip
    nodes = "".join(
        f'<node id="n{i}"><data key="key0">{name}</data><data key="key1">0x1p+{i}, 0x1.8p+1</data>'
        f'<data key="key2">{i}</data><data key="key5">gASVBAAAAAAAAABLAS4=</data></node>'
        for i, name in enumerate(("Turku", "Oulu"))
    )
    text = (
        f'<?xml version="1.0" encoding="UTF-8"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">{keys}'
        '<graph id="G" edgedefault="undirected" parse.nodeids="canonical" parse.edgeids="canonical" '
        f'parse.order="nodesfirst">{nodes}<edge id="e0" source="n0" target="n1">'
        '<data key="key3">0x1.8p+1</data><data key="key4">0x1p-3</data></edge></graph></graphml>'
    )
    graph = topologies.read(write(tmp_path, "g.graphml", text))
    assert graph["n0"]["n1"] == {"weight": 3.0, "latency": 0.125, "id": "e0"}
    assert graph.nodes["n1"]["age"] == 1
    assert "names from label; weight 3; latency on 1 of 1 links" in summary(graph)
    assert summary(graph).endswith("drawn by pos; ignored: age on nodes, blob on nodes")
    assert find_coordinates(graph).places == {"n0": (1, 3), "n1": (2, 3)}


class Trap:
    def __reduce__(self):
        return exec, ("raise AssertionError('unpickled')",)


def write_gt(graph, order="<", nodes=(), links=()):
    """Write the binary format of graph-tool after its specification; nodes and links: (name, type, values)."""
    number = {node: i for i, node in enumerate(graph)}
    count = lambda value: struct.pack(f"{order}Q", value)  # noqa: E731
    text = lambda value: count(len(value)) + value  # noqa: E731
    kind = next(kind for kind, limit in zip("BHIQ", (2**8, 2**16, 2**32, 2**64), strict=True) if len(graph) < limit)

    def value(form, content):
        if form in (6, 14):
            return text(content.encode() if form == 6 else pickle.dumps(content))
        if form == 5:
            fraction, exponent = np.frexp(content)
            parts = struct.pack("<QHxxxxxx", int(abs(fraction) * 2**64), int(exponent) + 16382 + (content < 0) * 2**15)
            return parts if order == "<" else parts[::-1]
        if form > 6:
            return count(len(content)) + b"".join(value(form - 7, part) for part in content)
        return struct.pack(order + "Bhiqd"[form], content)

    parts = [b"\xe2\x9b\xbe gt\x01", bytes([order == ">"]), text(b"a comment"), bytes([graph.is_directed()])]
    parts.append(count(len(graph)))
    ends = {node: [] for node in graph}
    for u, v in graph.edges:
        ends[u].append(number[v])
    for listed in ends.values():
        parts.append(count(len(listed)) + struct.pack(f"{order}{len(listed)}{kind}", *listed))
    properties = [(0, "description", 6, ["words"]), *((1, *one) for one in nodes), *((2, *one) for one in links)]
    parts.append(count(len(properties)))
    for key, name, form, values in properties:
        parts += [bytes([key]), text(name.encode()), bytes([form]), *(value(form, content) for content in values)]
    return b"".join(parts)


@pytest.mark.parametrize("order", "<>")
def test_binary_files_of_graph_tool(order, tmp_path):
    numbers = [0.5 + i for i in range(34)]
    nodes = [("label", 6, [f"Jäsen {i}" for i in range(34)]), ("pos", 11, [(1.5 * i, -i) for i in range(34)]),
             ("club", 0, [i % 2 for i in range(34)]), ("blob", 14, [Trap()] * 34), ("words", 13, [("a", "é")] * 34),
             ("speed", 5, [number * 10 ** (i - 17) for i, number in enumerate(numbers)])]  # fmt: skip
    links = [("weight", 4, [KARATE.edges[link]["weight"] / 3 for link in KARATE.edges]),
             ("latency", 2, range(78)), ("bandwidth", 3, [10**15] * 78), ("days", 8, [(-5, 7)] * 78),
             ("small", 1, [-3] * 78)]  # fmt: skip
    graph = topologies.read(write(tmp_path, "g.gt", write_gt(KARATE, order, nodes, links)))
    scaled = KARATE.copy()
    for *_, data in scaled.edges(data=True):
        data["weight"] /= 3
    assert arrays_of(graph) == arrays_of(scaled)
    assert list(topologies.name_nodes(graph).values()) == [f"Jäsen {i}" for i in range(34)]
    assert [graph.nodes[i]["speed"] for i in graph] == pytest.approx(nodes[-1][2], rel=1e-15)
    assert graph.nodes[3]["club"] is True and graph.nodes[3]["words"] == ["a", "é"]
    first = next(iter(KARATE.edges))
    assert graph.edges[first] == {"weight": KARATE.edges[first]["weight"] / 3, "latency": 0, "bandwidth": 10**15,
                                  "days": [-5, 7], "small": -3}  # fmt: skip
    assert find_coordinates(graph).places == {i: (1.5 * i, -i) for i in range(34)}
    ignored = "club on nodes, words on nodes, days on links, small on links, description of the graph, blob on nodes"
    assert summary(graph).endswith(f"drawn by pos; ignored: {ignored} (Python objects)")


def test_a_binary_file_of_graph_tool_by_hand(tmp_path):
    content = (
        b"\xe2\x9b\xbe gt\x01\x00" + b"\0" * 8 + b"\x01\x03" + b"\0" * 7  # directed, three nodes
        + b"\x01" + b"\0" * 7 + b"\x01" + b"\x02" + b"\0" * 7 + b"\x00\x02" + b"\0" * 8  # 0 to 1, 1 to 0 and to 2
        + b"\x01" + b"\0" * 7 + b"\x02\x06" + b"\0" * 7 + b"weight\x01\x02\0\x04\0\x07\0"
    )  # fmt: skip
    path = write(tmp_path, "g.gt", content)
    with pytest.raises(GraphError, match="is directed"):
        topologies.read(path)
    assert weights_of(topologies.read(path, directed="union")) == {(0, 1): 3, (1, 2): 7}
    assert weights_of(topologies.read(path, directed="mutual", isolated=["2"])) == {(0, 1): 3}


@pytest.mark.parametrize("n", [255, 256, 300])
def test_node_numbers_of_graph_tool_have_the_width_that_the_number_of_nodes_requires(n, tmp_path):
    content = write_gt(nx.cycle_graph(n))
    # NetworKit writes no properties, not even that there are none.
    end = content.index(b"\x01" + b"\0" * 8 + b"\x0b" + b"\0" * 7 + b"description")
    for written in (content, content[:end]):
        graph = topologies.read(write(tmp_path, "g.gt.gz", gzip.compress(written)))
        assert arrays_of(graph) == arrays_of(nx.cycle_graph(n))


@given(st.integers(0, 500), st.binary(min_size=1, max_size=3))
def test_a_damaged_file_of_graph_tool_is_read_or_rejected(place, damage):
    content = bytearray(
        write_gt(nx.path_graph(4), ">", [("pos", 11, [(i, i) for i in range(4)])], [("weight", 5, [1.5] * 3)])
    )
    place %= len(content)
    content[place : place + len(damage)] = damage
    with tempfile.TemporaryDirectory() as folder, suppress(GraphError):
        topologies.read(write(Path(folder), "g.gt", bytes(content)))


PAJEK = """% comment
*Network Finland
*Vertices 4
1 "Turku" 0.1 0.2 0.5 ellipse
2 "Oulu" 0.3 0.9 0.5 ellipse
3 "Oulu" 0.5 0.5 0.5 ellipse
"""


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        ("*Edges\n1 2 2.5\n2 3 c Blue\n3 4\n", {(1, 2): 2.5, (2, 3): 1, (3, 4): 1}),
        ("*Edgeslist\n1 2 3\n3 4\n", {(1, 2): 1, (1, 3): 1, (3, 4): 1}),
        ("*Matrix\n0 1 0 0\n1 0 2 0\n0 2 0 3\n0 0 3 0\n", {(1, 2): 1, (2, 3): 2, (3, 4): 3}),
        ('*Edges :1 "friends"\n1 2\n2 3\n3 4\n', {(1, 2): 1, (2, 3): 1, (3, 4): 1}),
    ],
)
def test_pajek_networks_with_equal_labels_and_nodes_without_a_line(links, expected, tmp_path):
    graph = topologies.read(write(tmp_path, "g.net", PAJEK + links))
    assert list(graph) == [1, 2, 3, 4]
    assert weights_of(graph) == expected
    assert graph.nodes[2]["label"] == "Oulu"
    assert graph.nodes[2]["y"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("g.net", PAJEK + "*Edges\n1 5\n", "line 8: the node is '5'; expected a whole number from 1 to 4"),
        ("g.net", PAJEK + "*Edges\n1 2\n1 2\n", "more than once"),
        ("g.net", PAJEK + "*Arcs\n1 2\n2 3\n", "is directed"),
        ("g.net", PAJEK + "*Matrix\n0 1\n", "expected 4 rows and columns"),
        ("g.net", PAJEK + "*Matrix\n0 1 0 0\n0 0 1 0\n0 0 0 1\n1 0 0 0\n", "is directed"),
        ("g.net", PAJEK + "*Edges\n1 2 1 [1-3]\n", "Remove the times"),
        ("g.net", PAJEK + "*Partition a\n1\n", r"\*partition; expected Vertices"),
        ("g.net", "*Vertices 2\n*Edges\n1 2\n*Vertices 3\n", "expected one network"),
        ("g.net", "*Edges\n1 2\n", r"before \*Vertices"),
        ("g.net", "*Vertices 99999999999999999999\n", "the number of nodes is"),
        ("g.net", "1 2\n", r"expected \*Vertices"),
        ("g.gml", "graph [ node [ id 1 label \"a\" label \"b\" ] node [ id 2 ] edge [ source 1 target 2 ] ]",
         "has 'label' more than once"),
        ("g.gml", "graph [ node [ id 1 ] node [ id 2 ] edge [ source 1 target 3 ] ]", "undefined target 3"),
        ("g.gml", "graph [ directed 1 node [ id 1 ] node [ id 2 ] edge [ source 1 target 2 ] ]", "is directed"),
        ("g.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 99999999999\n1 2 1\n", "declares 99999999999"),
        ("g.mtx", "%%MatrixMarket matrix coordinate real general\n9999999 9999999 1\n1 2 1\n", "most nodes are"),
        ("g.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 1\n", "is not symmetric"),
        ("g.mtx", "%%MatrixMarket matrix coordinate real symmetric\n2 2 2\n2 1 1\n2 1 1\n", "an entry more than once"),
        ("g.mtx", "%%MatrixMarket matrix coordinate real symmetric\n2 2 2\n2 1 1\n2 2 1\n", "has a link to itself"),
        ("g.mtx", "%%MatrixMarket matrix coordinate real general\n2 3 1\n1 2 1\n", "an adjacency matrix is square"),
        ("g.txt.gz", b"not gzip", "cannot be read as .txt"),
        ("g.csv.gz", gzip.compress(b"a,b\na,b\n", mtime=0), "is in line 1 already"),
    ],
)  # fmt: skip
def test_invalid_files_are_refused(name, text, message, tmp_path):
    with pytest.raises(GraphError, match=message):
        topologies.read(write(tmp_path, name, text))


def test_stored_zeros_of_a_matrix_are_counted(tmp_path):
    text = "%%MatrixMarket matrix coordinate real symmetric\n3 3 3\n2 1 1\n3 2 1\n3 1 0\n"
    graph = topologies.read(write(tmp_path, "g.mtx", text))
    assert sorted(graph.edges) == [(0, 1), (1, 2)]
    assert "; 2 stored zeros are ignored" in summary(graph)


def test_text_in_other_encodings(tmp_path):
    for coding in ("utf-8-sig", "utf-16", "cp1252"):
        graph = topologies.read(write(tmp_path, "g.csv", "Jyväskylä;Åbo\nÅbo;Oulu\n".encode(coding)))
        assert list(graph) == ["Jyväskylä", "Oulu", "Åbo"]
        assert ("text in cp1252, not UTF-8" in summary(graph)) == (coding == "cp1252")


# --- edge lists: both directions, times, columns, isolated nodes ---


def test_both_directions_of_an_edge_list_are_merged(tmp_path):
    text = "# Directed graph (each pair is saved once): x.txt\n# FromNodeId\tToNodeId\n0\t1\n1\t0\n1\t2\n"
    graph = topologies.read(write(tmp_path, "snap.txt", text))
    assert sorted(graph.edges) == [("0", "1"), ("1", "2")]
    assert "both directions of 1 of 2 links are listed, and merged" in summary(graph)


@pytest.mark.parametrize(
    ("text", "links", "ignored", "repeated"),
    [
        # SNAP: seconds since 1970; a repeated link.
        ("1 2 1217567877\n2 3 1217573801\n1 2 1217606247\n", ["12", "23"], "column 3", 1),
        ("1 2 1217567877000\n2 3 1217573801000\n", ["12", "23"], "column 3", 0),
        # SNAP: seconds since the first contact.
        ("5 6 0\n7 8 2797\n6 7 3304\n", ["56", "67", "78"], "column 3", 0),
        ("1 2 5\n2 3 7\n2 1 9\n1 2 12\n", ["12", "23"], "column 3", 1),
        ("a,b,2024-01-05\nb,c,2024-02-07 10:30\n", ["ab", "bc"], "column 3", 0),
        # KONECT: weight and time.
        ("% sym weighted\n1 2 3 1217567877\n2 3 4 1217573801\n", ["12", "23"], "column 4", 0),
        ("source,target,timestamp\n1,2,5\n2,3,4\n1,2,8\n", ["12", "23"], "column timestamp", 1),
    ],
)
def test_times_are_not_weights(text, links, ignored, repeated, tmp_path):
    graph = topologies.read(write(tmp_path, "g.txt", text))
    assert sorted("".join(sorted(link)) for link in graph.edges) == links
    assert f"ignored: times in {ignored}" in summary(graph)
    assert ("lines repeat a link" in summary(graph)) == bool(repeated)
    assert sorted(weights_of(graph).values()) == ([3, 4] if "weighted" in text else [1] * len(links))


@pytest.mark.parametrize("text", ["1 2 1\n2 3 2\n3 4 3\n", "1 2 1990\n2 3 2000\n", "1 2 0.5\n2 3 0.7\n"])
def test_weights_are_not_times(text, tmp_path):
    graph = topologies.read(write(tmp_path, "g.txt", text))
    assert sorted(weights_of(graph).values()) == [float(line.split()[2]) for line in text.strip().split("\n")]


def test_columns_with_names_at_any_place(tmp_path):
    text = "id;Weight;From Hospital;To Hospital;latency;km\n1;1,5;Turku;Oulu;5ms;600\n2;2;Oulu;Vaasa;;320\n"
    graph = topologies.read(write(tmp_path, "g.csv", text))
    assert graph["Turku"]["Oulu"] == {"id": "1", "weight": 1.5, "latency": 0.005, "km": "600"}
    assert weights_of(graph) == {("Oulu", "Turku"): 1.5, ("Oulu", "Vaasa"): 2}
    assert "latency on 1 of 2 links (used with a link model)" in summary(graph)
    assert summary(graph).endswith("ignored: km on links")
    text = "Weight,ToNodeId,FromNodeId\n2,Turku,Oulu\n3,Oulu,Vaasa\n"
    assert sorted(topologies.read(write(tmp_path, "g.csv", text))) == ["Oulu", "Turku", "Vaasa"]
    graph = topologies.read(write(tmp_path, "g.csv", "clinic,partner\nTurku,Oulu\nOulu,Vaasa\n"))
    assert "line 1 has names of columns, and links are from clinic to partner" in summary(graph)


def test_isolated_nodes_are_added_to_edge_lists_and_checked_elsewhere(tmp_path):
    path = write(tmp_path, "g.csv", "a,b\nb,c\n")
    graph = topologies.read(path, isolated=["d", "e"])
    assert sorted(graph) == ["a", "b", "c", "d", "e"]
    assert "2 isolated: d, e" in summary(graph)
    with pytest.raises(GraphError, match="isolated contains 'a', which has links"):
        topologies.read(path, isolated=["a"])
    matrix = sparse.coo_array(([1.0, 1.0], ([0, 1], [1, 0])), shape=(4, 4))
    with pytest.raises(GraphError, match=r"2 isolated nodes: 2, 3\..*isolated=2\+3"):
        topologies.read(matrix)
    with pytest.raises(GraphError, match="'7', which is not a node"):
        topologies.read(matrix, isolated=[7])
    assert len(topologies.read(matrix, isolated=[2, "3"])) == len(topologies.read(matrix, isolated=True)) == 4
    for wrong in ("d", 3):
        with pytest.raises(GraphError, match="expected True, False or a list"):
            topologies.read(path, isolated=wrong)


# --- directed graphs ---


ARCS = [(0, 1, 2.0), (1, 0, 4.0), (1, 2, 3.0), (3, 2, 5.0), (2, 3, 5.0)]


@pytest.fixture
def directed(tmp_path):
    graph = nx.DiGraph()
    graph.add_weighted_edges_from(ARCS)
    matrix = nx.to_scipy_sparse_array(graph)
    nx.write_gml(graph, tmp_path / "g.gml")
    nx.write_pajek(graph, str(tmp_path / "g.net"))
    nx.write_graphml(graph, tmp_path / "g.graphml")
    nx.write_gexf(graph, tmp_path / "g.gexf")
    scipy.io.mmwrite(str(tmp_path / "g.mtx"), matrix)
    nx.write_weighted_edgelist(graph, str(tmp_path / "g.edges"))
    files = [tmp_path / f"g.{suffix}" for suffix in ("gml", "net", "graphml", "gexf", "mtx", "edges")]
    return [graph, nx.MultiDiGraph(graph), matrix, matrix.toarray(), matrix.toarray().tolist(), *files]


def test_directed_graphs_are_refused_or_merged(directed):
    for source in directed:
        with pytest.raises(GraphError, match="directed=union"):
            topologies.read(source)
        for choice, links in (("union", [3.0, 3.0, 5.0]), ("mutual", [3.0, 5.0])):
            graph = topologies.read(source, directed=choice)
            assert sorted(weights_of(graph).values()) == links
            assert f"directed={choice}: 5 directed, 2 in both directions, 1 of them with means" in summary(graph)
            assert ("1 in one direction are left out" in summary(graph)) == (choice == "mutual")
    with pytest.raises(GraphError, match="directed is 'both'; expected one of: refuse, union, mutual"):
        topologies.read(directed[0], directed="both")


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (nx.MultiDiGraph([(0, 1), (0, 1)]), "listed more than once"),
        (nx.DiGraph([(0, 0), (0, 1)]), "link to itself"),
        (nx.DiGraph([(0, 1, {"weight": -1}), (1, 0, {"weight": 3})]), "the weight of link 0 -> 1 is -1"),
        (nx.DiGraph([(0, 1, {"latency": "5 days"}), (1, 0, {"latency": 3})]), "'5 days' and 3; expected numbers"),
    ],
)
def test_invalid_directed_graphs(graph, message):
    with pytest.raises(GraphError, match=message):
        topologies.read(graph, directed="union")


@given(st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)).filter(lambda pair: pair[0] != pair[1]), min_size=1))
def test_union_and_mutual_are_the_sets_of_links(arcs):
    graph = nx.DiGraph(sorted(arcs))
    union = {frozenset(arc) for arc in topologies.read(graph, directed="union").edges}
    assert union == {frozenset(arc) for arc in arcs}
    mutual = {frozenset((u, v)) for u, v in arcs if (v, u) in arcs}
    if mutual:
        assert {frozenset(arc) for arc in topologies.read(graph, directed="mutual", isolated=True).edges} == mutual


# --- objects in simulate ---


@pytest.mark.slow
def test_simulate_takes_graphs_of_networkx_igraph_and_matrices():
    X, y = p2pkm.blobs(clusters=3, points=30, box=30, seed=0)
    shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(len(X), 34), labels=y)
    dense = nx.to_numpy_array(KARATE)
    graphs = [KARATE, nx.to_scipy_sparse_array(KARATE), dense, dense.tolist(), sparse.csr_matrix(dense)]
    with suppress(ImportError):
        import igraph

        graphs.append(igraph.Graph.from_networkx(KARATE))
    results = [p2pkm.simulate(p2pkm.GTVMin(3), graph, shards, rounds=3, baselines=False) for graph in graphs]
    for result in results[1:]:
        assert (result.centroids == results[0].centroids).all()
        assert (result.topology.weights == results[0].topology.weights).all()
    with pytest.raises(p2pkm.TopologyError, match="not symmetric"):
        p2pkm.simulate(p2pkm.GTVMin(3), np.triu(dense), shards, rounds=3)
    with pytest.raises(p2pkm.TopologyError, match="has the type list"):
        p2pkm.simulate(p2pkm.GTVMin(3), [1, 2], shards, rounds=3)


# --- keys of a file on the command line ---


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("file:a,b.csv", {"path": "a,b.csv"}),
        ("file:a,b.csv,directed=union", {"path": "a,b.csv", "directed": "union"}),
        ("file:x=1.csv,isolated=p+q,directed=mutual", {"path": "x=1.csv", "isolated": "p+q", "directed": "mutual"}),
    ],
)
def test_keys_after_the_path_of_a_graph(text, options):
    spec = parse(text, topologies.FAMILIES, "graph")
    assert spec.options == options
    assert parse(str(spec), topologies.FAMILIES, "graph") == spec


def test_a_file_whose_name_looks_like_keys_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "a,directed=union", "a b\n")
    assert parse("file:a,directed=union", topologies.FAMILIES, "graph").options == {"path": "a,directed=union"}
    with pytest.raises(p2pkm.ExperimentError, match="unknown key 'direct' of graph 'file'"):
        parse("file:b,direct=union", topologies.FAMILIES, "graph")


# --- units ---


@each(
    ("text", "attribute", "value"),
    [
        ("5ms", "latency", 0.005), ("0.2 s", "latency", 0.2), ("30us", "latency", 3e-5), ("1e2ns", "latency", 1e-7),
        ("7", "latency", 7.0), ("2 min", "latency", 120.0), ("5 Mbit", "latency", None),
        ("10Mbit", "bandwidth", 1.25e6), ("10 Mbit/s", "bandwidth", 1.25e6), ("10Mbps", "bandwidth", 1.25e6),
        ("1Gb", "access", 1.25e8), ("2GB/s", "access", 2e9), ("1.5 MBps", "access", 1.5e6), ("1KiB", "access", 1024.0),
        ("1Kibit", "access", 128.0), ("800", "bandwidth", 800.0), ("10M", "bandwidth", None), ("fast", "access", None),
        ("10Gflops", "speed", 1e10), ("3 GFLOP/s", "speed", 3e9), ("5ms", "speed", None),
    ],
)  # fmt: skip
def test_quantities(text, attribute, value):
    assert parse_quantity(text, attribute) == value


def test_link_models_read_units_of_files_and_objects(tmp_path):
    text = "source,target,latency,bandwidth\na,b,5ms,10Mbit\nb,c,0.2,\n"
    graph = topologies.read(write(tmp_path, "g.csv", text))
    topology = p2pkm.Topology.from_graph(graph)
    net = LinkModel.lan().place(topology, graph)
    assert net.latency.tolist() == [0.005, 0.005, 0.2, 0.2]
    assert net.bandwidth.tolist() == [1.25e6, 1.25e6, np.inf, np.inf]
    graph = nx.Graph([("a", "b", {"latency": "5ms"})])
    assert LinkModel.lan().place(p2pkm.Topology.from_graph(graph), graph).latency.tolist() == [0.005, 0.005]
    graph["a"]["b"]["latency"] = "5 parsec"
    with pytest.raises(p2pkm.TopologyError, match=r"'5 parsec'; expected .* a text with a unit such as 5ms"):
        LinkModel.lan().place(p2pkm.Topology.from_graph(graph), graph)


# --- coordinates ---


def placed(attributes, places):
    graph = nx.path_graph(["a", "b", "c"])
    for node, place in zip("abc", places, strict=True):
        graph.nodes[node].update(dict(zip(attributes, place, strict=True)))
    return graph


@pytest.mark.parametrize("names", [("Longitude", "Latitude"), ("lon", "lat"), ("lng", "lat")])
def test_geographic_coordinates_are_the_layout(names):
    topology = p2pkm.Topology.from_graph(placed(names, [(22.3, 60.0), (25.5, "65"), (21.6, 55.0)]))
    expected = np.column_stack((np.array([22.3, 25.5, 21.6]) * 0.5, [60, 65, 55]))
    assert np.allclose(place_devices(topology), expected)


@each("form", [list, tuple, np.array, "{0[0]},{0[1]}".format, "({0[0]}, {0[1]}, 7)".format,
                                  "{0[0]} {0[1]}!".format], ids=range(6))  # fmt: skip
def test_positions_in_one_attribute_are_the_layout(form):
    expected = [(0.5, 1), (-5, 2e3), (3, 3)]
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, dict(enumerate(map(form, expected))), "Pos")
    read = topologies.read(graph)
    assert place_devices(p2pkm.Topology.from_graph(read)).tolist() == [list(place) for place in expected]
    assert summary(read).endswith("drawn by Pos")


@pytest.mark.parametrize("suffix", ["gml", "graphml", "gexf"])
def test_positions_in_files_of_networkx(suffix, tmp_path):
    graph = nx.path_graph(3)
    expected = {0: (0.5, 1.25), 1: (-5.0, 2.0), 2: (3.5, 3.0)}
    for node, (x, y) in expected.items():
        values = {"viz": {"position": {"x": x, "y": y, "z": 0.0}, "size": 3.0}} if suffix == "gexf" else {
            "pos": f"{x},{y}" if suffix == "graphml" else [x, y]}  # fmt: skip
        graph.nodes[node].update(values)
    WRITERS[suffix](graph, str(tmp_path / f"g.{suffix}"))
    read = topologies.read(tmp_path / f"g.{suffix}")
    assert list(find_coordinates(read).places.values()) == list(expected.values())
    assert summary(read).endswith("drawn by viz:position" if suffix == "gexf" else "drawn by pos")


@pytest.mark.parametrize("suffix", ["gml", "graphml"])
def test_positions_in_files_of_igraph(suffix, tmp_path):
    igraph = pytest.importorskip("igraph")
    graph = igraph.Graph.Ring(4)
    graph.vs["pos"] = ["1,2", "3,4.5", "-1,0", "0,0"]
    graph.write(str(tmp_path / f"g.{suffix}"), format=suffix)
    read = topologies.read(tmp_path / f"g.{suffix}")
    assert list(find_coordinates(read).places.values()) == [(1, 2), (3, 4.5), (-1, 0), (0, 0)]


@pytest.mark.parametrize(
    ("places", "note"),
    [
        (["1,2", "3", "4,5"], "pos does not place the nodes: 1 of 3 nodes have none"),
        (["noun", "verb", "noun"], "ignored: pos on nodes"),
        ([[1, 2, 3, 4]] * 3, "ignored: pos on nodes"),
        ([(1, 2)] * 3, "pos does not place the nodes: they are equal"),
    ],
)
def test_positions_that_cannot_be_used_are_named(places, note):
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, dict(enumerate(places)), "pos")
    read = topologies.read(graph)
    assert note in summary(read)
    assert p2pkm.Topology.from_graph(read).places is None


def test_degrees_have_precedence_over_positions():
    graph = placed(("lon", "lat"), [(0, 0), (1, 0), (0, 1)])
    nx.set_node_attributes(graph, {"a": (9, 9), "b": (8, 8), "c": (7, 7)}, "pos")
    assert find_coordinates(graph).attributes == ("lon", "lat")


def test_coordinates_follow_the_order_of_the_devices_and_are_saved(tmp_path):
    graph = placed(("x", "y"), [(0, 1), (5, 2), (3, 3)])
    X, _ = p2pkm.blobs(clusters=2, points=9, box=9, seed=0)
    device = np.array(["c", "b", "a"])[p2pkm.partition.iid(len(X), 3)]
    result = p2pkm.simulate(p2pkm.GTVMin(2), graph, p2pkm.Shards.deal(X, device), rounds=2, baselines=False)
    by_name = dict(zip(result.topology.names, place_devices(result.topology).tolist(), strict=True))
    assert by_name == {"a": [0, 1], "b": [5, 2], "c": [3, 3]}
    named = p2pkm.Topology.from_graph(graph).call(("c", "a", "b"))
    assert place_devices(named).tolist() == [[3, 3], [0, 1], [5, 2]]
    loaded = p2pkm.load(result.save(tmp_path / "run"))
    assert (place_devices(loaded.topology) == place_devices(result.topology)).all()
    copy = p2pkm.Topology.from_arrays(result.topology.to_arrays())
    assert (copy.places == result.topology.places).all()


@pytest.mark.parametrize(
    ("places", "reason"),
    [
        ([(1, 1), (2, 2), (None, 3)], "1 of 3 nodes have none"),
        ([(1, 1), (2, 2), (3, 91)], "they are not degrees"),
        ([(1, 1), (1, 1), (1, 1)], "they are equal"),
        ([(1, 1), (2, 2), ("nan", 3)], "1 of 3 nodes have none"),
    ],
)
def test_coordinates_that_cannot_be_used_are_named(places, reason):
    graph = topologies.read(placed(("lon", "lat"), places))
    assert f"lon and lat do not place the nodes: {reason}" in summary(graph)
    assert p2pkm.Topology.from_graph(graph).places is None


def test_devices_at_one_place_are_separated():
    topology = p2pkm.Topology.from_graph(placed(("x", "y"), [(0, 0), (0, 0), (10, 0)]))
    places = place_devices(topology)
    assert places[2].tolist() == [10, 0]
    assert 0.1 < np.abs(places[0] - places[1]).sum() < 1
