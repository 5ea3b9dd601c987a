"""The nearest centroid in single precision, believed where no rounding could have changed it.

Half the squared distance of a point x to a centroid c, less |x|^2 / 2, is |c|^2 / 2 - x c. Computed in float32 from
coordinates less a common shift it is off by at most (d + 5) 1.01 u (R^2 + |x|^2 / 2), where u = 2^-24 and R is the
largest |c|: d + 1 roundings of each term in whatever order they are added up, two of what is multiplied, one of the
square, and that of the float64 distances that it stands for; what underflows comes on top. Where the least of these
figures is less than the second one by more than twice that, the float64 distances are in the same order. All other
points are looked at again in float64, so that no label ever differs.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from p2pkm.kernels.numba.compiling import helper
from p2pkm.kernels.numba.simd import _INDEX, _REAL, _Array, _fold, _loop, _pieces, _spread, _store_turned, _whole

SIXTEEN = 16  # points looked at together
_TALL = 4  # centroids of a tile
_SINGLE = ir.FloatType()
_SINGLES, _WHOLES = ir.VectorType(_SINGLE, SIXTEEN), ir.VectorType(_INDEX, SIXTEEN)
_FAR, _ZERO = (ir.Constant(_SINGLES, [value] * SIXTEEN) for value in (float("inf"), 0.0))
_FIRST = ir.Constant(_WHOLES, [0] * SIXTEEN)
_UNIT, _UNDERFLOW = 2.0**-24, 2.0**-120
_LARGEST = 1e30  # squared radius up to which no product of centroids overflows


@helper()
def single_room(k, d, lanes):
    """Return what the filter works in, for k centroids of d features and blocks of so many points.

    Returns
    -------
    shift : float64[d]
    singles : float32[k + 0 to 3, d + 1]
        Centroids with the sign changed, and half of their square behind. Up to three more are at infinity, so that all
        tiles are whole.
    columns : float32[d, lanes]
        Coordinates of a block.
    """
    return np.empty(d), np.empty((k + -k % _TALL, d + 1), np.float32), np.empty((d, lanes), np.float32)


@helper()
def prepare(centroids, rows, room):
    """Write the first `rows` of the centroids, float64[k, d], less one of them, into the room of `single_room`.

    Returns
    -------
    float64
        The largest of the squares; inf where single precision is not to be used.
    """
    shift, singles, _ = room
    d, middle, largest = centroids.shape[1], 0, -1.0
    while middle < rows - 1 and not centroids[middle, 0] < np.inf:
        middle += 1
    for f in range(d):
        shift[f] = centroids[middle, f]
    for c in range(singles.shape[0]):
        size = shift_row(centroids, c, shift, singles) if c < rows else np.inf
        if size < np.inf:
            largest = max(largest, size)
        else:
            size = np.inf
            for f in range(d):
                singles[c, f] = 0.0
        singles[c, d] = 0.5 * size
    return largest if 0.0 <= largest <= _LARGEST else np.inf


@intrinsic
def shift_row(context, centroids, c, shift, singles):
    """``singles[c, f] = shift[f] - centroids[c, f]`` for every f; return the sum of the squares."""

    def generate(context, builder, signature, args):
        source, less, target = (_Array(context, builder, signature, args, number) for number in (0, 2, 3))
        start, to = source.at(args[1], _whole(0)), target.at(args[1], _whole(0))
        total = cgutils.alloca_once_value(builder, ir.Constant(_REAL, 0.0))

        def shift_some(f, width):
            apart = builder.fsub(less.load(f, width), source.load(builder.add(start, f), width))
            target.store(builder.fptrunc(apart, ir.VectorType(_SINGLE, width)), builder.add(to, f))
            builder.store(builder.fadd(builder.load(total), _fold(builder, builder.fmul(apart, apart))), total)

        _pieces(builder, less.last, shift_some)
        return builder.load(total)

    return types.float64(centroids, types.int64, shift, singles), generate


@helper(inline="always")
def limits(d, radius):
    """Return by which margin a centroid has to be the nearest one to be it for sure, and what |x|^2 adds to it.

    This is twice what the rounding may amount to, so that the rounding of the bound itself does not matter.
    """
    return (d + 8) * (4.0 * _UNIT * radius + _UNDERFLOW), (d + 8) * 2.0 * _UNIT


@helper(inline="always")
def turn_singles(points, first, count, room):
    """Write points[first : first + count], float[m, d], less the shift, feature by feature into the room's columns."""
    shift, _, columns = room
    d = points.shape[1]
    square = d - d % 8 if count >= 8 else 0
    for eight in range(0, count if square > 0 else 0, 8):
        r = min(eight, count - 8)  # the last eight may be turned in part for the second time
        for f in range(0, square, 8):
            turn_shifted(points, first + r, f, shift, columns, r)
    for f in range(square, d):
        for r in range(count):
            columns[f, r] = points[first + r, f] - shift[f]


@intrinsic
def turn_shifted(context, points, row, f, shift, columns, r):
    """``columns[f + i, r + j] = points[row + j, f + i] - shift[f + i]`` for i, j < 8, in single precision."""

    def generate(context, builder, signature, args):
        source, less, target = (_Array(context, builder, signature, args, number) for number in (0, 3, 4))
        middle, lines = less.load(args[2]), []
        for j in range(8):
            line = source.load(source.at(builder.add(args[1], _whole(j)), args[2]))
            lines.append(builder.fptrunc(builder.fsub(line, middle), ir.VectorType(_SINGLE, 8)))
        _store_turned(builder, lines, target, args[2], args[5])
        return context.get_dummy_value()

    return types.void(points, types.int64, types.int64, shift, columns, types.int64), generate


def _multiply(builder, x, y, total):
    """Return ``total + x * y``, in one rounding or two."""
    kind = ir.FunctionType(_SINGLES, [_SINGLES] * 3)
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.fmuladd.v16f32"), [x, y, total])


@intrinsic
def guess(context, singles, columns, r, start, slope, labels):
    """Write the nearest of the centroids to ``columns[:, r + j]`` for j < 16; return a number whose bit j says: unsure.

    singles, columns: as of `single_room`; labels: int64[lanes]. Sure is whose margin is larger than
    ``start + slope |x|^2``, see `limits`.
    """

    def generate(context, builder, signature, args):
        a, b, names = (_Array(context, builder, signature, args, number) for number in (0, 1, 5))
        d = builder.sub(a.last, _whole(1))

        def column(f):
            return b.raw(b.at(f, args[2]), SIXTEEN)

        def single(place):
            return _spread(builder, a.raw(place), SIXTEEN)

        def tile(c, found):
            numbers = [builder.add(c, _whole(i)) for i in range(_TALL)]
            places = [a.at(number, _whole(0)) for number in numbers]

            def body(f, totals):
                x = column(f)
                return [_multiply(builder, x, single(builder.add(place, f)), total)
                        for place, total in zip(places, totals, strict=True)]  # fmt: skip

            halves = [single(builder.add(place, d)) for place in places]
            for number, total in zip(numbers, _loop(builder, d, 1, halves, body), strict=True):
                low, second, near = found
                better = builder.fcmp_ordered("<", total, low)
                worse = builder.select(builder.fcmp_ordered(">", total, low), total, low)
                second = builder.select(builder.fcmp_ordered("<", worse, second), worse, second)
                name = _spread(builder, builder.trunc(number, _INDEX), SIXTEEN)
                found = [builder.select(better, total, low), second, builder.select(better, name, near)]
            return found

        low, second, near = _loop(builder, a.rows, _TALL, [_FAR, _FAR, _FIRST], tile)
        (size,) = _loop(builder, d, 1, [_ZERO], lambda f, held: [_multiply(builder, column(f), column(f), held[0])])
        start, slope = (_spread(builder, builder.fptrunc(one, _SINGLE), SIXTEEN) for one in args[3:5])
        unsure = builder.fcmp_unordered("<=", builder.fsub(second, low), _multiply(builder, slope, size, start))
        names.store(builder.sext(near, ir.VectorType(ir.IntType(64), SIXTEEN)), args[2])
        return builder.zext(builder.bitcast(unsure, ir.IntType(SIXTEEN)), ir.IntType(64))

    return types.int64(singles, columns, types.int64, types.float64, types.float64, labels), generate
