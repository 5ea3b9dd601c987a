"""Several runs in one figure: curves, means and bands, and what is rejected."""

import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.viz import overlay


@pytest.fixture(scope="module")
def runs():
    X, _ = p2pkm.blobs(clusters=3, points=40, seed=0)
    shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(len(X), 4, seed=0), devices=4)
    return [p2pkm.simulate(p2pkm.GTVMin(3), topologies.ring(4), shards, rounds=rounds, seed=seed)
            for rounds, seed in ((2, 0), (4, 1))]  # fmt: skip


def test_one_run_is_its_records(runs):
    ax = overlay(runs[:1], ["a"]).axes[0]
    known = [record["ratio_mean"] for record in runs[0].rounds if record["ratio_mean"] is not None]
    np.testing.assert_allclose(ax.lines[0].get_ydata(), 100 * (np.array(known) - 1))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a"]


def test_equal_labels_are_a_mean_with_a_band_and_the_shorter_run_keeps_its_last_value(runs):
    ax = overlay(runs, ["a", "a"], show="bytes").axes[0]
    (line,), (band,) = ax.lines, ax.collections
    last = [run.rounds[-1]["bytes"] for run in runs]
    assert line.get_ydata()[-1] == pytest.approx(np.mean(last))
    box = band.get_paths()[0].vertices
    right = box[box[:, 0] == box[:, 0].max(), 1]
    assert (right.min(), right.max()) == (min(last), max(last))
    assert ax.get_legend().get_texts()[0].get_text() == "a (2 seeds)"


def test_cost_is_drawn_against_bytes_and_runs_are_read_from_folders(runs, tmp_path):
    folder = runs[1].save(tmp_path / "run")
    ax = overlay([runs[0], folder], ["a", "b"], show="cost").axes[0]
    assert [line.get_xdata()[-1] for line in ax.lines[:2]] == [run.rounds[-1]["bytes"] for run in runs]
    assert not ax.collections


def test_runs_without_labels_are_named_by_method_and_graph(runs):
    texts = overlay(runs).axes[0].get_legend().get_texts()
    assert len(texts) == 1 and texts[0].get_text().endswith("(2 seeds)")


def test_what_is_rejected(runs):
    with pytest.raises(ExperimentError, match="labels has 1 entry; expected one for each of the 2 runs"):
        overlay(runs, ["a"])
    with pytest.raises(ExperimentError, match="results has 0 runs"):
        overlay([])
    with pytest.raises(ExperimentError, match=r"show is 'time'\. Known: bytes, convergence, cost"):
        overlay(runs, show="time")
    blank = [{**record, "ratio_mean": None, "objective": None} for record in runs[0].rounds]
    from dataclasses import replace

    with pytest.raises(DataError, match="no common metric of cost"):
        overlay([replace(runs[0], rounds=blank)])
