"""Encoded lengths of tables of integers: adaptive code, Rice code or fixed width, whichever is shortest.

A table has k rows of d integers; receivers know k and d. Rows of zeros are not sent. A prefix names the form:

* 10, Rice code: bitmap of k bits (rows that are sent); 5 bits for the Rice parameter p, the best of 0 to 31; every
  integer as zigzag u (``0, -1, 1, -2, 2, ...`` to ``u = 0, 1, 2, 3, 4, ...``): ``u >> p`` ones, a zero, the p low bits
  of u [1]_.
* 110 and 111, adaptive arithmetic code (`p2pkm.core.adaptive_code`): one decision per row (sent or not); the integers
  of the sent rows without bound, in contexts shared by all columns (110) or separate for each column (111).
* 0, fixed width: 2 bits for the width b = 8, 16, 32 or 64; bitmap of k bits; every integer in b bits, two's complement.

A run computes lengths only. `encode` and `decode` prove that messages of these lengths can be decoded.

.. [1] R. F. Rice, "Some practical universal noiseless coding techniques", JPL 79-22, 1979.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from p2pkm.core.adaptive_code import decision_bits, length_bits, tally, whole_bits
from p2pkm.core.batch import Floats, Integers, Mask

if TYPE_CHECKING:
    from p2pkm.core.arithmetic_coder import Coder

_WIDTHS = (8, 16, 32, 64)
# Integers below this size are exact in float64; tables with other numbers are sent unencoded, 64 bits per value.
_INTEGER_LIMIT = 2.0**52
_VALUE_BITS = 64
# Number of Rice parameters (5 bits).
PARAMETERS = 32
# Largest number of ones that is counted for an integer: prevents overflow of sums. Beyond it the length is a lower
# bound, which is still longer than fixed width.
ABSURD = 2**40
# Bits of the fields in front of the integers.
_FIXED_PREFIX, _PARAMETER, _WIDTH = 1, 5, 2
_RICE, _SHARED, _SEPARATE = "10", "110", "111"
FIXED_FORM = _FIXED_PREFIX + _WIDTH
RICE_FORM = len(_RICE) + _PARAMETER
ADAPTIVE_FORM = len(_SHARED)


def integer_bits(tables: Integers, rows: Integers | None = None, *, rice: bool = True) -> Integers:
    """Compute the encoded bits of each table of integers, int64[n].

    Parameters
    ----------
    tables : int64[n, k, d]
        Absolute values below 2^62; rows beyond `rows` are zeros.
    rows : int64[n], optional
        Number of rows of each table; None: k.
    rice : bool
        Whether forms other than fixed width are allowed.
    """
    n, k, d = tables.shape
    if not n:
        return np.zeros(0, np.int64)
    numbers = d * np.any(tables, axis=2).sum(axis=1)
    bitmap = np.full(n, k) if rows is None else np.maximum(rows, 0)
    fixed = FIXED_FORM + bitmap + numbers * _widths(tables)
    if not rice:
        return fixed
    return np.minimum(
        np.minimum(fixed, _rice_bits(tables, bitmap, numbers).min(axis=1)), _adaptive_bits(tables, bitmap).min(axis=0)
    )


def number_bits(
    tables: Floats, rows: Integers | None = None, *, rice: bool = True, kernel: Callable[..., Integers] = integer_bits
) -> Integers:
    """Compute the encoded bits of tables of numbers, int64[n].

    One bit for the form; then integers, if all numbers are integers below 2^52, otherwise 64 bits each.

    Parameters
    ----------
    tables : float64[n, k, d]
    rows, rice
        As in `integer_bits`.
    kernel : callable
        Implementation of `integer_bits`, reference or compiled.
    """
    n, k, d = tables.shape
    # In the turns of a tree pass, most ranks send nothing.
    if not n:
        return np.zeros(0, np.int64)
    is_integer = ((np.abs(tables) < _INTEGER_LIMIT) & (np.rint(tables) == tables)).all(axis=(1, 2))
    if is_integer.all():
        return 1 + kernel(tables.astype(np.int64), rows, rice=rice)
    integers = np.where(is_integer[:, None, None], tables, 0.0).astype(np.int64)
    plain_bits = _VALUE_BITS * d * (np.full(n, k) if rows is None else np.maximum(rows, 0))
    return 1 + np.where(is_integer, kernel(integers, rows, rice=rice), plain_bits)


def to_bytes(bits: Integers) -> Integers:
    """Convert bits to bytes, rounded up."""
    return -(-np.asarray(bits, np.int64) // 8)


def encode(table: Integers, *, rice: bool = True) -> str:
    """Encode a table of integers, int64[k, d], as text of 0 and 1."""
    sent: Mask = np.any(table, axis=1)
    numbers = table[sent].ravel()
    bitmap = "".join("01"[int(is_sent)] for is_sent in sent)
    width = int(_widths(table[None])[0])
    fixed = f"0{_WIDTHS.index(width):02b}{bitmap}" + "".join(f"{int(v) % (1 << width):0{width}b}" for v in numbers)
    if not rice:
        return fixed
    lengths = _rice_bits(table[None], np.array([len(table)]), np.array([len(numbers)]))[0]
    adaptive = _adaptive_bits(table[None], np.array([len(table)]))[:, 0]
    if len(fixed) <= min(lengths.min(), adaptive.min()):
        return fixed
    if adaptive.min() < lengths.min():
        from p2pkm.core.arithmetic_coder import Coder

        form = int(np.argmin(adaptive))
        coder = Coder()
        _adapt(coder, table.shape, table, is_separate=bool(form))
        return (_SHARED, _SEPARATE)[form] + coder.finish(int(adaptive[form]) - len(_SHARED))
    p = int(np.argmin(lengths))
    words = ((u >> p, u & ((1 << p) - 1)) for u in _zigzag(numbers).tolist())
    return f"{_RICE}{bitmap}{p:05b}" + "".join("1" * high + "0" + (f"{low:0{p}b}" if p else "") for high, low in words)


def decode(bits: str, k: int, d: int) -> Integers:
    """Decode a table, int64[k, d].

    Raises
    ------
    ValueError
        If bits are left over.
    """
    if bits.startswith((_SHARED, _SEPARATE)):
        from p2pkm.core.arithmetic_coder import Coder

        is_separate = bits.startswith(_SEPARATE)
        decoded = _adapt(Coder(bits[len(_SHARED) :]), (k, d), None, is_separate=is_separate)
        left = len(bits) - _adaptive_bits(decoded[None], np.array([k]))[int(is_separate), 0]
        if left:
            raise ValueError(f"{left} bits are left over; expected 0")
        return decoded
    is_rice = bits[0] == "1"
    at = len(_RICE) if is_rice else FIXED_FORM
    sent: Mask = np.array([bit == "1" for bit in bits[at : at + k]], np.bool_)
    at += k
    numbers = list[int]()
    table = np.zeros((k, d), np.int64)
    if is_rice:
        p, at = int(bits[at : at + _PARAMETER], 2), at + _PARAMETER
        for _ in range(d * int(sent.sum())):
            zero = bits.index("0", at)
            u, at = ((zero - at) << p) + int(bits[zero + 1 : zero + 1 + p] or "0", 2), zero + 1 + p
            numbers.append((u >> 1) ^ -(u & 1))
    else:
        width = _WIDTHS[int(bits[_FIXED_PREFIX : _FIXED_PREFIX + _WIDTH], 2)]
        for _ in range(d * int(sent.sum())):
            unsigned = int(bits[at : at + width], 2)
            at += width
            numbers.append(unsigned - (1 << width) if unsigned >> (width - 1) else unsigned)
    if at != len(bits):
        raise ValueError(f"{len(bits) - at} bits are left over; expected 0")
    table[sent] = np.array(numbers, np.int64).reshape(-1, d)
    return table


def _zigzag(numbers: Integers) -> Integers:
    """Map 0, -1, 1, -2, 2, ... to 0, 1, 2, 3, 4, ..."""
    return (numbers << 1) ^ (numbers >> 63)


def _widths(tables: Integers) -> Integers:
    """Find the smallest fixed width for the integers of each table, int64[n]."""
    largest = np.maximum(tables, ~tables).max(axis=(1, 2), initial=0)
    return np.array(_WIDTHS)[np.searchsorted([2**7, 2**15, 2**31], largest, side="right")]


def _rice_bits(tables: Integers, bitmap: Integers, numbers: Integers) -> Integers:
    """Compute the bits of the Rice form for each useful parameter, int64[n, p]; see `ABSURD` for very long codes."""
    n, k, d = tables.shape
    u = _zigzag(tables).reshape(n, k * d)
    # With a larger parameter, every number takes one more bit.
    useful = min(int(u.max(initial=0)).bit_length() + 1, PARAMETERS)
    high = np.stack([np.minimum(u >> p, ABSURD).sum(axis=1) for p in range(useful)], axis=1)
    return RICE_FORM + bitmap[:, None] + high + numbers[:, None] * (1 + np.arange(useful))


def _adaptive_bits(tables: Integers, bitmap: Integers) -> Integers:
    """Compute the bits of the adaptive forms with shared and with separate contexts, int64[2, n]."""
    n = len(tables)
    sent: Mask = np.any(tables, axis=2)
    owner, _ = np.nonzero(sent)
    histogram, fixed = tally(tables[sent], owner, n)
    count = sent.sum(axis=1)
    rows = decision_bits(np.maximum(bitmap - count, 0), count) + fixed.sum(axis=1)
    shared = length_bits(histogram.sum(axis=1))
    separate = np.cumsum(length_bits(histogram), axis=1)[:, -1]
    return ADAPTIVE_FORM + whole_bits(rows + np.stack((shared, separate)))


def _adapt(coder: "Coder", shape: tuple[int, ...], table: Integers | None, *, is_separate: bool) -> Integers:
    """Encode a table in the adaptive form, or decode it if `table` is None."""
    coded = np.zeros(shape, np.int64)
    for c in range(shape[0]):
        if coder.split("row", 1, None if table is None else int(table[c].any())):
            for f in range(shape[1]):
                number = None if table is None else int(table[c, f])
                coded[c, f] = coder.unbounded(("number", f if is_separate else 0), number)
    return coded
