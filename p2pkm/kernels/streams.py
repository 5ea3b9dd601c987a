"""Keys of random streams, and conversion of uniform to normal draws."""

from functools import cache
from typing import Any

import numpy as np

from p2pkm.core.batch import Floats, Stream
from p2pkm.kernels.reference import philox

# Used instead of a device id for the key that all devices share.
_SHARED = 2**64 - 1
# Half of the distance between two draws: draws are moved to the middle of their interval, so that 0 stays finite.
_HALF = 2.0**-54
# Upper limit of a moved draw: the largest one would be rounded to 1, whose normal is infinite.
_LAST = 1.0 - 2.0**-53


def shared_key(seed: int) -> int:
    """Compute the key of the random streams that all devices share."""
    return int(philox(_SHARED, 0, seed, Stream.KEYS)[0, 0])


def as_normal(draws: Floats) -> Floats:
    """Convert draws from [0, 1), multiples of 2^-53, to draws of N(0, 1) by the inverse distribution function."""
    return np.asarray(_inverse_normal()(np.minimum(draws + _HALF, _LAST)), np.float64)


@cache
def _inverse_normal() -> Any:
    """Return the inverse distribution function of N(0, 1) for arrays.

    It uses math.log and math.sqrt, which are bit-identical on all processors, unlike vectorized functions.
    """
    from statistics import NormalDist

    return np.frompyfunc(NormalDist().inv_cdf, 1, 1)
