"""Acceptance test: after the method, all devices return to the initial centroids if these have the lower pooled cost.

The decision needs sums over all devices, which are added along a spanning tree.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.chunks import iter_chunks
from p2pkm.core.expected_messages import Known, TreePass, TreePasses
from p2pkm.core.messages import Delivery, SparseMessages, Tables
from p2pkm.core.protocols import MethodBase, Objective
from p2pkm.core.sorting import blocks
from p2pkm.core.traits import MethodTraits
from p2pkm.core.wire_format import number_bits, to_bytes
from p2pkm.methods.building_blocks.small_clusters import find_grouped_points
from p2pkm.methods.building_blocks.spanning_tree import (
    LocalTree,
    PendingTables,
    Tree,
    build_spanning_tree,
    first_senders,
    local_tree,
    send_to_children,
    send_to_parents,
    source_devices,
)
from p2pkm.network.graph import Topology

# Numbers of the four tree passes, in their order: up, down, up, down.
_SUMS, _TOTALS, _EXCESS, _CHOICE = range(4)
_PASSES = 4


class AcceptWalk(NamedTuple):
    """Progress of the test.

    Attributes
    ----------
    routes : LocalTree
        Tree edges of the batch.
    held : float64[n, r, w]
        Table of each device in the current tree pass.
    """

    routes: LocalTree
    held: Floats


class AcceptState(NamedTuple):
    """State of a batch. Checkpoints do not hold it: the test is repeated from the last checkpoint of the method.

    Attributes
    ----------
    centroids, previous : float64[n, k, d]
        Result of the method; both are the initial centroids after a reversion.
    converged : bool[n]
    reverted : bool[n]
        Devices that returned to the initial centroids.
    start : float64[n, k, d]
        Initial centroids; after the last turn the accepted centroids.
    edge_weight : None
        No link is saturated.
    rehearsed : float64[n, 2] or None
        Calibrated coupling and expected excess, passed through.
    walk : AcceptWalk or None
        None after the last turn.
    """

    centroids: Floats
    previous: Floats
    converged: Mask
    reverted: Mask
    start: Floats
    edge_weight: None
    rehearsed: Floats | None
    walk: AcceptWalk | None


@dataclass(frozen=True)
class AcceptTest(MethodBase):
    """Compare the result of a method with its initial centroids on all points, and keep the cheaper ones.

    The mean pooled cost of the devices at the end is at most that of the initial centroids, for any method. On a
    disconnected graph this holds in each component, on the points of the component.

    Attributes
    ----------
    method : Algorithm
        Method before the test; its objective is reported.
    tree : Tree
    sizes : int64[n]
        Number of devices in the component of each device; public, like the tree.

    Notes
    -----
    **Objective.** With ``u_c = mean_i w_ic`` and ``V_c = mean_i |w_ic - u_c|^2`` over devices i, every point x has::

        mean_i min_c |x - w_ic|^2  <=  min_c (|x - u_c|^2 + V_c)

    The sum of the right side over all points is an upper bound of the mean pooled cost of the devices.

    **Update.** All in one round:

    1. Up and down: the sums of ``w_ic - start_c`` and of its square give all devices u and V.
    2. Each device computes the bound minus the loss of the initial centroids on its local points: its excess.
    3. Up: the excesses are added. Down: the sign of the total. If it is positive, all devices return to the initial
       centroids.

    The losses at the devices' own centroids cannot be used: by theorems 1 and 3 their sum
    ``sum_i L_i(w_i) <= F(end) <= F(start) = sum_i L_i(start)`` falls even if the pooled cost rises.

    **Messages.** Up and down k rows of d + 1 columns, then up and down one number. With integer encoding all of them
    are integers: offsets in steps s of GTVMin, squares and excesses in s^2. The excess of a device is rounded up, so
    rounding can only favor the initial centroids, by less than one s^2 per device.

    **Privacy.** No guarantee. The sums of offsets contain the centroids that the method has sent before. The excess of
    a leaf is one number computed from all its points. With a `min_cluster_size` p it is a sum over groups of at least p
    points, under the labels of both centroid sets: cells of at least p points, and the points of all smaller cells
    together, which are omitted if they are fewer than p
    (`p2pkm.methods.building_blocks.small_clusters.find_grouped_points`). The bound then holds on the counted points.
    """

    name: ClassVar[str] = "accept-test"
    method: Any
    tree: Tree
    sizes: Integers

    @classmethod
    def after(cls, method: Any, topology: Topology) -> "AcceptTest":
        """Create the test that follows a method on a graph."""
        sizes = np.bincount(topology.components)
        # A 0-stride view of a single number: needs no memory if the graph is connected.
        of_devices = np.broadcast_to(sizes, topology.n) if len(sizes) == 1 else sizes[topology.components]
        return cls(method, build_spanning_tree(topology), of_devices)

    @property
    def k(self) -> int:
        """Number of clusters."""
        return int(self.method.k)

    @property
    def traits(self) -> MethodTraits:
        """Traits of the stage, see `p2pkm.core.traits`."""
        return MethodTraits(needs_honest_messages=True, counts_on_grid=self.method.traits.moves_on_grid)

    @property
    def objective(self) -> Objective | None:
        """Objective of the method."""
        objective: Objective | None = self.method.objective
        return objective

    @property
    def schedule(self) -> str:
        """Schedule: all four tree passes are turns of one round."""
        return f"jacobi*{max(1, int(self.tree.layer.max())) * _PASSES}"

    def expected_messages(self, known: Known) -> TreePasses:
        """Count sums up and down, the excess up and the decision down."""
        single_row = np.ones(len(self.tree.layer), np.int64)
        exact = single_row > 0
        passes = (
            TreePass(True, self.k * single_row, known.features + 1, exact),
            TreePass(False, self.k * single_row, known.features + 1, exact),
            TreePass(True, single_row, 1, exact),
            TreePass(False, single_row, 1, exact),
        )
        return TreePasses(*self.tree, passes)

    def initial_state(self, devices: Devices, start: Any) -> AcceptState:
        """Compute local offsets from the initial centroids; the deepest layer sends first."""
        initial: Floats = start.start
        none = np.zeros(len(devices), np.bool_)
        n, k, d = initial.shape
        # Absent rows keep +inf.
        held = np.full((n, k, d + 1), np.inf)
        # Blocks of devices, because a temporary array of all centroids counts at millions of devices.
        for block in blocks(n, k * d):
            offsets = held[block, :, :d]
            real = np.isfinite(initial[block]) & np.isfinite(start.centroids[block])
            offsets[real] = start.centroids[block][real] - initial[block][real]
            if devices.grid is not None:
                # Centroids on the grid differ by whole steps up to rounding, which rint removes.
                offsets[real] = np.rint(offsets / devices.grid.unit[block, None, None])[real]
            held[block, :, d] = _square(offsets)
        walk = AcceptWalk(local_tree(self.tree, devices), held)
        return AcceptState(start.centroids, start.previous, none, none, initial, None, start.rehearsed, walk)

    def message(self, state: AcceptState, devices: Devices) -> SparseMessages:
        """Send tables to the parents or to the children, one layer per turn."""
        if state.walk is None:
            return SparseMessages.empty()
        routes, held = state.walk
        tree_pass, step = divmod(devices.turn + 1 if devices.round else 0, routes.depth)
        if tree_pass in (_TOTALS, _CHOICE):
            pending = _pending_tables(routes.layer(step), held)
            return _encode(send_to_children(routes, pending, step, devices), held, devices)
        senders = routes.layer(routes.depth - step) if tree_pass or step else first_senders(routes, devices)
        return _encode(send_to_parents(routes, _pending_tables(senders, held)), held, devices)

    def update(self, state: AcceptState, inbox: Delivery, devices: Devices) -> AcceptState:
        """Add or adopt the received tables; at the end of a tree pass, start the next one."""
        if state.walk is None:
            return state
        routes, held = state.walk
        if devices.turn == 0:
            # The tables of the initial state may still be referenced by the caller. This copy is not, so later turns
            # update it in place.
            held = held.copy()
        tree_pass, step = divmod(devices.turn, routes.depth)
        received = inbox.tables.flat().reshape(-1, *held.shape[1:])
        receivers = source_devices(devices, inbox.edges)
        if tree_pass in (_TOTALS, _CHOICE):
            held[receivers] = received
        else:
            np.add.at(held, receivers, received)
        if step < routes.depth - 1:
            return state._replace(walk=AcceptWalk(routes, held))
        if tree_pass == _CHOICE:
            return _finish(state, held[:, 0, 0] > 0.0)
        if tree_pass == _TOTALS:
            _average(held, self.sizes[devices.ids])
            held = measure_excess(state.start, held, devices)
        elif tree_pass == _EXCESS:
            # Only the roots hold the total of all devices; the other values are overwritten on the way down.
            held = (held > 0.0).astype(np.float64)
        return state._replace(walk=AcceptWalk(routes, held))


def _finish(state: AcceptState, reverted: Mask) -> AcceptState:
    """End the test: reverted devices, bool[n], return to the initial centroids."""
    centroids, previous = state.centroids, state.previous
    if reverted.any():
        centroids = np.where(reverted[:, None, None], state.start, centroids)
        previous = np.where(reverted[:, None, None], state.start, previous)
    converged = np.ones_like(reverted)
    return AcceptState(centroids, previous, converged, reverted, centroids, None, state.rehearsed, None)


def _pending_tables(senders: Integers, held: Floats) -> PendingTables:
    """Pair the senders, int64[s], with their tables."""
    _, rows, width = held.shape
    return PendingTables(senders, Tables(held.reshape(-1, width), senders * rows, np.full(len(senders), rows)))


def _encode(messages: SparseMessages, held: Floats, devices: Devices) -> SparseMessages:
    """Add the encoded bytes of integer messages; the last column is encoded separately."""
    if devices.grid is None:
        return messages
    tables = messages.tables.flat().reshape(len(messages.senders), *held.shape[1:])
    # All devices have the same absent rows, so these need no bits.
    tables = np.where(np.isfinite(tables), tables, 0.0)
    code: dict[str, Any] = {"rice": devices.grid.rice, "kernel": devices.kernels.integer_bits}
    bits = number_bits(tables[:, :, -1:], **code)
    if held.shape[2] > 1:
        bits += number_bits(tables[:, :, :-1], **code)
    return messages._replace(wire=to_bytes(bits))


def _square(offsets: Floats) -> Floats:
    """Compute the squared length of each row, float64[n, k]."""
    squares: Floats = np.cumsum(np.square(offsets), axis=2)[:, :, -1]
    return squares


def _average(held: Floats, sizes: Integers) -> None:
    """Replace sums of offsets and of squares by the mean offset and its variance, in place."""
    for block in blocks(len(held), held[0].size if len(held) else 1):
        tables = held[block]
        tables /= sizes[block, None, None]
        absent = np.isinf(tables[:, :, 0])
        # inf - inf would be NaN; absent rows get +inf again below.
        tables[absent] = 0.0
        tables[:, :, -1] = np.maximum(tables[:, :, -1] - _square(tables[:, :, :-1]), 0.0)
        tables[absent] = np.inf


def measure_excess(start: Floats, held: Floats, devices: Devices) -> Floats:
    """Compute the bound of `AcceptTest` minus the loss of the initial centroids on local points, float64[n, 1, 1].

    On a grid the result is in squared steps times the weight of a point, rounded up.

    Parameters
    ----------
    start : float64[n, k, d]
        Initial centroids.
    held : float64[n, k, d + 1]
        Mean offset and variance of each centroid over the devices, in steps of the grid if there is one.
    """
    points, weights, offsets = devices.kernel_inputs
    unit = np.ones(len(devices)) if devices.grid is None else devices.grid.unit
    excess = np.zeros((len(devices), 1, 1))
    for chunk, rows in iter_chunks(offsets):
        # An additional coordinate, 0 at the points and sqrt(V_c) at u_c, adds V_c to every squared distance. So the
        # kernel of the losses computes the bound.
        wide = np.column_stack((points[rows], np.zeros(rows.stop - rows.start, points.dtype)))
        firsts = offsets[chunk.start : chunk.stop + 1] - rows.start
        initial = np.dstack((start[chunk], np.where(np.isinf(start[chunk, :, 0]), np.inf, 0.0)))
        step = unit[chunk, None]
        spread = np.sqrt(np.maximum(held[chunk, :, -1], 0.0)) * step
        final = np.dstack((start[chunk] + held[chunk, :, :-1] * step[:, :, None], spread))
        first, last = _losses(wide, weights[rows], firsts, (initial, final), devices)
        # A centroid set without rows has an infinite loss. Its excess stays 0.
        np.subtract(last, first, out=excess[chunk, 0, 0], where=first < np.inf)
    if devices.grid is not None:
        excess = np.ceil(excess / (unit * unit * devices.unit)[:, None, None])
    return excess


def _losses(
    points: NDArray[Any], weights: Floats, offsets: Integers, sets: tuple[Floats, Floats], devices: Devices
) -> list[Floats]:
    """Compute the local losses of two centroid sets per device, on the points that may be counted for both."""
    results = [devices.kernels.losses(points, weights, offsets, centroids) for centroids in sets]
    if devices.min_count >= 2:
        labelings = [labels for _, labels in results]
        counted = find_grouped_points(offsets, labelings, sets[0].shape[1], devices.min_count)
        # Points without a centroid count, so that a set without rows keeps its infinite loss.
        counted |= labelings[0] < 0
        weights = np.where(counted, weights if len(weights) else 1.0, 0.0)
        results = [devices.kernels.losses(points, weights, offsets, centroids) for centroids in sets]
    return [losses for losses, _ in results]
