"""Speed of averaging beside its bound: exact small cases, plain references, and what a broken bound does."""

import json

import networkx as nx
import numpy as np
import pytest

import p2pkm
from p2pkm.core.averaging_step import find_step
from p2pkm.methods.building_blocks import averaging
from p2pkm.methods.peer import consensus
from p2pkm.metrics.averaging_bound import MeasuredBound, find_contraction, watch_averaging
from p2pkm.metrics.closing_rows import describe_broken_bound, format_bound, list_warnings
from p2pkm.network.graph import Topology
from tests.support.run_cli import here
from tests.swarm import bounds
from tests.swarm.checks import find_faults
from tests.swarm.experiments import Experiment

PATH = nx.path_graph(3)
METHODS = {
    "consensus": p2pkm.ConsensusLloyd,
    "pushsum": p2pkm.PushSumLloyd,
    "tracking": p2pkm.TrackingLloyd,
}


def contraction(kind, graph, **options):
    topology = Topology.from_graph(graph)
    return find_contraction(kind(2, **options).averaging_step(topology), topology)


def dense(kind, graph):
    """Build the matrix of a method entry by entry from networkx."""
    n = len(graph)
    degree = dict(graph.degree())
    weight = {(i, j): graph[i][j].get("weight", 1.0) for a, b in graph.edges() for i, j in ((a, b), (b, a))}
    mean = [np.mean([weight[i, j] for j in graph[i]] or [1.0]) for i in range(n)]
    matrix = np.zeros((n, n))
    for i, j in weight:
        if kind is p2pkm.PushSumLloyd:
            matrix[i, j] = weight[i, j] / mean[j] / (1 + degree[j])
        else:
            matrix[i, j] = min(weight[i, j] / mean[end] / (1 + degree[end]) for end in (i, j))
    return matrix + np.diag(1.0 - matrix.sum(axis=0))


def run(method, graph, points=None, **options):
    rng = np.random.default_rng(5)
    points = rng.normal(size=(4 * len(graph), 2)) if points is None else points
    shards = p2pkm.Shards.deal(points, np.arange(len(points)) % len(graph))
    fixed = {"clusters": 2, "rounds": 3, "baselines": False, "progress": False, "all_rounds": True}
    return p2pkm.simulate(method, graph, shards, **fixed | options).summary


@pytest.mark.parametrize(
    ("kind", "graph", "expected"),
    [
        # Metropolis weights 1/3 on a path of three: eigenvalues 1, 2/3 and 0.
        (p2pkm.ConsensusLloyd, PATH, 2 / 3),
        (p2pkm.TrackingLloyd, PATH, 2 / 3),
        # Shares 1/2, 1/3, 1/2 of the senders: eigenvalues 1, 1/2 and -1/6.
        (p2pkm.PushSumLloyd, PATH, 1 / 2),
        # 1/3 + 2/3 cos(2 pi / n) on a ring.
        (p2pkm.ConsensusLloyd, nx.cycle_graph(10), 1 / 3 + 2 / 3 * np.cos(np.pi / 5)),
        (p2pkm.ConsensusLloyd, nx.complete_graph(5), 0.0),
        # Two parts: the slower one.
        (p2pkm.ConsensusLloyd, nx.disjoint_union(nx.complete_graph(3), PATH), 2 / 3),
    ],
)
def test_the_bound_of_graphs_with_known_eigenvalues(kind, graph, expected):
    found = contraction(kind, graph)
    assert expected <= found + 1e-15 and found == pytest.approx(expected, abs=1e-13)


@pytest.mark.parametrize("kind", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("seed", range(4))
def test_the_bound_is_the_second_eigenvalue_of_the_matrix(kind, seed):
    rng = np.random.default_rng(seed)
    graph = nx.connected_watts_strogatz_graph(9, 4, 0.4, seed=seed)
    for _, _, data in graph.edges(data=True):
        data["weight"] = float(rng.uniform(0.1, 10.0)) if seed % 2 else 1.0
    moduli = np.sort(np.abs(np.linalg.eigvals(dense(kind, graph))))
    assert moduli[-1] == pytest.approx(1.0)
    assert contraction(kind, graph) == pytest.approx(moduli[-2], abs=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_the_measured_factor_is_that_of_powers_of_the_matrix(method):
    """One round on a path: the sums of the start, and four exchanges of them, by plain products."""
    points = np.array([[0.0], [1.0], [2.0], [10.0], [11.0], [30.0]])
    owner = np.array([0, 0, 1, 2, 2, 2])
    start = np.array([[1.0], [12.0]])
    labels = np.argmin(np.abs(points - start.T), axis=1)
    table = np.zeros((3, 2, 2))
    for point, device, label in zip(points[:, 0], owner, labels, strict=True):
        table[device, label] += point, 1.0
    table = table.reshape(3, 4)
    matrix = dense(METHODS[method], PATH)
    loads = np.array([2.0, 3.0, 2.0]) if method == "pushsum" else np.ones(3)
    factors = []
    for column in table.T:
        agreed = loads / loads.sum() * column.sum()
        before = np.linalg.norm((column - agreed) / np.sqrt(loads))
        after = np.linalg.norm((np.linalg.matrix_power(matrix, 4) @ column - agreed) / np.sqrt(loads))
        factors.append((after / before) ** (1 / 4))
    shards = p2pkm.Shards.deal(points, owner)
    found = p2pkm.simulate(
        f"{method}:gossips=5", PATH, shards, clusters=2, rounds=1, start=np.tile(start, (3, 1, 1)), progress=False
    ).summary
    assert found["bound_measured"] == pytest.approx(max(factors), rel=1e-5)
    assert found["bound"] == pytest.approx(0.5 if method == "pushsum" else 2 / 3, rel=1e-6)
    assert found["bound_slack"] == pytest.approx(max(factors) / found["bound"], rel=1e-5)


def test_nothing_but_rounding_errors_is_no_disagreement():
    points = np.repeat(np.random.default_rng(0).normal(size=(4, 2)) + 1e3, 6, axis=0)
    graph = nx.cycle_graph(6)
    owner = np.arange(len(points)) % 6
    start = np.tile(points[::6][:2], (6, 1, 1))
    shards = p2pkm.Shards.deal(points, owner)
    summary = p2pkm.simulate(
        "consensus:gossips=30", graph, shards, clusters=2, start=start, rounds=3, progress=False
    ).summary
    assert summary["bound_measured"] == summary["bound_slack"] == 0.0 and not describe_broken_bound(summary)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("consensus:gossips=1", {}),
        ("pushsum:counters=true", {}),
        ("tracking:counters=true", {}),
        ("epidemic", {}),
        ("gossip-sum", {}),
        ("gtvmin", {}),
        ("treelloyd", {}),
        ("consensus", {"faults": "loss=0.2"}),
        ("consensus", {"byzantine": "1:kind=flip"}),
        ("consensus", {"min_cluster_size": 2}),
        ("consensus", {"rounds": 0}),
    ],
    ids=str,
)
def test_nothing_is_claimed_where_the_theorem_does_not_hold(method, options):
    summary = run(method, nx.cycle_graph(4), **options)
    assert summary["bound"] is summary["bound_measured"] is summary["bound_slack"] is None
    assert format_bound(summary) == ("-", "")


def test_nothing_is_claimed_on_changing_links():
    import topologies

    assert run("consensus", topologies.edge_markov(4, over="ring", seed=0))["bound"] is None


def test_weights_that_are_not_reversible_are_refused():
    topology = Topology.from_graph(PATH)
    step = p2pkm.PushSumLloyd(2).averaging_step(topology)
    with pytest.raises(p2pkm.core.errors.ContractError, match="not reversible"):
        find_contraction(step._replace(loads=np.ones(3)), topology)


def test_nothing_is_claimed_for_a_class_with_another_exchange():
    class Median(p2pkm.ConsensusLloyd):
        def exchange(self, averages, inbox, devices):
            return np.floor(averages)

    topology = Topology.from_graph(PATH)
    assert find_step(p2pkm.ConsensusLloyd(2), topology) is not None
    assert find_step(Median(2), topology) is None
    assert run(Median(2), PATH)["bound"] is None


def test_eigenvalues_of_large_graphs_are_not_computed():
    for n, expected in ((500, True), (501, False)):
        topology = Topology.from_graph(nx.cycle_graph(n))
        step = p2pkm.ConsensusLloyd(2).averaging_step(topology)._replace(turns=2)
        network = FakeNetwork()
        assert (watch_averaging(step, topology, network, 1, 3) is not None) is expected
        assert watch_averaging(step, topology, network, 1, 10_000_000) is None


class FakeNetwork:
    """Network of a rank that does not compute the eigenvalues."""

    class placement:  # noqa: N801
        rank = 1


def test_the_slack_is_above_one_exactly_if_the_bound_is_broken():
    assert MeasuredBound(0.5, 0.5).slack == 1.0
    assert MeasuredBound(0.5, 0.5 - 1e-12).slack == 1.0
    assert MeasuredBound(0.5, 0.5 + 1e-12).slack > 1.0
    assert MeasuredBound(0.5, 0.25).slack == 0.5


def halve(monkeypatch):
    """Halve all weights of links in the program, not those of the theorem."""
    right = averaging.mixing_weights
    monkeypatch.setattr(averaging, "mixing_weights", lambda devices: right(devices) / 2.0)


@pytest.mark.parametrize("method", ["consensus", "tracking"])
def test_wrong_weights_break_the_bound(method, monkeypatch):
    assert run(f"{method}:gossips=5", nx.cycle_graph(6))["bound_slack"] <= 1.0
    halve(monkeypatch)
    summary = run(f"{method}:gossips=5", nx.cycle_graph(6))
    assert summary["bound_slack"] > 1.01
    assert list_warnings(summary)[0].startswith("broken bound: exchanges left 0.")


def test_sums_that_are_not_kept_break_the_bound(monkeypatch):
    right = consensus.mix
    monkeypatch.setattr(consensus, "mix", lambda devices, tables, inbox: 1.01 * right(devices, tables, inbox))
    assert run("consensus:gossips=20", nx.complete_graph(6))["bound_slack"] > 1.0


def test_shares_that_are_not_kept_break_the_bound_of_push_sum(monkeypatch):
    def retained(self, averages, devices):
        return averages / (1.0 + devices.degrees)[:, None, None] * 1.001

    monkeypatch.setattr(p2pkm.PushSumLloyd, "retained", retained)
    assert run("pushsum:gossips=20", nx.cycle_graph(6))["bound_slack"] > 1.0


def test_verify_ends_with_code_6_after_a_broken_bound(monkeypatch, tmp_path):
    words = ["--algorithm", "consensus:gossips=5", "--devices", 6, "--rounds", 3, "--data", "blobs", "--no-plot", "-q"]
    assert here(*words, "--out", tmp_path / "right").code == 0
    assert here("verify", tmp_path / "right").code == 0
    assert json.loads(here("verify", tmp_path / "right", "--format", "json").out)["broken_bound"] is None
    halve(monkeypatch)
    ending = here(*words, "--out", tmp_path / "wrong")
    # The run itself has ended as asked: a warning, no error.
    assert ending.code == 0 and "broken bound" in ending.out
    ending = here("verify", tmp_path / "wrong")
    assert ending.code == 6 and "the same bits" in ending.out and "broken bound" in ending.out
    verdict = json.loads(here("verify", tmp_path / "wrong", "--format", "json").out)
    assert verdict["same"] and verdict["broken_bound"].startswith("broken bound: exchanges left")


def test_a_resumed_run_reports_the_largest_factor_of_all_rounds(tmp_path):
    options = {"algorithm": "tracking:gossips=3", "devices": "6", "clusters": "3", "rounds": "9", "tol": "0"}
    experiment = Experiment(5, options | {"data": "@csv,kind=blobs,m=60,d=2"})
    case, faults = find_faults(experiment, tmp_path / "case", "resume")
    assert case.killed is not None and case.summary["bound_measured"] and not faults


@pytest.mark.parametrize("seed", range(25))
def test_a_sample_of_the_random_runs_breaks_no_bound(seed):
    slack = bounds.play(seed)["bound_slack"]
    assert slack is None or 0.0 <= slack <= 1.0


def test_the_row_names_bound_measurement_and_slack():
    value, meaning = format_bound({"bound": 0.8727, "bound_measured": 0.8712, "bound_slack": 0.9983})
    assert (value, meaning) == ("0.8712", "largest factor; bound 0.8727 by eigenvalues, slack 0.9983")
