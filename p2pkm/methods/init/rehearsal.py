"""Calibration of the coupling: the root of a spanning tree solves GTVMin's equations on local sums of all devices."""

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
from p2pkm.methods.building_blocks.coupling_choice import calibrate_coupling
from p2pkm.methods.building_blocks.spanning_tree import (
    LocalTree,
    PendingTables,
    Tree,
    append_received,
    build_spanning_tree,
    first_senders,
    local_tree,
    send_to_children,
    send_to_parents,
    source_devices,
    sum_below,
)
from p2pkm.methods.building_blocks.weighted_rows import to_point_units
from p2pkm.network.graph import Topology

# Marks the row with the loss, in the column of the centroid number.
_LOSS = -1.0
# Columns that are not counted as bytes: the origin, and the encoded bits of all rows of a device, in its first row.
# The bits are computed where the rows are created. Devices on the way up forward rows unchanged, so they add up these
# bits instead of encoding every row again.
_HEADER = 2
# Steps per spread of a coordinate, in bits: the step of a sum of offsets is between 1/16 and 1/8 of the spread.
_STEP_BITS = 3
# Larger sums are not exact in float64, and are sent unrounded.
_MAX_INTEGER = 2.0**52
_DOUBLE_BITS = 64
_SINGLE_BITS = 32
# Bytes of the answer: 4 bits for the number of the coupling among the tried values, the excess in single precision.
_ANSWER_BYTES = 5


@register("rehearsal:walk")
class RehearsalWalk(NamedTuple):
    """Data of a batch during the two tree passes.

    Attributes
    ----------
    routes : LocalTree
    local_tables : Tables
        Local rows of each device.
    front : PendingTables
        Tables of the devices that send next.
    """

    routes: LocalTree
    local_tables: Tables
    front: PendingTables


@register("rehearsal")
class RehearsalState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
        Initial centroids, the same at all devices.
    converged : bool[n]
    rehearsed : float64[n, 2]
        Calibrated coupling, and expected excess of the mean cost ratio; 0 until the device has received them.
    walk : RehearsalWalk or None
        None after the last turn.
    """

    centroids: Floats
    converged: Mask
    rehearsed: Floats
    walk: RehearsalWalk | None


@dataclass(frozen=True)
class CouplingCalibration(MethodBase):
    """Choice of GTVMin's coupling by solving its equations for fixed labels, before its first round.

    Attributes
    ----------
    k : int
        Number of clusters.
    topology : Topology
    tree : Tree
    below : int64[n]
        Number of devices in the subtree of each device, including itself.

    See Also
    --------
    p2pkm.methods.building_blocks.coupling_choice.calibrate_coupling : computation at the root.

    Notes
    -----
    **Objective.** If no point changes its cluster, the centroids of GTVMin converge to the solution of::

        (diag(n_.c) + 2 L_alpha) w_c = S_.c

    with n_ic points of device i at initial centroid c, and the sum S_ic of their offsets from it. The coupling is the
    first of 30, 100, 300, ... (10 first on small graphs) for which the pooled cost exceeds that of the pooled means by
    at most 0.2 % for the mean device and 0.6 % for the worst device.

    **Update.** All in one round:

    1. Each device assigns its local points to the initial centroids, and computes counts, sums and its loss.
    2. Up: the rows of all devices are collected at the root, which solves the equations for each coupling.
    3. Down: the coupling and the expected excess.

    **Messages.** Up, for every device in the subtree, a row per centroid with points (number, n_ic, S_ic) and one for
    the loss, d + 2 columns. The id of the origin is not counted. Down one row of 2 columns. With integer encoding the
    loss is sent in single precision, and sums in steps of a power of two, 1/16 to 1/8 of the root of loss over points
    and features. Rounding adds at most 1/768 to the mean square of a sum. With non-integer weights numbers are sent
    unrounded. The answer takes 36 bits.

    **Privacy.** No guarantee. The devices on the path to the root receive the counts and sums of a device. Rows of
    fewer points than the `min_cluster_size` are not sent, and the loss is not sent with them.
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
    def on_graph(cls, k: int, topology: Topology) -> "CouplingCalibration":
        """Create the stage for k clusters on a graph."""
        tree = build_spanning_tree(topology)
        return cls(k, topology, tree, sum_below(tree, np.ones(topology.n, np.int64)))

    @property
    def schedule(self) -> str:
        """Schedule: both tree passes are turns of one round."""
        return f"jacobi*{2 * max(1, int(self.tree.layer.max()))}"

    def expected_messages(self, known: Known) -> TreePasses:
        """Count at most k + 1 rows of every device of the subtree up, and one row down."""
        parent, layer = self.tree
        single_row = np.ones(len(layer), np.int64)
        exact = np.ones(len(layer), np.bool_)
        up = TreePass(True, (self.k + 1) * self.below, known.features + 2, ~exact)
        return TreePasses(parent, layer, (up, TreePass(False, single_row, 2, exact)))

    def initial_state(self, devices: Devices, start: Any) -> RehearsalState:
        """Assign the local points to the initial centroids; the deepest layer sends first."""
        n = len(devices)
        routes = local_tree(self.tree, devices)
        local_rows = sum_clusters(devices, start.centroids)
        deepest = first_senders(routes, devices)
        walk = RehearsalWalk(routes, local_rows, PendingTables(deepest, local_rows.take(deepest)))
        return RehearsalState(start.centroids, np.zeros(n, np.bool_), np.zeros((n, 2)), walk)

    def message(self, state: RehearsalState, devices: Devices) -> SparseMessages:
        """Send rows to the parents or the answer to the children, one layer per turn."""
        if state.walk is None:
            return SparseMessages.empty()
        routes, _, front = state.walk
        tree_pass, step = divmod(devices.turn + 1 if devices.round else 0, routes.depth)
        if not tree_pass:
            sent = send_to_parents(routes, front, header=_HEADER)
            owner = np.repeat(np.arange(len(sent.senders)), sent.tables.rows)
            # One bit for each device of the subtree: whether it has rows.
            bits = (
                np.bincount(owner, sent.tables.flat()[:, 1], len(sent.senders)) + self.below[devices.ids[sent.senders]]
            )
            return sent if devices.grid is None else sent._replace(wire=to_bytes(bits.astype(np.int64)))
        layer = routes.layer(step)
        answers = PendingTables(layer, Tables(state.rehearsed, layer, np.ones_like(layer)))
        sent = send_to_children(routes, answers, step, devices)
        return sent if devices.grid is None else sent._replace(wire=np.full(len(sent.senders), _ANSWER_BYTES))

    def update(self, state: RehearsalState, inbox: Delivery, devices: Devices) -> RehearsalState:
        """Collect received rows or adopt the answer; the root calibrates the coupling."""
        if state.walk is None:
            return state
        routes, local_rows, front = state.walk
        tree_pass, step = divmod(devices.turn, routes.depth)
        is_last = step == routes.depth - 1
        rehearsed = state.rehearsed.copy()
        if tree_pass:
            rehearsed[source_devices(devices, inbox.edges)] = inbox.tables.flat().reshape(-1, 2)
            walk = state.walk if not is_last else None
            return RehearsalState(state.centroids, np.full(len(rehearsed), is_last), rehearsed, walk)
        layer = routes.layer(routes.depth - 1 - step)
        front = append_received(PendingTables(layer, local_rows.take(layer)), inbox, devices)
        # The graph is connected, so there is one root, on one rank.
        if is_last and len(front.senders):
            rehearsed[front.senders] = self._calibrate(front.tables.flat(), devices)
        return state._replace(rehearsed=rehearsed, walk=RehearsalWalk(routes, local_rows, front))

    def _calibrate(self, rows: Floats, devices: Devices) -> tuple[float, float]:
        """Compute the coupling and the expected excess from the rows of all devices."""
        is_loss = rows[:, _HEADER] == _LOSS
        owner = rows[~is_loss, 0].astype(np.int64)
        cluster = rows[~is_loss, _HEADER].astype(np.int64)
        counts = np.zeros((self.k, devices.total))
        sums = np.zeros((self.k, devices.total, devices.d))
        counts[cluster, owner] = rows[~is_loss, 3]
        sums[cluster, owner] = rows[~is_loss, 4:]
        # Sorted, so that the sum does not depend on the order in which the rows arrived.
        loss = float(np.cumsum(np.append(0.0, np.sort(rows[is_loss, 3])))[-1])
        base = devices.total_weight / devices.total / self.k
        result = calibrate_coupling(self.topology, counts, sums, loss, base)
        return result.coupling, result.mean if devices.grid is None else float(_to_single(np.array(result.mean)))


def sum_clusters(devices: Devices, start: Floats) -> Tables:
    """Compute the rows of each device: (origin, bits, centroid, weight, sum of offsets), and one with its loss."""
    n, k, d = start.shape
    members = np.zeros((n, k), np.int64)
    table = np.zeros((n, k, d + 4))
    losses = np.zeros(n)
    table[:, :, 0] = devices.ids[:, None]
    table[:, :, _HEADER] = np.arange(k)
    points, weights, _ = devices.kernel_inputs
    for span, rows, offsets, local_losses, labels in label(devices, start):
        losses[span] = local_losses
        members[span], table[span, :, 3], table[span, :, 4:], _ = devices.kernels.cluster_moments(
            points[rows], weights[rows], offsets, labels, start[span]
        )
    is_sent = members >= max(devices.min_count, 1)
    # The loss minus the losses of sent clusters would reveal those of the others, so it is sent with all or not at all.
    sends_loss = is_sent.any(axis=1) & (is_sent.sum(axis=1) == (members > 0).sum(axis=1))
    if devices.grid is not None:
        bits = _round(table, losses, is_sent, sends_loss, devices)
        table[np.arange(n), np.argmax(is_sent, axis=1), 1] = bits
    loss_row = np.zeros((n, 1, d + 4))
    loss_row[:, 0, 0] = devices.ids
    loss_row[:, 0, _HEADER] = _LOSS
    loss_row[:, 0, 3] = losses
    all_rows = np.concatenate((table, loss_row), axis=1)
    sent_rows = np.column_stack((is_sent, sends_loss))
    counts = sent_rows.sum(axis=1)
    return Tables(all_rows[sent_rows], np.cumsum(counts) - counts, counts)


def _round(table: Floats, losses: Floats, is_sent: Mask, sends_loss: Mask, devices: Devices) -> Integers:
    """Round loss, counts and sums of each device to their encoded values, in place; return the bits of each device."""
    single = _to_single(losses / devices.unit)
    counts = to_point_units(np.where(is_sent, table[:, :, 3], 0.0), devices.unit)
    divisors = np.where(sends_loss, counts.sum(axis=1), 1.0) * devices.d
    spread = np.sqrt(np.where(np.isfinite(single), single, 0.0) / divisors)
    step = np.ldexp(1.0, np.frexp(spread)[1] - 1 - _STEP_BITS)
    # Sums are weighted, so their unit is the step times the weight of a point.
    step_size = (step * devices.unit)[:, None, None]
    steps = np.rint(np.where(is_sent[:, :, None], table[:, :, 4:], 0.0) / step_size)
    numbers = np.dstack((counts, steps))
    fits = sends_loss & (np.abs(numbers) < _MAX_INTEGER).all(axis=(1, 2)) & (counts == np.rint(counts)).all(axis=1)
    fits &= np.isfinite(single) & ((spread > 0.0) | ~table[:, :, 4:].any(axis=(1, 2)))
    integers = np.where(fits[:, None, None], numbers, 0.0).astype(np.int64)
    losses[fits] = single[fits] * devices.unit
    table[fits, :, 3] = counts[fits] * devices.unit
    table[fits, :, 4:] = (steps * step_size)[fits]
    k, width = integers.shape[1:]
    unrounded_bits = k + _DOUBLE_BITS * (width * is_sent.sum(axis=1) + sends_loss)
    rice = devices.grid is not None and devices.grid.rice
    encoded_bits = _SINGLE_BITS + devices.kernels.integer_bits(integers, rice=rice)
    return 2 + np.where(fits, encoded_bits, unrounded_bits)


def _to_single(numbers: Floats) -> Floats:
    """Round numbers to single precision."""
    with np.errstate(over="ignore", under="ignore"):
        return numbers.astype(np.float32).astype(np.float64)
