"""Heat maps of rank correlations between graph measures and outcomes."""

import numpy as np
import pytest

from p2pkm.analysis.graph_measures import MEASURES
from p2pkm.analysis.study_table import Study
from p2pkm.core.errors import DataError
from p2pkm.viz import draw_study, plot_explained


def explained(methods=("gossip",), graphs=9, devices=(16,)):
    """Return rows whose bytes follow the diameter; rounds and busiest device follow it at the first size only."""
    rng = np.random.default_rng(0)
    measures = [{"diameter": i + 1.0, "hub_load": rng.uniform()} for i in range(graphs)]
    return [
        {"algorithm": method, "graph": f"g{i}", "seed": 0, "error": None, "devices": n, **dict.fromkeys(MEASURES),
         **measures[i], "wire_bytes": 3.0 ** i, "rounds": i if n == devices[0] else i % 5,
         "bytes_busiest": i if n == devices[0] else 50 - i,
         "ratio_mean": 1.0, "rounds_to_1pct": None}
        for method in methods for n in devices for i in range(graphs)
    ]  # fmt: skip


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_a_panel_per_method_with_a_row_per_measure_and_a_column_per_outcome():
    ax = plot_explained(explained(("a", "b"))).axes[0]
    first, second, _ = ax.child_axes
    assert [panel.get_title(loc="left") for panel in (first, second)] == ["a", "b"]
    assert labels(first.yaxis) == ["diameter", "hub load"] and labels(second.yaxis) == ["", ""]
    assert labels(first.xaxis) == labels(second.xaxis) == ["encoded bytes", "plain bytes, busiest", "rounds"]
    assert first.images[0].get_array()[0].tolist() == [1.0, 1.0, 1.0]
    assert "9 graphs" in ax.get_title(loc="left")


def test_numbers_are_those_that_are_significant_at_every_number_of_devices():
    panel = plot_explained(explained(devices=(16, 32))).axes[0].child_axes[0]
    assert [(text.get_position(), text.get_text()) for text in panel.texts] == [((0, 0), "+1.00")]
    _, opposite, weak = panel.images[0].get_array()[0]
    assert opposite == 0.0 and 0.5 < weak < 1.0


@pytest.mark.slow
def test_many_methods_are_named_in_the_title():
    ax = plot_explained(explained([f"m{i}" for i in range(14)])).axes[0]
    assert len(ax.child_axes) == 13 and "the first 12 of 14 methods" in ax.get_title(loc="left")


def test_too_few_graphs_are_refused_and_not_drawn(tmp_path):
    few = explained(graphs=7)
    with pytest.raises(DataError, match="7 graphs; expected at least 8"):
        plot_explained(few)
    assert draw_study(few, tmp_path) == []


def test_a_study_draws_it():
    figure = Study(explained()).plot("explained")
    assert len(figure.axes[0].child_axes) == 2


@pytest.mark.slow
def test_it_is_among_the_figures_of_a_study(tmp_path):
    assert {path.stem for path in draw_study(explained(), tmp_path, ("svg",))} == {"explained", "explained.data"}
