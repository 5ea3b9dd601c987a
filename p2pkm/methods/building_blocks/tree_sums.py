"""Exact sums along a spanning tree: passes, integer sums of local points, and centroid moves in steps of a grid.

The sums of each device are rounded to integers, in units of (grain x step). Integers add up exactly, so the result does
not depend on the order of addition, on the tree, or on the number of ranks. They are stored as float64 below 2^53,
because messages contain float64.
"""

from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.chunks import label
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.sorting import blocks
from p2pkm.methods.building_blocks.spanning_tree import Tree, tree_edges

# Bound of the sums over all devices. Integers up to 2^53 are exact in float64.
_EXACT = 2.0**52
# The weight of all points is at most 2^32 units of weight, so that counts and their sums are exact.
_WEIGHT_BITS = 32
# Step size: 0.3 standard errors of a mean, and at least 2^-6 standard deviations. Rounding of centroids and sums raises
# the cost by about 0.015 k / m of its value. A finer step needs more bytes and gains little (docs/results/methods.csv).
_ERROR_SHARE = 0.3
_MIN_STEP = 2.0**-6
# Columns of the tables of `measure` and `choose_units`.
MOMENTS = 4
UNITS = 3
# Bits of the mantissa of a float64, and an exponent above all others, for devices without weights.
_MANTISSA_BITS = 53
_NO_EXPONENT = 3000.0
# Added before rounding down, so that rounding errors of equal weights do not change the grain: the result does not
# depend on the scale of the weights.
_TIE = 1e-9
# Largest number of bits of a centroid offset after its step has been halved.
_MAX_BITS = 30
# Binary digits of a number that is sent in 4 bytes.
_DIGITS = 21
# Width given to `blocks` per feature: blocks of points that stay in the second-level cache.
_BLOCK_WIDTH = 64


class PassPosition(NamedTuple):
    """Position of an exchange in a pass up and down a tree.

    Attributes
    ----------
    number : int
        Number of the exchange: 0 to depth - 1 go up, depth to 2 depth - 1 go down.
    depth : int
        Exchanges of a pass in one direction.
    """

    number: int
    depth: int

    @property
    def up(self) -> bool:
        """Whether the exchange goes up, towards the roots."""
        return self.number < self.depth

    @property
    def at_roots(self) -> bool:
        """Whether the exchange is the last one up, which completes the sums at the roots."""
        return self.number == self.depth - 1

    @property
    def is_last(self) -> bool:
        """Whether the exchange is the last one down, which completes the pass."""
        return self.number == 2 * self.depth - 1

    @property
    def layer(self) -> int:
        """Layer that sends."""
        return self.depth - self.number if self.up else self.number - self.depth

    @property
    def is_in_pass(self) -> bool:
        """Whether the exchange is part of the pass."""
        return 0 <= self.number < 2 * self.depth


def pass_depth(tree: Tree) -> int:
    """Compute the number of exchanges of a pass in one direction, at least 1."""
    return max(1, int(tree.layer.max()))


def send_position(devices: Devices, depth: int) -> PassPosition:
    """Compute the position of the exchange at the end of the current turn.

    A round has 2 depth + 1 turns, so that all of its messages are also read in it. The initial exchange counts as the
    first exchange of round 1, so the exchanges of round 1 are one ahead of those of other rounds.
    """
    return PassPosition(devices.turn + (devices.round == 1), depth)


def receive_position(devices: Devices, depth: int) -> PassPosition:
    """Compute the position of the exchange whose messages are read in the current turn."""
    return PassPosition(devices.turn - (devices.round != 1), depth)


def send_tables(position: PassPosition, tree: Tree, devices: Devices, tables: Floats, eligible: Mask) -> DenseMessages:
    """Send the tables of the layer at this position, float64[n, r, w], to the parents or to the children.

    Parameters
    ----------
    eligible : bool[n]
        Devices that may send.

    Notes
    -----
    A device without links sends over no edge in the first exchange, which shows that it is not converged.
    """
    in_layer = tree.layer[devices.ids] == position.layer
    edges = tree_edges(tree, devices, eligible & in_layer)[0 if position.up else 1]
    sending = eligible & (devices.degrees == 0) & (position.number == 0)
    sending[devices.sources[edges]] = True
    return DenseMessages(tables, np.where(sending, tables.shape[1], -1), edges=edges)


def add_child_tables(tables: Any, inbox: Inbox, devices: Devices) -> Any:
    """Add received tables of children, in ascending id, to tables float64[n, r, w] or words uint64[n, r, w]."""
    edges = np.flatnonzero(inbox.fresh)
    total = tables.copy()
    np.add.at(total, devices.sources[edges], _read(tables, inbox, edges))
    return total


def _read(tables: Any, inbox: Inbox, edges: Integers) -> Any:
    """Read the tables received over some edges, [b, r, w], with the type of `tables`."""
    _, r, w = tables.shape
    return np.ascontiguousarray(inbox.tables_of(edges, r, w)).view(tables.dtype)


def merge_child_moments(tables: Floats, inbox: Inbox, devices: Devices) -> Floats:
    """Merge the moments of the children, in ascending id, into those of their parents, float64[n, 1, 4]."""
    edges, width = np.flatnonzero(inbox.fresh), tables.shape[2]
    first = np.searchsorted(edges, devices.indptr)
    counts, merged = np.diff(first), tables.copy()
    for number in range(counts.max(initial=0)):
        parents = np.flatnonzero(counts > number)
        received = inbox.tables_of(edges[first[parents] + number], 1, width)
        merged[parents] = merge_moments(merged[parents], received)
    return merged


def receive_from_parents(tables: Any, inbox: Inbox, devices: Devices) -> tuple[Integers, Any]:
    """Replace tables by those received from the parents: receivers, int64[b], and all tables, [n, r, w]."""
    edges = np.flatnonzero(inbox.fresh)
    receivers = devices.sources[edges]
    updated = tables.copy()
    updated[receivers] = _read(tables, inbox, edges)
    return receivers, updated


def measure(devices: Devices, tables: Floats) -> Floats:
    """Compute the moments of the local points: weight, cost (6), exponent, and rows with points, float64[n, 1, 4].

    The exponent is the largest one such that all weights are multiples of this power of two.

    Parameters
    ----------
    tables : float64[n, k, d]
        Absent rows are +inf.
    """
    n, k, _ = tables.shape
    moments = np.zeros((n, 1, MOMENTS))
    moments[:, 0, 2] = _NO_EXPONENT
    for piece in label(devices, tables):
        count = piece.span.stop - piece.span.start
        owner = np.repeat(np.arange(count), np.diff(piece.offsets))
        weights = devices.point_weights[piece.rows]
        is_labeled = piece.labels >= 0
        moments[piece.span, 0, 0] = np.bincount(owner, weights, count)
        moments[piece.span, 0, 1] = piece.losses
        # Without weights the array is one number with stride 0.
        lowest = _lowest_exponents(weights if any(weights.strides) else weights[:1])
        np.minimum.at(moments[piece.span, 0, 2], owner, lowest)
        rows_with_points = np.unique((owner * k + piece.labels)[is_labeled]) // max(k, 1)
        moments[piece.span, 0, 3] = np.bincount(rows_with_points, minlength=count)
    return moments


def _lowest_exponents(weights: Floats) -> Floats:
    """Compute the exponent of the lowest set bit of each weight."""
    mantissa, exponent = np.frexp(weights)
    integers = np.ldexp(mantissa, _MANTISSA_BITS).astype(np.int64)
    lowest_bit = (integers & -integers).astype(np.float64)
    lowest = np.log2(lowest_bit, out=np.full(len(integers), _NO_EXPONENT), where=integers != 0)
    return lowest + exponent - _MANTISSA_BITS


def merge_moments(first: Floats, second: Floats) -> Floats:
    """Compute the moments of the points of both, float64[b, 1, 4] each."""
    merged = first + second
    merged[:, :, 2] = np.minimum(first[:, :, 2], second[:, :, 2])
    return merged


def choose_units(measured: Floats, rows: Integers, d: int, point: float) -> Floats:
    """Choose step of coordinates, unit of weights and grain of sums, float64[b, 3], from the moments of all points.

    The unit is the largest power of two of which all weights are multiples, or 2^-32 of the total weight if that is
    more. The step is that of `find_step`; 0 means that points do not differ from their centroids. Sums are integers in
    units of grain x unit x step.

    Parameters
    ----------
    measured : float64[b, 1, 4]
        Moments, see `measure`.
    rows : int64[b]
        Number of rows of the table.
    d : int
        Number of features.
    point : float
        Mean weight of a point.

    Notes
    -----
    The grain is the largest integer g, in points, for which rounding the sums raises the cost at most as much as
    rounding the centroids. Let v be the variance of the rounding error of a centroid coordinate, m the number of points
    and h the number of rows with points, added over all devices. Rounding the centroids raises the cost by m v per
    coordinate. A sum is off by rounding errors of variance ``g^2 v`` at each of about h / k devices, so a mean of m / k
    points has the error variance ``g^2 v (h / k) / (m / k)^2``. Over k rows of m / k points this raises the cost by
    ``g^2 v k h / m``. Hence ``g^2 k h / m <= m``.
    """
    weight, cost, lowest, rows_with_points = measured[:, 0].T
    _, exponent = np.frexp(weight)
    unit = np.ldexp(1.0, np.maximum(lowest, exponent - float(_WEIGHT_BITS)).clip(-1000, 1000).astype(np.int64))
    points_per_grain = weight / point / np.sqrt(np.maximum(rows * rows_with_points, 1.0))
    grain = np.floor(np.maximum(points_per_grain + _TIE, 1.0)) * (point / unit)
    return shorten(np.stack((find_step(cost, weight, rows, d, point), unit, grain), axis=1))


def find_step(cost: Floats, weight: Floats, rows: Integers, d: int, point: float) -> Floats:
    """Compute the step for a cost, float64[b]: 0.3 standard errors of a coordinate of a mean row.

    This is ``0.3 sqrt(k / m)`` standard deviations within clusters, with m points; at least 2^-6 and at most 0.3
    standard deviations.

    Parameters
    ----------
    cost, weight : float64[b]
        Cost and weight of all points.
    rows, d, point
        As in `choose_units`.
    """
    share = _ERROR_SHARE * np.sqrt(np.minimum(rows / np.maximum(weight / point, 1.0), 1.0))
    spread = np.sqrt(cost / np.where(weight > 0.0, weight, 1.0) / float(d))
    return np.where(weight > 0.0, np.maximum(share, _MIN_STEP) * spread, 0.0)


def count_halvings(step: float, requested_step: float, table: Floats) -> int:
    """Count how often a step can be halved without falling below the requested step or exceeding 30 bits in a table."""
    if not requested_step > 0.0:
        return 0
    room = _MAX_BITS - int(np.frexp(np.abs(table).max(initial=0.0))[1])
    return max(0, min(room, int(np.floor(np.log2(step / requested_step)))))


def shorten(numbers: Floats) -> Floats:
    """Round numbers to 4 bytes: a sign, 11 bits of exponent and 21 binary digits, the first of which is 1."""
    mantissa, exponent = np.frexp(numbers)
    return np.ldexp(np.rint(np.ldexp(mantissa, _DIGITS)), exponent - _DIGITS)


def local_grid_sums(devices: Devices, tables: Floats, reference: Floats, units: Floats) -> tuple[Floats, Floats]:
    """Compute the integer sums of the local points, float64[n, k, d + 1], and their cost (6), float64[n].

    For the points x with weights m_x nearest to row c::

        S_c = rint(sum m_x (x - reference_c) / (unit grain step)),    n_c = rint(sum m_x / unit)

    Parameters
    ----------
    tables, reference : float64[n, k, d]
        Absent rows are +inf and are assigned no points.
    units : float64[n, 3]
        Step, unit and grain, see `choose_units`.
    """
    n, k, d = tables.shape
    sums, costs = np.zeros((n, k, d + 1)), np.zeros(n)
    for piece in label(devices, tables):
        count = piece.span.stop - piece.span.start
        is_labeled = piece.labels >= 0
        # A slice copies no points.
        used: Any = slice(None) if is_labeled.all() else is_labeled
        cells = np.repeat(np.arange(count), np.diff(piece.offsets))[used] * k + piece.labels[used]
        weights = devices.point_weights[piece.rows][used]
        points, origins = devices.stored[piece.rows][used], reference[piece.span].reshape(-1, d)
        # By feature, from blocks that stay in the cache.
        offsets = np.empty((d, len(cells)))
        for block in blocks(len(cells), _BLOCK_WIDTH * d):
            offsets[:, block] = weights[block] * (points[block] - origins[cells[block]]).T
        for f in range(d):
            sums[piece.span, :, f] = np.bincount(cells, offsets[f], count * k).reshape(count, k)
        sums[piece.span, :, d] = np.bincount(cells, weights, count * k).reshape(count, k)
        costs[piece.span] = piece.losses
    step, unit, grain = (units[:, column, None, None] for column in range(3))
    sums /= unit
    sums[:, :, :d] /= np.where(step > 0.0, grain * step, np.inf)
    # Clipped, so that the sum over all devices stays exact. Adding 0.0 turns -0.0 into 0.0.
    return np.clip(np.rint(sums), -_EXACT / devices.total, _EXACT / devices.total) + 0.0, costs


def grid_moves(sums: Floats, table: Floats, grain: Floats) -> Floats:
    """Compute the steps by which each row moves to the mean of its points, float64[n, k, d]; 0 without points.

    Parameters
    ----------
    sums : float64[n, k, d + 1]
    table : float64[n, k, d]
        Offset of every row from its reference, in steps.
    grain : float64[n]
        Grain of the sums.
    """
    counts = sums[:, :, -1:]
    means = np.rint(grain[:, None, None] * sums[:, :, :-1] / np.where(counts > 0.0, counts, 1.0))
    means = np.clip(means, -_EXACT, _EXACT)
    return np.where(counts > 0.0, means - table, 0.0)
