import numpy as np
import pytest

import p2pkm
from p2pkm.analysis.paired_tests import estimate_mean
from p2pkm.analysis.study_table import Study
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.viz import plot_columns

SEEDS = range(5)


def rows():
    """Return two methods on two graphs with three couplings; costs and bytes depend on all of them and on the seed."""
    return [
        {"algorithm": name, "graph": graph, "coupling": coupling, "seed": seed, "error": None,
         "termination": "converged" if seed else "rounds", "ratio_mean": 1.0 + cost + place / 8 + seed / 64 + coupling,
         "bytes": 1000 * (seed + 1) * coupling, "note": None}
        for name, cost in (("gtvmin", 0.25), ("admm", 0.5)) for place, graph in enumerate(("ring", "grid"))
        for coupling in (1.0, 10.0, 100.0) for seed in SEEDS
    ]  # fmt: skip


def means_of(figure):
    """Return place, mean and ends of the interval of each mark, by label of the series."""
    found = {}
    for one in figure.axes[0].containers:
        line, _, (bars,) = one
        found[one.get_label()] = [
            (float(x), float(y), float(low[1]), float(high[1]))
            for x, y, (low, high) in zip(*line.get_data(), bars.get_segments(), strict=True)
        ]
    return found


def expected(chosen, column="ratio_mean"):
    """Return mean and interval over seeds of the means of the runs of each seed."""
    return estimate_mean([np.mean([row[column] for row in chosen if row["seed"] == seed]) for seed in SEEDS], column)


def test_means_over_an_option_average_the_runs_of_a_seed_first():
    figure = plot_columns(rows(), x="coupling", y="ratio_mean", color="algorithm")
    ax = figure.axes[0]
    found = means_of(figure)
    assert list(found) == ["gtvmin", "admm"]
    for name, marks in found.items():
        assert [mark[0] for mark in marks] == [1.0, 10.0, 100.0]
        for x, *interval in marks:
            chosen = [row for row in rows() if (row["algorithm"], row["coupling"]) == (name, x)]
            assert interval == pytest.approx(expected(chosen))
    dots = [line for line in ax.lines if line.get_alpha() is not None]
    assert [len(line.get_xdata()) for line in dots] == [30, 30]
    assert sorted(zip(*dots[0].get_data(), strict=True)) == sorted(
        (row["coupling"], row["ratio_mean"]) for row in rows() if row["algorithm"] == "gtvmin"
    )
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("coupling", "cost ratio, mean device")
    assert ax.get_title(loc="left") == "Mean and 95 % interval of 5 seeds over graph, a dot per run"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["gtvmin", "admm"]


def test_names_on_an_axis_have_their_series_side_by_side():
    figure = Study(rows()).plot(x="graph", y="bytes")
    ax = figure.axes[0]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["ring", "grid"]
    places = {name: [mark[0] for mark in marks] for name, marks in means_of(figure).items()}
    assert list(places) == ["gtvmin", "admm"]  # the first other option that varies
    assert places["gtvmin"] == pytest.approx([-0.175, 0.825]) and places["admm"] == pytest.approx([0.175, 1.175])
    chosen = [row for row in rows() if (row["algorithm"], row["graph"]) == ("admm", "grid")]
    assert means_of(figure)["admm"][1][1:] == pytest.approx(expected(chosen, "bytes"))
    assert (ax.get_xscale(), ax.get_yscale()) == ("linear", "log")
    counts = Study(rows()).plot(x="graph", y="termination", color="algorithm").axes[0]
    assert [text.get_text() for text in counts.texts] == ["3", "12"] * 4 and not counts.containers


@pytest.mark.slow
def test_a_measured_column_has_a_mean_for_each_configuration():
    figure = plot_columns(rows(), x="bytes", color="graph")
    marks = means_of(figure)["ring"]
    assert len(marks) == 6
    for coupling in (1.0, 10.0, 100.0):
        of_both = [mark for mark in marks if mark[0] == pytest.approx(3000 * coupling)]
        for name in ("gtvmin", "admm"):
            chosen = [row for row in rows() if row["graph"] == "ring" and (row["algorithm"], row["coupling"]) ==
                      (name, coupling)]  # fmt: skip
            assert any(mark[1:] == pytest.approx(expected(chosen)) for mark in of_both)


def test_many_numbers_are_a_color_scale():
    figure = plot_columns(rows(), x="coupling", y="ratio_mean", color="bytes")
    (dots,) = [marks for marks in figure.axes[0].collections if marks.get_array() is not None]
    assert dots.get_array().tolist() == [row["bytes"] for row in rows()]
    assert not figure.axes[0].containers and type(dots.norm).__name__ == "LogNorm"


def test_zeros_do_not_prevent_a_logarithmic_axis():
    some = [row | {"coupling": 0.0 if row["coupling"] == 1.0 else row["coupling"]} for row in rows()]
    assert plot_columns([*some, *rows()], x="coupling").axes[0].get_xscale() == "symlog"
    negative = [row | {"coupling": -row["coupling"]} for row in rows()]
    assert plot_columns(negative, x="coupling").axes[0].get_xscale() == "linear"


@pytest.mark.slow
def test_a_study_that_has_not_ended_is_drawn(tmp_path):
    asked = {"grid": {"graph": ["ring", "complete"]}, "devices": 4, "data": "grid16:points=5", "rounds": 2,
             "progress": False, "out": tmp_path}  # fmt: skip
    p2pkm.study(seeds=range(3), **asked)
    (tmp_path / "study.jsonl").unlink()
    stored = tmp_path / "runs" / "worker-1.jsonl"
    stored.write_bytes(stored.read_bytes()[: stored.stat().st_size * 3 // 4])
    part = p2pkm.load_study(tmp_path)
    assert 0 < len(part.rows) < 6
    dots = [line for line in part.plot(x="graph").axes[0].lines if line.get_alpha() is not None]
    assert sorted(dots[0].get_ydata()) == sorted(row["ratio_mean"] for row in part.rows)


def test_runs_without_a_value_are_counted():
    some = [row | {"ratio_mean": None} if row["seed"] == 4 else row for row in rows()]
    title = plot_columns([*some, rows()[0] | {"error": "broken"}], x="graph").axes[0].get_title(loc="left")
    assert title == "Mean and 95 % interval of 4 seeds over coupling, a dot per run, 12 runs without a value"


@pytest.mark.parametrize("name", ["x", "y", "color"])
def test_an_unknown_column_is_answered_with_those_that_exist(name):
    with pytest.raises(ExperimentError, match=r"column 'costs' does not exist.*Known: algorithm, bytes, coupling"):
        Study(rows()).plot(**{"x": "graph"} | {name: "costs"})


def test_what_cannot_be_drawn():
    study = Study([row | {"key": str(number)} for number, row in enumerate(rows())])
    with pytest.raises(ExperimentError, match="60 different texts, such as '0'; expected numbers, or at most 40"):
        study.plot(x="key")
    with pytest.raises(DataError, match="no run has a value in the columns note, ratio_mean"):
        study.plot(x="note")
    with pytest.raises(ExperimentError, match="require x"):
        study.plot(y="bytes")
    with pytest.raises(ExperimentError, match="cannot be combined with kind or figure"):
        study.plot("differences", x="graph")
    with pytest.raises(ExperimentError, match="cannot be combined with kind or figure"):
        study.plot(figure="bytes", x="graph")
