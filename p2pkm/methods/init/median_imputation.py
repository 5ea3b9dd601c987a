"""Imputation of missing values by the median of each feature over all devices: bisection on counts along a tree."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.expected_messages import Known, TreePass, TreePasses
from p2pkm.core.messages import Delivery, SparseMessages
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MessageContent, MethodTraits
from p2pkm.methods.building_blocks.spanning_tree import (
    LocalTree,
    Tree,
    local_tree,
    source_devices,
    walk_tree,
)

# Bisection steps: there are fewer than 2^64 doubles, so that 64 halvings leave one.
HALVINGS = 64
_LARGEST = float(np.finfo(np.float64).max)


class MedianWalk(NamedTuple):
    """Progress of the bisection. Columns 0 to d - 1 belong to the lower medians, d to 2 d - 1 to the upper ones.

    Attributes
    ----------
    routes : LocalTree
    counted : bool[n, 2 d]
        Whether a device counts its values of the feature.
    pivots : float64[n, 2 d]
    sums : float64[n, 2 d]
        Weight of the values up to the pivot, on the device and its descendants.
    low, high : int64[n, 2 d]
        Limits of the median as keys, see `order_keys`. Defined at the roots only.
    total : float64[n, 2 d]
        Weight of all known values. Defined at the roots only.
    """

    routes: LocalTree
    counted: Mask
    pivots: Floats
    sums: Floats
    low: Integers
    high: Integers
    total: Floats


@register("median-imputation")
class MedianState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
        Always +inf: the stage finds no centroids.
    converged : bool[n]
    filling : float64[n, d]
        Median of each feature, 0 until the end.
    walk : MedianWalk or None
        None after the last turn.
    """

    centroids: Floats
    converged: Mask
    filling: Floats
    walk: MedianWalk | None


@dataclass(frozen=True)
class MedianImputation(MethodBase):
    """Exact weighted median of the known values of each feature over all devices, along a spanning tree.

    Attributes
    ----------
    k : int
        Number of clusters.
    tree : Tree

    Notes
    -----
    **Objective.** With W the weight of all known values and W(x) that of the values up to x, the median is half the sum
    of the smallest x with ``2 W(x) >= W`` and the smallest x with ``2 W(x) > W``. For equal weights it is the middle
    value, or the mean of the two middle ones. A feature without any known value has the median 0.

    **Update.** The root bisects both values over all doubles:

    1. Down: a pivot for each of the 2 d values. Up: the weight of the values up to the pivot.
    2. The root halves the interval of keys. The first pivot is the largest double, whose sum is W.

    After 64 halvings one double is left. There are 65 passes up and 65 down, all in one round. A pass takes as many
    turns as the tree has layers below the root.

    **Messages.** One row of 2 d sums up and one of 2 d pivots down over each tree link, 65 times. The last row down
    contains the medians.

    **Privacy.** No guarantee. A parent receives, for its subtree, the weight of the values up to each pivot. For a leaf
    this is its distribution, resolved more finely near the median. All devices receive the two middle values unchanged.
    With a `min_cluster_size` p a device does not count features with at most p known values.
    """

    name: ClassVar[str] = "median-imputation"
    traits: ClassVar[MethodTraits] = MethodTraits(message_content=MessageContent.OTHER)
    k: int
    tree: Tree

    @property
    def schedule(self) -> str:
        """Schedule: all tree passes are turns of one round."""
        return f"jacobi*{2 * (HALVINGS + 1) * max(1, int(self.tree.layer.max()))}"

    def expected_messages(self, known: Known) -> TreePasses:
        """Count sums up and pivots down every link of the tree, 65 times."""
        single_row = np.ones(len(self.tree.layer), np.int64)
        up_and_down = tuple(TreePass(up, single_row, 2 * known.features, single_row > 0) for up in (True, False))
        return TreePasses(*self.tree, up_and_down * (HALVINGS + 1))

    def initial_state(self, devices: Devices, start: Any) -> MedianState:
        """Compute the weights of the local known values; the deepest layer sends first."""
        n, d = len(devices), devices.d
        owner = np.repeat(np.arange(n), devices.sizes)
        threshold = devices.min_count if devices.min_count > 1 else 0
        counted = [np.bincount(owner[~np.isnan(values)], minlength=n) > threshold for values in devices.stored.T]
        counted_twice = np.stack((*counted, *counted), axis=1)
        pivots = np.full((n, 2 * d), _LARGEST)
        high = order_keys(pivots)
        sums = _sum_weights(devices, counted_twice, pivots)
        routes = local_tree(self.tree, devices)
        walk = MedianWalk(routes, counted_twice, pivots, sums, -high, high, np.zeros((n, 2 * d)))
        return MedianState(np.full((n, self.k, d), np.inf), np.zeros(n, np.bool_), np.zeros((n, d)), walk)

    def message(self, state: MedianState, devices: Devices) -> SparseMessages:
        """Send sums to the parents or pivots to the children, one layer per turn."""
        walk = state.walk
        if walk is None:
            return SparseMessages.empty()
        return walk_tree(walk.routes, devices, up=walk.sums, down=walk.pivots)

    def update(self, state: MedianState, inbox: Delivery, devices: Devices) -> MedianState:
        """Add received sums, or compare local values with received pivots."""
        walk = state.walk
        if walk is None:
            return state
        tree_pass, step = divmod(devices.turn, walk.routes.depth)
        receivers = source_devices(devices, inbox.edges)
        rows = inbox.tables.flat()
        is_last = step == walk.routes.depth - 1
        if tree_pass % 2 == 0:
            sums = walk.sums.copy()
            np.add.at(sums, receivers, rows)
            walk = walk._replace(sums=sums)
            return state._replace(walk=_halve(walk, tree_pass // 2) if is_last else walk)
        pivots = walk.pivots.copy()
        pivots[receivers] = rows
        walk = walk._replace(pivots=pivots)
        if is_last and tree_pass == 2 * HALVINGS + 1:
            # Adding 0.0 turns -0.0 into 0.0.
            filling = (pivots[:, : devices.d] + pivots[:, devices.d :]) / 2.0 + 0.0
            return MedianState(state.centroids, np.ones(len(devices), np.bool_), filling, None)
        if is_last:
            walk = walk._replace(sums=_sum_weights(devices, walk.counted, pivots))
        return state._replace(walk=walk)


def _halve(walk: MedianWalk, number: int) -> MedianWalk:
    """Compute the next pivots at the roots from the sums of the last ones; after the last halving, the medians."""
    if number == 0:
        walk = walk._replace(total=walk.sums)
    else:
        twice = 2.0 * walk.sums
        middle = order_keys(walk.pivots)
        is_lower_median = np.arange(twice.shape[1]) < twice.shape[1] // 2
        enough = np.where(is_lower_median, twice >= walk.total, twice > walk.total)
        low = np.where(enough, walk.low, middle + 1)
        high = np.where(enough, middle, walk.high)
        walk = walk._replace(low=np.minimum(low, high), high=high)
    # The mean of two keys, rounded down, without the overflow of low + high.
    pivots = values_of_keys((walk.low & walk.high) + ((walk.low ^ walk.high) >> 1))
    if number == HALVINGS:
        pivots = np.where(walk.total > 0.0, pivots, 0.0)
    roots = walk.routes.layer(0)
    new_pivots = walk.pivots.copy()
    new_pivots[roots] = pivots[roots]
    return walk._replace(pivots=new_pivots)


def _sum_weights(devices: Devices, counted: Mask, pivots: Floats) -> Floats:
    """Compute the weight of the local values up to each pivot, float64[n, 2 d]; it is monotone in the pivot."""
    n, d = len(devices), devices.d
    owner = np.repeat(np.arange(n), devices.sizes)
    sums = np.zeros((n, 2 * d))
    for column in range(2 * d):
        # Missing values (NaN) compare as False.
        is_below = devices.stored[:, column % d] <= pivots[owner, column]
        sums[:, column] = np.bincount(owner[is_below], devices.point_weights[is_below], n)
    return np.where(counted, sums, 0.0)


def order_keys(values: Floats) -> Integers:
    """Map doubles to integers of the same order and shape: adjacent doubles differ by 1, 0.0 is 0 and -0.0 is -1."""
    bits = np.ascontiguousarray(values, np.float64).view(np.int64)
    return bits ^ ((bits >> 63) & np.int64(2**63 - 1))


def values_of_keys(keys: Integers) -> Floats:
    """Invert `order_keys`: integers to doubles of the same shape."""
    return (keys ^ ((keys >> 63) & np.int64(2**63 - 1))).view(np.float64)
