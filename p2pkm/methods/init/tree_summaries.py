"""Initialization by clustering the summaries of all devices, collected at the root of a spanning tree.

The result has the quality of flooded summaries, for far fewer bytes.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.expected_messages import Known, TreePass, TreePasses
from p2pkm.core.messages import Delivery, SparseMessages, Tables
from p2pkm.core.protocols import MethodBase
from p2pkm.core.sorting import find_distinct
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.methods.building_blocks.spanning_tree import (
    LocalTree,
    PendingTables,
    Tree,
    append_received,
    first_senders,
    local_tree,
    send_to_children,
    send_to_parents,
    share_equal_tables,
    single_rows,
    source_devices,
)
from p2pkm.methods.init.flooded_summaries import cluster_collections
from p2pkm.methods.init.reduce_summaries import reduce_tables, summarize_with_origins
from p2pkm.methods.init.select_candidate import candidate_costs, evaluation_points

# Numbers of the tree passes, alternately up and down. The first two exist with compact encoding only, so that the
# numbers of the others do not depend on it.
BOX_UP, BOX_DOWN, ROWS_UP, _CANDIDATES, _LOSSES, _CHOICE = range(-2, 4)
# Limit of the rows of a message per cluster: smallest value that a user can set, and default.
MIN_ROWS_PER_CLUSTER = 20
ROWS_PER_CLUSTER = 40


@register("tree-summaries:walk")
class TreePassState(NamedTuple):
    """Data of a batch during the tree passes.

    Attributes
    ----------
    routes : LocalTree
    local_tables : Tables
        Local table of each device for the pass up: summary rows, then losses.
    front : PendingTables
        Tables of the devices that send next.
    sent_tables : tuple or None
        During a pass down, the tables sent so far as a linked list, the last ones first: (front, previous list).
    candidates : Tables
        Candidates of each device, q k rows.
    box : float64[n, 2 d + 2] or None
        Box and votes on the step of the compact encoding, see `p2pkm.methods.init.lean`; local ones until the agreed
        ones arrive. None without compact encoding.
    """

    routes: LocalTree
    local_tables: Tables
    front: PendingTables
    sent_tables: Any
    candidates: Tables
    box: Floats | None = None


@register("tree-summaries")
class TreeSummariesState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
        +inf until the end of the last pass.
    converged : bool[n]
    walk : TreePassState or None
        None after the last pass.
    """

    centroids: Floats
    converged: Mask
    walk: TreePassState | None


@dataclass(frozen=True)
class TreeSummaries(MethodBase):
    """Initialization by clustering the local centroids of all devices at the root of a spanning tree.

    All devices of a component end with the same centroids.

    Attributes
    ----------
    k : int
        Number of clusters.
    tree : Tree
        Breadth-first tree from near the middle of each component. Public: it follows from the graph.
    candidates : int, default=1
        Number of clusterings among which the devices select.
    rows : int or None
        Largest number of rows of a message, at least 20 k; None: 40 k.

    See Also
    --------
    FloodedSummaries : the same clustering on every device, by flooding.

    Notes
    -----
    **Update.** All in one round; each pass takes as many turns as the tree has layers below the root.

    1. Up: summary rows (centroid, count) of each device's local k-means. A device with more than `rows` rows replaces
       them by half as many clusters (weighted k-means).
    2. Down: the root clusters all rows; the candidates are sent to all devices.
    3. With several candidates, up: sums of the local losses of each candidate; down: the number of the smallest sum,
       the lowest on ties.

    **Messages.** Up at most `rows` rows of d + 1 columns; down k rows per candidate; with several candidates one row of
    losses up and one number down.

    **Privacy.** No guarantee. The devices on the path to the root receive the local centroids and counts of a device; a
    centroid of one point is that point. With a `min_cluster_size` p centroids of fewer than p points are not sent.

    **Faults.** A lost message would remove a subtree. With faults, ``init=global`` floods if that is affordable.
    """

    name: ClassVar[str] = "tree-summaries"
    # Columns of a row in addition to the coordinates.
    extra: ClassVar[int] = 1
    # The SSE of rows is the same for all centroids, so the search for the cheapest ones does not need it.
    needs_within: ClassVar[bool] = False
    traits: ClassVar[MethodTraits] = MethodTraits(
        message_content=MessageContent.FORWARDED_CENTROIDS, one_round=True, common_centroids=True
    )
    k: int
    tree: Tree
    candidates: int = 1
    rows: int | None = None

    @property
    def max_rows(self) -> int:
        """Largest number of rows of a message."""
        return self.rows or ROWS_PER_CLUSTER * self.k

    @property
    def rows_per_device(self) -> int:
        """Largest number of rows of a device's local points."""
        return self.k

    def sends_all(self, known: Known) -> bool:
        """Check whether every device is certain to have `rows_per_device` rows."""
        return known.fills(self.rows_per_device)

    def summarize(self, devices: Devices) -> Tables:
        """Summarize the local points of every device as rows (origin, centroid, count)."""
        return summarize_with_origins(devices, self.k)

    def find_candidates(self, devices: Devices, collections: list[Floats]) -> Floats:
        """Cluster the rows of each root, float64[collections, q, k, d]."""
        return cluster_collections(devices, collections, (self.candidates, self.k))

    @property
    def end_of_passes(self) -> int:
        """Number of the last tree pass, plus 1."""
        return 2 if self.candidates == 1 else 4

    @property
    def first_pass(self) -> int:
        """Number of the first tree pass."""
        return ROWS_UP

    def encode(self, messages: SparseMessages, tree_pass: int, walk: TreePassState, devices: Devices) -> SparseMessages:
        """Add the encoded bytes to messages, with compact encoding."""
        return messages

    def pack(self, front: PendingTables, walk: TreePassState, devices: Devices) -> PendingTables:
        """Round tables to their encoded values, with compact encoding."""
        return front

    @property
    def schedule(self) -> str:
        """Schedule: all tree passes are turns of one round."""
        return f"jacobi*{max(1, int(self.tree.layer.max())) * (self.end_of_passes - self.first_pass)}"

    def expected_messages(self, known: Known) -> TreePasses:
        """Count rows up and clusterings down; with several candidates also losses up and the choice down."""
        (parent, layers), q, d = self.tree, self.candidates, known.features
        single_row = np.ones(len(layers), np.int64)
        exact = np.ones(len(layers), np.bool_)
        rows, is_exact = self._count_rows(self.sends_all(known))
        passes = (
            TreePass(True, rows, d + self.extra, is_exact),
            TreePass(False, single_row * q * self.k, d, known.pools(self.k) & exact),
            TreePass(True, single_row, q, exact),
            TreePass(False, single_row, 1, exact),
        )
        return TreePasses(parent, layers, passes[: self.end_of_passes])

    def _count_rows(self, complete: bool) -> tuple[Integers, Mask]:
        """Count the rows that each device sends up.

        Parameters
        ----------
        complete : bool
            Whether every device has `rows_per_device` rows.

        Returns
        -------
        rows : int64[n]
            Upper bound.
        exact : bool[n]
            Devices that send exactly this many rows.
        """
        parent, layers = self.tree
        rows = np.full(len(layers), self.rows_per_device)
        exact = np.full(len(layers), complete)
        order = np.argsort(-layers, kind="stable")[: int((layers > 0).sum())]
        for layer in np.split(order, np.cumsum(np.bincount(layers)[:0:-1])[:-1]):
            large = rows[layer] > self.max_rows
            # An exact number above the limit is reduced to half of it. A bound above it may stand for a number that is
            # not reduced, so the limit itself is the bound.
            rows[layer[large]] = np.where(exact[layer[large]], self.max_rows // 2, self.max_rows)
            exact[layer[large]] = False
            np.add.at(rows, parent[layer], rows[layer])
            np.logical_and.at(exact, parent[layer], exact[layer])
        return rows, exact

    def finds_all(self, known: Known, before: bool) -> bool:
        """Check whether every device is certain to end with k centroids."""
        return known.pools(self.k)

    def initial_state(self, devices: Devices, start: Any) -> TreeSummariesState:
        """Summarize the local points; the deepest layer sends first."""
        n = len(devices)
        routes = local_tree(self.tree, devices)
        rows = self.summarize(devices)
        deepest = first_senders(routes, devices)
        # A 0-stride view of a single number: needs no memory.
        absent = np.broadcast_to(np.inf, (n, self.k, devices.d))
        # Compact: with messages of other ranks, the network would copy the tables of all devices of this rank.
        front = PendingTables(deepest, rows.take(deepest).compact())
        walk = TreePassState(routes, rows, front, None, rows.take(deepest[:0]))
        return TreeSummariesState(absent, np.zeros(n, np.bool_), walk)

    def message(self, state: TreeSummariesState, devices: Devices) -> SparseMessages:
        """Send tables to the parents or to the children, one layer per turn."""
        walk = state.walk
        if walk is None:
            return SparseMessages.empty()
        number, step = divmod(devices.turn + 1 if devices.round else 0, walk.routes.depth)
        tree_pass = number + self.first_pass
        if tree_pass in (BOX_DOWN, _CANDIDATES, _CHOICE):
            messages = send_to_children(walk.routes, walk.front, step, devices)
        else:
            # Summary rows have a header column, the origin, which is not counted.
            messages = send_to_parents(walk.routes, walk.front, header=int(tree_pass == ROWS_UP))
        return self.encode(messages, tree_pass, walk, devices)

    def update(self, state: TreeSummariesState, inbox: Delivery, devices: Devices) -> TreeSummariesState:
        """Collect or adopt received tables; at the end of a tree pass, start the next one."""
        walk = state.walk
        if walk is None:
            return state
        number, step = divmod(devices.turn, walk.routes.depth)
        tree_pass = number + self.first_pass
        is_last = step == walk.routes.depth - 1
        if tree_pass in (BOX_DOWN, _CANDIDATES, _CHOICE):
            tables = share_equal_tables(inbox.tables, walk.front.tables)
            front = PendingTables(source_devices(devices, inbox.edges), tables)
            walk = walk._replace(front=front, sent_tables=(front, walk.sent_tables))
            return self.finish_broadcast(state, walk, tree_pass, devices) if is_last else state._replace(walk=walk)
        layer = walk.routes.layer(walk.routes.depth - 1 - step)
        front = PendingTables(layer, walk.local_tables.take(layer))
        if tree_pass == _LOSSES:
            front = _add(front, inbox, devices)
            walk = start_broadcast(walk, _choose(front)) if is_last else walk._replace(front=front)
            return state._replace(walk=walk)
        front = append_received(front, inbox, devices)
        if is_last:
            return self.answer_at_roots(state, walk, front, devices)
        front = self.pack(reduce_tables(front, self.max_rows, devices), walk, devices)
        return state._replace(walk=walk._replace(front=front))

    def finish_broadcast(
        self, state: TreeSummariesState, walk: TreePassState, tree_pass: int, devices: Devices
    ) -> TreeSummariesState:
        """Compute the losses of the candidates that all devices have received, or adopt the selected one."""
        received = gather_received(walk.sent_tables, walk.front.tables.values, len(devices))
        walk = walk._replace(sent_tables=None)
        if tree_pass == _CANDIDATES:
            walk = walk._replace(candidates=received)
            if self.candidates > 1:
                return state._replace(walk=self._start_losses(walk, devices))
            choice = np.zeros(len(devices), np.int64)
        else:
            choice = np.clip(np.rint(received.flat()[:, 0]), 0, self.candidates - 1).astype(np.int64)
        return TreeSummariesState(choose_sets(walk.candidates, choice, self.k), np.ones(len(devices), np.bool_), None)

    @staticmethod
    def collect(roots: PendingTables) -> list[Floats]:
        """Sort the rows of each root by origin, and remove the origins."""
        # Sorted, so that the result does not depend on the tree or on the order in which rows arrived.
        flat, rows = roots.tables.flat(), roots.tables.rows
        flat = flat[np.lexsort((flat[:, 0], np.repeat(np.arange(len(rows)), rows)))]
        return np.split(flat[:, 1:], np.cumsum(rows)[:-1])[: len(rows)]

    def answer_at_roots(
        self, state: TreeSummariesState, walk: TreePassState, roots: PendingTables, devices: Devices
    ) -> TreeSummariesState:
        """Compute the candidates at each root, and start to send them down."""
        candidates = self.find_candidates(devices, self.collect(roots))
        real = np.isfinite(candidates).any(axis=(1, 2, 3))
        # Absent rows (+inf) are sent, too, so that all tables have the same height.
        height = self.candidates * self.k
        starts = np.arange(len(candidates)) * height
        tables = Tables(candidates.reshape(-1, devices.d), starts, np.where(real, height, 0))
        return state._replace(walk=start_broadcast(walk, PendingTables(roots.senders, tables)))

    def _start_losses(self, walk: TreePassState, devices: Devices) -> TreePassState:
        """Compute the losses of all candidates on the local points, and start to send them up."""
        n, candidates = len(devices), walk.candidates
        # Devices of a component share the rows of their candidates.
        starts = find_distinct(candidates.starts[candidates.rows > 0])
        rows = candidates.values[starts[:, None] + np.arange(self.candidates * self.k)]
        losses = candidate_costs(
            devices,
            evaluation_points(devices, self.k),
            rows.reshape(len(starts), self.candidates, self.k, devices.d),
            lambda number, block: choose_sets(
                candidates.take(block), np.full(block.stop - block.start, number), self.k
            ),
        )
        tables = Tables(losses, np.arange(n), np.ones(n, np.int64))
        deepest = walk.routes.layer(walk.routes.depth)
        return walk._replace(local_tables=tables, front=PendingTables(deepest, tables.take(deepest).compact()))


def choose_sets(candidates: Tables, choice: Integers, k: int) -> Floats:
    """Select one of the candidate sets of each device, float64[n, k, d]; +inf at devices without candidates.

    Parameters
    ----------
    candidates : Tables
        Rows of the q sets of each of n devices, one set after another.
    choice : int64[n]
        Number of the selected set.
    """
    d = candidates.values.shape[1]
    blocks = candidates.values.reshape(-1, k * d)
    real = candidates.rows > 0
    if real.all():
        return blocks[candidates.starts // k + choice].reshape(-1, k, d)
    sets = np.full((len(real), k, d), np.inf)
    sets[real] = blocks[candidates.starts[real] // k + choice[real]].reshape(-1, k, d)
    return sets


def start_broadcast(walk: TreePassState, front: PendingTables) -> TreePassState:
    """Start a pass down with the tables of the roots."""
    return walk._replace(front=front, sent_tables=(front, None))


def gather_received(fronts: Any, values: Floats, n: int) -> Tables:
    """Collect the table that each device received in a pass down.

    Parameters
    ----------
    fronts : tuple or None
        See `TreePassState.sent_tables`.
    values : float64[rows, w]
        Values of the last front; they begin with those of all earlier ones (`share_equal_tables`).
    """
    starts = np.zeros(n, np.int64)
    rows = np.zeros(n, np.int64)
    while fronts is not None:
        front, fronts = fronts
        starts[front.senders] = front.tables.starts
        rows[front.senders] = front.tables.rows
    return Tables(values, starts, rows)


def _add(pending: PendingTables, received: Delivery, devices: Devices) -> PendingTables:
    """Add the received rows to the single row of each device, in the order of neighbors."""
    total = pending.tables.flat()
    np.add.at(total, np.searchsorted(pending.senders, source_devices(devices, received.edges)), received.tables.flat())
    return single_rows(pending.senders, total)


def _choose(roots: PendingTables) -> PendingTables:
    """Find the candidate with the smallest sum of losses at each root."""
    choice = np.argmin(roots.tables.flat(), axis=1).astype(np.float64)
    return single_rows(roots.senders, choice[:, None])
