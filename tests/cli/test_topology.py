"""`p2pkm topology list | describe | draw`."""

import json
from pathlib import Path

import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.experiments.graphs.graph_comparison import shorten_specs
from p2pkm.experiments.graphs.graph_report import _MEANINGS, GraphQuery, build_graph, measure
from p2pkm.network.graph import Topology
from p2pkm.storage.load import load
from p2pkm.viz.figures.graph import plot_topology
from p2pkm.viz.figures.graph_comparison import Panel, plot_graphs
from tests.support.each import each
from tests.support.run_cli import here

SMALL_WORLD = ("topology", "describe", "small-world:degree=4,rewire=0.2", "--devices", 30, "--seed", 5)


def test_list_names_every_family():
    table, data = here("topology", "list"), here("topology", "list", "--format", "json")
    assert (table.code, data.code) == (0, 0)
    found = {one["name"]: one for one in json.loads(data.out)}
    assert found.keys() == topologies.FAMILIES.keys() | topologies.TIME_VARYING.keys()
    assert found["small-world"]["options"] == {"degree": 4, "rewire": 0.1}
    assert all(name in table.out for name in found) and "small-world:degree=4,rewire=0.1" in table.out
    rows = table.out.splitlines()[: len(found)]
    assert len({row.index(one["summary"]) for row, one in zip(rows, found.values(), strict=True)}) == 1  # one column


def test_describe_prints_one_object_with_what_the_library_says():
    found = here(*SMALL_WORLD, "--format", "json").summary
    graph = topologies.small_world(30, degree=4, rewire=0.2, seed=5)
    expected = {name: one._asdict() for name, one in topologies.measures.describe(graph, seed=5).items()}
    colors = found["measures"].pop("colors")
    assert found["measures"] == expected
    assert colors["value"] == Topology.from_graph(graph).colors.max() + 1
    assert found["graph"] == "small-world:degree=4,rewire=0.2,seed=5" and found["coupling"] == 30
    predicted = topologies.measures.predict(graph, coupling=30)
    assert found["predicted"]["contraction"]["value"] == predicted.contraction.value


@pytest.mark.slow
def test_the_table_says_which_figures_are_estimates():
    small, large = here(*SMALL_WORLD), here("topology", "describe", "grid", "--devices", 1_200)
    assert (small.code, large.code) == (0, 0)
    assert "~" not in small.out and "~" in large.out and "standard error" in large.out
    assert all(line.count("  ") for line in small.out.splitlines()[1:] if line.startswith("  "))


def test_every_figure_has_a_meaning():
    found = here(*SMALL_WORLD, "--format", "json").summary
    assert {*found["measures"], *found["predicted"]} <= _MEANINGS.keys()


def test_infinity_is_null_and_the_reason_is_given(tmp_path):
    file = tmp_path / "apart.txt"
    file.write_text("0 1\n2 3\n")
    found = here("topology", "describe", f"file:{file}", "--format", "json").summary
    assert found["measures"]["diameter"] == {"value": None, "exact": True, "how": "no path between some devices"}


def test_the_excess_is_predicted_where_points_and_clusters_are_counted():
    words = ("topology", "describe", "ring", "--devices", 100)
    found = here(*words, "--points", 1_600, "-k", 16, "--format", "json").summary["predicted"]
    assert found["excess"]["value"] == pytest.approx(found["residual_noise"]["value"])  # one point each
    assert found["excess"]["value"] == pytest.approx(0.03583, rel=1e-3)
    assert found["coupling_strong"]["value"] == 1_000 and found["excess_strong"]["value"] < 1e-3
    assert "excess strong" in here(*words, "--points", 1_600, "-k", 16).out
    assert "excess" not in here(*words, "--format", "json").summary["predicted"]
    raw = here(*words, "--points", 1_600, "-k", 16, "--alpha", 15, "--format", "json").summary["predicted"]
    assert raw["excess"]["value"] == pytest.approx(found["excess"]["value"])  # of degree 2: 30 / sqrt(2 * 2)


def test_a_raw_alpha_becomes_a_strength():
    found = here("topology", "describe", "ring", "--alpha", 2, "--points", 1_000, "-k", 5, "--format", "json").summary
    assert found["strength"] == pytest.approx(2 * 16 * 5 / 1_000)
    assert found["predicted"]["contraction"]["value"] == pytest.approx(0.64 / 1.64)


@each(
    ("arguments", "code", "words"),
    [
        (["rng"], 2, "Did you mean 'ring'"),
        (["ring:degree=3"], 2, "unknown key"),
        (["ring", "--devices", 0], 2, "devices"),
        (["ring", "--seed", -1], 2, "seed"),
        (["grid", "--devices", 7], 3, "prime"),
        (["karate", "--devices", 9], 3, "34 devices"),
        (["file:nowhere.graphml"], 3, "nowhere"),
        (["ring", "--alpha", 1], 2, "--points"),
        (["ring", "--points", 10], 2, "--alpha"),
        (["ring", "--points", 10, "-k", 0], 2, "clusters is 0"),
        (["ring", "--alpha", 1, "--coupling", 1], 2, "--alpha and --coupling cannot be combined"),
        (["ring", "--coupling", -1], 2, "coupling is -1"),
        (["ring", "--coupling", "nan"], 2, "coupling is nan"),
        (["ring", "--decay", 1], 2, "decay is 1"),
    ],
)
def test_mistakes_are_told(arguments, code, words):
    ended = here("topology", "describe", *arguments)
    assert ended.code == code and words in ended.err and not ended.out


GRAPHS = (
    "ring",
    "small-world:degree=4",
    "one-peer-exponential",
    "gallery:walkers-50",
    "karate",
)


@pytest.mark.slow
def test_compare_prints_what_describe_says_of_each_in_the_order_given():
    found = here("topology", "compare", *GRAPHS, "--devices", 20, "--format", "json").summary
    assert found["figure"] is None and len(found["graphs"]) == len(GRAPHS)
    for name, one in zip(GRAPHS, found["graphs"], strict=True):
        size = () if name in ("karate", "gallery:walkers-50") else ("--devices", 20)
        assert one == here("topology", "describe", name, *size, "--format", "json").summary


@pytest.mark.slow
def test_the_table_of_compare_has_a_column_for_each_and_marks_estimates(tmp_path):
    large = "grid", "grid:rows=3", "karate", "gallery:walkers-50"
    ended = here("topology", "compare", *large, "--devices", 1_200, "--out", tmp_path / "all.svg")
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert all(len(line) <= 120 for line in lines) and "~ estimate" in ended.out
    (devices,) = [line.split()[1:] for line in lines if line.startswith("  devices")]
    assert devices == ["1,200", "1,200", "34", "50"]
    picture = (tmp_path / "all.svg").read_text()
    for word in ("grid", "rows=3", "karate", "spectral gap", "dark links: round 0", "1,200 devices, 1,997 links"):
        assert word in picture
    assert picture.count("~") >= 5


def test_names_in_a_comparison_say_in_what_they_differ():
    specs = ["ring", "small-world:degree=4,rewire=0.1", "small-world:degree=6,rewire=0.1", "gallery:karate"]
    assert shorten_specs(specs) == ["ring", "small-world:degree=4", "small-world:degree=6", "gallery:karate"]
    assert shorten_specs(["ring", "ring"]) == ["ring", "ring"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "GRAPH"),
        (["ring"], 2, "two or more"),
        (["ring", "rng"], 2, "Did you mean 'ring'"),
        (["ring", "grid", "--devices", 7], 3, "prime"),
        (["ring", "file:nowhere.graphml"], 3, "nowhere"),
        (["ring", "star", "--out", "x.gif"], 2, ".png, .svg, .pdf or .pgf"),
        (["ring", "star", "--decay", 1], 2, "decay"),
        (["ring", "star", "--alpha", 1], 2, "--points"),
    ],
)
def test_mistakes_in_a_comparison_are_told_before_anything_is_measured(arguments, code, words, monkeypatch):
    monkeypatch.setattr("p2pkm.experiments.graphs.graph_comparison._draw", None)
    ended = here("topology", "compare", *arguments)
    assert ended.code == code and words in ended.err and not ended.out


@pytest.mark.slow
def test_a_picture_of_a_comparison_names_everything_without_overlap():
    specs = ("ring", "star", "one-peer-exponential", "edge-markov:over=torus", "gallery:inner-outer-32")
    built = [build_graph(spec, None if ":inner" in spec else 12, 0) for spec in specs]
    panels = [
        Panel(spec, one.topology, one.graph.active(0) if hasattr(one.graph, "active") else None,
              {**(told := measure(one, GraphQuery(spec)))["measures"], **told["predicted"]})
        for spec, one in zip(specs, built, strict=True)
    ]  # fmt: skip
    figure = plot_graphs(panels)
    figure.canvas.draw()
    panels = figure.axes[0].child_axes
    boxes = [text.get_window_extent() for ax in panels for text in (ax.title, ax._left_title, *ax.texts,
             *(ax.get_yticklabels() if ax.axison else ())) if text.get_text()]  # fmt: skip
    for i, one in enumerate(boxes):
        assert one.x0 >= 0 and one.x1 <= figure.bbox.x1 and one.y0 >= 0 and one.y1 <= figure.bbox.y1
        assert not any(one.overlaps(other) for other in boxes[i + 1 :])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_draw_writes_the_same_bytes_every_time(tmp_path, kind):
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    files = [tmp_path / "new" / f"{name}.{kind}" for name in ("one", "other")]
    for file in files:
        ended = here("topology", "draw", "star", "--devices", 9, "--out", file)
        assert ended.code == 0 and str(file) in ended.out
    one, other = (file.read_bytes() for file in files)
    assert one == other and one.startswith(starts[kind])


def test_draw_names_its_file_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert here("topology", "draw", "karate").code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["karate-34.data.csv", "karate-34.png"]


def test_draw_calls_the_figure_of_a_file_by_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sites.v2.csv").write_text("a,b\nx,y\ny,z\n")
    assert here("topology", "draw", f"file:{tmp_path / 'sites.v2.csv'}").code == 0
    assert (tmp_path / "sites-3.png").exists()


def test_files_that_cannot_be_drawn(tmp_path):
    (tmp_path / "file").write_text("")
    for out, words in (
        (tmp_path / "one.gif", ".png, .svg, .pdf or .pgf"),
        (tmp_path / "file" / "one.png", "cannot be written"),
    ):
        ended = here("topology", "draw", "ring", "--out", out)
        assert ended.code == 2 and words in ended.err


def test_pictures_color_devices_by_their_links_where_these_differ():
    even, uneven = (
        plot_topology(Topology.from_graph(graph), "it").axes[0] for graph in (topologies.ring(9), topologies.star(9))
    )
    assert not even.child_axes and uneven.child_axes
    marks = uneven.collections[-1]
    assert sorted(marks.get_array().tolist()) == [1] * 8 + [8]
    assert uneven.get_title(loc="left") == "it: 9 devices, 8 links"
    large = plot_topology(Topology.from_graph(topologies.build("torus", 40_000, light=True)), "torus").axes[0]
    assert "a sample of 20,000 devices and 5,000 links" in large.get_title(loc="left")


def test_leaks_are_told_by_distance(tmp_path):
    file = tmp_path / "leaks.svg"
    ended = here("topology", "leaks", "ring", "--devices", 16, "--gossips", 3, "--format", "json", "--out", file)
    found = json.loads(ended.out)
    assert ended.code == 0
    assert [one["leak_mean"] for one in found["by_distance"]] == pytest.approx([1, 1, 1, 0, 0, 0, 0, 0])
    assert [one["pairs"] for one in found["by_distance"]] == [32] * 7 + [16]
    assert [one["solved"] for one in found["by_distance"]] == [32, 32, 32, 0, 0, 0, 0, 0]
    assert found["rank"] == {"least": 7, "mean": 7.0, "most": 7} and found["uncertified"] == 0
    assert "do not add up" in found["note"]
    assert file.read_text().startswith("<?xml")


def test_leaks_as_text_say_what_they_do_not():
    ended = here("topology", "leaks", "star", "--devices", 16, "--receivers", "1,3-4", "--public", "0")
    assert ended.code == 0
    assert ended.out.startswith("star, 16 devices: one average, consensus, 10 gossips")
    assert "do not add up over the steps of a run" in " ".join(ended.out.split())
    rows = [line.split() for line in ended.out.splitlines() if line.startswith("  2 ")]
    assert rows == [["2", "42", "0.0714", "0.0714", "0.2673", "0.2673", "0"]]


def test_the_most_that_leaks_over_a_distance_is_that_of_the_pair_that_leaks_most():
    words = ("topology", "leaks", "grid", "--devices", 16, "--gossips", 2, "--format", "json")
    found, leaks = json.loads(here(*words).out)["by_distance"], p2pkm.pair_leaks(topologies.grid(16), 2).leak
    places = np.stack(np.divmod(np.arange(16), 4))
    far = np.abs(places[:, :, None] - places[:, None]).sum(axis=0)
    for one in found:
        leak = leaks[far == one["distance"]]
        assert one["leak_mean"] == pytest.approx(leak.mean()) and one["leak_max"] == pytest.approx(leak.max())
        assert one["mu_mean"] == pytest.approx((leak**0.5).mean()) and one["mu_max"] == pytest.approx(leak.max() ** 0.5)


def test_leaks_of_devices_without_a_path(tmp_path):
    file = tmp_path / "two.edges"
    file.write_text("0 1\n2 3\n")
    found = json.loads(here("topology", "leaks", f"file:{file}", "--format", "json").out)
    assert [(one["distance"], one["pairs"], one["leak_max"]) for one in found["by_distance"]] == [
        (1, 4, 1),
        (None, 8, 0),
    ]


@pytest.mark.slow
def test_every_command_that_reads_a_graph_says_what_it_has_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("g.csv").write_text("a,b,2\nb,c\nc,d\nd,a\n")
    note = "g.csv: 4 nodes and 4 links; names are the ids; weight 2 on 1 of 4 links, 1 on the others"
    small = ("--data", "grid16:points=5", "--rounds", 1, "--no-plot", "--graph", "file:g.csv", "--out")
    Path("study.toml").write_text(
        'graph = "file:g.csv"\nalgorithm = "admm"\ndata = "grid16:points=5"\nrounds = 1\nseeds = "0-1"\n'
    )
    commands = {
        "run": ("run", *small, "run"),
        "compare": ("compare", *small, "none", "--algorithm", "gtvmin,admm", "--seeds", "0-1", "--devices", 4),
        "sweep": ("sweep", "study.toml", "--out", "none"),
        "plan": ("plan", "--graph", "file:g.csv", "--data", "grid16:points=5"),
        "describe": ("topology", "describe", "file:g.csv"),
        "side by side": ("topology", "compare", "file:g.csv", "ring", "--devices", 4),
        "draw": ("topology", "draw", "file:g.csv", "--out", "g.svg"),
        "leaks": ("topology", "leaks", "file:g.csv", "--gossips", 2),
        "faults": ("faults", "loss=0.1", "--graph", "file:g.csv", "--rounds", 2, "--out", "trace.jsonl"),
    }
    for name, words in commands.items():
        found = here(*words)
        assert found.code == 0, (name, found)
        # A run lists it among the notes of its table.
        printed = found.out + found.err if name == "run" else found.err
        assert printed.count(f"{note}\n") == 1, (name, printed)
        ignored = found.err.count("the weights of the links (1 to 2) are ignored by admm")
        assert ignored == (name in ("compare", "sweep")), name
    assert load("run").notes[0] == note
    assert load("run").topology.file_summary == ""
    assert here("run", *small, "none", "--quiet").err == ""
