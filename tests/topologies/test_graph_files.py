"""Graph files: all that a file holds is in the graph, or the file is refused; and the line about what was read."""

import json

import networkx as nx
import numpy as np
import pytest
from scipy import sparse

import topologies
from topologies import GraphError

GRAPHML = '<?xml version="1.0"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
GEXF = '<?xml version="1.0"?><gexf xmlns="http://www.gexf.net/1.2draft" version="1.2">'


def graphml(body, keys="", kind="undirected"):
    return f'{GRAPHML}{keys}<graph edgedefault="{kind}">{body}</graph></graphml>'


def nodes(*names):
    return "".join(f'<node id="{name}"/>' for name in names)


def link(u, v, inside="", **more):
    extra = "".join(f' {name}="{value}"' for name, value in more.items())
    return f'<edge source="{u}" target="{v}"{extra}>{inside}</edge>'


def gexf(body, attributes="", mode=""):
    return f'{GEXF}<graph defaultedgetype="undirected"{mode}>{attributes}{body}</graph></gexf>'


def flat(names, links):
    """Return nodes and numbered links of a GEXF file; a link is (u, v) or (u, v, what is inside, XML attributes)."""
    listed = "".join(
        f'<edge id="{i}" source="{u}" target="{v}"{more}>{inside}</edge>'
        for i, (u, v, inside, more) in enumerate((*link, "", "")[:4] for link in links)
    )
    return f"<nodes>{nodes(*names)}</nodes><edges>{listed}</edges>"


def write(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def links_of(graph):
    return sorted(tuple(sorted(link)) for link in graph.edges)


def weights_of(graph):
    return {tuple(sorted((u, v))): weight for u, v, weight in graph.edges(data="weight", default=1)}


# --- nested elements ---


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.graphml", graphml(nodes("a", "b") + f'<node id="g"><graph edgedefault="undirected">{nodes("c", "d")}'
                              + link("c", "d") + "</graph></node>" + link("a", "b") + link("b", "g") + link("g", "c"))),
        ("deep.graphml", graphml('<node id="g"><graph edgedefault="undirected"><node id="a">'
                                 f'<graph edgedefault="undirected">{nodes("b", "c", "d") + link("c", "d")}</graph>'
                                 f'</node>{link("a", "b")}{link("b", "g")}</graph></node>' + link("g", "c"))),
        ("group.graphml", graphml(f'{nodes("a")}<node id="g" yfiles.foldertype="group"><graph edgedefault="undirected">'
                                  f'{nodes("b", "c", "d") + link("c", "d")}</graph></node>'
                                  + link("a", "b") + link("b", "g") + link("g", "c"))),
        ("a.gexf", gexf(f'<nodes>{nodes("a", "b")}<node id="g"><nodes>{nodes("c", "d")}</nodes><edges>'
                        + link("c", "d") + "</edges></node></nodes><edges>"
                        + link("a", "b") + link("b", "g") + link("g", "c") + "</edges>")),
        ("several.gexf", gexf(f'<nodes>{nodes("a", "b")}</nodes><nodes>{nodes("c", "d", "g")}</nodes><edges>'
                              + link("c", "d") + "</edges><edges>"
                              + link("a", "b") + link("b", "g") + link("g", "c") + "</edges>")),
        ("parents.gexf", gexf(flat(("a", "b", "c", "d"), (("c", "d"), ("a", "b"), ("b", "g"), ("g", "c"))).replace(
            "</nodes>", '<node id="g" pid="a"><parents><parent for="b"/></parents></node></nodes>'))),
    ],
)  # fmt: skip
def test_nodes_and_links_at_any_depth_are_read(name, text, tmp_path):
    graph = topologies.read(write(tmp_path, name, text))
    assert list(graph) == ["a", "b", "c", "d", "g"]
    assert links_of(graph) == [("a", "b"), ("b", "g"), ("c", "d"), ("c", "g")]


# --- defaults and weights ---


W = '<key id="w" for="{kind}" attr.name="weight" attr.type="double"><default>{default}</default></key>'
GEXF_W = '<attributes class="edge"><attribute id="0" title="weight" type="float"><default>5</default></attribute>' \
         "</attributes>"  # fmt: skip
VALUE = '<attvalues><attvalue for="{key}" value="2"/></attvalues>'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("edge.graphml", graphml(nodes(*"abc") + link("a", "b", '<data key="w">2</data>') + link("b", "c"),
                                 W.format(kind="edge", default=5))),
        ("all.graphml", graphml(nodes(*"abc") + link("a", "b", '<data key="w">2</data>') + link("b", "c"),
                                W.format(kind="all", default=5))),
        ("none.graphml", graphml(nodes(*"abc") + link("a", "b", '<data key="w">2</data>') + link("b", "c"),
                                 W.format(kind="edge", default=5).replace(' for="edge"', ""))),
        ("attribute.gexf", gexf(flat("abc", (("a", "b", VALUE.format(key=0)), ("b", "c"))), GEXF_W)),
        ("element.gexf", gexf(flat("abc", (("a", "b", "", ' weight="2"'), ("b", "c"))), GEXF_W)),
        ("both.gexf", gexf(flat("abc", (("a", "b", VALUE.format(key=0), ' weight="2.0"'), ("b", "c"))), GEXF_W)),
        ("gephi.gexf", gexf(flat("abc", (("a", "b", VALUE.format(key="weight")), ("b", "c", "", ' weight="5"'))))),
        ("a.json", json.dumps({"graph": {"edge_default": {"weight": 5}}, "nodes": [{"id": n} for n in "abc"],
                               "edges": [{"source": "a", "target": "b", "weight": 2},
                                         {"source": "b", "target": "c"}]})),
    ],
)  # fmt: skip
def test_defaults_of_attributes_are_applied(name, text, tmp_path):
    assert weights_of(topologies.read(write(tmp_path, name, text))) == {("a", "b"): 2.0, ("b", "c"): 5.0}


def test_defaults_of_nodes_are_applied_and_empty_ones_are_none(tmp_path):
    keys = (
        '<key id="s" for="all" attr.name="speed" attr.type="double"><default>7</default></key>'
        '<key id="w" for="edge" attr.name="weight" attr.type="double"><default/></key>'
        '<key id="k" for="node" attr.name="wired" attr.type="boolean"><default>true</default></key>'
    )
    text = graphml('<node id="a"><desc>first</desc><data key="s">2</data></node>' + nodes("b") + link("a", "b"), keys)
    graph = topologies.read(write(tmp_path, "g.graphml", text))
    assert dict(graph.nodes(data="speed")) == {"a": 2.0, "b": 7.0}
    assert graph.nodes["b"]["wired"] is True
    assert "weight" not in graph["a"]["b"] and graph["a"]["b"]["speed"] == 7.0


# --- refusals ---


TWICE = '<attvalues><attvalue for="0" value="1"/><attvalue for="0" value="2"/></attvalues>'
REFUSED = (
    ("two.graphml", GRAPHML + f'<graph edgedefault="undirected">{nodes("a", "b") + link("a", "b")}</graph>' * 2
     + "</graphml>", "has 2 <graph> elements; expected one"),
    ("two.gexf", GEXF + f'<graph>{flat("ab", (("a", "b"),))}</graph>' * 2 + "</gexf>", "has 2 <graph> elements"),
    ("mixed.graphml", graphml(f'<node id="g"><graph edgedefault="directed">{nodes("a", "b") + link("a", "b")}</graph>'
                              "</node>" + link("g", "a")), "the graph inside node 'g' has edgedefault 'directed'"),
    ("hyper.graphml", graphml(nodes(*"abc") + link("a", "b")
                              + '<hyperedge><endpoint node="a"/><endpoint node="c"/></hyperedge>'), "<hyperedge>"),
    ("hidden.graphml", graphml(f'<node id="g"><graph edgedefault="undirected">{nodes("a")}<hyperedge/></graph></node>'
                               + link("g", "a")), "<hyperedge>"),
    ("locator.graphml", graphml('<node id="a"><locator href="b.graphml"/></node>' + nodes("b") + link("a", "b")),
     "<locator>"),
    ("unknown.graphml", graphml(nodes("a", "b") + link("a", "b") + link("b", "c")),
     "link 'b' - 'c' leads to a node that is not listed"),
    ("unknown.gexf", gexf(flat("ab", (("a", "b"), ("b", "c")))), "link 'b' - 'c' leads to a node that is not listed"),
    ("repeated.graphml", graphml(nodes("a", "b", "a") + link("a", "b")), "node 'a' is listed more than once"),
    ("repeated.gexf", gexf(flat("aba", (("a", "b"),))), "node 'a' is listed more than once"),
    ("nameless.graphml", graphml("<node/>" + nodes("b") + link("a", "b")), r"a node lacks an id\. Add a unique id"),
    ("open.graphml", graphml(nodes("a", "b") + '<edge source="a"/>'), "link 'a' - None leads to a node"),
    ("parallel.graphml", graphml(nodes("a", "b") + link("a", "b", id="1") + link("b", "a", id="2")),
     "linked more than once"),
    ("parallel.gexf", gexf(flat("ab", (("a", "b"), ("b", "a")))), "linked more than once"),
    ("same-id.gexf", gexf(flat("ab", (("a", "b"), ("a", "b"))).replace('id="1"', 'id="0"')),
     "2 links, but 2 different nodes and 1 different links were read"),
    ("twice.graphml", graphml(nodes("a", "b") + link("a", "b", '<data key="w">2</data><data key="w">3</data>'),
                              W.format(kind="edge", default=1)), "'weight' more than once"),
    ("two-keys.graphml", graphml(nodes("a", "b") + link("a", "b", '<data key="w">2</data><data key="v">3</data>'),
                                 W.format(kind="edge", default=1)
                                 + W.format(kind="edge", default=1).replace('"w"', '"v"')), "'weight' more than once"),
    ("twice.gexf", gexf(flat("ab", (("a", "b", TWICE),)), GEXF_W), "'weight' more than once"),
    ("differ.gexf", gexf(flat("ab", (("a", "b", VALUE.format(key=0), ' weight="3"'),)), GEXF_W),
     "has the weights 3 and 2. Keep one"),
    ("empty.graphml", graphml(nodes("a", "b") + link("a", "b", '<data key="w"></data>'),
                              W.format(kind="edge", default=1).replace("double", "string")), "weight of link .* is ''"),
    ("plain.graphml", graphml(nodes("a", "b") + link("a", "b", weight=2)),
     "has weight as an XML attribute, which is not read. Write it as <data>"),
    ("plain.gexf", gexf(flat("ab", (("a", "b", "", ' latency="2"'),))), "latency as an XML attribute"),
    ("ends.gexf", gexf(flat("abc", (("a", "b", "", ' start="0" end="2"'), ("b", "c")))), "has times .*end, start"),
    ("dynamic.gexf", gexf(flat("abc", (("a", "b", "", ' end="2"'), ("b", "c"))),
                          mode=' mode="dynamic" timeformat="integer"'), "link 'a' - 'b' has times"),
    ("node.gexf", gexf(flat("ab", (("a", "b"),)).replace('<node id="a"/>', '<node id="a" start="1"/>')),
     "node 'a' has times"),
    ("spells.gexf", gexf(flat("ab", (("a", "b", '<spells><spell start="0" end="1"/></spells>'),))), "has times"),
    ("open.gexf", gexf(flat("ab", (("a", "b", "", ' startopen="1.5"'),))), r"has times \(startopen\)"),
    ("stamp.gexf", gexf(flat("ab", (("a", "b", "", ' timestamp="3"'),))), "has times"),
    ("value.gexf", gexf(flat("ab", (("a", "b", VALUE.format(key=0).replace("/>", ' start="1"/>', 1)),)),
                        GEXF_W.replace('"edge"', '"edge" mode="dynamic"')), "has times"),
    ("key.json", '{"nodes": [{"id": 1}, {"id": 2}], "edges": [{"source": 1, "target": 2, "weight": 1, "weight": 2}]}',
     "has the key 'weight' more than once"),
    ("nodes.json", '{"nodes": [{"id": 1}], "nodes": [{"id": 2}], "edges": []}', "has the key 'nodes' more than once"),
    ("cytoscape.json", json.dumps(nx.cytoscape_data(nx.path_graph(3))), "expected node-link JSON"),
    ("adjacency.json", json.dumps(nx.adjacency_data(nx.path_graph(3))), "expected node-link JSON"),
    ("types.json", '{"nodes": [{"id": 1}, {"id": "2"}], "edges": [{"source": 1, "target": 2}]}', "list every node"),
    ("multi.json", json.dumps(nx.node_link_data(nx.MultiGraph([(0, 1), (0, 1)]), edges="edges")), "more than once"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "text", "message"), REFUSED, ids=[name for name, *_ in REFUSED])
def test_what_a_graph_cannot_have_is_refused(name, text, message, tmp_path):
    with pytest.raises(GraphError, match=message):
        topologies.read(write(tmp_path, name, text))


def test_a_dynamic_file_without_times_is_a_static_graph(tmp_path):
    text = gexf(flat("abc", (("a", "b"), ("b", "c"))), mode=' mode="dynamic" timeformat="double" start="0" end="9"')
    assert links_of(topologies.read(write(tmp_path, "g.gexf", text))) == [("a", "b"), ("b", "c")]


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_entries_of_a_matrix_that_are_listed_twice_are_refused(layout, tmp_path):
    entries = [2.0, 1.0, 3.0], ([0, 0, 1], [1, 1, 0])
    matrix = sparse.coo_array(entries, shape=(2, 2))
    if layout == "csr":
        matrix = sparse.csr_array((entries[0], [1, 1, 0], [0, 2, 3]), shape=(2, 2))
    sparse.save_npz(tmp_path / "g.npz", matrix)
    with pytest.raises(GraphError, match=r"contains an entry more than once\. Merge such links"):
        topologies.read(tmp_path / "g.npz")


# --- edge lists ---


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('"A","lab#1"\n"B","lab#2"\n"A","B"\n', ["A", "B", "lab#1", "lab#2"]),
        ("A\tlab#1\nB\tlab#2\nA\tB\n", ["A", "B", "lab#1", "lab#2"]),
        ("A lab#1\nlab#1 C#\n", ["A", "C#", "lab#1"]),
        ('A,"lab #1"\n"lab #1",B # far away\n', ["A", "B", "lab #1"]),
        ('"lab #1" A # note, with a comma\nA B\n', ["A", "B", "lab #1"]),
        ("% sym unweighted\n% 3 3\n1 2\n2 3 %not here\n".replace(" %not here", ""), ["1", "2", "3"]),
        ("%%MatrixMarket matrix coordinate\n1 2\n2 3\n", ["1", "2", "3"]),
        ("# a,b\n1 2 # x, y\n2 3#4\n", ["1", "2", "3#4"]),
        ("1 2 #note\n2 3 2.5 # note\n", ["1", "2", "3"]),
        ('"New York" "Los Angeles"\n"Los Angeles" "5"" disk"\n', ['5" disk', "Los Angeles", "New York"]),
        ("O'Brien,B\nB,5\" disk\n", ['5" disk', "B", "O'Brien"]),
        ("\n  \n\ta b\n\r\nb c\r\n", ["a", "b", "c"]),
        ("Boston, MA\tParis, TX\nParis, TX\tRome\n", ["Boston, MA", "Paris, TX", "Rome"]),
        ("a ,\tb\nb,\tc\n", ["a", "b", "c"]),
        ("node1,node2\n1,2\n2,3\n", ["1", "2", "3"]),
        ('"Source","Target","Weight"\n1,2,3\n2,3,4\n', ["1", "2", "3"]),
        ("a,b,{'weight': 1, 'color': '#ff0000'}\nb,c,{}\n", ["a", "b", "c"]),
        ("start a\na b\nb end\n", ["a", "b", "end", "start"]),
        ("StartNode,EndNode\na,b\nb,c\n", ["a", "b", "c"]),
        ("node_a,node_b\n1,2\n2,3\n", ["1", "2", "3"]),
        ("hospital,partner\nTurku,Oulu\nOulu,Vaasa\n", ["Oulu", "Turku", "Vaasa"]),
        ("hospital,partner\nTurku,Oulu\nVaasa,Kemi\n", ["Kemi", "Oulu", "Turku", "Vaasa", "hospital", "partner"]),
        ("n1 n2\nn3 n4\nn4 n5\n", ["n1", "n2", "n3", "n4", "n5"]),
        ("a;b;1,5\nb;c;2,5\n", ["a", "b", "c"]),
        ("a;b\nb;c\n", ["a", "b", "c"]),
        ("Boston MA|Paris TX\nParis TX|Rome\n", ["Boston MA", "Paris TX", "Rome"]),
        ("sep=;\nSource;Target\na;b\n", ["a", "b"]),
        ("# FromNodeId\tToNodeId\n0\t1\n1\t0\n1\t2\n", ["0", "1", "2"]),
        ("a\rb c\r".replace("a\r", "a b\r"), ["a", "b", "c"]),
    ],
)
def test_labels_comments_and_headers_of_edge_lists(text, names, tmp_path):
    assert list(topologies.read(write(tmp_path, "g.edges", text))) == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A,lab #1\nB,A\n", "line 1: .*# may begin a comment or belong to a label"),
        ("A,#1\nB,A\n", "may begin a comment"),
        ("A,B# note\nB,A\n", "may begin a comment"),
        ("A B\nB C# note\n", "line 2: .*may begin a comment"),
        ("lab #1 B\n", "expected two labels"),
        ("1 2 1,5\n2 3 0,5\n", "with a decimal comma. Use a decimal point in weights"),
        ("1\t2\t1,5\n2\t3\t0,5\n", "the weight is '1,5'"),
        ("1 2 1_000\n2 3 1\n", "the weight is '1_000'"),
        ("1 2 \u0663\n2 3 1\n", "the weight is"),
        ("1\t\t2\n", "expected two labels"),
        ("first second 1\n1 2 2\n2 3 1\n", "look like names of columns"),
        ("1 2 3\n2 1 4\n", "line 2: link '2' - '1' has .*4.*, but .*3.* in line 1"),
        ("1 2\n1 2\n", "line 2: link '1' - '2' is in line 1 already"),
        ("a|1 b|2\n", "'|' or ' ' may separate columns"),
        ("a;b,c\nb;c\n", "';' or ',' may separate columns"),
        ("1 2 3 4\n", "more columns require a first line"),
        ("source,target,weight,weight\n1,2,3,4\n", "has the column 'weight' more than once"),
        ("Source,Target,Type\n1,2,Directed\n", "the graph is directed"),
        ("name,lat,lon\nTurku,60,22\nOulu,65,25\n", "as a table of nodes with coordinates"),
        ("1 1\n1 2\n", "has a link to itself"),
        ("0,1,1\n1,0,1\n1,1,0\n", "as an adjacency matrix"),
        ("0,1,1,2\n1,0,1,2\n1,1,0,2\n1,1,1,0", "as an adjacency matrix"),
    ],
)
def test_edge_lists_that_can_be_read_in_two_ways_are_refused(text, message, tmp_path):
    with pytest.raises(GraphError, match=message):
        topologies.read(write(tmp_path, "g.txt", text))


# --- the line about what was read ---


def summary(graph, tmp_path):
    path = tmp_path / "g.json"
    path.write_text(json.dumps(nx.node_link_data(graph, edges="edges")))
    return topologies.read(path).graph[topologies.FILE_SUMMARY]


def test_the_summary_of_a_plain_file(tmp_path):
    assert summary(nx.path_graph(3), tmp_path) == (
        "g.json: 3 nodes and 2 links; no names, the nodes are numbered; no weights"
    )
    named = nx.Graph([("Turku", "Oulu", {"weight": 2.0})])
    assert summary(named, tmp_path) == "g.json: 2 nodes and 1 link; names are the ids; weight 2"


def test_the_summary_tells_what_acts_and_what_is_ignored(tmp_path):
    graph = nx.cycle_graph(6)
    for i, (u, v) in enumerate(graph.edges):
        graph[u][v].update({"weight": i + 0.5} if i < 4 else {}, **({"latency": 0.1} if i < 3 else {"Latency": 1}))
    nx.set_node_attributes(graph, {i: f"site {i}" for i in range(6)}, "label")
    nx.set_node_attributes(graph, {0: 3.0}, "speed")
    nx.set_node_attributes(graph, {0: 3.0}, "latency")
    nx.set_node_attributes(graph, {1: "x"}, "club")
    assert summary(graph, tmp_path) == (
        "g.json: 6 nodes and 6 links; names from label; weights 0.5 to 3.5 on 4 of 6 links, 1 on the others; "
        "latency on 3 of 6 links (used with a link model); speed on 1 of 6 nodes (used with a link model); "
        "ignored: club on nodes, latency on nodes (used on links only), Latency on links (did you mean latency?)"
    )


@pytest.mark.parametrize(
    ("labels", "reason", "names"),
    [
        (["Chicago", "Chicago", "Rome"], "label does not name the devices: 2 nodes have 'Chicago'; names are the ids",
         {"a": "a", "b": "b", "c": "c"}),
        (["Rome", "Rome", None], "label does not name the devices: it is not a text at 1 of 3 nodes; names are the ids",
         {"a": "a", "b": "b", "c": "c"}),
        (["x", "", "y"], "label does not name the devices: it is not a text at 1 of 3 nodes; names are the ids",
         {"a": "a", "b": "b", "c": "c"}),
        (["0", "2", "1"], "label only numbers the nodes; no names, the nodes are numbered", None),
        (["x", "y", "z"], "names from label", {"a": "x", "b": "y", "c": "z"}),
    ],
)  # fmt: skip
def test_the_summary_tells_why_labels_do_not_name_the_devices(labels, reason, names, tmp_path):
    graph = nx.path_graph(["a", "b", "c"])
    for node, label in zip("abc", labels, strict=True):
        graph.nodes[node].update({} if label is None else {"label": label})
    assert f"; {reason}; " in summary(graph, tmp_path)
    assert topologies.name_nodes(graph) == names


def test_the_summary_tells_which_parts_of_xml_and_json_are_not_read(tmp_path):
    body = '<node id="a"><port name="p"/></node>' + nodes("b") + link("a", "b", sourceport="p")
    line = topologies.read(write(tmp_path, "g.graphml", graphml(body))).graph[topologies.FILE_SUMMARY]
    assert line.endswith("ignored: XML attribute sourceport, ports")
    body = flat("ab", (("a", "b"),)).replace('<node id="a"/>', '<node id="a" pid="b"><parents/></node>')
    line = topologies.read(write(tmp_path, "g.gexf", gexf(body))).graph[topologies.FILE_SUMMARY]
    assert line.endswith("ignored: parents on nodes, pid on nodes, parents")
    text = '{"nodes": [{"id": 0}, {"id": 1}], "links": [{"source": 0, "target": 1}], "layers": []}'
    line = topologies.read(write(tmp_path, "g.json", text)).graph[topologies.FILE_SUMMARY]
    assert line.endswith("ignored: key 'layers'")


@pytest.mark.parametrize("suffix", [".graphml", ".gexf", ".json"])
def test_a_graph_that_was_read_can_be_written_and_read_again(suffix, tmp_path):
    graph = topologies.karate(weighted=True)
    first = tmp_path / f"first{suffix}"
    write_graph = {".graphml": nx.write_graphml, ".gexf": nx.write_gexf}.get(suffix)
    for path in (first, tmp_path / f"second{suffix}"):
        if write_graph is None:
            path.write_text(json.dumps(nx.node_link_data(graph, edges="edges")))
        else:
            write_graph(graph, path)
        graph = topologies.read(path)
        assert graph.graph[topologies.FILE_SUMMARY].startswith(f"{path.name}: 34 nodes and 78 links")
        assert [int(node) for node in graph] == list(range(34))
    assert np.isclose(sum(weights_of(graph).values()), sum(weights_of(topologies.karate(weighted=True)).values()))
