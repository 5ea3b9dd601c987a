"""Turns by event: against closed forms worked out by hand, and against a naive simulation of the same rules."""

import json
from contextlib import nullcontext

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import p2pkm
import topologies
from p2pkm.core.errors import ExperimentError
from p2pkm.core.messages import DenseMessages
from p2pkm.core.protocols import PointCount
from p2pkm.engine.build_run import build_run
from p2pkm.engine.event_driven import Events
from p2pkm.engine.loop import Start
from p2pkm.engine.run_options import RunOptions
from p2pkm.engine.state_tree import gather, rebuild, split
from p2pkm.kernels import numba as compiled
from p2pkm.kernels import reference as plain
from p2pkm.network.delay_model import ReceivedTables, SentTables
from p2pkm.network.graph import Topology
from p2pkm.network.link_model import LinkParameters
from tests.support.play_rounds import arrange
from tests.support.programs.determinism import deal
from tests.support.run_cli import here
from topologies import ring


class Method:
    """Computes so many operations in a turn, whatever it heard."""

    def __init__(self, flops):
        self._flops = np.asarray(flops)

    def flops(self, work):
        return self._flops[work.sizes - 1]  # device i has i + 1 points


def network(topology, *, latency=0.0, bandwidth=np.inf, access=np.inf, speed=1.0):
    """Return figures for all links and devices, or a dict of them by undirected link."""
    n, e = topology.n, len(topology.indices)
    if isinstance(latency, dict):
        latency = [latency[min(i, j), max(i, j)] for i, j in zip(topology.sources, topology.indices, strict=True)]
    full = (np.full(size, value, float) for size, value in ((e, latency), (e, bandwidth), (n, access), (n, speed)))
    return LinkParameters(*full)


def follow(links, flops, count, *, n=None, say=lambda i, turn: 1, bound=8, net=None, **figures):
    """Return who acts and what was heard (numbers of tables by neighbor, and which are new) in each of some turns.

    say: rows that a device says in its turn of that number, 0 the opening.
    """
    n = n or len(flops)
    table = arrange([np.zeros((i + 1, 1)) for i in range(n)], links, d=1)
    topology, devices = table.topology, table.devices
    events = Events(net or network(topology, **figures), topology, bound)
    said, turns, told = np.zeros(n, int), np.zeros(n, int), []

    def exchange(who):
        rows = np.array([say(i, turns[i]) if who[i] else -1 for i in range(n)])
        said[rows >= 0] += 1
        values = np.zeros((n, 4, 2))
        values[:, :, 0], values[:, :, 1] = np.arange(n)[:, None], said[:, None]
        return table.network.exchange(DenseMessages(values, np.where(rows > 0, rows, np.minimum(rows, 0))))

    table.network.open(events)
    schedule = events.open(Method(flops), devices, table.network)
    inbox = exchange(np.ones(n, bool))
    for t in range(1, -(-count // n) + 1):
        for awake in schedule.turns(t):
            assert awake.sum() == 1 and len(told) < t * n
            i = int(np.flatnonzero(awake)[0])
            told.append((i, read(inbox, topology, i)))
            assert not inbox.fresh[topology.sources != i].any()
            turns[i] += 1
            inbox = exchange(awake)
            assert (inbox.slots < len(inbox.tables)).all()
    return told[:count], events


def read(inbox, topology, i):
    """Return by neighbor which table a device heard, and whether it is new."""
    edges = [e for e in range(topology.indptr[i], topology.indptr[i + 1]) if inbox.slots[e] >= 0]
    assert [inbox.tables[inbox.slots[e], 0, 0] for e in edges] == [topology.indices[e] for e in edges]
    return {int(topology.indices[e]): (int(inbox.tables[inbox.slots[e], 0, 1]), bool(inbox.fresh[e])) for e in edges}


def test_two_equal_devices_take_a_turn_every_time_that_they_have_computed_and_a_table_has_come():
    told, events = follow([(0, 1)], [3, 3], 12, latency=0.5)
    assert [who for who, _ in told] == [0, 1] * 6
    assert_allclose(events.ends, 3.5 * np.arange(7) + 3)
    for turn, (who, heard) in enumerate(told):
        assert heard == {1 - who: (turn // 2 + 1, True)}
    assert events.summary == {"age_mean": 0.5, "age_max": 0.5}


@pytest.mark.parametrize(("bandwidth", "access"), [(8.0, np.inf), (np.inf, 8.0), (8.0, 16.0)])
def test_equal_devices_on_a_ring_share_their_lines_as_under_a_barrier(bandwidth, access):
    links = [(i, (i + 1) % 5) for i in range(5)]
    _, events = follow(links, [2] * 5, 20, latency=0.25, bandwidth=bandwidth, access=access, say=lambda i, turn: 2)
    turn = 2 + 0.25 + max(32 / bandwidth, 4 * 32 / access)
    assert_allclose(events.ends, turn * np.arange(5) + 2)


def test_fast_devices_go_on_while_a_slow_one_computes():
    """0 and 1 begin at 1, 2, ..., 39; 2 at 10, 20, 30; at a time of both, what all said before."""
    told, _ = follow([(0, 1), (1, 2)], [1, 1, 10], 81, latency=0.0)
    assert [sum(who == i for who, _ in told) for i in range(3)] == [39, 39, 3]
    heard = [heard for who, heard in told if who == 2]
    assert heard == [{1: (10, True)}, {1: (20, True)}, {1: (30, True)}]


def test_ages_of_three_devices_by_hand():
    """0 begins at 1.5, 3, 4.5 and 6; 1 in the first three, too; 2 at 5, when what 1 said at 1 has come.

    At 5.5 device 1 goes on with what 2 said at 1, and with what it used already of 0, said at 4.
    """
    told, events = follow([(0, 1), (1, 2)], [1, 1, 1], 9, latency={(0, 1): 0.5, (1, 2): 4.0})
    assert [who for who, _ in told] == [0, 1, 0, 1, 0, 1, 2, 1, 0]
    assert told[-3:] == [(2, {1: (1, True)}), (1, {0: (3, False), 2: (1, True)}), (0, {1: (4, True)})]
    mean, largest = events.edge_ages
    assert_array_equal(mean, [0.75, 0.5, 4, 4.5])
    assert_array_equal(largest, [1.5, 0.5, 4, 4.5])
    assert events.summary == {"age_mean": 1.35, "age_max": 4.5}


def test_what_was_used_before_is_used_again_and_is_not_new():
    told, events = follow([(0, 1), (1, 2)], [1, 1, 10], 6, latency=0.0, say=lambda i, turn: 1)
    assert told[3] == (1, {0: (2, True)})
    told, events = follow([(0, 1), (1, 2)], [1, 1, 2.5], 11, latency=0.0)
    assert [heard for who, heard in told if who == 1][3] == {0: (4, True), 2: (1, False)}
    assert events.edge_ages[1][3] == 1.5  # said at 2.5, used at 3 and 4


def test_a_sender_waits_while_so_many_tables_are_on_their_way():
    """2 is far from 0: the opening's table is there at 101, that of the first turn at 102."""
    told, events = follow([(0, 1), (0, 2)], [1, 1, 1], 6, latency={(0, 1): 0.0, (0, 2): 100.0}, bound=2)
    assert [who for who, _ in told] == [0, 1, 1, 2, 0, 2]
    assert told[4][1] == {1: (3, True), 2: (1, True)}
    assert_allclose(events.edge_ages[1], [0.0, 100.0, 98.0, 100.0])


def test_devices_without_links_just_go_on():
    told, _ = follow([(0, 1)], [1, 1, 0.5], 20, latency=1.0)
    assert [sum(who == i for who, _ in told) for i in range(3)] == [3, 3, 14]
    assert all(heard == {} for who, heard in told if who == 2)


def test_who_has_nothing_to_go_on_with_ends_the_round():
    told, _ = follow([(0, 1)], [1, 1], 12, say=lambda i, turn: 1 if turn < 2 else -1)
    assert [who for who, _ in told] == [0, 1, 0, 1]


class Imitation:
    """The same rules by looking at everything that was ever said, again and again."""

    def __init__(self, topology, net, flops, say, bound):
        self.net, self.flops, self.say, self.bound, self.n = net, flops, say, bound, topology.n
        self.edges = {
            (int(i), int(j)): e for e, (i, j) in enumerate(zip(topology.sources, topology.indices, strict=True))
        }
        self.near = [[j for (i, j) in self.edges if i == device] for device in range(self.n)]
        self.come = {edge: [] for edge in self.edges}  # when each table said over it is there, None: not yet known
        self.times = [[] for _ in range(self.n)]  # when each was said
        self.used, self.ages = dict.fromkeys(self.edges, 0), {edge: [] for edge in self.edges}
        self.ready, self.free, self.turns = [0.0] * self.n, [0.0] * self.n, [0] * self.n
        self.saying, self.idle = {}, set()
        for i in range(self.n):
            self.speak(i, 0.0)

    def speak(self, i, now):
        rows, done = self.say(i, self.turns[i]), now + self.flops[i] / self.net.speed[i]
        if rows < 0:
            self.ready[i] = done
            self.idle.add(i)
            return
        self.saying[i] = done, rows * 16
        self.times[i].append(done)
        for j in self.near[i]:
            self.come[i, j].append(None)

    def send(self, now):
        who = [i for i in self.saying if self.saying[i][0] == now]
        size = {i: self.saying.pop(i)[1] for i in who}
        over = [(i, j) for i in who for j in self.near[i]]
        for device in range(self.n):
            load = sum(size[i] for i, j in over if device in (i, j))
            if load:
                self.free[device] = max(self.free[device], now) + load / self.net.access[device]
        for i in who:
            self.ready[i] = now
            self.idle.add(i)
        for i, j in over:
            e = self.edges[i, j]
            left = max(now + size[i] / self.net.bandwidth[e], self.free[i], self.free[j])
            self.ready[i], self.come[i, j][-1] = max(self.ready[i], left), left + self.net.latency[e]

    def begin(self, i):
        new = [self.come[j, i][self.used[j, i]] for j in self.near[i] if self.used[j, i] < len(self.come[j, i])]
        first = min([time for time in new if time is not None], default=np.inf) if self.near[i] else 0.0
        room = [self.come[i, j][-self.bound] for j in self.near[i] if len(self.come[i, j]) >= self.bound]
        return max([self.ready[i], first, *room])

    def use(self, i, now):
        heard = {}
        for j in self.near[i]:
            number = sum(time is not None and time <= now for time in self.come[j, i])
            if number:
                heard[j] = number, number > self.used[j, i]
                self.used[j, i] = number
                self.ages[j, i].append(now - self.times[j][number - 1])
        return heard

    def play(self, count):
        """Return who acts and what was heard in each of some turns."""
        told = []
        while len(told) < count:
            starts = sorted((self.begin(i), self.turns[i], i) for i in self.idle)
            now, _, i = starts[0] if starts else (np.inf, 0, 0)
            says = min((self.saying[i][0] for i in self.saying), default=np.inf)
            if min(now, says) == np.inf:
                break
            if says <= now:
                self.send(says)
                continue
            told.append((i, self.use(i, now)))
            self.idle.remove(i)
            self.turns[i] += 1
            self.speak(i, now)
        return told


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_random_networks_go_as_a_naive_simulation(seed):
    rng = np.random.default_rng(seed)
    n, bound = int(rng.integers(1, 9)), int(rng.integers(1, 5))
    links = [(i, j) for i in range(n) for j in range(i + 1, n) if rng.random() < 0.5]
    topology = arrange([np.zeros((i + 1, 1)) for i in range(n)], links, d=1).topology
    e = len(topology.indices)
    net = LinkParameters(  # sums of these are exact
        rng.choice([0.0, 0.5, 1.0, 7.0], e), rng.choice([8.0, 16.0, np.inf], e), rng.choice([8.0, 64.0, np.inf], n),
        rng.choice([0.5, 1.0, 4.0], n),
    )  # fmt: skip
    flops, rows = rng.integers(1, 5, n), rng.integers(0, 4, (n, 400))
    rows[:, 1:][rng.random((n, 399)) < rng.choice([0.0, 0.1])] = -1
    told, events = follow(links, flops, 30 * n, say=lambda i, turn: int(rows[i, turn]), bound=bound, net=net)
    other = Imitation(topology, net, flops, lambda i, turn: int(rows[i, turn]), bound)
    assert told == other.play(30 * n)
    ages = [other.ages[edge] for edge in other.edges]
    assert_allclose(events.edge_ages[0], [np.mean(one) if one else np.nan for one in ages])
    assert_allclose(events.edge_ages[1], [max(one, default=np.nan) for one in ages])


def simulate(method, graph, net, rounds=20, **options):
    shards = p2pkm.Shards.from_list(np.random.default_rng(1).normal(size=(len(graph), 12, 2)))
    return p2pkm.simulate(method, graph, shards, baselines=False, rounds=rounds, link_model=net, **options)


def test_equal_clocks_without_latency_give_the_bits_of_a_barrier():
    graph = topologies.ring(6)
    one, other = (
        simulate(p2pkm.GTVMin(3, schedule=schedule, init="local", tol=0.0), graph, "lan:latency=0,access=none", 7)
        for schedule in ("async", "jacobi")
    )
    assert one.summary["relaxation"] == 1.0 and one.summary["age_max"] == 0.0
    assert one.summary["chain_sha256"] == other.summary["chain_sha256"]
    assert_allclose(one.summary["virtual_seconds"], other.summary["virtual_seconds"])


def test_a_slow_device_slows_a_barrier_and_not_those_who_go_on():
    graph = topologies.ring(8)
    graph.nodes[3]["speed"] = 1e4
    net, found = "lan:latency=0.001,speed=1e6,access=none", {}
    for schedule in ("jacobi", "async"):
        result = simulate(p2pkm.GTVMin(3, schedule=schedule, init="local", tol=0.0), graph, net)
        found[schedule] = result.summary["virtual_seconds"]
        assert result.summary["rounds"] == 20
    turn = (2 * (3 * 3 + 2) * 12 + 3 * 9 * 2 * 2) / 1e4
    seeding = 2 * (3 * 3 + 2) * 12 / 1e4 + 0.001  # of the seeding, whose tables are empty
    assert_allclose(found["jacobi"], seeding + 21 * (turn + 0.001))
    assert_allclose(found["async"], seeding + turn)  # the others take 160 turns while it computes for its opening


@pytest.mark.slow
@pytest.mark.parametrize("net", ["lan", "wan", "lora"])
def test_quality_is_that_of_the_colors(net):
    common = "--graph small-world --data grid16:points=20 --out none --format json -q".split()
    colors = here(*common, "--schedule", "colored").summary
    events = here(*common, "--schedule", "async", "--link-model", net).summary
    assert events["termination"] == "converged" and events["descent"] == "not claimed"
    assert abs(events["ratio_mean"] / colors["ratio_mean"] - 1) < 0.01
    assert 0 < events["age_mean"] <= events["age_max"] < events["virtual_seconds"]


def test_the_run_ends_when_all_that_had_been_said_when_all_settled_was_used():
    table = arrange([np.zeros((i + 1, 1)) for i in range(2)], [(0, 1)], d=1)
    events = Events(network(table.topology, latency=5.0), table.topology)
    table.network.open(events)
    schedule = events.open(Method([1, 1]), table.devices, table.network)
    messages = DenseMessages(np.zeros((2, 1, 2)), np.ones(2, int))
    table.network.exchange(messages)
    assert schedule.check_termination("") == "" and schedule.check_termination("round-limit") == "round-limit"
    assert schedule.check_termination("converged") == ""  # nobody has used what the other said at the opening
    for awake in schedule.turns(1):
        table.network.exchange(messages._replace(rows=np.where(awake, 1, -1)))
    assert schedule.check_termination("converged") == "converged"
    assert (
        schedule.check_termination("") == "" and schedule.check_termination("converged") == ""
    )  # somebody moved again
    assert schedule.check_termination("interrupted") == "interrupted"


@pytest.mark.parametrize("rounds", [0, 2])
def test_clocks_go_on_from_where_they_were_kept(rounds):
    """Also what all must have used before a run in which nothing changes any more may end."""
    table = arrange([np.zeros((i + 1, 1)) for i in range(4)], [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)], d=1)

    def begin():
        events = Events(network(table.topology, latency=4.0, bandwidth=64.0), table.topology, bound=3)
        return events, events.open(Method([1, 2, 3, 4]), table.devices, table.network)

    def play(events, schedule, rounds):
        for t in rounds:
            for awake in schedule.turns(t):
                found = events.receive(SentTables(np.where(awake, t % 3, -1), 16, None))
                yield [*awake, *found.ages, *found.fresh]
            yield schedule.check_termination("converged" if t > 1 else "")

    one, schedule = begin()
    if rounds:
        one.receive(SentTables(np.ones(4, int), 16, None))
    assert "converged" not in list(play(one, schedule, range(1, 1 + rounds)))
    arrays = {}
    outline = gather(one.snapshot(), table.network, arrays)
    kept = rebuild(outline, split(outline, arrays, table.topology, table.network.placement.division, 0))
    other, again = begin()
    other.restore(kept)
    if not rounds:
        for events in (one, other):
            events.receive(SentTables(np.ones(4, int), 16, None))
    told = [list(play(*at, range(1 + rounds, 7))) for at in ((one, schedule), (other, again))]
    assert told[0] == told[1] and "converged" in told[0] and one.ends == other.ends
    assert_array_equal(one.edge_ages, other.edge_ages)


def test_a_stage_before_is_not_played_by_events():
    graph = topologies.communities(16, bridges=4)
    method = p2pkm.GTVMin(3, schedule="async", robust="saturate", init="flooded-summaries")
    timed = p2pkm.simulate(method, graph, deal(16), baselines=False, rounds=4, link_model="wan")
    plain = p2pkm.simulate(method, graph, deal(16), baselines=False, rounds=4)
    heads = [[one["objective"] for one in result.rounds if one["stage"] != "gtvmin"] for result in (timed, plain)]
    assert heads[0] == heads[1]
    assert sum(one["stage"] == "warmup" for one in timed.rounds) > 4
    assert timed.summary["relaxation"] == 1.0 and plain.summary["relaxation"] == 1.5
    assert timed.summary["age_max"] >= 0.075 and plain.summary["age_max"] is None


def test_ages_are_kept_by_edge(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nx.write_graphml(nx.Graph([(0, 1, {"latency": 0.002}), (1, 2, {}), (3, 4, {})]), tmp_path / "g.graphml")
    common = "--graph file:g.graphml --data grid16:points=5 --rounds 9 --out run --allow-disconnected".split()
    words = [*common, "--link-model", "lan", "--schedule", "async", "--tol", "0", "--format", "json", "-q"]
    summary = here(*words).summary
    assert {"age_mean", "age_max"} <= set(summary)
    ledger = p2pkm.load("run").ledger
    assert ledger.age_mean[:2].min() >= 0.002 > ledger.age_max[4:].max()
    assert np.nanmax(ledger.age_max) == summary["age_max"]
    records = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    ends = [record["virtual_seconds"] for record in records]
    assert ends == sorted(ends) and ends[-1] == summary["virtual_seconds"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--devices 2001", "at most 2,000 devices, but there are 2,001. Remove --link-model"),
        ("--relaxation 1.5", "relaxation is 1.5; expected at most 1 with"),
    ],
)
def test_what_cannot_go_by_events_is_refused_before_any_work(words, message):
    done = here("--link-model", "wan", "--schedule", "async", "--out", "none", *words.split())
    assert done.code == 2 and message in done.err and "Traceback" not in done.err
    with pytest.raises(ExperimentError, match="relaxation"):
        simulate(p2pkm.GTVMin(3, schedule="async", relaxation=1.2), topologies.ring(4), "lan")


class Behind:
    """Lets everybody hear what was said one exchange ago, as a fault trace may."""

    bound = 1

    def receive(self, said):
        """Return ages of 1, once something was said before."""
        self.count = getattr(self, "count", 0) + 1
        ages = np.full(len(self.senders), 1 if self.count > 1 else -1)
        return ReceivedTables(ages, ages >= 0)


def test_one_look_never_serves_both_ends_of_a_link_where_tables_are_old():
    rng, found = np.random.default_rng(0), []
    data, start = rng.normal(size=(6, 40, 2)), rng.normal(size=(6, 9, 2))
    method = p2pkm.GTVMin(9, schedule="jacobi", init="local", alpha=2.0)
    for kernels in (plain, compiled):
        table, delays = arrange(list(data), [(i, (i + 1) % 6) for i in range(6)], kernels=kernels), Behind()
        delays.senders = table.network.placement.senders
        table.network.open(delays)
        state = method.initial_state(table.devices, Start(start, np.ones(6, bool)))
        for t in range(5):
            now = table.devices.at_turn(t, 0, np.ones(6, bool))
            inbox = table.network.exchange(method.message(state, now))
            state = method.update(state, inbox, now)
        found.append(state.centroids)
    assert_array_equal(*found)


def test_on_a_graph_that_changes_rounds_are_what_they_are_without_clocks():
    graph, method = topologies.one_peer_exponential(16), p2pkm.GTVMin(3, schedule="async")
    timed, plain = (
        p2pkm.simulate(method, graph, deal(16), baselines=False, rounds=4, link_model=net) for net in ("wan", None)
    )
    assert timed.summary["chain_sha256"] == plain.summary["chain_sha256"] and timed.summary["age_max"] is None


@pytest.mark.parametrize(("relaxation", "refused"), [(None, False), (0.5, False), (1.0, False), (1.5, True)])
def test_overrelaxation_is_refused_in_event_driven_runs(relaxation, refused):
    topology = Topology.from_graph(ring(3))
    method = p2pkm.GTVMin(2, schedule="async", relaxation=relaxation)
    with pytest.raises(ExperimentError, match="on old tables diverges") if refused else nullcontext():
        build_run(method, RunOptions(link_model="lan"), topology, PointCount(3, 30, 2))
