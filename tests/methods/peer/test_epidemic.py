"""Epidemic k-means: pairs that keep the mass and end equal, a dense twin, and messages to the partner alone."""

import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.core.protocols import Work
from p2pkm.kernels import numba as compiled
from p2pkm.kernels import reference as plain
from p2pkm.methods.building_blocks.random_matching import match
from p2pkm.methods.peer.epidemic import Epidemic
from tests.support.averages import GRAPHS, column, divide, draw, lloyd, scene, seeds, states, sums
from tests.support.play_rounds import arrange, last


def close(found, expected):
    assert_allclose(found, expected, rtol=0, atol=1e-9)


def partners(table, number):
    return match(table.topology, table.devices.shared_key, number)


def averages(partner):
    """Return the matrix of a cycle."""
    A = np.eye(len(partner))
    for i in np.flatnonzero(partner >= 0):
        A[i, [i, partner[i]]] = 0.5
    return A


def twin(data, table, start, cycles, rounds):
    centroids, number = np.array(start), 0
    for _ in range(rounds):
        mass = np.array([sums(points, w) for points, w in zip(data, centroids, strict=True)])
        for _ in range(cycles):
            number += 1
            mass = np.einsum("ij,jcw->icw", averages(partners(table, number)), mass)
        centroids = np.array([divide(z, w, 1e-12) for z, w in zip(mass, centroids, strict=True)])
    return centroids


def test_two_devices_agree_in_one_cycle():
    table = arrange([column(6, 8), column(1)], [(0, 1)])
    found, said = states(Epidemic(1, cycles=1).on(table.topology), table, np.zeros((2, 1, 1)), 1)
    close(said[0].values[:, 0], [[14, 2], [1, 1]])
    close(found[1].centroids.ravel(), [5, 5])


@pytest.mark.parametrize("kernels", [plain, compiled], ids=["plain", "compiled"])
@pytest.mark.parametrize("name", GRAPHS)
def test_the_twin_finds_the_same(name, kernels):
    data, _, table, start = scene(name, kernels=kernels)
    for cycles in (1, 3):
        found = last(Epidemic(4, cycles=cycles).on(table.topology), table, start, 4)
        close(found[:, :3], twin(data, table, start, cycles, 4)[:, :3])
        assert np.isinf(found[:, 3]).all()


@given(seeds)
def test_every_cycle_keeps_the_mass_and_leaves_both_ends_equal(graph):
    table, start = draw(graph)
    found, said = states(Epidemic(3, cycles=4).on(table.topology), table, start, 2)
    for before in (0, 4):
        for turn in (1, 2, 3):
            mass, partner = found[before + turn].mass, partners(table, before + turn)
            assert_allclose(mass.sum(axis=0), found[before].mass.sum(axis=0), atol=1e-12)
            together = np.flatnonzero(partner >= 0)
            assert_array_equal(mass[together], mass[partner[together]])  # to the bit
    for number, messages in enumerate(said, 1):
        partner = partners(table, number)
        assert_array_equal(messages.edges, partner[table.devices.sources] == table.devices.indices)
        assert_array_equal(messages.rows >= 0, (partner >= 0) | (table.devices.degrees == 0))


def test_with_many_cycles_a_round_is_a_central_lloyd_step():
    for name in ("star", "tree"):
        data, _, table, start = scene(name)
        found = last(Epidemic(4, cycles=600).on(table.topology), table, start, 2)
        pooled = lloyd(data, lloyd(data, start[0]))
        close(found[:, :3], [pooled[:3]] * len(data))


def test_messages_and_flops_by_hand():
    shards = p2pkm.Shards.from_list([np.zeros((1, 2)), np.ones((2, 2))])
    result = p2pkm.simulate(Epidemic(2, cycles=4), topologies.path(2), shards, rounds=2,
                            start=[[[0, 0], [np.inf, np.inf]]] * 2, baselines=False)  # fmt: skip
    messages = (1 + result.summary["rounds"] * 4) * 2
    assert (result.summary["messages"], result.summary["bytes"]) == (messages, messages * 2 * 3 * 8)
    work = Work(np.array([6, 0]), np.array([2, 1]), np.array([4, 2]), 5)
    method = Epidemic(2, cycles=3).on(arrange([column(0.0)] * 2, [(0, 1)]).topology)
    assert_array_equal(method.flops(work), [5 * 8 * 6 // 3 + 24, 24])


@pytest.mark.parametrize("faults", ["loss=0.4", "delay=0.5,max_delay=3", "dropout=0.3,dropout_length=2"])
def test_under_faults_centroids_stay_within_the_points(faults):
    X, y = p2pkm.grid16(points=10, seed=3)
    shards = p2pkm.Shards.deal(X, p2pkm.partition.iid(len(X), 8, seed=0), devices=8, labels=y)
    result = p2pkm.simulate(Epidemic(16), topologies.ring(8), shards, rounds=6, faults=faults)
    assert (result.centroids >= X.min(axis=0)).all() and (result.centroids <= X.max(axis=0)).all()
    assert result.summary["ratio_worst"] < 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "clusters is 0; expected a whole number of at least 1"),
        ({"cycles": 0}, "cycles is 0; expected a whole number of at least 1"),
        ({"tol": np.nan}, "tol is nan; expected a finite number of at least 0"),
    ],
)
def test_parameters_out_of_range_are_refused(options, message):
    with pytest.raises(p2pkm.ExperimentError, match=message):
        Epidemic(**{"k": 3} | options)


def test_defaults():
    method = Epidemic(3)
    assert (method.schedule, str(method.init)) == ("jacobi*24", "global:candidates=1")
    assert (method.name, method.default_rounds, method.tol) == ("epidemic", 20, 1e-5)
