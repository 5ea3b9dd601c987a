"""Simulated time under faults, against a simulation of single messages in dictionaries on random small worlds."""

import json
from dataclasses import dataclass

import networkx as nx
import numpy as np
import pytest

import p2pkm
import topologies
from p2pkm.network.graph import Topology
from tests.support.programs.determinism import deal
from tests.support.run_cli import here, ranks, there

K, D = 2, 2


@dataclass
class World:
    """Run on a random graph: one fault trace, one link model, and what the run sent."""

    seed: int
    kind: str
    graph: nx.Graph | None
    sizes: list[int]
    method: object
    events: list[dict]
    policy: str
    rounds: int

    @property
    def is_star(self):
        return self.kind == "server"

    @property
    def n(self):
        return len(self.sizes)


def draw_world(seed):
    """Draw a world: half of the numbers are coarse, so that many times are equal."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    kind = ("jacobi", "colored", "average", "server")[seed % 4]
    method = {
        "jacobi": lambda: p2pkm.GTVMin(K, schedule="jacobi", relaxation=1.0, coupling=1.0),
        "colored": lambda: p2pkm.GTVMin(K, schedule="colored", relaxation=1.0, coupling=1.0),
        "average": lambda: p2pkm.ConsensusLloyd(K, gossips=3),
        "server": lambda: p2pkm.FKM(K),
    }[kind]()
    graph = None
    if kind != "server":
        graph = nx.gnp_random_graph(n, 0.6, seed=seed)
        for _, _, attributes in graph.edges(data=True):
            attributes["latency"] = float(rng.choice([0.0, 0.5, 500.0, rng.random()]))
            attributes["bandwidth"] = float(rng.choice([8.0, 64.0, 1e9]))
        for node in graph:
            graph.nodes[node]["access"] = float(rng.choice([16.0, 48.0, 1e9]))
            graph.nodes[node]["speed"] = float(rng.choice([1.0, 7.0, 50.0]))
    links = list(graph.edges) if graph is not None else [(i, n) for i in range(n)]
    ends = n + (kind == "server")
    rounds = int(rng.integers(2, 7))
    events = []
    for _ in range(int(rng.integers(0, 25))):
        t = int(rng.integers(0, rounds + 1))
        word = str(rng.choice(["away", "asleep", "link", "loss", "delay"], p=[0.25, 0.15, 0.05, 0.1, 0.45]))
        event = {"kind": word, "round": t}
        if word in ("away", "asleep"):
            event |= {"device": int(rng.integers(ends)), "rounds": int(rng.integers(1, 4))}
        elif links:
            i, j = links[int(rng.integers(len(links)))]
            i, j = (i, j) if rng.random() < 0.5 else (j, i)
            event |= {"src": int(i), "dst": int(j)}
            if word != "loss":
                event["rounds"] = int(rng.integers(1, 4))
            if word != "link" and rng.random() < 0.5:
                event["turn"] = int(rng.integers(2))
        else:
            continue
        events.append(event)
    return World(
        seed, kind, graph, [int(size) for size in rng.integers(1, 6, n)], method, events,
        str(rng.choice(["keep", "drop"])), rounds,
    )  # fmt: skip


def run_world(world, tmp_path, **options):
    rng = np.random.default_rng(world.seed)
    points = [rng.normal(size=(size, D)) for size in world.sizes]
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in world.events))
    if not world.is_star:
        options["start"] = np.broadcast_to(rng.normal(size=(K, D)), (world.n, K, D))
    model = (
        f"lan:latency={[0.25, 500][world.seed // 4 % 2]},bandwidth=64,access=48,speed=5,server_access=32,server_speed=9"
    )
    if world.events:
        options |= {"faults": str(path), "stale_policy": world.policy}
    return p2pkm.simulate(
        world.method, world.graph, p2pkm.Shards.from_list(points), link_model=model, rounds=world.rounds,
        all_rounds=True, baselines=False, allow_disconnected=True, record_every=1, **options,
    )  # fmt: skip


def follow(world, result):
    """Return the seconds at the end of each round of the method, message by message."""
    n, d = world.n, D
    graph = world.graph if not world.is_star else nx.star_graph([n, *range(n)])
    links = [(i, j) for u, v in graph.edges for i, j in ((u, v), (v, u))]
    latency = {(i, j): graph.edges[i, j].get("latency", [0.25, 500.0][world.seed // 4 % 2]) for i, j in links}
    bandwidth = {(i, j): graph.edges[i, j].get("bandwidth", 64.0) for i, j in links}
    access = {i: graph.nodes[i].get("access", 32.0 if i == n else 48.0) for i in graph}
    speed = {i: graph.nodes[i].get("speed", 9.0 if i == n else 5.0) for i in graph}
    stage = result.ledger.stage.max(initial=0)  # of a run without messages: any
    said = {
        (int(turn), int(sender)): int(rows)
        for s, turn, sender, rows in zip(*result.ledger[5:9], strict=True)
        if s == stage
    }
    before = [record for record in result.rounds if record["stage"] != result.rounds[-1]["stage"]]
    begin = before[-1]["virtual_seconds"] if before else 0.0

    def happens(kind, t, **ends):
        return any(
            event["kind"] == kind
            and event["round"] <= t < event["round"] + event.get("rounds", 1)
            and all(event[key] == value for key, value in ends.items())
            for event in world.events
        )

    def is_idle(i, t):
        return happens("away", t, device=i) or happens("asleep", t, device=i)

    def fate(i, j, t, turn):
        """Return the rounds of delay; None: the message is lost."""
        if happens("away", t, device=j) or happens("link", t, src=i, dst=j) or happens("link", t, src=j, dst=i):
            return None
        mine = [
            event for event in world.events
            if event["round"] == t and (event.get("src"), event.get("dst")) == (i, j)
            and event.get("turn", turn) == turn
        ]  # fmt: skip
        if any(event["kind"] == "loss" for event in mine):
            return None
        delay = max([event["rounds"] for event in mine if event["kind"] == "delay"], default=0)
        return None if delay and world.policy == "drop" else delay

    def operations(i, unread):
        if world.is_star and i == n:
            return 20 * unread[i] * (3 * K + 2) * d
        own = (3 * K + 2) * world.sizes[i]
        if world.kind in ("jacobi", "colored"):
            return d * (own + 3 * K**2 * graph.degree[i])
        return own * d

    def row_bytes(i):
        if world.is_star:
            return 8 * (d + 1) if i < n else 8 * d
        return 8 * (d + 1) if world.kind == "average" else 8 * d

    everyone = list(graph)
    turns = [everyone] * (3 if world.kind == "average" else 1)
    if world.is_star:
        turns = [[n], list(range(n))]
    elif world.kind == "colored":
        colors = dict(enumerate(Topology.from_graph(graph).colors.tolist()))
        turns = [[i for i in everyone if colors[i] == color] for color in range(max(colors.values()) + 1)]
    ready, heard = dict.fromkeys(everyone, begin), dict.fromkeys(everyone, begin)
    unread = dict.fromkeys(everyone, 0)
    waiting, ends, number, total = [], [], 0, 0

    def last():
        return max(*ready.values(), *heard.values())

    opening = list(range(n)) if world.is_star else everyone
    for t in range(world.rounds + 1):
        for i in everyone:
            if t and is_idle(i, t - 1) and not is_idle(i, t):
                ready[i] = last()
        for turn, actors in enumerate(turns if t else [opening]):
            if world.kind != "colored":
                now = last()
                ready, heard = dict.fromkeys(everyone, now), dict.fromkeys(everyone, now)
            actors = [i for i in actors if not is_idle(i, t)]
            assert not any(is_idle(i, t) for (x, i) in said if x == number)
            for i in actors:
                ready[i] = max(ready[i], heard[i]) + operations(i, unread) / speed[i]
            for i in actors:
                unread[i] = 0
            sent = [(i, j) for i, j in links if i in actors or (number, i) in said]
            size = {(i, j): said.get((number, i), 0) * row_bytes(i) for i, j in sent}
            total += sum(size.values())
            fates = {(i, j): fate(i, j, t, turn) for i, j in sent}
            load = {
                device: sum(size[i, j] for i, j in sent if i == device or (j == device and fates[i, j] == 0))
                for device in everyone
            }
            done = dict(ready)
            for i, j in sent:
                seconds = max(size[i, j] / bandwidth[i, j], load[i] / access[i])
                if fates[i, j] == 0:
                    seconds = max(seconds, load[j] / access[j])
                left = done[i] + seconds
                ready[i] = max(ready[i], left)
                if fates[i, j] == 0:
                    heard[j] = max(heard[j], left + latency[i, j])
                    unread[j] += said.get((number, i), 0)
                elif fates[i, j] is not None and (number, i) in said:
                    waiting.append((t + fates[i, j], turn, j, left + latency[i, j], said[number, i]))
            for message in [message for message in waiting if message[:2] <= (t, turn)]:
                waiting.remove(message)
                _, _, j, arrival, rows = message
                if not happens("away", t, device=j):
                    heard[j] = max(heard[j], arrival)
                    unread[j] += rows
            number += 1
        ends.append(last())
    return ends, total


@pytest.mark.filterwarnings("ignore:.* devices with points ended without centroids")
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=() if seed < 24 else pytest.mark.slow) for seed in range(200)]
)
@pytest.mark.sample(5)
def test_times_are_those_of_single_messages(seed, tmp_path):
    world = draw_world(seed)
    result = run_world(world, tmp_path)
    name = result.rounds[-1]["stage"]
    ends, total = follow(world, result)
    assert [record["virtual_seconds"] for record in result.rounds if record["stage"] == name] == ends
    assert result.summary["virtual_seconds"] == ends[-1]
    own = [record["bytes"] for record in result.rounds if record["stage"] != name]
    assert total == result.summary["bytes"] - (own[-1] if own else 0)


FAULTS = "loss=0.1,delay=0.3,link_failure=0.1,dropout=0.1,late_join=0.2,straggler=0.1,server=0.1"
METHODS = {
    "colored": (p2pkm.GTVMin(3, init="local"), topologies.ring(8), {"faults": FAULTS + ",stages=all"}),
    "flooded": (p2pkm.GTVMin(3, schedule="jacobi"), topologies.small_world(8, seed=1), {"faults": FAULTS}),
    "changing links": (p2pkm.PushSumLloyd(3), topologies.one_peer_exponential(8), {"faults": FAULTS}),
    "changing links, asynchronous": (
        p2pkm.GTVMin(3, schedule="async"),
        topologies.one_peer_exponential(8),
        {"faults": FAULTS},
    ),
    "tree": (p2pkm.TreeLloyd(3), topologies.ring(8), {"faults": "dropout=0.2,straggler=0.1"}),
    "server": (p2pkm.FKM(3), None, {"faults": FAULTS, "stale_policy": "drop"}),
    "compressed": (p2pkm.GTVMin(3), topologies.ring(8), {"faults": FAULTS, "compress": "topk:share=0.3"}),
    "scaled": (p2pkm.GossipMatching(3), topologies.ring(8), {"faults": FAULTS, "scale": "minmax"}),
}


@pytest.mark.filterwarnings("ignore:.* devices with points ended without centroids")
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.sample(3)
def test_the_clock_only_measures(name):
    """Bits and messages are those of a run without a clock."""
    method, graph, options = METHODS[name]

    def run(**other):
        return p2pkm.simulate(method, graph, deal(8), rounds=5, baselines=False, **(options | other))

    timed, plain = run(link_model="wan"), run()
    for key in ("chain_sha256", "messages", "bytes", "messages_lost", "unavailable_fraction", "rounds", "termination"):
        assert timed.summary[key] == plain.summary[key], key
    ends = [record["virtual_seconds"] for record in timed.rounds]
    assert ends == sorted(ends) and ends[-1] > 0 and plain.summary["virtual_seconds"] is None


def test_faults_that_hit_nobody_take_no_time():
    method, graph = p2pkm.GTVMin(3, schedule="jacobi", init="local", relaxation=1.0, coupling=1.0), topologies.ring(8)
    seconds = [
        p2pkm.simulate(method, graph, deal(8), rounds=5, baselines=False, link_model="wan", faults=faults).summary[
            "virtual_seconds"
        ]
        for faults in (None, "dropout=1e-300,loss=1e-300,delay=1e-300")
    ]
    assert seconds[0] == seconds[1] > 0


def test_a_turn_takes_the_time_of_those_who_are_online(tmp_path):
    """Device 3 needs 100 times as long as the others, and is away in rounds 2 and 3."""
    graph = topologies.ring(5)
    graph.nodes[3]["speed"] = 0.01
    (tmp_path / "t.jsonl").write_text('{"kind": "away", "round": 2, "device": 3, "rounds": 2}')
    points = p2pkm.Shards.from_list([np.random.default_rng(i).normal(size=(4, 2)) for i in range(5)])
    result = p2pkm.simulate(
        p2pkm.GTVMin(2, schedule="jacobi"), graph, points, start=np.broadcast_to([[[0.0], [1.0]]], (5, 2, 2)), rounds=5,
        all_rounds=True, baselines=False, faults=str(tmp_path / "t.jsonl"),
        link_model="lan:latency=0,access=none,speed=1",
    )  # fmt: skip
    seconds = np.diff([record["virtual_seconds"] for record in result.rounds], prepend=0.0)
    operations = 2 * (8 * 4 + 3 * 4 * 2)
    assert seconds.tolist() == pytest.approx([100 * operations] * 2 + [operations] * 2 + [100 * operations] * 2)


def test_nobody_waits_for_a_delayed_table_until_the_round_that_uses_it(tmp_path):
    """The link 0 - 1 takes 100 s, the other 1 s. A table of round 1 is used in round 3, 100 s after round 1 began."""
    graph = nx.Graph([(0, 1, {"latency": 100.0}), (1, 2, {"latency": 1.0})])
    events = [{"kind": "delay", "round": 1, "src": 0, "dst": 1, "rounds": 2}]
    events += [{"kind": "loss", "round": t, "src": 0, "dst": 1} for t in (2, 3)]
    events += [{"kind": "loss", "round": t, "src": 1, "dst": 0} for t in (1, 2, 3)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    points = p2pkm.Shards.from_list([np.random.default_rng(i).normal(size=(4, 2)) for i in range(3)])
    result = p2pkm.simulate(
        p2pkm.GTVMin(2, schedule="jacobi"), graph, points, start=np.broadcast_to([[[0.0], [1.0]]], (3, 2, 2)), rounds=4,
        all_rounds=True, baselines=False, faults=str(tmp_path / "t.jsonl"),
        link_model="lan:bandwidth=none,access=none,speed=1e30",
    )  # fmt: skip
    seconds = np.diff([record["virtual_seconds"] for record in result.rounds])
    assert seconds.tolist() == pytest.approx([1, 1, 98, 100])


def test_further_link_models_take_the_faults_into_account(tmp_path):
    """Column `seconds_wan` of a study is the simulated time of a run on this link model."""
    common = {"graph": "ring", "devices": 6, "data": "grid16:points=5", "rounds": 4, "clusters": 4,
              "faults": "dropout=0.3,loss=0.2,delay=0.3"}  # fmt: skip
    rows = p2pkm.study(
        grid={"algorithm": ["gtvmin", "pushsum"]}, seeds=[0], link_models=["wan"], progress=False, **common
    ).rows
    for row in rows:
        alone = here(
            *"--graph ring --devices 6 --data grid16:points=5 --rounds 4 -k 4 --out none -q --format json".split(),
            "--faults", common["faults"], "--link-model", "wan", "--algorithm", row["algorithm"],
        )  # fmt: skip
        assert row["seconds_wan"] == alone.summary["virtual_seconds"]


@pytest.mark.mpi
def test_three_ranks_find_the_same_seconds():
    common = "--graph small-world:degree=4,rewire=0.2 --devices 9 --data grid16:points=5 --rounds 6 --out none".split()
    common += ["--faults", f"{FAULTS},stages=all", "--link-model", "lora", "--format", "json", "-q"]
    alone, together = here(*common).summary, there(*ranks(3), "-m", "p2pkm", *common).summary
    assert together["ranks"] == 3 and alone["chain_sha256"] == together["chain_sha256"]
    assert alone["virtual_seconds"] == together["virtual_seconds"] > 1.0
