"""What is written in figures: numbers of any size, on axes, color bars and in pages, say what they stand for."""

import io
import re
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from matplotlib import rc_context
from matplotlib.figure import Figure

import p2pkm
import topologies
from p2pkm import viz as plots
from p2pkm.viz.all_figures import FIGURES
from p2pkm.viz.style import add_color_bar, label_axes, scale_colors, write_number
from p2pkm.viz.svg import draw_inline


def read_ticks(axis):
    """Return the numbers that an axis shows, with what its label says of them, beside where they stand."""
    low, high = sorted(axis.get_view_interval())
    room = 1e-9 * (high - low)
    places = np.asarray(axis.get_majorticklocs())
    shown = (places >= low - room) & (places <= high + room)
    texts = np.array(axis.get_major_formatter().format_ticks(places))
    found = re.search(r" ([-+]) ([\d.e+-]+)$", axis.get_label_text())
    offset = 0.0 if found is None else float(found[2]) * (1 if found[1] == "-" else -1)
    return np.array([float(text) for text in texts[shown]]), places[shown], offset


def check_ticks(axis):
    numbers, places, offset = read_ticks(axis)
    assert not [(a, b) for a, b in pairwise(numbers) if not a < b]  # all differ, and rise
    width = max(np.ptp(places), 1e-300)
    assert np.abs(numbers + offset - places).max(initial=0) <= 1e-3 * width + 4e-16 * abs(offset)


def texts(svg):
    return re.findall(r"<(?:text|tspan)[^>]*>([^<]+)<", svg)


middles = st.floats(-1e12, 1e12, allow_subnormal=False).filter(lambda x: x == 0 or abs(x) > 1e-12)
widths = st.floats(-7, 3).map(lambda x: 10.0**x)


@pytest.mark.slow
@given(middles, widths)
@example(1000.0, 1e-6)
@example(1.7e9, 1e-9)
@example(1e-5, 1.0)
@example(1.0, 2e-7)
def test_numbers_of_linear_axes_can_be_told_apart_and_are_right(middle, relative):
    width = relative * (abs(middle) or 1.0)
    ax = Figure().add_axes((0.1, 0.1, 0.8, 0.8))
    ax.plot([middle - width, middle + width], [middle + width, middle - width])
    label_axes(ax, "", "x", "y")
    check_ticks(ax.xaxis)
    check_ticks(ax.yaxis)
    marks = ax.scatter([0, 1], [0, 1], c=[0, 1], norm=scale_colors(np.array([middle, middle + width])))
    bar = add_color_bar(ax, marks, "z", (1, 0, 0.1, 1))
    if bar.ax.yaxis.get_scale() == "linear":
        check_ticks(bar.ax.yaxis)


@pytest.mark.parametrize(("value", "text"), [(0.00387, "0.00387"), (1234.5, "1,234"), (4.18e-10, "4.18e-10")])
def test_numbers_beside_marks(value, text):
    assert write_number(value) == text


@pytest.fixture(scope="module", params=[(1e-5, 0.0), (1e-3, 1000.0), (1.0, 1.7e9), (1e7, 0.0), (0.018, 0.0)])
def run(request):
    scale, shift = request.param
    X, y = p2pkm.grid16(points=10, seed=0)
    device = p2pkm.partition.dirichlet(y, 6, alpha=0.3, seed=0)
    shards = p2pkm.Shards.deal(scale * X + shift, device, devices=6, labels=y)
    return p2pkm.simulate(p2pkm.GTVMin(4), topologies.ring(6), shards, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_pages_show_what_the_figure_says(run, name):
    draw, target = partial(FIGURES[name], run), io.StringIO()
    with rc_context({"svg.fonttype": "none"}):
        draw().figure.savefig(target, format="svg")
    assert texts(draw_inline(draw, name)) == texts(target.getvalue())


def test_pages_leave_text_alone_that_looks_like_an_attribute():
    words = 'd="0.01849" id="a" url(#b) fill: 0.12345 translate(0.01849) <0.01849>'

    def draw():
        ax = Figure().add_axes((0.1, 0.1, 0.8, 0.8))
        ax.set_title(words)
        return ax

    svg = draw_inline(draw, "one")
    assert words.replace("<", "&lt;").replace(">", "&gt;") in svg
    assert "DejaVu Sans" not in svg


@pytest.mark.slow
@pytest.mark.parametrize("plot", [plots.plot_points, plots.plot_convergence, plots.plot_graph, plots.plot_devices])
def test_figures_of_small_and_far_numbers(run, plot):
    ax = plot(run).axes[0]
    ax.figure.canvas.draw()
    for panel in [ax, *ax.child_axes]:
        for axis in (panel.xaxis, panel.yaxis):
            assert not axis.offsetText.get_text() or not panel.axison  # nothing is written into legend and title
            if panel.axison and plot is plots.plot_points:
                check_ticks(axis)
