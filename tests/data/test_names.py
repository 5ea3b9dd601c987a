"""Names of devices: a graph and points that both have them go together by name, and names are shown."""

import json
from functools import partial
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import p2pkm
import topologies
from p2pkm.cli.main import main
from p2pkm.core.errors import TopologyError
from p2pkm.data.partition.by_column import column, name_devices
from p2pkm.data.readers.folder import name_files
from p2pkm.network.graph import Topology
from p2pkm.viz.svg import draw_inline
from tests.support.each import each

SITES = ("Aachen", "site10", "site2", "Bern")  # people count 2 before 10, text does not
LINKS = [("Aachen", "site2"), ("site2", "site10"), ("site10", "Bern")]


@pytest.fixture
def sites(tmp_path, monkeypatch):
    """Make a folder of points, a file per site, each far from the others, and a path graph of the sites."""
    monkeypatch.chdir(tmp_path)
    Path("sites").mkdir()
    draw = np.random.default_rng(0)
    for i, name in enumerate(SITES):
        rows = draw.normal(size=(10 + i, 2)) + 20 * i
        Path("sites", f"{name}.csv").write_text("x,y\n" + "".join(f"{x},{y}\n" for x, y in rows))
    nx.write_graphml(nx.Graph(LINKS), "graph.graphml")
    return tmp_path


def run(*words):
    return main([*words, "-k", "2", "--no-plot", "-q"])


def links_by_name(graph):
    return {frozenset((graph.nodes[u]["name"], graph.nodes[v]["name"])) for u, v in graph.edges}


def test_sites_and_nodes_go_together_by_name(sites, capsys):
    assert run("--data", "sites/", "--graph", "file:graph.graphml", "--out", "run") == 0
    assert "4  Aachen, Bern, site2, site10" in capsys.readouterr().out
    result = p2pkm.load("run")
    assert result.topology.names == ("Aachen", "Bern", "site2", "site10")
    graph = result.to_networkx()
    assert links_by_name(graph) == {frozenset(link) for link in LINKS}
    assert {graph.nodes[i]["name"]: graph.nodes[i]["points"] for i in graph} == {
        name: 10 + i for i, name in enumerate(SITES)
    }
    assert result.summary["device_names"] == "Aachen, Bern, site2, site10"
    assert Path("run/config.toml").read_text().startswith('# device names: "Aachen, Bern, site2, site10"\n')
    assert run("--config", "run/config.toml", "--out", "again") == 0
    assert p2pkm.load("again").summary["chain_sha256"] == result.summary["chain_sha256"]


def test_the_order_of_the_files_of_a_graph_does_not_matter(sites):
    """The same graph with other names for the nodes' ids: the same bits."""
    numbers = nx.relabel_nodes(nx.Graph(LINKS), {"Aachen": 3, "Bern": 1, "site2": 0, "site10": 2})
    for node, name in zip((3, 1, 0, 2), ("Aachen", "Bern", "site2", "site10"), strict=True):
        numbers.nodes[node]["name"] = name
    nx.write_graphml(numbers, "other.graphml")
    for name in ("graph", "other"):
        assert run("--data", "sites/", "--graph", f"file:{name}.graphml", "--out", name) == 0
    assert np.array_equal(p2pkm.load("graph").centroids, p2pkm.load("other").centroids)


@pytest.mark.parametrize("odd", [["Turku"], ["Turku", "Zagreb"], []])
def test_other_names_are_refused_with_the_differences(sites, odd, capsys):
    nx.write_edgelist(nx.complete_graph(["Aachen", "Bern", *odd]), "bad.edges", data=False)
    assert run("--data", "sites/", "--graph", "file:bad.edges", "--out", "run") == 3
    said = capsys.readouterr().err
    assert "devices without a node: 'site10', 'site2'" in said
    assert not [name for name in odd if repr(name) not in said]
    assert not Path("run").exists()


def test_numbers_go_with_any_names(sites, capsys):
    Path("ring.edges").write_text("1 2\n2 3\n3 4\n4 1\n")
    assert run("--data", "sites/", "--graph", "file:ring.edges", "--out", "run") == 0
    assert p2pkm.load("run").topology.names == ("Aachen", "Bern", "site2", "site10")
    assert run("--graph", "file:graph.graphml", "--out", "named") == 0  # points that nobody owns
    assert p2pkm.load("named").topology.names == ("Aachen", "Bern", "site2", "site10")


def test_a_server_knows_its_clients_by_name(sites):
    assert run("--data", "sites/", "--algorithm", "kfed", "--out", "run") == 0
    assert p2pkm.load("run").topology.names == ("Aachen", "Bern", "site2", "site10", "server")


def test_attributes_for_virtual_time_follow_the_names(sites):
    graph = nx.Graph(LINKS)
    graph.nodes["site10"]["access"] = 12.5  # bytes per second: so slow that nobody else counts
    nx.write_graphml(graph, "slow.graphml")
    assert run("--data", "sites/", "--graph", "file:slow.graphml", "--link-model", "lan", "--out", "run") == 0
    assert p2pkm.load("run").summary["virtual_seconds"] > 10
    from p2pkm.network.link_model import LinkModel

    topology = Topology.from_networkx(graph).call(("Aachen", "Bern", "site2", "site10"))
    assert LinkModel.of("lan").place(topology, graph).access[3] == 12.5


@pytest.mark.slow
def test_report_and_figures_show_names(sites):
    assert run("--data", "sites/", "--graph", "file:graph.graphml", "--out", "run") == 0
    assert main(["report", "run"]) == 0
    page = Path("run/report.html").read_text()
    assert '"names":["Aachen","Bern","site2","site10"]' in page
    table = page[page.index("Busiest devices") :]
    assert not [name for name in SITES if f">{name}<" not in table]
    assert "site10 – " in table or " – site10" in table
    for plot in (p2pkm.viz.plot_graph, p2pkm.viz.plot_bytes, p2pkm.viz.plot_partition, p2pkm.viz.plot_devices):
        words = draw_inline(partial(plot, "run"), "one")
        assert all(name in words for name in SITES), plot


def test_arrays_keep_names():
    topology = Topology.from_networkx(nx.Graph([("Åbo", "b\n"), ("b\n", '"')]))
    assert Topology.from_arrays(topology.to_arrays()).names == topology.names == ('"', "b\n", "Åbo")


def test_devices_match_nodes_whose_accents_are_written_otherwise():
    """Names of folders are often decomposed; a program gives them as they are."""
    graph = nx.Graph([("Åbo", "Oulu"), ("Oulu", "Köln")])
    order = ("Ko\u0308ln", "A\u030abo")
    topology = Topology.from_networkx(graph).call(order)
    assert topology.names == (*order, "Oulu")
    with pytest.raises(TopologyError, match="differ"):
        Topology.from_networkx(graph).call(("Åbo", "A\u030abo"))


names = st.lists(st.text(min_size=1, max_size=4), min_size=2, max_size=8, unique=True).filter(topologies.are_names)


@given(names, st.randoms(use_true_random=False))
def test_matching_keeps_every_link_and_weight(called, chance):
    n = len(called)
    graph = nx.Graph()
    graph.add_nodes_from(chance.sample(called, n))
    for i in range(n):
        graph.add_edge(called[i], called[(i + 1) % n], weight=i + 1.0) if n > 2 or i == 0 else None
    order = tuple(chance.sample(called, n))
    topology = Topology.from_networkx(graph).call(order)
    assert topology.names == order
    found = {
        frozenset((order[i], order[j])): w
        for i, j, w in zip(topology.sources, topology.indices, topology.weights, strict=True)
    }
    assert found == {frozenset((u, v)): w for u, v, w in graph.edges(data="weight")}
    assert {name: order.index(name) for name in called} == topology.number(graph)


@each(
    ("nodes", "named"), [((0, 1, 2), False), ((1, 2, 3), False), ((5, 9, 12), True), (("2", "0", "1"), False),
                         (("a", "0", "1"), True), (((0, 0), (0, 1), (1, 1)), False)],
)  # fmt: skip
def test_what_is_a_name(nodes, named):
    graph = nx.path_graph(nodes)
    assert topologies.name_nodes(graph) == ({node: str(node) for node in nodes} if named else None)


def test_names_in_columns_and_files():
    site = np.array(["b", "a", "b", "c"])
    assert name_devices(site) == ("a", "b", "c")
    assert column(site).tolist() == [1, 0, 1, 2]
    assert name_devices(np.array(["007", "101", "22"], object)) == ("007", "22", "101")  # as numbers, but as written
    assert name_devices(np.array(["0", "1"])) is name_devices(np.arange(3)) is None
    assert name_files(["x/part-0.npy", "x/part-1.npy"]) == ("part-0", "part-1")
    assert name_files(["x/Bern/points.csv", "x/Turku/points.csv"]) == ("Bern/points", "Turku/points")
    assert name_files(["x/0.csv", "x/1.csv"]) is None


@pytest.mark.parametrize("codes", [("101", "205", "309"), ("1", "2", "3"), ("007", "7", "8"), ("2.0", "2.00", "10.0"),
                                   ("9", "Klinikum Süd", "ln <west>")])  # fmt: skip
@pytest.mark.sample(3)
def test_site_codes_of_any_kind_are_names_in_the_command_line(tmp_path, monkeypatch, codes):
    monkeypatch.chdir(tmp_path)
    rows = [f"{i + 20 * j},{i % 3},{code}\n" for j, code in enumerate(codes) for i in range(8)]
    Path("t.csv").write_text("x,y,device\n" + "".join(rows), encoding="utf-8")
    assert run("--data", "t.csv", "--out", "run") == 0
    result = p2pkm.load("run")
    assert result.topology.names == codes and len(result.centroids) == 3
    alone = result.predict([[4.0, 1.0]], device=codes[1])
    assert alone.shape == (1,)
    sites = {line.split(",")[1] for line in Path("run/labels.csv").read_text("utf-8").splitlines()[1:]}
    assert sites == set(codes)


def test_files_on_disk_give_their_names(sites):
    Path("disk").mkdir()
    for i, name in enumerate(SITES):
        np.save(f"disk/{name}.npy", np.random.default_rng(i).normal(size=(10, 2)))
    assert run("--data", "disk/", "--graph", "file:graph.graphml", "--out", "run") == 0
    result = p2pkm.load("run")
    assert result.topology.names == ("Aachen", "Bern", "site2", "site10")
    assert links_by_name(result.graph) == {frozenset(link) for link in LINKS}


def test_scripts_give_names_with_the_points():
    X, site = np.arange(24.0).reshape(12, 2), np.repeat(["c", "a", "b"], 4)
    from dataclasses import replace

    shards = replace(p2pkm.Shards.deal(X, column(site)), names=("a", "b", "c"))
    result = p2pkm.simulate(p2pkm.GTVMin(2), nx.path_graph(["b", "c", "a"]), shards)
    assert links_by_name(result.graph) == {frozenset("bc"), frozenset("ca")}
    with pytest.raises(TopologyError, match="Nodes without points: 'd'; devices without a node: 'a'"):
        p2pkm.simulate(p2pkm.GTVMin(2), nx.path_graph(["b", "c", "d"]), shards)


def test_a_note_tells_which_named_node_each_numbered_device_is():
    shards = p2pkm.Shards.deal(np.arange(16.0).reshape(8, 2), np.arange(8) // 2, devices=4)
    note = "device 0 is 'Aachen', device 1 is 'Bern', device 2 is 'site2', device 3 is 'site10'"
    found = p2pkm.simulate(p2pkm.GTVMin(2), nx.Graph(LINKS), shards, rounds=1)
    assert any(note in one and "by name" in one for one in found.notes)
    named = p2pkm.Shards.deal(np.arange(16.0).reshape(8, 2), np.repeat(SITES, 2))
    for graph, own in ((nx.Graph(LINKS), named), (topologies.path(4), shards)):
        assert not any("sorted order" in one for one in p2pkm.simulate(p2pkm.GTVMin(2), graph, own, rounds=1).notes)


@pytest.mark.parametrize(("partition", "told"), [("column", True), ("iid", False)])
def test_the_command_line_tells_the_order_where_the_file_numbers_its_devices(sites, capsys, partition, told):
    Path("numbers.csv").write_text("x,y,device\n" + "".join(f"{i},{i % 3},{i % 4}\n" for i in range(16)))
    words = ["--data", "numbers.csv", "--graph", "file:graph.graphml", "--partition", partition, "--out", "none"]
    assert main([*words, "-k", "2", "--no-plot"]) == 0
    assert ("have names, in sorted order: device 0 is 'Aachen'" in "".join(capsys.readouterr())) is told


def test_summary_lists_the_first_names_of_many():
    topology = Topology.from_networkx(nx.path_graph([f"site{i:03}" for i in range(30)]))
    said = topology.list_names()
    assert said.endswith("site019, ... (30 in all)")
    assert json.dumps(said)
