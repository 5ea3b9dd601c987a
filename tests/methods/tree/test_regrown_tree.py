"""Tree Lloyd where devices leave and return: a twin takes central Lloyd steps on the points of who is connected."""

from typing import NamedTuple

import networkx as nx
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
from p2pkm.channel.fault_model import TraceFaults
from p2pkm.channel.fault_trace import ASLEEP, AWAY, FaultTrace
from p2pkm.channel.faults import FaultInjector
from p2pkm.channel.stale_policy import StalePolicy
from p2pkm.core.errors import ExperimentError
from p2pkm.engine.loop import Start
from p2pkm.methods.schedules import make
from p2pkm.network.halo import place
from p2pkm.network.local import LocalNetwork
from tests.methods.tree.test_treelloyd import GRAPHS, K, choose_units, draw, halve
from tests.support.play_rounds import arrange, last, random_links, squared
from tests.support.run_cli import here


class Played(NamedTuple):
    """State after every round, place of every device in the whole graph's tree; messages, bytes, bytes on the wire."""

    states: list
    rank: np.ndarray
    traffic: np.ndarray


def play(data, links, start, absences, rounds, **options):
    """Play a run in which devices are absent; absences: (kind, round, device, rounds)."""
    table = arrange(data, links)
    events = np.array([(kind, t, i, -1, last, -1) for kind, t, i, last in absences], np.int64).reshape(-1, 6)
    events = events[np.argsort(events[:, 1], kind="stable")]
    network = LocalNetwork(place(table.topology, 0, 1))
    injector = FaultInjector(TraceFaults(FaultTrace(events), len(data)), StalePolicy.keep(), table.topology,
                            network.placement)  # fmt: skip
    method = p2pkm.TreeLloyd(len(start), **{"tol": 0.0} | options).under_faults(table.topology).on(table.topology)
    devices, plain = table.devices, make(method.schedule, table.devices, table.topology.colors)
    played, schedule = injector.wrap(method, plain, network)
    network.open(injector)
    state = played.initial_state(devices, Start(np.array([start] * len(data)), np.ones(len(data), bool)))
    inbox = network.exchange(played.message(state, devices.at_stage_start(schedule.opening)))
    states, traffic = [state], [(0, 0, 0)]
    for t in range(1, rounds + 1):
        for turn, awake in enumerate(schedule.turns(t)):
            now = devices.at_turn(t, turn, awake)
            state = played.update(state, inbox, now)
            inbox = network.exchange(played.message(state, now))
        states.append(state)
        traffic.append((*network.ledger.totals, network.ledger.wire_total))
    rank = np.empty(len(data), np.int64)
    rank[np.argsort(method.method.tree.layer, kind="stable")] = np.arange(len(data))
    return Played(states, rank, np.diff(np.array(traffic), axis=0))


def who_is_there(absences, n, t):
    return [i for i in range(n) if not any(one == i and first <= t < first + last for _, first, one, last in absences)]


class Twin:
    """What one device knows: whole numbers on a grid, the cost of the certified ones, and who is in its tree."""

    def __init__(self, base, units=(1.0, 1.0, 1.0), stamp=-1, tree=()):
        self.base, self.table, self.accepted, (self.step, _, self.coarse) = base, 0 * base, 0 * base, units
        self.cost, self.stamp, self.tree, self.done = np.inf, stamp, set(tree), units[0] == 0.0

    @property
    def centroids(self):
        return self.base + self.step * self.accepted

    @property
    def latest(self):
        return self.base + self.step * self.table


def follow(data, links, start, absences, found):
    """Check each round of a run against the twins of its devices."""
    n, graph = len(data), nx.Graph([link[:2] for link in links])
    graph.add_nodes_from(range(n))
    twins = [Twin(start) for _ in range(n)]
    parts = [list(nx.connected_components(graph.subgraph(who_is_there(absences, n, t))))
             for t in range(len(found.states))]  # fmt: skip
    for t, state in enumerate(found.states[1:], 1):
        for part in parts[t]:
            elects = any(not twins[i].done and twins[i].stamp != t - 1 for i in part)
            if elects:
                root = min(part, key=lambda i: (-twins[i].stamp, found.rank[i]))
                units, base = state.units[root], twins[root].latest
                _check_units(units, [(data[i], twins[i].latest) for i in part if len(data[i])])
                twins = [Twin(base, units, t, part) if i in part else twin for i, twin in enumerate(twins)]
            for twin in [twins[i] for i in part if not elects and not twins[i].done and twins[i].tree <= part]:
                advance(twin, [data[j] for j in sorted(twin.tree)], t)
        for i, twin in enumerate(twins):
            assert_array_equal(state.centroids[i], twin.centroids, f"round {t}, device {i}")
            assert state.converged[i] == twin.done, (t, i)
    return twins


def _check_units(units, parts):
    """Check step and grain for the points of some devices, each with the table that it has."""
    apart = [squared(points, table) for points, table in parts]
    if not apart:
        assert units[0] == 0.0
        return
    touched = sum(len(np.unique(one.argmin(axis=1))) for one in apart)
    weight, (k, d) = sum(map(len, apart)), parts[0][1].shape
    expected = choose_units(sum(one.min(axis=1).sum() for one in apart), weight, touched, k, d)
    assert_allclose(units, expected, rtol=1e-5)


def advance(twin, data, t):
    """Take a Lloyd step on whole numbers."""
    sums, counts, cost = np.zeros_like(twin.base), np.zeros(len(twin.base)), 0.0
    for points in data:
        apart = squared(points, twin.base + twin.step * twin.table).reshape(len(points), len(twin.base))
        nearest = apart.argmin(axis=1)
        cost += apart.min(axis=1).sum()
        for c in range(len(twin.base)):
            sums[c] += np.rint((points[nearest == c] - twin.base[c]).sum(axis=0) / (twin.coarse * twin.step))
            counts[c] += (nearest == c).sum()
    moves = np.where(
        counts[:, None] > 0, np.rint(twin.coarse * sums / np.maximum(counts, 1)[:, None]) - twin.table, 0.0
    )
    fell, twin.stamp = cost < twin.cost, t
    twin.accepted, twin.cost = (twin.table, cost) if fell else (twin.accepted, twin.cost)
    finer = 2.0 ** halve(twin.step, cost, counts.sum(), twin.table) if fell else 1.0
    twin.done = not fell or not (moves.any() or finer > 1.0)
    if not twin.done and finer > 1.0:
        twin.step, twin.accepted, twin.table, twin.cost = (
            twin.step / finer,
            finer * twin.accepted,
            finer * twin.table,
            np.inf,
        )
    elif fell:
        twin.table = twin.table + moves
    else:
        twin.table = twin.accepted


LOST = {  # graph, who is absent when, how many parts are left
    "nobody": ("grid", [], 1),
    "root": ("grid", [(AWAY, 3, 2, 99)], 1),
    "leaf": ("star", [(AWAY, 3, 0, 99)], 1),
    "inner device": ("ring", [(AWAY, 3, 2, 99)], 1),
    "cut vertex": ("path", [(AWAY, 3, 2, 99)], 2),
    "center of a star": ("star", [(AWAY, 2, 3, 99)], 8),
    "one after the other": ("complete", [(AWAY, t, i, 99) for t, i in enumerate((0, 1, 2, 3), 2)], 1),
    "a while": ("ring", [(AWAY, 2, 3, 3), (AWAY, 3, 5, 4), (AWAY, 9, 0, 1)], 1),
    "cut vertex for a while": ("path", [(AWAY, 3, 3, 4)], 1),
    "asleep": ("grid", [(ASLEEP, 3, 4, 2), (ASLEEP, 4, 1, 3)], 1),
    "late": ("ring", [(AWAY, 0, 4, 3), (AWAY, 0, 0, 1), (ASLEEP, 0, 8, 5)], 1),
    "at the opening alone": ("ring", [(AWAY, 0, i, 1) for i in range(9)], 1),
    "after the end": ("ring", [(AWAY, 3, 7, 30), (AWAY, 5, 0, 1)], 1),
}


QUICK = ("root", "cut vertex", "late")


@pytest.mark.parametrize("name", [pytest.param(one, marks=() if one in QUICK else pytest.mark.slow) for one in LOST])
@pytest.mark.sample(3)
def test_those_who_are_there_take_the_steps_of_the_twin(name):
    graph, absences, parts = LOST[name]
    (n, links), rounds = GRAPHS[graph], 45
    data = draw(n, 3)
    start = np.random.default_rng(5).normal(6, 4, (K, 2))
    found = play(data, links, start, absences, rounds)
    twins = follow(data, links, start, absences, found)
    assert name != "root" or found.rank[2] == 0
    there = who_is_there(absences, n, rounds)
    assert not [i for i in there if not twins[i].done]
    assert len({found.states[-1].centroids[i].tobytes() for i in there}) == parts
    if not absences:  # the tree is another one, the sums are the same
        table = arrange(data, links)
        plain = p2pkm.TreeLloyd(K, tol=0.0).on(table.topology)
        assert_array_equal(last(plain, table, np.array([start] * n), 30), found.states[-1].centroids)


@pytest.mark.slow
@given(st.data())
def test_any_absences(drawn):
    n, seed = drawn.draw(st.integers(1, 7)), drawn.draw(st.integers(0, 2**20))
    rng = np.random.default_rng(seed)
    data = draw(n, seed, sizes=rng.integers(0, 9, n)) if n > 2 else [rng.normal(size=(5, 2)) for _ in range(n)]
    assume(any(len(points) for points in data))
    links = random_links(rng, n, 0.2, connected=drawn.draw(st.booleans()))
    absences = [(int(rng.choice([AWAY, ASLEEP])), int(rng.integers(0, 9)), int(rng.integers(0, n)),
                 int(rng.integers(1, 5))) for _ in range(drawn.draw(st.integers(0, 8)))]  # fmt: skip
    start = rng.normal(6, 4, (3, 2))
    follow(data, links, start, absences, play(data, links, start, absences, 12))


def test_trees_have_the_shortest_ways_from_the_best_root():
    n, links = GRAPHS["grid"]
    found = play(draw(n, 1), links, np.zeros((2, 2)), [(AWAY, 2, 4, 9)], 3)
    growth, graph = found.states[-1].growth, nx.Graph(links)
    graph.remove_node(4)
    there = sorted(graph)
    root = min(there, key=lambda i: found.rank[i])
    assert growth.best[there, 2].tolist() == [nx.shortest_path_length(graph, root, i) for i in there]
    table = arrange([np.zeros((1, 2))] * n, links).devices
    children = [(i, j) for i, j, on in zip(table.sources, table.indices, growth.edge_child, strict=True) if on]
    parents = [(j, i) for i, j, on in zip(table.sources, table.indices, growth.edge_parent, strict=True) if on]
    assert sorted(pair for pair in children if 4 not in pair) == sorted(pair for pair in parents if 4 not in pair)
    assert len([pair for pair in parents if 4 not in pair]) == 7


def test_the_table_of_one_who_was_away_for_long_does_not_come_back():
    # 1, the root, leaves in round 2 with the table at the start; the others move on, and it takes theirs in round 7
    data = [np.array([[0.0, 0.0], [2.0, 0.0]]), np.array([[9.0, 0.0]]), np.array([[10.0, 0.0], [12.0, 0.0]])]
    links = [(0, 1), (1, 2), (0, 2)]
    found = play(data, links, np.array([[0.0, 0.0], [9.0, 0.0]]), [(AWAY, 2, 1, 5)], 8)
    states = found.states
    assert found.rank.argmin() == 0  # the middle of a triangle is the lowest id
    found = play(data, links, np.array([[0.0, 0.0], [9.0, 0.0]]), [(AWAY, 2, 0, 5)], 8)
    states = found.states
    assert_array_equal(states[6].centroids[0], [[0.0, 0.0], [9.0, 0.0]])
    assert_allclose(states[6].centroids[1], np.array([[9.0, 0.0], [11.0, 0.0]]) * 0 + states[6].centroids[2])
    assert_array_equal(states[7].centroids[0], states[6].centroids[1])


def test_a_step_stays_taken_where_a_device_is_missing_after_each():
    # in turn: an election, a step whose cost is not known yet, a round without an order
    (n, links), rounds = GRAPHS["ring"], 12
    data, start = draw(n, 3), np.random.default_rng(5).normal(6, 4, (K, 2))
    found = play(data, links, start, [(AWAY, t, t % n, 1) for t in range(3, rounds + 1, 3)], rounds)
    costs = [squared(np.concatenate(data), found.states[t].centroids[1]).min(axis=1).sum() for t in (1, 4, 7, 10)]
    assert (np.diff(costs) < 0.0).all()


def test_a_device_without_links_that_joins_late_goes_on_until_it_has_converged():
    """It has nobody to send to, but is not done: silence of all would end the run before it joins."""
    shards = p2pkm.Shards.from_list([np.random.default_rng(0).normal(size=(30, 2))])
    alone = p2pkm.Topology.from_links(1, np.zeros((0, 3)))
    found = p2pkm.simulate(p2pkm.TreeLloyd(3), alone, shards, rounds=30, seed=1, faults="late_join=0.5").summary
    assert (found["termination"], found["messages"]) == ("converged", 0)


def test_messages_by_hand():
    # path 0 - 1 - 2, root 1. Round 1: all call (4 messages); 1 is the best, so the others forward nothing back to it.
    # moments up from 0 and 2, the table down to them: 4. Round 2: sums and cost up, moves down: 4.
    data = [np.array([[0.0, 0.0], [8.0, 0.0]]), np.array([[1.0, 0.0], [9.0, 0.0]]), np.array([[2.0, 0.0]])]
    found = play(data, [(0, 1), (1, 2)], np.array([[0.0, 0.0], [9.0, 0.0]]), [(AWAY, 3, 2, 9)], 6)
    triple, moments, table = 8 * 3, 8 * 2 * 3, 8 * 4 * 2  # rows x columns; step, unit and grain are rows of the table
    sums, moves = 8 * 3 * 3, 8 * 3 * 2
    assert found.traffic[0, :2].tolist() == [8, 4 * triple + 2 * moments + 2 * table]
    assert found.traffic[1, :2].tolist() == [4, 2 * sums + 2 * moves]
    assert found.traffic[2, :2].tolist() == [1, sums]  # of 0; 1 misses 2 and is silent
    # round 4: 1 calls both neighbors, 0 calls 1; then moments and the table between 0 and 1
    assert found.traffic[3, :2].tolist() == [5, 3 * triple + moments + table]


@pytest.mark.parametrize("absent", [0, 1, 9])
def test_a_tree_and_its_table_on_the_wire_by_hand(absent):
    # both call in 12 bytes; four moments go up; step, unit, grain and rows come down, and if rows are absent a bit for
    # each and for the two rows of the units
    start = np.concatenate(([[0.0, 0.0], [9.0, 0.0]], np.full((absent, 2), np.inf)))
    found = play([np.array([[0.0, 0.0], [8.0, 0.0]]), np.array([[1.0, 0.0]])], [(0, 1)], start, [], 1)
    bitmap = {0: 0, 1: 1, 9: 2}[absent]
    assert found.traffic[0, 2] == 2 * 12 + 8 * 4 + 8 * (3 + 2 * 2) + bitmap


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"groups": 2}, {"search": "breathing", "init": "leader"}])
def test_groups_and_searches_go_on(options, tmp_path):
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"kind": "away", "round": 2, "device": 1, "rounds": 3}\n'
                     '{"kind": "asleep", "round": 4, "device": 6, "rounds": 4}')  # fmt: skip
    data = draw(9, 8, sizes=[12] * 9)
    method = p2pkm.TreeLloyd(3, **options)
    graph = nx.cycle_graph(9)
    result = p2pkm.simulate(method, graph, p2pkm.Shards.from_list(data), faults=str(trace), rounds=60)
    own = [entry for entry in result.rounds if entry["stage"] == "treelloyd"]
    whole = [entry["objective"] for entry in own if entry["round"] > 7]  # all are back, and a tree has grown
    assert (np.diff(whole) <= 1e-12 * whole[0]).all() and result.summary["termination"] == "converged"
    assert result.summary["centroid_sets"] == options.get("groups", 1)
    assert result.summary["excess_predicted"] is None and result.summary["wire_bytes"] < result.summary["bytes"]


@pytest.mark.parametrize("words", ["loss=0.1", "dropout=0.1,delay=0.1", "link_failure=0.01", "partition=2-3"])
@pytest.mark.sample(3)
def test_other_faults_are_refused(words):
    ending = here("--algorithm", "treelloyd", "--out", "none", "--faults", words)
    assert ending.code == 2 and "supports only faults of devices (dropout, late_join, straggler" in ending.err


def test_a_trace_is_refused_when_it_has_been_read(tmp_path):
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"kind": "link", "round": 4, "src": 1, "dst": 2}')
    with pytest.raises(ExperimentError, match="in a trace away and asleep"):
        p2pkm.simulate(p2pkm.TreeLloyd(2), nx.path_graph(3), p2pkm.Shards.from_list(draw(3)[:1] * 3), faults=str(trace))
