"""The accept test: what it compares, when the start comes back, what it sends, and that no device ends far above it."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import p2pkm
import topologies
from p2pkm.core.batch import Grid
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import Delivery, Tables
from p2pkm.core.wire_format import decode, encode
from p2pkm.engine.loop import Start
from p2pkm.engine.run_options import RunOptions
from p2pkm.methods.building_blocks.small_clusters import find_grouped_points
from p2pkm.methods.init import accept_test
from p2pkm.methods.init.accept_test import AcceptTest
from p2pkm.network.graph import Topology
from tests.support.play_rounds import arrange
from tests.support.pooled import pooled_cost
from tests.support.prepare import prepare

WEAK = "gtvmin:coupling=3,accept=true"  # what the noise of so many devices makes of it is worse than the start
AUTO = "gtvmin:coupling=auto,relaxation=auto,accept=true"


def run(method, graph="ring", n=24, *, data="grid16:points=40", partition="dirichlet:alpha=0.3", seed=0, **options):
    ready = prepare(RunOptions(graph=graph, devices=n, data=data, partition=partition, algorithm=method, seed=seed), 1)
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
    assert any("24 of 24 devices returned to their initial centroids" in note for note in found.notes)


def test_what_is_better_stays():
    kept, found = run("gtvmin:coupling=auto,relaxation=auto", n=10), run(AUTO, n=10)
    np.testing.assert_array_equal(found.centroids, kept.centroids)
    assert found.summary["ratio_mean"] < found.summary["ratio_start"]
    assert not any("acceptance test" in note for note in found.notes)
    assert found.summary["distance_left"] == kept.summary["distance_left"]
    assert found.summary["convergence_rate"] == kept.summary["convergence_rate"]


def test_it_is_counted():
    """Over every link of a tree k (d + 1) numbers each way, one difference of losses up and one word down."""
    without, found = run("gtvmin:coupling=auto,relaxation=auto", n=10), run(AUTO, n=10)
    links, k, d = 9, 16, 2
    assert found.summary["messages"] - without.summary["messages"] == 4 * links
    assert found.summary["bytes"] - without.summary["bytes"] == 8 * links * (2 * k * (d + 1) + 2)


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
    found, real = (run(AUTO, n=10, quantize=code) for code in (f"{code}:bits=12", "none"))
    assert max(abs(table).max() for table in tables) > 100
    links, k, d = 9, 16, 2
    records = found.rounds[-3::2]
    sent = {key: records[1][key] - records[0][key] for key in ("messages", "bytes", "wire_bytes")}
    assert [record["stage"] for record in records] == ["gtvmin", "accept-test"]
    assert sent["messages"] == 4 * links and sent["bytes"] == 8 * links * (2 * k * (d + 1) + 2)
    assert 4 * links <= sent["wire_bytes"] < sent["bytes"] / (4 if code == "rice" else 3)
    assert found.summary["ratio_mean"] == pytest.approx(real.summary["ratio_mean"], abs=1e-3)


@pytest.mark.parametrize("seed", range(20))
def test_on_a_grid_the_excess_of_the_bound_is_rounded_up(seed):
    draws = np.random.default_rng(seed)
    devices = arrange([draws.normal(size=(9, 2)) for _ in range(5)], [(i, i + 1) for i in range(4)]).devices
    start, step = np.repeat(draws.normal(size=(1, 3, 2)), 5, axis=0), 10.0 ** draws.integers(-9, 3)
    sums = np.repeat(np.dstack((draws.normal(size=(1, 3, 2)), draws.random((1, 3, 1)))), 5, axis=0)
    excess = accept_test.measure_excess(start, sums, devices)[:, 0, 0] / step**2
    on_grid = replace(devices, grid=Grid(np.full(5, step), 2))
    found = accept_test.measure_excess(start, sums / [step, step, step**2], on_grid)[:, 0, 0]
    assert (found == np.rint(found)).all()
    assert (found >= excess - 1e-9 * abs(excess)).all() and (found <= excess + 1 + 1e-9 * abs(excess)).all()


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
    ready = prepare(RunOptions(graph=graph, devices=n, data="grid16:points=40", partition="dirichlet:alpha=0.3"), 1)
    start = run(method, graph, n, rounds=0).centroids
    points = ready.shards.points
    mean, bound = compute(kept.centroids, points)
    before = pooled_cost(points, start[0])
    assert mean <= bound * (1 + 1e-12)
    reverted = any("acceptance test" in note for note in found.notes)
    assert reverted == (bound > before * (1 + 1e-12))
    np.testing.assert_array_equal(found.centroids, start if reverted else kept.centroids)


@pytest.mark.parametrize("p", [2, 5, 8])
@pytest.mark.parametrize("partition", ["iid", "dirichlet:alpha=0.3"])
def test_a_better_end_stays_with_a_min_cluster_size(p, partition):
    """The start was fitted to summaries without small clusters, so these cannot judge it."""
    options = {"data": "grid16:points=100", "partition": partition, "seed": 500, "min_cluster_size": p}
    found, kept = (run(f"gtvmin{accept}", n=16, **options) for accept in ("", ":accept=false"))
    assert kept.summary["ratio_mean"] < kept.summary["ratio_start"]
    np.testing.assert_array_equal(found.centroids, kept.centroids)


def group(labelings, least):
    """Return which points of one device count: told apart by hand, label by label."""
    counted, before = set(range(len(labelings[0]))), None
    while counted != before:
        before = set(counted)
        for labels in labelings:
            cells = [{x for x in counted if labels[x] == label} for label in set(labels) - {-1}]
            rest = set().union(*(cell for cell in cells if len(cell) < least))
            large = set().union(*(cell for cell in cells if len(cell) >= least))
            counted = large | (rest if len(rest) >= least else set())
    return counted


@given(st.integers(0, 10**6), st.integers(2, 6), st.lists(st.integers(0, 14), min_size=1, max_size=4))
def test_points_count_in_groups_of_enough_under_both_labelings(seed, least, sizes):
    draws, offsets = np.random.default_rng(seed), np.concatenate(([0], np.cumsum(sizes)))
    labelings = [draws.integers(-1, 5, offsets[-1]) for _ in range(2)]
    counted = find_grouped_points(offsets, labelings, 5, least)
    for begin, end in pairwise(offsets):
        own = np.flatnonzero(counted[begin:end]).tolist()
        assert own == sorted(group([labels[begin:end].tolist() for labels in labelings], least))
        for labels in labelings:
            cells = np.unique(labels[begin:end][own], return_counts=True)[1]
            assert not (rest := cells[cells < least].sum()) or rest >= least


@pytest.mark.parametrize("seed", range(10))
def test_the_difference_is_that_of_the_points_that_count(seed):
    """The same from all points at once; and points that do not count may be anywhere in their cells."""
    draws, least = np.random.default_rng(seed), 4
    data = [draws.normal(size=(size, 2)) for size in (least - 1, *draws.integers(1, 20, 4))]
    start, offset = draws.normal(size=(4, 2)), 0.3 * draws.normal(size=(4, 2))
    spread = draws.random(4)
    sums = np.repeat(np.column_stack((offset, spread))[None], 5, axis=0)
    devices = replace(arrange(data, [(i, i + 1) for i in range(4)]).devices, min_count=least)
    found = accept_test.measure_excess(np.repeat(start[None], 5, axis=0), sums, devices)[:, 0, 0]
    moved = []
    for points, excess in zip(data, found, strict=True):
        begun = ((points[:, None] - start) ** 2).sum(axis=2)
        ended = ((points[:, None] - start - offset) ** 2).sum(axis=2) + spread
        counted = sorted(group([begun.argmin(axis=1).tolist(), ended.argmin(axis=1).tolist()], least))
        assert excess == pytest.approx((ended.min(axis=1) - begun.min(axis=1))[counted].sum(), abs=1e-12)
        left_out = np.setdiff1d(np.arange(len(points)), counted)
        moved.append(points.copy())
        moved[-1][left_out] += 1e-6 * draws.normal(size=(len(left_out), 2))
    other = replace(arrange(moved, [(i, i + 1) for i in range(4)]).devices, min_count=least)
    np.testing.assert_array_equal(
        accept_test.measure_excess(np.repeat(start[None], 5, axis=0), sums, other)[:, 0, 0], found
    )
    assert (data[0] != moved[0]).all() and found[0] == 0.0


@pytest.mark.parametrize("coupling", [0.3, 3])
def test_a_worse_end_is_taken_back_with_a_min_cluster_size(coupling):
    options = {"n": 16, "data": "grid16:points=100", "seed": 500, "min_cluster_size": 5}
    kept, found = (run(f"gtvmin:coupling={coupling},accept={accept}", **options) for accept in ("false", "true"))
    assert kept.summary["ratio_mean"] > kept.summary["ratio_start"]
    assert found.summary["ratio_mean"] == pytest.approx(kept.summary["ratio_start"], rel=1e-12)


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
    assert any("acceptance test" in note for note in found.notes)


def test_a_state_stays_as_it_was_when_sums_come_up():
    table, begun = arrange([[[0.0]], [[1.0]]], [(0, 1)]), np.zeros((2, 1, 1))
    method = p2pkm.GTVMin(1, accept=True)
    start = method.initial_state(table.devices, Start(begun, np.ones(2, np.bool_)))._replace(centroids=begun + 1.0)
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
    ({"init": "flooded-summaries:hops=2"}, "initial centroids that all devices agreed on")])  # fmt: skip
def test_without_an_agreed_start_there_is_nothing_to_compare(options, why):
    for wanted in ({"accept": True}, {"coupling": "rehearsal"}):
        with pytest.raises(ExperimentError, match=why):
            p2pkm.GTVMin(3, **options, **wanted)


def test_nor_with_a_given_start_nor_with_noise():
    ready = prepare(RunOptions(graph="ring", devices=4, data="iris", algorithm=WEAK), 1)
    start = np.zeros((4, 3, 4))
    with pytest.raises(ExperimentError, match="or remove start"):
        p2pkm.simulate(ready.run.algorithm, ready.run.topology, ready.shards, start=start)
    with pytest.raises(ExperimentError, match="carry none"):
        p2pkm.simulate(ready.run.algorithm, ready.run.topology, ready.shards, noise=0.1)


def test_its_traffic_is_known_before_the_run():
    graph = Topology.from_graph(topologies.tree(14))
    assert AcceptTest.after(p2pkm.GTVMin(3), graph).schedule == f"jacobi*{4 * 3}"


@pytest.mark.parametrize("variant", [{"normalize_losses": True}, {"matching": "optimal"}])
def test_the_objective_recorded_after_the_test_is_that_of_the_method(variant):
    points = np.random.default_rng(0).normal(size=(24, 2)) * [1.0, 9.0]
    shards = p2pkm.Shards.deal(points, np.arange(24) % 4, devices=4)
    method = p2pkm.GTVMin(3, coupling=10.0, accept=True, **variant)
    records = p2pkm.simulate(method, topologies.ring(4), shards, rounds=4, seed=1).rounds
    last = next(record for record in reversed(records) if record["stage"] == "gtvmin")
    first = next(record for record in records if record["stage"] == "accept-test")
    assert first["objective"] == last["objective"]
