"""Imputation of missing values by the mean of each feature over all devices, without a server."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Mask
from p2pkm.core.expected_messages import Flooding, Known
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MethodTraits
from p2pkm.methods.building_blocks.flooding import Flood, begin, distinct_collections, receive, send


@register("imputation")
class ImputationState(NamedTuple):
    """State of a batch.

    Attributes
    ----------
    centroids : float64[n, k, d]
        Always +inf: the stage finds no centroids.
    converged : bool[n]
    filling : float64[n, d]
        Mean of each feature, 0 until the device has merged all rows.
    flood : Flood
    """

    centroids: Floats
    converged: Mask
    filling: Floats
    flood: Flood


@dataclass(frozen=True)
class Imputation(MethodBase):
    """Mean of the known values of each feature over all devices, by flooding.

    Attributes
    ----------
    k : int
        Number of clusters.

    Notes
    -----
    **Update.** Every device merges the rows of all devices in ascending id of their origin. A device with weight w and
    mean u of the known values of a feature changes total weight W and mean to ``W + w`` and
    ``mean + (u - mean) w / (W + w)``. A feature without any known value has the mean 0.

    **Messages.** One row (d weights, d means) per device with known values, flooded. The id of the origin is not
    counted.

    **Privacy.** No guarantee. Every device receives, for every device and feature, weight and mean of the known values;
    the mean of a single value is that value. With a `min_cluster_size` p a device sends nothing for a feature with at
    most p known values.
    """

    name: ClassVar[str] = "imputation"
    traits: ClassVar[MethodTraits] = MethodTraits()
    k: int
    schedule: str = "jacobi"

    def expected_messages(self, known: Known) -> Flooding:
        """Count weights and means of every device; a device without known values sends none."""
        return Flooding(1, 2 * known.features, exact=False, all_send=False)

    def initial_state(self, devices: Devices, start: Any) -> ImputationState:
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
        sent = counts > (devices.min_count if devices.min_count > 1 else 0)
        means = np.where(sent, sums / np.where(sent, weights, 1.0), 0.0)
        table = np.concatenate((np.where(sent, weights, 0.0), means), axis=1)[:, None, :]
        flood = begin(devices, table, (sent.sum(axis=1) > 0).astype(np.int64))
        return ImputationState(np.full((n, self.k, d), np.inf), np.zeros(n, np.bool_), np.zeros((n, d)), flood)

    def message(self, state: ImputationState, devices: Devices) -> DenseMessages:
        """Forward the rows received in the last turn."""
        return send(state.flood, devices)

    def update(self, state: ImputationState, inbox: Inbox, devices: Devices) -> ImputationState:
        """Store received rows; merge all rows if none was new."""
        flood = receive(state.flood, inbox, devices)
        ready = np.logical_not(flood.new_origins.any(axis=1))
        members = np.flatnonzero(ready & ~state.converged)
        filling = state.filling.copy()
        if len(members):
            collections, numbers = distinct_collections(flood, members)
            filling[members] = np.array([_merge(rows, devices.d) for rows in collections])[numbers]
        return ImputationState(state.centroids, ready, filling, flood)


def _merge(rows: Floats, d: int) -> Floats:
    """Merge rows (weights, means) into the mean of every feature, float64[d]."""
    total, mean = np.zeros(d), np.zeros(d)
    for row in rows:
        total = total + row[:d]
        mean = mean + (row[d:] - mean) * np.where(row[:d] > 0, row[:d] / np.where(total > 0, total, 1.0), 0.0)
    return mean
