"""Rules that are one function of a program: equal to what is built in, named in files, and checked."""

import sys
from functools import partial

import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.core.errors import ContractError, ExperimentError
from p2pkm.core.program_function import list_content
from p2pkm.experiments.object_content import find_digest
from p2pkm.experiments.studies.study_file import parse_study
from p2pkm.metrics.registry import Metric
from tests.support.each import each
from tests.support.run_cli import here, ranks, there
from tests.support.stored_rows import list_lines

X, Y = p2pkm.grid16(points=6)
FEW = {"clusters": 4, "rounds": 6, "baselines": False, "progress": False}
LOSSY = "loss=0.4,dropout=0.1"


def run(algorithm, graph="random-regular:degree=3", **options):
    clusters = None if isinstance(algorithm, p2pkm.GTVMin | p2pkm.FKM) else 4
    return p2pkm.simulate(algorithm, graph, X, partition=deal, devices=8, **{**FEW, "clusters": clusters, **options})


def deal(points, n):
    return np.arange(len(points)) % n


def clip(differences):
    """Shorten differences to the lower median of their lengths."""
    squares = np.cumsum(differences * differences, axis=2)[:, :, -1]
    radius = np.sort(squares, axis=0)[(len(squares) - 1) // 2]
    far = squares > radius
    shares = np.sqrt(np.where(far, radius, 1.0) / np.where(far, squares, 1.0))
    return differences * shares[:, :, None]


def wan(topology):
    return {"latency": 0.075, "bandwidth": np.full(len(topology.indices), 8.3e6)}


def young(ages, senders, receivers):
    return ages < 3


def never(ages, senders, receivers):
    return np.zeros(len(ages), bool)


def trusted(ages, senders, receivers):
    return ages < np.where(senders % 2 == 0, 5, 1)


def middle(values):
    ascending = np.sort(values, axis=0)
    q = len(ascending)
    return (ascending[(q - 1) // 2] + ascending[q // 2]) / 2.0


WEAK = partial(p2pkm.GTVMin, 4, coupling=1)
BYZANTINE = {"byzantine": "1:kind=flip"}


STALE = partial(run, WEAK(), faults=LOSSY)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (partial(run, WEAK(robust=clip), **BYZANTINE), partial(run, WEAK(robust="clip"), **BYZANTINE)),
        (partial(run, WEAK(robust=np.copy)), partial(run, WEAK())),
        (partial(run, p2pkm.FKM(4, robust=middle), None), partial(run, p2pkm.FKM(4, robust="median"), None)),
        (partial(STALE, stale_policy=young), partial(STALE, stale_policy="keep:age=3")),
        (partial(STALE, stale_policy=never), partial(STALE, stale_policy="drop")),
        (partial(run, WEAK(), link_model=wan), partial(run, WEAK(), link_model="wan")),
    ],
)
@pytest.mark.sample(3)
def test_a_function_that_says_the_same_gives_the_same_bits(one, other):
    first, second = one(), other()
    for name in ("centroids_sha256", "chain_sha256", "bytes", "messages_lost", "virtual_seconds", "rounds"):
        assert first.summary[name] == second.summary[name], name
    assert (first.centroids == second.centroids).all()


def test_functions_change_what_they_say():
    base = STALE(stale_policy="keep:age=5").summary["centroids_sha256"]
    assert STALE(stale_policy=trusted).summary["centroids_sha256"] != base
    assert len({run(WEAK(robust=rule)).summary["centroids_sha256"] for rule in ("none", make(0.1), np.zeros_like)}) == 3


def test_the_age_of_a_policy_is_the_largest_at_which_it_uses_a_table():
    edges = np.arange(4), np.arange(4)[::-1]
    policy = p2pkm.StalePolicy.of(trusted).place(*edges)
    assert policy.age == 5 and p2pkm.StalePolicy.of(never).place(*edges) == p2pkm.StalePolicy.drop()
    assert policy.is_used(np.array([4, 4, -9, 0]), *edges).tolist() == [True, False, True, True]


@each(
    ("call", "kind", "told"),
    [
        (partial(run, WEAK(robust=lambda differences: differences[0])), ContractError,
         r"robust=<lambda> returned an array of float64 and shape \(4, 2\); expected float64 of shape \(3, 4, 2\)"),
        (partial(run, WEAK(robust=lambda differences: differences * np.nan)), ContractError, "returned NaN"),
        (partial(run, p2pkm.FKM(4, robust=np.ravel), None), ContractError, "one value per feature"),
        (partial(run, WEAK(), faults=LOSSY, stale_policy=lambda ages, *ends: ages), ContractError,
         "stale_policy=<lambda> returned an array of int64 .*expected bool"),
        (partial(run, WEAK(), link_model=lambda topology: 3.0), ContractError,
         "returned float; expected a dict with any of latency, bandwidth, access, speed"),
        (partial(run, WEAK(), link_model=lambda topology: {"latencies": 1.0}), ContractError, "Did you mean 'latency'"),
        (partial(run, WEAK(), link_model=lambda topology: {"speed": np.ones(3)}), ContractError,
         r"speed of link_model=<lambda> returned .*shape \(3,\); expected .*\(8,\), speed of each device"),
        (partial(run, WEAK(), link_model=lambda topology: {"speed": 0.0}), ContractError, "is 0; expected numbers"),
        (partial(run, WEAK(), stale_policy=young), ExperimentError, "stale policy young requires faults"),
        (partial(WEAK, robust=print, matching="optimal"), ExperimentError, "optimal and robust=print cannot be"),
        (lambda: p2pkm.GTVMin(4, robust=3), ExperimentError, "unknown robust 3"),
        (partial(p2pkm.study, data=X, partition=lambda points, n: [0], clusters=4, seeds=[0]), ExperimentError,
         r"partition=<lambda> returned an array of shape \(1,\); expected \(96,\)"),
        (partial(p2pkm.study, data=p2pkm.Shards.deal(X, Y), partition=deal, clusters=4, seeds=[0]), ExperimentError,
         "belong to devices already"),
        (partial(p2pkm.study, data=X, partition=deal, algorithm=p2pkm.GTVMin(4), robust=clip, seeds=[0]),
         ExperimentError, "robust clip cannot be combined with algorithm"),
    ],
)  # fmt: skip
def test_what_a_function_returns_is_checked(call, kind, told):
    with pytest.raises(kind, match=told):
        call()


def make(limit):
    return lambda differences: np.clip(differences, -limit, limit)


def test_functions_of_equal_content_are_equal():
    digests = {
        find_digest("robust", function)
        for function in (make(1), make(2), clip, partial(np.clip, a_max=1), partial(np.clip, a_max=2), np.clip)
    }
    assert len(digests) == 6
    assert find_digest("robust", make(1)) == find_digest("robust", make(1))
    assert list_content(make(1)) == list_content(make(1)) != list_content(make(2))
    assert find_digest("algorithm", WEAK(robust=make(1))) != find_digest("algorithm", WEAK(robust=make(2)))


def test_a_study_names_its_functions_and_what_is_missing(tmp_path):
    options = {"devices": 8, "data": X, "partition": deal, "seeds": [0], "progress": False, "clusters": 4, "rounds": 3}
    options |= {"baselines": False, "out": tmp_path / "study"}
    grid = {"link_model": {"far": wan, "lan": "lan"}, "robust": ["clip", clip]}
    study = p2pkm.study(grid=grid, coupling=1, **options)
    assert [row["error"] for row in study.rows] == [None] * 4
    # The function has the name of a rule that is built in.
    assert [(row["link_model"], row["robust"]) for row in study.rows] == [
        (model, rule) for model in ("far", "lan") for rule in ("clip", "clip #2")
    ]
    written = (tmp_path / "study/study.toml").read_text()
    assert f'"far (object {find_digest("link_model", wan)})"' in written
    assert f"deal (object {find_digest('partition', deal)})" in written
    stored = list_lines(tmp_path / "study")
    again = p2pkm.study(grid=grid, coupling=1, **options)
    assert [row["key"] for row in again.rows] == [row["key"] for row in study.rows]
    assert list_lines(tmp_path / "study") == stored
    ending = here("resume", tmp_path / "study")
    assert ending.code == 2 and "an object of a Python program" in ending.err


def largest(result):
    """Largest coordinate of a centroid."""
    return float(result.centroids.max())


def count_devices(result):
    return len(result.centroids)


def test_metrics_are_functions_of_the_result(tmp_path):
    spread = Metric(
        "spread", "spread", "of a device", per_device=True, compute=lambda result: np.ptp(result.centroids, (1, 2))
    )
    result = run(WEAK(), metrics=[largest, spread])
    assert result.summary["largest"] == result.centroids.max()
    assert (result.devices["spread"] == np.ptp(result.centroids, (1, 2))).all()
    assert "largest" not in run(WEAK()).summary
    options = {"data": X, "partition": deal, "devices": 8, "seeds": [0], "clusters": 4, "rounds": 2, "progress": False}
    study = p2pkm.study(grid={"coupling": [1, 5]}, metrics=largest, out=tmp_path / "study", **options)
    assert [isinstance(row["largest"], float) for row in study.rows] == [True, True]
    assert 'metrics = "largest (object ' in (tmp_path / "study/study.toml").read_text()
    assert "largest" in (tmp_path / "study/study.csv").read_text().splitlines()[0]
    more = p2pkm.study(grid={"coupling": [1, 5]}, metrics=[largest, count_devices], out=tmp_path / "study", **options)
    assert [row["count_devices"] for row in more.rows] == [8, 8]
    ending = here("resume", tmp_path / "study")
    assert ending.code == 2 and "metrics is 'largest, count_devices', an object of a Python program" in ending.err
    with pytest.raises(ExperimentError, match=r"metrics is 'largest'; expected functions, which only p2pkm.study"):
        parse_study({"metrics": "largest"}, "s.toml")


@pytest.mark.parametrize(
    ("metrics", "told"),
    [
        ([3], "metrics contains 3; expected functions"),
        ([largest, largest], "'largest', which exists already"),
        (lambda result: 1.0, "Use def, not lambda"),
        (np.bytes_, "expected functions"),
    ],
)
def test_other_metrics_are_refused(metrics, told):
    with pytest.raises(ExperimentError, match=told):
        run(WEAK(), metrics=metrics)


@pytest.mark.slow
def test_compare_and_processes_take_functions():
    compared = p2pkm.compare(
        {"ours": p2pkm.GTVMin(4, coupling=1, robust=make(0.5)), "theirs": p2pkm.FKM(4, robust=middle)},
        data=X, partition=deal, devices=8, seeds=[0], rounds=3, progress=False,
    )  # fmt: skip
    assert [row["error"] for row in compared.rows] == [None, None]
    options = {"data": X, "partition": deal, "devices": 8, "stale_policy": trusted, "faults": LOSSY}
    options |= {"seeds": [0], "clusters": 4, "rounds": 3, "progress": False, "coupling": 1}
    rows = [p2pkm.study(jobs=jobs, metrics=largest, **options).rows for jobs in (1, 2)]
    assert rows[0][0]["largest"] == rows[1][0]["largest"]
    assert rows[0][0]["error"] is None and rows[0][0]["key"] == rows[1][0]["key"]


def test_a_checkpoint_belongs_to_its_functions(tmp_path):
    options = {"faults": LOSSY, "checkpoint": tmp_path / "kept", "checkpoint_every": 1}
    whole = run(WEAK(robust=clip), stale_policy=young, **options)
    assert (
        run(WEAK(robust=clip), stale_policy=young, **options).summary["chain_sha256"] == whole.summary["chain_sha256"]
    )
    for method, policy, told in ((WEAK(robust=make(1)), young, "algorithm"), (WEAK(robust=clip), trusted, "channel")):
        with pytest.raises(p2pkm.DataError, match=f"a run with different .*{told}"):
            run(method, stale_policy=policy, **options)


PROGRAM = """
import sys
import p2pkm
sys.path.insert(0, "FOLDER")
from tests.experiments.test_functions import clip, deal, trusted, X
result = p2pkm.simulate(p2pkm.GTVMin(4, coupling=1, robust=clip), "random-regular:degree=4", X,
                        partition=deal, devices=9, rounds=5, baselines=False)
lossy = p2pkm.simulate(p2pkm.GTVMin(4, coupling=1, robust=clip), "random-regular:degree=4", X,
                       partition=deal, devices=9, rounds=5, baselines=False, faults="loss=0.4", stale_policy=trusted)
if result.summary:
    sys.stdout.write(f"{result.summary['chain_sha256']} {lossy.summary['chain_sha256']}\\n")
"""


@pytest.mark.mpi
def test_the_same_bits_on_ranks(tmp_path):
    program = tmp_path / "program.py"
    folder = topologies.__file__.rpartition("/topologies/")[0]
    program.write_text(PROGRAM.replace("FOLDER", folder))
    endings = [there(*start, program) for start in ([sys.executable], ranks(3))]
    assert [ending.code for ending in endings] == [0, 0], [ending.err for ending in endings]
    lines = [line for ending in endings for line in ending.out.splitlines()]
    assert len(lines) == 4 and len(set(lines)) == 1
