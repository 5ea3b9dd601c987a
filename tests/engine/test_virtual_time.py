"""Virtual time against closed forms worked out by hand."""

import json
import re
from itertools import product

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose

import p2pkm
import topologies
from p2pkm.core.errors import ExperimentError, TopologyError
from p2pkm.engine import virtual_time as clock
from p2pkm.engine.virtual_time import Clock, Turn
from p2pkm.network.graph import Topology
from p2pkm.network.link_model import PROFILES, LinkModel, LinkParameters
from tests.support.each import each
from tests.support.programs.determinism import configurations, deal
from tests.support.run_cli import here, ranks, there
from tests.support.sampling import thin


def turn(topology, *, awake=None, rows=1, row_bytes=8, flops=0.0, edges=None):
    """Return a turn in which those awake say so many rows."""
    n = topology.n
    awake = np.ones(n, bool) if awake is None else np.isin(np.arange(n), awake)
    edges = np.ones(len(topology.indices), bool) if edges is None else edges
    return Turn(awake, np.where(awake, rows, -1), np.where(awake, rows, 0) * row_bytes, edges, np.full(n, float(flops)))


def set_up(graph, text):
    topology = Topology.from_graph(graph)
    return topology, Clock(LinkModel.of(text).place(topology, graph), topology)


@pytest.mark.parametrize(("bandwidth", "access"), [(100.0, 1e6), (1e6, 100.0), (100.0, 400.0)])
def test_a_ring_with_a_barrier_takes_the_computing_the_latency_and_the_slower_of_edge_and_line(bandwidth, access):
    topology, time = set_up(topologies.ring(7), f"lan:latency=0.5,bandwidth={bandwidth},access={access},speed=10")
    for _ in range(3):
        time.barrier()
        time.advance_turn(turn(topology, rows=5, flops=20))
    assert_allclose(time.now, 3 * (2 + 0.5 + max(40 / bandwidth, 4 * 40 / access)))


def test_the_line_of_the_hub_carries_what_all_clients_send():
    topology = Topology.star(9)
    time = Clock(LinkModel.of("lan:latency=0.25,access=1000,server_access=50,speed=1").place(topology), topology)
    time.advance_turn(turn(topology, awake=range(9), rows=10))
    assert_allclose(time.now, 0.25 + 9 * 80 / 50)


def test_a_server_is_like_its_clients_unless_said_otherwise():
    for more, access, speed in (("", 20, 8), (",server_access=50,server_speed=9", 50, 9)):
        net = LinkModel.of(f"lan:access=20,speed=8{more}").place(Topology.star(2))
        assert net.access.tolist() == [20, 20, access] and net.speed.tolist() == [8, 8, speed]


def test_clients_with_a_slow_line_are_the_bottleneck_before_a_fast_server():
    topology = Topology.star(9)
    time = Clock(LinkModel.of("lan:latency=0.25,access=20,server_access=1e9").place(topology), topology)
    time.advance_turn(turn(topology, awake=range(9), rows=10))
    assert_allclose(time.now, 0.25 + 80 / 20)


def test_a_token_walks_a_path_in_one_transfer_and_one_latency_per_hop():
    topology, time = set_up(topologies.path(6), "lan:latency=0.125,access=none,bandwidth=16,speed=4")
    for holder in range(5):
        onward = (topology.sources == holder) & (topology.indices == holder + 1)
        time.advance_turn(turn(topology, awake=[holder], rows=2, flops=4, edges=onward))
    assert_allclose(time.received[5], 5 * (1 + 16 / 16 + 0.125))


def test_the_slowest_device_sets_a_barrier():
    graph = topologies.ring(5)
    graph.nodes[3]["speed"] = 2.0
    topology, time = set_up(graph, "lan:latency=0,access=none,speed=100")
    for _ in range(4):
        time.barrier()
        time.advance_turn(turn(topology, flops=10))
    assert_allclose(time.now, 4 * 5)


def test_without_a_barrier_a_slow_device_is_felt_one_hop_further_with_every_turn():
    graph = topologies.path(7)
    graph.nodes[0]["speed"] = 0.1
    topology, time = set_up(graph, "lan:latency=0,access=none,speed=1")
    for t in range(4):
        time.advance_turn(turn(topology, awake=range(t % 2, 7, 2), flops=1))
        slowed = time.ready > t + 1
        assert np.array_equal(np.flatnonzero(slowed), np.arange(t + 1)), t


def test_silence_takes_a_latency_and_no_bytes():
    topology, time = set_up(topologies.ring(4), "lan:latency=0.5,access=1,speed=1")
    time.advance_turn(turn(topology, rows=-1))
    assert_allclose(time.now, 0.5)
    time.advance_turn(turn(topology, awake=[], rows=1))
    assert_allclose(time.now, 0.5)


def go_on(net, topology, ready, heard, one):
    """Do what `Clock.advance_turn` does, device by device and message by message."""
    links = [(e, i, j) for e, (i, j) in enumerate(zip(topology.sources, topology.indices, strict=True)) if one.edges[e]]
    links = [link for link in links if one.active[link[1]] or one.rows[link[1]] >= 0]
    volume = {e: int(one.lengths[i]) for e, i, _ in links}
    load = [sum(volume[e] for e, i, j in links if device in (i, j)) for device in range(topology.n)]
    done = list(ready)
    for device in np.flatnonzero(one.active):
        done[device] = max(ready[device], heard[device]) + one.flops[device] / net.speed[device]
    ready, heard = list(done), list(heard)
    for e, i, j in links:
        slowest = max(volume[e] / net.bandwidth[e], load[i] / net.access[i], load[j] / net.access[j])
        ready[i] = max(ready[i], done[i] + slowest)
        heard[j] = max(heard[j], done[i] + slowest + net.latency[e])
    return ready, heard


@each("seed", range(10))
def test_random_turns_on_random_networks_go_as_message_by_message(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 15))
    topology = Topology.from_graph(nx.gnp_random_graph(n, 0.5, seed=seed))
    e = len(topology.indices)
    net = LinkParameters(
        rng.random(e), rng.choice([1.0, 5.0, np.inf], e), rng.choice([1.0, 9.0, np.inf], n), 1 + rng.random(n)
    )
    time, ready, heard = Clock(net, topology), np.zeros(n), np.zeros(n)
    for _ in range(6):
        rows = rng.integers(-1, 4, n)
        one = Turn(rng.random(n) < 0.5, rows, 8 * np.maximum(rows, 0), rng.random(e) < 0.8, rng.integers(0, 9, n))
        time.advance_turn(one)
        ready, heard = go_on(net, topology, ready, heard, one)
        assert_allclose(time.ready, ready)
        assert_allclose(time.received, heard)


def test_attributes_of_links_go_before_the_profile():
    graph = nx.Graph([("b", "a"), ("b", "c")])
    graph.edges["b", "c"].update(latency=3.0, bandwidth=2.0)
    graph.nodes["a"].update(access=7.0, speed=5)
    net = LinkModel.of("lan:latency=1,bandwidth=8").place(Topology.from_graph(graph), graph)
    assert net.latency.tolist() == [1, 1, 3, 3] and net.bandwidth.tolist() == [8, 8, 2, 2]
    assert net.access.tolist() == [7, 1.25e8, 1.25e8] and net.speed.tolist() == [5, 1e10, 1e10]


@each("value", [0, -1.0, "fast", True, float("nan"), float("inf")])
def test_attributes_that_are_no_speeds_are_refused(value):
    graph = topologies.ring(4)
    graph.nodes[2]["speed"] = value
    with pytest.raises(TopologyError, match="attribute speed of node 2"):
        LinkModel.of("lan").place(Topology.from_graph(graph), graph)


def test_figures_are_refused_beyond_their_ends_alone():
    graph = topologies.path(2)
    for latency, bandwidth in ((0.0, 1e-30), (1e30, 1e30)):
        graph.edges[0, 1].update(latency=latency, bandwidth=bandwidth)
        net = LinkModel.of("lan").place(Topology.from_graph(graph), graph)
        assert (net.latency.tolist(), net.bandwidth.tolist()) == ([latency] * 2, [bandwidth] * 2)
        assert LinkModel.lan(latency=latency, bandwidth=bandwidth).bandwidth == bandwidth
    for name, value in (("latency", 1.1e30), ("latency", -1e-9), ("bandwidth", 9e-31), ("bandwidth", float("inf"))):
        graph.edges[0, 1].update({"latency": 0.0, "bandwidth": 1.0, name: value})
        with pytest.raises(TopologyError, match=re.escape(f"attribute {name} of link 0 - 1 is {value!r}")):
            LinkModel.of("lan").place(Topology.from_graph(graph), graph)
        with pytest.raises(ExperimentError, match=f"lan:{name} is"):
            LinkModel.lan(**{name: value})


@pytest.mark.parametrize(
    ("text", "message"),
    [("lam", "Did you mean 'lan'"), ("wan:speed=0", "wan:speed is 0.0"), ("wan:latency=-1", "number above 0"),
     ("edge:acces=1", "'access'"), ("lora:latency=x", "expected a number")],
)  # fmt: skip
def test_networks_that_cannot_be_are_refused(text, message):
    with pytest.raises(ExperimentError, match=message):
        LinkModel.of(text)


def test_above_the_size_at_which_messages_are_kept_virtual_time_is_refused_before_any_work():
    with pytest.raises(ExperimentError, match="number of devices is 200,000; expected at most 100,000"):
        LinkModel.lan().check_devices(200_000)
    LinkModel.lan().check_devices(100_000)
    done = here("--devices", 100_001, "--link-model", "lan", "--out", "none")
    assert done.code == 2 and "simulated time" in done.err


def simulate(method, graph, net, **options):
    shards = deal(16 if graph is None else len(graph), 3)
    return p2pkm.simulate(method, graph, shards, baselines=False, rounds=3, link_model=net, **options)


def test_a_barrier_run_on_a_ring_is_the_sum_of_its_turns():
    """Own seeds: nothing is said; then the opening and three rounds of 3 rows of 3 numbers to both neighbors."""
    graph = topologies.ring(8)
    method = p2pkm.GTVMin(3, init="local", schedule="jacobi", tol=0.0)
    result = simulate(method, graph, "lan:latency=0.5,bandwidth=1e300,access=none,speed=1")
    sizes = np.bincount(result.census.device, minlength=8)
    busiest = 3 * (3 * 3 + 2) * sizes.max() + 3 * 9 * 3 * 2
    openings = 3 * (3 * 3 + 2) * sizes.max() + 0.5  # of the seeding
    ends = [record["virtual_seconds"] for record in result.rounds if record["stage"] == "gtvmin"]
    assert result.summary["rounds"] == 3
    assert_allclose(ends, openings + (np.arange(4) + 1) * (busiest + 0.5))
    assert result.summary["virtual_seconds"] == ends[-1]


def test_a_run_with_a_server_waits_for_its_line():
    result = simulate(p2pkm.FKM(3), None, "lan:latency=0,access=1e300,server_access=8,speed=1e300")
    assert_allclose(result.summary["virtual_seconds"], result.summary["bytes"] / 8)


@pytest.mark.parametrize(("groups", "schedule"), thin(product([False, True], ["colored", "async", "jacobi"]), 2))
@pytest.mark.sample(3)
def test_time_never_goes_back_and_changes_nothing_else_unless_turns_go_by_it(schedule, groups):
    graph, method = topologies.small_world(12, seed=1), p2pkm.GTVMin(3, schedule=schedule, groups=groups)
    timed, plain = simulate(method, graph, "edge"), simulate(method, graph, None)
    ends = [record["virtual_seconds"] for record in timed.rounds]
    assert ends == sorted(ends) and ends[0] > 0 and ends[-1] == timed.summary["virtual_seconds"]
    assert plain.summary["virtual_seconds"] is None and "virtual_seconds" not in plain.rounds[0]
    assert (timed.summary["chain_sha256"] == plain.summary["chain_sha256"]) == (schedule != "async")


def test_scaling_takes_its_time_too():
    run = "--coupling strong --devices 5 --data grid16:points=5 --rounds 1 --link-model wan"
    common = f"{run} --out none --format json -q".split()
    plain, scaled = (here(*common, "--scale", scale).summary["virtual_seconds"] for scale in ("none", "minmax"))
    assert scaled > plain + 0.075


def test_the_run_folder_has_the_seconds_of_every_record(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nx.write_graphml(nx.Graph([(0, 1, {"latency": 4.0}), (1, 2, {})]), tmp_path / "g.graphml")
    common = "--graph file:g.graphml --data grid16:points=5 --rounds 2 --out run --format json -q".split()
    summary = here(*common, "--link-model", "lan:latency=0,access=none").summary
    records = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert records[-1]["virtual_seconds"] == summary["virtual_seconds"] > 4.0
    assert summary["link_model"].startswith("lan:")
    assert p2pkm.load("run").rounds == records


@pytest.mark.mpi
def test_three_ranks_find_the_same_seconds_on_a_graph_with_attributes(tmp_path):
    graph = topologies.small_world(9, seed=2)
    graph.edges[0, 1]["latency"] = 2.0
    graph.nodes[4]["speed"] = 1e4
    nx.write_graphml(graph, tmp_path / "g.graphml")
    common = f"--graph file:{tmp_path}/g.graphml --data grid16:points=5 --rounds 3 --link-model lora --out none".split()
    common += ["--format", "json", "-q", "--scale", "minmax"]
    alone, together = here(*common).summary, there(*ranks(3), "-m", "p2pkm", *common).summary
    assert together["ranks"] == 3
    assert alone["virtual_seconds"] == together["virtual_seconds"] > 8.0


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.sample(2)
def test_comparisons_have_columns_of_seconds_if_there_is_a_network(timed):
    common = "compare --algorithm gtvmin,local --devices 4 --data grid16:points=5 --seeds 0 --out none -q".split()
    words = [*common, "--rounds", "2", *(["--link-model", "wan"] if timed else [])]
    assert ("s to central 1 %" in here(*words).out) == timed
    for row in json.loads(here(*words, "--format", "json").out)["rows"]:
        assert (row["virtual_seconds"] is not None) == timed
        assert not timed or row["seconds_to_1pct"] <= row["virtual_seconds"]


def test_a_server_computes_on_the_rows_that_it_heard_since_its_last_turn():
    result = simulate(p2pkm.FKM(3), None, "lan:latency=0,access=none,speed=1e300,server_speed=1")
    ledger = result.ledger
    last = ledger.stage == ledger.stage.max()
    heard = [ledger.rows[last & (ledger.turn == 2 * t) & (ledger.sender < 16)].sum() for t in range(3)]
    ends = [record["virtual_seconds"] for record in result.rounds if record["stage"] == "fkm"]
    assert len(ends) == 4
    assert_allclose(np.diff(ends), 20 * (3 * 3 + 2) * 3 * np.array(heard))


def test_a_stage_begins_when_the_last_device_has_ended_the_one_before():
    """The seeding lasts as long as device 8 with most points, the opening as long as 0, far away, with most links."""
    points = np.random.default_rng(0).normal(size=(10, 2))
    shards = p2pkm.Shards.from_list([*[points[:1]] * 8, points])
    graph = topologies.star(8)
    graph.add_edge(7, 8)
    method = p2pkm.GTVMin(3, init="local", schedule="colored")
    net = "lan:latency=0,access=none,speed=1"
    result = p2pkm.simulate(method, graph, shards, baselines=False, rounds=0, link_model=net)
    assert_allclose(result.summary["virtual_seconds"], 2 * (11 * 10 + (11 * 1 + 9 * 3 * 7)))


@pytest.mark.slow
@pytest.mark.parametrize("name", thin(["groups async", "groups swap", "grid rooted", "coreset over a tree"], 4))
def test_whoever_speaks_was_awake(name, monkeypatch):
    seen, real = [], Clock.advance_turn
    monkeypatch.setattr(Clock, "advance_turn", lambda self, one: seen.append(one) or real(self, one))
    _, graph, shards, algorithm, options = next(one for one in configurations() if one[0] == name)
    result = p2pkm.simulate(algorithm, graph, shards, seed=5, link_model="lan", **options)
    assert len(seen) >= result.summary["rounds"]
    assert not any(((one.rows >= 0) & ~one.active).any() for one in seen)


def test_the_module_says_what_it_counts():
    for word in ("3 m k d", "4 b / a", "barrier"):
        assert word in clock.__doc__


def test_what_comes_before_turns_by_time_takes_as_long_as_before_other_turns():
    graph, before = topologies.ring(8), []
    for schedule in ("async", "jacobi"):
        rounds = simulate(p2pkm.GTVMin(3, schedule=schedule, init="tree-summaries"), graph, "edge").rounds
        own = [one["stage"] for one in rounds].index("gtvmin")
        before.append([one["virtual_seconds"] for one in rounds[:own]])
    assert before[0] == before[1][: len(before[0])] and 0.0 < before[0][0] < before[0][-1]


@pytest.mark.parametrize("profile", PROFILES)
def test_a_link_model_keeps_the_given_values(profile):
    names = "latency", "bandwidth", "access", "speed", "server_access", "server_speed"
    given = {name: 2.0 + i for i, name in enumerate(names)}
    assert {name: value for name, value in vars(PROFILES[profile](**given)).items() if name in given} == given
