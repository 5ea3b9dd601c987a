"""Exact sums along a spanning tree: whole numbers of a common step go up as differences, and down come moves.

Rounded to whole multiples of a grain times a step, sums of points add up without rounding: the result is the same for
every order, tree and division into ranks. Whole numbers are float64 below 2^53 in size, since that is what messages are
made of.
"""

from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.chunks import label
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.methods.building_blocks.spanning_tree import Tree, ways

_EXACT = 2.0**52  # sums of all devices stay below it
_WEIGHT_BITS = 32  # the weight of all points is at most 2 to this power of the unit of weights
_SHARE, _FINEST = 0.3, 2.0**-6  # a step: of the standard error of a mean; of a standard deviation at least
MOMENTS, UNITS = 4, 3  # numbers that `measure` and `choose_units` give
_FINE, _NONE = 53, 3000.0  # bits of a float64; the exponent that stands for no weight at all
_TIE = 1e-9  # equal weights of any size give the same
_BITS = 30  # of a number of a table whose step is halved
_DIGITS = 21  # binary, of a number of 4 bytes


class Position(NamedTuple):
    """Which exchange of a walk up and down is due: number 0 to depth - 1 lead up, depth to 2 depth - 1 down."""

    number: int
    depth: int

    @property
    def up(self) -> bool:
        """Return whether it leads towards the roots."""
        return self.number < self.depth

    @property
    def at_roots(self) -> bool:
        """Return whether the roots have received everything with it."""
        return self.number == self.depth - 1

    @property
    def ends(self) -> bool:
        """Return whether all have received everything with it."""
        return self.number == 2 * self.depth - 1

    @property
    def layer(self) -> int:
        """Return which layer sends."""
        return self.depth - self.number if self.up else self.number - self.depth

    @property
    def walks(self) -> bool:
        """Return whether it is an exchange of the walk at all."""
        return 0 <= self.number < 2 * self.depth


def depth_of(tree: Tree) -> int:
    """Return how many turns a way takes; at least one."""
    return max(1, int(tree.layer.max()))


def due(devices: Devices, depth: int) -> Position:
    """Return which exchange follows the turn.

    A round has 2 depth + 1 turns, so that all of its messages are read in it; the opening is the first exchange of
    round 1, which is one ahead of the others.
    """
    return Position(devices.turn + (devices.round == 1), depth)


def received(devices: Devices, depth: int) -> Position:
    """Return of which exchange the messages have come that are read in the turn."""
    return Position(devices.turn - (devices.round != 1), depth)


def send(position: Position, tree: Tree, devices: Devices, tables: Floats, among: Mask) -> DenseMessages:
    """Let the layer whose turn it is send its tables, float64[n, r, w], to the parents or to the children.

    Only the devices of `among`, bool[n], send. A device without links sends to nobody when the deepest layer sends, to
    show that it is not done.
    """
    edges = ways(tree, devices, among & (tree.layer[devices.ids] == position.layer))[0 if position.up else 1]
    sending = among & (devices.degrees == 0) & (position.number == 0)
    sending[devices.sources[edges]] = True
    return DenseMessages(tables, np.where(sending, tables.shape[1], -1), edges=edges)


def add_children(tables: Any, inbox: Inbox, devices: Devices) -> Any:
    """Return the tables, float64[n, r, w] or words uint64[n, r, w], plus those from children, in ascending id."""
    edges = np.flatnonzero(inbox.fresh)
    total = tables.copy()
    np.add.at(total, devices.sources[edges], _read(tables, inbox, edges))
    return total


def _read(tables: Any, inbox: Inbox, edges: Integers) -> Any:
    """Return what has come over these edges, [b, r, w], as the numbers or words that `tables` are made of."""
    _, r, w = tables.shape
    return np.ascontiguousarray(inbox.tables_of(edges, r, w)).view(tables.dtype)


def merge_children(tables: Floats, inbox: Inbox, devices: Devices) -> Floats:
    """Return what `measure` gives of the points below, float64[n, 1, 4], children merged in ascending id."""
    edges, width = np.flatnonzero(inbox.fresh), tables.shape[2]
    first = np.searchsorted(edges, devices.indptr)
    counts, merged = np.diff(first), tables.copy()
    for number in range(counts.max(initial=0)):
        who = np.flatnonzero(counts > number)
        merged[who] = merge(merged[who], inbox.tables_of(edges[first[who] + number], 1, width))
    return merged


def take_parents(tables: Any, inbox: Inbox, devices: Devices) -> tuple[Integers, Any]:
    """Return to whom the parents have sent, int64[b], and all tables with theirs in place, [n, r, w]."""
    edges = np.flatnonzero(inbox.fresh)
    who, found = devices.sources[edges], tables.copy()
    found[who] = _read(tables, inbox, edges)
    return who, found


def measure(devices: Devices, tables: Floats) -> Floats:
    """Return weight, cost (6), exponent and rows with points of the own points with these tables, float64[n, 1, 4].

    The exponent is the largest one such that all weights are multiples of that power of two.

    Parameters
    ----------
    tables : float64[n, k, d]
        Absent rows are +inf.
    """
    n, k, _ = tables.shape
    found = np.zeros((n, 1, MOMENTS))
    found[:, 0, 2] = _NONE
    for piece in label(devices, tables):
        count = piece.span.stop - piece.span.start
        owner = np.repeat(np.arange(count), np.diff(piece.offsets))
        weights, taken = devices.point_weights[piece.rows], piece.labels >= 0
        found[piece.span, 0, 0], found[piece.span, 0, 1] = np.bincount(owner, weights, count), piece.losses
        np.minimum.at(found[piece.span, 0, 2], owner, _find_exponents(weights))
        touched = np.unique((owner * k + piece.labels)[taken]) // max(k, 1)
        found[piece.span, 0, 3] = np.bincount(touched, minlength=count)
    return found


def _find_exponents(weights: Floats) -> Floats:
    """Return the exponent of the lowest bit of each weight."""
    mantissa, exponent = np.frexp(weights)
    whole = np.ldexp(mantissa, _FINE).astype(np.int64)
    lowest = np.log2((whole & -whole).astype(np.float64), out=np.full(len(whole), _NONE), where=whole != 0)
    return lowest + exponent - _FINE


def merge(one: Floats, other: Floats) -> Floats:
    """Return `measure` of the points of both, float64[b, 1, 4] each."""
    found = one + other
    found[:, :, 2] = np.minimum(one[:, :, 2], other[:, :, 2])
    return found


def choose_units(measured: Floats, rows: Integers, d: int, point: float) -> Floats:
    """Return step of coordinates, unit of weights and grain of sums, float64[b, 3], from `measure` of all points.

    The unit is a power of two of which every weight is a whole multiple, or 2^-32 of the whole weight if that is more.
    The step is `find_step`; 0: points have no spread within clusters. Sums are whole multiples of grain, unit and step:
    the largest whole number g of points such that their rounding raises the cost at most as much as that of the rows,
    ``g^2 k h / m <= m``, with m points, k rows, and h of them with points, added up over the devices.

    Parameters
    ----------
    measured : float64[b, 1, 4]
    rows : int64[b]
        Rows of the table.
    point : float
        Mean weight of a point.
    """
    mass, cost, lowest, touched = measured[:, 0].T
    _, exponent = np.frexp(mass)
    unit = np.ldexp(1.0, np.maximum(lowest, exponent - float(_WEIGHT_BITS)).clip(-1000, 1000).astype(np.int64))
    coarse = np.floor(np.maximum(mass / point / np.sqrt(np.maximum(rows * touched, 1.0)) + _TIE, 1.0)) * (point / unit)
    return shorten(np.stack((find_step(cost, mass, rows, d, point), unit, coarse), axis=1))


def find_step(cost: Floats, mass: Floats, rows: Integers, d: int, point: float) -> Floats:
    """Return the step for a cost, float64[b]: 0.3 standard errors of a coordinate of a row, on average.

    That is ``0.3 sqrt(k / m)`` of the standard deviation within clusters, with m points; at least 2^-6 and at most 0.3
    of it.

    Parameters
    ----------
    cost, mass : float64[b]
        Of all points.
    rows, d, point
        As in `choose_units`.
    """
    share = _SHARE * np.sqrt(np.minimum(rows / np.maximum(mass / point, 1.0), 1.0))
    spread = np.sqrt(cost / np.where(mass > 0.0, mass, 1.0) / float(d))
    return np.where(mass > 0.0, np.maximum(share, _FINEST) * spread, 0.0)


def count_halvings(step: float, wish: float, table: Floats) -> int:
    """Return how often a step can be halved before it is below another one, or a number of a table has 30 bits."""
    if not wish > 0.0:
        return 0
    room = _BITS - int(np.frexp(np.abs(table).max(initial=0.0))[1])
    return max(0, min(room, int(np.floor(np.log2(step / wish)))))


def shorten(numbers: Floats) -> Floats:
    """Return numbers as 4 bytes hold them: a sign, 11 bits of exponent and 21 digits, of which the first is 1."""
    mantissa, exponent = np.frexp(numbers)
    return np.ldexp(np.rint(np.ldexp(mantissa, _DIGITS)), exponent - _DIGITS)


def count_own(devices: Devices, tables: Floats, reference: Floats, units: Floats) -> tuple[Floats, Floats]:
    """Return what the own points add to the sums of a table, float64[n, k, d + 1], and their cost (6), float64[n].

    Of the points x with weights m_x nearest to row c::

        S_c = rint(sum m_x (x - reference_c) / (unit grain step)),    n_c = rint(sum m_x / unit)

    Parameters
    ----------
    tables, reference : float64[n, k, d]
        Absent rows are +inf and take no point.
    units : float64[n, 3]
        Step, unit and grain, see `choose_units`.
    """
    n, k, d = tables.shape
    sums, costs = np.zeros((n, k, d + 1)), np.zeros(n)
    for piece in label(devices, tables):
        count = piece.span.stop - piece.span.start
        owner = np.repeat(np.arange(count), np.diff(piece.offsets))
        taken = piece.labels >= 0
        owner, labels = owner[taken], piece.labels[taken]
        cells, weights = owner * k + labels, devices.point_weights[piece.rows][taken]
        points, origins = devices.stored[piece.rows][taken], reference[piece.span]
        for f in range(d):
            apart = points[:, f] - origins[owner, labels, f]
            sums[piece.span, :, f] = np.bincount(cells, weights * apart, count * k).reshape(count, k)
        sums[piece.span, :, d] = np.bincount(cells, weights, count * k).reshape(count, k)
        costs[piece.span] = piece.losses
    step, unit, coarse = (units[:, column, None, None] for column in range(3))
    sums /= unit
    sums[:, :, :d] /= np.where(step > 0.0, coarse * step, np.inf)
    return np.clip(np.rint(sums), -_EXACT / devices.total, _EXACT / devices.total) + 0.0, costs


def find_moves(sums: Floats, table: Floats, coarse: Floats) -> Floats:
    """Return by how many steps each row moves to the mean of its points, float64[n, k, d]; one without points stays.

    Parameters
    ----------
    sums : float64[n, k, d + 1]
    table : float64[n, k, d]
        Steps of every row from its reference.
    coarse : float64[n]
        Grain of the sums.
    """
    counts = sums[:, :, -1:]
    means = np.rint(coarse[:, None, None] * sums[:, :, :-1] / np.where(counts > 0.0, counts, 1.0))
    means = np.clip(means, -_EXACT, _EXACT)
    return np.where(counts > 0.0, means - table, 0.0)
