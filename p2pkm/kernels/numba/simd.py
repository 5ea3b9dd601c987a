"""Eight numbers at a time: the few steps of the kernels that the compiler does not turn into vector operations itself.

Each function here is written once, in LLVM's own vectors of eight doubles, so that every processor does the same
operations in the same order, whatever the width of its registers. Reading and writing is not checked against the size
of an array: the callers keep to it. Points may be float32; all that is computed is float64.
"""

from itertools import product

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

WIDTH = 8
_REAL, _WHOLE, _INDEX = ir.DoubleType(), ir.IntType(64), ir.IntType(32)
_REALS, _WHOLES = ir.VectorType(_REAL, WIDTH), ir.VectorType(_WHOLE, WIDTH)


def _whole(number):
    return ir.Constant(_WHOLE, number)


def _same(kind, value):
    return ir.Constant(kind, [value] * WIDTH)


def _choose(builder, one, other, lanes):
    """Return those lanes of two vectors, end to end."""
    return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(_INDEX, len(lanes)), list(lanes)))


def _spread(builder, value, width=WIDTH):
    """Return a vector of one value."""
    empty = ir.Constant(ir.VectorType(value.type, width), ir.Undefined)
    return _choose(builder, builder.insert_element(empty, value, ir.Constant(_INDEX, 0)), empty, [0] * width)


class _Array:
    """A C-ordered array of the calling kernel, seen as one long row of numbers."""

    def __init__(self, context, builder, signature, args, number):
        kind = signature.args[number]
        array = context.make_array(kind)(context, builder, args[number])
        self._builder, self._data = builder, array.data
        self._single = kind.dtype == types.float32
        self.rows, self.last = (builder.extract_value(array.shape, place) for place in (0, kind.ndim - 1))

    def at(self, row, column):
        """Return the place of an entry."""
        return self._builder.add(self._builder.mul(row, self.last), column)

    def _vector(self, place, width):
        pointer = self._builder.gep(self._data, [place])
        kind = ir.VectorType(pointer.type.pointee, width)
        return self._builder.bitcast(pointer, kind.as_pointer())

    def fetch(self, place):
        """Ask for an entry to be brought from memory while something else is computed."""
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), _INDEX, _INDEX, _INDEX])
        ask = cgutils.get_or_insert_function(self._builder.module, kind, "llvm.prefetch.p0i8")
        hint = [ir.Constant(_INDEX, number) for number in (0, 3, 1)]  # to read, into the nearest cache, data
        self._builder.call(ask, [self._builder.bitcast(self._builder.gep(self._data, [place]), kind.args[0]), *hint])

    def load(self, place, width=WIDTH):
        """Return so many numbers from a place on."""
        loaded = self.raw(place, width)
        return self._builder.fpext(loaded, ir.VectorType(_REAL, width)) if self._single else loaded

    def raw(self, place, width=0):
        """Return so many numbers from a place on as they are; 0: one, and no vector."""
        loaded = self._builder.load(self._vector(place, width) if width else self._builder.gep(self._data, [place]))
        loaded.align = 4 if self._single else 8
        return loaded

    def store(self, values, place):
        """Write a vector of numbers from a place on."""
        self._builder.store(values, self._vector(place, values.type.count)).align = 4 if self._single else 8

    def put(self, value, place):
        """Write one number."""
        self._builder.store(value, self._builder.gep(self._data, [place]))

    def get(self, place):
        """Return one number."""
        loaded = self._builder.load(self._builder.gep(self._data, [place]))
        return self._builder.fpext(loaded, _REAL) if self._single else loaded


def _loop(builder, count, step, start, body):
    """Write ``for i in range(0, count, step): carried = body(i, carried)``, at least one turn; return the last."""
    before, head = builder.block, builder.append_basic_block("lanes")
    after = builder.append_basic_block("lanes.end")
    builder.branch(head)
    builder.position_at_end(head)
    place, carried = builder.phi(_WHOLE), [builder.phi(one.type) for one in start]
    new = body(place, carried)
    following = builder.add(place, _whole(step))
    for phi, first, next_one in zip((place, *carried), (_whole(0), *start), (following, *new), strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(next_one, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, count), head, after)
    builder.position_at_end(after)
    return new


def _fold(builder, lanes, merge=ir.IRBuilder.fadd):
    """Merge the lanes of a vector into one number: of eight lanes 4 to 7 with 0 to 3, and so on."""
    width = lanes.type.count
    while width > 1:
        width //= 2
        lanes = merge(builder, *(_choose(builder, lanes, lanes, range(i * width, (i + 1) * width)) for i in (0, 1)))
    return builder.extract_element(lanes, ir.Constant(_INDEX, 0))


def _nearer(builder, distances, number, least):
    """Return the lesser of two vectors of distances and whose they are; the earlier one if they are equal."""
    low, near = least
    better = builder.fcmp_ordered("<", distances, low)
    return [builder.select(better, distances, low), builder.select(better, number, near)]


_NOTHING = (_same(_REALS, float("inf")), _same(_WHOLES, -1))


@intrinsic
def turn_pairs(context, points, first, block, count):
    """``block[f, r] = points[first + r, f]`` for r < count and two features; count is a multiple of 8."""

    def generate(context, builder, signature, args):
        source, target = (_Array(context, builder, signature, args, number) for number in (0, 2))

        def body(r, _):
            place = source.at(builder.add(args[1], r), _whole(0))
            low, high = source.load(place), source.load(builder.add(place, _whole(WIDTH)))
            for f in range(2):
                target.store(_choose(builder, low, high, range(f, 2 * WIDTH, 2)), target.at(_whole(f), r))
            return []

        _loop(builder, args[3], WIDTH, [], body)
        return context.get_dummy_value()

    return types.void(points, types.int64, block, types.int64), generate


@intrinsic
def fetch(context, points, row):
    """Ask for the beginning of a row to be brought from memory while something else is computed."""

    def generate(context, builder, signature, args):
        source = _Array(context, builder, signature, args, 0)
        source.fetch(source.at(args[1], _whole(0)))
        return context.get_dummy_value()

    return types.void(points, types.int64), generate


@intrinsic
def turn_square(context, points, row, f, block, r):
    """``block[f + i, r + j] = points[row + j, f + i]`` for i, j < 8."""

    def generate(context, builder, signature, args):
        source, target = (_Array(context, builder, signature, args, number) for number in (0, 3))
        lines = [source.load(source.at(builder.add(args[1], _whole(j)), args[2])) for j in range(WIDTH)]
        _store_turned(builder, lines, target, args[2], args[4])
        return context.get_dummy_value()

    return types.void(points, types.int64, types.int64, block, types.int64), generate


@intrinsic
def add_points(context, points, first, count, labels, sums, counts):
    """``sums[labels[r]] += points[first + r]`` and ``counts[labels[r]] += 1`` for r < count; -1: to none."""

    def generate(context, builder, signature, args):
        source, names, to, number = (_Array(context, builder, signature, args, place) for place in (0, 3, 4, 5))

        def body(r, _):
            c = names.get(r)
            with builder.if_then(builder.icmp_signed(">=", c, _whole(0)), likely=True):
                place, start = to.at(c, _whole(0)), source.at(builder.add(args[1], r), _whole(0))
                number.put(builder.fadd(number.get(c), ir.Constant(_REAL, 1.0)), c)

                def add(f, width):
                    here = builder.add(place, f)
                    to.store(builder.fadd(to.load(here, width), source.load(builder.add(start, f), width)), here)

                _pieces(builder, to.last, add)
            return []

        with builder.if_then(builder.icmp_signed(">", args[2], _whole(0))):
            _loop(builder, args[2], 1, [], body)
        return context.get_dummy_value()

    return types.void(points, types.int64, types.int64, labels, sums, counts), generate


@intrinsic
def turn_rows(context, table, rows, r, f, block):
    """``block[f + i, r + j] = table[rows[r + j], f + i]`` for i, j < 8."""

    def generate(context, builder, signature, args):
        source, numbers, target = (_Array(context, builder, signature, args, number) for number in (0, 1, 4))
        places = [source.at(numbers.get(builder.add(args[2], _whole(j))), args[3]) for j in range(WIDTH)]
        _store_turned(builder, [source.load(place) for place in places], target, args[3], args[2])
        return context.get_dummy_value()

    return types.void(table, rows, types.int64, types.int64, block), generate


def _store_turned(builder, lines, target, row, column):
    """Write eight vectors as columns from a place on."""
    for half in (1, 2, 4):  # after each step the blocks of twice the size are turned
        low = [i + (WIDTH if i & half else 0) - (half if i & half else 0) for i in range(WIDTH)]
        high = [lane + half for lane in low]
        for j in (j for j in range(WIDTH) if not j & half):
            both = lines[j], lines[j + half]
            lines[j], lines[j + half] = (_choose(builder, *both, lanes) for lanes in (low, high))
    for i in range(WIDTH):
        target.store(lines[i], target.at(builder.add(row, _whole(i)), column))


def _measure_tile(builder, rows, numbers, last, columns, r):
    """Return vectors of the squared distances of some rows to the columns r to r + 7, summed in feature order.

    Where there is no row of a number up to `last`, the last one takes its place.
    """
    real = [builder.select(builder.icmp_signed("<", n, last), n, last) for n in numbers]
    starts = [rows.at(n, _whole(0)) for n in real]

    def body(f, sums):
        column = columns.load(columns.at(f, r))
        new = []
        for start, total in zip(starts, sums, strict=True):
            apart = builder.fsub(_spread(builder, rows.get(builder.add(start, f))), column)
            new.append(builder.fadd(total, builder.fmul(apart, apart)))
        return new

    return _loop(builder, rows.last, 1, [_same(_REALS, 0.0)] * len(numbers), body)


def _make_tile(height):
    """Return `tile` for so many rows."""

    @intrinsic
    def tile(context, rows, first, last, columns, r, distances, to):
        """``distances[to + i, r + j] = sum over f of (rows[first + i, f] - columns[f, r + j])**2`` for j < 8.

        The sums are in feature order; i is below the height. Where there is no row ``first + i`` up to `last`, the last
        one takes its place.
        """

        def generate(context, builder, signature, args):
            a, b, out = (_Array(context, builder, signature, args, number) for number in (0, 3, 5))
            numbers = [builder.add(args[1], _whole(i)) for i in range(height)]
            for i, total in enumerate(_measure_tile(builder, a, numbers, args[2], b, args[4])):
                out.store(total, out.at(builder.add(args[6], _whole(i)), args[4]))
            return context.get_dummy_value()

        return types.void(rows, types.int64, types.int64, columns, types.int64, distances, types.int64), generate

    return tile


four_rows, eight_rows = _make_tile(4), _make_tile(8)
_TALL = 4  # rows of a tile


@intrinsic
def nearest_rows(context, rows, count, columns, r, lowest, labels):
    """Write the nearest of the first `count` rows to ``columns[:, r + j]`` and its squared distance, for j < 8.

    The lowest one on ties; inf and -1 where every row is at infinity. The sums are in feature order, as in `tile`, but
    for four rows at a time no distance leaves the registers.
    """

    def generate(context, builder, signature, args):
        a, b, low, near = (_Array(context, builder, signature, args, number) for number in (0, 2, 4, 5))
        last = builder.sub(args[1], _whole(1))

        def tile(c, least):
            numbers = [builder.add(c, _whole(i)) for i in range(_TALL)]
            totals = _measure_tile(builder, a, numbers, last, b, args[3])
            for n, total in zip(numbers, totals, strict=True):  # what takes the place of another is not nearer
                least = _nearer(builder, total, _spread(builder, n), least)
            return least

        found = _loop(builder, args[1], _TALL, _NOTHING, tile)
        for target, values in zip((low, near), found, strict=True):
            target.store(values, args[3])
        return context.get_dummy_value()

    return types.void(rows, types.int64, columns, types.int64, lowest, labels), generate


def _make_reach(height):
    """Return `reach` for so many rows."""

    @intrinsic
    def reach(context, points, first, last, rows, c, distances):
        """``distances[j, c + i] = sum over f of (points[first + j, f] - rows[c + i, f])**2`` for j < 4.

        i is below the height. Eight sums side by side, feature f in lane f % 8; in the end lanes 4 to 7 are added to 0
        to 3, and so on. There are at least 8 features. Where there is no point ``first + j`` up to `last`, the last one
        takes its place.
        """

        def generate(context, builder, signature, args):
            a, b, out = (_Array(context, builder, signature, args, number) for number in (0, 3, 5))
            numbers = [builder.add(args[1], _whole(j)) for j in range(4)]
            real = [builder.select(builder.icmp_signed("<", n, args[2]), n, args[2]) for n in numbers]
            ones, columns = [a.at(n, _whole(0)) for n in real], [builder.add(args[4], _whole(i)) for i in range(height)]
            others = [b.at(column, _whole(0)) for column in columns]

            def add(total, x, y):
                apart = builder.fsub(x, y)
                return builder.fadd(total, builder.fmul(apart, apart))

            def body(f, sums):
                xs, ys = (
                    [part.load(builder.add(start, f)) for start in starts] for part, starts in ((a, ones), (b, others))
                )
                return [add(total, x, y) for total, (x, y) in zip(sums, product(xs, ys), strict=True)]

            done = builder.and_(a.last, _whole(-WIDTH))
            sums = _loop(builder, done, WIDTH, [_same(_REALS, 0.0)] * (4 * height), body)
            rest = [builder.alloca(_REALS) for _ in sums]
            for place, total in zip(rest, sums, strict=True):
                builder.store(total, place)
            left = builder.sub(a.last, done)

            def finish(lane, _):
                f = builder.add(done, lane)
                for place, (one, other) in zip(rest, product(ones, others), strict=True):
                    entry = builder.gep(builder.bitcast(place, _REAL.as_pointer()), [lane])
                    x, y = a.get(builder.add(one, f)), b.get(builder.add(other, f))
                    builder.store(add(builder.load(entry), x, y), entry)
                return []

            with builder.if_then(builder.icmp_signed(">", left, _whole(0))):
                _loop(builder, left, 1, [], finish)
            for place, (j, column) in zip(rest, product(range(4), columns), strict=True):
                out.put(_fold(builder, builder.load(place)), out.at(_whole(j), column))
            return context.get_dummy_value()

        return types.void(points, types.int64, types.int64, rows, types.int64, distances), generate

    return reach


reach_one, reach_two, reach_four = _make_reach(1), _make_reach(2), _make_reach(4)


@intrinsic
def least_of_columns(context, distances, rows, r, lowest, nearest):
    """Write the least of ``distances[:rows, r + j]`` and the first row that has it (inf, -1: none) for j < 8."""

    def generate(context, builder, signature, args):
        table, low, near = (_Array(context, builder, signature, args, number) for number in (0, 3, 4))

        def body(i, least):
            return _nearer(builder, table.load(table.at(i, args[2])), _spread(builder, i), least)

        found = _loop(builder, args[1], 1, _NOTHING, body)
        for target, values in zip((low, near), found, strict=True):
            target.store(values, args[2])
        return context.get_dummy_value()

    return types.void(distances, types.int64, types.int64, lowest, nearest), generate


@intrinsic
def least_of_row(context, distances, row, count):
    """Return the first place below `count`, a multiple of 8, of the least of a row of distances; -1: all are inf."""

    def generate(context, builder, signature, args):
        table = _Array(context, builder, signature, args, 0)
        start = table.at(args[1], _whole(0))

        def body(i, least):
            lanes = builder.add(_spread(builder, i), ir.Constant(_WHOLES, list(range(WIDTH))))
            return _nearer(builder, table.load(builder.add(start, i)), lanes, least)

        low, near = _loop(builder, args[2], WIDTH, _NOTHING, body)
        width = WIDTH
        while width > 1:  # of equal distances the lower place, which may be in either half
            width //= 2
            halves = [[_choose(builder, v, v, range(j * width, (j + 1) * width)) for j in (0, 1)] for v in (low, near)]
            (l0, l1), (n0, n1) = halves
            equal = builder.and_(builder.fcmp_ordered("==", l1, l0), builder.icmp_unsigned("<", n1, n0))
            second = builder.or_(builder.fcmp_ordered("<", l1, l0), equal)
            low, near = builder.select(second, l1, l0), builder.select(second, n1, n0)
        return builder.extract_element(near, ir.Constant(_INDEX, 0))

    return types.int64(distances, types.int64, types.int64), generate


@intrinsic
def sum_where(context, labels, label, block, count):
    """Return the sums of three rows of a block over the r < count, a multiple of 8, with ``labels[r] == label``.

    So for four labels from `label` on, one after the other. Eight sums side by side, one for each lane; in the end
    lanes 4 to 7 are added to 0 to 3, and so on.
    """

    def generate(context, builder, signature, args):
        names, values = (_Array(context, builder, signature, args, number) for number in (0, 2))
        wanted, zero = [_spread(builder, builder.add(args[1], _whole(c))) for c in range(4)], _same(_REALS, 0.0)

        def body(r, sums):
            found = names.load(r)
            rows = [values.load(values.at(_whole(j), r)) for j in range(3)]
            hits = [builder.icmp_signed("==", found, label) for label in wanted]
            terms = [builder.select(hit, x, zero) for hit in hits for x in rows]
            return [builder.fadd(total, term) for total, term in zip(sums, terms, strict=True)]

        totals = []
        for lanes in _loop(builder, args[3], WIDTH, [zero] * 12, body):
            total, width = lanes, WIDTH
            while width > 1:
                width //= 2
                halves = [_choose(builder, total, total, range(j * width, (j + 1) * width)) for j in (0, 1)]
                total = builder.fadd(*halves)
            totals.append(builder.extract_element(total, ir.Constant(_INDEX, 0)))
        return context.make_tuple(builder, signature.return_type, totals)

    return types.UniTuple(types.float64, 12)(labels, types.int64, block, types.int64), generate


@intrinsic
def add_row(context, sums, c, rows, r, factor):
    """``sums[c, f] += factor * rows[r, f]`` for every f."""

    def generate(context, builder, signature, args):
        target, source = (_Array(context, builder, signature, args, number) for number in (0, 2))
        to, start, factor = target.at(args[1], _whole(0)), source.at(args[3], _whole(0)), args[4]

        def add(f, width):
            place = builder.add(to, f)
            term = builder.fmul(_spread(builder, factor, width), source.load(builder.add(start, f), width))
            target.store(builder.fadd(target.load(place, width), term), place)

        _pieces(builder, target.last, add)
        return context.get_dummy_value()

    return types.void(sums, types.int64, rows, types.int64, types.float64), generate


def _pieces(builder, last, work):
    """Call ``work(f, width)`` for all numbers of a row: eight at a time, and what is left without a loop."""
    done = builder.and_(last, _whole(-WIDTH))
    with builder.if_then(builder.icmp_signed(">", done, _whole(0))):
        _loop(builder, done, WIDTH, [], lambda f, _: work(f, WIDTH) or [])
    for width in (4, 2, 1):
        with builder.if_then(builder.icmp_signed("!=", builder.and_(last, _whole(width)), _whole(0))):
            work(done, width)
        done = builder.add(done, builder.and_(last, _whole(width)))


@intrinsic
def copy_row(context, rows, i, to, j):
    """``to[j, f] = rows[i, f]`` for every f."""

    def generate(context, builder, signature, args):
        source, target = (_Array(context, builder, signature, args, number) for number in (0, 2))
        start, place = source.at(args[1], _whole(0)), target.at(args[3], _whole(0))
        _pieces(builder, target.last, lambda f, width: target.store(
            source.load(builder.add(start, f), width), builder.add(place, f)))  # fmt: skip
        return context.get_dummy_value()

    return types.void(rows, types.int64, to, types.int64), generate


@intrinsic
def add_agreed(context, sums, counts, rows, slots, weights, first, last, times, scaled):
    """Add what the neighbors at the links ``first <= e < last`` say, one after the other, `times` (1 or 2) times each.

    ``sums[0, f] += (weights[e] if scaled else 1) * rows[slots[e], f]`` for every f, ``counts[c] += weights[e]`` for
    every c. A sum stays in its register.
    """

    def generate(context, builder, signature, args):
        total, number, source, places, heavy = (
            _Array(context, builder, signature, args, place) for place in (0, 1, 2, 3, 4)
        )
        first, last, times, scaled = args[5:]
        size, twice = builder.sub(last, first), builder.icmp_signed(">", times, _whole(1))

        def add(held, term):
            once = builder.fadd(held, term)
            return builder.select(twice, builder.fadd(once, term), once)

        def add_rows(f, width):
            def body(e, held):
                link = builder.add(first, e)
                row = source.load(source.at(places.get(link), f), width)
                factor = builder.select(scaled, heavy.get(link), ir.Constant(_REAL, 1.0))
                return [add(held[0], builder.fmul(_spread(builder, factor, width), row))]

            total.store(_loop(builder, size, 1, [total.load(f, width)], body)[0], f)

        def add_weights(f, width):
            def body(e, held):
                return [add(held[0], _spread(builder, heavy.get(builder.add(first, e)), width))]

            number.store(_loop(builder, size, 1, [number.load(f, width)], body)[0], f)

        with builder.if_then(builder.icmp_signed(">", size, _whole(0))):
            _pieces(builder, total.last, add_rows)
            _pieces(builder, number.last, add_weights)
        return context.get_dummy_value()

    return types.void(
        sums, counts, rows, slots, weights, types.int64, types.int64, types.int64, types.boolean
    ), generate


def _make_gap(widen, merge):
    """Return a function of the gaps ``one[i, f] - other[j, f]``, f < count, a multiple of 8."""

    @intrinsic
    def gap(context, one, i, other, j, count):
        def generate(context, builder, signature, args):
            a, b = (_Array(context, builder, signature, args, number) for number in (0, 2))
            starts = a.at(args[1], _whole(0)), b.at(args[3], _whole(0))

            def body(f, held):
                here, there = (part.load(builder.add(start, f)) for part, start in zip((a, b), starts, strict=True))
                return [merge(builder, held[0], widen(builder, builder.fsub(here, there)))]

            return _fold(builder, _loop(builder, args[4], WIDTH, [_same(_REALS, 0.0)], body)[0], merge)

        return types.float64(one, types.int64, other, types.int64, types.int64), generate

    return gap


def _size(builder, apart):
    kind = ir.FunctionType(apart.type, [apart.type])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.fabs.v8f64"), [apart])


def _larger(builder, held, size):
    return builder.select(builder.fcmp_ordered(">", size, held), size, held)  # inf - inf is no gap


largest_gap = _make_gap(_size, _larger)
squared_gap = _make_gap(lambda builder, apart: builder.fmul(apart, apart), lambda builder, *both: builder.fadd(*both))
