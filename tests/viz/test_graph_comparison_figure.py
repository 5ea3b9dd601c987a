"""Several graphs in one picture: drawings, and bars of their measures."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

import topologies
from p2pkm.network.graph import Topology
from p2pkm.viz.figures import graph_comparison
from p2pkm.viz.figures.graph_comparison import _MEASURES, Panel, plot_graphs
from p2pkm.viz.graph_layout import place_devices
from p2pkm.viz.style import BLUE, ORANGE


def panels():
    """Return four graphs, the second of which changes; measure f of graph g is g + f / 10."""
    found = []
    for g, (name, n) in enumerate((("path", 3), ("ring", 5), ("star", 4), ("complete", 1))):
        topology = Topology.from_graph(topologies.build(name, n))
        figures = {key: {"value": g + f / 10, "exact": g < 2} for f, key in enumerate(_MEASURES)}
        figures["diameter"]["value"] = None if g == 1 else g
        found.append(Panel(name, topology, topology.sources * topology.indices == 0 if g == 1 else None, figures))
    return found


def test_every_graph_has_a_drawing_and_a_bar_for_each_measure():
    every = panels()
    children = plot_graphs(every).axes[0].child_axes
    drawings, columns = children[:4], children[4:]
    assert not any(ax.axison for ax in drawings[:3])
    assert [ax.get_title() for ax in drawings[:3]] == [
        "path\n3 devices, 2 links", "ring\n5 devices, 5 links", "star\n4 devices, 3 links"
    ]  # fmt: skip
    for ax, panel in zip(drawings, every, strict=True):
        pale, dark, devices = ax.collections
        np.testing.assert_array_equal(devices.get_offsets(), place_devices(panel.topology))
        assert len(dark.get_segments()) == (2 if panel.name == "ring" else 0)
        assert len(pale.get_segments()) + len(dark.get_segments()) == len(panel.topology.indices) // 2
    assert [ax.get_title(loc="left") for ax in columns] == list(_MEASURES.values())
    assert [text.get_text() for text in columns[0].texts] == ["0", "\N{EN DASH}", "~2", "~3"]
    assert [text.get_text() for text in columns[5].texts] == ["0.5", "1.5", "~2.5", "~3.5"]
    assert [bar.get_width() for bar in columns[5].patches] == [0.5, 1.5, 2.5, 3.5]
    colors = [to_hex(bar.get_facecolor()).upper() for bar in columns[5].patches]
    assert colors == [BLUE, ORANGE, BLUE, BLUE]
    assert [label.get_text() for label in columns[0].get_yticklabels()] == ["path", "ring", "star", "complete"]


@pytest.mark.slow
def test_narrow_figures_have_two_drawings_and_three_measures_in_a_row(monkeypatch):
    monkeypatch.setattr(graph_comparison, "is_narrow", lambda: True)
    ax = plot_graphs(panels()).axes[0]
    ax.figure.draw_without_rendering()
    places = [round(panel.bbox.x0, 3) for panel in ax.child_axes]
    assert [len(set(part)) for part in (places[:4], places[4:])] == [2, 3]
