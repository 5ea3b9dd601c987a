"""verify, --seeds, load and save: a run can be kept, read back and repeated."""

import json
import shutil
import subprocess
import sys

import networkx as nx
import numpy as np
import pytest

import p2pkm
from p2pkm.cli import summary_table
from p2pkm.cli.main import main
from p2pkm.experiments.studies.seeds import parse_seeds, summarize
from p2pkm.storage.checksums import write_checksums
from tests.support.run_cli import MPIRUN, here

QUICK = ["--data", "grid16:points=8", "-k", "4", "--no-plot", "-q", "--rounds", "6"]
CONFIGURATIONS = [
    ["--graph", "ring"],
    ["--graph", "star", "--schedule", "jacobi", "--devices", "7"],
    ["--graph", "small-world", "--schedule", "async"],
    ["--graph", "complete", "--init", "local", "--devices", "5"],
    ["--graph", "tree", "--init", "leader"],
    ["--graph", "grid", "--init", "bounding-box", "--local-steps", "2"],
    ["--graph", "barabasi-albert", "--init", "d2-sampling", "--devices", "9"],
    ["--graph", "path", "--init", "flooded-summaries:hops=1,candidates=2", "--record-every", "3"],
    ["--graph", "karate", "--alpha", "0.5", "--scale", "standard"],
    ["--graph", "caveman", "--partition", "dirichlet:alpha=0.01", "--scale", "minmax", "--no-baselines"],
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Ten folders, one for each configuration."""
    folder = tmp_path_factory.mktemp("runs")
    for number, options in enumerate(CONFIGURATIONS):
        assert main([*QUICK, *options, "--out", str(folder / str(number))]) == 0
    return folder


@pytest.mark.slow
def test_every_run_repeats_itself_in_one_process(runs, capsys):
    for number in range(len(CONFIGURATIONS)):
        assert main(["verify", str(runs / str(number))]) == 0
        assert "same bits" in capsys.readouterr().out


@pytest.mark.parametrize(("ranks", "where"), [(1, "on 1 rank both times"), (16, "on 16 ranks and on 1 rank")])
@pytest.mark.sample(2)
def test_verify_names_both_numbers_of_ranks_and_shows_no_progress(runs, tmp_path, monkeypatch, ranks, where):
    monkeypatch.setattr(summary_table, "_PAUSE", -1.0)  # a line per record
    run = tmp_path / "run"
    shutil.copytree(runs / "0", run)
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps(summary | {"ranks": ranks}))
    write_checksums(run)
    said = f"{run}: the same bits {where}, in every recorded round, and the same ledger\n"
    assert here("verify", run) == (0, said, "")


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [3, 10])  # on 10 some have two devices, and of 5 to 9 devices some have none
def test_every_run_repeats_itself_on_other_ranks(runs, ranks):
    program = (
        "import sys, p2pkm.cli\n"
        "codes = [p2pkm.cli.main(['verify', run, '--format', 'json']) for run in sys.argv[1:]]\n"
        "sys.exit(max(codes))"
    )
    folders = [str(runs / str(number)) for number in range(len(CONFIGURATIONS))]
    done = subprocess.run(
        [MPIRUN, "-n", str(ranks), sys.executable, "-c", program, *folders],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    verdicts = [json.loads(line) for line in done.stdout.splitlines()]
    assert [verdict["same"] for verdict in verdicts] == [True] * len(CONFIGURATIONS)
    assert {verdict["ranks"] for verdict in verdicts} == {ranks}


def test_verify_names_the_first_difference(runs, tmp_path, capsys):
    shutil.copytree(runs / "0", tmp_path / "run")
    chain = dict(np.load(tmp_path / "run" / "chain.npz"))
    chain["digests"][3:, 5] ^= 1
    chain["heads"][3:] ^= 1
    np.savez(tmp_path / "run" / "chain.npz", **chain)
    write_checksums(tmp_path / "run")
    record = p2pkm.load(tmp_path / "run").rounds[3]
    assert main(["verify", str(tmp_path / "run")]) == 6
    assert f"stage {record['stage']}, round {record['round']}, at device 5" in capsys.readouterr().out


def test_verify_compares_the_ledger(runs, tmp_path, capsys):
    shutil.copytree(runs / "0", tmp_path / "run")
    ledger = dict(np.load(tmp_path / "run" / "ledger.npz"))
    ledger["bytes"][2] += 8
    np.savez(tmp_path / "run" / "ledger.npz", **ledger)
    write_checksums(tmp_path / "run")
    assert main(["verify", str(tmp_path / "run")]) == 6
    assert "ledger differs: bytes" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", ["missing", "unfinished"])
def test_verify_refuses_what_is_no_finished_run(runs, tmp_path, capsys, wrong):
    if wrong != "missing":
        shutil.copytree(runs / "0", tmp_path / "run")
    if wrong == "unfinished":
        for name in ("summary.json", "manifest.json", "checksums.sha256"):
            (tmp_path / "run" / name).unlink()
    assert main(["verify", str(tmp_path / "run")]) == 3
    shown = capsys.readouterr()
    assert "error" in shown.err and "Traceback" not in shown.err and not shown.out


def test_a_result_survives_the_disk(tmp_path):
    X, y = p2pkm.blobs(clusters=3, points=20, features=3, seed=1)
    device = p2pkm.partition.dirichlet(y, 5, alpha=0.05, seed=1)
    result = p2pkm.simulate(
        p2pkm.GTVMin(3, init="local"), nx.star_graph(4), p2pkm.Shards.deal(X, device, devices=5, labels=y)
    )
    again = p2pkm.load(result.save(tmp_path / "result"))
    for one, other in ((result, again), (result.census, again.census), (result.ledger, again.ledger)):
        for name, value in (vars(one) if one is result else one._asdict()).items():
            if isinstance(value, np.ndarray):
                np.testing.assert_array_equal(value, getattr(other, name), err_msg=name)
    assert again.summary == result.summary and again.rounds == result.rounds and again.notes == result.notes
    assert again.best == result.best
    np.testing.assert_array_equal(again.predict(X), result.predict(X))
    for i in range(5):
        own = result.census.device == i
        rows = result.census.row[own]
        if (result.centroids[i] < np.inf).any():
            np.testing.assert_array_equal(result.predict(X[rows], device=i), result.census.labels[own])
    with pytest.raises(p2pkm.DataError, match="is not empty; expected a new or empty folder"):
        result.save(tmp_path / "result")


def test_the_best_device_costs_least_and_predict_says_what_is_wrong():
    X, y = p2pkm.blobs(clusters=4, points=30, seed=2)
    shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(len(X), 6, seed=0), labels=y)
    result = p2pkm.simulate(p2pkm.GTVMin(4, init="local", alpha=0), nx.cycle_graph(6), shards)
    costs = [((X[:, None] - result.centroids[i]) ** 2).sum(-1).min(1).sum() for i in range(6)]
    assert result.best == np.argmin(costs)
    with pytest.raises(p2pkm.DataError, match="expected 0 to 5"):
        result.predict(X, device=6)
    with pytest.raises(p2pkm.DataError, match=r"expected \(m, 2\)"):
        result.predict(X[:, :1])


def test_consensus_distance_ignores_the_order_of_rows_and_absent_ones():
    from p2pkm.metrics.summary import measure_consensus

    inf = np.inf
    centroids = np.array([[[0.0], [10.0]], [[10.0], [0.0]], [[13.0], [inf]], [[inf], [inf]]])
    assert measure_consensus(centroids[:2], 0) == 0.0
    assert measure_consensus(centroids, 0) == pytest.approx(np.sqrt((0 + 0 + 9) / 3))
    assert measure_consensus(centroids, 3) is None


def test_consensus_distance_is_to_the_nearest_row_and_xi_2_one_to_one():
    """Rows that repeat or are missing do not count in the first, as its meaning says."""
    from p2pkm.metrics.alignment import aligned_distance
    from p2pkm.metrics.registry import METRICS
    from p2pkm.metrics.summary import measure_consensus

    one, other, alone = (np.array(rows)[:, None] for rows in ([0.0, 0.0, 5.0], [0.0, 5.0, 5.0], [0.0, 0.0, 0.0]))
    assert measure_consensus(np.stack((one, other)), 0) == measure_consensus(np.stack((one, other)), 1) == 0.0
    assert measure_consensus(np.stack((one, alone)), 0) == 0.0 < measure_consensus(np.stack((one, alone)), 1)
    assert aligned_distance(one, other) == 25.0
    (metric,) = (metric for metric in METRICS if metric.key == "consensus_distance")
    assert "to the nearest one" in metric.meaning and "ignores repeated and absent centroids" in metric.meaning


@pytest.mark.slow
def test_the_graph_carries_the_figures():
    shards = p2pkm.Shards.from_list([[[0.0], [2.0]], [[10.0]], np.zeros((0, 1))])
    result = p2pkm.simulate(p2pkm.GTVMin(1, alpha=1.0, init="leader"), nx.path_graph(3), shards)
    graph = result.to_networkx()
    assert [graph.nodes[i]["points"] for i in range(3)] == [2, 1, 0]
    assert sum(data["bytes"] for *_, data in graph.edges(data=True)) == result.summary["bytes"]
    assert sum(data["gtv"] for *_, data in graph.edges(data=True)) == pytest.approx(result.summary["gtv"])
    assert sum(graph.nodes[i]["sent_bytes"] for i in graph) == result.summary["bytes"]
    assert "<table>" in result._repr_html_()


@pytest.mark.slow
def test_seeds_make_one_folder_each_and_close_with_figures(tmp_path, capsys):
    out = tmp_path / "study"
    assert main([*QUICK, "--seeds", "0-2,7", "--out", str(out), "--format", "json"]) == 0
    closing = json.loads(capsys.readouterr().out)
    assert closing["seeds"] == [0, 1, 2, 7]
    ratios = [json.loads((out / f"seed-{seed}" / "summary.json").read_text())["ratio_mean"] for seed in (0, 1, 2, 7)]
    assert closing["mean"]["ratio_mean"] == pytest.approx(np.mean(ratios))
    assert closing["sd"]["ratio_mean"] == pytest.approx(np.std(ratios, ddof=1))
    assert closing["worst"]["ratio_mean"] == max(ratios)
    assert json.loads((out / "summary.json").read_text()) == closing
    assert main([*QUICK, "--seeds", "0", "--out", str(out)]) == 2
    capsys.readouterr()
    assert main([*QUICK, "--seeds", "5", "--out", str(out), "--force"]) == 0
    assert capsys.readouterr().out.startswith("1 seed: 5\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["study"]
    files = {path.name for path in out.iterdir()} - {"study.parquet"}
    assert files == {"seed-5", "study.csv", "study.jsonl", "study.toml", "summary.json"}
    assert [row["seed"] for row in p2pkm.load_study(out).rows] == [5]


@pytest.mark.slow
def test_a_run_of_a_list_equals_the_run_of_its_seed(tmp_path):
    assert main([*QUICK, "--seeds", "3", "--out", str(tmp_path / "list")]) == 0
    assert main([*QUICK, "--seed", "3", "--out", str(tmp_path / "one")]) == 0
    one, other = (p2pkm.load(tmp_path / name).summary["chain_sha256"] for name in ("list/seed-3", "one"))
    assert one == other


@pytest.mark.parametrize("text", ["", "a", "3-1", "1,,2", "1,1", "0-5,3", "-1", "0-99999999", "1.5", "1-2-3"])
def test_wrong_lists_of_seeds_are_refused(text, tmp_path, capsys):
    assert main([*QUICK, "--seeds", text, "--out", str(tmp_path / "out")]) == 2
    assert "seed" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_lists_of_seeds_are_read_as_written():
    assert parse_seeds("0-3, 9,5-6") == [0, 1, 2, 3, 9, 5, 6]


def test_the_worst_ari_is_the_least_and_missing_figures_stay_missing():
    runs = [
        dict.fromkeys(("ratio_mean", "ratio_worst", "objective", "bytes", "rounds")) | {"seed": s, "ari": s}
        for s in (1, 2)
    ]
    closing = summarize(runs)
    assert closing["worst"]["ari"] == 1 and closing["mean"]["ratio_mean"] is None


def test_partition_report_counts_points_and_classes(tmp_path):
    shards = p2pkm.Shards.deal(np.arange(6.0)[:, None], [0, 0, 2, 2, 2, 2], labels=[0, 1, 1, 1, 1, 0])
    report = p2pkm.partition_report(shards)
    assert report.figures == {
        "devices": 3, "points": 6, "smallest": 0, "largest": 4, "empty": 1, "classes": 2, "classes_per_device": 2.0,
    }  # fmt: skip
    assert report.classes.tolist() == [[1, 1], [0, 0], [1, 3]]
    assert "device    2:      4 points" in str(report) and "<table>" in report._repr_html_()
    assert report.plot() is not None
