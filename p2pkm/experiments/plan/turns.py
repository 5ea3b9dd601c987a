"""Who says how much over which links, turn by turn: what a run does as far as the data have no say in it."""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Integers, Mask
from p2pkm.data.shards import Shards
from p2pkm.engine.build_batch import build_batch
from p2pkm.experiments.plan.draft import RunPlan
from p2pkm.experiments.plan.server_reports import report
from p2pkm.experiments.plan.volume import spread
from p2pkm.kernels import reference as plain
from p2pkm.kernels.streams import shared_key
from p2pkm.methods.building_blocks.random_matching import match
from p2pkm.methods.init import bounding_box as box
from p2pkm.methods.init import distributed_d2_sampling as raced
from p2pkm.methods.init import flooded_summaries as summaries
from p2pkm.methods.init import leader_broadcast as leader
from p2pkm.methods.init import link_reselection as review
from p2pkm.methods.init import link_selection as gate
from p2pkm.methods.init import local_kmeanspp as own
from p2pkm.methods.init import saturation_thresholds as limits
from p2pkm.methods.init import select_candidate as choose
from p2pkm.methods.init import standardization as moments
from p2pkm.methods.init import tree_summaries as rooted
from p2pkm.methods.peer import admm, consensus, gossip, gtvmin, pushsum, tracking
from p2pkm.methods.peer import local_only as alone
from p2pkm.methods.schedules import make
from p2pkm.methods.server.star import Star
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.local import LocalNetwork

OneStage = Any  # a Stage; its algorithm is of the kind that the rule is for


class Said(NamedTuple):
    """What happens in a turn.

    Attributes
    ----------
    acts : bool[n]
        Who is awake.
    rows : int64[n]
        That each says, -1: nothing; where the data have a say, at most.
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


Turns = Callable[[int], Iterator[Said]]


class Play(NamedTuple):
    """A stage: how many rounds it takes, the opening left out, and a function that plays the turns of round t."""

    rounds: int
    turns: Turns


COLUMNS: Mapping[type, int] = {  # beside the features, of the methods that say one table in every turn
    gtvmin.GTVMin: 0,
    admm.ADMM: 0,
    consensus.ConsensusLloyd: 1,
    pushsum.PushSumLloyd: 1,
    tracking.TrackingLloyd: 1,
    gossip.PairwiseGossip: 1,
}


def by_events(stage: OneStage, plan: RunPlan) -> bool:
    """Return whether clocks decide who acts in a stage, one device per turn."""
    asked = (
        stage.algorithm.schedule == "async" and plan.experiment.link_model is not None and plan.topology.varying is None
    )
    return asked and stage is plan.stages[-1]


def play(stage: OneStage, plan: RunPlan) -> Play | None:
    """Return what happens in a stage, at most; None if nobody knows."""
    rule = next((rule for kind, rule in _RULES.items() if isinstance(stage.algorithm, kind)), None)
    return None if rule is None or by_events(stage, plan) else rule(stage, plan)


def sweep(stage: OneStage, plan: RunPlan) -> Play:
    """Let those who are awake say one table over the links in use; where these change, all say it over the new ones."""
    topology, algorithm = plan.topology, stage.algorithm
    schedule = make(algorithm.schedule, imitate(plan), topology.colors)
    graph = topology.varying if stage is plan.stages[-1] else None
    links = _all_links(topology) if graph is None else lru_cache(2)(graph.active)
    columns = plan.size.features + COLUMNS[type(algorithm)]
    everybody = np.ones(topology.n, np.bool_)

    def turns(t: int) -> Iterator[Said]:
        woken = [schedule.opening] if t == 0 else list(schedule.turns(t))
        for number, awake in enumerate(woken, 1):
            due = schedule.in_step or number == len(woken)
            now = (t - 1) * len(woken) + number if schedule.in_step else t - (not due)
            edges = links(now if t else 0)
            speaks = everybody if graph is not None and due else awake
            if isinstance(algorithm, gossip.PairwiseGossip):
                partner = match(topology, shared_key(plan.experiment.seed), t + 1, None if graph is None else edges)
                speaks, edges = partner >= 0, partner[topology.sources] == topology.indices
            yield Said(awake, np.where(speaks, algorithm.k, -1), columns, edges)

    return Play(stage.rounds, turns)


def imitate(plan: RunPlan) -> Devices:
    """Return all devices with a point each: a schedule does not ask for these."""
    n = plan.topology.n
    points = Shards(np.zeros((n, 1)), np.arange(n + 1), np.ones(n), None, np.arange(n))
    return build_batch(plan.topology, points, LocalNetwork(place(plan.topology, 0, 1)), plan.experiment.seed, plain)


def _all_links(topology: Topology) -> Callable[[int], Mask]:
    edges = np.ones(len(topology.indices), np.bool_)
    return lambda t: edges


def _star(stage: OneStage, plan: RunPlan) -> Play:
    """Let clients report at the opening; in a round the server speaks, then the clients, if they still do."""
    topology, method = plan.topology, stage.algorithm.method
    said, hub = report(plan, lambda k: False), np.arange(topology.n) == topology.hub
    each = plan.sizes if said.by_points else np.full(topology.n, said.rows // topology.clients)
    edges, quiet = np.ones(len(topology.indices), np.bool_), np.full(topology.n, -1)
    reports = Said(~hub, np.where(hub, -1, each), said.columns, edges)
    down = Said(hub, np.where(hub, method.k, -1), plan.size.features, edges)
    answer = reports._replace(rows=quiet) if method.traits.one_shot else reports
    return Play(1 if method.traits.one_shot else stage.rounds, lambda t: iter((down, answer) if t else (reports,)))


def _flood(rows: Callable[[OneStage, RunPlan], tuple[int, int]]) -> Callable[[OneStage, RunPlan], Play | None]:
    """Return the rule of a stage that floods a table of each device with points; rows: how many, and columns.

    All speak at the opening. The round after the last news is silent.
    """

    def rule(stage: OneStage, plan: RunPlan) -> Play | None:
        height, columns = rows(stage, plan)
        counts, topology = spread(plan.topology), plan.topology
        if counts is None:
            return None
        edges, everybody = np.ones(len(topology.indices), np.bool_), np.ones(topology.n, np.bool_)
        said = counts[: getattr(stage.algorithm, "hops", None)]

        def turns(t: int) -> Iterator[Said]:
            news = said[t] if t < len(said) else np.zeros(topology.n, np.int64)
            yield Said(everybody, np.where((news > 0) | (t == 0), news * height, -1), columns, edges)

        return Play(min(len(said), stage.rounds), turns)

    return rule


def _pairs(stage: OneStage, plan: RunPlan) -> tuple[int, int]:
    return plan.algorithm.k, plan.size.features + 1


def _losses(stage: OneStage, plan: RunPlan) -> tuple[int, int]:
    return 1, count_candidates(stage, plan)


def count_candidates(stage: OneStage, plan: RunPlan) -> int:
    """Return among how many sets a stage chooses, which the one before it has found."""
    before = plan.stages[plan.stages.index(stage) - 1].algorithm
    return int(getattr(before, "candidates", getattr(before, "draws", 1)))


def _repeat(rows: Callable[[Any, int, int], tuple[int, int]]) -> Callable[[OneStage, RunPlan], Play]:
    """Return the rule of a stage where the data decide who goes on: at most everybody in every round."""

    def rule(stage: OneStage, plan: RunPlan) -> Play:
        n, e = plan.topology.n, len(plan.topology.indices)
        height, columns = rows(stage.algorithm, plan.algorithm.k, plan.size.features)
        said = Said(np.ones(n, np.bool_), np.full(n, height), columns, np.ones(e, np.bool_))
        return Play(stage.rounds, lambda t: iter((said,)))

    return rule


def _lead(stage: OneStage, plan: RunPlan) -> Play:
    """Let a layer of the tree speak to the next one."""
    topology, parent = plan.topology, stage.algorithm.parent
    layers = topology.layers(np.flatnonzero(parent < 0))
    down, everybody = parent[topology.indices] == topology.sources, np.ones(topology.n, np.bool_)

    def turns(t: int) -> Iterator[Said]:
        speaks = layers == t
        rows = np.where(speaks, plan.algorithm.k, -1)
        yield Said(everybody, rows, plan.size.features, down & speaks[topology.sources])

    return Play(min(int(layers.max()), stage.rounds), turns)


def count_pairs(stage: OneStage) -> tuple[Integers, bool]:
    """Return the rows that each device passes on to its parent, int64[n], and whether some are summed up on the way."""
    (parent, layers), most = stage.algorithm.tree, stage.algorithm.most
    rows = np.full(len(layers), stage.algorithm.k)
    order = np.argsort(-layers, kind="stable")[: int((layers > 0).sum())]
    for one in np.split(order, np.cumsum(np.bincount(layers)[:0:-1])[:-1]):
        np.add.at(rows, parent[one], np.where(rows[one] > most, most // 2, rows[one]))
    reduced = (rows > most) & (layers > 0)
    return np.where(reduced, most // 2, rows), bool(reduced.any())


def _climb(stage: OneStage, plan: RunPlan) -> Play:
    """Send pairs up a tree, clusterings down; with several of them their losses up and the choice down."""
    topology, (parent, layers), q = plan.topology, stage.algorithm.tree, stage.algorithm.candidates
    d, n, depth = plan.size.features, topology.n, max(1, int(layers.max()))
    up, down = parent[topology.sources] == topology.indices, parent[topology.indices] == topology.sources
    one, everybody = np.ones(n, np.int64), np.ones(n, np.bool_)
    ways = ((up, count_pairs(stage)[0], d + 1), (down, one * q * plan.algorithm.k, d), (up, one, q), (down, one, 1))

    def say(number: int) -> Said:
        way, step = divmod(number, depth)
        if way == stage.algorithm.ways:
            return Said(everybody, np.full(n, -1), d, np.zeros(len(up), np.bool_))
        edges, rows, columns = ways[way]
        speaks = layers == (step if way % 2 else depth - step)
        return Said(everybody, np.where(speaks, rows, -1), columns, edges & speaks[topology.sources])

    last = depth * stage.algorithm.ways
    return Play(1, lambda t: map(say, range(1, last + 1) if t else range(1)))


def _silent(stage: OneStage, plan: RunPlan) -> Play:
    n, e = plan.topology.n, len(plan.topology.indices)
    said = Said(np.ones(n, np.bool_), np.full(n, -1), 1, np.ones(e, np.bool_))
    return Play(0, lambda t: iter((said,)))


_RULES: Mapping[type, Callable[[OneStage, RunPlan], Play | None]] = {
    **dict.fromkeys(COLUMNS, sweep),
    Star: _star,
    alone.LocalOnly: _silent,
    own.LocalKMeansPP: _silent,
    leader.Leader: _lead,
    rooted.TreeSummaries: _climb,
    summaries.FloodedSummaries: _flood(_pairs),
    choose.SelectCandidate: _flood(_losses),
    moments.Standardization: _flood(lambda stage, plan: (1, 2 * plan.size.features + 1)),
    box.Box: _repeat(lambda one, k, d: (2, d)),
    raced.DistributedD2Sampling: _repeat(lambda one, k, d: (one.draws, d + 1)),
    gate.LinkSelection: _repeat(lambda one, k, d: (k, d + 1)),
    review.Review: _repeat(lambda one, k, d: (k, d)),
    limits.SaturationThresholds: _repeat(lambda one, k, d: (k, d)),
}
