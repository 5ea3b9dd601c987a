"""Who is awake when, and who speaks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import p2pkm
import topologies
from p2pkm.methods import schedules as schedule
from tests.support.play_rounds import arrange, play

graphs = st.tuples(st.integers(1, 12), st.floats(0, 1), st.integers(0, 2**32 - 1))


def gather(n, share, seed):
    """Return a batch on a random graph and its links."""
    rng = np.random.default_rng(seed)
    links = [(i, j) for i in range(n) for j in range(i + 1, n) if rng.random() < share]
    return arrange([np.ones((1, 1))] * n, links, seed=seed), links


@given(graphs)
def test_colors_are_proper_and_greedy(graph):
    table, links = gather(*graph)
    colors = table.topology.colors
    for i in range(len(colors)):
        lower = {int(colors[min(link)]) for link in links if max(link) == i}
        assert colors[i] == min(set(range(len(colors) + 1)) - lower)
    assert not [(i, j) for i, j in links if colors[i] == colors[j]]


@given(graphs)
def test_a_colored_round_wakes_everybody_once_and_never_two_neighbors(graph):
    table, links = gather(*graph)
    plan = schedule.colored(table.devices, table.topology.colors)
    assert plan.opening.all()
    for t in (1, 2):
        turns = list(plan.turns(t))
        assert_array_equal(np.sum(turns, axis=0), 1)
        assert_array_equal(np.argmax(turns, axis=0), table.topology.colors)  # classes in ascending color
        assert not any(awake[i] and awake[j] for awake in turns for i, j in links)


@given(graphs)
def test_an_asynchronous_round_wakes_somebody_and_never_two_neighbors(graph):
    table, links = gather(*graph)
    plan, isolated = schedule.asynchronous(table.devices), table.topology.degrees == 0
    assert plan.opening.all()
    for t in range(1, 6):
        (awake,) = plan.turns(t)
        assert awake.any()
        assert awake[isolated].all()
        assert not any(awake[i] and awake[j] for i, j in links)
        asleep = np.flatnonzero(~awake)
        assert not [i for i in asleep if not table.topology.degrees[i] > 0]


def test_asynchronous_rounds_are_drawn_from_seed_round_and_name():
    ring = [(i, (i + 1) % 60) for i in range(60)]
    data = [np.ones((1, 1))] * 60

    def draw(seed, names=None):
        plan = schedule.asynchronous(arrange(data, ring, seed=seed).devices, names)
        return np.array([next(plan.turns(t)) for t in range(1, 101)])

    masks = draw(0)
    assert 0.31 < masks.mean() < 0.36  # about one device in three on a ring
    assert (masks.sum(axis=0) > 0).all()
    assert len(np.unique(masks, axis=0)) == 100
    assert_array_equal(masks, draw(0))
    assert (masks != draw(1)).any()
    turned = draw(0, np.roll(np.arange(60), 1))  # each device bears the name of the one before it
    assert_array_equal(np.roll(turned, -1, axis=1), masks)


def test_jacobi_wakes_everybody_in_one_turn():
    table, _ = gather(7, 0.5, 1)
    (awake,) = schedule.jacobi(table.devices).turns(3)
    assert awake.all()
    assert len(awake) == 7


def test_jacobi_wakes_everybody_as_many_times_as_its_name_says():
    table, _ = gather(7, 0.5, 1)
    for name, turns in (("jacobi", 1), ("jacobi*1", 1), ("jacobi*10", 10)):
        plan = schedule.make(name, table.devices, table.topology.colors)
        assert plan.opening.all()
        assert not plan.is_request_reply
        for t in (1, 2):
            masks = list(plan.turns(t))
            assert len(masks) == turns
            assert not [awake for awake in masks if not awake.all()]


@pytest.mark.parametrize("name", ["jacobi", "colored", "async"])
def test_only_awake_devices_change_and_speak(name):
    rng = np.random.default_rng(0)
    data = [rng.normal(size=(4, 2)) for _ in range(8)]
    table = arrange(data, [(i, (i + 1) % 8) for i in range(8)])
    plan = schedule.make(name, table.devices, table.topology.colors)
    history, _ = play(p2pkm.GTVMin(2, alpha=1.0, schedule=name, tol=0.0), table, rng.normal(size=(8, 2, 2)), 4)
    masks = [awake for t in range(1, 5) for awake in plan.turns(t)]
    said = [one.rows for one in table.network.ledger.exchanges]
    assert len(said) == len(masks) + 1
    assert_array_equal(said[0], 2)
    for before, after, awake, rows in zip(history[:-1], history[1:], masks, said[1:], strict=True):
        assert_array_equal((before != after).any(axis=(1, 2)), awake)
        assert_array_equal(rows, np.where(awake, 2, -1))


def test_a_colored_class_uses_what_the_class_before_it_said():
    data = [np.array([[0.0]]), np.array([[8.0]])]
    history, _ = play(
        p2pkm.GTVMin(1, alpha=0.5, relaxation=1.0, tol=0.0), arrange(data, [(0, 1)]), [[[0.0]], [[4.0]]], 1
    )  # w0 = (0 + 4) / 2 = 2, then w1 = (8 + 2) / 2 = 5: speaking first would give (8 + 0) / 2 = 4
    assert_array_equal(history[:, :, 0, 0], [[0, 4], [2, 4], [2, 5]])


@pytest.mark.parametrize(("name", "turns"), [("jacobi", 1), ("colored", 2), ("async", 1)])
def test_the_record_counts_the_turns(name, turns):
    shards = p2pkm.Shards.from_list([np.arange(3.0)[:, None] + i for i in range(6)])
    result = p2pkm.simulate(
        p2pkm.GTVMin(2, schedule=name, init="local", tol=0.0), topologies.ring(6), shards, rounds=3, baselines=False
    )
    last = [record for record in result.rounds if record["stage"] == "gtvmin"]
    assert [record["round"] for record in last] == [0, 1, 2, 3]
    assert [record["turn_count"] for record in last] == [0, turns, turns, turns]
