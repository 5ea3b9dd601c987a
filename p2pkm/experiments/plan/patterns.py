"""Tables that devices send in each round of a stage, by the message pattern that its algorithm declares."""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Integers, Mask
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


class SentTables(NamedTuple):
    """Equal tables of each device that are sent in a round.

    Attributes
    ----------
    messages : int64[n]
        Messages of each device, a table in each.
    rows : int64[n]
        Rows of the tables of each device.
    columns : int
    certain : bool
        Whether the number of messages is certain, else an upper bound.
    exact : bool
        Whether the number of rows is certain, else an upper bound.
    wire : int or None
        Approximate bytes of all tables as encoded; None: 8 per number.
    """

    messages: Integers
    rows: Integers
    columns: int
    certain: bool = True
    exact: bool = True
    wire: int | None = None

    @property
    def volume(self) -> Volume:
        """Messages and bytes."""
        numbers = int((self.messages * self.rows).sum()) * self.columns
        return Volume(int(self.messages.sum()), 8 * numbers, self.certain, self.certain and self.exact, self.wire)

    def one_more_row(self, senders: Mask) -> int:
        """Return the bytes of one more row in each table of these devices."""
        return 8 * self.columns * int(self.messages[senders & (self.rows > 0)].sum())


# of a round: where only a bound of all devices together is known, a volume
Sent = tuple[SentTables | Volume, ...]
Rounds = Callable[[int], Sent]


class Facts(NamedTuple):
    """Plan and stage, and whether all k rows are in every table that the stage starts from."""

    plan: RunPlan
    stage: Stage
    full: bool

    @property
    def topology(self) -> Topology:
        """Graph of the plan."""
        return self.plan.topology


def add_up(sent: Iterable[SentTables | Volume]) -> Volume:
    """Add up messages and bytes."""
    return sum((part if isinstance(part, Volume) else part.volume for part in sent), NOTHING)


def read(pattern: Any, facts: Facts) -> tuple[Rounds, bool]:
    """Return what is sent in round t, 0 being the opening, and whether all rounds but the opening are the same."""
    return _RULES[type(pattern)](facts, pattern)


def _every_turn(facts: Facts, sent: EveryTurn) -> tuple[Rounds, bool]:
    """Send one table over all links in use, in each turn of an active device."""
    plan, stage, degrees = facts.plan, facts.stage, facts.topology.degrees
    rows, full = np.full(len(degrees), sent.rows), sent.absent_rows or facts.full
    word, _, turns = stage.algorithm.schedule.partition("*")
    opening = SentTables(degrees, rows, sent.columns, exact=full)
    if _is_event_driven(stage, plan):
        most, alike = len(degrees) * int(degrees.max()), bool(degrees.min() == degrees.max())  # n turns of any devices
        later = tables(most, sent.rows, sent.columns, certain=alike, full=full)
        return lambda t: (later if t else opening,), True
    if word == "async" or sent.to != "all" or _changes(stage, plan):
        count = _count_by_round(facts, sent)
        return lambda t: (opening._replace(messages=count(t)),), False
    again = opening._replace(messages=degrees * int(turns or 1))
    return lambda t: (again if t else opening,), True


def _is_event_driven(stage: Stage, plan: RunPlan) -> bool:
    """Check whether clocks decide which device acts, one per turn."""
    timed = plan.experiment.link_model is not None and plan.topology.varying is None
    return stage.algorithm.schedule == "async" and timed and stage is find_own(plan.stages)


def _changes(stage: Stage, plan: RunPlan) -> bool:
    """Check whether the links of a stage change from round to round."""
    return plan.topology.varying is not None and stage is find_own(plan.stages)


def _count_by_round(facts: Facts, sent: EveryTurn) -> Callable[[int], Integers]:
    """Return a function that counts the messages of each device in round t, int64[n].

    Where the links change, all devices send over the new ones; where they repeat, so do the counts.
    """
    plan, stage, topology = facts.plan, facts.stage, facts.topology
    devices = _imitate(plan)
    schedule = make(stage.algorithm.schedule, devices, topology.colors)
    graph = topology.varying if _changes(stage, plan) else None
    every, everybody = np.ones(len(topology.indices), np.bool_), np.ones(topology.n, np.bool_)
    links = (lambda t: every) if graph is None else lru_cache(2)(graph.active)

    def turn(now: int, sending: Mask) -> Integers:
        edges = links(now)
        if sent.to == "partner":
            partner = match(topology, devices.shared_key, now + 1, None if graph is None else edges)
            sending, edges = partner >= 0, partner[topology.sources] == topology.indices
        elif sent.to == "one":
            edges = pick_neighbor(devices.with_active_edges(edges, devices.neighbor_degrees), now)
        return np.bincount(topology.sources[edges & sending[topology.sources]], minlength=topology.n)

    # where neighbors of a turn are drawn, links may repeat without the messages repeating
    period = graph.period if graph is not None and sent.to == "all" else None

    @lru_cache(period or 2)
    def count(t: int) -> Integers:
        woken, total = [schedule.opening] if t == 0 else list(schedule.turns(t)), np.zeros(topology.n, np.int64)
        for number, awake in enumerate(woken, 1):
            due = schedule.is_synchronous or number == len(woken)
            now = 0 if t == 0 else (t - 1) * len(woken) + number if schedule.is_synchronous else t - (not due)
            total += turn(now, everybody if graph is not None and due else awake)
        return total

    return lambda t: count(t if period is None or t == 0 else (t - 1) % period + 1)


def _imitate(plan: RunPlan) -> Devices:
    """Return all devices with one point each: a schedule does not depend on the points."""
    n = plan.topology.n
    points = Shards(np.zeros((n, 1)), np.arange(n + 1), np.ones(n), None, np.arange(n))
    return build_batch(plan.topology, points, LocalNetwork(place(plan.topology, 0, 1)), plan.experiment.seed, plain)


def _reports(facts: Facts, sent: Reports) -> tuple[Rounds, bool]:
    """Send reports in the opening; in a round the server sends, then the clients if the method has several rounds."""
    topology, method = facts.topology, facts.plan.algorithm
    hub = np.arange(topology.n) == topology.hub
    each = facts.plan.sizes if sent.by_points else np.full(topology.n, sent.rows // topology.clients)
    reports = SentTables((~hub).astype(np.int64), each, sent.columns, exact=sent.exact)
    rows = np.full(topology.n, method.k)
    down = SentTables(topology.clients * hub, rows, facts.plan.size.features, exact=sent.answered)
    if method.traits.one_shot:
        return lambda t: ((reports,), (down,))[t] if t <= 1 else (), False
    again = down, reports._replace(exact=sent.exact and sent.answered)
    return lambda t: again if t else (reports,), True


def _flooding(facts: Facts, sent: Flooding) -> tuple[Rounds, bool]:
    """Spread a table of each device."""
    e, degrees, counts = len(facts.topology.indices), facts.topology.degrees, spread(facts.topology)
    if counts is None:  # each device sends in every turn at most, and each table travels each way once
        size = 8 * sent.rows * sent.columns
        return lambda t: (Volume(e, e * facts.topology.n * size if t == 0 else 0, False, False),), False
    waves, sure = counts[: sent.hops], facts.plan.least >= 1 and sent.all_send

    def at(t: int) -> Sent:
        if t >= len(waves):
            return ()
        messages = np.where((waves[t] > 0) | (t == 0), degrees, 0)
        certain = sure or t == 0
        return (SentTables(messages, waves[t] * sent.rows, sent.columns, certain, sure and sent.exact),)

    return at, False


def _until_quiet(facts: Facts, sent: UntilQuiet) -> tuple[Rounds, bool]:
    """Send a table of each device in the opening; then the data decide which devices send."""
    topology = facts.topology
    rows = np.where(np.arange(topology.n) == topology.hub, 0, sent.rows)  # a hub has no point
    opening = SentTables(topology.degrees, rows, sent.columns, exact=sent.exact)
    most = opening._replace(rows=np.full(topology.n, sent.rows), certain=False)
    return lambda t: (most if t else opening,), True


def _tree_broadcast(facts: Facts, sent: TreeBroadcast) -> tuple[Rounds, bool]:
    """Send from each layer of a tree to the next one."""
    layers = facts.topology.layers(np.flatnonzero(sent.parent < 0))
    full, n = facts.stage.algorithm.finds_all(facts.plan.known, facts.full), facts.topology.n

    def at(t: int) -> Sent:
        messages = np.bincount(sent.parent[layers == t + 1], minlength=n)
        return (SentTables(messages, np.full(n, sent.rows), sent.columns, facts.plan.dealt, full),)

    return at, False


def _tree_walk(facts: Facts, sent: TreeWalk) -> tuple[Rounds, bool]:
    """Send along the ways of a tree, layer by layer: the deepest one in the opening."""
    linked = sent.layer > 0
    deepest = sent.layer == max(int(sent.layer.max()), 1)
    first, *others = sent.ways
    opening = (_along(sent.parent, first, deepest),)
    rest = _along(sent.parent, first, linked & ~deepest)._replace(exact=bool(first.exact[linked].all()))
    whole = (rest, *(_along(sent.parent, way, linked) for way in others))
    again = tuple(_along(sent.parent, way, linked) for way in sent.again)
    if facts.plan.experiment.all_rounds:  # once the root has found the end, nothing is sent any more
        again = tuple(part._replace(certain=False) for part in again)
    return lambda t: (opening, whole)[t] if t < 2 else again, False


def _along(parent: Integers, way: Way, links: Mask) -> SentTables:
    """Return the tables of a way over the links from these devices to their parents, or in the other direction."""
    ends = np.flatnonzero(links)
    messages = np.bincount(ends if way.up else parent[ends], minlength=len(parent))
    found = SentTables(messages, way.rows, way.columns, way.certain, bool(way.exact[links].all()))
    if way.bits is None:
        return found
    return found._replace(wire=int(found.volume.bytes * way.bits / 64) + len(ends) * way.certain)


def _tree_sums(facts: Facts, sent: TreeSums) -> tuple[Rounds, bool]:
    """Send keys over all links in the opening, then a table up and one down each link of a tree in every round."""
    n, sure = facts.topology.n, np.ones(facts.topology.n, np.bool_)
    keys = (SentTables(facts.topology.degrees, np.ones(n, np.int64), sent.keys),) if sent.keys else ()

    def at(t: int) -> Sent:
        if not 1 <= t <= len(sent.tables):
            return () if t else keys
        rows, columns = sent.tables[t - 1]
        ways = (Way(up, np.full(n, rows), columns, sure) for up in (True, False))
        return tuple(_along(sent.parent, way, sent.layer > 0) for way in ways)

    return at, False


def _flood_then_pool(facts: Facts, sent: FloodThenPool) -> tuple[Rounds, bool]:
    """Flood a number of each device, then rows; one round."""
    number, _ = _flooding(facts, Flooding(1, 1))
    first, rest = number(0), add_up(part for t in range(1, sent.hops + 1) for part in number(t))
    size = 8 * len(facts.topology.indices) * sent.rows * sent.columns
    rows = Volume(add_up(first).messages + rest.messages, size, rest.exact_messages, False)
    return lambda t: ((add_up(first),), (rest, rows))[t] if t < 2 else (), False


def _by_round(facts: Facts, sent: ByRound) -> tuple[Rounds, bool]:
    return lambda t: ((sent.opening, sent.rest, sent.later)[min(t, 2)],), False


def _silent(facts: Facts, sent: Silent) -> tuple[Rounds, bool]:
    return lambda t: (), True


_RULES: Mapping[type, Callable[[Facts, Any], tuple[Rounds, bool]]] = {
    EveryTurn: _every_turn,
    Reports: _reports,
    Silent: _silent,
    FloodThenPool: _flood_then_pool,
    ByRound: _by_round,
    TreeBroadcast: _tree_broadcast,
    TreeWalk: _tree_walk,
    TreeSums: _tree_sums,
    Flooding: _flooding,
    UntilQuiet: _until_quiet,
}
