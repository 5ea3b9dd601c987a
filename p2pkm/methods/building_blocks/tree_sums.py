"""Exact sums along a spanning tree: whole numbers of a common step go up as differences, and down come moves.

Rounded to whole multiples of a step, sums of points add up without rounding: the result is the same for every order,
tree and division into ranks. Whole numbers are float64 below 2^53 in size, since that is what messages are made of.
"""

from typing import Any, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.chunks import iter_chunks, label
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.methods.building_blocks.spanning_tree import Tree, ways

_EXACT = 2.0**52  # sums of all devices stay below it
_GRAINS = 32  # the weight of all points is at most 2 to this power of the unit of weights
_FINE, _NONE = 53, 3000.0  # bits of a float64; the exponent that stands for no weight at all


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


def send(position: Position, tree: Tree, devices: Devices, tables: Floats, speaks: Mask) -> DenseMessages:
    """Let the layer whose turn it is send its tables, float64[n, r, w], to the parents or to the children.

    A device without links sends to nobody when the deepest layer sends, to show that it is not done.
    """
    edges = ways(tree, devices, speaks & (tree.layer[devices.ids] == position.layer))[0 if position.up else 1]
    said = speaks & (devices.degrees == 0) & (position.number == 0)
    said[devices.sources[edges]] = True
    return DenseMessages(tables, np.where(said, tables.shape[1], -1), edges=edges)


def add_children(tables: Any, inbox: Inbox, devices: Devices) -> Any:
    """Return the tables, float64[n, r, w] or words uint64[n, r, w], plus those from children, in ascending id."""
    edges = np.flatnonzero(inbox.fresh)
    total = tables.copy()
    np.add.at(total, devices.sources[edges], _read(tables, inbox, edges))
    return total


def _read(tables: Any, inbox: Inbox, edges: Integers) -> Any:
    """Return what has come over these edges, [b, r, w], as the numbers or words that `tables` are made of."""
    _, r, w = tables.shape
    return np.ascontiguousarray(inbox.tables[inbox.slots[edges], :r, :w]).view(tables.dtype)


def merge_children(tables: Floats, inbox: Inbox, devices: Devices) -> Floats:
    """Return what `measure` gives of the points below, float64[n, 1, 3 + d], children merged in ascending id."""
    edges, width = np.flatnonzero(inbox.fresh), tables.shape[2]
    first = np.searchsorted(edges, devices.indptr)
    counts, merged = np.diff(first), tables.copy()
    for number in range(counts.max(initial=0)):
        who = np.flatnonzero(counts > number)
        merged[who] = merge(merged[who], inbox.tables[inbox.slots[edges[first[who] + number]], :1, :width])
    return merged


def take_parents(tables: Any, inbox: Inbox, devices: Devices) -> tuple[Integers, Any]:
    """Return to whom the parents have sent, int64[b], and all tables with theirs in place, [n, r, w]."""
    edges = np.flatnonzero(inbox.fresh)
    who, found = devices.sources[edges], tables.copy()
    found[who] = _read(tables, inbox, edges)
    return who, found


def measure(devices: Devices) -> Floats:
    """Return weight, sum of squares around the mean, grain and mean of the own points, float64[n, 1, 3 + d].

    The grain is the largest exponent such that all weights are multiples of that power of two.
    """
    n, d = len(devices), devices.d
    found = np.zeros((n, 1, 3 + d))
    found[:, 0, 2] = _NONE
    for own, rows in iter_chunks(devices.offsets):
        count = own.stop - own.start
        owner = np.repeat(np.arange(count), np.diff(devices.offsets[own.start : own.stop + 1]))
        weights, points = devices.point_weights[rows], devices.stored[rows].astype(np.float64, copy=False)
        mass = np.bincount(owner, weights, count)
        totals = np.stack([np.bincount(owner, weights * column, count) for column in points.T], axis=1)
        means = totals / np.where(mass > 0.0, mass, 1.0)[:, None]
        apart = np.zeros(len(owner))
        for f, column in enumerate(points.T):
            apart += (column - means[owner, f]) ** 2
        found[own, 0, 0], found[own, 0, 1] = mass, np.bincount(owner, weights * apart, count)
        np.minimum.at(found[own, 0, 2], owner, _grains(weights))
        found[own, 0, 3:] = means
    return found


def _grains(weights: Floats) -> Floats:
    """Return the exponent of the lowest bit of each weight."""
    mantissa, exponent = np.frexp(weights)
    whole = np.ldexp(mantissa, _FINE).astype(np.int64)
    lowest = np.log2((whole & -whole).astype(np.float64), out=np.full(len(whole), _NONE), where=whole != 0)
    return lowest + exponent - _FINE


def merge(one: Floats, other: Floats) -> Floats:
    """Return `measure` of the points of both, float64[b, 1, 3 + d] each (Chan, Golub, LeVeque 1979)."""
    a, b = one[:, :, :1], other[:, :, :1]
    total = a + b
    share = b / np.where(total > 0.0, total, 1.0)
    apart = other[:, :, 3:] - one[:, :, 3:]
    squares = one[:, :, 1:2] + other[:, :, 1:2] + a * share * np.cumsum(apart * apart, axis=2)[:, :, -1:]
    grain = np.minimum(one[:, :, 2:3], other[:, :, 2:3])
    return np.concatenate((total, squares, grain, one[:, :, 3:] + share * apart), axis=2)


def choose_units(measured: Floats, fineness: int) -> Floats:
    """Return the step of coordinates and the unit of weights, float64[b, 2], from `measure` of all points.

    The step is 2^-fineness of the root of the total variance; 0: there is no spread. The unit is a power of two of
    which every weight is a whole multiple, or 2^-32 of the whole weight if that is more.
    """
    mass, squares, grain = (measured[:, 0, column] for column in range(3))
    step = np.ldexp(np.sqrt(squares / np.where(mass > 0.0, mass, 1.0)), -fineness)
    _, exponent = np.frexp(mass)
    unit = np.ldexp(1.0, np.maximum(grain, exponent - float(_GRAINS)).clip(-1000, 1000).astype(np.int64))
    return np.stack((np.where(mass > 0.0, step, 0.0), unit), axis=1)


def count_own(devices: Devices, tables: Floats, reference: Floats, units: Floats) -> tuple[Floats, Floats]:
    """Return what the own points add to the sums of a table, float64[n, k, d + 1], and their cost (6), float64[n].

    Of the points x with weights m_x nearest to row c::

        S_c = rint(sum m_x (x - reference_c) / (unit step)),    n_c = rint(sum m_x / unit)

    Parameters
    ----------
    tables, reference : float64[n, k, d]
        Absent rows are +inf and take no point.
    units : float64[n, 2]
        Step and unit, see `choose_units`.
    """
    n, k, d = tables.shape
    sums, costs = np.zeros((n, k, d + 1)), np.zeros(n)
    for piece in label(devices, tables):
        count = piece.own.stop - piece.own.start
        owner = np.repeat(np.arange(count), np.diff(piece.offsets))
        taken = piece.labels >= 0
        owner, labels = owner[taken], piece.labels[taken]
        cells, weights = owner * k + labels, devices.point_weights[piece.rows][taken]
        points, origins = devices.stored[piece.rows][taken], reference[piece.own]
        for f in range(d):
            apart = points[:, f] - origins[owner, labels, f]
            sums[piece.own, :, f] = np.bincount(cells, weights * apart, count * k).reshape(count, k)
        sums[piece.own, :, d] = np.bincount(cells, weights, count * k).reshape(count, k)
        costs[piece.own] = piece.losses
    step, unit = units[:, :1, None], units[:, 1:, None]
    sums /= unit
    sums[:, :, :d] /= np.where(step > 0.0, step, np.inf)
    return np.clip(np.rint(sums), -_EXACT / devices.total, _EXACT / devices.total) + 0.0, costs


def find_moves(sums: Floats, table: Floats) -> Floats:
    """Return by how many steps each row moves to the mean of its points, float64[n, k, d]; one without points stays.

    Parameters
    ----------
    sums : float64[n, k, d + 1]
    table : float64[n, k, d]
        Steps of every row from its reference.
    """
    counts = sums[:, :, -1:]
    means = np.rint(sums[:, :, :-1] / np.where(counts > 0.0, counts, 1.0))
    return np.where(counts > 0.0, means - table, 0.0)
