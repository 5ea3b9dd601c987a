"""Rows and centroids in few bits: coordinates on a grid that all agree on, weights and spreads as whole numbers.

A box and the step of the grid in it are agreed on along the tree. Then a coordinate is the number of its cell, and rows
are sent in no order, in the code of `p2pkm.core.adaptive_code`; `code_rows` and `code_box` read what they have written.
"""

from typing import NamedTuple

import numpy as np

from p2pkm.core.adaptive_code import Coder, bounded_bits, order_bits, unbounded_bits, whole_bits
from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.messages import Delivery, Tables
from p2pkm.core.wire_format import to_bytes
from p2pkm.methods.building_blocks.spanning_tree import Front, single_rows, source_of
from p2pkm.methods.building_blocks.weighted_rows import in_points

_CELLS = 8.0  # in the distance of clusters that share a box evenly
_FINER = 2  # bits that coordinates of centroids have more, and spreads
_ENDS, _MANTISSA, _EXPONENT = 6, 52, 12  # bits of a side of the box, of an end at most, of a power of two
_LEAST = 1000  # minus the least exponent
_MOST = 30  # bits of a coordinate at most
_WHOLE = 2.0**40  # weights above are of single precision
_SINGLE = 32  # bits


class Cells(NamedTuple):
    """Where coordinates are counted from, float64[t, d], the step, float64[t], bits of a coordinate, int64[t, d]."""

    low: Floats
    step: Floats
    widths: Integers

    @classmethod
    def of(cls, boxes: Floats, finer: int = 0) -> "Cells":
        """Return the cells of boxes, float64[t, 2 d + 1], with a step 2^-finer of what is agreed on."""
        d = boxes.shape[1] // 2
        real = np.isfinite(boxes[:, :1])
        low, sides = np.where(real, boxes[:, :d], 0.0), np.where(real, -boxes[:, d:-1] - boxes[:, :d], 0.0)
        widest = sides.max(axis=1, initial=0.0)
        wish = np.where(np.isfinite(boxes[:, -1]), -boxes[:, -1], 0.0)
        step = np.where(wish > 0.0, wish, _power(widest) * 2.0**-10)
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


def own_box(front: Front, devices: Devices, k: int, *, within: bool = False) -> Front:
    """Return lower and minus upper ends of the rows of each device, and minus the step it asks for, one row of 2 d + 1.

    The ends are rounded outwards to 2^-6 of the longest side; +inf where there are no rows. The step is 1/8 of the
    distance that k clusters have if they share evenly a box in which coordinates are as far from their mean as those of
    the rows, in the mean over them, or as those of points where all rows are equal; a power of two. within: at most the
    root of the mean SSE of a point and coordinate, so that it is not the grid which keeps rows of a cluster apart.
    """
    d, tables, count = devices.d, front.tables, len(front.who)
    ends = np.full((count, 2 * d + 1), np.inf)
    flat, owner = tables.flat(), np.repeat(np.arange(count), tables.rows)
    rows, weights = flat[:, 1 : 1 + d], flat[:, 1 + d] / devices.unit
    np.minimum.at(ends[:, : 2 * d], owner, np.column_stack((rows, -rows)))
    mass = np.bincount(owner, weights, count)
    mass = np.where(mass > 0.0, mass, 1.0)
    apart = np.zeros((count, d))
    for f in range(d):  # differences from the lower end, for the sake of large offsets
        above = rows[:, f] - ends[owner, f]
        means = np.bincount(owner, weights * above, count) / mass
        apart[:, f] = np.bincount(owner, weights * np.abs(above - means[owner]), count) / mass
    longest = np.where(apart.max(axis=1, initial=0.0) > 0.0, apart.max(axis=1, initial=0.0), 1.0)
    size = longest * np.sqrt(np.cumsum((apart / longest[:, None]) ** 2, axis=1)[:, -1] / d)
    inside = np.sqrt(np.bincount(owner, flat[:, 2 + d] / devices.unit, count) / mass / d)
    size = np.where(size > 0.0, size, inside)
    step = 4.0 * size * float(k) ** (-1.0 / d) / _CELLS
    step = np.where((inside > 0.0) & within, np.minimum(step, inside), step)
    ends[:, -1] = np.where(np.isfinite(ends[:, 0]), -_power(step), np.inf)
    return single_rows(front.who, _outwards(ends)[1])


def widen(own: Front, received: Delivery, devices: Devices) -> Front:
    """Return the least of the own row and of those that each device received, column by column, ends outwards."""
    least = own.tables.flat()
    np.minimum.at(least, np.searchsorted(own.who, source_of(devices, received.edges)), received.tables.flat())
    return single_rows(own.who, _outwards(least)[1])


def count_box_bytes(ends: Floats) -> Integers:
    """Return the bytes of boxes, float64[t, 2 d + 1], on the wire, int64[t]."""
    count, d = len(ends), ends.shape[1] // 2
    numbers, rounded, _ = _outwards(ends)
    owner, real = np.repeat(np.arange(count), d), np.isfinite(rounded[:, 0])
    bits = unbounded_bits(numbers[np.repeat(real, d)], owner[np.repeat(real, d)], count).sum(axis=1)
    return to_bytes(whole_bits(1 + bits + np.where(real, 2 * _EXPONENT, 0)))


def code_box(coder: Coder, d: int, ends: Floats | None) -> Floats:
    """Write a box, float64[2 d + 1], or read it."""
    numbers, exponent, wish = np.zeros((d, 2), np.int64), 0, 0
    if not coder.plain(1, None if ends is None else int(np.isfinite(ends[0]))):
        return np.full(2 * d + 1, np.inf)
    if ends is not None:
        numbers, _, exponents = _outwards(ends[None])
        exponent, wish = int(exponents[0]), int(np.frexp(-ends[-1])[1]) if ends[-1] else -(2 ** (_EXPONENT - 1))
    given, half = ends is not None, 2 ** (_EXPONENT - 1)
    exponent = coder.plain(_EXPONENT, exponent + half if given else None) - half
    wish = coder.plain(_EXPONENT, wish + half if given else None) - half
    read = np.array([[coder.unbounded(part, int(row[part]) if given else None) for part in (0, 1)] for row in numbers])
    unit = 2.0**exponent
    return np.concatenate((
        read[:, 0] * unit,
        -(read[:, 0] + read[:, 1]) * unit,
        [-(2.0 ** (wish - 1)) if wish > -half else -0.0],
    ))


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
    boxes : float64[t, 2 d + 1]
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
    return 8.0 * (5 + d) / (2 * d + 1), row / (d + 2), spread + _FINER - np.log2(k) / d


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
    d, rounded = ends.shape[1] // 2, ends.copy()
    real = np.isfinite(ends[:, 0])
    for _ in range(2):  # rounded ends may lie so far apart that their unit is twice as long
        both = np.where(real[:, None], rounded[:, :-1], 0.0)
        widest, most = (-both[:, d:] - both[:, :d]).max(axis=1, initial=0.0), np.abs(both).max(axis=1, initial=0.0)
        coarse = np.where(widest > 0.0, np.frexp(widest)[1] - _ENDS, -_LEAST)
        exponent = np.maximum(np.where(most > 0.0, np.frexp(most)[1] - _MANTISSA, -_LEAST), coarse).clip(-_LEAST)
        whole = np.floor(np.ldexp(both, -exponent[:, None]))
        rounded[real, :-1] = np.ldexp(whole, exponent[:, None])[real]
    numbers = np.stack((whole[:, :d], -whole[:, d:] - whole[:, :d]), axis=2).reshape(-1, 2)
    return numbers.astype(np.int64), rounded, exponent


def _power(sizes: Floats) -> Floats:
    """Return the largest power of two up to each size, 0 for 0."""
    return np.where(sizes > 0.0, np.ldexp(0.5, np.frexp(sizes)[1]), 0.0)
