"""The accept test: what it compares, when the start comes back, what it sends, and that no device ends far above it."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.core.batch import Grid
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import Delivery, Tables
from p2pkm.core.wire_format import decode, encode
from p2pkm.experiments.config import Experiment, prepare
from p2pkm.methods.init import accept_test
from p2pkm.methods.init.accept_test import AcceptTest
from p2pkm.network.graph import Topology
from tests.support.play_rounds import arrange
from tests.support.pooled import pooled_cost

WEAK = "gtvmin:coupling=3,accept=true"  # what the noise of so many devices makes of it is worse than the start
AUTO = "gtvmin:coupling=auto,relaxation=auto,accept=true"


def run(method, graph="ring", n=24, *, data="grid16:points=40", partition="dirichlet:alpha=0.3", seed=0, **options):
    ready = prepare(Experiment(graph=graph, devices=n, data=data, partition=partition, algorithm=method, seed=seed), 1)
    return p2pkm.simulate(ready.run.algorithm, ready.run.topology, ready.shards, seed=seed, **options)


def test_the_start_comes_back_to_all_devices_where_the_end_costs_more():
    kept, found = run(WEAK.replace("true", "false")), run(WEAK)
    assert kept.summary["ratio_mean"] > kept.summary["ratio_start"] + 0.01
    assert found.summary["ratio_mean"] == pytest.approx(found.summary["ratio_start"], rel=1e-12)
    assert found.summary["centroid_sets"] == 1 and found.summary["gtv"] == 0.0
    assert found.summary["rounds"] == kept.summary["rounds"] and found.summary["termination"] == "converged"
    assert found.summary["rounds_before"] == kept.summary["rounds_before"]
    assert found.summary["descent"] == "certified"  # of the method; the start costs more of its objective
    assert found.summary["distance_left"] is None
    assert any("24 of 24 devices took the start back" in note for note in found.notes)


def test_what_is_better_stays():
    kept, found = run("gtvmin:coupling=auto,relaxation=auto", n=10), run(AUTO, n=10)
    np.testing.assert_array_equal(found.centroids, kept.centroids)
    assert found.summary["ratio_mean"] < found.summary["ratio_start"]
    assert not any("accept test" in note for note in found.notes)
    assert found.summary["distance_left"] == kept.summary["distance_left"]
    assert found.summary["convergence_rate"] == kept.summary["convergence_rate"]


def test_it_is_counted():
    """Over every link of a tree k (d + 1) numbers each way, two losses up and one word down."""
    without, found = run("gtvmin:coupling=auto,relaxation=auto", n=10), run(AUTO, n=10)
    links, k, d = 9, 16, 2
    assert found.summary["messages"] - without.summary["messages"] == 4 * links
    assert found.summary["bytes"] - without.summary["bytes"] == 8 * links * (2 * k * (d + 1) + 3)


@pytest.mark.parametrize("code", ["rice", "int8"])
def test_on_a_grid_it_sends_whole_numbers_that_can_be_decoded(monkeypatch, code):
    tables, usual = [], accept_test.number_bits

    def record(given, *, rice, **rest):
        assert rice == (code == "rice")
        bits = usual(given, rice=rice, **rest)
        for table, length in zip(given, bits, strict=True):
            text = encode(table.astype(np.int64), rice=rice)
            assert len(text) == length - 1
            np.testing.assert_array_equal(decode(text, *table.shape), table)
        tables.append(given)
        return bits

    monkeypatch.setattr(accept_test, "number_bits", record)
    found, real = (run(AUTO, n=10, quantize=code) for code in (code, "none"))
    assert max(abs(table).max() for table in tables) > 100
    links, k, d = 9, 16, 2
    records = found.rounds[-3::2]
    sent = {key: records[1][key] - records[0][key] for key in ("messages", "bytes", "wire_bytes")}
    assert [record["stage"] for record in records] == ["gtvmin", "accept-test"]
    assert sent["messages"] == 4 * links and sent["bytes"] == 8 * links * (2 * k * (d + 1) + 3)
    assert 4 * links <= sent["wire_bytes"] < sent["bytes"] / (4 if code == "rice" else 3)
    assert found.summary["ratio_mean"] == pytest.approx(real.summary["ratio_mean"], abs=1e-3)


@pytest.mark.parametrize("seed", range(20))
def test_on_a_grid_the_excess_of_the_bound_is_rounded_up(seed):
    draws = np.random.default_rng(seed)
    devices = arrange([draws.normal(size=(9, 2)) for _ in range(5)], [(i, i + 1) for i in range(4)]).devices
    start, step = np.repeat(draws.normal(size=(1, 3, 2)), 5, axis=0), 10.0 ** draws.integers(-9, 3)
    sums = np.repeat(np.dstack((draws.normal(size=(1, 3, 2)), draws.random((1, 3, 1)))), 5, axis=0)
    real = accept_test._price(start, sums, devices)[:, 0]
    on_grid = replace(devices, grid=Grid(np.full(5, step), 2))
    found = accept_test._price(start, sums / [step, step, step**2], on_grid)[:, 0]
    excess = (real[:, 1] - real[:, 0]) / step**2
    assert (found[:, 0] == 0.0).all() and (found == np.rint(found)).all()
    assert (found[:, 1] >= excess - 1e-9 * abs(excess)).all() and (found[:, 1] <= excess + 1 + 1e-9 * abs(excess)).all()


def compute(state, devices):
    """The mean cost of all points by the devices' own centroids, and the bound, point by point."""
    u = state.mean(axis=0)
    v = ((state - u) ** 2).sum(axis=2).mean(axis=0)
    apart = ((devices[:, None] - u) ** 2).sum(axis=2) + v
    return np.mean([pooled_cost(devices, one) for one in state]), apart.min(axis=1).sum()


@pytest.mark.parametrize("seed", range(20))
def test_the_bound_is_above_the_mean_cost_of_the_devices(seed):
    draws = np.random.default_rng(seed)
    points, tables = draws.normal(size=(40, 2)), draws.normal(size=(3, 2)) + draws.normal(size=(6, 3, 2)) * 0.3
    mean, bound = compute(tables, points)
    assert mean <= bound * (1 + 1e-12)


@pytest.mark.parametrize(("graph", "n"), [("ring", 12), ("path", 5), ("star", 9), ("tree", 14)])
@pytest.mark.parametrize("coupling", [3, *(pytest.param(c, marks=pytest.mark.slow) for c in (0.5, 30, 300))])
@pytest.mark.parametrize("quantize", ["none", "rice"])
def test_the_verdict_is_that_of_the_sums_over_all_points(graph, n, coupling, quantize):
    """The same from all points and tables at once: what no device could see."""
    method, form = f"gtvmin:coupling={coupling}", {"quantize": quantize}
    kept, found = run(method, graph, n, **form), run(f"{method},accept=true", graph, n, **form)
    ready = prepare(Experiment(graph=graph, devices=n, data="grid16:points=40", partition="dirichlet:alpha=0.3"), 1)
    start = run(method, graph, n, rounds=0).centroids
    points = ready.shards.points
    mean, bound = compute(kept.centroids, points)
    before = pooled_cost(points, start[0])
    assert mean <= bound * (1 + 1e-12)
    reverted = any("accept test" in note for note in found.notes)
    assert reverted == (bound > before * (1 + 1e-12))
    np.testing.assert_array_equal(found.centroids, start if reverted else kept.centroids)


def test_own_losses_could_never_object():
    """Descent: the sum of losses of own points by own centroids only falls, whatever the pooled cost does."""
    first, last = (run(WEAK.replace("true", "false"), rounds=rounds) for rounds in (0, None))
    assert last.losses.sum() < first.losses.sum()
    assert last.summary["ratio_mean"] > first.summary["ratio_mean"] + 0.01


@pytest.mark.slow
@pytest.mark.parametrize(("graph", "n"), [("ring", 60), ("path", 40), ("star", 60), ("barbell", 24), ("grid", 36)])
@pytest.mark.parametrize("partition", ["dirichlet:alpha=0.3", "beta:beta=0.1"])
@pytest.mark.parametrize("coupling", ["auto", "rehearsal"])
def test_no_run_ends_worse_than_its_start(graph, n, partition, coupling):
    found = run(AUTO.replace("auto", coupling, 1), graph, n, partition=partition).summary
    assert found["ratio_mean"] <= found["ratio_start"] * (1 + 1e-9)
    assert found["ratio_worst"] <= found["ratio_start"] + 6e-3  # what a rehearsal allows the worst device


@pytest.mark.parametrize("coupling", ["auto", "rehearsal"])
def test_a_run_on_a_skewed_path_does_not_end_worse_than_its_start(coupling):
    found = run(AUTO.replace("auto", coupling, 1), "path", 20, partition="beta:beta=0.1").summary
    assert found["ratio_mean"] <= found["ratio_start"] * (1 + 1e-9)
    assert found["excess_predicted"] <= 2e-3


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_devices_and_some_without_points(n):
    found = run(AUTO, "complete", n, data="blobs:clusters=3,points=10")
    assert found.summary["ratio_mean"] <= found.summary["ratio_start"] * (1 + 1e-9)
    empty = p2pkm.Shards.deal(np.random.default_rng(0).normal(size=(20, 2)), np.repeat([0, 2], 10), devices=5)
    found = p2pkm.simulate(p2pkm.GTVMin(3, coupling="rehearsal", accept=True), topologies.star(5), empty)
    assert np.isfinite(found.centroids).all()


def test_every_component_decides_by_itself():
    graph = Topology.from_links(8, np.array([[i, i + 1, 1.0] for i in (0, 1, 2, 4, 5, 6)]))
    draws = np.random.default_rng(0)
    points = np.concatenate((draws.normal(size=(40, 2)), np.repeat(draws.normal(size=(4, 2)), 10, axis=0)))
    shards = p2pkm.Shards.deal(points, np.repeat(np.arange(8), 10), devices=8)
    method = p2pkm.GTVMin(2, coupling=0.01, accept=True)
    found = p2pkm.simulate(method, graph, shards, allow_disconnected=True)
    sets = [len(np.unique(part.reshape(4, -1), axis=0)) for part in (found.centroids[:4], found.centroids[4:])]
    assert sets[0] == 1  # own noise alone: the start came back
    assert any("accept test" in note for note in found.notes)


def test_a_state_stays_as_it_was_when_sums_come_up():
    table, begun = arrange([[[0.0]], [[1.0]]], [(0, 1)]), np.zeros((2, 1, 1))
    start = SimpleNamespace(start=begun, centroids=begun + 1.0, previous=begun, rehearsed=None)
    test = AcceptTest.after(p2pkm.GTVMin(1), table.topology)
    state = test.initial_state(table.devices, start)
    came = Delivery(np.array([0]), Tables(np.array([[5.0, 7.0]]), np.array([0]), np.array([1])))
    found = test.update(state, came, table.devices.at_turn(1, 0, np.ones(2, np.bool_)))
    assert found.walk is not state.walk and state.walk[1].tolist() == [[[1.0, 1.0]]] * 2


def test_the_same_over_a_link_model_and_with_scaled_points():
    found = run(f"{AUTO},schedule=async", n=8, link_model=p2pkm.LinkModel.of("wan"), scale="standard")
    times = [record["virtual_seconds"] for record in found.rounds]
    assert times == sorted(times) and found.rounds[-1]["stage"] == "accept-test"
    assert found.summary["virtual_seconds"] == times[-1] > times[-2]


@pytest.mark.parametrize(("options", "why"), [
    ({"init": "local"}, "init local"), ({"groups": True}, "groups"),
    ({"init": "flooded-summaries:hops=2"}, "all devices agree on")])  # fmt: skip
def test_without_an_agreed_start_there_is_nothing_to_compare(options, why):
    for wanted in ({"accept": True}, {"coupling": "rehearsal"}):
        with pytest.raises(ExperimentError, match=why):
            p2pkm.GTVMin(3, **options, **wanted)


def test_nor_with_a_given_start_nor_with_noise():
    ready = prepare(Experiment(graph="ring", devices=4, data="iris", algorithm=WEAK), 1)
    start = np.zeros((4, 3, 4))
    with pytest.raises(ExperimentError, match="leave them out, or start"):
        p2pkm.simulate(ready.run.algorithm, ready.run.topology, ready.shards, start=start)
    with pytest.raises(ExperimentError, match="carry none"):
        p2pkm.simulate(ready.run.algorithm, ready.run.topology, ready.shards, noise=0.1)


def test_its_traffic_is_known_before_the_run():
    graph = Topology.from_graph(topologies.tree(14))
    assert AcceptTest.after(p2pkm.GTVMin(3), graph).schedule == f"jacobi*{4 * 3}"
