"""The private method: exact sums, bounded by what one point changes, the same from every tree and on any ranks."""

import math
import re
from functools import partial

import networkx as nx
import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.engine.build_batch import build_batch
from p2pkm.kernels import reference
from p2pkm.methods.building_blocks import private_tables as tables
from p2pkm.methods.building_blocks.secure_sums import SumName, draw_noise
from p2pkm.methods.peer import private
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.local import LocalNetwork
from tests.support.run_cli import here, ranks, solve, there

Private = partial(p2pkm.Private, noise_seed=0)

GRAPHS = {
    "ring": topologies.ring(9),
    "complete": topologies.complete(5),
    "small world": topologies.small_world(16, degree=4, rewire=0.2, seed=1),
}
TRUSTS = ("masks", "none", "server")


def deal(n, seed=0, points=30, k=4):
    """Return points of n devices around k corners, some of them outside of a ball of radius 12; one has none."""
    rng = np.random.default_rng(seed)
    corners = 9.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1]])[:k]
    sizes = [0 if i == 2 else points for i in range(n)]
    return p2pkm.Shards.from_list([corners[rng.integers(0, k, m)] + rng.normal(size=(m, 2)) for m in sizes])


def batch(blocks, graph=None):
    """Return devices with these points."""
    topology = Topology.from_graph(topologies.path(len(blocks)) if graph is None else graph)
    network = LocalNetwork(place(topology, 0, 1))
    return build_batch(topology, p2pkm.Shards.from_list(blocks), network, 7, reference)


def record(monkeypatch, method, graph, shards, **options):
    """Run, and return the result with the words of all devices (noise and masks included) and the totals by sum."""
    own, totals = [], []
    prepare, read = private.PrivateOnGraph.cover, private.PrivateOnGraph.apply_total

    def keep_own(self, state, devices):
        found = prepare(self, state, devices)
        own.append(found.up.copy())
        return found

    def keep_total(self, state, devices):
        totals.append(state.down.copy())
        return read(self, state, devices)

    with monkeypatch.context() as during:
        during.setattr(private.PrivateOnGraph, "cover", keep_own)
        during.setattr(private.PrivateOnGraph, "apply_total", keep_total)
        return p2pkm.simulate(method, graph, shards, **options), own, totals


# --- what one point changes


@pytest.mark.parametrize("relation", ["add", "exchange"])
@pytest.mark.parametrize(("k", "d"), [(1, 1), (3, 2), (5, 4)])
def test_one_point_changes_a_table_by_at_most_the_sensitivity(k, d, relation):
    """Adversarial points: at the reach in every direction, far outside, in the middle between rows, on a row."""
    rng, radius, most = np.random.default_rng(k), 10.0, {}
    for shape in (tables.cell_layout(k, d, radius, relation), tables.step_layout(k, d, radius, relation)):
        places = tables.clip(rng.normal(size=(shape.rows, d)) * 8.0, radius)
        away = tables.clip(rng.normal(size=(60, d)) * 1e9, 1.0)
        near = [places[rng.integers(0, shape.rows, 60)] + away * reach for reach in
                (shape.clip_radius, shape.clip_radius * (1 + 1e-15), shape.clip_radius * 0.999, 0.0, 1e6)]  # fmt: skip
        between = (places[rng.integers(0, shape.rows, 60)] + places[rng.integers(0, shape.rows, 60)]) / 2
        points = np.concatenate((*near, between))
        devices = batch([points[:1], *points[1:, None]])
        wide = np.ascontiguousarray(np.broadcast_to(places, (len(devices), *places.shape)))
        each = tables.sum_offsets(devices, (0.0, radius), wide, shape)  # a device holds one point
        flat = each.reshape(len(each), -1).astype(np.float64)
        if relation == "add":
            changes = np.sqrt((flat**2).sum(axis=1))
        else:
            changes = np.sqrt(((flat[:, None] - flat[None]) ** 2).sum(axis=2)).ravel()
        bound = shape.grain.sensitivity / shape.grain.unit
        assert changes.max() <= bound
        most[shape.rows] = changes.max() / bound
    assert max(most.values()) > 0.99 or relation == "exchange"  # the bound is met
    assert max(most.values()) > 0.9


@pytest.mark.parametrize(("relation", "bound"), [("add", 1.0), ("exchange", math.sqrt(2.0))])
def test_one_point_changes_the_rings_by_at_most_the_sensitivity(relation, bound):
    rng = np.random.default_rng(0)
    radii = np.concatenate((tables.radii(3.0), tables.radii(3.0) * (1 + 1e-15), [0.0, 3.1, 1e9]))
    points = tables.clip(rng.normal(size=(len(radii), 3)), 1.0)
    points *= (radii / np.linalg.norm(points, axis=1))[:, None]
    devices = batch(list(points[:, None]))
    each = tables.count_rings(devices, 0.0, 3.0)[:, :, 0]
    assert (each.sum(axis=1) == 1).all()
    shape = tables.ring_layout(relation)
    assert bound <= shape.grain.sensitivity <= bound * (1 + 1 / 2048)
    changes = each if relation == "add" else (each[:, None] - each[None]).reshape(-1, tables.RINGS)
    assert np.sqrt((changes**2).sum(axis=1)).max() == pytest.approx(bound)


def test_a_ring_holds_its_outer_radius():
    devices = batch([np.array([[3.0, 0.0]]), np.array([[3.0 * 2**-0.25, 0.0]]), np.array([[0.0, 0.0]])])
    assert tables.count_rings(devices, 0.0, 3.0)[:, :, 0].argmax(axis=1).tolist() == [0, 1, 40]


def test_points_count_as_if_they_lay_in_the_ball():
    shape = tables.step_layout(2, 2, 10.0, "add")
    places = np.array([[[0.0, 0.0], [9.0, 0.0]]])
    one = tables.sum_offsets(batch([np.array([[1e6, 0.0]])]), (0.0, 10.0), places, shape)
    other = tables.sum_offsets(batch([np.array([[10.0, 0.0]])]), (0.0, 10.0), places, shape)
    np.testing.assert_array_equal(one, other)
    assert one[0, 0].tolist() == [0, 0, 0] and one[0, 1, 2] == shape.point_units


def test_a_row_moves_to_the_mean_of_its_points_where_their_count_is_more_than_twice_its_noise():
    shape, counts = tables.step_layout(2, 1, 9.0, "add"), np.array([10.0, 20.0])
    places, total = (
        np.array([[1.0], [4.0]]),
        np.column_stack(([5.0, -20.0], counts * shape.point_units * shape.grain.unit)),
    )
    for noise, expected in ((4.9, [[1.5], [3.0]]), (5.1, [[1.0], [3.0]]), (10.1, places)):
        np.testing.assert_allclose(tables.lloyd_step(places, total, shape, noise * shape.weight, 9.0), expected)


def test_cells_weigh_their_counts():
    shape, counts = tables.cell_layout(1, 1, 9.0, "add"), np.array([1.0, 3.0, 0.0, 0.0, 0.0, 0.0])
    cells = np.array([[-3.0], [3.0], [6.0], [7.0], [8.0], [9.0]])
    total = np.column_stack((np.zeros(6), counts * shape.point_units * shape.grain.unit))
    np.testing.assert_allclose(
        tables.initial_centroids(total, cells, shape, 0.0, (reference, 1, 1)), [[(-3 + 3 * 3) / 4]]
    )
    noise = -np.abs(total)  # of noise alone there are k centroids, too
    assert len(np.unique(tables.initial_centroids(noise, cells, shape, 1e9, (reference, 1, 3)))) == 3


def test_the_radius_is_the_smallest_with_few_points_beyond():
    counts = np.zeros(41)
    counts[8], counts[12] = 1000.0, 4.0  # |x| between radius / 4.8 and radius / 4; few further in
    assert tables.choose_radius(counts, 16.0, 0.0) == 4.0
    counts[0] = 5.0  # 0.5 % of all lie outside
    assert tables.choose_radius(counts, 16.0, 0.0) == 4.0
    counts[0] = 6.0
    assert tables.choose_radius(counts, 16.0, 0.0) == 16.0
    assert tables.choose_radius(counts, 16.0, 1e9) == 16.0  # nothing is known


# --- sums


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("trust", TRUSTS)
def test_totals_are_the_sums_of_whole_numbers(trust, graph, monkeypatch):
    method = Private(4, epsilon=20.0, radius=40.0, trust=trust)
    shards = deal(len(GRAPHS[graph]))
    _, own, totals = record(monkeypatch, method, GRAPHS[graph], shards, seed=3)
    assert len(own) == len(totals) == 4
    for words, total in zip(own, totals, strict=True):
        assert (total == words.sum(axis=0, dtype=np.uint64)).all()  # everywhere, to the bit


def test_masks_change_no_total_and_no_table_is_sent_bare(monkeypatch):
    shards, graph = deal(9), GRAPHS["ring"]
    method = Private(4, epsilon=20.0, radius=40.0)
    _, masked, totals = record(monkeypatch, method, graph, shards, seed=3)
    monkeypatch.setattr(private.secure_walk, "cover", lambda words, devices, keys, name: words)
    _, bare, same = record(monkeypatch, method, graph, shards, seed=3)
    for one, other in zip(totals, same, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(masked, bare, strict=True):
        assert (one != other).all()


def test_totals_are_the_same_from_every_root(monkeypatch):
    shards, graph, found = deal(9), GRAPHS["ring"], set()
    for root in range(9):
        rooted = property(lambda topology, root=root: topology.grow(np.array([root])))
        monkeypatch.setattr(Topology, "spanning_tree", rooted)
        result, _, totals = record(monkeypatch, Private(4, epsilon=20.0, radius=40.0), graph, shards, seed=3)
        found.add((result.summary["centroids_sha256"], *(total[0].tobytes() for total in totals)))
    assert len(found) == 1


def test_noise_is_drawn_for_each_sum_and_device_with_its_standard_deviation():
    keys = np.arange(50, dtype=np.uint64)
    one = draw_noise(keys, SumName("private", 1), 1000.0, (20, 3))
    assert abs(one.std() / 1000.0 - 1.0) < 0.05 and abs(one.mean()) < 80.0
    for other in (SumName("private", 2), SumName("another", 1)):
        assert (draw_noise(keys, other, 1000.0, (20, 3)) != one).mean() > 0.99
    assert len(np.unique(one[:, 0, 0])) > 45


@pytest.mark.parametrize("steps", [0, 1, 2, 7])
@pytest.mark.parametrize(("trust", "devices"), [("masks", 15), ("none", 1), ("server", 1)])
def test_who_adds_how_much_noise_and_that_all_of_mu_is_spent(trust, devices, steps):
    method = Private(4, epsilon=1.0, radius=9.0, trust=trust, steps=steps)
    spent = 0.0
    for number in range(1, method.sums + 1):
        shape = method.shape_of(number, 9.0, 2)
        own, total = method.noise_of(number, shape, 16)
        spent += devices * (shape.grain.sensitivity / own) ** 2 / devices**2  # what `devices` of them hide together
        assert total == pytest.approx(own * math.sqrt(1 if trust == "server" else 16))
    assert math.sqrt(spent) == pytest.approx(method.mu, rel=1e-12)


# --- the whole method


def test_the_shares_of_size_seeds_and_steps_stay_as_they_are_to_the_bit():
    method = Private(4, epsilon=1.5, radius=10.0, trust="none", steps=2)
    shares = (0.05, 0.57, 0.38 / 2, 0.38 / 2)
    for number, share in enumerate(shares, start=1):
        shape = method.shape_of(number, 5.0, 2)
        assert method.noise_of(number, shape, 16)[0] == shape.grain.sensitivity / (math.sqrt(share) * method.mu)


def test_without_steps_the_summary_has_the_noise_of_a_cell():
    method = Private(4, epsilon=9.0, radius=60.0, trust="none", steps=0)
    summary = p2pkm.simulate(method, topologies.ring(3), deal(3)).summary
    shape = tables.cell_layout(4, 2, summary["size"], "add")
    assert summary["noise_count"] == method.noise_of(2, shape, 3)[1] / shape.weight


def test_a_whole_run_on_a_ring_of_16_stays_below_110_kb_and_prints_its_guarantee():
    words = ("--algorithm", "private:epsilon=1,radius=30", "--graph", "ring", "--devices", 16,
             "--data", "grid16:points=200", "-k", 16, "--out", "none")  # fmt: skip
    summary = solve(*words, "--algorithm", "private:epsilon=1,radius=30,noise_seed=0")
    assert summary["bytes"] == 102_000 + 1_024 and summary["messages"] == 4 * 30 + 32
    assert summary["mu"] == pytest.approx(0.236704, abs=1e-6)
    assert summary["epsilon_alone"] == pytest.approx(4.4276, abs=1e-4)
    assert summary["size"] == 30.0 * 2 ** (-0.25 * round(4 * math.log2(30.0 / summary["size"])))
    assert summary["ratio_mean"] < 1.06 and summary["centroid_sets"] == 1
    lines = {" ".join(line.split()) for line in here(*words).out.splitlines()}
    assert "differential privacy eps 1 at delta 1e-06 for each point, against any 1 curious device" in lines
    assert "if all others collude eps 4.43 against all other devices together" in lines
    assert any(re.fullmatch(r"noise \d+ points standard deviation on the count of a cluster", line) for line in lines)


def test_it_ends_after_all_sums_and_never_earlier():
    """Two devices with one point each, many times: nothing moves, and all sums are taken all the same."""
    same = p2pkm.Shards.from_list([np.zeros((50, 2))] * 4)
    for steps in (0, 1, 5):
        method = Private(1, epsilon=1000.0, radius=1.0, steps=steps)
        summary = p2pkm.simulate(method, topologies.complete(4), same).summary
        assert (summary["rounds"], summary["termination"]) == (2 + steps, "converged")
        assert summary["messages"] == 12 + 6 * (2 + steps)


def test_more_rounds_than_sums_say_nothing_more():
    shards, method = deal(9), Private(4, epsilon=20.0, radius=40.0)
    one, other = (p2pkm.simulate(method, GRAPHS["ring"], shards, rounds=rounds).summary for rounds in (4, 100))
    assert one["centroids_sha256"] == other["centroids_sha256"] and one["bytes"] == other["bytes"]


@pytest.mark.parametrize("trust", TRUSTS)
def test_without_noise_it_comes_near_to_lloyd(trust):
    method = Private(4, epsilon=1e5, radius=40.0, trust=trust, steps=6)
    assert p2pkm.simulate(method, GRAPHS["ring"], deal(9, points=60)).summary["ratio_mean"] < 1.01


def test_centroids_stay_in_the_ball():
    method = Private(4, epsilon=0.05, radius=10.0, trust="none", center=2.0)
    result = p2pkm.simulate(method, GRAPHS["ring"], deal(9))
    assert (np.linalg.norm(result.centroids - 2.0, axis=2) <= result.summary["size"] * (1 + 1e-12)).all()
    assert np.isfinite(result.centroids).all()


def test_a_center_moves_everything_along():
    shards = deal(9)
    moved = p2pkm.Shards(shards.points + 1024.0, shards.offsets, shards.weights, shards.labels, shards.order)
    one = p2pkm.simulate(Private(4, epsilon=20.0, radius=16.0), GRAPHS["ring"], shards, baselines=False)
    method = Private(4, epsilon=20.0, radius=16.0, center=1024.0)
    other = p2pkm.simulate(method, GRAPHS["ring"], moved, baselines=False)
    np.testing.assert_allclose(one.centroids + 1024.0, other.centroids, atol=1e-6)


# --- what is refused


REFUSED = (
    ({}, {}, "requires epsilon and radius"),
    ({"epsilon": 1.0}, {}, "requires radius. Use --algorithm private:radius=..."),
    ({"epsilon": 1.0, "radius": 9.0}, {"scale": "minmax"}, "must not compute anything from them before"),
    ({"epsilon": 1.0, "radius": 9.0}, {"faults": "loss=0.1"}, "must not repeat a sum that fails"),
    ({"epsilon": 1.0, "radius": 9.0}, {"byzantine": "1"}, "nothing that a Byzantine device could replace"),
    ({"epsilon": 1.0, "radius": 9.0}, {"min_cluster_size": 3}, "which protect single points already"),
    ({"epsilon": 1.0, "radius": 9.0}, {"quantize": "rice"}, "sends integers already"),
    ({"epsilon": 1.0, "radius": 9.0}, {"noise": 0.1}, "does not send rows of centroids"),
    ({"epsilon": 1.0, "radius": 9.0}, {"k_max": 5}, "must not compute anything from them before"),
    ({"epsilon": 1.0, "radius": 9.0}, {"start": np.zeros((9, 4, 2))}, "start cannot be combined with private"),
    ({"epsilon": 1.0, "radius": 9.0, "delta": 1 / 240}, {}, "less than 1 / 240"),
    ({"epsilon": 1.0, "radius": 9.0, "curious": 2}, {}, r"devices \d, \d disconnect it"),
    (
        {"epsilon": 1.0, "radius": 9.0, "curious": 9},
        {},
        "curious is 9 of 9 devices; expected less than the number of devices",
    ),
    ({"epsilon": 1e9, "radius": 9.0}, {}, "otherwise rounding to integers removes it"),
    ({"epsilon": 1e9, "radius": 9.0, "trust": "none"}, {}, "otherwise rounding to integers removes it"),
)


@pytest.mark.parametrize(("method", "options", "message"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_would_break_the_guarantee_is_refused(method, options, message):
    with pytest.raises(p2pkm.P2PKMError, match=message):
        p2pkm.simulate(Private(4, **method), GRAPHS["ring"], deal(9), **options)


@pytest.mark.parametrize(("options", "message"), [
    ({"epsilon": 0.0}, "epsilon is 0.0"), ({"epsilon": math.inf}, "epsilon is inf"), ({"radius": -1.0}, "radius is -1"),
    ({"radius": math.nan}, "radius is nan"), ({"delta": 0.0}, "delta is 0.0"), ({"delta": 1.0}, "delta is 1.0"),
    ({"center": math.inf}, "center is inf"), ({"trust": "mask"}, "Did you mean 'masks'"),
    ({"curious": 0}, "curious is 0"), ({"noise_seed": -1}, "noise_seed is -1"),
    ({"noise_seed": 0.5}, "noise_seed is 0.5"),
    ({"steps": -1}, "steps is -1"), ({"steps": 101}, "at most 100"), ({"relation": "swap"}, "relation is 'swap'"),
])  # fmt: skip
def test_parameters_out_of_range_are_refused(options, message):
    with pytest.raises(p2pkm.ExperimentError, match=message):
        Private(4, **{"epsilon": 1.0, "radius": 9.0} | options)


def test_weights_and_graphs_that_it_cannot_use_are_refused():
    method, shards = Private(4, epsilon=1.0, radius=9.0), deal(9)
    weighted = p2pkm.Shards(shards.points, shards.offsets, np.full(shards.m, 2.0), None, shards.order)
    with pytest.raises(p2pkm.DataError, match="point weights cannot be combined with private"):
        p2pkm.simulate(method, GRAPHS["ring"], weighted)
    apart = nx.disjoint_union(topologies.complete(4), topologies.complete(5))
    with pytest.raises(p2pkm.TopologyError, match="graph has 2 connected components"):
        p2pkm.simulate(method, apart, shards, allow_disconnected=True)
    with pytest.raises(p2pkm.ExperimentError, match="links have to last"):
        p2pkm.simulate(method, topologies.one_peer_exponential(9), shards)
    with pytest.raises(p2pkm.ExperimentError, match="device 4 disconnects it"):
        p2pkm.simulate(method, nx.compose(nx.complete_graph(5), nx.complete_graph(range(4, 9))), shards)


@pytest.mark.parametrize("option", ["--init", "--scale", "--faults", "--byzantine", "--min-cluster-size"])
def test_options_of_the_command_line_that_it_cannot_use_are_refused(option):
    value = {"--init": "leader", "--scale": "standard", "--faults": "loss=.1", "--byzantine": "1"}.get(option, "2")
    found = here("--algorithm", "private:epsilon=1,radius=30", option, value, "--out", "none")
    assert found.code == 2 and "private" in found.err


# --- ranks


@pytest.mark.mpi
@pytest.mark.parametrize("count", [2, 3, 5, 16])
def test_the_same_bits_on_ranks_some_of_them_without_devices(count):
    for trust, devices in (("masks", 9), ("masks", 3), ("none", 2), ("server", 3)):
        words = ("--algorithm", f"private:epsilon=20,radius=30,noise_seed=0,trust={trust}", "--devices", devices,
                 "--data", "grid16:points=20", "-k", 4, "--format", "json", "--out", "none",
                 "--graph", "complete")  # fmt: skip
        one, many = solve(*words), there(*ranks(count), "-m", "p2pkm", *words).summary
        for key in ("centroids_sha256", "chain_sha256", "bytes", "messages", "size", "mu", "noise_count"):
            assert one[key] == many[key], key


# --- how good it is


def ratios(trust, epsilon, seeds=10, devices=16):
    found = []
    for seed in range(seeds):
        X, y = p2pkm.grid16(points=200, seed=seed)
        owner = np.random.default_rng(seed).integers(0, devices, len(X))
        shards = p2pkm.Shards.deal(X, owner, devices=devices, labels=y)
        method = Private(16, epsilon=epsilon, radius=30.0, trust=trust)
        found.append(p2pkm.simulate(method, topologies.ring(devices), shards, seed=seed).summary["ratio_mean"])
    return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize(("trust", "epsilon", "bound"), [
    ("masks", 1.0, 1.02), ("none", 1.0, 2.6), ("masks", 4.0, 1.005), ("none", 4.0, 1.03),
])  # fmt: skip
def test_the_mean_ratio_of_ten_seeds(trust, epsilon, bound):
    assert ratios(trust, epsilon).mean() < bound
