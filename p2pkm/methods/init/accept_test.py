"""The accept test: after the method, all take their start back if it costs less, by sums of losses over a tree."""

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
    Front,
    Routes,
    Tree,
    begin,
    climb,
    descend,
    grow,
    route,
    source_of,
)
from p2pkm.network.graph import Topology

_SUMS, _TOTALS, _EXCESS, _CHOICE = range(4)  # up, down, up, down
_WAYS = 4


class AcceptWalk(NamedTuple):
    """Where the test is: the tree of the batch, and what each device holds on this way, float64[n, r, w]."""

    routes: Routes
    held: Floats


class AcceptState(NamedTuple):
    """State of a batch; no checkpoint holds it, for the method's last one leads to the same test.

    Attributes
    ----------
    centroids, previous : float64[n, k, d]
        As the method left them; once the start is taken back both are the start.
    converged, reverted : bool[n]
        Reverted: the device has taken the start back.
    start : float64[n, k, d]
        In the end the centroids, whatever was taken.
    edge_weight : None
        No link gave way.
    rehearsed : float64[n, 2] or None
        As the method got it.
    walk : AcceptWalk or None
        None at the end.
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
    """Compare what the devices ended with and the start that they had agreed on; keep what costs less.

    A device knows its own points alone, and on those its own centroids are always the better ones: under theorems 1 and
    2 ``sum_i L_i(w_i) <= F(end) <= F(start) = sum_i L_i(start)`` whatever became of the pooled cost, so a sum of losses
    of own points by own centroids could never object. What is compared instead is the pooled cost of the average
    device. With ``u_c = mean_i w_ic`` and ``V_c = mean_i |w_ic - u_c|^2``, for every point x

        mean_i min_c |x - w_ic|^2  <=  min_c (|x - u_c|^2 + V_c),

    so the sum of the right side over all points bounds the mean of the devices' pooled costs. Every device adds up over
    its own points by how much it exceeds the loss of the start, which is the same everywhere: if the sum over all
    devices is positive, all take the start back. So the mean pooled cost of the devices never ends above that of the
    start, whatever the method did. In each component of a disconnected graph this is about its own points.

    Message: up the tree k rows of d + 1 columns, the sums of ``w_ic - start_c`` and of its square over the subtree;
    down those of all devices; up the excess of the bound over the loss of the start, summed over the subtree; down
    whether to take the start back. All in one round.

    Where tables travel as integers all of these are whole numbers: offsets in steps s, which GTVMin moves by, the sums
    of their squares in s^2, and the excess of a device in s^2, rounded up. Rounding adds less than one s^2 a device, on
    the safe side.

    Privacy: the sums show a parent what the method's own messages have shown it; the excess of a leaf is one number
    from all its points. With a `min_cluster_size` p it is a sum over groups of at least p points, by the start and by
    the mean device alike: the cells of at least p points, and the points of all smaller cells together, which are left
    out while they are fewer than p (`p2pkm.methods.building_blocks.small_clusters.find_grouped_points`). The bound then
    holds on the points that are counted.

    Attributes
    ----------
    method : Algorithm
        Whose objective is reported.
    tree : Tree
    sizes : int64[n]
        Devices in the component of each; known to all, like the tree.
    """

    name: ClassVar[str] = "accept-test"
    method: Any
    tree: Tree
    sizes: Integers

    @classmethod
    def after(cls, method: Any, topology: Topology) -> "AcceptTest":
        """Return the test after a method on a graph."""
        return cls(method, grow(topology), np.bincount(topology.components)[topology.components])

    @property
    def k(self) -> int:
        """Return the number of clusters."""
        return int(self.method.k)

    @property
    def traits(self) -> MethodTraits:
        """Return what it is, see `p2pkm.core.traits`."""
        return MethodTraits(needs_honest_messages=True, counts_on_grid=self.method.traits.moves_on_grid)

    @property
    def objective(self) -> Objective | None:
        """Objective of the method."""
        found: Objective | None = self.method.objective
        return found

    @property
    def schedule(self) -> str:
        """Return the schedule: one round has all the turns."""
        return f"jacobi*{max(1, int(self.tree.layer.max())) * _WAYS}"

    def expected_messages(self, known: Known) -> TreePasses:
        """Return sums up and down, the excess up, the choice down."""
        one = np.ones(len(self.tree.layer), np.int64)
        sure = one > 0
        ways = (
            TreePass(True, self.k * one, known.features + 1, sure),
            TreePass(False, self.k * one, known.features + 1, sure),
            TreePass(True, one, 1, sure),
            TreePass(False, one, 1, sure),
        )
        return TreePasses(*self.tree, ways)

    def initial_state(self, devices: Devices, start: Any) -> AcceptState:
        """Begin with the own offsets from the start; the deepest layer sends first."""
        agreed: Floats = start.start
        nobody = np.zeros(len(devices), np.bool_)
        n, k, d = agreed.shape
        held = np.full((n, k, d + 1), np.inf)  # of absent rows
        for some in blocks(n, k * d):
            offsets, real = held[some, :, :d], np.isfinite(agreed[some]) & np.isfinite(start.centroids[some])
            offsets[real] = start.centroids[some][real] - agreed[some][real]
            if devices.grid is not None:  # whole steps but for rounding
                offsets[real] = np.rint(offsets / devices.grid.unit[some, None, None])[real]
            held[some, :, d] = _square(offsets)
        walk = AcceptWalk(route(self.tree, devices), held)
        return AcceptState(start.centroids, start.previous, nobody, nobody, agreed, None, start.rehearsed, walk)

    def message(self, state: AcceptState, devices: Devices) -> SparseMessages:
        """Send to the parents or to the children what is due, layer by layer."""
        if state.walk is None:
            return SparseMessages.empty()
        routes, held = state.walk
        way, step = divmod(devices.turn + 1 if devices.round else 0, routes.depth)
        if way in (_TOTALS, _CHOICE):
            return _encode(descend(routes, _front(routes.layer(step), held), step, devices), held, devices)
        who = routes.layer(routes.depth - step) if way or step else begin(routes, devices)
        return _encode(climb(routes, _front(who, held)), held, devices)

    def update(self, state: AcceptState, inbox: Delivery, devices: Devices) -> AcceptState:
        """Take in what came up or down; at the end of a way, turn it round."""
        if state.walk is None:
            return state
        routes, held = state.walk
        if devices.turn == 0:  # from the next turn on nobody else has seen these
            held = held.copy()
        way, step = divmod(devices.turn, routes.depth)
        came = inbox.tables.flat().reshape(-1, *held.shape[1:])
        who = source_of(devices, inbox.edges)
        if way in (_TOTALS, _CHOICE):
            held[who] = came
        else:
            np.add.at(held, who, came)
        if step < routes.depth - 1:
            return state._replace(walk=AcceptWalk(routes, held))
        if way == _CHOICE:
            reverted = held[:, 0, 0] > 0.0
            ends = state.centroids, state.previous
            centroids, previous = (
                np.where(reverted[:, None, None], state.start, one) if reverted.any() else one for one in ends
            )
            done = np.ones_like(reverted)
            return AcceptState(centroids, previous, done, reverted, centroids, None, state.rehearsed, None)
        if way == _TOTALS:
            _average(held, self.sizes[devices.ids])
            held = measure_excess(state.start, held, devices)
        elif way == _EXCESS:  # the total at the roots
            held = (held > 0.0).astype(np.float64)
        return state._replace(walk=AcceptWalk(routes, held))


def _front(who: Integers, held: Floats) -> Front:
    """Return those who are about to send, with the tables that they hold."""
    _, rows, width = held.shape
    return Front(who, Tables(held.reshape(-1, width), who * rows, np.full(len(who), rows)))


def _encode(messages: SparseMessages, held: Floats, devices: Devices) -> SparseMessages:
    """Return the messages with their bytes on the wire, where they are whole numbers: the last column by itself."""
    if devices.grid is None:
        return messages
    tables = messages.tables.flat().reshape(len(messages.senders), *held.shape[1:])
    tables = np.where(np.isfinite(tables), tables, 0.0)  # absent rows are known
    parts = [part for part in np.split(tables, [held.shape[2] - 1], axis=2) if part.shape[2]]
    bits = np.sum(
        [number_bits(part, rice=devices.grid.rice, kernel=devices.kernels.integer_bits) for part in parts], axis=0
    )
    return messages._replace(wire=to_bytes(bits))


def _square(offsets: Floats) -> Floats:
    """Return the squared length of each row, float64[n, k]."""
    squares: Floats = np.cumsum(np.square(offsets), axis=2)[:, :, -1]
    return squares


def _average(held: Floats, sizes: Integers) -> None:
    """Write the mean offset of each row and its variance in the place of the sums of offsets and of their squares."""
    for some in blocks(len(held), held[0].size if len(held) else 1):
        found = held[some]
        found /= sizes[some, None, None]
        absent = np.isinf(found[:, :, 0])
        found[absent] = 0.0
        found[:, :, -1] = np.maximum(found[:, :, -1] - _square(found[:, :, :-1]), 0.0)
        found[absent] = np.inf


def measure_excess(start: Floats, held: Floats, devices: Devices) -> Floats:
    """Compute the excess of the bound of `AcceptTest` over the loss of the start on local points, float64[n, 1, 1].

    On a grid in squared steps of a point, rounded up.

    A column of zeros beside the points and of the root of V_c beside u_c adds V_c to every squared distance.
    """
    points, weights, offsets = devices.kernel_inputs
    unit = np.ones(len(devices)) if devices.grid is None else devices.grid.unit
    excess = np.zeros((len(devices), 1, 1))
    for own, rows in iter_chunks(offsets):
        wide = np.column_stack((points[rows], np.zeros(rows.stop - rows.start, points.dtype)))
        begins = offsets[own.start : own.stop + 1] - rows.start
        begun = np.dstack((start[own], np.where(np.isinf(start[own, :, 0]), np.inf, 0.0)))
        step = unit[own, None]
        spread = np.sqrt(np.maximum(held[own, :, -1], 0.0)) * step
        ended = np.dstack((start[own] + held[own, :, :-1] * step[:, :, None], spread))
        first, last = _losses(wide, weights[rows], begins, (begun, ended), devices)
        np.subtract(last, first, out=excess[own, 0, 0], where=first < np.inf)  # inf: a start without rows
    if devices.grid is not None:
        excess = np.ceil(excess / (unit * unit * devices.unit)[:, None, None])
    return excess


def _losses(
    points: NDArray[Any], weights: Floats, offsets: Integers, sets: tuple[Floats, Floats], devices: Devices
) -> list[Floats]:
    """Return the losses of two sets of each device, float64[n, k, d], on the points that may be counted for both."""
    found = [devices.kernels.losses(points, weights, offsets, one) for one in sets]
    if devices.min_count >= 2:
        labelings = [labels for _, labels in found]
        counted = find_grouped_points(offsets, labelings, sets[0].shape[1], devices.min_count)
        counted |= labelings[0] < 0  # a start without rows costs infinity
        weights = np.where(counted, weights if len(weights) else 1.0, 0.0)
        found = [devices.kernels.losses(points, weights, offsets, one) for one in sets]
    return [losses for losses, _ in found]
