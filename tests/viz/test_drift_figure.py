"""The figure of a run with a stream, its summary figures, and where they appear."""

import json

import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.viz import draw_all, plot_drift
from p2pkm.viz.figures.drift import find_breaks
from p2pkm.viz.report.run_page import draw_run
from tests.engine.test_point_feed import deal, write
from tests.support.run_cli import here


def solve(stream=None, rounds=6):
    """Return a small run."""
    return p2pkm.simulate(p2pkm.TreeLloyd(4), topologies.ring(6), deal(), rounds=rounds, stream=stream)


@pytest.mark.slow
def test_the_summary_has_the_mean_and_the_worst_excess_and_the_bytes_of_a_round():
    result = solve("drawn:kind=jump,at=3,share=0.5")
    own = [record for record in result.rounds if record["stage"] == "treelloyd"]
    excess = [record["ratio_mean"] - 1.0 for record in own[1:]]
    summary = result.summary
    assert summary["stream"] == "drawn:kind=jump,share=0.5,at=3"
    assert summary["stream_excess"] == pytest.approx(np.mean(excess), rel=1e-12)
    assert summary["stream_excess_worst"] == max(excess)
    assert summary["stream_bytes_per_round"] == (own[-1]["wire_bytes"] - own[0]["wire_bytes"]) / 6
    json.dumps(summary)
    assert {solve().summary[key] for key in summary if key.startswith("stream")} == {None}


@pytest.mark.slow
def test_the_breaks_are_marked(tmp_path):
    tape = write(tmp_path / "t.jsonl", {"kind": "leave", "round": 2, "device": 0, "number": 0},
                 {"kind": "arrive", "round": 5, "device": 0, "point": [0.0, 0.0]})  # fmt: skip
    for stream, breaks in ((tape, [2, 5]), ("drawn:kind=jump,at=3", [3]), ("drawn:kind=slow", []),
                           ("drawn:kind=birth,at=9", [])):  # fmt: skip
        result = solve(stream)
        assert find_breaks(result) == breaks
        lines = [line for line in plot_drift(result).axes[0].get_lines() if line.get_linestyle() == "--"]
        assert [line.get_xdata()[0] for line in lines] == breaks


@pytest.mark.slow
def test_only_runs_with_a_stream_have_the_figure(tmp_path):
    result = solve("drawn:kind=slow", 2)
    assert "drift.png" in {path.name for path in draw_all(result, tmp_path / "a")}
    assert "drift.png" not in {path.name for path in draw_all(solve(rounds=2), tmp_path / "b")}
    assert not plot_drift(solve(rounds=2)).axes[0].get_lines()


@pytest.mark.slow
def test_the_report_has_the_figure(tmp_path):
    run = tmp_path / "run"
    ending = here("--data", "grid16:points=1", "--devices", "3", "-k", "2", "--rounds", "1", "--stream",
                  "drawn:kind=jump", "--no-plot", "--out", run)  # fmt: skip
    assert ending.code == 0, ending.err
    assert "Drift: points change during the run" in draw_run(run)[0]
