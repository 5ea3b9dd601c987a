"""The command plan: sizes, memory, seconds, refusals, and what it prints."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from p2pkm.core.errors import DataError, ExperimentError
from p2pkm.core.expected_messages import EveryTurn
from p2pkm.core.spec import Spec
from p2pkm.core.units import format_bytes
from p2pkm.data import sources
from p2pkm.data.size_estimate import Size, measure
from p2pkm.data.sources import load, parse_source
from p2pkm.engine.run_options import RunOptions
from p2pkm.experiments.config import parse_specs
from p2pkm.experiments.object_content import wrap
from p2pkm.experiments.plan import free_memory as machine
from p2pkm.experiments.plan.draft import build_plan, resolve_experiment
from p2pkm.experiments.plan.memory_check import plan_memory_inputs
from p2pkm.experiments.plan.memory_model import (
    MemoryInputs,
    check_fits_memory,
    estimate_memory,
    list_remedies,
    machine_memory,
)
from p2pkm.experiments.plan.pilot import estimate_seconds
from p2pkm.experiments.plan.run import PlanOptions, run_plan_command
from p2pkm.methods.building_blocks.table_method import TableMethod
from p2pkm.network.shared_arrays import SHARES
from tests.support.run_cli import ROOT, environment, here, ranks, there
from tests.support.toy_network import plug

HUGE = ("--devices", "1000000", "--data", "blobs:clusters=4,points=12500000")


@pytest.fixture
def roomy(monkeypatch):
    """Set the free memory, whatever the machine has."""
    monkeypatch.setenv("P2PKM_MEMORY", "24G")


@pytest.mark.parametrize("text", ["grid16:points=3", "grid16:points=2,sd=0", "blobs:clusters=3,features=5,points=4",
                                  "blobs:clusters=1,points=4",
                                  "slike:points=2", "balls:features=3", "communities:devices=6,points=5",
                                  "device-clusters:devices=6,points=5,size_alpha=0.5",
                                  "shapes:points=2,side=9", "iris",
                                  "wine", "digits:components=3"])  # fmt: skip
@pytest.mark.sample(5)
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


@pytest.mark.slow
def test_points_that_stay_on_disk_are_planned_without_a_rank_that_holds_all(tmp_path, roomy):
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
    assert blocks.sizes.tolist() == [267, 267, 266] and blocks.sizes_known


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
        resolved = resolve_experiment(parse_specs(RunOptions(data=str(path), **given), check=False), None)[0]
        assert (resolved.clusters, resolved.devices) == (3, 4)


@pytest.mark.slow
def test_only_the_header_of_an_array_is_read(tmp_path, roomy):
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
@pytest.mark.parametrize(("devices", "points", "dtype"), [(120_000, 500_000, "float64"), (2_000, 500_000, "float32")])
def test_planned_memory_is_what_a_run_takes(devices, points, dtype):
    options = dict(
        graph="small-world:degree=6", devices=devices, data=f"blobs:clusters=4,points={points}", partition="iid",
        dtype=dtype,
    )  # fmt: skip
    arguments = [f"--{name}={value}" for name, value in options.items()]
    if dtype == "float32":  # its kernels are compiled before, in another process: that takes memory
        compile_kernels = "from p2pkm.kernels import compile_ahead; compile_ahead('float32')"
        subprocess.run([sys.executable, "-c", compile_kernels], env=environment(), cwd=ROOT, timeout=250, check=True)
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments, "--rounds=2"], capture_output=True, text=True,
                          env=environment(), cwd=ROOT, timeout=250, check=True)  # fmt: skip
    plan = build_plan(RunOptions(init="bounding-box", baselines=False, record_every=100, rounds=2, **options), None)
    one = estimate_memory(plan_memory_inputs(plan, 1, 0))
    assert one.peak - one.program == pytest.approx(int(done.stdout), rel=0.3)


def test_memory_grows_with_everything_and_shrinks_with_ranks():
    base = MemoryInputs(10_000, 4, 1000, 6000, 8)
    for name in ("points", "features", "devices", "edges", "clusters", "records"):
        assert estimate_memory(base._replace(**{name: 4 * getattr(base, name)})).peak > estimate_memory(base).peak
    assert estimate_memory(base._replace(baselines=True)).peak > estimate_memory(base).peak
    pooled = estimate_memory(base._replace(baselines=True)).closing - estimate_memory(base).closing
    assert pooled >= 3 * 8 * 10_000 * 4  # central k-means has the points of all devices, and as much to work with
    assert estimate_memory(base._replace(flooded_rows=80, arriving_tables=20.0)).peak > estimate_memory(base).peak
    assert estimate_memory(base._replace(value_bytes=4)).peak < estimate_memory(base).peak
    assert estimate_memory(base._replace(compares_couplings=True)).peak > estimate_memory(base).peak
    labeled, more = (estimate_memory(base._replace(points=points)).points for points in (10_000_000, 10_000_001))
    assert more < labeled  # labels of more points are not kept
    largest = MemoryInputs(100_000_000, 2, 10_000_000, 60_000_000, 4, value_bytes=4)
    assert estimate_memory(largest).peak == pytest.approx(8.75e9, rel=0.2)  # measured, see docs/results/memory.csv
    parts = MemoryInputs(100_000_000, 2, 20_000_000, 80_000_000, 4, value_bytes=4, ranks=2, halo=10_000, reader="each")
    for first, measured in ((True, 7.87e9), (False, 7.58e9)):
        assert measured < estimate_memory(parts, first=first).peak < 1.3 * measured
    # Rank 0 gathers the result when its own points are freed.
    assert estimate_memory(parts).gathering > 0 == estimate_memory(base).gathering
    more_points = estimate_memory(parts._replace(points=10**9))
    assert more_points.gathering == estimate_memory(parts).gathering
    others = [estimate_memory(base._replace(ranks=r), first=False).resident for r in (2, 4, 8, 16)]
    assert others == sorted(others, reverse=True)
    assert machine_memory(base) == estimate_memory(base).peak
    # The ranks of a machine hold the graph once.
    first, further = estimate_memory(parts).peak, estimate_memory(parts, first=False).peak
    once = SHARES * (25 * 20_000_000 + 8 * 80_000_000)
    for local in (1, 2, 4):
        assert machine_memory(parts, local) == first + (local - 1) * (further - once)


def test_training_networks_takes_its_compiler():
    plans = [MemoryInputs(100, 4, 4, 8, 2, trains_networks=trains) for trains in (False, True)]
    assert estimate_memory(plans[1]).peak - estimate_memory(plans[0]).peak > 4e8


def test_a_refusal_says_what_would_do():
    load = MemoryInputs(10**6, 2, 10**5, 6 * 10**5, 4, records=1000, baselines=True)
    with pytest.raises(DataError, match=r"Use .*baselines=False and a larger record_every \(.*P2PKM_MEMORY"):
        check_fits_memory(load, 10**9)
    check_fits_memory(load, None)
    check_fits_memory(load, machine_memory(load))
    assert any("ranks" in one for one in list_remedies(MemoryInputs(10**6, 2, 10**7, 10**7, 16), 10**10))
    small = MemoryInputs(10**9, 2, 100, 200, 4)
    (fewer,) = [one for one in list_remedies(small, 10**9) if "fewer points" in one]
    most = int(fewer.split("about ")[1].split(" ")[0].replace(",", ""))
    assert machine_memory(small._replace(points=most)) <= 1.05 * 10**9
    assert list_remedies(MemoryInputs(10, 2, 10**9, 10**9, 4), 10**9) == ["fewer devices"]


@pytest.mark.parametrize("words", [("plan",), ("run",), ()])
@pytest.mark.sample(3)
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
    assert machine.available_memory() is None
    monkeypatch.setenv("P2PKM_MEMORY", "1.5gb")
    assert machine.available_memory() == 1_500_000_000
    for wrong in ("many", "-1", "nan", "8X", "inf"):
        monkeypatch.setenv("P2PKM_MEMORY", wrong)
        with pytest.raises(ExperimentError, match="expected a size"):
            machine.available_memory()


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
    assert sorted(machine.group_limits(lists, root)) == [400, 4900]
    old = root / "memory/c"
    old.mkdir(parents=True)
    for name, text in (("limit_in_bytes", "90"), ("usage_in_bytes", "30"), ("stat", "total_inactive_file 7")):
        (old / f"memory.{name}").write_text(text)
    lists.write_text("4:cpu:/x\n3:memory:/c\n")
    assert list(machine.group_limits(lists, root)) == [67]
    assert list(machine.group_limits(tmp_path / "none", root)) == []


def test_text_names_every_stage_and_every_number_of_ranks(roomy):
    ending = here("plan", "--devices", "12", "--graph", "grid", "--partition", "iid", "--rounds", "20",
                  "--quantize", "none")  # fmt: skip
    assert ending.code == 0, ending.err
    for word in ("tree-summaries", "coupling-estimate", "gtvmin", "coupling-choice", "4,096", "12 devices, 17 links",
                 "rank 0", "not",
                 "free on this machine: "):  # fmt: skip
        assert word in ending.out or word == "not"
    assert "at most" not in ending.out.split("gtvmin  ")[1].split("seconds")[0]


def test_columns_of_the_messages_are_apart_whatever_their_width(roomy):
    lines = here("plan", "--devices", "12", "--rounds", "123456789012", "--all-rounds").out.splitlines()
    assert any("interim bayes without shares  initial exchange" in line for line in lines)
    assert any("  123,456,789,012 rounds  2,962,962,936,312  189,629,627,923,968 B" in line for line in lines)


def test_one_of_something_is_not_in_the_plural(roomy):
    ending = here("plan", "--devices", 1, "--data", "blobs:points=4,clusters=1,features=1", "--rounds", 1)
    assert "size      1 device, 0 links, 4 points with 1 feature, 1 round" in ending.out.splitlines()[1]
    assert "measured with 1 device, 4 points, one round on this machine" in ending.out and "<= 1 round " in ending.out
    assert not re.search(r"\b1 (devices|links|points|features|rounds)\b", ending.out)


@pytest.mark.slow
def test_the_excess_that_theory_expects_is_planned(roomy):
    words = ("plan", "--devices", "100", "--data", "grid16:points=100")
    weak = (*words, "--coupling", "30")
    found = json.loads(here(*weak, "--format", "json").out)
    assert found["excess_predicted"] == pytest.approx(0.03583, rel=1e-3)
    assert found["excess_strong"]["coupling"] == 1_000 and found["excess_strong"]["excess"] < 1e-3
    assert "excess of the cost ratio 0.036 from sampling noise, labels fixed;" in here(*weak).out
    assert json.loads(here(*words, "--coupling", "strong", "--format", "json").out)["excess_predicted"] < 1e-3
    for silent in ((), ("--groups",), ("--alpha", "1"), ("--algorithm", "fkm")):
        found = json.loads(here(*words, *silent, "--format", "json").out)
        assert found["excess_predicted"] is found["excess_strong"] is None


FKM = ("--algorithm", "fkm", "--devices", "16", "--data", "iris", "-k", "3", "--client-share", "0.25:by=availability")


def test_a_plan_says_that_faults_and_a_deadline_are_not_counted(roomy):
    """Its numbers are those of the run without them, called about."""
    faults = ("--faults", "dropout=0.2", "--link-model", "edge", "--deadline", "0.5")
    text = here("plan", *FKM, *faults).out
    assert (
        "not counted: faults dropout=0.2 and deadline 0.5: planned as if all devices took part and all messages "
        "arrived in time; a round with fewer than 4 of the 16 clients available asks fewer\n"
    ) in text
    plain, planned = (json.loads(here("plan", *FKM, *more, "--format", "json").out) for more in ((), faults))
    assert plain["not_counted"] == "" and planned["not_counted"] in text
    (usual,), (stage,) = plain["stages"], planned["stages"]
    assert usual["first"]["messages"] == stage["first"]["messages"] == 8
    assert usual["first"]["exact_messages"] and not usual["assumed"]
    assert stage["assumed"] and not stage["first"]["exact_messages"]
    assert f"about {stage['total']['messages']:,}" in text


def test_stages_before_the_method_are_planned_exactly_unless_they_have_faults(roomy):
    words = ("plan", "--devices", "8", "--data", "iris", "-k", "3", "--init", "flooded-summaries", "--format", "json")
    for faults, assumed in (("loss=0.1", False), ("loss=0.1,stages=all", True)):
        stages = json.loads(here(*words, "--faults", faults).out)["stages"]
        assert stages[-1]["assumed"] and stages[0]["assumed"] == assumed, faults


def test_a_plan_refuses_faults_that_the_run_would_refuse(roomy):
    ending = here("plan", "--algorithm", "coreset", "--devices", "8", "--faults", "loss=0.1")
    assert ending.code == 2 and "--faults cannot be combined with coreset" in ending.err


def test_json_holds_what_the_text_says(roomy):
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
        [row["ranks"] for row in found["split"]]
        == [row["ranks"] for row in found["memory"]]
        == [1, 2, 3, 16, 256, 4096]
    )
    assert found["stages"][-1]["first"] == {
        "messages": 34, "bytes": 34 * 16 * 2 * 8, "exact_messages": True, "exact_bytes": True,
        "wire_bytes": 34 * 16 * 2 * 8, "encoded": False,
    }  # fmt: skip
    assert found["refusals"] == []
    assert (found["pilot"]["devices"], found["pilot"]["points"], found["pilot"]["rounds"]) == (12, 3200, 2)
    assert RunOptions.from_mapping(found["experiment"], "the plan").devices == 12


@pytest.mark.slow
def test_a_million_devices_are_planned_without_a_point(roomy, monkeypatch):
    monkeypatch.setattr(sources, "generator", None)
    monkeypatch.setattr("p2pkm.experiments.plan.run.estimate_seconds", lambda plan: {"reason": "a pilot draws points"})
    ending = here(
        "plan", *HUGE, "--init", "bounding-box", "--no-baselines", "--record-every", "1000", "--format", "json"
    )
    found = json.loads(ending.out)
    assert ending.code == 0
    assert (found["devices"], found["links"], found["points"]) == (10**6, 10**6, 5 * 10**7)
    gtvmin = found["stages"][-1]["first"]
    assert (gtvmin["messages"], gtvmin["bytes"], gtvmin["exact_bytes"]) == (2 * 10**6, 2 * 10**6 * 4 * 2 * 8, True)
    assert 2e9 < found["memory"][0]["rank0"]["peak"] < 2e10


@pytest.mark.parametrize("options", [("--latency", "1"), ("--measure",), ("--ranks", "0"), ("--seeds", "1-2")])
def test_wrong_options_are_refused(options):
    assert here("plan", *options).code == 2


@pytest.mark.slow
def test_a_run_that_is_refused_otherwise_is_refused_after_its_figures(roomy):
    crowd = ("--devices", "25000", "--data", "grid16:points=2000", "--no-baselines", "--record-every", "1000")
    ending = here("plan", *crowd, "--init", "flooded-summaries")
    assert ending.code == ExperimentError.code
    assert "floods the graph" in ending.err
    assert "seconds   about" in ending.out


def draft(**options):
    return build_plan(RunOptions(**{"graph": "grid", "clusters": 3, "partition": "iid"} | options), None)


@pytest.fixture
def largest_pilot(monkeypatch):
    """Let no pilot take so long that a larger one is not tried, however slow the machine is."""
    monkeypatch.setattr("p2pkm.experiments.plan.pilot._ENOUGH", np.inf)


@pytest.mark.parametrize(("name", "rounds"), [("gtvmin", 2), ("gossip", 2), ("fkm", 2), ("coreset", 1), ("local", 0)])
@pytest.mark.sample(3)
def test_a_pilot_of_a_small_run_is_the_run_itself_with_two_rounds(name, rounds, largest_pilot):
    found = estimate_seconds(draft(algorithm=name, graph=None if name in ("fkm", "local") else "grid", devices=6,
                                   data="blobs:clusters=3,points=40"))  # fmt: skip
    assert (found["devices"], found["points"], found["rounds"], found["factor"]) == (6, 120, rounds, 1.0)
    assert found["start"] > 0 and found["round"] >= 0
    planned = {0: 0, 1: 1}.get(rounds, 100 if name == "fkm" else 150)
    assert found["total"] == pytest.approx(found["start"] + planned * found["round"])


@pytest.mark.slow
def test_a_pilot_is_scaled_by_what_it_leaves_out(largest_pilot):
    found = estimate_seconds(draft(devices=6400, data="blobs:clusters=4,points=3200", init="local", rounds=100))
    assert found["devices"] <= 2_000 and found["points"] <= 4_000
    assert found["factor"] >= max(6400 / found["devices"], 12_800 / found["points"])
    complete = estimate_seconds(draft(graph="complete", devices=200, data="blobs:clusters=4,points=50", init="local"))
    assert complete["factor"] == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("options", [
    {"graph": "hypercube", "devices": 4096}, {"graph": "random-regular:degree=3", "devices": 5000},
    {"graph": "peer-sampler:period=3", "devices": 3000, "schedule": "jacobi"}, {"scale": "standard", "devices": 3000},
    {"data": "communities:devices=3000,points=2", "devices": 3000, "partition": None},
    {"data": "digits", "devices": 2500}, {"clusters": "auto", "devices": 20, "k_max": 4},
])  # fmt: skip
def test_pilots_exist_of_many_families_and_data(options):
    found = estimate_seconds(draft(**{"data": "blobs:clusters=4,points=3000", "init": "local", "rounds": 5} | options))
    assert found["total"] > 0 and found["devices"] <= 2_000


@pytest.mark.slow
def test_blobs_replace_a_large_table_in_a_pilot(tmp_path):
    table = np.column_stack((np.random.default_rng(0).normal(size=(6000, 2)), np.arange(6000) % 3000))
    np.savetxt(tmp_path / "points.csv", table, delimiter=",")
    plan = draft(data=str(tmp_path / "points.csv"), device_column="2", partition=None, init="local", rounds=5)
    assert plan.topology.n == 3000
    found = estimate_seconds(plan)
    assert found["devices"] <= 2_000 and found["data"].startswith("blobs:") and "features=2" in found["data"]


@pytest.mark.slow
def test_a_graph_of_one_size_has_a_pilot_with_fewer_points(tmp_path):
    assert estimate_seconds(draft(graph="karate", devices=None, init="local"))["devices"] == 34
    lines = "".join(f"{i},{i + 1}\n" for i in range(2_500))
    (tmp_path / "path.csv").write_text("source,target\n" + lines)
    plan = draft(graph=f"file:{tmp_path / 'path.csv'}", devices=None, init="local")
    assert "has 2,501 devices; a pilot has at most 2,000" in estimate_seconds(plan)["reason"]


def test_a_pilot_that_cannot_be_made_says_why_in_a_line(roomy):
    words = ("plan", "--devices", 3000, "--data", "blobs:clusters=4,points=1500", "--init", "local", "-k", 4)
    ending = here(*words, "--byzantine", 2000)
    assert ending.code == 0, ending.err
    (line,) = [line for line in ending.out.splitlines() if line.startswith("seconds")]
    assert line.startswith("seconds   not measured: a run of fewer devices and two rounds cannot be made: byzantine is")
    assert "memory" in ending.out and "messages" in ending.out


def test_networks_are_not_trained_in_a_pilot(roomy, monkeypatch):
    plug(monkeypatch)
    ending = here("plan", "--algorithm", "deepfeca", "--data", "digits", "--devices", 4)
    assert "not measured: deepfeca trains networks" in ending.out, ending.err


@pytest.mark.slow
def test_a_million_devices_are_planned_in_a_few_seconds(roomy):
    ending = here(
        "plan", "--graph", "ring", "--devices", 1_000_000, "--rounds", 500, "--init", "local", "--format", "json"
    )
    pilot = json.loads(ending.out)["pilot"]
    assert pilot["devices"] <= 2_000 and pilot["factor"] >= 500
    assert 20 < pilot["total"] < 50_000


@pytest.mark.mpi
def test_several_ranks_plan_for_themselves():
    ending = there(*ranks(2), "-m", "p2pkm", "plan", "--devices", "4", "--format", "json", P2PKM_MEMORY="24G")
    found = json.loads(ending.out)
    assert ending.code == 0, ending.err
    assert found["ranks"] == 2 and found["pilot"]["devices"] == 4


def test_sizes_are_written_with_units():
    assert [format_bytes(size) for size in (0, 999, 1e3, 2.5e6, 7.2e9, 3e12)] == [
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


@dataclass(frozen=True)
class SendsOtherwise(TableMethod):
    """A method that sends by itself, and does not declare it."""

    name: ClassVar[str] = "sends-otherwise"

    def combine(self, device):
        return device.centroids

    def message(self, state, devices):
        return super().message(state, devices)


@dataclass(frozen=True)
class Declares(SendsOtherwise):
    """The same, and declares its messages."""

    name: ClassVar[str] = "declares"

    def expected_messages(self, known):
        return EveryTurn(self.k, known.features)


@pytest.mark.parametrize(("kind", "word"), [(SendsOtherwise, "about"), (Declares, "at most")])
def test_a_plan_says_what_it_does_not_know(kind, word, capsys):
    experiment = RunOptions(algorithm=wrap("algorithm", kind(4)), graph="ring", devices=6, partition="iid", out="none")
    run_plan_command(experiment, PlanOptions(json=True))
    stage = json.loads(capsys.readouterr().out)["stages"][-1]
    assert stage["assumed"] == (word == "about")
    assert not stage["first"]["exact_bytes"] and stage["first"]["exact_messages"] == (word == "at most")
    run_plan_command(experiment, PlanOptions())
    table = capsys.readouterr().out
    assert ("does not declare its messages" in table) == (word == "about")
    (line,) = [line for line in table.splitlines() if f"<= {stage['rounds']} rounds" in line and "seconds" not in line]
    assert f"{word} {stage['total']['bytes']:,} B" in line
