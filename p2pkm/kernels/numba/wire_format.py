"""Compiled encoded lengths of tables of integers; see `p2pkm.core.wire_format`."""

import numpy as np

from p2pkm.core.adaptive_code import LENGTHS, SLACK, log_factorials
from p2pkm.core.wire_format import ABSURD, ADAPTIVE_FORM, FIXED_FORM, PARAMETERS, RICE_FORM
from p2pkm.kernels.numba.compiling import compiled_backend, helper
from p2pkm.kernels.numba.threads import divide


@helper(inline="always")
def _length(size):
    """Return the bit length of an integer, 0 for 0; size: uint64."""
    length = 0
    while size:
        size >>= np.uint64(1)
        length += 1
    return length


@helper(inline="always")
def _decisions(histogram, column, longest, factorial, half):
    """Compute the bits of the bit lengths of one column, summed in ascending order of lengths."""
    longer, bits = 0, 0.0
    for length in range(longest + 1):
        longer += histogram[column, length]
    for length in range(longest + 1):
        exact = histogram[column, length]
        longer -= exact
        bits += factorial[exact + longer] - half[exact] - half[longer]
    return bits


@compiled_backend(1)
def _integer_bits(tables, rows, rice, factorial, half, first, last, bits):
    """Compute the bits of the tables `first` to `last` - 1."""
    k, d = tables.shape[1], tables.shape[2]
    histogram, zigzag = np.zeros((d + 1, LENGTHS), np.int64), np.empty(k * d, np.int64)
    for i in range(first, last):
        sent, numbers, fixed, longest, largest, top = 0, 0, 0, 0, 0, 0
        for c in range(k):
            empty = True
            for f in range(d):
                empty &= tables[i, c, f] == 0
            if empty:
                continue
            sent += 1
            for f in range(d):
                x = tables[i, c, f]
                largest = max(largest, max(x, ~x))
                zigzag[numbers] = (x << 1) ^ (x >> 63)
                top = max(top, zigzag[numbers])
                numbers += 1
                length = _length(np.uint64(abs(x)))
                fixed += length
                longest = max(longest, length)
                histogram[f, length] += 1
                histogram[d, length] += 1
        bitmap = max(rows[i], 0)
        width = 8
        while width < 64 and largest >= 1 << (width - 1):
            width *= 2
        best = FIXED_FORM + bitmap + numbers * width
        if rice:
            for p in range(min(_length(np.uint64(top)) + 1, PARAMETERS)):
                high = 0
                for j in range(numbers):
                    high += min(zigzag[j] >> p, ABSURD)
                best = min(best, RICE_FORM + bitmap + high + numbers * (1 + p))
            silent = max(bitmap - sent, 0)
            head = factorial[silent + sent] - half[silent] - half[sent] + fixed
            separate = 0.0
            for f in range(d):
                separate += _decisions(histogram, f, longest, factorial, half)
            shared = _decisions(histogram, d, longest, factorial, half)
            best = min(best, ADAPTIVE_FORM + np.int64(np.ceil(head + min(shared, separate) + SLACK)) + 1)
        bits[i] = best
        for f in range(d + 1):
            for length in range(longest + 1):
                histogram[f, length] = 0


def integer_bits(tables, rows=None, *, rice=True):
    """Compute the encoded bits of each table of integers; see `p2pkm.core.wire_format.integer_bits`."""
    n, k, d = tables.shape
    bits = np.empty(n, np.int64)
    args = tables, np.full(n, k) if rows is None else rows, rice, *log_factorials(k * d)
    size = max(k * d, 1)
    divide(lambda first, last: _integer_bits(*args, first, last, bits), range(0, (n + 1) * size, size))
    return bits
