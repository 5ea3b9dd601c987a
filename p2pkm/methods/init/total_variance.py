"""Mean and total variance of all points, along a spanning tree: the scale of the step size of integer messages."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.expected_messages import Known, TreePass, TreePasses
from p2pkm.core.messages import Delivery, SparseMessages
from p2pkm.core.protocols import MethodBase
from p2pkm.core.sorting import blocks
from p2pkm.core.states import register
from p2pkm.core.traits import MethodTraits
from p2pkm.methods.building_blocks.spanning_tree import (
    LocalTree,
    Tree,
    local_tree,
    send_to_children,
    send_to_parents,
    single_rows,
    source_devices,
)

# Width given to `blocks` per feature: blocks of points that stay in the second-level cache.
_BLOCK_WIDTH = 64


@register("total-variance")
class TotalVarianceState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
        Centroids of the previous stage; +inf if there is none.
    converged : bool[n]
    moments : float64[n, d + 2]
        Weight, mean and sum of squared deviations of the points of a device and its descendants so far.
    agreed : float64[n, d + 1]
        Mean and total variance of all points; NaN until the device has received them.
    routes : LocalTree or None
        None after the last turn.
    """

    centroids: Floats
    converged: Mask
    moments: Floats
    agreed: Floats
    routes: LocalTree | None


@dataclass(frozen=True)
class TotalVariance(MethodBase):
    """Mean and total variance of all points, by one pass up and one down a spanning tree.

    Attributes
    ----------
    k : int
        Number of clusters.
    tree : Tree

    Notes
    -----
    **Update.** Up: moments (weight W, mean u, sum M2 of squared deviations) are merged at every device by
    ``M2 = sum_j M2_j + W_j |u_j - u|^2`` with the merged mean u [1]_, which avoids the cancellation of a plain sum of
    squares. Down: the mean and ``M2 / W``. Both passes are one round; each takes as many turns as the tree has layers
    below the root.

    **Messages.** One row of d + 2 numbers up and one of d + 1 numbers down over each tree link.

    **Privacy.** No guarantee. The parent receives the moments of a device and its descendants; the moments of one point
    are that point. With a `min_cluster_size` p a device with at most p points does not contribute.

    References
    ----------
    .. [1] T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating formulae and a pairwise algorithm for computing sample
       variances", 1979.
    """

    name: ClassVar[str] = "total-variance"
    traits: ClassVar[MethodTraits] = MethodTraits()
    k: int
    tree: Tree

    @property
    def schedule(self) -> str:
        """Schedule: both tree passes are turns of one round."""
        return f"jacobi*{2 * max(1, int(self.tree.layer.max()))}"

    def expected_messages(self, known: Known) -> TreePasses:
        """Count a row up and a row down every link of the tree."""
        (parent, layers), d = self.tree, known.features
        single_row = np.ones(len(layers), np.int64)
        exact = np.ones(len(layers), np.bool_)
        return TreePasses(
            parent, layers, (TreePass(True, single_row, d + 2, exact), TreePass(False, single_row, d + 1, exact))
        )

    def initial_state(self, devices: Devices, start: Any) -> TotalVarianceState:
        """Compute the moments of the local points."""
        n, d = len(devices), devices.d
        contributes = devices.sizes > (devices.min_count if devices.min_count > 1 else 0)
        weight, total, _ = np.split(devices.kernels.moments(*devices.kernel_inputs, np.zeros(d)), [1, 1 + d], axis=1)
        mean = total / _positive(weight)
        owner = np.repeat(np.arange(n), devices.sizes)
        squares = np.empty(len(owner))
        for rows in blocks(len(owner), _BLOCK_WIDTH * d):
            squares[rows] = _squared_lengths(devices.stored[rows] - mean[owner[rows]])
        spread = np.bincount(owner, devices.point_weights * squares, n).astype(np.float64)
        moments = np.column_stack((weight, mean, spread))
        moments[~contributes] = 0.0
        centroids = np.full((n, self.k, d), np.inf) if start is None else start.centroids
        routes = local_tree(self.tree, devices)
        agreed = np.full((n, d + 1), np.nan)
        return _set_result_at_roots(TotalVarianceState(centroids, np.zeros(n, np.bool_), moments, agreed, routes))

    def message(self, state: TotalVarianceState, devices: Devices) -> SparseMessages:
        """Send moments to the parents or the result to the children, one layer per turn."""
        routes = state.routes
        if routes is None:
            return SparseMessages.empty()
        tree_pass, step = divmod(devices.turn + 1 if devices.round else 0, routes.depth)
        if tree_pass:
            layer = routes.layer(step)
            return send_to_children(routes, single_rows(layer, state.agreed[layer]), step, devices)
        layer = routes.layer(routes.depth - step)
        return send_to_parents(routes, single_rows(layer, state.moments[layer]))

    def update(self, state: TotalVarianceState, inbox: Delivery, devices: Devices) -> TotalVarianceState:
        """Merge received moments, or adopt the received result."""
        if state.routes is None:
            return state
        depth = state.routes.depth
        receivers = source_devices(devices, inbox.edges)
        rows = inbox.tables.flat()
        if devices.turn < depth:
            return _set_result_at_roots(state._replace(moments=_merge(state.moments, receivers, rows)))
        agreed = state.agreed.copy()
        agreed[receivers] = rows
        if devices.turn < 2 * depth - 1:
            return state._replace(agreed=agreed)
        return state._replace(agreed=agreed, converged=np.ones(len(devices), np.bool_), routes=None)


def _set_result_at_roots(state: TotalVarianceState) -> TotalVarianceState:
    """Set mean and total variance at the roots, from the points merged so far."""
    assert state.routes is not None
    roots = state.routes.layer(0)
    agreed = state.agreed.copy()
    moments = state.moments[roots]
    agreed[roots] = np.column_stack((moments[:, 1:-1], moments[:, -1] / _positive(moments[:, 0])))
    return state._replace(agreed=agreed)


def _merge(moments: Floats, receivers: Integers, rows: Floats) -> Floats:
    """Merge the moments of devices with those that they received, float64[f, d + 2], in their order."""
    n = len(moments)
    rows = np.concatenate((moments, rows))
    target = np.concatenate((np.arange(n), receivers))
    weight = np.zeros(n)
    np.add.at(weight, target, rows[:, 0])
    mean = np.zeros((n, rows.shape[1] - 2))
    np.add.at(mean, target, rows[:, :1] * rows[:, 1:-1])
    mean /= _positive(weight)[:, None]
    squares = np.zeros(n)
    np.add.at(squares, target, rows[:, -1] + rows[:, 0] * _squared_lengths(rows[:, 1:-1] - mean[target]))
    merged = np.column_stack((weight, mean, squares))
    # Multiplying and dividing by the weight would change the last bit of the moments of devices that received nothing.
    is_unchanged = np.bincount(receivers, minlength=n) == 0
    merged[is_unchanged] = moments[is_unchanged]
    return merged


def _squared_lengths(rows: Floats) -> Floats:
    """Compute the squared lengths of rows, float64[r]; +inf if they overflow."""
    with np.errstate(over="ignore"):
        total = np.zeros(len(rows))
        # A loop, because np.cumsum along such a short axis takes several times as long.
        for column in rows.T:
            total += column * column
        return total


def _positive(weight: Floats) -> Floats:
    """Replace weights of 0 by 1, as divisors."""
    return np.where(weight > 0.0, weight, 1.0)
