"""Compact integer encoding of summary rows and centroids: coordinates on a common grid, integer weights and spreads.

Before any rows are sent, the devices agree along the tree on a box and a grid step. The box contains the rows of all
devices. The step is the geometric mean of the steps that the rows vote for (`local_box`, `widen_boxes`, `settle_step`).
A coordinate is then sent as the number of its grid cell. Rows are sent as a set, without their order, in the code of
`p2pkm.core.adaptive_code`. `code_rows` and `code_box` write and read the same format.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from p2pkm.core.adaptive_code import bounded_bits, order_bits, unbounded_bits, whole_bits
from p2pkm.core.arithmetic_coder import Coder
from p2pkm.core.batch import Devices, Floats, Integers, Mask
from p2pkm.core.messages import Tables
from p2pkm.core.sorting import blocks, number_runs
from p2pkm.core.wire_format import to_bytes
from p2pkm.methods.building_blocks.weighted_rows import to_point_units

# Grid step that a row votes for, in root mean square coordinates of the offset to the nearest row of its device. The
# neighbor, and not the spread of the data, sets the scale: an outlier or a dominant feature must not make the grid
# coarser than the clusters. The value is smaller if SSEs are sent, whose root is rounded to a quarter of the step.
_STEP_SHARE = 0.5
_STEP_SHARE_WITH_SSE = 0.35
# The vote of a device whose rows are all equal, in standard deviations of its points.
_STEP_SHARE_EQUAL_ROWS = 0.25
# Votes are logarithms of steps in eighths of a bit, rounded down: integers add up in any order, and the result scales
# exactly with powers of two.
_VOTES_PER_BIT = 8
# Additional bits of the coordinates of centroids, and of spreads: a quarter of the step.
_EXTRA_BITS = 2
# Bits of a side of the box, of a corner coordinate at most, and of an exponent.
_SIDE_BITS = 6
_MANTISSA_BITS = 52
_EXPONENT_BITS = 12
# Bits of the mean vote.
_VOTE_BITS = _EXPONENT_BITS + 3
# Exponents are at least -1000.
_MIN_EXPONENT = 1000
# Largest number of bits of a coordinate. 50, so that an outlier at 1e12 does not make the step coarse.
_MAX_BITS = 50
# Larger weights are sent in single precision.
_MAX_INTEGER_WEIGHT = 2.0**40
_SINGLE_BITS = 32
# Powers of two in steps of an eighth, by square roots alone: logarithms differ in the last bit between processors.
_EIGHTHS = 0.5 * np.cumprod(np.append(1.0, np.full(_VOTES_PER_BIT - 1, math.sqrt(math.sqrt(math.sqrt(2.0))))))


class CoordinateGrid(NamedTuple):
    """Grids of several tables.

    Attributes
    ----------
    low : float64[t, d]
        Origin of the grid, the lower corner of the box.
    step : float64[t]
        A power of two.
    widths : int64[t, d]
        Bits of a coordinate.
    """

    low: Floats
    step: Floats
    widths: Integers

    @classmethod
    def of(cls, boxes: Floats, finer: int = 0) -> "CoordinateGrid":
        """Create the grids of boxes, float64[t, 2 d + 2], with 2^-finer of the common step."""
        d = boxes.shape[1] // 2 - 1
        real = np.isfinite(boxes[:, :1])
        low, sides = np.where(real, boxes[:, :d], 0.0), np.where(real, -boxes[:, d : 2 * d] - boxes[:, :d], 0.0)
        widest = sides.max(axis=1, initial=0.0)
        votes, voters = boxes[:, -2:].astype(np.int64).T
        # A power of two: offsets divided by the step keep their bits.
        common_step = np.ldexp(1.0, votes // (_VOTES_PER_BIT * np.maximum(voters, 1)))
        step = np.where(voters > 0, common_step, _largest_power(widest) * 2.0**-10)
        step = np.maximum(step, _largest_power(widest) * 2.0**-_MAX_BITS) * 2.0**-finer
        cells = np.ceil(sides / np.where(step > 0.0, step, 1.0)[:, None])
        return cls(low, np.where(step > 0.0, step, 1.0), np.frexp(cells)[1].astype(np.int64))

    def round(self, values: Floats, owner: Integers) -> tuple[Integers, Floats]:
        """Round rows to the grid: cell numbers, int64[r, d], and the coordinates of these cells."""
        step, low = self.step[owner, None], self.low[owner]
        numbers = np.clip(np.rint((values - low) / step), 0.0, np.exp2(self.widths[owner]) - 1.0)
        return numbers.astype(np.int64), low + numbers * step

    @property
    def keys(self) -> Integers:
        """Column by which the rows of a table are sorted, int64[t]: the one with the most bits."""
        return np.argmax(self.widths, axis=1)


def local_box(tables: Tables, devices: Devices, k: int, *, within: bool = False) -> Floats:
    """Compute the box of the rows of each device and its votes on the step, float64[t, 2 d + 2].

    Columns: lower corner, minus the upper corner, sum of the votes, number of votes. The corners are rounded outwards
    to 2^-6 of the longest side; they are +inf for a device without rows.

    Parameters
    ----------
    tables : Tables
        Rows (origin, mean, weight, SSE) of each device.
    k : int
        Number of clusters.
    within : bool, default=False
        Whether SSEs will be sent.

    Notes
    -----
    Each of the r distinct rows of a device votes for the same step::

        c sqrt(D / d) min(1, r / 2 k)^(1 / min(d, 2))

    D is the median, over the points, of the squared distance from a row to the nearest other row of its device. The
    last factor corrects for devices with fewer than 2 k rows, which are farther apart than the rows of all devices
    together. c is 0.5. With `within`, c is 0.35 and the step is at most the root of the mean SSE per point and
    coordinate, so that the grid does not separate rows of one cluster. If all rows are equal, there is one vote for a
    quarter of the standard deviation of the points, or none if that is 0.
    """
    d, flat, count = devices.d, tables.flat(), len(tables.rows)
    owner = np.repeat(np.arange(count), tables.rows)
    rows, weights = flat[:, 1 : 1 + d], flat[:, 1 + d] / devices.unit
    box = np.full((count, 2 * d + 2), np.inf)
    np.minimum.at(box[:, : 2 * d], owner, np.column_stack((rows, -rows)))
    low = box[:, :d].copy()
    real = np.isfinite(box[:, 0])
    widest = np.where(real, (-box[:, d : 2 * d] - low).max(axis=1, initial=0.0, where=real[:, None]), 0.0)
    # Distances in units of a power of two near the size of the box, so that their squares neither overflow nor vanish.
    unit = np.where(widest > 0.0, _largest_power(widest), 1.0)
    gaps, voters = _typical_gaps((rows - low[owner]) / unit[owner, None], weights, owner, count, devices)
    share = np.minimum(1.0, voters / (2.0 * k))
    factor = share if d == 1 else np.sqrt(share)
    step = (_STEP_SHARE_WITH_SSE if within else _STEP_SHARE) * np.sqrt(gaps / d) * factor * unit
    total_weight = np.bincount(owner, weights, count)
    sse = np.bincount(owner, flat[:, 2 + d] / devices.unit, count)
    spread = np.sqrt(sse / np.where(total_weight > 0.0, total_weight, 1.0) / d)
    step = np.where((spread > 0.0) & within, np.minimum(step, spread), step)
    step = np.where(voters > 0, step, spread * _STEP_SHARE_EQUAL_ROWS)
    voters = np.where(step > 0.0, np.maximum(voters, 1), 0)
    box[:, -2] = voters * _count_eighths(np.where(voters > 0, step, 1.0))
    box[:, -1] = voters
    return _round_outwards(box)[1]


def _typical_gaps(
    rows: Floats, weights: Floats, owner: Integers, count: int, devices: Devices
) -> tuple[Floats, Integers]:
    """Compute the weighted median of the squared distances between each row and the nearest other row of its device.

    Equal rows are merged first.

    Parameters
    ----------
    rows : float64[r, d]
        Between 0 and 2 on each device.
    weights : float64[r]
    owner : int64[r]
        Ascending.
    count : int
        Number of devices.

    Returns
    -------
    medians : float64[count]
        0 for a device with fewer than two distinct rows.
    voters : int64[count]
        Number of rows that have another row.
    """
    order = np.lexsort((*rows.T[::-1], owner))
    rows, owner = rows[order], owner[order]
    is_distinct = np.ones(len(rows), np.bool_)
    is_distinct[1:] = (owner[1:] != owner[:-1]) | (rows[1:] != rows[:-1]).any(axis=1)
    distinct_weights = np.bincount(np.cumsum(is_distinct) - 1, weights[order], int(is_distinct.sum()))
    rows, owner = rows[is_distinct], owner[is_distinct]
    sizes = np.bincount(owner, minlength=count)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    medians = np.zeros(count)
    most = int(sizes.max(initial=0))
    voters = np.zeros(count, np.int64)
    for block in blocks(count, most * (devices.d + 4)) if most > 1 else ():
        members = slice(offsets[block.start], offsets[block.stop])
        position = owner[members] - block.start, np.arange(members.start, members.stop) - offsets[owner[members]]
        padded = np.full((block.stop - block.start, most, devices.d), np.inf)
        padded[position] = rows[members]
        row_weights = np.zeros(padded.shape[:2])
        row_weights[position] = distinct_weights[members]
        gaps = _nearest_others(padded, devices)
        row_weights[gaps == np.inf] = 0.0
        ascending = np.argsort(gaps, axis=1, kind="stable")
        cumulative = np.cumsum(np.take_along_axis(row_weights, ascending, axis=1), axis=1)
        half = np.argmax(2.0 * cumulative >= cumulative[:, -1:], axis=1)
        voters[block] = np.count_nonzero(gaps < np.inf, axis=1)
        middle = np.take_along_axis(gaps, np.take_along_axis(ascending, half[:, None], axis=1), axis=1)[:, 0]
        medians[block] = np.where(voters[block] > 0, middle, 0.0)
    return medians, voters


def _nearest_others(rows: Floats, devices: Devices) -> Floats:
    """Compute the squared distance from each row to the nearest other row of its device, float64[n, r]; inf if none.

    Parameters
    ----------
    rows : float64[n, r, d]
        Distinct; absent rows are +inf.
    """
    n, most, _ = rows.shape
    nearest = np.full((n, most), np.inf)
    real = np.isfinite(rows[:, :, 0])
    positions = np.arange(most)
    # The kernel of the losses finds nearest rows between two sets. Two row numbers differ in at least one bit, so for
    # each bit the rows with a 0 search among those with a 1, and vice versa. This takes log2(r) / 2 times as many
    # distances, but in the fast kernel.
    for bit in range((most - 1).bit_length()):
        side = (positions >> bit) & 1
        for query_side, target_side in ((0, 1), (1, 0)):
            queries = positions[side == query_side]
            targets = np.ascontiguousarray(rows[:, side == target_side])
            device, column = np.nonzero(real[:, queries])
            points = rows[device, queries[column]]
            offsets = np.concatenate(([0], np.cumsum(np.bincount(device, minlength=n))))
            _, labels = devices.kernels.losses(points, np.zeros(0), offsets, targets)
            gaps = np.cumsum(np.square(points - targets[device, labels]), axis=1)[:, -1]
            gaps[(labels < 0) | (gaps == 0.0)] = np.inf
            nearest[device, queries[column]] = np.minimum(nearest[device, queries[column]], gaps)
    return nearest


def _count_eighths(steps: Floats) -> Floats:
    """Compute ``floor(8 log2 step)`` without logarithms, whose last bit depends on the processor."""
    mantissa, exponent = np.frexp(steps)
    return (_VOTES_PER_BIT * (exponent - 1) + np.searchsorted(_EIGHTHS, mantissa, side="right") - 1).astype(np.float64)


def widen_boxes(boxes: Floats, receivers: Integers, received: Floats) -> Floats:
    """Extend boxes by received ones: corners are minima, rounded outwards; votes are added.

    Parameters
    ----------
    boxes : float64[t, 2 d + 2]
    receivers : int64[r]
        Index in `boxes` of each received box.
    received : float64[r, 2 d + 2]
    """
    wider = boxes.copy()
    np.minimum.at(wider[:, :-2], receivers, received[:, :-2])
    np.add.at(wider[:, -2:], receivers, received[:, -2:])
    return _round_outwards(wider)[1]


def settle_step(boxes: Floats) -> Floats:
    """Replace all votes by one: for the largest power of two up to the geometric mean of the steps."""
    settled = boxes.copy()
    votes, voters = boxes[:, -2:].astype(np.int64).T
    settled[:, -2] = _VOTES_PER_BIT * (votes // (_VOTES_PER_BIT * np.maximum(voters, 1)))
    settled[:, -1] = np.minimum(voters, 1)
    return settled


def count_box_bytes(boxes: Floats) -> Integers:
    """Count the encoded bytes of boxes, float64[t, 2 d + 2]: int64[t]."""
    if _are_equal(boxes):
        return np.full(len(boxes), _count_common_box(boxes[0].tobytes()))
    return _count_boxes(boxes)


def _are_equal(tables: Floats) -> bool:
    """Test whether there are tables, and all are equal, as in a broadcast in one component."""
    return len(tables) > 0 and bool((tables == tables[0]).all())


# All devices of a component forward the same box and the same centroids, turn after turn: they are counted once.
@lru_cache(maxsize=1)
def _count_common_box(content: bytes) -> int:
    return int(_count_boxes(np.frombuffer(content)[None])[0])


def _count_boxes(boxes: Floats) -> Integers:
    count, d = len(boxes), boxes.shape[1] // 2 - 1
    numbers, rounded, _ = _round_outwards(boxes)
    owner, real = np.repeat(np.arange(count), d), np.isfinite(rounded[:, 0])
    bits = unbounded_bits(numbers[np.repeat(real, d)], owner[np.repeat(real, d)], count).sum(axis=1)
    voters = boxes[:, -1]
    bits += np.where(voters > 0, _VOTE_BITS + np.frexp(np.maximum(voters, 1.0) - 1.0)[1], 0)
    return to_bytes(whole_bits(1 + bits + np.where(real, _EXPONENT_BITS + 2 * np.frexp(voters + 1.0)[1] - 1, 0)))


def code_box(coder: Coder, d: int, box: Floats | None) -> Floats:
    """Write a box, float64[2 d + 2], or read one if `box` is None."""
    is_writing = box is not None
    half = 2 ** (_EXPONENT_BITS - 1)
    numbers = np.zeros((d, 2), np.int64)
    exponent, votes, voters = 0, 0, 0
    if not coder.plain(1, None if box is None else int(np.isfinite(box[0]))):
        return np.concatenate((np.full(2 * d, np.inf), np.zeros(2)))
    if box is not None:
        numbers, _, exponents = _round_outwards(box[None])
        exponent, votes, voters = int(exponents[0]), int(box[-2]), int(box[-1])
    exponent = coder.plain(_EXPONENT_BITS, exponent + half if is_writing else None) - half
    coded = np.array([
        [coder.unbounded(part, int(row[part]) if is_writing else None) for part in (0, 1)] for row in numbers
    ])
    unit = 2.0**exponent
    number = coder.count(voters if is_writing else None)
    total = 0
    if number:
        total = _code_votes(coder, number, votes if is_writing else None)
    return np.concatenate((coded[:, 0] * unit, -(coded[:, 0] + coded[:, 1]) * unit, [total, number]))


def _code_votes(coder: Coder, voters: int, votes: int | None) -> int:
    """Write or read the sum of votes as their mean, rounded down, and the remainder."""
    mean, remainder = (None, None) if votes is None else divmod(votes, voters)
    half = 2 ** (_VOTE_BITS - 1)
    coded_mean = coder.plain(_VOTE_BITS, None if mean is None else mean + half) - half
    return coded_mean * voters + coder.plain((voters - 1).bit_length(), remainder)


class PackedRows(NamedTuple):
    """Rows of several tables as integers.

    Attributes
    ----------
    owner : int64[r]
        Table of each row.
    block : int64[r]
        Block of each row; the order of the rows of a block is not sent.
    numbers : int64[r, d]
        Grid cell of each row.
    weights : float64[r]
        In points.
    wide : bool[t]
        Tables whose weights are sent in single precision.
    spreads : int64[r] or None
        Root of SSE / (weight d) in quarter steps; None if it is not sent.
    """

    owner: Integers
    block: Integers
    numbers: Integers
    weights: Floats
    wide: Mask
    spreads: Integers | None


def _pack(
    tables: Tables, grid: CoordinateGrid, unit: float, within: bool, with_origins: bool
) -> tuple[PackedRows, Floats, Integers]:
    """Convert rows to integers and to the values that receivers read, both in the order of the receivers."""
    flat, d, count = tables.flat(), grid.low.shape[1], len(tables.rows)
    owner = np.repeat(np.arange(count), tables.rows)
    flat[:, 0] *= with_origins
    numbers, flat[:, 1 : 1 + d] = grid.round(flat[:, 1 : 1 + d], owner)
    weights = to_point_units(flat[:, 1 + d], unit)
    wide = np.bincount(owner, (weights != np.rint(weights)) | (weights > _MAX_INTEGER_WEIGHT), count) > 0
    weights = np.where(wide[owner], weights.astype(np.float32).astype(np.float64), weights)
    spreads = np.zeros(len(flat), np.int64)
    spread_step = grid.step[owner] * 2.0**-_EXTRA_BITS
    if within:
        divisors = np.where(flat[:, 1 + d] > 0.0, flat[:, 1 + d], 1.0)
        spread = np.sqrt(np.maximum(flat[:, 2 + d], 0.0) / divisors / float(d)) / spread_step
        spreads = np.rint(np.minimum(spread, 2.0**_MAX_BITS)).astype(np.int64)
    flat[:, 1 + d] = weights * unit
    flat[:, 2 + d] = flat[:, 1 + d] * (spreads * spread_step) ** 2 * float(d)
    key = numbers[np.arange(len(flat)), grid.keys[owner]] if len(flat) else np.zeros(0, np.int64)
    # A canonical order: sender and receiver sort the same rows alike, although the order itself is not sent.
    order = np.lexsort((spreads, weights, *numbers.T[::-1], key, flat[:, 0], owner))
    flat = flat[order]
    block = number_runs(owner, flat[:, 0])
    packed = PackedRows(owner, block, numbers[order], weights[order], wide, spreads[order] if within else None)
    return packed, flat, key[order]


def pack_rows(
    tables: Tables, boxes: Floats, unit: float, *, within: bool = False, with_origins: bool = False
) -> Tables:
    """Encode and decode rows (origin, mean, weight, SSE): the tables that receivers read.

    Coordinates become those of the nearest cell. Weights, in units of the mean point weight, do not change if all
    weights of the table are integers; otherwise they are rounded to single precision. The root of SSE / (weight d) is
    rounded to quarter steps. Rows are sorted by their numbers. Packing packed rows again does not change them.

    Parameters
    ----------
    boxes : float64[t, 2 d + 2]
        Box of each table, see `local_box`.
    unit : float
        Mean weight of a point.
    within : bool, default=False
        Whether SSEs are sent; if not, they are read as 0.
    with_origins : bool, default=False
        Whether the origins of rows are sent. Rows are then sorted by origin first; otherwise origins are read as 0.
    """
    _, flat, _ = _pack(tables, CoordinateGrid.of(boxes), unit, within, with_origins)
    return Tables(flat, np.cumsum(tables.rows) - tables.rows, tables.rows)


def pack_centroids(centroids: Floats, boxes: Floats) -> Floats:
    """Round centroids, float64[t, k, d], to a quarter of the grid step; sort them, absent ones last."""
    grid = CoordinateGrid.of(boxes, _EXTRA_BITS)
    packed = np.full_like(centroids, np.inf)
    for i, table in enumerate(centroids):
        rows = table[np.isfinite(table[:, 0])]
        numbers, rounded = grid.round(rows, np.full(len(rows), i))
        packed[i, : len(rows)] = rounded[np.lexsort((*numbers.T[::-1], numbers[:, grid.keys[i]]))]
    return packed


def count_row_bytes(
    tables: Tables, boxes: Floats, unit: float, *, within: bool = False, below: Integers | None = None
) -> Integers:
    """Count the encoded bytes of tables of packed rows: int64[t].

    Parameters
    ----------
    tables, boxes, unit, within
        As in `pack_rows`.
    below : int64[t], optional
        Largest number of devices with rows in each table, if the origins of rows are sent.
    """
    grid, count = CoordinateGrid.of(boxes), len(tables.rows)
    packed, _, key = _pack(tables, grid, unit, within, below is not None)
    if below is None:
        below = np.ones(count, np.int64)
    bits = bounded_bits(packed.numbers, packed.owner, grid.widths)
    bits += _group_bits(packed.owner, packed.block, key, below)
    row_counts = np.bincount(packed.owner, minlength=count)
    weights = np.where(packed.wide[packed.owner], 0.0, packed.weights).astype(np.int64)
    bits += 1 + np.where(packed.wide, _SINGLE_BITS * row_counts, 0)
    bits += np.where(packed.wide, 0.0, unbounded_bits(weights[:, None], packed.owner, count)[:, 0])
    if packed.spreads is not None:
        bits += unbounded_bits(packed.spreads[:, None], packed.owner, count)[:, 0]
    return to_bytes(whole_bits(bits))


def count_centroid_bytes(sets: Floats, boxes: Floats, sizes: int) -> Integers:
    """Count the encoded bytes of sets of packed centroids: int64[t].

    Parameters
    ----------
    sets : float64[t, g k, d]
        Absent centroids are +inf.
    boxes : float64[t, 2 d + 2]
    sizes : int
        k; every k rows are one set, whose order is not sent.
    """
    if _are_equal(sets) and _are_equal(boxes):
        content = sets[0].tobytes(), boxes[0].tobytes()
        return np.full(len(sets), _count_common_centroids(*content, sets.shape[1:], sizes))
    return _count_centroids(sets, boxes, sizes)


@lru_cache(maxsize=1)
def _count_common_centroids(centroids: bytes, box: bytes, shape: tuple[int, int], sizes: int) -> int:
    return int(_count_centroids(np.frombuffer(centroids).reshape(1, *shape), np.frombuffer(box)[None], sizes)[0])


def _count_centroids(sets: Floats, boxes: Floats, sizes: int) -> Integers:
    grid = CoordinateGrid.of(boxes, _EXTRA_BITS)
    count, rows, _ = sets.shape
    owner, position = np.nonzero(np.isfinite(sets[:, :, 0]))
    numbers, _ = grid.round(sets[owner, position], owner)
    key = numbers[np.arange(len(numbers)), grid.keys[owner]] if len(numbers) else np.zeros(0, np.int64)
    set_numbers = owner * (rows // sizes) + position // sizes
    bits = bounded_bits(numbers, owner, grid.widths)
    return to_bytes(whole_bits(bits + _group_bits(owner, set_numbers, key, np.full(count, rows // sizes))))


def _group_bits(owner: Integers, block: Integers, keys: Integers, below: Integers) -> Floats:
    """Count the bits of the row counts of all blocks, minus the bits saved by not sending the order of rows."""
    count, numbers = len(below), int(block.max(initial=-1)) + 1
    row_counts = np.bincount(block, minlength=numbers)
    block_owner = np.zeros(numbers, np.int64)
    block_owner[block] = owner
    bits = 2.0 * np.frexp(row_counts + 1.0)[1] - 2.0 - order_bits(keys, block, numbers)
    return below.astype(np.float64) + np.bincount(block_owner, bits, count)


def expect_bits(d: int, k: int, *, within: bool) -> tuple[float, float, float]:
    """Estimate the bits per number of a box, of rows (mean, weight, SSE) and of centroids."""
    # A coordinate that is uniform in the box: k clusters in d dimensions, about 8 steps per cluster.
    coordinate = np.log2(k) / d + 3.0
    row = d * coordinate + 4.0 + (5.0 if within else 0.0) - 3.0
    return 8.0 * (7 + d) / (2 * d + 2), row / (d + 2), coordinate + _EXTRA_BITS - np.log2(k) / d


def code_rows(
    coder: Coder, grid: CoordinateGrid, blocks: list[Floats] | int, *, weighted: bool = True, within: bool = False
) -> list[Floats]:
    """Write the rows of a table, or read them, on the first of the grids.

    Parameters
    ----------
    blocks : list of float64[r, w], or int
        Blocks of rows (cell numbers[, weight in points[, spread in quarter steps]]), or the number of blocks to read.
    weighted, within : bool
        Whether rows have weights and spreads.
    """
    written = None if isinstance(blocks, int) else blocks
    widths = grid.widths[0].tolist()
    key = int(grid.keys[0])
    coded = []
    wide = 0
    if weighted:
        weights = np.concatenate([block[:, len(widths)] for block in written]) if written is not None else np.zeros(0)
        needs_single = bool((weights != np.rint(weights)).any() or (weights > _MAX_INTEGER_WEIGHT).any())
        wide = coder.plain(1, None if written is None else int(needs_single))
    for number in range(blocks if isinstance(blocks, int) else len(blocks)):
        block = None if written is None else written[number][np.argsort(written[number][:, key], kind="stable")]
        r = coder.count(None if block is None else len(block))
        keys = coder.unordered(key, widths[key], r if block is None else block[:, key].astype(int).tolist())
        rows = [
            _code_row(coder, widths, {key: keys[i]}, None if block is None else block[i], wide, weighted + within)
            for i in range(r)
        ]
        coded.append(np.array(rows).reshape(r, len(widths) + weighted + within))
    return coded


def _code_row(
    coder: Coder, widths: list[int], coded: dict[int, int], written: Floats | None, wide: int, extra: int
) -> list[float]:
    """Write or read the numbers of a row that are not in `coded`, and `extra` columns (weight, spread) after them."""
    row: list[float] = []
    for f in range(len(widths) + extra):
        value = None if written is None else float(written[f])
        if f in coded:
            row.append(coded[f])
        elif f < len(widths):
            row.append(coder.bounded(f, widths[f], None if value is None else int(value)))
        elif wide and f == len(widths):
            bits = coder.plain(_SINGLE_BITS, None if value is None else int(np.float32(value).view(np.uint32)))
            row.append(float(np.array(bits, np.uint32).view(np.float32)))
        else:
            row.append(coder.unbounded(f, None if value is None else int(value)))
    return row


def _round_outwards(boxes: Floats) -> tuple[Integers, Floats, Integers]:
    """Round boxes outwards: lower corners and sides, int64[t d, 2], rounded boxes, and exponents of their units."""
    d, rounded = boxes.shape[1] // 2 - 1, boxes.copy()
    real = np.isfinite(boxes[:, 0])
    # Twice: rounding may lengthen the longest side beyond a power of two, which doubles the unit.
    for _ in range(2):
        corners = np.where(real[:, None], rounded[:, :-2], 0.0)
        widest = (-corners[:, d:] - corners[:, :d]).max(axis=1, initial=0.0)
        largest = np.abs(corners).max(axis=1, initial=0.0)
        side_exponent = np.where(widest > 0.0, np.frexp(widest)[1] - _SIDE_BITS, -_MIN_EXPONENT)
        value_exponent = np.where(largest > 0.0, np.frexp(largest)[1] - _MANTISSA_BITS, -_MIN_EXPONENT)
        exponent = np.maximum(value_exponent, side_exponent).clip(-_MIN_EXPONENT)
        units = np.floor(np.ldexp(corners, -exponent[:, None]))
        rounded[real, :-2] = np.ldexp(units, exponent[:, None])[real]
    numbers = np.stack((units[:, :d], -units[:, d:] - units[:, :d]), axis=2).reshape(-1, 2)
    return numbers.astype(np.int64), rounded, exponent


def _largest_power(sizes: Floats) -> Floats:
    """Compute the largest power of two up to each size; 0 for 0."""
    return np.where(sizes > 0.0, np.ldexp(0.5, np.frexp(sizes)[1]), 0.0)
