"""The command plan: sizes, memory, seconds, refusals, and what it prints."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import p2pkm
from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.spec import Spec
from p2pkm.core.units import write_size
from p2pkm.data import sources
from p2pkm.data.size_estimate import Size, measure
from p2pkm.data.sources import load, parse_source
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.config import parse_specs
from p2pkm.experiments.plan import free_memory as machine
from p2pkm.experiments.plan import run as lead
from p2pkm.experiments.plan import time_model as speed
from p2pkm.experiments.plan.draft import build_plan, resolve_experiment
from p2pkm.experiments.plan.memory_check import weigh_plan
from p2pkm.experiments.plan.memory_model import MemoryInputs, advise, need, refuse, together
from p2pkm.experiments.plan.time_model import Costs, Link, Split, fit, predict
from p2pkm.network.rank_partition import RankPartition
from tests.support.run_cli import ROOT, environment, here, ranks, there

COSTS = Costs(turn=1e-4, device=1e-7, point=1e-8, link=1e-7, opening=1e-8)
LINK = Link(1e-4, 1e9, "given")
HUGE = ("--devices", "1000000", "--data", "blobs:clusters=4,points=12500000")


def split(topology, ranks):
    return speed.split(topology, RankPartition.blocks(topology.n, ranks))


@pytest.fixture
def uncalibrated(monkeypatch):
    """Spare the trials: costs as above."""
    monkeypatch.setattr(speed, "calibrate", lambda plan: COSTS)
    monkeypatch.setattr(speed, "measure_link", lambda *rest: LINK)
    monkeypatch.setenv("P2PKM_MEMORY", "24G")


@pytest.mark.parametrize("text", ["grid16:points=3", "grid16:points=2,sd=0", "blobs:clusters=3,features=5,points=4",
                                  "blobs:clusters=1,points=4",
                                  "slike:points=2", "balls:features=3", "communities:devices=6,points=5",
                                  "shapes:points=2,side=9", "iris",
                                  "wine", "digits:components=3"])  # fmt: skip
def test_sizes_are_those_of_the_data(text):
    spec = parse_source(text)
    size, table = measure(spec), load(spec, seed=0)
    assert (size.points, size.features) == table.points.shape
    assert size.classes == table.classes
    assert size.labeled == (table.labels is not None)
    assert size.distinct == len(np.unique(table.points, axis=0))
    assert size.devices == (None if table.device is None else len(np.unique(table.device)))


@pytest.mark.parametrize("labeled", [False, True])
def test_sizes_of_points_that_stay_on_disk_are_those_of_their_headers(tmp_path, labeled):
    for i in range(3):
        np.save(tmp_path / f"part-{i}.npy", np.ones((4 + i, 2)))
        if labeled:
            np.save(tmp_path / f"part-{i}.labels.npy", np.arange(4 + i) % 4)
    spec = parse_source(str(tmp_path / "part-*.npy"))
    assert measure(spec) == Size(15, 2, devices=3, labeled=labeled, stored=True)
    assert measure(spec, whole_file=True).classes == (4 if labeled else None)
    alone = parse_source(str(tmp_path / "part-1.npy"))
    assert measure(alone, partition=Spec("blocks", {})) == Size(5, 2, labeled=labeled, stored=True)
    assert not measure(alone).stored


def test_points_that_stay_on_disk_are_planned_without_a_rank_that_holds_all(tmp_path, uncalibrated):
    for i in range(4):
        np.save(tmp_path / f"part-{i}.npy", np.random.default_rng(i).normal(size=(200, 2)))
    words = ("plan", "--data", tmp_path / "part-*.npy", "-k", "3", "--ranks", "4", "--format", "json")
    kept, moved, drawn = (
        json.loads(here(*words, *more).out)
        for more in ((), ("--partition", "blocks:minimum=1"), ("--partition", "iid"))
    )
    assert moved["memory"] == drawn["memory"]  # where points are moved to a device that has too few, all are dealt
    assert (kept["devices"], kept["points"]) == (4, 800)
    for found in (kept, drawn):
        four = next(row for row in found["memory"] if row["ranks"] == 4)
        assert four["rank0"]["reading"] == four["other"]["reading"]
    assert found["memory"][0]["rank0"]["reading"] > kept["memory"][0]["rank0"]["reading"]
    blocks = build_plan(RunOptions(data=str(tmp_path / "part-*.npy"), devices=3, clusters=3), None)
    assert blocks.sizes.tolist() == [267, 267, 266] and blocks.dealt


@pytest.mark.parametrize("columns", [{}, {"label_column": "2"}, {"label_column": "2", "device_column": "0"}])
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv"])
def test_sizes_of_files_are_those_of_the_data(tmp_path, suffix, columns):
    path = tmp_path / f"points{suffix}"
    array = np.column_stack((np.arange(7), np.random.default_rng(0).normal(size=7), np.arange(7) % 3))
    writers = {
        ".npy": np.save,
        ".npz": lambda file, X: np.savez(file, X=X),
        ".csv": lambda file, X: np.savetxt(file, X, delimiter=","),
    }
    writers[suffix](path, array)
    spec = parse_source(str(path))
    size = measure(spec, **columns)
    assert (size.points, size.features) == load(spec, seed=0, **columns).points.shape
    assert size.labeled == ("label_column" in columns)


def test_classes_that_nobody_told_are_counted_and_devices_that_a_column_names(tmp_path):
    path = tmp_path / "points.npz"
    np.savez(path, X=np.arange(24.0).reshape(12, 2), y=np.arange(12) % 3, device=np.arange(12) % 4)
    for given in ({}, {"devices": 4}, {"clusters": 3}):
        resolved = resolve_experiment(parse_specs(RunOptions(data=str(path), **given)), None)[0]
        assert (resolved.clusters, resolved.devices) == (3, 4)


def test_only_the_header_of_an_array_is_read(tmp_path, uncalibrated):
    path = tmp_path / "large.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (10**9, 20)})
        file.truncate(file.tell() + 8 * 20 * 10**9)  # a hole: it takes no room on the disk
    assert measure(parse_source(str(path)))[:2] == (10**9, 20)
    ending = here("plan", "--data", path, "--clusters", "4", "--devices", "8", "--partition", "iid")
    assert ending.code == 3
    assert "does not fit into memory" in ending.err


PROGRAM = """
import contextlib, io, pathlib, sys
import p2pkm.kernels.numba  # what every large run needs
from p2pkm.cli.main import main
COMMON = "-q --no-plot --no-baselines --out none --format json --init bounding-box --record-every 100".split()
def peak(*arguments):
    with contextlib.redirect_stdout(io.StringIO()):
        assert main([*COMMON, *arguments]) == 0
    (line,) = [line for line in pathlib.Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line]
    return 1024 * int(line.split()[1])
before = peak("--devices", "16", "--rounds", "2")
print(peak(*sys.argv[1:]) - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("devices", "points"), [(120_000, 500_000), (2_000, 1_000_000)])
def test_planned_memory_is_what_a_run_takes(devices, points, dtype):
    options = dict(
        graph="small-world:degree=6", devices=devices, data=f"blobs:clusters=4,points={points}", partition="iid",
        dtype=dtype,
    )  # fmt: skip
    arguments = [f"--{name}={value}" for name, value in options.items()]
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments, "--rounds=2"], capture_output=True, text=True,
                          env=environment(), cwd=ROOT, timeout=250, check=True)  # fmt: skip
    plan = build_plan(RunOptions(init="bounding-box", baselines=False, record_every=100, rounds=2, **options), None)
    one = need(weigh_plan(plan, 1, 0))
    assert one.peak - one.program == pytest.approx(int(done.stdout), rel=0.3)


def test_memory_grows_with_everything_and_shrinks_with_ranks():
    base = MemoryInputs(10_000, 4, 1000, 6000, 8)
    for name in ("points", "features", "devices", "edges", "clusters", "records"):
        assert need(base._replace(**{name: 4 * getattr(base, name)})).peak > need(base).peak
    assert need(base._replace(baselines=True)).peak > need(base).peak
    pooled = need(base._replace(baselines=True)).closing - need(base).closing
    assert pooled >= 3 * 8 * 10_000 * 4  # central k-means has the points of all devices, and as much to work with
    assert need(base._replace(flooded=80, swell=20.0)).peak > need(base).peak
    assert need(base._replace(word=4)).peak < need(base).peak
    labeled, more = (need(base._replace(points=points)).points for points in (10_000_000, 10_000_001))
    assert more < labeled  # labels of more points are not kept
    largest = MemoryInputs(100_000_000, 2, 10_000_000, 60_000_000, 4, word=4)
    assert need(largest).peak == pytest.approx(15.6e9, rel=0.2)  # measured, see docs/scale.md
    others = [need(base._replace(ranks=r), first=False).held for r in (2, 4, 8, 16)]
    assert others == sorted(others, reverse=True)
    assert together(base) == need(base).peak


def test_training_networks_takes_its_compiler():
    plans = [MemoryInputs(100, 4, 4, 8, 2, compiles=compiles) for compiles in (False, True)]
    assert need(plans[1]).peak - need(plans[0]).peak > 4e8


def test_a_refusal_says_what_would_do():
    load = MemoryInputs(10**6, 2, 10**5, 6 * 10**5, 4, records=1000, baselines=True)
    with pytest.raises(DataError, match=r"--no-baselines and a larger --record-every would do.*P2PKM_MEMORY"):
        refuse(load, 10**9)
    refuse(load, None)
    refuse(load, together(load))
    assert any("ranks" in one for one in advise(MemoryInputs(10**6, 2, 10**7, 10**7, 16), 10**10))
    small = MemoryInputs(10**9, 2, 100, 200, 4)
    (fewer,) = [one for one in advise(small, 10**9) if "fewer points" in one]
    most = int(fewer.split("about ")[1].split(" ")[0].replace(",", ""))
    assert together(small._replace(points=most)) <= 1.05 * 10**9
    assert advise(MemoryInputs(10, 2, 10**9, 10**9, 4), 10**9) == ["take fewer devices"]


@pytest.mark.parametrize("words", [("plan",), ("run",), ()])
def test_what_cannot_fit_is_refused_before_any_work(monkeypatch, words, tmp_path):
    monkeypatch.setenv("P2PKM_MEMORY", "150M")
    monkeypatch.chdir(tmp_path)
    ending = here(*words, "--devices", "4", "--data", "grid16:points=10")
    assert ending.code == 3
    assert "does not fit into memory" in ending.err
    assert "Traceback" not in ending.err
    assert not os.listdir(tmp_path)


def test_a_limit_of_nought_asks_for_no_check(monkeypatch):
    monkeypatch.setenv("P2PKM_MEMORY", "0")
    assert machine.available() is None
    monkeypatch.setenv("P2PKM_MEMORY", "1.5gb")
    assert machine.available() == 1_500_000_000
    for wrong in ("many", "-1", "nan", "8X", "inf"):
        monkeypatch.setenv("P2PKM_MEMORY", wrong)
        with pytest.raises(ExperimentError, match="expected a size"):
            machine.available()


def test_control_groups_limit_what_is_free(tmp_path):
    lists, root = tmp_path / "cgroup", tmp_path / "groups"
    for folder, most, used, pages in (
        (root, "max", 0, 0),
        (root / "a", "1000", 700, 100),
        (root / "a/b", "5000", 100, 0),
    ):
        folder.mkdir()
        (folder / "memory.max").write_text(f"{most}\n")
        (folder / "memory.current").write_text(f"{used}\n")
        (folder / "memory.stat").write_text(f"anon 5\ninactive_file {pages}\n")
    lists.write_text("0::/a/b\n")
    assert sorted(machine._groups(lists, root)) == [400, 4900]
    old = root / "memory/c"
    old.mkdir(parents=True)
    for name, text in (("limit_in_bytes", "90"), ("usage_in_bytes", "30"), ("stat", "total_inactive_file 7")):
        (old / f"memory.{name}").write_text(text)
    lists.write_text("4:cpu:/x\n3:memory:/c\n")
    assert list(machine._groups(lists, root)) == [67]
    assert list(machine._groups(tmp_path / "none", root)) == []


def test_costs_are_found_again():
    rows = np.array([[1, 10, 100, 20], [3, 30, 100, 20], [1, 50, 10, 100], [2, 100, 1000, 100], [1, 1, 1, 1.0]])
    costs = np.array([1e-4, 2e-6, 3e-6, 4e-6])
    np.testing.assert_allclose(fit(rows, rows @ costs), costs)
    some = fit(rows, np.array([1.0, 0.1, 1.0, 0.1, 1.0]))
    assert (some >= 0).all()
    assert not fit(rows, np.zeros(5)).any()


def test_predictions_rise_with_work_and_with_messages():
    plan = build_plan(RunOptions(devices=64, partition="iid"), None)
    part = Split(4, 16, 32, 2, 2, 2, 4)
    base = predict(plan, COSTS, LINK, part, 800)
    assert predict(plan, COSTS, LINK, part, 1600) > base
    for name in ("devices", "edges", "peers", "sent"):
        assert predict(plan, COSTS, LINK, part._replace(**{name: 100}), 800) > base
    assert predict(plan, COSTS, LINK._replace(latency=1e-3), part, 800) > base
    assert predict(plan, COSTS, LINK._replace(bandwidth=1e6), part, 800) > base
    for name in COSTS._fields[:4]:
        assert predict(plan, COSTS._replace(**{name: 1.0}), LINK, part, 800) > base


def test_a_server_is_not_shared_out():
    plan = build_plan(RunOptions(devices=64, algorithm="fkm", partition="iid"), None)
    free = Link(1e-15, 1e18, "free")
    rows = speed.strong(plan, COSTS._replace(point=0.0), free, [split(plan.topology, r) for r in (1, 2, 16)])
    assert rows[2]["seconds"] == pytest.approx(rows[0]["seconds"], rel=1e-3)


def test_text_names_every_stage_and_every_number_of_ranks(uncalibrated):
    ending = here("plan", "--devices", "12", "--graph", "grid", "--partition", "iid", "--rounds", "20",
                  "--quantize", "none")  # fmt: skip
    assert ending.code == 0, ending.err
    for word in ("tree-summaries", "rehearsal", "gtvmin", "accept-test", "4,096", "12 devices, 17 links", "rank 0",
                 "not",
                 "free here"):  # fmt: skip
        assert word in ending.out or word == "not"
    assert "at most" not in ending.out.split("gtvmin  ")[1].split("seconds")[0]


def test_one_of_something_is_not_in_the_plural(uncalibrated):
    ending = here("plan", "--devices", 1, "--data", "blobs:points=4,clusters=1,features=1", "--rounds", 1)
    assert "size      1 device, 0 links, 4 points with 1 feature, 1 round" in ending.out.splitlines()[1]
    assert ending.out.count("with 1 device\n") == 1 and "<= 1 round " in ending.out
    assert not re.search(r"\b1 (devices|links|points|features|rounds)\b", ending.out)


def test_the_excess_that_theory_expects_is_planned(uncalibrated):
    words = ("plan", "--devices", "100", "--data", "grid16:points=100")
    found = json.loads(here(*words, "--format", "json").out)
    assert found["excess_predicted"] == pytest.approx(0.03583, rel=1e-3)
    assert found["excess_auto"]["coupling"] == 1_000 and found["excess_auto"]["excess"] < 1e-3
    assert "0.036 above 1 from noise of the devices' points alone, with labels fixed;" in here(*words).out
    assert json.loads(here(*words, "--coupling", "auto", "--format", "json").out)["excess_predicted"] < 1e-3
    for silent in (("--groups",), ("--alpha", "1"), ("--algorithm", "fkm")):
        found = json.loads(here(*words, *silent, "--format", "json").out)
        assert found["excess_predicted"] is found["excess_auto"] is None


def test_json_holds_what_the_text_says(uncalibrated):
    ending = here(
        "plan",
        "--devices",
        "12",
        "--graph",
        "grid",
        "--partition",
        "iid",
        "--format",
        "json",
        "--ranks",
        "3",
        "--coupling",
        "30",
    )
    found = json.loads(ending.out)
    assert ending.code == 0
    assert (found["devices"], found["links"], found["points"], found["features"]) == (12, 17, 3200, 2)
    assert (
        [row["ranks"] for row in found["strong"]]
        == [row["ranks"] for row in found["memory"]]
        == [1, 2, 3, 16, 256, 4096]
    )
    assert found["stages"][-1]["first"] == {
        "messages": 34, "bytes": 34 * 16 * 2 * 8, "exact_messages": True, "exact_bytes": True,
        "wire_bytes": 34 * 16 * 2 * 8, "encoded": False,
    }  # fmt: skip
    assert found["refusals"] == found["measured"] == found["figures"] == []
    assert RunOptions.from_mapping(found["experiment"], "the plan").devices == 12


@pytest.mark.slow
def test_a_million_devices_are_planned_without_a_point(uncalibrated, monkeypatch):
    monkeypatch.setattr(sources, "generator", None)
    ending = here(
        "plan", *HUGE, "--init", "bounding-box", "--no-baselines", "--record-every", "1000", "--format", "json"
    )
    found = json.loads(ending.out)
    assert ending.code == 0
    assert (found["devices"], found["links"], found["points"]) == (10**6, 10**6, 5 * 10**7)
    gtvmin = found["stages"][-1]["first"]
    assert (gtvmin["messages"], gtvmin["bytes"], gtvmin["exact_bytes"]) == (2 * 10**6, 2 * 10**6 * 4 * 2 * 8, True)
    assert 2e9 < found["memory"][0]["rank0"]["peak"] < 2e10


def test_a_picture_shows_the_curves(uncalibrated, tmp_path):
    ending = here("plan", "--devices", "32", "--out", tmp_path / "plan", "--format", "json")
    assert sorted(os.listdir(tmp_path / "plan")) == ["scaling.data.csv", "scaling.png", "scaling.svg"]
    words = (tmp_path / "plan/scaling.svg").read_text()
    assert all(word in words for word in ("the same run on more ranks", "devices on each rank", "Seconds per round"))
    assert len(json.loads(ending.out)["figures"]) == 3


@pytest.mark.parametrize("options", [("--latency", "0"), ("--bandwidth", "-1"), ("--ranks", "0"), ("--seeds", "1-2")])
def test_wrong_options_are_refused(options):
    assert here("plan", *options).code == 2


@pytest.mark.slow
def test_a_run_that_is_refused_otherwise_is_refused_after_its_figures(uncalibrated):
    crowd = ("--devices", "25000", "--data", "grid16:points=2000", "--no-baselines", "--record-every", "1000")
    ending = here("plan", *crowd, "--init", "flooded-summaries")
    assert ending.code == ExperimentError.code
    assert "floods the graph" in ending.err
    assert "seconds   per round" in ending.out


@pytest.mark.parametrize("name", ["gtvmin", "gossip", "fkm", "coreset"])
def test_trials_give_costs(name):
    plan = build_plan(RunOptions(algorithm=name, devices=6, data="blobs:clusters=3,points=40", clusters=3), None)
    costs = speed.calibrate(plan)
    assert all(np.isfinite(cost) and cost >= 0.0 for cost in costs)
    assert sum(costs) > 0.0


def test_trials_do_not_stop_early():
    seconds = lead.speed.play(speed.LocalWorld(), speed.endless(p2pkm.GTVMin(2)), speed.build_topology(
        speed.Spec("ring", {}), 8, 1), 400, 2)  # fmt: skip
    assert len(seconds.rounds) == 4
    assert min(seconds.rounds) > 0.0


@pytest.mark.mpi
def test_ranks_measure_what_is_between_them():
    ending = there(*ranks(2), "-m", "p2pkm", "plan", "--devices", "4", "--format", "json", P2PKM_MEMORY="24G")
    found = json.loads(ending.out)
    assert ending.code == 0, ending.err
    assert found["ranks"] == 2
    assert found["link"]["source"] == "measured between 2 ranks"
    assert found["link"]["latency"] > 0.0


@pytest.mark.slow
@pytest.mark.mpi
def test_measured_rounds_stand_beside_the_prediction(uncalibrated):
    ending = here("plan", "--devices", "8", "--measure", "--format", "json")
    rows = json.loads(ending.out)["measured"]
    assert [row["ranks"] for row in rows] == [1, 2]
    for row in rows:
        assert row["error"] == pytest.approx(row["predicted"] / row["seconds"] - 1.0)


def test_what_does_not_fit_is_not_measured(monkeypatch):
    monkeypatch.setattr(speed, "calibrate", lambda plan: COSTS)
    monkeypatch.setattr(speed, "measure_link", lambda *rest: LINK)
    asked = []
    monkeypatch.setattr("p2pkm.experiments.plan.run.launch", lambda ranks, order: asked.append(ranks))
    for memory in ("8G", "1"):
        monkeypatch.setenv("P2PKM_MEMORY", memory)
        here("plan", "--devices", "8", "--measure", "--format", "json")
    assert asked == [1, 2]


def test_sizes_are_written_with_units():
    assert [write_size(size) for size in (0, 999, 1e3, 2.5e6, 7.2e9, 3e12)] == [
        "0 B",
        "999 B",
        "1 kB",
        "2.5 MB",
        "7.2 GB",
        "3 TB",
    ]


def test_a_plan_with_all_rounds_knows_how_many_there_are():
    words = ("plan", "--devices", 4, "--data", "grid16:points=5", "--algorithm", "consensus", "--rounds", 7)
    open_end, fixed = (here(*words, *more).out for more in ((), ("--all-rounds",)))
    assert "<= 7 rounds" in open_end
    assert "<= 7 rounds" not in fixed and " 7 rounds" in fixed
