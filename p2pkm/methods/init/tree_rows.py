"""One clustering from many rows of all devices, collected along a tree, and a thorough search among them."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from p2pkm.core.batch import Devices, Floats
from p2pkm.core.expected_messages import Known
from p2pkm.core.messages import Tables
from p2pkm.methods.building_blocks.breathing import search
from p2pkm.methods.building_blocks.weighted_rows import Rows, summarize
from p2pkm.methods.init.tree_summaries import TreeSummaries

_STARTS = 3  # searches, of which the best one counts
_BREATH = 5  # centroids that breathing adds at first


@dataclass(frozen=True)
class TreeRows(TreeSummaries):
    """Collect rows (mean, weight, SSE) of all devices at the root of a tree, and send one clustering of them down.

    As `TreeSummaries`, but every device clusters its points into ``per_cluster`` times k rows, and the root takes the
    best of 3 searches by ``B(C) = sum_r n_r min_c |a_r - c|^2 + sum_r SSE_r``: greedy k-means++ on the rows, then
    breathing k-means (Fritzke 2020, with 5 centroids at first). B is at least the cost on all points, so what comes
    down costs at most that.

    Message: at most `rows` rows up, d + 2 columns; k rows down.

    Privacy: a row of one point is that point, and of two points with one feature mean and SSE reveal both. With
    ``least=2`` a row of one point is merged with its nearest row, so that no point leaves its device; with a
    `min_cluster_size` p all rows of fewer than p points are.

    Attributes
    ----------
    per_cluster : int
        Rows of a device for each of the k clusters.
    least : int
        Points that a row must stand for.
    """

    name: ClassVar[str] = "rows"
    extra: ClassVar[int] = 2
    per_cluster: int = 2
    least: int = 1

    @property
    def own_rows(self) -> int:
        """Return how many rows a device sends of its own points at most."""
        return self.per_cluster * self.k

    def sends_all(self, known: Known) -> bool:
        """Return whether every device has so many rows for sure."""
        return self.least == 1 and super().sends_all(known)

    def summarize(self, devices: Devices) -> Tables:
        """Return what every device sends of its own points: rows (origin, mean, weight, SSE)."""
        return summarize(devices, np.full(len(devices), self.own_rows), max(self.least, devices.min_count))

    def find(self, devices: Devices, collections: list[Floats]) -> Floats:
        """Return what each root finds among the rows that it has collected, float64[collections, 1, k, d]."""
        found = np.full((len(collections), 1, self.k, devices.d), np.inf)
        for place, table in enumerate(collections):
            if len(table):
                means, weights, _ = Rows.of(table)
                tries = [
                    search(devices.kernels, devices.shared_key, means, weights, self.k,
                           most=_BREATH, seedings=1, first=number)
                    for number in range(_STARTS)
                ]  # fmt: skip
                found[place, 0] = min(tries, key=lambda one: one[1])[0]
        return found
