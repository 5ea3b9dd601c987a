"""Gathering of a result: on all ranks, or on rank 0 only."""

from typing import Any, NamedTuple

from p2pkm.core.batch import Integers
from p2pkm.network.transport import Network, World


class Gathering(NamedTuple):
    """Collective operations that build a result; all ranks must call them in the same order.

    Attributes
    ----------
    network : Network
    world : World
    everywhere : bool
        Whether all ranks receive the result, equal on all ranks; otherwise only rank 0 does.
    """

    network: Network
    world: World
    everywhere: bool

    @property
    def is_receiver(self) -> bool:
        """Whether this rank receives the result."""
        return self.everywhere or self.world.rank == 0

    def gather(self, values: Any, counts: Integers | None = None) -> Any:
        """Return the rows of all devices in device order, None on ranks without the result; uncounted.

        Parameters
        ----------
        values : array
            Rows of the devices of this rank.
        counts : int[total], optional
            Number of rows of every device of the system, on ranks that receive the result, None on others. On a rank
            that receives it, None stands for one row per device.
        """
        network = self.network
        return (
            network.allgather_by_device(values, counts) if self.everywhere else network.gather_by_device(values, counts)
        )

    def share(self, arrays: dict[str, Any] | None) -> dict[str, Any]:
        """Return the arrays of rank 0 on all ranks that receive the result, and an empty dict on others."""
        return self.world.broadcast(arrays) if self.everywhere else arrays or {}
