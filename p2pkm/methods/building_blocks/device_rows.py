"""Summary rows of several devices: costs of clusterings for each device, and clusterings of devices and groups."""

from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Integers, Kernels, Search, Stream, cluster, trials
from p2pkm.methods.building_blocks.total_variation import squared_distances
from p2pkm.methods.building_blocks.weighted_rows import Rows

# Seedings, and largest number of Lloyd steps, of a weighted k-means.
_SEEDINGS = 4
_LIMIT = 300


class DeviceRows(NamedTuple):
    """Summary rows of n devices.

    Attributes
    ----------
    kernels : Kernels
    key : int
        Key of the random stream.
    rows : Rows
    owner : int64[r]
        Number of each row's device, ascending; each of 0, ..., n - 1 has rows.
    k : int
        Number of clusters of a group.
    unit : float, default=1.0
        Weight of a point.
    """

    kernels: Kernels
    key: int
    rows: Rows
    owner: Integers
    k: int
    unit: float = 1.0

    @property
    def n(self) -> int:
        """Number of devices."""
        return int(self.owner[-1]) + 1

    def take(self, chosen: Integers) -> "DeviceRows":
        """Select the rows of some devices, int64[c] ascending; they are numbered from 0."""
        is_selected = np.isin(self.owner, chosen)
        rows = Rows(*(column[is_selected] for column in self.rows))
        return self._replace(rows=rows, owner=np.searchsorted(chosen, self.owner[is_selected]))

    def costs(self, tables: Floats) -> Floats:
        """Compute ``L_i(T_g)``, float64[G, n], of tables float64[G, k, d]; absent rows are +inf."""
        return device_costs(self.rows, self.owner, self.n, tables)

    def cluster_each(self) -> tuple[Floats, Floats]:
        """Cluster the rows of every device, best of 4: tables, float64[n, k, d], and their costs, float64[n]."""
        firsts = np.searchsorted(self.owner, np.arange(self.n + 1))
        pooled = np.ascontiguousarray(self.rows.means), self.rows.weights, self.rows.weights, firsts
        streams = np.full(self.n, self.key, np.uint64), int(Stream.GROUP), 0
        tables, _, costs = self.kernels.kmeans(
            *pooled, self.k, trials(self.k), _SEEDINGS, _LIMIT, np.zeros(self.n), *streams
        )
        return tables, costs

    def cluster_group(self, members: Integers, number: int) -> Floats:
        """Cluster the rows of some devices, bool[n], by weighted k-means, best of 4: float64[k, d]."""
        rows = members[self.owner]
        search = Search(self.k, Stream.GROUP, _SEEDINGS, _LIMIT, first=_SEEDINGS * (1 + number))
        return cluster(self.kernels, self.key, self.rows.means[rows], self.rows.weights[rows], search)[0]


def device_costs(rows: Rows, owner: Integers, n: int, tables: Floats) -> Floats:
    """Compute ``L_i(T_g)`` of n devices, float64[G, n], from owners int64[r] and tables float64[G, k, d]."""
    costs = [np.bincount(owner, rows.weights * squared_distances(rows.means, table).min(axis=1), n) for table in tables]
    return np.array(costs, np.float64).reshape(len(tables), n)
