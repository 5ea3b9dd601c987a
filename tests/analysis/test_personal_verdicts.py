"""Conclusions of studies with test points: ranked by what serves the devices, with the common clustering second."""

import csv
import io
import json

import numpy as np
import pytest

import p2pkm
from p2pkm.analysis.conclusion import conclude, list_verdicts, write_verdicts
from p2pkm.analysis.paired_tests import choose_figure, judge_blocks
from p2pkm.analysis.study_table import Study
from p2pkm.engine.run_options import RunOptions
from p2pkm.viz import plot_differences, plot_seeds
from p2pkm.viz.report.narrative import narrate
from p2pkm.viz.report.write import write_report

WIGGLE = np.array([0.0, 0.01, -0.01, 0.005, -0.005])


def runs(ratio, test=None, score=None, **more):
    return {
        seed: {"seed": seed, "ratio_mean": ratio + wiggle, **more}
        | ({} if test is None else {"test_ratio_common": test + wiggle / 2})
        | ({} if score is None else {"test_ari_all": score})
        for seed, wiggle in enumerate(WIGGLE.tolist())
    }


DIFFERING = {"own": runs(1.2, 0.65, 0.84), "common": runs(1.0, 1.0, 0.76), "alone": runs(1.6, 0.72)}


def strip(groups):
    """The same runs without test points."""
    return {name: {seed: {key: row[key] for key in ("seed", "ratio_mean")} for seed, row in group.items()}
            for name, group in groups.items()}  # fmt: skip


def list_best(rows):
    return [(row["configuration"], row["figure"]) for row in rows if row["verdict"] == "best"]


def test_devices_that_differ_are_ranked_by_their_test_points():
    words = conclude(DIFFERING)
    first, second = words.split(" One clustering for all devices: ")
    assert first.startswith(
        "A clustering for each device, on its test points: over 5 seeds, own has the lowest mean test cost relative to "
        "a common clustering of 3 configurations, 0.6500."
    )
    assert "Worse than it: alone (test cost +10.8 %" in first and "common (test cost +53.8 %" in first
    assert "devices together: own 0.840; common 0.760; not known for alone." in first
    assert second.startswith("over 5 seeds, common has the lowest mean cost relative to central k-means")
    assert "own (cost +20 %" in second
    # One description of the tests is enough.
    assert words.count("Paired t-test") == 1


def test_the_second_question_is_answered_as_without_test_points():
    alone = conclude(strip(DIFFERING))
    assert conclude(DIFFERING, "ratio_mean") == alone
    second = conclude(DIFFERING).split(" One clustering for all devices: ")[1]
    assert alone.startswith(f"O{second[1:]}") and alone[len(second) :].startswith(" Paired t-test")


def test_the_statistics_are_those_of_any_other_metric():
    chosen, named = judge_blocks(DIFFERING)[""], judge_blocks(DIFFERING, "test_ratio_common")[""]
    assert chosen.figure == "test_ratio_common" and chosen.names == ["own", "alone", "common"]
    for name in chosen.names[1:]:
        assert chosen.pair(name, "own") == named.pair(name, "own")
    assert list_verdicts(DIFFERING, [None]) == list_verdicts(DIFFERING, ["test_ratio_common"])
    assert list_verdicts(strip(DIFFERING), [None]) == list_verdicts(strip(DIFFERING), ["ratio_mean"])


def test_a_tie_in_test_cost_is_no_rank():
    words = conclude({"own": runs(1.0, 1.0), "common": runs(1.0, 1.0)})
    assert "test cost relative to a common clustering" in words and "Equivalent to it within 0.5 %: common" in words
    assert "ARI" not in words


def test_each_block_on_the_same_points_has_its_own_question():
    groups = {
        "a": runs(1.2, 0.6, data="here"), "b": runs(1.0, 1.0, data="here"),
        "c": runs(1.2, data="there"), "d": runs(1.0, data="there"),
    }  # fmt: skip
    words = conclude(groups)
    assert "For data here: a clustering for each device, on its test points: over 5 seeds, a has the lowest" in words
    assert "For data there: over 5 seeds, d has the lowest mean cost relative to central k-means" in words
    assert list_best(list_verdicts(groups, [None])) == [("a", "test_ratio_common"), ("d", "ratio_mean")]


def test_a_configuration_without_test_cost_is_named():
    words = conclude({**DIFFERING, "lost": runs(1.1)})
    assert "Not compared, because some runs lack the metric: lost." in words
    assert choose_figure([{"test_ratio_common": None}, {}]) == "ratio_mean"


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared") / "study"
    study = p2pkm.compare(
        ["gtvmin:coupling=1", "treelloyd"], "torus", seeds="0-4", devices=16, data="device-clusters", out=folder,
        progress=False,
    )  # fmt: skip
    return study, folder


def test_every_text_of_a_comparison_ranks_by_the_devices(compared):
    study, folder = compared
    best, other = "gtvmin:coupling=1 on torus", "treelloyd on torus"
    assert study.conclusion().startswith(f"A clustering for each device, on its test points: over 5 seeds, {best} has")
    assert f"One clustering for all devices: over 5 seeds, {other} has the lowest" in study.conclusion()
    assert study.verdicts()[0]["configuration"] == best
    assert study.verdicts("ratio_mean")[0]["configuration"] == other
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["conclusion"] == study.conclusion()
    assert list_best(summary["verdicts"]) == [(best, "test_ratio_common"), (other, "ratio_mean")]
    rows = list(csv.DictReader(io.StringIO(write_verdicts(study.configurations(), ["test_ratio_common"]))))
    assert rows[0]["configuration"] == best and summary["differences"][0]["test_ratio_common"]["verdict"] == "worse"
    text = study.to_latex()
    assert text.index("test/common") < text.index("ratio")


@pytest.mark.slow
def test_figures_and_the_report_of_a_comparison_rank_by_the_devices(compared):
    study, folder = compared
    best = "gtvmin:coupling=1 on torus"
    labels = [label.get_text() for label in plot_differences(study).axes[0].get_yticklabels()]
    assert labels[0] == best
    assert "test cost" in plot_seeds(study).axes[0].child_axes[0].get_xlabel()
    page = write_report(folder, vars(RunOptions())).path.read_text()
    assert f"Best: {best}, whose centroids cost" in page
    assert "less than a common clustering on test points of the devices" in page


def test_without_test_points_nothing_changes(compared):
    study, _ = compared
    plain = Study([{key: value for key, value in row.items() if not key.startswith("test_")} for row in study.rows])
    assert plain.conclusion() == study.conclusion("ratio_mean")
    assert plain.verdicts() == study.verdicts("ratio_mean")


def test_the_summary_of_a_run_says_what_the_devices_get():
    data = p2pkm.device_clusters(graph="torus", devices=16, seed=1)
    result = p2pkm.simulate("gtvmin:coupling=1", "torus", data.shards, clusters=4)
    gain = round(100 * (1 - result.summary["test_ratio_common"]))
    words = f"On test points of each device, the centroids of the device cost {gain} % less than those of a common"
    assert words in narrate(result)
    plain = p2pkm.Shards.deal(data.points, data.device)
    assert "test points" not in narrate(p2pkm.simulate("gtvmin:coupling=1", "torus", plain, clusters=4))
