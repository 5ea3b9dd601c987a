"""Messages and bytes of every round of a plan, without a run: exact where the data have no say, else at most."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from p2pkm.channel.byzantine import ByzantineMessages, select_byzantine
from p2pkm.experiments.plan.draft import RunPlan
from p2pkm.experiments.plan.server_reports import report
from p2pkm.experiments.plan.turns import COLUMNS, OneStage, by_events, count_candidates, count_pairs, play, sweep
from p2pkm.experiments.plan.volume import NOTHING, Volume, flood, tables
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
from p2pkm.methods.init.pipelines import Stage
from p2pkm.methods.peer import admm, consensus, coreset, gossip, pushsum, tracking
from p2pkm.methods.peer import local_only as alone
from p2pkm.methods.server.star import Star

Rounds = Callable[[int], Volume]


class Course(NamedTuple):
    """What a stage sends.

    Attributes
    ----------
    name : str
    rounds : int
        At most.
    volume : callable
        Returns what is sent in round t, the opening being 0; None: nobody knows.
    steady : bool
        Whether all rounds but the opening are the same.
    """

    name: str
    rounds: int
    volume: Rounds | None
    steady: bool = False

    def total(self) -> Volume:
        """Return what the opening and all rounds send together, if there are as many as possible."""
        if self.volume is None:
            return Volume(0, 0, False, False)
        if self.steady:
            one = self.volume(1)
            return self.volume(0) + Volume(self.rounds * one.messages, self.rounds * one.bytes, *one[2:])
        return sum((self.volume(t) for t in range(1, self.rounds + 1)), self.volume(0))


class Facts(NamedTuple):
    """What the traffic of a stage depends on; `full`: all k rows are in every table that the stage starts from."""

    plan: RunPlan
    full: bool

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Return the directed edges and devices of the graph, k, and the number of features."""
        return len(self.plan.topology.indices), self.plan.topology.n, self.plan.algorithm.k, self.plan.size.features

    def summed(self, k: int) -> bool:
        """Return whether k-means of every device finds all its k clusters."""
        return self.plan.least >= k and self.plan.size.distinct == self.plan.size.points


def stage_traffic(plan: RunPlan) -> list[Course]:
    """Return what every stage of a plan sends."""
    asked = plan.experiment
    found, full = [], False
    narrow = asked.min_cluster_size > 1 or asked.byzantine is not None  # rows that nobody says, or that are none
    lies = _suspect(plan)
    for stage in plan.stages:
        rule = next((rule for kind, rule in _RULES.items() if isinstance(stage.algorithm, kind)), None)
        course = Course(stage.name, stage.rounds, None)
        if rule is not None:
            volume, steady = rule(stage, Facts(plan, full))
            volume = _lengthen(volume, stage, plan, lies) if lies else volume
            course = Course(stage.name, stage.rounds, _loosen(volume) if narrow else volume, steady)
        found.append(course)
        full = _fills(stage, plan, full)
        narrow |= isinstance(stage.algorithm, gate.LinkSelection)
    return found


def _fills(stage: Stage, plan: RunPlan, full: bool) -> bool:
    """Return whether every device has k centroids when a stage has ended."""
    enough = plan.size.distinct >= plan.algorithm.k and int(plan.topology.components.max()) == 0
    each = Facts(plan, full).summed(plan.algorithm.k)
    known, one = stage.algorithm, plan.size.distinct == plan.size.points
    if isinstance(known, own.LocalKMeansPP) or (
        isinstance(known, summaries.FloodedSummaries) and known.hops is not None
    ):
        return each
    if isinstance(known, leader.Leader):
        return enough and one and -(-plan.size.points // plan.topology.n) >= plan.algorithm.k
    return (
        enough
        if isinstance(known, (box.Box, summaries.FloodedSummaries, rooted.TreeSummaries, raced.DistributedD2Sampling))
        else full
    )


def _loosen(volume: Rounds) -> Rounds:
    """Return the same as bounds: links may have gone out of use."""
    return lambda t: volume(t)._replace(exact_messages=False, exact_bytes=False)


def _suspect(plan: RunPlan) -> ByzantineMessages | None:
    """Return who may say tables that are a row too long, and in which stages; None: nobody."""
    spec = None if plan.refusal else plan.experiment.byzantine
    if spec is None or spec.kind != "nan" or not spec.count:
        return None
    liars = np.isin(np.arange(plan.topology.n), select_byzantine(spec, plan.topology, plan.experiment.seed))
    nowhere = np.zeros(0)
    return ByzantineMessages(spec, liars, type(plan.stages[-1].algorithm), nowhere, nowhere, nowhere)


def _lengthen(volume: Rounds, stage: OneStage, plan: RunPlan, lies: ByzantineMessages) -> Rounds:
    """Return the same with one more row in every table of a liar, which a table of the wrong shape has."""
    told = lies.during(stage.algorithm)
    if told is None:
        return volume
    played = play(stage, plan)

    def more(t: int) -> int:
        if told.opening and t:
            return 0
        if played is None:  # every table may be a liar's; none is wider than a centroid and its count
            return 8 * volume(t).messages * (plan.size.features + 1)
        sources = plan.topology.sources
        return sum(
            8 * said.columns * int(np.count_nonzero(said.edges & (lies.liars & (said.rows > 0))[sources]))
            for said in played.turns(t)
        )

    return lambda t: volume(t)._replace(bytes=volume(t).bytes + more(t))


def _sweep(stage: OneStage, facts: Facts) -> tuple[Rounds, bool]:
    """Let everybody say one table over all links, once in a turn."""
    e, _, k, d = facts.shape
    columns, full = d + COLUMNS[type(stage.algorithm)], isinstance(stage.algorithm, _WHOLE) or facts.full
    word, _, turns = stage.algorithm.schedule.partition("*")
    if by_events(stage, facts.plan):
        degrees = facts.plan.topology.degrees  # a round has as many turns as there are devices, whoever takes them
        most, alike = len(degrees) * int(degrees.max()), bool(degrees.min() == degrees.max())
        later = tables(most, k, columns, spoken=alike, full=full)
        return lambda t: later if t else tables(e, k, columns, full=full), True
    if word == "async" or isinstance(stage.algorithm, gossip.PairwiseGossip) or _changes(stage, facts.plan):
        return _follow(stage, facts, lambda messages: tables(messages, k, columns, full=full)), False
    each = int(turns or 1)
    return lambda t: tables(e * (each if t else 1), k, columns, full=full), True


def _changes(stage: OneStage, plan: RunPlan) -> bool:
    """Return whether the links of a stage change from round to round."""
    return plan.topology.varying is not None and stage is plan.stages[-1]


def _follow(stage: OneStage, facts: Facts, volume: Callable[[int], Volume]) -> Rounds:
    """Return the traffic of rounds that differ; each is played once, also if the links repeat."""
    topology, turns = facts.plan.topology, sweep(stage, facts.plan).turns
    period = topology.varying.period if topology.varying is not None and _changes(stage, facts.plan) else None
    if isinstance(stage.algorithm, gossip.PairwiseGossip):  # whom they meet does not repeat
        period = None

    @cache
    def at(t: int) -> Volume:
        return volume(sum(said.count(topology) for said in turns(t)))

    return lambda t: at(t if period is None or t == 0 else (t - 1) % period + 1)


def _star(stage: OneStage, facts: Facts) -> tuple[Rounds, bool]:
    """Let clients report at the opening; in a round the server speaks, and clients report if they still do."""
    method, n = stage.algorithm.method, facts.plan.topology.clients
    said = report(facts.plan, facts.summed)
    _, _, k, d = facts.shape
    reports = Volume(n, 8 * said.rows * said.columns, True, said.exact)
    down = tables(n, k, d, full=said.answered)
    again = NOTHING if method.one_shot else reports._replace(exact_bytes=said.exact and said.answered)
    return lambda t: down + again if t else reports, True


def _flood_once(
    rows: Callable[[OneStage, Facts], tuple[int, int, bool]],
) -> Callable[[OneStage, Facts], tuple[Rounds, bool]]:
    """Return the rule of a stage that floods a table of each device; rows: how many, columns, whether for sure."""

    def rule(stage: OneStage, facts: Facts) -> tuple[Rounds, bool]:
        return _spread(facts, *rows(stage, facts), getattr(stage.algorithm, "hops", None)), False

    return rule


def _spread(facts: Facts, rows: int, columns: int, certain: bool, hops: int | None = None) -> Rounds:
    e, n, _, _ = facts.shape
    waves, sure = flood(facts.plan.topology, hops), facts.plan.least >= 1
    if waves is None:  # each device speaks in every turn at most, and each table travels each way once
        return lambda t: Volume(e, 8 * e * n * rows * columns if t == 0 else 0, False, False)

    def at(t: int) -> Volume:
        if t >= len(waves):
            return NOTHING
        return Volume(waves[t].messages, 8 * waves[t].tables * rows * columns, sure or t == 0, sure and certain)

    return at


def _summaries(stage: OneStage, facts: Facts) -> tuple[int, int, bool]:
    _, _, k, d = facts.shape
    return k, d + 1, facts.summed(k)


def _choose(stage: OneStage, facts: Facts) -> tuple[int, int, bool]:
    return 1, count_candidates(stage, facts.plan), True


def _opening(rows: Callable[[Any, int, int], tuple[int, int]]) -> Callable[[OneStage, Facts], tuple[Rounds, bool]]:
    """Return the rule of a stage where all say a table at the opening, and data decide who goes on."""

    def rule(stage: OneStage, facts: Facts) -> tuple[Rounds, bool]:
        e, _, k, d = facts.shape
        height, columns = rows(stage.algorithm, k, d)
        sure = facts.plan.least >= 1 and isinstance(stage.algorithm, (box.Box, raced.DistributedD2Sampling))
        said = 8 * (e - (e // 2 if facts.plan.topology.hub >= 0 else 0)) * height * columns  # a hub has no point
        first = Volume(e, said, True, sure and (isinstance(stage.algorithm, box.Box) or stage.algorithm.number == 0))
        return lambda t: tables(e, height, columns, spoken=False) if t else first, True

    return rule


def _lead(stage: OneStage, facts: Facts) -> tuple[Rounds, bool]:
    """Let a layer of the tree speak to the next one."""
    _, _, k, d = facts.shape
    roots = np.flatnonzero(stage.algorithm.parent < 0)
    layers = np.bincount(facts.plan.topology.layers(roots))
    full, known = _fills(stage, facts.plan, facts.full), facts.plan.dealt

    def at(t: int) -> Volume:
        return tables(int(layers[t + 1]) if t + 1 < len(layers) else 0, k, d, spoken=known, full=full)

    return at, False


def _climb(stage: OneStage, facts: Facts) -> tuple[Rounds, bool]:
    """Send pairs up a tree, clusterings down; with several of them their losses up and the choice down."""
    _, _, k, d = facts.shape
    (_, layers), q = stage.algorithm.tree, stage.algorithm.candidates
    links, deepest = int((layers > 0).sum()), int(layers.max())
    rows, reduced = count_pairs(stage)
    passed = rows[layers > 0]
    opening = tables(int((layers == max(deepest, 1)).sum()), k, d + 1, full=facts.summed(k))
    up = Volume(links, 8 * int(passed.sum()) * (d + 1), True, facts.summed(k) and not reduced)
    down = tables(links, q * k, d, full=_fills(stage, facts.plan, facts.full))
    more = tables(links, 1, q) + tables(links, 1, 1) if q > 1 else NOTHING
    rest = up + down + more
    rest = rest._replace(messages=rest.messages - opening.messages, bytes=rest.bytes - opening.bytes)
    return lambda t: (opening, rest)[t] if t < 2 else NOTHING, False


def _pool(stage: OneStage, facts: Facts) -> tuple[Rounds, bool]:
    """Flood costs, then the rows of the coreset; one round."""
    e, n, k, d = facts.shape
    method = stage.algorithm.method
    rows = n * k + method.size + n - 1  # numbers of drawn points are rounded, all but one of them up at most
    costs = [_spread(facts, 1, 1, True)(t) for t in range(stage.algorithm.hops + 1)]
    first, rest = costs[0], sum(costs[1:], NOTHING)
    points = Volume(first.messages + rest.messages, 8 * e * rows * (d + 1), rest.exact_messages, False)
    return lambda t: (first, rest + points)[t] if t < 2 else NOTHING, False


def _pool_on_tree(stage: OneStage, facts: Facts) -> tuple[Rounds, bool]:
    """Send costs up, their sum down, rows up, centroids down; one round."""
    _, n, k, d = facts.shape
    layers, size = stage.algorithm.tree.layer, stage.algorithm.method.size
    links, first = int((layers > 0).sum()), int((layers == stage.algorithm.depth).sum())
    points = int(layers.sum()) * k + int(layers.max()) * (size + n - 1)
    rest = tables(2 * links - first, 1, 1) + Volume(links, 8 * points * (d + 1), True, False)
    rest += tables(links, k, d, full=facts.plan.size.distinct == facts.plan.size.points >= k)
    return lambda t: (tables(first, 1, 1), rest)[t] if t < 2 else NOTHING, False


def _silent(stage: OneStage, facts: Facts) -> tuple[Rounds, bool]:
    return lambda t: NOTHING, True


_WHOLE = (admm.ADMM, consensus.ConsensusLloyd, pushsum.PushSumLloyd, tracking.TrackingLloyd)  # absent rows travel, too
_RULES: Mapping[type, Callable[[OneStage, Facts], tuple[Rounds, bool]]] = {
    **dict.fromkeys(COLUMNS, _sweep),
    Star: _star,
    coreset.Flooded: _pool,
    coreset.Rooted: _pool_on_tree,
    alone.LocalOnly: _silent,
    own.LocalKMeansPP: _silent,
    leader.Leader: _lead,
    rooted.TreeSummaries: _climb,
    summaries.FloodedSummaries: _flood_once(_summaries),
    choose.SelectCandidate: _flood_once(_choose),
    moments.Standardization: _flood_once(lambda stage, facts: (1, 2 * facts.shape[3] + 1, True)),
    box.Box: _opening(lambda one, k, d: (2, d)),
    raced.DistributedD2Sampling: _opening(lambda one, k, d: (one.draws, d + 1)),
    gate.LinkSelection: _opening(lambda one, k, d: (k, d + 1)),
    review.Review: _opening(lambda one, k, d: (k, d)),
    limits.SaturationThresholds: _opening(lambda one, k, d: (k, d)),
}
