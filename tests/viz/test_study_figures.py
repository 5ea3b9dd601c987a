import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import p2pkm
from p2pkm.analysis.paired_tests import estimate_mean
from p2pkm.analysis.study_table import Study
from p2pkm.metrics.registry import find
from p2pkm.viz import draw_comparison, draw_study, plot_heatmap, plot_measures, plot_study_quality
from p2pkm.viz.figure_parts import list_axes
from p2pkm.viz.figures.study import error_bars, find_swept, separate_places, shorten_names
from tests.support.sampling import thin

GRAPHS = {"ring": (0.1, 5.0, 40), "grid": (0.2, 8.0, 20), "complete": (1.0, 16.0, 2)}


def rows(couplings=(1.0, 10.0)):
    return [
        {"algorithm": name, "graph": graph, "seed": seed, "coupling": coupling, "error": None,
         "ratio_mean": 1.0 + rounds / 100 / coupling, "bytes": 1000 * rounds, "virtual_seconds": None,
         "rounds_to_1pct": rounds + seed, "spectral_gap": gap, "effective_neighbors": near}
        for name in ("gtvmin", "admm") for graph, (gap, near, rounds) in GRAPHS.items()
        for coupling in couplings for seed in (0, 2)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def played():
    return p2pkm.study(grid={"algorithm": ["gtvmin:coupling=1", "fkm"], "rounds": [2, 4]}, seeds=[0, 1], devices=4,
                       data="device-clusters", link_model="lan", progress=False).rows  # fmt: skip


def texts(ax):
    return [text.get_text() for text in ax.texts]


def test_measures_stand_against_rounds_a_mark_per_method_and_graph():
    ax = plot_measures(rows(couplings=(1.0,))).axes[0]
    gap, near = ax.child_axes
    assert (gap.get_xlabel()[:12], near.get_xlabel()[:9]) == ("spectral gap", "effective")
    assert texts(gap) == ["ring", "grid", "complete"]
    for panel, place in ((gap, 0), (near, 1)):
        assert len(panel.containers) == 6
        marks = {tuple(float(part[0]) for part in one.lines[0].get_data()) for one in panel.containers}
        assert marks == {(figures[place], figures[2] + 1.0) for figures in GRAPHS.values()}
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["gtvmin", "admm"]


def test_bars_are_the_t_interval_of_the_mean():
    # The standard deviation is sqrt(20), its standard error 2, and Student's t with 4 degrees of freedom 2.776.
    bars = error_bars(np.array([0.0, 0.0, 0.0, 0.0, 10.0]))
    assert bars.ravel().tolist() == pytest.approx([5.553, 5.553], abs=1e-3)
    assert error_bars(np.array([0.0, 0.0, 0.0, 0.0, 10.0]), "bytes").ravel().tolist() == pytest.approx(
        [2, 5.553], abs=1e-3
    )
    assert error_bars(np.array([0.1] * 3)).ravel().tolist() == [0, 0]


@pytest.mark.slow
def test_a_study_is_taken_as_rows_frame_study_or_folder(tmp_path):
    import json

    pandas = pytest.importorskip("pandas")
    (tmp_path / "study.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows()))
    for source in (rows(), pandas.DataFrame(rows()), Study(rows()), tmp_path, str(tmp_path)):
        assert plot_heatmap(source, "coupling", "graph").axes[0].images[0].get_array().shape == (3, 2)


def test_a_map_holds_means_over_everything_else():
    ax = plot_heatmap([*rows(), rows()[0] | {"error": "broken", "rounds_to_1pct": 1e9}], "coupling", "graph",
                      "rounds_to_1pct").axes[0]  # fmt: skip
    assert ax.images[0].get_array().tolist() == [[41, 41], [21, 21], [3, 3]]
    assert texts(ax) == ["41", "41", "21", "21", "3", "3"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "10"]
    missing = plot_heatmap([row for row in rows() if (row["coupling"], row["graph"]) != (1.0, "grid")], "coupling",
                           "graph").axes[0]  # fmt: skip
    assert np.isnan(missing.images[0].get_array().filled(np.nan)).sum() == 1
    assert len(missing.texts) == 5


def far(row):
    """Return a row of a run that comes within 1 % of central k-means on the ring alone."""
    came = row["rounds_to_1pct"] + 1 if row["graph"] == "ring" else None
    return row | {"rounds_to_1pct_of_central": came}


def test_a_map_says_never_where_no_run_came_near_central_k_means():
    mixed = [far(row) for row in rows()]
    mixed[0]["rounds_to_1pct_of_central"] = None  # one of four runs at coupling 1
    ax = plot_heatmap(mixed, "coupling", "graph", "rounds_to_1pct_of_central").axes[0]
    assert texts(ax) == ["42.33 (3/4)", "42", "never", "never", "never", "never"]


@pytest.mark.slow
def test_marks_of_runs_that_never_came_near_central_k_means_are_hollow():
    ax = plot_measures([far(row) for row in rows(couplings=(1.0,))]).axes[0]
    faces = [one.lines[0].get_markerfacecolor() == "white" for one in ax.child_axes[0].containers]
    assert faces == [False, True, True] * 2
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend[0] == "gtvmin (never within 1 % of central on 2 of 3 graphs: hollow)"
    of_central = plot_measures([far(row) for row in rows()], value="rounds_to_1pct_of_central").axes[0]
    assert texts(of_central.child_axes[0]) == ["ring"]
    assert "2 of 3 graphs" in of_central.get_legend().get_texts()[1].get_text()


@pytest.mark.slow
@pytest.mark.parametrize("change", thin([far, dict], 2), ids=["with notes", "as they are"])
def test_the_legend_of_many_methods_is_inside_the_figure(change):
    many = [row | {"algorithm": f"{row['algorithm']}{i}"} for row in rows(couplings=(1.0,)) for i in range(5)]
    figure = plot_measures([change(row) for row in many])
    figure.canvas.draw()
    box = figure.axes[0].get_legend().get_window_extent()
    assert box.y0 >= 0 and box.x0 >= 0 and box.x1 <= figure.bbox.x1


@pytest.mark.slow
def test_quality_has_a_mark_per_configuration_with_its_interval():
    study = [row | {"error": None, "seed": seed, "ratio_mean": row["ratio_mean"] + (seed == 4) / 100}
             for row in rows(couplings=(1.0,))[:1] for seed in range(5)]  # fmt: skip
    ax = plot_study_quality(study).axes[0]
    (bar,) = ax.containers[0].lines[2][0].get_segments()
    ends = estimate_mean([row["ratio_mean"] for row in study], "ratio_mean")[1:]
    assert bar[:, 1].tolist() == pytest.approx([100 * (end - 1) for end in ends])
    assert "95 % t intervals" in ax.get_title(loc="left")
    assert ax.get_xlabel() == "plain bytes"
    labels = {panel.get_ylabel() for panel in list_axes(plot_heatmap(rows(), "coupling", "graph"))}
    assert labels == {"graph", find("ratio_mean").label}
    ax = plot_study_quality(rows()).axes[0]
    assert len(ax.containers) == 12
    assert ax.get_xscale() == "log" and "interval" not in ax.get_title(loc="left")  # both seeds are alike


@pytest.mark.slow
def test_quality_near_central_k_means_has_numbers_to_read_it_by():
    near = [row | {"ratio_mean": 1 + row["ratio_mean"] / 1000} for row in rows()]
    for table, least in ((near, {0.0, 0.1, 0.2}), (rows(), {0.0, 0.1, 1.0})):
        ax = plot_study_quality(table).axes[0]
        low, high = ax.get_ylim()
        shown = {round(float(place), 6) for place in ax.get_yticks() if low <= place <= high}
        assert least <= shown and (0.2 in shown) is (table is near), shown


@pytest.mark.slow
def test_only_figures_that_apply_are_drawn(tmp_path):
    def names(study, draw=draw_study):
        return {path.stem for path in draw(study, tmp_path / "figures", ("png",))}

    drawn = names(rows())
    assert {"measures", "quality_bytes", "heatmap_coupling_graph_ratio_mean"} <= drawn
    assert "quality_virtual_seconds" not in drawn
    blind = [row | {"ratio_mean": None, "rounds_to_1pct": None} for row in rows()]
    assert draw_study(blind, tmp_path / "none") == []
    assert draw_study([], tmp_path / "none") == []
    came = names([far(row) for row in rows()])
    assert {"measures_of_central", "heatmap_coupling_graph_rounds_to_1pct_of_central"} <= came
    few = rows(couplings=(1.0,))  # without the maps of every coupling
    assert "quality_virtual_seconds" in names([row | {"virtual_seconds": row["bytes"] / 1e4} for row in few])
    for draw in (draw_study, draw_comparison):
        assert "test_cost_bytes" not in names(few, draw)
        assert "test_cost_bytes" in names([row | {"test_ratio_common": 0.9} for row in few], draw)


def test_quality_is_drawn_where_there_is_no_lowest_ratio():
    """With groups, the ratio to central k-means does not measure quality, and no round has the best one."""
    study = [row | {"ratio_best": None if row["seed"] else 1.0} for row in rows(couplings=(1.0,))]
    assert len(plot_study_quality(study).axes[0].containers) == 6


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_any_value_of_a_row_may_be_missing(played, seed, tmp_path):
    rng, named = np.random.default_rng(seed), {"algorithm", "graph", "seed", "error", "coupling", "name"}
    lost = [key for key in played[0] if key not in named and rng.random() < 0.3]
    holey = [row | {key: None for key in lost if rng.random() < 0.5} for row in played]
    draw_study(holey, tmp_path / "study", ("png",))
    draw_comparison(holey, tmp_path / "comparison", ("png",))
    Study(holey).conclusion()


def test_what_differs_between_runs_is_found():
    assert find_swept(rows()) == ["coupling", "graph", "algorithm"]
    assert find_swept(rows(couplings=(1.0,))) == ["graph", "algorithm"]


def test_names_lose_what_all_of_a_family_share():
    names = ["ring", "small-world:degree=4,rewire=0.1", "small-world:degree=4,rewire=0.5", "torus:rows=2", 10.0]
    assert list(shorten_names(names).values()) == [
        "ring",
        "small-world:rewire=0.1",
        "small-world:rewire=0.5",
        "torus",
        "10",
    ]
    assert shorten_names(["fkm", "fkm:tol=1"]) == {"fkm": "fkm", "fkm:tol=1": "fkm:tol=1"}


@given(st.lists(st.floats(0, 1), max_size=12), st.floats(0.001, 0.3))
def test_names_stand_apart_in_order_and_do_not_move_without_need(places, apart):
    before = np.sort(np.array(places, float))
    after = separate_places(before, apart)
    assert np.all(np.diff(after) >= apart * (1 - 1e-9))
    if np.all(np.diff(before) > apart):
        assert np.allclose(after, before)
    assert len(before) == 0 or abs(after.mean() - before.mean()) < 1e-9
