"""Vector operations on eight doubles, for the steps of kernels that the compiler does not vectorize.

Functions are written in LLVM vectors of eight doubles, so every processor executes the same operations in the same
order, whatever the width of its registers. Array bounds are not checked; callers must respect them. Points may be
float32; all computations are in float64.
"""

from itertools import product

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

WIDTH = 8
_REAL, _WHOLE, _INDEX = ir.DoubleType(), ir.IntType(64), ir.IntType(32)
_REALS, _WHOLES = ir.VectorType(_REAL, WIDTH), ir.VectorType(_WHOLE, WIDTH)


def _int64(number):
    """Return an int64 constant."""
    return ir.Constant(_WHOLE, number)


def _constant(kind, value):
    """Return a vector constant with equal lanes."""
    return ir.Constant(kind, [value] * WIDTH)


def _shuffle(builder, first, second, lanes):
    """Select lanes of the concatenation of two vectors."""
    return builder.shuffle_vector(first, second, ir.Constant(ir.VectorType(_INDEX, len(lanes)), list(lanes)))


def _broadcast(builder, value, width=WIDTH):
    """Return a vector whose lanes have one value."""
    empty = ir.Constant(ir.VectorType(value.type, width), ir.Undefined)
    return _shuffle(builder, builder.insert_element(empty, value, ir.Constant(_INDEX, 0)), empty, [0] * width)


class _Array:
    """C-ordered array of the calling kernel, accessed by flat index.

    rows: length of the first axis; last: length of the last axis.
    """

    def __init__(self, context, builder, signature, args, number):
        kind = signature.args[number]
        array = context.make_array(kind)(context, builder, args[number])
        self._builder, self._data = builder, array.data
        self._single = kind.dtype == types.float32
        self.rows, self.last = (builder.extract_value(array.shape, place) for place in (0, kind.ndim - 1))

    def at(self, row, column):
        """Return the flat index of an entry."""
        return self._builder.add(self._builder.mul(row, self.last), column)

    def _vector(self, place, width):
        """Return a pointer to a vector."""
        pointer = self._builder.gep(self._data, [place])
        kind = ir.VectorType(pointer.type.pointee, width)
        return self._builder.bitcast(pointer, kind.as_pointer())

    def fetch(self, place):
        """Prefetch an entry."""
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), _INDEX, _INDEX, _INDEX])
        ask = cgutils.get_or_insert_function(self._builder.module, kind, "llvm.prefetch.p0i8")
        hint = [ir.Constant(_INDEX, number) for number in (0, 3, 1)]  # read access, nearest cache, data
        self._builder.call(ask, [self._builder.bitcast(self._builder.gep(self._data, [place]), kind.args[0]), *hint])

    def load(self, place, width=WIDTH):
        """Load a vector, converted to float64."""
        loaded = self.raw(place, width)
        return self._builder.fpext(loaded, ir.VectorType(_REAL, width)) if self._single else loaded

    def raw(self, place, width=0):
        """Load a vector without conversion; width 0: a scalar."""
        loaded = self._builder.load(self._vector(place, width) if width else self._builder.gep(self._data, [place]))
        loaded.align = 4 if self._single else 8
        return loaded

    def store(self, values, place):
        """Store a vector."""
        self._builder.store(values, self._vector(place, values.type.count)).align = 4 if self._single else 8

    def put(self, value, place):
        """Store a scalar."""
        self._builder.store(value, self._builder.gep(self._data, [place]))

    def get(self, place):
        """Load a scalar, converted to float64."""
        loaded = self._builder.load(self._builder.gep(self._data, [place]))
        return self._builder.fpext(loaded, _REAL) if self._single else loaded


def _loop(builder, count, step, start, body):
    """Emit ``for i in range(0, count, step): carried = body(i, carried)``, at least one iteration."""
    before, head = builder.block, builder.append_basic_block("lanes")
    after = builder.append_basic_block("lanes.end")
    builder.branch(head)
    builder.position_at_end(head)
    place, carried = builder.phi(_WHOLE), [builder.phi(value.type) for value in start]
    new = body(place, carried)
    following = builder.add(place, _int64(step))
    for phi, initial, updated in zip((place, *carried), (_int64(0), *start), (following, *new), strict=True):
        phi.add_incoming(initial, before)
        phi.add_incoming(updated, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, count), head, after)
    builder.position_at_end(after)
    return new


def _fold(builder, lanes, merge=ir.IRBuilder.fadd):
    """Reduce the lanes of a vector: lanes 4 to 7 into 0 to 3, then 2 and 3 into 0 and 1, then 1 into 0."""
    width = lanes.type.count
    while width > 1:
        width //= 2
        lanes = merge(builder, *(_shuffle(builder, lanes, lanes, range(i * width, (i + 1) * width)) for i in (0, 1)))
    return builder.extract_element(lanes, ir.Constant(_INDEX, 0))


def _nearer(builder, distances, number, least):
    """Update lane-wise minima and their numbers with new distances; on ties, the earlier number is kept."""
    low, nearest = least
    better = builder.fcmp_ordered("<", distances, low)
    return [builder.select(better, distances, low), builder.select(better, number, nearest)]


_NOTHING = (_constant(_REALS, float("inf")), _constant(_WHOLES, -1))


@intrinsic
def transpose_pairs(context, points, first, block, count):
    """Set ``block[f, r] = points[first + r, f]`` for r < count and two features; count is a multiple of 8."""

    def generate(context, builder, signature, args):
        source, target = (_Array(context, builder, signature, args, number) for number in (0, 2))

        def body(r, _):
            place = source.at(builder.add(args[1], r), _int64(0))
            low, high = source.load(place), source.load(builder.add(place, _int64(WIDTH)))
            for f in range(2):
                target.store(_shuffle(builder, low, high, range(f, 2 * WIDTH, 2)), target.at(_int64(f), r))
            return []

        _loop(builder, args[3], WIDTH, [], body)
        return context.get_dummy_value()

    return types.void(points, types.int64, block, types.int64), generate


@intrinsic
def fetch(context, points, row):
    """Prefetch the beginning of a row, or an entry of a one-dimensional array."""

    def generate(context, builder, signature, args):
        source = _Array(context, builder, signature, args, 0)
        source.fetch(args[1] if points.ndim == 1 else source.at(args[1], _int64(0)))
        return context.get_dummy_value()

    return types.void(points, types.int64), generate


@intrinsic
def transpose_square(context, points, row, f, block, r):
    """Set ``block[f + i, r + j] = points[row + j, f + i]`` for i, j < 8."""

    def generate(context, builder, signature, args):
        source, target = (_Array(context, builder, signature, args, number) for number in (0, 3))
        lines = [source.load(source.at(builder.add(args[1], _int64(j)), args[2])) for j in range(WIDTH)]
        _store_transposed(builder, lines, target, args[2], args[4])
        return context.get_dummy_value()

    return types.void(points, types.int64, types.int64, block, types.int64), generate


@intrinsic
def add_points(context, points, first, count, labels, sums, counts):
    """Add ``points[first + r]`` to ``sums[labels[r]]`` and 1 to ``counts[labels[r]]`` for r < count; label -1: skip."""

    def generate(context, builder, signature, args):
        source, names, to, number = (_Array(context, builder, signature, args, place) for place in (0, 3, 4, 5))

        def body(r, _):
            c = names.get(r)
            with builder.if_then(builder.icmp_signed(">=", c, _int64(0)), likely=True):
                place, start = to.at(c, _int64(0)), source.at(builder.add(args[1], r), _int64(0))
                number.put(builder.fadd(number.get(c), ir.Constant(_REAL, 1.0)), c)

                def add(f, width):
                    entry = builder.add(place, f)
                    to.store(builder.fadd(to.load(entry, width), source.load(builder.add(start, f), width)), entry)

                _pieces(builder, to.last, add)
            return []

        with builder.if_then(builder.icmp_signed(">", args[2], _int64(0))):
            _loop(builder, args[2], 1, [], body)
        return context.get_dummy_value()

    return types.void(points, types.int64, types.int64, labels, sums, counts), generate


@intrinsic
def transpose_rows(context, table, rows, r, f, block):
    """Set ``block[f + i, r + j] = table[rows[r + j], f + i]`` for i, j < 8."""

    def generate(context, builder, signature, args):
        source, numbers, target = (_Array(context, builder, signature, args, number) for number in (0, 1, 4))
        places = [source.at(numbers.get(builder.add(args[2], _int64(j))), args[3]) for j in range(WIDTH)]
        _store_transposed(builder, [source.load(place) for place in places], target, args[3], args[2])
        return context.get_dummy_value()

    return types.void(table, rows, types.int64, types.int64, block), generate


def _store_transposed(builder, lines, target, row, column):
    """Store eight vectors as columns of an 8 x 8 block."""
    # After each step, blocks of twice the size are transposed.
    for half in (1, 2, 4):
        low = [i + (WIDTH if i & half else 0) - (half if i & half else 0) for i in range(WIDTH)]
        high = [lane + half for lane in low]
        for j in (j for j in range(WIDTH) if not j & half):
            pair = lines[j], lines[j + half]
            lines[j], lines[j + half] = (_shuffle(builder, *pair, lanes) for lanes in (low, high))
    for i in range(WIDTH):
        target.store(lines[i], target.at(builder.add(row, _int64(i)), column))


def _measure_tile(builder, rows, numbers, last, columns, r):
    """Compute vectors of the squared distances of rows to the columns r to r + 7, summed in feature order.

    Row numbers above `last` are replaced by `last`.
    """
    clipped = [builder.select(builder.icmp_signed("<", n, last), n, last) for n in numbers]
    starts = [rows.at(n, _int64(0)) for n in clipped]

    def body(f, sums):
        column = columns.load(columns.at(f, r))
        new = []
        for start, total in zip(starts, sums, strict=True):
            difference = builder.fsub(_broadcast(builder, rows.get(builder.add(start, f))), column)
            new.append(builder.fadd(total, builder.fmul(difference, difference)))
        return new

    return _loop(builder, rows.last, 1, [_constant(_REALS, 0.0)] * len(numbers), body)


def _make_tile(height):
    """Create `tile` for a number of rows."""

    @intrinsic
    def tile(context, rows, first, last, columns, r, distances, to):
        """Set ``distances[to + i, r + j] = sum over f of (rows[first + i, f] - columns[f, r + j])**2`` for j < 8.

        For i < height; summed in feature order. Row numbers above `last` are replaced by `last`.
        """

        def generate(context, builder, signature, args):
            a, b, out = (_Array(context, builder, signature, args, number) for number in (0, 3, 5))
            numbers = [builder.add(args[1], _int64(i)) for i in range(height)]
            for i, total in enumerate(_measure_tile(builder, a, numbers, args[2], b, args[4])):
                out.store(total, out.at(builder.add(args[6], _int64(i)), args[4]))
            return context.get_dummy_value()

        return types.void(rows, types.int64, types.int64, columns, types.int64, distances, types.int64), generate

    return tile


four_rows, eight_rows = _make_tile(4), _make_tile(8)
# Rows of a tile.
_TILE_ROWS = 4


@intrinsic
def nearest_rows(context, rows, count, columns, r, lowest, labels):
    """Find the nearest of the first `count` rows to ``columns[:, r + j]`` and its squared distance, for j < 8.

    Lowest index on ties; inf and -1 if all rows are absent. Sums are in feature order, as in `tile`; the distances of
    four rows stay in registers.
    """

    def generate(context, builder, signature, args):
        a, b, low, nearest = (_Array(context, builder, signature, args, number) for number in (0, 2, 4, 5))
        last = builder.sub(args[1], _int64(1))

        def tile(c, least):
            numbers = [builder.add(c, _int64(i)) for i in range(_TILE_ROWS)]
            totals = _measure_tile(builder, a, numbers, last, b, args[3])
            # A repeated last row is not nearer than itself.
            for n, total in zip(numbers, totals, strict=True):
                least = _nearer(builder, total, _broadcast(builder, n), least)
            return least

        minima = _loop(builder, args[1], _TILE_ROWS, _NOTHING, tile)
        for target, values in zip((low, nearest), minima, strict=True):
            target.store(values, args[3])
        return context.get_dummy_value()

    return types.void(rows, types.int64, columns, types.int64, lowest, labels), generate


def _make_distances(height):
    """Create `reach` for a number of rows."""

    @intrinsic
    def reach(context, points, first, last, rows, c, distances):
        """Set ``distances[j, c + i] = sum over f of (points[first + j, f] - rows[c + i, f])**2`` for j < 4.

        For i < height, and at least 8 features. Eight partial sums, feature f in lane f % 8, which `_fold` adds. Point
        numbers above `last` are replaced by `last`.
        """

        def generate(context, builder, signature, args):
            a, b, out = (_Array(context, builder, signature, args, number) for number in (0, 3, 5))
            numbers = [builder.add(args[1], _int64(j)) for j in range(4)]
            clipped = [builder.select(builder.icmp_signed("<", n, args[2]), n, args[2]) for n in numbers]
            point_starts = [a.at(n, _int64(0)) for n in clipped]
            columns = [builder.add(args[4], _int64(i)) for i in range(height)]
            row_starts = [b.at(column, _int64(0)) for column in columns]

            def add(total, x, y):
                difference = builder.fsub(x, y)
                return builder.fadd(total, builder.fmul(difference, difference))

            def body(f, sums):
                xs = [a.load(builder.add(start, f)) for start in point_starts]
                ys = [b.load(builder.add(start, f)) for start in row_starts]
                return [add(total, x, y) for total, (x, y) in zip(sums, product(xs, ys), strict=True)]

            done = builder.and_(a.last, _int64(-WIDTH))
            sums = _loop(builder, done, WIDTH, [_constant(_REALS, 0.0)] * (4 * height), body)
            rest = [builder.alloca(_REALS) for _ in sums]
            for place, total in zip(rest, sums, strict=True):
                builder.store(total, place)
            left = builder.sub(a.last, done)

            def finish(lane, _):
                f = builder.add(done, lane)
                for place, (point, row) in zip(rest, product(point_starts, row_starts), strict=True):
                    entry = builder.gep(builder.bitcast(place, _REAL.as_pointer()), [lane])
                    x, y = a.get(builder.add(point, f)), b.get(builder.add(row, f))
                    builder.store(add(builder.load(entry), x, y), entry)
                return []

            with builder.if_then(builder.icmp_signed(">", left, _int64(0))):
                _loop(builder, left, 1, [], finish)
            for place, (j, column) in zip(rest, product(range(4), columns), strict=True):
                out.put(_fold(builder, builder.load(place)), out.at(_int64(j), column))
            return context.get_dummy_value()

        return types.void(points, types.int64, types.int64, rows, types.int64, distances), generate

    return reach


distances_to_one, distances_to_two, distances_to_four = _make_distances(1), _make_distances(2), _make_distances(4)


@intrinsic
def least_of_columns(context, distances, rows, r, lowest, nearest):
    """Find the minimum of ``distances[:rows, r + j]`` and its first row for j < 8; inf and -1: none."""

    def generate(context, builder, signature, args):
        table, low, nearest = (_Array(context, builder, signature, args, number) for number in (0, 3, 4))

        def body(i, least):
            return _nearer(builder, table.load(table.at(i, args[2])), _broadcast(builder, i), least)

        minima = _loop(builder, args[1], 1, _NOTHING, body)
        for target, values in zip((low, nearest), minima, strict=True):
            target.store(values, args[2])
        return context.get_dummy_value()

    return types.void(distances, types.int64, types.int64, lowest, nearest), generate


@intrinsic
def least_of_row(context, distances, row, count):
    """Find the first index below `count`, a multiple of 8, of the minimum of a row of distances; -1: all are inf."""

    def generate(context, builder, signature, args):
        table = _Array(context, builder, signature, args, 0)
        start = table.at(args[1], _int64(0))

        def body(i, least):
            lanes = builder.add(_broadcast(builder, i), ir.Constant(_WHOLES, list(range(WIDTH))))
            return _nearer(builder, table.load(builder.add(start, i)), lanes, least)

        low, nearest = _loop(builder, args[2], WIDTH, _NOTHING, body)
        width = WIDTH
        # On ties, the lower index wins; it may be in either half.
        while width > 1:
            width //= 2
            halves = [
                [_shuffle(builder, v, v, range(j * width, (j + 1) * width)) for j in (0, 1)] for v in (low, nearest)
            ]
            (l0, l1), (n0, n1) = halves
            equal = builder.and_(builder.fcmp_ordered("==", l1, l0), builder.icmp_unsigned("<", n1, n0))
            second = builder.or_(builder.fcmp_ordered("<", l1, l0), equal)
            low, nearest = builder.select(second, l1, l0), builder.select(second, n1, n0)
        return builder.extract_element(nearest, ir.Constant(_INDEX, 0))

    return types.int64(distances, types.int64, types.int64), generate


@intrinsic
def sum_where(context, labels, label, block, count):
    """Sum three rows of a block over all r < count (a multiple of 8) with ``labels[r] == label``.

    For the four labels label, ..., label + 3: 12 sums. Each has eight partial sums, one per lane, which are added in
    the order of `_fold`.
    """

    def generate(context, builder, signature, args):
        names, values = (_Array(context, builder, signature, args, number) for number in (0, 2))
        targets = [_broadcast(builder, builder.add(args[1], _int64(c))) for c in range(4)]
        zero = _constant(_REALS, 0.0)

        def body(r, sums):
            loaded = names.load(r)
            rows = [values.load(values.at(_int64(j), r)) for j in range(3)]
            hits = [builder.icmp_signed("==", loaded, label) for label in targets]
            terms = [builder.select(hit, x, zero) for hit in hits for x in rows]
            return [builder.fadd(total, term) for total, term in zip(sums, terms, strict=True)]

        totals = []
        for lanes in _loop(builder, args[3], WIDTH, [zero] * 12, body):
            total, width = lanes, WIDTH
            while width > 1:
                width //= 2
                halves = [_shuffle(builder, total, total, range(j * width, (j + 1) * width)) for j in (0, 1)]
                total = builder.fadd(*halves)
            totals.append(builder.extract_element(total, ir.Constant(_INDEX, 0)))
        return context.make_tuple(builder, signature.return_type, totals)

    return types.UniTuple(types.float64, 12)(labels, types.int64, block, types.int64), generate


@intrinsic
def add_row(context, sums, c, rows, r, factor):
    """Add ``factor * rows[r, f]`` to ``sums[c, f]`` for every f."""

    def generate(context, builder, signature, args):
        target, source = (_Array(context, builder, signature, args, number) for number in (0, 2))
        to, start, factor = target.at(args[1], _int64(0)), source.at(args[3], _int64(0)), args[4]

        def add(f, width):
            place = builder.add(to, f)
            term = builder.fmul(_broadcast(builder, factor, width), source.load(builder.add(start, f), width))
            target.store(builder.fadd(target.load(place, width), term), place)

        _pieces(builder, target.last, add)
        return context.get_dummy_value()

    return types.void(sums, types.int64, rows, types.int64, types.float64), generate


def _pieces(builder, last, work):
    """Emit ``work(f, width)`` for all numbers of a row: a loop over eight at a time, then 4, 2 and 1."""
    done = builder.and_(last, _int64(-WIDTH))
    with builder.if_then(builder.icmp_signed(">", done, _int64(0))):
        _loop(builder, done, WIDTH, [], lambda f, _: work(f, WIDTH) or [])
    for width in (4, 2, 1):
        with builder.if_then(builder.icmp_signed("!=", builder.and_(last, _int64(width)), _int64(0))):
            work(done, width)
        done = builder.add(done, builder.and_(last, _int64(width)))


@intrinsic
def copy_row(context, rows, i, to, j):
    """Set ``to[j, f] = rows[i, f]`` for every f."""

    def generate(context, builder, signature, args):
        source, target = (_Array(context, builder, signature, args, number) for number in (0, 2))
        start, place = source.at(args[1], _int64(0)), target.at(args[3], _int64(0))
        _pieces(builder, target.last, lambda f, width: target.store(
            source.load(builder.add(start, f), width), builder.add(place, f)))  # fmt: skip
        return context.get_dummy_value()

    return types.void(rows, types.int64, to, types.int64), generate


@intrinsic
def add_agreed(context, sums, counts, rows, slots, weights, first, last, times, scaled):
    """Add the tables of the neighbors at links ``first <= e < last`` in order, `times` (1 or 2) times each.

    ``sums[0, f] += (weights[e] if scaled else 1) * rows[slots[e], f]`` for every f, ``counts[c] += weights[e]`` for
    every c. Sums stay in registers.
    """

    def generate(context, builder, signature, args):
        total, number, source, places, heavy = (
            _Array(context, builder, signature, args, place) for place in (0, 1, 2, 3, 4)
        )
        first, last, times, scaled = args[5:]
        size, twice = builder.sub(last, first), builder.icmp_signed(">", times, _int64(1))

        def add(held, term):
            once = builder.fadd(held, term)
            return builder.select(twice, builder.fadd(once, term), once)

        def add_rows(f, width):
            def body(e, held):
                link = builder.add(first, e)
                row = source.load(source.at(places.get(link), f), width)
                factor = builder.select(scaled, heavy.get(link), ir.Constant(_REAL, 1.0))
                return [add(held[0], builder.fmul(_broadcast(builder, factor, width), row))]

            total.store(_loop(builder, size, 1, [total.load(f, width)], body)[0], f)

        def add_weights(f, width):
            def body(e, held):
                return [add(held[0], _broadcast(builder, heavy.get(builder.add(first, e)), width))]

            number.store(_loop(builder, size, 1, [number.load(f, width)], body)[0], f)

        with builder.if_then(builder.icmp_signed(">", size, _int64(0))):
            _pieces(builder, total.last, add_rows)
            _pieces(builder, number.last, add_weights)
        return context.get_dummy_value()

    return types.void(
        sums, counts, rows, slots, weights, types.int64, types.int64, types.int64, types.boolean
    ), generate


def _make_gap(widen, merge):
    """Create a reduction of the differences ``first[i, f] - second[j, f]``, f < count, a multiple of 8."""

    @intrinsic
    def gap(context, first, i, second, j, count):
        def generate(context, builder, signature, args):
            a, b = (_Array(context, builder, signature, args, number) for number in (0, 2))
            starts = a.at(args[1], _int64(0)), b.at(args[3], _int64(0))

            def body(f, held):
                x, y = (part.load(builder.add(start, f)) for part, start in zip((a, b), starts, strict=True))
                return [merge(builder, held[0], widen(builder, builder.fsub(x, y)))]

            return _fold(builder, _loop(builder, args[4], WIDTH, [_constant(_REALS, 0.0)], body)[0], merge)

        return types.float64(first, types.int64, second, types.int64, types.int64), generate

    return gap


def _size(builder, difference):
    """Emit the absolute values of a vector."""
    kind = ir.FunctionType(difference.type, [difference.type])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.fabs.v8f64"), [difference])


def _larger(builder, held, size):
    """Emit the maximum; NaN (inf - inf, of absent rows) is ignored."""
    return builder.select(builder.fcmp_ordered(">", size, held), size, held)


largest_gap = _make_gap(_size, _larger)
squared_gap = _make_gap(
    lambda builder, difference: builder.fmul(difference, difference), lambda builder, *terms: builder.fadd(*terms)
)
