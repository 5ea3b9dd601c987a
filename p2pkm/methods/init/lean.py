"""Rows and centroids in few bits: coordinates on a grid that all agree on, weights and spreads as whole numbers.

A box and the step of the grid in it are agreed on along the tree: the box is the smallest that holds the rows of all
devices, the step the geometric mean of what all rows ask for (`own_box`, `widen`, `settle`). Then a coordinate is the
number of its cell, and rows are sent in no order, in the code of `p2pkm.core.adaptive_code`; `code_rows` and `code_box`
read what they have written.
"""

import math
from typing import NamedTuple

import numpy as np

from p2pkm.core.adaptive_code import Coder, bounded_bits, order_bits, unbounded_bits, whole_bits
from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.messages import Tables
from p2pkm.core.sorting import blocks
from p2pkm.core.wire_format import to_bytes
from p2pkm.methods.building_blocks.weighted_rows import in_points

# Step that a row asks for, in root mean square coordinates of the offset to the nearest row of its device.
_SHARE = 0.5
_SHARE_WITHIN = 0.35  # where the SSE of rows travels, whose root is rounded to quarter steps
_EQUAL = 0.25  # the same in standard deviations of the points, where all rows are equal
_VOTE = 8  # in a factor of two: votes are logarithms of steps in eighths, rounded down
_FINER = 2  # bits that coordinates of centroids have more, and spreads
_ENDS, _MANTISSA, _EXPONENT = 6, 52, 12  # bits of a side of the box, of an end at most, of a power of two
_MEAN = _EXPONENT + 3  # bits of a vote
_LEAST = 1000  # minus the least exponent
_MOST = 50  # bits of a coordinate at most
_WHOLE = 2.0**40  # weights above are of single precision
_SINGLE = 32  # bits
_EIGHTHS = 0.5 * np.cumprod(np.append(1.0, np.full(_VOTE - 1, math.sqrt(math.sqrt(math.sqrt(2.0))))))


class Cells(NamedTuple):
    """Where coordinates are counted from, float64[t, d], the step, float64[t], bits of a coordinate, int64[t, d]."""

    low: Floats
    step: Floats
    widths: Integers

    @classmethod
    def of(cls, boxes: Floats, finer: int = 0) -> "Cells":
        """Return the cells of boxes, float64[t, 2 d + 2], with a step 2^-finer of what is agreed on."""
        d = boxes.shape[1] // 2 - 1
        real = np.isfinite(boxes[:, :1])
        low, sides = np.where(real, boxes[:, :d], 0.0), np.where(real, -boxes[:, d : 2 * d] - boxes[:, :d], 0.0)
        widest = sides.max(axis=1, initial=0.0)
        votes, voters = boxes[:, -2:].astype(np.int64).T
        agreed = np.ldexp(1.0, votes // (_VOTE * np.maximum(voters, 1)))
        step = np.where(voters > 0, agreed, _power(widest) * 2.0**-10)
        step = np.maximum(step, _power(widest) * 2.0**-_MOST) * 2.0**-finer
        cells = np.ceil(sides / np.where(step > 0.0, step, 1.0)[:, None])
        return cls(low, np.where(step > 0.0, step, 1.0), np.frexp(cells)[1].astype(np.int64))

    def round(self, values: Floats, owner: Integers) -> tuple[Integers, Floats]:
        """Return the cells of rows, int64[r, d], and the coordinates that these stand for."""
        step, low = self.step[owner, None], self.low[owner]
        numbers = np.clip(np.rint((values - low) / step), 0.0, np.exp2(self.widths[owner]) - 1.0)
        return numbers.astype(np.int64), low + numbers * step

    @property
    def keys(self) -> Integers:
        """Return the column whose numbers are sent in no order, int64[t]: the widest."""
        return np.argmax(self.widths, axis=1)


def own_box(tables: Tables, devices: Devices, k: int, *, within: bool = False) -> Floats:
    """Return the box of the rows of each device and its vote on the step, float64[t, 2 d + 2].

    The columns are the lower ends, minus the upper ends, the sum of the votes and their number. The ends are rounded
    outwards to 2^-6 of the longest side; +inf where there are no rows. Each of the r distinct rows of a device has one
    vote, all for the same step::

        c sqrt(D / d) min(1, r / 2 k)^(1 / min(d, 2))

    with D the median, over the points, of the squared distance of a row to the nearest other row of its device. Fewer
    rows than 2 k lie farther apart than those of all devices together. c is 1/2; within: .35, and the step is at most
    the root of the mean SSE of a point and coordinate, so that rows of a cluster are not kept apart by the grid. Where
    all rows are equal there is one vote, for a quarter of the standard deviation of the points; none if that is 0.
    """
    d, flat, count = devices.d, tables.flat(), len(tables.rows)
    owner = np.repeat(np.arange(count), tables.rows)
    rows, weights = flat[:, 1 : 1 + d], flat[:, 1 + d] / devices.unit
    ends = np.full((count, 2 * d + 2), np.inf)
    np.minimum.at(ends[:, : 2 * d], owner, np.column_stack((rows, -rows)))
    low, real = ends[:, :d].copy(), np.isfinite(ends[:, 0])
    widest = np.where(real, (-ends[:, d : 2 * d] - low).max(axis=1, initial=0.0, where=real[:, None]), 0.0)
    unit = np.where(widest > 0.0, _power(widest), 1.0)
    gaps, voters = _typical_gaps((rows - low[owner]) / unit[owner, None], weights, owner, count, devices)
    share = np.minimum(1.0, voters / (2.0 * k))
    step = (_SHARE_WITHIN if within else _SHARE) * np.sqrt(gaps / d) * (share if d == 1 else np.sqrt(share)) * unit
    mass = np.bincount(owner, weights, count)
    inside = np.sqrt(np.bincount(owner, flat[:, 2 + d] / devices.unit, count) / np.where(mass > 0.0, mass, 1.0) / d)
    step = np.where((inside > 0.0) & within, np.minimum(step, inside), step)
    step, voters = np.where(voters > 0, step, inside * _EQUAL), np.maximum(voters, 1)
    voters = np.where(step > 0.0, voters, 0)
    ends[:, -2], ends[:, -1] = voters * _count_eighths(np.where(voters > 0, step, 1.0)), voters
    return _outwards(ends)[1]


def _typical_gaps(
    rows: Floats, weights: Floats, owner: Integers, count: int, devices: Devices
) -> tuple[Floats, Integers]:
    """Return the median, by weight, of the squared distances of each device's rows to the nearest other one.

    rows: float64[r, d], those of a device between 0 and 2. Equal ones are one. Returns 0 for devices without two, and
    how many rows have another one, int64[count].
    """
    order = np.lexsort((*rows.T[::-1], owner))
    rows, owner = rows[order], owner[order]
    new = np.ones(len(rows), np.bool_)
    new[1:] = (owner[1:] != owner[:-1]) | (rows[1:] != rows[:-1]).any(axis=1)
    mass = np.bincount(np.cumsum(new) - 1, weights[order], int(new.sum()))
    rows, owner = rows[new], owner[new]
    sizes = np.bincount(owner, minlength=count)
    offsets, found = np.concatenate(([0], np.cumsum(sizes))), np.zeros(count)
    most = int(sizes.max(initial=0))
    voters = np.zeros(count, np.int64)
    for some in blocks(count, most * (devices.d + 4)) if most > 1 else ():
        own = slice(offsets[some.start], offsets[some.stop])
        place = owner[own] - some.start, np.arange(own.start, own.stop) - offsets[owner[own]]
        padded = np.full((some.stop - some.start, most, devices.d), np.inf)
        padded[place] = rows[own]
        held = np.zeros(padded.shape[:2])
        held[place] = mass[own]
        gaps = _nearest_others(padded, devices)
        held[gaps == np.inf] = 0.0
        ascending = np.argsort(gaps, axis=1, kind="stable")
        reached = np.cumsum(np.take_along_axis(held, ascending, axis=1), axis=1)
        half = np.argmax(2.0 * reached >= reached[:, -1:], axis=1)
        voters[some] = np.count_nonzero(gaps < np.inf, axis=1)
        middle = np.take_along_axis(gaps, np.take_along_axis(ascending, half[:, None], axis=1), axis=1)[:, 0]
        found[some] = np.where(voters[some] > 0, middle, 0.0)
    return found, voters


def _nearest_others(rows: Floats, devices: Devices) -> Floats:
    """Return the squared distance of each row to the nearest other one of its device, float64[n, r]; inf: none.

    Two rows differ in some bit of their places: for each bit the rows with a 0 there look among those with a 1, and
    these among them. That takes log2(r) / 2 times as many distances, of a kernel that finds them quickly.

    Parameters
    ----------
    rows : float64[n, r, d]
        Distinct; absent ones are +inf.
    """
    n, most, _ = rows.shape
    nearest, real, places = np.full((n, most), np.inf), np.isfinite(rows[:, :, 0]), np.arange(most)
    for bit in range((most - 1).bit_length()):
        side = (places >> bit) & 1
        for own, other in ((0, 1), (1, 0)):
            asking, sets = places[side == own], np.ascontiguousarray(rows[:, side == other])
            device, at = np.nonzero(real[:, asking])
            points = rows[device, asking[at]]
            offsets = np.concatenate(([0], np.cumsum(np.bincount(device, minlength=n))))
            _, labels = devices.kernels.losses(points, np.zeros(0), offsets, sets)
            gaps = np.cumsum(np.square(points - sets[device, labels]), axis=1)[:, -1]
            gaps[(labels < 0) | (gaps == 0.0)] = np.inf
            nearest[device, asking[at]] = np.minimum(nearest[device, asking[at]], gaps)
    return nearest


def _count_eighths(steps: Floats) -> Floats:
    """Return ``floor(8 log2 step)``, without logarithms, whose last bit depends on the processor."""
    mantissa, exponent = np.frexp(steps)
    return (_VOTE * (exponent - 1) + np.searchsorted(_EIGHTHS, mantissa, side="right") - 1).astype(np.float64)


def widen(boxes: Floats, own: Integers, received: Floats) -> Floats:
    """Return boxes with what others sent to their owners: ends are the least, rounded outwards, and votes add up.

    Parameters
    ----------
    boxes : float64[t, 2 d + 2]
    own : int64[r]
        For which of them each box that was received is.
    received : float64[r, 2 d + 2]
    """
    wider = boxes.copy()
    np.minimum.at(wider[:, :-2], own, received[:, :-2])
    np.add.at(wider[:, -2:], own, received[:, -2:])
    return _outwards(wider)[1]


def settle(boxes: Floats) -> Floats:
    """Return boxes with one vote instead of all: for the largest power of two up to their geometric mean."""
    settled, (votes, voters) = boxes.copy(), boxes[:, -2:].astype(np.int64).T
    settled[:, -2] = _VOTE * (votes // (_VOTE * np.maximum(voters, 1)))
    settled[:, -1] = np.minimum(voters, 1)
    return settled


def count_box_bytes(boxes: Floats) -> Integers:
    """Return the bytes of boxes, float64[t, 2 d + 2], on the wire, int64[t]."""
    count, d = len(boxes), boxes.shape[1] // 2 - 1
    numbers, rounded, _ = _outwards(boxes)
    owner, real = np.repeat(np.arange(count), d), np.isfinite(rounded[:, 0])
    bits = unbounded_bits(numbers[np.repeat(real, d)], owner[np.repeat(real, d)], count).sum(axis=1)
    voters = boxes[:, -1]
    bits += np.where(voters > 0, _MEAN + np.frexp(np.maximum(voters, 1.0) - 1.0)[1], 0)
    return to_bytes(whole_bits(1 + bits + np.where(real, _EXPONENT + 2 * np.frexp(voters + 1.0)[1] - 1, 0)))


def code_box(coder: Coder, d: int, box: Floats | None) -> Floats:
    """Write a box, float64[2 d + 2], or read it."""
    given, half = box is not None, 2 ** (_EXPONENT - 1)
    numbers, exponent, votes, voters = np.zeros((d, 2), np.int64), 0, 0, 0
    if not coder.plain(1, None if box is None else int(np.isfinite(box[0]))):
        return np.concatenate((np.full(2 * d, np.inf), np.zeros(2)))
    if box is not None:
        numbers, _, exponents = _outwards(box[None])
        exponent, votes, voters = int(exponents[0]), int(box[-2]), int(box[-1])
    exponent = coder.plain(_EXPONENT, exponent + half if given else None) - half
    read = np.array([[coder.unbounded(part, int(row[part]) if given else None) for part in (0, 1)] for row in numbers])
    unit = 2.0**exponent
    number = coder.count(voters if given else None)
    total = _code_votes(coder, number, votes if given else None) if number else 0
    return np.concatenate((read[:, 0] * unit, -(read[:, 0] + read[:, 1]) * unit, [total, number]))


def _code_votes(coder: Coder, voters: int, votes: int | None) -> int:
    """Code the sum of so many votes, or read it: their mean, rounded down, and what is left."""
    mean, rest = (None, None) if votes is None else divmod(votes, voters)
    whole = coder.plain(_MEAN, None if mean is None else mean + 2 ** (_MEAN - 1)) - 2 ** (_MEAN - 1)
    return whole * voters + coder.plain((voters - 1).bit_length(), rest)


class PackedRows(NamedTuple):
    """Rows of several tables as whole numbers.

    Attributes
    ----------
    owner, block : int64[r]
        Table of each row, and its block: the rows of a block are in no order.
    numbers : int64[r, d]
    weights : float64[r]
        In points.
    wide : bool[t]
        Tables whose weights are of single precision.
    spreads : int64[r] or None
        None: they are not sent.
    """

    owner: Integers
    block: Integers
    numbers: Integers
    weights: Floats
    wide: Mask
    spreads: Integers | None


def _pack(tables: Tables, cells: Cells, unit: float, within: bool, apart: bool) -> tuple[PackedRows, Floats, Integers]:
    """Return the rows of tables as numbers and as they are read, both in the order that receivers have."""
    flat, d, count = tables.flat(), cells.low.shape[1], len(tables.rows)
    owner = np.repeat(np.arange(count), tables.rows)
    flat[:, 0] *= apart
    numbers, flat[:, 1 : 1 + d] = cells.round(flat[:, 1 : 1 + d], owner)
    weights = in_points(flat[:, 1 + d], unit)
    wide = np.bincount(owner, (weights != np.rint(weights)) | (weights > _WHOLE), count) > 0
    weights = np.where(wide[owner], weights.astype(np.float32).astype(np.float64), weights)
    spreads, fine = np.zeros(len(flat), np.int64), cells.step[owner] * 2.0**-_FINER
    if within:
        own = np.where(flat[:, 1 + d] > 0.0, flat[:, 1 + d], 1.0)
        spread = np.sqrt(np.maximum(flat[:, 2 + d], 0.0) / own / float(d)) / fine
        spreads = np.rint(np.minimum(spread, 2.0**_MOST)).astype(np.int64)
    flat[:, 1 + d] = weights * unit
    flat[:, 2 + d] = flat[:, 1 + d] * (spreads * fine) ** 2 * float(d)
    key = numbers[np.arange(len(flat)), cells.keys[owner]] if len(flat) else np.zeros(0, np.int64)
    order = np.lexsort((spreads, weights, *numbers.T[::-1], key, flat[:, 0], owner))
    _, block = np.unique(np.stack((owner, flat[:, 0])), axis=1, return_inverse=True)
    packed = PackedRows(
        owner, block.reshape(-1)[order], numbers[order], weights[order], wide, spreads[order] if within else None
    )
    return packed, flat[order], key[order]


def pack_rows(tables: Tables, boxes: Floats, unit: float, *, within: bool = False, apart: bool = False) -> Tables:
    """Return tables of rows (origin, mean, weight, SSE) as they are read when they have been encoded.

    Coordinates are those of the nearest cell. Weights, in units of a point's mean weight, stay as they are if all of a
    table are whole numbers, else they are of single precision. Instead of an SSE travels the root of SSE over weight
    and d, in steps of a quarter cell, or nothing: then it is read as 0. Rows come in the order of their numbers, by
    origin if these are kept apart; else it is read as 0. Rows that have been packed stay the same.

    Parameters
    ----------
    boxes : float64[t, 2 d + 2]
        Of each table, see `own_box`.
    unit : float
        Mean weight of a point.
    within : bool
        Whether there is an SSE.
    apart : bool
        Whether receivers learn the origin of a row.
    """
    _, flat, _ = _pack(tables, Cells.of(boxes), unit, within, apart)
    return Tables(flat, np.cumsum(tables.rows) - tables.rows, tables.rows)


def pack_centroids(centroids: Floats, boxes: Floats) -> Floats:
    """Return centroids, float64[t, k, d], on a grid four times as fine, ordered by their numbers, absent ones last."""
    cells, packed = Cells.of(boxes, _FINER), np.full_like(centroids, np.inf)
    for i, one in enumerate(centroids):
        rows = one[np.isfinite(one[:, 0])]
        numbers, found = cells.round(rows, np.full(len(rows), i))
        packed[i, : len(rows)] = found[np.lexsort((*numbers.T[::-1], numbers[:, cells.keys[i]]))]
    return packed


def count_row_bytes(
    tables: Tables, boxes: Floats, unit: float, *, within: bool = False, below: Integers | None = None
) -> Integers:
    """Return the bytes of tables of packed rows on the wire, int64[t].

    Parameters
    ----------
    tables, boxes, unit, within
        As in `pack_rows`.
    below : int64[t], optional
        How many devices could have rows in each table, if they are kept apart.
    """
    cells, count = Cells.of(boxes), len(tables.rows)
    packed, _, key = _pack(tables, cells, unit, within, below is not None)
    if below is None:
        below = np.ones(count, np.int64)
    bits = bounded_bits(packed.numbers, packed.owner, cells.widths)
    bits += _group_bits(packed.owner, packed.block, key, below)
    each = np.bincount(packed.owner, minlength=count)
    weights = np.where(packed.wide[packed.owner], 0.0, packed.weights).astype(np.int64)
    bits += 1 + np.where(packed.wide, _SINGLE * each, 0)
    bits += np.where(packed.wide, 0.0, unbounded_bits(weights[:, None], packed.owner, count)[:, 0])
    if packed.spreads is not None:
        bits += unbounded_bits(packed.spreads[:, None], packed.owner, count)[:, 0]
    return to_bytes(whole_bits(bits))


def count_centroid_bytes(sets: Floats, boxes: Floats, sizes: int) -> Integers:
    """Return the bytes of sets of packed centroids on the wire, int64[t].

    Parameters
    ----------
    sets : float64[t, g k, d]
        Absent ones are +inf.
    sizes : int
        k; every k rows are a set of their own, in no order.
    """
    cells, (count, rows, _) = Cells.of(boxes, _FINER), sets.shape
    owner, place = np.nonzero(np.isfinite(sets[:, :, 0]))
    numbers, _ = cells.round(sets[owner, place], owner)
    key = numbers[np.arange(len(numbers)), cells.keys[owner]] if len(numbers) else np.zeros(0, np.int64)
    blocks = owner * (rows // sizes) + place // sizes
    bits = bounded_bits(numbers, owner, cells.widths)
    return to_bytes(whole_bits(bits + _group_bits(owner, blocks, key, np.full(count, rows // sizes))))


def _group_bits(owner: Integers, block: Integers, keys: Integers, below: Integers) -> Floats:
    """Return the bits that blocks of rows, numbered throughout, take for how many rows they have, less their orders."""
    count, numbers = len(below), int(block.max(initial=-1)) + 1
    held = np.bincount(block, minlength=numbers)
    of = np.zeros(numbers, np.int64)
    of[block] = owner
    bits = 2.0 * np.frexp(held + 1.0)[1] - 2.0 - order_bits(keys, block, numbers)
    return below.astype(np.float64) + np.bincount(of, bits, count)


def expect_bits(d: int, k: int, *, within: bool) -> tuple[float, float, float]:
    """Return about how many bits a number has in a box, in rows (mean, weight, SSE) and in centroids."""
    spread = np.log2(k) / d + 3.0  # of a coordinate that lies evenly in the box
    row = d * spread + 4.0 + (5.0 if within else 0.0) - 3.0
    return 8.0 * (7 + d) / (2 * d + 2), row / (d + 2), spread + _FINER - np.log2(k) / d


def code_rows(
    coder: Coder, cells: Cells, blocks: list[Floats] | int, *, weighted: bool = True, within: bool = False
) -> list[Floats]:
    """Write the rows of a table, or read so many blocks of them, in the first of the cells.

    Parameters
    ----------
    blocks : list of float64[r, w], or int
        Rows (numbers of cells[, weight in points[, spread in quarter cells]]), or how many blocks are to be read.
    weighted, within : bool
        Whether there are weights and spreads.
    """
    given = None if isinstance(blocks, int) else blocks
    widths, key, found = cells.widths[0].tolist(), int(cells.keys[0]), []
    wide = 0
    if weighted:
        weights = np.concatenate([one[:, len(widths)] for one in given]) if given is not None else np.zeros(0)
        unlike = bool((weights != np.rint(weights)).any() or (weights > _WHOLE).any())
        wide = coder.plain(1, None if given is None else int(unlike))
    for number in range(blocks if isinstance(blocks, int) else len(blocks)):
        block = None if given is None else given[number][np.argsort(given[number][:, key], kind="stable")]
        r = coder.count(None if block is None else len(block))
        keys = coder.unordered(key, widths[key], r if block is None else block[:, key].astype(int).tolist())
        rows = [
            _code_row(
                coder, widths, {key: keys[place]}, None if block is None else block[place], wide, weighted + within
            )
            for place in range(r)
        ]
        found.append(np.array(rows).reshape(r, len(widths) + weighted + within))
    return found


def _code_row(
    coder: Coder, widths: list[int], known: dict[int, int], given: Floats | None, wide: int, more: int
) -> list[float]:
    """Code the numbers of a row that are not known yet, and `more` of weight and spread behind them."""
    row: list[float] = []
    for f in range(len(widths) + more):
        one = None if given is None else float(given[f])
        if f in known:
            row.append(known[f])
        elif f < len(widths):
            row.append(coder.bounded(f, widths[f], None if one is None else int(one)))
        elif wide and f == len(widths):
            bits = coder.plain(_SINGLE, None if one is None else int(np.float32(one).view(np.uint32)))
            row.append(float(np.array(bits, np.uint32).view(np.float32)))
        else:
            row.append(coder.unbounded(f, None if one is None else int(one)))
    return row


def _outwards(ends: Floats) -> tuple[Integers, Floats, Integers]:
    """Return lower ends and sides, int64[t d, 2], the ends that these stand for, and the exponent of their unit."""
    d, rounded = ends.shape[1] // 2 - 1, ends.copy()
    real = np.isfinite(ends[:, 0])
    for _ in range(2):  # rounded ends may lie so far apart that their unit is twice as long
        both = np.where(real[:, None], rounded[:, :-2], 0.0)
        widest, most = (-both[:, d:] - both[:, :d]).max(axis=1, initial=0.0), np.abs(both).max(axis=1, initial=0.0)
        coarse = np.where(widest > 0.0, np.frexp(widest)[1] - _ENDS, -_LEAST)
        exponent = np.maximum(np.where(most > 0.0, np.frexp(most)[1] - _MANTISSA, -_LEAST), coarse).clip(-_LEAST)
        whole = np.floor(np.ldexp(both, -exponent[:, None]))
        rounded[real, :-2] = np.ldexp(whole, exponent[:, None])[real]
    numbers = np.stack((whole[:, :d], -whole[:, d:] - whole[:, :d]), axis=2).reshape(-1, 2)
    return numbers.astype(np.int64), rounded, exponent


def _power(sizes: Floats) -> Floats:
    """Return the largest power of two up to each size, 0 for 0."""
    return np.where(sizes > 0.0, np.ldexp(0.5, np.frexp(sizes)[1]), 0.0)
