"""The random numbers of data and partitions: drawn once, for all devices, from the seed alone."""

import zlib

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import ExperimentError
from p2pkm.core.validation import check_integer

TRIES = 1000
RESTARTS = 100


def generator(seed: int, purpose: str) -> np.random.Generator:
    """Return the stream of a seed for one purpose; two purposes never share draws."""
    key = [check_integer(seed, 0, "seed"), zlib.crc32(purpose.encode())]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))


def apart(
    rng: np.random.Generator, count: int, features: int, *, side: float, separation: float
) -> NDArray[np.float64]:
    """Place means one by one in a cube around the origin, each at random where it is far enough from the others."""
    for _ in range(RESTARTS):
        means = np.empty((0, features))
        for place in rng.uniform(-side / 2, side / 2, (TRIES + count, features)):
            if (((means - place) ** 2).sum(axis=1) >= separation**2).all():
                means = np.vstack([means, place])
            if len(means) == count:
                return means
    raise ExperimentError(
        f"found no place for {count} clusters {separation} apart; take fewer clusters or more features"
    )
