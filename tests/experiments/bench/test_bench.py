"""The benchmark: entries, suites, rows with references, refusals, resumption and joined results."""

import json
import time
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import p2pkm
import p2pkm.experiments.studies.run_study
from p2pkm.core.card import find_card
from p2pkm.core.messages import no_messages
from p2pkm.core.protocols import MethodBase
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.experiments.bench.entries import list_entries, read_entries, split_list
from p2pkm.experiments.bench.merge import merge_folders
from p2pkm.experiments.bench.references import References, compute_cost, name_points
from p2pkm.experiments.bench.rows import COLUMNS
from p2pkm.experiments.bench.suites import list_suites, read_suite
from p2pkm.methods.init.value import Init
from p2pkm.methods.peer.local_only import LocalOnlyState
from p2pkm.methods.registry import METHODS, find
from tests.support.run_cli import here, ranks, there
from tests.support.stored_rows import lose_rows

SUITE = """
version = 3
seeds = "0-1"
splits = ["skew"]
link_models = ["lan"]
[options]
devices = 4
[partitions]
skew = "dirichlet:alpha=0.3"
[[tasks]]
name = "small"
data = "mixture:clusters=3,points=36"
clusters = 3
known = { radius = 20.0, epsilon = 4.0 }
[[tasks]]
name = "own"
data = "mixture:clusters=3,points=36"
clusters = 3
start = "local"
[[tasks]]
name = "scaled"
data = "iris"
clusters = 3
scale = "standard"
known = { radius = 20.0, epsilon = 4.0 }
"""
LIST = "consensus,treelloyd,kfed,private,local"


@dataclass(frozen=True)
class Still(MethodBase):
    """Centroids of the start, unchanged."""

    k: int
    _: KW_ONLY
    init: Init | str = "local"
    seconds: float = 0.0

    name: ClassVar[str] = "still"
    default_rounds: ClassVar[int] = 1
    schedule: ClassVar[str] = "jacobi"

    @property
    def traits(self):
        return MethodTraits(message_content=MessageContent.OTHER, init=Init.of(self.init))

    def initial_state(self, devices, start):
        time.sleep(self.seconds)
        return LocalOnlyState(start.centroids, np.ones(len(devices), np.bool_))

    def message(self, state: Any, devices):
        return no_messages(len(devices), 1, devices.d)

    def update(self, state, inbox, devices):
        return state


class Broken(Still):
    """A method with a mistake."""

    name: ClassVar[str] = "broken"

    def initial_state(self, devices, start):
        raise RuntimeError("mistake")


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    path = tmp_path_factory.mktemp("suite") / "tiny.toml"
    path.write_text(SUITE)
    return str(path)


@pytest.fixture(scope="module")
def folder(suite, tmp_path_factory):
    """Folder of a benchmark that has ended."""
    path = tmp_path_factory.mktemp("bench") / "b"
    p2pkm.bench(LIST, suite=suite, out=path, progress=False)
    return path


@pytest.fixture
def begun(monkeypatch):
    """List that grows with every run that is executed."""
    executed, execute = [], p2pkm.experiments.studies.run_study.execute
    monkeypatch.setattr(
        p2pkm.experiments.studies.run_study, "execute", lambda *given: executed.append(1) or execute(*given)
    )
    return executed


def read_lines(folder):
    return [json.loads(line) for line in (folder / "study.jsonl").read_text().splitlines()]


def test_the_table_has_every_method_that_can_be_ranked():
    names = [entry.name for entry in read_entries()]
    ranked = {name for name in METHODS if find_card(find(name)).family != "deep"}
    assert {entry.method for entry in read_entries()} == ranked and len(set(names)) == len(names)
    assert {"gtvmin", "gtvmin (real numbers)", "coreset", "central (real numbers)"} <= set(names)
    assert "coreset (real numbers)" not in names


def test_lists_of_entries():
    ours = [entry.name for entry in list_entries(["gtvmin"]) if entry.defaults == "ours"]
    assert ours == ["gtvmin", "gtvmin (real numbers)"]
    assert [entry.name for entry in list_entries(["gtvmin (real numbers)"])] == ["gtvmin (real numbers)"]
    assert [entry.name for entry in list_entries(["fkm:server_n_init=20"])] == [
        "fkm:server_n_init=20", "fkm:server_n_init=20 (real numbers)",
    ]  # fmt: skip
    assert list_entries(["all"]) == read_entries()
    assert split_list("gtvmin (real numbers),fkm:min_count=1,server_n_init=2,kfed") == [
        "gtvmin (real numbers)", "fkm:min_count=1,server_n_init=2", "kfed",
    ]  # fmt: skip
    trust = {entry.method: entry.trust for entry in read_entries()}
    assert [trust[name] for name in ("gtvmin", "kfed", "coreset", "private", "central")] == [
        "no server", "server", "raw points leave", "private", "baseline",
    ]  # fmt: skip


@pytest.mark.parametrize("name", list_suites())
def test_suites_that_ship(name):
    suite = read_suite(name)
    assert suite.version >= 1 and suite.tasks and suite.title
    assert list_entries(split_list(suite.algorithm))


def test_references_of_core_ship_with_the_package():
    known = References.load(None)
    assert all(known.find(task, seed) for task in read_suite("core").tasks for seed in task.seeds)


def test_rows(folder):
    rows = read_lines(folder)
    assert all(tuple(row) == COLUMNS for row in rows) and rows == p2pkm.Benchmark.load(folder).rows
    assert len(rows) == 3 * 2 * len(list_entries(LIST.split(","))) and {row["suite_version"] for row in rows} == {3}
    done = [row for row in rows if row["status"] == "done"]
    assert {row["graph"] for row in done if row["entry"] in ("kfed", "local")} == {"server"}
    assert all(row["cost"] == pytest.approx((1 + row["excess"]) * row["reference_cost"]) for row in done)
    assert all(row["seconds_lan"] >= 0 and row["seconds_wan"] is None for row in done)
    pairs = {(row["task"], row["seed"]): row for row in done if row["entry"] == "consensus"}
    real = {(row["task"], row["seed"]): row for row in done if row["entry"] == "consensus (real numbers)"}
    assert pairs and all(pairs[place]["bytes_over_raw"] < real[place]["bytes_over_raw"] for place in pairs)
    assert {row["encoding"] for row in pairs.values()} == {"integer"}
    assert {row["encoding"] for row in real.values()} == {"real"}


def test_refusals_are_rows(folder):
    refused = {(row["entry"], row["task"]): row for row in read_lines(folder) if row["status"] != "done"}
    assert refused["private", "scaled-skew"]["status"] == "rejected"
    assert "scale" in refused["private", "scaled-skew"]["reason"]
    assert "requires equal" in refused["treelloyd", "own-skew"]["reason"]
    assert ("private", "small-skew") not in refused and refused["treelloyd", "own-skew"]["cost"] is None


def recompute(row, suite):
    """Compute cost, reference and bytes of the raw points of a row by scikit-learn alone."""
    from sklearn.cluster import KMeans
    from sklearn.datasets import load_iris
    from sklearn.metrics import pairwise_distances_argmin_min
    from sklearn.preprocessing import StandardScaler

    tasks = {task.name: task for task in read_suite(suite).tasks}
    options = tasks[row["task"]].options
    if options.data == "iris":
        raw, labels = load_iris(return_X_y=True)
    else:
        raw, labels = p2pkm.mixture(clusters=3, points=36, seed=row["seed"])
    device = p2pkm.partition.dirichlet(labels, 4, alpha=0.3, seed=row["seed"])
    shards = p2pkm.Shards.deal(raw, device, devices=4, labels=labels)
    graph = None if row["graph"] == "server" else p2pkm.Topology.from_graph(__import__("topologies").ring(4))
    kinds = {"consensus": p2pkm.ConsensusLloyd, "kfed": p2pkm.KFED, "local": p2pkm.LocalOnly}
    quantize = "none" if "real" in row["entry"] or row["entry"] == "local" else "rice"
    found = p2pkm.simulate(kinds[row["algorithm"]](3), graph, shards, seed=row["seed"], scale=options.scale,
                           quantize=quantize, progress=False)  # fmt: skip
    points = StandardScaler().fit_transform(raw) if options.scale == "standard" else raw
    costs = []
    for model in found.centroids:
        held = model[np.isfinite(model[:, 0])]
        if len(held):
            costs.append((pairwise_distances_argmin_min(points, held)[1] ** 2).sum())
    best = KMeans(3, n_init=50, random_state=1).fit(points).inertia_
    return np.mean(costs), max(costs), best, raw.size * 8, found.summary["wire_bytes"]


def test_six_rows_by_scikit_learn(folder, suite):
    places = [("consensus", "small-skew", 0), ("consensus (real numbers)", "small-skew", 1), ("kfed", "small-skew", 1),
              ("kfed", "scaled-skew", 0), ("consensus", "scaled-skew", 0), ("local", "scaled-skew", 1)]  # fmt: skip
    rows = {(row["entry"], row["task"], row["seed"]): row for row in read_lines(folder)}
    for row in (rows[place] for place in places):
        cost, worst, best, raw, sent = recompute(row, suite)
        assert row["cost"] == pytest.approx(cost, rel=1e-9), row
        assert row["reference_cost"] == pytest.approx(best, rel=1e-9)
        assert row["excess"] == pytest.approx(cost / best - 1, abs=1e-8)
        assert row["excess_worst"] == pytest.approx(worst / best - 1, abs=1e-8)
        assert row["bytes_over_raw"] == sent / raw


def test_a_finished_benchmark_is_not_repeated(folder, begun):
    before = (folder / "study.csv").read_bytes()
    done = here("resume", folder, "-q")
    assert done.code == 0 and not begun and (folder / "study.csv").read_bytes() == before
    assert "kfed" in done.out and str(folder) in done.out


def test_missing_runs_are_repeated(folder, begun, tmp_path, suite):
    import shutil

    shutil.copytree(folder, tmp_path / "b")
    lose_rows(tmp_path / "b", 2)
    again = p2pkm.bench(LIST, suite=suite, out=tmp_path / "b", progress=False)
    assert len(begun) == 2 and again.rows == read_lines(folder)


@pytest.mark.slow
def test_two_runs_and_two_processes_give_the_same_bits(folder, suite, tmp_path):
    for jobs in (1, 2):
        p2pkm.bench(LIST, suite=suite, out=tmp_path / str(jobs), jobs=jobs, progress=False)
        for name in ("study.jsonl", "study.csv", "references.json"):
            assert (tmp_path / str(jobs) / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.mpi
def test_ranks_give_the_same_bits(folder, suite, tmp_path):
    done = there(
        *ranks(3), "-m", "p2pkm", "bench", "--suite", suite, "--algorithm", LIST, "--out", tmp_path / "b", "-q"
    )
    assert done.code == 0, done.err
    assert (tmp_path / "b/study.jsonl").read_bytes() == (folder / "study.jsonl").read_bytes()


@pytest.mark.mpi
def test_ranks_return_the_same_from_python(suite, folder):
    # As one write: the ranks share the output.
    program = (
        "import sys, p2pkm; "
        f"found = p2pkm.bench({LIST!r}, suite={suite!r}, progress=False); sys.stdout.write(f'{{len(found.rows)}}\\n')"
    )
    done = there(*ranks(2), "-c", program)
    assert done.code == 0, done.err
    assert done.out.split() == [str(len(read_lines(folder)))] * 2


def test_methods_of_a_program(suite, capsys):
    found = p2pkm.bench(
        {"still": Still, "broken": Broken}, suite=suite, tasks=["own-skew"], seeds=[0], progress=False
    ).rows
    still, broken = found
    assert still["excess"] == still["start_excess"] > 0 and still["bytes_over_raw"] == 0
    assert (still["entry"], still["trust"]) == ("still", "no server")
    assert (broken["entry"], broken["status"], broken["reason"]) == ("broken", "failed", "RuntimeError: mistake")
    assert "mistake" in capsys.readouterr().err


def rounds_twice(result):
    """Twice the number of rounds."""
    return 2 * result.summary["rounds"]


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.sample(2)
def test_metrics_of_a_program_are_columns(suite, tmp_path, jobs):
    asked = {"suite": suite, "tasks": ["small-skew"], "seeds": [0], "out": tmp_path / "b", "progress": False}
    rows = p2pkm.bench(
        {"consensus": p2pkm.ConsensusLloyd, "broken": Broken}, metrics=rounds_twice, jobs=jobs, **asked
    ).rows
    assert {row["status"] for row in rows} == {"done", "failed"}
    assert all(row["rounds_twice"] == (2 * row["rounds"] if row["status"] == "done" else None) for row in rows)
    assert p2pkm.Benchmark.load(tmp_path / "b").rows[0]["rounds_twice"] == rows[0]["rounds_twice"]
    assert here("resume", str(tmp_path / "b")).code == 2  # only the program has the function
    with pytest.raises(p2pkm.ExperimentError, match="metrics contains 3; expected functions"):
        p2pkm.bench("local", metrics=3, **asked)


@pytest.mark.slow
def test_a_method_without_progress_is_last(suite):
    found = p2pkm.bench(
        {"still": Still, "ours": p2pkm.GTVMin}, suite=suite, tasks=["own-skew"], seeds=[0], progress=False
    ).rows
    excess = {row["entry"]: row["excess"] for row in found}
    assert max(excess, key=excess.get) == "still"


@pytest.mark.slow
def test_runs_out_of_time_are_rows(suite):
    from functools import partial

    slow = partial(Still, seconds=5.0)
    (row,) = p2pkm.bench(
        {"slow": slow}, suite=suite, tasks=["own-skew"], seeds=[0], time_limit=0.3, progress=False
    ).rows
    assert row["status"] == "timeout" and "longer than 0.3 s" in row["reason"]


def test_references_are_replaced_and_it_is_said(folder, suite, tmp_path, capsys):
    task = read_suite(suite).tasks[0]
    (tmp_path / "b").mkdir()
    known = References.load(folder)
    reference = known.find(task, 0)
    worse = References({name_points(task, 0): reference._replace(cost=1e9)})
    (tmp_path / "b/study.toml").write_text((folder / "study.toml").read_text())
    worse.save(tmp_path / "b")
    (row,) = p2pkm.bench("local", suite=suite, tasks=["small-skew"], seeds=[0], out=tmp_path / "b", progress=False).rows
    assert row["excess"] == 0.0 and row["reference_cost"] == row["cost"]
    message = capsys.readouterr().err
    assert "is replaced: local has the cost" in message and message.count("\n") == 1
    assert References.load(tmp_path / "b").find(task, 0).cost == row["cost"]


def test_other_points_are_no_silent_excess(folder, suite, tmp_path):
    task = read_suite(suite).tasks[0]
    (tmp_path / "b").mkdir()
    (tmp_path / "b/study.toml").write_text((folder / "study.toml").read_text())
    other = References.load(folder).find(task, 0)._replace(points_sha256="0" * 32)
    References({name_points(task, 0): other}).save(tmp_path / "b")
    (row,) = p2pkm.bench("local", suite=suite, tasks=["small-skew"], seeds=[0], out=tmp_path / "b", progress=False).rows
    assert row["status"] == "failed" and "expected 00000" in row["reason"] and row["excess"] is None


def test_joined_results(folder, suite, tmp_path):
    mine = tmp_path / "mine"
    p2pkm.bench("central", suite=suite, tasks=["small-skew"], out=mine, seeds=[0], progress=False)
    merge_folders([str(folder), str(mine)], str(tmp_path / "all"))
    assert sorted(map(str, read_lines(tmp_path / "all"))) == sorted(map(str, read_lines(folder) + read_lines(mine)))
    again = merge_folders([str(tmp_path / "all"), str(folder)], str(tmp_path / "again"))
    assert len(again.rows) == len(read_lines(tmp_path / "again")) == len(read_lines(tmp_path / "all"))


@pytest.mark.slow
def test_the_command_joins_the_same_rows_and_draws_them(folder, suite, tmp_path):
    mine = tmp_path / "mine"
    p2pkm.bench("central", suite=suite, tasks=["small-skew"], out=mine, seeds=[0], progress=False)
    done = here("bench", "merge", folder, mine, "--out", tmp_path / "all")
    assert done.code == 0, done.err
    assert sorted(map(str, read_lines(tmp_path / "all"))) == sorted(map(str, read_lines(folder) + read_lines(mine)))
    assert list((tmp_path / "all").glob("**/*.png"))


def test_results_that_cannot_be_joined(folder, suite, tmp_path):
    other = tmp_path / "other"
    p2pkm.bench("local", suite=suite, tasks=["small-skew"], out=other, seeds=[0], progress=False)
    lines = read_lines(other)
    for name, text, message in (
        ("study.jsonl", json.dumps(lines[0] | {"suite_version": 4}) + "\n", "version 4"),
        ("study.jsonl", json.dumps(lines[0] | {"cost": 1.0}) + "\n", "different results of local on small-skew"),
        ("references.json", json.dumps({lines[0]["points"]: [1.0, "0" * 32, ""]}), "different points of mixture"),
        ("study.jsonl", "", "has no rows"),
    ):
        kept = (other / name).read_text()
        (other / name).write_text(text)
        done = here("bench", "merge", folder, other, "--out", tmp_path / "all")
        assert done.code in (2, 3) and message in done.err and not (tmp_path / "all").exists(), done.err
        (other / name).write_text(kept)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--suite", "cores"], 2, "Did you mean 'core'"),
        (["--task", "grid"], 2, "unknown task 'grid'"),
        (["--algorithm", "gtvmni"], 2, "Did you mean 'gtvmin'"),
        (["--algorithm", "deepfeca"], 2, "cannot be ranked"),
        (["--suite", "real"], 2, "--file cells=PATH"),
        (["--file", "mnist=x.npz"], 2, "its tasks read no files"),
        (["--suite", "real", "--task", "mnist-iid", "--file", "mnist=nowhere.npz"], 2, "which does not exist"),
        (["--file", "mnist"], 2, "expected NAME=PATH"),
        (["--time-limit", "0"], 2, "time_limit"),
        (["--seeds", "x"], 2, "--seeds"),
        (["merge", "nowhere", "here", "--out", "x"], 3, "cannot be read as a benchmark"),
    ],
)
def test_mistakes_end_before_any_work(words, code, message, begun, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = here("bench", *words)
    assert done.code == code and message in done.err and "Traceback" not in done.err, done.err
    assert not begun and not list(tmp_path.iterdir())


def test_a_folder_of_another_suite_is_kept(folder):
    before = sorted(path.name for path in folder.iterdir())
    done = here("bench", "--task", "few-iid", "--algorithm", "local", "--seeds", "0", "--out", folder)
    assert done.code == 2 and "holds suite tiny, version 3" in done.err
    assert sorted(path.name for path in folder.iterdir()) == before


def test_lists_of_suites():
    assert all(name in here("bench", "list").out for name in list_suites())
    assert "grid16-skew: grid16:points=50, k = 16" in here("bench", "list", "core").out
    assert json.loads(here("bench", "list", "core", "--format", "json").out)[0]["suite"] == "core"
    dry = here("bench", "--task", "few-iid", "--algorithm", "kfed,local", "--dry-run")
    runs = 3 * len(list_entries(["kfed", "local"]))
    assert dry.code == 0 and f"suite core, version 2: {runs} runs" in dry.out


def test_cost_is_that_of_scikit_learn():
    from sklearn.cluster import KMeans

    points, _ = p2pkm.iris()
    fitted = KMeans(3, n_init=1, random_state=0).fit(points)
    assert compute_cost(points, np.ones(len(points)), fitted.cluster_centers_) == pytest.approx(fitted.inertia_)
