"""Medians of the known values of every feature, to fill in missing ones: bisection on counts along a tree."""

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

HALVINGS = 64  # there are fewer than 2^64 doubles
_LARGEST = float(np.finfo(np.float64).max)


class MedianWalk(NamedTuple):
    """Where the bisection is; of every feature the lower median comes first, then, d columns on, the upper one.

    Attributes
    ----------
    routes : Routes
    told : bool[n, 2 d]
        Whether a device counts its values of the feature at all.
    pivots, sums : float64[n, 2 d]
        What the values are compared with, and the weight of those at most as large on the device and below it.
    low, high : int64[n, 2 d]
        Between which keys, see `order_keys`, the median is; of meaning at the roots, like `whole`.
    whole : float64[n, 2 d]
        Weight of all known values.
    """

    routes: Routes
    told: Mask
    pivots: Floats
    sums: Floats
    low: Integers
    high: Integers
    whole: Floats


@register("median-imputation")
class MedianState(NamedTuple):
    """centroids: float64[n, k, d], none yet; converged: bool[n]; filling: float64[n, d], the medians; walk: at work."""

    centroids: Floats
    converged: Mask
    filling: Floats
    walk: MedianWalk | None


@dataclass(frozen=True)
class MedianImputation(MethodBase):
    """Weighted median of the known values of every feature, exactly, by bisection on counts along a spanning tree.

    With W the weight of all known values and W(x) that of those at most x, it is half the sum of the smallest x with
    ``2 W(x) >= W`` and the smallest x with ``2 W(x) > W``: of equal weights the middle value, or the mean of the two
    middle ones. The root bisects both over all doubles: a pivot of each goes down, every device adds up the weight of
    its values at most the pivot, the sums go up. The first pivot is the largest double, whose sum is W; 64 halvings
    leave one double, since there are fewer than 2^64. So there are 65 ways up and 65 down, each of as many turns as the
    tree has layers below its root, all in one round. A feature of which nobody knows a value has the median 0.

    Message: a row of 2 d sums up each link of the tree 65 times, and one of 2 d pivots (at last the medians) down.

    Privacy: a parent sees how many values (which weight) of the devices below it are at most each pivot: of a leaf, a
    share of its distribution that grows finer towards the median. All see the two middle values of all, as they are.
    With a `min_cluster_size` p a device counts nothing of a feature of which it knows at most p values.
    """

    name: ClassVar[str] = "median-imputation"
    traits: ClassVar[MethodTraits] = MethodTraits()
    k: int
    tree: Tree

    @property
    def schedule(self) -> str:
        """Return the schedule: one round has all the turns."""
        return f"jacobi*{2 * (HALVINGS + 1) * max(1, int(self.tree.layer.max()))}"

    def expected_messages(self, known: Known) -> TreePasses:
        """Return sums up and pivots down every link of the tree, again and again."""
        one = np.ones(len(self.tree.layer), np.int64)
        both = tuple(TreePass(up, one, 2 * known.features, one > 0) for up in (True, False))
        return TreePasses(*self.tree, both * (HALVINGS + 1))

    def initial_state(self, devices: Devices, start: Any) -> MedianState:
        """Count the known values."""
        n, d = len(devices), devices.d
        owner, least = np.repeat(np.arange(n), devices.sizes), devices.min_count if devices.min_count > 1 else 0
        known = [np.bincount(owner[~np.isnan(values)], minlength=n) > least for values in devices.stored.T]
        told, pivots = np.stack((*known, *known), axis=1), np.full((n, 2 * d), _LARGEST)
        high = order_keys(pivots)
        sums = _weigh(devices, told, pivots)
        walk = MedianWalk(route(self.tree, devices), told, pivots, sums, -high, high, np.zeros((n, 2 * d)))
        state = MedianState(np.full((n, self.k, d), np.inf), np.zeros(n, np.bool_), np.zeros((n, d)), walk)
        return state

    def message(self, state: MedianState, devices: Devices) -> SparseMessages:
        """Send to the parents or to the children what is due, layer by layer."""
        walk = state.walk
        if walk is None:
            return SparseMessages.empty()
        way, step = divmod(devices.turn + 1 if devices.round else 0, walk.routes.depth)
        if way % 2:
            layer = walk.routes.layer(step)
            return descend(walk.routes, single_rows(layer, walk.pivots[layer]), step, devices)
        layer = walk.routes.layer(walk.routes.depth - step)
        return climb(walk.routes, single_rows(layer, walk.sums[layer]))

    def update(self, state: MedianState, inbox: Delivery, devices: Devices) -> MedianState:
        """Add up what came up; compare the own values with the pivots that came down."""
        walk = state.walk
        if walk is None:
            return state
        way, step = divmod(devices.turn, walk.routes.depth)
        receivers, rows, last = source_of(devices, inbox.edges), inbox.tables.flat(), step == walk.routes.depth - 1
        if way % 2 == 0:
            sums = walk.sums.copy()
            np.add.at(sums, receivers, rows)
            walk = walk._replace(sums=sums)
            return state._replace(walk=_halve(walk, way // 2) if last else walk)
        pivots = walk.pivots.copy()
        pivots[receivers] = rows
        walk = walk._replace(pivots=pivots)
        if last and way == 2 * HALVINGS + 1:
            filling = (pivots[:, : devices.d] + pivots[:, devices.d :]) / 2.0 + 0.0  # no -0.0
            return MedianState(state.centroids, np.ones(len(devices), np.bool_), filling, None)
        return state._replace(walk=walk._replace(sums=_weigh(devices, walk.told, pivots)) if last else walk)


def _halve(walk: MedianWalk, number: int) -> MedianWalk:
    """Return the next pivots at the roots, from the sums of the last ones; after the last halving the medians."""
    if number == 0:
        walk = walk._replace(whole=walk.sums)
    else:
        twice, middle = 2.0 * walk.sums, order_keys(walk.pivots)
        lower = np.arange(twice.shape[1]) < twice.shape[1] // 2
        enough = np.where(lower, twice >= walk.whole, twice > walk.whole)
        low, high = np.where(enough, walk.low, middle + 1), np.where(enough, middle, walk.high)
        walk = walk._replace(low=np.minimum(low, high), high=high)
    pivots = values_of_keys((walk.low & walk.high) + ((walk.low ^ walk.high) >> 1))
    if number == HALVINGS:
        pivots = np.where(walk.whole > 0.0, pivots, 0.0)
    roots = walk.routes.layer(0)
    found = walk.pivots.copy()
    found[roots] = pivots[roots]
    return walk._replace(pivots=found)


def _weigh(devices: Devices, told: Mask, pivots: Floats) -> Floats:
    """Return the weight of the own values at most each pivot, float64[n, 2 d]; it never falls as a pivot grows."""
    n, d = len(devices), devices.d
    owner, found = np.repeat(np.arange(n), devices.sizes), np.zeros((n, 2 * d))
    for column in range(2 * d):
        under = devices.stored[:, column % d] <= pivots[owner, column]  # not NaN
        found[:, column] = np.bincount(owner[under], devices.point_weights[under], n)
    return np.where(told, found, 0.0)


def order_keys(values: Floats) -> Integers:
    """Map doubles to integers of the same order and shape: adjacent doubles differ by 1, 0.0 is 0 and -0.0 is -1."""
    bits = np.ascontiguousarray(values, np.float64).view(np.int64)
    return bits ^ ((bits >> 63) & np.int64(2**63 - 1))


def values_of_keys(keys: Integers) -> Floats:
    """Invert `order_keys`: integers to doubles of the same shape."""
    return (keys ^ ((keys >> 63) & np.int64(2**63 - 1))).view(np.float64)
