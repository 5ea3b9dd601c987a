"""Rows that stand for the points of several devices: what a clustering costs each device, and clusterings of some."""

from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Integers, Kernels, Search, Stream, cluster, trials
from p2pkm.methods.building_blocks.total_variation import squared
from p2pkm.methods.building_blocks.weighted_rows import Rows

_SEEDINGS, _LIMIT = 4, 300  # of a weighted k-means


class DeviceRows(NamedTuple):
    """The rows of n devices.

    Attributes
    ----------
    kernels : Kernels
    key : int
        Of the random stream.
    rows : Rows
    owner : int64[r]
        Number of each row's device, ascending; each of 0, ..., n - 1 has rows.
    k : int
        Clusters of a group.
    unit : float
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
        """Return the number of devices."""
        return int(self.owner[-1]) + 1

    def take(self, chosen: Integers) -> "DeviceRows":
        """Return the rows of some devices, int64[c] ascending, numbered from 0."""
        kept = np.isin(self.owner, chosen)
        rows = Rows(*(part[kept] for part in self.rows))
        return self._replace(rows=rows, owner=np.searchsorted(chosen, self.owner[kept]))

    def price(self, tables: Floats) -> Floats:
        """Return ``L_i(T_g)``, float64[G, n]; tables: float64[G, k, d], absent rows are +inf."""
        return price(self.rows, self.owner, self.n, tables)

    def cluster_each(self) -> tuple[Floats, Floats]:
        """Return the clustering of every device's own rows, best of 4, float64[n, k, d], and its cost, float64[n]."""
        firsts = np.searchsorted(self.owner, np.arange(self.n + 1))
        pooled = np.ascontiguousarray(self.rows.means), self.rows.weights, self.rows.weights, firsts
        streams = np.full(self.n, self.key, np.uint64), int(Stream.GROUP), 0
        found = self.kernels.kmeans(*pooled, self.k, trials(self.k), _SEEDINGS, _LIMIT, np.zeros(self.n), *streams)
        return found[0], found[2]

    def cluster_group(self, members: Integers, number: int) -> Floats:
        """Return the weighted k-means of the rows of some devices, bool[n], best of 4, float64[k, d]."""
        mine = members[self.owner]
        how = Search(self.k, Stream.GROUP, _SEEDINGS, _LIMIT, first=_SEEDINGS * (1 + number))
        return cluster(self.kernels, self.key, self.rows.means[mine], self.rows.weights[mine], how)[0]


def price(rows: Rows, owner: Integers, n: int, tables: Floats) -> Floats:
    """Return ``L_i(T_g)`` of n devices, float64[G, n]; owner: int64[r], tables: float64[G, k, d]."""
    each = [np.bincount(owner, rows.weights * squared(rows.means, one).min(axis=1), n) for one in tables]
    return np.array(each, np.float64).reshape(len(tables), n)
