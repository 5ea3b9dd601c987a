"""Random numbers for data and partitions: functions of the seed and a purpose, drawn once for all devices."""

import zlib

import numpy as np
from numpy.typing import NDArray

from p2pkm.core.errors import ExperimentError
from p2pkm.core.validation import check_integer

# Candidate positions per attempt, in addition to one for each mean, and attempts, before no solution is assumed.
TRIES = 1000
RESTARTS = 100


def generator(seed: int, purpose: str) -> np.random.Generator:
    """Return the random generator of a seed for a purpose; different purposes have independent streams."""
    key = [check_integer(seed, 0, "seed"), zlib.crc32(purpose.encode())]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))


def draw_separated(
    rng: np.random.Generator, count: int, features: int, *, side: float, separation: float
) -> NDArray[np.float64]:
    """Draw means uniformly in a cube around the origin, one after the other, at least `separation` apart.

    Raises
    ------
    ExperimentError
        If no attempt finds room for all of them.
    """
    for _ in range(RESTARTS):
        means = np.empty((0, features))
        for candidate in rng.uniform(-side / 2, side / 2, (TRIES + count, features)):
            if (((means - candidate) ** 2).sum(axis=1) >= separation**2).all():
                means = np.vstack([means, candidate])
            if len(means) == count:
                return means
    raise ExperimentError(
        f"found no place for {count} clusters that are {separation} apart. Use fewer clusters or more features"
    )
