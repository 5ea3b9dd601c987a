"""Mean and total variance of all points, summed along a tree: what devices that send integers take their step from."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.expected_messages import Known, TreePass, TreePasses
from p2pkm.core.messages import Delivery, SparseMessages
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MethodTraits
from p2pkm.methods.building_blocks.spanning_tree import Routes, Tree, climb, descend, route, single_rows, source_of


@register("total-variance")
class TotalVarianceState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
        Those that the run starts from, if they are given.
    converged : bool[n]
    moments : float64[n, d + 2]
        Weight, mean and sum of squared deviations of the points of each device and of those below it in the tree.
    agreed : float64[n, d + 1]
        Mean and total variance of all points, as they have come down; nan until then.
    routes : Routes or None
        What the batch has to do with the tree; None at the end.
    """

    centroids: Floats
    converged: Mask
    moments: Floats
    agreed: Floats
    routes: Routes | None


@dataclass(frozen=True)
class TotalVariance(MethodBase):
    """``(W, mean, M2)`` of all points, merged on their way to the root of a tree; mean and M2 / W come down.

    Merging keeps the digits that a plain sum of squares loses (Chan, Golub and LeVeque 1979): with the mean u of all,
    ``M2 = sum_j M2_j + W_j |u_j - u|^2``. Each way takes as many turns as the tree has layers below its root; both are
    one round.

    Message: a row of d + 2 numbers up each link of the tree, and one of d + 1 down.

    Privacy: the parent sees the moments of a device, those of one point being that point. With a `min_cluster_size` p
    a device of at most p points takes no part.
    """

    name: ClassVar[str] = "total-variance"
    traits: ClassVar[MethodTraits] = MethodTraits()
    k: int
    tree: Tree

    @property
    def schedule(self) -> str:
        """Return the schedule: one round has all the turns."""
        return f"jacobi*{2 * max(1, int(self.tree.layer.max()))}"

    def expected_messages(self, known: Known) -> TreePasses:
        """Return a row up and a row down every link of the tree."""
        (parent, layers), d = self.tree, known.features
        one, sure = np.ones(len(layers), np.int64), np.ones(len(layers), np.bool_)
        return TreePasses(parent, layers, (TreePass(True, one, d + 2, sure), TreePass(False, one, d + 1, sure)))

    def initial_state(self, devices: Devices, start: Any) -> TotalVarianceState:
        """Measure the own points."""
        n, d = len(devices), devices.d
        taking = devices.sizes > (devices.min_count if devices.min_count > 1 else 0)
        owner, weights = np.repeat(np.arange(n), devices.sizes), devices.point_weights
        weight = _sum(owner, weights, n)
        mean = np.stack([_sum(owner, weights * x, n) for x in devices.stored.T], axis=1) / _positive(weight)[:, None]
        squares = _squared(devices.stored - mean[owner])
        moments = np.column_stack((weight, mean, _sum(owner, weights * squares, n)))
        moments[~taking] = 0.0
        nothing = np.full((n, self.k, d), np.inf) if start is None else start.centroids
        routes = route(self.tree, devices)
        return _agree(TotalVarianceState(nothing, np.zeros(n, np.bool_), moments, np.full((n, d + 1), np.nan), routes))

    def message(self, state: TotalVarianceState, devices: Devices) -> SparseMessages:
        """Send to the parents or to the children what is due, layer by layer."""
        routes = state.routes
        if routes is None:
            return SparseMessages.empty()
        way, step = divmod(devices.turn + 1 if devices.round else 0, routes.depth)
        if way:
            layer = routes.layer(step)
            return descend(routes, single_rows(layer, state.agreed[layer]), step, devices)
        layer = routes.layer(routes.depth - step)
        return climb(routes, single_rows(layer, state.moments[layer]))

    def update(self, state: TotalVarianceState, inbox: Delivery, devices: Devices) -> TotalVarianceState:
        """Merge what came up; take over what came down."""
        if state.routes is None:
            return state
        depth, receivers, rows = state.routes.depth, source_of(devices, inbox.edges), inbox.tables.flat()
        if devices.turn < depth:
            return _agree(state._replace(moments=_merge(state.moments, receivers, rows)))
        agreed = state.agreed.copy()
        agreed[receivers] = rows
        if devices.turn < 2 * depth - 1:
            return state._replace(agreed=agreed)
        return state._replace(agreed=agreed, converged=np.ones(len(devices), np.bool_), routes=None)


def _agree(state: TotalVarianceState) -> TotalVarianceState:
    """Return the state with mean and total variance, as far as they are known, at the roots."""
    assert state.routes is not None
    roots, agreed = state.routes.layer(0), state.agreed.copy()
    moments = state.moments[roots]
    agreed[roots] = np.column_stack((moments[:, 1:-1], moments[:, -1] / _positive(moments[:, 0])))
    return state._replace(agreed=agreed)


def _merge(moments: Floats, receivers: Integers, rows: Floats) -> Floats:
    """Return the moments with those that some devices received, float64[f, d + 2], in their order."""
    rows, place = np.concatenate((moments, rows)), np.concatenate((np.arange(len(moments)), receivers))
    n, weight = len(moments), np.zeros(len(moments))
    np.add.at(weight, place, rows[:, 0])
    mean = np.zeros((n, rows.shape[1] - 2))
    np.add.at(mean, place, rows[:, :1] * rows[:, 1:-1])
    mean /= _positive(weight)[:, None]
    squares = np.zeros(n)
    np.add.at(squares, place, rows[:, -1] + rows[:, 0] * _squared(rows[:, 1:-1] - mean[place]))
    merged = np.column_stack((weight, mean, squares))
    alone = np.bincount(receivers, minlength=n) == 0
    merged[alone] = moments[alone]
    return merged


def _squared(rows: Floats) -> Floats:
    """Return the squared lengths of rows, float64[r]; +inf where they are too long."""
    with np.errstate(over="ignore"):
        return np.asarray(np.cumsum(rows * rows, axis=1)[:, -1], np.float64)


def _sum(owner: Integers, values: Floats, n: int) -> Floats:
    """Return the sums of values by owner, in their order, float64[n]."""
    return np.bincount(owner, weights=values, minlength=n).astype(np.float64)


def _positive(weight: Floats) -> Floats:
    """Return weights to divide by: 1 where there is none."""
    return np.where(weight > 0.0, weight, 1.0)
