"""Imputation of missing values by the mean of each feature over all devices, along a spanning tree."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from p2pkm.core.batch import Devices, Floats
from p2pkm.methods.init.tree_totals import PairwiseTotals, positive


@dataclass(frozen=True)
class Imputation(PairwiseTotals):
    """Mean of the known values of each feature over all devices, by one pass up and one down a spanning tree.

    Notes
    -----
    **Update.** Up: every device merges weight W and mean u of the known values of a feature with those of its children
    (w, v), in ascending id: ``W + w`` and ``u + (v - u) w / (W + w)``. Down: the mean. A feature without any known
    value has the mean 0.

    **Messages.** One row of 2 d numbers (d weights, d means) up and one of d numbers down over each tree link. Around a
    server: from and to each client.

    **Privacy.** No guarantee. The parent, or the server, receives for each feature weight and mean of the known values
    of a device and its descendants; the mean of a single value is that value. All devices receive the mean of all
    known values. With a `min_cluster_size` p a device does not count features with at most p known values.
    """

    name: ClassVar[str] = "imputation"

    def count_columns(self, d: int) -> tuple[int, int]:
        """Count weights and means up; means down."""
        return 2 * d, d

    def measure(self, devices: Devices) -> Floats:
        """Compute weights and means of the local known values."""
        n, d = len(devices), devices.d
        owner = np.repeat(np.arange(n), devices.sizes)
        is_known = ~np.isnan(devices.stored)
        counts, weights, sums = (np.zeros((n, d)) for _ in range(3))
        for j in range(d):
            rows = np.flatnonzero(is_known[:, j])
            point_weights = devices.point_weights[rows]
            values = devices.stored[rows, j].astype(np.float64)
            counts[:, j] = np.bincount(owner[rows], weights=np.ones(len(rows)), minlength=n)
            weights[:, j] = np.bincount(owner[rows], weights=point_weights, minlength=n)
            sums[:, j] = np.bincount(owner[rows], weights=point_weights * values, minlength=n)
        # More than p values, not p: the mean of p values and their count would be a row of p points.
        counted = counts > (devices.min_count if devices.min_count > 1 else 0)
        means = np.where(counted, sums / np.where(counted, weights, 1.0), 0.0)
        return np.concatenate((np.where(counted, weights, 0.0), means), axis=1)

    def combine(self, first: Floats, second: Floats) -> Floats:
        """Merge weights and means."""
        d = first.shape[1] // 2
        weight = first[:, :d] + second[:, :d]
        mean = first[:, d:] + (second[:, d:] - first[:, d:]) * (second[:, :d] / positive(weight))
        return np.concatenate((weight, mean), axis=1)

    def conclude(self, totals: Floats) -> Floats:
        """Select the means."""
        return totals[:, totals.shape[1] // 2 :]
