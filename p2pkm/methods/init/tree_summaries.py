"""Seeds from the summaries of all devices, collected along a tree: what a flood finds, for far fewer bytes."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.expected_messages import Known, TreePass, TreePasses
from p2pkm.core.messages import Delivery, SparseMessages, Tables
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.methods.building_blocks.spanning_tree import (
    Front,
    Routes,
    Tree,
    begin,
    climb,
    descend,
    join,
    keep,
    route,
    single_rows,
    source_of,
)
from p2pkm.methods.init.flooded_summaries import cluster_collections
from p2pkm.methods.init.reduce_summaries import reduce, tell_pairs
from p2pkm.methods.init.select_candidate import judges, price

ENDS, BOX, PAIRS, _CANDIDATES, _LOSSES, _CHOICE = range(-2, 4)  # up, down, up, down, up, down
LEAST, ROWS = 20, 40  # rows that a message may have at least, and by default, for each cluster


@register("tree-summaries:walk")
class Walk(NamedTuple):
    """What a batch holds on the ways up and down.

    Attributes
    ----------
    routes : Routes
    own : Tables
        What each device sends of itself on the way up: pairs, then losses.
    front : Front
        What those send whose turn comes next.
    told : tuple
        On the way down the fronts so far, the last one first: (front, (front before, ...)).
    candidates : Tables
        The candidates of each device, q k rows in each.
    box : float64[n, 2 d + 2] or None
        Box and step that numbers are encoded with, see `p2pkm.methods.init.lean`; on the way up those of the own rows.
        None: they are not encoded.
    """

    routes: Routes
    own: Tables
    front: Front
    told: Any
    candidates: Tables
    box: Floats | None = None


@register("tree-summaries")
class RootedState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
        +inf until the candidates, or the chosen one, have come down.
    converged : bool[n]
    walk : Walk or None
        None at the end of the last way.
    """

    centroids: Floats
    converged: Mask
    walk: Walk | None


@dataclass(frozen=True)
class TreeSummaries(MethodBase):
    """Collect the pairs (centroid, count) of all devices at the root of a tree, and send clusterings down.

    As `FloodedSummaries` with all hops, but the pairs travel only the links between their device and the root, which
    alone clusters. A device that would pass on more than `rows` of them passes on half as many clusters of them
    instead, by weighted k-means. With several candidates the losses of all devices are summed on their way up, and
    the number of the smallest sum (lowest index on ties) comes down. The tree, breadth first from near the middle of
    each component, is known to all, like the colors. Each way takes as many turns as the tree has layers below its
    root; all are one round.

    Message: at most `rows` pairs up, d + 1 columns; k rows per candidate down; one row of losses up and of the choice
    down.

    Attributes
    ----------
    k : int
    tree : Tree
    candidates : int
    rows : int or None
        At least 20 k; None: 40 k.
    """

    name: ClassVar[str] = "tree-summaries"
    extra: ClassVar[int] = 1  # columns of a row beside the coordinates
    needs_within: ClassVar[bool] = False  # the SSE of rows does not change which centroids cost the least
    traits: ClassVar[MethodTraits] = MethodTraits(
        message_content=MessageContent.FORWARDED_CENTROIDS, one_round=True, common_centroids=True
    )
    k: int
    tree: Tree
    candidates: int = 1
    rows: int | None = None

    @property
    def most(self) -> int:
        """Return how many rows a message may have."""
        return self.rows or ROWS * self.k

    @property
    def own_rows(self) -> int:
        """Return how many rows a device sends of its own points at most."""
        return self.k

    def sends_all(self, known: Known) -> bool:
        """Return whether every device has so many rows for sure."""
        return known.fills(self.own_rows)

    def summarize(self, devices: Devices) -> Tables:
        """Return what every device sends of its own points: rows (origin, centroid, count)."""
        return tell_pairs(devices, self.k)

    def find(self, devices: Devices, collections: list[Floats]) -> Floats:
        """Return the candidates that a root finds among what it has collected, float64[collections, q, k, d]."""
        return cluster_collections(devices, collections, (self.candidates, self.k))

    @property
    def ways(self) -> int:
        """Return how often the tree is walked."""
        return 2 if self.candidates == 1 else 4

    @property
    def first_way(self) -> int:
        """Return the number of the first way."""
        return PAIRS

    def encode(self, messages: SparseMessages, way: int, walk: Walk, devices: Devices) -> SparseMessages:
        """Return the messages with their bytes on the wire, if they are encoded."""
        return messages

    def pack(self, front: Front, walk: Walk, devices: Devices) -> Front:
        """Return the tables as they are read once they have been encoded, if they are."""
        return front

    @property
    def schedule(self) -> str:
        """Return the schedule: one round has all the turns."""
        return f"jacobi*{max(1, int(self.tree.layer.max())) * (self.ways - self.first_way)}"

    def expected_messages(self, known: Known) -> TreePasses:
        """Return pairs up, clusterings down; with several of them their losses up and the choice down."""
        (parent, layers), q, d = self.tree, self.candidates, known.features
        one, sure = np.ones(len(layers), np.int64), np.ones(len(layers), np.bool_)
        pairs, counted = self._count_pairs(self.sends_all(known))
        ways = (
            TreePass(True, pairs, d + self.extra, counted),
            TreePass(False, one * q * self.k, d, known.pools(self.k) & sure),
            TreePass(True, one, q, sure),
            TreePass(False, one, 1, sure),
        )
        return TreePasses(parent, layers, ways[: self.ways])

    def _count_pairs(self, sure: bool) -> tuple[Integers, Mask]:
        """Return how many rows each device passes on at most, int64[n], and which of them so many for sure, bool[n].

        sure: every device has `own_rows`. More than `most` rows become half as many; of a number that is not sure it is
        not known whether it is more.
        """
        parent, layers = self.tree
        rows, exact = np.full(len(layers), self.own_rows), np.full(len(layers), sure)
        order = np.argsort(-layers, kind="stable")[: int((layers > 0).sum())]
        for one in np.split(order, np.cumsum(np.bincount(layers)[:0:-1])[:-1]):
            large = rows[one] > self.most
            rows[one[large]] = np.where(exact[one[large]], self.most // 2, self.most)
            exact[one[large]] = False
            np.add.at(rows, parent[one], rows[one])
            np.logical_and.at(exact, parent[one], exact[one])
        return rows, exact

    def finds_all(self, known: Known, before: bool) -> bool:
        """Return whether every device has k centroids in the end, for sure."""
        return known.pools(self.k)

    def initial_state(self, devices: Devices, start: Any) -> RootedState:
        """Summarize the own points; the deepest layer sends first."""
        n = len(devices)
        routes, pairs = route(self.tree, devices), self.summarize(devices)
        deepest = begin(routes, devices)
        nothing = np.broadcast_to(np.inf, (n, self.k, devices.d))  # one number that stands for all
        front = Front(deepest, pairs.take(deepest))
        return RootedState(nothing, np.zeros(n, np.bool_), Walk(routes, pairs, front, None, pairs.take(deepest[:0])))

    def message(self, state: RootedState, devices: Devices) -> SparseMessages:
        """Send to the parents or to the children what is due, layer by layer."""
        walk = state.walk
        if walk is None:
            return SparseMessages.empty()
        way, step = divmod(devices.turn + 1 if devices.round else 0, walk.routes.depth)
        way += self.first_way
        if way in (BOX, _CANDIDATES, _CHOICE):
            return self.encode(descend(walk.routes, walk.front, step, devices), way, walk, devices)
        return self.encode(climb(walk.routes, walk.front, header=int(way == PAIRS)), way, walk, devices)

    def update(self, state: RootedState, inbox: Delivery, devices: Devices) -> RootedState:
        """Take in what came up or down; at the end of a way, turn it round."""
        walk = state.walk
        if walk is None:
            return state
        way, step = divmod(devices.turn, walk.routes.depth)
        way += self.first_way
        last = step == walk.routes.depth - 1
        if way in (BOX, _CANDIDATES, _CHOICE):
            front = Front(source_of(devices, inbox.edges), keep(inbox.tables, walk.front.tables))
            walk = walk._replace(front=front, told=(front, walk.told))
            return state._replace(walk=walk) if not last else self.arrive(state, walk, way, devices)
        layer = walk.routes.layer(walk.routes.depth - 1 - step)
        front = Front(layer, walk.own.take(layer))
        if way == _LOSSES:
            front = _add(front, inbox, devices)
            return state._replace(walk=turn(walk, _choose(front)) if last else walk._replace(front=front))
        front = join(front, inbox, devices)
        if last:
            return self.turn_round(state, walk, front, devices)
        return state._replace(walk=walk._replace(front=self.pack(reduce(front, self.most, devices), walk, devices)))

    def arrive(self, state: RootedState, walk: Walk, way: int, devices: Devices) -> RootedState:
        """Price the candidates that have come to all devices, or take the chosen one."""
        found = gather(walk.told, walk.front.tables.values, len(devices))
        walk = walk._replace(told=None)
        if way == _CANDIDATES:
            walk = walk._replace(candidates=found)
            if self.candidates > 1:
                return state._replace(walk=self._price(walk, devices))
            choice = np.zeros(len(devices), np.int64)
        else:
            choice = np.clip(np.rint(found.flat()[:, 0]), 0, self.candidates - 1).astype(np.int64)
        return RootedState(choose_sets(walk.candidates, choice, self.k), np.ones(len(devices), np.bool_), None)

    @staticmethod
    def collect(roots: Front) -> list[Floats]:
        """Return the rows that each root has collected, in the order of origins, without these."""
        pairs, rows = roots.tables.flat(), roots.tables.rows
        pairs = pairs[np.lexsort((pairs[:, 0], np.repeat(np.arange(len(rows)), rows)))]
        return np.split(pairs[:, 1:], np.cumsum(rows)[:-1])[: len(rows)]

    def turn_round(self, state: RootedState, walk: Walk, roots: Front, devices: Devices) -> RootedState:
        """Let each root find candidates among what it has collected, and begin their way down."""
        found = self.find(devices, self.collect(roots))
        real = np.isfinite(found).any(axis=(1, 2, 3))
        height = self.candidates * self.k  # absent rows are at +inf: they keep their place
        tables = Tables(found.reshape(-1, devices.d), np.arange(len(found)) * height, np.where(real, height, 0))
        return state._replace(walk=turn(walk, Front(roots.who, tables)))

    def _price(self, walk: Walk, devices: Devices) -> Walk:
        """Begin the way of the losses of all candidates on the own points."""
        n, q = len(devices), self.candidates
        losses, judging = np.empty((n, q)), judges(devices, self.k)
        for number in range(q):
            losses[:, number] = price(devices, judging, choose_sets(walk.candidates, np.full(n, number), self.k))
        tables = Tables(losses, np.arange(n), np.ones(n, np.int64))
        deepest = walk.routes.layer(walk.routes.depth)
        return walk._replace(own=tables, front=Front(deepest, tables.take(deepest)))


def choose_sets(candidates: Tables, choice: Integers, k: int) -> Floats:
    """Choose one set of k centroids of each device, float64[n, k, d]; +inf at devices without candidates.

    Parameters
    ----------
    candidates : Tables
        Rows of whole sets, one after another, of each of n devices.
    choice : int64[n]
        Number of the set that is chosen.
    """
    d = candidates.values.shape[1]
    blocks = candidates.values.reshape(-1, k * d)
    real = candidates.rows > 0
    if real.all():
        return blocks[candidates.starts // k + choice].reshape(-1, k, d)
    sets = np.full((len(real), k, d), np.inf)
    sets[real] = blocks[candidates.starts[real] // k + choice[real]].reshape(-1, k, d)
    return sets


def turn(walk: Walk, front: Front) -> Walk:
    """Begin a way down with what the roots send."""
    return walk._replace(front=front, told=(front, None))


def gather(told: Any, values: Floats, n: int) -> Tables:
    """Return what each device received, from all fronts; the values of each begin with those of the one before."""
    starts, rows = np.zeros(n, np.int64), np.zeros(n, np.int64)
    while told is not None:
        front, told = told
        starts[front.who], rows[front.who] = front.tables.starts, front.tables.rows
    return Tables(values, starts, rows)


def _add(own: Front, received: Delivery, devices: Devices) -> Front:
    """Return the one row of each device plus those that it received, by neighbor."""
    total = own.tables.flat()
    np.add.at(total, np.searchsorted(own.who, source_of(devices, received.edges)), received.tables.flat())
    return single_rows(own.who, total)


def _choose(roots: Front) -> Front:
    """Return the number of the smallest sum at each root."""
    choice = np.argmin(roots.tables.flat(), axis=1).astype(np.float64)
    return single_rows(roots.who, choice[:, None])
