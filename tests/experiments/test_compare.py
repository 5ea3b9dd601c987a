import csv
import json
import re
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import p2pkm
import p2pkm.experiments.studies.run_study
import p2pkm.experiments.studies.study_file
from p2pkm.analysis.study_table import name_run
from p2pkm.core.errors import DataError, ExperimentError, TopologyError, TrainingError
from p2pkm.core.spec import split_specs
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.studies.compare import compare_rows, tabulate
from p2pkm.experiments.studies.run_study import run_study
from p2pkm.metrics.milestones import (
    accumulate_rounds,
    find_best,
    find_milestones,
    never_reached,
    write_rounds,
    write_share,
)
from p2pkm.metrics.registry import ShownIn, keys
from p2pkm.network.local import LocalWorld
from p2pkm.viz import plot_quality
from tests.support.run_cli import here, ranks, there
from tests.support.stored_rows import list_rows

SMALL = ("--data", "grid16:points=5", "--devices", "4", "--rounds", "8", "--no-plot", "-q")


def row(algorithm, graph, seed, ratio, bytes_=1000, error=None):
    return {"algorithm": algorithm, "graph": graph, "seed": seed, "error": error, "ratio_mean": ratio, "ari": 0.5,
            "ratio_worst": ratio, "bytes": bytes_, "bytes_busiest": bytes_ // 2, "messages": 3, "rounds": 2,
            "ratio_best": ratio, "ratio_best_stage": algorithm, "ratio_best_round": 2, "rounds_to_1pct": 1,
            "bytes_to_1pct": 10, "termination": "silent"}  # fmt: skip


def record(stage, t, ratio, volume):
    return {"stage": stage, "round": t, "ratio_mean": ratio, "bytes": volume}


@pytest.mark.parametrize(
    ("texts", "specs"),
    [
        (["gtvmin,fkm"], ["gtvmin", "fkm"]),
        (["fkm:a=1,b=2,feca", "kfed"], ["fkm:a=1,b=2", "feca", "kfed"]),
        (["small-world:degree=4,rewire=0.1,ring"], ["small-world:degree=4,rewire=0.1", "ring"]),
    ],
)
def test_lists_of_specs(texts, specs):
    assert split_specs(texts) == specs


@pytest.mark.parametrize("texts", [["a,,b"], ["a,a"], [""]])
def test_lists_with_gaps_or_repetitions_are_refused(texts):
    with pytest.raises(ExperimentError):
        split_specs(texts)


def test_rounds_and_bytes_to_one_per_cent_count_the_seeding_stages():
    records = [record("a", 0, None, 5), record("a", 2, None, 10), record("b", 0, 1.02, 10), record("b", 1, 1.005, 20),
               record("b", 2, 1.03, 30), record("b", 3, 1.004, 40), record("b", 4, 1.0, 50)]  # fmt: skip
    assert [step[0] for step in accumulate_rounds(records)] == [0, 2, 2, 3, 4, 5, 6]
    assert told(records) == [(5, 3, 40, None), (5, 3, 40, None)]
    assert [told(records[:2]), told([])] == [[(None,) * 4] * 2] * 2
    assert told(records[2:3]) == [(0, 0, 10, None), (None,) * 4]


def told(records):
    """Return rounds with and without initialization, bytes and seconds: to the own 1 %, and to that of central."""
    names = ("rounds_to_1pct", "method_rounds_to_1pct", "bytes_to_1pct", "seconds_to_1pct")
    found = find_milestones(records)
    return [tuple(found[name + goal] for name in names) for goal in ("", "_of_central")]


def test_a_bad_end_is_soon_reached_but_never_that_of_central_k_means():
    """The ratio ends at 2.5 and is there at once: the fastest of all by its own end, and never good."""
    bad = [record("a", 0, 3.0, 5), record("a", 1, 2.5, 10), record("b", 0, 2.5, 10), record("b", 1, 2.5, 20)]
    assert told(bad) == [(1, 0, 10, None), (None,) * 4]
    left = [record("a", 0, 1.0, 5), record("a", 1, 1.02, 10)]  # near central for a while only
    assert told(left) == [(1, 1, 10, None), (None,) * 4]
    better = [record("a", 0, 1.5, 5), record("a", 1, 1.01, 10), record("a", 2, 0.9, 20)]
    assert told(better) == [(2, 2, 20, None), (1, 1, 10, None)]
    assert write_rounds(find_milestones(bad) | {"ratio_mean": 2.5}, "_of_central") == "never"
    assert write_rounds(find_milestones(bad) | {"ratio_mean": 2.5}) == "0 (1)"
    assert write_rounds({"ratio_mean": None}, "_of_central") == "-"


@pytest.mark.parametrize(
    ("ratios", "best"),
    [
        ([1.5, 1.0017, 1.0017, 1.0019], (1.0017, "a", 2)),  # the last round that was as good
        ([1.5, 1.0, 1.00009, 1.0], (1.0, "a", 3)),
        ([None, 1.2, None, 1.3], (1.2, "a", 1)),
        ([None, None], (None, None, None)),
    ],
)
def test_the_best_of_a_run_and_when_it_was_left(ratios, best):
    found = find_best(record("a", t, ratio, 0) for t, ratio in enumerate(ratios))
    assert tuple(found.values()) == best


def worsened(seed, best, last):
    return row("a", "ring", seed, last) | {"ratio_best": best, "ratio_best_stage": "tracking", "ratio_best_round": 5}


def read_cells(text):
    """Return the cells of the blocks of a table by column and row; a legend follows."""
    cells = {}
    for block in text.split("\n\n"):
        head, *lines = block.splitlines()
        if not head.startswith(" "):
            break
        for name in re.split(r"  +", head.strip()):
            end = re.search(rf"(?<=  ){re.escape(name)}(?=  |$)", head).end()
            cells[name] = {line.split("  ")[0]: re.split(r"  +", line[:end])[-1] for line in lines}
    return cells


def test_a_table_says_whose_quality_got_worse_and_what_is_never_reached():
    rows = [worsened(0, 1.078, 4.54), worsened(1, 1.2, 1.2)]
    rows = [one | find_milestones([record("a", 0, one["ratio_mean"], 10)]) for one in rows]
    near = [row("fkm", "server", seed, 1.005) | find_milestones([record("a", 0, 1.005, 10)]) for seed in (0, 1)]
    half = [
        row("b", "ring", seed, ratio) | find_milestones([record("a", 0, ratio, 10)])
        for seed, ratio in ((0, 1.0), (1, 1.5))
    ]
    text = tabulate(compare_rows([*rows, *near, *half], "a") | {"failed": 0, "error": None, "out": None})
    assert "got worse: a on ring, in 1 of 2 runs, most from ratio 1.0780 in round 5 of tracking to 4.5400 at" in text
    cells = read_cells(text)
    reached = cells["to central 1 %"]
    assert reached["a on ring"] == "never" and reached["b on ring"] == "0.0 (0.0) 1/2"
    assert all("never" not in column["fkm with a server"] for column in cells.values())
    assert "got worse: fkm" not in text


def test_tables_have_bytes_as_sent_next_to_those_at_eight_per_value():
    one = row("a", "ring", 0, 1.02) | {"wire_bytes": 350}
    text = tabulate(compare_rows([one], "a") | {"failed": 0, "error": None, "out": None})
    cells = read_cells(text)
    assert [cells[key]["a on ring"] for key in ("kB plain", "kB encoded", "kB plain, busiest")] == ["1.0", "0.3", "0.5"]
    assert "\nkB plain: 8 bytes for each value; kB encoded: messages as encoded" in text
    assert "mean of devices and seeds; worst: that of the worst device in any seed\n" in text
    assert keys(ShownIn.SWEEP).index("wire_bytes") == keys(ShownIn.SWEEP).index("bytes") + 1


def test_differences_to_the_reference_have_one_of_three_verdicts():
    ratios = {"a": 1.1, "near": 1.1004, "far": 1.3, "wild": 1.1}
    rows = [row(name, "ring", seed, base + 0.01 * seed + 0.08 * (name == "wild") * (-1) ** seed)
            for name, base in ratios.items() for seed in range(5)]  # fmt: skip
    rows += [row("few", "ring", seed, 1.3) for seed in range(4)]
    found = compare_rows(rows, "a")
    words = {one["algorithm"]: one["ratio_mean"]["verdict"] for one in found["differences"]}
    assert words == {"near": "equivalent", "far": "worse", "wild": "not distinguished", "few": "not distinguished"}
    assert {one["reference"] for one in found["differences"]} == {"a"}
    words = {one["algorithm"]: one["ratio_mean"]["verdict"] for one in compare_rows(rows, "far")["differences"]}
    assert words["a"] == "better"
    text = tabulate(found | {"failed": 0, "error": None, "out": None})
    assert (
        "tied" not in text
        and "far on ring against a on ring: worse (cost +17.9 %, interval +17.3 % to +18.4 %)" in text
    )
    assert found["conclusion"] in text


def test_names_of_runs():
    pairs = (("gtvmin", "ring"), ("fkm:min_count=1", "server"), ("local:n_init=2", "server"))
    names = ["gtvmin on ring", "fkm:min_count=1 with a server", "local:n_init=2"]
    assert [name_run(*pair) for pair in pairs] == names


def test_means_and_paired_differences_by_hand():
    rows = [row("a", "ring", 0, 1.0), row("a", "ring", 1, 2.0), row("b", "ring", 1, 2.5), row("b", "ring", 0, 1.25)]
    rows += [row("c", "server", 0, 1.5), row("c", "server", 1, None, error="broken"), row("b", "path", 0, 7.0)]
    found = compare_rows(rows, "a")
    means = {(one["algorithm"], one["graph"]): one["ratio_mean"] for one in found["table"]}
    assert means == {("a", "ring"): 1.5, ("b", "ring"): 1.875, ("c", "server"): 1.5, ("b", "path"): 7.0}
    gaps = {(one["algorithm"], one["graph"]): one for one in found["differences"]}
    assert set(gaps) == {("b", "ring"), ("c", "server")}  # b on path has no counterpart
    gap = gaps["b", "ring"]["ratio_mean"]
    assert gap["difference"] == pytest.approx(0.375) and gap["low"] is gap["high"] is None
    assert gap["verdict"] == "not distinguished" and gap["seeds"] == 2
    assert gaps["c", "server"]["seeds"] == 1


@pytest.mark.slow
def test_a_comparison_writes_tidy_rows_and_goes_on_without_computing_twice(tmp_path, monkeypatch):
    computed = []
    execute = p2pkm.experiments.studies.run_study.execute
    monkeypatch.setattr(
        p2pkm.experiments.studies.run_study, "execute", lambda *given: computed.append(given[0]) or execute(*given)
    )
    common = ("compare", "--algorithm", "gtvmin,fkm,kfed", "--graph", "ring,path", *SMALL, "--out", tmp_path / "c")
    first = here(*common, "--seeds", "0-1", "--format", "json")
    assert first.code == 0, first.err
    assert len(computed) == 2 * (2 + 1 + 1)
    again = here(*common, "--seeds", "0-2", "--format", "json")
    assert len(computed) == 8 + 4  # the new seed only
    answer = json.loads(again.out)
    assert len(answer["rows"]) == 12
    assert answer["failed"] == 0
    lines = [json.loads(line) for line in (tmp_path / "c/study.jsonl").read_text().splitlines()]
    with open(tmp_path / "c/study.csv", newline="") as file:
        cells = list(csv.DictReader(file))
    assert [one["centroids_sha256"] for one in lines] == [one["centroids_sha256"] for one in cells]
    assert {one["graph"] for one in lines} == {"ring", "path", "server"}
    before = json.loads(first.out)["rows"]
    assert [one for one in answer["rows"] if one["seed"] < 2] == before


def test_methods_with_a_server_alone_have_the_given_number_of_devices():
    found = p2pkm.compare(["fkm", "kfed"], seeds=range(1), devices=5, data="grid16:points=5", rounds=1)
    assert [row["devices"] for row in found.rows] == [5, 5]


def test_all_methods_meet_the_same_points_and_partition(monkeypatch):
    seen = []
    execute = p2pkm.experiments.studies.run_study.execute
    monkeypatch.setattr(
        p2pkm.experiments.studies.run_study, "execute", lambda *given: seen.append(given[0].points) or execute(*given)
    )
    cells = [RunOptions(algorithm=name, data="grid16:points=5", devices=4, rounds=2, seed=seed, baselines=False)
             for seed in (0, 1) for name in ("gtvmin", "fkm", "feca")]  # fmt: skip
    run_study(cells, None, LocalWorld())
    for group in (seen[:3], seen[3:]):
        for one in group[1:]:
            assert np.array_equal(one.points, group[0].points)
            assert np.array_equal(one.offsets[:5], group[0].offsets[:5])
    assert not np.array_equal(seen[0].points, seen[3].points)


def test_a_failed_run_is_a_row_with_its_error_and_code_4(tmp_path, monkeypatch):
    execute = p2pkm.experiments.studies.run_study.execute

    def fail(prepared, *given):
        if prepared.algorithm.name == "gtvmin":
            raise TrainingError("the loss is nan")
        return execute(prepared, *given)

    monkeypatch.setattr(p2pkm.experiments.studies.run_study, "execute", fail)
    ending = here("compare", "--algorithm", "fkm,gtvmin", *SMALL, "--seeds", "0", "--format", "json", "--out",
                  tmp_path / "c")  # fmt: skip
    assert ending.code == 4
    rows = json.loads(ending.out)["rows"]
    assert [row["error"] for row in rows] == [None, "TrainingError: the loss is nan"]
    stored = list_rows(tmp_path / "c")
    assert {row["key"]: row["error"] for row in stored} == {row["key"]: row["error"] for row in rows}


IMPOSSIBLE = {
    "a graph that cannot be": (("--graph", "ring,random-regular:degree=9"), "graph = random-regular:degree=9"),
    "a disconnected graph": (("--graph", "erdos-renyi:p=0,ring"), "graph = erdos-renyi:p=0"),
    "more clusters than points": (("-k", "999"), "algorithm = gtvmin"),
    "noise that a method cannot have": (("--min-cluster-size", "3", "--algorithm", "gtvmin,epidemic"), "epidemic"),
}


@pytest.mark.parametrize(("words", "named"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
@pytest.mark.sample(3)
def test_a_configuration_that_can_never_run_is_refused_once_before_the_first_run(words, named, tmp_path, monkeypatch):
    monkeypatch.setattr(p2pkm.experiments.studies.run_study, "execute", None)
    ending = here("compare", "--algorithm", "gtvmin,fkm", *SMALL, *words, "--seeds", "0-4", "--out", tmp_path / "c")
    assert ending.code in (2, 3)
    assert named in ending.err and ending.err.count("error:") == 1
    assert not (tmp_path / "c").exists()


def test_what_fails_with_one_seed_alone_is_a_row(monkeypatch):
    """Such as a random graph that is disconnected; only what can run with none of its seeds is refused."""
    for module in (p2pkm.experiments.studies.run_study, p2pkm.experiments.studies.study_file):
        prepare = module.assemble

        def refuse(cell, world, prepare=prepare):
            if cell.seed in broken:
                raise TopologyError("the graph is disconnected")
            return prepare(cell, world)

        monkeypatch.setattr(module, "assemble", refuse)
    words = ("compare", "--algorithm", "consensus", *SMALL, "--out", "none", "--format", "json", "--seeds", "0-1")
    broken = {0}
    ending = here(*words)
    assert ending.code == 4
    assert [row["error"] for row in json.loads(ending.out)["rows"]] == [
        "TopologyError: the graph is disconnected",
        None,
    ]
    broken = {0, 1}
    ending = here(*words)
    assert ending.code == 3 and ending.err.count("disconnected") == 1


@pytest.fixture
def hospitals(tmp_path):
    rng = np.random.default_rng(0)
    lines = [f"{rng.normal():.3f},{rng.normal():.3f},{i % 3},{('Turku', 'Oulu', 'Ii', 'Lahti', 'Pori')[i % 5]},{i}"
             for i in range(60)]  # fmt: skip
    path = tmp_path / "hospitals.csv"
    path.write_text("\n".join(["x,y,kind,hospital,number", *lines]) + "\n")
    return path


def test_a_comparison_takes_columns_as_a_run_does(hospitals):
    """Devices of the device column, classes of the label column, without the dropped one: as `run` has them."""
    words = ("--data", hospitals, "--label-column", "kind", "--device-column", "hospital", "--drop", "number",
             "--rounds", "2", "--out", "none", "--format", "json")  # fmt: skip
    names = ("devices", "clusters", "centroids_sha256", "bytes", "ratio_mean", "ari")
    for algorithm in ("gtvmin", "fkm"):
        run = here("--algorithm", algorithm, *words)
        ending = here("compare", "--algorithm", algorithm, *words, "--seeds", "0")
        assert (run.code, ending.code) == (0, 0), ending.err
        row, summary = json.loads(ending.out)["rows"][0], json.loads(run.out)
        assert summary["devices"] == 5
        assert all(row[name] == summary[name] for name in names if name in row) and "centroids_sha256" in row
    again = here("compare", "--algorithm", "gtvmin,fkm", *words, "--seeds", "0", "--devices", "4")
    assert again.code == 3 and "5 devices; expected 4" in again.err


def test_graphs_with_a_size_of_their_own_give_it_to_all_methods():
    words = ("--data", "grid16:points=40", "--rounds", "1", "--out", "none", "--format", "json", "--seeds", "0", "-q")
    ending = here("compare", "--algorithm", "consensus,fkm", "--graph", "karate", *words)
    assert [row["devices"] for row in json.loads(ending.out)["rows"]] == [34, 34]
    ending = here("compare", "--algorithm", "consensus", "--graph", "karate,ring", *words)
    assert ending.code == 2 and "karate:weighted=false has 34" in ending.err and "ring has 16" in ending.err


def test_in_python_a_comparison_that_can_never_run_raises(tmp_path):
    with pytest.raises(TopologyError, match="degree"):
        p2pkm.compare(["gtvmin"], ["random-regular:degree=9"], seeds="0-2", devices=4, out=tmp_path / "c")
    assert not (tmp_path / "c").exists()
    with pytest.raises(DataError, match="clusters"):
        p2pkm.study(grid={"clusters": [999]}, seeds="0-2", devices=4, data="grid16:points=5")


def test_a_study_without_a_run_that_ended_has_no_table():
    failed = [row("a", "ring", seed, None, error="TrainingError: the loss is nan") for seed in (0, 1)]
    with pytest.raises(DataError, match=r"2 runs failed, the first with TrainingError: the loss is nan"):
        p2pkm.Study(failed).to_latex()
    with pytest.raises(DataError, match="no run"):
        p2pkm.Study([]).to_latex()
    assert "2 failed" in repr(p2pkm.Study(failed)) and p2pkm.Study(failed)._repr_html_()


def test_mistakes_are_refused_before_any_run(tmp_path):
    used = tmp_path / "used"
    used.mkdir()
    (used / "thesis.tex").write_text("precious")
    for words, code in (
        (("--algorithm", "gtvmin,fkm", "--reference", "feca"), 2),
        (("--algorithm", "gtvmni"), 2),
        (("--algorithm", "fkm:server_n_init=0"), 2),
        (("--seeds", "3-1"), 2),
        (("--out", used), 2),
    ):
        ending = here("compare", *SMALL, *words)
        assert ending.code == code, words
        assert "Traceback" not in ending.err
    assert [path.name for path in used.iterdir()] == ["thesis.tex"]


@pytest.mark.mpi
def test_ranks_share_the_runs_of_a_comparison(tmp_path):
    words = ("compare", "--algorithm", "gtvmin,fkm", *SMALL, "--seeds", "0-2", "--format", "json")
    done = there(*ranks(3), "-m", "p2pkm", *words, "--out", tmp_path / "three")
    assert done.code == 0, done.err
    alone = here(*words, "--out", tmp_path / "one")
    keys = ("algorithm", "graph", "seed", "centroids_sha256", "bytes", "ratio_mean", "rounds_to_1pct")
    found, expected = ([{key: one[key] for key in keys} for one in json.loads(text)["rows"]]
                       for text in (done.out, alone.out))  # fmt: skip
    assert found == expected


def test_the_figure_shows_every_method_with_its_interval():
    rows = [row("a", "ring", s, 1.0 + s / 10) for s in (1, 2)] + [row("b", "star", s, 1.5, 0) for s in (1, 2)]
    table = compare_rows(rows, "a")["table"]
    ax = plot_quality(table, against="bytes_busiest").axes[0]
    assert len(ax.containers) == 1  # b sends nothing: a line
    words = [text.get_text() for text in ax.get_legend().get_texts()]
    assert words == ["a", "b (sends nothing)", "on ring", "on star"]
    assert ax.get_xscale() == "log"


@pytest.mark.slow
def test_the_folder_of_a_comparison_has_its_figures(tmp_path):
    words = [word for word in SMALL if word != "--no-plot"]
    ending = here("compare", "--algorithm", "gtvmin,fkm", *words, "--seeds", "0", "--out", tmp_path / "c")
    assert ending.code == 0, ending.err
    assert {path.name for path in Path(tmp_path / "c/figures").iterdir()} == {
        f"quality_{against}.{kind}" for against in ("bytes", "bytes_busiest") for kind in ("png", "svg", "data.csv")
    }
    assert "compared with gtvmin, same seeds" in ending.out


def test_a_row_is_computed_again_when_the_file_of_the_points_has_changed(tmp_path):
    points = tmp_path / "points.csv"
    words = ("compare", "--algorithm", "central", "--data", points, "-k", "2", "--devices", "2", "--seeds", "0", "-q",
             "--no-plot", "--format", "json", "--out", tmp_path / "c")  # fmt: skip
    seen = []
    for last in (10, 20, 10):
        points.write_text("x\n" + "\n".join(map(str, [*range(9), last])) + "\n")
        seen.append(json.loads(here(*words).out)["rows"][0])
    assert seen[0] == seen[2]
    assert seen[0]["centroids_sha256"] != seen[1]["centroids_sha256"]


@pytest.mark.slow
def test_a_checkout_that_is_not_installed_compares_and_sweeps(tmp_path, monkeypatch):
    known = metadata.version

    def version(name):
        if name == "p2pkm":
            raise metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(metadata, "version", version)
    words = ("--algorithm", "local", "--data", "grid16:points=2", "--seeds", "0", "--no-plot", "-q")
    done = here("compare", *words, "--devices", "2", "--out", tmp_path / "c", "--format", "json")
    assert done.code == 0, done.err
    (tmp_path / "s.toml").write_text(
        'algorithm = "local"\ndata = "grid16:points=2"\nseeds = [0]\n[grid]\ndevices = [2]\n'
    )
    done = here("sweep", tmp_path / "s.toml", "--out", tmp_path / "s", "-q")
    assert done.code == 0, done.err


def test_the_share_of_runs_near_central_is_shown_unless_it_is_1():
    runs = [{"reached_central": reached, "seeds": 3} for reached in (None, 3, 0)]  # None: not compared
    assert [write_share(one) for one in ({}, *runs)] == ["", "", "", " 0/3"]


def test_rounds_of_a_trace_continue_over_stages_and_runs():
    records = [{"stage": stage, "round": t, "bytes": 0, "ratio_mean": None} for stage, t in
               (("a", 0), ("a", 2), ("b", 0), ("b", 1), ("b", 0), ("b", 3))]  # fmt: skip
    assert [one[0] for one in accumulate_rounds(records)] == [0, 2, 2, 3, 3, 6]


def test_milestones_are_relative_to_the_end_and_to_central():
    row = {"rounds_to_1pct_of_central": None, "ratio_mean": 1.5}
    assert never_reached(row, "bytes_to_1pct_of_central") and not never_reached(row, "bytes")
    assert not never_reached(row | {"ratio_mean": None}, "bytes_to_1pct_of_central")
    ratios = 2.0, 1.2, 1.006, 1.0
    found = find_milestones([
        {"stage": "m", "round": t, "bytes": 10 * t, "ratio_mean": ratio} for t, ratio in enumerate(ratios)
    ])  # fmt: skip
    assert (found["rounds_to_1pct"], found["bytes_to_1pct"], found["rounds_to_1pct_of_central"]) == (2, 20, 2)


@pytest.mark.parametrize("every", [None, 5])
@pytest.mark.parametrize("method", [None, 3])
def test_rounds_to_a_goal_in_words(every, method):
    figures = {"rounds_to_1pct": every, "method_rounds_to_1pct": method, "ratio_mean": 1.0}
    assert write_rounds(figures) == ("3 (5)" if every and method else "-")
    central = {f"{name}_of_central" if name != "ratio_mean" else name: value for name, value in figures.items()}
    assert write_rounds(central, "_of_central") == ("3 (5)" if every and method else "never")
    assert write_rounds(central | {"ratio_mean": None}, "_of_central") == ("3 (5)" if every and method else "-")
