"""Runs of many kinds, as lines of JSON on rank 0; started by mpirun, and imported for the same runs in one process.

mpirun -n 3 python tests/support/programs/determinism.py runs
mpirun -n 16 python tests/support/programs/determinism.py 'runs 1 4; messages'
mpirun -n 8 python tests/support/programs/determinism.py few
mpirun -n 3 python tests/support/programs/determinism.py messages
"""

import hashlib
import json
import sys
import warnings
from itertools import islice
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import p2pkm
import topologies
from p2pkm.core.messages import DenseMessages, SparseMessages, Tables
from p2pkm.methods.init.pipelines import needs_hub
from p2pkm.methods.registry import find
from p2pkm.network.delay_model import ReceivedTables
from p2pkm.network.halo import place
from p2pkm.network.local import LocalNetwork
from p2pkm.network.rank_partition import RankPartition
from p2pkm.network.world import connect
from tests.support.methods import METHODS, build

GRAPHS = {
    "ring": topologies.ring,
    "star": topologies.star,
    "complete": topologies.complete,
    "small-world": lambda n: topologies.small_world(n, degree=4, rewire=0.2, seed=1),
}
CHANGING = {
    "one peer": lambda: topologies.one_peer_exponential(16),
    "peer sampler": lambda: topologies.peer_sampler(16, period=3, seed=2),
    "flaky ring": lambda: topologies.edge_markov(16, over="ring", on=0.5, seed=2),
}
SCHEDULES, SEEDINGS = ("jacobi", "colored", "async"), ("bounding-box", "leader", "flooded-summaries")
KEYS = (
    "centroids_sha256",
    "chain_sha256",
    "messages",
    "bytes",
    "termination",
    "rounds",
    "rounds_before",
    "distance_left",
    "objective",
    "ratio_mean",
    "ari",
    "ari_clients",
    "rows_at_server",
    "loss_local",
    "loss_global",
    "groups",
    "virtual_seconds",
    "age_mean",
    "age_max",
    "messages_lost",
    "unavailable_fraction",
    "messages_rejected",
    "raw_points_disclosed",
    "max_peers_observed",
)


def deal(n, seed=0, d=3):
    """Generate points of n devices, with classes; every fourth device has none."""
    rng = np.random.default_rng(seed)
    blocks = [rng.normal(rng.integers(0, 9), 1.0, (0 if i % 4 == 2 else int(rng.integers(1, 9)), d)) for i in range(n)]
    return p2pkm.Shards.from_list(blocks, labels=[rng.integers(0, 3, len(block)) for block in blocks])


def communities():
    """Generate the points of two communities."""
    made = p2pkm.communities(seed=1, points=12)
    return p2pkm.Shards.deal(made.points, made.device, devices=16, labels=made.labels)


def in_parts():
    """Generate five components, whose devices alternate, and in which different couplings are chosen."""
    rng = np.random.default_rng(0)
    centers = rng.normal(0.0, 8.0, (3, 2))
    blocks, graph = [], topologies.ring(32)
    graph.remove_edges_from(list(graph.edges))
    graph.add_edges_from((i, i + 3) for i in range(27))
    graph.add_edges_from((i, i + 6) for i in range(24))
    for i in range(32):
        # Centers differ in the first component, shares in the second; in the third neither.
        shares = rng.dirichlet(np.full(3, 0.3 if i % 3 == 1 else 50.0))
        own = centers + (i % 3 == 0) * rng.normal(0.0, 1.5, (3, 2))
        blocks.append(own[rng.choice(3, 24, p=shares)] + rng.normal(size=(24, 2)))
    return graph, p2pkm.Shards.from_list(blocks, labels=[rng.integers(0, 3, 24) for _ in blocks])


def configurations():
    """List (name, graph, shards, algorithm, options) of all runs."""
    brief, few = {"rounds": 3, "baselines": False}, {"rounds": 4, "baselines": True}
    for number, graph in enumerate(GRAPHS):
        for turn, schedule in enumerate(SCHEDULES):
            # Every pair of graph, schedule and initialization; tests/contract/test_pairs.py has those of all of them.
            seeding = SEEDINGS[(number + turn) % len(SEEDINGS)]
            algorithm = p2pkm.GTVMin(3, schedule=schedule, init=seeding)
            yield f"{graph} {schedule} {seeding}", GRAPHS[graph](16), deal(16), algorithm, brief
    for name, graph, shards, options in (
        ("ring global", GRAPHS["ring"](16), deal(16), {}),
        ("ring groups", GRAPHS["ring"](16), deal(16), {"groups": True}),
        (
            "groups async",
            topologies.communities(16, bridges=4),
            communities(),
            {"groups": True, "schedule": "async"},
        ),
        ("swaps", GRAPHS["ring"](16), deal(16), {"init": "local", "swaps": True}),
        ("groups swap", topologies.communities(16), communities(), {"groups": True, "swaps": True}),
        ("ring hops", GRAPHS["ring"](16), deal(16), {"init": "flooded-summaries:hops=2,candidates=2"}),
        (
            "small world rooted",
            GRAPHS["small-world"](16),
            deal(16),
            {"init": "tree-summaries:candidates=3", "coupling": 10},
        ),
        ("ring of 48 rooted", GRAPHS["ring"](48), deal(48, 6), {"init": "tree-summaries:candidates=3,rows=60"}),
        ("grid rooted", topologies.grid(49), deal(49, 6), {"init": "tree-summaries:rows=60"}),
        ("ring own passes", GRAPHS["ring"](16), deal(16), {"init": "local", "local_steps": 2, "relaxation": 0.7}),
        ("ring optimal", GRAPHS["ring"](16), deal(16), {"matching": "optimal", "normalize_losses": True}),
        ("ring guarded", GRAPHS["ring"](16), deal(16), {"schedule": "jacobi", "local_steps": 3, "safeguard": True}),
        ("strong", GRAPHS["small-world"](16), deal(16), {"coupling": "strong", "relaxation": "auto"}),
        ("differences", GRAPHS["small-world"](16), deal(16), {"coupling": "bayes"}),
        ("weights of links", GRAPHS["ring"](48), deal(48, 6), {"coupling": "links"}),
        ("shares", GRAPHS["small-world"](16), deal(16), {"coupling": "links", "shares": True}),
        ("choice", GRAPHS["small-world"](16), deal(16), {"coupling": "auto"}),
        ("choice of 5", topologies.path(5), deal(5, 1), {"coupling": "auto"}),
        ("path of 5", topologies.path(5), deal(5, 1), {"coupling": 3.0}),
        ("star of 5", topologies.star(5), deal(5, 2), {"schedule": "async", "init": "leader"}),
        ("small world of 40", GRAPHS["small-world"](40), deal(40, 3), {"alpha": 1.0}),
    ):
        yield name, graph, shards, p2pkm.GTVMin(3, **options), few
    apart = topologies.ring(16)
    apart.remove_edges_from([(0, 1), (7, 8), (11, 12), (13, 14)])
    for seeding in (*SEEDINGS, "tree-summaries:candidates=2,rows=60"):
        options = few | {"allow_disconnected": True}
        yield f"in parts {seeding}", apart, deal(16, 4), p2pkm.GTVMin(3, init=seeding), options
    yield "strong in parts", apart, deal(16, 4), p2pkm.GTVMin(3, coupling="strong"), options
    yield "choices in parts", *in_parts(), p2pkm.GTVMin(3), few | {"rounds": 9, "allow_disconnected": True}
    links = p2pkm.GTVMin(3, coupling="links")
    yield "links in parts", *in_parts(), links, few | {"allow_disconnected": True, "quantize": "rice"}
    for name in [name for name in METHODS if name != "gtvmin" and not needs_hub(find(name)(3))]:
        yield f"{name} small world", GRAPHS["small-world"](16), deal(16, 7), build(name, 3), few
        yield f"{name} star of 5", topologies.star(5), deal(5, 8), build(name, 3), few
    yield from over_changing_links(few)
    events = p2pkm.GTVMin(3, schedule="async")
    yield "by events", uneven(GRAPHS["small-world"](16)), deal(16), events, brief | {"rounds": 12}
    yield from under_faults(few | {"link_model": None})
    yield from with_streams(few)
    yield "coreset over a tree", GRAPHS["small-world"](16), deal(16, 9), p2pkm.Coreset(3, size=9, spread="tree"), few
    masked = p2pkm.Private(3, epsilon=20.0, radius=30.0, noise_seed=0)
    yield "private behind masks", GRAPHS["ring"](16), deal(16, 7), masked, few
    breathing = p2pkm.TreeLloyd(3, search="breathing", init="leader")
    yield "breathing along a tree", GRAPHS["small-world"](16), deal(16, 9), breathing, few | {"rounds": 16}
    ranges = few | {"scale": {"": (-10.0, 20.0)}}
    yield "public ranges", GRAPHS["small-world"](16), deal(16), p2pkm.GTVMin(3), ranges
    apart = topologies.ring(16)
    apart.remove_edges_from([(0, 1), (7, 8)])
    yield "breathing in parts", apart, deal(16, 4), breathing, few | {"rounds": 16, "allow_disconnected": True}
    yield from with_liars(few)
    yield "kfed with induced labels", None, deal(5, 11), p2pkm.KFED(3, labels="induced"), few
    for number, name in enumerate(name for name in METHODS if needs_hub(find(name)(3))):
        yield f"{name} of 16", None, deal(16, 5), build(name, 3), few
        yield f"{name} of 2", None, deal(2, 20 + number), build(name, 3), few


def uneven(graph):
    """Make some links and devices much slower than others."""
    rng = np.random.default_rng(3)
    for u, v in graph.edges:
        graph.edges[u, v].update(latency=float(rng.choice([0.0, 0.01, 3.0])), bandwidth=float(rng.choice([10.0, 1e4])))
    for i in graph:
        graph.nodes[i].update(speed=float(rng.choice([30.0, 3e3, 1e6])), access=float(rng.choice([50.0, 1e5])))
    return graph


def with_liars(options):
    """List the runs with Byzantine devices."""
    world, kinds = GRAPHS["small-world"](16), ("random", "flip", "drift", "nan", "collude")
    for number, kind in enumerate(kinds):
        lies = options | {"byzantine": f"3:kind={kind},place={('random', 'central', 'peripheral')[number % 3]}"}
        everywhere = options | {"byzantine": f"3:kind={kind},by=betweenness,stages=all"}
        yield f"{kind} gtvmin", world, deal(16, 5), p2pkm.GTVMin(3), lies
        yield f"{kind} everywhere", world, deal(16, 5), p2pkm.GTVMin(3), everywhere
        served = ("fkm", "feca")[number % 2]
        yield f"{kind} {served}", None, deal(16, 5), find(served)(3), lies
    for name, kind in (("pushsum", "drift"), ("gossip", "nan")):
        yield f"{kind} {name}", world, deal(16, 5), find(name)(3), options | {"byzantine": f"3:kind={kind}"}
    for rule in ("clip", "trim", "saturate"):
        yield f"{rule} among liars", world, deal(16, 5), p2pkm.GTVMin(3, robust=rule), options | {"byzantine": "2"}
    for name in ("gtvmin", "consensus", "gossip"):
        yield f"{name} withholds", world, deal(16, 5), find(name)(3), options | {"min_cluster_size": 3}
    yield "fkm withholds", None, deal(16, 5), find("fkm")(3), options | {"min_cluster_size": 3}
    yield "trimmed server", None, deal(16, 5), p2pkm.FKM(3, robust="trim"), options | {"byzantine": "3:kind=drift"}
    yield "lies in groups", world, deal(16, 5), p2pkm.GTVMin(3, groups=True), everywhere
    yield "lies to a leader", world, deal(16, 5), p2pkm.GTVMin(3, init="leader"), everywhere


def over_changing_links(options):
    """List the runs on time-varying graphs."""
    methods = {schedule: p2pkm.GTVMin(3, schedule=schedule) for schedule in SCHEDULES}
    methods |= {name: find(name)(3) for name in ("consensus", "pushsum", "tracking", "gossip")}
    methods |= {name: find(name)(3) for name in ("gossip-sum", "epidemic")}
    for kind in CHANGING:
        for name in methods:
            yield f"{kind} {name}", CHANGING[kind](), deal(16, 11), methods[name], options


STREAMED = {"rounds": 4, "baselines": True}


def with_streams(options):
    """List the runs with points that change during the run."""
    graph, tape = GRAPHS["small-world"], str(Path(__file__).with_name("tape3.jsonl"))
    yield (
        "stream along a tree",
        graph(16),
        deal(16, 9),
        p2pkm.TreeLloyd(3),
        options | {"stream": "drawn:kind=jump,at=3"},
    )
    yield "tape along a tree", graph(16), deal(16, 9), p2pkm.TreeLloyd(3), options | {"stream": tape}
    apart = topologies.ring(16)
    apart.remove_edges_from([(0, 1), (7, 8)])
    parts = options | {"stream": "drawn:kind=turn", "allow_disconnected": True}
    yield "stream in parts", apart, deal(16, 4), p2pkm.TreeLloyd(3), parts
    scaled = options | {"stream": tape, "scale": "standard"}
    for name in ("gtvmin", "consensus", "gossip"):
        yield f"tape {name}", graph(16), deal(16, 7), find(name)(3), scaled
    yield "stream fkm", None, deal(16, 5), find("fkm")(3), options | {"stream": "drawn:kind=slow"}


def under_faults(options):
    """List the runs with faults of messages, links and devices."""
    faults = "loss=0.1,delay=0.2,dropout=0.05,link_failure=0.05,straggler=0.05,late_join=0.2,partition=3-4,server=0.1"
    longer = options | {"rounds": 12, "faults": f"{faults},stages=all"}
    graph = GRAPHS["small-world"]
    yield "gtvmin under faults", graph(16), deal(16), p2pkm.GTVMin(3), longer
    yield "gtvmin dropping", graph(16), deal(16), p2pkm.GTVMin(3, schedule="async"), longer | {"stale_policy": "drop"}
    yield "pushsum under loss", graph(16), deal(16, 7), find("pushsum")(3), options | {"faults": "loss=0.3"}
    yield "tracking under faults", graph(16), deal(16, 7), find("tracking")(3), longer
    gone = options | {"rounds": 14, "faults": "dropout=0.03,dropout_length=3,straggler=0.02,late_join=0.2,join_by=3"}
    apart = topologies.ring(16)
    apart.remove_edges_from([(0, 1), (7, 8)])
    for name, more in (("plain", {}), ("groups", {"groups": 2}), ("breathing", {"search": "breathing"})):
        method = p2pkm.TreeLloyd(3, **more) if more.get("groups") else p2pkm.TreeLloyd(3, init="leader", **more)
        few = {"faults": "dropout=0.005,dropout_length=3,late_join=0.2,join_by=2"} if name == "breathing" else {}
        yield f"regrown tree {name}", graph(16), deal(16, 7), method, gone | few
    yield "regrown in parts", apart, deal(16, 4), p2pkm.TreeLloyd(3, init="leader"), gone | {"allow_disconnected": True}
    yield "flaky ring under faults", CHANGING["flaky ring"](), deal(16, 7), find("consensus")(3), longer
    yield "fkm under faults", None, deal(16, 5), find("fkm")(3), longer


def runs(made=None):
    """Run all configurations and return one record for each."""
    for name, graph, shards, algorithm, options in configurations() if made is None else made:
        with warnings.catch_warnings():
            # Faults leave some devices without centroids.
            warnings.filterwarnings("ignore", ".*ended without centroids")
            result = p2pkm.simulate(
                algorithm, graph, shards, seed=5, record_every=1, **{"link_model": "edge"} | options
            )
        ledger = [
            int(part.sum()) for part in (result.ledger.edge_rows, result.ledger.rows, result.ledger.rows_per_device)
        ]
        disclosed, census = result.disclosed.to_arrays(), result.census
        tables = (census.cluster_medians, census.pooled_medians, *disclosed.values())
        parts = (result.centroids, result.losses, result.gtv, *result.frames, *tables)
        seen = hashlib.sha256(b"".join(part.tobytes() for part in parts))
        yield {"name": name, "ledger": ledger, "seen": seen.hexdigest(), **{key: result.summary[key] for key in KEYS}}


def draw_messages(rng, n, e, kind):
    """Draw messages of all devices: some absent, empty or partly filled, perhaps over some edges only."""
    width, r = int(rng.integers(1, 5)), int(rng.integers(1, 6))
    values = rng.normal(size=(n, r, width))
    rows = rng.integers(0, r + 1, n)
    rows[rng.random(n) < rng.choice([0.0, 0.5])] = -1
    if kind == "late":
        return DenseMessages(values[:, :, :1].copy(), np.abs(rows))
    if kind == "selective":
        return DenseMessages(values, rows, edges=rng.random(e) < 0.5)
    return DenseMessages(values, rows, header=1 if kind == "ragged" else 0, ragged=kind == "ragged")


def draw_mask(rng, topology, share):
    """Draw the links in use, about this share of all, in both directions."""
    kept = rng.random((topology.n, topology.n)) < share
    low, high = np.minimum(topology.sources, topology.indices), np.maximum(topology.sources, topology.indices)
    return kept[low, high]


def part_of(messages, placement):
    """Select the messages of one rank; ragged tables are as long as its longest."""
    values, rows = messages.values[placement.ids], messages.rows[placement.ids]
    if messages.ragged:
        values = values[:, : max(1, rows.max(initial=0))].copy()
    return messages._replace(
        values=values, rows=rows, edges=None if messages.edges is None else messages.edges[placement.edges]
    )


def compare(here, whole, placement, widths):
    """Check that a rank receives what its devices receive in one process; `widths` are those of the last messages."""
    edges = placement.edges
    heard = whole.slots[edges]
    same = np.array_equal(here.fresh, whole.fresh[edges])
    blocks = np.where(heard >= 0, heard // placement.division.owner.size, 0)  # of older tables, where messages are late
    same &= np.array_equal(here.slots, np.where(heard >= 0, blocks * placement.slots + placement.senders, -1))
    for mine, theirs in zip(here.slots[heard >= 0], heard[heard >= 0], strict=True):
        count, width = whole.rows[theirs], widths[theirs % len(widths)]
        same &= bool(here.rows[mine] == count)
        same &= np.array_equal(here.tables[mine, :count, :width], whole.tables[theirs, :count, :width])
    return bool(same)


class FaultTrace:
    """Faults that delay each table by up to three exchanges of its sender and lose some, without reordering."""

    bound = 4

    def __init__(self, topology, edges):
        self._edges, self._step, self._e = topology.mirror[edges], 0, len(topology.indices)
        self._held = np.zeros(len(self._edges), np.int64)

    def receive(self, said):
        """Choose the delivered tables; `said.rows` is of this rank's slots: an exchange counts as a table of all."""
        self._step += 1
        late = np.random.default_rng(self._step).integers(0, 9, self._e)[self._edges]
        number = np.where(late < 4, self._step - late, 0)
        fresh = number > self._held
        self._held = np.maximum(np.maximum(self._held, number), self._step - self.bound)
        self._held[self._held < 0] = 0
        return ReceivedTables(np.where(self._held > 0, self._step - self._held, -1), fresh)


def draw_sparse(rng, topology):
    """Draw sparse messages of all devices: a few tables, some with shared rows, over some edges."""
    who = np.flatnonzero(rng.random(topology.n) < rng.choice([0.0, 0.2, 0.8]))
    values = rng.normal(size=(12, int(rng.integers(1, 5))))
    starts = rng.integers(0, 9, len(who))
    edges = np.flatnonzero(np.isin(topology.sources, who) & (rng.random(len(topology.indices)) < 0.7))
    return SparseMessages(who, Tables(values, starts, rng.integers(0, 4, len(who))), edges)


def sparse_of(sparse, placement):
    """Select the messages of one rank."""
    mine = np.isin(sparse.senders, placement.ids)
    who = np.searchsorted(placement.ids, sparse.senders[mine])
    edges = np.flatnonzero(np.isin(np.r_[placement.edges], sparse.edges))
    return SparseMessages(who, sparse.tables.take(mine), edges, sparse.header)


def compare_letters(here, whole, placement):
    """Check that a rank receives what its devices receive in one process."""
    edges = np.r_[placement.edges]  # where they lie side by side, a slice
    mine = np.isin(whole.edges, edges)
    same = np.array_equal(edges[here.edges], whole.edges[mine])
    same &= np.array_equal(here.tables.rows, whole.tables.rows[mine])
    return bool(same and np.array_equal(here.tables.flat(), whole.tables.take(mine).flat()))


def exchanges(seeds=range(24)):
    """Return one record per random graph and stage: whether all ranks receive the same as one process."""
    world = connect()
    for seed in seeds:
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 24))
        links = np.argwhere(np.triu(rng.random((n, n)) < rng.choice([0.1, 0.3, 0.9]), 1))
        topology = p2pkm.Topology.from_links(n, np.column_stack((links, np.ones(len(links)))))
        owner = rng.integers(0, world.size, n)
        anywhere = RankPartition.by_owner("anywhere", owner, world.size)
        placement = place(topology, world.rank, world.size, anywhere if seed % 2 else None)
        network, local = world.network(placement), LocalNetwork(place(topology, 0, 1))
        same, freed = [], []
        for kind in ("plain", "selective", "ragged", "mixed", "masked", "late"):
            held = list(getattr(network, "_requests", []))
            network.open(FaultTrace(topology, placement.edges) if kind == "late" else None)
            local.open(FaultTrace(topology, slice(None)) if kind == "late" else None)
            widths = np.zeros(n, np.int64)
            freed += [not request for request in held]
            for _ in range(5):
                word = str(rng.choice(["plain", "selective"])) if kind in {"mixed", "masked"} else kind
                active = draw_mask(rng, topology, 0.6 if kind == "masked" else 1.0)
                network.set_active_edges(active[placement.edges])
                local.set_active_edges(active)
                messages = draw_messages(rng, n, len(topology.indices), word)
                widths[messages.rows >= 0] = messages.values.shape[2]
                here, whole = network.exchange(part_of(messages, placement)), local.exchange(messages)
                same.append(compare(here, whole, placement, widths))
                sparse = draw_sparse(rng, topology)
                here, whole = network.deliver(sparse_of(sparse, placement)), local.deliver(sparse)
                same.append(compare_letters(here, whole, placement))
                same.append(np.array_equal(here.tables.values[: len(sparse.tables.values)], sparse.tables.values))
                peeked = network.halo_exchange_uncounted(messages.values[placement.ids])
                same.append(np.array_equal(peeked, messages.values[np.concatenate((placement.ids, placement.ghosts))]))
        held = list(getattr(network, "_requests", []))
        network.close()
        freed += [not request for request in held]
        ledger = network.allgather_by_device(network.ledger.edges, placement.edge_counts)
        same.append(np.array_equal(ledger, local.ledger.edges))
        when = [[(one.stage, one.turn) for one in kept.ledger.exchanges] for kept in (network, local)]
        same.append(when[0] == when[1])
        same.append(tuple(network.total(np.array(network.ledger.totals))) == local.ledger.totals)
        wrong = network.total(np.array([same.count(False), freed.count(False), len(freed)]))
        yield {"name": f"messages {seed}", "wrong": int(wrong[0]), "kept": int(wrong[1]), "requests": int(wrong[2])}


def of_few_devices():
    """Run each method on two or five devices."""
    yield from runs(case for case in configurations() if case[0].endswith((" star of 5", " of 2")))


def share(first=0, step=1):
    """Return the records of a sample of the configurations."""
    return runs(islice(configurations(), int(first), None, int(step)))


if __name__ == "__main__":
    kinds = {
        "runs": share,
        "few": of_few_devices,
        "streams": lambda: runs(with_streams(STREAMED)),
        "messages": exchanges,
    }
    for command in sys.argv[1].split(";"):
        what, *words = command.split()
        for record in kinds[what](*words):
            if connect().rank == 0:
                print(json.dumps(record | {"ranks": connect().size}), flush=True)
