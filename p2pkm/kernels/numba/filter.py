"""Nearest centroid in single precision, with a proof that rounding cannot change the label.

For a point x and a centroid c, half of the squared distance minus |x|^2 / 2 is |c|^2 / 2 - x c. Computed in float32
from shifted coordinates, its error is at most (d + 5) 1.01 u (R^2 + |x|^2 / 2), where u = 2^-24 and R is the largest
|c|: d + 1 roundings of each term in any order of summation, two of the factors, one of the square, and one of the
float64 distance that it replaces; underflow is added separately. If the smallest value is below the second smallest
by more than twice this bound, the float64 distances have the same order. All other points are labeled in float64, so
labels never differ from the reference. Measurements: docs/results/speed.md.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from p2pkm.kernels.numba.compiling import helper
from p2pkm.kernels.numba.simd import _INDEX, _REAL, _Array, _broadcast, _fold, _int64, _loop, _pieces, _store_transposed

# Points that are labeled together.
SIXTEEN = 16
# Centroids of a tile.
_TILE_ROWS = 4
_SINGLE = ir.FloatType()
_SINGLES, _WHOLES = ir.VectorType(_SINGLE, SIXTEEN), ir.VectorType(_INDEX, SIXTEEN)
_FAR, _ZERO = (ir.Constant(_SINGLES, [value] * SIXTEEN) for value in (float("inf"), 0.0))
_FIRST = ir.Constant(_WHOLES, [0] * SIXTEEN)
# Unit roundoff of float32, and a bound on the error by underflow.
_UNIT, _UNDERFLOW = 2.0**-24, 2.0**-120
# Squared radius up to which products do not overflow float32.
_LARGEST = 1e30


@helper()
def float32_workspace(k, d, lanes):
    """Allocate the scratch arrays of the filter, for k centroids of d features and blocks of `lanes` points.

    Returns
    -------
    shift : float64[d]
    centroids_f32 : float32[k + 0 to 3, d + 1]
        Negative shifted centroids, and half of their squared norm in the last column. Up to three absent rows fill the
        last tile.
    columns : float32[d, lanes]
        Coordinates of a block.
    """
    return np.empty(d), np.empty((k + -k % _TILE_ROWS, d + 1), np.float32), np.empty((d, lanes), np.float32)


@helper()
def prepare_float32(centroids, rows, workspace):
    """Write the first `rows` centroids, float64[k, d], shifted by one of them, to the arrays of `float32_workspace`.

    Returns
    -------
    float64
        Largest squared norm of a shifted centroid; inf if single precision must not be used.
    """
    shift, centroids_f32, _ = workspace
    d, middle, largest = centroids.shape[1], 0, -1.0
    while middle < rows - 1 and not centroids[middle, 0] < np.inf:
        middle += 1
    for f in range(d):
        shift[f] = centroids[middle, f]
    for c in range(centroids_f32.shape[0]):
        size = shift_row(centroids, c, shift, centroids_f32) if c < rows else np.inf
        if size < np.inf:
            largest = max(largest, size)
        else:
            size = np.inf
            for f in range(d):
                centroids_f32[c, f] = 0.0
        centroids_f32[c, d] = 0.5 * size
    return largest if 0.0 <= largest <= _LARGEST else np.inf


@intrinsic
def shift_row(context, centroids, c, shift, centroids_f32):
    """Set ``centroids_f32[c, f] = shift[f] - centroids[c, f]`` for every f; return the sum of squares."""

    def generate(context, builder, signature, args):
        source, less, target = (_Array(context, builder, signature, args, number) for number in (0, 2, 3))
        start, to = source.at(args[1], _int64(0)), target.at(args[1], _int64(0))
        total = cgutils.alloca_once_value(builder, ir.Constant(_REAL, 0.0))

        def shift_some(f, width):
            difference = builder.fsub(less.load(f, width), source.load(builder.add(start, f), width))
            target.store(builder.fptrunc(difference, ir.VectorType(_SINGLE, width)), builder.add(to, f))
            square = _fold(builder, builder.fmul(difference, difference))
            builder.store(builder.fadd(builder.load(total), square), total)

        _pieces(builder, less.last, shift_some)
        return builder.load(total)

    return types.float64(centroids, types.int64, shift, centroids_f32), generate


@helper(inline="always")
def limits(d, radius):
    """Return the margin by which the nearest centroid must be nearer than the second, as offset and factor of |x|^2.

    Twice the error bound, so that rounding of the bound itself does not matter.
    """
    return (d + 8) * (4.0 * _UNIT * radius + _UNDERFLOW), (d + 8) * 2.0 * _UNIT


@helper(inline="always")
def transpose_float32(points, first, count, workspace):
    """Write the shifted ``points[first : first + count]``, float[m, d], feature by feature to the columns."""
    shift, _, columns = workspace
    d = points.shape[1]
    square = d - d % 8 if count >= 8 else 0
    for eight in range(0, count if square > 0 else 0, 8):
        # The last eight points may overlap with the previous ones, which are then written twice.
        r = min(eight, count - 8)
        for f in range(0, square, 8):
            transpose_shifted(points, first + r, f, shift, columns, r)
    for f in range(square, d):
        for r in range(count):
            columns[f, r] = points[first + r, f] - shift[f]


@intrinsic
def transpose_shifted(context, points, row, f, shift, columns, r):
    """Set ``columns[f + i, r + j] = points[row + j, f + i] - shift[f + i]`` for i, j < 8, in single precision."""

    def generate(context, builder, signature, args):
        source, less, target = (_Array(context, builder, signature, args, number) for number in (0, 3, 4))
        middle, lines = less.load(args[2]), []
        for j in range(8):
            line = source.load(source.at(builder.add(args[1], _int64(j)), args[2]))
            lines.append(builder.fptrunc(builder.fsub(line, middle), ir.VectorType(_SINGLE, 8)))
        _store_transposed(builder, lines, target, args[2], args[5])
        return context.get_dummy_value()

    return types.void(points, types.int64, types.int64, shift, columns, types.int64), generate


def _multiply(builder, x, y, total):
    """Return ``total + x * y``, with one or two roundings; the error bound holds for both."""
    kind = ir.FunctionType(_SINGLES, [_SINGLES] * 3)
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.fmuladd.v16f32"), [x, y, total])


@intrinsic
def label_float32(context, centroids_f32, columns, r, start, slope, labels):
    """Label ``columns[:, r + j]`` for j < 16; return a bit mask of the uncertain labels.

    centroids_f32, columns: see `float32_workspace`; labels: int64[lanes]. A label is certain if its margin is above
    ``start + slope |x|^2``, see `limits`.
    """

    def generate(context, builder, signature, args):
        a, b, names = (_Array(context, builder, signature, args, number) for number in (0, 1, 5))
        d = builder.sub(a.last, _int64(1))

        def column(f):
            return b.raw(b.at(f, args[2]), SIXTEEN)

        def single(place):
            return _broadcast(builder, a.raw(place), SIXTEEN)

        def tile(c, best):
            numbers = [builder.add(c, _int64(i)) for i in range(_TILE_ROWS)]
            places = [a.at(number, _int64(0)) for number in numbers]

            def body(f, totals):
                x = column(f)
                return [_multiply(builder, x, single(builder.add(place, f)), total)
                        for place, total in zip(places, totals, strict=True)]  # fmt: skip

            halves = [single(builder.add(place, d)) for place in places]
            for number, total in zip(numbers, _loop(builder, d, 1, halves, body), strict=True):
                low, second, nearest = best
                better = builder.fcmp_ordered("<", total, low)
                worse = builder.select(builder.fcmp_ordered(">", total, low), total, low)
                second = builder.select(builder.fcmp_ordered("<", worse, second), worse, second)
                index = _broadcast(builder, builder.trunc(number, _INDEX), SIXTEEN)
                best = [builder.select(better, total, low), second, builder.select(better, index, nearest)]
            return best

        low, second, nearest = _loop(builder, a.rows, _TILE_ROWS, [_FAR, _FAR, _FIRST], tile)
        (size,) = _loop(builder, d, 1, [_ZERO], lambda f, held: [_multiply(builder, column(f), column(f), held[0])])
        start, slope = (_broadcast(builder, builder.fptrunc(value, _SINGLE), SIXTEEN) for value in args[3:5])
        unsure = builder.fcmp_unordered("<=", builder.fsub(second, low), _multiply(builder, slope, size, start))
        names.store(builder.sext(nearest, ir.VectorType(ir.IntType(64), SIXTEEN)), args[2])
        return builder.zext(builder.bitcast(unsure, ir.IntType(SIXTEEN)), ir.IntType(64))

    return types.int64(centroids_f32, columns, types.int64, types.float64, types.float64, labels), generate
