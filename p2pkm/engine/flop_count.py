"""How many operations a turn takes, for virtual time: counted by the method itself, or estimated.

A turn awake, and the opening, count as one local pass over the own m points: 3 m k d for the distances and 2 m d for
the sums; a server instead makes so many passes over the rows that it has received since its last turn. A method that
has ``flops(work)`` says itself what a turn takes.
"""

from typing import Any

from p2pkm.core.batch import Integers, Mask
from p2pkm.core.protocols import Work

_PASSES = 20  # of a server over the rows that it has received: how often its k-means looks at them is not known


def count_flops(algorithm: Any, work: Work, server: Mask | None = None) -> Integers:
    """Return the operations of a turn of every device of `work`, int64[n]; server: bool[n], which of them is one."""
    found: Integers | None = algorithm.flops(work)
    if found is not None:
        return found
    read = work.sizes.copy()
    if server is not None:
        read[server] = _PASSES * work.rows[server]
    return read * (3 * algorithm.k + 2) * work.d
