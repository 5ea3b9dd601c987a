"""Groups of devices, each with a clustering of its own, found among rows that stand for the points of all devices.

With rows (mean a_r, weight n_r, SSE) of device i, ``L_i(T) = sum_r n_r min_c |a_r - T_c|^2``. Sought are G tables T_1,
..., T_G and a label l(i) of every device that minimize ``sum_i L_i(T_l(i))``: k-means of devices, whose centers are
clusterings.
"""

from typing import NamedTuple

import numpy as np

from p2pkm.core.batch import Floats, Integers, Kernels, Search, Stream, cluster, trials
from p2pkm.kernels.reference import uniforms
from p2pkm.methods.building_blocks.total_variation import squared
from p2pkm.methods.building_blocks.weighted_rows import Rows

MOST = 8  # groups, where their number is open
_RESTARTS, _ROUNDS = 12, 12
_SEEDINGS, _LIMIT = 4, 300  # of a weighted k-means
_FALL = 0.8  # one group more must bring the cost below this share


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
    """

    kernels: Kernels
    key: int
    rows: Rows
    owner: Integers
    k: int

    @property
    def n(self) -> int:
        """Return the number of devices."""
        return int(self.owner[-1]) + 1

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


def find_groups(devices: DeviceRows, count: int | None = None) -> Floats:
    """Return the tables of the groups, float64[G, k, d].

    J_G is the least cost found for G groups plus the SSE of all rows. From G = 1 on there is one group more while
    ``J_(G+1) < .8 J_G`` and G is below 8 and the number of devices.

    Parameters
    ----------
    devices : DeviceRows
    count : int, optional
        The number of groups, instead of the rule.
    """
    alone = devices.cluster_each()
    if count is not None:
        return search(devices, alone, count)[0]
    within = float(np.cumsum(devices.rows.within)[-1])
    tables, cost = search(devices, alone, 1)
    while len(tables) < min(MOST, devices.n):
        more, less = search(devices, alone, len(tables) + 1)
        if not less + within < _FALL * (cost + within):
            break
        tables, cost = more, less
    return tables


def search(devices: DeviceRows, alone: tuple[Floats, Floats], count: int) -> tuple[Floats, float]:
    """Return the best tables of 12 restarts, float64[count, k, d], and what the rows cost with them.

    A restart draws devices and begins with their own tables. Then, up to 12 times, every device is labeled with its
    cheapest table, and the table of each group gives way to the best of 4 weighted k-means on its rows if that costs
    less, so that the cost never rises.

    Parameters
    ----------
    devices : DeviceRows
    alone : tuple
        What `DeviceRows.cluster_each` returns.
    count : int
    """
    best, least = alone[0][:0], np.inf
    for number in range(_RESTARTS):
        tables, cost = _descend(devices, alone[0][_draw(devices, alone, count, number)], number)
        if cost < least:
            best, least = tables, cost
    return best, least


def _draw(devices: DeviceRows, alone: tuple[Floats, Floats], count: int, number: int) -> list[int]:
    """Return devices, the first one at random, each other one by its least cross cost to those before.

    The cross cost of i and j is ``L_i(A_j) - L_i(A_i) + L_j(A_i) - L_j(A_j)``, A their own tables.
    """
    (tables, own), n = alone, devices.n
    draws = uniforms(devices.key, Stream.CHOICE, [number], count)[0]
    chosen, weight = [int(draws[0] * n)], np.full(n, np.inf)
    for draw in draws[1:]:
        last = chosen[-1]
        mine = slice(*np.searchsorted(devices.owner, [last, last + 1]))
        apart = squared(devices.rows.means[mine], tables.reshape(-1, tables.shape[2])).reshape(-1, *tables.shape[:2])
        theirs = np.cumsum(devices.rows.weights[mine, None] * apart.min(axis=2), axis=0)[-1]
        cross = devices.price(tables[[last]])[0] - own + theirs - own[last]
        weight = np.minimum(weight, np.maximum(cross, 0.0))
        weight[chosen] = 0.0
        upto = np.cumsum(weight)
        chosen.append(int(np.searchsorted(upto, draw * upto[-1], side="right")) if upto[-1] > 0.0 else last)
    return chosen


def _descend(devices: DeviceRows, tables: Floats, number: int) -> tuple[Floats, float]:
    """Return tables after labels and weighted k-means in turns, and their cost."""
    costs, tables = devices.price(tables), tables.copy()
    labels = np.full(devices.n, -1)
    for step in range(_ROUNDS):
        before, labels = labels, np.argmin(costs, axis=0)
        for group in range(len(tables)):
            members = labels == group
            if not members.any() or (members == (before == group)).all():
                continue
            found = devices.cluster_group(members, (number * _ROUNDS + step) * len(tables) + group)
            cost = devices.price(found[None])[0]
            if np.cumsum(cost[members])[-1] < np.cumsum(costs[group, members])[-1]:
                tables[group], costs[group] = found, cost
    return tables, float(np.cumsum(costs.min(axis=0))[-1])
