"""Adaptive arithmetic code for integers: code lengths by formula.

An integer is encoded as binary decisions, each in a context. Both ends estimate the probability of a decision from
the earlier ones of the same context: after a times no and b times yes, the probability of yes is
``(b + 1/2) / (a + b + 1)`` [1]_.
If the product of all probabilities is P, the message has ``ceil(-log2 P) + 1`` bits. P does not depend on the order of
the decisions of a context, so a run computes lengths by formula and encodes nothing.
`p2pkm.core.arithmetic_coder` has the code itself.

* Integer below 2^w (such as a coordinate in a box): w bits from the top; the context is the bits above.
* Integer without bound: decisions "has more than 0, 1, 2, ... bits", each with a separate context; then the bits below
  the leading one and the sign, one bit each.
* Unordered rows: for one column, the binary tree of its bits; at each node, the number of integers whose next bit is 1.
  This saves log2 of the number of orders.

.. [1] R. E. Krichevsky, V. K. Trofimov, "The performance of universal encoding", IEEE Transactions on Information
   Theory 27, 1981.
"""

from functools import cache

import numpy as np

from p2pkm.core.batch import Floats, Integers
from p2pkm.core.sorting import number_runs

# Possible bit lengths of an integer without bound: 0 to 63.
LENGTHS = 64
# Pairs of a column and a tree node that int64 can number.
_MAX_PAIRS = 1 << 62
# Number of contexts up to which counting all is faster than finding those that occur.
_MAX_NODES = 1 << 12
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
        node = place[inside] * room + above
        # Contexts without a decision have no bits, so few are all counted, without a search of those that occur.
        if room * count * columns <= _MAX_NODES:
            nodes = np.arange(room * count * columns)
        else:
            nodes, node = np.unique(node, return_inverse=True)
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
    order = np.lexsort((keys, group))
    repetitions = np.bincount(number_runs(group[order], keys[order]))
    repeated = np.bincount(group[order][np.cumsum(repetitions) - 1], factorial[repetitions], count)
    bits: Floats = factorial[np.bincount(group, minlength=count)] - repeated
    return bits
