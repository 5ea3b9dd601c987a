"""Exact coding of integers of any size as rows of floating-point numbers: digits of 32 bits, lowest first."""

import numpy as np
from numpy.typing import NDArray

_BITS = 32


def width(p: int) -> int:
    """Compute the number of limbs of numbers below p."""
    return ((p - 1).bit_length() + _BITS - 1) // _BITS


def split(numbers: list[int], limbs: int) -> NDArray[np.float64]:
    """Split each number into limbs, float64[numbers, limbs]."""
    digits = b"".join([number.to_bytes(4 * limbs, "little") for number in numbers])
    return np.frombuffer(digits, "<u4").reshape(len(numbers), limbs).astype(np.float64)


def join(table: NDArray[np.float64]) -> list[int]:
    """Compute the number of each row of limbs, which may be exact sums of limbs (below 2^53)."""
    return [sum(int(limb) << _BITS * place for place, limb in enumerate(row)) for row in table.tolist()]
