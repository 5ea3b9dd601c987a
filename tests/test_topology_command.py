"""`p2pkm topology list | describe | draw`."""

import json

import pytest

import topologies
from p2pkm.describing import _MEANINGS
from p2pkm.plots.graph import plot_topology
from p2pkm.topology import Topology
from tests.invoke import here

SMALL_WORLD = ("topology", "describe", "small-world:degree=4,rewire=0.2", "--devices", 30, "--seed", 5)


def test_list_names_every_family():
    table, data = here("topology", "list"), here("topology", "list", "--format", "json")
    assert (table.code, data.code) == (0, 0)
    found = {one["name"]: one for one in json.loads(data.out)}
    assert found.keys() == topologies.FAMILIES.keys() | topologies.TIME_VARYING.keys()
    assert found["small-world"]["options"] == {"degree": 4, "rewire": 0.1}
    assert all(name in table.out for name in found) and "small-world:degree=4,rewire=0.1" in table.out


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


def test_a_raw_alpha_becomes_a_strength():
    found = here("topology", "describe", "ring", "--alpha", 2, "--points", 1_000, "-k", 5, "--format", "json").summary
    assert found["strength"] == pytest.approx(2 * 16 * 5 / 1_000)
    assert found["predicted"]["contraction"]["value"] == pytest.approx(0.64 / 1.64)


@pytest.mark.parametrize(
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
        (["ring", "--alpha", 1, "--coupling", 1], 2, "give one"),
        (["ring", "--coupling", -1], 2, "coupling is -1"),
        (["ring", "--coupling", "nan"], 2, "coupling is nan"),
        (["ring", "--decay", 1], 2, "decay is 1"),
    ],
)
def test_mistakes_are_told(arguments, code, words):
    ended = here("topology", "describe", *arguments)
    assert ended.code == code and words in ended.err and not ended.out


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
    assert [path.name for path in tmp_path.iterdir()] == ["karate-34.png"]


def test_files_that_cannot_be_drawn(tmp_path):
    (tmp_path / "file").write_text("")
    for out, words in (
        (tmp_path / "one.gif", ".png, .svg or .pdf"),
        (tmp_path / "file" / "one.png", "cannot be written"),
    ):
        ended = here("topology", "draw", "ring", "--out", out)
        assert ended.code == 2 and words in ended.err


def test_pictures_color_devices_by_their_links_where_these_differ():
    even, uneven = (
        plot_topology(Topology.from_graph(graph), "it") for graph in (topologies.ring(9), topologies.star(9))
    )
    assert not even.child_axes and uneven.child_axes
    marks = uneven.collections[-1]
    assert sorted(marks.get_array().tolist()) == [1] * 8 + [8]
    assert uneven.get_title(loc="left") == "it: 9 devices, 8 links"
    large = plot_topology(Topology.from_graph(topologies.build("torus", 40_000, light=True)), "torus")
    assert "a sample of 20,000 devices and 5,000 links" in large.get_title(loc="left")
