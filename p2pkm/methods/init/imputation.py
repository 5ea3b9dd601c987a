"""Means of the known values of every feature, to fill in missing ones, without a server."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from p2pkm.core.batch import Devices, Floats, Mask
from p2pkm.core.expected_messages import Flooding, Known
from p2pkm.core.messages import DenseMessages, Inbox
from p2pkm.core.protocols import MethodBase
from p2pkm.core.states import register
from p2pkm.core.traits import MethodTraits
from p2pkm.methods.building_blocks.flooding import Flood, begin, group, receive, send


@register("imputation")
class ImputationState(NamedTuple):
    """centroids: float64[n, k, d], none yet; converged: bool[n]; filling: float64[n, d], the means; flood."""

    centroids: Floats
    converged: Mask
    filling: Floats
    flood: Flood


@dataclass(frozen=True)
class Imputation(MethodBase):
    """``(W, mean)`` of the known values of every feature from those of the devices, merged in ascending origin.

    With weight w and mean u of one more device, ``mean + (u - mean) w / (W + w)``. A feature of which nobody knows a
    value has the mean 0.

    Message: one row (d weights, d means) per device with points, flooded; the id of the origin travels uncounted.

    Privacy: every device sees, of every device and feature, how many values are known (their weight) and their mean;
    the mean of a single known value is that value. With a `min_cluster_size` p a device sends nothing of a feature of
    which it knows at most p values.
    """

    name: ClassVar[str] = "imputation"
    traits: ClassVar[MethodTraits] = MethodTraits()
    k: int
    schedule: str = "jacobi"

    def expected_messages(self, known: Known) -> Flooding:
        """Return weights and means of every device; who knows no value has none."""
        return Flooding(1, 2 * known.features, exact=False, all_send=False)

    def initial_state(self, devices: Devices, start: Any) -> ImputationState:
        """Measure the known values of the own points."""
        n, d = len(devices), devices.d
        owner = np.repeat(np.arange(n), devices.sizes)
        there = ~np.isnan(devices.stored)
        counts, weights, sums = (np.zeros((n, d)) for _ in range(3))
        for j in range(d):
            rows = np.flatnonzero(there[:, j])
            mass, values = devices.point_weights[rows], devices.stored[rows, j].astype(np.float64)
            for total, part in ((counts, np.ones(len(rows))), (weights, mass), (sums, mass * values)):
                total[:, j] = np.bincount(owner[rows], weights=part, minlength=n)
        least = devices.min_count if devices.min_count > 1 else 0
        told = counts > least
        means = np.where(told, sums / np.where(told, weights, 1.0), 0.0)
        table = np.concatenate((np.where(told, weights, 0.0), means), axis=1)[:, None, :]
        flood = begin(devices, table, (told.sum(axis=1) > 0).astype(np.int64))
        return ImputationState(np.full((n, self.k, d), np.inf), np.zeros(n, np.bool_), np.zeros((n, d)), flood)

    def message(self, state: ImputationState, devices: Devices) -> DenseMessages:
        """Forward what is news."""
        return send(state.flood, devices)

    def update(self, state: ImputationState, inbox: Inbox, devices: Devices) -> ImputationState:
        """Take in means; merge them if there was nothing new."""
        flood = receive(state.flood, inbox, devices)
        ready = np.logical_not(flood.news.any(axis=1))
        members, filling = np.flatnonzero(ready & ~state.converged), state.filling.copy()
        if len(members):
            collections, which = group(flood, members)
            filling[members] = np.array([_merge(rows, devices.d) for rows in collections])[which]
        return ImputationState(state.centroids, ready, filling, flood)


def _merge(rows: Floats, d: int) -> Floats:
    """Return the mean of every feature from rows (weights, means), float64[d]."""
    total, mean = np.zeros(d), np.zeros(d)
    for row in rows:
        total = total + row[:d]
        mean = mean + (row[d:] - mean) * np.where(row[:d] > 0, row[:d] / np.where(total > 0, total, 1.0), 0.0)
    return mean
