"""Figures of p2pkm are the same bytes whatever matplotlibrc or style sheet the user has."""

import io
import json

import matplotlib
import networkx as nx
import pytest
from matplotlib import rc_context, rcParams
from matplotlib.figure import Figure
from matplotlib.text import Text

import p2pkm
from p2pkm import viz
from p2pkm.network.graph import Topology
from p2pkm.viz.save_figure import save_figure
from tests.support.run_cli import here
from tests.support.sampling import thin
from tests.viz.test_looks import DRAWN, run  # noqa: F401 - a fixture

# Settings of users: LaTeX that is not installed, sizes, layouts, dark colors, a format of files, a locale of numbers.
USERS = {
    "text.usetex": True, "font.size": 23.0, "font.family": "serif", "figure.constrained_layout.use": True,
    "savefig.bbox": "tight", "savefig.dpi": 40, "savefig.format": "pdf", "savefig.transparent": True,
    "axes.facecolor": "black", "text.color": "white", "axes.grid": True, "axes.unicode_minus": False,
    "axes.prop_cycle": matplotlib.cycler(color=["red"]), "lines.linewidth": 9.0, "image.cmap": "gray",
    "legend.loc": "center", "xtick.direction": "in", "axes.xmargin": 0.4, "svg.fonttype": "path",
    "path.sketch": (3, 9, 2),
}  # fmt: skip


def write(figure, kind="png"):
    file = io.BytesIO()
    figure.savefig(file, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return file.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("name", thin(["graph", "bytes", None], 3))
def test_no_setting_of_the_user_changes_a_figure(run, name):  # noqa: F811
    for one in DRAWN if name is None else [name]:
        plain = write(DRAWN[one](run))
        with rc_context(USERS):
            assert write(DRAWN[one](run)) == plain, one


def test_files_of_figures_are_the_same_with_settings_of_the_user(run, tmp_path):  # noqa: F811
    def read(folder):
        return [path.read_bytes() for path in save_figure(lambda: DRAWN["bytes"](run), folder, "bytes")]

    plain = read(tmp_path / "plain")
    with rc_context(USERS):
        assert read(tmp_path / "users") == plain


def test_settings_of_the_user_are_kept_and_act_in_axes_of_the_user(run):  # noqa: F811
    with rc_context({"font.family": "serif", "axes.titlecolor": "red"}):
        before = dict(rcParams)
        viz.plot_bytes(run)
        assert dict(rcParams) == before
        ax = Figure().subplots()
        viz.plot_bytes(run, ax)
        assert ax.title.get_fontfamily() == ["serif"]


def test_the_text_size_of_a_style_acts(run):  # noqa: F811
    with p2pkm.style("slide"):
        assert viz.plot_bytes(run).axes[0].get_xticklabels()[0].get_fontsize() == 16.0


def test_names_with_dollar_signs_are_names_and_no_formulas():
    names = ["$x$", r"$\frac$", "_b", "a_$1", "50 %", "^"]
    topology = Topology.from_graph(nx.relabel_nodes(nx.cycle_graph(6), dict(enumerate(names))))
    figure = viz.plot_topology(topology, r"$\bad{$")
    svg = write(figure, "svg").decode()
    assert not [name for name in names if not (f">{name}<" in svg or f"> {name}<" in svg)]
    assert r"$\bad{$: 6 devices, 6 links" in svg


def test_a_formula_of_the_user_in_a_figure_of_ours_is_set_as_one(run):  # noqa: F811
    figure = viz.plot_bytes(run)
    figure.axes[0].set_xlabel("$x^2$")
    assert figure.axes[0].xaxis.label.get_parse_math()


@pytest.mark.slow
def test_no_number_of_an_axis_needs_mathematics(run):  # noqa: F811
    for draw in DRAWN.values():
        figure = draw(run)
        figure.draw_without_rendering()
        assert not [text for text in figure.findobj(Text) if "$" in text.get_text()]


def test_a_figure_that_cannot_be_drawn_leaves_a_finished_run(tmp_path, monkeypatch):
    def fail(*given, **options):
        raise RuntimeError("no such font")

    monkeypatch.setattr(viz, "draw_all", fail)
    found = here("--devices", 4, "--data", "grid16:points=5", "--rounds", 1, "--out", tmp_path / "run")
    assert found.code == 0
    assert "figures could not be drawn (RuntimeError: no such font)" in " ".join(found.out.split())
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["state"] == "done"
    assert here("verify", tmp_path / "run", "--files-only").code == 0
