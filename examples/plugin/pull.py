from dataclasses import dataclass
from typing import ClassVar

from p2pkm.methods.building_blocks.table_method import TableMethod


@dataclass(frozen=True, kw_only=True)
class Pull(TableMethod):
    """Local means, averaged with the centroids of the neighbors by link weight.

    Parameters
    ----------
    strength : float
        Weight of a neighbor over a link of weight 1, in points.
    """

    strength: float = 5.0

    name: ClassVar[str] = "pull"
    link_weights: ClassVar[str] = "multiply the weight of a neighbor"

    def combine(self, device):
        """Average the local points of each cluster with the centroids of the neighbors."""
        pulls = self.strength * device.unit * device.link_weights
        sums = device.sums + (pulls[:, None, None] * device.tables).sum(axis=0)
        return sums / (device.counts + pulls.sum())[:, None]
