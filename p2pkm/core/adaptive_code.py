"""Lengths of whole numbers in an adaptive arithmetic code, and the code itself.

A number is written as yes-or-no decisions. How likely a decision is in its context, both ends learn from those before:
after a noes and b yeses a yes has probability ``(b + 1/2) / (a + b + 1)`` (R. E. Krichevsky, V. K. Trofimov, "The
performance of universal encoding", IEEE Transactions on Information Theory 27, 1981). A message with product of
probabilities P takes ``ceil(-log2 P) + 1`` bits. Since P does not depend on the order of decisions in a context, a run
counts lengths by formula and encodes nothing; `Coder` shows that messages of these lengths can be read.

* A number below 2^w, such as a coordinate in a box: its w bits from the top, each in the context of those above it.
* A number without a bound: whether it has more than 0, 1, 2, ... bits, each in a context of its own; then what follows
  the leading bit, and the sign, one bit each.
* Rows in no order: a column in its tree of bits, at each node how many of those there go on with a 1. That saves
  log2 of the number of orders.
"""

from collections import defaultdict
from collections.abc import Hashable
from fractions import Fraction
from functools import cache
from math import comb

import numpy as np

from p2pkm.core.batch import Floats, Integers

LENGTHS = 64  # of a number without a bound: below 2^63
_PLACES = 1 << 62  # pairs of a column and a node that int64 can number
SLACK = 1e-6  # bits, for rounding of logarithms


def log_factorials(most: int) -> tuple[Floats, Floats]:
    """Return log2 of the products of the first m of 1, 2, 3, ... and of 1/2, 3/2, 5/2, ..., for m up to `most`."""
    return _log_factorials(max(most, 255).bit_length())


@cache
def _log_factorials(length: int) -> tuple[Floats, Floats]:
    """Return the same for m of up to so many bits."""
    numbers = np.arange(1, 1 << length)
    factorial, half = (np.append(0.0, np.cumsum(np.log2(numbers - apart))) for apart in (0.0, 0.5))
    return factorial, half


def whole_bits(bits: Floats) -> Integers:
    """Return -log2 P of messages as the bits that they take."""
    return (np.ceil(bits + SLACK) + 1).astype(np.int64)


def decision_bits(noes: Integers, yeses: Integers) -> Floats:
    """Return the bits of so many decisions in each context."""
    both = noes + yeses
    factorial, half = log_factorials(int(both.max(initial=0)))
    found: Floats = factorial[both] - half[noes] - half[yeses]
    return found


def bounded_bits(numbers: Integers, owner: Integers, widths: Integers) -> Floats:
    """Return the bits of columns of numbers in each message, float64[t].

    Parameters
    ----------
    numbers : int64[r, c]
    owner : int64[r]
        In which message each row is.
    widths : int64[t, c]
        Every number is below 2 to this power.
    """
    (count, columns), total = widths.shape, np.zeros(len(widths))
    place = owner[:, None] * columns + np.arange(columns)
    width = widths[owner]
    for level in range(int(widths.max(initial=0))):
        inside = width > level
        above, last = numbers[inside] >> (level + 1), (numbers[inside] >> level) & 1
        room = int(above.max(initial=0)) + 1
        if room * count * columns > _PLACES:
            above = np.unique(above, return_inverse=True)[1]
            room = int(above.max(initial=0)) + 1
        nodes, which = np.unique(place[inside] * room + above, return_inverse=True)
        yeses = np.bincount(which, last, len(nodes)).astype(np.int64)
        bits = decision_bits(np.bincount(which, minlength=len(nodes)) - yeses, yeses)
        total += np.bincount(nodes // room // max(columns, 1), bits, count)
    return total


def unbounded_bits(numbers: Integers, owner: Integers, count: int) -> Floats:
    """Return the bits of columns of numbers of any sign in each of `count` messages, float64[count, c].

    Parameters
    ----------
    numbers : int64[r, c]
        Below 2^63 in size.
    owner : int64[r]
    """
    histogram, fixed = tally(numbers, owner, count)
    return length_bits(histogram) + fixed


def tally(numbers: Integers, owner: Integers, count: int) -> tuple[Integers, Integers]:
    """Return how many numbers there are of each length, int64[count, c, 64], and the bits of sign and below the top."""
    sizes, columns = np.abs(numbers), numbers.shape[1]
    lengths = np.searchsorted(2 ** np.arange(LENGTHS - 1), sizes, side="right")
    place = owner[:, None] * columns + np.arange(columns)
    histogram = np.bincount((place * LENGTHS + lengths).ravel(), minlength=count * columns * LENGTHS)
    histogram = histogram.reshape(count, columns, LENGTHS)
    return histogram, (histogram * np.arange(LENGTHS)).sum(axis=2)


def length_bits(histogram: Integers) -> Floats:
    """Return the bits of the lengths of numbers, given how many there are of each, int64[..., 64]."""
    longer = np.flip(np.cumsum(np.flip(histogram, axis=-1), axis=-1), axis=-1) - histogram
    found: Floats = np.cumsum(decision_bits(histogram, longer), axis=-1)[..., -1]
    return found


def order_bits(keys: Integers, group: Integers, count: int) -> Floats:
    """Return log2 of the orders that each group of rows could be in, by one column of theirs, float64[count]."""
    factorial = np.append(0.0, np.cumsum(np.log2(np.arange(1, len(keys) + 1))))
    pairs, alike = np.unique(np.stack((group, keys)), axis=1, return_counts=True)
    each = np.bincount(pairs[0].astype(np.int64), factorial[alike], count)
    found: Floats = factorial[np.bincount(group, minlength=count)] - each
    return found


class Coder:
    """An interval of [0, 1) that gets smaller with every symbol, exactly; and what has been learned so far.

    Parameters
    ----------
    bits : str, optional
        The message to be read; None: one is written. Who reads gives None for the symbols.
    """

    def __init__(self, bits: str | None = None) -> None:
        self.low, self.size = Fraction(0), Fraction(1)
        self._seen: defaultdict[Hashable, list[int]] = defaultdict(lambda: [0, 0])
        self._at = None if bits is None else Fraction(int(bits, 2), 1 << len(bits))

    def _pick(self, sizes: list[Fraction], symbol: int | None) -> int:
        """Return the symbol that is written, or that comes next."""
        if self._at is None:
            if symbol is None:
                raise ValueError("a symbol is needed, for nothing is read")
            return symbol
        end, found = self.low + self.size * sizes[0], 0
        while self._at >= end:
            found += 1
            end += self.size * sizes[found]
        return found

    def _take(self, sizes: list[Fraction], symbol: int | None) -> int:
        """Go on with the part of a symbol; None: the one that is read."""
        found = self._pick(sizes, symbol)
        self.low += self.size * sum(sizes[:found], Fraction(0))
        self.size *= sizes[found]
        return found

    def split(self, context: Hashable, count: int, yeses: int | None) -> int:
        """Code how many of `count` decisions in a context are yes, in no order."""
        before, sizes = self._seen[context], []
        for number in range(count + 1):
            size = Fraction(comb(count, number))
            for answers, old in ((count - number, before[0]), (number, before[1])):
                for more in range(answers):
                    size *= Fraction(2 * (old + more) + 1, 2)
            sizes.append(size)
        whole = sum(sizes, Fraction(0))
        found = self._take([size / whole for size in sizes], yeses)
        before[0] += count - found
        before[1] += found
        return found

    def plain(self, bits: int, number: int | None) -> int:
        """Code a number of so many bits, all alike likely."""
        found = 0
        for level in range(bits - 1, -1, -1):
            bit = None if number is None else (number >> level) & 1
            found = 2 * found + self._take([Fraction(1, 2)] * 2, bit)
        return found

    def count(self, number: int | None) -> int:
        """Code a number from 0 that nothing is known of: P. Elias' gamma code of the number plus 1."""
        length = 0
        while self.plain(1, None if number is None else int((number + 1).bit_length() > length + 1)):
            length += 1
        return (1 << length) + self.plain(length, None if number is None else (number + 1) - (1 << length)) - 1

    def bounded(self, context: Hashable, width: int, number: int | None) -> int:
        """Code a number below 2^width."""
        found = 0
        for level in range(width - 1, -1, -1):
            bit = None if number is None else (number >> level) & 1
            found = 2 * found + self.split((context, level, found), 1, bit)
        return found

    def unbounded(self, context: Hashable, number: int | None) -> int:
        """Code a number of any size and sign."""
        size, length = None if number is None else abs(number), 0
        while self.split((context, length), 1, None if size is None else int(size.bit_length() > length)):
            length += 1
        if not length:
            return 0
        below = self.plain(length - 1, None if size is None else size - (1 << (length - 1)))
        sign = self.plain(1, None if number is None else int(number < 0))
        return -(below + (1 << (length - 1))) if sign else below + (1 << (length - 1))

    def unordered(self, context: Hashable, width: int, numbers: list[int] | int) -> list[int]:
        """Code numbers below 2^width in no order, or how many of them there are to be read; return them ascending."""
        given = None if isinstance(numbers, int) else numbers
        return self._branch(context, width, len(given) if given is not None else int(numbers), given, 0)  # type: ignore[arg-type]

    def _branch(self, context: Hashable, width: int, count: int, given: list[int] | None, top: int) -> list[int]:
        """Code those numbers that begin with the bits of `top`."""
        if not count or not width:
            return [top] * count
        level = width - 1
        ones = None if given is None else [one for one in given if (one >> level) & 1]
        zeros = None if given is None else [one for one in given if not (one >> level) & 1]
        yeses = self.split((context, level, top), count, None if ones is None else len(ones))
        return self._branch(context, level, count - yeses, zeros, 2 * top) + self._branch(
            context, level, yeses, ones, 2 * top + 1
        )

    def finish(self, bits: int) -> str:
        """Return the message as a text of so many bits, enough for all that was written to be read."""
        number = -(-(self.low.numerator << bits) // self.low.denominator)
        if Fraction(number + 1, 1 << bits) > self.low + self.size:
            raise ValueError(f"{bits} bits are too few")
        return f"{number:0{bits}b}"
