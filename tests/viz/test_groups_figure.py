"""The picture of the graph in which devices are colored by group, and where it appears."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_hex

import p2pkm
import topologies
from p2pkm.viz import draw_all, plot_graph
from p2pkm.viz.all_figures import list_figures
from p2pkm.viz.style import CATEGORIES
from tests.support.run_cli import here


def solve(**options):
    """Return a small run of two communities."""
    made = p2pkm.communities(devices=6, seed=3)
    shards = p2pkm.Shards.deal(made.points, made.device)
    method = p2pkm.TreeLloyd(4, **options)
    return p2pkm.simulate(method, topologies.communities(6, bridges=1, seed=3), shards, rounds=2, baselines=False)


@pytest.mark.parametrize("groups", [None, np.arange(1, 7)])
def test_every_group_has_a_color_and_a_name(groups):
    result = solve(groups=2)
    assert len(np.unique(result.groups)) == 2
    result = result if groups is None else replace(result, groups=groups)
    ax = plot_graph(result, nodes="group").axes[0]
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == [f"group {group}" for group in np.unique(result.groups)]
    marks = next(part for part in ax.collections if len(part.get_offsets()) == 6)
    marks.update_scalarmappable()
    colors = [to_hex(color).upper() for color in marks.get_facecolors()]
    assert colors == [CATEGORIES[group % len(CATEGORIES)].upper() for group in result.groups]


@pytest.mark.slow
def test_only_runs_with_groups_have_the_figure(tmp_path):
    assert "groups.png" in {path.name for path in draw_all(solve(groups=2), tmp_path / "groups")}
    assert "groups.png" not in {path.name for path in draw_all(solve(), tmp_path / "plain")}
    points, _ = p2pkm.grid16(points=4)
    shards = p2pkm.Shards.deal(points, np.arange(len(points)) % 4, devices=4)
    one = p2pkm.simulate(p2pkm.GTVMin(3), topologies.ring(4), shards, rounds=1, baselines=False)
    assert one.groups.max() == 0 and "groups" not in list_figures(one)
    without = plot_graph(solve(), nodes="group").axes[0]
    assert [text.get_text() for text in without.get_legend().get_texts()] == ["no groups"]


@pytest.mark.slow
def test_the_report_has_the_figure(tmp_path):
    run = tmp_path / "run"
    ending = here("--algorithm", "treelloyd:groups=2", "--data", "communities:devices=6", "--devices", 6,
                  "-k", 4, "--graph", "communities:bridges=1", "--rounds", 1, "--out", run)  # fmt: skip
    assert ending.code == 0, ending.err
    assert (run / "figures" / "groups.svg").is_file()
    assert here("report", run).code == 0
    assert "Communication graph by groups: 2 groups of" in (run / "report.html").read_text()
