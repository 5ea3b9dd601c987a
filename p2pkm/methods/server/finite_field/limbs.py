"""Integers of any size as rows of floating-point numbers, exact: digits of 32 bits, the lowest first."""

import numpy as np
from numpy.typing import NDArray

_BITS = 32


def width(p: int) -> int:
    """Return how many limbs the numbers below p need."""
    return ((p - 1).bit_length() + _BITS - 1) // _BITS


def split(numbers: list[int], limbs: int) -> NDArray[np.float64]:
    """Return the limbs of each number, float64[numbers, limbs]."""
    digits = b"".join([number.to_bytes(4 * limbs, "little") for number in numbers])
    return np.frombuffer(digits, "<u4").reshape(len(numbers), limbs).astype(np.float64)


def join(table: NDArray[np.float64]) -> list[int]:
    """Return the number of each row of limbs; they may be sums of limbs, as long as they are exact (below 2^53)."""
    return [sum(int(limb) << _BITS * place for place, limb in enumerate(row)) for row in table.tolist()]
