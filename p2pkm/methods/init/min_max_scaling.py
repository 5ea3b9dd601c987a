"""Smallest and largest value of each feature for min-max scaling, along a spanning tree."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from p2pkm.core.batch import Devices, Floats
from p2pkm.methods.init.bounding_box import local_boxes
from p2pkm.methods.init.tree_totals import PairwiseTotals


@dataclass(frozen=True)
class MinMaxScaling(PairwiseTotals):
    """Smallest value and range of each feature over all devices, by one pass up and one down a spanning tree.

    Notes
    -----
    **Update.** Up: every device extends the box of its local points by those of its children. Down: lower corner and
    lengths of the sides; 0 without points.

    **Messages.** One row of 2 d numbers up and one down over each tree link. Around a server: from and to each client.

    **Privacy.** No guarantee. Each number of a corner is a coordinate of some point, at first of a local point; the
    corners of a device with one point are that point. With a `min_cluster_size` p the corners are means of the p
    smallest and of the p largest values of each feature, and a device with fewer points does not contribute.
    """

    name: ClassVar[str] = "min-max-scaling"

    def count_columns(self, d: int) -> tuple[int, int]:
        """Count two corners up; a corner and the lengths of the sides down."""
        return 2 * d, 2 * d

    def measure(self, devices: Devices) -> Floats:
        """Compute the boxes of the local points; (+inf, -inf) without points."""
        return local_boxes(devices).reshape(len(devices), 2 * devices.d)

    def combine(self, first: Floats, second: Floats) -> Floats:
        """Compute the smallest box around two."""
        d = first.shape[1] // 2
        low, high = np.minimum(first[:, :d], second[:, :d]), np.maximum(first[:, d:], second[:, d:])
        return np.concatenate((low, high), axis=1)

    def conclude(self, totals: Floats) -> Floats:
        """Compute lower corner and lengths of the sides."""
        d = totals.shape[1] // 2
        corners = np.where(totals[:, :1] < np.inf, totals, 0.0)
        return np.concatenate((corners[:, :d], corners[:, d:] - corners[:, :d]), axis=1)
