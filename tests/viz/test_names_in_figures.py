"""Names in figures: written in full, all of them, inside the figure, and never two alike."""

import networkx as nx
import numpy as np
import pytest
from matplotlib.text import Text

import p2pkm
import topologies
from p2pkm import viz
from p2pkm.viz.figure_parts import list_axes
from p2pkm.viz.looks import FIGURE_STYLES
from p2pkm.viz.names import Box, write_names
from tests.support.each import each
from tests.support.run_cli import here

NAMES = ("Universitätsklinikum Hamburg-Eppendorf", "Universitätsklinikum Heidelberg", "Köln <west>", "Köln <east>",
         "Oulu", "$x$", "_hidden")  # fmt: skip
NAMED = {
    "graph": viz.plot_graph, "bytes": viz.plot_bytes, "partition": viz.plot_partition, "devices": viz.plot_devices,
    "topology": lambda run: viz.plot_topology(run.topology, "a ring"),
}  # fmt: skip
OTHERS = {"points": viz.plot_points, "profile": viz.plot_profile, "convergence": viz.plot_convergence}


@pytest.fixture(scope="module")
def runs():
    """Runs on named devices, in one dimension and in five."""
    draw, found = np.random.default_rng(0), {}
    graph = nx.relabel_nodes(topologies.ring(7), dict(enumerate(NAMES)))
    for d in (1, 5):
        points = draw.normal(size=(140, d)) + 3 * draw.integers(0, 3, size=(140, 1))
        shards = p2pkm.Shards.deal(points, np.arange(140) % 7, devices=7, labels=draw.integers(0, 3, 140))
        found[d] = p2pkm.simulate(p2pkm.GTVMin(3), graph, shards, rounds=2)
    return found


def read(figure):
    """Return every text that is drawn, in one line each."""
    figure.draw_without_rendering()
    texts = [text.get_text() for text in figure.findobj(Text) if text.get_visible()]
    return {" ".join(text.split()).replace("- ", "-") for text in texts}


def is_inside(figure):
    box, (wide, tall) = figure.get_tightbbox(), figure.get_size_inches()
    return min(box.x0, box.y0, wide - box.x1, tall - box.y1) > -0.02


def covers(figure):
    """Return which titles and labels a legend covers."""
    found = []
    for ax in list_axes(figure):
        box = None if ax.get_legend() is None else ax.get_legend().get_window_extent()
        for other in list_axes(figure) if box is not None else ():
            labels = [
                other.xaxis.label,
                other.yaxis.label,
                *(one for one in other.get_children() if isinstance(one, Text)),
            ]
            found += [one.get_text() for one in labels if one.get_text() and one.get_window_extent().overlaps(box)]
    return found


LOOKED = [None, "column", *(pytest.param(look, marks=pytest.mark.slow) for look in FIGURE_STYLES if look != "column")]


@pytest.mark.slow
@pytest.mark.parametrize("look", LOOKED)
@pytest.mark.parametrize("name", NAMED)
def test_every_device_is_named_in_full_inside_the_figure(runs, name, look):
    with p2pkm.style(look):
        figure = NAMED[name](runs[5])
    shown = read(figure)
    # A word that is wider than its panel is broken inside.
    joined = [text.replace(" ", "") for text in shown]
    assert {one for one in NAMES if not any(text.startswith(one.replace(" ", "")) for text in joined)} == set()
    assert not any("…" in text for text in shown)
    assert is_inside(figure) and covers(figure) == []


@pytest.mark.slow
@pytest.mark.parametrize("look", [None, *FIGURE_STYLES])
@pytest.mark.parametrize("d", [1, 5])
@pytest.mark.parametrize("name", OTHERS)
def test_other_figures_stay_inside_and_free_of_legends(runs, name, d, look):
    with p2pkm.style(look):
        figure = OTHERS[name](runs[d])
    figure.draw_without_rendering()
    assert is_inside(figure) and covers(figure) == []


@pytest.mark.slow
def test_devices_on_an_axis_of_one_feature_are_named(runs):
    for look in (None, "column"):
        with p2pkm.style(look):
            assert set(NAMES) <= read(viz.plot_points(runs[1]))


def test_a_style_keeps_its_width_whatever_the_names(runs):
    with p2pkm.style("column"):
        assert viz.plot_bytes(runs[5]).get_figwidth() == 3.3


def test_figures_without_long_names_keep_their_size():
    figure = viz.plot_partition_of([3, 5, 4], None)
    assert figure.get_size_inches().tolist() == [7.0, 4.2]
    figure = viz.plot_partition_of([3, 5, 4], None, names=["a" * 39, "b", "c"])
    assert figure.get_figheight() > 4.2 and is_inside(figure)


@each(("x", "y", "inside"), [
    (5.0, 2.0, True), (-0.5, 2.0, True), (10.5, 2.0, True), (5.0, -0.5, True), (5.0, 4.5, True),
    (-1.5, 2.0, False), (11.5, 2.0, False), (5.0, -1.5, False), (5.0, 5.5, False),
])  # fmt: skip
def test_a_mark_is_in_the_box_of_a_name_if_a_part_of_it_is(x, y, inside):
    assert Box(left=0.0, low=0.0, right=10.0, high=4.0).contains((x, y), room=1.0) == inside


@each(
    ("given", "written"),
    [
        (["a", "b"], ["a", "b"]),
        (["x" * 40, "y"], ["x" * 40, "y"]),
        (["x" * 41], ["x" * 25 + "…" + "x" * 14]),
        (["a" * 30 + "1" + "b" * 20, "a" * 30 + "2" + "b" * 20],
         ["a" * 25 + "…" + "b" * 14 + " (0)", "a" * 25 + "…" + "b" * 14 + " (1)"]),
        (["a\n b\t", "_a"], ["a b", " _a"]),
        (["Turku", "Turku"], ["Turku (0)", "Turku (1)"]),
    ],
)  # fmt: skip
def test_names_as_they_are_written(given, written):
    assert write_names(given) == written


@pytest.mark.parametrize("suffix", ["graphml", "gexf", "csv"])
@pytest.mark.sample(3)
def test_a_drawing_of_a_graph_from_a_file_has_its_names(tmp_path, suffix):
    graph, path = nx.relabel_nodes(nx.cycle_graph(7), dict(enumerate(NAMES))), tmp_path / f"named.{suffix}"
    if suffix == "csv":
        path.write_text("".join(f"{a},{b}\n" for a, b in nx.cycle_graph(["Oulu", "Ii", "Pori"]).edges), "utf-8")
    else:
        (nx.write_graphml if suffix == "graphml" else nx.write_gexf)(graph, path)
    found = here("topology", "draw", f"file:{path}", "--out", tmp_path / "drawn.svg")
    assert found.code == 0, found.err
    text = (tmp_path / "drawn.svg").read_text("utf-8")
    assert "Oulu" in text and ">0<" not in text
    assert suffix == "csv" or "Köln &lt;west&gt;" in text


@pytest.mark.slow
def test_the_replay_of_a_report_has_the_names_and_writes_them(runs):
    page = runs[5].report().html
    assert all(name.replace("<", "\\u003c") in page or name in page for name in ("Oulu", "Universitätsklinikum"))
    assert "writeNames(pen, spots, size)" in page and "content.names[i]" in page
