"""Lengths of tables as they are encoded on the wire: integers in adaptive code, in Rice code or in fixed width.

A table of integers is k rows of d. Rows of zeros are not sent. In front of everything stands the form, of which the
shortest is taken:

* form 10, Rice code: bitmap of k bits, which names the rows that are sent; 5 bits Rice parameter p, the best of 0 to
  31; every integer zigzag (``0, -1, 1, -2, 2, ...`` to ``u = 0, 1, 2, 3, 4, ...``), ``u >> p`` ones, a zero, the p low
  bits of u (R. F. Rice, "Some practical universal noiseless coding techniques", JPL 79-22, 1979).
* form 110 and 111, adaptive arithmetic code (`p2pkm.core.adaptive_code`): whether each row is sent; the integers of
  these without a bound, in contexts that the columns share (110) or that each has for itself (111).
* form 0, fixed width: 2 bits for the width b = 8, 16, 32 or 64; bitmap of k bits; every integer in b bits, two's
  complement.

Receivers know k and d. `encode` and `decode` show that the lengths are those of messages that can be read; a run counts
lengths alone.
"""

from collections.abc import Callable

import numpy as np

from p2pkm.core.adaptive_code import Coder, decision_bits, length_bits, tally, whole_bits
from p2pkm.core.batch import Floats, Integers, Mask

_WIDTHS = (8, 16, 32, 64)
_LARGEST, _NUMBER = 2.0**52, 64  # of a whole number; bits of one that travels as it is
PARAMETERS, ABSURD = 32, 2**40  # of Rice code; a number of ones at which a length is a bound only
_FORM, _PARAMETER, _WIDTH = 1, 5, 2  # bits
_RICE, _SHARED, _APART = "10", "110", "111"
FIXED_FORM, RICE_FORM, ADAPTIVE_FORM = _FORM + _WIDTH, len(_RICE) + _PARAMETER, len(_SHARED)  # bits in front


def integer_bits(tables: Integers, rows: Integers | None = None, *, rice: bool = True) -> Integers:
    """Return the bits of each table of integers, int64[n].

    Parameters
    ----------
    tables : int64[n, k, d]
        Below 2^62 in size; rows beyond `rows` are zeros.
    rows : int64[n], optional
        Of each table; None: k.
    rice : bool
        Whether forms other than the fixed one may be taken where they are shorter.
    """
    n, k, d = tables.shape
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
    """Return the bits of tables of numbers, int64[n]: one for the form, integers if all are below 2^52, else 64 each.

    Parameters
    ----------
    tables : float64[n, k, d]
    rows, rice
        As in `integer_bits`.
    kernel : callable
        What counts the bits of integers: `integer_bits`, or the compiled form of it.
    """
    n, k, d = tables.shape
    whole = np.all((np.abs(tables) < _LARGEST) & (np.rint(tables) == tables), axis=(1, 2))
    steps = np.where(whole[:, None, None], tables, 0.0).astype(np.int64)
    real = _NUMBER * d * (np.full(n, k) if rows is None else np.maximum(rows, 0))
    return 1 + np.where(whole, kernel(steps, rows, rice=rice), real)


def to_bytes(bits: Integers) -> Integers:
    """Return bits as whole bytes, rounded up."""
    return -(-np.asarray(bits, np.int64) // 8)


def encode(table: Integers, *, rice: bool = True) -> str:
    """Return a table of integers, int64[k, d], as a text of bits."""
    sent: Mask = np.any(table, axis=1)
    numbers, bitmap = table[sent].ravel(), "".join("01"[int(one)] for one in sent)
    width = int(_widths(table[None])[0])
    fixed = f"0{_WIDTHS.index(width):02b}{bitmap}" + "".join(f"{int(v) % (1 << width):0{width}b}" for v in numbers)
    if not rice:
        return fixed
    lengths = _rice_bits(table[None], np.array([len(table)]), np.array([len(numbers)]))[0]
    adaptive = _adaptive_bits(table[None], np.array([len(table)]))[:, 0]
    if len(fixed) <= min(lengths.min(), adaptive.min()):
        return fixed
    if adaptive.min() < lengths.min():
        apart, coder = int(np.argmin(adaptive)), Coder()
        _adapt(coder, table.shape, table, bool(apart))
        return (_SHARED, _APART)[apart] + coder.finish(int(adaptive[apart]) - len(_SHARED))
    p = int(np.argmin(lengths))
    words = ((u >> p, u & ((1 << p) - 1)) for u in (int(one) for one in _zigzag(numbers)))
    return f"{_RICE}{bitmap}{p:05b}" + "".join("1" * high + "0" + (f"{low:0{p}b}" if p else "") for high, low in words)


def decode(bits: str, k: int, d: int) -> Integers:
    """Return the table, int64[k, d], that was encoded as these bits, of which nothing must be left over."""
    if bits.startswith((_SHARED, _APART)):
        found = _adapt(Coder(bits[len(_SHARED) :]), (k, d), None, bits.startswith(_APART))
        over = len(bits) - _adaptive_bits(found[None], np.array([k]))[int(bits.startswith(_APART)), 0]
        if over:
            raise ValueError(f"{over} bits are left over")
        return found
    rice, at = bits[0] == "1", len(_RICE) if bits[0] == "1" else _FORM + _WIDTH
    sent: Mask = np.array([bit == "1" for bit in bits[at : at + k]], np.bool_)
    at, numbers, table = at + k, list[int](), np.zeros((k, d), np.int64)
    if rice:
        p, at = int(bits[at : at + _PARAMETER], 2), at + _PARAMETER
        for _ in range(d * int(sent.sum())):
            zero = bits.index("0", at)
            u, at = ((zero - at) << p) + int(bits[zero + 1 : zero + 1 + p] or "0", 2), zero + 1 + p
            numbers.append((u >> 1) ^ -(u & 1))
    else:
        width = _WIDTHS[int(bits[_FORM : _FORM + _WIDTH], 2)]
        for _ in range(d * int(sent.sum())):
            word, at = int(bits[at : at + width], 2), at + width
            numbers.append(word - (1 << width) if word >> (width - 1) else word)
    if at != len(bits):
        raise ValueError(f"{len(bits) - at} bits are left over")
    table[sent] = np.array(numbers, np.int64).reshape(-1, d)
    return table


def _zigzag(numbers: Integers) -> Integers:
    """Return 0, -1, 1, -2, 2, ... as 0, 1, 2, 3, 4, ..."""
    return (numbers << 1) ^ (numbers >> 63)


def _widths(tables: Integers) -> Integers:
    """Return in how many bits the integers of each table fit, int64[n]."""
    largest = np.maximum(tables, ~tables).max(axis=(1, 2), initial=0)
    return np.array(_WIDTHS)[np.searchsorted([2**7, 2**15, 2**31], largest, side="right")]


def _rice_bits(tables: Integers, bitmap: Integers, numbers: Integers) -> Integers:
    """Return the bits of the Rice form with each useful parameter, int64[n, p]; where it is absurdly long, a bound."""
    n, k, d = tables.shape
    u = _zigzag(tables).reshape(n, k * d)
    useful = min(int(u.max(initial=0)).bit_length() + 1, PARAMETERS)  # beyond, every number grows by a bit
    high = np.stack([np.minimum(u >> p, ABSURD).sum(axis=1) for p in range(useful)], axis=1)
    return RICE_FORM + bitmap[:, None] + high + numbers[:, None] * (1 + np.arange(useful))


def _adaptive_bits(tables: Integers, bitmap: Integers) -> Integers:
    """Return the bits of the adaptive forms with shared contexts and with those of each column, int64[2, n]."""
    n = len(tables)
    sent: Mask = np.any(tables, axis=2)
    owner, _ = np.nonzero(sent)
    histogram, fixed = tally(tables[sent], owner, n)
    count = sent.sum(axis=1)
    rows = decision_bits(np.maximum(bitmap - count, 0), count) + fixed.sum(axis=1)
    apart = np.cumsum(length_bits(histogram), axis=1)[:, -1]
    return ADAPTIVE_FORM + whole_bits(rows + np.stack((length_bits(histogram.sum(axis=1)), apart)))


def _adapt(coder: Coder, shape: tuple[int, ...], table: Integers | None, apart: bool) -> Integers:
    """Write a table in the adaptive form, or read it."""
    found = np.zeros(shape, np.int64)
    for c in range(shape[0]):
        if coder.split("row", 1, None if table is None else int(table[c].any())):
            for f in range(shape[1]):
                given = None if table is None else int(table[c, f])
                found[c, f] = coder.unbounded(("number", f if apart else 0), given)
    return found
