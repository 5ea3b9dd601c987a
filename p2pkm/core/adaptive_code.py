"""Adaptive arithmetic code for integers: code lengths by formula, and the code itself.

An integer is encoded as binary decisions, each in a context. Both ends estimate the probability of a decision from
the earlier ones of the same context: after a times no and b times yes, the probability of yes is
``(b + 1/2) / (a + b + 1)`` [1]_.
If the product of all probabilities is P, the message has ``ceil(-log2 P) + 1`` bits. P does not depend on the order of
the decisions of a context, so a run computes lengths by formula and encodes nothing. `Coder` proves that messages of
these lengths can be decoded.

* Integer below 2^w (such as a coordinate in a box): w bits from the top; the context is the bits above.
* Integer without bound: decisions "has more than 0, 1, 2, ... bits", each with a separate context; then the bits below
  the leading one and the sign, one bit each.
* Unordered rows: for one column, the binary tree of its bits; at each node, the number of integers whose next bit is 1.
  This saves log2 of the number of orders.

.. [1] R. E. Krichevsky, V. K. Trofimov, "The performance of universal encoding", IEEE Transactions on Information
   Theory 27, 1981.
"""

from collections import defaultdict
from collections.abc import Hashable
from fractions import Fraction
from functools import cache
from math import comb

import numpy as np

from p2pkm.core.batch import Floats, Integers

# Possible bit lengths of an integer without bound: 0 to 63.
LENGTHS = 64
# Pairs of a column and a tree node that int64 can number.
_MAX_PAIRS = 1 << 62
# Bits added for rounding errors of logarithms.
SLACK = 1e-6


def log_factorials(most: int) -> tuple[Floats, Floats]:
    """Compute log2 of the products of the first m terms of 1, 2, 3, ... and of 1/2, 3/2, ..., for m = 0 to `most`."""
    return _log_factorials(max(most, 255).bit_length())


@cache
def _log_factorials(length: int) -> tuple[Floats, Floats]:
    """Compute the tables of `log_factorials` for m below ``2^length``; few sizes, so that they are cached."""
    numbers = np.arange(1, 1 << length)
    factorial, half = (np.append(0.0, np.cumsum(np.log2(numbers - shift))) for shift in (0.0, 0.5))
    return factorial, half


def whole_bits(bits: Floats) -> Integers:
    """Convert -log2 P of messages to their length in bits."""
    return (np.ceil(bits + SLACK) + 1).astype(np.int64)


def decision_bits(noes: Integers, yeses: Integers) -> Floats:
    """Compute the bits of the decisions of each context, given the numbers of noes and yeses."""
    counts = noes + yeses
    factorial, half = log_factorials(int(counts.max(initial=0)))
    bits: Floats = factorial[counts] - half[noes] - half[yeses]
    return bits


def bounded_bits(numbers: Integers, owner: Integers, widths: Integers) -> Floats:
    """Compute the bits of bounded integers in each message, float64[t].

    Parameters
    ----------
    numbers : int64[r, c]
    owner : int64[r]
        Message of each row.
    widths : int64[t, c]
        Width w of each column in each message: its numbers are below 2^w.
    """
    count, columns = widths.shape
    total = np.zeros(count)
    place = owner[:, None] * columns + np.arange(columns)
    width = widths[owner]
    for level in range(int(widths.max(initial=0))):
        inside = width > level
        above, last = numbers[inside] >> (level + 1), (numbers[inside] >> level) & 1
        room = int(above.max(initial=0)) + 1
        if room * count * columns > _MAX_PAIRS:
            # Number the prefixes that occur, so that int64 can number pairs of column and prefix.
            above = np.unique(above, return_inverse=True)[1]
            room = int(above.max(initial=0)) + 1
        nodes, node = np.unique(place[inside] * room + above, return_inverse=True)
        yeses = np.bincount(node, last, len(nodes)).astype(np.int64)
        bits = decision_bits(np.bincount(node, minlength=len(nodes)) - yeses, yeses)
        total += np.bincount(nodes // room // max(columns, 1), bits, count)
    return total


def unbounded_bits(numbers: Integers, owner: Integers, count: int) -> Floats:
    """Compute the bits of signed integers in each of `count` messages, float64[count, c].

    Parameters
    ----------
    numbers : int64[r, c]
        Absolute values below 2^63.
    owner : int64[r]
        Message of each row.
    """
    histogram, fixed = tally(numbers, owner, count)
    return length_bits(histogram) + fixed


def tally(numbers: Integers, owner: Integers, count: int) -> tuple[Integers, Integers]:
    """Count the numbers of each bit length, int64[count, c, 64], and the bits below the leading one and of signs."""
    sizes, columns = np.abs(numbers), numbers.shape[1]
    lengths = np.searchsorted(2 ** np.arange(LENGTHS - 1), sizes, side="right")
    place = owner[:, None] * columns + np.arange(columns)
    histogram = np.bincount((place * LENGTHS + lengths).ravel(), minlength=count * columns * LENGTHS)
    histogram = histogram.reshape(count, columns, LENGTHS)
    return histogram, (histogram * np.arange(LENGTHS)).sum(axis=2)


def length_bits(histogram: Integers) -> Floats:
    """Compute the bits of the lengths of numbers, given the histogram of lengths, int64[..., 64]."""
    longer = np.flip(np.cumsum(np.flip(histogram, axis=-1), axis=-1), axis=-1) - histogram
    # cumsum and not sum: the pairwise summation of NumPy depends on the layout, and the kernel adds in this order.
    bits: Floats = np.cumsum(decision_bits(histogram, longer), axis=-1)[..., -1]
    return bits


def order_bits(keys: Integers, group: Integers, count: int) -> Floats:
    """Compute log2 of the number of distinct orders of the keys of each group, float64[count]."""
    factorial = np.append(0.0, np.cumsum(np.log2(np.arange(1, len(keys) + 1))))
    pairs, repetitions = np.unique(np.stack((group, keys)), axis=1, return_counts=True)
    repeated = np.bincount(pairs[0].astype(np.int64), factorial[repetitions], count)
    bits: Floats = factorial[np.bincount(group, minlength=count)] - repeated
    return bits


class Coder:
    """Arithmetic encoder or decoder with exact fractions and adaptive contexts.

    The state is an interval in [0, 1) that shrinks with every symbol, and the counts of each context. To decode, pass
    None for the symbols of all methods.

    Parameters
    ----------
    bits : str, optional
        Message to decode; None: encode.
    """

    def __init__(self, bits: str | None = None) -> None:
        self.low = Fraction(0)
        self.size = Fraction(1)
        self._counts: defaultdict[Hashable, list[int]] = defaultdict(lambda: [0, 0])
        self._value = None if bits is None else Fraction(int(bits, 2), 1 << len(bits))

    def _pick(self, sizes: list[Fraction], symbol: int | None) -> int:
        """Return the symbol to encode, or decode the next symbol."""
        if self._value is None:
            if symbol is None:
                raise ValueError("symbol is None; expected an integer to encode")
            return symbol
        index = 0
        end = self.low + self.size * sizes[0]
        while self._value >= end:
            index += 1
            end += self.size * sizes[index]
        return index

    def _code(self, sizes: list[Fraction], symbol: int | None) -> int:
        """Shrink the interval to the part of a symbol, and return the symbol."""
        index = self._pick(sizes, symbol)
        self.low += self.size * sum(sizes[:index], Fraction(0))
        self.size *= sizes[index]
        return index

    def split(self, context: Hashable, count: int, yeses: int | None) -> int:
        """Code the number of yeses among `count` unordered decisions of a context."""
        before = self._counts[context]
        sizes = []
        for number in range(count + 1):
            size = Fraction(comb(count, number))
            for answers, old in ((count - number, before[0]), (number, before[1])):
                for more in range(answers):
                    size *= Fraction(2 * (old + more) + 1, 2)
            sizes.append(size)
        total = sum(sizes, Fraction(0))
        coded = self._code([size / total for size in sizes], yeses)
        before[0] += count - coded
        before[1] += coded
        return coded

    def plain(self, bits: int, number: int | None) -> int:
        """Code an integer of `bits` bits, with equal probabilities."""
        coded = 0
        for level in range(bits - 1, -1, -1):
            bit = None if number is None else (number >> level) & 1
            coded = 2 * coded + self._code([Fraction(1, 2)] * 2, bit)
        return coded

    def count(self, number: int | None) -> int:
        """Code an integer of at least 0 of unknown size: Elias gamma code of the integer plus 1."""
        length = 0
        while self.plain(1, None if number is None else int((number + 1).bit_length() > length + 1)):
            length += 1
        return (1 << length) + self.plain(length, None if number is None else (number + 1) - (1 << length)) - 1

    def bounded(self, context: Hashable, width: int, number: int | None) -> int:
        """Code an integer below 2^width."""
        coded = 0
        for level in range(width - 1, -1, -1):
            bit = None if number is None else (number >> level) & 1
            coded = 2 * coded + self.split((context, level, coded), 1, bit)
        return coded

    def unbounded(self, context: Hashable, number: int | None) -> int:
        """Code a signed integer without bound."""
        size = None if number is None else abs(number)
        length = 0
        while self.split((context, length), 1, None if size is None else int(size.bit_length() > length)):
            length += 1
        if not length:
            return 0
        below = self.plain(length - 1, None if size is None else size - (1 << (length - 1)))
        sign = self.plain(1, None if number is None else int(number < 0))
        return -(below + (1 << (length - 1))) if sign else below + (1 << (length - 1))

    def unordered(self, context: Hashable, width: int, numbers: list[int] | int) -> list[int]:
        """Code unordered integers below 2^width; to decode, pass their number. Return them in ascending order."""
        if isinstance(numbers, int):
            return self._branch(context, width, numbers, None, 0)
        return self._branch(context, width, len(numbers), numbers, 0)

    def _branch(self, context: Hashable, width: int, count: int, numbers: list[int] | None, top: int) -> list[int]:
        """Code the integers whose leading bits are `top`."""
        if not count or not width:
            return [top] * count
        level = width - 1
        upper = None if numbers is None else [number for number in numbers if (number >> level) & 1]
        lower = None if numbers is None else [number for number in numbers if not (number >> level) & 1]
        yeses = self.split((context, level, top), count, None if upper is None else len(upper))
        return self._branch(context, level, count - yeses, lower, 2 * top) + self._branch(
            context, level, yeses, upper, 2 * top + 1
        )

    def finish(self, bits: int) -> str:
        """Return the message as text of 0 and 1, with enough bits to decode it."""
        number = -(-(self.low.numerator << bits) // self.low.denominator)
        if Fraction(number + 1, 1 << bits) > self.low + self.size:
            raise ValueError(f"bits is {bits}; expected enough bits for the encoded symbols")
        return f"{number:0{bits}b}"
