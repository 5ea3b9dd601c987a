"""The rehearsal: the root of a tree solves what GTVMin is about to solve, and tells all which coupling will do."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.chunks import label
from p2pkm.core.expected_messages import Known, TreePass, TreePasses
from p2pkm.core.messages import Delivery, SparseMessages, Tables
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MethodTraits
from p2pkm.core.wire_format import to_bytes
from p2pkm.methods.building_blocks.coupling_choice import rehearse
from p2pkm.methods.building_blocks.spanning_tree import (
    Front,
    Routes,
    Tree,
    begin,
    climb,
    descend,
    grow,
    join,
    route,
    source_of,
    sum_below,
)
from p2pkm.methods.building_blocks.weighted_rows import in_points
from p2pkm.network.graph import Topology

_LOSS = -1.0  # stands for the number of a centroid in the row that has the loss
_HEADER = 2  # columns that are not counted: origin, and bits on the wire of all rows of a device, in its first one
_FINER = 3  # bits: steps of a sum of offsets in the spread of a coordinate
_LARGEST, _NUMBER, _SINGLE = 2.0**52, 64, 32  # of a whole number; bits of a number, and in single precision
_ANSWER = 5  # bytes: 4 bits for the place of a coupling among those that are tried, the excess in single precision


@register("rehearsal:walk")
class RehearsalWalk(NamedTuple):
    """What a batch holds on the ways up and down: the tree, the own rows, and who sends next."""

    routes: Routes
    own: Tables
    front: Front


@register("rehearsal")
class RehearsalState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
        The start that all devices agree on.
    converged : bool[n]
    rehearsed : float64[n, 2]
        Coupling, and the excess of the mean cost ratio expected with it; 0 until they are known.
    walk : RehearsalWalk or None
        None at the end.
    """

    centroids: Floats
    converged: Mask
    rehearsed: Floats
    walk: RehearsalWalk | None


@dataclass(frozen=True)
class Rehearsing(MethodBase):
    """Choose the coupling by solving GTVMin's equations once, before it starts.

    Every device assigns its points to the start: n_ic of them with the sum of offsets S_ic from centroid c, and its
    loss. These go up a tree, and the root solves ``(diag(n_.c) + 2 L_alpha) w_c = S_.c`` for couplings 30, 100, 300,
    ... (10 first on small graphs): where the devices would end if no point changed its cluster. It takes the first one
    with which the mean device costs at most .002 and the worst .006 more than the pooled means, and sends it down. The
    graph is known to all, like the tree.

    Message: up, of every device in the subtree a row for each centroid with points (its number, n_ic, S_ic) and one for
    the loss, d + 2 columns; the id of the origin travels uncounted. Down one row: the coupling and the excess expected
    with it. All in one round.

    Where tables travel as integers, a device sends its loss in single precision, its counts, and its sums in whole
    steps: a power of two, 1/16 to 1/8 of the root of loss over points and features. Rounding adds at most 1/768 to the
    square of a sum, in the mean; with weights that are no whole numbers it sends all as it is. Down go 36 bits.

    Privacy: the devices between a device and the root see its sums; rows of fewer points than the `min_cluster_size`
    are left out, and that of the loss with them.

    Attributes
    ----------
    k : int
    topology : Topology
    tree : Tree
    below : int64[n]
        Devices in the subtree of each, itself among them.
    """

    name: ClassVar[str] = "rehearsal"
    traits: ClassVar[MethodTraits] = MethodTraits(
        needs_honest_messages=True, common_centroids=True, counts_on_grid=True
    )
    k: int
    topology: Topology
    tree: Tree
    below: Integers

    @classmethod
    def on_graph(cls, k: int, topology: Topology) -> "Rehearsing":
        """Return the rehearsal of k clusters on a graph."""
        tree = grow(topology)
        return cls(k, topology, tree, sum_below(tree, np.ones(topology.n, np.int64)))

    @property
    def schedule(self) -> str:
        """Return the schedule: one round has all the turns."""
        return f"jacobi*{2 * max(1, int(self.tree.layer.max()))}"

    def expected_messages(self, known: Known) -> TreePasses:
        """Return at most k + 1 rows of every device of the subtree up, one down."""
        parent, layer = self.tree
        one, sure = np.ones(len(layer), np.int64), np.ones(len(layer), np.bool_)
        up = TreePass(True, (self.k + 1) * self.below, known.features + 2, ~sure)
        return TreePasses(parent, layer, (up, TreePass(False, one, 2, sure)))

    def initial_state(self, devices: Devices, start: Any) -> RehearsalState:
        """Assign the own points to the start; the deepest layer sends first."""
        n, routes, own = len(devices), route(self.tree, devices), sum_clusters(devices, start.centroids)
        deepest = begin(routes, devices)
        walk = RehearsalWalk(routes, own, Front(deepest, own.take(deepest)))
        return RehearsalState(start.centroids, np.zeros(n, np.bool_), np.zeros((n, 2)), walk)

    def message(self, state: RehearsalState, devices: Devices) -> SparseMessages:
        """Send to the parents or to the children what is due, layer by layer."""
        if state.walk is None:
            return SparseMessages.empty()
        routes, _, front = state.walk
        way, step = divmod(devices.turn + 1 if devices.round else 0, routes.depth)
        if not way:
            sent = climb(routes, front, header=_HEADER)
            owner = np.repeat(np.arange(len(sent.senders)), sent.tables.rows)
            bits = (
                np.bincount(owner, sent.tables.flat()[:, 1], len(sent.senders)) + self.below[devices.ids[sent.senders]]
            )
            return sent if devices.grid is None else sent._replace(wire=to_bytes(bits.astype(np.int64)))
        who = routes.layer(step)
        sent = descend(routes, Front(who, Tables(state.rehearsed, who, np.ones_like(who))), step, devices)
        return sent if devices.grid is None else sent._replace(wire=np.full(len(sent.senders), _ANSWER))

    def update(self, state: RehearsalState, inbox: Delivery, devices: Devices) -> RehearsalState:
        """Take in what came up or down; the root rehearses."""
        if state.walk is None:
            return state
        routes, own, front = state.walk
        way, step = divmod(devices.turn, routes.depth)
        last, rehearsed = step == routes.depth - 1, state.rehearsed.copy()
        if way:
            rehearsed[source_of(devices, inbox.edges)] = inbox.tables.flat().reshape(-1, 2)
            done = state.walk if not last else None
            return RehearsalState(state.centroids, np.full(len(rehearsed), last), rehearsed, done)
        layer = routes.layer(routes.depth - 1 - step)
        front = join(Front(layer, own.take(layer)), inbox, devices)
        if last and len(front.who):  # of one root, for the graph is connected
            rehearsed[front.who] = self._rehearse(front.tables.flat(), devices)
        return state._replace(rehearsed=rehearsed, walk=RehearsalWalk(routes, own, front))

    def _rehearse(self, rows: Floats, devices: Devices) -> tuple[float, float]:
        """Return the coupling that will do and the excess expected with it, from the rows of all devices."""
        lossy = rows[:, _HEADER] == _LOSS
        owner, cluster = rows[~lossy, 0].astype(np.int64), rows[~lossy, _HEADER].astype(np.int64)
        counts, sums = np.zeros((self.k, devices.total)), np.zeros((self.k, devices.total, devices.d))
        counts[cluster, owner], sums[cluster, owner] = rows[~lossy, 3], rows[~lossy, 4:]
        loss = float(np.cumsum(np.append(0.0, np.sort(rows[lossy, 3])))[-1])
        base = devices.total_weight / devices.total / self.k
        found = rehearse(self.topology, counts, sums, loss, base)
        return found.coupling, found.mean if devices.grid is None else float(_single(np.array(found.mean)))


def sum_clusters(devices: Devices, start: Floats) -> Tables:
    """Sum up the clusters of each device: rows (origin, bits, centroid, weight, offsets), and one with its loss."""
    n, k, d = start.shape
    members, table, losses = np.zeros((n, k), np.int64), np.zeros((n, k, d + 4)), np.zeros(n)
    table[:, :, 0], table[:, :, _HEADER] = devices.ids[:, None], np.arange(k)
    for piece in label(devices, start):
        count, losses[piece.span] = piece.span.stop - piece.span.start, piece.losses
        known = piece.labels >= 0
        owner, labels = np.repeat(np.arange(count), np.diff(piece.offsets))[known], piece.labels[known]
        place, weights = owner * k + labels, devices.point_weights[piece.rows][known]
        points, origins = devices.stored[piece.rows][known], start[piece.span]
        members[piece.span] = np.bincount(place, minlength=count * k).reshape(count, k)
        table[piece.span, :, 3] = np.bincount(place, weights, count * k).reshape(count, k)
        for f in range(d):
            offsets = points[:, f] - origins[owner, labels, f]
            table[piece.span, :, 4 + f] = np.bincount(place, weights * offsets, count * k).reshape(count, k)
    told = members >= max(devices.min_count, 1)
    lossy = told.any(axis=1) & (told.sum(axis=1) == (members > 0).sum(axis=1))
    if devices.grid is not None:
        bits = _round(table, losses, told, lossy, devices)
        table[np.arange(n), np.argmax(told, axis=1), 1] = bits
    loss = np.zeros((n, 1, d + 4))
    loss[:, 0, 0], loss[:, 0, _HEADER], loss[:, 0, 3] = devices.ids, _LOSS, losses
    both = np.concatenate((table, loss), axis=1)
    sent = np.column_stack((told, lossy))
    rows = sent.sum(axis=1)
    return Tables(both[sent], np.cumsum(rows) - rows, rows)


def _round(table: Floats, losses: Floats, told: Mask, lossy: Mask, devices: Devices) -> Integers:
    """Write loss, counts and sums of each device as they are read when they have been encoded; return their bits."""
    single, count = _single(losses / devices.unit), in_points(np.where(told, table[:, :, 3], 0.0), devices.unit)
    mass = np.where(lossy, count.sum(axis=1), 1.0) * devices.d
    spread = np.sqrt(np.where(np.isfinite(single), single, 0.0) / mass)
    step = np.ldexp(1.0, np.frexp(spread)[1] - 1 - _FINER)
    size = (step * devices.unit)[:, None, None]  # of a step, for offsets are weighted
    steps = np.rint(np.where(told[:, :, None], table[:, :, 4:], 0.0) / size)
    numbers = np.dstack((count, steps))
    fits = lossy & (np.abs(numbers) < _LARGEST).all(axis=(1, 2)) & (count == np.rint(count)).all(axis=1)
    fits &= np.isfinite(single) & ((spread > 0.0) | ~table[:, :, 4:].any(axis=(1, 2)))
    whole = np.where(fits[:, None, None], numbers, 0.0).astype(np.int64)
    losses[fits] = single[fits] * devices.unit
    table[fits, :, 3], table[fits, :, 4:] = count[fits] * devices.unit, (steps * size)[fits]
    k, width = whole.shape[1:]
    real = k + _NUMBER * (width * told.sum(axis=1) + lossy)
    rice = devices.grid is not None and devices.grid.rice
    return 2 + np.where(fits, _SINGLE + devices.kernels.integer_bits(whole, rice=rice), real)


def _single(numbers: Floats) -> Floats:
    """Return numbers in single precision."""
    with np.errstate(over="ignore", under="ignore"):
        return numbers.astype(np.float32).astype(np.float64)
