"""Tree Lloyd with groups: a naive twin, the objective, devices that change their group, and what is reported."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.methods.init.tree_groups import TreeGroupsState
from tests.methods.tree.test_treelloyd import GRAPHS, draw, halve
from tests.support.play_rounds import arrange, squared


def run(data, links, tables, group, rounds=60, tol=0.0, units=None):
    """Return the states after every round; units: instead of those that are agreed on."""
    table = arrange(data, links, d=2)
    devices, network, n = table.devices, table.network, len(data)
    method = p2pkm.TreeLloyd(tables.shape[1], groups=len(tables), tol=tol).on(table.topology)
    every, awake = np.tile(tables.reshape(1, -1, 2), (n, 1, 1)), np.ones(n, np.bool_)
    start = TreeGroupsState(tables[group], awake, None, np.array(group), every)
    network.open()
    state, found = method.initial_state(devices, start), []
    inbox = network.exchange(method.message(state, devices.at_stage_start(awake)))
    for t in range(1, rounds + 1):
        for turn in range(2 * method.depth + 1):
            now = devices.at_turn(t, turn, awake)
            state = method.update(state, inbox, now)
            inbox = network.exchange(method.message(state, now))
        if t == 1 and units is not None:
            state = state._replace(units=np.tile(units, (n, 1)))
        found.append(state)
        if state.converged.all():
            break
    return found


def losses(data, tables):
    """Return the loss of every device with every table, float64[n, G]."""
    return np.array([[squared(points, table).min(axis=1).sum() if len(points) else 0.0 for table in tables]
                     for points in data])  # fmt: skip


def twin(data, tables, group, units):
    """Return the last accepted tables and groups and the history of F, all points in one place."""
    (step, _, coarse), weight = units, sum(map(len, data))
    table, kept, refined = np.zeros_like(tables), tables, False
    group, kept_group, history = np.array(group), np.array(group), [np.inf]
    while True:
        now = tables + step * table
        each = losses(data, now)
        least = each.argmin(axis=1)
        group = np.where(each[np.arange(len(data)), group] > each.min(axis=1), least, group)
        value = each.min(axis=1).sum()
        if value >= history[-1] and not refined:
            return kept, kept_group, history
        kept, kept_group = now, group
        history.append(value)
        moves = np.zeros_like(table)
        for g, c in np.ndindex(*tables.shape[:2]):
            members = [points for points, label in zip(data, group, strict=True) if label == g and len(points)]
            own = [points[squared(points, now[g]).argmin(axis=1) == c] for points in members]
            count, sums = (
                sum(map(len, own)),
                sum(np.rint((one - tables[g, c]).sum(axis=0) / (coarse * step)) for one in own),
            )
            moves[g, c] = np.rint(coarse * sums / count) - table[g, c] if count else 0.0
        finer = 2.0 ** halve(step, value, weight, table)
        if not (moves.any() or finer > 1.0):
            return now, kept_group, history
        if finer > 1.0:
            table, step, refined = finer * table, step / finer, True
        else:
            table, refined = table + moves, False


def begin(seed, n, count=2, k=3):
    """Return points, tables and groups to start from, which are none of the best."""
    rng = np.random.default_rng(seed)
    return draw(n, seed), rng.uniform(0, 12, (count, k, 2)), rng.integers(0, count, n)


@pytest.mark.parametrize("name", ["two", "path", "ring", "star", "grid"])
@pytest.mark.sample(3)
def test_the_twin_finds_the_same_tables_and_groups(name):
    n, links = GRAPHS[name]
    for seed in range(3):
        data, tables, group = begin(seed, n)
        states = run(data, links, tables, group)
        state = states[-1]
        rows, groups, _ = twin(data, tables, group, states[0].units[0])
        assert state.converged.all()
        found = state.accepted_reference + state.units[:, :1, None] * state.accepted
        assert_array_equal(found, np.tile(rows.reshape(1, -1, 2), (n, 1, 1)))
        assert_array_equal(state.group, groups)
        assert_array_equal(state.centroids, rows[groups])


@pytest.mark.parametrize("seed", [56, 85, 89])
def test_a_step_that_is_taken_back_takes_the_groups_back(seed):
    """With a coarse grain the sums of many small devices are so far off that a step raises F."""
    rng = np.random.default_rng(seed)
    data = [rng.uniform(0, 12, (rng.integers(1, 3), 2)) for _ in range(12)]
    tables, group = rng.uniform(0, 12, (2, 2, 2)), rng.integers(0, 2, 12)
    state = run(data, [(i, i + 1) for i in range(11)], tables, group, units=(0.25, 1.0, 12.0))[-1]
    rows, groups, _ = twin(data, tables, group, (0.25, 1.0, 12.0))
    assert_array_equal(state.group, groups)
    assert_array_equal(state.centroids, rows[groups])
    assert (state.tried_group != groups).any()


@given(st.integers(0, 10_000), st.integers(2, 7), st.integers(1, 4))
def test_the_objective_never_rises(seed, n, count):
    data, tables, group = begin(seed, n, count)
    before = np.inf
    for state in run(data, [(i, i + 1) for i in range(n - 1)], tables, group, rounds=12)[1:]:
        now = sum(losses(data, state.centroids)[i, i] for i in range(n))
        rows = state.reference[0] + state.units[0, 0] * state.accepted[0]
        assert_allclose(now, losses(data, rows.reshape(count, 3, 2)).min(axis=1).sum(), rtol=1e-12)
        assert now <= before * (1 + 1e-12)
        before = now


def test_a_device_in_the_wrong_group_changes_it_and_takes_its_points_along():
    rng = np.random.default_rng(1)
    centers = np.array([[[0.0, 0.0], [9.0, 0.0]], [[0.0, 9.0], [9.0, 9.0]]])
    truth = np.array([0, 0, 0, 1, 1, 1])
    data = [centers[g][np.arange(20) % 2] + rng.normal(size=(20, 2)) for g in truth]
    states = run(data, [(i, i + 1) for i in range(5)], centers + 0.5, [0, 0, 1, 1, 0, 1])
    assert_array_equal(states[-1].group, truth)
    for g, c in np.ndindex(2, 2):
        own = np.concatenate([points for points, label in zip(data, truth, strict=True) if label == g])
        own = own[squared(own, states[-1].centroids[3 * g]).argmin(axis=1) == c]
        assert_allclose(states[-1].centroids[3 * g, c], own.mean(axis=0), atol=2 * states[-1].units[0, 0])


@pytest.mark.parametrize("bridges", [1, 16])
@pytest.mark.sample(2)
def test_communities_are_found_and_reported(bridges):
    made, graph = p2pkm.communities(seed=203), topologies.communities(16, bridges=bridges, seed=203)
    shards = p2pkm.Shards.deal(made.points, made.device)
    result = p2pkm.simulate(p2pkm.TreeLloyd(4, groups="auto"), graph, shards, seed=203, baselines=False)
    assert_array_equal(result.groups, made.truth)
    assert result.summary["groups"] == 2 and result.summary["descent"] == "certified"
    assert len(np.unique(result.centroids.reshape(16, -1), axis=0)) == 2
    assert made.score(result.centroids).mean() < 1.06


def test_groups_are_numbered_by_their_first_device_and_one_group_is_all():
    made = p2pkm.communities(second="same", seed=201)
    shards = p2pkm.Shards.deal(made.points, made.device)
    graph = topologies.ring(16)
    result = p2pkm.simulate(p2pkm.TreeLloyd(4, groups=True), graph, shards, baselines=False)
    assert_array_equal(result.groups, 0)
    for seed in range(3):
        found = p2pkm.simulate(p2pkm.TreeLloyd(2, groups=3), graph, shards, seed=seed, rounds=3, baselines=False).groups
        _, first = np.unique(found, return_index=True)
        assert_array_equal(np.argsort(first), np.arange(len(first)))


@pytest.mark.parametrize(("options", "said"), [
    ({"groups": 0}, "groups is 0; expected a whole number"), ({"groups": 1.5}, "groups is 1.5"),
    ({"groups": "some"}, "groups is 'some'; expected auto"), ({"groups": "auto", "search": "breathing"}, "search"),
    ({"groups": 2, "init": "leader"}, "groups and init leader cannot be combined"),
])  # fmt: skip
def test_parameters_out_of_range_are_refused(options, said):
    with pytest.raises(p2pkm.ExperimentError, match=said):
        p2pkm.TreeLloyd(3, **options)
