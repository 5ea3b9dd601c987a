"""Seconds per round on any number of ranks: a cost model, fitted to short real runs on this machine.

A round of T turns on a rank that hosts n devices with m points and e directed edges, and sends to p other ranks the
tables of b boundary devices, S bytes each::

    T (turn + n device) + m point + e link + T (latency (1 + (p - 1) / 3) + b S / bandwidth) + latency ceil(log2 ranks)

Messages to several ranks overlap; the last term is the agreement on whether to stop. In a star all that is not per
point is the server's and is not shared out; of a one-shot method nothing is. Every rank has a core of its own.
"""

from collections.abc import Sequence
from math import ceil, log2
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Integers
from p2pkm.core.errors import P2PKMError
from p2pkm.core.spec import Spec
from p2pkm.experiments.config import build_topology
from p2pkm.experiments.plan.calibration import Seconds, endless, exchange, launch, play
from p2pkm.experiments.plan.draft import RunPlan
from p2pkm.network.graph import Topology
from p2pkm.network.local import LocalWorld
from p2pkm.network.rank_partition import RankPartition, choose
from p2pkm.network.transport import World
from topologies.single_thread import single_thread

RANKS = (1, 2, 16, 256, 4096)
SHARED = 2e-4, 2e9  # latency, bandwidth of ranks that share cores
_FURTHER = 1 / 3  # of a latency, for every message of an exchange but the first: 15 of them take 5 times as long
_WORK = 1.5e7  # multiplications of a round of a trial
_FEW, _MOST, _TINY = 64, 20_000, 8  # devices
_LONG = 2_000_000  # directed edges of a graph that METIS divides for a curve
_LARGEST_WEAK, _MOST_EDGES = 2_000_000, 20_000_000  # devices and directed edges of a graph of a weak curve


class Link(NamedTuple):
    """Seconds of a message between two ranks, bytes per second, and where the two figures come from."""

    latency: float
    bandwidth: float
    source: str


class Costs(NamedTuple):
    """Seconds of a turn, in it of a device; of a point and a directed edge in a round; of a point in the opening."""

    turn: float
    device: float
    point: float
    link: float
    opening: float


class Split(NamedTuple):
    """A graph on so many ranks: what the rank hosts and sends that has most of it, and the links that are cut.

    Attributes
    ----------
    ranks, devices, edges : int
        Edges are directed.
    peers, sent : int
        Other ranks that a rank communicates with, and boundary tables that it sends in an exchange.
    ghosts : int
        Neighbors of its devices on other ranks.
    cut : int
        Undirected links between ranks.
    placement : str
        How the devices are dealt: blocks or metis.
    """

    ranks: int
    devices: int
    edges: int
    peers: int
    sent: int
    ghosts: int
    cut: int
    placement: str = "blocks"


def split(topology: Topology, division: RankPartition) -> Split:
    """Count what a division of the devices cuts; see `p2pkm.network.halo`."""
    ranks, owner = division.size, division.owner
    cross = np.flatnonzero(np.repeat(owner, topology.degrees) != owner[topology.indices])
    source, there = topology.sources[cross], owner[topology.indices[cross]]
    source, there = np.divmod(np.unique(source * ranks + there), ranks)  # a table goes once to every other rank
    here = owner[source].astype(np.int64)
    pairs = np.unique(here * ranks + there)
    edges = division.rows(topology.degrees)
    return Split(
        ranks, int(np.diff(division.bounds).max()), int(edges.max(initial=0)), _most(pairs // ranks), _most(here),
        _most(there), len(cross) // 2, division.name,
    )  # fmt: skip


def divide(plan: RunPlan, ranks: int, asked: int) -> RankPartition:
    """Return which of so many ranks hosts which devices; blocks if METIS would take long and was not requested."""
    wish = plan.experiment.rank_partition
    long = ranks != asked and len(plan.topology.indices) > _LONG
    return choose(plan.topology, plan.sizes, ranks, "blocks" if long else wish)


def _most(values: Integers) -> int:
    """Return how often the most frequent value occurs."""
    return int(np.bincount(values, minlength=1).max())


def calibrate(plan: RunPlan) -> Costs:
    """Fit the costs of the plan's method, k and d to short runs in this process."""
    points = max(1, plan.size.points // plan.topology.clients)
    degree = len(plan.topology.indices) / plan.topology.n
    k, d = plan.algorithm.k, plan.size.features
    n = int(np.clip(_WORK / (k * d * (points + degree * k)), _FEW, min(_MOST, plan.topology.clients)))
    most = max(4, int(2 * _WORK / (k * d * n)))
    p = min(points, most)
    near, plain = _shrink(plan, n), _like(plan, Spec("ring", {}), n)
    other = _like(plan, Spec("random-regular", {"degree": 6}), max(n, 8)) if degree < 4 else plain
    trials = [(_like(plan, Spec("ring", {}), min(_TINY, n)), 1), (near, p), (near, max(1, p // 4)), (other, p)]
    rows, took, opening = [], [], []
    for topology, each in trials:
        seconds = _time(plan, topology, each * topology.clients)
        turns = count_turns(plan.algorithm, topology)
        rows.append((turns, turns * topology.n, each * topology.clients, len(topology.indices)))
        took.append(min(seconds.rounds, default=0.0))
        opening.append(seconds.opening)
    grown = (opening[1] - opening[2]) / max(rows[1][2] - rows[2][2], 1)
    turn, device, point, link = map(float, fit(np.array(rows, np.float64), np.array(took)))
    return Costs(turn, device, point, link, max(grown, 0.0))


@single_thread()
def fit(rows: Floats, took: Floats) -> Floats:
    """Return the costs, at least 0, that explain what was measured with the least relative error, float64[c]."""
    known = took > 0.0
    scaled = rows[known] / took[known, None]
    kept = list(range(rows.shape[1]))
    while kept and len(scaled):
        found = np.linalg.lstsq(scaled[:, kept], np.ones(len(scaled)), rcond=None)[0]
        if (found >= 0.0).all():
            result = np.zeros(rows.shape[1])
            result[kept] = found
            return result
        kept.pop(int(np.argmin(found * scaled[:, kept].mean(axis=0))))
    return np.zeros(rows.shape[1])


def predict(plan: RunPlan, costs: Costs, link: Link, part: Split, points: int) -> float:
    """Return the seconds of a round on ranks of which the busiest hosts so much of the graph, and `points`."""
    method, topology, ranks = plan.algorithm, plan.topology, part.ranks
    turns = count_turns(method, topology)
    mine, devices, edges = points, part.devices, part.edges
    if topology.hub >= 0:
        devices, edges = topology.n, len(topology.indices)
        mine = plan.size.points if is_one_shot(method) else mine
    work = turns * (costs.turn + devices * costs.device) + mine * costs.point + edges * costs.link
    table = 8 * (method.k + 1) * (plan.size.features + 1)
    started = (1.0 + _FURTHER * (part.peers - 1)) * link.latency if part.peers else 0.0
    travel = turns * (started + part.sent * table / link.bandwidth)
    return work + travel + link.latency * ceil(log2(ranks))


def strong(plan: RunPlan, costs: Costs, link: Link, parts: Sequence[Split]) -> list[dict[str, Any]]:
    """Return a row for every number of ranks: the same run on more of them."""
    rows = []
    for part in parts:
        seconds = predict(plan, costs, link, part, -(-plan.size.points // part.ranks))
        found = {
            "ranks": part.ranks,
            "seconds": seconds,
            "edge_cut": part.cut,
            "halo_size": part.ghosts,
            "peers": part.peers,
        }
        rows.append(found | {"rank_partition": part.placement})
    return rows


def weak(plan: RunPlan, costs: Costs, link: Link, ranks: Sequence[int] = RANKS) -> list[dict[str, Any]]:
    """Return a row for every number of ranks that host a sixteenth of the devices each, as far as graphs are built."""
    each, rows = max(1, plan.topology.clients // 16), []
    degree = len(plan.topology.indices) / plan.topology.n
    for r in ranks:
        n = each * r
        if n > _LARGEST_WEAK or n * degree * max(1.0, n / plan.topology.n) > _MOST_EDGES:
            break
        topology = _shrink(plan, n)
        points = int(plan.size.points / plan.topology.clients * each)
        grown = plan._replace(topology=topology, size=plan.size._replace(points=points * r))
        rows.append({
            "ranks": r,
            "devices": n,
            "seconds": predict(grown, costs, link, split(topology, RankPartition.blocks(topology.n, r)), points),
        })
    return rows


def measure_link(world: World, latency: float | None, bandwidth: float | None) -> Link:
    """Return latency and bandwidth: those given, else measured between ranks, else those of a shared machine."""
    if latency is not None and bandwidth is not None:
        return Link(latency, bandwidth, "given")
    if world.size > 1:
        world.broadcast({"probe": np.array(1)})
        found: tuple[float, float] | None = exchange(world)
    else:
        ping = launch(2, {})
        found = None if ping is None else (ping["latency"], ping["bandwidth"])
    source = "defaults of a shared machine" if found is None else "measured between 2 ranks"
    one, other = SHARED if found is None else found
    given = "" if latency is None and bandwidth is None else ", one given"
    return Link(latency or one, bandwidth or other, source + given)


def follow_probe(world: World, order: dict[str, Any]) -> None:
    """Take part in what rank 0 measures."""
    exchange(world)


def count_turns(algorithm: Any, topology: Topology) -> int:
    """Return how many exchanges a round has."""
    word, _, turns = algorithm.on(topology).schedule.partition("*")
    if word == "colored":
        return int(topology.colors.max(initial=0)) + 1
    return int(turns or (2 if word == "star" else 1))


def is_one_shot(method: Any) -> bool:
    """Return whether the server does all that is done after the opening."""
    return bool(method.traits.one_shot)


def _time(plan: RunPlan, topology: Topology, points: int) -> Seconds:
    """Return what a trial takes, after one that reads or compiles what it needs."""
    arguments = LocalWorld(), endless(plan.algorithm), topology, points, plan.size.features
    first, again = play(*arguments), play(*arguments)
    return Seconds(min(first.opening, again.opening), first.rounds + again.rounds)


def _shrink(plan: RunPlan, n: int) -> Topology:
    """Return the plan's graph, or a smaller or larger one of its family; a ring if there is none of that size."""
    if n == plan.topology.clients:
        return plan.topology
    return _like(plan, plan.graph, n)


def _like(plan: RunPlan, graph: Spec, n: int) -> Topology:
    import topologies

    if plan.topology.hub >= 0:
        return Topology.star(n)
    try:
        if graph.name not in topologies.FIXED:
            return build_topology(graph, n, 1)
    except P2PKMError:
        pass
    return build_topology(Spec("ring", {}), n, 1)
