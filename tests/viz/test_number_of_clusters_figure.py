"""The figure of a chosen number of clusters, and where it appears."""

from dataclasses import replace

import pytest

import p2pkm
import topologies
from p2pkm.methods.building_blocks.number_of_clusters import INDICES
from p2pkm.viz import draw_all, plot_k
from p2pkm.viz.report.run_page import draw_run
from tests.experiments.test_k_auto import deal
from tests.support.run_cli import here


def solve(**options):
    """Return a small run."""
    return p2pkm.simulate(p2pkm.GTVMin(4), topologies.ring(6), deal(), rounds=1, baselines=False, **options)


def test_every_index_has_a_curve_with_its_best_number():
    result = solve(clusters="auto", k_max=9)
    ax = plot_k(result).axes[0]
    labels = [line.get_label() for line in ax.get_lines() if not line.get_label().startswith("_")]
    assert len(labels) == len(INDICES) + 1
    assert "Calinski-Harabasz: 4" in labels and "chosen: 4" in labels
    dots = [line.get_xdata()[0] for line in ax.get_lines() if line.get_marker() == "o"]
    assert dots == [best for best in result.summary["k_preferred"].values()]


def test_a_number_without_a_value_has_no_place_on_the_curve():
    result = solve(clusters="auto", k_max=5)
    name = next(iter(INDICES))
    indices = result.summary["k_indices"] | {name: [1.0, None, 3.0, 2.0]}
    summary = result.summary | {"k_indices": indices, "k_preferred": result.summary["k_preferred"] | {name: 3}}
    curve, best, *_ = plot_k(replace(result, summary=summary)).axes[0].get_lines()
    assert curve.get_xdata().tolist() == [1, 3, 4] and best.get_xdata().tolist() == [3]


@pytest.mark.slow
def test_only_runs_that_chose_have_the_figure(tmp_path):
    assert "k.png" in {path.name for path in draw_all(solve(clusters="auto", k_max=9), tmp_path / "auto")}
    assert "k.png" not in {path.name for path in draw_all(solve(), tmp_path / "given")}
    assert not plot_k(solve()).axes[0].get_lines()


@pytest.mark.slow
def test_the_report_has_the_figure_and_the_table(tmp_path):
    run = tmp_path / "run"
    ending = here("-k", "auto", "--k-max", "5", "--data", "grid16:points=5", "--devices", "4", "--rounds", "1",
                  "--no-plot", "--out", run)  # fmt: skip
    assert ending.code == 0, ending.err
    page = draw_run(run)[0]
    assert "Indices for the number of clusters" in page and "Davies-Bouldin (best at" in page
