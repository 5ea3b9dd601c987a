"""Paths of couplings: lists, warm starts, what is counted, and the command line."""

import csv
import json
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import p2pkm.experiments.studies.coupling_path
import p2pkm.experiments.studies.series
import topologies
from p2pkm.core.errors import ExperimentError
from p2pkm.experiments.studies.coupling_path import check_couplings, count_clusterings, measure, parse_couplings
from p2pkm.viz import plot_coupling_path
from tests.support.each import each
from tests.support.run_cli import SMALL, here, listed, ranks, there

PATH = ("--coupling-path", "10,1,0", "-q")
FILES = {"study.toml", "study.jsonl", "study.csv", "runs", "summary.json", "centroids.npz"}


@each(
    ("text", "values"),
    [
        ("0,1,3", [0, 1, 3]),
        ("0.1,0.2,...,1", [0.1, 0.2, 0.4, 0.8, 1]),
        ("1, 10, ..., 1000", [1, 10, 100, 1000]),
        ("0,0.1,...,0.5", [0, 0.1, 0.2, 0.3, 0.4, 0.5]),
        ("0,5,...,17", [0, 5, 10, 15, 17]),
        ("8,4,...,1,0", [8, 4, 2, 1, 0]),
        ("3,2,...,0", [3, 2, 1, 0]),
        ("0,1,2,...,8,9,...,11", [0, 1, 2, 4, 8, 9, 10.125, 11]),
        ("1,2,...,2.5", [1, 2, 2.5]),
    ],
)
def test_lists_of_couplings(text, values):
    assert parse_couplings(text) == values


@each(
    "text",
    ["", "1", "1,1", "1,3,2", "-1,2", "1,x", "1,inf", "1,nan", "...,3", "1,...,3", "1,2,...", "1,2,...,...,9",
     "1,2,...,0.5", "2,1,...,4", "0,1e-9,...,1", "1,1,...,2", ",".join(map(str, range(1002)))],
)  # fmt: skip
def test_lists_that_are_none_are_refused(text):
    with pytest.raises(ExperimentError, match="couplings"):
        parse_couplings(text)


def test_the_issues_own_list_has_equal_steps_because_it_begins_with_zero():
    values = parse_couplings("0,0.1,...,30")
    assert_allclose(values, np.arange(301) / 10, rtol=0, atol=1e-12)
    assert values[3] == 0.3


def test_numbers_that_turn_back_are_refused_before_anything_runs(monkeypatch):
    monkeypatch.setattr("p2pkm.experiments.simulate.simulate", lambda *given, **more: pytest.fail("it ran"))
    assert check_couplings((3, 2)) == [3.0, 2.0]
    for couplings, options in (((1.0, 2.0, 2.0), {}), ((1.0, 2.0), {"relaxation": 3.0}), ((1.0, 1e200), {})):
        with pytest.raises(ExperimentError):
            p2pkm.coupling_path(2, topologies.ring(4), shards(4), couplings, **options)


def shards(n, points=5):
    X, y = p2pkm.grid16(points=points, seed=1)
    return p2pkm.Shards.deal(X, p2pkm.partition.dirichlet(y, n, alpha=0.3, seed=1), devices=n, labels=y)


def test_every_step_starts_where_the_last_one_ended():
    graph, points, options = topologies.ring(5), shards(5), {"seed": 3, "rounds": 30}
    path = p2pkm.coupling_path(4, graph, points, [10, 1, 0.1], **options, tol=1e-4)
    start = None
    for result, coupling in zip(path, (10, 1, 0.1), strict=True):
        expected = p2pkm.simulate(p2pkm.GTVMin(4, coupling=coupling, tol=1e-4), graph, points, start=start, **options)
        assert_array_equal(result.centroids, expected.centroids)
        assert result.summary["coupling"] == coupling
        start = expected.centroids
    assert [len({record["stage"] for record in result.rounds}) for result in path] == [2, 1, 1]


def test_no_step_is_worse_at_its_own_coupling_than_where_it_started():
    points, k, n = shards(6, points=20), 8, 6
    couplings = [30.0, 10.0, 3.0, 1.0, 0.0]
    rows = [measure(one) for one in p2pkm.coupling_path(k, topologies.ring(n), points, couplings)]
    for before, after in pairwise(rows):
        alpha = after["coupling"] * points.m / n / k / 2
        assert after["local_fit"] + alpha * after["gtv"] <= before["local_fit"] + alpha * before["gtv"] + 1e-9
        assert_allclose(after["objective"], after["local_fit"] + alpha * after["gtv"])
        assert after["local_fit"] < before["local_fit"]
        assert after["gtv"] > before["gtv"]


def sets(*rows):
    return np.array(rows, float)[:, :, None]


def test_clusterings_are_counted_whatever_the_order_of_their_rows():
    inf = np.inf
    assert count_clusterings(sets([1, 5], [5, 1], [1, 5]), 0.0) == 1
    assert count_clusterings(sets([1, 5], [1, 1], [5, inf]), 0.0) == 3
    assert count_clusterings(sets([1, 5, 5], [5, 1, 1], [inf, 5, 1]), 0.0) == 1
    assert count_clusterings(sets([1, 5], [inf, inf]), 0.0) == 1
    assert count_clusterings(sets([inf, inf]), 1.0) == 0


def test_clusterings_within_the_tolerance_of_the_first_are_alike():
    assert count_clusterings(sets([0, 10], [10.5, 0.25], [0, 10.75]), 0.5) == 2
    assert count_clusterings(sets([0.0], [0.5], [1.0]), 0.5) == 2  # the last is like the second, not like the first
    assert count_clusterings(sets([0.5], [0.0], [1.0]), 0.5) == 1
    assert count_clusterings(sets([0, 10], [0, 0]), 0.5) == 2  # one side has a row near, the other has not
    plane = np.array([[[0, 0], [3, 4]], [[3, 4.5], [0.0, 0]]])
    assert (count_clusterings(plane, 0.5), count_clusterings(plane, 0.49)) == (1, 2)


def test_what_is_measured_at_a_coupling():
    data = [np.array([[0.0, 0.0], [2.0, 0.0]]), np.array([[100.0, 0.0], [102.0, 0.0]])]
    result = p2pkm.simulate(p2pkm.GTVMin(1, coupling=0.0), topologies.path(2), p2pkm.Shards.from_list(data),
                            start=[[[1.0, 0.0]], [[101.0, 0.0]]])  # fmt: skip
    row = measure(result)
    assert (row["coupling"], row["local_fit"], row["gtv"], row["objective"]) == (0.0, 4.0, 2e4, 4.0)
    assert row["clusterings"] == 2
    strong = measure(p2pkm.simulate(p2pkm.GTVMin(1, coupling=1e4), topologies.path(2), p2pkm.Shards.from_list(data)))
    assert strong["clusterings"] == 1
    assert strong["centroid_sets"] == 2


@pytest.mark.parametrize(("gap", "count"), [(9.0, 1), (12.0, 2)])
def test_clusterings_are_alike_within_a_tenth_of_the_standard_deviation(gap, count):
    data = [np.array([[0.0], [200.0]]), np.array([[gap], [200.0 + gap]])]  # a standard deviation of a little over 100
    result = p2pkm.simulate(p2pkm.GTVMin(1, coupling=0.0, init="local"), topologies.path(2),
                            p2pkm.Shards.from_list(data))  # fmt: skip
    assert_allclose(result.centroids.ravel(), [100, 100 + gap], atol=0.1)
    assert measure(result)["clusterings"] == count


@pytest.mark.filterwarnings("ignore:.*ended without centroids")
def test_a_device_without_centroids_has_no_fit():
    data = [np.ones((3, 1)), np.ones((2, 1))]
    result = p2pkm.simulate(p2pkm.GTVMin(1, coupling=0.0), topologies.path(2), p2pkm.Shards.from_list(data),
                            start=[[[1.0]], [[np.inf]]])  # fmt: skip
    assert measure(result)["local_fit"] is None


@pytest.mark.slow
def test_the_folder_has_the_path_line_by_line_and_the_output_is_the_summary(tmp_path):
    ending = here(*SMALL, *PATH, "--out", tmp_path / "run", "--format", "json", "--plot")
    closing = ending.summary
    assert [row["coupling"] for row in closing["path"]] == [10, 1, 0]
    assert closing["config"]["coupling"] == [10, 1, 0]
    assert (closing["algorithm"], closing["devices"], closing["out"]) == ("gtvmin", 4, str(tmp_path / "run"))
    assert json.loads((tmp_path / "run/summary.json").read_text()) == closing
    lines = [json.loads(line) for line in (tmp_path / "run/study.jsonl").read_text().splitlines()]
    common = {"algorithm": "gtvmin", "graph": "ring", "seed": 0, "error": None}
    assert lines == [common | row for row in closing["path"]]
    assert p2pkm.load_study(tmp_path / "run").rows == lines
    with open(tmp_path / "run/study.csv", newline="") as file:
        cells = list(csv.DictReader(file))
    assert [{name: "" if value is None else str(value) for name, value in row.items()} for row in lines] == cells
    assert np.load(tmp_path / "run/centroids.npz")["centroids"].shape == (3, 4, 16, 2)
    assert listed(tmp_path / "run") - {"study.parquet"} == FILES | {
        "figures", "figures/coupling_path.png", "figures/coupling_path.svg", "figures/coupling_path.data.csv",
        "runs/worker-1.jsonl", *(f"runs/step-{number}.npz" for number in range(3)),
    }  # fmt: skip


def test_the_table_shows_every_step_and_nothing_is_written_if_so_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ending = here("run", *SMALL, *PATH, "--no-baselines", "--out", "none")
    lines = ending.out.splitlines()
    assert ending.code == 0
    assert lines[0].split() == ["coupling", "local", "fit", "GTV", "ratio", "clusterings", "rounds", "termination"]
    assert [line.split()[0] for line in lines[1:]] == ["10", "1", "0", "results"]
    assert lines[1].split()[3] == "-"
    assert not listed(tmp_path)


def test_the_command_line_and_a_script_find_the_same():
    rows = here(*SMALL, *PATH, "--out", "none", "--format", "json", "--seed", 4).summary["path"]
    X, y = p2pkm.grid16(points=5, seed=4)
    device = p2pkm.partition.dirichlet(y, 4, alpha=0.3, seed=4)
    path = p2pkm.coupling_path(16, topologies.ring(4), p2pkm.Shards.deal(X, device, devices=4, labels=y), [10, 1, 0],
                               rounds=20, seed=4)  # fmt: skip
    assert rows == [measure(one) for one in path]


def test_steps_that_do_not_converge_end_with_code_5_if_so_asked():
    words = (*SMALL, *PATH, "--out", "none", "--rounds", "1")
    assert here(*words).code == 0
    assert here(*words, "--require-converged").code == 5


def test_a_dry_run_shows_the_couplings_and_runs_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(p2pkm.experiments.studies.coupling_path, "execute", lambda *given: pytest.fail("it ran"))
    ending = here(*SMALL, *PATH, "--dry-run", "--format", "json", "--out", tmp_path / "run")
    assert ending.summary["coupling"] == [10, 1, 0]
    assert not listed(tmp_path)


def test_mistakes_are_refused_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(p2pkm.experiments.studies.coupling_path, "execute", lambda *given: pytest.fail("it ran"))
    used = tmp_path / "used"
    used.mkdir()
    (used / "thesis.tex").write_text("precious")
    for words in (("--coupling", "3"), ("--alpha", "3"), ("--seeds", "0-1"), ("--algorithm", "fkm"), ("--out", used),
                  ("--algorithm", "gtvmin:coupling=3"), ("--coupling-path", "1,1")):  # fmt: skip
        ending = here(*SMALL, *PATH, *words)
        assert ending.code == 2, words
        assert "Traceback" not in ending.err
    assert listed(tmp_path) == {"used", "used/thesis.tex"}


def test_force_replaces_what_was_there(tmp_path):
    used = tmp_path / "used"
    used.mkdir()
    (used / "old.txt").write_text("replaceable")
    assert here(*SMALL, *PATH, "--out", used, "--force").code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["used"]
    assert {path.name for path in used.iterdir()} - {"study.parquet"} == FILES


@pytest.mark.parametrize("ended", [0, 2])
@pytest.mark.sample(2)
def test_an_interrupted_path_keeps_the_steps_that_ended(tmp_path, monkeypatch, ended):
    run, calls = p2pkm.experiments.studies.coupling_path.execute, []

    def execute(*given):
        result = run(*given)
        calls.append(given)
        result.summary["termination"] = "interrupted" if len(calls) > ended else result.summary["termination"]
        return result

    monkeypatch.setattr(p2pkm.experiments.studies.coupling_path, "execute", execute)
    assert here(*SMALL, *PATH, "--out", tmp_path / "run").code == 130
    assert len(json.loads((tmp_path / "run/summary.json").read_text())["path"]) == ended
    monkeypatch.undo()
    whole = here(*SMALL, *PATH, "--out", tmp_path / "whole")
    assert here("resume", tmp_path / "run", "-q").out == whole.out.replace("whole", "run")
    for name in ("study.jsonl", "study.csv"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    one, other = (np.load(tmp_path / name / "centroids.npz")["centroids"] for name in ("run", "whole"))
    assert_array_equal(one, other)


def test_a_killed_path_is_finished_after_its_last_step(tmp_path, monkeypatch):
    """Killed in the third step: the first two are not run again, and the result is that of an undisturbed path."""
    words = (*SMALL, *PATH, "--out", tmp_path / "run")
    whole = here(*words)
    table = (tmp_path / "run/study.jsonl").read_text()
    (tmp_path / "other").mkdir()
    (tmp_path / "run").rename(tmp_path / "whole")
    module = p2pkm.experiments.studies.coupling_path
    execute, begun = module.execute, []

    def run(step, *given):
        begun.append(step.options.coupling)
        if len(begun) == 3:
            raise KeyboardInterrupt
        return execute(step, *given)

    monkeypatch.setattr(module, "execute", run)
    here(*words)
    assert begun == [10, 1, 0] and not (tmp_path / "run/study.jsonl").exists()
    assert here("resume", tmp_path / "run", "-q").out == whole.out
    assert begun == [10, 1, 0, 0] and (tmp_path / "run/study.jsonl").read_text() == table
    assert here("resume", tmp_path / "run", "-q").out == whole.out and len(begun) == 4
    mark = (tmp_path / "run/study.toml").read_text()
    (tmp_path / "run/study.toml").write_text(mark.replace("couplings", "forgotten"))
    assert "contains a path of couplings" in here("resume", tmp_path / "run").err


def test_a_disk_that_fails_is_code_4(tmp_path, monkeypatch):
    def fail(*given):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(p2pkm.experiments.studies.series, "write_json", fail)
    ending = here(*SMALL, *PATH, "--out", tmp_path / "run")
    assert ending.code == 4
    assert "No space left" in ending.err


@pytest.mark.mpi
def test_three_ranks_walk_the_same_path():
    words = (*SMALL, *PATH, "--format", "json", "--out", "none", "--scale", "standard")
    done = there(*ranks(3), "-m", "p2pkm", *words)
    assert done.code == 0, done.err
    assert json.loads(done.out)["path"] == here(*words).summary["path"]


def rows(couplings, fits, gtvs, counts):
    names = ("coupling", "local_fit", "gtv", "clusterings")
    return [dict(zip(names, row, strict=True)) for row in zip(couplings, fits, gtvs, counts, strict=True)]


def test_the_figure_shows_fit_against_gtv_and_the_number_of_clusterings():
    ax = plot_coupling_path(rows([0, 0.1, 10], [1.0, 2.0, 3.0], [500.0, 40.0, 1.0], [8, 4, 1])).axes[0]
    left, right = ax.child_axes
    assert_array_equal(left.lines[0].get_xydata(), [[500, 1], [40, 2], [1, 3]])
    assert_array_equal(right.lines[0].get_xydata(), [[0, 8], [0.1, 4], [10, 1]])
    assert [text.get_text() for text in left.texts] == ["0", "0.1", "10"]
    assert (left.get_xscale(), right.get_xscale()) == ("log", "symlog")
    low, high = right.get_xlim()
    assert low < 0 < 10 < high


def test_steps_whose_figures_are_not_known_are_gaps():
    left, right = plot_coupling_path(rows([1, 2], [None, 2.0], [3.0, None], [1, 1])).axes[0].child_axes
    assert np.isnan(left.lines[0].get_xydata()).any(axis=1).all()
    assert not left.texts
    assert right.get_xscale() == "linear"
