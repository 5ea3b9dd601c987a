"""The graph families against their definitions, and the readers against files that networkx and scipy wrote."""

import json
import math
import subprocess
import sys
import typing

import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

import p2pkm
import topologies
from tests.support.each import each
from topologies import GraphError

RANDOM = ["small-world", "random-regular", "erdos-renyi", "barabasi-albert", "communities", "powerlaw-cluster",
          "stochastic-block-model"]  # fmt: skip
FROM_ONE = ["ring", "path", "star", "complete", "tree", "grid", "torus", "barbell", "erdos-renyi"]


def edges(graph):
    return sorted(tuple(sorted(link)) for link in graph.edges)


def degrees(graph):
    return [degree for _, degree in sorted(graph.degree)]


@pytest.mark.parametrize("name", sorted(topologies.FAMILIES.keys() - topologies.FIXED))
@pytest.mark.parametrize("n", [8, 12, 16, 60])
def test_every_family_is_a_plain_connected_graph_of_n_devices(name, n):
    n = {"hypercube": 1 << n.bit_length(), "margulis": math.isqrt(n) ** 2}.get(name, n)
    graph = topologies.build(name, n)
    assert type(graph) is nx.Graph
    assert list(graph) == list(range(n))
    assert not [node for node in graph if type(node) is not int]
    assert nx.is_connected(graph)
    assert nx.number_of_selfloops(graph) == 0
    assert not any(attributes for _, _, attributes in graph.edges(data=True))
    topologies.check(graph)


@pytest.mark.parametrize("name", FROM_ONE)
@pytest.mark.parametrize(("n", "links"), [(1, 0), (2, 1)])
def test_the_smallest_sizes(name, n, links):
    options = {"p": 1.0} if name == "erdos-renyi" else {}
    assert topologies.build(name, n, **options).number_of_edges() == links


@each(
    ("name", "links"),
    [("ring", 3), ("path", 2), ("star", 2), ("complete", 3), ("grid", 2), ("torus", 3), ("barbell", 2)],
)
def test_three_devices(name, links):
    graph = topologies.build(name, 3)
    assert graph.number_of_edges() == links
    assert nx.is_connected(graph)


@pytest.mark.parametrize("n", [3, 4, 7, 10])
def test_closed_forms(n):
    ring, path, star, full = (topologies.build(name, n) for name in ("ring", "path", "star", "complete"))
    assert degrees(ring) == [2] * n and nx.diameter(ring) == n // 2
    assert edges(path) == [(i, i + 1) for i in range(n - 1)] and nx.diameter(path) == n - 1
    assert edges(star) == [(0, i) for i in range(1, n)] and nx.diameter(star) == 2
    assert degrees(full) == [n - 1] * n and full.number_of_edges() == n * (n - 1) // 2


def test_tree_parents():
    assert edges(topologies.tree(7)) == [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5), (2, 6)]
    assert edges(topologies.tree(6, branching=3)) == [(0, 1), (0, 2), (0, 3), (1, 4), (1, 5)]
    assert edges(topologies.tree(5, branching=1)) == edges(topologies.path(5))


@given(n=st.integers(1, 80), branching=st.integers(1, 6))
def test_a_tree_is_a_tree(n, branching):
    graph = topologies.tree(n, branching=branching)
    assert nx.is_tree(graph)
    assert not [node for node in graph if not sum(other > node for other in graph[node]) <= branching]


@given(rows=st.integers(1, 9), columns=st.integers(1, 9))
def test_grid_and_torus_against_their_products(rows, columns):
    n = rows * columns
    place = {(r, c): r * columns + c for r in range(rows) for c in range(columns)}
    grid = topologies.grid(n, rows=rows)
    assert edges(grid) == edges(nx.relabel_nodes(nx.grid_2d_graph(rows, columns), place))
    assert grid.number_of_edges() == rows * (columns - 1) + columns * (rows - 1)
    assert nx.diameter(grid) == rows + columns - 2
    torus = topologies.torus(n, rows=rows)
    product = nx.cartesian_product(topologies.ring(rows), topologies.ring(columns))
    assert edges(torus) == edges(nx.relabel_nodes(product, place))
    assert nx.diameter(torus) == rows // 2 + columns // 2
    if min(rows, columns) > 2:
        assert degrees(torus) == [4] * n


def test_grid_takes_the_most_square_divisor():
    assert edges(topologies.grid(12)) == edges(topologies.grid(12, rows=3))
    assert nx.diameter(topologies.grid(16)) == 6
    assert edges(topologies.grid(7, rows=1)) == edges(topologies.path(7))


def test_barbell():
    assert nx.is_isomorphic(topologies.barbell(8), nx.barbell_graph(4, 0))
    assert nx.is_isomorphic(topologies.barbell(9), nx.barbell_graph(4, 1))
    assert degrees(topologies.barbell(9))[4] == 2
    assert nx.diameter(topologies.barbell(8)) == 3 and nx.diameter(topologies.barbell(9)) == 4


def test_caveman():
    assert edges(topologies.caveman(20)) == edges(nx.connected_caveman_graph(5, 4))
    graph = topologies.caveman(60, size=6)
    assert edges(graph) == edges(nx.connected_caveman_graph(10, 6))
    assert graph.number_of_edges() == 60 * 5 // 2


def test_karate():
    plain, weighted = topologies.karate(), topologies.karate(34, weighted=True)
    assert (len(plain), plain.number_of_edges(), nx.diameter(plain)) == (34, 78, 5)
    assert not any(attributes for _, _, attributes in plain.edges(data=True))
    assert weighted[0][1]["weight"] == 4
    with pytest.raises(GraphError, match=r"karate has 34 devices, but 16 were requested\. Request 34"):
        topologies.karate(16)


@pytest.mark.parametrize("degree", [2, 3, 4, 9, 15])
def test_random_regular_degrees(degree):
    assert degrees(topologies.random_regular(16, degree=degree)) == [degree] * 16


def test_random_regular_is_quick_near_the_complete_graph():  # the plain draw takes four minutes here
    assert degrees(topologies.random_regular(64, degree=60)) == [60] * 64
    assert topologies.random_regular(2, degree=1).number_of_edges() == 1


def test_small_world():
    lattice = topologies.small_world(20, degree=4, rewire=0.0)
    assert edges(lattice) == edges(nx.circulant_graph(20, [1, 2]))
    assert edges(topologies.small_world(9, degree=2, rewire=0)) == edges(topologies.ring(9))
    moved = topologies.small_world(20, degree=4, rewire=1.0)
    assert moved.number_of_edges() == 40 and edges(moved) != edges(lattice)


def test_barabasi_albert_and_erdos_renyi_edges():
    assert topologies.barabasi_albert(50, m=3).number_of_edges() == 3 * 47
    assert edges(topologies.erdos_renyi(9, p=1)) == edges(topologies.complete(9))
    count = topologies.erdos_renyi(200, p=0.3).number_of_edges()
    assert abs(count - 0.3 * 19900) < 5 * (19900 * 0.21) ** 0.5


@each(("n", "bridges"), [(2, 1), (3, 2), (16, 1), (16, 4), (16, 64), (41, 7)])
def test_communities(n, bridges):
    graph = topologies.communities(n, bridges=bridges, seed=n)
    first = range((n + 1) // 2)
    halves = graph.subgraph(first), graph.subgraph(range(len(first), n))
    assert not [half for half in halves if not nx.is_connected(half)]
    assert graph.number_of_edges() == bridges + sum(half.number_of_edges() for half in halves)


def test_communities_are_drawn_alike():
    graphs = [topologies.communities(16, bridges=4, seed=seed) for seed in range(300)]
    inside = [graph.subgraph(half).number_of_edges() for graph in graphs for half in (range(8), range(8, 16))]
    assert abs(np.mean(inside) - 0.6 * 28) < 0.5
    table = np.array([[graph.has_edge(i, j) for i in range(8) for j in range(8, 16)] for graph in graphs]).sum(axis=0)
    assert abs(table - 300 * 4 / 64).max() < 5 * (300 * 4 / 64) ** 0.5
    assert all(edges(graph.subgraph(range(8))) != edges(nx.relabel_nodes(graph, lambda i: i - 8)) for graph in graphs)


@each("name", RANDOM)
def test_the_seed_alone_decides(name):
    first, again, other = (topologies.build(name, 40, seed=seed) for seed in (7, 7, 8))
    assert list(first.edges) == list(again.edges) == edges(first)
    assert edges(first) != edges(other)


def test_unconnected_draws_are_drawn_again():
    graphs = [topologies.erdos_renyi(30, p=0.1, seed=seed) for seed in range(20)]  # 1 draw in 4 is connected
    assert not [graph for graph in graphs if not nx.is_connected(graph)]


@each(
    ("name", "n", "options", "message"),
    [
        ("ring", 0, {}, r"ring: n is 0; expected a whole number, 1 or more"),
        ("path", -1, {}, r"path: n is -1"),
        ("star", 2.0, {}, r"star: n is 2.0; expected a whole number"),
        ("complete", None, {}, r"n is None"),
        ("complete", True, {}, r"n is True"),
        ("tree", 5, {"branching": 0}, r"branching is 0; expected a whole number, 1 or more"),
        ("grid", 7, {}, r"Use another number of devices, or set rows=1"),
        ("torus", 13, {}, r"Use another number of devices, or set rows=1"),
        ("grid", 12, {"rows": 5}, r"expected one of: 1, 2, 3, 4, 6, 12"),
        ("grid", 12, {"rows": 0}, r"rows is 0"),
        ("caveman", 10, {}, r"expected one of: 5, 10"),
        ("caveman", 10, {"size": 2}, r"size is 2; expected a whole number, 3 or more"),
        ("small-world", 4, {}, r"less than the number of devices, 4: the largest legal value is 2"),
        ("small-world", 1, {}, r"less than the number of devices, 1: no value is legal"),
        ("small-world", 10, {"degree": 3}, r"expected an even number: 2, 4, 6, 8"),
        ("small-world", 99, {"degree": 3}, r"expected an even number: 2, 4, 6, ..., 98"),
        ("small-world", 10, {"rewire": 1.5}, r"rewire is 1.5; expected a number from 0 to 1"),
        ("small-world", 10, {"degree": 0}, r"degree is 0"),
        ("margulis", 8, {}, r"the number of devices is 8; expected a square number\. Use 4 or 9"),
        ("random-regular", 4, {}, r"the largest legal value is 3"),
        ("random-regular", 7, {"degree": 3}, r"Use an even degree \(2, 4, 6\) or an even number of devices"),
        ("random-regular", 8, {"degree": 1}, r"expected 2 to 7 for 8 devices"),
        ("erdos-renyi", 8, {"p": -0.1}, r"p is -0.1; expected a number from 0 to 1"),
        ("erdos-renyi", 8, {"p": float("nan")}, r"p is nan"),
        ("erdos-renyi", 8, {"p": 1e-20}, r"none of 100 draws for 8 devices was connected\. Use a larger p"),
        ("erdos-renyi", 8, {"p": 0}, r"Use a larger p"),
        ("erdos-renyi", 8, {"seed": -1}, r"seed is -1"),
        ("communities", 1, {}, r"communities: n is 1; expected a whole number, 2 or more"),
        ("communities", 8, {"p": 2}, r"communities: p is 2; expected a number from 0 to 1"),
        ("communities", 8, {"p": 0.0}, r"communities: none of 100 draws for 4 devices was connected\. Use a larger p"),
        ("communities", 5, {"bridges": 7}, r"bridges is 7; expected at most 6, the number of pairs"),
        ("communities", 5, {"bridges": 0}, r"bridges is 0"),
        ("barabasi-albert", 2, {}, r"the largest legal value is 1"),
        ("barabasi-albert", 5, {"m": 0}, r"m is 0"),
        ("rings", 5, {}, r"unknown graph 'rings'. Did you mean 'ring'"),
        ("ring", 5, {"degree": 2}, r"unknown option 'degree' of graph 'ring'. Known: none"),
        ("small-world", 9, {"degre": 2}, r"Did you mean 'degree'"),
        ("file", 5, {}, r"requires the option path="),
    ],
)
def test_refusals_name_the_remedy(name, n, options, message):
    with pytest.raises(GraphError, match=message):
        topologies.build(name, n, **options)


def test_build_takes_both_spellings_and_specs_find_the_keys():
    assert edges(topologies.build("small_world", 9, degree=2)) == edges(topologies.build("Small-World", 9, degree=2))
    for family in topologies.FAMILIES.values():
        typing.get_type_hints(family)


def test_import_costs_nearly_nothing():
    code = "import sys, topologies; sys.exit(bool({'numpy', 'networkx', 'scipy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- order and checks ---


@each(
    "labels",
    [
        [f"n{i}" for i in range(12)],
        [f"{i}.0" for i in range(12)],
        list(range(12)),
        [2, "9", 10],
        [1.5, 9, 10],
        ["-10", "-1", "0", "3"],
        ["-1.5", "-0.25", "0", "1.5", "10.25"],
        ["9", "10", "b"],
        ["007", "07", "7", "8", "010"],
        ["a1b9", "a1b10", "a2", "a10b1"],
        ["10.0.0.2", "10.0.0.10", "10.0.1.1"],
        ["Aho 2", "Zürich 2", "Zürich 10", "Éire"],
        [(0, 2), (0, 10), (2, 0)],
        ["9" * 30, "1" + "0" * 30],
        ["n" + "9" * 5000, "n1" + "0" * 5000],
        ["a", "a1", "a1b", "b"],
    ],
)
def test_nodes_are_in_natural_order_whatever_the_order_in_the_graph(labels):
    shuffled = [labels[i] for i in np.random.default_rng(1).permutation(len(labels))]
    graph = nx.Graph()
    graph.add_nodes_from(shuffled)
    assert topologies.sort_nodes(graph) == labels
    graph = nx.relabel_nodes(nx.path_graph(len(labels)), dict(enumerate(shuffled)))
    assert topologies.CSRGraph.from_networkx(graph).to_networkx().number_of_edges() == len(labels) - 1
    built = p2pkm.Topology.from_graph(graph)
    for i, label in enumerate(labels):  # device i is node i of the natural order
        assert [labels[j] for j in built.indices[built.indptr[i] : built.indptr[i + 1]]] == sorted(
            graph[label], key=labels.index
        )


@each("weight", [0, -1, float("nan"), float("inf"), "3", None, True, 10**400])
def test_bad_weights(weight):
    graph = nx.path_graph(3)
    graph[1][2]["weight"] = weight
    with pytest.raises(GraphError, match=r"weight of link 1 - 2 is .*; expected a finite number above 0"):
        topologies.check(graph)


def test_check():
    graph = nx.path_graph(3)
    graph[0][1]["weight"] = np.float32(2)
    graph[1][2]["weight"] = np.int64(2)
    topologies.check(graph)
    topologies.check(nx.MultiGraph(graph))
    with pytest.raises(GraphError, match=r"penalty between neighbors is symmetric.*graph\.to_undirected"):
        topologies.check(nx.DiGraph(graph))
    with pytest.raises(GraphError, match=r"nodes 0 and 1 are linked more than once\. Merge such links: parallel=sum"):
        topologies.check(nx.MultiGraph([(0, 1), (1, 0)]))
    with pytest.raises(GraphError, match=r"node 4 has a link to itself\. Remove it, or all such links: .*loops=drop"):
        topologies.check(nx.Graph([(0, 1), (4, 4)]))
    with pytest.raises(GraphError, match=r"graph has the type list; expected a networkx\.Graph"):
        topologies.check([(0, 1)])
    with pytest.raises(
        GraphError, match=r"graph has the type str; expected .*, such as topologies\.build\('ring', 8\)"
    ):
        topologies.show("ring")


# --- files ---


def write(graph, path):
    suffix = path.suffix
    if suffix == ".graphml":
        nx.write_graphml(graph, path)
    elif suffix == ".gexf":
        nx.write_gexf(graph, path)
    elif suffix == ".json":
        path.write_text(json.dumps(nx.node_link_data(graph, edges="edges")))
    elif suffix == ".npz":
        sparse.save_npz(path, nx.to_scipy_sparse_array(graph, nodelist=sorted(graph), dtype=float))
    else:
        mark = {".csv": ",", ".tsv": "\t"}.get(suffix, " ")
        nx.write_weighted_edgelist(graph, path, delimiter=mark)
    return path


@pytest.mark.parametrize(
    "suffix", [".graphml", ".gexf", ".json", ".npz", ".edgelist", ".edges", ".txt", ".csv", ".tsv"]
)
def test_round_trip(suffix, tmp_path):
    graph = topologies.karate(weighted=True)
    shuffled = nx.Graph()
    shuffled.add_nodes_from(reversed(list(graph.nodes(data=True))))
    shuffled.add_edges_from(graph.edges(data=True))
    back = topologies.read(write(shuffled, tmp_path / f"karate{suffix}"))
    assert type(back) is nx.Graph
    assert [int(node) for node in back] == list(range(34))
    links = {(int(u), int(v)): weight for u, v, weight in back.edges(data="weight")}
    assert {tuple(sorted(link)): weight for link, weight in links.items()} == {
        tuple(sorted((u, v))): weight for u, v, weight in graph.edges(data="weight")
    }
    assert edges(topologies.build("file", 34, path=str(tmp_path / f"karate{suffix}"))) == edges(back)
    with pytest.raises(GraphError, match="has 34 devices, but 5 were requested"):
        topologies.file(5, path=str(tmp_path / f"karate{suffix}"))


@given(links=st.sets(st.tuples(st.integers(0, 30), st.integers(31, 60)), min_size=1), mark=st.sampled_from(", \t"))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_edge_list_round_trip(links, mark, tmp_path):
    graph = nx.Graph(links)
    nx.write_edgelist(graph, tmp_path / "g.txt", delimiter=mark, data=False)
    back = topologies.read(tmp_path / "g.txt")
    assert edges(nx.relabel_nodes(back, int)) == edges(graph)
    assert list(back) == [str(node) for node in sorted(graph)]


@pytest.mark.parametrize(
    "text",
    [
        "a b\nb c\n",
        "# list\n\nsource,target\na,b  # first\nb , c\n",
        "SRC\tDST\na\tb\nb\tc",
        "from to weight\na b 1\nb c 1.0",
        '"a","b"\n"b",c\n',
        "a b {}\nb c {'weight': 1, 'kind': 'x'}\n",
        "\ufeffu v\r\na b\r\nb c\r\n",
    ],
)
def test_edge_list_dialects(text, tmp_path):
    file = tmp_path / "g.edges"
    file.write_bytes(text.encode())
    graph = topologies.read(file)
    assert edges(graph) == [("a", "b"), ("b", "c")]
    assert not [(u, v, weight) for u, v, weight in graph.edges(data="weight", default=1) if weight != 1]


def test_labels_may_hold_blanks_and_other_attributes_are_kept(tmp_path):
    (tmp_path / "g.csv").write_text('New York,Rome,2\n"Bern, old",Rome,3\n')
    assert topologies.read(tmp_path / "g.csv")["Bern, old"]["Rome"]["weight"] == 3
    graph = nx.path_graph(3)
    graph[0][1]["color"] = "red"
    assert topologies.read(write(graph, tmp_path / "g.graphml"))["0"]["1"]["color"] == "red"


@pytest.mark.parametrize(
    ("suffix", "text", "message"),
    [
        (".txt", "", "is empty"),
        (".txt", "# nothing\n", "contains no nodes and no links"),
        (".txt", "0 1\n1\n", r"line 2: got \['1'\]; expected two labels"),
        (".csv", "0,1\n1,\n", "line 2: got"),
        (".txt", "0 1 2 3\n", "expected two labels and, optionally, a weight"),
        (".txt", "0 1\n0 1\n", r"line 2: link '0' - '1' is in line 1 already\. Merge such links"),
        (".txt", "0 1 x\n", "line 1: the weight is 'x'; expected a finite number above 0"),
        (".txt", "0 1 {'weight': 'x'}\n", "weight of link '0' - '1' is 'x'"),
        (".txt", "0 1 nan\n", "weight of link '0' - '1' is nan"),
        (".txt", "0 1 -2\n", "weight of link '0' - '1' is -2.0"),
        (".txt", "0 1\n1 1\n", "node '1' has a link to itself"),
        (".csv", "source,target,distance,distance\n0,1,4,5\n", "the column 'distance' more than once"),
        (".txt", b"\xff\x81\x00\x01", "cannot be read as .txt: UnicodeDecodeError"),
        (".graphml", "<graphml", "cannot be read as .graphml"),
        (".graphml", "<a/>", "cannot be read as .graphml"),
        (".gexf", "<a/>", "cannot be read as .gexf: it has no <graph> element"),
        (".json", "{", "cannot be read as .json"),
        (".json", "[1]", "expected node-link JSON"),
        (".json", '{"nodes": [{"id": 1}, {"id": 2}]}', "expected node-link JSON"),
        (".json", '{"nodes": [{"id": 1}, {"id": 2}], "edges": []}', "lists 2 nodes, but no links"),
        (".json", '{"nodes": [{"id": 1}], "edges": [{"source": 1, "target": 3}]}', "list every node once"),
        (".npz", "PK", "cannot be read as .npz"),
        (".gml", "graph", "cannot be read as .gml"),
        (
            ".dot",
            "graph",
            "suffix '.dot'; expected one of: .graphml, .gexf, .gml, .gt, .json, .net, .paj, .mtx, .npz, .npy",
        ),
        (".graphml", '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "c">]><graphml>&b;</graphml>', "DOCTYPE"),
        (".gexf", '<!DOCTYPE gexf SYSTEM "x.dtd"><gexf/>', "DOCTYPE"),
        (".gexf", "<!DOCTYPE gexf []><gexf/>".encode("utf-16"), "DOCTYPE"),
    ],
)
def test_bad_files(suffix, text, message, tmp_path):
    file = tmp_path / f"bad{suffix}"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(GraphError, match=message):
        topologies.read(file)


def test_missing_and_large_files(tmp_path, monkeypatch):
    with pytest.raises(GraphError, match="is not a file; check the path"):
        topologies.read(tmp_path / "no.txt")
    (tmp_path / "g.txt").write_text("0 1\n")
    with pytest.raises(GraphError, match=r"Separate keys by a comma: file:.*g\.txt,directed=union"):
        topologies.read(f"{tmp_path}/g.txt:directed=union")
    with pytest.raises(GraphError, match="is not a file"):
        (tmp_path / "d.txt").mkdir()
        topologies.read(tmp_path / "d.txt")
    monkeypatch.setattr("topologies.io.LARGEST", 3)
    with pytest.raises(GraphError, match="has 4 bytes; expected at most 3"):
        topologies.read(tmp_path / "g.txt")


@pytest.mark.parametrize("suffix", [".graphml", ".gexf", ".json"])
def test_graphs_that_peers_cannot_use(suffix, tmp_path):
    file = tmp_path / f"g{suffix}"
    with pytest.raises(GraphError, match="the graph is directed; the penalty between neighbors is symmetric"):
        topologies.read(write(nx.DiGraph([(0, 1), (1, 0)]), file))
    with pytest.raises(GraphError, match="linked more than once"):
        topologies.read(write(nx.MultiGraph([(0, 1), (0, 1), (1, 2)]), file))
    with pytest.raises(GraphError, match=r"node '?2'? has a link to itself"):
        topologies.read(write(nx.Graph([(0, 1), (1, 2), (2, 2)]), file))
    with pytest.raises(GraphError, match=r"lists 3 nodes, but no links"):
        topologies.read(write(nx.empty_graph(3), file))
    lonely = nx.path_graph(2)
    lonely.add_nodes_from(range(2, 10))
    with pytest.raises(GraphError, match=r"has 8 isolated nodes: '?2'?, '?3'?, .*6'?, \.\.\.\. Connect or remove them"):
        topologies.read(write(lonely, file))
    with pytest.raises(GraphError, match=r"expected a finite number above 0"):
        topologies.read(write(nx.Graph([(0, 1, {"weight": -1.5})]), file))
    assert list(topologies.read(write(nx.empty_graph(1), file))) in ([0], ["0"])


def test_json_links_and_duplicates(tmp_path):
    file = tmp_path / "g.json"
    file.write_text(json.dumps(nx.node_link_data(nx.path_graph(3), edges="links")))
    assert edges(topologies.read(file)) == [(0, 1), (1, 2)]
    links = [{"source": 0, "target": 1}, {"source": 1, "target": 0}]
    file.write_text(json.dumps({"nodes": [{"id": 0}, {"id": 1}], "links": links}))
    with pytest.raises(GraphError, match="nodes 0 and 1 are linked more than once"):
        topologies.read(file)
    file.write_text(json.dumps({"nodes": [{"id": 0}, {"id": 1}], "links": links[:1], "edges": links[:1]}))
    with pytest.raises(GraphError, match="one of them"):
        topologies.read(file)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[0, 1, 0], [1, 0, 1]], r"shape \(2, 3\); an adjacency matrix is square"),
        ([[0, 1], [2, 0]], r"not symmetric; the penalty between neighbors is symmetric"),
        ([[0, np.nan], [np.nan, 0]], "NaN or infinite"),
        ([[0, -1], [-1, 0]], "weight of link 0 - 1 is -1.0"),
        ([[1, 1], [1, 0]], "node 0 has a link to itself"),
        ([[0, 1, 0], [1, 0, 0], [0, 0, 0]], "has 1 isolated nodes: 2"),
        ([[0, 1j], [1j, 0]], "expected real numbers"),
    ],
)
def test_bad_matrices(matrix, message, tmp_path):
    sparse.save_npz(tmp_path / "g.npz", sparse.csr_array(np.array(matrix)))
    with pytest.raises(GraphError, match=message):
        topologies.read(tmp_path / "g.npz")


def test_a_matrix_may_hold_each_link_once_and_more_nodes_than_links_can_reach_are_refused_at_once(
    tmp_path, monkeypatch
):
    """Four nodes in two pairs, of which one half of the matrix tells; with a fifth one some node has no link."""
    monkeypatch.setattr("topologies.io.matrices._FEW", 0)
    for n in (4, 5):
        pairs = sparse.csr_array(([1.0, 1.0], ([0, 2], [1, 3])), shape=(n, n))
        sparse.save_npz(tmp_path / "g.npz", pairs)
        with pytest.raises(GraphError, match="5 nodes, but only 2 values" if n == 5 else "not symmetric"):
            topologies.read(tmp_path / "g.npz")


def test_matrices_of_every_layout_and_damaged_ones(tmp_path):
    dense = np.array([[0, 2, 0], [2, 0, 1], [0, 1, 0]])
    for layout in (sparse.csr_matrix, sparse.csc_array, sparse.coo_array, sparse.bsr_array, sparse.dia_array):
        for kind in (float, np.int8, bool):
            sparse.save_npz(tmp_path / "g.npz", layout(dense.astype(kind)))
            graph = topologies.read(tmp_path / "g.npz")
            assert graph[0][1] == ({} if kind is bool else {"weight": 2})
            assert edges(graph) == [(0, 1), (1, 2)]
    np.savez(tmp_path / "g.npz", a=dense, b=dense)
    with pytest.raises(GraphError, match="has the arrays a, b; expected one matrix"):
        topologies.read(tmp_path / "g.npz")
    for part, values in (("indices", [10**6] * 4), ("indptr", [0, 3, 1, 4])):
        broken = sparse.csr_array(dense)
        getattr(broken, part)[:] = values
        sparse.save_npz(tmp_path / "g.npz", broken)
        with pytest.raises(GraphError, match=r"cannot be read as \.npz"):
            topologies.read(tmp_path / "g.npz")
