"""Fused kernel for two features and up to four centroids: nearest centroid and sums in registers.

Results are bit-identical to `simd.sum_where` with its eight partial sums. Lanes 0 to 3 are computed first and lanes
4 to 7 afterwards, four points at a time: the sums of four lanes fit into the registers of most processors, those of
eight do not. Neither coordinates nor labels are stored in between, so each number of a point is read once.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from p2pkm.kernels.numba.simd import _INDEX, _REAL, _WHOLE, WIDTH, _Array, _broadcast, _int64, _loop, _shuffle

# Largest number of centroids.
FEW = 4
_HALF = WIDTH // 2
_SOME, _WHOLES = ir.VectorType(_REAL, _HALF), ir.VectorType(_WHOLE, _HALF)
_ZERO, _FAR, _NONE = (
    ir.Constant(kind, [value] * _HALF) for kind, value in ((_SOME, 0.0), (_SOME, float("inf")), (_WHOLES, 0))
)
# Bits of a count of unweighted points: four counts are packed into one int64; a block has fewer than 2^16 points.
_BITS = 16
# Order of four points after their coordinates were separated without crossing halves of a register, which is slow.
_ORDER = (0, 2, 1, 3)


@intrinsic
def sum_nearest(context, points, mass, first, count, coming, lines, line, rows, sums, counts):
    """Add ``points[first : first + count]`` to the sum and count of the nearest of ``lines[line : line + rows]``.

    Lowest index on ties; no centroid if all are absent. Two features, up to four lines and 128 points. mass:
    float64[m], or empty if all weights are 1. coming: first of the points that are prefetched meanwhile, as many as
    are read.
    """

    def generate(context, builder, signature, args):
        source, weights, centers, to, number = (
            _Array(context, builder, signature, args, place) for place in (0, 1, 5, 8, 9)
        )
        middles = [_middle(builder, centers, args[6], args[7], c) for c in range(FEW)]

        def collect(heavy):
            halves = [_half(builder, source, heavy, *args[2:5], middles, _HALF * half) for half in range(2)]
            totals = [_fold(builder, *lanes) for lanes in zip(*halves, strict=True)]
            numbers = totals[2 * FEW :] if heavy else _unpack(builder, totals[-1])
            for c in range(FEW):
                with builder.if_then(builder.icmp_signed("<", _int64(c), args[7])):
                    for f in range(2):
                        place = _int64(2 * c + f)
                        to.put(builder.fadd(to.get(place), totals[2 * c + f]), place)
                    number.put(builder.fadd(number.get(_int64(c)), numbers[c]), _int64(c))

        with builder.if_else(builder.icmp_signed(">", weights.last, _int64(0))) as (weighted, plain):
            with weighted:
                collect(weights)
            with plain:
                collect(None)
        return context.get_dummy_value()

    numbers = [types.int64] * 3
    return types.void(points, mass, *numbers, lines, types.int64, types.int64, sums, counts), generate


def _middle(builder, centers, line, rows, c):
    """Return vectors of the two coordinates of centroid c; infinite if there are fewer centroids."""
    real = builder.icmp_signed("<", _int64(c), rows)
    place = centers.at(builder.add(line, builder.select(real, _int64(c), _int64(0))), _int64(0))
    coordinates = [builder.select(real, centers.get(builder.add(place, _int64(f))), ir.Constant(_REAL, float("inf")))
            for f in range(2)]  # fmt: skip
    return [_broadcast(builder, value, _HALF) for value in coordinates]


def _half(builder, source, weights, first, count, coming, middles, begin):
    """Compute the sums of four lanes: points begin, ..., begin + 3, begin + 8, ... from `first` on."""
    start = [_ZERO] * 3 * FEW if weights else [_ZERO] * 2 * FEW + [_NONE]
    # Number of complete groups of four points.
    steps = builder.sdiv(builder.add(builder.sub(count, _int64(begin)), _int64(_HALF)), _int64(WIDTH))
    held = [cgutils.alloca_once(builder, vector.type) for vector in start]
    _keep(builder, start, held)

    def body(step, totals):
        done = builder.add(builder.mul(step, _int64(WIDTH)), _int64(begin))
        r = builder.add(first, done)
        source.fetch(source.at(builder.add(coming, done), _int64(0)))  # four points are one cache line
        place = source.at(r, _int64(0))
        low, high = source.load(place, _HALF), source.load(builder.add(place, _int64(_HALF)), _HALF)
        return _take(builder, low, high, weights.load(r, _HALF) if weights else None, middles, totals)

    with builder.if_then(builder.icmp_signed(">", steps, _int64(0))):
        _keep(builder, _loop(builder, steps, 1, start, body), held)
    done = builder.add(builder.mul(steps, _int64(WIDTH)), _int64(begin))
    left = builder.sub(count, done)
    more, fewer = builder.icmp_signed(">", left, _int64(0)), builder.icmp_signed("<", left, _int64(_HALF))
    with builder.if_then(builder.and_(more, fewer)):
        low, high, heavy = _rest(builder, source, weights, builder.add(first, done), left)
        _keep(builder, _take(builder, low, high, heavy, middles, [builder.load(place) for place in held]), held)
    return [builder.load(place) for place in held]


def _keep(builder, values, places):
    """Store values to stack variables."""
    for value, place in zip(values, places, strict=True):
        builder.store(value, place)


def _rest(builder, source, weights, first, count):
    """Return coordinates and weights of up to three points; missing ones are NaN and thus not nearest to a centroid."""
    coordinates, heavy = (cgutils.alloca_once(builder, ir.ArrayType(_REAL, size)) for size in (WIDTH, _HALF))
    builder.store(ir.Constant(coordinates.type.pointee, [float("nan")] * WIDTH), coordinates)
    builder.store(ir.Constant(heavy.type.pointee, [0.0] * _HALF), heavy)

    def copy(j, _):
        r = builder.add(first, j)
        for f in range(2):
            place = builder.add(builder.add(j, j), _int64(f))
            builder.store(source.get(source.at(r, _int64(f))), builder.gep(coordinates, [_int64(0), place]))
        if weights:
            builder.store(weights.get(r), builder.gep(heavy, [_int64(0), j]))
        return []

    _loop(builder, count, 1, [], copy)
    return *(_load(builder, coordinates, place) for place in (0, _HALF)), _load(builder, heavy, 0) if weights else None


def _load(builder, array, place):
    """Load four numbers of a stack array."""
    pointer = builder.gep(array, [_int64(0), _int64(place)])
    loaded = builder.load(builder.bitcast(pointer, _SOME.as_pointer()))
    loaded.align = 8
    return loaded


def _take(builder, low, high, heavy, middles, totals):
    """Add four points to the sums of their nearest centroids; lanes are in the order 0, 2, 1, 3."""
    x, y = (_shuffle(builder, low, high, lanes) for lanes in ((0, 4, 2, 6), (1, 5, 3, 7)))
    least, nearer = _FAR, []
    for u, v in middles:
        dx, dy = builder.fsub(x, u), builder.fsub(y, v)
        distance = builder.fadd(builder.fmul(dx, dx), builder.fmul(dy, dy))
        nearer.append(builder.fcmp_ordered("<", distance, least))
        least = builder.select(nearer[-1], distance, least)
    hits, later = [nearer[-1]], nearer[-1]
    # `nearer[c]`: nearer than all before c. The last centroid with this property is the nearest.
    for better in reversed(nearer[:-1]):
        hits.insert(0, builder.and_(better, builder.not_(later)))
        later = builder.or_(better, later)
    terms = [x, y]
    if heavy:
        heavy = _shuffle(builder, heavy, heavy, _ORDER)
        terms = [builder.fmul(heavy, x), builder.fmul(heavy, y)]
    added = [builder.select(hit, term, _ZERO) for hit in hits for term in terms]
    if heavy:
        added += [builder.select(hit, heavy, _ZERO) for hit in hits]
    new = [builder.fadd(total, term) for total, term in zip(totals, added, strict=False)]
    if heavy:
        return new
    code = _NONE
    for c, better in enumerate(nearer):
        code = builder.select(better, ir.Constant(_WHOLES, [1 << _BITS * c] * _HALF), code)
    return [*new, builder.add(totals[-1], code)]


def _fold(builder, low, high):
    """Sum all lanes: 4 to 7 are added to 0 to 3, then 2 and 3 to 0 and 1, then 1 to 0."""
    add = builder.add if low.type == _WHOLES else builder.fadd
    lanes = add(low, high)
    lanes = add(*(_shuffle(builder, lanes, lanes, part) for part in ((0, 2), (1, 3))))  # in the order 0, 2, 1, 3
    return add(*(builder.extract_element(lanes, ir.Constant(_INDEX, j)) for j in range(2)))


def _unpack(builder, code):
    """Unpack the four counts of an int64."""
    parts = [builder.lshr(code, _int64(_BITS * c)) for c in range(FEW)]
    return [builder.uitofp(builder.and_(part, _int64((1 << _BITS) - 1)), _REAL) for part in parts]
