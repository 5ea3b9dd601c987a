"""The benchmark by test points: its suite, its ranking against a twin, rows, and tables of the user."""

import csv

import numpy as np
import pytest

import p2pkm
from p2pkm.analysis.bench_personal import PersonalSummary, rank_by_tests
from p2pkm.experiments.bench.entries import list_entries, select_main, split_list
from p2pkm.experiments.bench.suites import TEST, read_suite
from tests.support.run_cli import here

SUITE = """
version = 1
measure = "test"
seeds = "3"
[[tasks]]
name = "world-small"
data = "device-clusters:points=12,tests=15,amplitude=0.8"
clusters = 4
devices = 9
graphs = ["torus"]
"""


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    path = tmp_path_factory.mktemp("suite") / "tests.toml"
    path.write_text(SUITE)
    return str(path)


@pytest.fixture(scope="module")
def folder(suite, tmp_path_factory):
    path = tmp_path_factory.mktemp("bench") / "b"
    p2pkm.bench("treelloyd,ditto,local,central", suite=suite, out=path, progress=False)
    return path


def write_visits(path, devices=5):
    made = p2pkm.device_clusters(graph="ring", devices=devices, points=24, tests=1, amplitude=0.8, seed=3)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["x", "y", "site"])
        writer.writerows([*point, f"site {i}"] for point, i in zip(made.points.tolist(), made.device, strict=True))


def test_the_suite_covers_worlds_and_families():
    suite = read_suite("personal")
    assert suite.measure == TEST
    assert {task.family for task in suite.tasks} == {"smooth", "groups", "few", "other", "none"}
    entries = [entry.name for entry in select_main(list_entries(split_list(suite.algorithm)))]
    assert not [name for name in entries if name.endswith(")")]
    assert {"gtvmin:coupling=strong", "gtvmin:coupling=bayes,shares=true", "treelloyd:local_steps=3", "ditto", "local",
            "central", "cdkm"} <= set(entries)  # fmt: skip


def test_rows_have_the_scores_of_runs(folder):
    found = p2pkm.Benchmark.load(folder)
    assert found.failed == [] and [row["entry"] for row in found.rows] == ["treelloyd", "ditto", "local", "central"]
    data = p2pkm.device_clusters(graph="torus", devices=9, points=12, tests=15, amplitude=0.8, seed=3)
    run = p2pkm.simulate(p2pkm.Ditto(4), None, data.shards, seed=3)
    row = next(row for row in found.rows if row["entry"] == "ditto")
    assert row["family"] == "world" and row["excess"] is None and row["reference_cost"] is None
    for name in ("test_ratio_common", "test_ratio_alone", "test_ari", "test_ari_all"):
        assert row[name] == run.summary[name]
    assert "test_ari_all" not in next(row for row in found.rows if row["entry"] == "local")


def test_a_folder_has_the_ranking_and_continues(folder):
    ranking = p2pkm.Benchmark.load(folder).ranking()
    assert isinstance(ranking, PersonalSummary)
    assert (folder / "ranking.txt").read_text() == ranking.text() + "\n"
    assert (folder / "ranking.csv").read_text() == ranking.to_csv()
    frame = ranking.to_frame()
    assert ",".join(frame.columns) == ranking.to_csv().partition("\n")[0]
    assert frame["entry"].tolist() == [entry.entry for entry in ranking.entries]
    again = here("resume", folder, "-q")
    assert again.code == 0 and ranking.text() in again.out
    # A device alone discloses nothing and is ranked; central k-means collects all points.
    assert ranking.find("central").place is None and ranking.find("central").verdict == "reference"
    assert {entry.entry for entry in ranking.main} == {"treelloyd", "ditto", "local"}
    assert ranking.find("local").ari_all is None and ranking.find("local").ari is not None


def test_a_report_of_the_excess_is_refused(folder):
    done = here("report", folder)
    assert done.code == 2 and "ranks by test points" in done.err and "ranking.txt" in done.err


def draw_rows(tasks=8, seeds=2, seed=0):
    """Draw rows of three entries: one better on each task, and one that collects points."""
    rng = np.random.default_rng(seed)
    rows = []
    for task in range(tasks):
        for number in range(seeds):
            base = rng.uniform(0.7, 1.2)
            for entry, factor in (("good", 1.0), ("poor", 1.1), ("sees all", 0.5)):
                rows.append({
                    "task": f"{'abcde'[task % 5]}-{task}", "family": "abcde"[task % 5], "graph": "ring", "seed": number,
                    "entry": entry, "trust": "raw points leave" if entry == "sees all" else "no server",
                    "status": "done", "test_ratio_common": base * factor * rng.uniform(0.99, 1.01),
                    "test_ari": rng.uniform(), "test_ari_all": None if entry == "poor" else rng.uniform(),
                    "bytes_over_raw": 2.0, "points": f"data{task} k=4 seed={number}",
                })  # fmt: skip
    return rows


def test_the_ranking_is_that_of_a_twin():
    rows = draw_rows()
    found = rank_by_tests(rows)
    assert [entry.entry for entry in found.entries] == ["good", "poor", "sees all"]
    for entry in found.entries:
        own = [row for row in rows if row["entry"] == entry.entry]
        mean = np.exp(np.mean([np.log(row["test_ratio_common"]) for row in own]))
        assert entry.ratio == pytest.approx(mean, rel=1e-12) and entry.low < mean < entry.high
        assert entry.ari == pytest.approx(np.mean([row["test_ari"] for row in own]))
    assert [entry.verdict for entry in found.entries] == ["best", "worse", "reference"]
    assert found.find("poor").by_family == "worse" and (found.units, found.families) == (8, 5)
    # Independently: a paired t-test of the log ratios, averaged over each task and over each family.
    from scipy.stats import ttest_rel

    for unit, p in (("task", found.find("poor").p), ("family", found.find("poor").p_family)):
        names = sorted({row[unit] for row in rows})
        means = [
            [np.mean([np.log(row["test_ratio_common"]) for row in rows if (row["entry"], row[unit]) == (entry, name)])
             for name in names]
            for entry in ("good", "poor")
        ]  # fmt: skip
        assert p == pytest.approx(ttest_rel(*means).pvalue, rel=1e-6)
    assert found.find("poor").ari_all is None and "ARI" in found.conclusion()


def test_a_run_without_a_result_counts_as_twice_the_common_cost():
    rows = draw_rows()
    rows[0] |= {"status": "failed", "test_ratio_common": None, "reason": "mistake"}
    other = draw_rows()
    other[0]["test_ratio_common"] = 2.0
    found, expected = rank_by_tests(rows).find("good"), rank_by_tests(other).find("good")
    assert found.ratio == pytest.approx(expected.ratio) and found.no_result == 1 / 16 and expected.no_result == 0


@pytest.mark.slow
def test_a_table_of_the_user_is_ranked_by_test_points(tmp_path, monkeypatch):
    write_visits(tmp_path / "visits.csv")
    monkeypatch.chdir(tmp_path)
    done = here("bench", "--algorithm", "treelloyd,local", "--data", "visits.csv", "--device-column", "site", "-k", "4",
                "--test-share", "0.25", "--seeds", "0-1", "--out", "b", "-q")  # fmt: skip
    assert done.code == 0 and "test/common" in done.out, done.err
    found = p2pkm.bench("treelloyd,local", data="visits.csv", device_column="site", clusters=4, test_share=0.25,
                        seeds=[0, 1], progress=False)  # fmt: skip
    assert found.rows == p2pkm.Benchmark.load("b").rows
    run = here("--algorithm", "treelloyd", "--data", "visits.csv", "--device-column", "site", "-k", "4", "--test-share",
               "0.25", "--seed", "1", "--out", "none", "--format", "json")  # fmt: skip
    row = next(row for row in found.rows if row["entry"] == "treelloyd" and row["seed"] == 1)
    assert row["test_ratio_common"] == run.summary["test_ratio_common"]
    assert here("resume", "b", "-q").code == 0


@pytest.mark.slow
def test_a_table_without_test_points_is_ranked_by_its_excess(tmp_path, monkeypatch):
    write_visits(tmp_path / "visits.csv")
    found = p2pkm.bench("local", data=str(tmp_path / "visits.csv"), device_column="site", clusters=4, seeds=[0],
                        progress=False)  # fmt: skip
    assert found.rows[0]["excess"] > 0 and "family" not in found.rows[0]


@pytest.mark.parametrize(("words", "message"), [
    (["--test-share", "0.2"], "test_share without data"),
    (["--data", "blobs", "--suite", "privacy"], "cannot be combined with a suite"),
    (["--data", "blobs", "--task", "x"], "cannot be combined with a suite"),
    (["--data", "blobs", "--test-share", "2"], "expected a number from 0 to below 1"),
    (["--data", "nowhere.csv", "--dry-run"], "nowhere.csv"),
])  # fmt: skip
def test_mistakes_end_before_any_work(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = here("bench", *words)
    assert done.code in (2, 3) and message in done.err and "Traceback" not in done.err, done.err
    assert not list(tmp_path.iterdir())


def test_a_measure_that_is_none(suite, tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(SUITE.replace('"test"', '"tests"', 1))
    with pytest.raises(p2pkm.ExperimentError, match=r"measure"):
        p2pkm.bench("local", suite=str(path), progress=False)
