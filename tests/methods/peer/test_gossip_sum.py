"""Sum-weight gossip: halves that keep the mass, a dense twin, and draws that are uniform and the same on any rank."""

import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.core.batch import Stream
from p2pkm.core.protocols import Work
from p2pkm.kernels import numba as compiled
from p2pkm.kernels import reference as plain
from p2pkm.kernels.reference import philox
from p2pkm.methods.building_blocks.random_matching import pick_neighbor
from p2pkm.methods.peer.gossip_sum import GossipSum
from tests.support.averages import GRAPHS, column, divide, draw, lloyd, scene, seeds, states, sums
from tests.support.play_rounds import arrange, last


def close(found, expected):
    assert_allclose(found, expected, rtol=0, atol=1e-9)


def target(table, near, number):
    """Return the neighbor that every device sends to, by plain loops; None without one."""
    draws = [int(philox(0, number, key, Stream.NEIGHBOR)[0, 0]) for key in table.devices.keys]
    return [one[word % len(one)] if one else None for word, one in zip(draws, near, strict=True)]


def halves(chosen):
    """Return the matrix of a turn."""
    A = np.zeros((len(chosen), len(chosen)))
    for i, j in enumerate(chosen):
        A[i, i] += 0.5
        A[i if j is None else j, i] += 0.5
    return A


def twin(data, near, table, start, sends, rounds):
    centroids, number = np.array(start), 0
    for _ in range(rounds):
        mass = np.array([sums(points, w) for points, w in zip(data, centroids, strict=True)])
        for _ in range(sends):
            mass, number = np.einsum("ij,jcw->icw", halves(target(table, near, number)), mass), number + 1
        centroids = np.array([divide(z, w, 1e-12) for z, w in zip(mass, centroids, strict=True)])
    return centroids


def test_halves_on_two_devices():
    table = arrange([column(6, 8), np.zeros((0, 1))], [(0, 1)])
    found, said = states(GossipSum(1, sends=2), table, np.zeros((2, 1, 1)), 1)
    close(found[0].mass[:, 0], [[14, 2], [0, 0]])
    close(said[0].values[:, 0], [[7, 1], [0, 0]])
    close(found[1].mass[:, 0], [[7, 1], [7, 1]])
    close(found[2].centroids.ravel(), [7, 7])


@pytest.mark.parametrize("kernels", [plain, compiled], ids=["plain", "compiled"])
@pytest.mark.parametrize("name", GRAPHS)
def test_the_twin_finds_the_same(name, kernels):
    data, near, table, start = scene(name, kernels=kernels)
    for sends in (1, 3):
        found = last(GossipSum(4, sends=sends), table, start, 4)
        close(found[:, :3], twin(data, near, table, start, sends, 4)[:, :3])
        assert np.isinf(found[:, 3]).all()


@given(seeds)
def test_every_turn_keeps_the_mass_of_all_devices(graph):
    table, start = draw(graph)
    found, said = states(GossipSum(3, sends=4), table, start, 2)
    for before in (0, 4):
        for turn in (1, 2, 3):
            assert_allclose(found[before + turn].mass.sum(axis=0), found[before].mass.sum(axis=0), atol=1e-12)
    for messages in said:  # to one neighbor each
        assert_array_equal(np.bincount(table.devices.sources[messages.edges], minlength=graph[0]),
                           np.minimum(table.devices.degrees, 1))  # fmt: skip


def test_with_many_sends_a_round_is_a_central_lloyd_step():
    for name in ("star", "tree"):
        data, _, table, start = scene(name)
        found = last(GossipSum(4, sends=300), table, start, 2)
        pooled = lloyd(data, lloyd(data, start[0]))
        close(found[:, :3], [pooled[:3]] * len(data))


def test_neighbors_are_drawn_uniformly_among_the_links_in_use():
    table = arrange([column(0.0)] * 5, [(0, i) for i in range(1, 5)])
    use = np.ones(8, np.bool_)
    use[[1, 5]] = False  # 0 to 2 and back
    devices = table.devices.with_active_edges(use, table.devices.neighbor_degrees)
    picked = np.array([pick_neighbor(devices, t) for t in range(2000)])
    assert not picked[:, ~use].any()
    assert_allclose(picked[:, [0, 2, 3]].mean(axis=0), 1 / 3, atol=0.04)
    assert picked[:, [4, 6, 7]].all()


def test_a_draw_is_the_same_whoever_else_is_in_the_batch():
    ring = [(i, (i + 1) % 6) for i in range(6)]
    whole = arrange([column(0.0)] * 6, ring).devices
    for number in range(20):
        picked = pick_neighbor(whole, number)
        for i in range(6):
            draws = philox(0, number, whole.keys[i], Stream.NEIGHBOR)[0, 0]
            assert picked[2 * i + int(draws % np.uint64(2))]


def test_messages_and_flops_by_hand():
    shards = p2pkm.Shards.from_list([np.zeros((1, 2)), np.zeros((0, 2)), np.ones((2, 2))])
    result = p2pkm.simulate(GossipSum(2, sends=4), topologies.path(3), shards, rounds=2,
                            start=[[[0, 0], [np.inf, np.inf]]] * 3, baselines=False)  # fmt: skip
    messages = (1 + result.summary["rounds"] * 4) * 3
    assert (result.summary["messages"], result.summary["bytes"]) == (messages, messages * 2 * 3 * 8)
    work = Work(np.array([6, 0]), np.array([2, 1]), np.array([4, 2]), 5)
    assert_array_equal(GossipSum(2, sends=3).flops(work), [5 * 8 * 6 // 3 + 24, 24])


@pytest.mark.parametrize("faults", ["loss=0.4", "delay=0.5,max_delay=3", "dropout=0.3,dropout_length=2"])
def test_under_faults_centroids_stay_within_the_points(faults):
    X, y = p2pkm.grid16(points=10, seed=3)
    shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(len(X), 8, seed=0), devices=8, labels=y)
    result = p2pkm.simulate(GossipSum(16), topologies.ring(8), shards, rounds=6, faults=faults)
    assert (result.centroids >= X.min(axis=0)).all() and (result.centroids <= X.max(axis=0)).all()
    assert result.summary["ratio_worst"] < 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "clusters is 0; expected a whole number of at least 1"),
        ({"sends": 0}, "sends is 0; expected a whole number of at least 1"),
        ({"tol": np.nan}, "tol is nan; expected a finite number of at least 0"),
    ],
)
def test_parameters_out_of_range_are_refused(options, message):
    with pytest.raises(p2pkm.ExperimentError, match=message):
        GossipSum(**{"k": 3} | options)


def test_defaults():
    method = GossipSum(3)
    assert (method.schedule, str(method.init)) == ("jacobi*20", "global:candidates=1")
    assert (method.name, method.default_rounds, method.tol) == ("gossip-sum", 20, 1e-5)
