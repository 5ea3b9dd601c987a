import pytest

import p2pkm
from p2pkm.analysis.study_table import Study
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.viz import plot_differences, plot_seeds
from p2pkm.viz.figures import seeds as seeds_figures
from tests.support.sampling import thin


def rows(seeds=4):
    """Return two methods on two graphs, and a third with a server."""
    found = [
        {"algorithm": name, "graph": graph, "seed": seed, "error": None, "ratio_mean": 1.0 + cost + 0.001 * seed * seed,
         "bytes": 1000 + seed}
        for name, cost in (("gtvmin", 0.01), ("admm", 0.5)) for graph in ("ring", "grid") for seed in range(seeds)
    ]  # fmt: skip
    return [*found, *({**row, "algorithm": "fkm", "graph": "server"} for row in found[:seeds])]


def test_every_run_is_a_dot_in_the_panel_of_its_graph():
    panels = plot_seeds(rows()).axes[0].child_axes
    assert [panel.get_title(loc="left") for panel in panels] == ["ring", "grid"]
    for panel in panels:
        dots, bars = panel.lines[::2], panel.lines[1::2]
        assert [len(line.get_xdata()) for line in dots] == [4, 4, 4]  # that with a server stands in both
        assert bars[0].get_xdata()[0] == pytest.approx(100 * (0.01 + 0.001 * 14 / 4))
    assert [label.get_text() for label in panels[0].get_yticklabels()] == ["gtvmin", "admm", "fkm"]
    assert not panels[1].get_yticklabels()


def test_one_method_is_one_panel_of_graphs():
    (panel,) = plot_seeds([row for row in rows() if row["algorithm"] == "gtvmin"], figure="bytes").axes[0].child_axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["ring", "grid"]
    assert list(panel.lines[0].get_xdata()) == [1000, 1001, 1002, 1003]


def test_differences_show_effects_intervals_and_verdicts():
    study = Study(rows(seeds=6))
    ax = plot_differences(study).axes[0]
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "gtvmin on ring", "gtvmin on grid", "fkm with a server", "admm on ring", "admm on grid"
    ]  # fmt: skip
    assert [text.get_text() for text in ax.texts] == ["best", "equivalent", "equivalent", "worse", "worse"]
    dots = [line.get_xdata()[0] for line in ax.lines if line.get_marker() == "o"]
    for one, dot, (_, _, (bar,)) in zip(study.verdicts()[1:], dots, ax.containers, strict=True):
        ends = ("near_low", "near_high") if one["verdict"] == "equivalent" else ("low", "high")
        drawn = bar.get_segments()[0][:, 0]
        assert [dot, *drawn] == pytest.approx([100 * (one[name] - 1) for name in ("effect", *ends)])
        (band,) = [band for band in ax.collections if (band.get_paths() and bar is not band
                   and band.get_paths()[0].get_extents().intervaly.mean() == bar.get_segments()[0][0, 1])]  # fmt: skip
        low, high = band.get_paths()[0].get_extents().intervalx
        assert (low, high) == pytest.approx((100 / 1.005 - 100, 0.5))
        assert (one["verdict"] == "equivalent") == (low <= drawn[0] <= drawn[1] <= high)
    assert ax.get_title(loc="left").startswith("Relative to the best, same seeds: intervals of the verdicts")
    assert ax.get_xlabel() == "cost, difference from the best (%)"


def test_the_title_counts_the_configurations_only_if_some_are_left_out(monkeypatch):
    for most, told in ((5, False), (4, True)):
        monkeypatch.setattr(seeds_figures, "_MOST", most)
        title = plot_differences(rows()).axes[0].get_title(loc="left")
        assert title.endswith(", the first 4 of 5") == told and ("first" in title) == told


def test_with_few_seeds_there_are_dots_without_intervals_and_the_seeds_that_it_takes():
    ax = plot_differences(rows(seeds=4)).axes[0]
    assert {text.get_text() for text in ax.texts[1:]} == {"not distinguished (requires about 5 seeds)"}
    assert not ax.containers and "too few for a test" in ax.get_title(loc="left")


def test_an_interval_without_end_leaves_the_axes():
    """With eight seeds the signed-rank test cannot be significant after correction for ten pairs."""
    near = {name: [1.001 + 0.0001 * number * (-1) ** seed for seed in range(8)] for number, name in enumerate("abcd")}
    costs = {**near, "e": [1.01] * 7 + [4.0]}
    table = [{"algorithm": name, "graph": "ring", "seed": seed, "ratio_mean": value, "error": None}
             for name, values in costs.items() for seed, value in enumerate(values)]  # fmt: skip
    study = Study(table)
    assert study.verdicts()[-1]["high"] is None and "interval unlimited to unlimited" in study.conclusion()
    ax = plot_differences(study).axes[0]
    low, high = ax.get_xlim()
    ends = ax.containers[-1][2][0].get_segments()[0][:, 0]
    assert ends[0] < low and ends[1] > high and high < 1000


def test_differences_of_several_orders_are_all_seen():
    far = [row | {"ratio_mean": row["ratio_mean"] + 1000 * (row["graph"] == "grid")} for row in rows()]
    ax = plot_differences(far).axes[0]
    low, high = ax.get_xlim()
    assert ax.get_xscale() == "symlog" and low <= 0 and high > 90_000
    assert plot_differences(rows()).axes[0].get_xscale() == "linear"
    scores = [row | {"ari": row["ratio_mean"] - 1.0} for row in far]
    assert plot_differences(scores, figure="ari").axes[0].get_xscale() == "symlog"


@pytest.mark.parametrize("kind", ["seeds", "differences"])
@pytest.mark.parametrize("given", [rows()[:1], rows()[:4], [row | {"ratio_mean": None} for row in rows()]])
@pytest.mark.sample(3)
def test_little_or_nothing_can_be_drawn(kind, given):
    Study(given).plot(kind).figure.savefig("/dev/null", format="png")


@pytest.mark.parametrize("kind", ["seeds", "differences"])
def test_a_study_without_a_run_that_ended_has_no_figure(kind):
    with pytest.raises(DataError, match="no run of the study has ended"):
        Study([]).plot(kind)
    with pytest.raises(ExperimentError, match="column 'ratio' does not exist in the study"):
        Study(rows()).plot(kind, figure="ratio")


@pytest.mark.parametrize("kind", thin(["seeds", "differences"], 2))
def test_rows_in_a_column_of_a_paper_keep_the_height_of_their_text(kind):
    every = [row | {"algorithm": f"gtvmin:coupling={c}"} for c in range(12) for row in rows()[:4]]
    with p2pkm.style("column"):
        figure = Study(every).plot(kind)
    (ax,) = figure.axes
    assert figure.get_figwidth() == 3.3 and ax.get_window_extent().height / figure.dpi > 12 * 0.2
    labels = (ax if kind == "differences" else ax.child_axes[0]).get_yticklabels()
    assert len(labels) == 12 and all(label.get_text() and label.get_visible() for label in labels)


def test_panels_in_a_column_of_a_paper_stand_below_one_another():
    with p2pkm.style("column"):
        panels = plot_seeds(rows()).axes[0].child_axes
    boxes = [panel.get_window_extent() for panel in panels]
    assert boxes[0].y0 > boxes[1].y1 and boxes[0].x0 == boxes[1].x0
