"""Keys of random streams, and normal draws from uniform ones."""

from statistics import NormalDist

import numpy as np

from p2pkm.core.batch import Floats, Stream
from p2pkm.kernels.reference import philox

_SHARED = 2**64 - 1  # stands for all devices where a device's id would
_HALF = 2.0**-54  # half of the distance between two draws
_LAST = 1.0 - 2.0**-53  # the largest draw and a half of a step would be rounded to 1, whose normal is infinite
_NORMAL = np.frompyfunc(NormalDist().inv_cdf, 1, 1)  # math.log and math.sqrt: the same bits on every processor


def shared_key(seed: int) -> int:
    """Return the key of the random streams that all devices share."""
    return int(philox(_SHARED, 0, seed, Stream.KEYS)[0, 0])


def as_normal(draws: Floats) -> Floats:
    """Return the draws of N(0, 1) that belong to draws from [0, 1), multiples of 2^-53."""
    return np.asarray(_NORMAL(np.minimum(draws + _HALF, _LAST)), np.float64)
