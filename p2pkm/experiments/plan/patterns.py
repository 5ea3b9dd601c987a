"""Messages of each device in each round of a stage, predicted from the message pattern that its algorithm declares.

Each pattern of `p2pkm.core.expected_messages` has one rule here. Round 0 is the initial exchange of a stage. A
prediction is exact if it cannot depend on the points, otherwise an upper bound.
"""

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
    MessageVolume,
    NoMessages,
    Reports,
    TreeBroadcast,
    TreePass,
    TreePasses,
    TreeSums,
    UntilUnchanged,
    tables,
)
from p2pkm.core.protocols import declares
from p2pkm.data.shards import Shards
from p2pkm.engine.build_batch import build_batch
from p2pkm.experiments.plan.draft import RunPlan
from p2pkm.experiments.plan.volume import count_flooded_tables
from p2pkm.kernels import reference as plain
from p2pkm.methods.building_blocks.random_matching import match, pick_neighbor
from p2pkm.methods.init.pipelines import Stage, find_method_stage
from p2pkm.methods.schedules import make
from p2pkm.network.graph import Topology
from p2pkm.network.halo import place
from p2pkm.network.local import LocalNetwork


class SentTables(NamedTuple):
    """Messages of a round, with tables of equal shape for each device.

    Attributes
    ----------
    messages : int64[n]
        Number of messages of each device.
    rows : int64[n]
        Rows of each message table of a device.
    columns : int
    certain : bool
        The numbers of messages are exact, otherwise upper bounds.
    exact : bool
        The numbers of rows are exact, otherwise upper bounds.
    wire : int or None
        Approximate encoded bytes of all tables; None: 8 per value.
    """

    messages: Integers
    rows: Integers
    columns: int
    certain: bool = True
    exact: bool = True
    wire: int | None = None

    @property
    def volume(self) -> MessageVolume:
        """Messages and bytes."""
        values = int((self.messages * self.rows).sum()) * self.columns
        return MessageVolume(int(self.messages.sum()), 8 * values, self.certain, self.certain and self.exact, self.wire)

    def extra_row_bytes(self, senders: Mask) -> int:
        """Compute the bytes of one additional row in each table of these devices."""
        return 8 * self.columns * int(self.messages[senders & (self.rows > 0)].sum())


# Messages of a round. A `MessageVolume` is a bound over all devices, where the devices that send are not known.
Sent = tuple[SentTables | MessageVolume, ...]
# Messages of round t as a function of t.
SentByRound = Callable[[int], Sent]


class TrafficInputs(NamedTuple):
    """Inputs of a prediction.

    Attributes
    ----------
    plan : RunPlan
    stage : Stage
    full : bool
        All k centroids are present on every device when the stage begins.
    """

    plan: RunPlan
    stage: Stage
    full: bool

    @property
    def topology(self) -> Topology:
        """Communication graph of the plan."""
        return self.plan.topology

    @property
    def keeps_all(self) -> bool:
        """Whether every device is guaranteed to hold k centroids in all rounds; a method that does not say may not."""
        algorithm = self.stage.algorithm
        return self.full and declares(algorithm, "finds_all") and algorithm.finds_all(self.plan.known, self.full)


def add_up(sent: Iterable[SentTables | MessageVolume]) -> MessageVolume:
    """Add up messages and bytes."""
    return sum((part if isinstance(part, MessageVolume) else part.volume for part in sent), NOTHING)


def predict_sent(pattern: Any, inputs: TrafficInputs) -> tuple[SentByRound, bool]:
    """Predict the messages of each round, and whether all rounds after round 0 are equal."""
    return _RULES[type(pattern)](inputs, pattern)


def _every_turn(inputs: TrafficInputs, sent: EveryTurn) -> tuple[SentByRound, bool]:
    """Predict one table over each link in use, in each turn of an active device."""
    plan, stage, degrees = inputs.plan, inputs.stage, inputs.topology.degrees
    rows, full = np.full(len(degrees), sent.rows), sent.absent_rows or inputs.full
    later_full = sent.absent_rows or inputs.keeps_all
    schedule, _, turns = stage.algorithm.schedule.partition("*")
    opening = SentTables(degrees, rows, sent.columns, exact=full)
    if _is_event_driven(stage, plan):
        # A round has n turns, but which devices act depends on the clocks: exact only if all degrees are equal.
        most, is_regular = len(degrees) * int(degrees.max()), bool(degrees.min() == degrees.max())
        later = tables(most, sent.rows, sent.columns, certain=is_regular, full=later_full)
        return lambda t: (later if t else opening,), True
    if schedule == "async" or sent.to != "all" or _varies(stage, plan):
        count = _count_by_round(inputs, sent)
        return lambda t: (opening._replace(messages=count(t), exact=later_full if t else full),), False
    later_tables = opening._replace(messages=degrees * int(turns or 1), exact=later_full)
    return lambda t: (later_tables if t else opening,), True


def _is_event_driven(stage: Stage, plan: RunPlan) -> bool:
    """Check whether simulated clocks decide which device acts next."""
    timed = plan.experiment.link_model is not None and plan.topology.varying is None
    return stage.algorithm.schedule == "async" and timed and stage is find_method_stage(plan.stages)


def _varies(stage: Stage, plan: RunPlan) -> bool:
    """Check whether the stage runs on a time-varying graph."""
    return plan.topology.varying is not None and stage is find_method_stage(plan.stages)


def _count_by_round(inputs: TrafficInputs, sent: EveryTurn) -> Callable[[int], Integers]:
    """Build a function that counts the messages of each device in round t, int64[n].

    The schedule and the random neighbors are drawn as in the run. On a time-varying graph all devices send over the
    new links. For a periodic graph, counts of a period are computed once.
    """
    plan, stage, topology = inputs.plan, inputs.stage, inputs.topology
    devices = _placeholder_devices(plan)
    schedule = make(stage.algorithm.schedule, devices, topology.colors)
    graph = topology.varying if _varies(stage, plan) else None
    all_edges, all_devices = np.ones(len(topology.indices), np.bool_), np.ones(topology.n, np.bool_)
    links = (lambda t: all_edges) if graph is None else lru_cache(2)(graph.active)

    def count_turn(turn: int, senders: Mask) -> Integers:
        edges = links(turn)
        if sent.to == "partner":
            partner = match(topology, devices.shared_key, turn + 1, None if graph is None else edges)
            senders, edges = partner >= 0, partner[topology.sources] == topology.indices
        elif sent.to == "one":
            edges = pick_neighbor(devices.with_active_edges(edges, devices.neighbor_degrees), turn)
        return np.bincount(topology.sources[edges & senders[topology.sources]], minlength=topology.n)

    # Neighbors drawn at random differ in every round, even if the links repeat.
    period = graph.period if graph is not None and sent.to == "all" else None

    @lru_cache(period or 2)
    def count(t: int) -> Integers:
        turns = [schedule.opening] if t == 0 else list(schedule.turns(t))
        total = np.zeros(topology.n, np.int64)
        for number, active in enumerate(turns, 1):
            # The links advance in every turn if the schedule is in step, otherwise only in the last turn of a round.
            advances = schedule.is_synchronous or number == len(turns)
            if t == 0:
                turn = 0
            elif schedule.is_synchronous:
                turn = (t - 1) * len(turns) + number
            else:
                turn = t - (not advances)
            total += count_turn(turn, all_devices if graph is not None and advances else active)
        return total

    return lambda t: count(t if period is None or t == 0 else (t - 1) % period + 1)


def _placeholder_devices(plan: RunPlan) -> Devices:
    """Build devices with one point each: schedules do not depend on the points."""
    n = plan.topology.n
    points = Shards(np.zeros((n, 1)), np.arange(n + 1), np.ones(n), None, np.arange(n))
    return build_batch(plan.topology, points, LocalNetwork(place(plan.topology, 0, 1)), plan.experiment.seed, plain)


def _reports(inputs: TrafficInputs, sent: Reports) -> tuple[SentByRound, bool]:
    """Predict reports in round 0, then an answer of the server in each round, followed by reports for the next one."""
    topology, method = inputs.topology, inputs.plan.algorithm
    hub = np.arange(topology.n) == topology.hub
    each = inputs.plan.sizes if sent.by_points else np.full(topology.n, sent.rows // topology.clients)
    rows = np.full(topology.n, method.k)
    graph = topology.varying if _varies(inputs.stage, inputs.plan) else None

    def predict(t: int) -> Sent:
        # Each client that is asked has one active link, and the server one for each of them.
        asked = topology.degrees if graph is None else graph.degrees(t)
        down = SentTables(asked * hub, rows, inputs.plan.size.features, exact=sent.answered)
        reports = SentTables(asked * ~hub, each, sent.columns, exact=sent.exact and (t == 0 or sent.answered))
        if method.traits.one_shot:
            return ((reports,), (down,))[t] if t < 2 else ()
        return (down, reports) if t else (reports,)

    return predict, graph is None and not method.traits.one_shot


def _flooding(inputs: TrafficInputs, sent: Flooding) -> tuple[SentByRound, bool]:
    """Predict the flood of a table of each device."""
    e, degrees, counts = len(inputs.topology.indices), inputs.topology.degrees, count_flooded_tables(inputs.topology)
    if counts is None:
        # Bounds: each device sends in every turn, and each table passes each edge once. Round 0 accounts for the bytes.
        size = 8 * sent.rows * sent.columns
        return lambda t: (MessageVolume(e, e * inputs.topology.n * size if t == 0 else 0, False, False),), False
    counts = counts[: sent.hops]
    all_have_tables = inputs.plan.min_points >= 1 and sent.all_send

    def predict(t: int) -> Sent:
        if t >= len(counts):
            return ()
        messages = np.where((counts[t] > 0) | (t == 0), degrees, 0)
        certain, exact = all_have_tables or t == 0, all_have_tables and sent.exact
        return (SentTables(messages, counts[t] * sent.rows, sent.columns, certain, exact),)

    return predict, False


def _until_quiet(inputs: TrafficInputs, sent: UntilUnchanged) -> tuple[SentByRound, bool]:
    """Predict a table of each device in round 0; the points decide which devices send later."""
    topology = inputs.topology
    # A server is without points and sends an empty table.
    rows = np.where(np.arange(topology.n) == topology.hub, 0, sent.rows)
    opening = SentTables(topology.degrees, rows, sent.columns, exact=sent.exact)
    most = opening._replace(rows=np.full(topology.n, sent.rows), certain=False)
    return lambda t: (most if t else opening,), True


def _tree_broadcast(inputs: TrafficInputs, sent: TreeBroadcast) -> tuple[SentByRound, bool]:
    """Predict messages from each layer of a tree to the next, one layer per round."""
    layers = inputs.topology.layers(np.flatnonzero(sent.parent < 0))
    full, n = inputs.stage.algorithm.finds_all(inputs.plan.known, inputs.full), inputs.topology.n

    def predict(t: int) -> Sent:
        messages = np.bincount(sent.parent[layers == t + 1], minlength=n)
        return (SentTables(messages, np.full(n, sent.rows), sent.columns, inputs.plan.sizes_known, full),)

    return predict, False


def _tree_walk(inputs: TrafficInputs, sent: TreePasses) -> tuple[SentByRound, bool]:
    """Predict passes up and down a tree; the deepest layer sends in round 0."""
    has_parent = sent.layer > 0
    is_deepest = sent.layer == max(int(sent.layer.max()), 1)
    first, *other_ways = sent.passes
    opening = (_tree_pass(sent.parent, first, is_deepest),)
    rest = _tree_pass(sent.parent, first, has_parent & ~is_deepest)
    rest = rest._replace(exact=bool(first.exact[has_parent].all()))
    first_round = (rest, *(_tree_pass(sent.parent, way, has_parent) for way in other_ways))
    later = tuple(_tree_pass(sent.parent, way, has_parent) for way in sent.later_passes)
    if inputs.plan.experiment.all_rounds:
        # With --all-rounds the rounds go past convergence, after which nothing is sent.
        later = tuple(part._replace(certain=False) for part in later)
    return lambda t: (opening, first_round)[t] if t < 2 else later, False


def _tree_pass(parent: Integers, way: TreePass, children: Mask) -> SentTables:
    """Predict the messages between these devices and their parents, in one direction."""
    ids = np.flatnonzero(children)
    messages = np.bincount(ids if way.up else parent[ids], minlength=len(parent))
    sent = SentTables(messages, way.rows, way.columns, way.certain, bool(way.exact[children].all()))
    if way.bits is None:
        return sent
    # A partly used last byte per message, at most 1, unless the message may be absent.
    return sent._replace(wire=int(sent.volume.bytes * way.bits / 64) + len(ids) * way.certain)


def _tree_sums(inputs: TrafficInputs, sent: TreeSums) -> tuple[SentByRound, bool]:
    """Predict keys over all links in round 0, then at most one table up and one down each tree link in every round."""
    n = inputs.topology.n
    bounds = np.zeros(n, np.bool_)
    keys = (SentTables(inputs.topology.degrees, np.ones(n, np.int64), sent.keys),) if sent.keys else ()

    def predict(t: int) -> Sent:
        if not 1 <= t <= len(sent.tables):
            return () if t else keys
        ways = (
            TreePass(up, np.full(n, values), 1, bounds, certain=t <= sent.certain)
            for up, values in zip((True, False), sent.tables[t - 1], strict=True)
        )
        return tuple(_tree_pass(sent.parent, way, sent.layer > 0) for way in ways)

    return predict, False


def _flood_then_pool(inputs: TrafficInputs, sent: FloodThenPool) -> tuple[SentByRound, bool]:
    """Predict a flood of one number of each device, then of rows, within one round."""
    flood, _ = _flooding(inputs, Flooding(1, 1))
    opening = add_up(flood(0))
    rest = add_up(part for t in range(1, sent.hops + 1) for part in flood(t))
    size = 8 * len(inputs.topology.indices) * sent.rows * sent.columns
    rows = MessageVolume(opening.messages + rest.messages, size, rest.exact_messages, False)
    return lambda t: ((opening,), (rest, rows))[t] if t < 2 else (), False


def _by_round(inputs: TrafficInputs, sent: ByRound) -> tuple[SentByRound, bool]:
    return lambda t: ((sent.opening, sent.rest, sent.later)[min(t, 2)],), False


def _silent(inputs: TrafficInputs, sent: NoMessages) -> tuple[SentByRound, bool]:
    return lambda t: (), True


_RULES: Mapping[type, Callable[[TrafficInputs, Any], tuple[SentByRound, bool]]] = {
    EveryTurn: _every_turn,
    Reports: _reports,
    NoMessages: _silent,
    FloodThenPool: _flood_then_pool,
    ByRound: _by_round,
    TreeBroadcast: _tree_broadcast,
    TreePasses: _tree_walk,
    TreeSums: _tree_sums,
    Flooding: _flooding,
    UntilUnchanged: _until_quiet,
}
