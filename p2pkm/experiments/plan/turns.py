"""Who sends how much over which links, turn by turn: what a run does as far as the data have no say in it."""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Integers, Mask
from p2pkm.core.expected_messages import (
    EveryTurn,
    Flooding,
    Reports,
    Silent,
    TreeBroadcast,
    TreeSums,
    TreeWalk,
    UntilQuiet,
    Way,
)
from p2pkm.data.shards import Shards
from p2pkm.engine.build_batch import build_batch
from p2pkm.experiments.plan.draft import RunPlan
from p2pkm.experiments.plan.volume import spread
from p2pkm.kernels import reference as plain
from p2pkm.methods.building_blocks.random_matching import match, pick_neighbor
from p2pkm.methods.init.pipelines import Stage, find_own
from p2pkm.methods.schedules import make
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.local import LocalNetwork


class TurnMessages(NamedTuple):
    """What happens in a turn.

    Attributes
    ----------
    acts : bool[n]
        Who is awake.
    rows : int64[n]
        That each sends, -1: nothing; where the data have a say, at most.
    columns : int
    edges : bool[e]
        The directed edges that are in use.
    """

    acts: Mask
    rows: Integers
    columns: int
    edges: Mask

    def count(self, topology: Topology) -> int:
        """Return the number of messages."""
        return int(np.count_nonzero(self.edges & (self.rows >= 0)[topology.sources]))


Turns = Callable[[int], Iterator[TurnMessages]]


class Play(NamedTuple):
    """A stage: how many rounds it takes, the opening left out, and a function that plays the turns of round t."""

    rounds: int
    turns: Turns


def by_events(stage: Stage, plan: RunPlan) -> bool:
    """Return whether clocks decide who acts in a stage, one device per turn."""
    asked = (
        stage.algorithm.schedule == "async" and plan.experiment.link_model is not None and plan.topology.varying is None
    )
    return asked and stage is find_own(plan.stages)


def play(stage: Stage, plan: RunPlan) -> Play | None:
    """Return what happens in a stage, at most; None if unknown."""
    pattern = stage.algorithm.expected_messages(plan.known)
    rule = _RULES.get(type(pattern))
    return None if rule is None or by_events(stage, plan) else rule(stage, plan, pattern)


def sweep(stage: Stage, plan: RunPlan, sent: EveryTurn) -> Play:
    """Let the active devices send one table over the links in use; where these change, all send over the new ones."""
    topology, algorithm = plan.topology, stage.algorithm
    devices = imitate(plan)
    schedule = make(algorithm.schedule, devices, topology.colors)
    graph = topology.varying if stage is find_own(plan.stages) else None
    links = _all_links(topology) if graph is None else lru_cache(2)(graph.active)
    everybody = np.ones(topology.n, np.bool_)

    def turns(t: int) -> Iterator[TurnMessages]:
        woken = [schedule.opening] if t == 0 else list(schedule.turns(t))
        for number, awake in enumerate(woken, 1):
            due = schedule.in_step or number == len(woken)
            now = 0 if t == 0 else (t - 1) * len(woken) + number if schedule.in_step else t - (not due)
            edges = links(now)
            sending = everybody if graph is not None and due else awake
            if sent.to == "partner":
                partner = match(topology, devices.shared_key, now + 1, None if graph is None else edges)
                sending, edges = partner >= 0, partner[topology.sources] == topology.indices
            elif sent.to == "one":
                edges = pick_neighbor(devices.with_active_edges(edges, devices.neighbor_degrees), now)
            yield TurnMessages(awake, np.where(sending, sent.rows, -1), sent.columns, edges)

    return Play(stage.rounds, turns)


def imitate(plan: RunPlan) -> Devices:
    """Return all devices with a point each: a schedule does not ask for these."""
    n = plan.topology.n
    points = Shards(np.zeros((n, 1)), np.arange(n + 1), np.ones(n), None, np.arange(n))
    return build_batch(plan.topology, points, LocalNetwork(place(plan.topology, 0, 1)), plan.experiment.seed, plain)


def _all_links(topology: Topology) -> Callable[[int], Mask]:
    edges = np.ones(len(topology.indices), np.bool_)
    return lambda t: edges


def _star(stage: Stage, plan: RunPlan, expected: Reports) -> Play:
    """Let clients report at the opening; in a round the server sends, then the clients, if they still do."""
    topology, hub = plan.topology, np.arange(plan.topology.n) == plan.topology.hub
    one_shot = stage.algorithm.traits.one_shot
    each = plan.sizes if expected.by_points else np.full(topology.n, expected.rows // topology.clients)
    edges, quiet = np.ones(len(topology.indices), np.bool_), np.full(topology.n, -1)
    reports = TurnMessages(~hub, np.where(hub, -1, each), expected.columns, edges)
    down = TurnMessages(hub, np.where(hub, stage.algorithm.k, -1), plan.size.features, edges)
    answer = reports._replace(rows=quiet) if one_shot else reports
    return Play(1 if one_shot else stage.rounds, lambda t: iter((down, answer) if t else (reports,)))


def _flood(stage: Stage, plan: RunPlan, sent: Flooding) -> Play | None:
    """Let a table of each device spread: all send at the opening; the round after the last news is silent."""
    counts, topology = spread(plan.topology), plan.topology
    if counts is None:
        return None
    edges, everybody = np.ones(len(topology.indices), np.bool_), np.ones(topology.n, np.bool_)
    waves = counts[: sent.hops]

    def turns(t: int) -> Iterator[TurnMessages]:
        news = waves[t] if t < len(waves) else np.zeros(topology.n, np.int64)
        yield TurnMessages(everybody, np.where((news > 0) | (t == 0), news * sent.rows, -1), sent.columns, edges)

    return Play(min(len(waves), stage.rounds), turns)


def _repeat(stage: Stage, plan: RunPlan, sent: UntilQuiet) -> Play:
    """Let every device send in every round: at most, where the data decide who goes on."""
    n, e = plan.topology.n, len(plan.topology.indices)
    messages = TurnMessages(np.ones(n, np.bool_), np.full(n, sent.rows), sent.columns, np.ones(e, np.bool_))
    return Play(stage.rounds, lambda t: iter((messages,)))


def _lead(stage: Stage, plan: RunPlan, sent: TreeBroadcast) -> Play:
    """Let a layer of the tree send to the next one."""
    topology, parent = plan.topology, sent.parent
    layers = topology.layers(np.flatnonzero(parent < 0))
    down, everybody = parent[topology.indices] == topology.sources, np.ones(topology.n, np.bool_)

    def turns(t: int) -> Iterator[TurnMessages]:
        sending = layers == t
        rows = np.where(sending, sent.rows, -1)
        yield TurnMessages(everybody, rows, sent.columns, down & sending[topology.sources])

    return Play(min(int(layers.max()), stage.rounds), turns)


def _walk(stage: Stage, plan: RunPlan, sent: TreeWalk) -> Play:
    """Let the layers of a tree send one after the other, up or down."""
    topology, parent, layers = plan.topology, sent.parent, sent.layer
    depth, everybody = max(1, int(layers.max())), np.ones(topology.n, np.bool_)
    up, down = parent[topology.sources] == topology.indices, parent[topology.indices] == topology.sources

    def send(ways: tuple[Way, ...], number: int) -> TurnMessages:
        number, step = divmod(number, depth)
        if number >= len(ways):
            return TurnMessages(everybody, np.full(topology.n, -1), plan.size.features, np.zeros(len(up), np.bool_))
        way = ways[number]
        sending = layers == (depth - step if way.up else step)
        edges = (up if way.up else down) & sending[topology.sources]
        return TurnMessages(everybody, np.where(sending, way.rows, -1), way.columns, edges)

    def turns(t: int) -> Iterator[TurnMessages]:
        if t > 1:
            return (send(sent.again, number) for number in range(depth * len(sent.again) + 1))
        last = depth * len(sent.ways) + bool(sent.again)
        return (send(sent.ways, number) for number in (range(1, last + 1) if t else range(1)))

    return Play(stage.rounds if sent.again else 1, turns)


def _add_up(stage: Stage, plan: RunPlan, sent: TreeSums) -> Play:
    """Let keys go over all links, then tables up a tree and down again, once in a round."""
    n, e = plan.topology.n, len(plan.topology.indices)
    everybody, sure = np.ones(n, np.bool_), np.ones(n, np.bool_)
    quiet = TurnMessages(everybody, np.full(n, -1), 1, np.zeros(e, np.bool_))
    keys = TurnMessages(everybody, np.ones(n, np.int64), sent.keys, np.ones(e, np.bool_)) if sent.keys else quiet

    def turns(t: int) -> Iterator[TurnMessages]:
        if t == 0 or t > len(sent.tables):
            return iter((quiet if t else keys,))
        rows, columns = sent.tables[t - 1]
        ways = tuple(Way(up, np.full(n, rows), columns, sure) for up in (True, False))
        walk = _walk(stage, plan, TreeWalk(sent.parent, sent.layer, (), ways))
        return walk.turns(2)

    return Play(min(len(sent.tables), stage.rounds), turns)


def _silent(stage: Stage, plan: RunPlan, sent: Silent) -> Play:
    n, e = plan.topology.n, len(plan.topology.indices)
    messages = TurnMessages(np.ones(n, np.bool_), np.full(n, -1), 1, np.ones(e, np.bool_))
    return Play(0, lambda t: iter((messages,)))


_RULES: Mapping[type, Callable[[Stage, RunPlan, Any], Play | None]] = {
    EveryTurn: sweep,
    Reports: _star,
    Silent: _silent,
    TreeBroadcast: _lead,
    TreeWalk: _walk,
    TreeSums: _add_up,
    Flooding: _flood,
    UntilQuiet: _repeat,
}
