"""Lengths of tables as they are encoded on the wire: integers in Rice code or in fixed width, coordinates in b bits.

A table of integers is k rows of d. Rows of zeros are not sent; a bitmap names the others. In front of everything
stands 1 bit, the form, of which the shorter is taken:

* form 1, Rice code: bitmap of k bits; 5 bits Rice parameter p, the best of 0 to 31; every integer zigzag
  (``0, -1, 1, -2, 2, ...`` to ``u = 0, 1, 2, 3, 4, ...``), ``u >> p`` ones, a zero, the p low bits of u
  (R. F. Rice, "Some practical universal noiseless coding techniques", JPL 79-22, 1979).
* form 0, fixed width: 2 bits for the width b = 8, 16, 32 or 64; bitmap of k bits; every integer in b bits, two's
  complement.

Receivers know k and d. `encode` and `decode` show that the lengths are those of messages that can be read; a run counts
lengths alone.
"""

from collections.abc import Iterable

import numpy as np

from p2pkm.core.batch import Floats, Integers, Mask

_WIDTHS = (8, 16, 32, 64)
_PARAMETERS = 32
_FORM, _PARAMETER, _WIDTH = 1, 5, 2  # bits


def integer_bits(tables: Integers, rows: Integers | None = None, *, rice: bool = True) -> Integers:
    """Return the bits of each table of integers, int64[n].

    Parameters
    ----------
    tables : int64[n, k, d]
        Below 2^62 in size; rows beyond `rows` are zeros.
    rows : int64[n], optional
        Of each table; None: k.
    rice : bool
        Whether the Rice form may be taken where it is shorter.
    """
    n, k, d = tables.shape
    numbers = d * np.any(tables, axis=2).sum(axis=1)
    bitmap = np.full(n, k) if rows is None else np.maximum(rows, 0)
    fixed = _FORM + _WIDTH + bitmap + numbers * _widths(tables)
    return np.minimum(fixed, _rice_bits(tables, bitmap, numbers).min(axis=1)) if rice else fixed


def integer_bytes(tables: Integers, rows: Integers | None = None, *, rice: bool = True) -> Integers:
    """Return the same rounded up to bytes."""
    return to_bytes(integer_bits(tables, rows, rice=rice))


def fixed_bits(rows: Integers | int, columns: Iterable[int]) -> Integers:
    """Return the bits of tables of so many rows, whose columns take so many bits each, such as b bits a coordinate."""
    return np.asarray(rows, np.int64) * sum(columns)


def to_bytes(bits: Integers) -> Integers:
    """Return bits as whole bytes, rounded up."""
    return -(-np.asarray(bits, np.int64) // 8)


def quantize_in_box(values: Floats, low: Floats, high: Floats, bits: int) -> tuple[Integers, Floats]:
    """Return coordinates as numbers of `bits` bits in a box, and the coordinates that these stand for.

    Parameters
    ----------
    values : float64[..., d]
    low, high : float64[d]
        Ends of the box, which receivers know.
    bits : int
        At most 52.
    """
    cells = float(2**bits - 1)
    span = np.where(high > low, high - low, 1.0)
    codes = np.clip(np.rint((values - low) / span * cells), 0.0, cells)
    return codes.astype(np.int64), low + codes * (span / cells)


def encode(table: Integers, *, rice: bool = True) -> str:
    """Return a table of integers, int64[k, d], as a text of bits."""
    sent: Mask = np.any(table, axis=1)
    numbers, bitmap = table[sent].ravel(), "".join("01"[int(one)] for one in sent)
    width = int(_widths(table[None])[0])
    fixed = f"0{_WIDTHS.index(width):02b}{bitmap}" + "".join(f"{int(v) % (1 << width):0{width}b}" for v in numbers)
    lengths = _rice_bits(table[None], np.array([len(table)]), np.array([len(numbers)]))[0]
    if not rice or lengths.min() >= len(fixed):
        return fixed
    p = int(np.argmin(lengths))
    words = ((u >> p, u & ((1 << p) - 1)) for u in (int(one) for one in _zigzag(numbers)))
    return f"1{bitmap}{p:05b}" + "".join("1" * high + "0" + (f"{low:0{p}b}" if p else "") for high, low in words)


def decode(bits: str, k: int, d: int) -> Integers:
    """Return the table, int64[k, d], that was encoded as these bits, of which nothing must be left over."""
    rice, at = bits[0] == "1", _FORM if bits[0] == "1" else _FORM + _WIDTH
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
    """Return the bits of the Rice form with each parameter, int64[n, 32]; where it is absurdly long, a bound."""
    u = _zigzag(tables).reshape(len(tables), -1)
    high = np.stack([np.minimum(u >> p, 2**40).sum(axis=1) for p in range(_PARAMETERS)], axis=1)
    return _FORM + _PARAMETER + bitmap[:, None] + high + numbers[:, None] * (1 + np.arange(_PARAMETERS))
