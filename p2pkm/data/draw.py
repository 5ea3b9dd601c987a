"""The random numbers of data and partitions: drawn once, for all devices, from the seed alone."""

import zlib

import numpy as np

from p2pkm.data.checks import whole


def generator(seed: int, purpose: str) -> np.random.Generator:
    """Return the stream of a seed for one purpose; two purposes never share draws."""
    key = [whole(seed, 0, "seed"), zlib.crc32(purpose.encode())]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(key)))
