"""Keys of random streams."""

from p2pkm.core.batch import Stream
from p2pkm.kernels.reference import philox

_SHARED = 2**64 - 1  # stands for all devices where a device's id would


def shared_key(seed: int) -> int:
    """Return the key of the random streams that all devices share."""
    return int(philox(_SHARED, 0, seed, Stream.KEYS)[0, 0])
