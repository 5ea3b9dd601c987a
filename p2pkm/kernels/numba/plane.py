"""Points of the plane, eight at a time: the nearest of up to four centroids and the sums, all in registers.

Eight sums go side by side as in `simd.sum_where`, but lanes 0 to 3 first and then lanes 4 to 7, four points at a time:
all sums of four lanes fit into the registers of most processors, of eight they do not. Nothing is written in between,
neither coordinates nor labels, so that each number of a point is read once. The bits are those of the longer way.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from p2pkm.kernels.numba.simd import _INDEX, _REAL, _WHOLE, WIDTH, _Array, _choose, _loop, _spread, _whole

FEW = 4  # centroids
_HALF = WIDTH // 2
_SOME, _WHOLES = ir.VectorType(_REAL, _HALF), ir.VectorType(_WHOLE, _HALF)
_ZERO, _FAR, _NONE = (
    ir.Constant(kind, [value] * _HALF) for kind, value in ((_SOME, 0.0), (_SOME, float("inf")), (_WHOLES, 0))
)
_BITS = 16  # of a count of unweighted points; four stand in one number, and a block has fewer points
_ORDER = (0, 2, 1, 3)  # of four points whose coordinates, end to end, were parted without crossing halves of a register


@intrinsic
def sum_nearest(context, points, mass, first, count, coming, lines, line, rows, sums, counts):
    """Add ``points[first : first + count]`` to the sum and the count of the nearest of ``lines[line : line + rows]``.

    The lowest one on ties; none if all are at infinity. Two features, up to four lines and 128 points. mass:
    float64[m], or empty if every point weighs 1. coming: the first of as many points that are brought from memory
    meanwhile, a line of the cache for each one that is read; there may be fewer.
    """

    def generate(context, builder, signature, args):
        source, weights, centers, to, number = (
            _Array(context, builder, signature, args, place) for place in (0, 1, 5, 8, 9)
        )
        middles = [_middle(builder, centers, args[6], args[7], c) for c in range(FEW)]

        def collect(heavy):
            halves = [_half(builder, source, heavy, *args[2:5], middles, _HALF * half) for half in range(2)]
            found = [_fold(builder, *both) for both in zip(*halves, strict=True)]
            numbers = found[2 * FEW :] if heavy else _unpack(builder, found[-1])
            for c in range(FEW):
                with builder.if_then(builder.icmp_signed("<", _whole(c), args[7])):
                    for f in range(2):
                        place = _whole(2 * c + f)
                        to.put(builder.fadd(to.get(place), found[2 * c + f]), place)
                    number.put(builder.fadd(number.get(_whole(c)), numbers[c]), _whole(c))

        with builder.if_else(builder.icmp_signed(">", weights.last, _whole(0))) as (weighted, plain):
            with weighted:
                collect(weights)
            with plain:
                collect(None)
        return context.get_dummy_value()

    numbers = [types.int64] * 3
    return types.void(points, mass, *numbers, lines, types.int64, types.int64, sums, counts), generate


def _middle(builder, centers, line, rows, c):
    """Return both coordinates of a centroid, four times each; at infinity if there are not so many."""
    real = builder.icmp_signed("<", _whole(c), rows)
    place = centers.at(builder.add(line, builder.select(real, _whole(c), _whole(0))), _whole(0))
    both = [builder.select(real, centers.get(builder.add(place, _whole(f))), ir.Constant(_REAL, float("inf")))
            for f in range(2)]  # fmt: skip
    return [_spread(builder, value, _HALF) for value in both]


def _half(builder, source, weights, first, count, coming, middles, begin):
    """Return the sums of four lanes: of the points begin, ..., begin + 3, begin + 8, ... from `first` on."""
    start = [_ZERO] * 3 * FEW if weights else [_ZERO] * 2 * FEW + [_NONE]
    steps = builder.sdiv(builder.add(builder.sub(count, _whole(begin)), _whole(_HALF)), _whole(WIDTH))  # whole fours
    held = [cgutils.alloca_once(builder, one.type) for one in start]
    _keep(builder, start, held)

    def body(step, totals):
        done = builder.add(builder.mul(step, _whole(WIDTH)), _whole(begin))
        r = builder.add(first, done)
        source.fetch(source.at(builder.add(coming, done), _whole(0)))  # four points are a line of a cache
        place = source.at(r, _whole(0))
        low, high = source.load(place, _HALF), source.load(builder.add(place, _whole(_HALF)), _HALF)
        return _take(builder, low, high, weights.load(r, _HALF) if weights else None, middles, totals)

    with builder.if_then(builder.icmp_signed(">", steps, _whole(0))):
        _keep(builder, _loop(builder, steps, 1, start, body), held)
    done = builder.add(builder.mul(steps, _whole(WIDTH)), _whole(begin))
    left = builder.sub(count, done)
    more, fewer = builder.icmp_signed(">", left, _whole(0)), builder.icmp_signed("<", left, _whole(_HALF))
    with builder.if_then(builder.and_(more, fewer)):
        low, high, heavy = _rest(builder, source, weights, builder.add(first, done), left)
        _keep(builder, _take(builder, low, high, heavy, middles, [builder.load(place) for place in held]), held)
    return [builder.load(place) for place in held]


def _keep(builder, values, places):
    for value, place in zip(values, places, strict=True):
        builder.store(value, place)


def _rest(builder, source, weights, first, count):
    """Return the coordinates of up to three points and their weights; what is nowhere is nearest to no centroid."""
    both, heavy = (cgutils.alloca_once(builder, ir.ArrayType(_REAL, size)) for size in (WIDTH, _HALF))
    builder.store(ir.Constant(both.type.pointee, [float("nan")] * WIDTH), both)
    builder.store(ir.Constant(heavy.type.pointee, [0.0] * _HALF), heavy)

    def copy(j, _):
        r = builder.add(first, j)
        for f in range(2):
            place = builder.add(builder.add(j, j), _whole(f))
            builder.store(source.get(source.at(r, _whole(f))), builder.gep(both, [_whole(0), place]))
        if weights:
            builder.store(weights.get(r), builder.gep(heavy, [_whole(0), j]))
        return []

    _loop(builder, count, 1, [], copy)
    return *(_load(builder, both, place) for place in (0, _HALF)), _load(builder, heavy, 0) if weights else None


def _load(builder, array, place):
    pointer = builder.gep(array, [_whole(0), _whole(place)])
    loaded = builder.load(builder.bitcast(pointer, _SOME.as_pointer()))
    loaded.align = 8
    return loaded


def _take(builder, low, high, heavy, middles, totals):
    """Return the sums with four points added, each to that of its nearest centroid; lanes in the order 0, 2, 1, 3."""
    x, y = (_choose(builder, low, high, lanes) for lanes in ((0, 4, 2, 6), (1, 5, 3, 7)))
    least, nearer = _FAR, []
    for u, v in middles:
        one, other = builder.fsub(x, u), builder.fsub(y, v)
        distance = builder.fadd(builder.fmul(one, one), builder.fmul(other, other))
        nearer.append(builder.fcmp_ordered("<", distance, least))
        least = builder.select(nearer[-1], distance, least)
    hits, later = [nearer[-1]], nearer[-1]
    for better in reversed(nearer[:-1]):  # than all before; the last of these is the nearest
        hits.insert(0, builder.and_(better, builder.not_(later)))
        later = builder.or_(better, later)
    terms = [x, y]
    if heavy:
        heavy = _choose(builder, heavy, heavy, _ORDER)
        terms = [builder.fmul(heavy, x), builder.fmul(heavy, y)]
    added = [builder.select(hit, term, _ZERO) for hit in hits for term in terms]
    if heavy:
        added += [builder.select(hit, heavy, _ZERO) for hit in hits]
    new = [builder.fadd(total, one) for total, one in zip(totals, added, strict=False)]
    if heavy:
        return new
    code = _NONE
    for c, better in enumerate(nearer):
        code = builder.select(better, ir.Constant(_WHOLES, [1 << _BITS * c] * _HALF), code)
    return [*new, builder.add(totals[-1], code)]


def _fold(builder, low, high):
    """Return the sum of all lanes: 4 to 7 are added to 0 to 3, then 2 and 3 to 0 and 1, then 1 to 0."""
    add = builder.add if low.type == _WHOLES else builder.fadd
    lanes = add(low, high)
    lanes = add(*(_choose(builder, lanes, lanes, part) for part in ((0, 2), (1, 3))))  # in the order 0, 2, 1, 3
    return add(*(builder.extract_element(lanes, ir.Constant(_INDEX, j)) for j in range(2)))


def _unpack(builder, code):
    """Return the four counts of a number."""
    parts = [builder.lshr(code, _whole(_BITS * c)) for c in range(FEW)]
    return [builder.uitofp(builder.and_(part, _whole((1 << _BITS) - 1)), _REAL) for part in parts]
