"""Messages and bytes of every round of a plan, without a run: exact where the data have no say, else at most."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from p2pkm.channel.byzantine import ByzantineMessages
from p2pkm.core.batch import Mask
from p2pkm.core.expected_messages import (
    NOTHING,
    ByRound,
    EveryTurn,
    Flooding,
    FloodThenPool,
    Reports,
    Silent,
    TreeBroadcast,
    TreeSums,
    TreeWalk,
    UntilQuiet,
    Volume,
    Way,
    tables,
)
from p2pkm.experiments.plan.draft import RunPlan
from p2pkm.experiments.plan.turns import by_events, play, sweep
from p2pkm.experiments.plan.volume import flood
from p2pkm.methods.init.pipelines import Stage, find_own

Rounds = Callable[[int], Volume]
# bits of an integer on the wire, about: of a move on the grid, in int8 or beside the method, else
_MOVE, _INT8, _DIFFERENCE = 4, 8, 10


class Course(NamedTuple):
    """What a stage sends.

    Attributes
    ----------
    name : str
    rounds : int
        At most.
    volume : callable
        Returns what is sent in round t, the opening being 0; None: unknown.
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
            return self.volume(0) + one.times(self.rounds)
        return sum((self.volume(t) for t in range(1, self.rounds + 1)), self.volume(0))


class Facts(NamedTuple):
    """What the traffic of a stage depends on; `full`: all k rows are in every table that the stage starts from."""

    plan: RunPlan
    stage: Stage
    full: bool


def stage_traffic(plan: RunPlan) -> list[Course]:
    """Return what every stage of a plan sends."""
    asked = plan.experiment
    found, full = [], False
    open_k = asked.clusters == "auto"  # planned with the largest k, of which fewer may be chosen
    narrow = open_k or asked.min_cluster_size > 1 or asked.byzantine is not None or asked.transforms is not None
    lies = _suspect(plan)
    for stage in plan.stages:
        sent = stage.algorithm.expected_messages(plan.known)
        course = Course(stage.name, stage.rounds, None)
        if sent is not None:
            volume, steady = _RULES[type(sent)](Facts(plan, stage, full), sent)
            volume = _lengthen(volume, stage, plan, lies) if lies else volume
            volume = _encode(volume, stage, plan)
            silent = asked.quantize.in_integers and stage.algorithm.traits.moves_on_grid  # who has not moved
            course = Course(stage.name, stage.rounds, _loosen(volume) if narrow or silent else volume, steady)
        found.append(course)
        full = stage.algorithm.finds_all(plan.known, full)
        narrow |= stage.algorithm.traits.cuts_links
    return found


def _encode(volume: Rounds, stage: Stage, plan: RunPlan) -> Rounds:
    """Return the same with about as many bytes on the wire as integers take, if the run sends them in this stage."""
    spec, traits = plan.experiment.quantize, stage.algorithm.traits
    if not spec.in_integers or not (traits.moves_on_grid or traits.counts_on_grid or stage is find_own(plan.stages)):
        return volume
    fixed = str(spec).startswith("int8") or traits.counts_on_grid
    bits = _INT8 if fixed else _MOVE if traits.moves_on_grid else _DIFFERENCE

    def at(t: int) -> Volume:
        found = volume(t)
        opening = traits.moves_on_grid and t == 0  # of the start that all hold, nothing is sent
        return found._replace(wire=0 if opening else found.messages + found.bytes * bits // 64)

    return at


def _loosen(volume: Rounds) -> Rounds:
    """Return the same as bounds: links may have gone out of use."""
    return lambda t: volume(t)._replace(exact_messages=False, exact_bytes=False)


def _suspect(plan: RunPlan) -> ByzantineMessages | None:
    """Return who may send tables that are a row too long, and in which stages; None: nobody."""
    if plan.run is None:
        return None
    found = plan.run.channel.find(ByzantineMessages)
    if found is None or found["spec"].kind != "nan":
        return None
    return ByzantineMessages(**found, method=type(find_own(plan.stages).algorithm))


def _lengthen(volume: Rounds, stage: Stage, plan: RunPlan, lies: ByzantineMessages) -> Rounds:
    """Return the same with one more row in every table of a Byzantine device, which a table of the wrong shape has."""
    told = lies.begin(stage, closing=False)
    if told is None or not told.acts:
        return volume
    liars = np.isin(np.arange(plan.topology.n), lies.ids)
    played = play(stage, plan)

    def more(t: int) -> int:
        if told.opening and t:
            return 0
        if played is None:  # every table may be a Byzantine device's; none is wider than a centroid and its count
            return 8 * volume(t).messages * (plan.size.features + 1)
        sources = plan.topology.sources
        return sum(
            8 * messages.columns * int(np.count_nonzero(messages.edges & (liars & (messages.rows > 0))[sources]))
            for messages in played.turns(t)
        )

    return lambda t: volume(t)._replace(bytes=volume(t).bytes + more(t))


def _sweep(facts: Facts, sent: EveryTurn) -> tuple[Rounds, bool]:
    """Let every device send one table over all links, once in a turn."""
    plan, stage, full = facts.plan, facts.stage, sent.absent_rows or facts.full
    e = len(plan.topology.indices)
    word, _, turns = stage.algorithm.schedule.partition("*")

    def volume(messages: int, *, certain: bool = True) -> Volume:
        return tables(messages, sent.rows, sent.columns, certain=certain, full=full)

    if by_events(stage, plan):
        degrees = plan.topology.degrees  # a round has as many turns as there are devices, whoever takes them
        most, alike = len(degrees) * int(degrees.max()), bool(degrees.min() == degrees.max())
        return lambda t: volume(most, certain=alike) if t else volume(e), True
    if word == "async" or sent.to != "all" or _changes(stage, plan):
        return _follow(facts, sent, volume), False
    each = int(turns or 1)
    return lambda t: volume(e * (each if t else 1)), True


def _changes(stage: Stage, plan: RunPlan) -> bool:
    """Return whether the links of a stage change from round to round."""
    return plan.topology.varying is not None and stage is find_own(plan.stages)


def _follow(facts: Facts, sent: EveryTurn, volume: Callable[[int], Volume]) -> Rounds:
    """Return the traffic of rounds that differ; each is played once, also if the links repeat."""
    topology, turns = facts.plan.topology, sweep(facts.stage, facts.plan, sent).turns
    period = topology.varying.period if topology.varying is not None and _changes(facts.stage, facts.plan) else None
    if sent.to != "all":  # who sends to whom does not repeat
        period = None

    @cache
    def at(t: int) -> Volume:
        return volume(sum(messages.count(topology) for messages in turns(t)))

    return lambda t: at(t if period is None or t == 0 else (t - 1) % period + 1)


def _star(facts: Facts, sent: Reports) -> tuple[Rounds, bool]:
    """Let clients report at the opening; in a round the server sends, and clients report if they still do."""
    n = facts.plan.topology.clients
    reports = Volume(n, 8 * sent.rows * sent.columns, True, sent.exact)
    down = tables(n, facts.plan.algorithm.k, facts.plan.size.features, full=sent.answered)
    one_shot = facts.plan.algorithm.traits.one_shot
    if one_shot:
        return lambda t: (reports, down)[t] if t <= 1 else NOTHING, False
    again = reports._replace(exact_bytes=sent.exact and sent.answered)
    return lambda t: down + again if t else reports, True


def _flood_once(facts: Facts, sent: Flooding) -> tuple[Rounds, bool]:
    """Let a table of each device spread."""
    e, n = len(facts.plan.topology.indices), facts.plan.topology.n
    waves, sure = flood(facts.plan.topology, sent.hops), facts.plan.least >= 1 and sent.all_send
    size = 8 * sent.rows * sent.columns
    if waves is None:  # each device sends in every turn at most, and each table travels each way once
        return lambda t: Volume(e, e * n * size if t == 0 else 0, False, False), False

    def at(t: int) -> Volume:
        if t >= len(waves):
            return NOTHING
        return Volume(waves[t].messages, waves[t].tables * size, sure or t == 0, sure and sent.exact)

    return at, False


def _opening(facts: Facts, sent: UntilQuiet) -> tuple[Rounds, bool]:
    """Let all send a table at the opening; then the data decide who goes on."""
    e = len(facts.plan.topology.indices)
    size = (e - (e // 2 if facts.plan.topology.hub >= 0 else 0)) * sent.rows * sent.columns  # a hub has no point
    first = Volume(e, 8 * size, True, sent.exact)
    return lambda t: tables(e, sent.rows, sent.columns, certain=False) if t else first, True


def _lead(facts: Facts, sent: TreeBroadcast) -> tuple[Rounds, bool]:
    """Let a layer of the tree send to the next one."""
    layers = np.bincount(facts.plan.topology.layers(np.flatnonzero(sent.parent < 0)))
    full, known = facts.stage.algorithm.finds_all(facts.plan.known, facts.full), facts.plan.dealt

    def at(t: int) -> Volume:
        links = int(layers[t + 1]) if t + 1 < len(layers) else 0
        return tables(links, sent.rows, sent.columns, certain=known, full=full)

    return at, False


def _walk(facts: Facts, sent: TreeWalk) -> tuple[Rounds, bool]:
    """Let the layers of a tree send one after the other, up or down: the deepest in the opening."""

    def volume(way: Way, links: Mask) -> Volume:  # those that end, upwards, at these devices
        numbers = int(way.rows[links].sum()) * way.columns
        messages, sized = int(links.sum()), bool(way.exact[links].all())
        wire = None if way.bits is None else int(numbers * way.bits / 8) + messages * way.certain
        return Volume(messages, 8 * numbers, way.certain, way.certain and sized, wire)

    linked = sent.layer > 0
    opening = volume(sent.ways[0], sent.layer == max(int(sent.layer.max()), 1))
    total, again = (sum((volume(way, linked) for way in ways), NOTHING) for ways in (sent.ways, sent.again))
    rest = (total + opening.times(-1))._replace(exact_bytes=total.exact_bytes)
    if facts.plan.experiment.all_rounds:  # nobody sends any more once the root has found the end
        again = again._replace(exact_messages=False, exact_bytes=False)
    return lambda t: (opening, rest)[t] if t < 2 else again, False


def _add_up(facts: Facts, sent: TreeSums) -> tuple[Rounds, bool]:
    """Let tables go up a tree and down again, once in a round; keys over all links before."""
    links = int((sent.layer > 0).sum())
    opening = tables(len(facts.plan.topology.indices) if sent.keys else 0, 1, sent.keys)
    rounds = [opening, *(tables(2 * links, rows, columns) for rows, columns in sent.tables)]
    return lambda t: rounds[t] if t < len(rounds) else NOTHING, False


def _pool(facts: Facts, sent: FloodThenPool) -> tuple[Rounds, bool]:
    """Flood a number of each device, then rows; one round."""
    number, _ = _flood_once(facts, Flooding(1, 1))
    first, rest = number(0), sum((number(t) for t in range(1, sent.hops + 1)), NOTHING)
    size = 8 * len(facts.plan.topology.indices) * sent.rows * sent.columns
    rows = Volume(first.messages + rest.messages, size, rest.exact_messages, False)
    return lambda t: (first, rest + rows)[t] if t < 2 else NOTHING, False


def _by_round(facts: Facts, sent: ByRound) -> tuple[Rounds, bool]:
    return lambda t: (sent.opening, sent.rest, sent.later)[min(t, 2)], False


def _silent(facts: Facts, sent: Silent) -> tuple[Rounds, bool]:
    return lambda t: NOTHING, True


_RULES: Mapping[type, Callable[[Facts, Any], tuple[Rounds, bool]]] = {
    EveryTurn: _sweep,
    Reports: _star,
    Silent: _silent,
    FloodThenPool: _pool,
    ByRound: _by_round,
    TreeBroadcast: _lead,
    TreeWalk: _walk,
    TreeSums: _add_up,
    Flooding: _flood_once,
    UntilQuiet: _opening,
}
