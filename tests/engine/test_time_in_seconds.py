"""Runs under a trace in seconds, against a simulation of single messages in dictionaries on random small worlds."""

import json
from dataclasses import dataclass

import networkx as nx
import numpy as np
import pytest

import p2pkm
from p2pkm.channel.timed_faults import TimedFaults
from p2pkm.network.graph import Topology
from tests.support.resume import difference, keep_all, resume
from tests.support.run_cli import here, on_ranks

K, D = 2, 2
LATENCY, BANDWIDTH, ACCESS, SPEED = 0.25, 64.0, 48.0, 5.0
KINDS = ("jacobi", "colored", "average", "server")


@dataclass
class World:
    """Run on a random graph: a trace in seconds, and what the run sent."""

    seed: int
    kind: str
    graph: nx.Graph
    sizes: list[int]
    lines: list[dict]
    every: float
    rounds: int

    @property
    def n(self):
        return len(self.sizes)


def draw_world(seed):
    """Draw a world: half of the numbers are coarse, so that many times are equal. Lost messages: none or all."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    kind = KINDS[seed % 4]
    graph = nx.gnp_random_graph(n, 0.6, seed=seed) if kind != "server" else nx.star_graph([n, *range(n)])
    ends = [(i, j) for u, v in graph.edges for i, j in ((u, v), (v, u))]
    lines, taken = [], set()
    for seconds in sorted(float(rng.choice([0.0, 300.0, 600 * rng.random()])) for _ in range(int(rng.integers(1, 30)))):
        line = {"seconds": seconds}
        if rng.random() < 0.7 or not ends:
            line |= {"kind": "device", "device": int(rng.integers(len(graph)))}
            values = {"online": bool(rng.random() < 0.4), "speed": float(rng.choice([1.0, 7.0, 50.0])), "access": 16.0}
        else:
            i, j = ends[int(rng.integers(len(ends)))]
            line |= {"kind": "link", "src": int(i), "dst": int(j)}
            values = {"latency": float(rng.choice([0.0, 9.0])), "bandwidth": 8.0, "loss": float(rng.random() < 0.4)}
        if (place := tuple(line.values())) not in taken:
            taken.add(place)
            kept = [name for name in values if rng.random() < 0.6] or list(values)[:1]
            lines.append(line | {name: values[name] for name in kept})
    every = float(rng.choice([0.0, 0.0, 40.0, 1000 * rng.random()]))
    return World(
        seed, kind, graph, [int(size) for size in rng.integers(1, 6, n)], lines, every, int(rng.integers(2, 9))
    )


def run_world(world, tmp_path, **options):
    rng = np.random.default_rng(world.seed)
    points = [rng.normal(size=(size, D)) for size in world.sizes]
    head = {"kind": "trace", "devices": world.n, "every": world.every}
    lines = [head, *world.lines]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    method = {
        "jacobi": lambda: p2pkm.GTVMin(K, schedule="jacobi", relaxation=1.0, coupling=1.0),
        "colored": lambda: p2pkm.GTVMin(K, schedule="colored", relaxation=1.0, coupling=1.0),
        "average": lambda: p2pkm.ConsensusLloyd(K, gossips=3),
        "server": lambda: p2pkm.FKM(K),
    }[world.kind]()
    if world.kind != "server":
        options["start"] = np.broadcast_to(rng.normal(size=(K, D)), (world.n, K, D))
    options["faults"] = str(tmp_path / "t.jsonl")
    return p2pkm.simulate(
        method, None if world.kind == "server" else world.graph, p2pkm.Shards.from_list(points),
        link_model=f"lan:latency={LATENCY},bandwidth={BANDWIDTH},access={ACCESS},speed={SPEED}",
        rounds=world.rounds, all_rounds=True, baselines=False, allow_disconnected=True, record_every=1, **options,
    )  # fmt: skip


def follow(world, result):
    """Return the end of each round of the method, its start since that of the method, who was offline, and losses."""
    n, is_star = world.n, world.kind == "server"
    everyone = sorted(world.graph)
    links = [(i, j) for u, v in world.graph.edges for i, j in ((u, v), (v, u))]
    stage = result.ledger.stage.max(initial=0)
    said = {
        (int(turn), int(sender)): int(rows)
        for s, turn, sender, rows in zip(*result.ledger[5:9], strict=True)
        if s == stage
    }
    before = [record for record in result.rounds if record["stage"] != result.rounds[-1]["stage"]]
    begin = before[-1]["virtual_seconds"] if before else 0.0

    def hold(name, usual, seconds, **place):
        value = usual
        for line in world.lines:
            if line["seconds"] <= seconds and name in line and all(line.get(key) == place[key] for key in place):
                value = line[name]
        return value

    def operations(i, unread):
        if is_star and i == n:
            return 20 * unread[i] * (3 * K + 2) * D
        own = (3 * K + 2) * world.sizes[i]
        return D * (own + 3 * K**2 * world.graph.degree[i]) if world.kind in ("jacobi", "colored") else own * D

    def row_bytes(i):
        if is_star:
            return 8 * (D + 1) if i < n else 8 * D
        return 8 * (D + 1) if world.kind == "average" else 8 * D

    turns = [everyone] * (3 if world.kind == "average" else 1)
    if is_star:
        turns = [[n], list(range(n))]
    elif world.kind == "colored":
        colors = dict(enumerate(Topology.from_graph(world.graph).colors.tolist()))
        turns = [[i for i in everyone if colors[i] == color] for color in range(max(colors.values()) + 1)]
    unread = dict.fromkeys(everyone, 0)
    ends, starts, offline, lost, number, elapsed = [], [], [], 0, 0, 0.0
    for t in range(world.rounds + 1):
        start = starts[-1] + max(elapsed, world.every) if t else 0.0
        if t and not world.every:
            later = [start, *(line["seconds"] for line in world.lines if line["seconds"] > start)]
            some = (s for s in later if any(hold("online", True, s, device=i) for i in range(n)))
            start = next(some, start)
        starts.append(start)
        away = [i for i in everyone if not hold("online", True, start, device=i)]
        offline.append(away)
        ready, heard = dict.fromkeys(everyone, 0.0), dict.fromkeys(everyone, 0.0)
        for actors in turns if t else [list(range(n)) if is_star else everyone]:
            if world.kind != "colored":
                now = max(*ready.values(), *heard.values())
                ready, heard = dict.fromkeys(everyone, now), dict.fromkeys(everyone, now)
            actors = [i for i in actors if i not in away]
            assert not any(i in away for turn, i in said if turn == number)
            for i in actors:
                speed = hold("speed", SPEED, start, device=i)
                ready[i] = max(ready[i], heard[i]) + operations(i, unread) / speed
                unread[i] = 0
            sent = [(i, j) for i, j in links if i in actors or (number, i) in said]
            size = {(i, j): said.get((number, i), 0) * row_bytes(i) for i, j in sent}
            arrives = {(i, j): j not in away and not hold("loss", 0, start, src=i, dst=j) for i, j in sent}
            load = {
                device: sum(size[i, j] for i, j in sent if i == device or (j == device and arrives[i, j]))
                for device in everyone
            }
            access = {i: hold("access", ACCESS, start, device=i) for i in everyone}
            done = dict(ready)
            for i, j in sent:
                seconds = max(size[i, j] / hold("bandwidth", BANDWIDTH, start, src=i, dst=j), load[i] / access[i])
                if arrives[i, j]:
                    seconds = max(seconds, load[j] / access[j])
                left = done[i] + seconds
                ready[i] = max(ready[i], left)
                if arrives[i, j]:
                    heard[j] = max(heard[j], left + hold("latency", LATENCY, start, src=i, dst=j))
                    unread[j] += said.get((number, i), 0)
                elif (number, i) in said:
                    lost += 1
            number += 1
        elapsed = max(*ready.values(), *heard.values())
        ends.append((begin + start) + elapsed)
    return ends, starts, offline, lost


@pytest.mark.filterwarnings("ignore:.* devices with points ended without centroids")
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=() if seed < 24 else pytest.mark.slow) for seed in range(200)]
)
def test_times_and_availability_are_those_of_single_messages(seed, tmp_path, monkeypatch):
    """Every round has the same start in the run, on its clock, and on the clock of the ledger."""
    world = draw_world(seed)
    told = []
    begin = TimedFaults.begin

    def observe(faults, t):
        told.append((t, faults.second))
        return begin(faults, t)

    monkeypatch.setattr(TimedFaults, "begin", observe)
    result = run_world(world, tmp_path)
    name = result.rounds[-1]["stage"]
    ends, starts, offline, lost = follow(world, result)
    assert [record["virtual_seconds"] for record in result.rounds if record["stage"] == name] == ends
    assert result.summary["virtual_seconds"] == ends[-1]
    assert sorted(told) == sorted([(t, start) for t, start in enumerate(starts) for _ in range(3)])
    away = sum(sum(i < world.n for i in devices) for devices in offline[1:])
    assert result.summary["unavailable_fraction"] == away / (world.rounds * world.n)
    assert result.summary["messages_lost"] == lost


def test_the_worlds_are_not_trivial():
    worlds = [draw_world(seed) for seed in range(24)]
    kinds = {name for world in worlds for line in world.lines for name in line}
    assert kinds >= {"online", "speed", "access", "latency", "bandwidth", "loss"}
    assert {world.every > 0 for world in worlds} == {True, False}


WEEK = [
    {"kind": "device", "seconds": 0, "device": 2, "online": False, "speed": 2e5},
    {"kind": "device", "seconds": 0, "device": 4, "speed": 1e5},
    {"kind": "link", "seconds": 0, "src": 0, "dst": 1, "latency": 0.3, "loss": 0.3},
    {"kind": "device", "seconds": 0.4, "device": 2, "online": True},
    {"kind": "device", "seconds": 0.4, "device": 5, "online": False},
    {"kind": "device", "seconds": 0.9, "device": 5, "online": True},
    {"kind": "device", "seconds": 0.9, "device": 0, "online": False},
    {"kind": "device", "seconds": 1.5, "device": 0, "online": True},
]
RUNS = {
    "colored": ("--graph", "ring", "--algorithm", "gtvmin"),
    "turns": ("--graph", "ring", "--algorithm", "consensus:gossips=2", "--scale", "minmax"),
    "server": ("--algorithm", "fkm", "--deadline", "0.16"),
    "asked": ("--algorithm", "dwfkm", "--client-share", "0.5:by=availability"),
}


def list_words(name, tmp_path, lines=WEEK):
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return (
        *RUNS[name], "--devices", "6", "--data", "grid16:points=5", "-k", "4", "--rounds", "9", "--all-rounds", "-q",
        "--no-plot", "--faults", tmp_path / "t.jsonl", "--link-model", "wan:latency=0.05,speed=1e6",
    )  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_run_goes_on_in_the_middle_of_an_outage(name, tmp_path, monkeypatch):
    words = (*list_words(name, tmp_path), "--record-every", 1, "--checkpoint-every", 1, "--out", tmp_path / "run")
    with monkeypatch.context() as patched:
        keep_all(patched, tmp_path / "run", tmp_path / "copies")
        assert here(*words).code in {0, 7}
    copies = sorted((tmp_path / "copies").iterdir())
    assert len(copies) >= 9
    # The last one has no round left in which the trace is asked; notes of a run tell how far it was read.
    assert [note for note in p2pkm.load(tmp_path / "run").notes if "fault trace" in note], name
    for copy in {*copies[1::2], copies[-1]}:
        assert difference(tmp_path / "run", resume(copy)) == ""
    assert here("verify", tmp_path / "run").code == 0
    unavailable = json.loads((tmp_path / "run" / "summary.json").read_text())["unavailable_fraction"]
    assert 0 < unavailable < 0.5


@pytest.mark.mpi
def test_three_ranks_find_the_same_devices_online(tmp_path):
    commands = [(*list_words(name, tmp_path), "--out", "none", "--format", "json") for name in RUNS]
    keys = ("chain_sha256", "virtual_seconds", "messages", "messages_lost", "wire_bytes", "unavailable_fraction")
    for words, ending in zip(commands, on_ranks(3, commands), strict=True):
        alone, together = here(*words).summary, ending.summary
        assert together["ranks"] == 3 and alone["unavailable_fraction"] > 0
        for key in keys:
            assert alone[key] == together[key], (key, words)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_another_trace_is_another_run(tmp_path, monkeypatch):
    words = list_words("colored", tmp_path)
    with monkeypatch.context() as patched:
        keep_all(patched, tmp_path / "run", tmp_path / "copies")
        assert here(*words, "--checkpoint-every", 1, "--out", tmp_path / "run").code == 0
    copy = sorted((tmp_path / "copies").iterdir())[2]
    list_words("colored", tmp_path, WEEK[:-1])
    ending = here("resume", copy)
    assert ending.code == 3 and "differs from that of the original run" in ending.err
    list_words("colored", tmp_path, [{**WEEK[0], "online": 3}])
    ending = here(*words, "--out", "none")
    assert ending.code == 2 and "t.jsonl, line 1: online is 3" in ending.err


def test_a_trace_in_which_nothing_happens_changes_no_result(tmp_path):
    """The results are those of the method that tolerates faults, and the values of the link model hold."""
    (tmp_path / "t.jsonl").write_text('{"kind": "device", "seconds": 1e9, "device": 0, "online": false}')
    shards = p2pkm.Shards.from_list([np.random.default_rng(i).normal(size=(6, 2)) for i in range(5)])
    found = [
        p2pkm.simulate(
            p2pkm.GTVMin(2, schedule="jacobi"), nx.cycle_graph(5), shards, rounds=6, link_model="wan", faults=faults
        ).summary
        for faults in (str(tmp_path / "t.jsonl"), "dropout=1e-300,loss=1e-300")
    ]
    assert found[0]["chain_sha256"] == found[1]["chain_sha256"]
    assert found[0]["virtual_seconds"] == pytest.approx(found[1]["virtual_seconds"])


def test_further_link_models_have_the_same_messages_and_the_values_of_the_trace(tmp_path):
    """A clock of a further link model that is equal to the first one finds its seconds."""
    for every in (0.0, 0.7):
        lines = [{"kind": "trace", "every": every}, *WEEK]
        words = list_words("colored", tmp_path, lines)
        row = p2pkm.study(
            grid={"algorithm": ["gtvmin"]}, seeds=[0], link_models=["wan"], progress=False, graph="ring", devices=6,
            data="grid16:points=5", clusters=4, rounds=9, faults=str(tmp_path / "t.jsonl"), link_model="wan",
        ).rows[0]  # fmt: skip
        assert row["seconds_wan"] == pytest.approx(row["virtual_seconds"], rel=1e-12)
        assert words


def test_stages_before_the_method_have_the_values_of_second_0(tmp_path):
    seconds = []
    for speed in (1e6, 1e3):
        line = {"kind": "device", "seconds": 0, "device": 1, "speed": speed}
        words = list_words("colored", tmp_path, [line])
        here(*words, "--out", tmp_path / f"run-{speed:g}")
        records = [json.loads(text) for text in (tmp_path / f"run-{speed:g}" / "rounds.jsonl").read_text().splitlines()]
        seconds.append(records[0]["virtual_seconds"])
    assert seconds[1] > 10 * seconds[0]


def note_of_trace(tmp_path, text, rounds, **more):
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    result = p2pkm.simulate(
        p2pkm.GTVMin(3, coupling=1), "ring", "blobs:clusters=3,points=20", devices=4, rounds=rounds, all_rounds=True,
        faults=str(path), progress=False, **more,
    )  # fmt: skip
    (note,) = [note for note in result.notes if "fault trace" in note] or [""]
    return note


@pytest.mark.parametrize(
    ("rounds", "said"),
    [
        (5, "the last round began at 400 s, but the fault trace lasts until 1,500 s; its later part, 2 of 4 values, "
            "was not reached"),
        (16, ""),
        (17, ""),
        (21, "the fault trace ends at 1,500 s, but the last round began at 2,000 s; from its end on all values stayed "
             "as they were, with 1 of 4 devices offline"),
    ],
)  # fmt: skip
def test_a_run_that_is_much_shorter_or_longer_than_its_trace_says_so(rounds, said, tmp_path):
    lines = [
        {"kind": "trace", "devices": 4, "every": 100.0},
        {"kind": "device", "seconds": 0, "device": 0, "online": False},
        {"kind": "device", "seconds": 400, "device": 0, "online": True},
        {"kind": "device", "seconds": 1000, "device": 2, "online": False},
        {"kind": "device", "seconds": 1500, "device": 2, "speed": 1e8},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    # Round 1 begins at 100 s, round 0 is the initial exchange.
    assert note_of_trace(tmp_path, text, rounds - 1, link_model="edge") == said


@pytest.mark.parametrize(
    ("rounds", "said"),
    [
        (5, "the run ended with round 5, but the fault trace lasts until round 10; its later part, 1 of 2 events, was "
            "not reached"),
        (8, ""),
        (11, ""),
        (12, "the fault trace ends with round 10: nothing failed in the 2 rounds after it"),
    ],
)  # fmt: skip
def test_the_same_of_a_trace_by_rounds(rounds, said, tmp_path):
    text = '{"kind": "loss", "round": 2, "src": 0, "dst": 1}\n{"kind": "away", "round": 8, "device": 0, "rounds": 3}\n'
    assert note_of_trace(tmp_path, text, rounds) == said
