"""Floating-point operations of a turn, for simulated time: counted by the method, or estimated.

The estimate for a device with m points is one Lloyd step per turn, also in the initial exchange: 3 m k d operations for
the distances and 2 m d for the sums. A server instead makes several such passes over the rows that it received since
its last turn. A method with ``flops(work)`` counts its operations itself.
"""

from typing import Any

from p2pkm.core.batch import Integers, Mask
from p2pkm.core.protocols import Work

# Assumed Lloyd steps of a server's k-means on the rows that it received; the real number is unknown beforehand.
_SERVER_PASSES = 20


def count_flops(algorithm: Any, work: Work, server: Mask | None = None) -> Integers:
    """Count the operations of a turn of each device.

    Parameters
    ----------
    algorithm : Algorithm
    work : Work
        Sizes, degrees and received rows of n devices.
    server : bool[n], optional
        Marks the server.

    Returns
    -------
    int64[n]
    """
    counted: Integers | None = algorithm.flops(work)
    if counted is not None:
        return counted
    processed_rows = work.sizes.copy()
    if server is not None:
        processed_rows[server] = _SERVER_PASSES * work.rows[server]
    return processed_rows * (3 * algorithm.k + 2) * work.d
